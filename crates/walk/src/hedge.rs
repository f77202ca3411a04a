//! A budget for asking twice: hedged calls are at most [`HEDGE_PERCENT`] of all.
//!
//! Without a bound, hedging turns a slow network into an overloaded one: when everything is late, everything would be sent
//! twice. Each call earns a twentieth of a hedge; what was saved is kept up to a small burst, so that the first calls
//! of a program, of which nothing is known yet, can be hedged too.

use std::sync::atomic::{AtomicI64, Ordering};

/// Hedged calls in a hundred.
pub const HEDGE_PERCENT: u32 = 5;
/// Hedged calls that may come at once.
pub const HEDGE_BURST: u32 = 10;
/// What a hedged call costs, in the hundredths that each call earns [`HEDGE_PERCENT`] of.
const HEDGE_COST: i64 = 100;
/// What is kept for a burst.
const SAVED_MAX: i64 = HEDGE_BURST as i64 * HEDGE_COST;

/// Hundredths of a hedged call that may still be made; below 0 where one hedge took several calls.
#[derive(Debug)]
pub(crate) struct Budget(AtomicI64);

impl Budget {
    pub(crate) fn new() -> Self {
        Self(AtomicI64::new(SAVED_MAX))
    }

    /// A call was made.
    pub(crate) fn earn(&self) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
            Some((saved + i64::from(HEDGE_PERCENT)).min(SAVED_MAX))
        });
    }

    /// Whether one more call may be hedged; if so it is paid for.
    pub(crate) fn spend(&self) -> bool {
        self.spend_many(1)
    }

    /// Whether a hedge that takes so many calls may be made; if so all are paid for. One that costs more than was saved is
    /// made on credit, so that a stripe wider than the burst can be hedged at all, and nothing more until that is paid off.
    pub(crate) fn spend_many(&self, calls: u32) -> bool {
        let paid = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
            (saved >= HEDGE_COST).then(|| saved - i64::from(calls) * HEDGE_COST)
        });
        paid.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_twenty_is_hedged_after_the_burst() {
        let budget = Budget::new();
        let burst = (0..HEDGE_BURST * 2).filter(|_| budget.spend()).count();
        assert_eq!(burst, HEDGE_BURST as usize);
        let hedged = (0..1_000).filter(|_| {
            budget.earn();
            budget.spend()
        });
        assert_eq!(hedged.count(), 50);
    }

    #[test]
    fn a_wide_hedge_is_paid_off_before_the_next() {
        let budget = Budget::new();
        assert!(budget.spend_many(16));
        assert!(!budget.spend_many(1), "six calls are owed");
        (0..6 * 20).for_each(|_| budget.earn());
        assert!(!budget.spend());
        (0..20).for_each(|_| budget.earn());
        assert!(budget.spend() && !budget.spend());
    }

    #[test]
    fn saving_has_a_bound() {
        let budget = Budget::new();
        (0..10_000).for_each(|_| budget.earn());
        assert_eq!((0..1_000).filter(|_| budget.spend()).count(), HEDGE_BURST as usize);
    }
}
