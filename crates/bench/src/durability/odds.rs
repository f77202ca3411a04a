//! How often data is lost, by arithmetic: what takes many peers at once, and peers that fail one by one.
//!
//! *At once*: of P peers L are gone, any L as likely. A record on n of them loses as many as a hypergeometric draw says, and
//! is gone when fewer than k are left. The rank does not matter: any n peers are as good.
//!
//! *One by one*: each of n fragments is lost at the rate of its peer's failures, and made again at the rate 1 / T, each by itself
//! (a fragment is mended T after it was lost, whatever else is lost meanwhile). Whole fragments count down from n and up
//! again, a birth and death chain, and the stripe is gone when there are k - 1. With h(i) the mean time to come from i whole
//! fragments to i - 1 for the first time,
//!
//! ```text
//!   h(n) = 1 / (n f)      h(i) = (1 + (n - i) r h(i + 1)) / (i f)      mean time to loss = h(n) + ... + h(k)
//! ```
//! All terms are positive, so nothing cancels, however rare a loss is. A copy is a stripe with k = 1.
//!
//! The chain takes the time to repair as exponential. Where it is fixed, a loss is as frequent as long as it is rare: how often k - 1
//! is reached depends on the mean time alone ([`often`]).

/// The natural logarithms of 0! to `count`!.
fn ln_factorials(count: usize) -> Vec<f64> {
    let mut sums = Vec::with_capacity(count + 1);
    let mut sum = 0.0;
    sums.push(sum);
    for number in 1..=count {
        sum += (number as f64).ln();
        sums.push(sum);
    }
    sums
}

/// The probability that a record on `n` of `peers` has fewer than `k` left where `lost` of the peers are gone.
pub(super) fn at_once(peers: usize, lost: usize, n: usize, k: usize) -> f64 {
    if n > peers || lost > peers || k > n {
        return f64::NAN;
    }
    let ln = ln_factorials(peers);
    let choose = |from: usize, count: usize| ln[from] - ln[count] - ln[from - count];
    let all = choose(peers, n);
    let least = (n + 1 - k).max((n + lost).saturating_sub(peers));
    let terms = (least..=n.min(lost)).map(|gone| {
        let kept = n - gone;
        (choose(lost, gone) + choose(peers - lost, kept) - all).exp()
    });
    // The smallest terms are the last ones.
    terms.rev().sum()
}

/// Years until a stripe of k/n is lost, on average: peers fail `failures` times a year, and what was lost is made again after
/// `repair` years on average.
pub(super) fn years_to_loss(n: usize, k: usize, failures: f64, repair: f64) -> f64 {
    let (mut above, mut years) = (0.0, 0.0);
    for whole in (k.max(1)..=n).rev() {
        let missing = (n - whole) as f64;
        above = (1.0 + missing / repair * above) / (whole as f64 * failures);
        years += above;
    }
    years
}

/// The probability that a stripe is lost within a year.
pub(super) fn a_year(n: usize, k: usize, failures: f64, repair: f64) -> f64 {
    -(-1.0 / years_to_loss(n, k, failures, repair)).exp_m1()
}

/// How often a year a stripe has fewer than k left, whatever the distribution of the time to repair is that has
/// this mean: one of n fails while exactly n - k of the others are missing.
pub(super) fn often(n: usize, k: usize, failures: f64, repair: f64) -> f64 {
    let missing = failures * repair / (1.0 + failures * repair);
    let ln = ln_factorials(n);
    let ways = ln[n - 1] - ln[n - k] - ln[k - 1];
    let others = ways + (n - k) as f64 * missing.ln() + (k - 1) as f64 * (1.0 - missing).ln();
    n as f64 * failures * (1.0 - missing) * others.exp()
}

/// Of how many of `organisations`, each with as many peers as its turn needs, all peers may be gone at once: the rank gives each its even
/// share of n.
pub(super) fn organisations_that_may_go(n: usize, k: usize, organisations: usize) -> usize {
    let (even, larger) = (n / organisations, n % organisations);
    let shares = (0..organisations).map(|number| even + usize::from(number < larger));
    let lost = shares.scan(0, |sum, share| {
        *sum += share;
        Some(*sum)
    });
    lost.take_while(|lost| *lost <= n - k).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64, part: f64) {
        assert!((found / expected - 1.0).abs() < part, "{found} and not {expected}");
    }

    /// The design's own figures, of 1,000 peers a random third.
    #[test]
    fn a_random_third_takes_what_the_design_says() {
        near(at_once(1_000, 333, 48, 16), 2.8e-7, 0.03);
        near(at_once(1_000, 333, 24, 8), 1.6e-4, 0.03);
        near(at_once(1_000, 333, 16, 8), 4.8e-2, 0.03);
        // Of 24 peers eight: no stripe of 8/16 has lost more than eight.
        assert_eq!(at_once(24, 8, 16, 8), 0.0);
    }

    #[test]
    fn losses_at_once_agree_with_counting() {
        // All three copies among the 8 lost of 24: (8 7 6) / (24 23 22).
        near(at_once(24, 8, 3, 1), 336.0 / 12_144.0, 1e-9);
        // All gone, none gone, every peer a holder.
        near(at_once(9, 9, 3, 1), 1.0, 1e-9);
        assert_eq!(at_once(9, 0, 8, 4), 0.0);
        near(at_once(8, 5, 8, 4), 1.0, 1e-9);
        assert_eq!(at_once(8, 4, 8, 4), 0.0);
        // Each subset of 4 of 7 peers counted: the two that hold 2/2.
        let lost = (0_u32..1 << 7).filter(|set| set.count_ones() == 4);
        let (all, hit) = lost.fold((0.0, 0.0), |(all, hit), set| {
            (all + 1.0, hit + f64::from(u8::from(set & 3 != 0)))
        });
        near(at_once(7, 4, 2, 2), hit / all, 1e-9);
        assert!(at_once(3, 1, 4, 2).is_nan());
    }

    #[test]
    fn the_chain_agrees_with_closed_forms() {
        let (f, t) = (0.7, 0.03);
        let r = 1.0 / t;
        // One copy; two; three (the textbook's forms for mirrors).
        near(years_to_loss(1, 1, f, t), 1.0 / f, 1e-12);
        near(years_to_loss(2, 1, f, t), (3.0 * f + r) / (2.0 * f * f), 1e-12);
        let three = (11.0 * f * f + 7.0 * f * r + 2.0 * r * r) / (6.0 * f * f * f);
        near(years_to_loss(3, 1, f, t), three, 1e-12);
        // One parity, n of n + 1 (a RAID 5 of n + 1).
        let n = 7.0;
        near(years_to_loss(8, 7, f, t), ((2.0 * n + 1.0) * f + r) / (n * (n + 1.0) * f * f), 1e-12);
        // Never mended: the sum of what the order statistics of the exponential distribution say.
        let never: f64 = (8..=16).map(|i| 1.0 / (f64::from(i) * f)).sum();
        near(years_to_loss(16, 8, f, f64::INFINITY), never, 1e-12);
    }

    #[test]
    fn while_losses_are_rare_the_distribution_of_the_time_does_not_matter() {
        for (n, k) in [(3, 1), (8, 4), (16, 8), (48, 16)] {
            near(often(n, k, 1.0, 1e-3) * years_to_loss(n, k, 1.0, 1e-3), 1.0, 0.01);
        }
        // Two copies, as every textbook has it: 2 f * f T.
        near(often(2, 1, 0.5, 1e-6), 2.0 * 0.5 * 0.5 * 1e-6, 1e-3);
        near(a_year(16, 8, 1.0, 0.1), 1.0 / years_to_loss(16, 8, 1.0, 0.1), 0.01);
        near(a_year(1, 1, 1.0, 0.1), 1.0 - (-1.0_f64).exp(), 1e-12);
    }

    #[test]
    fn organisations_may_go_as_long_as_their_shares_do() {
        // 16 over 6 organisations: 3, 3, 3, 3, 2, 2.
        assert_eq!(organisations_that_may_go(16, 8, 6), 2);
        assert_eq!(organisations_that_may_go(48, 16, 8), 5);
        assert_eq!(organisations_that_may_go(3, 1, 3), 2);
        assert_eq!(organisations_that_may_go(8, 4, 1), 0);
        assert_eq!(organisations_that_may_go(8, 4, 2), 1);
    }
}
