//! The second that all of a process looks up at.
//!
//! A peer looks once a second for changed settings, for quotas to write and for memory to give back.
//! Timers of their own would wake a process at rest for each; here they wake together, and with
//! 64 peers on one machine the wakes are what rest costs.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

/// From one beat to the next.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// Waits for the next beat: at most [`EVERY`], so that who loops on it looks about once a second.
pub(crate) async fn next() {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let began = *BEGAN.get_or_init(Instant::now);
    let since_last = began.elapsed().as_nanos() % EVERY.as_nanos();
    let since_last = Duration::from_nanos(u64::try_from(since_last).unwrap_or(0));
    tokio::time::sleep(EVERY - since_last).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_that_wait_wake_together_and_once_a_beat() {
        next().await;
        let started = Instant::now();
        tokio::time::advance(EVERY / 3).await;
        let late = async {
            tokio::time::sleep(EVERY / 3).await;
            next().await;
            Instant::now()
        };
        let (first, second) = tokio::join!(
            async {
                next().await;
                Instant::now()
            },
            late
        );
        assert_eq!(first, second);
        next().await;
        assert!(started.elapsed() <= EVERY * 2 + EVERY / 10, "{:?}", started.elapsed());
    }
}
