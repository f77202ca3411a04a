//! Where the fragments of stripes fall, over many stripes: how full peers get, how many fragments
//! one organisation may lose, and what a peer that is away displaces.
//!
//! `HOLD_SHOWS_FULL=1` runs 100,000 stripes; otherwise there are 3,000.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crypto::{OrgId, PeerId, Place, PublicKey, SecretKey, Suite};
use placement::{Candidate, Profile, SPARES, View};
use proptest::prelude::*;

const PEERS: usize = 64;
const ORGANISATIONS: usize = 8;

static PUBLIC: LazyLock<Vec<PublicKey>> = LazyLock::new(|| {
    (0..PEERS).map(|i| SecretKey::from_bytes(&[i as u8 + 1; 32]).unwrap().public()).collect()
});

fn stripes() -> u64 {
    let full = std::env::var_os("HOLD_SHOWS_FULL").is_some_and(|value| value == "1");
    if full { 100_000 } else { 3_000 }
}

fn place(number: u64) -> Place {
    Place::new(Suite::Holdfast1.hash(&number.to_be_bytes()))
}

/// Peers of organisations of these sizes; `weight` is that of the i-th peer of all.
fn view(sizes: &[usize], weight: impl Fn(usize) -> u64) -> View {
    let organisations = sizes.iter().enumerate().flat_map(|(org, size)| vec![org; *size]);
    let candidates = organisations.enumerate().map(|(peer, organisation)| Candidate {
        peer: PeerId::new(PUBLIC[peer]),
        organisation: OrgId::new(PUBLIC[organisation]),
        weight: weight(peer),
    });
    View::new(0, candidates.collect())
}

fn equal() -> View {
    view(&[PEERS / ORGANISATIONS; ORGANISATIONS], |_| 1 << 40)
}

fn n() -> usize {
    let Profile::Stripe { n, .. } = Profile::by_peers(PEERS) else { panic!("64 peers: stripes") };
    n as usize
}

/// How full the fullest peer is beside the mean, a peer's fill being its fragments by its weight.
fn fullest(view: &View) -> f64 {
    let mut held: BTreeMap<PeerId, u64> = BTreeMap::new();
    for number in 0..stripes() {
        for peer in view.stripe_holders(&place(number), n(), |_| false).own {
            *held.entry(peer).or_default() += 1;
        }
    }
    let all: u64 = held.values().sum();
    let weight: u64 = view.candidates().iter().map(|candidate| candidate.weight).sum();
    let mean = all as f64 / weight as f64;
    let fills = view.candidates().iter().map(|candidate| {
        held.get(&candidate.peer).copied().unwrap_or(0) as f64 / candidate.weight as f64 / mean
    });
    fills.fold(0.0, f64::max)
}

/// The greatest number of fragments that one organisation has of these holders.
fn most_of_one(view: &View, holders: &[PeerId]) -> usize {
    let mut counts: BTreeMap<OrgId, usize> = BTreeMap::new();
    for holder in holders {
        let at = view.candidates().binary_search_by_key(holder, |candidate| candidate.peer);
        *counts.entry(view.candidates()[at.unwrap()].organisation).or_default() += 1;
    }
    counts.into_values().max().unwrap_or(0)
}

#[test]
fn the_fullest_of_equal_peers_is_near_the_mean() {
    let fullest = fullest(&equal());
    assert!(fullest <= 1.3, "fullest / mean = {fullest}");
    println!("64 equal peers: fullest / mean = {fullest:.4}");
}

/// A peer holds one fragment of a stripe at most, so with 48 of 64 none can get more than 4/3 of the
/// mean, and an organisation of six or fewer always does: all of its peers hold one.
#[test]
fn the_fullest_of_unequal_peers_is_within_the_bar() {
    let organisations = fullest(&view(&[7, 7, 8, 8, 8, 8, 9, 9], |_| 1 << 40));
    assert!(organisations <= 1.3, "organisations of 7 to 9: fullest / mean = {organisations}");
    let weights = fullest(&view(&[8; 8], |peer| (4 + peer as u64 % 2) << 38));
    assert!(weights <= 1.3, "capacities 4 to 5: fullest / mean = {weights}");
    let small = fullest(&view(&[2, 4, 6, 8, 8, 10, 12, 14], |_| 1 << 40));
    assert!(small <= 4.0 / 3.0 + 1e-9, "organisations of 2 to 14: fullest / mean = {small}");
    println!(
        "unequal organisations {organisations:.4}, capacities {weights:.4}, far apart {small:.4}"
    );
}

#[test]
fn no_organisation_has_more_than_its_even_share_of_a_stripe() {
    let (view, n) = (equal(), n());
    let bound = (n + SPARES).div_ceil(ORGANISATIONS);
    for number in 0..stripes() {
        let place = place(number);
        // Up to four peers that the number picks are away, and so may be displaced...
        let draw = place.as_bytes();
        let unwell: BTreeSet<PeerId> =
            draw[..draw[31] as usize % 5].iter().map(|at| peer(*at)).collect();
        let holders = view.stripe_holders(&place, n, |peer| unwell.contains(peer));
        assert!(most_of_one(&view, &holders.own) <= bound);
        let displaced = displace(&holders.own, &holders.spares, &unwell);
        assert_eq!(displaced.len(), n, "all fragments have a peer");
        assert!(most_of_one(&view, &displaced) <= bound, "stripe {number}, peers away");
        // ... or merely refuse, and then the spares are those of everybody.
        let holders = view.stripe_holders(&place, n, |_| false);
        assert_eq!(holders.spares.len(), SPARES);
        let displaced = displace(&holders.own, &holders.spares, &unwell);
        assert!(most_of_one(&view, &displaced) <= bound, "stripe {number}, peers that refuse");
    }
}

fn peer(number: u8) -> PeerId {
    PeerId::new(PUBLIC[number as usize % PEERS])
}

/// Who has the fragments when these peers take none.
fn displace(own: &[PeerId], spares: &[PeerId], unwell: &BTreeSet<PeerId>) -> Vec<PeerId> {
    let mut spares = spares.iter().filter(|spare| !unwell.contains(spare)).copied();
    let own = own.iter();
    own.filter_map(|peer| if unwell.contains(peer) { spares.next() } else { Some(*peer) }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The reference: the rank, and the spares counted off by the words of the module.
    #[test]
    fn holders_and_spares_are_those_of_the_rank(
        size in 1..12_usize, count in 1..8_usize, n in 1..40_usize, number: u64, away: u64,
    ) {
        let view = view(&vec![size; count.min(PEERS / size)], |peer| (peer as u64 + 1) << 30);
        let away: BTreeSet<PeerId> =
            (0..PEERS).filter(|i| away >> i & 1 == 1).map(|i| peer(i as u8)).collect();
        let found = view.stripe_holders(&place(number), n, |peer| away.contains(peer));
        let rank = view.rank(&place(number));
        let first = n.min(rank.len());
        prop_assert_eq!(&found.own[..], &rank[..first]);
        let present = rank.iter().enumerate().filter(|(_, peer)| !away.contains(peer));
        let expected: Vec<_> =
            present.take(n + SPARES).filter(|(at, _)| *at >= n).map(|(_, peer)| *peer).collect();
        prop_assert_eq!(found.spares, expected);
    }

    /// What a reader relies on: of a stripe that was stored with these peers away, each fragment whose
    /// own peer was there lies with it, whoever is away now.
    #[test]
    fn a_peer_away_displaces_no_other_fragment(number: u64, one in 0..PEERS as u8) {
        let view = equal();
        let well = view.stripe_holders(&place(number), n(), |_| false);
        let ill = view.stripe_holders(&place(number), n(), |peer_| *peer_ == peer(one));
        prop_assert_eq!(&well.own, &ill.own);
        let shared = well.spares.iter().filter(|spare| ill.spares.contains(spare)).count();
        prop_assert!(shared + 1 >= SPARES);
    }
}
