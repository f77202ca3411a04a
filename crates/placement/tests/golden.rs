//! Fixed ranks: where records live must never change by accident, since peers of different releases
//! share one network. The keys are small scalars and the places repeated bytes; an independent
//! program, with 80 decimal digits in place of the fixed-point logarithm, gave the same ranks.
#![allow(clippy::unwrap_used, reason = "tests")]

use crypto::{OrgId, PeerId, Place, SecretKey};
use placement::{Candidate, View, point};

fn id(n: u8) -> PeerId {
    PeerId::new(SecretKey::from_bytes(&[n; 32]).unwrap().public())
}

/// Nine peers, 1 to 9, of three organisations in turn, the weight of peer i being i TiB.
fn view() -> View {
    let candidates = (1..=9).map(|i| Candidate {
        peer: id(i),
        organisation: OrgId::from_slice(id(100 + i % 3).as_bytes()).unwrap(),
        weight: u64::from(i) << 40,
    });
    View::new(0, candidates.collect())
}

fn rank(place: u8) -> Vec<u8> {
    let number = |peer: &PeerId| (1..=9).find(|&i| id(i) == *peer).unwrap();
    view().rank(&Place::new([place; 32])).iter().map(number).collect()
}

#[test]
fn a_point_is_the_hash_of_the_compressed_key() {
    assert_eq!(
        id(1).to_string(),
        "031b84c5567b126440995d3ed5aaba0565d71e1834604819ff9c17f5e9d5dd078f"
    );
    assert_eq!(
        hex(&point(&id(1))),
        "f1d12012406b87afb27f6dd16ac0a76fcdaa55ed820926232b26f5132dc0cb41"
    );
}

#[test]
fn ranks_are_as_they_were() {
    let expected: [(u8, [u8; 9]); 6] = [
        (0, [7, 9, 8, 1, 6, 2, 4, 3, 5]),
        (1, [8, 4, 9, 5, 7, 6, 2, 1, 3]),
        (2, [7, 6, 8, 4, 5, 9, 1, 3, 2]),
        (3, [2, 6, 4, 9, 8, 7, 3, 5, 1]),
        (127, [3, 5, 4, 8, 9, 7, 6, 2, 1]),
        (255, [7, 5, 9, 6, 1, 8, 4, 3, 2]),
    ];
    for (place, expected) in expected {
        assert_eq!(rank(place), expected, "place {place}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
