//! Peers that lie about what they hold and mend: what each lie costs, and that nothing is lost by it.

use std::sync::Arc;
use std::time::Duration;

use crypto::{PeerId, PeerState, Place, RecordId};
use document::{Kind, Record, Striped};
use env::Env;
use env::calls::keep::{
    ClaimAnswer, FetchAnswer, HeldFragment, KeepAnswer, KeepRequest, Listed, Range, SettledStripe,
};
use librarian::LibrarianOptions;
use store::RecordStore;
use walk::StripeRecords;

use crate::audit::{Bent, bend};
use crate::repair::{
    copies_of, fragments_of, kill, put_copies, put_stripes, quick, town as quick_town, wanted,
};
use crate::town::{LIMIT, Town};

const PEERS: usize = 9;
const N: usize = 5;

async fn town(env: &Env) -> Town {
    let mut town = Town::empty(env, 3, PEERS);
    for _ in 0..PEERS {
        town.start_next(|options| {
            quick(options);
            options.keeping.as_mut().unwrap().surplus_after = Duration::from_secs(20);
        })
        .await;
    }
    town.until("all know all", |town| {
        town.peers.iter().all(|peer| peer.directory().view().len() == PEERS)
    })
    .await;
    town
}

fn others(liar: usize) -> Vec<usize> {
    (0..PEERS).filter(|number| *number != liar).collect()
}

/// One peer that ranks high for a stripe says of all others' fragments that it has them, and proves it, since it fetched them.
#[test]
fn who_says_that_it_has_all_fragments_makes_the_others_drop_one_at_most() {
    testkit::time::run(71, |env| async move {
        let town = town(&env).await;
        let striped = put_stripes(&town, 1, 2, N).await.remove(0);
        let stripe = striped.header.id;
        let ranked = town.peers[0].directory().view().holders(&Place::from(stripe), PEERS);
        let number = |peer: &PeerId| {
            (0..PEERS).find(|number| town.community.peer(*number) == *peer).unwrap()
        };
        // The first in rank, so that the plan would seat it; what it held itself it forgets.
        let liar = number(&ranked[0]);
        env.clock.sleep(Duration::from_secs(60)).await;
        let mut all = striped.fragments.clone();
        all.push(striped.header.clone());
        town.stores[liar].put(all).await.unwrap();
        bend(
            &town,
            liar,
            Bent::With(Arc::new(move |request| match request {
                KeepRequest::Claim(stripes) => {
                    let held = (0..N as u8).collect();
                    let answer = ClaimAnswer { held, claimed_by: None };
                    Some(KeepAnswer::Claim(vec![answer; stripes.len()]))
                }
                _ => None,
            })),
        );
        let (alive, own) = (others(liar), town.community.peer(liar));
        let calls = town.peer_calls(liar);
        let range = Range { prefix: u32::from(stripe.as_bytes()[0]), bits: 8 };
        let all: Vec<HeldFragment> =
            (0..N as u8).map(|index| HeldFragment { stripe, index }).collect();
        let mut least = N;
        for _ in 0..120 {
            for to in &alive {
                let moved = (0..N as u8).map(|index| (index, own)).collect();
                let settled = KeepRequest::Settled(vec![SettledStripe { stripe, moved }]);
                let _ = calls.keep(&town.at(*to), settled, LIMIT).await;
                let listed = Listed { range, copies: vec![], fragments: all.clone(), more: false };
                let _ = calls.keep(&town.at(*to), KeepRequest::Lists(vec![listed]), LIMIT).await;
            }
            env.clock.sleep(Duration::from_secs(1)).await;
            least = least.min(fragments_of(&town, &alive, &striped).0);
        }
        assert!(least >= N - 2, "{least} of {N} were left at the others");
    });
}

/// A peer that says of every stripe that somebody claimed it, another or itself, delays its repair and stops none.
#[test]
fn who_says_of_every_stripe_that_it_is_claimed_stops_no_repair() {
    for itself in [true, false] {
        testkit::time::run(72, move |env| async move {
            let town = town(&env).await;
            let stripes = put_stripes(&town, 12, 2, N).await;
            let (liar, dead) = (3, 7);
            let named = town.community.peer(if itself { liar } else { 5 });
            bend(
                &town,
                liar,
                Bent::With(Arc::new(move |request| match request {
                    KeepRequest::Claim(stripes) => {
                        let answer = ClaimAnswer { held: vec![], claimed_by: Some(named) };
                        Some(KeepAnswer::Claim(vec![answer; stripes.len()]))
                    }
                    _ => None,
                })),
            );
            kill(&town, dead).await;
            let alive: Vec<usize> = (0..PEERS).filter(|number| *number != dead).collect();
            town.until("all is mended", |town| {
                stripes.iter().all(|one: &Striped| fragments_of(town, &alive, one).0 == N)
            })
            .await;
        });
    }
}

/// A peer that lists what does not exist, and never has it ready, keeps nobody from fetching what lacks.
#[test]
fn who_promises_copies_for_later_keeps_nobody_from_others() {
    testkit::time::run(73, |env| async move {
        let mut town = town(&env).await;
        let records = put_copies(&town, 40).await;
        let (liar, victim) = (4, 2);
        bend(
            &town,
            liar,
            Bent::With(Arc::new(move |request| match request {
                KeepRequest::Fetch(asked) => {
                    Some(KeepAnswer::Fetch(vec![FetchAnswer::Later; asked.len()]))
                }
                _ => None,
            })),
        );
        env.clock.sleep(Duration::from_secs(30)).await;
        let calls = town.peer_calls(liar);
        let lost: Vec<&Record> = records
            .iter()
            .filter(|record| record.kind == Kind::Entry || record.kind == Kind::Envelope)
            .filter(|record| town.stores[victim].holds(&record.id))
            .collect();
        assert!(!lost.is_empty());
        for record in &lost {
            town.lose(victim, &record.id).await;
        }
        town.restart_with(victim, quick).await;
        let made_up = |number: u16, salt: u16| {
            let mut id = [0; 32];
            id[..2].copy_from_slice(&number.to_be_bytes());
            id[2..4].copy_from_slice(&salt.to_be_bytes());
            RecordId::new(id)
        };
        for salt in 0..200 {
            let lists = (0..64_u16).map(|number| {
                let id = made_up(number << 8, salt);
                let range = Range { prefix: u32::from(number), bits: 8 };
                let copies = vec![(id, Place::from(id))];
                Listed { range, copies, fragments: vec![], more: true }
            });
            let lists = KeepRequest::Lists(lists.collect());
            let _ = calls.keep(&town.at(victim), lists, LIMIT).await;
            env.clock.sleep(Duration::from_secs(1)).await;
        }
        let alive = others(liar);
        for record in &records {
            let there = copies_of(&town, &alive, &record.id);
            assert!(there + 1 >= wanted(&town, record.kind), "{there} of {:?}", record.kind);
        }
        assert!(lost.iter().all(|record| town.stores[victim].holds(&record.id)));
    });
}

/// Beside the fragment that it has a peer says that it has the one of a holder that died: nobody makes do with its word.
#[test]
fn who_says_that_it_has_a_lost_fragment_besides_its_own_keeps_nobody_from_making_it() {
    testkit::time::run(74, |env| async move {
        let mut town = town(&env).await;
        let striped = put_stripes(&town, 1, 2, N).await.remove(0);
        let holder = |index: usize| {
            let id = striped.fragments[index].id;
            (0..PEERS).find(|number| town.stores[*number].holds(&id)).unwrap()
        };
        let (liar, dead) = (holder(1), holder(3));
        // It mends nothing itself.
        let idle = |options: &mut LibrarianOptions| {
            quick(options);
            options.keeping.as_mut().unwrap().settle = Duration::from_secs(1 << 20);
        };
        town.restart_with(liar, idle).await;
        bend(
            &town,
            liar,
            Bent::With(Arc::new(move |request| match request {
                KeepRequest::Claim(stripes) => {
                    let answer = ClaimAnswer { held: vec![1, 3], claimed_by: None };
                    Some(KeepAnswer::Claim(vec![answer; stripes.len()]))
                }
                _ => None,
            })),
        );
        kill(&town, dead).await;
        let alive = others(dead);
        town.until("it is made again", |town| fragments_of(town, &alive, &striped).0 == N).await;
    });
}

/// A peer whose answers are late and say each time that all differs and that there is more holds up what is compared with it alone.
#[test]
fn who_lets_a_comparison_go_on_for_ever_keeps_nobody_from_seeing_who_is_gone() {
    testkit::time::run(77, |env| async move {
        let town = town(&env).await;
        // Of two organisations.
        let (liar, dead) = (5, 7);
        bend(&town, liar, Bent::Lagging(Duration::from_secs(9)));
        // Everybody has begun to compare with it by then.
        env.clock.sleep(Duration::from_secs(60)).await;
        kill(&town, dead).await;
        let gone = [town.community.peer(dead).to_string()];
        let honest = |number: &usize| *number != liar && *number != dead;
        let honest: Vec<usize> = (0..PEERS).filter(honest).collect();
        let absent = |town: &Town, by: usize| town.peers[by].repair().unwrap().absent;
        town.until("all do without it", |town| honest.iter().all(|by| absent(town, *by) == gone))
            .await;
        // They compare with each other all the while.
        let unknown = |town: &Town, by: usize| town.peers[by].repair().unwrap().unknown;
        town.until("all but the liar are known", |town| {
            honest.iter().all(|by| unknown(town, *by) <= 1)
        })
        .await;
    });
}

/// A peer tells half of the others that it leaves and the rest that it stays, under one number.
#[test]
fn who_announces_two_things_at_once_is_seen_alike_by_all() {
    testkit::time::run(78, |env| async move {
        let mut town = Town::empty(&env, 3, 6);
        for _ in 0..5 {
            town.start_next(quick).await;
        }
        let liar = town.community.peer(5);
        for (number, peer) in town.peers.iter().enumerate() {
            let state = if number % 2 == 0 { PeerState::Leaving } else { PeerState::Serving };
            peer.directory().learn(&town.community.announce(5, state, 9)).unwrap();
        }
        let believed = |town: &Town, by: usize| town.peers[by].directory().announced(&[liar]);
        town.until("all believe the same", |town| {
            (1..5).all(|by| believed(town, by) == believed(town, 0))
        })
        .await;
        let unknown = |town: &Town, by: usize| town.peers[by].repair().unwrap().unknown;
        town.until("all compare", |town| (0..5).all(|by| unknown(town, by) == 0)).await;
    });
}

/// A peer that answers no claim keeps others from dropping what is twice, and from nothing else.
#[test]
fn who_answers_no_claim_keeps_nobody_from_offering_what_others_lack() {
    testkit::time::run(79, |env| async move {
        let town = town(&env).await;
        let stripes = put_stripes(&town, 60, 2, N).await;
        let (liar, victim) = (5, 2);
        env.clock.sleep(Duration::from_secs(60)).await;
        bend(&town, liar, Bent::Stalling);
        // Each fragment is at another peer too, it says.
        let other = town.community.peer(7);
        let moved: Vec<(u8, PeerId)> = (0..N as u8).map(|index| (index, other)).collect();
        let told = |one: &Striped| SettledStripe { stripe: one.header.id, moved: moved.clone() };
        let settled = KeepRequest::Settled(stripes.iter().map(told).collect());
        let calls = town.peer_calls(liar);
        calls.keep(&town.at(victim), settled, LIMIT).await.unwrap();
        env.clock.sleep(Duration::from_secs(10)).await;
        let view = town.peers[0].directory().view();
        let duty = |record: &Record| -> Vec<usize> {
            let holders = view.holders(&Place::from(record.id), wanted(&town, record.kind));
            let all = 0..PEERS;
            all.filter(|number| holders.contains(&town.community.peer(*number))).collect()
        };
        let mut pages = (500..).map(|number| crate::town::page(number, 500));
        let is_stray = |page: &Record| {
            let duty = duty(page);
            !duty.contains(&victim) && !duty.contains(&liar)
        };
        let stray = pages.find(is_stray).unwrap();
        let duty = duty(&stray);
        town.peer_calls(7).store(&town.at(victim), stray.clone(), LIMIT).await.unwrap();
        let whole = || copies_of(&town, &duty, &stray.id) == duty.len();
        for _ in 0..300 {
            if whole() {
                return;
            }
            env.clock.sleep(Duration::from_secs(1)).await;
        }
        panic!("nobody was offered what only the victim has");
    });
}

/// A page may be named by the headers of two stripes, and is kept once: for the one it came with first.
#[test]
fn a_fragment_that_is_kept_for_one_stripe_is_not_dropped_for_another_that_names_it() {
    testkit::time::run(75, |env| async move {
        let town = town(&env).await;
        let striped = put_stripes(&town, 1, 2, N).await.remove(0);
        let shared = &striped.fragments[0];
        let holder = (0..PEERS).find(|number| town.stores[*number].holds(&shared.id)).unwrap();
        // Its first fragment is the same, and belongs to another peer.
        let ranked = |other: &Striped| {
            let place = Place::from(other.header.id);
            town.peers[0].directory().view().holders(&place, N)
        };
        let mut others = (100..).map(|number| {
            let page = testkit::network::stripe(number, 2, N, 3_000).fragments.remove(1);
            testkit::network::stripe_of(vec![shared.clone(), page], N)
        });
        let own = town.community.peer(holder);
        let other = others.find(|other| !ranked(other).contains(&own)).unwrap();
        let (header, fragments) = (other.header.clone(), other.fragments.clone());
        let records = StripeRecords { header, fragments, threshold: N as u32 };
        town.peers[0].walker().store_stripe(records).await.unwrap();
        let calls = town.peer_calls((holder + 1) % PEERS);
        let batch = vec![other.header.clone(), other.fragments[0].clone()];
        let outcomes = calls.store_batch(&town.at(holder), batch, LIMIT).await.unwrap();
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        for _ in 0..300 {
            env.clock.sleep(Duration::from_secs(1)).await;
            assert!(town.stores[holder].holds(&shared.id), "the other stripe had it dropped");
        }
    });
}

/// A client stores headers with one fragment each, hundreds at each peer, and one peer is slow to say what it has of what is claimed.
#[test]
fn stripes_that_nobody_can_mend_keep_no_others_from_being_mended() {
    const JUNK: usize = 800;
    testkit::time::run(76, |env| async move {
        let mut town = quick_town(&env, 3, 5).await;
        let (slow, dead, alive) = (3, 4, [0, 1, 2, 3]);
        let stripes = put_stripes(&town, 6, 2, 3).await;
        // It mends nothing itself.
        let idle = |options: &mut LibrarianOptions| {
            quick(options);
            options.keeping.as_mut().unwrap().settle = Duration::from_secs(1 << 20);
        };
        town.restart_with(slow, idle).await;
        bend(&town, slow, Bent::LateClaims(Duration::from_secs(9)));
        let calls = town.peer_calls(slow);
        for number in 0..3 * JUNK {
            let junk = testkit::network::stripe(1_000 + number, 2, 3, 50);
            let batch = vec![junk.header, junk.fragments[0].clone()];
            let outcomes = calls.store_batch(&town.at(number % 3), batch, LIMIT).await.unwrap();
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        }
        town.until("it is known that nobody can read them", |town| {
            (0..3).all(|number| town.peers[number].repair().unwrap().stripes_unreadable >= JUNK)
        })
        .await;
        kill(&town, dead).await;
        town.until("others are mended", |town| {
            stripes.iter().all(|one| fragments_of(town, &alive, one).0 == 3)
        })
        .await;
        // Nor from saying that no more can be done.
        let settled =
            |town: &Town| (0..3).all(|number| town.peers[number].repair().unwrap().settled);
        for _ in 0..6 {
            if !settled(&town) {
                env.clock.sleep(Duration::from_secs(300)).await;
            }
        }
        assert!(settled(&town));
    });
}

/// A peer that lists what does not exist beside what does, and gives one copy at a time as late as it may, holds up its own alone.
#[test]
fn who_gives_copies_late_and_one_at_a_time_keeps_nobody_from_others() {
    testkit::time::run(76, |env| async move {
        let mut town = town(&env).await;
        let records = put_copies(&town, 80).await;
        let (liar, victim) = (4, 2);
        env.clock.sleep(Duration::from_secs(30)).await;
        let lost: Vec<&Record> = records
            .iter()
            .filter(|record| record.kind == Kind::Envelope)
            .filter(|record| town.stores[victim].holds(&record.id))
            .collect();
        assert!(lost.len() > 8, "{}", lost.len());
        for record in &lost {
            town.lose(victim, &record.id).await;
        }
        bend(&town, liar, Bent::Sparing(Duration::from_secs(59)));
        town.restart_with(victim, quick).await;
        let calls = town.peer_calls(liar);
        let list = |id: RecordId, place: Place| {
            let range = Range { prefix: u32::from(place.as_bytes()[0]), bits: 8 };
            Listed { range, copies: vec![(id, place)], fragments: vec![], more: true }
        };
        for salt in 0..350_u16 {
            let made_up = (192..=255_u8).map(|number| {
                let mut id = [0xff; 32];
                id[0] = number;
                id[1..3].copy_from_slice(&salt.to_be_bytes());
                list(RecordId::new(id), Place::new(id))
            });
            let real = lost.iter().map(|record| list(record.id, record.place));
            for lists in [real.collect(), made_up.collect()] {
                let _ = calls.keep(&town.at(victim), KeepRequest::Lists(lists), LIMIT).await;
            }
            let pause = if salt < 200 { 50 } else { 1000 };
            env.clock.sleep(Duration::from_millis(pause)).await;
        }
        let left = lost.iter().filter(|record| !town.stores[victim].holds(&record.id)).count();
        assert_eq!(left, 0, "of {}", lost.len());
    });
}
