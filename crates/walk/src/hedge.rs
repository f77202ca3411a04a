//! A budget for asking twice: hedged calls are at most [`HEDGE_PERCENT`] of all.
//!
//! Without a bound, hedging turns a slow network into an overloaded one: when everything is late, everything would be sent
//! twice. Each call earns a twentieth of a hedge; what was saved is kept up to a small burst, so that the first calls
//! of a program, of which nothing is known yet, can be hedged too.

use std::sync::atomic::{AtomicU32, Ordering};

/// Hedged calls in a hundred.
pub const HEDGE_PERCENT: u32 = 5;
/// Hedged calls that may come at once.
pub const HEDGE_BURST: u32 = 10;

/// Hundredths of a hedged call that may still be made.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU32);

impl Budget {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(HEDGE_BURST * 100))
    }

    /// A call was made.
    pub(crate) fn earn(&self) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
            Some((saved + HEDGE_PERCENT).min(HEDGE_BURST * 100))
        });
    }

    /// Whether one more call may be hedged; if so it is paid for.
    pub(crate) fn spend(&self) -> bool {
        let paid = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| saved.checked_sub(100));
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
    fn saving_has_a_bound() {
        let budget = Budget::new();
        (0..10_000).for_each(|_| budget.earn());
        assert_eq!((0..1_000).filter(|_| budget.spend()).count(), HEDGE_BURST as usize);
    }
}
