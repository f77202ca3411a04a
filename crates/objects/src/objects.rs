//! All objects of a store: opening, reading, watching.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use crypto::{PublicKey, RecordId, Suite};
use document::{Kind, Record};
use foldhash::fast::RandomState;
use store::{Part, RecordStore};
use tokio::sync::broadcast;
use version::{
    Codecs, Form, Hint, ObjectKey, ObjectRecord, ValueKind, Version, VersionId, View, place, places,
};

use crate::ObjectsError;
use crate::arrivals::Arrivals;
use crate::batch::{Batch, Told};
use crate::cache::Cache;
use crate::index::{Index, Rebuild, Tip};

/// Commits that a watcher may be behind before it is told of a gap.
const WATCHED_MAX: usize = 4096;

/// How objects are kept.
#[derive(Clone, Copy, Debug)]
pub struct ObjectsOptions {
    /// The network's suite.
    pub suite: Suite,
    /// Versions kept in memory, in bytes.
    pub cache_bytes_max: u64,
}

impl Default for ObjectsOptions {
    fn default() -> Self {
        Self { suite: Suite::default(), cache_bytes_max: 64 << 20 }
    }
}

/// A version as it is kept.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its id.
    pub id: VersionId,
    /// The version; its value shares the record's bytes.
    pub version: Version,
}

/// A version that is new here.
pub type Event = (ObjectKey, VersionId);

type Beside = Box<dyn Fn(&Record) + Send + Sync>;

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    /// Objects with a version here.
    pub objects: u64,
    /// Versions: those found when the store was opened, and those written since. What was dropped since is counted until the
    /// next start.
    pub versions: u64,
    /// Bytes of versions in memory.
    pub cached_bytes: u64,
    /// Versions that are bases of others here and are not here themselves.
    pub awaited: u64,
    /// Versions that could not be understood when the store was opened.
    pub unknown: u64,
}

/// The versioned objects of one store.
pub struct Objects {
    pub(crate) store: Arc<dyn RecordStore>,
    pub(crate) suite: Suite,
    pub(crate) index: Index,
    pub(crate) arrivals: Arrivals,
    pub(crate) cache: Cache,
    pub(crate) codecs: Codecs,
    news: broadcast::Sender<Arc<Told>>,
    /// Who is told of records beside versions.
    beside: OnceLock<Beside>,
    unknown: AtomicU64,
    versions: AtomicU64,
}

impl Objects {
    /// Reads which tips each object has. It blocks while the log is read: about a second a gigabyte of versions.
    ///
    /// # Errors
    /// [`ObjectsError::Store`] where the log cannot be read. A damaged version is none: it is left out until it is written
    /// again, and its bases may be tips until then.
    pub fn open(
        store: Arc<dyn RecordStore>,
        options: ObjectsOptions,
    ) -> Result<Arc<Self>, ObjectsError> {
        let mut rebuild = Rebuild::new();
        let (mut unknown, mut versions) = (0, 0);
        let unread =
            store.each_of(&[Kind::Version], &mut |part| match met(options.suite, &part) {
                Some((object, bases, tip, bytes)) => {
                    versions += 1;
                    rebuild.meet(&object, &bases, tip, bytes);
                }
                None => unknown += 1,
            })?;
        let unread: HashSet<RecordId, RandomState> = unread.into_iter().collect();
        let is_here = |base: &RecordId| store.contains(base) && !unread.contains(base);
        let (index, awaited) = rebuild.done(options.suite, is_here);
        if unknown > 0 {
            tracing::warn!(unknown, "versions in the store are not of a form this program knows");
        }
        Ok(Arc::new(Self {
            store,
            suite: options.suite,
            index,
            arrivals: Arrivals::new(awaited, unread),
            cache: Cache::new(options.cache_bytes_max),
            codecs: Codecs::new(),
            news: broadcast::Sender::new(WATCHED_MAX),
            beside: OnceLock::new(),
            unknown: AtomicU64::new(unknown),
            versions: AtomicU64::new(versions),
        }))
    }

    /// Begins writes that are made durable together.
    pub fn batch(self: &Arc<Self>) -> Batch {
        Batch::new(Arc::clone(self))
    }

    /// A version of an object; `None` where it is not here.
    ///
    /// # Errors
    /// [`ObjectsError::OtherObject`], [`ObjectsError::Store`].
    pub async fn get(
        &self,
        object: &ObjectKey,
        h: &RecordId,
    ) -> Result<Option<Stored>, ObjectsError> {
        let Some(record) = self.record(h).await? else { return Ok(None) };
        let other = || ObjectsError::OtherObject { object: *object, id: *h };
        if record.kind != Kind::Version {
            return Err(other());
        }
        let version = Version::decode(&record.bytes)?;
        if version.object != *object {
            return Err(other());
        }
        let n = hint_at(self.suite, object, &record)?;
        Ok(Some(Stored { id: VersionId { h: *h, l: version.l, n }, version }))
    }

    async fn record(&self, h: &RecordId) -> Result<Option<Record>, ObjectsError> {
        if let Some(record) = self.cache.get(h) {
            return Ok(Some(record));
        }
        let found = self.store.get(h).await?;
        if let Some(record) = &found
            && record.kind == Kind::Version
        {
            self.cache.add(record.clone());
        }
        Ok(found)
    }

    /// A version's own bytes.
    pub(crate) async fn bytes_of(&self, h: &RecordId) -> Result<Option<Bytes>, ObjectsError> {
        match self.cache.bytes_of(h) {
            Some(bytes) => Ok(Some(bytes)),
            None => Ok(self.record(h).await?.map(|record| record.bytes)),
        }
    }

    /// How a version that is no tip stands: its id, and what forms of its successors are made against.
    pub(crate) async fn stand(
        &self,
        object: &ObjectKey,
        h: &RecordId,
    ) -> Result<Option<Tip>, ObjectsError> {
        let Some(stored) = self.get(object, h).await? else { return Ok(None) };
        let anchor = self.store.form_base(h)?.unwrap_or(*h);
        let place = place(self.suite, object, &stored.id.n);
        Ok(Some(Tip { id: stored.id, kind: stored.version.kind, anchor, place }))
    }

    /// The versions of an object that have no successor here, the one that counts first: see [`Objects::newest`].
    pub fn tips(&self, object: &ObjectKey) -> Vec<VersionId> {
        self.index.first(object, usize::MAX).0
    }

    /// The first `most` of [`Objects::tips`], and whether there are more. Of an object with very many it looks at no others.
    pub fn first_tips(&self, object: &ObjectKey, most: usize) -> (Vec<VersionId>, bool) {
        let (found, count) = self.index.first(object, most);
        (found, count > most)
    }

    /// The tip that counts where one has to be taken, and what its value is: the deepest, of those as deep the one with the
    /// greatest h, so that all peers with the same tips take the same.
    pub fn newest(&self, object: &ObjectKey) -> Option<(VersionId, ValueKind)> {
        self.index.newest(object).map(|tip| (tip.id, tip.kind))
    }

    /// Every object of an owner, by its record, in the order in which they were made. It blocks while the store is read.
    ///
    /// # Errors
    /// [`ObjectsError::Store`].
    pub fn objects_of(
        &self,
        owner: &PublicKey,
        each: &mut dyn FnMut(ObjectKey, ObjectRecord),
    ) -> Result<(), ObjectsError> {
        self.store.each_of(&[Kind::Object], &mut |part| {
            let bytes = Bytes::copy_from_slice(part.payload);
            if let Ok(object) = ObjectRecord::decode(&bytes)
                && object.owner == *owner
            {
                each(part.id.into(), object);
            }
        })?;
        Ok(())
    }

    /// Whose an object is and what it is called, where its record is here.
    ///
    /// # Errors
    /// [`ObjectsError::Store`].
    pub async fn record_of(
        &self,
        object: &ObjectKey,
    ) -> Result<Option<ObjectRecord>, ObjectsError> {
        let found = self.store.get(&object.record()).await?;
        let record = found.filter(|record| record.kind == Kind::Object);
        Ok(record.map(|record| ObjectRecord::decode(&record.bytes)).transpose()?)
    }

    /// Whether an object's record is here, without reading it.
    pub fn has_record(&self, object: &ObjectKey) -> bool {
        self.store.contains(&object.record())
    }

    /// Every version that is committed from now on, a commit at a time. Who is [`WATCHED_MAX`] commits behind is told
    /// how many it lost.
    pub fn watch(&self) -> broadcast::Receiver<Arc<Vec<Event>>> {
        self.news.subscribe()
    }

    pub(crate) fn tell(&self, events: Told) -> Arc<Told> {
        let new = u64::try_from(events.len()).unwrap_or(u64::MAX);
        self.versions.fetch_add(new, Ordering::Relaxed);
        let events = Arc::new(events);
        if self.news.receiver_count() > 0 && !events.is_empty() {
            let _ = self.news.send(events.clone());
        }
        events
    }

    /// Who is told of attestations that are made here ([`crate::Attesting`]), once they are in the store. The first who says so is.
    pub fn on_beside(&self, told: impl Fn(&Record) + Send + Sync + 'static) {
        let _ = self.beside.set(Box::new(told));
    }

    pub(crate) fn tell_beside(&self, record: &Record) {
        if let Some(told) = self.beside.get() {
            told(record);
        }
    }

    /// What there is.
    pub fn stats(&self) -> Stats {
        Stats {
            objects: self.index.objects(),
            versions: self.versions.load(Ordering::Relaxed),
            cached_bytes: self.cache.weight(),
            awaited: self.arrivals.awaited(),
            unknown: self.unknown.load(Ordering::Relaxed),
        }
    }
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Objects({:?})", self.stats())
    }
}

/// A version as the log has it, and the bytes of its record; `None` where it is none that this program knows.
fn met(suite: Suite, part: &Part<'_>) -> Option<(ObjectKey, Vec<RecordId>, Tip, u64)> {
    let (object, bases, l, kind, anchor, bytes) = if part.is_form {
        let form = Form::decode(&Bytes::copy_from_slice(part.payload)).ok()?;
        let Form { object, bases, l, kind, ancestor, value_bytes, .. } = form;
        let head = View { object, bases, l, kind, value: &[] }.encoded_len();
        (object, bases, l, kind, ancestor, head + value_bytes)
    } else {
        let view = View::decode(part.payload).ok()?;
        (view.object, view.bases, view.l, view.kind, part.id, part.payload.len())
    };
    let n = places(suite, object).find(|(_, place)| *place == part.place)?.0;
    let tip = Tip { id: VersionId { h: part.id, l, n }, kind, anchor, place: part.place };
    Some((object, bases.iter().collect(), tip, bytes as u64))
}

pub(crate) fn hint_at(
    suite: Suite,
    object: &ObjectKey,
    record: &Record,
) -> Result<Hint, ObjectsError> {
    let found = places(suite, *object).find(|(_, place)| *place == record.place);
    let (hint, _) = found.ok_or(version::VersionError::Place(record.id))?;
    Ok(hint)
}
