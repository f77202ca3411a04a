//! Finding: the right bytes or an error that says which kind of absence it is.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use crypto::{Class, Classified, PeerState, RecordId};
use document::{Kind, Record};
use env::calls::{CallError, StoreOutcome};
use testkit::network::{Fault, key};
use testkit::time::run;
use walk::{Directory, Health, Held, LocalStore, WalkError, WalkOptions, Walker};

use super::{LONG, PAGES, Stage, small};

async fn stored(stage: &Stage, number: usize) -> Record {
    let record = small(number);
    let mut stored = stage.walker.store(record.clone(), PAGES).await.unwrap();
    assert!(stored.rest.wait(LONG).await.is_full());
    record
}

#[test]
fn every_fault_of_the_first_two_holders_is_survived() {
    let faults = [
        Fault::Down,
        Fault::Hang,
        Fault::Error(CallError::Internal { reason: "bug".to_owned() }),
        Fault::Error(CallError::Denied { reason: "no".to_owned() }),
        Fault::Error(CallError::Busy { retry_after: Duration::from_secs(1) }),
        Fault::Deny,
        Fault::Flip,
        Fault::Garbage,
        Fault::Other(small(77)),
        Fault::Delay(Duration::from_secs(5)),
    ];
    for first in &faults {
        for second in &faults {
            run(1, |env| async move {
                let stage = Stage::new(&env, 3, 9);
                let record = stored(&stage, 1).await;
                let rank = stage.rank(&record.place);
                stage.set(rank[0], first.clone());
                stage.set(rank[1], second.clone());
                let since = env.clock.elapsed();
                let found = stage.walker.find(Some(Kind::Page), record.id, record.place).await;
                let found = found.unwrap();
                assert_eq!(found.record, record);
                assert_eq!(stage.number(&found.from), rank[2], "{first:?}, {second:?}");
                let took = env.clock.elapsed() - since;
                assert!(took < Duration::from_secs(5), "{first:?}, {second:?}: {took:?}");
                let lies =
                    |fault: &Fault| matches!(fault, Fault::Flip | Fault::Garbage | Fault::Other(_));
                for (fault, number) in [(first, rank[0]), (second, rank[1])] {
                    if lies(fault) {
                        let health = stage.directory.health(&stage.peer(number));
                        assert_eq!(health, Health::Suspect, "{fault:?}");
                        assert!(found.degraded);
                    }
                }
            });
        }
    }
}

#[test]
fn what_nobody_has_is_not_found() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let record = small(1);
        let error = stage.walker.find(None, record.id, record.place).await.unwrap_err();
        assert!(matches!(error, WalkError::NotFound { asked: 9, .. }), "{error}");
        assert_eq!(error.class(), Class::NotFound);
    });
}

#[test]
fn not_found_needs_the_holders_or_all_but_fewer_than_a_writer_waits_for() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let record = small(1);
        let rank = stage.rank(&record.place);
        // All first three answer: what the others would say does not matter.
        rank[3..].iter().for_each(|number| stage.set(*number, Fault::Down));
        let find = || stage.walker.find(Some(Kind::Page), record.id, record.place);
        let error = find().await.unwrap_err();
        assert!(matches!(error, WalkError::NotFound { asked: 3, .. }), "{error}");
        // Two of the first seven are gone, as many as a writer waits for: the record may be with them, though more than half say
        // that they do not have it.
        stage.network.heal();
        env.clock.sleep(LONG).await;
        [0, 1].iter().for_each(|at| stage.set(rank[*at], Fault::Down));
        let error = find().await.unwrap_err();
        let WalkError::Unavailable { asked, unreachable, errors, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((*asked, *unreachable, errors.len()), (7, 2, 2));
        assert_eq!(error.class(), Class::Unavailable);
        // Of two copies that a writer waited for one would be with those that answered.
        stage.set(rank[1], Fault::None);
        [7, 8].iter().for_each(|at| stage.set(rank[*at], Fault::Down));
        env.clock.sleep(LONG).await;
        let error = find().await.unwrap_err();
        assert!(matches!(error, WalkError::NotFound { asked: 6, .. }), "{error}");
    });
}

/// What its three holders have is not said to be nowhere while they are away, however many others answer.
#[test]
fn a_record_whose_holders_are_away_is_unavailable() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let record = stored(&stage, 1).await;
        stage.holders(&record).iter().for_each(|number| stage.set(*number, Fault::Down));
        let error = stage.walker.find(None, record.id, record.place).await.unwrap_err();
        assert_eq!(error.class(), Class::Unavailable, "{error}");
    });
}

#[test]
fn wrong_bytes_alone_are_corrupt_and_denials_alone_denied() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let record = stored(&stage, 1).await;
        for number in stage.holders(&record) {
            assert!(stage.peers[number].rot(&record.id));
        }
        let error = stage.walker.find(None, record.id, record.place).await.unwrap_err();
        let WalkError::Corrupt { from, .. } = &error else { panic!("{error}") };
        assert_eq!(from.len(), 3);
        assert_eq!(error.class(), Class::Corrupt);
    });
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let denied = CallError::Denied { reason: "who are you".to_owned() };
        (0..9).for_each(|number| stage.set(number, Fault::Error(denied.clone())));
        let record = small(1);
        let error = stage.walker.find(None, record.id, record.place).await.unwrap_err();
        assert_eq!(error.class(), Class::Denied, "{error}");
        assert_eq!(stage.directory.health(&stage.peer(0)), Health::Healthy);
    });
}

/// Whoever of the holders says nothing, for whatever reason, may have what another one lies about.
#[test]
fn a_lie_proves_nothing_while_other_holders_say_nothing() {
    let errors = [
        CallError::Busy { retry_after: Duration::from_millis(100) },
        CallError::Denied { reason: "no".to_owned() },
        CallError::WrongPeer { address: "a".to_owned(), reason: "another".to_owned() },
        CallError::Internal { reason: "a broken disk".to_owned() },
    ];
    for error in errors {
        run(1, |env| async move {
            let stage = Stage::new(&env, 3, 9);
            let record = stored(&stage, 1).await;
            let holders = stage.holders(&record);
            holders.iter().for_each(|number| stage.set(*number, Fault::Error(error.clone())));
            stage.set(holders[0], Fault::Flip);
            let failed = stage.walker.find(None, record.id, record.place).await.unwrap_err();
            assert_eq!(failed.class(), Class::Unavailable, "{error}: {failed}");
        });
    }
}

#[test]
fn a_record_of_another_kind_is_not_what_is_looked_for_and_at_another_place_a_lie() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 3);
        let record = stored(&stage, 1).await;
        let as_entry = stage.walker.find(Some(Kind::Entry), record.id, record.place).await;
        assert_eq!(as_entry.unwrap_err().class(), Class::NotFound);
        // Whoever has it said the truth.
        for number in 0..3 {
            assert_eq!(stage.directory.health(&stage.peer(number)), Health::Healthy);
        }
        // One that calls it so does not.
        let renamed = Record { kind: Kind::Entry, ..record.clone() };
        (0..3).for_each(|number| stage.set(number, Fault::Other(renamed.clone())));
        let as_entry = stage.walker.find(Some(Kind::Entry), record.id, record.place).await;
        assert_eq!(as_entry.unwrap_err().class(), Class::Corrupt);
        let elsewhere = Record { place: crypto::Place::new([9; 32]), ..record.clone() };
        (0..3).for_each(|number| stage.set(number, Fault::Other(elsewhere.clone())));
        let moved = stage.walker.find(None, record.id, record.place).await;
        assert_eq!(moved.unwrap_err().class(), Class::Corrupt);
    });
}

#[test]
fn busy_peers_are_waited_for_once() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 3);
        let record = stored(&stage, 1).await;
        let busy = CallError::Busy { retry_after: Duration::from_millis(500) };
        (0..3).for_each(|number| stage.set(number, Fault::Error(busy.clone())));
        let finding = stage.walker.find(None, record.id, record.place);
        let healing = async {
            env.clock.sleep(Duration::from_millis(400)).await;
            stage.network.heal();
        };
        let (found, ()) = futures::join!(finding, healing);
        assert_eq!(found.unwrap().record, record);
        (0..3).for_each(|number| stage.set(number, Fault::Error(busy.clone())));
        let error = stage.walker.find(None, record.id, record.place).await.unwrap_err();
        assert_eq!(error.class(), Class::Busy, "{error}");
    });
}

#[test]
fn one_record_far_down_the_rank_is_found() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 5, 40);
        let record = stored(&stage, 1).await;
        let rank = stage.rank(&record.place);
        let last = rank[39];
        let only = testkit::network::MemoryPeer::new(
            stage.community.genesis.clone(),
            stage.community.members[last].announcement.clone(),
            &env,
        );
        stage.holders(&record).iter().for_each(|number| {
            stage.peers[*number].lose(&record.id);
        });
        let caller = env::calls::Caller { key: key("client", 0).public() };
        env::calls::Service::store(&*only, caller, record.clone()).await.unwrap();
        stage.network.serve(&stage.community.members[last].address, stage.peer(last), only);
        let found = stage.walker.find(None, record.id, record.place).await.unwrap();
        assert_eq!(stage.number(&found.from), last);
    });
}

#[test]
fn a_peer_that_was_down_a_moment_ago_is_asked_when_nobody_else_has_it() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let record = stored(&stage, 1).await;
        let holders = stage.holders(&record);
        holders.iter().for_each(|number| stage.set(*number, Fault::Down));
        stage.set(holders[0], Fault::Flip);
        let error = stage.walker.find(None, record.id, record.place).await.unwrap_err();
        assert_eq!(error.class(), Class::Unavailable, "one that lies proves nothing");
        stage.network.heal();
        let found = stage.walker.find(None, record.id, record.place).await;
        assert_eq!(found.unwrap().record, record);
    });
}

#[derive(Default)]
pub(super) struct Own(Mutex<Vec<Record>>);

#[async_trait]
impl LocalStore for Own {
    async fn store(&self, record: Record) -> Result<StoreOutcome, CallError> {
        self.0.lock().unwrap().push(record);
        Ok(StoreOutcome::Stored)
    }

    async fn find(&self, id: &RecordId) -> Result<Option<Record>, CallError> {
        let records = self.0.lock().unwrap();
        Ok(records.iter().find(|record| record.id == *id).cloned())
    }
}

#[test]
fn a_librarian_stores_and_reads_its_own_copy_without_a_call() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 3);
        let own = stage.peer(0);
        let directory = Directory::new(stage.community.genesis.clone(), env.clone(), Some(own));
        directory.learn_from(&stage.community.known());
        let store = std::sync::Arc::new(Own::default());
        let options = WalkOptions { own: Some(store.clone()), ..WalkOptions::default() };
        let calls = stage.network.calls(stage.community.members[0].key.public());
        let walker = Walker::new(env.clone(), calls, directory, options);
        let record = small(1);
        let mut stored = walker.store(record.clone(), PAGES).await.unwrap();
        assert_eq!(stored.rest.wait(LONG).await.acked, 3);
        assert_eq!(store.0.lock().unwrap().len(), 1);
        let before = stage.network.total();
        let found = walker.find(None, record.id, record.place).await.unwrap();
        assert_eq!((found.record, found.from), (record.clone(), own));
        assert_eq!(stage.network.total(), before);
        // A damaged copy of its own is no answer: the others have it.
        store.0.lock().unwrap()[0].bytes = bytes::Bytes::from_static(b"rot");
        let found = walker.find(None, record.id, record.place).await.unwrap();
        assert_ne!(found.from, own);
        assert_eq!(stage.network.counts(&own).total(), 0);
    });
}

#[test]
fn holdings_tell_what_each_holder_says() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let record = stored(&stage, 1).await;
        let rank = stage.rank(&record.place);
        stage.peers[rank[1]].rot(&record.id);
        stage.set(rank[2], Fault::Down);
        for with in [Some(&record), None] {
            let (walker, id, place) = (&stage.walker, record.id, record.place);
            let holdings = walker.holdings(id, place, PAGES, with).await;
            // One of them does not answer: the next in rank would hold what it held.
            assert_eq!(holdings.len(), 3 + walk::NEAR_EXTRA + 1);
            assert_eq!(holdings[0].held, Held::Yes);
            assert_eq!(holdings[1].held, Held::Corrupt);
            assert!(matches!(holdings[2].held, Held::Unreachable(_)));
            assert!(holdings[3..].iter().all(|holding| holding.held == Held::No));
            let peers = holdings.iter().map(|holding| stage.number(&holding.peer));
            assert!(peers.eq(rank[..8].iter().copied()));
            assert!(holdings.iter().enumerate().all(|(at, holding)| holding.rank == at));
        }
    });
}

#[test]
fn a_peer_that_stopped_is_asked_last_and_found_where_it_is_back() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let record = stored(&stage, 1).await;
        let rank = stage.rank(&record.place);
        let asked = |number: usize| stage.network.counts(&stage.peer(number)).find;
        // While others have it, it is left alone.
        stage.announce(rank[0], PeerState::Stopped, 2);
        stage.walker.find(None, record.id, record.place).await.unwrap();
        assert_eq!((asked(rank[0]), asked(rank[1])), (0, 1));
        // It was started again, which nobody told this program, and the others are gone.
        (1..3).for_each(|at| stage.set(rank[at], Fault::Down));
        let found = stage.walker.find(None, record.id, record.place).await.unwrap();
        assert_eq!(stage.number(&found.from), rank[0]);
        // One that is still down costs a refused call.
        stage.set(rank[0], Fault::Down);
        assert!(stage.walker.find(None, record.id, record.place).await.is_err());
    });
}

#[test]
fn a_peer_that_was_dead_for_long_is_asked_where_nobody_else_has_it() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let record = stored(&stage, 1).await;
        let rank = stage.rank(&record.place);
        (0..3).for_each(|at| stage.set(rank[at], Fault::Down));
        for _ in 0..8 {
            assert!(stage.walker.find(None, record.id, record.place).await.is_err());
            env.clock.sleep(Duration::from_secs(15)).await;
        }
        assert_eq!(stage.directory.health(&stage.peer(rank[0])), Health::Away);
        // Its turn by the back-off is up to half a minute away; a reader that would fail does not wait for it.
        for at in 0..3 {
            stage.network.heal();
            (0..3).filter(|of| *of != at).for_each(|of| stage.set(rank[of], Fault::Down));
            let found = stage.walker.find(None, record.id, record.place).await;
            assert_eq!(stage.number(&found.unwrap().from), rank[at]);
        }
    });
}
