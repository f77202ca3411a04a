//! Time and randomness.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::BoxFuture;

/// Time: what the calendar says, what has passed, and waiting.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970, UTC. It may jump.
    fn unix_ms(&self) -> u64;
    /// Time since some fixed moment of this process. It never goes back.
    fn elapsed(&self) -> Duration;
    /// Done when `duration` has passed.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
    /// Seconds since 1970, UTC.
    fn unix_s(&self) -> u64 {
        self.unix_ms() / 1000
    }
}

/// Randomness fit for keys.
pub trait Entropy: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// The system's clock and tokio's timer.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// A clock whose `elapsed` starts now.
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn unix_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(duration).boxed()
    }
}

/// The kernel's randomness.
#[derive(Debug)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            match rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty()) {
                Ok(filled) => bytes = &mut bytes[filled..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel gave no randomness: {error}"),
            }
        }
    }
}
