//! Time and randomness.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::BoxFuture;

/// How often what looks up all the time does so: see [`beat`].
pub const BEAT: Duration = Duration::from_secs(1);

/// Time: what the calendar says, what has passed, and waiting.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970, UTC. It may jump.
    fn unix_ms(&self) -> u64;
    /// Time since some fixed moment of this process. It never goes back.
    fn elapsed(&self) -> Duration;
    /// Done when `duration` has passed.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
    /// Done at the next of the beats that are `period` apart, which takes at most `period`: for what
    /// looks up again and again and does not care when. Where the clock knows no beats, a sleep.
    fn beat(&self, period: Duration) -> BoxFuture<'static, ()> {
        self.sleep(period)
    }
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

    fn beat(&self, period: Duration) -> BoxFuture<'static, ()> {
        beat(period).boxed()
    }
}

/// [`Clock::beat`] of the system's clock. All of a process wait for the same beats, so that it wakes
/// once for all of them: with 64 peers on one machine the wakes are what rest costs.
pub async fn beat(period: Duration) {
    static BEGAN: OnceLock<tokio::time::Instant> = OnceLock::new();
    let began = *BEGAN.get_or_init(tokio::time::Instant::now);
    tokio::time::sleep(until_beat(began.elapsed(), period)).await;
}

/// From so long after the first beat to the next.
fn until_beat(since: Duration, period: Duration) -> Duration {
    let since = since.as_nanos().checked_rem(period.as_nanos()).unwrap_or(0);
    period.saturating_sub(Duration::from_nanos(u64::try_from(since).unwrap_or(0)))
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const ROUNDED: Duration = Duration::from_millis(2);

    #[tokio::test(start_paused = true)]
    async fn all_that_wait_wake_together_and_once_a_beat() {
        beat(SECOND).await;
        let started = tokio::time::Instant::now();
        tokio::time::advance(SECOND / 3).await;
        let woke_at = |after: Duration, period: Duration| async move {
            tokio::time::sleep(after).await;
            beat(period).await;
            started.elapsed()
        };
        let (first, late, slow) = tokio::join!(
            woke_at(Duration::ZERO, SECOND),
            woke_at(SECOND / 3, SECOND),
            woke_at(Duration::ZERO, SECOND * 4),
        );
        assert_eq!(first, late);
        // Timers ring on whole milliseconds.
        assert!(first <= SECOND + ROUNDED, "{first:?}");
        assert!(slow <= SECOND * 4 + ROUNDED, "{slow:?}");
        let off = (slow + ROUNDED - first).as_millis() % SECOND.as_millis();
        assert!(off <= 4, "a beat of four seconds is one of one: {off} ms off");
    }

    /// Without the process's first beat, which the other test has on its own clock.
    #[test]
    fn a_beat_of_no_time_is_over_at_once() {
        assert_eq!(until_beat(SECOND, Duration::ZERO), Duration::ZERO);
        assert_eq!(until_beat(SECOND * 7 / 2, SECOND), SECOND / 2);
        assert_eq!(until_beat(Duration::ZERO, SECOND), SECOND);
    }
}
