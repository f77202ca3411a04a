//! Puts that hear of a stop: what is stored is told without its late copies, and what is not is dropped.
//!
//! Once all of a put is acknowledged only its address is to be told. Dropped then, while it waits for copies that are late (a
//! minute where a holder hangs), a content would be stored and paid for, and nobody knew by which address.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use author::Progress;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::progress::Bar;

/// A put's progress, which knows whether it is stored.
struct Late {
    bar: Arc<Bar>,
    stop: CancellationToken,
    stored: AtomicBool,
}

/// Runs a put until it is done; `None` where `stop` came before all of it was acknowledged.
pub(crate) async fn until_stopped<F: Future>(
    stop: &CancellationToken,
    bar: Arc<Bar>,
    put: impl FnOnce(Arc<dyn Progress>) -> F,
) -> Option<F::Output> {
    let late = Arc::new(Late { bar, stop: stop.clone(), stored: AtomicBool::new(false) });
    let mut put = Box::pin(put(late.clone()));
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        done = &mut put => return Some(done),
    }
    if late.stored.load(Ordering::Relaxed) { Some(put.await) } else { None }
}

impl Progress for Late {
    fn content(&self, bytes: u64) {
        self.bar.content(bytes);
    }

    fn sealed(&self, bytes: u64) {
        self.bar.sealed(bytes);
    }

    fn sent(&self, copies: u32, bytes: u64) {
        self.bar.sent(copies, bytes);
    }

    fn acked(&self, copies: u32, bytes: u64) {
        self.bar.acked(copies, bytes);
    }

    fn restarted(&self) {
        self.bar.restarted();
    }

    fn acknowledged(&self) -> BoxFuture<'static, ()> {
        self.stored.store(true, Ordering::Relaxed);
        Box::pin(self.stop.clone().cancelled_owned())
    }

    fn waiting(&self) {
        self.bar.waiting();
    }

    fn total(&self, bytes: u64) {
        self.bar.total(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::Out;

    /// What a put comes to that is stopped when it is acknowledged, or before.
    async fn stopped(is_stored: bool) -> Option<&'static str> {
        let (stop, out) = (CancellationToken::new(), Out::new(false, true));
        let put = |progress: Arc<dyn Progress>| {
            let stop = stop.clone();
            async move {
                if is_stored {
                    let enough = progress.acknowledged();
                    stop.cancel();
                    enough.await;
                    return "stored";
                }
                stop.cancel();
                std::future::pending().await
            }
        };
        until_stopped(&stop, Bar::new(&out, "put"), put).await
    }

    #[tokio::test]
    async fn what_is_stored_is_told_and_what_is_not_is_dropped() {
        assert_eq!(stopped(true).await, Some("stored"));
        assert_eq!(stopped(false).await, None);
    }
}
