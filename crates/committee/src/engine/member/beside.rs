//! What a member does beside its one task, on the other threads of its runtime, and what comes back from there.
//!
//! Signatures: a few are checked at once where they come in, since a lone update waits for nothing; more go to a task of their own,
//! as many as came together. What is under way is bounded ([`CHECKING_BYTES_MAX`]); over that clients' are checked here, which keeps
//! them waiting, and what other members pass on is dropped: they have it, and no member has the one task to itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use commonware_utils::channel::{mpsc, oneshot};

use super::{Member, tell_all};
use crate::engine::pool::Reply;
use crate::engine::{Key, Runtime, now_ms};
use crate::{CommitteeError, Submission};

/// So few are checked at once.
const FEW: usize = 4;
/// Submissions that are checked in one task.
const TOGETHER: usize = 64;
/// Bytes of submissions that are being checked.
const CHECKING_BYTES_MAX: usize = 16 << 20;

/// What came back.
pub(super) enum Done {
    /// What another member passed on: those that hold, and whether all did.
    Passed(Key, Vec<Submission>, bool),
    /// What clients sent: each that holds, or why not, and who waits.
    Asked(Vec<(Result<Submission, CommitteeError>, Reply)>),
    /// The disk failed.
    Failed(CommitteeError),
}

/// What is under way.
pub(super) struct Beside {
    done: mpsc::UnboundedSender<Done>,
    checking: Arc<AtomicUsize>,
    /// Clients' submissions that are to be checked.
    asked: Vec<(Submission, Reply)>,
}

/// Bytes that are being checked, until this goes.
struct UnderWay {
    checking: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.checking.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Beside {
    pub(super) fn new(done: mpsc::UnboundedSender<Done>) -> Self {
        Self { done, checking: Arc::default(), asked: Vec::new() }
    }

    /// As if so much were being checked that nothing more is, or no longer.
    #[cfg(test)]
    pub(super) fn fill(&self, full: bool) {
        self.checking.store(if full { CHECKING_BYTES_MAX } else { 0 }, Ordering::Relaxed);
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.checking.load(Ordering::Relaxed) + bytes <= CHECKING_BYTES_MAX
    }
}

/// Decodes and checks one in bytes of its own: a short one would else keep the whole message.
pub(super) fn checked(bytes: &[u8]) -> Result<Submission, CommitteeError> {
    Submission::detached(bytes).and_then(Submission::verify)
}

impl<E: Runtime> Member<E> {
    /// Does work on another thread; what comes of it comes back.
    fn do_beside(&self, bytes: usize, work: impl FnOnce() -> Done + Send + 'static) {
        let (done, checking) = (self.beside.done.clone(), Arc::clone(&self.beside.checking));
        checking.fetch_add(bytes, Ordering::Relaxed);
        let under_way = UnderWay { checking, bytes };
        // Beside the threads of connections and disk: it takes milliseconds at a time.
        let task = self.context.child("check").shared(true).spawn(move |_| async move {
            let what = work();
            drop(under_way);
            // Where nobody takes it the member is gone.
            let _ = done.send(what);
        });
        drop(task);
    }

    /// Checks what another member passed on.
    pub(super) fn check_passed(
        &mut self,
        from: &Key,
        all: Vec<Bytes>,
    ) -> Result<(), CommitteeError> {
        let check = |from: Key, all: &[Bytes]| {
            let mut good = Vec::with_capacity(all.len());
            for bytes in all {
                match checked(bytes) {
                    Ok(submission) => good.push(submission),
                    Err(_) => return Done::Passed(from, good, false),
                }
            }
            Done::Passed(from, good, true)
        };
        for together in all.chunks(TOGETHER) {
            let bytes = together.iter().map(Bytes::len).sum();
            if together.len() <= FEW {
                self.done(check(from.clone(), together))?;
            } else if self.beside.has_room(bytes) {
                let (from, together) = (from.clone(), together.to_vec());
                self.do_beside(bytes, move || check(from, &together));
            } else {
                tracing::debug!(%from, "what a member passes on is dropped: too much is being checked");
            }
        }
        Ok(())
    }

    /// Takes a client's submission to be checked with the others that came at once.
    pub(super) fn ask_check(&mut self, submission: Submission, reply: Reply) {
        self.beside.asked.push((submission, reply));
    }

    /// Checks what clients sent.
    pub(super) fn check_asked(&mut self) {
        let check = |all: Vec<(Submission, Reply)>| {
            let one = |(submission, reply): (Submission, Reply)| (submission.verify(), reply);
            Done::Asked(all.into_iter().map(one).collect())
        };
        let mut all = std::mem::take(&mut self.beside.asked);
        while !all.is_empty() {
            let rest = all.split_off(all.len().min(TOGETHER));
            let together = std::mem::replace(&mut all, rest);
            let bytes = together.iter().map(|(one, _)| one.size()).sum();
            if together.len() <= FEW || !self.beside.has_room(bytes) {
                let Done::Asked(all) = check(together) else { continue };
                all.into_iter().for_each(|(checked, reply)| self.take_checked(checked, reply));
            } else {
                self.do_beside(bytes, move || check(together));
            }
        }
    }

    /// Answers the engine once all that was written is on the disk.
    pub(super) async fn tell_when_synced(&mut self, all: Vec<oneshot::Sender<bool>>) {
        let Some(sync) = self.log.start_sync().await else {
            tell_all(all, true);
            return;
        };
        let (over, done) = (self.log.under_way(), self.beside.done.clone());
        let task = self.context.child("sync").spawn(move |_| async move {
            match sync.await {
                Ok(()) => {
                    over.store(true, Ordering::Release);
                    tell_all(all, true);
                }
                Err(error) => drop(done.send(Done::Failed(CommitteeError::Storage(error)))),
            }
        });
        drop(task);
    }

    /// Takes what came back.
    pub(super) fn done(&mut self, done: Done) -> Result<(), CommitteeError> {
        match done {
            Done::Passed(from, good, whole) => {
                let ours = good.iter().all(|one| self.is_ours(one));
                if !whole || !ours {
                    self.offended(&from, "passed on an update that is none");
                    return Ok(());
                }
                let members = self.term.keys().len();
                for submission in good {
                    if !self.pool.was_decided(&submission) {
                        // One that finds no room here waits at the member that passed it on.
                        let _ = self.pool.take_passed(submission, &from, members);
                    }
                }
            }
            Done::Asked(all) => {
                all.into_iter().for_each(|(checked, reply)| self.take_checked(checked, reply));
            }
            Done::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes a client's submission that was checked.
    fn take_checked(&mut self, checked: Result<Submission, CommitteeError>, reply: Reply) {
        let taken = checked.and_then(|submission| {
            let (key, bytes) = (*submission.key(), submission.encode());
            if self.pool.take(submission)? {
                self.outbox.push(bytes);
            }
            Ok(key)
        });
        match taken {
            Ok(key) => {
                let until = now_ms(&self.context) + self.settings.answer_within.as_millis() as u64;
                self.pool.wait(&key, reply, until);
            }
            Err(error) => drop(reply.send(Err(error))),
        }
    }
}
