//! Virtual time on one thread: a program under [`run`] sleeps for hours in microseconds, and the same seed gives the same run.
//!
//! [`run`] polls the main future and all tasks in the order in which they became ready; where none is, the clock jumps to
//! the next timer. CPU and blocking work runs inline. There is no I/O: what waits for anything but a timer, a task or a channel
//! is stuck, and [`run`] panics and says so. [`VirtualClock`] can also be used alone and moved by hand.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crypto::Suite;
use env::{Clock, Entropy, Env, Task, Tasks};
use futures::FutureExt;
use futures::future::BoxFuture;

/// What the calendar of a virtual clock says at its start, Unix seconds.
pub const START_UNIX_S: u64 = 1_800_000_000;
/// The longest virtual time of one [`run`]: beyond it something waits for ever, over and over.
pub const RUN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Runs a program in virtual time, with randomness from `seed`, to its end. Tasks that still run then are dropped.
///
/// # Panics
/// Where the program waits and no timer is set, or after [`RUN_MAX`]; and with the panic of any task.
pub fn run<T, F: Future<Output = T>>(seed: u64, main: impl FnOnce(Env) -> F) -> T {
    let clock = VirtualClock::new();
    let tasks = VirtualTasks::default();
    let env = Env {
        clock: Arc::new(clock.clone()),
        entropy: Arc::new(SeededEntropy::new(seed)),
        tasks: Arc::new(tasks.clone()),
    };
    let woken = Arc::new(MainWaker(AtomicBool::new(true)));
    let waker = Waker::from(woken.clone());
    let mut main = pin!(main(env));
    loop {
        if woken.0.swap(false, Ordering::SeqCst)
            && let Poll::Ready(done) = main.as_mut().poll(&mut Context::from_waker(&waker))
        {
            tasks.drop_all();
            return done;
        }
        let next = lock(&tasks.0.ready).pop_front();
        if let Some(job) = next {
            job.poll();
        } else if !woken.0.load(Ordering::SeqCst) {
            assert!(clock.jump(), "the program is stuck: nothing is ready and no timer is set");
            assert!(clock.elapsed() < RUN_MAX, "the program ran for {RUN_MAX:?} of virtual time");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct MainWaker(AtomicBool);

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A clock that stands still until it is moved.
#[derive(Clone, Default)]
pub struct VirtualClock(Arc<Mutex<Timers>>);

#[derive(Default)]
struct Timers {
    now: Duration,
    next: u64,
    waiting: BTreeMap<(Duration, u64), Waker>,
}

impl VirtualClock {
    /// A clock at [`START_UNIX_S`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves it on, and wakes those whose time has come.
    pub fn advance(&self, by: Duration) {
        let to = lock(&self.0).now + by;
        self.move_to(to);
    }

    /// Moves it to the next timer; `false` where none is set.
    fn jump(&self) -> bool {
        let next = lock(&self.0).waiting.keys().next().map(|(at, _)| *at);
        next.is_some_and(|at| {
            self.move_to(at);
            true
        })
    }

    fn move_to(&self, to: Duration) {
        let due = {
            let mut timers = lock(&self.0);
            let now = timers.now.max(to);
            timers.now = now;
            let later = timers.waiting.split_off(&(now, u64::MAX));
            std::mem::replace(&mut timers.waiting, later)
        };
        due.into_values().for_each(Waker::wake);
    }
}

impl Clock for VirtualClock {
    fn unix_ms(&self) -> u64 {
        let since = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        START_UNIX_S * 1000 + since
    }

    fn elapsed(&self) -> Duration {
        lock(&self.0).now
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let mut timers = lock(&self.0);
        timers.next += 1;
        // A timer so far off that it cannot be added never rings.
        let at = timers.now.checked_add(duration).unwrap_or(Duration::MAX);
        Sleep { clock: self.clone(), key: (at, timers.next) }.boxed()
    }
}

struct Sleep {
    clock: VirtualClock,
    key: (Duration, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut timers = lock(&self.clock.0);
        if timers.now >= self.key.0 {
            return Poll::Ready(());
        }
        timers.waiting.insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        lock(&self.clock.0).waiting.remove(&self.key);
    }
}

/// Randomness that a seed decides.
#[derive(Debug)]
pub struct SeededEntropy {
    seed: u64,
    drawn: AtomicU64,
}

impl SeededEntropy {
    /// The randomness of this seed, from its start.
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: AtomicU64::new(0) }
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            let drawn = self.drawn.fetch_add(1, Ordering::SeqCst);
            let mut input = self.seed.to_be_bytes().to_vec();
            input.extend(drawn.to_be_bytes());
            chunk.copy_from_slice(&Suite::Holdfast1.hash(&input)[..chunk.len()]);
        }
    }
}

/// Tasks that [`run`] polls.
#[derive(Clone, Default)]
struct VirtualTasks(Arc<Queue>);

#[derive(Default)]
struct Queue {
    ready: Mutex<VecDeque<Arc<Job>>>,
    next: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Job>>>,
}

struct Job {
    id: u64,
    work: Mutex<Option<BoxFuture<'static, ()>>>,
    queued: AtomicBool,
    aborted: AtomicBool,
    queue: Arc<Queue>,
}

impl Wake for Job {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::SeqCst) {
            let queue = self.queue.clone();
            lock(&queue.ready).push_back(self);
        }
    }
}

impl Job {
    fn poll(self: Arc<Self>) {
        self.queued.store(false, Ordering::SeqCst);
        let Some(mut work) = lock(&self.work).take() else { return };
        let waker = Waker::from(self.clone());
        let done = !self.aborted.load(Ordering::SeqCst)
            && work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        // A task may have been aborted by itself while it ran.
        if done || self.aborted.load(Ordering::SeqCst) {
            lock(&self.queue.all).remove(&self.id);
        } else {
            *lock(&self.work) = Some(work);
        }
    }

    fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        lock(&self.queue.all).remove(&self.id);
        let work = lock(&self.work).take();
        drop(work);
    }
}

impl VirtualTasks {
    fn drop_all(&self) {
        // What a task's end drops may end other tasks, so no lock is held meanwhile.
        while let Some((_, job)) = {
            let mut all = lock(&self.0.all);
            all.pop_first()
        } {
            job.abort();
        }
        lock(&self.0.ready).clear();
    }
}

impl Tasks for VirtualTasks {
    fn spawn(&self, work: BoxFuture<'static, ()>) -> Task {
        let (ended, done) = futures::channel::oneshot::channel::<()>();
        let work = async move {
            // Dropped at the end and with the task: either way whoever joins it is told.
            let _ended = ended;
            work.await;
        };
        let job = Arc::new(Job {
            id: self.0.next.fetch_add(1, Ordering::SeqCst),
            work: Mutex::new(Some(work.boxed())),
            queued: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            queue: self.0.clone(),
        });
        lock(&self.0.all).insert(job.id, job.clone());
        job.clone().wake();
        Task::new(done.map(drop).boxed(), Box::new(move || job.abort()))
    }

    fn cpu(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn parallelism(&self) -> usize {
        1
    }
}

#[cfg(test)]
mod tests;
