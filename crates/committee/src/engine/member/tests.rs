//! One member by itself: what its engine asks and what others send is handed to it by hand.

use commonware_consensus::types::{Epoch, Round, View};
use commonware_runtime::{Clock as _, Supervisor as _};

use super::*;
use crate::Operation;
use crate::engine::MEMBERS_MIN;
use crate::engine::tests::{Context as Simulation, founded, members, settings, simulated};
use crate::proving::{Founded, secret};

/// A member of four, and the keys of all.
struct Alone {
    member: Member<Simulation>,
    keys: Vec<Key>,
    _receiver: Receiver<Key>,
    besides: mpsc::UnboundedReceiver<beside::Done>,
}

impl Alone {
    async fn new(context: Simulation) -> Self {
        drop(founded(&context, MEMBERS_MIN as u8).await);
        let starts = vec![1; MEMBERS_MIN];
        let settings = settings(&starts, 0, &[0]);
        let opened = Box::pin(Member::open(context.child("member"), settings)).await;
        let (member, receiver, besides) = opened.expect("it was founded");
        let keys = members(&starts).1.iter().map(|(id, _)| id.key().expect("a key")).collect();
        Self { member, keys, _receiver: receiver, besides }
    }

    /// The engine asks about a block, after a parent that a quorum notarised.
    async fn ask(&mut self, parent: HeaderDigest, digest: HeaderDigest) -> oneshot::Receiver<bool> {
        let (response, answer) = oneshot::channel();
        let [parent, payload] = [parent, digest].map(|one| blake3::Digest(*one.as_bytes()));
        let context = Context {
            round: Round::new(Epoch::new(0), View::new(9)),
            leader: self.keys[1].clone(),
            parent: (View::new(8), parent),
        };
        let ask = Ask::Verify { context, payload, response };
        self.member.answer(ask).await.expect("a good disk");
        answer
    }

    async fn hear(&mut self, from: usize, message: &Message) {
        let from = self.keys[from].clone();
        self.member.hear(from, message.encode().into()).await.expect("a good disk");
    }

    /// Another passes on submissions; how many of them were checked beside the task, in time.
    async fn pass_on(&mut self, from: usize, all: &[crate::Submission]) -> usize {
        let all = all.iter().map(crate::Submission::encode).collect();
        self.hear(from, &Message::Submissions(all)).await;
        self.member.context.sleep(Duration::from_millis(200)).await;
        let mut checked = 0;
        while let Ok(done) = self.besides.try_recv() {
            if let beside::Done::Passed(_, good, whole) = &done {
                assert!(whole);
                checked += good.len();
            }
            self.member.done(done).expect("a good disk");
        }
        checked
    }

    /// Submissions of this committee, of authors who send a few each.
    fn submissions(&self, numbers: std::ops::Range<u32>) -> Vec<crate::Submission> {
        let one = |number: u32| {
            let author = secret(1 + (number / 500) as u8);
            let update = crate::Update {
                network: crate::proving::NETWORK,
                group: self.member.charter.rules.group,
                author: author.public(),
                id: u128::from(number).to_be_bytes(),
                last_valid: u64::MAX,
                operation: Operation::Peer { certificate: Bytes::new() },
            };
            update.sign(&author).expect("good")
        };
        numbers.map(one).collect()
    }

    fn tip(&self) -> HeaderDigest {
        self.member.chain.tip().digest()
    }
}

/// A block of a megabyte that says what its maker likes.
fn made_up(large: &Block, height: u64, parent: HeaderDigest) -> Block {
    let mut block = large.clone();
    (block.header.height, block.header.parent) = (height, parent);
    block
}

fn large() -> Block {
    let mut founded = Founded::new(4);
    let one = |number: u8| {
        let certificate = Bytes::from(vec![number; 20_000]);
        let update = founded.update(1, number, Operation::Peer { certificate });
        update.sign(&secret(1)).expect("good")
    };
    let all = (0..50).map(one).collect();
    founded.block(all).0
}

#[test]
fn a_chain_that_a_liar_made_up_backwards_is_not_asked_for_block_by_block() {
    simulated(60, async |context| {
        let mut alone = Box::pin(Alone::new(context)).await;
        let (large, tip) = (large(), alone.tip());
        let mut chain = vec![made_up(&large, u64::MAX, HeaderDigest::new([7; 32]))];
        for _ in 0..40 {
            let parent = chain.last().expect("one").header.digest();
            chain.push(made_up(&large, u64::MAX, parent));
        }
        let proposed = chain.last().expect("one").header.digest();
        let mut answer = alone.ask(tip, proposed).await;
        for block in chain.iter().rev() {
            alone.hear(3, &Message::Block(block.encode())).await;
        }
        assert!(chain.iter().all(|one| !alone.member.parked.has(&one.header.digest())));
        assert_eq!(answer.try_recv(), Ok(false), "it does not name its parent");
        // One that names the parent which the engine goes on from, and is nowhere, waits for that alone.
        let notarised = HeaderDigest::new([8; 32]);
        let mut waits = Vec::new();
        for number in 0..40 {
            let block = made_up(&large, u64::MAX - number, notarised);
            waits.push(alone.ask(notarised, block.header.digest()).await);
            alone.hear(3, &Message::Block(block.encode())).await;
            waits.drain(..waits.len() - 1).for_each(drop);
        }
        let bytes = alone.member.parked.bytes();
        assert!((1..=3 * crate::header::BLOCK_BYTES_MAX).contains(&bytes), "{bytes}");
        let last = made_up(&large, u64::MAX - 39, notarised).header.digest();
        assert!(alone.member.parked.has(&last), "the one that is asked about now has a place");
    });
}

#[test]
fn a_long_chain_that_a_quorum_notarised_is_fetched_backwards_and_voted_on() {
    simulated(61, async |context| {
        let mut alone = Box::pin(Alone::new(context)).await;
        let mut others = Chain::new(&alone.member.charter);
        let (mut blocks, mut parent) = (Vec::new(), alone.tip());
        // More than wait unasked, of one member or so far above the tip.
        for _ in 0..300 {
            let (digest, bytes) = others.propose(&parent, 1, Vec::new()).expect("on its parent");
            blocks.push((digest, bytes));
            parent = digest;
        }
        let [.., (notarised, _), (proposed, last)] = &blocks[..] else { panic!("300 of them") };
        let mut answer = alone.ask(*notarised, *proposed).await;
        alone.hear(1, &Message::Block(last.clone())).await;
        for (digest, bytes) in blocks.iter().rev().skip(1) {
            assert!(answer.try_recv().is_err(), "it stands on what is not here yet");
            let wanted = alone.member.wanted.get(digest);
            assert!(wanted.is_some_and(|one| one.vouched), "{digest:?}");
            alone.hear(2, &Message::Block(bytes.clone())).await;
        }
        assert_eq!(answer.try_recv(), Ok(true));
        assert!(alone.member.chain.above(proposed).is_some());
    });
}

#[test]
fn what_there_is_no_room_for_is_not_checked_however_often_it_is_passed_on() {
    simulated(62, async |context| {
        let mut alone = Box::pin(Alone::new(context)).await;
        let share = crate::engine::pool::WAITING_MAX / 8;
        let all = alone.submissions(0..share as u32 + 1_000);
        let mut checked = 0;
        for part in all.chunks(1_000) {
            checked += alone.pass_on(3, part).await;
        }
        assert_eq!((checked, alone.member.pool.len()), (share, share), "its share of the room");
        for _ in 0..50 {
            assert_eq!(alone.pass_on(3, &all[share..]).await, 0, "there is no room for them");
        }
        // Another has room of its own.
        assert_eq!(alone.pass_on(2, &all[share..]).await, 1_000);
        assert_eq!(alone.member.pool.len(), all.len());
    });
}

#[test]
fn while_too_much_is_being_checked_what_others_pass_on_does_not_hold_the_one_task_up() {
    simulated(63, async |context| {
        let mut alone = Box::pin(Alone::new(context)).await;
        let all = alone.submissions(0..100);
        alone.member.beside.fill(true);
        assert_eq!(alone.pass_on(3, &all).await, 0);
        assert_eq!(alone.member.pool.len(), 0, "none of it was checked in the one task");
        alone.member.beside.fill(false);
        alone.pass_on(3, &all).await;
        assert_eq!(alone.member.pool.len(), 100, "it is not forgotten that it was not taken");
    });
}

#[test]
fn members_begin_their_logs_anew_one_after_the_other() {
    let all: Vec<u64> = (0..4).map(|slot| spread(64 << 20, slot, 4)).collect();
    assert_eq!(all, [64 << 20, 80 << 20, 96 << 20, 112 << 20]);
    assert_eq!(spread(10, 0, 0), 10, "one that is no member");
    simulated(64, async |context| {
        let mut members = crate::engine::tests::Members::start(context, 4).await;
        members.known().await;
        members.context.sleep(Duration::from_secs(30)).await;
        // Blocks are as long for all; the logs of 4 KiB and more were begun anew some times, at other blocks each.
        let mut lengths = std::collections::BTreeSet::new();
        for which in 0..4 {
            members.kill(which).await;
            let log = Log::open(members.context.child("log"), format!("m{which}-chain")).await;
            let (certificate, _) = log.expect("it was written").1.snapshot.expect("begun anew");
            lengths.insert(certificate.header().height);
        }
        assert!(lengths.len() > 1, "{lengths:?}");
    });
}
