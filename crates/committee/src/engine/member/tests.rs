//! One member by itself: what its engine asks and what others send is handed to it by hand.

use commonware_consensus::types::{Epoch, Round, View};
use commonware_runtime::Supervisor as _;

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
    _besides: mpsc::UnboundedReceiver<beside::Done>,
}

impl Alone {
    async fn new(context: Simulation) -> Self {
        drop(founded(&context, MEMBERS_MIN as u8).await);
        let starts = vec![1; MEMBERS_MIN];
        let settings = settings(&starts, 0, &[0]);
        let opened = Member::open(context.child("member"), settings).await;
        let (member, receiver, besides) = opened.expect("it was founded");
        let keys = members(&starts).1.iter().map(|(id, _)| id.key().expect("a key")).collect();
        Self { member, keys, _receiver: receiver, _besides: besides }
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
        let mut alone = Alone::new(context).await;
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
        let mut alone = Alone::new(context).await;
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
