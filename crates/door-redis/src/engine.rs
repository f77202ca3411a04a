//! The door's keyspace over the object engine of a peer's own store.
//!
//! The engine makes versions at once and writes them later, as the door wants it; what is added here
//! is whose objects they are, which tip counts, and which versions others made. The door's thread is
//! none of the runtime's, so it may wait for the engine where that reads or writes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use bytes::Bytes;
use crypto::{Class, Classified, NetworkId, PublicKey, RecordId, Suite};
use futures::executor::block_on;
use objects::{Batch, Event, Likely, NewVersion, Objects, ObjectsError, READY_MAX};
use store::Durability;
use tokio::sync::broadcast::{Receiver, error::TryRecvError};
use version::{Bases, Merges, ObjectKey, ObjectRecord, ValueKind, VersionError, VersionId};

use crate::error::Refusal;
use crate::keyspace::{BATCH_BYTES, Keyspace, Made, Put, Stored, Tip};
use crate::merging::{self, OfKeys};
use crate::writer::Writer;

/// What the names of the door's objects begin with.
const FAMILY: &[u8] = b"redis/";

/// Processors from which on one is to spare for a thread that writes: the door has one, and its callers another. On two the thread
/// takes the callers' time, and they the door's.
const SPARE_FROM: usize = 3;

/// Bytes of values of one commit that waits for no fsync and is not written beside: one turn's of most callers. With it the first
/// answers wait some milliseconds for the last.
const UNSYNCED_TURN_BYTES: usize = 1 << 20;

/// Bytes of values of one commit that waits for no fsync and is written beside: with their copies and headers they fit the processor's second cache.
const UNSYNCED_BATCH_BYTES: usize = 128 << 10;
/// Versions that a merge reads for what both are made of, which the door's thread does: some milliseconds.
const ANCESTORS_MAX: usize = 4_096;
/// Bytes of these versions.
const ANCESTORS_BYTES_MAX: usize = 256 << 20;
/// Versions that wait for whoever signs them, which it is woken for; at rest it gets what there is.
const UNSENT_MAX: usize = 2_048;
/// Versions that wait for whoever signs them while it takes none: 32 MiB of ids.
const WAITING_MAX: usize = 1 << 20;

/// Why the engine did not do what the door asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No merge function is called so.
    #[error("there is no such merge function; there are {0}")]
    NoFunction(String),
    /// The function does not decide.
    #[error("the versions conflict ({0}): put a value on both")]
    Conflict(std::borrow::Cow<'static, str>),
    /// The merge would be no string.
    #[error("the merge is a {}, no bytes: put a value on both", .0.name())]
    NoBytes(ValueKind),
    /// The thread that writes ended with a panic: what it left of its last write nobody knows.
    #[error(
        "the thread that writes has failed, and nothing is written any more: start the peer again"
    )]
    Failed,
    /// A side is no string and no hash, or they are not the same.
    #[error("only versions that are strings, or hashes, are merged by a function")]
    NotMerged,
    /// What both are made of is too far back to be looked for while others wait.
    #[error(
        "nothing common was found in the last {ANCESTORS_MAX} versions or {} MiB of them: put a value on both",
        ANCESTORS_BYTES_MAX >> 20
    )]
    TooFar,
    /// The engine.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// What would be no version.
    #[error(transparent)]
    Version(#[from] VersionError),
}

impl Classified for EngineError {
    fn class(&self) -> Class {
        match self {
            Self::NoFunction(_) => Class::NotFound,
            Self::Conflict(_) | Self::NoBytes(_) | Self::NotMerged | Self::TooFar => {
                Class::Conflict
            }
            Self::Failed => Class::Unavailable,
            Self::Objects(error) => error.class(),
            Self::Version(error) => error.class(),
        }
    }
}

fn refuse(error: impl Into<EngineError>) -> Refusal {
    Refusal::new(error.into())
}

/// The objects of one owner in one store.
#[derive(Debug)]
pub struct Engine {
    objects: Arc<Objects>,
    suite: Suite,
    network: NetworkId,
    owner: PublicKey,
    durability: Option<Durability>,
    merges: Merges,
    batch: Batch,
    /// The versions of the batch, in the order in which they were made.
    made: Vec<RecordId>,
    /// Whether batches are written beside the door's work.
    beside: bool,
    /// Writes them then; started with the first.
    writer: Option<Writer>,
    /// Whether it ended with a panic: as with a store whose fsync failed nothing is written until the next start.
    failed: bool,
    /// The versions of the batch that it is writing.
    flying: Vec<RecordId>,
    news: Receiver<Arc<Vec<Event>>>,
    /// What was told of our commits, and is among the news.
    own: VecDeque<Arc<Vec<Event>>>,
    attest: Option<SyncSender<Vec<RecordId>>>,
    /// Versions in the log that were not sent there yet.
    unsent: Vec<RecordId>,
    /// Whether a commit was since the last turn.
    busy: bool,
}

impl Engine {
    /// The objects of `owner`, whose writes are answered when they are as durable as was asked for;
    /// with none as the store is set.
    pub fn new(
        objects: Arc<Objects>,
        suite: Suite,
        network: NetworkId,
        owner: PublicKey,
        durability: Option<Durability>,
    ) -> Self {
        Self {
            batch: objects.batch(),
            news: objects.watch(),
            objects,
            suite,
            network,
            owner,
            durability,
            merges: Merges::new(),
            made: Vec::new(),
            beside: is_beside(durability),
            writer: None,
            failed: false,
            flying: Vec::new(),
            own: VecDeque::new(),
            attest: None,
            unsent: Vec::new(),
            busy: false,
        }
    }

    /// The same, and what reaches the log goes to `attest`, for whoever signs it. What it has no room for waits; of very much the
    /// oldest is given up, and stays for whoever looks for versions that are not attested.
    #[must_use]
    pub fn attested(mut self, attest: SyncSender<Vec<RecordId>>) -> Self {
        self.attest = Some(attest);
        self
    }

    /// The same, whose writes are answered when they are as durable as this.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self.beside = is_beside(self.durability);
        self
    }

    /// The same, whose large turns are written on a thread of their own beside the door's work, or are not: without this it depends on
    /// whether the machine has a processor to spare.
    #[must_use]
    pub fn write_beside(mut self, beside: bool) -> Self {
        self.beside = beside;
        self
    }

    /// The same with an application's own merge functions.
    #[must_use]
    pub fn merges(mut self, merges: Merges) -> Self {
        self.merges = merges;
        self
    }

    /// The tip that counts.
    fn tip(&self, object: &ObjectKey) -> Option<Tip> {
        let (id, kind) = self.objects.newest(object)?;
        Some(Tip { id, kind: Some(kind) })
    }

    /// A batch is in the log: whoever signs gets its versions, some at a time.
    fn written(&mut self, told: Arc<Vec<Event>>, mut made: Vec<RecordId>) {
        if !told.is_empty() {
            self.own.push_back(told);
        }
        if self.attest.is_some() {
            self.unsent.append(&mut made);
            self.busy = true;
            if self.unsent.len() >= UNSENT_MAX {
                self.send();
            }
        }
    }

    fn fetch(&self, object: &ObjectKey, h: &RecordId) -> Result<Option<Stored>, ObjectsError> {
        match block_on(self.objects.get(object, h)) {
            Ok(found) => Ok(found.map(stored)),
            Err(ObjectsError::OtherObject { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether anything may be written; where not, nothing is pending any more.
    fn check(&mut self) -> Result<(), Refusal> {
        if !self.failed {
            return Ok(());
        }
        self.batch = self.objects.batch();
        self.made.clear();
        Err(refuse(EngineError::Failed))
    }

    /// Hands what is in the log to whoever signs it.
    fn send(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let made = std::mem::take(&mut self.unsent);
        let Some(attest) = &self.attest else { return };
        if let Err(TrySendError::Full(made)) = attest.try_send(made) {
            if made.len() < WAITING_MAX {
                self.unsent = made;
            } else {
                tracing::warn!(versions = made.len(), "attesting is far behind: not attested yet");
            }
        }
    }

    /// Makes a version in the batch; gives its id and its value.
    fn make(&mut self, put: Put<'_>, bases: Bases) -> Result<(VersionId, Bytes), ObjectsError> {
        let Put { object, kind, value, compress, .. } = put;
        if !compress && let Some(made) = self.batch.put_now(object, bases, kind, value)? {
            return Ok(made);
        }
        let value = Bytes::copy_from_slice(value);
        let new = NewVersion { object: *object, bases, kind, value: value.clone(), compress };
        Ok((block_on(self.batch.put(new))?, value))
    }

    fn record(&self, name: &[u8]) -> ObjectRecord {
        let name = Bytes::copy_from_slice(name);
        ObjectRecord { network: self.network, owner: self.owner, name }
    }

    /// Writes the record of an object that has versions here and no name: it was lost with the power, or with a part of the disk. What
    /// is put on those versions is then loaded at the next start.
    fn name_again(&self, object: &ObjectKey, name: &[u8]) -> Result<(), ObjectsError> {
        tracing::warn!(%object, "the object's record was lost and is written again");
        let mut batch = self.objects.batch();
        batch.object(&self.record(name))?;
        block_on(batch.commit(self.durability))
    }

    /// The name of an object of ours, or none.
    fn name(&self, object: &ObjectKey) -> Option<Bytes> {
        let record = block_on(self.objects.record_of(object)).ok()??;
        let ours = record.owner == self.owner && record.network == self.network;
        Some(record.name).filter(|name| ours && name.starts_with(FAMILY))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.send();
    }
}

/// Whether there is something to be won by a thread that writes: it waits for fsyncs while the door goes on, or has a processor.
fn is_beside(durability: Option<Durability>) -> bool {
    match durability {
        Some(Durability::EverySecond | Durability::Memory) => {
            std::thread::available_parallelism().is_ok_and(|all| all.get() >= SPARE_FROM)
        }
        _ => true,
    }
}

/// The version that a put will make, where it is kept plain.
fn likely(put: Put<'_>) -> Option<Likely<'_>> {
    let bases = bases(put.bases).ok()?;
    let Put { object, kind, value, compress, .. } = put;
    (!compress).then_some(Likely { object: *object, bases, kind, value })
}

fn bases(ids: &[VersionId]) -> Result<Bases, VersionError> {
    match ids {
        [] => Ok(Bases::NONE),
        [base] => Ok(Bases::one(base.h)),
        [a, b, ..] => Bases::two(a.h, b.h),
    }
}

fn stored(found: objects::Stored) -> Stored {
    let version = found.version;
    Stored { id: found.id, bases: version.bases, kind: version.kind, value: version.value }
}

impl Keyspace for Engine {
    fn load(&mut self, each: &mut dyn FnMut(&[u8], ObjectKey, Tip)) -> Result<(), Refusal> {
        let mut found = Vec::new();
        self.objects
            .objects_of(&self.owner, &mut |object, record| {
                if record.network == self.network && record.name.starts_with(FAMILY) {
                    found.push((object, record.name));
                }
            })
            .map_err(refuse)?;
        for (object, name) in found {
            if let Some(tip) = self.tip(&object) {
                each(&name, object, tip);
            }
        }
        Ok(())
    }

    fn open(&mut self, name: &[u8]) -> Result<(ObjectKey, Option<Tip>), Refusal> {
        let object =
            version::key_of(self.suite, &self.network, &self.owner, name).map_err(refuse)?;
        let tip = self.tip(&object);
        if tip.is_some() && !self.objects.has_record(&object) {
            self.name_again(&object, name).map_err(refuse)?;
        }
        Ok((object, tip))
    }

    fn prepare(&mut self, puts: &mut dyn Iterator<Item = Put<'_>>) {
        let mut all = Vec::with_capacity(READY_MAX);
        all.extend(puts.filter_map(likely));
        self.batch.prepare(&all);
    }

    fn put(&mut self, put: Put<'_>) -> Result<Made, Refusal> {
        let bases = bases(put.bases).map_err(refuse)?;
        // Before its version: of a write that the power cuts a beginning is left, and without its name a key is not loaded.
        if let Some(name) = put.name {
            self.batch.object(&self.record(name)).map_err(refuse)?;
        }
        let (id, value) = match self.make(put, bases) {
            Ok(made) => made,
            Err(error) => {
                self.batch.truncate(self.made.len());
                return Err(refuse(error));
            }
        };
        if self.batch.versions() > self.made.len() {
            self.made.push(id.h);
        }
        Ok(Made { id, value })
    }

    fn pending(&self) -> usize {
        self.made.len()
    }

    fn abandon(&mut self, to: usize) {
        self.batch.truncate(to);
        self.made.truncate(to);
    }

    fn commit(&mut self) -> Result<(), Refusal> {
        self.check()?;
        let versions = self.made.len();
        let made = std::mem::replace(&mut self.made, Vec::with_capacity(versions));
        let told = self.batch.commit_here(self.durability).map_err(refuse)?;
        self.written(told, made);
        Ok(())
    }

    fn begin(&mut self) -> Result<bool, Refusal> {
        if !self.beside {
            return self.commit().map(|()| false);
        }
        self.check()?;
        if self.writer.is_none() {
            match Writer::start(self.durability) {
                Ok(writer) => self.writer = Some(writer),
                Err(error) => {
                    tracing::warn!(%error, "there is no thread to write beside");
                    return self.commit().map(|()| false);
                }
            }
        }
        let Some(writer) = &self.writer else { return self.commit().map(|()| false) };
        let batch = std::mem::replace(&mut self.batch, self.objects.batch());
        let (flight, next) = batch.begin();
        self.batch = next;
        self.flying = std::mem::take(&mut self.made);
        writer.begin(flight);
        Ok(true)
    }

    fn land(&mut self) -> Result<(), Refusal> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let done = writer.land();
        self.batch.landed(matches!(done, Some(Ok(_))));
        let made = std::mem::take(&mut self.flying);
        match done {
            Some(Ok(told)) => {
                self.written(told, made);
                Ok(())
            }
            Some(Err(error)) => {
                self.made.clear();
                Err(refuse(error))
            }
            None => {
                self.made.clear();
                // It says so in the log.
                self.writer = None;
                self.failed = true;
                Err(refuse(EngineError::Failed))
            }
        }
    }

    /// Whoever signs gets the last versions, and ends then.
    fn end_writes(&mut self) {
        let made = std::mem::take(&mut self.unsent);
        if let Some(attest) = self.attest.take()
            && !made.is_empty()
            && attest.send(made).is_err()
        {
            tracing::error!(
                "the thread that attests has ended: the last versions are not attested"
            );
        }
    }

    fn batch_bytes(&self) -> usize {
        match self.durability {
            Some(Durability::EverySecond | Durability::Memory) => match self.beside {
                true => UNSYNCED_BATCH_BYTES,
                false => UNSYNCED_TURN_BYTES,
            },
            _ => BATCH_BYTES,
        }
    }

    fn get(&mut self, object: &ObjectKey, h: &RecordId) -> Result<Option<Stored>, Refusal> {
        self.fetch(object, h).map_err(refuse)
    }

    fn previous(
        &mut self,
        object: &ObjectKey,
        h: &RecordId,
        m: usize,
        each: &mut dyn FnMut(Stored) -> bool,
    ) -> Result<(), Refusal> {
        let each = |found| each(stored(found));
        block_on(self.objects.previous_each(object, h, m, each)).map_err(refuse)
    }

    fn tips(&mut self, object: &ObjectKey) -> Result<Vec<VersionId>, Refusal> {
        let mut tips = self.objects.tips(object);
        tips.sort_by_key(|id| std::cmp::Reverse((id.l, id.h)));
        Ok(tips)
    }

    fn merge(
        &mut self,
        object: &ObjectKey,
        a: &RecordId,
        b: &RecordId,
        function: &[u8],
    ) -> Result<Bytes, Refusal> {
        let name = std::str::from_utf8(function).ok();
        let Some(function) = name.and_then(|name| self.merges.get(name)) else {
            let names: Vec<&str> = self.merges.names().collect();
            return Err(refuse(EngineError::NoFunction(names.join(", "))));
        };
        let bounds = (ANCESTORS_MAX, ANCESTORS_BYTES_MAX);
        let of_keys = OfKeys(function);
        let base = match block_on(self.objects.v0_within(object, a, b, &of_keys, bounds)) {
            Err(
                ObjectsError::TooMuch { .. } | ObjectsError::Version(VersionError::TooFar { .. }),
            ) => {
                return Err(refuse(EngineError::TooFar));
            }
            found => found.map_err(refuse)?,
        };
        let base = base.map_err(|conflict| refuse(EngineError::Conflict(conflict.reason)))?;
        let needed = |h: &RecordId| {
            let found = self
                .fetch(object, h)
                .and_then(|found| found.ok_or(ObjectsError::NotHere { object: *object, id: *h }));
            found.map_err(refuse)
        };
        let (a, b) = (needed(a)?, needed(b)?);
        merging::merged(function, base.as_ref(), &a, &b).map_err(refuse)
    }

    fn changed(&mut self, each: &mut dyn FnMut(&[u8], ObjectKey, Tip)) -> Result<(), Refusal> {
        // What was made ahead in the turn before stands as its bases stood then.
        self.batch.prepare(&[]);
        let mut lagged = false;
        loop {
            match self.news.try_recv() {
                Ok(events) => {
                    // Ours come in their order, between those of others.
                    let ours = self.own.iter().position(|own| Arc::ptr_eq(own, &events));
                    if let Some(at) = ours {
                        self.own.drain(..=at);
                        continue;
                    }
                    for (object, id) in events.iter() {
                        if let (Some(name), Some(tip)) = (self.name(object), self.tip(object)) {
                            tracing::debug!(%object, %id, "another writer made a version");
                            each(&name, *object, tip);
                        }
                    }
                }
                Err(TryRecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "commits were missed: all tips are looked at");
                    lagged = true;
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        if !std::mem::replace(&mut self.busy, false) {
            self.send();
        }
        // All of ours were told before: what is left was lost with a gap.
        self.own.clear();
        if lagged { self.load(each) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use crypto::SecretKey;
    use objects::ObjectsOptions;
    use store::MemoryStore;

    use super::*;

    /// A door that is many commits of others behind learns of all of them all the same.
    #[test]
    fn commits_that_were_missed_are_found_by_their_tips() {
        let store = Arc::new(MemoryStore::new());
        let objects = Objects::open(store, ObjectsOptions::default()).unwrap();
        let owner = SecretKey::from_slice(&[7; 32]).unwrap().public();
        let network = NetworkId::new([9; 32]);
        let mut engine = Engine::new(objects.clone(), Suite::default(), network, owner, None);
        for number in 0..5_000 {
            let name = Bytes::from(format!("redis/k{number}"));
            let mut batch = objects.batch();
            let object = batch.object(&ObjectRecord { network, owner, name }).unwrap();
            batch.put_now(&object, Bases::NONE, ValueKind::Bytes, b"theirs").unwrap();
            batch.commit_here(None).unwrap();
        }
        let mut seen = std::collections::HashSet::new();
        engine.changed(&mut |name, _, _| seen.extend([name.to_vec()])).unwrap();
        assert_eq!(seen.len(), 5_000);
        engine.changed(&mut |name, _, _| panic!("{name:?} comes again")).unwrap();
    }

    #[test]
    fn once_the_thread_that_writes_has_failed_nothing_is_written_and_reads_go_on() {
        let store = Arc::new(MemoryStore::new());
        let objects = Objects::open(store, ObjectsOptions::default()).unwrap();
        let owner = SecretKey::from_slice(&[7; 32]).unwrap().public();
        let network = NetworkId::new([9; 32]);
        let engine = Engine::new(objects, Suite::default(), network, owner, None);
        let mut engine = engine.write_beside(true);
        let (object, _) = engine.open(b"redis/kone").unwrap();
        let name = Some(&b"redis/kone"[..]);
        let kind = ValueKind::Bytes;
        let put = |bases, value| Put { object: &object, name, bases, kind, value, compress: false };
        let first = [engine.put(put(&[], b"kept")).unwrap().id];
        engine.commit().unwrap();

        engine.writer = Some(Writer::ended());
        engine.put(put(&first, b"lost")).unwrap();
        assert!(engine.begin().unwrap());
        engine.put(put(&first, b"behind it")).unwrap();
        let failed = engine.land().unwrap_err();
        assert!(failed.to_string().contains("start the peer again"), "{failed}");
        assert_eq!((failed.class(), engine.pending()), (Class::Unavailable, 0));
        for small in [true, false] {
            engine.put(put(&first, b"more")).unwrap();
            let refused = if small { engine.commit().err() } else { engine.begin().err() };
            assert!(refused.unwrap().to_string().contains("start the peer again"));
            assert_eq!(engine.pending(), 0);
        }
        let tip = engine.open(b"redis/kone").unwrap().1.unwrap();
        assert_eq!(tip.id, first[0]);
        assert_eq!(&engine.get(&object, &first[0].h).unwrap().unwrap().value[..], b"kept");
    }
}
