//! A rate as a bucket that runs out at a steady pace, exact to the nanosecond.
//!
//! What was taken stands in the bucket and runs out again at `rate` units a `period`; a bucket holds
//! one period's rate. Levels are whole numbers of (units x nanoseconds of the period), so nothing is
//! rounded away: a caller that asks exactly at its rate is never refused, and one that asks more is
//! never let in early. An empty bucket is all zeros, so a caller that is not known costs nothing.

use std::time::Duration;

/// One caller's, or one tier's, use of one rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Units x nanoseconds of the period that were taken and have not run out.
    level: u128,
    at: Duration,
}

impl Bucket {
    /// How long until `units` may be taken; zero where they may be now.
    ///
    /// More than a whole period's rate is let into an empty bucket and waited for afterwards, so
    /// that no batch is refused for ever. A rate of 0 lets nothing in, ever.
    pub(crate) fn wait(&self, units: u64, rate: u64, period: Duration, now: Duration) -> Duration {
        if units == 0 {
            return Duration::ZERO;
        }
        if rate == 0 {
            return Duration::MAX;
        }
        let capacity = u128::from(rate).saturating_mul(period.as_nanos());
        let cost = u128::from(units).saturating_mul(period.as_nanos()).min(capacity);
        let over = self.level_at(rate, now).saturating_add(cost).saturating_sub(capacity);
        let nanos = over.div_ceil(u128::from(rate));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Takes units, whether they fit or not.
    pub(crate) fn take(&mut self, units: u64, rate: u64, period: Duration, now: Duration) {
        let cost = u128::from(units).saturating_mul(period.as_nanos());
        self.level = self.level_at(rate, now).saturating_add(cost);
        self.at = now;
    }

    fn level_at(&self, rate: u64, now: Duration) -> u128 {
        let passed = now.saturating_sub(self.at).as_nanos();
        self.level.saturating_sub(passed.saturating_mul(u128::from(rate)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_fills_once_and_refills_to_the_nanosecond() {
        let mut bucket = Bucket::default();
        for _ in 0..3 {
            assert_eq!(bucket.wait(1, 3, SECOND, SECOND), Duration::ZERO);
            bucket.take(1, 3, SECOND, SECOND);
        }
        // A third of a second is no whole number of nanoseconds: it is rounded up, once.
        let wait = bucket.wait(1, 3, SECOND, SECOND);
        assert_eq!(wait, Duration::from_nanos(333_333_334));
        let early = SECOND + wait - Duration::from_nanos(1);
        assert!(bucket.wait(1, 3, SECOND, early) > Duration::ZERO);
        assert_eq!(bucket.wait(1, 3, SECOND, SECOND + wait), Duration::ZERO);
        assert_eq!(bucket.wait(3, 3, SECOND, 2 * SECOND), Duration::ZERO, "all of it again");
    }

    #[test]
    fn more_than_a_period_is_let_in_alone_and_waited_for() {
        let mut bucket = Bucket::default();
        assert_eq!(bucket.wait(50, 10, SECOND, SECOND), Duration::ZERO);
        bucket.take(50, 10, SECOND, SECOND);
        assert_eq!(bucket.wait(1, 10, SECOND, SECOND), Duration::from_millis(4100));
        assert_eq!(bucket.wait(50, 10, SECOND, SECOND), 5 * SECOND);
    }

    #[test]
    fn nothing_is_ever_let_in_at_zero_and_the_largest_rate_does_not_overflow() {
        let mut bucket = Bucket::default();
        assert_eq!(bucket.wait(1, 0, SECOND, SECOND), Duration::MAX);
        assert_eq!(bucket.wait(0, 0, SECOND, SECOND), Duration::ZERO);
        let day = Duration::from_secs(86_400);
        bucket.take(u64::MAX, u64::MAX, day, Duration::ZERO);
        assert!(bucket.wait(1, u64::MAX, day, Duration::ZERO) > Duration::ZERO);
        assert_eq!(bucket.wait(1, u64::MAX, day, Duration::MAX), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn whoever_waits_as_told_gets_exactly_the_rate(
            rate in 1_u64..1000,
            units in proptest::collection::vec(1_u64..50, 1..60),
        ) {
            let (mut bucket, mut now) = (Bucket::default(), SECOND);
            let mut taken = 0;
            for units in units {
                let wait = bucket.wait(units, rate, SECOND, now);
                if wait > Duration::ZERO {
                    let early = now + wait - Duration::from_nanos(1);
                    prop_assert!(bucket.wait(units, rate, SECOND, early) > Duration::ZERO);
                }
                now += wait;
                bucket.take(units, rate, SECOND, now);
                taken += units;
                // One period at once, then the rate; a larger batch alone may run ahead.
                let allowed = u128::from(rate) * (now.as_nanos() - SECOND.as_nanos());
                let ahead = u128::from(rate.max(units)) * SECOND.as_nanos();
                let most = allowed + ahead + u128::from(rate);
                prop_assert!(u128::from(taken) * SECOND.as_nanos() <= most);
            }
        }
    }
}
