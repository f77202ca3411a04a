//! What peers compare: fixed hashes, and sums that say whether two sets are equal.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use crypto::RecordId;
use placement::{copy_item, stripe_item};
use proptest::prelude::*;

fn id(n: u8) -> RecordId {
    RecordId::new([n; 32])
}

/// By the words of the module, with nothing shared with it.
fn by_the_words(id: &RecordId, rest: &[u8]) -> u128 {
    let input = [b"holdfast agreement v1", &id.as_bytes()[..], rest].concat();
    let hash = blake3::hash(&input);
    let bytes = hash.as_bytes().iter().take(16).rev();
    bytes.fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

/// From a program of its own in another language.
#[test]
fn hashes_are_as_they_were() {
    let golden = [
        (copy_item(&id(0)), 0xc5d7b028_a9a47d34_a1d550f8_b5a0710e),
        (copy_item(&id(0xab)), 0x258ea2c7_9394ad99_72a629ff_edce0572),
        (stripe_item(&id(0), 0, 0), 0xcfd1bd4b_f8001350_81081a87_1cbeff8b),
        (stripe_item(&id(0xab), 0, 1), 0x932871ad_8285dbd2_a34f522a_0cd8d8d6),
        (stripe_item(&id(0xab), 255, 254), 0xb9192ebb_d4412771_7e992006_5f9dddd5),
    ];
    for (found, expected) in golden {
        assert_eq!(found, expected, "{found:#034x}");
    }
}

#[test]
fn every_number_counts_and_a_stripe_is_no_copy() {
    let stripes = (0..=255).flat_map(|a| (0..=255).map(move |b| stripe_item(&id(7), a, b)));
    let all: BTreeSet<u128> = stripes.chain([copy_item(&id(7))]).collect();
    assert_eq!(all.len(), (1 << 16) + 1);
}

proptest! {
    #[test]
    fn hashes_are_those_of_the_words(bytes: [u8; 32], lower: u8, upper: u8) {
        let id = RecordId::new(bytes);
        prop_assert_eq!(copy_item(&id), by_the_words(&id, &[]));
        prop_assert_eq!(stripe_item(&id, lower, upper), by_the_words(&id, &[lower, upper]));
    }

    /// Sums in any order, with items that came and went, are equal where and only where the sets are.
    #[test]
    fn equal_sets_have_equal_sums(
        one in prop::collection::btree_set(0..40_u8, 0..30),
        two in prop::collection::btree_set(0..40_u8, 0..30),
    ) {
        let sum = |set: &BTreeSet<u8>| {
            set.iter().rev().fold(0_u128, |sum, n| sum.wrapping_add(copy_item(&id(*n))))
        };
        prop_assert_eq!(sum(&one) == sum(&two), one == two);
        let all = two.union(&one).fold(0_u128, |s, n| copy_item(&id(*n)).wrapping_add(s));
        let gone = two.difference(&one).fold(all, |s, n| s.wrapping_sub(copy_item(&id(*n))));
        prop_assert_eq!(gone, sum(&one));
    }
}
