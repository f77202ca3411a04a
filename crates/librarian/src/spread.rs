//! Spreading the publications of envelopes stored here.
//!
//! A store's answer does not wait for it: the publication is durable in this peer's log by then, and
//! what the mesh loses the others find by catching up. So a failure here costs seconds, not news.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use overlay::{News, Overlay, OverlayError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// Tries for one envelope while the overlay is busy.
const TRIES_MAX: u32 = 8;
/// The pause after the first try; it doubles with each.
const PAUSE: Duration = Duration::from_millis(20);

/// Spreads what comes until the queue closes, or until `stop` and nothing waits.
pub(crate) async fn spread_all(
    env: Env,
    overlay: Arc<dyn Overlay>,
    metrics: Arc<Metrics>,
    mut queue: mpsc::Receiver<Bytes>,
    stop: CancellationToken,
) {
    loop {
        let envelope = tokio::select! {
            biased;
            next = queue.recv() => next,
            () = stop.cancelled() => return,
        };
        let Some(envelope) = envelope else { return };
        if !publish(&env, overlay.as_ref(), News::Envelope(envelope)).await {
            metrics.spread_lost();
        }
    }
}

/// Publishes news, with patience where the overlay is busy; `false` where it did not take them.
pub(crate) async fn publish(env: &Env, overlay: &dyn Overlay, news: News) -> bool {
    let mut pause = PAUSE;
    for _ in 0..TRIES_MAX {
        match overlay.publish(news.clone()).await {
            Ok(()) => return true,
            Err(OverlayError::Busy) => {
                env.clock.sleep(pause).await;
                pause *= 2;
            }
            Err(error) => {
                tracing::warn!(%error, "news could not be spread");
                return false;
            }
        }
    }
    false
}

/// Publishes news if the overlay takes them at once; others tell them too.
pub(crate) async fn publish_once(overlay: &dyn Overlay, news: News) {
    if let Err(error) = overlay.publish(news).await {
        tracing::debug!(%error, "news were not passed on");
    }
}
