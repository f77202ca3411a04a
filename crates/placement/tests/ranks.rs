//! What must hold for every rank: order of input, organisations in turn, minimal movement.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crypto::{OrgId, PeerId, Place, PublicKey, SecretKey, Suite};
use placement::{Candidate, View};
use proptest::prelude::*;

const KEYS: usize = 64;

/// Deriving a public key takes tens of microseconds, so the tests share these.
static PUBLIC: LazyLock<Vec<PublicKey>> = LazyLock::new(|| {
    (0..KEYS).map(|i| SecretKey::from_bytes(&[i as u8 + 1; 32]).unwrap().public()).collect()
});

fn candidate(peer: usize, organisation: usize, weight: u64) -> Candidate {
    let (peer, organisation) = (PeerId::new(PUBLIC[peer]), OrgId::new(PUBLIC[organisation]));
    Candidate { peer, organisation, weight }
}

fn place(number: u64) -> Place {
    Place::new(Suite::Holdfast1.hash(&number.to_be_bytes()))
}

fn set(peers: Vec<PeerId>) -> BTreeSet<PeerId> {
    peers.into_iter().collect()
}

prop_compose! {
    /// 1 to 40 peers of up to 8 organisations, of capacities that differ up to a thousandfold.
    fn candidates()(
        rows in prop::collection::vec((0..8_usize, 1..1_000_u64), 1..40)
    ) -> Vec<Candidate> {
        rows.into_iter()
            .enumerate()
            .map(|(peer, (organisation, weight))| candidate(peer, organisation, weight << 30))
            .collect()
    }
}

proptest! {
    #[test]
    fn the_order_of_the_candidates_does_not_matter(
        (ordered, shuffled) in candidates().prop_flat_map(|all| {
            (Just(all.clone()), Just(all).prop_shuffle())
        }),
        number: u64,
    ) {
        let (a, b) = (View::new(3, ordered), View::new(3, shuffled));
        prop_assert_eq!(a.candidates(), b.candidates());
        prop_assert_eq!(a.rank(&place(number)), b.rank(&place(number)));
    }

    #[test]
    fn what_was_asked_before_changes_no_answer(
        all in candidates(),
        asked in prop::collection::vec((0..20_u64, 0..50_usize), 1..60),
    ) {
        // Some of twenty places share a row of what is remembered.
        let view = View::new(3, all.clone());
        for (number, n) in asked {
            let fresh = View::new(3, all.clone());
            prop_assert_eq!(view.holders(&place(number), n), fresh.holders(&place(number), n));
        }
    }

    #[test]
    fn a_rank_names_each_peer_once_and_holders_are_its_beginning(
        all in candidates(), number: u64, n in 0..50_usize,
    ) {
        let view = View::new(0, all);
        let place = place(number);
        let rank = view.rank(&place);
        prop_assert_eq!(rank.len(), view.len());
        prop_assert_eq!(set(rank.clone()).len(), view.len());
        let first = &rank[..n.min(rank.len())];
        let holders = view.holders(&place, n);
        prop_assert_eq!(holders.as_slice(), first);
        for (at, peer) in rank.iter().enumerate() {
            prop_assert_eq!(view.rank_of(&place, peer), Some(at));
        }
        prop_assert_eq!(view.rank_of(&place, &PeerId::new(PUBLIC[KEYS - 1])), None);
    }

    #[test]
    fn organisations_take_turns(all in candidates(), number: u64, n in 1..40_usize) {
        let view = View::new(0, all);
        let mut size = BTreeMap::<OrgId, usize>::new();
        let mut organisation = BTreeMap::new();
        for candidate in view.candidates() {
            *size.entry(candidate.organisation).or_default() += 1;
            organisation.insert(candidate.peer, candidate.organisation);
        }
        let mut held: BTreeMap<OrgId, usize> = size.keys().map(|key| (*key, 0)).collect();
        for peer in view.holders(&place(number), n) {
            *held.get_mut(&organisation[&peer]).unwrap() += 1;
        }
        // Whoever has peers left over holds at most one fewer than anybody else.
        let most = *held.values().max().unwrap();
        for (key, count) in &held {
            prop_assert!(*count + 1 >= most || *count == size[key]);
        }
    }

    #[test]
    fn a_peer_that_leaves_moves_only_what_it_held(
        all in candidates(), number: u64, n in 1..20_usize, gone: prop::sample::Index,
    ) {
        let gone = gone.index(all.len());
        let mut fewer = all.clone();
        let gone = fewer.remove(gone).peer;
        let place = place(number);
        let before = set(View::new(0, all).holders(&place, n));
        let after = set(View::new(1, fewer).holders(&place, n));
        if before.contains(&gone) {
            let kept: BTreeSet<_> = before.iter().filter(|peer| **peer != gone).copied().collect();
            prop_assert!(kept.is_subset(&after));
            prop_assert!(after.difference(&kept).count() <= 1);
        } else {
            prop_assert_eq!(before, after);
        }
    }

    #[test]
    fn a_peer_that_joins_takes_and_nobody_else_gains(
        all in candidates(), number: u64, n in 1..20_usize,
        organisation in 0..10_usize, weight in 1..1_000_u64,
    ) {
        let newcomer = candidate(KEYS - 1, organisation, weight << 30);
        let place = place(number);
        let before = set(View::new(0, all.clone()).holders(&place, n));
        let mut more = all;
        more.push(newcomer.clone());
        let after = set(View::new(1, more).holders(&place, n));
        let gained: Vec<_> = after.difference(&before).copied().collect();
        prop_assert!(gained.is_empty() || gained == [newcomer.peer]);
        prop_assert!(before.difference(&after).count() <= 1);
    }

    #[test]
    fn more_capacity_never_ranks_lower(all in candidates(), number: u64, who: prop::sample::Index) {
        let who = who.index(all.len());
        let peer = all[who].peer;
        let place = place(number);
        let before = View::new(0, all.clone()).rank_of(&place, &peer).unwrap();
        let mut grown = all;
        grown[who].weight *= 2;
        let after = View::new(0, grown).rank_of(&place, &peer).unwrap();
        prop_assert!(after <= before);
    }
}

#[test]
fn a_repeated_candidate_counts_once_and_no_capacity_as_one_byte() {
    let twice = vec![candidate(1, 5, 9), candidate(0, 5, 0), candidate(1, 5, 7)];
    let view = View::new(0, twice);
    assert_eq!(view.len(), 2);
    assert_eq!(view.organisations(), 1);
    let weight = |peer| {
        let id = PeerId::new(PUBLIC[peer]);
        view.candidates().iter().find(|candidate| candidate.peer == id).unwrap().weight
    };
    assert_eq!((weight(0), weight(1)), (1, 7));
}

#[test]
fn an_empty_view_has_no_holders() {
    let view = View::new(7, Vec::new());
    assert!(view.is_empty());
    assert_eq!((view.roster(), view.organisations()), (7, 0));
    assert!(view.holders(&place(1), 3).is_empty());
    assert!(view.rank(&place(1)).is_empty());
}
