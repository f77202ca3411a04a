//! What callers share of calls and bytes, and how much of it one of them may have.
//!
//! Whoever shares has no more than it leaves free, so one alone has half of all, two a third each, and few keep no other out (the
//! dynamic threshold of shared buffers: Choudhury and Hahne, 1998). Members share by their keys, callers that nobody vouched for
//! by where they come from. The first that one takes may be as large as all that is free, so that no message is too
//! long for a small room.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use env::Env;
use env::calls::CallError;
use tokio::sync::Notify;

/// When a caller who was told *busy* should come again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// What one of those that share holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    /// Calls in work.
    pub(super) calls: Arc<AtomicUsize>,
    /// Bytes of request messages in work.
    pub(super) requests: Arc<AtomicUsize>,
    /// Bytes of answers that are made or not read yet.
    pub(super) answers: Arc<AtomicUsize>,
    /// Handshakes under way from where it comes.
    pub(super) handshakes: Arc<AtomicUsize>,
    /// Watches of the peer's health.
    pub(super) watches: Arc<AtomicUsize>,
    /// Questions for it that found no place among the calls.
    pub(super) past: Arc<AtomicUsize>,
}

/// Bytes, or whatever is counted, that all share.
#[derive(Debug)]
pub(super) struct Room {
    max: usize,
    held: Mutex<usize>,
    freed: Notify,
}

/// Bytes that are held, until dropped.
#[derive(Debug)]
pub(super) struct Taken {
    room: Arc<Room>,
    of: Arc<AtomicUsize>,
    bytes: usize,
}

impl Taken {
    /// Gives back what is beyond so many.
    pub(super) fn keep(&mut self, bytes: usize) {
        let beyond = self.bytes.saturating_sub(bytes);
        self.bytes -= beyond;
        self.room.give_back(&self.of, beyond);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.give_back(&self.of, self.bytes);
    }
}

impl Room {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, held: Mutex::new(0), freed: Notify::new() })
    }

    fn give_back(&self, of: &AtomicUsize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            *held -= bytes;
            of.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.freed.notify_waiters();
    }

    /// Takes so many for one of those that share, where it may have them now.
    pub(super) fn at_once(self: &Arc<Self>, of: &Arc<AtomicUsize>, bytes: usize) -> Option<Taken> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (free, own) = (self.max - *held, of.load(Ordering::Relaxed));
        if bytes > free || (own > 0 && own + bytes > free) {
            return None;
        }
        *held += bytes;
        of.fetch_add(bytes, Ordering::Relaxed);
        Some(Taken { room: Arc::clone(self), of: Arc::clone(of), bytes })
    }

    /// The same, as soon as it may.
    ///
    /// # Errors
    /// `Busy` where that is not within `wait`.
    pub(super) async fn within(
        self: Arc<Self>,
        of: Arc<AtomicUsize>,
        bytes: usize,
        env: Env,
        wait: Duration,
    ) -> Result<Taken, CallError> {
        let taking = async {
            loop {
                let freed = self.freed.notified();
                futures::pin_mut!(freed);
                // Registered before it is tried: what is freed between the two is not missed.
                freed.as_mut().enable();
                if let Some(taken) = self.at_once(&of, bytes) {
                    return taken;
                }
                freed.await;
            }
        };
        env.within(wait, taking).await.map_err(|_| CallError::Busy { retry_after: RETRY_AFTER })
    }
}

/// The answers of one call: whose they are, and what they are taken of.
#[derive(Clone)]
pub(super) struct Answers {
    pub(super) room: Arc<Room>,
    pub(super) of: Arc<AtomicUsize>,
    pub(super) env: Env,
    pub(super) wait: Duration,
}

impl Answers {
    /// Bytes of an answer.
    ///
    /// # Errors
    /// `Busy`.
    pub(super) async fn take(&self, bytes: usize) -> Result<Taken, CallError> {
        let bytes = bytes.min(self.room.max);
        let Self { room, of, env, wait } = self.clone();
        match room.at_once(&of, bytes) {
            Some(taken) => Ok(taken),
            None => room.within(of, bytes, env, wait).await,
        }
    }
}

/// What an answer takes before it is made: as much as it may have.
pub(super) struct Reserving {
    answers: Answers,
    taken: Mutex<Option<Taken>>,
}

impl Reserving {
    pub(super) fn new(answers: Answers) -> Self {
        Self { answers, taken: Mutex::default() }
    }

    fn taken(&self) -> MutexGuard<'_, Option<Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes so many, where that is more than none.
    ///
    /// # Errors
    /// `Busy`.
    pub(super) async fn reserve(&self, bytes: usize) -> Result<(), CallError> {
        if bytes > 0 {
            let taken = self.answers.take(bytes).await?;
            *self.taken() = Some(taken);
        }
        Ok(())
    }

    /// So many of what was reserved; or anew, where that is less.
    ///
    /// # Errors
    /// `Busy`.
    pub(super) async fn exactly(&self, bytes: usize) -> Result<Taken, CallError> {
        let reserved = self.taken().take().filter(|reserved| reserved.bytes >= bytes);
        match reserved {
            Some(mut reserved) => {
                reserved.keep(bytes);
                Ok(reserved)
            }
            None => self.answers.take(bytes).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_no_more_than_it_leaves_free() {
        let room = Room::new(128);
        let [one, two, three] = [(); 3].map(|()| Arc::<AtomicUsize>::default());
        let mut taken = Vec::new();
        let mut fill = |of: &Arc<AtomicUsize>| {
            while let Some(some) = room.at_once(of, 2) {
                taken.push(some);
            }
            of.load(Ordering::Relaxed)
        };
        assert_eq!([fill(&one), fill(&two), fill(&three)], [64, 32, 16]);
        assert_eq!(*room.held.lock().expect("no panic"), 112);
        taken.clear();
        assert_eq!([&one, &two, &three].map(|of| of.load(Ordering::Relaxed)), [0; 3]);
        assert_eq!(*room.held.lock().expect("no panic"), 0);
    }

    #[test]
    fn the_first_may_be_as_large_as_all_that_is_free() {
        let room = Room::new(100);
        let [one, two] = [(); 2].map(|()| Arc::<AtomicUsize>::default());
        let first = room.at_once(&one, 90);
        assert!(first.is_some() && room.at_once(&one, 5).is_none());
        assert!(
            room.at_once(&two, 10)
                .is_some_and(|second| room.at_once(&two, 1).is_none() && second.bytes == 10)
        );
        assert!(room.at_once(&two, 11).is_none());
    }

    #[test]
    fn what_is_given_back_early_is_given_back_once() {
        let (room, one) = (Room::new(100), Arc::<AtomicUsize>::default());
        let mut taken = room.at_once(&one, 80).expect("there is room");
        taken.keep(90);
        taken.keep(30);
        assert_eq!((*room.held.lock().expect("no panic"), one.load(Ordering::Relaxed)), (30, 30));
        drop(taken);
        assert_eq!((*room.held.lock().expect("no panic"), one.load(Ordering::Relaxed)), (0, 0));
    }

    #[tokio::test]
    async fn an_answer_takes_what_it_has_though_less_was_reserved() {
        let (room, of) = (Room::new(100), Arc::<AtomicUsize>::default());
        let (env, wait) = (Env::real(), Duration::from_millis(20));
        let answers = Answers { room: Arc::clone(&room), of: of.clone(), env, wait };
        for (reserved, bytes) in [(0, 30), (40, 30), (20, 30)] {
            let reserving = Reserving::new(answers.clone());
            reserving.reserve(reserved).await.expect("there is room");
            assert_eq!(of.load(Ordering::Relaxed), reserved);
            let taken = reserving.exactly(bytes).await.expect("there is room");
            assert_eq!((taken.bytes, of.load(Ordering::Relaxed)), (30, 30));
        }
        let reserving = Reserving::new(answers);
        reserving.reserve(30).await.expect("there is room");
        drop(reserving);
        assert_eq!(of.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn who_waits_takes_what_is_freed_and_is_busy_after_its_time() {
        let (room, env) = (Room::new(100), Env::real());
        let [one, two] = [(); 2].map(|()| Arc::<AtomicUsize>::default());
        let held = room.at_once(&one, 80);
        let waits = |wait| room.clone().within(two.clone(), 50, env.clone(), wait);
        let late = waits(Duration::from_millis(20)).await;
        assert!(matches!(late, Err(CallError::Busy { .. })));
        let free = async {
            tokio::task::yield_now().await;
            drop(held);
        };
        let (taken, ()) = tokio::join!(waits(Duration::from_secs(60)), free);
        assert_eq!(taken.expect("there is room").bytes, 50);
    }
}
