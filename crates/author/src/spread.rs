//! Records on their way to their holders, and how far each has come.
//!
//! A record is *acknowledged* when W copies are durable and *full* at N. What must be stored before the next thing waits for the
//! acknowledgements; the rest goes on beside it and gives back the record's bytes of the window when it is done. So
//! the window bounds copies that are late too.
//!
//! Where the put has a journal, a page is noted there as soon as it has all copies it will get.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use document::Record;
use env::Env;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use walk::{Reached, Stored, WALK_LIMIT, WalkError};

use crate::author::Author;
use crate::error::{AuthorError, Part};
use crate::job::Job;
use crate::journal::Journal;
use crate::progress::Progress;
use crate::types::Resumed;
use crate::window::Lease;

/// Records of one put on their way at once; for large pages the window is less.
const RECORDS_MAX: usize = 64;
/// How long the last copies of a record are waited for: the walk gives up by itself before.
const REST_LIMIT: Duration = Duration::from_secs(WALK_LIMIT.as_secs() * 2);

/// How far all records of a put have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Bytes at all holders.
    pub(crate) stored: u64,
    /// Copies of the record that lacks most.
    pub(crate) acked: u32,
    /// Copies wanted of it.
    pub(crate) wanted: u32,
    /// Bytes sent, all copies counted.
    pub(crate) sent: u64,
    /// Pages that were not sent.
    pub(crate) resumed: Resumed,
}

impl Tally {
    const NOTHING: Self =
        Self { stored: 0, acked: 0, wanted: 0, sent: 0, resumed: Resumed { bytes: 0, pages: 0 } };

    /// With a record of so many bytes.
    fn with(self, bytes: u64, acked: u32, wanted: u32) -> Self {
        let stored = self.stored + bytes * u64::from(acked);
        let lacks = |acked: u32, wanted: u32| wanted.saturating_sub(acked);
        // Of records that lack as much, the one with the fewest copies is the nearest to being lost.
        let worse = |a: (u32, u32), b: (u32, u32)| (lacks(a.0, a.1), b.0) > (lacks(b.0, b.1), a.0);
        if self.wanted == 0 || worse((acked, wanted), (self.acked, self.wanted)) {
            Self { stored, acked, wanted, ..self }
        } else {
            Self { stored, ..self }
        }
    }

    /// Whether every record has all its copies.
    pub(crate) fn is_full(&self) -> bool {
        self.acked >= self.wanted
    }
}

/// A record to be spread, with the part of the window it holds.
pub(crate) struct Outgoing {
    pub(crate) part: Part,
    pub(crate) record: Record,
    pub(crate) lease: Option<Arc<Lease>>,
}

/// A record that was sent, or not.
struct Sent {
    number: u64,
    part: Part,
    bytes: u64,
    stored: Result<Stored, AuthorError>,
    lease: Option<Arc<Lease>>,
}

/// A record that has all copies it will get, as its number says; an error where that could not be noted.
type Rested = Result<(u64, Reached), AuthorError>;

/// The records of one put.
pub(crate) struct Spread<'a> {
    author: &'a Author,
    progress: Arc<dyn Progress>,
    journal: Option<Arc<Journal>>,
    next: u64,
    /// Not acknowledged yet.
    sending: FuturesUnordered<Job<Sent>>,
    /// Acknowledged, with copies to come.
    resting: FuturesUnordered<Job<Rested>>,
    /// Those in `resting`, as they were at their acknowledgement, by number: bytes and how far they came.
    partial: BTreeMap<u64, (u64, u32, u32)>,
    done: Tally,
}

impl<'a> Spread<'a> {
    pub(crate) fn new(author: &'a Author, progress: Arc<dyn Progress>) -> Self {
        Self {
            author,
            progress,
            journal: None,
            next: 0,
            sending: FuturesUnordered::new(),
            resting: FuturesUnordered::new(),
            partial: BTreeMap::new(),
            done: Tally::NOTHING,
        }
    }

    /// Notes in this journal how far pages come.
    pub(crate) fn noting(mut self, journal: Option<Arc<Journal>>) -> Self {
        self.journal = journal;
        self
    }

    /// Counts a page that an earlier run brought as far as it will come.
    pub(crate) fn skip(&mut self, bytes: u64, (acked, wanted): (u32, u32)) {
        self.done = self.done.with(bytes, acked, wanted);
        self.done.resumed.bytes += bytes;
        self.done.resumed.pages += 1;
    }

    /// Whether another record may start.
    pub(crate) fn has_room(&self) -> bool {
        self.sending.len() + self.resting.len() < RECORDS_MAX
    }

    /// Whether anything is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.sending.is_empty() || !self.resting.is_empty()
    }

    /// Sends a record to its holders.
    pub(crate) fn start(&mut self, outgoing: Outgoing) {
        let Outgoing { part, record, lease } = outgoing;
        let number = self.next;
        self.next += 1;
        let walker = Arc::clone(self.author.walker());
        let progress = Arc::clone(&self.progress);
        let bytes = record.bytes.len() as u64;
        let redundancy = walker.redundancy(record.kind);
        self.done.sent += bytes * u64::from(redundancy.copies);
        let noting = self.noting_of(part);
        let work = async move {
            progress.sent(redundancy.copies, bytes * u64::from(redundancy.copies));
            let mut stored =
                walker.store(record, redundancy).await.map_err(|source| stored_error(part, source));
            if let Ok(Stored { acked, wanted, .. }) = stored {
                progress.acked(acked, bytes * u64::from(acked));
                if acked >= wanted
                    && let Err(error) = noting.reached(acked, wanted).await
                {
                    stored = Err(error);
                }
            }
            Sent { number, part, bytes, stored, lease }
        };
        self.sending.push(Job::task(self.author.env(), work));
    }

    fn noting_of(&self, part: Part) -> Noting {
        let journal = self.journal.clone();
        let page = journal.zip(match part {
            Part::Page(index) => Some(index),
            _ => None,
        });
        Noting { env: self.author.env().clone(), page }
    }

    /// Waits for one record to come further. For ever where none is on its way: select on it beside something else.
    ///
    /// # Errors
    /// The first record that too few holders took. Cancel safe.
    pub(crate) async fn step(&mut self) -> Result<(), AuthorError> {
        futures::select_biased! {
            sent = next(&mut self.sending).fuse() => self.acknowledged(sent),
            rested = next(&mut self.resting).fuse() => self.rested(rested),
        }
    }

    /// Waits until every record is acknowledged.
    ///
    /// # Errors
    /// As [`Spread::step`].
    pub(crate) async fn acknowledge(&mut self) -> Result<(), AuthorError> {
        while !self.sending.is_empty() {
            self.step().await?;
        }
        Ok(())
    }

    /// Starts records as there is room, and waits until all are acknowledged.
    ///
    /// # Errors
    /// As [`Spread::step`].
    pub(crate) async fn all(
        &mut self,
        outgoing: impl IntoIterator<Item = Outgoing>,
    ) -> Result<(), AuthorError> {
        for one in outgoing {
            while !self.has_room() {
                self.step().await?;
            }
            self.start(one);
        }
        self.acknowledge().await
    }

    /// Waits until every record has all copies that it will get, at most so long; how far all came.
    pub(crate) async fn settle(mut self, limit: Duration) -> Result<Tally, AuthorError> {
        let env = self.author.env().clone();
        let settled = async {
            while self.is_busy() {
                self.step().await?;
            }
            Ok(())
        };
        if let Ok(settled) = env.within(limit, settled).await {
            settled?;
        }
        let late = self.partial.into_values();
        Ok(late.fold(self.done, |tally, (bytes, acked, wanted)| tally.with(bytes, acked, wanted)))
    }

    fn acknowledged(&mut self, sent: Option<Sent>) -> Result<(), AuthorError> {
        let Sent { number, part, bytes, stored, lease } = sent.ok_or(AuthorError::Stopped)?;
        let Stored { acked, wanted, mut rest, .. } = stored?;
        if acked >= wanted {
            self.done = self.done.with(bytes, acked, wanted);
            return Ok(());
        }
        self.partial.insert(number, (bytes, acked, wanted));
        let progress = Arc::clone(&self.progress);
        let noting = self.noting_of(part);
        let work = async move {
            let reached = rest.wait(REST_LIMIT).await;
            let more = reached.acked.saturating_sub(acked);
            progress.acked(more, bytes * u64::from(more));
            drop(lease);
            if reached.done {
                noting.reached(reached.acked, reached.wanted).await?;
            }
            Ok((number, reached))
        };
        self.resting.push(Job::task(self.author.env(), work));
        Ok(())
    }

    fn rested(&mut self, rested: Option<Rested>) -> Result<(), AuthorError> {
        let (number, reached) = rested.ok_or(AuthorError::Stopped)??;
        if let Some((bytes, ..)) = self.partial.remove(&number) {
            self.done = self.done.with(bytes, reached.acked, reached.wanted);
        }
        Ok(())
    }
}

/// Where to note how far a record came: in the journal, where there is one and the record is a page.
struct Noting {
    env: Env,
    page: Option<(Arc<Journal>, u32)>,
}

impl Noting {
    async fn reached(self, acked: u32, wanted: u32) -> Result<(), AuthorError> {
        let Some((journal, index)) = self.page else { return Ok(()) };
        let note = move || journal.reached(index, acked, wanted);
        Job::blocking(&self.env, note).await.ok_or(AuthorError::Stopped)?
    }
}

fn stored_error(part: Part, source: WalkError) -> AuthorError {
    AuthorError::Store { part, source }
}

/// The next result; pending where there is nothing to wait for.
async fn next<T>(jobs: &mut FuturesUnordered<Job<T>>) -> Option<T> {
    match jobs.next().await {
        Some(done) => done,
        None => futures::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tally_tells_the_record_that_lacks_most() {
        let tally = Tally::NOTHING.with(10, 5, 5).with(100, 3, 3);
        assert!(tally.is_full());
        assert_eq!((tally.stored, tally.acked, tally.wanted), (350, 3, 3));
        let tally = tally.with(1, 4, 5);
        assert_eq!((tally.acked, tally.wanted, tally.is_full()), (4, 5, false));
        let tally = tally.with(1, 2, 3).with(1, 5, 5).with(1, 8, 9);
        assert_eq!(
            (tally.acked, tally.wanted),
            (2, 3),
            "of those that lack one, the fewest copies"
        );
    }
}
