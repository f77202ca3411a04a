//! A bounded pool of threads for CPU-heavy work: at most one job a core at once, however many wait.
//!
//! tokio's `spawn_blocking` starts up to 512 threads; hashing on all of them thrashes the caches
//! and starves the I/O threads. Here jobs beyond the number of threads wait in arrival order.
//!
//! Invariants:
//! 1. At most `threads_max` jobs run at once. Threads start when a job finds no idle one, so an
//!    unused pool costs none.
//! 2. Every job that was taken runs, even when the pool is dropped meanwhile; then the threads end.
//! 3. A job that panics ends alone: its thread goes on.
//!
//! Limit: the queue itself has no bound, since each waiting job belongs to a caller that waits for
//! it (`Env::cpu`), and callers bound their own number (a semaphore of chunks in flight, the limits
//! of the RPC listener).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// One piece of work.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The pool. Its threads end when it is dropped and the queue is empty.
pub(crate) struct CpuPool {
    shared: Arc<Shared>,
    threads_max: usize,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Shared {
    /// Jobs run outside the lock, so a poisoned lock has no half-done state behind it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                // The panic was printed by the hook; whoever waits for the job learns of it by its
                // channel.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
            } else if state.closed {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl CpuPool {
    /// A pool of up to `threads_max` threads.
    pub(crate) fn new(threads_max: usize) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), wake: Condvar::new() });
        Self { shared, threads_max: threads_max.max(1) }
    }

    /// How many jobs run at once at most.
    pub(crate) fn threads_max(&self) -> usize {
        self.threads_max
    }

    /// Takes a job; it runs when a thread is free.
    ///
    /// # Panics
    /// Where the system gives no thread at all.
    pub(crate) fn run(&self, job: Job) {
        let start = {
            let mut state = self.shared.lock();
            state.queue.push_back(job);
            let start = state.idle < state.queue.len() && state.threads < self.threads_max;
            if start {
                state.threads += 1;
            }
            start
        };
        self.shared.wake.notify_one();
        if start {
            let shared = self.shared.clone();
            let started =
                std::thread::Builder::new().name("cpu".into()).spawn(move || shared.work());
            if let Err(error) = started {
                let mut state = self.shared.lock();
                state.threads -= 1;
                assert!(state.threads > 0, "the system gave no thread for CPU work: {error}");
            }
        }
    }

    #[cfg(test)]
    fn threads(&self) -> usize {
        self.shared.lock().threads
    }
}

impl Drop for CpuPool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

impl std::fmt::Debug for CpuPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CpuPool(up to {} threads)", self.threads_max)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn no_more_jobs_run_at_once_than_it_has_threads() {
        let pool = CpuPool::new(3);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, finished) = mpsc::channel();
        for _ in 0..64 {
            let (now, most, done) = (now.clone(), most.clone(), done.clone());
            pool.run(Box::new(move || {
                let running = now.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(running, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
                now.fetch_sub(1, Ordering::SeqCst);
                let _ = done.send(());
            }));
        }
        for _ in 0..64 {
            finished.recv_timeout(PATIENCE).expect("every job runs");
        }
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
        assert!(pool.threads() <= 3);
    }

    #[test]
    fn an_unused_pool_has_no_threads_and_a_dropped_one_finishes_its_queue() {
        let pool = CpuPool::new(1);
        assert_eq!(pool.threads(), 0);
        let (done, finished) = mpsc::channel();
        for number in 0..10 {
            let done = done.clone();
            pool.run(Box::new(move || {
                std::thread::sleep(Duration::from_millis(1));
                let _ = done.send(number);
            }));
        }
        let shared = pool.shared.clone();
        drop(pool);
        let order: Vec<i32> =
            (0..10).map(|_| finished.recv_timeout(PATIENCE).expect("it runs")).collect();
        assert_eq!(order, (0..10).collect::<Vec<_>>());
        let deadline = std::time::Instant::now() + PATIENCE;
        while shared.lock().threads > 0 {
            assert!(std::time::Instant::now() < deadline, "the thread did not end");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_panic_ends_its_job_alone() {
        let pool = CpuPool::new(1);
        let (done, finished) = mpsc::channel();
        pool.run(Box::new(|| panic!("planted")));
        pool.run(Box::new(move || {
            let _ = done.send(());
        }));
        finished.recv_timeout(PATIENCE).expect("the thread goes on");
        assert_eq!(pool.threads(), 1);
    }
}
