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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use env::{Task, Tasks};
use futures::FutureExt;
use futures::future::BoxFuture;

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

/// Tasks of one process. CPU and blocking work runs inline, so it ends before the process can.
pub(crate) struct ProcessTasks {
    pub(crate) process: Arc<Process>,
    pub(crate) tasks: Arc<dyn Tasks>,
}

impl Tasks for ProcessTasks {
    fn spawn(&self, work: BoxFuture<'static, ()>) -> Task {
        self.tasks.spawn(self.process.gate(work).map(drop).boxed())
    }

    fn cpu(&self, work: Box<dyn FnOnce() + Send>) {
        self.tasks.cpu(work);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        self.tasks.blocking(work);
    }

    fn parallelism(&self) -> usize {
        self.tasks.parallelism()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_paused_process_stands_still_and_a_killed_one_ends() {
        testkit::time::run(1, |env| async move {
            let process = Arc::new(Process::default());
            let (base, tasks) = (env.clone(), env.tasks.clone());
            let own = ProcessTasks { process: process.clone(), tasks };
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
