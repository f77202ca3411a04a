//! How evenly records fall on peers, over many places.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use crypto::{OrgId, PeerId, Place, SecretKey, Suite};
use placement::{Candidate, View};

const PLACES: u64 = 20_000;

fn candidate(peer: u8, organisation: u8, weight: u64) -> Candidate {
    let key = |n: u8| SecretKey::from_bytes(&[n; 32]).unwrap().public();
    let (peer, organisation) = (PeerId::new(key(peer)), OrgId::new(key(organisation)));
    Candidate { peer, organisation, weight }
}

/// How many of the places each peer holds, by key.
fn counts(view: &View, n: usize) -> BTreeMap<PeerId, u64> {
    let mut counts = view.candidates().iter().map(|c| (c.peer, 0)).collect::<BTreeMap<_, _>>();
    for number in 0..PLACES {
        let place = Place::new(Suite::Holdfast1.hash(&number.to_be_bytes()));
        for peer in view.holders(&place, n) {
            *counts.get_mut(&peer).unwrap() += 1;
        }
    }
    counts
}

#[test]
fn the_fullest_of_equal_peers_is_near_the_mean() {
    let view = View::new(0, (0..24).map(|i| candidate(i + 1, 100 + i % 6, 1 << 40)).collect());
    let counts = counts(&view, 5);
    let mean = (PLACES * 5) as f64 / 24.0;
    let fullest = *counts.values().max().unwrap() as f64 / mean;
    let emptiest = *counts.values().min().unwrap() as f64 / mean;
    // The bar is 1.3; chance alone leaves a few hundredths.
    assert!(fullest <= 1.06, "fullest / mean = {fullest}");
    assert!(emptiest >= 0.94, "emptiest / mean = {emptiest}");
}

#[test]
fn the_share_of_a_peer_is_its_share_of_the_capacity() {
    // One organisation, one holder: the share of weight w of W is exactly w / W.
    let weights = [1_u64, 2, 3, 5, 8, 13, 21, 34, 55, 89];
    let candidates: Vec<_> = (1..).zip(weights).map(|(i, w)| candidate(i, 100, w << 33)).collect();
    let weight: BTreeMap<_, _> = candidates.iter().map(|c| (c.peer, c.weight)).collect();
    let total: u64 = weight.values().sum();
    let counts = counts(&View::new(0, candidates), 1);
    let squares = counts.iter().map(|(peer, count)| {
        let expected = PLACES as f64 * weight[peer] as f64 / total as f64;
        (*count as f64 - expected).powi(2) / expected
    });
    // Chi-square of 9 degrees of freedom exceeds 27.9 once in a thousand.
    let chi_square: f64 = squares.sum();
    assert!(chi_square < 27.9, "chi-square = {chi_square}");
}

#[test]
fn an_organisation_of_many_peers_gets_no_more_copies_than_one_of_few() {
    let mut candidates: Vec<_> = (1..=20).map(|i| candidate(i, 100, 1 << 40)).collect();
    candidates.extend((21..=22).map(|i| candidate(i, 101, 1 << 40)));
    candidates.extend((23..=24).map(|i| candidate(i, 102, 1 << 40)));
    let view = View::new(0, candidates);
    let counts = counts(&view, 3);
    let large =
        view.candidates().iter().filter(|c| c.organisation == candidate(1, 100, 1).organisation);
    let held: u64 = large.map(|c| counts[&c.peer]).sum();
    assert_eq!(held, PLACES);
}
