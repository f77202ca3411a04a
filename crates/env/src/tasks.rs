//! Where work runs: tasks on the I/O threads, CPU-heavy work and blocking calls away from them.

use futures::FutureExt;
use futures::future::BoxFuture;

/// A running task. Dropping it aborts the task; [`Task::join`] waits for it.
pub struct Task {
    done: BoxFuture<'static, ()>,
    abort: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Task {
    /// A task from the future that is ready when it ended and a function that stops it.
    pub fn new(done: BoxFuture<'static, ()>, abort: Box<dyn FnOnce() + Send + Sync>) -> Self {
        Self { done, abort: Some(abort) }
    }

    /// Waits until the task ended by itself.
    pub async fn join(mut self) {
        (&mut self.done).await;
        self.abort = None;
    }

    /// Stops it at its next await and waits until it is gone.
    pub async fn stop(mut self) {
        if let Some(abort) = self.abort.take() {
            abort();
        }
        (&mut self.done).await;
    }

    /// Lets it run on without an owner; for work whose bound is elsewhere (say a semaphore).
    pub fn detach(mut self) {
        self.abort = None;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(abort) = self.abort.take() {
            abort();
        }
    }
}

/// Runs work.
pub trait Tasks: Send + Sync {
    /// Starts `work` on the I/O threads.
    fn spawn(&self, work: BoxFuture<'static, ()>) -> Task;
    /// Starts CPU-heavy work (hashing, coding, sealing a chunk) on a thread of a bounded pool.
    fn cpu(&self, work: Box<dyn FnOnce() + Send>);
    /// Starts work that waits for the operating system (a long read) on a thread of its own kind.
    fn blocking(&self, work: Box<dyn FnOnce() + Send>);
    /// How many CPU threads there are.
    fn parallelism(&self) -> usize;
}

/// Tasks on a tokio runtime.
#[derive(Clone, Debug)]
pub struct TokioTasks(tokio::runtime::Handle);

impl TokioTasks {
    /// Tasks on the runtime this is called in.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn current() -> Self {
        Self(tokio::runtime::Handle::current())
    }
}

impl Tasks for TokioTasks {
    fn spawn(&self, work: BoxFuture<'static, ()>) -> Task {
        let handle = self.0.spawn(work);
        let abort = handle.abort_handle();
        let done = async move {
            if let Err(error) = handle.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        };
        Task::new(done.boxed(), Box::new(move || abort.abort()))
    }

    fn cpu(&self, work: Box<dyn FnOnce() + Send>) {
        self.0.spawn_blocking(work);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        self.0.spawn_blocking(work);
    }

    fn parallelism(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}
