//! Following one holder, again and again where it fails, each time from where it ended.

use std::time::Duration;

use crypto::PeerId;
use env::calls::objects::{WatchCursor, WatchEvent, WatchEvents, WatchRequest, Watched};
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::objects::Objects;

/// How long a holder may take for the first answer.
const FIRST_ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How much longer a call may take to say that it missed its deadline.
const LIMIT_GRACE: Duration = Duration::from_millis(500);
/// How long a holder may be silent: it sends a heartbeat more often.
const SILENCE_MAX: Duration = Duration::from_secs(75);
/// Waits between tries, doubling from the first to the last.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(10);

/// What a follower tells.
pub(super) enum Signal {
    /// An event.
    Event(WatchEvent),
    /// The holder cannot be followed now; it is tried again.
    Lost,
}

/// A follower's signals, with whose they are. It never ends.
pub(super) type Followed = BoxStream<'static, (PeerId, Signal)>;

struct Following {
    objects: Objects,
    peer: PeerId,
    what: Watched,
    cursor: Option<WatchCursor>,
    events: Option<WatchEvents>,
    wait: Duration,
}

/// Follows a holder from this cursor on.
pub(super) fn follow(
    objects: Objects,
    peer: PeerId,
    what: Watched,
    cursor: Option<WatchCursor>,
) -> Followed {
    let following = Following { objects, peer, what, cursor, events: None, wait: Duration::ZERO };
    let signals = futures::stream::unfold(following, |mut following| async move {
        let signal = following.next().await;
        Some(((following.peer, signal), following))
    });
    signals.boxed()
}

impl Following {
    async fn next(&mut self) -> Signal {
        let env = self.objects.author().env().clone();
        if self.events.is_none() {
            env.clock.sleep(self.wait).await;
            self.wait = (self.wait * 2).clamp(RETRY_FIRST, RETRY_LAST);
            self.events = self.call().await;
        }
        let Some(events) = &mut self.events else { return Signal::Lost };
        match env.within(SILENCE_MAX, events.next()).await {
            Ok(Some(Ok(event))) => {
                self.wait = Duration::ZERO;
                Signal::Event(self.own(event))
            }
            Ok(Some(Err(error))) => {
                tracing::debug!(peer = %self.peer, %error, "a watch ended");
                self.events = None;
                Signal::Lost
            }
            Ok(None) | Err(_) => {
                self.events = None;
                Signal::Lost
            }
        }
    }

    /// A cursor that a holder gave is into its own events, whatever it says: it moves no other holder's.
    fn own(&mut self, mut event: WatchEvent) -> WatchEvent {
        if let WatchEvent::Record { cursor: Some(cursor), .. } | WatchEvent::CaughtUp(cursor) =
            &mut event
        {
            cursor.peer = self.peer;
            self.cursor = Some(*cursor);
        }
        event
    }

    async fn call(&mut self) -> Option<WatchEvents> {
        let walker = self.objects.walker();
        let to = walker.directory().endpoint(&self.peer)?;
        let reader = self.objects.reader();
        let request = WatchRequest { what: self.what.clone(), from: self.cursor, reader };
        let call = walker.calls().watch(&to, request, FIRST_ANSWER_LIMIT);
        let env = self.objects.author().env();
        match env.within(FIRST_ANSWER_LIMIT + LIMIT_GRACE, call).await {
            Ok(Ok(events)) => Some(events),
            Ok(Err(error)) => {
                tracing::debug!(peer = %self.peer, %error, "a holder cannot be watched");
                None
            }
            Err(_) => None,
        }
    }
}
