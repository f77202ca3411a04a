//! Time, randomness, tasks, disk and calls to peers as traits, with the real ones.
//!
//! Everything above takes these from outside, so that the production code of a peer and of an
//! author runs unchanged on a seeded simulated network under virtual time.

pub mod calls;
mod clock;
mod crowd;
pub mod disk;
mod pool;
mod tasks;

pub use clock::{BEAT, Clock, Entropy, SystemClock, SystemEntropy, beat};
pub use tasks::{Task, Tasks, TokioTasks};

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;

/// The surroundings of one program: cheap to clone, shared by all its parts.
#[derive(Clone)]
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Where work runs.
    pub tasks: Arc<dyn Tasks>,
}

/// A deadline passed before the work was done.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no answer within {0:?}")]
pub struct Elapsed(pub Duration);

impl Env {
    /// The real surroundings: the system's clock and randomness, the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn real() -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            entropy: Arc::new(SystemEntropy),
            tasks: Arc::new(TokioTasks::current()),
        }
    }

    /// Runs `work` until it is done or `limit` has passed; then it is dropped.
    ///
    /// # Errors
    /// [`Elapsed`].
    pub async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = T> + Send,
    ) -> Result<T, Elapsed> {
        let sleep = self.clock.sleep(limit);
        futures::pin_mut!(work);
        match futures::future::select(work, sleep).await {
            futures::future::Either::Left((done, _)) => Ok(done),
            futures::future::Either::Right(_) => Err(Elapsed(limit)),
        }
    }

    /// Runs CPU-heavy work away from the I/O threads and waits for its result.
    ///
    /// The work runs to its end even where the caller is dropped.
    ///
    /// # Panics
    /// Where the work panicked, with its message.
    pub async fn cpu<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (job, result) = job(work);
        self.tasks.cpu(job);
        finished(result.await)
    }

    /// Runs work that waits for the operating system (a read, an fsync) away from the I/O threads
    /// and waits for its result.
    ///
    /// The work runs to its end even where the caller is dropped.
    ///
    /// # Panics
    /// Where the work panicked, with its message, and where the runtime is shutting down.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (job, result) = job(work);
        self.tasks.blocking(job);
        finished(result.await)
    }

    /// `N` random bytes.
    pub fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.entropy.fill(&mut bytes);
        bytes
    }
}

type Outcome<T> = std::thread::Result<T>;

/// Work as a job without a result, and where its result, or its panic, arrives.
fn job<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> (Box<dyn FnOnce() + Send>, oneshot::Receiver<Outcome<T>>) {
    let (send, receive) = oneshot::channel();
    let job = move || {
        let _ = send.send(catch_unwind(AssertUnwindSafe(work)));
    };
    (Box::new(job), receive)
}

fn finished<T>(outcome: Result<Outcome<T>, oneshot::Canceled>) -> T {
    match outcome {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(oneshot::Canceled) => panic!("work was dropped before it ran: the runtime has ended"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    struct SetOnDrop(Arc<AtomicBool>);

    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn within_gives_the_result_in_time_and_drops_what_is_late() {
        let env = Env::real();
        let limit = Duration::from_secs(1);
        assert_eq!(env.within(limit, async { 7 }).await, Ok(7));
        let dropped = Arc::new(AtomicBool::new(false));
        let flag = SetOnDrop(dropped.clone());
        let late = async move {
            let _flag = flag;
            futures::future::pending::<()>().await;
        };
        assert_eq!(env.within(limit, late).await, Err(Elapsed(limit)));
        assert!(dropped.load(Ordering::SeqCst), "late work is cancelled, not left behind");
    }

    #[tokio::test]
    async fn cpu_and_blocking_work_runs_elsewhere_and_answers() {
        let env = Env::real();
        let here = std::thread::current().id();
        assert_ne!(env.cpu(|| std::thread::current().id()).await, here);
        assert_ne!(env.blocking(|| std::thread::current().id()).await, here);
    }

    #[tokio::test]
    async fn a_panic_of_the_work_reaches_whoever_waits_and_the_pool_goes_on() {
        let env = Env::real();
        let worker = env.clone();
        let failed = tokio::spawn(async move { worker.cpu(|| panic!("planted")).await }).await;
        let panic = failed.expect_err("a panic").into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"planted"));
        assert_eq!(env.cpu(|| 7).await, 7);
    }

    #[tokio::test]
    async fn random_bytes_differ() {
        let env = Env::real();
        assert_ne!(env.random::<32>(), env.random::<32>());
    }
}
