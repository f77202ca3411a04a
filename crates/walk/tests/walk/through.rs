//! A thin client: one librarian walks, and is not trusted; the next one takes over.

use std::sync::Arc;
use std::time::Duration;

use crypto::{Class, Classified, RecordId};
use document::Kind;
use env::Env;
use env::calls::CallError;
use testkit::network::{Fault, key};
use testkit::time::run;
use walk::{
    ASKED_LAST_BASE, Directory, LIBRARIAN_LIMIT, SHOW_LIMIT, Sought, WalkError, WalkOptions, Walker,
};

use super::{LONG, PAGES, Stage, small};

/// A thin client of these peers, in this order, that knows nobody.
fn thin(stage: &Stage, env: &Env, via: &[usize]) -> Arc<Walker> {
    let address = |number: &usize| stage.community.members[*number].address.clone();
    let through: Vec<String> = via.iter().map(address).collect();
    let directory = Directory::new(stage.community.genesis.clone(), env.clone(), None);
    let calls = stage.network.calls(key("thin", 0).public());
    let options = WalkOptions { through, ..WalkOptions::default() };
    Walker::new(env.clone(), calls, directory, options)
}

/// Calls that each peer got, of whatever kind.
fn asked(stage: &Stage) -> Vec<u64> {
    let peers = (0..stage.peers.len()).map(|number| stage.network.counts(&stage.peer(number)));
    peers.map(|counts| counts.introduce + counts.find + counts.store + counts.put_get).collect()
}

#[test]
fn one_librarian_is_called_and_nobody_else() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let walker = thin(&stage, &env, &[4, 2]);
        assert_eq!(walker.join(&["nowhere:1".to_owned()]).await.unwrap(), 1);
        assert_eq!(walker.redundancy(Kind::Page).copies, 1, "one copy is sent");
        for number in 0..20 {
            let record = small(number);
            let mut stored = walker.store(record.clone(), PAGES).await.unwrap();
            assert!(stored.rest.wait(LONG).await.done);
            let found = walker.find(Some(Kind::Page), record.id, record.place).await.unwrap();
            assert_eq!((found.record, found.degraded), (record, false));
        }
        walker.refresh().await.unwrap();
        let record = small(3);
        let holdings = walker.holdings(record.id, record.place, PAGES, Some(&record)).await;
        assert!(holdings.is_empty(), "nobody is asked for proof");
        let asked = asked(&stage);
        let others = asked.iter().enumerate().filter(|(number, _)| *number != 4);
        assert!(asked[4] > 40 && others.into_iter().all(|(_, calls)| *calls == 0), "{asked:?}");
    });
}

#[test]
fn a_librarian_that_fails_lies_or_hangs_is_passed_over_and_asked_last_for_a_while() {
    let faults = [
        Fault::Down,
        Fault::Hang,
        Fault::Error(CallError::Denied { reason: "no".to_owned() }),
        Fault::Error(CallError::Internal { reason: "bug".to_owned() }),
        Fault::Flip,
        Fault::Garbage,
        Fault::Other(small(77)),
        Fault::Delay(Duration::from_secs(40)),
    ];
    for (fault, known) in faults.iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        let fault = fault.clone();
        run(2, |env| async move {
            let stage = Stage::new(&env, 3, 9);
            let walker = thin(&stage, &env, &[0, 1]);
            let record = small(1);
            if known {
                walker.join(&[]).await.unwrap();
            }
            // Both have it: the first one sends other bytes, or none.
            for number in [0, 1] {
                let to = stage.directory.endpoint(&stage.peer(number)).unwrap();
                walker.calls().store(&to, record.clone(), LONG).await.unwrap();
            }
            stage.set(0, fault.clone());
            let since = env.clock.elapsed();
            let found = walker.find(Some(Kind::Page), record.id, record.place).await.unwrap();
            assert_eq!((found.record, found.degraded), (record, true), "{fault:?} {known}");
            assert_eq!(found.from, stage.peer(1));
            let took = env.clock.elapsed() - since;
            let limit = LIBRARIAN_LIMIT.max(SHOW_LIMIT) + Duration::from_secs(4);
            assert!(took < limit, "{fault:?}: {took:?}");

            // From now on it is the last.
            let before = asked(&stage);
            let other = small(2);
            walker.store(other.clone(), PAGES).await.unwrap();
            let after = asked(&stage);
            assert_eq!((after[0], after[1]), (before[0], before[1] + 1), "{fault:?} {known}");
            stage.network.heal();
            env.clock.sleep(ASKED_LAST_BASE).await;
            walker.store(small(3), PAGES).await.unwrap();
            assert!(asked(&stage)[0] > before[0], "and after a while the first again");
            walker.store(small(4), PAGES).await.unwrap();
            assert_eq!(asked(&stage)[1], after[1], "which stays");
        });
    }
}

#[test]
fn busy_is_waited_out_and_the_user_s_order_kept() {
    run(3, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let walker = thin(&stage, &env, &[0, 1]);
        walker.join(&[]).await.unwrap();
        let retry_after = Duration::from_millis(200);
        stage.set(0, Fault::Error(CallError::Busy { retry_after }));
        let healed = async {
            env.clock.sleep(Duration::from_secs(8)).await;
            stage.network.heal();
        };
        let record = small(1);
        let (stored, ()) = futures::join!(walker.store(record.clone(), PAGES), healed);
        stored.unwrap();
        assert!(stage.peers[0].holds(&record.id) && !stage.peers[1].holds(&record.id));
    });
}

#[test]
fn what_nobody_has_and_what_nobody_answers_is_told_apart() {
    run(4, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let walker = thin(&stage, &env, &[0, 1]);
        let id = RecordId::new([9; 32]);
        let find = || walker.find(None, id, id.into());
        let error = find().await.unwrap_err();
        assert!(matches!(error, WalkError::NotFound { asked: 2, .. }), "{error:?}");
        // "Not here" is the word of one: another one may have it.
        let record = small(1);
        let to = stage.directory.endpoint(&stage.peer(1)).unwrap();
        walker.calls().store(&to, record.clone(), LONG).await.unwrap();
        let found = walker.find(None, record.id, record.place).await.unwrap();
        assert_eq!((found.from, found.degraded), (stage.peer(1), true));

        stage.set(0, Fault::Down);
        let error = find().await.unwrap_err();
        assert!(matches!(error, WalkError::Unavailable { asked: 1, unreachable: 1, .. }));
        stage.set(0, Fault::Error(CallError::Denied { reason: "not ours".to_owned() }));
        stage.set(1, Fault::Error(CallError::Denied { reason: "not ours".to_owned() }));
        let denied =
            [find().await.unwrap_err(), walker.store(record.clone(), PAGES).await.unwrap_err()];
        assert!(denied.iter().all(|error| error.class() == Class::Denied), "{denied:?}");
        stage.set(0, Fault::Error(CallError::Full));
        stage.set(1, Fault::Error(CallError::TooFewPeers { reached: 1, wanted: 2 }));
        let few = walker.store(record.clone(), PAGES).await.unwrap_err();
        assert!(matches!(few, WalkError::TooFew { acked: 1, wanted: 2, .. }), "{few:?}");
        assert_eq!(few.class(), Class::Unavailable);

        // Nobody whom it knows: it cannot say anything.
        let stranger = thin(&stage, &env, &[0, 1]);
        stage.set(0, Fault::Down);
        stage.set(1, Fault::Down);
        let error = stranger.find(None, id, id.into()).await.unwrap_err();
        assert!(matches!(&error, WalkError::NoPeers { tried } if tried.len() == 2), "{error:?}");
        assert!(stranger.join(&[]).await.is_err());
    });
}

#[test]
fn a_listener_without_a_certificate_of_the_network_gets_nothing() {
    run(5, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let walker = thin(&stage, &env, &[0, 1]);
        // Its announcement is not one that the network's organisations signed.
        stage.set(0, Fault::Flip);
        walker.store(small(1), PAGES).await.unwrap();
        let counts = stage.network.counts(&stage.peer(0));
        assert_eq!((counts.introduce, counts.put_get), (1, 0));
        assert!(!stage.peers[0].holds(&small(1).id) && stage.peers[1].holds(&small(1).id));
    });
}

#[test]
fn many_at_once_go_through_it_too() {
    run(6, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let walker = thin(&stage, &env, &[5]);
        let records: Vec<_> = (0..300).map(|number| (small(number), PAGES)).collect();
        let sought = records.iter().map(|(record, _)| Sought {
            kind: Some(Kind::Page),
            id: record.id,
            place: record.place,
        });
        let sought: Vec<_> = sought.collect();
        let stored = walker.store_batch(records.clone()).await;
        assert!(stored.len() == 300 && stored.iter().all(Result::is_ok));
        let found = walker.find_batch(sought).await;
        let same = found
            .iter()
            .zip(&records)
            .all(|(found, (record, _))| found.as_ref().is_ok_and(|found| found.record == *record));
        assert!(found.len() == 300 && same);
        let counts = stage.network.counts(&stage.peer(5));
        assert!(counts.running_max <= 64, "{counts:?}");
    });
}
