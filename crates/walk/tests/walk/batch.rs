//! Many small records in one call a holder, each with a walk of its own.

use std::sync::Arc;
use std::time::Duration;

use crypto::{Class, Classified};
use document::{Kind, Record};
use env::calls::CallError;
use placement::Redundancy;
use testkit::network::{Fault, envelope};
use testkit::time::run;
use walk::{Directory, Health, Sought, WalkOptions, Walker};

use super::find::Own;
use super::{LONG, PAGES, Stage, small};

fn records(count: usize) -> Vec<Record> {
    (0..count).map(|number| envelope(crypto::Suite::Holdfast1, number)).collect()
}

fn sought(records: &[Record]) -> Vec<Sought> {
    let sought = records.iter().map(|record| Sought {
        kind: Some(record.kind),
        id: record.id,
        place: record.place,
    });
    sought.collect()
}

#[test]
fn a_batch_costs_one_call_a_holder() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let records = records(300);
        let with = records.iter().map(|record| (record.clone(), PAGES)).collect();
        for stored in stage.walker.store_batch(with).await {
            assert!(stored.unwrap().acked >= 2);
        }
        assert_eq!(stage.walker.drain(LONG).await, 0);
        for record in &records {
            assert_eq!(stage.holders(record).len(), 3);
        }
        for member in &stage.community.members {
            let counts = stage.network.counts(&member.peer);
            assert_eq!((counts.store_batch, counts.store), (1, 0));
        }
        let found = stage.walker.find_batch(sought(&records)).await;
        for (found, record) in found.into_iter().zip(&records) {
            assert_eq!(found.unwrap().record, *record);
        }
        for member in &stage.community.members {
            let counts = stage.network.counts(&member.peer);
            assert_eq!((counts.find_batch, counts.find), (1, 0));
        }
    });
}

#[test]
fn a_batch_survives_what_a_single_record_does() {
    let denied = CallError::Denied { reason: "no".to_owned() };
    let faults = [Fault::Down, Fault::Hang, Fault::Writes(CallError::Full), Fault::Error(denied)];
    for fault in faults {
        run(1, |env| async move {
            let stage = Stage::new(&env, 3, 9);
            stage.set(1, fault.clone());
            stage.set(4, fault.clone());
            let records = records(40);
            let with = records.iter().map(|record| (record.clone(), PAGES)).collect();
            for stored in stage.walker.store_batch(with).await {
                assert!(stored.unwrap().acked >= 2, "{fault:?}");
            }
            // All have W long before any deadline.
            assert!(env.clock.elapsed() < Duration::from_secs(6), "{fault:?}");
            assert_eq!(stage.walker.drain(LONG).await, 0);
            for record in &records {
                assert_eq!(stage.holders(record).len(), 3, "{fault:?}");
            }
            for (found, record) in
                stage.walker.find_batch(sought(&records)).await.into_iter().zip(&records)
            {
                assert_eq!(found.unwrap().record, *record, "{fault:?}");
            }
        });
    }
}

#[test]
fn a_batch_may_take_longer_than_a_record() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let delay = |ms| {
            (0..9).for_each(|at| stage.set(at, Fault::Delay(Duration::from_millis(ms))));
        };
        let records = records(200);
        delay(1);
        for record in &records[100..] {
            stage.walker.store(record.clone(), PAGES).await.unwrap();
            let (kind, id, place) = (Some(record.kind), record.id, record.place);
            stage.walker.find(kind, id, place).await.unwrap();
        }
        delay(500);
        let singles = || {
            let counts = (0..9).map(|at| stage.network.counts(&stage.peer(at)));
            counts.map(|counts| counts.store + counts.find).sum::<u64>()
        };
        assert_eq!(stage.walker.drain(LONG).await, 0);
        let before = singles();
        let with = records[..100].iter().map(|record| (record.clone(), PAGES)).collect();
        assert!(stage.walker.store_batch(with).await.iter().all(Result::is_ok));
        let found = stage.walker.find_batch(sought(&records)).await;
        assert!(found.iter().all(Result::is_ok));
        assert_eq!(singles(), before);
        let healthy = stage.directory.peers().iter().all(|peer| peer.health == Health::Healthy);
        assert!(healthy);
    });
}

#[test]
fn each_record_of_a_batch_has_its_own_verdict() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let records = records(3);
        let with = records[..2].iter().map(|record| (record.clone(), PAGES)).collect();
        assert!(stage.walker.store_batch(with).await.iter().all(Result::is_ok));
        assert_eq!(stage.walker.drain(LONG).await, 0);
        stage.holders(&records[1]).iter().for_each(|number| {
            stage.peers[*number].rot(&records[1].id);
        });
        let found = stage.walker.find_batch(sought(&records)).await;
        assert_eq!(found[0].as_ref().unwrap().record, records[0]);
        assert_eq!(found[1].as_ref().unwrap_err().class(), Class::Corrupt);
        assert_eq!(found[2].as_ref().unwrap_err().class(), Class::NotFound);
    });
}

#[test]
fn a_record_the_peers_refuse_fails_alone() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let good = small(1);
        let bad = Record { kind: Kind::Page, bytes: small(3).bytes, ..small(2) };
        let outcomes = stage.walker.store_batch(vec![(bad, PAGES), (good.clone(), PAGES)]).await;
        assert_eq!(outcomes[0].as_ref().unwrap_err().class(), Class::Invalid);
        assert!(outcomes[1].is_ok());
        assert!(stage.walker.find_batch(Vec::new()).await.is_empty());
        assert!(stage.walker.store_batch(Vec::new()).await.is_empty());
    });
}

#[test]
fn a_batch_asks_peers_that_failed_a_moment_ago_where_nobody_else_is_left() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 1, 1);
        let records = records(3);
        let one = Redundancy { copies: 1, acknowledged: 1 };
        let with = records.iter().map(|record| (record.clone(), one)).collect();
        assert!(stage.walker.store_batch(with).await.iter().all(Result::is_ok));
        stage.set(0, Fault::Down);
        assert!(stage.walker.find_batch(sought(&records)).await.iter().all(Result::is_err));
        // It is back sooner than it would be tried in its turn.
        stage.network.heal();
        let found = stage.walker.find_batch(sought(&records)).await;
        assert!(found.iter().all(Result::is_ok), "{found:?}");
    });
}

/// What the first holders lack is asked of the next ones together, and so on; a peer that failed a moment ago and whose turn it
/// is to be tried does not make them go one by one.
#[test]
fn what_holders_lack_is_looked_for_together() {
    for fails in [false, true] {
        run(1, |env| async move {
            let stage = Stage::new(&env, 3, 9);
            let records = records(300);
            let with = records.iter().map(|record| (record.clone(), PAGES)).collect();
            assert!(stage.walker.store_batch(with).await.iter().all(Result::is_ok));
            assert_eq!(stage.walker.drain(LONG).await, 0);
            stage.peers[0].lose_all();
            stage.peers[1].lose_all();
            if fails {
                (0..9).for_each(|at| stage.set(at, Fault::Down));
                let found = stage.walker.find_batch(sought(&records[..20])).await;
                assert!(found.iter().all(Result::is_err));
                stage.network.heal();
                env.clock.sleep(Duration::from_secs(3)).await;
                assert!(stage.directory.peers().iter().any(|peer| peer.health != Health::Healthy));
            }
            let counts = || (0..9).map(|at| stage.network.counts(&stage.peer(at)));
            let before: Vec<_> = counts().collect();
            let found = stage.walker.find_batch(sought(&records)).await;
            for (found, record) in found.into_iter().zip(&records) {
                assert_eq!(found.unwrap().record, *record);
            }
            for (now, before) in counts().zip(&before) {
                let (batches, singles) =
                    (now.find_batch - before.find_batch, now.find - before.find);
                assert!(batches <= 5 && singles <= 3, "{fails}: {batches} and {singles} alone");
            }
        });
    }
}

/// A librarian that lacks a record knows no more of it than anybody: one holder is asked first, and not two.
#[test]
fn what_the_own_store_lacks_is_asked_of_one_holder() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let records = records(40);
        let with = records.iter().map(|record| (record.clone(), PAGES)).collect();
        assert!(stage.walker.store_batch(with).await.iter().all(Result::is_ok));
        assert_eq!(stage.walker.drain(LONG).await, 0);
        let own = stage.peer(0);
        let directory = Directory::new(stage.community.genesis.clone(), env.clone(), Some(own));
        directory.learn_from(&stage.community.known());
        let options = WalkOptions { own: Some(Arc::new(Own::default())), ..WalkOptions::default() };
        let calls = stage.network.calls(stage.community.members[0].key.public());
        let walker = Walker::new(env.clone(), calls, directory, options);
        let asked = || -> u64 {
            let counts = (0..9).map(|at| stage.network.counts(&stage.peer(at)));
            counts.map(|counts| counts.find + counts.find_batch).sum()
        };
        let before = asked();
        for one in &records {
            walker.find(Some(one.kind), one.id, one.place).await.unwrap();
        }
        assert_eq!(asked() - before, records.len() as u64);
        let before = asked();
        assert!(walker.find_batch(sought(&records)).await.iter().all(Result::is_ok));
        assert!(asked() - before <= 8, "one call a holder");
    });
}
