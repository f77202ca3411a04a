//! Storing: how many copies, where, by when, and what is said when it does not work.

use std::time::Duration;

use crypto::{Class, Classified, PeerState};
use env::calls::CallError;
use placement::Redundancy;
use testkit::network::{Fault, key};
use testkit::time::run;
use walk::{Directory, EXTRA_MAX, Health, WalkError, WalkOptions, Walker};

use super::{LONG, PAGES, Stage, small};

#[test]
fn a_record_goes_to_the_first_of_its_rank() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        for number in 0..20 {
            let record = small(number);
            let mut stored = stage.walker.store(record.clone(), PAGES).await.unwrap();
            assert!(stored.acked >= 2);
            let reached = stored.rest.wait(LONG).await;
            assert!(reached.done && reached.is_full());
            let mut first: Vec<usize> = stage.rank(&record.place)[..3].to_vec();
            first.sort_unstable();
            assert_eq!(stage.holders(&record), first);
        }
    });
}

#[test]
fn with_any_peers_down_it_stores_what_can_be_stored_and_says_so() {
    for down in 0_u32..1 << 5 {
        run(1, |env| async move {
            let stage = Stage::new(&env, 2, 5);
            for number in (0..5).filter(|number| down >> number & 1 == 1) {
                stage.set(number, Fault::Down);
            }
            let up = 5 - down.count_ones();
            let record = small(down as usize);
            let stored = stage.walker.store(record.clone(), PAGES).await;
            if up < 2 {
                let error = stored.unwrap_err();
                let TooFewParts { acked, wanted, errors } = too_few(&error);
                assert_eq!((acked, wanted, errors), (up, 2, 5 - up), "{error}");
                assert_eq!(error.class(), Class::Unavailable);
            } else {
                let reached = stored.unwrap().rest.wait(LONG).await;
                assert_eq!(reached.acked, up.min(3));
                assert!(reached.done);
                assert_eq!(stage.holders(&record).len() as u32, up.min(3));
            }
        });
    }
}

struct TooFewParts {
    acked: u32,
    wanted: u32,
    errors: u32,
}

fn too_few(error: &WalkError) -> TooFewParts {
    match error {
        WalkError::TooFew { acked, wanted, errors } => {
            TooFewParts { acked: *acked, wanted: *wanted, errors: errors.len() as u32 }
        }
        other => panic!("not too few: {other}"),
    }
}

#[test]
fn every_pair_of_losses_leaves_all_copies() {
    for a in 0..9 {
        for b in a + 1..9 {
            run(1, |env| async move {
                let stage = Stage::new(&env, 3, 9);
                stage.set(a, Fault::Down);
                stage.set(b, Fault::Hang);
                let record = small(a * 9 + b);
                let stored = stage.walker.store(record.clone(), PAGES).await.unwrap();
                let answered = env.clock.elapsed();
                assert!(answered < Duration::from_secs(3), "answered after {answered:?}");
                let mut rest = stored.rest;
                assert!(rest.wait(LONG).await.is_full());
                // Before a user would be told that it is only partly done.
                assert!(env.clock.elapsed() < Duration::from_secs(10));
                assert_eq!(stage.holders(&record).len(), 3);
            });
        }
    }
}

#[test]
fn the_answer_comes_at_w_and_the_rest_goes_on_behind() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let record = small(1);
        let third = stage.rank(&record.place)[2];
        stage.set(third, Fault::Delay(Duration::from_secs(4)));
        let mut stored = stage.walker.store(record.clone(), PAGES).await.unwrap();
        assert_eq!(env.clock.elapsed(), Duration::ZERO);
        assert_eq!((stored.acked, stored.wanted), (2, 3));
        assert!(!stored.rest.wait(Duration::from_secs(1)).await.done);
        assert_eq!(stage.walker.drain(Duration::from_secs(1)).await, 1);
        // Dropping what one could wait with does not stop the work.
        drop(stored.rest);
        assert_eq!(stage.walker.drain(LONG).await, 0);
        assert_eq!(stage.holders(&record).len(), 3);
    });
}

#[test]
fn a_dropped_walker_leaves_no_task() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let record = small(1);
        let third = stage.rank(&record.place)[2];
        stage.set(third, Fault::Delay(Duration::from_secs(4)));
        let stored = stage.walker.store(record.clone(), PAGES).await.unwrap();
        drop(stage.walker);
        env.clock.sleep(LONG).await;
        assert_eq!(stage.network.counts(&stage.community.peer(third)).running, 0);
        let mut rest = stored.rest;
        assert_eq!(rest.wait(LONG).await.acked, 2);
    });
}

#[test]
fn refusals_are_told_as_what_they_are() {
    let denied = CallError::Denied { reason: "no pass".to_owned() };
    let busy = CallError::Busy { retry_after: Duration::from_millis(300) };
    let rows = [
        (denied, Class::Denied),
        (busy, Class::Busy),
        (CallError::Full, Class::Busy),
        (CallError::ReadOnly { reason: "set so".to_owned() }, Class::Busy),
        (CallError::Invalid { reason: "bytes".to_owned() }, Class::Invalid),
        (CallError::Internal { reason: "bug".to_owned() }, Class::Unavailable),
    ];
    for (refusal, class) in rows {
        run(1, |env| async move {
            let stage = Stage::new(&env, 3, 9);
            (0..9).for_each(|number| stage.set(number, Fault::Writes(refusal.clone())));
            let error = stage.walker.store(small(1), PAGES).await.unwrap_err();
            assert_eq!(error.class(), class, "{error}");
            let unwell = class == Class::Unavailable;
            let health = stage.directory.health(&stage.peer(0));
            assert_eq!(health == Health::Healthy, !unwell, "{refusal}");
        });
    }
}

#[test]
fn a_busy_peer_is_waited_for_once_and_a_full_one_is_passed_by() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let record = small(1);
        let rank = stage.rank(&record.place);
        let busy = CallError::Busy { retry_after: Duration::from_millis(300) };
        stage.set(rank[0], Fault::Writes(busy));
        stage.set(rank[1], Fault::Writes(CallError::Full));
        let stored = stage.walker.store(record.clone(), PAGES).await.unwrap();
        env.clock.sleep(Duration::from_millis(100)).await;
        stage.set(rank[0], Fault::None);
        let mut rest = stored.rest;
        assert!(rest.wait(LONG).await.is_full());
        let mut expected = vec![rank[0], rank[2], rank[3]];
        expected.sort_unstable();
        assert_eq!(stage.holders(&record), expected);
        // It is remembered for a while: the next record does not ask the full one first.
        let before = stage.network.counts(&stage.peer(rank[1])).store;
        let again = stage.walker.store(record, PAGES).await.unwrap();
        assert_eq!(stage.walker.drain(LONG).await, 0);
        assert_eq!(stage.network.counts(&stage.peer(rank[1])).store, before);
        drop(again);
    });
}

#[test]
fn peers_that_stopped_or_only_read_are_not_asked_to_store() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let record = small(1);
        let rank = stage.rank(&record.place);
        stage.announce(rank[0], PeerState::Stopped, 2);
        stage.announce(rank[1], PeerState::ReadOnly, 2);
        let stored = stage.walker.store(record.clone(), PAGES).await.unwrap();
        assert_eq!(stage.walker.drain(LONG).await, 0);
        for number in &rank[..2] {
            assert_eq!(stage.network.counts(&stage.peer(*number)).total(), 0);
        }
        assert_eq!(stage.holders(&record).len(), 3);
        drop(stored);
        // The one that only reads is read from; the one that left has no rank.
        stage.announce(rank[2], PeerState::Left, 2);
        assert!(!stage.rank(&record.place).contains(&rank[2]));
        stage.walker.find(None, record.id, record.place).await.unwrap();
        assert_eq!(stage.network.counts(&stage.peer(rank[0])).total(), 0);
    });
}

#[test]
fn that_nobody_takes_writes_is_told_also_where_nobody_had_to_be_asked() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 3);
        stage.announce(0, PeerState::ReadOnly, 2);
        stage.set(1, Fault::Writes(CallError::Full));
        stage.set(2, Fault::Writes(CallError::Full));
        // The second time all are known to take none.
        for number in 0..2 {
            let refused = stage.walker.store(small(number), PAGES).await.unwrap_err();
            assert!(matches!(refused, WalkError::Full { acked: 0, .. }), "{refused:?}");
        }
        // A peer that is gone is another matter.
        for number in 0..3 {
            stage.announce(number, PeerState::Stopped, 3);
        }
        let gone = stage.walker.store(small(3), PAGES).await.unwrap_err();
        assert_eq!(gone.class(), Class::Unavailable, "{gone:?}");
    });
}

#[test]
fn no_more_calls_run_than_copies_and_a_few() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 24);
        (0..24).for_each(|number| stage.set(number, Fault::Hang));
        let error = stage.walker.store(small(1), PAGES).await.unwrap_err();
        assert_eq!(too_few(&error).acked, 0);
        let asked = (0..24).filter(|at| stage.network.counts(&stage.peer(*at)).store > 0);
        // Every call ends at its deadline, and the whole at the walk's.
        assert!(asked.count() >= 3 + EXTRA_MAX);
        assert!(env.clock.elapsed() <= walk::WALK_LIMIT + Duration::from_secs(1));
    });
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 24);
        (0..24).for_each(|number| stage.set(number, Fault::Hang));
        let storing = stage.walker.store(small(1), PAGES);
        let counting = async {
            let mut most = 0;
            for _ in 0..600 {
                env.clock.sleep(Duration::from_millis(100)).await;
                let running = |number| stage.network.counts(&stage.peer(number)).running;
                most = most.max((0..24).map(running).sum::<u64>());
            }
            most
        };
        let (_, most) = futures::join!(storing, counting);
        assert_eq!(most, 3 + EXTRA_MAX as u64);
    });
}

#[test]
fn a_caller_that_goes_away_stops_its_calls() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        (0..9).for_each(|number| stage.set(number, Fault::Hang));
        let storing = stage.walker.store(small(1), PAGES);
        assert!(env.within(Duration::from_secs(1), storing).await.is_err());
        let running = (0..9).map(|number| stage.network.counts(&stage.peer(number)).running);
        assert_eq!(running.sum::<u64>(), 0);
        assert_eq!(stage.walker.drain(LONG).await, 0);
    });
}

#[test]
fn what_is_finished_behind_has_a_bound_and_nobody_starves() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 3);
        stage.set(0, Fault::Delay(Duration::from_secs(1)));
        // 100 MiB of pages of which each has one slow copy: more than may wait behind.
        let mut most = 0;
        for number in 0..50 {
            let record = testkit::network::page(crypto::Suite::Holdfast1, number, 2 << 20);
            stage.walker.store(record, PAGES).await.unwrap();
            most = most.max(stage.network.counts(&stage.peer(0)).running);
        }
        assert!(most <= walk::BEHIND_BYTES_MAX as u64 / (2 << 20) + 1, "{most} at once");
        assert_eq!(stage.walker.drain(LONG).await, 0);
        assert_eq!(stage.peers[0].records(), 50);
    });
}

#[test]
fn an_empty_network_is_told_as_such() {
    run(1, |env| async move {
        let community = testkit::network::community(1, 1);
        let (network, _) = community.network(&env);
        let directory = Directory::new(community.genesis.clone(), env.clone(), None);
        let calls = network.calls(key("client", 0).public());
        let walker = Walker::new(env, calls, directory, WalkOptions::default());
        let one = Redundancy { copies: 1, acknowledged: 1 };
        let error = walker.store(small(1), one).await.unwrap_err();
        assert!(matches!(error, WalkError::NoPeers { .. }));
        let error = walker.find(None, small(1).id, small(1).place).await.unwrap_err();
        assert!(matches!(error, WalkError::NoPeers { .. }));
    });
}
