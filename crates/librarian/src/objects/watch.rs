//! Watch: what there is, then what is new, to one watcher who may read it.
//!
//! ```text
//! cursor of this run, in memory   -> events from there -> caught up -> events ...
//! none                            -> tips              -> caught up -> events ...
//! another                         -> gap -> tips       -> caught up -> events ...
//! ```
//! A watcher that falls more than [`BEHIND_MAX`] events behind is told of a gap, as is one whose events left the memory. Nothing
//! polls: the stream sleeps until the feed grows. Whether the watcher may read is looked at for each object as it is
//! told of, so a new policy counts at once, and whether its pass still counts before each event.
//!
//! Limits: what is to be told next, of one object's tips or [`PAGE_MAX`] events, is in memory for a watcher by name, and the keys of
//! a family's objects ([`FAMILY_MAX`]); the record itself is read when it is told, but for a branch's heads, which are no more than an
//! answer holds. It is pulled, and has a seat as subscribers
//! do.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{PublicKey, RecordId};
use document::Record;
use env::calls::CallError;
use env::calls::objects::{
    FoundVersion, GetHeads, OBJECTS_MAX, WatchCursor, WatchEvent, WatchEvents, WatchRequest,
    Watched,
};
use futures::StreamExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use version::{NAME_BYTES_MAX, ObjectKey, ObjectRecord};

use super::feed::{News, Page};
use super::heads::branch_name;
use super::permissions::Reader;
use super::{ObjectShelf, invalid};
use crate::right::Right;
use crate::seats::Seat;

/// Events that a watcher may be behind.
const BEHIND_MAX: u64 = 4_096;
/// Events taken from the feed at once.
const PAGE_MAX: usize = 256;
/// Objects of a watched family.
const FAMILY_MAX: usize = 65_536;
/// When a watcher that was ended may come again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a watch lives on.
pub(crate) struct Surroundings {
    pub(crate) heartbeat: Duration,
    /// Cancelled when the peer stops.
    pub(crate) stop: CancellationToken,
    pub(crate) seat: Seat,
    pub(crate) right: Right,
}

/// What one watches.
enum What {
    Objects(HashSet<ObjectKey>),
    Family(PublicKey, Bytes),
    Branch(PublicKey, ObjectKey, Bytes),
}

/// What is to be told, before it is read.
enum Ahead {
    Gap,
    /// What others made of it already: small.
    Head(FoundVersion),
    Tip(ObjectKey, RecordId),
    /// And what the watcher has seen with it.
    News(News, u64),
}

struct Watching {
    shelf: Arc<ObjectShelf>,
    around: Surroundings,
    reader: Reader,
    what: What,
    grown: watch::Receiver<u64>,
    /// The next event to be looked at.
    next: u64,
    /// Whether it goes on from a cursor, and may be far behind until it is there.
    resuming: bool,
    /// Objects whose tips are still to be told; `None` where they were.
    before: Option<VecDeque<ObjectKey>>,
    ahead: VecDeque<Ahead>,
    caught_up: bool,
    /// When something was told last.
    told: Duration,
    finished: bool,
}

impl ObjectShelf {
    /// Opens a watch.
    ///
    /// # Errors
    /// `Invalid`, and `Denied` where the watcher may not read what it names.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        reader: Reader,
        request: WatchRequest,
        around: Surroundings,
    ) -> Result<WatchEvents, CallError> {
        let what = self.watched(&reader, request.what).await?;
        self.begin_feed(&around.stop);
        let mut watching = Watching {
            grown: self.feed.grown(),
            next: self.news().next(),
            shelf: Arc::clone(self),
            told: self.env.clock.elapsed(),
            around,
            reader,
            what,
            resuming: false,
            before: None,
            ahead: VecDeque::new(),
            caught_up: false,
            finished: false,
        };
        let own = |cursor: &WatchCursor| cursor.peer == self.own && cursor.run == self.feed.run();
        let in_memory = |from: u64| matches!(self.news().page(from, 0), Page::Events(_));
        match request.from {
            Some(cursor) if own(&cursor) && in_memory(cursor.next) => {
                watching.next = cursor.next;
                watching.resuming = true;
            }
            Some(_) => watching.gap().await?,
            None => watching.begin_tips().await?,
        }
        let events = futures::stream::unfold(watching, |mut watching| async move {
            let event = match (watching.step().await?, watching.around.right.check()) {
                (Ok(_), Err(error)) => {
                    watching.finished = true;
                    Err(error)
                }
                (event, _) => event,
            };
            let now = watching.shelf.env.clock.elapsed();
            watching.told = now;
            watching.around.seat.handed_over(now);
            Some((event, watching))
        });
        Ok(events.boxed())
    }

    async fn watched(&self, reader: &Reader, what: Watched) -> Result<What, CallError> {
        Ok(match what {
            Watched::Objects(objects) => {
                if objects.is_empty() || objects.len() > OBJECTS_MAX {
                    return Err(invalid(format!("1 to {OBJECTS_MAX} objects are watched at once")));
                }
                for object in &objects {
                    self.readable(reader, object).await?;
                }
                What::Objects(objects.into_iter().collect())
            }
            Watched::Family(owner, prefix) => {
                if prefix.len() > NAME_BYTES_MAX {
                    return Err(invalid(format!("no name is longer than {NAME_BYTES_MAX} bytes")));
                }
                What::Family(owner, prefix)
            }
            Watched::Branch(owner, object, branch) => {
                self.readable_branch(reader, &owner, &object, branch_name(&branch)?).await?;
                What::Branch(owner, object, branch)
            }
        })
    }

    /// The keys of an owner's objects whose names begin so.
    ///
    /// # Errors
    /// `Busy` where others read them: a watch that is open ends by it, and its watcher comes again.
    async fn family(
        self: &Arc<Self>,
        owner: PublicKey,
        prefix: Bytes,
    ) -> Result<VecDeque<ObjectKey>, CallError> {
        let turn = self.turns.family(&self.env).await?;
        let found = self.each_object(turn, VecDeque::new(), move |_, found, part| {
            let named = ObjectRecord::decode(&Bytes::copy_from_slice(part.payload)).ok();
            let is_one =
                |named: &ObjectRecord| named.owner == owner && named.name.starts_with(&prefix);
            if found.len() <= FAMILY_MAX && named.as_ref().is_some_and(is_one) {
                found.push_back(ObjectKey::from(part.id));
            }
        });
        let found = found.await?;
        if found.len() > FAMILY_MAX {
            return Err(invalid(format!(
                "more than {FAMILY_MAX} objects have such names: watch those of a longer prefix"
            )));
        }
        Ok(found)
    }
}

impl Watching {
    fn cursor(&self, next: u64) -> WatchCursor {
        WatchCursor { peer: self.shelf.own, run: self.shelf.feed.run(), next }
    }

    /// Tells of a gap, and then all that there is.
    async fn gap(&mut self) -> Result<(), CallError> {
        self.ahead.clear();
        self.ahead.push_back(Ahead::Gap);
        self.begin_tips().await
    }

    async fn begin_tips(&mut self) -> Result<(), CallError> {
        // Before the tips are looked at: what comes meanwhile is told twice, and not missed.
        self.next = self.shelf.news().next();
        (self.resuming, self.caught_up) = (false, false);
        let objects = match &self.what {
            What::Objects(objects) => objects.iter().copied().collect(),
            What::Family(owner, prefix) => self.shelf.family(*owner, prefix.clone()).await?,
            What::Branch(_, object, _) => [*object].into(),
        };
        self.before = Some(objects);
        Ok(())
    }

    async fn step(&mut self) -> Option<Result<WatchEvent, CallError>> {
        if self.finished {
            return None;
        }
        if !self.around.seat.wanted(self.shelf.env.clock.elapsed()) {
            return self.end();
        }
        loop {
            match self.next_ahead().await {
                Ok(None) => {}
                Ok(Some(event)) => return Some(Ok(event)),
                Err(error) => {
                    self.finished = true;
                    return Some(Err(error));
                }
            }
            if self.around.stop.is_cancelled() || self.around.seat.ended.is_cancelled() {
                return self.end();
            }
            // Marked as seen before the look, so that growth in between wakes the wait below.
            self.grown.mark_unchanged();
            let more = match self.look().await {
                Ok(more) => more,
                Err(error) => {
                    self.finished = true;
                    return Some(Err(error));
                }
            };
            if more {
                continue;
            }
            let cursor = self.cursor(self.next);
            if !std::mem::replace(&mut self.caught_up, true) {
                return Some(Ok(WatchEvent::CaughtUp(cursor)));
            }
            let silent = self.shelf.env.clock.elapsed().saturating_sub(self.told);
            tokio::select! {
                biased;
                () = self.around.stop.cancelled() => {}
                () = self.around.seat.ended.cancelled() => {}
                () = self.shelf.env.clock.sleep(self.around.heartbeat.saturating_sub(silent)) => {
                    return Some(Ok(WatchEvent::CaughtUp(cursor)));
                }
                _ = self.grown.changed() => {}
            }
        }
    }

    fn end(&mut self) -> Option<Result<WatchEvent, CallError>> {
        self.finished = true;
        Some(Err(CallError::Busy { retry_after: RETRY_AFTER }))
    }

    /// Reads what is to be told next of what was found; `None` where that was all.
    async fn next_ahead(&mut self) -> Result<Option<WatchEvent>, CallError> {
        while let Some(ahead) = self.ahead.pop_front() {
            if self.around.stop.is_cancelled() || self.around.seat.ended.is_cancelled() {
                return Ok(None);
            }
            let (found, cursor) = match ahead {
                Ahead::Gap => return Ok(Some(WatchEvent::Gap)),
                Ahead::Head(found) => (Some(found), None),
                Ahead::Tip(object, h) => (self.version(&object, &h).await?, None),
                Ahead::News(news, next) => {
                    let found = self.told_of(&news).await?;
                    (found, Some(self.cursor(next)))
                }
            };
            if let Some(found) = found {
                return Ok(Some(WatchEvent::Record { found, cursor }));
            }
        }
        Ok(None)
    }

    /// Looks for what is to be told next; `false` where all was.
    async fn look(&mut self) -> Result<bool, CallError> {
        if let Some(before) = &mut self.before {
            let Some(object) = before.pop_front() else {
                self.before = None;
                return Ok(true);
            };
            let found = self.there_is(&object).await?;
            self.ahead.extend(found);
            return Ok(true);
        }
        let behind = self.shelf.news().next().saturating_sub(self.next);
        self.resuming &= behind > 0;
        let page = self.shelf.feed.page(self.next, PAGE_MAX);
        let events = match page {
            Page::Events(events) if self.resuming || behind <= BEHIND_MAX => events,
            _ => {
                self.gap().await?;
                return Ok(true);
            }
        };
        let any = !events.is_empty();
        for news in events {
            self.next += 1;
            self.ahead.push_back(Ahead::News(news, self.next));
        }
        Ok(any)
    }

    /// What there is of an object, for this watcher.
    async fn there_is(&self, object: &ObjectKey) -> Result<Vec<Ahead>, CallError> {
        if let What::Branch(owner, object, branch) = &self.what {
            let (owner, object, branch) = (*owner, *object, branch.clone());
            let request = GetHeads { owner, object, branch, reader: None };
            let heads = self.shelf.heads(self.reader, request).await?;
            let found = heads.devices.into_iter().chain(heads.heads);
            return Ok(found.map(|record| Ahead::Head(alone(record))).collect());
        }
        Ok(self
            .shelf
            .objects
            .tips(object)
            .into_iter()
            .map(|tip| Ahead::Tip(*object, tip.h))
            .collect())
    }

    /// A version, where this watcher may read it now.
    async fn version(
        &self,
        object: &ObjectKey,
        h: &RecordId,
    ) -> Result<Option<FoundVersion>, CallError> {
        let named = match self.shelf.readable(&self.reader, object).await {
            Err(CallError::Denied { .. }) => return Ok(None),
            named => named?,
        };
        self.shelf.version_of(object, h, named.as_deref(), true).await
    }

    /// An event as this watcher is told it; `None` where it is none of its own.
    async fn told_of(&self, news: &News) -> Result<Option<FoundVersion>, CallError> {
        match (news, &self.what) {
            (News::Version(object, h), What::Objects(_) | What::Family(..)) => {
                if let What::Objects(objects) = &self.what
                    && !objects.contains(object)
                {
                    return Ok(None);
                }
                let named = match self.shelf.readable(&self.reader, object).await {
                    Err(CallError::Denied { .. }) => return Ok(None),
                    named => named?,
                };
                if let What::Family(owner, prefix) = &self.what
                    && !named.as_ref().is_some_and(|named| {
                        named.owner == *owner && named.name.starts_with(prefix)
                    })
                {
                    return Ok(None);
                }
                self.shelf.version_of(object, h, named.as_deref(), true).await
            }
            (News::Head(object, branch, id), What::Branch(owner, watched, name)) => {
                if object != watched || branch.as_bytes() != &name[..] {
                    return Ok(None);
                }
                let may = self.shelf.readable_branch(&self.reader, owner, object, branch).await;
                if may.is_err() {
                    return Ok(None);
                }
                Ok(self.shelf.intact(id).await?.map(alone))
            }
            (News::Devices(of, id), What::Branch(owner, object, branch)) if of == owner => {
                let branch = branch_name(branch)?;
                let may = self.shelf.readable_branch(&self.reader, owner, object, branch).await;
                if may.is_err() {
                    return Ok(None);
                }
                Ok(self.shelf.intact(id).await?.map(alone))
            }
            _ => Ok(None),
        }
    }
}

/// A record that nobody need attest.
fn alone(record: Record) -> FoundVersion {
    FoundVersion { record, attestation: None }
}
