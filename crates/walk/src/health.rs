//! How well a peer is, from the outcome of real calls and from what it announced.
//!
//! ```text
//!              good                     failed, or lagged three times
//!   Healthy <---------- Suspect <--------------------------------- Healthy
//!      ^                   | two failures, none good for 60 s
//!      |  good             v
//!      +----------------- Away <----- announced `Stopped` or `Left`
//! ```
//! A suspect or away peer is tried again after a back-off that doubles with each failure; whoever asks first after
//! that *claims* the try and moves it on, so that many walks at once do not all pay for the same dead peer. An answer that
//! refuses (denied, busy, full, malformed) is a sign of life and makes nobody unwell.

use std::time::Duration;

use crypto::PeerState;
use env::calls::CallError;

/// How long calls fail before a peer counts as away.
pub const AWAY_AFTER: Duration = Duration::from_secs(60);
/// The wait after the first failure; it doubles with each further one.
pub const BACKOFF_BASE: Duration = Duration::from_secs(1);
/// The longest wait between two tries.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// How long a peer that was full or read-only is not asked to store.
pub const NO_WRITES_FOR: Duration = Duration::from_secs(30);
/// Answers waited for in vain (another one came first) that count as a failure.
const LAGS_MAX: u32 = 3;

/// How well a peer is, as this program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// The last call to it was answered, or none was made yet.
    Healthy,
    /// The last call failed.
    Suspect,
    /// It stopped, or no call to it succeeded for [`AWAY_AFTER`].
    Away,
}

/// What is remembered of the calls to one peer. Times are the clock's `elapsed`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    last_good: Option<Duration>,
    /// The first failure after the last good call.
    failing_since: Option<Duration>,
    failures: u32,
    lags: u32,
    next_try: Duration,
    /// Somebody claimed the try before `next_try` and has not told its outcome yet.
    claimed: bool,
    no_writes_until: Duration,
}

impl Outcomes {
    /// When a call last succeeded.
    pub(crate) fn last_good(&self) -> Option<Duration> {
        self.last_good
    }

    /// A call was answered.
    pub(crate) fn good(&mut self, now: Duration) {
        let no_writes_until = self.no_writes_until;
        *self = Self { last_good: Some(now), no_writes_until, ..Self::default() };
    }

    /// A call was not.
    pub(crate) fn failed(&mut self, error: &CallError, now: Duration) {
        match error {
            CallError::Full | CallError::ReadOnly { .. } => {
                self.good(now);
                self.no_writes_until = now + NO_WRITES_FOR;
            }
            CallError::Denied { .. }
            | CallError::Invalid { .. }
            | CallError::Busy { .. }
            | CallError::NotFound
            | CallError::TooFewPeers { .. } => self.good(now),
            _ => self.fail(now),
        }
    }

    /// A call was given up because another peer answered first, long after this one should have.
    pub(crate) fn lagged(&mut self, now: Duration) {
        self.lags += 1;
        // A peer that was suspect already gets one chance at a time.
        if self.lags >= LAGS_MAX || self.failing_since.is_some() {
            self.lags = 0;
            self.fail(now);
        }
    }

    fn fail(&mut self, now: Duration) {
        // Calls that ran side by side fail together: they are one failure, else ten pages in flight at one broken
        // connection would put it off for half a minute.
        if self.failures > 0 && now < self.next_try && !self.claimed {
            return;
        }
        self.claimed = false;
        self.failing_since.get_or_insert(now);
        self.failures = self.failures.saturating_add(1);
        self.next_try = now + self.backoff();
    }

    fn backoff(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        (BACKOFF_BASE * (1 << doublings)).min(BACKOFF_MAX)
    }

    /// How well the peer is.
    pub(crate) fn health(&self, announced: PeerState, now: Duration) -> Health {
        if matches!(announced, PeerState::Stopped | PeerState::Left) {
            return Health::Away;
        }
        match self.failing_since {
            None => Health::Healthy,
            Some(_) if self.is_away(now) => Health::Away,
            Some(_) => Health::Suspect,
        }
    }

    /// Whether more than one call to it failed since the last good one.
    pub(crate) fn failed_again(&self) -> bool {
        self.failures >= 2
    }

    /// Whether calls to it failed for [`AWAY_AFTER`], whatever it announced.
    pub(crate) fn is_away(&self, now: Duration) -> bool {
        let is_long = |since: Duration| now.saturating_sub(since) >= AWAY_AFTER;
        self.failures >= 2 && self.failing_since.is_some_and(is_long)
    }

    /// Whether the peer may be asked now, without claiming it.
    pub(crate) fn ready(&self, now: Duration) -> bool {
        self.failing_since.is_none() || now >= self.next_try
    }

    /// Whether the peer may be asked now; where it is unwell, this claims the try.
    pub(crate) fn claim(&mut self, now: Duration) -> bool {
        if self.failing_since.is_none() || now < self.next_try {
            return self.failing_since.is_none();
        }
        self.next_try = now + self.backoff();
        self.claimed = true;
        true
    }

    /// Whether it said lately that it takes no writes.
    pub(crate) fn refuses_writes(&self, now: Duration) -> bool {
        now < self.no_writes_until
    }
}

#[cfg(test)]
mod tests;
