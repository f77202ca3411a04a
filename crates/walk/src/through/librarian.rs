//! One librarian of a thin client: where it is, who it proved to be, and how calls to it went.
//!
//! A librarian that failed is not left out but asked last, for a time that doubles with each failure after it. When that is
//! over one caller tries it and the others stay where they are, so that a librarian that is still down costs one deadline and
//! not one for each record on its way.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crypto::PeerId;
use env::calls::CallError;

/// How long a librarian is asked last after its first failure.
pub const ASKED_LAST_BASE: Duration = Duration::from_secs(30);
/// The longest it is asked last.
pub const ASKED_LAST_MAX: Duration = Duration::from_secs(600);

/// A librarian of `--via`.
#[derive(Debug)]
pub(super) struct Librarian {
    pub(super) address: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Who answered there with a certificate of the network.
    peer: Option<PeerId>,
    failures: u32,
    /// By the clock's `elapsed`.
    last_until: Duration,
}

impl Librarian {
    pub(super) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), state: Mutex::default() }
    }

    pub(super) fn peer(&self) -> Option<PeerId> {
        self.lock().peer
    }

    /// It proved to be this peer.
    pub(super) fn proved(&self, peer: PeerId) {
        self.lock().peer = Some(peer);
    }

    /// Whether it is to be asked last now.
    pub(super) fn is_last(&self, now: Duration) -> bool {
        now < self.lock().last_until
    }

    /// Whether the caller may ask it first; of those who come when its time as the last is over, one may.
    pub(super) fn claim(&self, now: Duration) -> bool {
        let mut state = self.lock();
        if now < state.last_until {
            return false;
        }
        if state.failures > 0 {
            state.last_until = now + asked_last(state.failures);
        }
        true
    }

    /// It answered as it should.
    pub(super) fn good(&self) {
        let mut state = self.lock();
        (state.failures, state.last_until) = (0, Duration::ZERO);
    }

    /// A call to it, begun at `since`, failed. Calls that were under way together count once.
    pub(super) fn failed(&self, error: &CallError, since: Duration, now: Duration) {
        if matches!(error, CallError::NotFound | CallError::Invalid { .. }) {
            return;
        }
        let mut state = self.lock();
        if matches!(error, CallError::WrongPeer { .. }) {
            // Another peer may have its address now.
            state.peer = None;
        }
        let begun = state.last_until.saturating_sub(asked_last(state.failures));
        if state.failures == 0 || since >= begun {
            state.failures = state.failures.saturating_add(1);
            state.last_until = now + asked_last(state.failures);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a librarian is asked last after so many failures in a row.
fn asked_last(failures: u32) -> Duration {
    let doubled = ASKED_LAST_BASE * 2u32.saturating_pow(failures.saturating_sub(1).min(16));
    doubled.min(ASKED_LAST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN: CallError = CallError::Internal { reason: String::new() };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn calls_that_fail_together_count_once_and_waits_double() {
        let librarian = Librarian::new("a:1");
        assert!(librarian.claim(at(0)));
        for _ in 0..16 {
            librarian.failed(&DOWN, at(0), at(1));
        }
        assert!(librarian.is_last(at(30)) && !librarian.is_last(at(31)));
        assert!(librarian.claim(at(31)), "one may try it");
        assert!(!librarian.claim(at(31)), "and no other");
        librarian.failed(&DOWN, at(31), at(32));
        assert!(librarian.is_last(at(91)) && !librarian.is_last(at(92)));
        librarian.good();
        assert!(librarian.claim(at(33)) && librarian.claim(at(33)));
    }

    #[test]
    fn waits_are_bounded_and_an_absent_record_is_no_failure() {
        assert_eq!(asked_last(1), ASKED_LAST_BASE);
        assert_eq!(asked_last(u32::MAX), ASKED_LAST_MAX);
        let librarian = Librarian::new("a:1");
        librarian.failed(&CallError::NotFound, at(0), at(0));
        assert!(!librarian.is_last(at(0)));
    }
}
