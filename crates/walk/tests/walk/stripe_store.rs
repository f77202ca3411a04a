//! Storing stripes: which fragment goes where, by when a writer is answered, and what happens where peers are unwell.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crypto::{Class, Classified, PeerState};
use document::Striped;
use env::Env;
use env::calls::CallError;
use placement::SPARES;
use testkit::crowd::Crowd;
use testkit::network::{Fault, key, stripe};
use testkit::time::run;
use walk::{BEHIND_BYTES_MAX, Health, StoredStripe, StripeRecords, WalkError, WalkOptions, Walker};

use super::{LONG, Stage};

/// 4 of 8, the profile of nine peers; seven of eight must be durable.
pub(super) const K: usize = 4;
pub(super) const N: usize = 8;
pub(super) const S: u32 = 7;

pub(super) fn four_of_eight(number: usize) -> Striped {
    stripe(number, K, N, 100)
}

pub(super) fn records(striped: &Striped) -> StripeRecords {
    let Striped { header, fragments, .. } = striped.clone();
    StripeRecords { header, fragments, threshold: S }
}

pub(super) async fn stored(stage: &Stage, striped: &Striped) -> StoredStripe {
    stage.walker.store_stripe(records(striped)).await.unwrap()
}

/// Stores it and waits until all is done.
pub(super) async fn stored_whole(stage: &Stage, striped: &Striped) {
    let mut stored = stored(stage, striped).await;
    assert!(stored.rest.wait(LONG).await.is_full());
}

/// Who has each fragment.
pub(super) fn placed(stage: &Stage, striped: &Striped) -> Vec<Vec<usize>> {
    striped.fragments.iter().map(|fragment| stage.holders(fragment)).collect()
}

#[test]
fn fragment_i_goes_to_the_ith_of_the_rank_and_the_header_with_it() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 14);
        for number in 0..10 {
            let striped = four_of_eight(number);
            stored_whole(&stage, &striped).await;
            let rank = stage.rank(&striped.header.place);
            for (index, holders) in placed(&stage, &striped).into_iter().enumerate() {
                assert_eq!(holders, [rank[index]], "fragment {index} of stripe {number}");
            }
            let headers: BTreeSet<usize> = stage.holders(&striped.header).into_iter().collect();
            assert_eq!(headers, rank[..N].iter().copied().collect());
        }
        assert_eq!(stage.walker.drain(LONG).await, 0);
    });
}

#[test]
fn all_are_started_at_once_and_the_answer_comes_at_the_threshold() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 14);
        let striped = four_of_eight(1);
        let rank = stage.rank(&striped.header.place);
        rank[..N]
            .iter()
            .for_each(|peer| stage.set(*peer, Fault::Delay(Duration::from_millis(200))));
        stage.set(rank[3], Fault::Delay(Duration::from_secs(3)));
        let mut answered = stored(&stage, &striped).await;
        assert_eq!(env.clock.elapsed(), Duration::from_millis(200), "none waited for another");
        assert_eq!((answered.acked, answered.wanted), (S, N as u32));
        assert!(!answered.rest.reached().done);
        // The slow one is finished behind, where it belongs; nobody else got its fragment.
        drop(answered.holders);
        assert!(answered.rest.wait(LONG).await.is_full());
        assert_eq!(env.clock.elapsed(), Duration::from_secs(3));
        assert_eq!(stage.holders(&striped.fragments[3]), [rank[3]]);
    });
}

/// What was told to be held no more, and when.
async fn told_durable(stage: &Stage, env: &Env, striped: &Striped) -> Vec<(Duration, usize)> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let durable = {
        let (told, clock) = (told.clone(), env.clock.clone());
        Box::new(move |bytes| told.lock().unwrap().push((clock.elapsed(), bytes)))
    };
    let stored = stage.walker.store_stripe_leased(records(striped), Vec::new(), durable).await;
    assert!(stored.unwrap().rest.wait(LONG).await.is_full());
    told.lock().unwrap().clone()
}

#[test]
fn a_writer_is_told_of_each_fragment_once_it_is_durable_and_no_call_carries_it() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 14);
        let ms = Duration::from_millis;
        let striped = four_of_eight(1);
        let rank = stage.rank(&striped.header.place);
        rank[..N]
            .iter()
            .zip(1..)
            .for_each(|(peer, at)| stage.set(*peer, Fault::Delay(ms(10 * at))));
        let told = told_durable(&stage, &env, &striped).await;
        let lengths = striped.fragments.iter().map(|fragment| fragment.bytes.len());
        let expected: Vec<_> = (1..).map(|at| ms(10 * at)).zip(lengths).collect();
        assert_eq!(told, expected, "each as it is durable");

        // Of one that goes to a spare, since its holder is late, the holder's call has the bytes until all is done.
        let striped = four_of_eight(2);
        let rank = stage.rank(&striped.header.place);
        stage.network.heal();
        rank[..2].iter().for_each(|peer| stage.set(*peer, Fault::Hang));
        let told = told_durable(&stage, &env, &striped).await;
        assert_eq!(told.len(), N - 2, "{told:?}");
    });
}

#[test]
fn in_a_crowd_a_quarter_is_sent_at_a_time_until_it_is_gone() {
    run(1, |env| async move {
        let (env, crowd) = Crowd::around(&env);
        let stage = Stage::new(&env, 3, 14);
        let ms = Duration::from_millis;
        let striped = four_of_eight(1);
        let rank = stage.rank(&striped.header.place);
        rank[..N].iter().for_each(|peer| stage.set(*peer, Fault::Delay(ms(20))));
        let mut answered = stored(&stage, &striped).await;
        assert_eq!(env.clock.elapsed(), ms(80), "seven of them are four turns of two");
        assert!(answered.rest.wait(LONG).await.is_full());
        for (index, holders) in placed(&stage, &striped).into_iter().enumerate() {
            assert_eq!(holders, [rank[index]], "fragment {index}");
        }

        // One that hangs has its turn until another is asked in its stead, and no longer.
        let (striped, before) = (four_of_eight(2), env.clock.elapsed());
        let rank = stage.rank(&striped.header.place);
        stage.set(rank[0], Fault::Hang);
        let mut answered = stored(&stage, &striped).await;
        assert!(env.clock.elapsed() - before < Duration::from_secs(2));
        assert!(answered.rest.wait(LONG).await.is_full());

        let (striped, before) = (four_of_eight(3), env.clock.elapsed());
        let rank = stage.rank(&striped.header.place);
        rank[..N].iter().for_each(|peer| stage.set(*peer, Fault::Delay(ms(20))));
        let gone = async {
            env.clock.sleep(ms(10)).await;
            crowd.leave();
        };
        futures::join!(stored(&stage, &striped), gone);
        assert_eq!(env.clock.elapsed() - before, ms(40), "all others at once");
    });
}

#[test]
fn a_crowd_costs_a_stripe_of_many_fragments_no_more_turns() {
    run(1, |env| async move {
        let (env, _) = Crowd::around(&env);
        let stage = Stage::new(&env, 3, 52);
        let striped = stripe(1, 16, 48, 100);
        for peer in 0..52 {
            stage.set(peer, Fault::Delay(Duration::from_millis(20)));
        }
        let mut answered = stored(&stage, &striped).await;
        assert!(answered.rest.wait(LONG).await.is_full());
        assert_eq!(env.clock.elapsed(), Duration::from_millis(80));
    });
}

#[test]
fn what_hangs_behind_an_answered_put_goes_to_a_spare() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 14);
        let striped = four_of_eight(1);
        let rank = stage.rank(&striped.header.place);
        stage.set(rank[5], Fault::Hang);
        let mut answered = stored(&stage, &striped).await;
        assert_eq!(env.clock.elapsed(), Duration::ZERO);
        assert!(answered.rest.wait(LONG).await.is_full());
        assert_eq!(stage.holders(&striped.fragments[5]), [rank[N]], "the first spare has it");
        // Before a user would be told that it is only partly done.
        assert!(env.clock.elapsed() < Duration::from_secs(10), "{:?}", env.clock.elapsed());
    });
}

#[test]
fn what_is_late_before_the_answer_goes_to_spares_too() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 14);
        let striped = four_of_eight(1);
        let rank = stage.rank(&striped.header.place);
        rank[2..5].iter().for_each(|peer| stage.set(*peer, Fault::Hang));
        let mut answered = stored(&stage, &striped).await;
        assert!(env.clock.elapsed() < Duration::from_secs(2), "{:?}", env.clock.elapsed());
        assert!(answered.rest.wait(LONG).await.is_full());
        let spares: BTreeSet<usize> = rank[N..N + 3].iter().copied().collect();
        let took: BTreeSet<usize> =
            (2..5).flat_map(|index| stage.holders(&striped.fragments[index])).collect();
        assert_eq!(took, spares);
    });
}

/// With a spare of each of two organisations left the one that may have no more of the stripe gets none.
#[test]
fn a_spare_of_an_organisation_with_as_many_as_there_is_parity_comes_behind_others() {
    for (index, known) in [(0, true), (3, false), (8, true), (15, false)] {
        run(1, |env| async move {
            let stage = Stage::new(&env, 2, 18);
            let striped = stripe(index, 8, 16, 100);
            let rank = stage.rank(&striped.header.place);
            let away = rank[index];
            stage.set(away, Fault::Down);
            if known {
                let (address, reason) = (String::new(), String::new());
                let error = CallError::Unreachable { address, reason };
                stage.directory.failed(&stage.peer(away), &error);
            }
            let Striped { header, fragments, .. } = striped.clone();
            let records = StripeRecords { header, fragments, threshold: 14 };
            let mut stored = stage.walker.store_stripe(records).await.unwrap();
            assert!(stored.rest.wait(LONG).await.is_full());
            let spare = rank[16..].iter().find(|spare| *spare % 2 == away % 2).unwrap();
            assert_eq!(stage.holders(&striped.fragments[index]), [*spare]);
        });
    }
    // Where it has none left the first spare gets it all the same.
    run(1, |env| async move {
        let stage = Stage::new(&env, 2, 9);
        let striped = four_of_eight(1);
        let rank = stage.rank(&striped.header.place);
        let index = rank.iter().position(|peer| peer % 2 == 1).unwrap();
        stage.set(rank[index], Fault::Down);
        stored_whole(&stage, &striped).await;
        assert_eq!(stage.holders(&striped.fragments[index]), [rank[8]]);
    });
}

#[test]
fn any_peers_away_displace_their_own_fragments_alone() {
    for (a, b) in [(0, 1), (0, 7), (3, 4), (6, 9), (2, 8)] {
        run(1, |env| async move {
            let stage = Stage::new(&env, 3, 14);
            let striped = four_of_eight(a);
            let rank = stage.rank(&striped.header.place);
            for peer in [a, b].map(|at| rank[at]) {
                stage.set(peer, Fault::Down);
                let error =
                    CallError::Unreachable { address: String::new(), reason: String::new() };
                stage.directory.failed(&stage.peer(peer), &error);
            }
            stored_whole(&stage, &striped).await;
            for (index, holders) in placed(&stage, &striped).into_iter().enumerate() {
                let displaced = [a, b].contains(&index);
                assert_eq!(holders == [rank[index]], !displaced, "fragment {index}");
                assert_eq!(holders.len(), 1, "fragment {index}");
            }
        });
    }
}

#[test]
fn more_dead_and_full_peers_than_spares_leave_no_stripe_short() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 20);
        let striped = four_of_eight(1);
        let rank = stage.rank(&striped.header.place);
        for (number, peer) in rank[..SPARES + 2].iter().enumerate() {
            let fault = [Fault::Down, Fault::Writes(CallError::Full)];
            stage.set(*peer, fault[number % 2].clone());
        }
        stored_whole(&stage, &striped).await;
        let holders: BTreeSet<usize> = placed(&stage, &striped).into_iter().flatten().collect();
        assert_eq!(holders, rank[SPARES + 2..SPARES + 2 + N].iter().copied().collect());
    });
}

#[test]
fn no_peer_gets_two_fragments_whatever_fails() {
    let busy = || Fault::Error(CallError::Busy { retry_after: Duration::from_millis(300) });
    let slow = || Fault::Delay(Duration::from_secs(2));
    let faults = [slow, busy, || Fault::Hang, || Fault::Down, || Fault::None];
    for seed in 0..faults.len().pow(2) {
        run(seed as u64, |env| async move {
            let stage = Stage::new(&env, 4, 12);
            let striped = four_of_eight(seed);
            let rank = stage.rank(&striped.header.place);
            stage.set(rank[1], faults[seed % 5]());
            stage.set(rank[N], faults[seed / 5]());
            stored_whole(&stage, &striped).await;
            let mut peers: Vec<usize> = placed(&stage, &striped).into_iter().flatten().collect();
            let all = peers.len();
            peers.sort_unstable();
            peers.dedup();
            assert_eq!(peers.len(), all, "seed {seed}");
        });
    }
}

#[test]
fn a_peer_that_was_busy_is_asked_again_where_it_belongs() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let striped = four_of_eight(1);
        let rank = stage.rank(&striped.header.place);
        let busy = CallError::Busy { retry_after: Duration::from_millis(50) };
        stage.set(rank[2], Fault::Error(busy));
        let healing = async {
            env.clock.sleep(Duration::from_millis(20)).await;
            stage.set(rank[2], Fault::None);
        };
        futures::join!(stored_whole(&stage, &striped), healing);
        assert_eq!(stage.holders(&striped.fragments[2]), [rank[2]]);
    });
}

#[test]
fn with_fewer_peers_than_the_threshold_nothing_is_sent() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, S as usize - 1);
        let error = stage.walker.store_stripe(records(&four_of_eight(1))).await.unwrap_err();
        assert!(matches!(error, WalkError::TooFew { acked: 0, wanted: S, .. }), "{error}");
        assert_eq!(stage.network.total(), 0);
    });
}

#[test]
fn too_many_losses_are_told_and_every_number_below_is_survived() {
    for down in 0..=N {
        run(1, |env| async move {
            // As many peers as fragments: there are no spares.
            let stage = Stage::new(&env, 2, N);
            (0..down).for_each(|number| stage.set(number, Fault::Down));
            let stored = stage.walker.store_stripe(records(&four_of_eight(1))).await;
            let up = (N - down) as u32;
            match stored {
                Ok(mut stored) => {
                    assert!(up >= S);
                    let reached = stored.rest.wait(LONG).await;
                    assert_eq!((reached.acked, reached.done), (up, true));
                }
                Err(error) => {
                    assert!(up < S, "{error}");
                    assert_eq!(error.class(), Class::Unavailable);
                    let WalkError::TooFew { acked, wanted, errors } = error else { panic!() };
                    assert_eq!((acked, wanted, errors.len()), (up, S, down));
                }
            }
        });
    }
}

#[test]
fn peers_that_take_no_writes_are_passed_by_and_are_the_reason_where_too_few_are_left() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, N);
        for number in 0..2 {
            stage.announce(number, PeerState::ReadOnly, 2);
        }
        let error = stage.walker.store_stripe(records(&four_of_eight(1))).await.unwrap_err();
        assert!(matches!(error, WalkError::Full { acked: 6, wanted: S }), "{error}");
        assert_eq!(error.class(), Class::Busy);
    });
}

#[test]
fn peers_that_are_unwell_are_a_last_resort_for_the_threshold() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, N);
        let failed = CallError::Unreachable { address: String::new(), reason: String::new() };
        for number in 0..3 {
            stage.directory.failed(&stage.peer(number), &failed);
            assert_eq!(stage.directory.health(&stage.peer(number)), Health::Suspect);
        }
        let mut stored = stored(&stage, &four_of_eight(1)).await;
        assert!(stored.rest.wait(LONG).await.acked >= S);
    });
}

#[test]
fn what_waits_behind_answered_puts_is_bounded_in_bytes() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 2, 2);
        let late = Duration::from_secs(4);
        stage.set(1, Fault::Delay(late));
        let striped = stripe(1, 1, 2, 1 << 20);
        let put = || {
            let Striped { header, fragments, .. } = striped.clone();
            stage.walker.store_stripe(StripeRecords { header, fragments, threshold: 1 })
        };
        // Each leaves one fragment on its way.
        let fit = BEHIND_BYTES_MAX / striped.fragments[1].bytes.len();
        for _ in 0..fit {
            drop(put().await.unwrap());
        }
        // They wait for each other a little where they look like the line's fault.
        assert!(env.clock.elapsed() < late);
        drop(put().await.unwrap());
        assert!(env.clock.elapsed() >= late, "the next one waits for room");
        assert_eq!(stage.walker.drain(LONG).await, 0);
    });
}

#[test]
fn a_dropped_walker_leaves_no_task_and_a_dropped_call_stops_what_runs() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 14);
        let striped = four_of_eight(1);
        let rank = stage.rank(&striped.header.place);
        stage.set(rank[3], Fault::Delay(Duration::from_secs(4)));
        drop(stored(&stage, &striped).await);
        let walker = Walker::new(
            env.clone(),
            stage.network.calls(key("client", 1).public()),
            stage.directory.clone(),
            WalkOptions::default(),
        );
        rank.iter().for_each(|peer| stage.set(*peer, Fault::Delay(Duration::from_secs(4))));
        let other = four_of_eight(2);
        let call = walker.store_stripe(records(&other));
        assert!(env.within(Duration::from_millis(100), call).await.is_err());
        drop(stage.walker);
        env.clock.sleep(LONG).await;
        for peer in &rank {
            assert_eq!(stage.network.counts(&stage.community.peer(*peer)).running, 0);
        }
        assert!(stage.peers.iter().all(|peer| !peer.holds(&other.header.id)));
    });
}

#[test]
fn a_thin_client_is_told_to_put_by_copies() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let through = vec![stage.community.members[0].address.clone()];
        let options = WalkOptions { through, ..WalkOptions::default() };
        let calls = stage.network.calls(key("client", 1).public());
        let walker = Walker::new(env.clone(), calls, stage.directory.clone(), options);
        let error = walker.store_stripe(records(&four_of_eight(1))).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "a librarian stores records for a thin client, not stripes: put by copies"
        );
        assert_eq!(error.class(), Class::Invalid);
        assert_eq!(stage.network.total(), 0);
    });
}
