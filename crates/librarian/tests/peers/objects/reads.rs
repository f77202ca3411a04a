//! What is answered: bounds, what a disk altered, and what plain calls do not get.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use crypto::Tier;
use document::Record;
use env::calls::objects::{
    ListObjects, ObjectsAnswer, ObjectsRequest, PREVIOUS_MAX, TIPS_MAX, WatchRequest, Watched,
};
use env::calls::{CallError, FindRequest, FindResponse, VerifyRequest, VerifyResponse};
use env::{Env, Task, Tasks};
use futures::future::BoxFuture;
use store::{MemoryStore, RecordStore};
use testkit::network::key;
use version::Policy;

use super::pen::{Caller, Made, Pen, SUITE};
use crate::town::{LIMIT, Town};

async fn caller(town: &Town) -> Caller {
    Caller::new(town.client(0, Tier::Own).await, town.at(0))
}

fn open(pen: &Pen) -> Policy {
    Policy { open: true, public: true, ..pen.policy(1) }
}

#[test]
fn tips_and_histories_have_bounds() {
    testkit::time::run(1, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = pen.write(&[], "root");
        let records = vec![pen.record(), pen.sign(&open(&pen)), root.record.clone()];
        client.must_put([records, vec![pen.attest(&root, 1)]].concat()).await;
        let tips: Vec<Made> =
            (0..=TIPS_MAX).map(|number| pen.write(&[&root], &format!("tip {number}"))).collect();
        let all = tips.iter().flat_map(|tip| [tip.record.clone(), pen.attest(tip, 1)]).collect();
        client.must_put(all).await;
        let told = client.tips(&pen).await.unwrap();
        assert_eq!((told.tips.len(), told.more), (TIPS_MAX, true));
        for most in [0, PREVIOUS_MAX as u32 + 1] {
            let refused = client.previous(pen.at(&root), most).await;
            assert!(matches!(refused, Err(CallError::Invalid { .. })), "{refused:?}");
        }
        for versions in [vec![], vec![pen.at(&root); 1_025]] {
            let refused = client.get_all(versions).await;
            assert!(matches!(refused, Err(CallError::Invalid { .. })), "{refused:?}");
        }
        // Eight of a megabyte fit into an answer, and no more; of a history too.
        let large = "x".repeat((1 << 20) - 1_000);
        let mut base = root.clone();
        let mut chain = Vec::new();
        for number in 0..10 {
            let made = pen.write(&[&base], &format!("{number}{large}"));
            client.must_put(vec![made.record.clone(), pen.attest(&made, 1)]).await;
            chain.push(pen.at(&made));
            base = made;
        }
        let found = client.get_all(chain).await.unwrap();
        let busy = |one: &Result<_, _>| matches!(one, Err(CallError::Busy { .. }));
        assert_eq!(found.iter().filter(|one| busy(one)).count(), 2);
        let found = client.previous(pen.at(&base), 100).await.unwrap();
        assert_eq!(found.records.len(), 8);
        let last = version::Version::decode(&found.records[7].bytes).unwrap();
        assert_eq!(found.missing, last.bases.first());
    });
}

#[test]
fn a_history_goes_on_at_other_holders_for_clients() {
    testkit::time::run(5, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let (here, there) = (caller(&town).await, caller(&town).await);
        let there = Caller { to: town.at(1), ..there };
        let pen = Pen::new(&town, 1, "report");
        let mut chain = vec![pen.write(&[], "root")];
        for number in 0..5 {
            let last = chain.last().unwrap();
            chain.push(pen.write(&[last], &format!("put {number}")));
        }
        let kept = |made: &Made| vec![made.record.clone(), pen.attest(made, 1)];
        for (who, part) in [(&there, &chain[..4]), (&here, &chain[4..])] {
            who.must_put(vec![pen.record(), pen.sign(&open(&pen))]).await;
            who.must_put(part.iter().flat_map(kept).collect()).await;
        }
        let at = pen.at(&chain[5]);
        let hs = |records: &[Record]| records.iter().map(|one| one.id).collect::<Vec<_>>();
        let mut whole: Vec<_> = chain.iter().map(Made::h).collect();
        whole.reverse();
        let found = here.previous(at, 9).await.unwrap();
        assert_eq!((hs(&found.records), found.missing), (whole.clone(), None));
        let found = here.previous(at, 3).await.unwrap();
        assert_eq!(hs(&found.records), whole[..4]);
        assert_eq!(here.get(&pen, &chain[0]).await, Ok(None), "fetched, and not kept");
        // A peer is told what is here, so that no question goes round; nor is one that lies believed.
        let peer = Caller::new(town.peer_calls(2), town.at(0));
        let found = peer.previous(at, 9).await.unwrap();
        assert_eq!((hs(&found.records), found.missing), (whole[..2].to_vec(), Some(whole[2])));
        town.network.set(&town.community.peer(1), testkit::network::Fault::Hang);
        let found = here.previous(at, 9).await.unwrap();
        assert_eq!((found.records.len(), found.missing), (4, Some(whole[4])), "two are in memory");
    });
}

#[test]
fn an_owners_names_are_listed_to_those_who_may_read_them() {
    testkit::time::run(2, |env| async move {
        let town = Town::new(&env, 2, 2).await;
        let client = caller(&town).await;
        for name in ["b", "a/2", "a/1", "a/3", "c"] {
            let pen = Pen::new(&town, 1, name);
            let public = name != "a/2";
            client.must_put(vec![pen.record(), pen.sign(&Policy { public, ..open(&pen) })]).await;
        }
        let owner = Pen::new(&town, 1, "a").owner.public();
        let list = async |who: &Caller, prefix: &str, after: &str, most| {
            let (prefix, after) = (prefix.to_owned().into(), after.to_owned().into());
            let list = ListObjects { owner, prefix, after, most, reader: None };
            match who.ask(ObjectsRequest::List(list)).await.unwrap() {
                ObjectsAnswer::List(records) => records
                    .iter()
                    .map(|record| version::ObjectRecord::decode(&record.bytes).unwrap().name)
                    .collect::<Vec<_>>(),
                answer => panic!("{answer:?}"),
            }
        };
        assert_eq!(list(&client, "a/", "", 9).await, ["a/1", "a/3"]);
        let peer = Caller::new(town.peer_calls(1), town.at(0));
        assert_eq!(list(&peer, "a/", "", 2).await, ["a/1", "a/2"]);
        assert_eq!(list(&peer, "a/", "a/2", 2).await, ["a/3"]);
        assert_eq!(list(&client, "", "a/3", 9).await, ["b", "c"]);
    });
}

#[test]
fn what_was_altered_on_the_disk_is_not_served() {
    testkit::time::run(3, |env| async move {
        let mut town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = pen.write(&[], "root");
        let records = vec![pen.record(), pen.sign(&open(&pen)), root.record.clone()];
        let attestation = pen.attest(&root, 1);
        client.must_put([records.clone(), vec![attestation.clone()]].concat()).await;
        town.peers[0].stop().await.unwrap();
        // Somebody who can write the disk alters one record, and makes its checksum anew.
        let altered = async |town: &Town, which: &Record, bytes: Vec<u8>| {
            let store = Arc::new(MemoryStore::new());
            for record in records.iter().chain([&attestation]) {
                let mut record = record.clone();
                if record.id == which.id {
                    record.bytes = bytes.clone().into();
                }
                store.put(vec![record]).await.unwrap();
            }
            let peer = town.start(0, store, |options| options.objects.cache_bytes_max = 0).await;
            (caller(town).await, peer)
        };
        let other = pen.write(&[], "rust").record.bytes.to_vec();
        let (client, peer) = altered(&town, &root.record, other).await;
        let refused = client.get(&pen, &root).await;
        assert!(matches!(refused, Err(CallError::Corrupt { .. })), "{refused:?}");
        assert!(peer.metrics().contains("holdfast_objects_altered_total 1"));
        peer.stop().await.unwrap();
        // An attestation with another author is none; the version is not told as attested.
        let thief = testkit::network::key("thief", 0);
        let forged = pen.attest_by(&thief, &root, 1).bytes.to_vec();
        let (client, peer) = altered(&town, &attestation, forged).await;
        assert_eq!(client.get(&pen, &root).await.unwrap().unwrap().attestation, None);
        peer.stop().await.unwrap();
        // An object's record with another owner is no record, and so a client is told nothing.
        let mut stolen = version::ObjectRecord::decode(&pen.record().bytes).unwrap();
        stolen.owner = thief.public();
        let stolen = stolen.encode().unwrap().to_vec();
        let (client, peer) = altered(&town, &pen.record(), stolen).await;
        assert!(matches!(client.get(&pen, &root).await, Err(CallError::Denied { .. })));
        peer.stop().await.unwrap();
        // A policy that is not what its id says does not count.
        let closed = pen.sign(&Policy { public: false, ..open(&pen) }).bytes.to_vec();
        let (client, peer) = altered(&town, &pen.sign(&open(&pen)), closed).await;
        assert!(matches!(client.get(&pen, &root).await, Err(CallError::Denied { .. })));
        town.peers[0] = peer;
    });
}

#[test]
fn plain_calls_tell_nothing_of_objects() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = pen.write(&[], "root");
        let all =
            vec![pen.record(), pen.sign(&open(&pen)), root.record.clone(), pen.attest(&root, 1)];
        client.must_put(all.clone()).await;
        for record in all {
            let (id, place) = (record.id, record.place);
            let found = client.calls.find(&town.at(0), FindRequest { id, place }, LIMIT).await;
            assert!(matches!(found, Ok(FindResponse::Closest(_))), "{found:?}");
            let verify = VerifyRequest { id, place, mac_key: [1; 32] };
            let proof = client.calls.verify(&town.at(0), verify, LIMIT).await;
            assert!(matches!(proof, Ok(VerifyResponse::Closest(_))), "{proof:?}");
            let stored = client.calls.store(&town.at(0), record, LIMIT).await;
            assert!(matches!(stored, Err(CallError::Invalid { .. })), "{stored:?}");
        }
        assert_eq!(SUITE, town.community.genesis.suite);
    });
}

type Work = Box<dyn FnOnce() + Send>;

/// A disk that is slow when told so: what waits for it waits until it is let go.
#[derive(Clone)]
struct Disk {
    tasks: Arc<dyn Tasks>,
    held: Arc<Mutex<Option<Vec<Work>>>>,
}

impl Disk {
    /// Of these surroundings, which have it from here on.
    fn under(env: &mut Env) -> Self {
        let disk = Self { tasks: env.tasks.clone(), held: Arc::default() };
        env.tasks = Arc::new(disk.clone());
        disk
    }

    fn hold(&self) {
        *self.held.lock().unwrap() = Some(Vec::new());
    }

    fn let_go(&self) {
        let held = self.held.lock().unwrap().take();
        held.into_iter().flatten().for_each(|work| work());
    }
}

impl Tasks for Disk {
    fn spawn(&self, work: BoxFuture<'static, ()>) -> Task {
        self.tasks.spawn(work)
    }

    fn cpu(&self, work: Work) {
        self.tasks.cpu(work);
    }

    fn blocking(&self, work: Work) {
        if let Some(held) = &mut *self.held.lock().unwrap() {
            held.push(work);
            return;
        }
        self.tasks.blocking(work);
    }

    fn parallelism(&self) -> usize {
        self.tasks.parallelism()
    }
}

/// Asks, and goes away before there is an answer.
async fn goes_away<T>(call: impl Future<Output = T>) {
    futures::pin_mut!(call);
    assert!(futures::poll!(call).is_pending(), "it is being read");
}

fn is_busy<T>(answer: &Result<T, CallError>) -> bool {
    matches!(answer, Err(CallError::Busy { .. }))
}

/// All of an owner's.
fn all_of(pen: &Pen) -> ObjectsRequest {
    let (owner, prefix, after) = (pen.owner.public(), Bytes::new(), Bytes::new());
    ObjectsRequest::List(ListObjects { owner, prefix, after, most: 9, reader: None })
}

#[test]
fn who_asks_for_lists_and_goes_away_has_no_more_of_them_read() {
    testkit::time::run(6, |mut env| async move {
        let disk = Disk::under(&mut env);
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        client.must_put(vec![pen.record(), pen.sign(&open(&pen))]).await;
        let stranger =
            |number| Caller::new(town.network.calls(key("stranger", number).public()), town.at(0));
        disk.hold();
        goes_away(stranger(1).ask(all_of(&pen))).await;
        for number in 2..5 {
            let refused = stranger(number).ask(all_of(&pen)).await;
            assert!(is_busy(&refused), "{refused:?}");
        }
        // Members have the other one.
        goes_away(client.ask(all_of(&pen))).await;
        let refused = client.ask(all_of(&pen)).await;
        assert!(is_busy(&refused), "{refused:?}");
        disk.let_go();
        let all = Ok(ObjectsAnswer::List(vec![pen.record()]));
        assert_eq!(stranger(5).ask(all_of(&pen)).await, all);
        assert_eq!(client.ask(all_of(&pen)).await, all);
    });
}

#[test]
fn who_watches_families_keeps_nobody_from_lists() {
    testkit::time::run(7, |mut env| async move {
        let disk = Disk::under(&mut env);
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        client.must_put(vec![pen.record(), pen.sign(&open(&pen))]).await;
        let watch = || {
            let what = Watched::Family(pen.owner.public(), Bytes::new());
            let request = WatchRequest { what, from: None, reader: None };
            client.calls.watch(&client.to, request, LIMIT)
        };
        disk.hold();
        let opened = futures::future::join_all((0..6).map(|_| watch()));
        let listed = futures::future::join_all((0..2).map(|_| client.ask(all_of(&pen))));
        let later = async {
            env.clock.sleep(Duration::from_secs(4)).await;
            disk.let_go();
        };
        let (opened, listed, ()) = futures::join!(opened, listed, later);
        for list in listed {
            assert_eq!(list, Ok(ObjectsAnswer::List(vec![pen.record()])));
        }
        // They wait for one another, for a while.
        assert_eq!(opened.iter().filter(|one| one.is_ok()).count(), 1);
        assert_eq!(opened.iter().filter(|one| is_busy(one)).count(), 5);
        assert!(watch().await.is_ok());
    });
}
