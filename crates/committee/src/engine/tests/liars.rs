//! A member that lies by hand: it has the connections of one, and says what no honest one says.

use commonware_p2p::authenticated::lookup::{Oracle, Receiver, Sender};
use commonware_p2p::{Receiver as _, Recipients, Sender as _};

use super::*;
use crate::engine::wire::Message;
use crate::group::SIGNATURE_BYTES;

pub(super) struct Liar {
    sender: Sender<Key, Context>,
    receiver: Receiver<Key>,
    _others: Vec<super::super::links::Channel<Context>>,
    _oracle: Oracle<Key>,
}

impl Liar {
    pub(super) fn new(members: &Members, which: usize) -> Self {
        let links = links(&members.starts, which);
        let mut open = links.open(&members.context, &NETWORK, b"", 0).expect("a few members");
        let others = (0..3).map(|number| open.channel(number)).collect();
        let (sender, receiver) = open.channel(3);
        let oracle = open.oracle.clone();
        open.start();
        Self { sender, receiver, _others: others, _oracle: oracle }
    }

    /// Says something to all; how many are connected to it.
    pub(super) fn say(&mut self, bytes: Vec<u8>) -> usize {
        self.sender.send(Recipients::All, bytes, false).len()
    }
}

/// How many members the first hears, of which the last says that it is there and, each second, something else too.
async fn heard(members: &mut Members, liar: &mut Liar, lie: &[Vec<u8>]) -> u32 {
    for _ in 0..8 {
        liar.say(Message::Here(0).encode());
        for lie in lie {
            liar.say(lie.clone());
        }
        members.context.sleep(Duration::from_secs(1)).await;
    }
    members.handle(0).status().await.expect("it runs").heard
}

/// Messages that no honest member sends.
type Lie = fn(&mut Members) -> Vec<Vec<u8>>;

#[test]
fn a_member_that_sends_what_no_honest_one_sends_is_cut_off() {
    let lies: [Lie; 4] = [
        |_| vec![vec![99]],
        |_| vec![Message::Block(Bytes::from_static(b"no block")).encode()],
        |members| {
            let (record, _) = object(1);
            let good = members.update(Operation::Object { record, policy: Bytes::new() });
            let mut forged = good.encode().to_vec();
            forged[40] ^= 1;
            vec![Message::Submissions(vec![forged.into()]).encode()]
        },
        |_| {
            let mut other = Founded::new(4);
            (0..1_000).for_each(|_| drop(other.block(Vec::new())));
            let certificate = other.certify(&other.tip).encode();
            // It is asked what comes after the tip, since it says that it is far ahead.
            let since = Message::Since { certificate, blocks: Vec::new() };
            vec![Message::Here(u64::MAX).encode(), since.encode()]
        },
    ];
    for (seed, lie) in (20..).zip(lies) {
        simulated(seed, async |context| {
            let mut members = Members::start(context, 4).await;
            members.kill(3).await;
            members.starts[3] += 1;
            for which in 0..3 {
                let places = super::members(&members.starts).1;
                members.handle(which).moved(places).await.expect("it runs");
            }
            let mut liar = Liar::new(&members, 3);
            assert_eq!(heard(&mut members, &mut liar, &[]).await, 4, "while it behaves");
            let lie = lie(&mut members);
            assert_eq!(heard(&mut members, &mut liar, &lie).await, 3, "{seed}");
        });
    }
}

#[test]
fn a_false_notarisation_delays_no_fresh_read_and_cuts_its_maker_off() {
    simulated(30, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        members.kill(3).await;
        members.starts[3] += 1;
        for which in 0..3 {
            let places = super::members(&members.starts).1;
            members.handle(which).moved(places).await.expect("it runs");
        }
        let mut liar = Liar::new(&members, 3);
        heard(&mut members, &mut liar, &[]).await;
        // It answers as fast as it can, with a view that there is not: now and then before the others.
        let notarised = Notarised {
            view: u64::MAX / 2,
            parent_view: 1,
            epoch: 0,
            digest: [1; 32],
            signature: [7; SIGNATURE_BYTES],
        };
        let handle = members.handle(0);
        let reading = members.context.child("reading").spawn(move |context| async move {
            let mut answered = 0;
            for _ in 0..30 {
                answered += u32::from(handle.read_fresh(key, "main").await.is_ok());
                context.sleep(Duration::from_millis(50)).await;
            }
            answered
        });
        let lying = members.context.child("lying").spawn(move |_| async move {
            while let Ok((_, message)) = liar.receiver.recv().await {
                if let Ok(Message::HowFar(nonce)) = Message::decode(&Bytes::from(message)) {
                    liar.say(Message::ThisFar { nonce, notarised: notarised.clone() }.encode());
                }
            }
        });
        assert_eq!(reading.await.expect("it ends"), 30, "the honest members answer");
        members.context.sleep(Duration::from_secs(6)).await;
        assert_eq!(members.handle(0).status().await.expect("it runs").heard, 3);
        lying.abort();
    });
}

#[test]
fn of_many_that_come_at_once_the_false_one_alone_is_refused() {
    simulated(31, async |context| {
        let mut members = Members::start(context, 4).await;
        let key = members.known().await;
        let set = |number: u8| {
            let (branch, new) = (format!("b{number}").into(), version(number));
            let receipts = vec![crate::proving::receipt(5, &new)];
            Operation::Set { object: key, branch, expected: None, new, receipts }
        };
        let mut all: Vec<Submission> = (0..40).map(|number| members.update(set(number))).collect();
        let mut forged = all[17].encode().to_vec();
        forged[40] ^= 1;
        all[17] = Submission::decode(&forged.into()).expect("well formed");
        let handle = members.handle(0);
        let asked = all.iter().map(|one| handle.update(one.clone()));
        let answers = futures::future::join_all(asked).await;
        for (number, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(answers) => {
                    answers[0].verify(&NETWORK, &members.charter.group).expect("certified");
                    assert!(matches!(answers[0].outcome, Outcome::Accepted { .. }));
                    assert_ne!(number, 17);
                }
                Err(error) => {
                    assert!(matches!(error, CommitteeError::Key(_)), "{error}");
                    assert_eq!(number, 17);
                }
            }
        }
    });
}

/// Lets the members that run know where the others are now.
async fn tell_places(members: &Members, which: &[usize]) {
    for which in which {
        let places = super::members(&members.starts).1;
        members.handle(*which).moved(places).await.expect("it runs");
    }
}

#[test]
fn an_answer_that_takes_long_on_its_way_still_counts() {
    simulated(35, async |context| {
        let mut members = Members::start(context, 4).await;
        members.known().await;
        members.kill(3).await;
        members.context.sleep(Duration::from_secs(4)).await;
        let tip = members.handle(2).status().await.expect("it runs").height;
        for which in 0..3 {
            members.kill(which).await;
        }
        // What the third knows is sent by hand; the second says all the time that it is far ahead.
        let log = log::Log::open(members.context.child("log"), String::from("m2-chain")).await;
        let (log, _) = log.expect("it was written");
        members.starts[1] += 1;
        members.starts[2] += 1;
        members.run(&[3]).await;
        let mut ahead = Liar::new(&members, 1);
        let mut slow = Liar::new(&members, 2);
        let height = loop {
            ahead.say(Message::Here(u64::MAX).encode());
            slow.say(Message::Here(tip).encode());
            let (_, message) = slow.receiver.recv().await.expect("connected");
            if let Ok(Message::WantSince(height)) = Message::decode(&Bytes::from(message)) {
                break height;
            }
        };
        assert!(height < tip, "it has missed some");
        // On a slow line nothing else comes before the answer does.
        for _ in 0..20 {
            ahead.say(Message::Here(u64::MAX).encode());
            members.context.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(members.handle(3).status().await.expect("it runs").height, height);
        let since = log.since(height, 100, 1 << 20).await.expect("readable");
        let (certificate, blocks) = since.expect("it begins before that");
        slow.say(Message::Since { certificate, blocks }.encode());
        members.context.sleep(Duration::from_secs(1)).await;
        let now = members.handle(3).status().await.expect("it runs").height;
        assert!(now > height, "it is taken: {height}, {now}");
    });
}

#[test]
fn one_that_claims_to_be_far_ahead_does_not_make_the_others_ask_more_rarely() {
    simulated(36, async |context| {
        let mut members = Members::start(context, 4).await;
        members.known().await;
        members.kill(3).await;
        members.starts[3] += 1;
        tell_places(&members, &[0, 1, 2]).await;
        let mut liar = Liar::new(&members, 3);
        let (mut asked, mut last) = (0, 0);
        // Each of the others says once a second that it is there.
        for heard in 0..150 {
            liar.say(Message::Here(u64::MAX).encode());
            let (_, message) = liar.receiver.recv().await.expect("connected");
            if let Ok(Message::WantSince(_)) = Message::decode(&Bytes::from(message)) {
                (asked, last) = (asked + usize::from(heard > 50), heard);
            }
        }
        assert!(asked > 10, "{asked} questions, the last one at {last}");
    });
}

/// What a liar answers who is asked for what comes after a tip, made of a certificate of one of the blocks and of them.
type Answered = fn(Bytes, Vec<Bytes>) -> Message;

#[test]
fn a_tip_under_the_finalisation_of_a_later_block_is_not_taken_and_its_maker_cut_off() {
    let answers: [Answered; 2] = [
        |certificate, blocks| Message::Since { certificate, blocks },
        |certificate, _| {
            let bytes = Bytes::from(vec![0; wire::PART_BYTES_MAX]);
            let total = 2 * wire::PART_BYTES_MAX as u64;
            Message::Part { certificate, total, offset: 0, bytes }
        },
    ];
    for (seed, answer) in (40..).zip(answers) {
        simulated(seed, async |context| {
            let mut members = Members::start(context, 4).await;
            members.known().await;
            members.kill(3).await;
            members.context.sleep(Duration::from_secs(4)).await;
            for which in 0..3 {
                members.kill(which).await;
            }
            let log = log::Log::open(members.context.child("log"), String::from("m2-chain")).await;
            let (log, _) = log.expect("it was written");
            members.starts[2] += 1;
            members.run(&[3]).await;
            let mut liar = Liar::new(&members, 2);
            let height = loop {
                liar.say(Message::Here(u64::MAX).encode());
                let (_, message) = liar.receiver.recv().await.expect("connected");
                if let Ok(Message::WantSince(height)) = Message::decode(&Bytes::from(message)) {
                    break height;
                }
            };
            let since = log.since(height, 3, 1 << 20).await.expect("readable");
            let (certificate, mut blocks) = since.expect("it begins before that");
            let header = |bytes: &Bytes| crate::Block::header_of(bytes).expect("ours");
            let later: Vec<crate::Header> = blocks.iter().skip(1).map(header).collect();
            assert!(!later.is_empty(), "it has missed some");
            blocks.truncate(1);
            let last = crate::Certificate::decode(&certificate).expect("ours");
            let last = last.finalization().expect("ours");
            let first = header(&blocks[0]);
            let certificate = crate::Certificate::new(first, later, &last).expect("they follow");
            certificate.verify(&NETWORK, &members.charter.group).expect("the first is final");
            assert_eq!(members.handle(3).status().await.expect("it runs").heard, 2);
            liar.say(answer(certificate.encode(), blocks).encode());
            for _ in 0..5 {
                members.context.sleep(Duration::from_secs(1)).await;
                liar.say(Message::Here(0).encode());
            }
            let status = members.handle(3).status().await.expect("it runs");
            assert_eq!((status.height, status.heard), (height, 1), "{seed}");
        });
    }
}

#[test]
fn a_member_that_passes_on_without_end_has_its_share_of_the_room_and_no_more() {
    simulated(42, async |context| {
        let mut members = Members::start(context, 4).await;
        // Alone nobody decides anything: what is taken waits.
        for which in 1..4 {
            members.kill(which).await;
        }
        members.starts[3] += 1;
        tell_places(&members, &[0]).await;
        let mut liar = Liar::new(&members, 3);
        heard(&mut members, &mut liar, &[]).await;
        let group = members.charter.rules.group;
        let one = |number: u32| {
            let author = secret(1 + (number / 1_000) as u8);
            let update = Update {
                network: NETWORK,
                group,
                author: author.public(),
                id: u128::from(number).to_be_bytes(),
                last_valid: u64::MAX,
                operation: Operation::Peer { certificate: Bytes::new() },
            };
            update.sign(&author).expect("good").encode()
        };
        let all: Vec<Bytes> = (0..3_000).map(one).collect();
        for part in all.chunks(wire::SUBMISSIONS_MAX) {
            assert_eq!(liar.say(Message::Submissions(part.to_vec()).encode()), 1);
            members.context.sleep(Duration::from_millis(200)).await;
        }
        members.context.sleep(Duration::from_secs(3)).await;
        let status = members.handle(0).status().await.expect("it runs");
        assert_eq!((status.waiting, status.heard), (pool::WAITING_MAX as u64 / 8, 2));
    });
}
