//! The score of a peer for a place: weighted rendezvous hashing in integers.
//!
//! Each peer draws a number u in (0, 1] from its point and the place, and its score is weight /
//! -log2(u): the greatest score wins with a probability proportional to the weight, and a peer that
//! comes or goes changes nobody else's score. Floating-point logarithms differ between machines and
//! libraries in the last bit, and a bit is enough to make two peers disagree about a holder; so the
//! logarithm is fixed-point, computed by repeated squaring, and two scores are compared by
//! multiplying crosswise in 128 bits.
//!
//! Precision: [`LOG2_FRACTION_BITS`] bits behind the point; the error is below 2^-56 and never
//! turns two draws around (the function is monotone). Two draws nearer than that tie, and the key
//! decides.
//!
//! The repeated squaring costs more than the hash, and nearly no comparison needs its last bits. So a
//! score carries a *near* logarithm from a table, whose error is bounded, and two scores whose near
//! products differ by more than the errors can make are in that order; only the others are computed
//! to the last bit. The order is the same either way, and a test compares the two.

use std::cmp::Ordering;

use crypto::{PeerId, Place, Suite};

/// Bits behind the binary point of the fixed-point logarithm. With 57, the logarithm of the
/// smallest draw, 64, is 2^63 and fits.
pub const LOG2_FRACTION_BITS: u32 = 57;

const DOMAIN: &[u8] = b"holdfast rendezvous v1";

/// A peer's point on the key ring: SHA-256 of its compressed public key.
pub fn point(peer: &PeerId) -> [u8; 32] {
    Suite::Libri1.hash(peer.as_bytes())
}

/// Bits of a mantissa that choose the row of [`NEAR`].
const NEAR_BITS: u32 = 10;

/// How far a near logarithm may be from the exact one, in units of 2^-57. A chord of log2 over 2^-10
/// lies at most 2^-20 / 8 / ln 2 = 2^-22.47 under it, which is 2^34.53 units; rounding adds a few.
const NEAR_ERROR: u64 = 1 << 35;

/// log2(1 + i / 2^10) for i from 0 to 2^10, in units of 2^-57.
static NEAR: [u64; (1 << NEAR_BITS) + 1] = near_rows();

const fn near_rows() -> [u64; (1 << NEAR_BITS) + 1] {
    let mut rows = [0; (1 << NEAR_BITS) + 1];
    let mut row = 0;
    while row < 1 << NEAR_BITS {
        rows[row] = fraction((1 << 63) + ((row as u64) << (63 - NEAR_BITS)));
        row += 1;
    }
    rows[row] = 1 << LOG2_FRACTION_BITS;
    rows
}

/// A score, as the fraction `weight / log`, where log is that of the draw. It may be 0: the greatest score there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Score {
    weight: u64,
    draw: u64,
    /// The logarithm but for [`NEAR_ERROR`].
    near: u64,
}

impl Score {
    pub(crate) fn new(point: &[u8; 32], place: &Place, weight: u64) -> Self {
        Self::of(weight, draw(point, place))
    }

    fn of(weight: u64, draw: u64) -> Self {
        Self { weight, draw, near: near_negative_log2(draw) }
    }

    /// Whether this score is less than, equal to, or greater than the other.
    ///
    /// A total order as long as weights are not 0: all scores with logarithm 0 are equal and above the
    /// rest.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let ours = u128::from(self.weight) * u128::from(other.near);
        let theirs = u128::from(other.weight) * u128::from(self.near);
        let weights = u128::from(self.weight) + u128::from(other.weight);
        if ours.abs_diff(theirs) > weights * u128::from(NEAR_ERROR) {
            return ours.cmp(&theirs);
        }
        self.compare_exactly(other)
    }

    fn compare_exactly(&self, other: &Self) -> Ordering {
        let ours = u128::from(self.weight) * u128::from(negative_log2(other.draw));
        let theirs = u128::from(other.weight) * u128::from(negative_log2(self.draw));
        ours.cmp(&theirs)
    }
}

/// BE64 of the first 8 bytes of BLAKE3(domain || point || place); u = (draw + 1) / 2^64.
fn draw(point: &[u8; 32], place: &Place) -> u64 {
    const LENGTH: usize = DOMAIN.len() + 64;
    let mut input = [0; LENGTH];
    input[..DOMAIN.len()].copy_from_slice(DOMAIN);
    input[DOMAIN.len()..DOMAIN.len() + 32].copy_from_slice(point);
    input[DOMAIN.len() + 32..].copy_from_slice(place.as_bytes());
    let hash = blake3::hash(&input);
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_be_bytes(first)
}

/// -log2((draw + 1) / 2^64) in units of 2^-57: 2^63 for draw 0, 0 for the greatest draw.
///
/// x = draw + 1 is m * 2^e with 1 <= m < 2. Squaring m doubles its logarithm: whether the square
/// reaches 2 is the next bit. Each rounding, always downwards, is worth at most 2^-63 at the bit
/// where it happens, so all of them together stay below 2^-61. Monotone: of two mantissas the
/// greater one's square, halved square and bit are at least the lesser one's at every step, so its
/// bits are not less as a number.
fn negative_log2(draw: u64) -> u64 {
    let Some(x) = draw.checked_add(1) else { return 0 };
    let exponent = x.ilog2();
    let fraction = fraction(x << (63 - exponent));
    (1 << 63) - ((u64::from(exponent) << LOG2_FRACTION_BITS) | fraction)
}

/// log2 of a mantissa in units of 2^-57. It has 63 bits behind the point: the top bit is the one before it.
const fn fraction(mut mantissa: u64) -> u64 {
    let (mut fraction, mut bits) = (0_u64, 0);
    while bits < LOG2_FRACTION_BITS {
        let square = mantissa as u128 * mantissa as u128;
        let bit = (square >> 127) as u64;
        // 126 bits behind the point: drop 63 of them, and one more where the square is 2 or over.
        mantissa = (square >> (63 + bit)) as u64;
        fraction = (fraction << 1) | bit;
        bits += 1;
    }
    fraction
}

/// [`negative_log2`] but for [`NEAR_ERROR`]: on the chord between two rows of the table.
fn near_negative_log2(draw: u64) -> u64 {
    const REST_BITS: u32 = 63 - NEAR_BITS;
    let Some(x) = draw.checked_add(1) else { return 0 };
    let exponent = x.ilog2();
    let behind = (x << (63 - exponent)) & ((1 << 63) - 1);
    let row = (behind >> REST_BITS) as usize;
    let rest = behind & ((1 << REST_BITS) - 1);
    let step = (u128::from(NEAR[row + 1] - NEAR[row]) * u128::from(rest)) >> REST_BITS;
    // The step is less than a row's difference, so it fits.
    (1 << 63) - ((u64::from(exponent) << LOG2_FRACTION_BITS) + NEAR[row] + step as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn powers_of_two_have_exact_logarithms() {
        for exponent in 0..64 {
            let expected = (64 - exponent) << LOG2_FRACTION_BITS;
            assert_eq!(negative_log2((1_u64 << exponent) - 1), expected);
        }
        assert_eq!(negative_log2(u64::MAX), 0);
    }

    #[test]
    fn the_logarithm_of_three_quarters_is_right_to_its_last_bits() {
        // 2 - log2(3) = 0.415037499278843818546261056052183492401... in units of 2^-57.
        let found = negative_log2((3 << 62) - 1);
        let expected = 59_813_207_267_103_473_u64;
        assert!(found.abs_diff(expected) <= 8, "{found}");
    }

    #[test]
    fn neighbours_at_the_ends_are_in_order() {
        let ends = [0..4_096_u64, (1 << 63) - 2_048..(1 << 63) + 2_048, u64::MAX - 4_096..u64::MAX];
        for draw in ends.into_iter().flatten() {
            assert!(negative_log2(draw) >= negative_log2(draw + 1), "{draw}");
        }
    }

    #[test]
    fn the_table_is_near_on_its_rows_between_them_and_at_the_ends() {
        let rows = (0..1_u64 << (NEAR_BITS + 1)).map(|half| (1 << 63) + (half << (62 - NEAR_BITS)));
        let draws = rows.flat_map(|x| [x - 1, x, x + 1]).flat_map(|x| [x - 1, (x >> 40) - 1]);
        for draw in draws.chain([0, 1, 2, u64::MAX - 1, u64::MAX]) {
            let error = near_negative_log2(draw).abs_diff(negative_log2(draw));
            assert!(error < NEAR_ERROR, "{draw}: {error}");
        }
    }

    proptest! {
        /// Draws that differ in one bit, and weights that do, are as near to each other as can be.
        #[test]
        fn the_order_is_that_of_the_exact_logarithms(
            draw: u64, other: u64, bit in 0_u32..64, weight in 1_u64.., grown in 0_u32..65,
        ) {
            let near = weight.saturating_add(1_u64.checked_shl(grown).unwrap_or(0));
            let (a, b) = (Score::of(weight, draw), Score::of(near, draw ^ 1 << bit));
            prop_assert_eq!(a.compare(&b), a.compare_exactly(&b));
            let c = Score::of(weight, other);
            prop_assert_eq!(a.compare(&c), a.compare_exactly(&c));
            let error = near_negative_log2(draw >> bit).abs_diff(negative_log2(draw >> bit));
            prop_assert!(error < NEAR_ERROR);
        }

        #[test]
        fn a_greater_draw_never_has_a_greater_logarithm(draw: u64, shift in 0_u32..64, step: u64) {
            let low = draw >> shift;
            let high = low.saturating_add(step >> shift);
            prop_assert!(negative_log2(low) >= negative_log2(high));
            prop_assert!(negative_log2(low) >= negative_log2(low.saturating_add(1)));
        }

        #[test]
        fn it_agrees_with_floating_point(draw: u64, shift in 0_u32..64) {
            let draw = draw >> shift;
            let exact = 64.0 - (draw as f64 + 1.0).log2();
            let found = negative_log2(draw) as f64 / (1_u64 << LOG2_FRACTION_BITS) as f64;
            prop_assert!((exact - found).abs() < 1e-12);
        }

        #[test]
        fn comparing_is_antisymmetric(
            weight in 1_u64..,
            log: u64,
            other: u64,
        ) {
            let a = Score::of(weight, log);
            let b = Score::of(other.max(1), log ^ (other >> 1));
            prop_assert_eq!(a.compare(&b), b.compare(&a).reverse());
            prop_assert_eq!(a.compare(&a), Ordering::Equal);
        }
    }
}
