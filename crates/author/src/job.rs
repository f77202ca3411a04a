//! Work that runs beside its owner and ends with it.
//!
//! The stages of a put and a get hand chunks to the CPU pool or to tasks of their own and wait for the results in order.
//! A [`Job`] is such a piece of work: it runs whether or not it is waited for, and dropping it stops what can be stopped
//! (a task at its next await; work on a CPU thread runs out and its result is dropped). So dropping a put's future stops
//! all of it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use env::{Env, Task};
use futures::FutureExt;
use futures::channel::oneshot;

/// A running piece of work. As a future it gives the result, or `None` where the work panicked or its pool is gone.
pub(crate) struct Job<T> {
    result: oneshot::Receiver<T>,
    _task: Option<Task>,
}

impl<T: Send + 'static> Job<T> {
    /// Starts CPU-heavy work at once.
    pub(crate) fn cpu(env: &Env, work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (send, result) = oneshot::channel();
        env.tasks.cpu(Box::new(move || {
            // Nobody waits any more: whoever wanted the result was cancelled.
            if !send.is_canceled() {
                let _ = send.send(work());
            }
        }));
        Self { result, _task: None }
    }

    /// Starts work that waits for the operating system at once.
    pub(crate) fn blocking(env: &Env, work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (send, result) = oneshot::channel();
        env.tasks.blocking(Box::new(move || {
            let _ = send.send(work());
        }));
        Self { result, _task: None }
    }

    /// Starts a task at once.
    pub(crate) fn task(env: &Env, work: impl Future<Output = T> + Send + 'static) -> Self {
        let (send, result) = oneshot::channel();
        let task = env.tasks.spawn(
            async move {
                let _ = send.send(work.await);
            }
            .boxed(),
        );
        Self { result, _task: Some(task) }
    }
}

impl<T> Future for Job<T> {
    type Output = Option<T>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.result.poll_unpin(context).map(Result::ok)
    }
}

impl<T> Unpin for Job<T> {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_job_runs_unawaited_and_gives_its_result() {
        let env = Env::real();
        let cpu = Job::cpu(&env, || 6 * 7);
        let task = Job::task(&env, async { "done" });
        assert_eq!((cpu.await, task.await), (Some(42), Some("done")));
    }

    #[tokio::test]
    async fn dropping_a_job_stops_its_task() {
        struct Guard(Arc<AtomicBool>);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let env = Env::real();
        let dropped = Arc::new(AtomicBool::new(false));
        let guard = Guard(Arc::clone(&dropped));
        let job = Job::task(&env, async move {
            let _guard = guard;
            futures::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        drop(job);
        while !dropped.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
    }
}
