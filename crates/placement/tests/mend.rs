//! What mends a stripe: the promises over whatever a stripe may look like, a slow reference for what stays, cases by hand.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crypto::{OrgId, PeerId, SecretKey};
use placement::{Candidate, Mend, Move, SPARES, StripeNow, View, plan};
use proptest::prelude::*;

const KEYS: usize = 40;

static IDS: LazyLock<Vec<PeerId>> = LazyLock::new(|| {
    (0..KEYS)
        .map(|i| PeerId::new(SecretKey::from_bytes(&[i as u8 + 1; 32]).unwrap().public()))
        .collect()
});

static ORGANISATIONS: LazyLock<Vec<OrgId>> = LazyLock::new(|| {
    (0..KEYS)
        .map(|i| OrgId::new(SecretKey::from_bytes(&[i as u8 + 101; 32]).unwrap().public()))
        .collect()
});

/// A stripe: peers 0 to `possible` may hold a fragment, in this order.
#[derive(Clone, Debug)]
struct Stripe {
    k: usize,
    n: usize,
    possible: usize,
    whole: Vec<(u8, usize)>,
    leaving: BTreeSet<usize>,
    /// Which organisation each peer is of; empty: none is asked for.
    organisations: Vec<usize>,
}

impl Stripe {
    fn view(&self) -> View {
        let candidate = |(peer, of): (&PeerId, &usize)| Candidate {
            peer: *peer,
            organisation: ORGANISATIONS[*of],
            weight: 1,
        };
        View::new(0, IDS.iter().zip(&self.organisations).map(candidate).collect())
    }

    fn plan(&self) -> Mend {
        let whole: Vec<_> = self.whole.iter().map(|(index, peer)| (*index, IDS[*peer])).collect();
        let may = |peer: &usize| !self.leaving.contains(peer);
        let possible: Vec<_> = (0..self.possible).filter(may).map(|peer| IDS[peer]).collect();
        let leaving = self.leaving.iter().map(|peer| IDS[*peer]).collect();
        let (k, n) = (self.k, self.n);
        let now = StripeNow { k, n, whole: &whole, possible: &possible, leaving: &leaving };
        if self.organisations.is_empty() { plan(&now) } else { self.view().plan(&now) }
    }

    /// How many fragments may be lost, and each organisation should have at most.
    fn most(&self) -> usize {
        self.n - self.k
    }

    /// How many fragments each organisation has.
    fn shares(&self) -> BTreeMap<usize, usize> {
        let mut shares = BTreeMap::new();
        for (peer, count) in self.counts() {
            *shares.entry(self.organisations[peer]).or_default() += count;
        }
        shares
    }

    /// The stripe when all of a plan has succeeded.
    fn after(&self, mend: &Mend) -> Self {
        let number = |peer: &PeerId| IDS.iter().position(|id| id == peer).unwrap();
        let mut whole: BTreeSet<(u8, usize)> = self.whole.iter().copied().collect();
        for (index, peer) in &mend.surplus {
            assert!(whole.remove(&(*index, number(peer))), "a copy that is not there is dropped");
        }
        for Move { index, from, to } in &mend.moves {
            assert!(whole.remove(&(*index, number(from))), "a copy that is not there moves");
            assert!(whole.insert((*index, number(to))));
        }
        for (index, peer) in &mend.make {
            assert!(whole.insert((*index, number(peer))));
        }
        Self { whole: whole.into_iter().collect(), ..self.clone() }
    }

    fn fragments(&self) -> BTreeSet<u8> {
        self.whole
            .iter()
            .map(|(index, _)| *index)
            .filter(|index| usize::from(*index) < self.n)
            .collect()
    }

    fn may(&self, peer: usize) -> bool {
        peer < self.possible && !self.leaving.contains(&peer)
    }

    /// How many peers may hold one.
    fn targets(&self) -> usize {
        (0..self.possible).filter(|peer| self.may(*peer)).count()
    }

    /// How many fragments each peer has.
    fn counts(&self) -> BTreeMap<usize, usize> {
        let mut counts = BTreeMap::new();
        for (index, peer) in &self.whole {
            *counts.entry(*peer).or_default() += usize::from(usize::from(*index) < self.n);
        }
        counts
    }
}

prop_compose! {
    fn stripe()(n in 2..16_usize, spares in 0..5_usize, few in any::<bool>())(
        n in Just(n),
        k in 1..n,
        possible in if few { 0..n + spares } else { n..n + spares + 1 },
        whole in prop::collection::vec((0..n as u8 + 2, 0..KEYS / 2), 0..2 * n),
        own in prop::collection::vec(any::<bool>(), n),
        leaving in prop::collection::btree_set(0..KEYS / 2, 0..4),
        organisations in prop_oneof![
            Just(Vec::new()),
            prop::collection::vec(0..4_usize, KEYS),
            prop::collection::vec(0..16_usize, KEYS),
        ],
    ) -> Stripe {
        // Mostly as it should be: fragment i with peer i.
        let own = own.into_iter().enumerate().filter(|(_, there)| *there);
        let mut whole: Vec<(u8, usize)> = own.map(|(i, _)| (i as u8, i)).chain(whole).collect();
        whole.sort_unstable();
        whole.dedup();
        Stripe { k, n, possible, whole, leaving, organisations }
    }
}

prop_compose! {
    /// A stripe of whose first n peers no organisation has more than may be lost, and of which anything may be anywhere.
    fn spread()(
        stripe in stripe(),
        more in 0..3_usize,
        turned in 0..KEYS,
        others in prop::collection::vec(0..KEYS, KEYS),
    ) -> Stripe {
        let count = stripe.n.div_ceil(stripe.most()) + more;
        let own = |peer: usize| (peer + turned) % count;
        let other = |peer: usize| others[peer] % count;
        let of = |peer: usize| if peer < stripe.n { own(peer) } else { other(peer) };
        let organisations = (0..KEYS).map(of).collect();
        let (possible, leaving) = (stripe.n + SPARES, BTreeSet::new());
        Stripe { possible, leaving, organisations, ..stripe }
    }
}

prop_compose! {
    /// A stripe with each fragment at a peer of its own, of organisations of which some may have too many.
    fn seated()(stripe in stripe(), few in 1..5_usize)(
        peers in Just((0..stripe.n + SPARES).collect::<Vec<usize>>()).prop_shuffle(),
        organisations in prop::collection::vec(0..few, KEYS),
        stripe in Just(stripe),
    ) -> Stripe {
        let whole = (0..stripe.n as u8).zip(peers).collect();
        let (possible, leaving) = (stripe.n + SPARES, BTreeSet::new());
        Stripe { possible, leaving, organisations, whole, ..stripe }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_mended_stripe_is_whole_and_then_there_is_nothing_to_do(stripe in stripe()) {
        let mend = stripe.plan();
        let (before, after) = (stripe.fragments(), stripe.after(&mend));
        prop_assert_eq!(mend.spare, before.len() as i32 - stripe.k as i32);
        prop_assert!(before.is_subset(&after.fragments()), "nothing is lost");
        prop_assert!(mend.make.iter().all(|(index, _)| !before.contains(index)), "nothing made twice");
        prop_assert!(mend.make.len() <= stripe.n - before.len());
        prop_assert!(mend.spare >= 0 || mend.make.is_empty());
        let again = after.plan();
        prop_assert!(again.is_empty(), "{:?} then {:?}", mend, again);
        if stripe.targets() >= stripe.n {
            if mend.spare >= 0 {
                prop_assert_eq!(after.fragments().len(), stripe.n);
            }
            let counts = after.counts();
            let whole = after.whole.iter().filter(|(index, _)| usize::from(*index) < stripe.n);
            for (index, peer) in whole {
                prop_assert!(stripe.may(*peer), "fragment {} at peer {}", index, peer);
                prop_assert_eq!(counts[peer], 1);
            }
        }
    }

    /// Whatever of a plan is done, and in whatever order, no fragment's last copy goes: those dropped leave one that nothing
    /// takes away but a move, which arrives first.
    #[test]
    fn a_last_copy_is_never_surplus(stripe in stripe()) {
        let mend = stripe.plan();
        let mut whole: BTreeSet<(u8, PeerId)> =
            stripe.whole.iter().map(|(index, peer)| (*index, IDS[*peer])).collect();
        mend.surplus.iter().for_each(|copy| { whole.remove(copy); });
        let left: BTreeSet<u8> = whole.iter().map(|(index, _)| *index).collect();
        prop_assert!(stripe.fragments().is_subset(&left));
        for one in &mend.moves {
            prop_assert!(whole.contains(&(one.index, one.from)), "moved from where it stays until then");
        }
    }

    #[test]
    fn who_gets_a_fragment_may_have_one_and_gets_one(stripe in stripe()) {
        let mend = stripe.plan();
        let made = mend.make.iter().map(|(_, to)| *to);
        let to: Vec<PeerId> = made.chain(mend.moves.iter().map(|one| one.to)).collect();
        let kept = stripe.after(&Mend { moves: Vec::new(), make: Vec::new(), ..mend.clone() });
        let moved: BTreeSet<_> = mend.moves.iter().map(|one| (one.index, one.from)).collect();
        for (at, peer) in to.iter().enumerate() {
            let number = IDS.iter().position(|id| id == peer).unwrap();
            prop_assert!(stripe.may(number));
            prop_assert!(!to[..at].contains(peer), "two for one peer");
            let stays = |(index, holder): &(u8, usize)| {
                usize::from(*index) < stripe.n
                    && *holder == number
                    && !moved.contains(&(*index, *peer))
            };
            prop_assert!(!kept.whole.iter().any(stays), "it has one already");
        }
        // Each of those who have nothing and get nothing is worse than each who had nothing and got something.
        let counts = stripe.counts();
        let has = |peer: &usize| counts.get(peer).is_some_and(|count| *count > 0);
        let nothing = |peer: &usize| stripe.may(*peer) && !has(peer);
        let got: Vec<bool> =
            (0..KEYS).filter(nothing).map(|peer| to.contains(&IDS[peer])).collect();
        let by_rank = stripe.organisations.is_empty();
        prop_assert!(!by_rank || got.is_sorted_by(|a, b| a >= b), "the best first");
    }

    #[test]
    fn the_order_of_what_is_known_does_not_matter((one, two) in stripe().prop_flat_map(|stripe| {
        let other = Just(stripe.clone());
        let whole = Just(stripe.whole.clone()).prop_shuffle();
        (other, whole.prop_map(move |whole| Stripe { whole, ..stripe.clone() }))
    })) {
        prop_assert_eq!(one.plan(), two.plan());
    }

    /// As few move as can: as many stay as the greatest matching has, found by trying all.
    #[test]
    fn as_many_stay_as_can(stripe in stripe().prop_filter("small", |stripe| stripe.n <= 7)) {
        let mend = stripe.plan();
        let may: Vec<Vec<usize>> = (0..stripe.n as u8)
            .map(|index| {
                let of = stripe.whole.iter().filter(|(i, peer)| *i == index && stripe.may(*peer));
                of.map(|(_, peer)| *peer).collect()
            })
            .collect();
        let stay = most(&may, &mut BTreeSet::new());
        let unplaced = stripe.fragments().len() - stay;
        let free = stripe.targets() - stay - mend.make.len();
        let must = unplaced.min(free);
        prop_assert!(mend.moves.len() >= must);
        let by_rank = Stripe { organisations: Vec::new(), ..stripe.clone() }.plan();
        prop_assert_eq!(by_rank.moves.len(), must);
        prop_assert_eq!(by_rank.make.len(), mend.make.len());
    }

    #[test]
    fn of_a_mended_stripe_no_organisation_has_more_than_may_be_lost(stripe in spread()) {
        let mend = stripe.plan();
        let after = stripe.after(&mend);
        prop_assert!(after.plan().is_empty());
        if mend.spare >= 0 {
            prop_assert_eq!(after.fragments().len(), stripe.n);
            let shares = after.shares();
            let most = shares.values().max().copied().unwrap_or(0);
            prop_assert!(most <= stripe.most(), "{:?} by {:?}", shares, mend);
        }
    }

    /// Only what brings an organisation from beyond n - k to n - k, and as many organisations as can be.
    #[test]
    fn for_an_organisation_moves_what_saves_the_stripe_and_nothing_else(stripe in seated()) {
        let mend = stripe.plan();
        prop_assert!(mend.make.is_empty() && mend.surplus.is_empty());
        let after = stripe.after(&mend);
        prop_assert!(after.plan().is_empty());
        let (before, now, most) = (stripe.shares(), after.shares(), stripe.most());
        let (mut moved, mut least_beyond) = (0, usize::MAX);
        for (of, had) in &before {
            let has = now.get(of).copied().unwrap_or(0);
            match *had > most {
                false => prop_assert!((*had..=most).contains(&has)),
                true if has == *had => least_beyond = least_beyond.min(had - most),
                true => {
                    prop_assert_eq!(has, most);
                    moved += had - most;
                }
            }
        }
        prop_assert!(now.iter().all(|(of, has)| before.contains_key(of) || *has <= most));
        prop_assert_eq!(mend.moves.len(), moved);
        // Those who may hold one and have none, as far as their organisations have room.
        let counts = after.counts();
        let mut free: BTreeMap<usize, usize> = BTreeMap::new();
        for peer in (0..stripe.possible).filter(|peer| !counts.contains_key(peer)) {
            *free.entry(stripe.organisations[peer]).or_default() += 1;
        }
        let room = |(of, free): (&usize, &usize)| {
            (*free).min(most.saturating_sub(now.get(of).copied().unwrap_or(0)))
        };
        prop_assert!(free.iter().map(room).sum::<usize>() < least_beyond);
    }

    #[test]
    fn where_no_organisation_can_have_too_many_the_plan_goes_by_rank_alone(stripe in stripe()) {
        let each_its_own = Stripe { organisations: (0..KEYS).collect(), ..stripe.clone() };
        let by_rank = Stripe { organisations: Vec::new(), ..stripe };
        prop_assert_eq!(each_its_own.plan(), by_rank.plan());
    }
}

/// The most fragments that can stay with one of theirs, one a peer.
fn most(may: &[Vec<usize>], taken: &mut BTreeSet<usize>) -> usize {
    let Some((first, rest)) = may.split_first() else { return 0 };
    let mut best = most(rest, taken);
    for peer in first {
        if taken.insert(*peer) {
            best = best.max(1 + most(rest, taken));
            taken.remove(peer);
        }
    }
    best
}

fn whole(n: u8) -> Vec<(u8, usize)> {
    (0..n).map(|i| (i, usize::from(i))).collect()
}

fn of(k: usize, n: usize, whole: &[(u8, usize)]) -> Stripe {
    let (leaving, organisations) = (BTreeSet::new(), Vec::new());
    Stripe { k, n, possible: n + 4, whole: whole.to_vec(), leaving, organisations }
}

fn a_move(index: u8, from: usize, to: usize) -> Move {
    Move { index, from: IDS[from], to: IDS[to] }
}

#[test]
fn a_stripe_that_is_as_it_should_be_is_left_alone() {
    let mend = of(8, 16, &whole(16)).plan();
    assert_eq!(mend, Mend { spare: 8, ..Mend::default() });
    // Also where spares hold some of it.
    let mut spread = whole(16);
    (spread[3].1, spread[7].1) = (19, 16);
    assert!(of(8, 16, &spread).plan().is_empty());
}

#[test]
fn what_is_missing_is_made_for_the_best_without_one() {
    let mut stripe = of(4, 8, &whole(8));
    stripe.whole.retain(|(index, _)| ![1, 6].contains(index));
    let mend = stripe.plan();
    assert_eq!(mend.make, [(1, IDS[1]), (6, IDS[6])]);
    assert_eq!((mend.moves.len(), mend.surplus.len(), mend.spare), (0, 0, 2));
    // Fewer peers than fragments: as many as there are.
    stripe.possible = 7;
    assert_eq!(stripe.plan().make, [(1, IDS[1]), (6, IDS[6])]);
    stripe.possible = 6;
    assert_eq!(stripe.plan().make, [(1, IDS[1])]);
}

#[test]
fn with_k_left_it_is_mended_and_with_fewer_not() {
    assert_eq!(of(4, 8, &whole(4)).plan().make.len(), 4);
    let mend = of(4, 8, &whole(3)).plan();
    assert_eq!((mend.make.len(), mend.spare), (0, -1));
    // Two copies of one fragment are one fragment.
    let mend = of(4, 8, &[(0, 0), (1, 1), (2, 2), (2, 3)]).plan();
    assert_eq!((mend.make.len(), mend.spare), (0, -1));
    assert_eq!(of(4, 8, &[]).plan().spare, -4);
}

#[test]
fn a_leaver_hands_over_before_others_and_before_it_is_missed() {
    let mut stripe = of(4, 8, &whole(8));
    stripe.leaving = [2].into();
    assert_eq!(stripe.plan().moves, [a_move(2, 2, 8)]);
    // One target: what leaves goes to it, not what lies too low.
    stripe.whole[5].1 = 30;
    stripe.possible = 8;
    assert_eq!(stripe.plan().moves, [a_move(2, 2, 5)]);
    // What is already elsewhere needs no move.
    stripe.whole.push((2, 7));
    stripe.whole.retain(|(index, _)| *index != 7);
    let mend = stripe.plan();
    assert_eq!(mend.surplus, [(2, IDS[2])]);
    assert_eq!(mend.make, [(7, IDS[5])]);
}

#[test]
fn what_lies_too_low_moves_only_where_there_is_room() {
    let mut stripe = of(4, 8, &whole(8));
    stripe.whole[5].1 = 30;
    assert_eq!(stripe.plan().moves, [a_move(5, 30, 5)]);
    stripe.possible = 5;
    assert!(stripe.plan().is_empty());
}

#[test]
fn who_has_two_keeps_the_first_and_the_second_moves() {
    let mut stripe = of(4, 8, &whole(8));
    stripe.whole[5].1 = 4;
    assert_eq!(stripe.plan().moves, [a_move(5, 4, 5)]);
    // With another copy of the first elsewhere nothing moves: each stays with one.
    stripe.whole.push((4, 9));
    let mend = stripe.plan();
    assert_eq!((mend.moves, mend.surplus), (vec![], vec![(4, IDS[4])]));
}

#[test]
fn of_two_copies_the_better_ranked_stays() {
    let mut stripe = of(4, 8, &whole(8));
    stripe.whole.push((3, 9));
    assert_eq!(stripe.plan().surplus, [(3, IDS[9])]);
    // One who may have none comes after all who may.
    stripe.whole.push((3, 35));
    assert_eq!(stripe.plan().surplus, sorted(&[(3, 9), (3, 35)]));
    // Nobody who may: one stays all the same, and moves.
    stripe.whole.retain(|(index, peer)| *index != 3 || *peer == 35);
    stripe.whole.push((3, 36));
    let mend = stripe.plan();
    assert_eq!((mend.moves.len(), mend.surplus.len()), (1, 1));
    assert_eq!(mend.moves[0].to, IDS[3]);
}

fn sorted(copies: &[(u8, usize)]) -> Vec<(u8, PeerId)> {
    let mut copies: Vec<_> = copies.iter().map(|(index, peer)| (*index, IDS[*peer])).collect();
    copies.sort_unstable();
    copies
}

#[test]
fn numbers_that_are_no_fragment_and_sizes_beyond_a_stripe_are_stood() {
    let mut stripe = of(4, 8, &whole(8));
    stripe.whole.push((200, 9));
    assert!(stripe.plan().is_empty());
    let mend = Stripe { possible: 9, ..of(255, 100_000, &[(0, 0)]) }.plan();
    assert_eq!((mend.spare, mend.make.len()), (-254, 0));
    let mend = Stripe { possible: 0, ..of(1, 300, &[(0, 0)]) }.plan();
    assert_eq!((mend.spare, mend.is_empty()), (0, true));
    assert!(of(0, 0, &[]).plan().is_empty());
}

/// Peers 0, 2, 4, ... of one organisation, 1, 3, 5, ... of the other.
fn of_two(stripe: Stripe) -> Stripe {
    Stripe { organisations: (0..KEYS).map(|peer| peer % 2).collect(), ..stripe }
}

#[test]
fn what_an_organisation_has_too_many_of_goes_from_its_worst_to_the_best_of_another() {
    let mut stripe = of_two(of(4, 8, &whole(8)));
    assert!(stripe.plan().is_empty());
    // 1 and 3 were away when it was stored: what they should have is with 8 and 10.
    (stripe.whole[1].1, stripe.whole[3].1) = (10, 8);
    assert_eq!(stripe.shares(), [(0, 6), (1, 2)].into());
    let mend = stripe.plan();
    assert_eq!(mend.moves, [a_move(1, 10, 1), a_move(3, 8, 3)]);
    assert_eq!((mend.make.len(), mend.surplus.len()), (0, 0));
    assert_eq!(stripe.after(&mend).shares(), [(0, 4), (1, 4)].into());
    // One of both can take something: that would save nothing, and nothing moves.
    stripe.possible = 11;
    stripe.leaving = [1, 9].into();
    assert!(stripe.plan().is_empty());
    // Not of one that nobody can read as it is.
    (stripe.possible, stripe.leaving) = (12, BTreeSet::new());
    stripe.whole.retain(|(index, _)| [1, 2, 4].contains(index));
    stripe.k = 4;
    assert!(stripe.plan().is_empty());
}

#[test]
fn what_is_made_or_moves_anyway_goes_where_no_organisation_has_too_many_by_it() {
    let mut stripe = of_two(of(4, 8, &whole(8)));
    // 5 is away for good: the next of its organisation, not the next in rank.
    stripe.possible = 10;
    stripe.leaving = [5].into();
    assert_eq!(stripe.plan().moves, [a_move(5, 5, 9)]);
    stripe.whole.retain(|(index, _)| *index != 5);
    assert_eq!(stripe.plan().make, [(5, IDS[9])]);
    // Where it has nobody else, the next in rank all the same.
    stripe.possible = 9;
    assert_eq!(stripe.plan().make, [(5, IDS[8])]);
}

#[test]
fn of_two_copies_the_one_stays_that_leaves_no_organisation_with_too_many() {
    let mut stripe = of_two(of(4, 8, &whole(8)));
    // Fragment 1 is with 8 and, worse in rank, with 9; peer 1 has nothing.
    stripe.whole[1].1 = 8;
    stripe.whole.push((1, 9));
    let mend = stripe.plan();
    assert_eq!((mend.moves.len(), mend.surplus), (0, vec![(1, IDS[8])]));
    // Without organisations the better one.
    stripe.organisations.clear();
    assert_eq!(stripe.plan().surplus, [(1, IDS[9])]);
}
