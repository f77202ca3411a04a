//! Latencies kept one by one, so that percentiles are those of the calls and not of a histogram's
//! buckets.

use std::time::Duration;

use serde::Serialize;

/// The latencies of some calls. 4 bytes a call: a million calls are 4 MB.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    micros: Vec<u32>,
}

/// What is told of them, in milliseconds. Null where there were no calls.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub(crate) struct Percentiles {
    pub(crate) calls: usize,
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Latencies {
    pub(crate) fn add(&mut self, took: Duration) {
        self.micros.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    /// How many calls.
    pub(crate) fn calls(&self) -> usize {
        self.micros.len()
    }

    /// The smallest latency that at least this part of the calls did not pass (nearest rank).
    fn rank(sorted: &[u32], part: f64) -> f64 {
        let rank = (part * sorted.len() as f64).ceil() as usize;
        let at = rank.clamp(1, sorted.len().max(1)) - 1;
        sorted.get(at).map_or(f64::NAN, |micros| f64::from(*micros) / 1e3)
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        let rank = |part| Self::rank(&sorted, part);
        Percentiles {
            calls: sorted.len(),
            p50_ms: rank(0.5),
            p95_ms: rank(0.95),
            p99_ms: rank(0.99),
            max_ms: rank(1.0),
        }
    }
}

/// The one in the middle by this. Of an even number it is the one before the middle: of rates of ours the slower, of the times of what they
/// are held against the faster.
///
/// # Panics
/// Where there are none.
pub(crate) fn middle<T>(all: &[T], key: impl Fn(&T) -> f64) -> &T {
    let mut sorted: Vec<&T> = all.iter().collect();
    sorted.sort_by(|a, b| key(a).total_cmp(&key(b)));
    sorted[(sorted.len() - 1) / 2]
}

/// The largest; not a number where one was not taken, or none was. (`f64::max` drops what is not a number.)
pub(crate) fn largest(all: impl IntoIterator<Item = f64>) -> f64 {
    let larger = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
    all.into_iter().reduce(larger).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_calls() {
        let mut latencies = Latencies::default();
        assert!(latencies.percentiles().p50_ms.is_nan());
        for ms in (1..=100).rev() {
            latencies.add(Duration::from_millis(ms));
        }
        let told = latencies.percentiles();
        assert_eq!((told.calls, told.p50_ms, told.p95_ms), (100, 50.0, 95.0));
        assert_eq!((told.p99_ms, told.max_ms), (99.0, 100.0));
        let mut one = Latencies::default();
        one.add(Duration::from_micros(1500));
        let told = one.percentiles();
        assert_eq!((told.p50_ms, told.p99_ms), (1.5, 1.5));
    }

    #[test]
    fn what_was_not_taken_is_not_left_out() {
        assert_eq!(largest([1.0, 3.0, 2.0]), 3.0);
        for missing in [&[f64::NAN, 3.0][..], &[3.0, f64::NAN], &[1.0, f64::NAN, 3.0], &[]] {
            assert!(largest(missing.iter().copied()).is_nan(), "{missing:?}");
        }
    }

    #[test]
    fn of_an_even_number_the_lower_is_in_the_middle() {
        let of = |all: &[f64]| *middle(all, |value| *value);
        assert_eq!((of(&[3.0, 1.0, 2.0]), of(&[7.0])), (2.0, 7.0));
        assert_eq!((of(&[9.0, 4.0]), of(&[4.0, 1.0, 3.0, 2.0])), (4.0, 2.0));
        assert_eq!(*middle(&[9.0, 4.0], |value: &f64| -value), 9.0);
    }
}
