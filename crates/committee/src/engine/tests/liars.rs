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
        let mut open = links.open(&members.context, &NETWORK, b"").expect("a few members");
        let others = (0..3).map(|number| open.channel(number)).collect();
        let (sender, receiver) = open.channel(3);
        let oracle = open.oracle.clone();
        open.start();
        Self { sender, receiver, _others: others, _oracle: oracle }
    }

    pub(super) fn say(&mut self, bytes: Vec<u8>) {
        let _ = self.sender.send(Recipients::All, bytes, false);
    }
}

/// How many members the first hears, of which the last says that it is there and, each second, something else too.
async fn heard(members: &mut Members, liar: &mut Liar, lie: Option<&[u8]>) -> u32 {
    for _ in 0..8 {
        liar.say(Message::Here(0).encode());
        lie.iter().for_each(|lie| liar.say(lie.to_vec()));
        members.context.sleep(Duration::from_secs(1)).await;
    }
    members.handle(0).status().await.expect("it runs").heard
}

#[test]
fn a_member_that_sends_what_no_honest_one_sends_is_cut_off() {
    let lies: [fn(&mut Members) -> Vec<u8>; 4] = [
        |_| vec![99],
        |_| Message::Block(Bytes::from_static(b"no block")).encode(),
        |members| {
            let (record, _) = object(1);
            let good = members.update(Operation::Object { record, policy: Bytes::new() });
            let mut forged = good.encode().to_vec();
            forged[40] ^= 1;
            Message::Submissions(vec![forged.into()]).encode()
        },
        |_| {
            let mut other = Founded::new(4);
            (0..1_000).for_each(|_| drop(other.block(Vec::new())));
            let certificate = other.certify(&other.tip).encode().into();
            Message::Since { certificate, blocks: Vec::new() }.encode()
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
            assert_eq!(heard(&mut members, &mut liar, None).await, 4, "while it behaves");
            let lie = lie(&mut members);
            assert_eq!(heard(&mut members, &mut liar, Some(&lie)).await, 3, "{seed}");
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
        heard(&mut members, &mut liar, None).await;
        let handle = members.handle(0);
        let reading = members.context.child("reading");
        let reading =
            reading.spawn(move |_| async move { handle.read_fresh(key, "main").await.is_ok() });
        // It answers before the others do, with a view that there is not.
        let notarised = Notarised {
            view: u64::MAX / 2,
            parent_view: 1,
            epoch: 0,
            digest: [1; 32],
            signature: [7; SIGNATURE_BYTES],
        };
        while let Ok((_, message)) = liar.receiver.recv().await {
            if let Ok(Message::HowFar(nonce)) = Message::decode(&Bytes::from(message)) {
                liar.say(Message::ThisFar { nonce, notarised }.encode());
                break;
            }
        }
        assert!(reading.await.expect("it ends"), "the honest members answer");
        assert_eq!(heard(&mut members, &mut liar, None).await, 3);
    });
}
