//! A program that can be paused and killed: everything it runs, and everything that runs in it for a caller, goes through a gate.
//!
//! ```text
//! running --pause--> paused: nothing is polled, timers and messages wait (SIGSTOP, a long stall)
//!    |     <-resume-
//!    `------kill---> dead: all it ran is dropped at its next wake, which is now (kill -9, a power cut)
//! ```
//! A dead one never lives again: a restart is another [`Process`], so what the old one still holds cannot act.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use env::{Env, Task, Tasks};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::chance::Chance;
use crate::history::History;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    Paused,
    Dead,
}

/// One run of a program.
#[derive(Debug)]
pub struct Process {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    life: Life,
    next: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl Default for Process {
    fn default() -> Self {
        Self { state: Mutex::new(State { life: Life::Running, next: 0, waiting: BTreeMap::new() }) }
    }
}

impl Process {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was killed.
    pub fn is_dead(&self) -> bool {
        self.lock().life == Life::Dead
    }

    /// Stops polling what it runs.
    pub fn pause(&self) {
        let mut state = self.lock();
        if state.life == Life::Running {
            state.life = Life::Paused;
        }
    }

    /// Goes on.
    pub fn resume(&self) {
        let mut state = self.lock();
        if state.life == Life::Paused {
            state.life = Life::Running;
        }
        drop(state);
        self.wake_all();
    }

    /// Ends it: all that is gated answers `None`.
    pub fn kill(&self) {
        self.lock().life = Life::Dead;
        self.wake_all();
    }

    fn wake_all(&self) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_values().for_each(Waker::wake);
    }

    /// Runs `work` as a part of this process; `None` where the process dies before it is done.
    pub fn gate<F: Future>(self: &Arc<Self>, work: F) -> Gated<F> {
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        drop(state);
        Gated { process: Arc::clone(self), id, work: Some(Box::pin(work)) }
    }
}

/// Work inside a process.
pub struct Gated<F> {
    process: Arc<Process>,
    id: u64,
    work: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Gated<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let life = {
            let mut state = self.process.lock();
            if state.life != Life::Dead {
                let id = self.id;
                state.waiting.insert(id, context.waker().clone());
            }
            state.life
        };
        // What is dropped or polled here may use the process, so no lock is held.
        match (life, &mut self.work) {
            (Life::Paused, _) => Poll::Pending,
            (Life::Dead, _) | (_, None) => {
                self.work = None;
                Poll::Ready(None)
            }
            (Life::Running, Some(work)) => work.as_mut().poll(context).map(Some),
        }
    }
}

impl<F> Drop for Gated<F> {
    fn drop(&mut self) {
        let id = self.id;
        self.process.lock().waiting.remove(&id);
    }
}

/// How slow a machine's disks are: whatever is asked of them takes less than so many milliseconds. Outlives its processes.
#[derive(Clone, Debug, Default)]
pub struct Slowness(Arc<Speed>);

#[derive(Debug, Default)]
struct Speed {
    usual_ms: u64,
    ms_max: AtomicU64,
}

impl Slowness {
    /// Disks that take less than so many milliseconds when nothing is wrong with them; 0 for no time at all.
    pub fn usually(usual_ms: u64) -> Self {
        Self(Arc::new(Speed { usual_ms, ms_max: AtomicU64::new(usual_ms) }))
    }

    /// From now on; 0 for as slow as they usually are.
    pub fn set(&self, ms_max: u64) {
        self.0.ms_max.store(ms_max.max(self.0.usual_ms), Ordering::SeqCst);
    }

    fn ms_max(&self) -> u64 {
        self.0.ms_max.load(Ordering::SeqCst)
    }

    fn is_usual(&self) -> bool {
        self.ms_max() == self.0.usual_ms
    }
}

/// Tasks of one process. CPU work runs inline, so it ends before the process can; blocking work too, unless the disks take
/// time: then it waits, each piece by itself, and a process that dies meanwhile never did it. What is asked for in that time
/// gathers, as it does beside a real disk: one write and one sync are then for several who asked.
pub(crate) struct ProcessTasks {
    pub(crate) process: Arc<Process>,
    pub(crate) env: Env,
    pub(crate) slowness: Slowness,
    pub(crate) chance: Mutex<Chance>,
    pub(crate) history: History,
}

impl Tasks for ProcessTasks {
    fn spawn(&self, work: BoxFuture<'static, ()>) -> Task {
        self.env.tasks.spawn(self.process.gate(work).map(drop).boxed())
    }

    fn cpu(&self, work: Box<dyn FnOnce() + Send>) {
        self.env.tasks.cpu(work);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        let (ms_max, is_usual) = (self.slowness.ms_max(), self.slowness.is_usual());
        if ms_max == 0 {
            return self.env.tasks.blocking(work);
        }
        let ms = self.chance.lock().unwrap_or_else(PoisonError::into_inner).below(ms_max);
        let (clock, history) = (Arc::clone(&self.env.clock), self.history.clone());
        let waiting = async move {
            clock.sleep(Duration::from_millis(ms)).await;
            history.tally(if is_usual { "disk: it takes its time" } else { "disk: slow" });
            work();
        };
        self.spawn(waiting.boxed()).detach();
    }

    fn parallelism(&self) -> usize {
        self.env.tasks.parallelism()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn tasks_of(process: &Arc<Process>, env: &Env, slowness: &Slowness) -> ProcessTasks {
        let needle = crate::search::Needle::new(1);
        ProcessTasks {
            process: process.clone(),
            env: env.clone(),
            slowness: slowness.clone(),
            chance: Mutex::new(Chance::new(1, "slow")),
            history: History::new(env.clock.clone(), needle, false),
        }
    }

    #[test]
    fn work_of_slow_disks_is_done_later_and_by_a_killed_process_never() {
        testkit::time::run(1, |env| async move {
            let (process, slowness) = (Arc::new(Process::default()), Slowness::default());
            let own = tasks_of(&process, &env, &slowness);
            let done = Arc::new(AtomicU64::new(0));
            let piece = || {
                let done = done.clone();
                Box::new(move || {
                    done.fetch_add(1, Ordering::SeqCst);
                })
            };
            own.blocking(piece());
            assert_eq!(done.load(Ordering::SeqCst), 1, "at once");
            slowness.set(500);
            (0..20).for_each(|_| own.blocking(piece()));
            assert_eq!(done.load(Ordering::SeqCst), 1);
            env.clock.sleep(SECOND / 4).await;
            let halfway = done.load(Ordering::SeqCst);
            assert!((2..21).contains(&halfway), "{halfway}");
            process.kill();
            env.clock.sleep(SECOND).await;
            assert_eq!(done.load(Ordering::SeqCst), halfway);
        });
    }

    #[test]
    fn disks_that_were_slow_are_again_as_slow_as_they_usually_are() {
        testkit::time::run(1, |env| async move {
            let (process, slowness) = (Arc::new(Process::default()), Slowness::usually(3));
            let own = tasks_of(&process, &env, &slowness);
            let done = Arc::new(AtomicU64::new(0));
            let count = || done.load(Ordering::SeqCst);
            let ask = || {
                let done = done.clone();
                own.blocking(Box::new(move || {
                    done.fetch_add(1, Ordering::SeqCst);
                }));
            };
            (0..20).for_each(|_| ask());
            assert_eq!(count(), 0, "not at once");
            env.clock.sleep(Duration::from_millis(5)).await;
            assert_eq!(count(), 20);
            slowness.set(5_000);
            (0..20).for_each(|_| ask());
            env.clock.sleep(Duration::from_millis(5)).await;
            assert!(count() < 40);
            env.clock.sleep(SECOND * 5).await;
            slowness.set(0);
            (0..20).for_each(|_| ask());
            env.clock.sleep(Duration::from_millis(5)).await;
            assert_eq!(count(), 60);
        });
    }

    #[test]
    fn a_paused_process_stands_still_and_a_killed_one_ends() {
        testkit::time::run(1, |env| async move {
            let process = Arc::new(Process::default());
            let base = env.clone();
            let slowness = Slowness::default();
            let own = tasks_of(&process, &env, &slowness);
            let (tell, told) = futures::channel::oneshot::channel();
            let task = own.spawn(
                async move {
                    base.clock.sleep(SECOND).await;
                    let _ = tell.send(base.clock.elapsed());
                }
                .boxed(),
            );
            env.clock.sleep(SECOND / 2).await;
            process.pause();
            env.clock.sleep(SECOND * 5).await;
            process.resume();
            assert_eq!(told.await, Ok(SECOND * 11 / 2), "it sees its timer when it goes on");
            task.join().await;
            let endless = process.gate(futures::future::pending::<()>());
            let killer = env.clone();
            let killed = process.clone();
            let _kill = env.tasks.spawn(
                async move {
                    killer.clock.sleep(SECOND).await;
                    killed.kill();
                }
                .boxed(),
            );
            assert_eq!(endless.await, None);
            assert!(process.is_dead());
        });
    }
}
