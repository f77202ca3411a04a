//! A clock whose calendar is wrong. What has passed since a moment, and waiting, are right: no machine's ticks differ by what matters.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use env::Clock;
use futures::future::BoxFuture;

/// A clock beside the true one.
#[derive(Clone)]
pub struct SkewedClock {
    clock: Arc<dyn Clock>,
    ahead_ms: Arc<AtomicI64>,
}

impl SkewedClock {
    /// A clock that is right so far.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, ahead_ms: Arc::default() }
    }

    /// Sets how far its calendar is ahead (or, below 0, behind), in milliseconds. The calendar jumps.
    pub fn set(&self, ahead_ms: i64) {
        self.ahead_ms.store(ahead_ms, Ordering::SeqCst);
    }
}

impl Clock for SkewedClock {
    fn unix_ms(&self) -> u64 {
        self.clock.unix_ms().saturating_add_signed(self.ahead_ms.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }

    fn beat(&self, period: Duration) -> BoxFuture<'static, ()> {
        self.clock.beat(period)
    }
}
