//! Repair: what lacks is fetched or made, by whom it should be, once, and nothing else moves.

use std::collections::BTreeMap;
use std::time::Duration;

use crypto::{PeerId, Place, RecordId, Suite, Tier};
use document::{Kind, Record, Striped};
use env::Env;
use env::calls::keep::{ITEMS_MAX, KeepAnswer, KeepRequest};
use env::calls::{CallError, FindRequest, FindResponse};
use librarian::{KeepingOptions, LibrarianOptions};
use placement::redundancy;
use testkit::network::Fault;
use version::policy::Policy;
use walk::StripeRecords;

use crate::objects::pen::{Caller, Pen};
use crate::town::{LIMIT, Town, envelope, page};

const SUITE: Suite = Suite::Holdfast1;

pub(crate) fn quick(options: &mut LibrarianOptions) {
    options.keeping = Some(KeepingOptions {
        compare: Duration::from_secs(2),
        absent_after: Duration::from_secs(90),
        settle: Duration::from_secs(4),
        ..KeepingOptions::default()
    });
}

pub(crate) async fn town(env: &Env, organisations: usize, peers: usize) -> Town {
    let mut town = Town::empty(env, organisations, peers);
    for _ in 0..peers {
        town.start_next(quick).await;
    }
    town.until("all know all", |town| {
        town.peers.iter().all(|peer| peer.directory().view().len() == peers)
    })
    .await;
    town
}

/// Stores copies through the first peer's walker, all of them.
pub(crate) async fn put_copies(town: &Town, count: u32) -> Vec<Record> {
    let walker = town.peers[0].walker();
    let mut records = Vec::new();
    for number in 0..count {
        let record = match number % 2 {
            0 => page(number, 500),
            _ => envelope(number, 0).0,
        };
        let redundancy = walker.redundancy(record.kind);
        let stored = walker.store(record.clone(), redundancy).await.unwrap();
        let mut rest = stored.rest;
        rest.wait(Duration::from_secs(10)).await;
        records.push(record);
    }
    records
}

pub(crate) async fn put_stripes(town: &Town, count: usize, k: usize, n: usize) -> Vec<Striped> {
    let mut all = Vec::new();
    for number in 0..count {
        let striped = testkit::network::stripe(number, k, n, 3_000);
        let (header, fragments) = (striped.header.clone(), striped.fragments.clone());
        let records = StripeRecords { header, fragments, threshold: n as u32 };
        town.peers[0].walker().store_stripe(records).await.unwrap();
        all.push(striped);
    }
    all
}

/// Takes a peer down without a word.
pub(crate) async fn kill(town: &Town, number: usize) {
    town.network.remove(&town.community.members[number].address);
    town.peers[number].stop().await.unwrap();
}

pub(crate) fn copies_of(town: &Town, alive: &[usize], id: &RecordId) -> usize {
    alive.iter().filter(|number| town.stores[**number].holds(id)).count()
}

/// How many different fragments of a stripe are held, and how many peers hold one.
pub(crate) fn fragments_of(town: &Town, alive: &[usize], striped: &Striped) -> (usize, usize) {
    let held = |number: &usize| -> Vec<usize> {
        let fragments = striped.fragments.iter().enumerate();
        let held = fragments.filter(|(_, one)| town.stores[*number].holds(&one.id));
        held.map(|(index, _)| index).collect()
    };
    let mut by_fragment: BTreeMap<usize, usize> = BTreeMap::new();
    let mut holders = 0;
    for number in alive {
        let held = held(number);
        holders += usize::from(!held.is_empty());
        for index in held {
            *by_fragment.entry(index).or_default() += 1;
        }
    }
    (by_fragment.len(), holders)
}

pub(crate) fn wanted(town: &Town, kind: Kind) -> usize {
    let peers = town.peers[0].directory().view().len();
    redundancy(kind, peers, SUITE, town.community.genesis.copies).copies as usize
}

pub(crate) fn sum(
    town: &Town,
    alive: &[usize],
    of: impl Fn(&librarian::RepairStatus) -> u64,
) -> u64 {
    alive.iter().filter_map(|number| town.peers[*number].repair()).map(|one| of(&one)).sum()
}

#[test]
fn peers_that_agree_exchange_sums_alone_and_move_nothing() {
    testkit::time::run(31, |env| async move {
        let town = town(&env, 3, 6).await;
        put_copies(&town, 60).await;
        put_stripes(&town, 20, 2, 5).await;
        // Until what was put was compared with everybody by everybody.
        env.clock.sleep(Duration::from_secs(60)).await;
        let all: Vec<usize> = (0..6).collect();
        assert_eq!(sum(&town, &all, |status| status.copies_fetched), 0);
        assert_eq!(sum(&town, &all, |status| status.fragments_made), 0);
        assert!(town.peers.iter().all(|peer| peer.repair().unwrap().settled));
        // At rest: a comparison is one call.
        let count = messages(&env, &town).await;
        assert!(count <= 6 * 60 / 2 + 60, "{count} messages in a minute");
    });
}

/// How many calls of repair all peers make in a minute.
async fn messages(env: &Env, town: &Town) -> u64 {
    let count = |text: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with("holdfast_repair_messages_total"));
        line.and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap()
    };
    let all = || -> u64 { town.peers.iter().map(|peer| count(&peer.metrics())).sum() };
    let before = all();
    env.clock.sleep(Duration::from_secs(60)).await;
    all() - before
}

/// The store knows one place of each record: behind a start, too, one that is both is no difference for good.
#[test]
fn a_page_that_is_a_fragment_and_a_copy_is_compared_as_both_after_a_restart() {
    testkit::time::run(34, |env| async move {
        let mut town = town(&env, 3, 3).await;
        let stripes: Vec<Striped> =
            (0..12).map(|number| testkit::network::stripe(number, 2, 3, 3_000)).collect();
        for number in 0..3 {
            let client = town.client_of(number, Tier::Own, &[number]).await;
            for striped in &stripes {
                let page = striped.fragments[0].clone();
                let copy = Record { place: page.id.into(), ..page };
                let batch = vec![striped.header.clone(), striped.fragments[number].clone(), copy];
                let outcomes = client.store_batch(&town.at(number), batch, LIMIT).await.unwrap();
                assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            }
        }
        env.clock.sleep(Duration::from_secs(60)).await;
        let at_rest = 3 * 60 / 2 + 30;
        let count = messages(&env, &town).await;
        assert!(count <= at_rest, "{count} messages in a minute");
        town.restart_with(0, quick).await;
        env.clock.sleep(Duration::from_secs(60)).await;
        let count = messages(&env, &town).await;
        assert!(count <= at_rest, "{count} messages in a minute behind a restart");
    });
}

#[test]
fn copies_of_a_dead_organisation_are_fetched_by_the_next_in_rank_once_each() {
    testkit::time::run(32, |env| async move {
        let town = town(&env, 3, 9).await;
        let records = put_copies(&town, 80).await;
        let dead: Vec<usize> = (0..9).filter(|number| number % 3 == 1).collect();
        for number in &dead {
            kill(&town, *number).await;
        }
        let alive: Vec<usize> = (0..9).filter(|number| number % 3 != 1).collect();
        let lost: usize = records
            .iter()
            .map(|record| {
                wanted(&town, record.kind).saturating_sub(copies_of(&town, &alive, &record.id))
            })
            .sum();
        assert!(lost > 60, "{lost}");
        town.until("every copy is there again", |town| {
            let whole = |record: &Record| {
                copies_of(town, &alive, &record.id) >= wanted(town, record.kind).min(alive.len())
            };
            records.iter().all(whole)
        })
        .await;
        let fetched = sum(&town, &alive, |status| status.copies_fetched);
        assert_eq!(fetched, lost as u64, "each once");
    });
}

#[test]
fn fragments_of_dead_peers_are_made_by_one_holder_and_each_peer_has_one() {
    testkit::time::run(33, |env| async move {
        let town = town(&env, 4, 12).await;
        let stripes = put_stripes(&town, 30, 3, 7).await;
        let dead = [1, 5, 9];
        for number in dead {
            kill(&town, number).await;
        }
        let alive: Vec<usize> = (0..12).filter(|number| !dead.contains(number)).collect();
        let lost: usize = stripes.iter().map(|one| 7 - fragments_of(&town, &alive, one).0).sum();
        assert!(lost > 20, "{lost}");
        town.until("every fragment is there again", |town| {
            stripes.iter().all(|one| fragments_of(town, &alive, one) == (7, 7))
        })
        .await;
        env.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(sum(&town, &alive, |status| status.fragments_made), lost as u64, "each once");
        assert!(stripes.iter().all(|one| fragments_of(&town, &alive, one) == (7, 7)));
        // k - 1 fragments fetched and j sent, for each stripe that lost j.
        let degraded = stripes.len() as u64;
        let fragment = stripes[0].fragments.iter().map(|one| one.bytes.len()).max().unwrap() as u64;
        let moved = sum(&town, &alive, |status| status.fetched_bytes + status.sent_bytes);
        let headers = stripes[0].header.bytes.len() as u64 * lost as u64;
        assert!(moved <= (degraded * 2 + lost as u64) * fragment + headers, "{moved} bytes");
    });
}

/// It answers all else at once, and is not late by the limit of a call.
#[test]
fn a_holder_that_gives_each_fragment_late_holds_up_no_repair() {
    testkit::time::run(67, |env| async move {
        let town = town(&env, 3, 9).await;
        let stripes = put_stripes(&town, 60, 4, 6).await;
        env.clock.sleep(Duration::from_secs(30)).await;
        let (late, dead) = (4, 7);
        let minute = Fault::LateRecords(Duration::from_secs(59));
        town.network.set(&town.community.peer(late), minute);
        kill(&town, dead).await;
        let alive: Vec<usize> = (0..9).filter(|number| *number != dead).collect();
        let due = |number: &usize| town.peers[*number].repair().unwrap().stripes_due;
        town.until("it is missed", |_| alive.iter().any(|number| due(number) > 0)).await;
        let since = env.clock.elapsed();
        town.until("all is mended", |town| {
            stripes.iter().all(|one| fragments_of(town, &alive, one).0 == 6)
        })
        .await;
        let took = env.clock.elapsed() - since;
        assert!(took < Duration::from_secs(50), "{took:?}");
    });
}

/// It is the next in rank for some of what a dead peer had, and answers everything else as it should.
#[test]
fn a_peer_that_refuses_fragments_keeps_no_stripe_from_being_mended() {
    testkit::time::run(65, |env| async move {
        let town = town(&env, 3, 9).await;
        let stripes = put_stripes(&town, 60, 2, 5).await;
        env.clock.sleep(Duration::from_secs(30)).await;
        let (refuses, dead) = (4, 7);
        let [next, gone] = [refuses, dead].map(|number| town.community.peer(number));
        let view = town.peers[0].directory().view();
        let is_next = |one: &&Striped| {
            let ranked = view.holders(&Place::from(one.header.id), 6);
            ranked[5] == next && ranked[..5].contains(&gone)
        };
        assert!(stripes.iter().filter(is_next).count() > 0);
        let denied = CallError::Denied { reason: "it wants none".to_owned() };
        town.network.set(&next, Fault::Writes(denied));
        kill(&town, dead).await;
        let alive: Vec<usize> = (0..9).filter(|number| *number != dead).collect();
        town.until("all is mended", |town| {
            stripes.iter().all(|one| fragments_of(town, &alive, one).0 == 5)
        })
        .await;
    });
}

/// The only peer that could take what a dead one had is read-only.
#[test]
fn what_nobody_takes_is_not_made_for_it_all_the_time_and_goes_out_once_it_is_taken() {
    testkit::time::run(66, |env| async move {
        let town = town(&env, 3, 6).await;
        let stripes = put_stripes(&town, 40, 3, 5).await;
        env.clock.sleep(Duration::from_secs(30)).await;
        let (closed, dead) = (4, 1);
        let reason = "it is set to read-only".to_owned();
        town.network
            .set(&town.community.peer(closed), Fault::Writes(CallError::ReadOnly { reason }));
        kill(&town, dead).await;
        let alive: Vec<usize> = (0..6).filter(|number| *number != dead).collect();
        env.clock.sleep(Duration::from_secs(1_800)).await;
        let lack = |town: &Town| {
            stripes.iter().filter(|one| fragments_of(town, &alive, one).0 < 5).count()
        };
        let lacking = lack(&town);
        assert!((1..20).contains(&lacking), "{lacking}: those for which it is the only one");
        let before = sum(&town, &alive, |status| status.fetched_bytes);
        env.clock.sleep(Duration::from_secs(1_800)).await;
        let fetched = sum(&town, &alive, |status| status.fetched_bytes) - before;
        // A try takes two fragments; each of four holders makes one or two of each stripe in that time.
        let tries = fetched / (2 * 3_000);
        assert!(tries < 4 * 4 * lacking as u64, "{tries} tries of {lacking} stripes");
        let holders = alive.iter().filter(|number| **number != closed);
        assert!(!holders.into_iter().any(|number| town.peers[*number].repair().unwrap().settled));
        town.network.heal();
        for _ in 0..120 {
            if lack(&town) == 0 {
                return;
            }
            env.clock.sleep(Duration::from_secs(60)).await;
        }
        panic!("{} stripes lack a fragment that is taken by now", lack(&town));
    });
}

#[test]
fn who_says_that_nothing_lacks_has_compared_with_all() {
    testkit::time::run(44, |env| async move {
        let town = town(&env, 3, 9).await;
        let records = put_copies(&town, 40).await;
        let stripes = put_stripes(&town, 20, 2, 5).await;
        town.until("all is well", |town| {
            town.peers.iter().all(|peer| peer.repair().unwrap().settled)
        })
        .await;
        let (dead, alive) = (4, [0, 1, 2, 3, 5, 6, 7, 8]);
        let gone = town.community.peer(dead).to_string();
        kill(&town, dead).await;
        let says = |number: &usize| {
            let status = town.peers[*number].repair().unwrap();
            status.absent.contains(&gone) && status.settled
        };
        // Looked at all the time: the moment in which each says so is the one that counts.
        let mut seconds = 0;
        while !alive.iter().all(says) {
            env.clock.sleep(Duration::from_millis(100)).await;
            seconds += 1;
            assert!(seconds < 6_000, "nobody is ever sure");
        }
        let lacking =
            |record: &&Record| copies_of(&town, &alive, &record.id) < wanted(&town, record.kind);
        assert_eq!(records.iter().filter(lacking).count(), 0);
        let short = |one: &&Striped| fragments_of(&town, &alive, one) != (5, 5);
        assert_eq!(stripes.iter().filter(short).count(), 0);
    });
}

#[test]
fn a_copy_that_one_peer_lost_while_it_was_down_comes_back_to_it() {
    testkit::time::run(34, |env| async move {
        let mut town = town(&env, 2, 4).await;
        let records = put_copies(&town, 10).await;
        env.clock.sleep(Duration::from_secs(20)).await;
        let holder = (0..4).find(|number| town.stores[*number].holds(&records[0].id)).unwrap();
        town.lose(holder, &records[0].id).await;
        town.restart_with(holder, quick).await;
        town.until("it is back", |town| town.stores[holder].holds(&records[0].id)).await;
    });
}

#[test]
fn a_peer_gets_all_that_it_missed_of_one_object_however_many_versions_that_are() {
    testkit::time::run(49, |env| async move {
        let mut town = town(&env, 3, 3).await;
        let had = town.take_down(2).await;
        let pen = Pen::new(&town, 1, "counter");
        let writers = [0, 1].map(|at| Caller::new(town.peer_calls(2), town.at(at)));
        let open = Policy { open: true, public: true, ..pen.policy(1) };
        // Twice what a list holds.
        let mut versions = vec![pen.write(&[], "0")];
        for number in 1..2 * ITEMS_MAX {
            let base = versions.last().unwrap();
            versions.push(pen.write(&[base], &number.to_string()));
        }
        for writer in &writers {
            writer.must_put(vec![pen.record(), pen.sign(&open)]).await;
            for some in versions.chunks(100) {
                let records = some.iter().map(|made| made.record.clone());
                let attested = some.iter().map(|made| pen.attest(made, 1));
                writer.must_put(records.chain(attested).collect()).await;
            }
        }
        town.bring_back_with(2, had, quick).await;
        town.until("it has all", |town| {
            versions.iter().all(|made| town.stores[2].holds(&made.h()))
        })
        .await;
        let back = Caller::new(town.peer_calls(0), town.at(2));
        assert_eq!(back.tip_hs(&pen).await, [versions.last().unwrap().h()]);
    });
}

#[test]
fn a_newcomer_gets_the_copies_it_is_ranked_for_and_no_fragments_move() {
    testkit::time::run(35, |env| async move {
        let mut town = Town::empty(&env, 3, 8);
        for _ in 0..7 {
            town.start_next(quick).await;
        }
        town.until("all know all", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 7)
        })
        .await;
        let records = put_copies(&town, 60).await;
        put_stripes(&town, 20, 2, 5).await;
        town.start_next(quick).await;
        town.until("all know the newcomer", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 8)
        })
        .await;
        let view = town.peers[0].directory().view();
        let newcomer = town.community.peer(7);
        let ranked = |record: &&Record| {
            let copies = redundancy(record.kind, 8, SUITE, town.community.genesis.copies).copies;
            view.holders(&Place::from(record.id), copies as usize).contains(&newcomer)
        };
        let share: Vec<&Record> = records.iter().filter(ranked).collect();
        assert!(!share.is_empty());
        town.until("it has its share", |town| {
            share.iter().all(|record| town.stores[7].holds(&record.id))
        })
        .await;
        env.clock.sleep(Duration::from_secs(60)).await;
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(sum(&town, &all, |status| status.copies_fetched), share.len() as u64);
        assert_eq!(sum(&town, &all, |status| status.fragments_made), 0);
        assert_eq!(sum(&town, &all, |status| status.fragments_moved), 0);
    });
}

/// On a disk each write waits for its sync, and those that come together share one.
#[test]
fn copies_that_are_fetched_together_do_not_wait_for_each_other_s_writes() {
    testkit::time::run(54, |env| async move {
        let mut town = Town::empty(&env, 3, 4);
        for _ in 0..3 {
            town.start_next(quick).await;
        }
        let knows = |town: &Town, all: usize| {
            town.peers.iter().all(|peer| peer.directory().view().len() == all)
        };
        town.until("all know all", |town| knows(town, 3)).await;
        put_copies(&town, 80).await;
        let newcomer = town.start_next(quick).await;
        let write = Duration::from_secs(1);
        town.stores[newcomer].slow(&env, write);
        let fetched = |town: &Town| sum(town, &[newcomer], |status| status.copies_fetched);
        let mut began = None;
        let settled = |town: &Town| town.peers[newcomer].repair().unwrap().settled;
        while !(began.is_some() && settled(&town)) {
            env.clock.sleep(Duration::from_millis(100)).await;
            if fetched(&town) > 0 {
                began.get_or_insert(env.clock.elapsed());
            }
            assert!(env.clock.elapsed() < Duration::from_secs(600), "it never has its share");
        }
        let took = env.clock.elapsed() - began.unwrap();
        let share = fetched(&town);
        assert!(share >= 30, "{share} of 80");
        assert!(took < write * share as u32 / 2, "{share} copies took {took:?}");
    });
}

/// How many peers give a record to whoever asks.
async fn served(town: &Town, record: &Record) -> usize {
    let calls = town.peer_calls(0);
    let mut count = 0;
    for number in 0..town.peers.len() {
        let request = FindRequest { id: record.id, place: record.place };
        let found = calls.find(&town.at(number), request, LIMIT).await;
        count += usize::from(matches!(found, Ok(FindResponse::Found(_))));
    }
    count
}

#[test]
fn a_peer_that_leaves_hands_over_everything_and_nothing_is_degraded_meanwhile() {
    testkit::time::run(36, |env| async move {
        let town = town(&env, 4, 9).await;
        let records = put_copies(&town, 40).await;
        let stripes = put_stripes(&town, 20, 2, 5).await;
        env.clock.sleep(Duration::from_secs(10)).await;
        let all: Vec<usize> = (0..9).collect();
        assert!(town.peers[4].leave());
        assert_eq!(town.peers[4].status().read_only, Some("it leaves the network"));
        for _ in 0..600 {
            if town.peers[4].has_left() {
                break;
            }
            // By what is served, not by what is on a disk, everything is as redundant as it was.
            for record in &records {
                assert!(served(&town, record).await >= wanted(&town, record.kind).min(8));
            }
            for one in &stripes {
                for fragment in &one.fragments {
                    assert!(served(&town, fragment).await >= 1);
                }
            }
            env.clock.sleep(Duration::from_secs(1)).await;
        }
        assert!(town.peers[4].has_left(), "{:?}", town.peers[4].repair());
        kill(&town, 4).await;
        let rest: Vec<usize> = all.into_iter().filter(|number| *number != 4).collect();
        for record in &records {
            assert!(copies_of(&town, &rest, &record.id) >= wanted(&town, record.kind));
        }
        assert!(stripes.iter().all(|one| fragments_of(&town, &rest, one).0 == 5));
        assert_eq!(sum(&town, &rest, |status| status.fragments_made), 0, "moved, not made");
    });
}

/// Where nobody is heard nobody has it, however long they count as absent.
#[test]
fn a_peer_that_hears_nobody_has_handed_over_nothing() {
    testkit::time::run(47, |env| async move {
        let town = town(&env, 2, 2).await;
        put_copies(&town, 6).await;
        kill(&town, 1).await;
        assert!(town.peers[0].leave());
        env.clock.sleep(Duration::from_secs(3_600)).await;
        assert!(!town.peers[0].has_left(), "{:?}", town.peers[0].repair());
    });
}

/// One that should have more when it leaves is read-only. That a third is away for a while changes for all who should have what, and
/// gives that one no other hour.
#[test]
fn a_peer_leaves_without_one_that_takes_nothing_for_an_hour_whoever_comes_and_goes() {
    testkit::time::run(48, |env| async move {
        const PEERS: usize = 9;
        let (town, leaves) = (town(&env, 4, PEERS).await, 4);
        let records = put_copies(&town, 60).await;
        env.clock.sleep(Duration::from_secs(10)).await;
        let view = town.peers[0].directory().view();
        let is_first = |number: usize, peers: &[PeerId]| {
            peers.iter().any(|peer| *peer == town.community.peer(number))
        };
        // Of a copy that the one has the other is the next in rank.
        let is_next = |number: usize, record: &Record| {
            let wanted = wanted(&town, record.kind);
            let ranked = view.holders(&Place::from(record.id), PEERS);
            wanted < PEERS
                && is_first(leaves, &ranked[..wanted])
                && ranked[wanted] == town.community.peer(number)
        };
        let others = || (0..PEERS).filter(|number| *number != leaves);
        let takes_nothing =
            others().find(|number| records.iter().any(|one| is_next(*number, one))).unwrap();
        let away = others().rev().find(|number| *number != takes_nothing).unwrap();
        town.peers[takes_nothing].set_read_only(true).await;
        assert!(town.peers[leaves].leave());
        env.clock.sleep(Duration::from_secs(30 * 60)).await;
        assert!(!town.peers[leaves].has_left(), "some of its copies are at too few");
        let member = &town.community.members[away];
        town.network.remove(&member.address);
        env.clock.sleep(Duration::from_secs(3 * 60)).await;
        town.network.serve(&member.address, member.peer, town.peers[away].service());
        env.clock.sleep(Duration::from_secs(25 * 60)).await;
        assert!(!town.peers[leaves].has_left(), "its hour is not over");
        town.until("it has left", |town| town.peers[leaves].has_left()).await;
        kill(&town, leaves).await;
        let rest: Vec<usize> = others().collect();
        for record in &records {
            let copies = copies_of(&town, &rest, &record.id);
            assert!(copies + 1 >= wanted(&town, record.kind), "{copies} copies");
        }
    });
}

/// Who took it is lost with a second holder before the peer has left: it has the fragment still, without which nobody reads.
#[test]
fn a_peer_that_leaves_moves_again_what_was_lost_where_it_moved_it() {
    testkit::time::run(39, |env| async move {
        let town = town(&env, 9, 9).await;
        let stripe = put_stripes(&town, 1, 4, 5).await.remove(0);
        env.clock.sleep(Duration::from_secs(10)).await;
        let holders = |fragment: &Record| -> Vec<usize> {
            (0..9).filter(|peer| town.stores[*peer].holds(&fragment.id)).collect()
        };
        let [leaves, second] = [0, 1].map(|index| holders(&stripe.fragments[index])[0]);
        assert!(town.peers[leaves].leave());
        let moved = |_: &Town| holders(&stripe.fragments[0]).len() == 2;
        town.until("it is moved", moved).await;
        let taken = holders(&stripe.fragments[0]).into_iter().find(|peer| *peer != leaves).unwrap();
        assert!(!town.peers[leaves].has_left());
        for lost in [taken, second] {
            kill(&town, lost).await;
        }
        let rest: Vec<usize> =
            (0..9).filter(|peer| ![leaves, taken, second].contains(peer)).collect();
        town.until("it has left", |town| town.peers[leaves].has_left()).await;
        kill(&town, leaves).await;
        town.until("it is whole", |town| fragments_of(town, &rest, &stripe).0 == 5).await;
    });
}

/// It has nobody to move its fragment to, and dies: what it announced keeps nobody from making that again. When it is back it has nothing
/// to move any more.
#[test]
fn what_a_peer_that_leaves_had_is_made_again_once_it_is_gone_and_it_still_leaves() {
    testkit::time::run(40, |env| async move {
        let mut town = Town::empty(&env, 7, 7);
        for _ in 0..6 {
            town.start_next(quick).await;
        }
        town.until("all know all", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 6)
        })
        .await;
        let stripe = put_stripes(&town, 1, 2, 6).await.remove(0);
        env.clock.sleep(Duration::from_secs(10)).await;
        assert!(town.peers[4].leave());
        env.clock.sleep(Duration::from_secs(60)).await;
        assert!(!town.peers[4].has_left(), "nobody can take it");
        let member = town.community.members[4].clone();
        town.network.remove(&member.address);
        town.start_next(quick).await;
        let rest: Vec<usize> = (0..7).filter(|number| *number != 4).collect();
        town.until("it is made again", |town| fragments_of(town, &rest, &stripe).0 == 6).await;
        assert!(!town.peers[4].has_left());
        town.network.serve(&member.address, member.peer, town.peers[4].service());
        town.until("it has left", |town| town.peers[4].has_left()).await;
        assert_eq!(fragments_of(&town, &rest, &stripe).0, 6);
    });
}

#[test]
fn what_a_returning_peer_makes_too_much_is_dropped_and_never_the_last() {
    testkit::time::run(37, |env| async move {
        let mut town = Town::empty(&env, 3, 9);
        let with = |options: &mut LibrarianOptions| {
            quick(options);
            let keeping = options.keeping.as_mut().unwrap();
            keeping.surplus_after = Duration::from_secs(30);
        };
        for _ in 0..9 {
            town.start_next(with).await;
        }
        town.until("all know all", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 9)
        })
        .await;
        let records = put_copies(&town, 30).await;
        let stripes = put_stripes(&town, 15, 2, 5).await;
        let address = town.community.members[2].address.clone();
        town.network.remove(&address);
        let alive: Vec<usize> = (0..9).filter(|number| *number != 2).collect();
        town.until("the others mended it", |town| {
            let copied = records
                .iter()
                .all(|record| copies_of(town, &alive, &record.id) >= wanted(town, record.kind));
            copied && stripes.iter().all(|one| fragments_of(town, &alive, one).0 == 5)
        })
        .await;
        // It comes back with all that it had.
        let member = &town.community.members[2];
        town.network.serve(&member.address, member.peer, town.peers[2].service());
        let all: Vec<usize> = (0..9).collect();
        let exact = |town: &Town| {
            let copied = records.iter().all(|record| {
                record.kind == Kind::Page
                    || copies_of(town, &all, &record.id) == wanted(town, record.kind)
            });
            copied && stripes.iter().all(|one| fragments_of(town, &all, one) == (5, 5))
        };
        for _ in 0..40 {
            town.env.clock.sleep(Duration::from_secs(60)).await;
            if exact(&town) {
                break;
            }
        }
        let too_many = records.iter().filter(|record| {
            record.kind != Kind::Page
                && copies_of(&town, &all, &record.id) != wanted(&town, record.kind)
        });
        let twice = stripes.iter().filter(|one| fragments_of(&town, &all, one) != (5, 5));
        let counts = (too_many.count(), twice.count());
        assert!(exact(&town), "{counts:?}: not as many as there should be");
        assert!(sum(&town, &all, |status| status.dropped) > 0);
    });
}

#[test]
fn of_a_fragment_that_is_at_two_peers_the_one_that_has_another_drops_its_own() {
    testkit::time::run(38, |env| async move {
        let mut town = Town::empty(&env, 3, 6);
        let with = |options: &mut LibrarianOptions| {
            quick(options);
            options.keeping.as_mut().unwrap().surplus_after = Duration::from_secs(30);
        };
        for _ in 0..6 {
            town.start_next(with).await;
        }
        town.until("all know all", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 6)
        })
        .await;
        let striped = put_stripes(&town, 1, 2, 4).await.remove(0);
        // One holder gets a fragment that another holds.
        let holders = town.peers[0].directory().view().holders(&striped.header.place, 4);
        let number = |peer| (0..6).find(|number| town.community.peer(*number) == peer).unwrap();
        let twice = number(holders[1]);
        let batch = vec![striped.header.clone(), striped.fragments[3].clone()];
        let calls = town.peer_calls(number(holders[0]));
        calls.store_batch(&town.at(twice), batch, crate::town::LIMIT).await.unwrap();
        let all: Vec<usize> = (0..6).collect();
        town.until("each holds one, and nobody waits for anything", |town| {
            let once = |one: &Record| copies_of(town, &all, &one.id) == 1;
            striped.fragments.iter().all(once)
                && town.peers.iter().all(|peer| peer.repair().unwrap().settled)
        })
        .await;
        assert_eq!(fragments_of(&town, &all, &striped), (4, 4));
        assert_eq!(sum(&town, &all, |status| status.fragments_made), 0);
    });
}

/// A stripe whose parity is not the code's: what its author made up is made by nobody, each holder tries it once at most, and
/// an honest stripe beside it is mended.
#[test]
fn a_false_stripe_header_costs_each_holder_at_most_one_attempt() {
    testkit::time::run(39, |env| async move {
        const FRAGMENT: u64 = 3_100;
        let town = town(&env, 3, 8).await;
        let honest = put_stripes(&town, 1, 3, 6).await.remove(0);
        let [one, other] = [100, 101].map(|number| testkit::network::stripe(number, 3, 6, 3_000));
        let unplaced = |record: &Record| Record { place: record.id.into(), ..record.clone() };
        let pages = one.fragments[..3].iter().map(unplaced).collect();
        let parity = other.fragments[3..].iter().map(unplaced).collect();
        let lie = document::Stripe::of(SUITE, pages, parity).unwrap();
        let (header, fragments) = (lie.header.clone(), lie.fragments.clone());
        let records = StripeRecords { header, fragments, threshold: 6 };
        town.peers[0].walker().store_stripe(records).await.unwrap();
        env.clock.sleep(Duration::from_secs(30)).await;

        // Who has a parity of the lie, and something of the honest one, is gone.
        let holds = |number: &usize, one: &Record| town.stores[*number].holds(&one.id);
        let gone = (0..8).find(|number| {
            lie.fragments[3..].iter().any(|one| holds(number, one))
                && honest.fragments.iter().any(|one| holds(number, one))
        });
        let gone = gone.unwrap();
        kill(&town, gone).await;
        let alive: Vec<usize> = (0..8).filter(|number| *number != gone).collect();
        town.until("the honest one is whole", |town| fragments_of(town, &alive, &honest).0 == 6)
            .await;
        env.clock.sleep(Duration::from_secs(600)).await;
        let moved = |town: &Town, at: usize| {
            let status = town.peers[at].repair().unwrap();
            status.fetched_bytes + status.sent_bytes
        };
        let once: Vec<u64> = alive.iter().map(|at| moved(&town, *at)).collect();
        let attempts = |bytes: &u64| bytes.div_ceil(FRAGMENT);
        // One attempt fetches at most k fragments; the honest one was mended by one of them, which sent one on.
        let tried: u64 = once.iter().map(attempts).sum();
        assert!(tried > 4, "nobody tried: {once:?}");
        assert!(
            once.iter().all(|bytes| attempts(bytes) <= 3 + 4),
            "more than one attempt: {once:?}"
        );
        assert_eq!(sum(&town, &alive, |status| status.fragments_made), 1, "the honest one's");
        assert_eq!(fragments_of(&town, &alive, &lie).0, 5, "what is made up is not made");
        env.clock.sleep(Duration::from_secs(6 * 3600)).await;
        let later: Vec<u64> = alive.iter().map(|at| moved(&town, *at)).collect();
        assert_eq!(later, once, "it is tried again and again");
    });
}

#[test]
fn whoever_has_a_pass_may_ask_a_peer_to_mend_now() {
    testkit::time::run(45, |env| async move {
        let patient = |options: &mut LibrarianOptions| {
            quick(options);
            options.keeping.as_mut().unwrap().settle = Duration::from_secs(3_600);
        };
        let mut town = Town::empty(&env, 2, 4);
        for _ in 0..4 {
            town.start_next(patient).await;
        }
        town.until("all know all", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 4)
        })
        .await;
        let records = put_copies(&town, 10).await;
        env.clock.sleep(Duration::from_secs(20)).await;
        let holder = (0..4).find(|number| town.stores[*number].holds(&records[0].id)).unwrap();
        town.lose(holder, &records[0].id).await;
        town.restart_with(holder, patient).await;
        town.until("it knows", |town| town.peers[holder].repair().unwrap().copies_lacking == 1)
            .await;
        env.clock.sleep(Duration::from_secs(60)).await;
        assert!(!town.stores[holder].holds(&records[0].id), "it waits");
        let look = || KeepRequest::Look(vec![records[0].place]);
        let stranger = town.stranger().keep(&town.at(holder), look(), LIMIT).await;
        assert!(matches!(stranger, Err(CallError::Denied { .. })), "{stranger:?}");
        let client = town.client(0, Tier::Known).await;
        let asked = client.keep(&town.at(holder), look(), LIMIT).await;
        assert_eq!(asked, Ok(KeepAnswer::Look(1)));
        for _ in 0..10 {
            env.clock.sleep(Duration::from_secs(1)).await;
        }
        assert!(town.stores[holder].holds(&records[0].id), "it did not wait any longer");
        let fetch = KeepRequest::Fetch(Vec::new());
        let denied = client.keep(&town.at(holder), fetch, LIMIT).await;
        assert!(
            matches!(denied, Err(CallError::Denied { .. })),
            "clients mend nothing: {denied:?}"
        );
    });
}

#[test]
fn a_copy_that_only_peers_have_whose_duty_it_is_not_comes_to_those_whose_it_is() {
    testkit::time::run(39, |env| async move {
        let town = town(&env, 3, 9).await;
        let record = page(7, 500);
        let view = town.peers[0].directory().view();
        let holders = view.holders(&Place::from(record.id), wanted(&town, record.kind));
        let (duty, strays): (Vec<usize>, Vec<usize>) =
            (0..9).partition(|number| holders.contains(&town.community.peer(*number)));
        // As after a partition: a put that saw other peers.
        let calls = town.peer_calls(strays[1]);
        calls.store(&town.at(strays[0]), record.clone(), LIMIT).await.unwrap();
        town.until("it is at all whose duty it is", |town| {
            copies_of(town, &duty, &record.id) == duty.len()
        })
        .await;
        assert_eq!(sum(&town, &duty, |status| status.copies_fetched), duty.len() as u64);
    });
}
