//! How many calls are answered at once, in all and for one key.
//!
//! A peer that takes more than it can do is slow for everybody; one that says *busy* at once is
//! fast for most (the design's Q7). So a call takes a permit before any work and gives it back when
//! its future ends, however it ends. This bounds concurrency and bytes in flight; strangers together
//! get a part of it, so that keys made for the purpose cannot take every place, and those that introduce themselves
//! another: what strangers ask may wait (`Committee::read_at`), and nobody is kept from becoming known by it. Rates and
//! quotas are counted by `limiter` and `quota` behind it, and share its answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crypto::PublicKey;
use env::calls::CallError;
use tokio::sync::Notify;

use crate::options::Limits;
use crate::standing::Standing;
use crate::strain;

/// When to try again after a bound of calls: about what a few calls take.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// When to try a peer again that is going down: it will not be back sooner.
const RETRY_AFTER_DRAIN: Duration = Duration::from_secs(5);

/// Counts calls in progress.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: Limits,
    inner: Mutex<Inner>,
    idle: Notify,
    /// Many calls are being answered.
    crowd: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    calls: usize,
    /// Those of strangers, but for introductions.
    strangers: usize,
    /// Those by which strangers become known.
    introductions: usize,
    write_bytes: usize,
    /// Keys with calls in progress; at most `calls_max` of them.
    by_key: HashMap<PublicKey, usize>,
    draining: bool,
}

/// The right to answer one call; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    key: PublicKey,
    part: Part,
    write_bytes: usize,
}

/// What a call is counted with, besides all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Known,
    Stranger,
    Introduction,
}

impl Inner {
    /// How many calls there are of those that have a bound together.
    fn of(&mut self, part: Part) -> Option<&mut usize> {
        match part {
            Part::Known => None,
            Part::Stranger => Some(&mut self.strangers),
            Part::Introduction => Some(&mut self.introductions),
        }
    }
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            inner: Mutex::default(),
            idle: Notify::new(),
            crowd: Notify::new(),
        })
    }

    /// Lets a call in, with the record bytes it wants to write.
    ///
    /// # Errors
    /// `Busy` over a bound, or while the peer drains.
    pub(crate) fn enter(
        self: &Arc<Self>,
        key: &PublicKey,
        standing: &Standing,
        write_bytes: usize,
    ) -> Result<Permit, CallError> {
        let stranger = matches!(standing, Standing::Stranger);
        self.admit(key, standing, if stranger { Part::Stranger } else { Part::Known }, write_bytes)
    }

    /// Lets a call in that says who its caller is.
    ///
    /// # Errors
    /// As [`Admission::enter`].
    pub(crate) fn introduce(
        self: &Arc<Self>,
        key: &PublicKey,
        standing: &Standing,
    ) -> Result<Permit, CallError> {
        let stranger = matches!(standing, Standing::Stranger);
        self.admit(key, standing, if stranger { Part::Introduction } else { Part::Known }, 0)
    }

    fn admit(
        self: &Arc<Self>,
        key: &PublicKey,
        standing: &Standing,
        part: Part,
        write_bytes: usize,
    ) -> Result<Permit, CallError> {
        let mut inner = self.lock();
        if inner.draining {
            return Err(CallError::Busy { retry_after: RETRY_AFTER_DRAIN });
        }
        let own = inner.by_key.get(key).copied().unwrap_or(0);
        let strange = inner.of(part).is_some_and(|all| *all >= self.limits.calls_strangers_max);
        let own_max = match standing {
            Standing::Peer(..) => self.limits.calls_peer_max,
            Standing::Client { .. } => self.limits.calls_client_max,
            Standing::Stranger => self.limits.calls_stranger_max,
        };
        // One write always fits, so that a bound below a record's size does not refuse all.
        let crowded = inner.write_bytes + write_bytes > self.limits.write_bytes_max;
        let too_heavy = crowded && inner.write_bytes > 0 && write_bytes > 0;
        if inner.calls >= self.limits.calls_max || own >= own_max || strange || too_heavy {
            return Err(CallError::Busy { retry_after: RETRY_AFTER });
        }
        inner.calls += 1;
        if inner.calls == strain::CALLS {
            self.crowd.notify_one();
        }
        if let Some(all) = inner.of(part) {
            *all += 1;
        }
        inner.write_bytes += write_bytes;
        inner.by_key.insert(*key, own + 1);
        Ok(Permit { admission: Arc::clone(self), key: *key, part, write_bytes })
    }

    /// Lets nobody in any more.
    pub(crate) fn drain(&self) {
        self.lock().draining = true;
    }

    /// Whether [`Admission::drain`] was called.
    pub(crate) fn is_draining(&self) -> bool {
        self.lock().draining
    }

    /// Calls in progress, and the record bytes they write.
    pub(crate) fn in_progress(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.calls, inner.write_bytes)
    }

    /// Waits until [`strain::CALLS`] are in progress, or were since the last time. Cancel safe.
    pub(crate) async fn crowd(&self) {
        self.crowd.notified().await;
    }

    /// Waits until no call is in progress. Cancel safe.
    pub(crate) async fn idle(&self) {
        loop {
            let notified = self.idle.notified();
            futures::pin_mut!(notified);
            // Enabled before the look, so that the last permit's drop in between is not missed.
            notified.as_mut().enable();
            if self.lock().calls == 0 {
                return;
            }
            notified.await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut inner = self.admission.lock();
        inner.calls -= 1;
        if let Some(all) = inner.of(self.part) {
            *all -= 1;
        }
        inner.write_bytes -= self.write_bytes;
        let left = inner.by_key.get(&self.key).map_or(0, |own| own - 1);
        if left == 0 {
            inner.by_key.remove(&self.key);
        } else {
            inner.by_key.insert(self.key, left);
        }
        if inner.calls == 0 {
            self.admission.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> PublicKey {
        crypto::SecretKey::from_bytes(&[n; 32]).expect("a scalar").public()
    }

    fn small() -> Limits {
        Limits {
            calls_max: 3,
            calls_client_max: 2,
            calls_stranger_max: 1,
            write_bytes_max: 100,
            ..Limits::default()
        }
    }

    #[test]
    fn a_stranger_has_its_own_bound_and_gives_its_place_back() {
        let admission = Admission::new(small());
        let first = admission.enter(&key(1), &Standing::Stranger, 0).expect("room");
        assert!(admission.enter(&key(1), &Standing::Stranger, 0).is_err());
        let _other = admission.enter(&key(2), &Standing::Stranger, 0).expect("another key");
        drop(first);
        let _again = admission.enter(&key(1), &Standing::Stranger, 0).expect("room again");
        let _third = admission.enter(&key(3), &Standing::Stranger, 0).expect("room");
        assert!(admission.enter(&key(4), &Standing::Stranger, 0).is_err(), "over the whole");
        assert_eq!(admission.in_progress(), (3, 0));
    }

    #[test]
    fn strangers_together_leave_room_for_members() {
        let admission = Admission::new(Limits { calls_strangers_max: 2, ..small() });
        let first = admission.enter(&key(1), &Standing::Stranger, 0).expect("room");
        let _second = admission.enter(&key(2), &Standing::Stranger, 0).expect("room");
        assert!(admission.enter(&key(3), &Standing::Stranger, 0).is_err(), "a third stranger");
        let member = Standing::Peer(crypto::PeerId::new(key(4)), crypto::OrgId::new(key(5)));
        let _member = admission.enter(&key(4), &member, 0).expect("a member's place");
        drop(first);
        assert!(admission.enter(&key(3), &Standing::Stranger, 0).is_ok(), "given back");
    }

    /// Whatever strangers wait for, somebody becomes known beside it.
    #[test]
    fn strangers_that_ask_keep_none_from_introducing_themselves() {
        let limits = Limits { calls_max: 10, calls_strangers_max: 2, ..small() };
        let admission = Admission::new(limits);
        let asks = |n| admission.enter(&key(n), &Standing::Stranger, 0);
        let introduces = |n| admission.introduce(&key(n), &Standing::Stranger);
        let asking = [asks(1), asks(2)];
        assert!(asking.iter().all(Result::is_ok) && asks(3).is_err());
        let first = introduces(3).expect("a place of those that introduce themselves");
        let _second = introduces(4).expect("another");
        assert!(introduces(5).is_err() && introduces(3).is_err());
        drop(first);
        assert!(introduces(5).is_ok() && asks(5).is_err(), "each gives back what it took");
    }

    #[test]
    fn bytes_being_written_are_bounded_but_one_write_always_fits() {
        let admission = Admission::new(small());
        let large = admission.enter(&key(1), &Standing::Stranger, 1000).expect("alone");
        assert!(admission.enter(&key(2), &Standing::Stranger, 1).is_err());
        let _read = admission.enter(&key(2), &Standing::Stranger, 0).expect("reads go on");
        drop(large);
        assert_eq!(admission.in_progress(), (1, 0));
    }

    #[tokio::test]
    async fn draining_lets_nobody_in_and_waits_for_the_last() {
        let admission = Admission::new(small());
        let permit = admission.enter(&key(1), &Standing::Stranger, 0).expect("room");
        admission.drain();
        assert!(matches!(
            admission.enter(&key(2), &Standing::Stranger, 0),
            Err(CallError::Busy { .. })
        ));
        let idle = admission.idle();
        futures::pin_mut!(idle);
        assert!(futures::poll!(idle.as_mut()).is_pending());
        drop(permit);
        idle.await;
    }
}
