//! A peer's own records: proven before they are stored, never served damaged.
//!
//! Callers over the network and the peer's own walks both come through here, so that there is one
//! place where a record becomes durable, and an envelope a publication.
//!
//! Invariants:
//! 1. Nothing is stored that does not prove itself (suite, canonical form, kind, place, limits), and no
//!    fragment without its stripe's header that lists it (`fragments`).
//! 2. An envelope is acknowledged when it *and* its publication are durable. A crash between the two
//!    leaves it unacknowledged; the writer's next try finds it present and logs the publication then.
//! 3. A record that the disk damaged is as good as not held: it is counted, logged, and asked for
//!    elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use crypto::lease::Shown;
use crypto::{Place, RecordId, Suite};
use document::{Document, Kind, Publication, Record, Stripe};
use env::Env;
use env::calls::leases::PlaceLeases;
use env::calls::{CallError, StoreOutcome};
use store::{RecordStore, StoreError, Upkeep};
use walk::LocalStore;

use crate::fragments;
use crate::leases::{By, Covered, Leases, nobody_pays, owned};
use crate::metrics::Metrics;
use crate::publications::{Entry, Publications};
use crate::room::Room;

/// From so many bytes on, records are hashed on a CPU thread: below it the hop costs more.
pub(crate) const LARGE_BYTES: usize = 64 * 1024;
/// What a peer says that hears too few others: what it took would be at few organisations, and perhaps not the newest word.
const CUT_OFF: &str =
    "it is cut off from most of the organisations, and serves reads alone until it hears them";
/// What a peer says that its operator told to take no writes.
const READ_ONLY: &str = "it is set to read-only";
/// What a peer says that hands over what it holds.
const LEAVES: &str = "it leaves the network";
/// When to try again a peer that closes its store.
const RETRY_AFTER_CLOSED: Duration = Duration::from_secs(5);

/// The records of one peer.
pub(crate) struct Shelf {
    env: Env,
    suite: Suite,
    store: Arc<dyn RecordStore>,
    publications: Arc<Publications>,
    leases: Arc<Leases>,
    metrics: Arc<Metrics>,
    room: Room,
    read_only: AtomicBool,
    leaves: AtomicBool,
    cut_off: AtomicBool,
}

impl Shelf {
    pub(crate) fn new(
        env: Env,
        suite: Suite,
        store: Arc<dyn RecordStore>,
        publications: Arc<Publications>,
        leases: Arc<Leases>,
        metrics: Arc<Metrics>,
        room: Room,
    ) -> Arc<Self> {
        let [read_only, leaves, cut_off] = [(); 3].map(|()| AtomicBool::new(false));
        Arc::new(Self {
            env,
            suite,
            store,
            publications,
            leases,
            metrics,
            room,
            read_only,
            leaves,
            cut_off,
        })
    }

    /// What is in the store, but for what it keeps of leases.
    pub(crate) fn stats(&self) -> store::Stats {
        let stats = self.store.stats();
        let (records, bytes) = self.leases.own();
        let records = stats.records.saturating_sub(records);
        store::Stats { records, bytes: stats.bytes.saturating_sub(bytes), ..stats }
    }

    /// Bytes of the store's files that no live record needs.
    pub(crate) fn dead_bytes(&self) -> u64 {
        self.store.upkeep().map_or(0, Upkeep::dead_bytes)
    }

    /// What the store needs done to it, if it needs something.
    pub(crate) fn upkeep(&self) -> Option<&dyn Upkeep> {
        self.store.upkeep()
    }

    /// Whether the disk is to be left alone: an operator said so, or it failed. A full one is not.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.read_only.load(Ordering::Relaxed) || self.store.stats().poisoned
    }

    /// Whether nothing can be ended, as the disk failed. One that is set read-only takes nothing, and ends what is over like any other.
    pub(crate) fn ends_nothing(&self) -> bool {
        self.store.stats().poisoned
    }

    /// Writes a proven record again that is damaged here, or that another one at its place needs; whether it did: nothing where that was
    /// dropped meanwhile, or is being. It was told when it was stored.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn mend(&self, record: Record, needs: &RecordId) -> Result<bool, StoreError> {
        // Dropped between the look and the write, it would be back without whoever paid for it.
        let Some(_writes) = self.leases.begin_again(record.place) else { return Ok(false) };
        if !self.store.contains(needs) {
            return Ok(false);
        }
        self.store.put(vec![record]).await.map(|_| true)
    }

    /// Whether a record is here and not known to be damaged, by the index alone.
    pub(crate) fn holds(&self, id: &RecordId) -> bool {
        self.store.contains(id) && !self.is_damaged(id)
    }

    /// Whether a record is here and known to be damaged, by the index alone.
    pub(crate) fn is_damaged(&self, id: &RecordId) -> bool {
        self.upkeep().is_some_and(|upkeep| upkeep.is_damaged(id))
    }

    /// Stores a copy that was fetched from another holder, if it proves itself. It was told when it was first stored.
    ///
    /// # Errors
    /// As [`Shelf::put`].
    pub(crate) async fn restore(
        self: &Arc<Self>,
        record: Record,
        said: Option<PlaceLeases>,
    ) -> Result<(), CallError> {
        self.check_writes()?;
        let covered = match said {
            Some(said) => self.leases.passed_on(&record, said).await?,
            None if self.leases.was_dropped(&record.place) => {
                return Err(nobody_pays(&record.place));
            }
            None => Covered::default(),
        };
        let proven = self.proven(record).await?;
        if fragments::is_fragment(&proven) {
            return Err(CallError::Invalid { reason: "a fragment is no copy".to_owned() });
        }
        let shelf = Arc::clone(self);
        let work = async move { shelf.write(vec![proven], &covered).await.map(drop) };
        owned(&self.env, work).await.unwrap_or_else(|| Err(closed()))
    }

    /// Takes writes, or takes none any more; whether that is a change.
    pub(crate) fn set_read_only(&self, read_only: bool) -> bool {
        self.read_only.swap(read_only, Ordering::Relaxed) != read_only
    }

    /// Takes no writes any more, as the peer leaves.
    pub(crate) fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
        self.set_read_only(true);
    }

    /// Why the peer takes no writes whatever its disk can; `None` where it does.
    fn closed_to_writes(&self) -> Option<&'static str> {
        let why = if self.leaves.load(Ordering::Relaxed) { LEAVES } else { READ_ONLY };
        self.read_only.load(Ordering::Relaxed).then_some(why)
    }

    /// Notes whether fewer than half of the organisations are heard; whether that is a change.
    pub(crate) fn set_cut_off(&self, cut_off: bool) -> bool {
        self.cut_off.swap(cut_off, Ordering::Relaxed) != cut_off
    }

    /// Why the peer takes no writes of clients now; `None` where it does. What the disk takes, and repair needs, is
    /// [`Shelf::refuses_writes`].
    pub(crate) fn refuses_clients(&self) -> Option<&'static str> {
        let cut_off = self.cut_off.load(Ordering::Relaxed).then_some(CUT_OFF);
        self.refuses_writes().or(cut_off)
    }

    /// Whether clients' writes are to be tried: not while the rest of the network is not heard. What they read is served.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub(crate) fn check_clients(&self) -> Result<(), CallError> {
        match self.cut_off.load(Ordering::Relaxed) {
            true => Err(CallError::ReadOnly { reason: CUT_OFF.to_owned() }),
            false => Ok(()),
        }
    }

    /// Why the peer takes no writes now; `None` where it does.
    pub(crate) fn refuses_writes(&self) -> Option<&'static str> {
        if let Some(why) = self.closed_to_writes() {
            return Some(why);
        }
        let stats = self.store.stats();
        if stats.poisoned || self.publications.journal().is_poisoned() {
            return Some("an fsync failed, its disk must be checked");
        }
        self.room.is_full(&stats).then_some("its disk is full")
    }

    /// Whether what others can tell again must wait, as the disk is full.
    pub(crate) fn is_full(&self) -> bool {
        self.room.is_full(&self.store.stats())
    }

    /// Whether writes are to be tried. A full or failed disk says so itself.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub(crate) fn check_writes(&self) -> Result<(), CallError> {
        match self.closed_to_writes() {
            Some(why) => Err(CallError::ReadOnly { reason: why.to_owned() }),
            None => Ok(()),
        }
    }

    /// Stores records; one outcome each, in order, when all that could be stored are durable.
    ///
    /// Those that do not prove themselves are refused one by one; the others are stored all or none.
    /// A caller that goes away does not undo it: it is for this peer's own work, which itself bounds how many there are.
    pub(crate) async fn put(
        self: &Arc<Self>,
        records: Vec<Record>,
        covered: Covered,
    ) -> Vec<Result<StoreOutcome, CallError>> {
        let (count, shelf) = (records.len(), Arc::clone(self));
        let work = async move { shelf.put_here(records, covered).await.outcomes };
        owned(&self.env, work).await.unwrap_or_else(|| vec![Err(closed()); count])
    }

    /// Stores records as [`Shelf::put`], in a task that goes on to its end ([`owned`]) and keeps what counts their bytes. A dropped
    /// one would leave an envelope without its publication, a lease on the disk that is in no account, or a write under way
    /// that leases know nothing of.
    pub(crate) async fn put_here(&self, records: Vec<Record>, covered: Covered) -> Put {
        if let Err(error) = self.check_writes() {
            let outcomes = vec![Err(error); records.len()];
            return Put { new: vec![false; outcomes.len()], outcomes };
        }
        let mut proven = self.prove(records).await;
        fragments::refuse_stray(self, &mut proven).await;
        self.put_proven(proven, covered).await
    }

    async fn put_proven(&self, proven: Vec<Result<Proven, CallError>>, covered: Covered) -> Put {
        let mut outcomes = Vec::with_capacity(proven.len());
        let (mut records, mut publications) = (Vec::new(), Vec::new());
        for result in proven {
            match result {
                Ok(Proven { record, publication, .. }) => {
                    let bytes = record.bytes.clone();
                    publications
                        .extend(publication.map(|found| Entry::stored(self.suite, &found, bytes)));
                    records.push(record);
                    outcomes.push(Ok(StoreOutcome::Stored));
                }
                Err(error) => outcomes.push(Err(error)),
            }
        }
        let mut new = vec![false; outcomes.len()];
        if records.is_empty() {
            return Put { outcomes, new };
        }
        // Of an envelope that nobody would be told of nothing is kept.
        let logs = publications.is_empty() || !self.publications.journal().is_poisoned();
        let stored = match logs {
            true => self.write(records, &covered).await,
            false => Err(refusal(&StoreError::Poisoned)),
        };
        let failed = match stored {
            Ok(stored) => {
                let good = outcomes.iter_mut().zip(&mut new).filter(|(outcome, _)| outcome.is_ok());
                for ((outcome, new), stored) in good.zip(stored) {
                    *outcome =
                        Ok(if stored { StoreOutcome::Stored } else { StoreOutcome::Present });
                    *new = stored;
                }
                self.publications.log(publications).await.err()
            }
            Err(error) => Some(error),
        };
        if let Some(error) = failed {
            let good = outcomes.iter_mut().filter(|outcome| outcome.is_ok());
            good.for_each(|outcome| *outcome = Err(error.clone()));
        }
        Put { outcomes, new }
    }

    /// Writes records with what they are paid by, all or none.
    async fn write(&self, records: Vec<Record>, covered: &Covered) -> Result<Vec<bool>, CallError> {
        self.leases.write(records, covered, |error| self.refused(error)).await
    }

    /// The record, if it is held whole. Those of versioned objects are not served here: who may read one, its object's
    /// policy says.
    pub(crate) async fn get(&self, id: &RecordId) -> Result<Option<Record>, CallError> {
        if !self.store.contains(id) {
            return Ok(None);
        }
        match self.store.get(id).await {
            Ok(record) => Ok(record.filter(|record| record.kind.is_document())),
            Err(StoreError::Damaged { id, .. }) => {
                self.metrics.damaged_read();
                tracing::error!(record = %id, "a record is damaged on disk and is not served");
                Ok(None)
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    /// The record at this place, if it is held whole and may live there.
    pub(crate) async fn find(
        &self,
        id: &RecordId,
        place: &Place,
    ) -> Result<Option<Record>, CallError> {
        let Some(record) = self.get(id).await? else { return Ok(None) };
        if record.place == *place {
            return Ok(Some(record));
        }
        let lives = fragments::lives_at(self, &record, place).await?;
        Ok(lives.then_some(Record { place: *place, ..record }))
    }

    /// The header of a stripe, if it is held whole.
    pub(crate) async fn stripe(&self, id: &RecordId) -> Result<Option<Stripe>, CallError> {
        let Some(record) = self.get(id).await? else { return Ok(None) };
        if record.kind != Kind::Stripe {
            return Ok(None);
        }
        match Document::decode(&record.bytes) {
            Ok(Document::Stripe(stripe)) => Ok(Some(stripe)),
            _ => Ok(None),
        }
    }

    /// The record, where it proves itself.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) async fn proven(&self, record: Record) -> Result<Record, CallError> {
        let proven = self.prove(vec![record]).await.pop();
        proven.unwrap_or_else(|| Err(closed())).map(|proven| proven.record)
    }

    /// Proves records, on a CPU thread where they are large.
    async fn prove(&self, records: Vec<Record>) -> Vec<Result<Proven, CallError>> {
        let suite = self.suite;
        let bytes: usize = records.iter().map(|record| record.bytes.len()).sum();
        let all = move || records.into_iter().map(|record| prove(suite, record)).collect();
        if bytes < LARGE_BYTES { all() } else { self.env.cpu(all).await }
    }

    pub(crate) fn refused(&self, error: StoreError) -> CallError {
        match error {
            StoreError::Full => {
                self.room.ran_out();
                CallError::Full
            }
            error => refusal(&error),
        }
    }
}

/// A store's error as a caller is told. What the system said stays in the log: it names files.
pub(crate) fn refusal(error: &StoreError) -> CallError {
    match error {
        StoreError::Full => CallError::Full,
        StoreError::Poisoned => {
            let reason = "an fsync failed, its disk must be checked".to_owned();
            CallError::ReadOnly { reason }
        }
        StoreError::Closed => closed(),
        error => {
            tracing::error!(%error, "the store failed");
            CallError::Internal { reason: "its storage failed".to_owned() }
        }
    }
}

pub(crate) fn closed() -> CallError {
    CallError::Busy { retry_after: RETRY_AFTER_CLOSED }
}

/// What became of records that were put.
pub(crate) struct Put {
    /// One of each, in order.
    pub(crate) outcomes: Vec<Result<StoreOutcome, CallError>>,
    /// Whether each takes room now that it did not take before: also one whose publication could not be logged.
    pub(crate) new: Vec<bool>,
}

/// A record that proved itself.
pub(crate) struct Proven {
    pub(crate) record: Record,
    /// An envelope's.
    publication: Option<Publication>,
    /// A fragment's or a stripe's header's: what they say of each other is still to be compared.
    pub(crate) document: Option<Document>,
}

/// Proves one record; an envelope's publication comes with it.
fn prove(suite: Suite, record: Record) -> Result<Proven, CallError> {
    let document = match document::prove(suite, &record) {
        Ok(document) => document,
        Err(error) => return Err(CallError::Invalid { reason: one_line(&error) }),
    };
    let mut proven = Proven { record, publication: None, document: None };
    match document {
        Document::Envelope(envelope) => {
            let publication = Publication::from_envelope(proven.record.id, &envelope);
            proven.publication = Some(publication);
        }
        document @ Document::Stripe(_) => proven.document = Some(document),
        document if fragments::is_fragment(&proven.record) => proven.document = Some(document),
        _ => {}
    }
    Ok(proven)
}

/// The error and what caused it, in one line.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The peer's own store as its walker sees it: no call to itself.
pub(crate) struct OwnShelf(pub(crate) Arc<Shelf>);

#[async_trait]
impl LocalStore for OwnShelf {
    async fn store(&self, record: Record) -> Result<StoreOutcome, CallError> {
        self.store_leased(record, Vec::new()).await
    }

    async fn store_leased(
        &self,
        record: Record,
        leases: Vec<Shown>,
    ) -> Result<StoreOutcome, CallError> {
        let covered = self.0.leases.check(leases, std::slice::from_ref(&record), By::Peer).await?;
        let outcome = self.0.put(vec![record], covered).await.pop();
        outcome.unwrap_or_else(|| Err(closed()))
    }

    async fn find(&self, id: &RecordId) -> Result<Option<Record>, CallError> {
        self.0.get(id).await
    }
}
