//! Answers that nobody reads.
//!
//! HTTP/2 lets a caller take an answer as slowly as it likes: it opens its windows, or never does, or reads nothing of its
//! socket. Till then the answer lies here, and its call counts. So what waits for its reader for longer than the bound ends the
//! connection it is of; with that all answers of the connection go.
//!
//! ```text
//! answer begun -- waits --asked for its first part--> not waiting
//! a part handed over -- waits --its bytes were written, and dropped--> not waiting
//!                          |
//!                          +--bound reached--> the connection ends
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use env::Env;
use tokio_util::sync::CancellationToken;

/// All answers of one server that wait.
#[derive(Default)]
pub(super) struct Unread(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    next: u64,
    /// Until when each may wait, and what ends its connection. All have the same bound, so they are in order of time.
    answers: BTreeMap<u64, (Duration, CancellationToken)>,
}

/// One answer.
pub(super) struct Answer {
    unread: Arc<Unread>,
    env: Env,
    bound: Duration,
    ends: CancellationToken,
    /// Its number while it waits.
    waits: Option<u64>,
}

impl Unread {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer that waits from now on; after `bound` it `ends` its connection.
    pub(super) fn answer(
        self: &Arc<Self>,
        env: &Env,
        bound: Duration,
        ends: CancellationToken,
    ) -> Answer {
        let mut answer =
            Answer { unread: self.clone(), env: env.clone(), bound, ends, waits: None };
        answer.waits();
        answer
    }

    /// Ends the connections of those that waited too long.
    fn end(&self, now: Duration) {
        let mut waiting = self.waiting();
        while let Some(first) = waiting.answers.first_entry()
            && first.get().0 <= now
        {
            let (_, ends) = first.remove();
            tracing::debug!("an answer was not read: its connection ends");
            ends.cancel();
        }
    }

    /// Looks after them, for ever: an answer waits at most a quarter of the bound longer than it.
    pub(super) async fn look(self: Arc<Self>, env: Env, bound: Duration) {
        loop {
            env.clock.sleep(bound / 4).await;
            self.end(env.clock.elapsed());
        }
    }
}

impl Answer {
    /// It waits from now on.
    fn waits(&mut self) {
        self.moves();
        let until = self.env.clock.elapsed() + self.bound;
        let mut waiting = self.unread.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.answers.insert(number, (until, self.ends.clone()));
        self.waits = Some(number);
    }

    /// It is asked for more.
    pub(super) fn moves(&mut self) {
        if let Some(number) = self.waits.take() {
            self.unread.waiting().answers.remove(&number);
        }
    }

    /// A part of it, that waits until it is dropped.
    pub(super) fn part(&self) -> Self {
        self.unread.answer(&self.env, self.bound, self.ends.clone())
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.moves();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_waits_ends_its_connection_and_one_that_moves_does_not() {
        let (unread, env) = (Arc::<Unread>::default(), Env::real());
        let bound = Duration::from_secs(5);
        let [slow, idle, gone] = [(); 3].map(|()| CancellationToken::new());
        let _slow = unread.answer(&env, bound, slow.clone());
        let mut moved = unread.answer(&env, bound, idle.clone());
        moved.moves();
        drop(unread.answer(&env, bound, gone.clone()));
        let now = env.clock.elapsed();
        unread.end(now);
        assert!(!slow.is_cancelled(), "not yet");
        unread.end(now + bound);
        assert!(slow.is_cancelled() && !idle.is_cancelled() && !gone.is_cancelled());
        let part = moved.part();
        unread.end(now + 3 * bound);
        assert!(idle.is_cancelled(), "a part of it waits");
        drop(part);
        assert!(unread.waiting().answers.is_empty());
    }
}
