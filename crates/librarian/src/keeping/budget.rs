//! How fast a peer mends: bytes a second, sent and fetched together.
//!
//! What was moved is paid behind it, since nobody knows before how long an answer is; so one answer of each peer that is asked at
//! once may be owed, and whoever is next waits until they are paid.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use env::Env;

/// A rate, and when all that was moved is paid.
pub(crate) struct Budget {
    bytes_s: u64,
    paid_at: Mutex<Duration>,
}

impl Budget {
    pub(crate) fn new(bytes_s: u64) -> Self {
        Self { bytes_s: bytes_s.max(1), paid_at: Mutex::new(Duration::ZERO) }
    }

    /// The rate.
    pub(crate) fn bytes_s(&self) -> u64 {
        self.bytes_s
    }

    /// Waits until nothing is owed.
    pub(crate) async fn wait(&self, env: &Env) {
        loop {
            let at = *self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
            let left = at.saturating_sub(env.clock.elapsed());
            if left.is_zero() {
                return;
            }
            env.clock.sleep(left).await;
        }
    }

    /// Pays for what was moved.
    pub(crate) fn pay(&self, env: &Env, bytes: u64) {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_s as f64);
        let mut at = self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
        *at = (*at).max(env.clock.elapsed()) + takes;
    }
}
