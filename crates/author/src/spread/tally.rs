//! How far all records and stripes of a put have come, in the numbers that its report tells.

use crate::types::Resumed;

/// What a record or a stripe weighs at its holders together: so many bytes when `over` of them have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Of a record its own; of a stripe those of all fragments and headers.
    pub(crate) bytes: u64,
    /// 1 of a record, n of a stripe.
    pub(crate) over: u64,
}

impl Weight {
    /// Bytes at so many holders; of a stripe as if its fragments were of one length, which they nearly are.
    pub(crate) fn of(&self, holders: u32) -> u64 {
        self.bytes * u64::from(holders) / self.over.max(1)
    }
}

/// How far all records of a put have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Bytes at all holders.
    pub(crate) stored: u64,
    /// Copies of the record, or fragments of the stripe, that lacks most.
    pub(crate) acked: u32,
    /// Copies or fragments wanted of it.
    pub(crate) wanted: u32,
    /// Bytes sent, all copies and fragments counted.
    pub(crate) sent: u64,
    /// Pages that were not sent.
    pub(crate) resumed: Resumed,
}

impl Tally {
    pub(crate) const NOTHING: Self =
        Self { stored: 0, acked: 0, wanted: 0, sent: 0, resumed: Resumed { bytes: 0, pages: 0 } };

    /// With a record or a stripe of this weight.
    pub(crate) fn with(self, weight: Weight, acked: u32, wanted: u32) -> Self {
        let stored = self.stored + weight.of(acked);
        let lacks = |acked: u32, wanted: u32| wanted.saturating_sub(acked);
        // Of records that lack as much, the one with the fewest copies is the nearest to being lost.
        let worse = |a: (u32, u32), b: (u32, u32)| (lacks(a.0, a.1), b.0) > (lacks(b.0, b.1), a.0);
        if self.wanted == 0 || worse((acked, wanted), (self.acked, self.wanted)) {
            Self { stored, acked, wanted, ..self }
        } else {
            Self { stored, ..self }
        }
    }

    /// Whether every record has all its copies, and every stripe all its fragments.
    pub(crate) fn is_full(&self) -> bool {
        self.acked >= self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(bytes: u64) -> Weight {
        Weight { bytes, over: 1 }
    }

    #[test]
    fn the_tally_tells_the_record_that_lacks_most() {
        let tally = Tally::NOTHING.with(record(10), 5, 5).with(record(100), 3, 3);
        assert!(tally.is_full());
        assert_eq!((tally.stored, tally.acked, tally.wanted), (350, 3, 3));
        let tally = tally.with(record(1), 4, 5);
        assert_eq!((tally.acked, tally.wanted, tally.is_full()), (4, 5, false));
        let tally = tally.with(record(1), 2, 3).with(record(1), 5, 5).with(record(1), 8, 9);
        assert_eq!(
            (tally.acked, tally.wanted),
            (2, 3),
            "of those that lack one, the fewest copies"
        );
    }

    #[test]
    fn a_stripe_weighs_by_its_fragments() {
        let stripe = Weight { bytes: 800, over: 8 };
        let tally = Tally::NOTHING.with(stripe, 7, 8).with(record(10), 5, 5);
        assert_eq!((tally.stored, tally.acked, tally.wanted), (750, 7, 8));
        assert!(!tally.is_full());
        assert_eq!(Weight { bytes: 0, over: 0 }.of(3), 0, "no division by nothing");
    }
}
