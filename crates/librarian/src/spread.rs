//! Spreading the publications of envelopes stored here.
//!
//! ```text
//!              few peers, or nobody to give it to
//! stored --> turn -----------------------------------> tell --> mesh
//!              |  many peers: to the teller of the hour    ^
//!              '--> give --(a call)--> it --> its tell     |
//!                     '-- not heard of after a while ------'
//! ```
//! A message costs every peer some tenths of a millisecond, whatever is in it: so what counts is how many there are.
//!
//! 1. All holders of an envelope could tell of it, up to 14 of them. The first of its rank does, the others in their
//!    turn, unless they heard it by then: the overlay leaves out what it knows.
//! 2. A peer tells at most twice a second, and where one tells for all five times in four seconds, all that is due together.
//! 3. In a network of more than [`DIRECT_MAX`] peers they give what they have to one of them, the *teller*, whom
//!    a hash of the time chooses for some minutes, so that all of the network's publications are some messages a second.
//!    It is trusted with nothing: an envelope proves itself, and who gave one and does not hear it tells by itself.
//!
//! A store's answer does not wait for any of it: the publication is durable in this peer's log by then, and
//! what the mesh loses the others find by catching up. So a failure here costs seconds, not news.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{PeerId, Place, Suite};
use document::{Kind, Publication};
use env::Env;
use env::calls::{CallError, TELL_BYTES_MAX, TELL_MAX};
use overlay::{News, Overlay, OverlayError};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use walk::Health;

use crate::core::Core;
use crate::metrics::{Dropped, Source};
use crate::news;
use crate::publications::SPREAD_MAX;

/// Tries for one message while the overlay is busy.
const TRIES_MAX: u32 = 8;
/// The pause after the first try; it doubles with each.
const PAUSE: Duration = Duration::from_millis(20);
/// From one message, or one giving, to the next.
const EVERY: Duration = Duration::from_millis(500);
/// From one message to the next of who tells for all: each wakes every peer as often as it has links in the mesh.
const EVERY_FOR_ALL: Duration = Duration::from_millis(800);
/// How much later each further holder tells: time for the one before it (and the teller), and for the message to arrive.
const TURN: Duration = Duration::from_millis(1_500);
/// Holders after this one tell when it does: by then something is wrong with those before.
const TURNS_MAX: usize = 3;
/// Up to so many peers, each tells by itself.
const DIRECT_MAX: usize = 16;
/// For how long one peer is the teller.
const TELLER_FOR_MS: u64 = 10 * 60 * 1000;
/// Peers that may be it; the first that is well is.
const TELLERS: usize = 3;
/// The deadline of giving.
const GIVE_LIMIT: Duration = Duration::from_secs(1);
/// When whoever gave an envelope tells by itself, if it has not heard it.
const CONFIRM: Duration = Duration::from_secs(3);
/// When to try again what found no room here.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What comes to be spread.
pub(crate) enum ToSpread {
    /// The envelope was stored here.
    Stored(Bytes),
    /// Another peer gave it to this one, the teller; with its part of the room for such.
    Given(Bytes, OwnedSemaphorePermit),
}

/// An envelope that waits.
struct Held {
    envelope: Bytes,
    /// Given back when it is told.
    _room: Option<OwnedSemaphorePermit>,
}

/// Envelopes that wait until they are due.
#[derive(Default)]
struct Waiting {
    due: BTreeMap<(Duration, u64), Held>,
    number: u64,
    /// Not before this.
    next: Duration,
}

impl Waiting {
    fn add(&mut self, due: Duration, envelope: Bytes) {
        self.hold(due, Held { envelope, _room: None });
    }

    fn hold(&mut self, due: Duration, held: Held) {
        self.number += 1;
        self.due.insert((due, self.number), held);
    }

    /// When to look again.
    fn first(&self) -> Option<Duration> {
        self.due.first_key_value().map(|((due, _), _)| (*due).max(self.next))
    }

    /// Takes what is due, as much as goes into one message or call.
    fn take(&mut self, now: Duration) -> Vec<Bytes> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        if now < self.next {
            return taken;
        }
        while taken.len() < TELL_MAX
            && let Some(first) = self.due.first_entry()
            && first.key().0 <= now
            && bytes + first.get().envelope.len() <= TELL_BYTES_MAX
        {
            bytes += first.get().envelope.len();
            taken.push(first.remove().envelope);
        }
        taken
    }
}

/// What waits, and for which way.
#[derive(Default)]
struct Spreading {
    give: Waiting,
    tell: Waiting,
}

impl Spreading {
    fn is_full(&self) -> bool {
        self.give.due.len() + self.tell.due.len() >= SPREAD_MAX
    }

    fn first(&self) -> Option<Duration> {
        self.give.first().into_iter().chain(self.tell.first()).min()
    }
}

/// Spreads what comes until the queue closes, or until the log stops; what waits then is told at once.
pub(crate) async fn spread_all(core: Arc<Core>, mut queue: mpsc::Receiver<ToSpread>) {
    let mut spreading = Spreading::default();
    loop {
        let until = spreading.first().map(|first| first.saturating_sub(core.env.clock.elapsed()));
        let due = async {
            match until {
                Some(left) => core.env.clock.sleep(left).await,
                None => std::future::pending().await,
            }
        };
        let came = tokio::select! {
            biased;
            () = core.stop_log.cancelled() => break,
            () = due => None,
            // Where too much waits the queue fills, and what does not fit there is left to catching up.
            came = queue.recv(), if !spreading.is_full() => Some(came),
        };
        // Not from before: it may have been long until something came.
        let now = core.env.clock.elapsed();
        match came {
            Some(Some(ToSpread::Stored(envelope))) => {
                let (turn, peers) = (turn(&core, &envelope), core.directory.view().len());
                let first = turn.is_zero() && peers > DIRECT_MAX;
                let way = if first { &mut spreading.give } else { &mut spreading.tell };
                way.add(now + turn, envelope);
            }
            Some(Some(ToSpread::Given(envelope, room))) => {
                spreading.tell.hold(now, Held { envelope, _room: Some(room) });
            }
            Some(None) => break,
            None => {
                give(&core, &mut spreading).await;
                let many = core.directory.view().len() > DIRECT_MAX;
                let every = if many { EVERY_FOR_ALL } else { EVERY };
                tell(&core, &mut spreading.tell, every).await;
            }
        }
    }
    while let Ok(ToSpread::Stored(envelope) | ToSpread::Given(envelope, _)) = queue.try_recv() {
        spreading.tell.add(Duration::ZERO, envelope);
    }
    let Spreading { give, tell: mut rest } = spreading;
    // Numbers count in each list by itself: an envelope of one must not replace one of the other.
    give.due.into_values().for_each(|held| rest.hold(Duration::ZERO, held));
    rest.next = Duration::ZERO;
    while !rest.due.is_empty() {
        publish_all(&core, rest.take(Duration::MAX)).await;
    }
}

/// How long this peer lets others tell of an envelope first.
fn turn(core: &Core, envelope: &Bytes) -> Duration {
    let place = Place::from(core.genesis.suite.id(envelope));
    let copies = core.walker.redundancy(Kind::Envelope).copies as usize;
    let holders = core.directory.view().holders(&place, copies);
    // Of who is no holder nobody knows who else was given it.
    let rank = holders.iter().position(|holder| *holder == core.own).unwrap_or(0);
    TURN * u32::try_from(rank.min(TURNS_MAX)).unwrap_or(u32::MAX)
}

/// Who tells for all now, as this peer sees it. Where others see it otherwise there are two for a while.
fn teller(core: &Core) -> Option<PeerId> {
    let epoch = core.env.clock.unix_ms() / TELLER_FOR_MS;
    let hash = Suite::Holdfast1.hash(&[&b"holdfast teller"[..], &epoch.to_be_bytes()].concat());
    let tellers = core.directory.view().holders(&Place::new(hash), TELLERS);
    let well = |peer: &PeerId| *peer == core.own || core.directory.health(peer) == Health::Healthy;
    tellers.into_iter().find(well)
}

/// Gives the teller what is due; where there is none, or this peer is it, it tells by itself.
async fn give(core: &Core, spreading: &mut Spreading) {
    let now = core.env.clock.elapsed();
    let envelopes = spreading.give.take(now);
    if envelopes.is_empty() {
        return;
    }
    spreading.give.next = now + EVERY;
    let to = teller(core).filter(|peer| *peer != core.own);
    let given = match to.and_then(|peer| core.directory.endpoint(&peer)) {
        Some(to) => match core.calls.tell(&to, envelopes.clone(), GIVE_LIMIT).await {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(address = %to.address, %error, "the teller takes nothing");
                false
            }
        },
        None => false,
    };
    let due = if given { now + CONFIRM } else { now };
    envelopes.into_iter().for_each(|envelope| spreading.tell.add(due, envelope));
}

async fn tell(core: &Core, waiting: &mut Waiting, every: Duration) {
    let envelopes = waiting.take(core.env.clock.elapsed());
    if !envelopes.is_empty() && publish_all(core, envelopes).await > 0 {
        waiting.next = core.env.clock.elapsed() + every;
    }
}

/// Tells all others; of how many they had not heard.
async fn publish_all(core: &Core, envelopes: Vec<Bytes>) -> usize {
    let count = envelopes.len();
    let news: Vec<News> = envelopes.into_iter().map(News::Envelope).collect();
    let mut pause = PAUSE;
    for _ in 0..TRIES_MAX {
        match core.overlay.publish_all(news.clone()).await {
            Ok(told) => return told,
            Err(OverlayError::Busy) => {
                core.env.clock.sleep(pause).await;
                pause *= 2;
            }
            Err(error) => {
                tracing::warn!(%error, "news could not be spread");
                break;
            }
        }
    }
    core.metrics.spread_lost(count);
    0
}

/// Takes envelopes that another peer gives this one to tell of. Each counts as one of its news: it may not tell more by
/// way of another peer than by itself.
///
/// # Errors
/// `Invalid` where one is no envelope, `Busy` where too much waits or the peer tells too much; nothing was taken then.
pub(crate) fn given(core: &Core, by: PeerId, envelopes: &[Bytes]) -> Result<(), CallError> {
    let bytes = envelopes.iter().map(Bytes::len).sum::<usize>();
    if !(1..=TELL_MAX).contains(&envelopes.len()) || bytes > TELL_BYTES_MAX {
        let reason = format!("not 1 to {TELL_MAX} envelopes of together {TELL_BYTES_MAX} bytes");
        return Err(CallError::Invalid { reason });
    }
    let mut entries = Vec::with_capacity(envelopes.len());
    for envelope in envelopes {
        let (_, publication) = Publication::told_by(core.genesis.suite, envelope)
            .map_err(|error| CallError::Invalid { reason: error.to_string() })?;
        entries.extend(core.publications.heard(publication, Source::News));
    }
    if !news::may_tell(core, Some(by), envelopes.len()) || !core.publications.carry(envelopes) {
        return Err(CallError::Busy { retry_after: RETRY_AFTER });
    }
    // What finds no room in the log's queue, or on the disk, is found by catching up.
    let full = !entries.is_empty() && core.shelf.is_full();
    for entry in entries {
        if full {
            core.metrics.dropped(Dropped::Full);
        } else if !core.publications.offer(entry) {
            core.metrics.dropped(Dropped::Queue);
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(number: u64) -> Bytes {
        number.to_be_bytes().to_vec().into()
    }

    #[test]
    fn what_is_due_is_taken_in_order_and_in_bounded_parts() {
        let mut waiting = Waiting::default();
        for number in 0..TELL_MAX as u64 + 3 {
            waiting.add(Duration::from_secs(if number == 0 { 9 } else { 1 }), envelope(number));
        }
        assert!(waiting.take(Duration::ZERO).is_empty());
        let first = waiting.take(Duration::from_secs(1));
        assert_eq!((first.len(), &first[0]), (TELL_MAX, &envelope(1)));
        assert_eq!(waiting.take(Duration::from_secs(8)).len(), 2);
        assert_eq!(waiting.first(), Some(Duration::from_secs(9)));
        waiting.next = Duration::from_secs(11);
        assert_eq!(waiting.first(), Some(Duration::from_secs(11)));
        assert!(waiting.take(Duration::from_secs(10)).is_empty());
        assert_eq!(waiting.take(Duration::MAX).len(), 1);
    }

    #[test]
    fn one_message_holds_what_its_bytes_allow() {
        let mut waiting = Waiting::default();
        for _ in 0..3 {
            waiting.add(Duration::ZERO, vec![0; TELL_BYTES_MAX / 2].into());
        }
        assert_eq!(waiting.take(Duration::ZERO).len(), 2);
        assert_eq!(waiting.take(Duration::ZERO).len(), 1);
    }
}
