//! One subscriber's view of the publication log: from its cursor to the end, and on.
//!
//! Specification. A subscription starts
//!
//! 1. at the cursor's offset, where the cursor is of this peer's log and that offset is in it;
//! 2. else at the first publication logged after the cursor's time less [`REPLAY_MS`] (peers log the
//!    same publication at different times, and clocks differ);
//! 3. else, for a cursor without peer and time, at the start of the log.
//!
//! Where the log was cut so that it does not reach back to there, or ends before the cursor's offset
//! (it is not the log the cursor came from), a `Gap` comes first; one comes too where entries in between
//! are missing (damaged, or lost with a disk whose snapshot was restored). Then come all publications that
//! pass the filters, `CaughtUp` at the end of what is logged, new publications as they are logged, and
//! `CaughtUp` again whenever nothing came for [`crate::Rhythm::heartbeat`].
//!
//! Invariants: events are in the order of the log, none twice; a cursor resumes exactly after its
//! event; nothing polls (the stream sleeps until the log grew); nothing is told to a reader whose pass has run out.
//!
//! Limits: [`PAGE_MAX`] publications are in memory for a subscriber; it is pulled, see `seats`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{PeerId, Suite};
use document::Publication;
use document::bloom::Bloom;
use env::Env;
use env::calls::{CallError, Cursor, Events, KNOWN_KEY_BYTES, SubscribeEvent, SubscribeRequest};
use futures::StreamExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::publications::Publications;
use crate::right::Right;
use crate::seats::Seat;
use crate::shelf;

/// What is replayed to a subscriber that comes from another peer, in milliseconds.
pub(crate) const REPLAY_MS: u64 = 120_000;
/// Publications read from the log at once.
const PAGE_MAX: usize = 256;
/// When a subscriber that was ended may come again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Which publications pass.
pub(crate) struct Filter {
    suite: Suite,
    authors: Option<Bloom>,
    readers: Option<Bloom>,
    /// Those that the subscriber has.
    known: Option<Bloom>,
}

impl Filter {
    /// # Errors
    /// `Invalid` for what is no Bloom filter.
    pub(crate) fn new(suite: Suite, request: &SubscribeRequest) -> Result<Self, CallError> {
        let decode = |bytes: &Option<bytes::Bytes>, which: &str| {
            let decoded = bytes.as_ref().map(Bloom::decode).transpose();
            decoded.map_err(|error| CallError::Invalid {
                reason: format!("the filter of {which} is not valid: {error}"),
            })
        };
        Ok(Self {
            suite,
            authors: decode(&request.authors, "authors")?,
            readers: decode(&request.readers, "readers")?,
            known: decode(&request.known, "what is known")?,
        })
    }

    /// Only what was proven is logged, so what is no publication is damage, and does not pass.
    fn passes(&self, publication: &Bytes) -> bool {
        let has = |known: &Bloom| {
            let key = self.suite.id(publication);
            known.may_contain(&key.as_bytes()[..KNOWN_KEY_BYTES])
        };
        // First, as it leaves out most.
        if self.known.as_ref().is_some_and(has) {
            return false;
        }
        Publication::keys(publication).is_ok_and(|(author, reader)| {
            self.authors.as_ref().is_none_or(|authors| authors.may_contain(&author))
                && self.readers.as_ref().is_none_or(|readers| readers.may_contain(&reader))
        })
    }
}

/// What a subscription lives on.
pub(crate) struct Surroundings {
    pub(crate) env: Env,
    pub(crate) own: PeerId,
    pub(crate) publications: Arc<Publications>,
    pub(crate) heartbeat: Duration,
    /// Cancelled when the peer stops.
    pub(crate) stop: CancellationToken,
    pub(crate) right: Right,
}

struct Subscription {
    around: Surroundings,
    filter: Filter,
    seat: Seat,
    follow: bool,
    grown: watch::Receiver<u64>,
    /// The next offset to read.
    offset: u64,
    /// When the last publication read was logged.
    read_ms: u64,
    ready: VecDeque<SubscribeEvent>,
    caught_up: bool,
    finished: bool,
}

/// The events of a new subscription.
///
/// # Errors
/// Where the log cannot be read.
pub(crate) async fn open(
    around: Surroundings,
    request: &SubscribeRequest,
    filter: Filter,
    seat: Seat,
) -> Result<Events, CallError> {
    let grown = around.publications.grown();
    let mut subscription = Subscription {
        around,
        filter,
        seat,
        follow: request.follow,
        grown,
        offset: 0,
        read_ms: 0,
        ready: VecDeque::new(),
        caught_up: false,
        finished: false,
    };
    subscription.start(&request.from).await?;
    let events = futures::stream::unfold(subscription, |mut subscription| async move {
        let event = match (subscription.next().await?, subscription.around.right.check()) {
            (Ok(_), Err(error)) => {
                subscription.finished = true;
                Err(error)
            }
            (event, _) => event,
        };
        let now = subscription.around.env.clock.elapsed();
        subscription.seat.handed_over(now);
        Some((event, subscription))
    });
    Ok(events.boxed())
}

impl Subscription {
    async fn start(&mut self, from: &Cursor) -> Result<(), CallError> {
        let journal = self.around.publications.journal();
        let (start, end) = (journal.start(), journal.end());
        self.read_ms = from.unix_ms;
        let ours = from.peer == Some(self.around.own);
        if ours && (start..=end).contains(&from.offset) {
            self.offset = from.offset;
            return Ok(());
        }
        if from.peer.is_none() && from.unix_ms == 0 {
            self.offset = start;
            return Ok(());
        }
        let since = from.unix_ms.saturating_sub(REPLAY_MS);
        let found = journal.offset_at_or_after(since).await;
        self.offset = found.map_err(|error| shelf::refusal(&error))?.clamp(start, end);
        // An untouched start means nothing was cut: all this peer ever logged is still to come.
        let cut = start > 0 && self.offset == start;
        if ours || cut {
            self.ready.push_back(SubscribeEvent::Gap { cursor: self.cursor() });
        }
        Ok(())
    }

    fn cursor(&self) -> Cursor {
        Cursor { peer: Some(self.around.own), offset: self.offset, unix_ms: self.read_ms }
    }

    async fn next(&mut self) -> Option<Result<SubscribeEvent, CallError>> {
        if self.finished {
            return None;
        }
        if !self.seat.wanted(self.around.env.clock.elapsed()) {
            return self.end();
        }
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.around.stop.is_cancelled() || self.seat.ended.is_cancelled() {
                return self.end();
            }
            // Marked as seen before the look, so that growth in between wakes the wait below.
            self.grown.mark_unchanged();
            match self.read().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    self.finished = true;
                    return Some(Err(error));
                }
            }
            if !self.caught_up {
                self.caught_up = true;
                self.finished = !self.follow;
                return Some(Ok(SubscribeEvent::CaughtUp { cursor: self.cursor() }));
            }
            tokio::select! {
                biased;
                () = self.around.stop.cancelled() => {}
                () = self.seat.ended.cancelled() => {}
                _ = self.grown.changed() => {}
                () = self.around.env.clock.sleep(self.around.heartbeat) => {
                    return Some(Ok(SubscribeEvent::CaughtUp { cursor: self.cursor() }));
                }
            }
        }
    }

    fn end(&mut self) -> Option<Result<SubscribeEvent, CallError>> {
        self.finished = true;
        Some(Err(CallError::Busy { retry_after: RETRY_AFTER }))
    }

    /// Reads the next publications; `false` where there are none.
    async fn read(&mut self) -> Result<bool, CallError> {
        let journal = Arc::clone(self.around.publications.journal());
        if self.offset < journal.start() {
            // The log was cut under a reader that was slower than its retention.
            self.offset = journal.start();
            self.ready.push_back(SubscribeEvent::Gap { cursor: self.cursor() });
            return Ok(true);
        }
        let end = journal.end();
        if self.offset >= end {
            return Ok(false);
        }
        let entries = journal.read(self.offset, PAGE_MAX).await;
        let entries = entries.map_err(|error| shelf::refusal(&error))?;
        if entries.is_empty() {
            // All that is left was damaged on the disk, or is in the log no more.
            self.offset = end;
            self.ready.push_back(SubscribeEvent::Gap { cursor: self.cursor() });
            return Ok(true);
        }
        for (offset, logged_ms, bytes) in entries {
            if offset > self.offset {
                // Damaged, or given between a snapshot and its restoration.
                self.offset = offset;
                self.ready.push_back(SubscribeEvent::Gap { cursor: self.cursor() });
            }
            self.offset = offset + 1;
            self.read_ms = logged_ms;
            if self.filter.passes(&bytes) {
                self.ready.push_back(SubscribeEvent::Publication {
                    publication: bytes,
                    received_ms: logged_ms,
                    cursor: self.cursor(),
                });
            }
        }
        Ok(true)
    }
}
