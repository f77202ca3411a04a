//! As many copies are kept as are paid for, where the network keeps fewer.

use std::sync::Arc;
use std::time::Duration;

use crypto::Place;
use crypto::lease::Shown;
use document::Record;
use env::calls::CallError;
use env::calls::keep::{KeepRequest, Listed, Range};
use env::calls::leases::{LeaseAnswer, LeaseRequest};
use librarian::LibrarianOptions;
use testkit::network::{Community, LeaseLie, community};

use super::{Client, SPAN_S};
use crate::repair::{copies_of, kill, quick, sum};
use crate::town::{LIMIT, Town, page};

async fn town(env: &env::Env, peers: usize) -> Town {
    town_with(env, peers, |_, _, _| {}).await
}

async fn town_with(
    env: &env::Env,
    peers: usize,
    change: impl Fn(&Community, usize, &mut LibrarianOptions),
) -> Town {
    let mut town = Town::empty(env, 2, peers);
    let community = community(2, peers);
    for number in 0..peers {
        let with = |options: &mut LibrarianOptions| {
            quick(options);
            options.keeping.as_mut().unwrap().surplus_after = Duration::from_secs(30);
            options.leases.sweep = Duration::from_secs(60);
            change(&community, number, options);
        };
        town.start_next(with).await;
    }
    town.until("all know all", |town| {
        town.peers.iter().all(|peer| peer.directory().view().len() == peers)
    })
    .await;
    town
}

/// The numbers of the peers, the nearest to a record first.
fn ranked(town: &Town, record: &Record) -> Vec<usize> {
    let all = 0..town.peers.len();
    let view = town.peers[0].directory().view();
    let rank = view.holders(&Place::from(record.id), all.len());
    let number = |peer| all.clone().find(|number| town.community.peer(*number) == peer);
    rank.into_iter().filter_map(number).collect()
}

fn held(town: &Town, record: &Record) -> Vec<usize> {
    ranked(town, record)
        .into_iter()
        .filter(|number| town.stores[*number].holds(&record.id))
        .collect()
}

#[test]
fn what_is_paid_for_in_five_copies_has_five_again_after_a_loss_and_no_more_once_the_peer_is_back() {
    testkit::time::run(61, |env| async move {
        let town = town(&env, 8).await;
        let client = Client::new(&town, 1).await;
        let (five, three) = (page(1, 500), page(2, 500));
        for (record, copies) in [(&five, 5), (&three, 3)] {
            let shown = client.lease_for(&town, &[record], 90 * SPAN_S, copies);
            for peer in ranked(&town, record).into_iter().take(copies as usize) {
                client.store(&town, peer, record, vec![shown.clone()]).await.unwrap();
            }
        }
        env.clock.sleep(Duration::from_secs(120)).await;
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(
            sum(&town, &all, |status| status.copies_fetched),
            0,
            "each is where it should be"
        );
        let rank = ranked(&town, &five);
        let lost = rank[1];
        let address = town.community.members[lost].address.clone();
        town.network.remove(&address);
        let others: Vec<usize> = all.iter().copied().filter(|number| *number != lost).collect();
        town.until("five others have it", |town| copies_of(town, &others, &five.id) == 5).await;
        assert!(town.stores[rank[5]].holds(&five.id), "the next in rank");
        // It comes back with what it had, and what is more than is paid for goes, where the network drops pages that are strays.
        let member = &town.community.members[lost];
        town.network.serve(&member.address, member.peer, town.peers[lost].service());
        town.until("one is dropped", |town| held(town, &five) == rank[..5]).await;
        env.clock.sleep(Duration::from_secs(600)).await;
        assert_eq!(held(&town, &five), rank[..5], "and no more than one");
        assert_eq!(held(&town, &three), ranked(&town, &three)[..3]);
    });
}

#[test]
fn who_begins_to_pay_for_more_copies_gets_them_and_they_go_when_that_ends() {
    testkit::time::run(62, |env| async move {
        let town = town(&env, 7).await;
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        let rank = ranked(&town, &record);
        let lease = client.lease_for(&town, &[&record], 90 * SPAN_S, 3);
        for peer in &rank[..3] {
            client.store(&town, *peer, &record, vec![lease.clone()]).await.unwrap();
        }
        env.clock.sleep(Duration::from_secs(120)).await;
        assert_eq!(held(&town, &record), rank[..3]);
        // Somebody else pays for six, and tells one holder alone: whoever fetches it takes both leases, and passes them on.
        let other = Client::new(&town, 0).await;
        let more = other.lease_for(&town, &[&record], SPAN_S, 6);
        let told = LeaseRequest::Show(vec![more]);
        for peer in &rank[..3] {
            other.ask(&town, *peer, told.clone()).await;
        }
        town.until("six have it", |town| held(town, &record) == rank[..6]).await;
        env.clock.sleep(Duration::from_secs(SPAN_S + 1_800)).await;
        assert_eq!(held(&town, &record), rank[..3], "what nobody pays for any more is gone");
        kill(&town, rank[0]).await;
        town.until("three others have it", |town| {
            let alive: Vec<usize> = rank[1..].to_vec();
            copies_of(town, &alive, &record.id) == 3
        })
        .await;
    });
}

/// As when those whose duty it is by the network's number were away for the put.
#[test]
fn what_is_paid_for_comes_to_all_whose_duty_it_is_wherever_it_is() {
    testkit::time::run(64, |env| async move {
        let town = town(&env, 7).await;
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        let rank = ranked(&town, &record);
        let shown = client.lease_for(&town, &[&record], 90 * SPAN_S, 6);
        for peer in &rank[3..6] {
            client.store(&town, *peer, &record, vec![shown.clone()]).await.unwrap();
        }
        town.until("six have it", |town| held(town, &record) == rank[..6]).await;
    });
}

#[test]
fn what_has_no_room_where_it_should_be_is_not_fetched_again_and_again() {
    testkit::time::run(66, |env| async move {
        let (all, full) = ([0, 1, 2, 3, 4], [3, 4]);
        let town = town_with(&env, all.len(), |community, number, options| {
            let payer = community.organisation(1).key;
            let room = if full.contains(&number) { 0 } else { u64::MAX };
            options.leases.quotas.insert(payer, room);
        })
        .await;
        let at_home =
            |record: &Record| ranked(&town, record)[3..].iter().all(|peer| full.contains(peer));
        let record = (0..1000).map(|seed| page(seed, 500)).find(at_home).unwrap();
        let rank = ranked(&town, &record);
        let client = Client::new(&town, 1).await;
        let lease = client.lease_for(&town, &[&record], 90 * SPAN_S, 5);
        for peer in &rank[..3] {
            client.store(&town, *peer, &record, vec![lease.clone()]).await.unwrap();
        }
        env.clock.sleep(Duration::from_secs(1_800)).await;
        assert_eq!(held(&town, &record), rank[..3]);
        assert_eq!(sum(&town, &all, |status| status.fetched_bytes), 0, "it is known beforehand");
    });
}

/// A town in which the first organisation has room everywhere and the second at none of the peers that lie so in a record's rank; and
/// that record.
async fn town_full_for(env: &env::Env, full: &[usize]) -> (Town, Record, Vec<usize>) {
    let probe = town(env, 5).await;
    let record = page(1, 500);
    let rank = ranked(&probe, &record);
    let numbers: Vec<usize> = full.iter().map(|at| rank[*at]).collect();
    drop(probe);
    let town = town_with(env, 5, |community, number, options| {
        let payer = community.organisation(1).key;
        let room = if numbers.contains(&number) { 0 } else { u64::MAX };
        options.leases.quotas.insert(payer, room);
    })
    .await;
    assert_eq!(ranked(&town, &record), rank, "the same peers");
    (town, record, rank)
}

/// Else whoever has no room at a peer could keep copies of others' records from it, by a lease of its own for them.
#[test]
fn a_copy_comes_under_those_that_have_room_where_another_payer_has_none() {
    testkit::time::run(67, |env| async move {
        let (town, record, rank) = town_full_for(&env, &[3, 4]).await;
        let (with_room, full) = (Client::new(&town, 0).await, Client::new(&town, 1).await);
        let shown = [&with_room, &full].map(|client| client.lease(&town, &[&record], 90 * SPAN_S));
        for peer in &rank[..3] {
            with_room.store(&town, *peer, &record, vec![shown[0].clone()]).await.unwrap();
            full.ask(&town, *peer, LeaseRequest::Show(vec![shown[1].clone()])).await;
        }
        kill(&town, rank[0]).await;
        town.until("the next has it", |town| town.stores[rank[3]].holds(&record.id)).await;
        assert_eq!(with_room.look(&town, rank[3], &record).await.leases, shown[..1]);
        assert_eq!(full.look(&town, rank[2], &record).await.leases.len(), 2);
    });
}

/// What peers hand each other goes by the same rule; who stores for itself is told.
#[test]
fn a_lease_without_room_is_left_out_where_a_peer_brings_it_beside_another() {
    testkit::time::run(68, |env| async move {
        let (town, record, rank) = town_full_for(&env, &[0]).await;
        let (with_room, full) = (Client::new(&town, 0).await, Client::new(&town, 1).await);
        let shown = [&with_room, &full].map(|client| client.lease(&town, &[&record], 90 * SPAN_S));
        let refusal = full.store(&town, rank[0], &record, shown.to_vec()).await;
        assert!(
            matches!(&refusal, Err(CallError::Denied { reason }) if reason.contains("free some")),
            "{refusal:?}"
        );
        let (peer, to) = (town.peer_calls(rank[1]), town.at(rank[0]));
        let brought = async |leases: Vec<Shown>| {
            let call = peer.store_leased(&to, vec![record.clone()], leases, LIMIT);
            call.await.and_then(|mut outcomes| outcomes.remove(0))
        };
        assert!(brought(vec![shown[1].clone()]).await.is_err(), "nobody else pays");
        assert!(!town.stores[rank[0]].holds(&record.id));
        brought(vec![shown[1].clone(), shown[0].clone()]).await.unwrap();
        assert_eq!(with_room.look(&town, rank[0], &record).await.leases, shown[..1]);
        // One that is there does not make another count that came alone.
        assert!(brought(vec![shown[1].clone()]).await.is_err());
    });
}

/// A stray's copy pays for nobody's peace where those whose duty it is do not keep it for all who pay.
#[test]
fn what_is_too_much_stays_until_it_is_kept_for_all_who_pay_for_it() {
    testkit::time::run(69, |env| async move {
        let (town, record, rank) = town_full_for(&env, &[0]).await;
        let (with_room, full) = (Client::new(&town, 0).await, Client::new(&town, 1).await);
        let shown = [&with_room, &full].map(|client| client.lease(&town, &[&record], 90 * SPAN_S));
        for peer in &rank[1..4] {
            with_room.store(&town, *peer, &record, vec![shown[0].clone()]).await.unwrap();
            full.ask(&town, *peer, LeaseRequest::Show(vec![shown[1].clone()])).await;
        }
        town.until("the first has it", |town| town.stores[rank[0]].holds(&record.id)).await;
        env.clock.sleep(Duration::from_secs(1_800)).await;
        assert_eq!(held(&town, &record), rank[..4], "one payer has no room at the first");
        // That one needs it no more.
        let full = Client::new(&town, 1).await;
        for peer in &rank[1..4] {
            let word = full.forget(&town, &shown[1]);
            full.ask(&town, *peer, LeaseRequest::Forget(vec![word])).await;
        }
        town.until("the fourth is dropped", |town| held(town, &record) == rank[..3]).await;
    });
}

/// It is passed on without leases: whoever fetched it for one would drop it again, and again.
#[test]
fn of_what_is_kept_without_a_lease_too_none_says_how_many_copies_there_are() {
    testkit::time::run(65, |env| async move {
        let town = town(&env, 7).await;
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        let rank = ranked(&town, &record);
        for peer in &rank[..3] {
            client.store(&town, *peer, &record, Vec::new()).await.unwrap();
        }
        let more = client.lease_for(&town, &[&record], 90 * SPAN_S, 6);
        for peer in &rank[..3] {
            client.ask(&town, *peer, LeaseRequest::Show(vec![more.clone()])).await;
        }
        env.clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(held(&town, &record), rank[..3]);
        let all: Vec<usize> = (0..7).collect();
        assert_eq!(sum(&town, &all, |status| status.copies_fetched), 0);
    });
}

/// A holder may tell any leases; what no client signed asks for no copy.
#[test]
fn nobody_is_made_to_keep_a_copy_by_a_lease_that_its_client_did_not_sign() {
    testkit::time::run(63, |env| async move {
        let town = town(&env, 6).await;
        let client = Client::new(&town, 1).await;
        let record = page(1, 500);
        let rank = ranked(&town, &record);
        let honest = client.lease_for(&town, &[&record], 90 * SPAN_S, 3);
        for peer in &rank[..3] {
            client.store(&town, *peer, &record, vec![honest.clone()]).await.unwrap();
        }
        let more = client.lease_for(&town, &[&record], 90 * SPAN_S, 6);
        let mut forged = more.clone();
        let mut bytes = forged.lease.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        forged.lease = bytes.into();
        // The first in rank says that such a lease came, and that the fifth lacks the record.
        let fetched_with = |shown: Shown| {
            let lie: LeaseLie = Arc::new(move |_, answer| {
                let LeaseAnswer::Of(mut places) = answer?.clone() else { return None };
                places.iter_mut().for_each(|place| place.leases = vec![shown.clone()]);
                Some(Ok(LeaseAnswer::Of(places)))
            });
            town.network.lie_of_leases(&town.community.peer(rank[0]), lie);
            let range = Range::ALL.part(record.place.as_bytes()[0]);
            let copies = vec![(record.id, record.place)];
            let listed = Listed { range, copies, fragments: Vec::new(), more: true };
            let calls = town.peer_calls(rank[0]);
            let to = town.at(rank[4]);
            let town = &town;
            let (store, id) = (&town.stores[rank[4]], record.id);
            async move {
                calls.keep(&to, KeepRequest::Lists(vec![listed]), LIMIT).await.unwrap();
                town.env.clock.sleep(Duration::from_secs(60)).await;
                store.holds(&id)
            }
        };
        assert!(!fetched_with(forged).await);
        // What was refused is not asked for again at once.
        env.clock.sleep(Duration::from_secs(3600)).await;
        assert!(fetched_with(more).await, "it was asked, and a lease of the client's counts");
    });
}
