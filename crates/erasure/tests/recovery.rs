//! Any k of n bring back the rest: exhaustively for small codes, by sampling for every profile there is, and the
//! coefficients that no elimination made are those that elimination makes.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "scalar/reference.rs"]
mod reference;

use erasure::{Code, Given, Wanted};
use proptest::prelude::*;
use reference::{Products, bytes, generator, invert};

/// The profiles of the design, and the ends of what is allowed.
const PROFILES: [(usize, usize); 14] = [
    (4, 8),
    (8, 16),
    (8, 24),
    (16, 48),
    (10, 16),
    (16, 64),
    (29, 80),
    (1, 3),
    (1, 14),
    (1, 256),
    (255, 256),
    (128, 256),
    (64, 64),
    (2, 256),
];

/// All n fragments of a stripe of random data.
fn stripe(code: &Code, length: usize) -> Vec<Vec<u8>> {
    let mut fragments: Vec<Vec<u8>> = (0..code.data()).map(|seed| bytes(seed, length)).collect();
    let mut parity = vec![vec![0; length]; code.parity()];
    let data: Vec<&[u8]> = fragments.iter().map(|row| &row[..]).collect();
    let mut rooms: Vec<&mut [u8]> = parity.iter_mut().map(|row| &mut row[..]).collect();
    code.encode(&data, &mut rooms).unwrap();
    fragments.extend(parity);
    fragments
}

/// Makes every fragment that is not among `kept` and compares.
fn check(code: &Code, fragments: &[Vec<u8>], kept: &[usize]) {
    let length = fragments[0].len();
    let given: Vec<Given<'_>> =
        kept.iter().map(|&index| Given { index, bytes: &fragments[index] }).collect();
    let lost: Vec<usize> = (0..code.fragments()).filter(|index| !kept.contains(index)).collect();
    let mut rooms = vec![vec![0xaa; length]; lost.len()];
    let mut wanted: Vec<Wanted<'_>> =
        rooms.iter_mut().zip(&lost).map(|(bytes, &index)| Wanted { index, bytes }).collect();
    code.reconstruct(length, &given, &mut wanted).unwrap();
    for (room, index) in rooms.iter().zip(lost) {
        assert!(*room == fragments[index], "{code:?}: fragment {index} from {kept:?}");
    }
}

fn subsets(n: usize, k: usize) -> impl Iterator<Item = Vec<usize>> {
    (0_u32..1 << n)
        .filter(move |set| set.count_ones() as usize == k)
        .map(move |set| (0..n).filter(|index| set >> index & 1 == 1).collect())
}

#[test]
fn any_k_of_a_small_code_bring_back_the_rest() {
    for n in 1..=9 {
        for k in 1..=n {
            let code = Code::new(k, n).unwrap();
            let fragments = stripe(&code, 33);
            subsets(n, k).for_each(|kept| check(&code, &fragments, &kept));
        }
    }
}

#[test]
fn any_8_of_16_bring_back_the_rest() {
    let code = Code::new(8, 16).unwrap();
    let fragments = stripe(&code, 5);
    assert_eq!(subsets(16, 8).inspect(|kept| check(&code, &fragments, kept)).count(), 12_870);
}

/// k rows of the generator have an inverse, whichever they are: 4 of 8 and smaller in full.
#[test]
fn the_written_generator_is_mds() {
    let products = Products::new();
    for n in 1..=8 {
        for k in 1..=n {
            let generator = generator(k, n);
            for kept in subsets(n, k) {
                let square: Vec<_> = kept.iter().map(|&row| generator[row].clone()).collect();
                assert!(invert(&products, &square).is_some(), "{k} of {n}: {kept:?}");
            }
        }
    }
}

#[test]
fn the_worst_losses_of_every_profile_are_made_good() {
    for (k, n) in PROFILES {
        let code = Code::new(k, n).unwrap();
        let fragments = stripe(&code, 65);
        let first: Vec<usize> = (0..k).collect();
        let last: Vec<usize> = (n - k..n).collect();
        let backwards: Vec<usize> = last.iter().rev().copied().collect();
        let spread: Vec<usize> = (0..k).map(|i| i * n / k).collect();
        for kept in [first, last, backwards, spread] {
            check(&code, &fragments, &kept);
        }
    }
}

/// A fragment that is given as well as wanted is copied, and more than k are taken and the first k used.
#[test]
fn more_than_enough_is_fine() {
    let code = Code::new(4, 8).unwrap();
    let fragments = stripe(&code, 50);
    let mut given: Vec<Given<'_>> =
        [6, 1, 4, 7].map(|index| Given { index, bytes: &fragments[index][..] }).into();
    let wrong = vec![0; 50];
    given.push(Given { index: 0, bytes: &wrong });
    let mut rooms = vec![vec![0xaa; 50]; 8];
    let mut wanted: Vec<Wanted<'_>> =
        rooms.iter_mut().enumerate().map(|(index, bytes)| Wanted { index, bytes }).collect();
    code.reconstruct(50, &given, &mut wanted).unwrap();
    assert_eq!(rooms, fragments);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_k_of_every_profile_bring_back_the_rest(
        profile in 0..PROFILES.len(),
        order in any::<u64>(),
        length in 0..300_usize,
    ) {
        let (k, n) = PROFILES[profile];
        let code = Code::new(k, n).unwrap();
        let fragments = stripe(&code, length);
        check(&code, &fragments, &shuffled(n, order)[..k]);
    }

    #[test]
    fn any_shape_brings_back_the_rest(
        shape in (1..=256_usize, 1..=256_usize),
        order in any::<u64>(),
    ) {
        let (k, n) = (shape.0.min(shape.1), shape.0.max(shape.1));
        let code = Code::new(k, n).unwrap();
        let fragments = stripe(&code, 3);
        check(&code, &fragments, &shuffled(n, order)[..k]);
    }

    /// What Lagrange's formula gives is what elimination of the written matrix gives.
    #[test]
    fn reconstruction_agrees_with_elimination(
        shape in (2..=40_usize, 1..=80_usize),
        order in any::<u64>(),
    ) {
        let (k, n) = (shape.0, shape.0 + shape.1);
        let products = Products::new();
        let generator = generator(k, n);
        let kept = &shuffled(n, order)[..k];
        let square: Vec<Vec<u8>> = kept.iter().map(|&row| generator[row].clone()).collect();
        let inverse = invert(&products, &square).unwrap();
        // One byte a fragment: given fragment i holds 1 and the others 0, so the result is a column.
        let code = Code::new(k, n).unwrap();
        for (i, column) in (0..k).map(|i| (i, inverse.iter().map(move |row| row[i]))) {
            let given: Vec<Given<'_>> = kept
                .iter()
                .enumerate()
                .map(|(j, &index)| Given { index, bytes: if i == j { &[1] } else { &[0] } })
                .collect();
            let mut rooms = vec![[0xaa]; k];
            let rows = rooms.iter_mut().enumerate();
            let mut wanted: Vec<Wanted<'_>> =
                rows.map(|(index, bytes)| Wanted { index, bytes }).collect();
            code.reconstruct(1, &given, &mut wanted).unwrap();
            prop_assert!(column.eq(rooms.iter().map(|room| room[0])));
        }
    }
}

/// 0 to n-1 in an order that follows from the seed.
fn shuffled(n: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let keys = bytes(seed as usize, 4 * n);
    order.sort_by_key(|&index| &keys[4 * index..4 * index + 4]);
    order
}
