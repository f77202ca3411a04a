//! Watching: what there is, what is new, where a watcher goes on, and where it must begin again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use crypto::{RecordId, Tier};
use env::Env;
use env::calls::CallError;
use env::calls::objects::{WatchCursor, WatchEvent, WatchEvents, WatchRequest, Watched};
use futures::StreamExt;
use testkit::network::key;
use version::{AnyAttestation, Policy, ReaderClaim};

use super::pen::{Caller, Made, Pen, SUITE, is_denied, public};
use crate::town::{LIMIT, Town};

async fn caller(town: &Town) -> Caller {
    Caller::new(town.client(0, Tier::Own).await, town.at(0))
}

async fn watch(
    who: &Caller,
    what: Watched,
    from: Option<WatchCursor>,
) -> Result<WatchEvents, CallError> {
    let request = WatchRequest { what, from, reader: who.reader.clone() };
    who.calls.watch(&who.to, request, LIMIT).await
}

async fn next(env: &Env, events: &mut WatchEvents) -> WatchEvent {
    let event = env.within(Duration::from_secs(60), events.next()).await.expect("in time");
    event.expect("it goes on").unwrap()
}

/// All until it has caught up: the hashes, the cursor behind the last, how many gaps.
async fn caught_up(env: &Env, events: &mut WatchEvents) -> (Vec<RecordId>, WatchCursor, usize) {
    let (mut hs, mut gaps) = (Vec::new(), 0);
    loop {
        match next(env, events).await {
            WatchEvent::Record { found, .. } => hs.push(found.record.id),
            WatchEvent::Gap => gaps += 1,
            WatchEvent::CaughtUp(cursor) => return (hs, cursor, gaps),
        }
    }
}

async fn put(client: &Caller, pen: &Pen, made: &Made) {
    client.must_put(vec![made.record.clone(), pen.attest(made, 1)]).await;
}

async fn opened(client: &Caller, pen: &Pen) -> Made {
    let root = pen.write(&[], "root");
    let policy = pen.sign(&Policy { public: true, ..pen.policy(1) });
    let records = vec![pen.record(), policy, root.record.clone(), pen.attest(&root, 1)];
    client.must_put(records).await;
    root
}

#[test]
fn a_watcher_is_told_what_there_is_and_what_is_new_and_goes_on_from_its_cursor() {
    testkit::time::run(1, |env| async move {
        let mut town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = opened(&client, &pen).await;
        let other = Pen::new(&town, 2, "another");
        let what = || Watched::Objects(vec![pen.object()]);
        let mut events = watch(&client, what(), None).await.unwrap();
        let (there, start, gaps) = caught_up(&env, &mut events).await;
        assert_eq!((there, gaps), (vec![root.h()], 0));
        let first = pen.write(&[&root], "first");
        put(&client, &pen, &first).await;
        opened(&client, &other).await;
        let WatchEvent::Record { found, cursor } = next(&env, &mut events).await else {
            panic!("a version")
        };
        assert_eq!(found.record, first.record);
        let attestation = AnyAttestation::decode(&found.attestation.unwrap()).unwrap();
        attestation.verify(SUITE).unwrap();
        assert!(attestation.names(&first.h()));
        // Nothing else is its own; the heartbeat comes all the same.
        let asked = env.clock.elapsed();
        let WatchEvent::CaughtUp(beat) = next(&env, &mut events).await else { panic!("a beat") };
        assert!(env.clock.elapsed() - asked <= Duration::from_secs(30));
        assert!(beat.next > cursor.unwrap().next, "the other's event is behind it");
        drop(events);
        let second = pen.write(&[&first], "second");
        put(&client, &pen, &second).await;
        for (from, missed) in
            [(cursor, vec![second.h()]), (Some(start), vec![first.h(), second.h()])]
        {
            let mut events = watch(&client, what(), from).await.unwrap();
            let (told, _, gaps) = caught_up(&env, &mut events).await;
            assert_eq!((told, gaps), (missed, 0));
        }
        // A cursor of another run, or from the future, is told of a gap and all tips.
        town.restart(0).await;
        let client = caller(&town).await;
        for from in [start, WatchCursor { next: u64::MAX, ..start }] {
            let mut events = watch(&client, what(), Some(from)).await.unwrap();
            let (told, _, gaps) = caught_up(&env, &mut events).await;
            assert_eq!((told, gaps), (vec![second.h()], 1));
        }
    });
}

/// What there is is read when it is told: of all that is to come nothing is in memory but names.
#[test]
fn a_watcher_that_takes_one_event_has_no_more_of_them_read() {
    testkit::time::run(14, |env| async move {
        let mut town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = opened(&client, &pen).await;
        let mut tips = Vec::new();
        for number in 0..60 {
            let tip = pen.write(&[&root], &format!("tip {number}"));
            put(&client, &pen, &tip).await;
            tips.push(tip.h());
        }
        // Nothing of it is in memory any more.
        town.restart(0).await;
        let client = caller(&town).await;
        let what = || Watched::Objects(vec![pen.object()]);
        let reads = || town.stores[0].reads.load(Ordering::SeqCst);
        let before = reads();
        let mut events = watch(&client, what(), None).await.unwrap();
        let WatchEvent::Record { found, .. } = next(&env, &mut events).await else {
            panic!("a version")
        };
        assert!(reads() - before < 20, "{} were read for one", reads() - before);
        let (mut told, ..) = caught_up(&env, &mut events).await;
        told.push(found.record.id);
        told.sort_unstable();
        tips.sort_unstable();
        assert_eq!(told, tips);
    });
}

#[test]
fn a_watch_ends_with_the_pass_that_opened_it() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = opened(&client, &pen).await;
        let began = env.clock.elapsed();
        let mut events = watch(&client, Watched::Objects(vec![pen.object()]), None).await.unwrap();
        let ended = loop {
            match events.next().await.unwrap() {
                Ok(WatchEvent::Record { found, .. }) => assert_eq!(found.record.id, root.h()),
                Ok(_) => assert!(env.clock.elapsed() - began < Duration::from_secs(1801)),
                Err(error) => break error,
            }
        };
        assert!(matches!(ended, CallError::Denied { .. }), "{ended}");
        assert!(env.clock.elapsed() - began > Duration::from_secs(1790));
        assert!(events.next().await.is_none());
    });
}

#[test]
fn one_that_is_too_slow_is_told_of_a_gap() {
    testkit::time::run(2, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = opened(&client, &pen).await;
        let what = Watched::Family(public(&pen.owner), Bytes::from_static(b"rep"));
        let mut slow = watch(&client, what.clone(), None).await.unwrap();
        let (_, start, _) = caught_up(&env, &mut slow).await;
        let many: Vec<Made> =
            (0..4_200).map(|number| pen.write(&[&root], &format!("{number}"))).collect();
        for some in many.chunks(1_000) {
            let mut batch = version::BatchAttester::new(SUITE, pen.network, 1);
            for made in some {
                batch.add(&made.h()).unwrap();
            }
            let batch = batch.finish(SUITE, &pen.owner).unwrap();
            let records = some.iter().map(|made| made.record.clone()).chain([batch]).collect();
            client.must_put(records).await;
        }
        let merged = pen.write(&[&many[0], &many[1]], "merged");
        put(&client, &pen, &merged).await;
        // By its cursor nothing is missed, as long as it is in memory; the slow one begins again with the tips.
        let mut resumed = watch(&client, what, Some(start)).await.unwrap();
        let (told, _, gaps) = caught_up(&env, &mut resumed).await;
        assert_eq!((told.len(), gaps), (4_201, 0));
        let (told, _, gaps) = caught_up(&env, &mut slow).await;
        assert_eq!((told.len(), gaps), (4_199, 1));
        assert!(!told.contains(&many[0].h()) && told.contains(&merged.h()));
    });
}

#[test]
fn a_watcher_is_told_only_what_it_may_read() {
    testkit::time::run(3, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let (open, hidden) = (Pen::new(&town, 1, "a/open"), Pen::new(&town, 1, "a/hidden"));
        let reader = key("reader", 3);
        let policy = |version, readers| hidden.sign(&Policy { readers, ..hidden.policy(version) });
        let root = opened(&client, &open).await;
        let secret = hidden.write(&[], "secret");
        let records = vec![
            hidden.record(),
            policy(1, vec![public(&reader)]),
            secret.record.clone(),
            hidden.attest(&secret, 1),
        ];
        client.must_put(records).await;
        let family = || Watched::Family(public(&open.owner), Bytes::from_static(b"a/"));
        let stranger = Caller::new(town.stranger(), town.at(0));
        let refused = watch(&stranger, family(), None).await;
        assert!(matches!(refused, Err(CallError::Denied { .. })));
        let refused = watch(&client, Watched::Objects(vec![hidden.object()]), None).await;
        assert!(is_denied(&refused.map(drop), "may read"));
        let until = env.clock.unix_s() + 3_600;
        let own = key("client", 1).public();
        let claim = ReaderClaim::sign(open.network, &reader, &own, until).encode();
        let listed = Caller { reader: Some(claim), ..caller(&town).await };
        let mut by_client = watch(&client, family(), None).await.unwrap();
        let mut by_reader = watch(&listed, family(), None).await.unwrap();
        assert_eq!(caught_up(&env, &mut by_client).await.0, [root.h()]);
        let mut both = vec![root.h(), secret.h()];
        both.sort_unstable();
        let mut told = caught_up(&env, &mut by_reader).await.0;
        told.sort_unstable();
        assert_eq!(told, both);
        let next_secret = hidden.write(&[&secret], "the next");
        put(&client, &hidden, &next_secret).await;
        let WatchEvent::Record { found, .. } = next(&env, &mut by_reader).await else {
            panic!("a version")
        };
        assert_eq!(found.record, next_secret.record);
        // Struck off, it hears no more, over the same stream.
        client.must_put(vec![policy(2, vec![])]).await;
        let last = hidden.write(&[&next_secret], "the last");
        put(&client, &hidden, &last).await;
        let after = open.write(&[&root], "after");
        put(&client, &open, &after).await;
        for events in [&mut by_client, &mut by_reader] {
            let WatchEvent::Record { found, .. } = next(&env, events).await else {
                panic!("a version")
            };
            assert_eq!(found.record, after.record);
        }
    });
}

#[test]
fn watchers_have_seats_and_who_is_revoked_loses_them() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        opened(&client, &pen).await;
        let what = || Watched::Objects(vec![pen.object()]);
        let mut open = Vec::new();
        for _ in 0..32 {
            open.push(watch(&client, what(), None).await.unwrap());
        }
        let full = watch(&client, what(), None).await;
        assert!(matches!(full, Err(CallError::Busy { .. })));
        let bad = [vec![], vec![pen.object(); 257]];
        open.pop();
        for objects in bad {
            let refused = watch(&client, Watched::Objects(objects), None).await;
            assert!(matches!(refused, Err(CallError::Invalid { .. })));
        }
        let organisation = crypto::OrgId::new(town.community.organisations[0].public());
        let gone = vec![key("client", 1).public()];
        let list = crypto::Revocation { organisation, sequence: env.clock.unix_ms(), keys: gone };
        let list = list.sign(&town.community.organisations[0], &pen.network);
        town.peers[0].revoke(&list).await.unwrap();
        for events in &mut open {
            let ended = loop {
                match events.next().await {
                    Some(Ok(_)) => {}
                    ended => break ended,
                }
            };
            assert!(matches!(ended, Some(Err(CallError::Busy { .. }))), "{ended:?}");
        }
    });
}

#[test]
fn what_a_door_in_the_process_writes_is_told_when_it_is_attested() {
    testkit::time::run(5, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = opened(&client, &pen).await;
        let mut events = watch(&client, Watched::Objects(vec![pen.object()]), None).await.unwrap();
        caught_up(&env, &mut events).await;
        let objects = town.peers[0].objects();
        let mut batch = objects.batch();
        let made = pen.write(&[&root], "by the door");
        let new = objects::NewVersion {
            object: pen.object(),
            bases: made.version.bases,
            kind: made.version.kind,
            value: made.version.value.clone(),
            compress: false,
        };
        assert_eq!(batch.put(new).await.unwrap().h, made.h());
        batch.commit(None).await.unwrap();
        let WatchEvent::CaughtUp(_) = next(&env, &mut events).await else { panic!("told early") };
        let unattested = async || {
            let name = Bytes::from_static(b"rep");
            town.peers[0].unattested(pen.owner.public(), name, 10).await.unwrap()
        };
        assert_eq!(unattested().await, [made.h()]);
        let attestation = pen.attest(&made, 1);
        town.peers[0].keep_word(attestation, store::Durability::Memory).await.unwrap();
        let WatchEvent::Record { found, .. } = next(&env, &mut events).await else {
            panic!("a version")
        };
        assert_eq!(found.record, made.record);
        assert_eq!(unattested().await, []);
        assert_eq!(client.tip_hs(&pen).await, [made.h()]);
        assert!(client.get(&pen, &made).await.unwrap().unwrap().attestation.is_some());
    });
}
