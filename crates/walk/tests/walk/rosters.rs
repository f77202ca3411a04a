//! Rosters at a client: learnt while it runs, the same whatever the order, and nothing seems lost on the way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{Change, OrgId, Organisation, Revocation, Roster, SignedRoster, Taught};
use document::Kind;
use env::Env;
use env::calls::Endpoint;
use placement::View;
use proptest::prelude::*;
use proptest::sample::Index;
use testkit::network::{Community, MemoryPeer, community, key};
use testkit::time::run;
use walk::{Directory, REFRESH_EVERY, WalkError};

use super::{LONG, PAGES, Stage, small};

fn read(bytes: &Bytes, previous: &Roster) -> Roster {
    SignedRoster::verify(bytes, previous).unwrap().roster
}

fn renamed(community: &Community, name: String) -> Change {
    Change::Name(Organisation { name, ..community.organisation(0) })
}

/// Adds an organisation with peers that run; the roster that lists it.
pub(super) fn joined(stage: &mut Stage, env: &Env, peers: usize) -> Bytes {
    let first = Roster::first(&stage.community.genesis);
    let fourth = stage.community.organise();
    let change = Change::Add(stage.community.organisation(fourth));
    let roster = stage.community.roster(&first, &change, &[0, 1]);
    for _ in 0..peers {
        let number = stage.community.admit(fourth, 1 << 40);
        let member = &stage.community.members[number];
        let genesis = stage.community.genesis.clone();
        let peer = MemoryPeer::new(genesis, member.announcement.clone(), env);
        peer.learn_roster(&roster);
        stage.network.serve(&member.address, member.peer, peer.clone());
        stage.peers.push(peer);
    }
    for peer in &stage.peers {
        peer.learn_roster(&roster);
        stage.community.known().iter().for_each(|known| peer.learn(&known.announcement));
    }
    roster
}

#[test]
fn what_was_stored_before_an_organisation_joined_or_left_is_found_under_both_rosters() {
    run(1, |env| async move {
        let mut stage = Stage::new(&env, 3, 9);
        for number in 0..40 {
            let mut stored = stage.walker.store(small(number), PAGES).await.unwrap();
            assert!(stored.rest.wait(LONG).await.is_full());
        }
        let roster = joined(&mut stage, &env, 6);
        assert_eq!(stage.directory.learn_roster(&roster).unwrap(), Taught::Newer);
        stage.directory.learn_from(&stage.community.known());
        let (view, before) = stage.directory.views();
        let before: Arc<View> = before.unwrap();
        assert_eq!((view.roster(), view.len()), (1, 15));
        assert_eq!((before.roster(), before.len()), (0, 9));
        for number in 0..40 {
            let record = small(number);
            let found = stage.walker.find(Some(Kind::Page), record.id, record.place).await.unwrap();
            assert_eq!(found.record, record);
        }
        // What nobody has is not found; where those that had it before are silent, nobody says so.
        let missing = small(77);
        let error = stage.walker.find(Some(Kind::Page), missing.id, missing.place).await;
        assert!(matches!(error, Err(WalkError::NotFound { .. })), "{error:?}");
        let silent = before.holders(&missing.place, 9);
        for peer in &silent {
            stage.network.set(peer, testkit::network::Fault::Down);
        }
        let error = stage.walker.find(Some(Kind::Page), missing.id, missing.place).await;
        assert!(matches!(error, Err(WalkError::Unavailable { .. })), "{error:?}");
    });
}

#[test]
fn a_client_that_runs_learns_of_a_roster_within_two_rounds() {
    run(2, |env| async move {
        let mut stage = Stage::new(&env, 3, 6);
        let current = stage.walker.keep_current(None);
        let first = Roster::first(&stage.community.genesis);
        let gone = stage.community.organisation(2).key;
        let roster = stage.community.roster(&first, &Change::Remove(gone), &[0, 1]);
        for number in [0, 1, 3, 4] {
            stage.peers[number].learn_roster(&roster);
        }
        let mut departures = stage.directory.departures();
        env.clock.sleep(REFRESH_EVERY * 6).await;
        assert_eq!(stage.directory.roster().number(), 1);
        assert_eq!(stage.directory.view().len(), 4, "who left is not asked any more");
        assert!(stage.directory.learn(&stage.community.members[2].announcement).is_err());
        assert!(departures.try_recv().is_ok());
        drop(current);
        let roster = read(&roster, &first);
        let next = renamed(&stage.community, "later".to_owned());
        let next = stage.community.roster(&roster, &next, &[0, 1]);
        stage.peers.iter().take(2).for_each(|peer| peer.learn_roster(&next));
        stage.peers.truncate(0);
        env.clock.sleep(REFRESH_EVERY * 6).await;
        assert_eq!(stage.directory.roster().number(), 1, "the task is over");
    });
}

#[test]
fn what_an_organisation_disowned_it_still_disowns_where_it_left_and_came_back() {
    run(4, |env| async move {
        let stage = Stage::new(&env, 3, 6);
        let (community, directory) = (&stage.community, &stage.directory);
        let organisation = community.organisation(2);
        let list = |sequence, numbers: &[usize]| {
            let keys = numbers.iter().map(|number| *community.peer(*number).key()).collect();
            let list = Revocation { organisation: organisation.key, sequence, keys };
            list.sign(&community.organisations[2], &community.genesis.network())
        };
        let (older, newer) = (list(1, &[5]), list(2, &[2]));
        assert!(directory.revoke(&older).unwrap().newer);
        assert!(directory.revoke(&newer).unwrap().newer);
        let first = Roster::first(&community.genesis);
        let away = community.roster(&first, &Change::Remove(organisation.key), &[0, 1]);
        directory.learn_roster(&away).unwrap();
        assert!(directory.revocations().is_empty(), "it is not listed");
        let away = read(&away, &first);
        let back = community.roster(&away, &Change::Add(organisation.clone()), &[0, 1]);
        directory.learn_roster(&back).unwrap();
        assert_eq!(directory.revocations(), [newer]);
        assert!(!directory.revoke(&older).unwrap().newer);
        assert!(directory.learn(&community.members[2].announcement).is_err());
        assert!(directory.learn(&community.members[5].announcement).is_ok());
    });
}

#[test]
fn a_walk_that_is_told_of_an_unknown_organisation_asks_for_its_roster() {
    run(3, |env| async move {
        let mut stage = Stage::new(&env, 3, 3);
        joined(&mut stage, &env, 6);
        // The client knows nothing of the newcomers, and only they hold it.
        let record = small(5);
        let calls = stage.network.calls(key("client", 1).public());
        for number in 3..9 {
            let member = &stage.community.members[number];
            let to = Endpoint::of(member.peer, member.address.clone());
            calls.store(&to, record.clone(), LONG).await.unwrap();
        }
        let since = env.clock.elapsed();
        let found = stage.walker.find(Some(Kind::Page), record.id, record.place).await.unwrap();
        assert_eq!(found.record, record);
        assert_eq!(stage.directory.roster().number(), 1);
        assert!(env.clock.elapsed() - since < Duration::from_secs(2));
    });
}

/// A chain of rosters, at each number perhaps with a rival: the hash of the one that counts in the end, and all.
fn history(community: &Community, rivals: &[bool]) -> ([u8; 32], Vec<Bytes>) {
    let mut newest = Roster::first(&community.genesis);
    let (mut told, mut wanted) = (Vec::new(), *newest.hash());
    for (number, rival) in rivals.iter().enumerate() {
        let signed =
            community.roster(&newest, &renamed(community, format!("name {number}")), &[0, 1]);
        let next = read(&signed, &newest);
        wanted = *next.hash();
        if *rival {
            let other = renamed(community, format!("rival {number}"));
            let other = community.roster(&newest, &other, &[1, 2]);
            // Of the last number, whichever has the smaller hash counts.
            wanted = wanted.min(*read(&other, &newest).hash());
            told.push(other);
        }
        newest = next;
        told.push(signed);
    }
    (wanted, told)
}

/// What a directory holds after all was told.
struct Ended {
    number: u64,
    hash: [u8; 32],
    count: u64,
    signed_both: Vec<OrgId>,
}

/// Tells a new directory everything in one order, again as often as there are numbers: who lacks rosters asks again.
fn told_so(community: &Community, told: &[Bytes], order: &[Index], numbers: usize) -> Ended {
    let mut told = told.to_vec();
    for (at, index) in order.iter().enumerate().take(told.len()) {
        let other = index.index(told.len());
        told.swap(at, other);
    }
    let genesis = community.genesis.clone();
    run(4, |env| async move {
        let directory = Directory::new(genesis, env, None);
        for _ in 0..=numbers {
            for roster in &told {
                directory.learn_roster(roster).unwrap();
            }
        }
        let (conflict, count) = directory.roster_conflict();
        let signed_both = conflict.map(|conflict| conflict.signed_both).unwrap_or_default();
        let roster = directory.roster();
        Ended { number: roster.number(), hash: *roster.hash(), count, signed_both }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Two programs that are told the same rosters, each in an order of its own, hold the same one.
    #[test]
    fn two_that_are_told_the_same_hold_the_same(
        rivals in prop::collection::vec(any::<bool>(), 1..5),
        orders in prop::collection::vec(any::<Index>(), 24),
    ) {
        let community = community(3, 0);
        let double = community.organisation(1).key;
        let (wanted, told) = history(&community, &rivals);
        for half in orders.chunks(12) {
            let ended = told_so(&community, &told, half, rivals.len());
            prop_assert_eq!(ended.number, rivals.len() as u64);
            prop_assert_eq!(ended.hash, wanted);
            prop_assert_eq!(ended.count > 0, rivals.contains(&true));
            let both: Vec<OrgId> = rivals.contains(&true).then_some(double).into_iter().collect();
            prop_assert_eq!(&ended.signed_both, &both, "who signed both is told");
        }
    }
}
