//! Stopping an experiment: one flag, and waits that look at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::BenchError;

/// How often a wait looks around.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Stops an experiment from outside. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Stops whoever looks: within some milliseconds the experiment ends its processes and itself.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// # Errors
    /// [`BenchError::Interrupted`] once it is stopped.
    pub fn check(&self) -> Result<(), BenchError> {
        if self.is_set() { Err(BenchError::Interrupted) } else { Ok(()) }
    }

    /// Waits so long.
    ///
    /// # Errors
    /// As [`Stop::check`].
    pub fn sleep(&self, time: Duration) -> Result<(), BenchError> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK_EVERY * 10));
        }
    }

    /// Work to its end, or until it is stopped; then it is dropped.
    ///
    /// # Errors
    /// As [`Stop::check`], and what the work fails with.
    pub(crate) async fn unless<T>(
        &self,
        work: impl Future<Output = Result<T, BenchError>>,
    ) -> Result<T, BenchError> {
        let stopped = async {
            while !self.is_set() {
                tokio::time::sleep(LOOK_EVERY * 10).await;
            }
        };
        tokio::select! {
            done = work => done,
            () = stopped => Err(BenchError::Interrupted),
        }
    }

    /// Asks again and again until there is an answer.
    ///
    /// # Errors
    /// [`BenchError::Late`] after `limit`, and what `ask` fails with.
    pub fn until<T>(
        &self,
        what: &'static str,
        limit: Duration,
        mut ask: impl FnMut() -> Result<Option<T>, BenchError>,
    ) -> Result<T, BenchError> {
        let started = Instant::now();
        loop {
            self.check()?;
            if let Some(answer) = ask()? {
                return Ok(answer);
            }
            if started.elapsed() >= limit {
                return Err(BenchError::Late { what, limit });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_it_is_stopped_late_or_answered() {
        let stop = Stop::default();
        let limit = Duration::from_millis(20);
        let late = stop.until::<()>("nothing", limit, || Ok(None));
        assert!(matches!(late, Err(BenchError::Late { .. })));
        assert_eq!(stop.until("it", limit, || Ok(Some(7))).ok(), Some(7));
        stop.clone().stop();
        let stopped = stop.sleep(Duration::from_secs(3600));
        assert!(matches!(stopped, Err(BenchError::Interrupted)));
    }

    #[test]
    fn work_that_waits_ends_when_it_is_stopped() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let stop = Stop::default();
        let done = runtime.block_on(stop.unless(async { Ok(7) }));
        assert_eq!(done.ok(), Some(7));
        let stops = async {
            tokio::task::yield_now().await;
            stop.stop();
            std::future::pending::<Result<(), BenchError>>().await
        };
        let stopped = runtime.block_on(stop.unless(stops));
        assert!(matches!(stopped, Err(BenchError::Interrupted)));
    }
}
