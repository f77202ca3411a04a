//! Time, randomness, tasks, disk and calls to peers as traits, with the real ones.
//!
//! Everything above takes these from outside, so that the production code of a peer and of an author runs unchanged on a
//! seeded simulated network under virtual time.

pub mod calls;
mod clock;
pub mod disk;
mod tasks;

pub use clock::{Clock, Entropy, SystemClock, SystemEntropy};
pub use tasks::{Task, Tasks, TokioTasks};

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

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
    /// Where the work panicked.
    pub async fn cpu<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (send, receive) = futures::channel::oneshot::channel();
        self.tasks.cpu(Box::new(move || {
            let _ = send.send(work());
        }));
        match receive.await {
            Ok(done) => done,
            Err(_) => panic!("work on a CPU thread panicked"),
        }
    }

    /// `N` random bytes.
    pub fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.entropy.fill(&mut bytes);
        bytes
    }
}
