//! One writer at a time, which takes all that waits: what makes one fsync serve many callers.
//!
//! Requests wait in a queue. Whoever finds the worker at rest sends it to a blocking thread, where
//! it takes everything that waits, does it as one batch, and again, until nothing waits; then it
//! rests. While a batch is being written and synced the next one gathers by itself, so batches grow
//! with the load and a lone write waits for nobody. No thread exists while nothing is written, and
//! on a simulated runtime, where blocking work runs inline, the same code is single-threaded.
//!
//! Invariants:
//! 1. The worker is moved, not locked: it is in the queue or in one running turn, and no lock is
//!    held while it works.
//! 2. Batches are made of whole requests, in the order in which they were submitted.
//! 3. What waits is bounded by [`WAITING_KIB_MAX`]: submitters wait for room before they queue. A thread that does its
//!    request itself ([`Line::submit_here`]) finds the worker at rest or queues that one request and blocks.
//! 4. Where the worker panics, its requests and all later ones are dropped, which their callers see
//!    as "closed".

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use env::Tasks;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What may wait in all, in KiB. Every request counts for at least [`REQUEST_KIB_MIN`].
pub(crate) const WAITING_KIB_MAX: u32 = 32 * 1024;
/// What a small request counts for, so that at most 4,096 wait.
pub(crate) const REQUEST_KIB_MIN: u32 = 8;

/// Does batches of requests, one batch at a time.
pub(crate) trait Worker: Send + 'static {
    /// What it is asked for; the answer goes through a channel inside it.
    type Request: Send + 'static;

    /// How many of the waiting requests to take next, at least one.
    fn batch_len<'a>(&self, waiting: impl Iterator<Item = &'a Self::Request>) -> usize;

    /// Does a batch and answers it. Blocks.
    fn work(&mut self, batch: Vec<Self::Request>);
}

/// The queue in front of a worker.
pub(crate) struct Line<W: Worker> {
    state: Mutex<State<W>>,
    room: Arc<Semaphore>,
    tasks: Arc<dyn Tasks>,
}

struct State<W: Worker> {
    waiting: VecDeque<Waiting<W::Request>>,
    /// `None` while it works.
    worker: Option<W>,
    closed: bool,
}

struct Waiting<R> {
    request: R,
    /// `None` of a request whose caller blocks until it is done.
    _room: Option<OwnedSemaphorePermit>,
}

/// The line takes no more requests.
#[derive(Debug)]
pub(crate) struct LineClosed;

impl<W: Worker> Line<W> {
    pub(crate) fn new(worker: W, tasks: Arc<dyn Tasks>) -> Arc<Self> {
        let state = State { waiting: VecDeque::new(), worker: Some(worker), closed: false };
        let room = Arc::new(Semaphore::new(WAITING_KIB_MAX as usize));
        Arc::new(Self { state: Mutex::new(state), room, tasks })
    }

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room for a request of `bytes`, then queues it. Dropped before that, nothing is
    /// queued; once it returned, the request is done whatever its caller does.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        request: W::Request,
        bytes: usize,
    ) -> Result<(), LineClosed> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let kib = kib.clamp(REQUEST_KIB_MIN, WAITING_KIB_MAX);
        let room = self.room.clone().acquire_many_owned(kib).await.map_err(|_| LineClosed)?;
        let worker = {
            let mut state = self.lock();
            if state.closed {
                return Err(LineClosed);
            }
            state.waiting.push_back(Waiting { request, _room: Some(room) });
            state.worker.take()
        };
        if let Some(worker) = worker {
            let line = self.clone();
            self.tasks.blocking(Box::new(move || line.turns(worker)));
        }
        Ok(())
    }

    /// Does a request on the calling thread where the worker is at rest, else queues it, without waiting for room: who
    /// blocks for the answer has one request at a time. What others queue meanwhile is done on a thread of theirs.
    pub(crate) fn submit_here(self: &Arc<Self>, request: W::Request) -> Result<(), LineClosed> {
        let mut worker = {
            let mut state = self.lock();
            if state.closed {
                return Err(LineClosed);
            }
            match state.worker.take() {
                Some(worker) => worker,
                None => {
                    state.waiting.push_back(Waiting { request, _room: None });
                    return Ok(());
                }
            }
        };
        let guard = LostWorker(self);
        worker.work(vec![request]);
        std::mem::forget(guard);
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.worker = Some(worker);
        } else {
            drop(state);
            let line = self.clone();
            self.tasks.blocking(Box::new(move || line.turns(worker)));
        }
        Ok(())
    }

    /// Refuses all later requests; those that wait are still done.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.room.close();
    }

    fn turns(&self, mut worker: W) {
        let guard = LostWorker(self);
        loop {
            let batch: Vec<_> = {
                let mut state = self.lock();
                if state.waiting.is_empty() {
                    state.worker = Some(worker);
                    break;
                }
                let len = worker.batch_len(state.waiting.iter().map(|waiting| &waiting.request));
                let len = len.clamp(1, state.waiting.len());
                state.waiting.drain(..len).collect()
            };
            // The room is given back when the batch is done, so that what is being written counts
            // too.
            let (requests, _room): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.request, waiting._room)).unzip();
            worker.work(requests);
        }
        std::mem::forget(guard);
    }
}

/// Closes the line when the turn unwinds.
struct LostWorker<'a, W: Worker>(&'a Line<W>);

impl<W: Worker> Drop for LostWorker<'_, W> {
    fn drop(&mut self) {
        self.0.close();
        self.0.lock().waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use env::Env;
    use tokio::sync::oneshot;

    use super::*;

    struct Adder {
        batches: Arc<Mutex<Vec<usize>>>,
    }

    struct Add {
        number: u32,
        answer: oneshot::Sender<u32>,
    }

    impl Worker for Adder {
        type Request = Add;
        fn batch_len<'a>(&self, waiting: impl Iterator<Item = &'a Add>) -> usize {
            waiting.take(10).count()
        }
        fn work(&mut self, batch: Vec<Add>) {
            self.batches.lock().expect("unpoisoned").push(batch.len());
            std::thread::sleep(Duration::from_millis(2));
            for add in batch {
                assert_ne!(add.number, 13, "planted");
                let _ = add.answer.send(add.number + 1);
            }
        }
    }

    type Batches = Arc<Mutex<Vec<usize>>>;

    fn line(env: &Env) -> (Arc<Line<Adder>>, Batches) {
        let batches = Arc::new(Mutex::new(Vec::new()));
        (Line::new(Adder { batches: batches.clone() }, env.tasks.clone()), batches)
    }

    async fn add(line: &Arc<Line<Adder>>, number: u32, bytes: usize) -> Option<u32> {
        let (answer, answered) = oneshot::channel();
        line.submit(Add { number, answer }, bytes).await.ok()?;
        answered.await.ok()
    }

    #[tokio::test]
    async fn what_gathers_during_a_batch_is_the_next_batch() {
        let env = Env::real();
        let (line, batches) = line(&env);
        let all = futures::future::join_all((100..200).map(|i| add(&line, i, 1))).await;
        assert_eq!(all, (100..200).map(|i| Some(i + 1)).collect::<Vec<_>>());
        let batches = batches.lock().expect("unpoisoned").clone();
        assert_eq!(batches.iter().sum::<usize>(), 100);
        assert!(batches.len() <= 30, "one at a time: {batches:?}");
        assert!(batches.iter().all(|len| *len <= 10));
    }

    #[test]
    fn a_thread_does_its_own_request_and_meets_those_of_others() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let env = runtime.block_on(async { Env::real() });
        let (line, batches) = line(&env);
        let here = |number| {
            let (answer, mut answered) = oneshot::channel();
            line.submit_here(Add { number, answer }).expect("open");
            answered.try_recv().ok().unwrap_or_else(|| answered.blocking_recv().expect("answered"))
        };
        assert_eq!(here(1), 2);
        assert_eq!(batches.lock().expect("unpoisoned").as_slice(), [1], "by this thread");
        let others = line.clone();
        let beside = runtime.spawn(async move {
            futures::future::join_all((100..200).map(|i| add(&others, i, 1))).await
        });
        for number in 20..60 {
            assert_eq!(here(number), number + 1);
        }
        let beside = runtime.block_on(beside).expect("done");
        assert_eq!(beside, (100..200).map(|i| Some(i + 1)).collect::<Vec<_>>());
        assert_eq!(batches.lock().expect("unpoisoned").iter().sum::<usize>(), 141);
        assert_eq!(runtime.block_on(add(&line, 5, 1)), Some(6), "the worker is back");
        line.close();
        let (answer, _answered) = oneshot::channel();
        assert!(line.submit_here(Add { number: 1, answer }).is_err());
    }

    #[tokio::test]
    async fn requests_larger_than_the_room_still_pass_one_by_one() {
        let env = Env::real();
        let (line, _) = line(&env);
        let all = futures::future::join_all((100..104).map(|i| add(&line, i, 1 << 30))).await;
        assert_eq!(all.len(), 4);
        assert!(all.iter().all(Option::is_some));
    }

    #[tokio::test]
    async fn a_panic_closes_the_line_for_all_who_wait() {
        let env = Env::real();
        let (line, _) = line(&env);
        assert_eq!(add(&line, 13, 1).await, None);
        assert_eq!(add(&line, 1, 1).await, None);
    }

    #[tokio::test]
    async fn a_closed_line_finishes_what_waits_and_takes_no_more() {
        let env = Env::real();
        let (line, _) = line(&env);
        let (answer, answered) = oneshot::channel();
        line.submit(Add { number: 1, answer }, 1).await.expect("open");
        line.close();
        assert_eq!(answered.await, Ok(2));
        assert_eq!(add(&line, 1, 1).await, None);
    }
}
