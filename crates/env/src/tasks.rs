//! Where work runs: tasks on the I/O threads, CPU-heavy work and blocking calls away from them.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::crowd;
use crate::pool::CpuPool;

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
    /// Starts CPU-heavy work (hashing, coding, sealing a chunk) on a thread of a bounded pool. Work
    /// beyond its threads waits in order; callers bound how much they hand in.
    fn cpu(&self, work: Box<dyn FnOnce() + Send>);
    /// Starts work that waits for the operating system (a long read) on a thread of its own kind.
    fn blocking(&self, work: Box<dyn FnOnce() + Send>);
    /// How many CPU threads there are.
    fn parallelism(&self) -> usize;
    /// Whether many more programs want the processors now than there are: what is done beside other work then takes
    /// memory and makes nothing faster. `false` where nobody can tell.
    fn crowded(&self) -> bool {
        false
    }
}

/// Tasks on a tokio runtime, with a CPU pool of its own. Clones share both; the pool's threads end
/// with the last clone.
#[derive(Clone, Debug)]
pub struct TokioTasks {
    runtime: tokio::runtime::Handle,
    pool: Arc<CpuPool>,
}

impl TokioTasks {
    /// Tasks on the runtime this is called in, and as many CPU threads as there are cores.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn current() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { runtime: tokio::runtime::Handle::current(), pool: Arc::new(CpuPool::new(cores)) }
    }
}

impl Tasks for TokioTasks {
    fn spawn(&self, work: BoxFuture<'static, ()>) -> Task {
        let handle = self.runtime.spawn(work);
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
        self.pool.run(work);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        self.runtime.spawn_blocking(work);
    }

    fn parallelism(&self) -> usize {
        self.pool.threads_max()
    }

    fn crowded(&self) -> bool {
        crowd::crowded()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::channel::oneshot;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A task that never ends, and what tells when it is gone.
    fn endless(tasks: &TokioTasks) -> (Task, oneshot::Receiver<()>) {
        let (alive, gone) = oneshot::channel::<()>();
        let task = tasks.spawn(
            async move {
                let _alive = alive;
                futures::future::pending::<()>().await;
            }
            .boxed(),
        );
        (task, gone)
    }

    async fn is_gone(gone: oneshot::Receiver<()>) -> bool {
        matches!(tokio::time::timeout(PATIENCE, gone).await, Ok(Err(oneshot::Canceled)))
    }

    #[tokio::test]
    async fn dropping_a_task_aborts_it() {
        let tasks = TokioTasks::current();
        let (task, gone) = endless(&tasks);
        drop(task);
        assert!(is_gone(gone).await);
    }

    #[tokio::test]
    async fn stopping_a_task_waits_until_it_is_gone() {
        let tasks = TokioTasks::current();
        let (task, mut gone) = endless(&tasks);
        tokio::time::timeout(PATIENCE, task.stop()).await.expect("it stops");
        assert_eq!(gone.try_recv(), Err(oneshot::Canceled));
    }

    #[tokio::test]
    async fn a_detached_task_runs_to_its_end() {
        let tasks = TokioTasks::current();
        let (go, went) = oneshot::channel::<()>();
        let (done, ended) = oneshot::channel();
        let task = tasks.spawn(
            async move {
                let _ = went.await;
                let _ = done.send(7);
            }
            .boxed(),
        );
        task.detach();
        go.send(()).expect("it waits");
        assert_eq!(tokio::time::timeout(PATIENCE, ended).await, Ok(Ok(7)));
    }

    #[tokio::test]
    async fn joining_waits_and_hands_on_a_panic() {
        let tasks = TokioTasks::current();
        tasks.spawn(async {}.boxed()).join().await;
        let task = tasks.spawn(async { panic!("planted") }.boxed());
        let joined = tokio::spawn(task.join()).await;
        assert!(joined.expect_err("a panic").is_panic());
    }
}
