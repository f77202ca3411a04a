//! The bytes in flight of one author: one semaphore bounds them all.
//!
//! A put or a get of any length runs within the same memory because each chunk, or each segment of a stripe, takes a lease of
//! bytes before it is read (or fetched) and gives it back only when nothing of it is needed any more: not its plaintext, not
//! its pages and their parity, not the buffers in which copies leave. One semaphore over bytes, and not a bound a stage,
//! lets whatever stage is slow today use all of the memory.
//!
//! A lease of more than the window is the window: such a stripe goes alone, and takes what it takes. So a window that is
//! smaller than a stripe of its profile bounds how many there are at once, to one, and not how large that one is.
//!
//! Invariants: leases never sum to more than the window ([`Window::peak`] is what tests look at); leases are granted in
//! the order they were asked for, so the chunk that a consumer waits for next always has one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes in flight of one author where the options say nothing: three stripes of 4/8, or one of 16/48. What is no lease,
/// in connections and kept for the next page, is to fit beside them into 64 MiB.
pub const WINDOW_BYTES: usize = 48 << 20;
/// The smallest window: a chunk, its page and two copies on their way.
pub const WINDOW_BYTES_MIN: usize = 8 << 20;
/// The largest window; beyond it more memory buys nothing.
pub const WINDOW_BYTES_MAX: usize = 1 << 30;

/// The window. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    semaphore: Arc<Semaphore>,
    bytes: usize,
    held: Arc<Held>,
}

#[derive(Debug, Default)]
struct Held {
    now: AtomicUsize,
    peak: AtomicUsize,
}

/// Bytes of the window, given back when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    permit: Mutex<OwnedSemaphorePermit>,
    held: Arc<Held>,
}

impl Window {
    /// A window of so many bytes, from [`WINDOW_BYTES_MIN`] to [`WINDOW_BYTES_MAX`].
    pub(crate) fn new(bytes: usize) -> Self {
        let bytes = bytes.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        Self { semaphore: Arc::new(Semaphore::new(bytes)), bytes, held: Arc::default() }
    }

    /// Waits for so many bytes; more than the window has count as all of it. Cancel safe.
    pub(crate) async fn lease(&self, bytes: usize) -> Lease {
        let bytes = bytes.clamp(1, self.bytes);
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let semaphore = Arc::clone(&self.semaphore);
        let permit = semaphore.acquire_many_owned(permits).await;
        let permit = permit.expect("the window's semaphore is never closed");
        let now = self.held.now.fetch_add(bytes, Ordering::AcqRel) + bytes;
        self.held.peak.fetch_max(now, Ordering::AcqRel);
        Lease { permit: Mutex::new(permit), held: Arc::clone(&self.held) }
    }

    /// Its size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes leased right now.
    pub(crate) fn held(&self) -> usize {
        self.held.now.load(Ordering::Acquire)
    }

    /// The most bytes that were ever leased at one time.
    pub(crate) fn peak(&self) -> usize {
        self.held.peak.load(Ordering::Acquire)
    }
}

impl Lease {
    /// Gives back all but so many bytes. It never grows: whoever holds bytes and waits for more can lock everybody up.
    pub(crate) fn shrink(&self, bytes: usize) {
        self.split(|held| held.saturating_sub(bytes));
    }

    /// Gives back so many bytes, or what it has.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.split(|held| held.min(bytes));
    }

    fn split(&self, surplus: impl FnOnce(usize) -> usize) {
        let mut permit = self.permit();
        let surplus = surplus(permit.num_permits());
        if let Some(given_back) = permit.split(surplus) {
            self.held.now.fetch_sub(surplus, Ordering::AcqRel);
            drop(given_back);
        }
    }

    fn permit(&self) -> MutexGuard<'_, OwnedSemaphorePermit> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Before the permit is back, so that the count is never above what the semaphore gave out.
        let bytes = self.permit().num_permits();
        self.held.now.fetch_sub(bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn leases_wait_for_each_other_and_never_pass_the_window() {
        let window = Window::new(WINDOW_BYTES_MIN);
        let first = window.lease(6 << 20).await;
        let second = window.lease(4 << 20);
        futures::pin_mut!(second);
        assert!(second.as_mut().now_or_never().is_none(), "4 of the 2 MiB left");
        first.shrink(3 << 20);
        let second = second.now_or_never().expect("5 MiB are free");
        assert_eq!(window.held(), 7 << 20);
        second.give_back(1 << 20);
        assert_eq!(window.held(), 6 << 20);
        second.give_back(4 << 20);
        assert_eq!(window.held(), 3 << 20, "no more than it had");
        drop((first, second));
        assert_eq!((window.held(), window.peak()), (0, 7 << 20));
    }

    #[tokio::test]
    async fn a_lease_over_the_window_is_the_window() {
        let window = Window::new(0);
        let lease = window.lease(usize::MAX).await;
        assert_eq!(window.held(), window.bytes());
        drop(lease);
        assert_eq!(window.held(), 0);
    }

    #[tokio::test]
    async fn a_cancelled_wait_takes_nothing() {
        let window = Window::new(WINDOW_BYTES_MIN);
        let all = window.lease(WINDOW_BYTES_MIN).await;
        assert!(window.lease(1).now_or_never().is_none());
        drop(all);
        let all = window.lease(WINDOW_BYTES_MIN).now_or_never();
        assert!(all.is_some(), "the cancelled one is out of the queue");
    }
}
