//! How many records are in memory at once to prove that they are here.
//!
//! A request for a proof is a hundred bytes, and the record that it reads up to 2 MiB: thousands may be asked for in a batch or
//! beside each other. A proof that began goes on where its caller goes away, as the thread does that reads or hashes for it,
//! so it has its place until then. One caller has no more than [`CALLER_MAX`], and no more wait for a place: others' are not behind
//! thousands of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crypto::PublicKey;
use env::Env;
use tokio::sync::Semaphore;

use crate::leases::owned;

/// Proofs being made at once: 64 MiB of records of the largest.
const PROOFS_MAX: usize = 32;

/// Of one caller.
const CALLER_MAX: usize = 8;
/// From so many callers on those without proofs are forgotten.
const CALLERS_SPARE: usize = 1_024;

/// The places of proofs being made.
#[derive(Debug)]
pub(crate) struct Proofs {
    all: Arc<Semaphore>,
    by_caller: Mutex<HashMap<PublicKey, Weak<Semaphore>>>,
}

impl Proofs {
    pub(crate) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(PROOFS_MAX)), by_caller: Mutex::default() }
    }

    /// The places of one caller.
    fn of(&self, caller: &PublicKey) -> Arc<Semaphore> {
        let mut by_caller = self.by_caller.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = by_caller.get(caller).and_then(Weak::upgrade) {
            return own;
        }
        if by_caller.len() >= CALLERS_SPARE {
            by_caller.retain(|_, own| own.strong_count() > 0);
        }
        let own = Arc::new(Semaphore::new(CALLER_MAX));
        by_caller.insert(*caller, Arc::downgrade(&own));
        own
    }

    /// Makes one when there is a place, in the order of arrival; `None` where the peer ends first.
    pub(crate) async fn make<T: Send + 'static>(
        &self,
        caller: &PublicKey,
        env: &Env,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let own = self.of(caller).acquire_owned().await.ok()?;
        let place = Arc::clone(&self.all).acquire_owned().await.ok()?;
        let placed = async move {
            let _places = (own, place);
            work.await
        };
        owned(env, placed).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use futures::stream::{FuturesUnordered, StreamExt};
    use tokio::sync::Notify;

    use super::*;

    fn key(n: u8) -> PublicKey {
        crypto::SecretKey::from_bytes(&[n; 32]).expect("a scalar").public()
    }

    /// Callers that go away leave what they began, and it keeps its place; others have theirs.
    #[tokio::test]
    async fn proofs_are_bounded_and_keep_their_places_though_their_callers_go_away() {
        let (env, proofs) = (Env::real(), Proofs::new());
        let (begun, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let one = |caller: u8| {
            let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
            let (proofs, env, caller) = (&proofs, &env, key(caller));
            async move {
                let work = async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    go_on.notified().await;
                };
                proofs.make(&caller, env, work).await
            }
        };
        for (callers, most) in
            [(1, CALLER_MAX), (1, CALLER_MAX), (2, 2 * CALLER_MAX), (9, PROOFS_MAX)]
        {
            let asked = (0..100 * callers).map(|number| one(1 + (number % callers) as u8));
            let mut asked: FuturesUnordered<_> = asked.collect();
            for _ in 0..200 {
                assert!(asked.next().now_or_never().is_none(), "none ends");
                tokio::task::yield_now().await;
            }
            assert_eq!(begun.load(Ordering::SeqCst), most, "of {callers} callers");
        }
        // What all of them held is free again.
        go_on.notify_waiters();
        let ended = one(20);
        futures::pin_mut!(ended);
        while begun.load(Ordering::SeqCst) == PROOFS_MAX {
            assert!(ended.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        go_on.notify_one();
        assert_eq!(ended.await, Some(()));
    }
}
