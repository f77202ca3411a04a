//! Records and stripes on their way to their holders, and how far each has come.
//!
//! A record is *acknowledged* when W copies are durable and *full* at N; a stripe at its success threshold of fragments, and at
//! n. What must be stored before the next thing waits for the acknowledgements; the rest goes on beside it and gives back the
//! record's bytes of the window when it is done, a stripe those of each fragment as it is durable. So
//! the window bounds what is late too.
//!
//! Where the put has a journal, a page is noted there as soon as it has all copies it will get, and the pages of a stripe
//! as soon as that has all fragments it will get.

mod tally;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crypto::lease::{Leaf, Shown};
use document::{Record, Striped};
use env::Env;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use placement::Redundancy;
use walk::{Reached, Rest, StripeRecords, WalkError, Walker};

use crate::author::Author;
use crate::error::{AuthorError, Part};
use crate::job::Job;
use crate::journal::Journal;
use crate::paying::{record_leaf, stripe_leaf};
use crate::progress::Progress;
use crate::window::Lease;
pub(crate) use tally::Tally;
use tally::Weight;

/// Records and stripes of one put on their way at once; for large pages the window is less.
const RECORDS_MAX: usize = 64;
/// How long the last copies of a record are waited for: the walk gives up by itself before, but where the line is very slow.
const REST_LIMIT: Duration = Duration::from_secs(3_600);

/// What is spread as one thing.
pub(crate) enum Load {
    /// A record, in so many copies.
    Record(Record, Redundancy),
    /// A stripe; so many of its fragments are to be durable before it counts as stored.
    Stripe(Striped, u32),
}

impl Load {
    /// Bytes at all holders together, by how many of them have it.
    fn weight(&self) -> Weight {
        match self {
            Self::Record(record, _) => Weight { bytes: record.bytes.len() as u64, over: 1 },
            Self::Stripe(Striped { header, fragments, .. }, _) => {
                let fragment_bytes: usize = fragments.iter().map(|one| one.bytes.len()).sum();
                // Each holder of a fragment has the header too.
                let bytes = fragment_bytes + fragments.len() * header.bytes.len();
                Weight { bytes: bytes as u64, over: fragments.len() as u64 }
            }
        }
    }

    /// How many copies or fragments are sent.
    fn count(&self) -> u32 {
        match self {
            Self::Record(_, redundancy) => redundancy.copies,
            // At most 256.
            Self::Stripe(striped, _) => striped.fragments.len() as u32,
        }
    }

    /// What it is paid by where nothing else pays for it.
    fn leaf(&self) -> (Leaf, u32) {
        match self {
            Self::Record(record, redundancy) => (record_leaf(record), redundancy.copies),
            Self::Stripe(stripe, _) => (stripe_leaf(stripe), self.count()),
        }
    }

    /// Of a stripe each fragment's part of the window is given back when it is durable.
    async fn store(
        self,
        walker: &Walker,
        leases: Vec<Shown>,
        window: Option<Arc<Lease>>,
    ) -> Result<Acknowledged, WalkError> {
        match self {
            Self::Record(record, redundancy) => {
                let stored = walker.store_leased(record, leases, redundancy).await?;
                let walk::Stored { acked, wanted, rest, .. } = stored;
                Ok(Acknowledged { acked, wanted, rest })
            }
            Self::Stripe(Striped { header, fragments, .. }, threshold) => {
                let records = StripeRecords { header, fragments, threshold };
                let durable = Box::new(move |bytes| {
                    window.iter().for_each(|lease| lease.give_back(bytes));
                });
                let walk::StoredStripe { acked, wanted, rest, .. } =
                    walker.store_stripe_leased(records, leases, durable).await?;
                Ok(Acknowledged { acked, wanted, rest })
            }
        }
    }
}

/// A record or a stripe to be spread, with the part of the window it holds.
pub(crate) struct Outgoing {
    pub(crate) part: Part,
    pub(crate) load: Load,
    /// The pages that the journal knows it by; none where it does not.
    pub(crate) pages: Range<u32>,
    pub(crate) lease: Option<Arc<Lease>>,
    /// What it is paid by; where there is none, a lease of its own is signed.
    pub(crate) paid: Vec<Shown>,
}

impl Outgoing {
    /// A record without a lease, which no journal knows: there are few of them, or they are small.
    pub(crate) fn record(part: Part, record: Record, redundancy: Redundancy) -> Self {
        let load = Load::Record(record, redundancy);
        Self { part, load, pages: 0..0, lease: None, paid: Vec::new() }
    }

    /// The same, paid by this.
    pub(crate) fn paid(self, paid: Vec<Shown>) -> Self {
        Self { paid, ..self }
    }
}

/// Copies or fragments that are durable and wanted, with the others on their way.
struct Acknowledged {
    acked: u32,
    wanted: u32,
    rest: Rest,
}

/// A record or a stripe that was sent, or not.
struct Sent {
    number: u64,
    weight: Weight,
    pages: Range<u32>,
    stored: Result<Acknowledged, AuthorError>,
    lease: Option<Arc<Lease>>,
}

/// What has all copies it will get, as its number says; an error where that could not be noted.
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
    /// Those in `resting`, as they were at their acknowledgement, by number: how far they came.
    partial: BTreeMap<u64, (Weight, u32, u32)>,
    done: Tally,
    /// When leases end, Unix seconds.
    paid_until: Option<u64>,
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
            paid_until: None,
        }
    }

    /// Notes in this journal how far pages come.
    pub(crate) fn noting(mut self, journal: Option<Arc<Journal>>) -> Self {
        self.journal = journal;
        self
    }

    /// Pays until then, Unix seconds.
    pub(crate) fn paying(mut self, until: Option<u64>) -> Self {
        self.paid_until = until;
        self
    }

    /// Counts what an earlier run brought as far as it will come, with the bytes of its pages.
    pub(crate) fn skip(
        &mut self,
        outgoing: &Outgoing,
        page_bytes: u64,
        (acked, wanted): (u32, u32),
    ) {
        self.done = self.done.with(outgoing.load.weight(), acked, wanted);
        self.done.resumed.bytes += page_bytes;
        self.done.resumed.pages += outgoing.pages.len() as u64;
    }

    /// Whether another record may start.
    pub(crate) fn has_room(&self) -> bool {
        self.sending.len() + self.resting.len() < RECORDS_MAX
    }

    /// Whether anything is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.sending.is_empty() || !self.resting.is_empty()
    }

    /// Sends a record or a stripe to its holders.
    pub(crate) fn start(&mut self, outgoing: Outgoing) {
        let Outgoing { part, load, pages, lease, paid } = outgoing;
        let paid = self.payment(&load, paid);
        let number = self.next;
        self.next += 1;
        let walker = Arc::clone(self.author.walker());
        let progress = Arc::clone(&self.progress);
        let (weight, count) = (load.weight(), load.count());
        self.done.sent += weight.of(count);
        let noting = self.noting_of(pages.clone());
        let work = async move {
            progress.sent(count, weight.of(count));
            let stored = match paid {
                Ok(paid) => load.store(&walker, paid, lease.clone()).await,
                Err(error) => return Sent { number, weight, pages, stored: Err(error), lease },
            };
            let mut stored = stored.map_err(|source| AuthorError::Store { part, source });
            if let Ok(Acknowledged { acked, wanted, .. }) = stored {
                progress.acked(acked, weight.of(acked));
                if acked >= wanted
                    && let Err(error) = noting.reached(acked, wanted).await
                {
                    stored = Err(error);
                }
            }
            Sent { number, weight, pages, stored, lease }
        };
        self.sending.push(Job::task(self.author.env(), work));
    }

    /// What a load is paid by: as it says, or by a lease of its own.
    fn payment(&self, load: &Load, paid: Vec<Shown>) -> Result<Vec<Shown>, AuthorError> {
        if !paid.is_empty() {
            return Ok(paid);
        }
        let (leaf, holders) = load.leaf();
        let lease =
            self.author.lease(&[leaf], holders, self.author.seconds_left(self.paid_until)?)?;
        Ok(lease.into_iter().collect())
    }

    fn noting_of(&self, pages: Range<u32>) -> Noting {
        let journal = self.journal.clone().filter(|_| !pages.is_empty());
        Noting { env: self.author.env().clone(), journal, pages }
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

    /// Waits until every record has all copies that it will get, at most so long; on a slow line so long, and more, for each
    /// step. Tells how far all came.
    pub(crate) async fn settle(self, limit: Duration) -> Result<Tally, AuthorError> {
        self.settle_until(limit, Box::pin(futures::future::pending())).await
    }

    /// As [`Spread::settle`], and no longer than until `enough` ends.
    pub(crate) async fn settle_until(
        mut self,
        limit: Duration,
        mut enough: BoxFuture<'static, ()>,
    ) -> Result<Tally, AuthorError> {
        let env = self.author.env().clone();
        let mut until = env.clock.elapsed() + limit;
        if self.is_busy() {
            self.progress.waiting();
        }
        while self.is_busy() {
            let patience = self.author.walker().patience();
            let now = env.clock.elapsed();
            if !patience.is_zero() {
                until = now + limit + patience;
            }
            futures::select_biased! {
                step = env.within(until.saturating_sub(now), self.step()).fuse() => match step {
                    Ok(step) => step?,
                    Err(_) => break,
                },
                () = (&mut enough).fuse() => break,
            }
        }
        let late = self.partial.into_values();
        Ok(late.fold(self.done, |tally, (weight, acked, wanted)| tally.with(weight, acked, wanted)))
    }

    fn acknowledged(&mut self, sent: Option<Sent>) -> Result<(), AuthorError> {
        let Sent { number, weight, pages, stored, lease } = sent.ok_or(AuthorError::Stopped)?;
        let Acknowledged { acked, wanted, mut rest } = stored?;
        if acked >= wanted {
            self.done = self.done.with(weight, acked, wanted);
            return Ok(());
        }
        self.partial.insert(number, (weight, acked, wanted));
        let progress = Arc::clone(&self.progress);
        let noting = self.noting_of(pages);
        let work = async move {
            let reached = rest.wait(REST_LIMIT).await;
            let more = reached.acked.saturating_sub(acked);
            progress.acked(more, weight.of(more));
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
        if let Some((weight, ..)) = self.partial.remove(&number) {
            self.done = self.done.with(weight, reached.acked, reached.wanted);
        }
        Ok(())
    }
}

/// Where to note how far something came: in the journal, where there is one and it is of pages.
struct Noting {
    env: Env,
    journal: Option<Arc<Journal>>,
    pages: Range<u32>,
}

impl Noting {
    async fn reached(self, acked: u32, wanted: u32) -> Result<(), AuthorError> {
        let Self { env, journal, pages } = self;
        let Some(journal) = journal else { return Ok(()) };
        let note = move || journal.reached(pages, acked, wanted);
        Job::blocking(&env, note).await.ok_or(AuthorError::Stopped)?
    }
}

/// The next result; pending where there is nothing to wait for.
async fn next<T>(jobs: &mut FuturesUnordered<Job<T>>) -> Option<T> {
    match jobs.next().await {
        Some(done) => done,
        None => futures::future::pending().await,
    }
}
