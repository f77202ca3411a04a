//! Versions that are written together: made at once, in the store with one write, or none of them.
//!
//! A version may stand on one made earlier in the same batch. Its id is there as soon as it is made; nobody else is told of
//! it before [`Batch::commit`] is done.
//!
//! [`Batch::begin`] hands a batch to another thread, which writes it, and begins the next, whose versions may stand on those
//! that are being written.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use crypto::RecordId;
use document::{Kind, Record};
use foldhash::fast::RandomState;
use store::{Durability, Kept};
use version::{Bases, Hint, ObjectKey, ObjectRecord, ValueKind, VersionId, View, depth, place};

use crate::buffers::Buffer;
use crate::flight::Flight;
use crate::index::Tip;
use crate::objects::Event;
use crate::{Objects, ObjectsError};

/// Versions that are made ahead at most: as many as the widest vectors hash side by side.
pub const READY_MAX: usize = 16;

/// Versions that are told of together, while nobody else has the index.
const TOGETHER_MAX: usize = 16;

/// A version to be made.
#[derive(Clone, Debug)]
pub struct NewVersion {
    /// Of which object.
    pub object: ObjectKey,
    /// On which versions; none for a root.
    pub bases: Bases,
    /// What the value is.
    pub kind: ValueKind,
    /// The value, whole.
    pub value: Bytes,
    /// Whether it may be kept as a form against an ancestor.
    pub compress: bool,
}

/// A version that may be made next.
#[derive(Clone, Copy, Debug)]
pub struct Likely<'a> {
    /// Of which object.
    pub object: ObjectKey,
    /// On which versions; none for a root.
    pub bases: Bases,
    /// What the value is.
    pub kind: ValueKind,
    /// The value, whole.
    pub value: &'a [u8],
}

impl<'a> Likely<'a> {
    fn view(&self, standing: &Standing) -> View<'a> {
        let Self { object, bases, kind, value } = *self;
        View { object, bases, l: standing.l, kind, value }
    }
}

/// A version of this batch.
pub(crate) struct Made {
    object: ObjectKey,
    bases: Bases,
    pub(crate) tip: Tip,
    /// Where it stands in the list of records.
    at: usize,
    /// Nobody can have had it before: see [`Kept::new`].
    new: bool,
    /// Whether a later version of the batch stands on it: then it is no tip, and nobody reads it soon.
    succeeded: bool,
    /// Whether it is plain and the next versions may become forms of it, for which it is read again.
    is_base: bool,
}

impl Made {
    /// Whether it goes into the cache as it is written. Whoever writes here has the value already, and reads this version again
    /// only for a form; another who reads it brings it in.
    fn is_cached(&self) -> bool {
        self.is_base && !self.succeeded
    }
}

/// The versions of a batch.
#[derive(Default)]
pub(crate) struct Versions {
    /// In the order in which they were made.
    made: Vec<Made>,
    /// Their places in `made`.
    places: HashMap<RecordId, u32, RandomState>,
}

impl Versions {
    fn get(&self, h: &RecordId) -> Option<&Made> {
        self.places.get(h).and_then(|at| self.made.get(*at as usize))
    }

    /// Forgets all of them.
    fn clear(&mut self) {
        self.made.clear();
        self.places.clear();
    }

    /// Later versions of the batch stand on these.
    fn succeed(&mut self, bases: &Bases) {
        for base in bases.iter() {
            if let Some(base) = self.places.get(&base) {
                self.made[*base as usize].succeeded = true;
            }
        }
    }

    /// All is in the store; `new` says what was not there before, `cached` are the records that go into the cache.
    pub(crate) fn done(&self, objects: &Objects, cached: Vec<Record>, new: &[bool]) -> Arc<Told> {
        let is_new = |one: &Made| new.get(one.at).copied().unwrap_or(false);
        let (mut records, mut cached) = (cached.into_iter(), Vec::new());
        let mut events = Vec::with_capacity(self.made.len());
        for some in self.made.chunks(TOGETHER_MAX) {
            let mut all = objects.index.all();
            all.warm(some.iter().map(|one| &one.object));
            for one in some {
                let record = if one.is_cached() { records.next() } else { None };
                if is_new(one) {
                    let tip = Some(one.tip).filter(|_| !one.succeeded);
                    all.succeed(&one.object, one.bases.iter(), tip);
                    cached.extend(record);
                    events.push((one.object, one.tip.id));
                }
            }
            drop(all);
            if !cached.is_empty() {
                objects.cache.add_all(cached.drain(..));
            }
        }
        objects.tell(events)
    }
}

/// How a version's bases stand.
struct Standing {
    l: u64,
    new: bool,
    /// Of the first base.
    first: Option<Tip>,
}

impl Standing {
    fn of(bases: [Option<(Tip, bool)>; version::BASES_MAX]) -> Result<Self, ObjectsError> {
        let l = depth(bases.iter().flatten().map(|(tip, _)| tip.id.l))?;
        let new = bases.iter().flatten().any(|(_, new)| *new);
        Ok(Self { l, new, first: bases[0].map(|(tip, _)| tip) })
    }
}

/// Writes that are made durable together. Dropped without [`Batch::commit`] nothing of it was done.
#[must_use = "nothing is written before `commit`"]
pub struct Batch {
    objects: Arc<Objects>,
    kept: Vec<Kept>,
    versions: Versions,
    /// Those of the batch before, while that is being written.
    before: Option<Arc<Versions>>,
    /// What the next form is made against, where somebody chose.
    against: Option<RecordId>,
    /// What [`Batch::prepare`] made and nobody asked for yet.
    ready: VecDeque<Ready>,
}

/// A version that was made ahead. How it stands holds as long as its bases are not taken back: that one of them is no tip any
/// more, as a version came from elsewhere, may be learnt after it is put as well.
struct Ready {
    object: ObjectKey,
    bases: Bases,
    kind: ValueKind,
    standing: Standing,
    h: RecordId,
    bytes: Bytes,
    value_len: usize,
}

impl Ready {
    fn is(&self, put: &Likely<'_>) -> bool {
        (self.object, self.bases, self.kind) == (put.object, put.bases, put.kind)
            && self.value_len == put.value.len()
            && self.bytes.ends_with(put.value)
    }
}

impl Batch {
    pub(crate) fn new(objects: Arc<Objects>) -> Self {
        Self {
            objects,
            kept: Vec::new(),
            versions: Versions::default(),
            before: None,
            against: None,
            ready: VecDeque::new(),
        }
    }

    /// Makes room for so many versions, so that lists do not grow step by step.
    pub fn reserve(&mut self, versions: usize) {
        self.kept.reserve(versions);
        self.versions.made.reserve(versions);
        self.versions.places.reserve(versions);
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// How many versions it has.
    pub fn versions(&self) -> usize {
        self.versions.made.len()
    }

    /// Forgets the newest versions until `versions` are left, and what was added behind those that are left.
    pub fn truncate(&mut self, versions: usize) {
        let Versions { made, places } = &mut self.versions;
        if versions > made.len() {
            return;
        }
        let last = versions.checked_sub(1).and_then(|last| made.get(last));
        self.kept.truncate(last.map_or(0, |last| last.at + 1));
        if versions == made.len() {
            return;
        }
        self.ready.clear();
        for made in made.drain(versions..) {
            places.remove(&made.tip.id.h);
        }
        // What stood on others may be gone.
        for made in made {
            made.succeeded = false;
        }
        for at in 0..self.versions.made.len() {
            let bases = self.versions.made[at].bases;
            self.versions.succeed(&bases);
        }
    }

    /// Adds a record that stands beside versions: an attestation, a policy. The caller has proven it.
    pub fn add(&mut self, record: Record) {
        self.kept.push(Kept { record, form: None, new: false });
    }

    /// Adds an object's record, which tells whose the object is and its name. It stands before the object's first version:
    /// of a write that the power cuts the log keeps a beginning, and a version whose object nobody can name is never found again.
    ///
    /// # Errors
    /// [`ObjectsError::Version`] where it cannot be called so.
    pub fn object(&mut self, object: &ObjectRecord) -> Result<ObjectKey, ObjectsError> {
        let record = object.record(self.objects.suite)?;
        let key = record.id.into();
        self.add(record);
        Ok(key)
    }

    /// Chooses what the form of the next version is made against, in the stead of its nearest plain ancestor. Where this is a
    /// form itself, or is not here, that version stays plain: no form stands on a form. It is for experiments, which compare
    /// choices.
    pub fn against(&mut self, ancestor: RecordId) {
        self.against = Some(ancestor);
    }

    /// Whether a version is kept plain, in this batch or in the store.
    fn is_plain(&self, h: &RecordId) -> Result<bool, ObjectsError> {
        if let Some(made) = self.versions.get(h) {
            return Ok(self.kept.get(made.at).is_some_and(|kept| kept.form.is_none()));
        }
        let store = &self.objects.store;
        Ok(store.contains(h) && store.form_base(h)?.is_none())
    }

    /// Makes a version. It waits only where a base is no tip and not in memory.
    ///
    /// # Errors
    /// [`ObjectsError::NoBase`], [`ObjectsError::OtherObject`], [`ObjectsError::Version`] where the value is too long,
    /// [`ObjectsError::Store`] where a base cannot be read. Nothing was added then.
    pub async fn put(&mut self, new: NewVersion) -> Result<VersionId, ObjectsError> {
        let NewVersion { object, bases, kind, ref value, compress: may_be_form } = new;
        let mut compress = may_be_form;
        let chosen = self.against.take();
        kind.check(value.len())?;
        let mut standing = [None; version::BASES_MAX];
        for (base, at) in bases.iter().zip(&mut standing) {
            let tip = |object: &ObjectKey, base: &RecordId| self.objects.index.tip(object, base);
            let known = match self.known(&object, &base, tip)? {
                Some(known) => Some(known),
                None => self.objects.stand(&object, &base).await?.map(|tip| (tip, false)),
            };
            *at = Some(known.ok_or(ObjectsError::NoBase { object, base })?);
        }
        let mut standing = Standing::of(standing)?;
        if let (Some(chosen), Some(first)) = (chosen, &mut standing.first) {
            first.anchor = chosen;
            compress &= self.is_plain(&chosen)?;
        }
        let view = View { object, bases, l: standing.l, kind, value };
        let bytes = view.encode();
        let h = self.objects.suite.id(&bytes);
        let form = match standing.first {
            Some(first) if compress => self.form(&bytes, &first.anchor).await?,
            _ => None,
        };
        let is_base = may_be_form && form.is_none();
        Ok(self.push(&view, &standing, h, bytes, form, is_base).0)
    }

    /// Makes a version that is kept plain, at once: gives its id and its value, which shares the record's bytes. `None`
    /// where a base is neither of this batch nor a tip, and would have to be read: then [`Batch::put`] does it.
    ///
    /// # Errors
    /// As [`Batch::put`]. Nothing was added then.
    pub fn put_now(
        &mut self,
        object: &ObjectKey,
        bases: Bases,
        kind: ValueKind,
        value: &[u8],
    ) -> Result<Option<(VersionId, Bytes)>, ObjectsError> {
        kind.check(value.len())?;
        let object = *object;
        let likely = Likely { object, bases, kind, value };
        let (standing, h, bytes) = match self.ready(&likely) {
            Some(Ready { standing, h, bytes, .. }) => (standing, h, bytes),
            None => {
                let index = &self.objects.index;
                let tip = |object: &ObjectKey, base: &RecordId| index.tip(object, base);
                let Some(standing) = self.standing(&likely, tip)? else { return Ok(None) };
                let bytes = encoded(&likely.view(&standing));
                (standing, self.objects.suite.id(&bytes), bytes)
            }
        };
        let (id, bytes) = self.push(&likely.view(&standing), &standing, h, bytes, None, false);
        Ok(Some((id, bytes.slice(bytes.len() - value.len()..))))
    }

    /// Makes versions ahead that [`Batch::put_now`] will be asked for, in this order: side by side their hashes take a
    /// fifth of the time, and what is known of their bases is waited for together. It adds nothing and decides nothing; those
    /// that are not asked for next cost what they took. Those of before are forgotten, and there are no more than 16.
    pub fn prepare(&mut self, puts: &[Likely<'_>]) {
        self.ready.clear();
        if puts.is_empty() {
            return;
        }
        let puts = &puts[..puts.len().min(READY_MAX)];
        let mut standings = [const { None }; READY_MAX];
        let tips = self.objects.index.all();
        tips.warm(puts.iter().map(|put| &put.object));
        for (put, standing) in puts.iter().zip(&mut standings) {
            let is_good = put.kind.check(put.value.len()).is_ok();
            let found = self.standing(put, |object, base| tips.tip(object, base));
            *standing = found.ok().flatten().filter(|_| is_good);
        }
        drop(tips);
        for (put, standing) in puts.iter().zip(standings) {
            let Some(standing) = standing else { continue };
            let bytes = encoded(&put.view(&standing));
            let Likely { object, bases, kind, value } = *put;
            let (h, value_len) = (RecordId::new([0; 32]), value.len());
            self.ready.push_back(Ready { object, bases, kind, standing, h, bytes, value_len });
        }
        let mut messages = [&[][..]; READY_MAX];
        for (message, ready) in messages.iter_mut().zip(&self.ready) {
            *message = &ready.bytes;
        }
        let mut hashes = [[0; 32]; READY_MAX];
        let count = self.ready.len();
        self.objects.suite.hash_each(&messages[..count], &mut hashes[..count]);
        for (ready, hash) in self.ready.iter_mut().zip(hashes) {
            ready.h = RecordId::new(hash);
        }
    }

    /// How a version would stand; `None` where a base is neither of this batch nor a tip.
    fn standing(
        &self,
        put: &Likely<'_>,
        tip: impl Fn(&ObjectKey, &RecordId) -> Option<Tip>,
    ) -> Result<Option<Standing>, ObjectsError> {
        let mut standing = [None; version::BASES_MAX];
        for (base, at) in put.bases.iter().zip(&mut standing) {
            let Some(known) = self.known(&put.object, &base, &tip)? else { return Ok(None) };
            *at = Some(known);
        }
        Standing::of(standing).map(Some)
    }

    /// What was made ahead of this, if it was. What was skipped is not asked for any more.
    fn ready(&mut self, put: &Likely<'_>) -> Option<Ready> {
        let at = self.ready.iter().position(|ready| ready.is(put))?;
        self.ready.drain(..at);
        self.ready.pop_front()
    }

    /// Adds a version, unless it is there already; gives its id and its bytes.
    fn push(
        &mut self,
        view: &View<'_>,
        standing: &Standing,
        h: RecordId,
        bytes: Bytes,
        form: Option<Bytes>,
        is_base: bool,
    ) -> (VersionId, Bytes) {
        let suite = self.objects.suite;
        let n = standing.first.map_or(Hint::FIRST, |first| first.id.n);
        let id = VersionId { h, l: view.l, n };
        let number = self.versions.made.len() as u32;
        match self.versions.places.entry(h) {
            Entry::Occupied(_) => return (id, bytes),
            Entry::Vacant(entry) => entry.insert(number),
        };
        self.versions.succeed(&view.bases);
        let place = match standing.first {
            Some(first) => first.place,
            None => place(suite, &view.object, &n),
        };
        let anchor = standing.first.filter(|_| form.is_some()).map_or(h, |first| first.anchor);
        let record = Record { kind: Kind::Version, id: h, place, bytes: bytes.clone() };
        self.versions.made.push(Made {
            object: view.object,
            bases: view.bases,
            tip: Tip { id, kind: view.kind, anchor, place },
            at: self.kept.len(),
            new: standing.new,
            succeeded: false,
            is_base,
        });
        self.kept.push(Kept { record, form, new: standing.new });
        (id, bytes)
    }

    /// A base that is made in this batch or the one before, or a tip, and whether what stands on it must be new: nothing in the store stands on
    /// a tip, nor on what is new itself.
    fn known(
        &self,
        object: &ObjectKey,
        base: &RecordId,
        tip: impl Fn(&ObjectKey, &RecordId) -> Option<Tip>,
    ) -> Result<Option<(Tip, bool)>, ObjectsError> {
        let before = || self.before.as_ref().and_then(|before| before.get(base));
        if let Some(made) = self.versions.get(base).or_else(before) {
            if made.object != *object {
                return Err(ObjectsError::OtherObject { object: *object, id: *base });
            }
            return Ok(Some((made.tip, made.new)));
        }
        Ok(tip(object, base).map(|tip| (tip, true)))
    }

    /// The form of a version against its anchor, where there is one that is worth it.
    async fn form(&self, bytes: &Bytes, anchor: &RecordId) -> Result<Option<Bytes>, ObjectsError> {
        let base = match self.versions.get(anchor) {
            Some(made) => Some(self.kept[made.at].record.bytes.clone()),
            None => self.objects.bytes_of(anchor).await?,
        };
        let Some(base) = base else { return Ok(None) };
        let (version, base) = (View::decode(bytes)?, View::decode(&base)?);
        Ok(self.objects.codecs.compress(&version, anchor, base.value))
    }

    /// Writes all of it. Done, it is as durable as was asked for, with `None` as the store is set. What was there already is
    /// no error.
    ///
    /// # Errors
    /// [`ObjectsError::Store`]; nothing of it is told to anybody then, and any part of it may be in the store
    /// after a power cut.
    pub async fn commit(mut self, durability: Option<Durability>) -> Result<(), ObjectsError> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let (kept, cached) = self.take();
        let new = self.objects.store.put_kept(kept, durability).await?;
        self.versions.done(&self.objects, cached, &new);
        Ok(())
    }

    /// As [`Batch::commit`], done by the calling thread, which waits: see [`store::RecordStore::put_here`]. Gives what
    /// watchers are told, so that a watcher knows its own. Whether it worked or not, the batch is empty then, and begins the next
    /// with the memory of its list of versions.
    ///
    /// # Errors
    /// As [`Batch::commit`].
    pub fn commit_here(
        &mut self,
        durability: Option<Durability>,
    ) -> Result<Arc<Vec<Event>>, ObjectsError> {
        (self.before, self.against) = (None, None);
        self.ready.clear();
        if self.kept.is_empty() {
            return Ok(Arc::default());
        }
        let (kept, cached) = self.take();
        self.kept.reserve(kept.len());
        let written = self.objects.store.put_here(kept, durability);
        let told = written.map(|new| self.versions.done(&self.objects, cached, &new));
        self.versions.clear();
        Ok(told?)
    }

    /// Hands all of it to be written elsewhere, and begins the next batch, whose versions may stand on these: for a thread
    /// that goes on while another writes. [`Batch::landed`] tells the next batch what became of it. Of two such batches the
    /// first is written before the second is.
    pub fn begin(mut self) -> (Flight, Self) {
        let mut next = Self::new(self.objects.clone());
        next.reserve(self.versions.made.len());
        let (kept, cached) = self.take();
        let versions = Arc::new(self.versions);
        next.before = Some(versions.clone());
        next.ready = self.ready;
        (Flight::new(self.objects, kept, cached, versions), next)
    }

    /// The batch before is written, or it failed: then what stands on it cannot be, and all of this one is forgotten.
    pub fn landed(&mut self, written: bool) {
        self.before = None;
        if !written {
            self.kept.clear();
            self.versions = Versions::default();
            self.ready.clear();
        }
    }

    /// What is written, and of that the versions that the cache takes, which costs no copy.
    fn take(&mut self) -> (Vec<Kept>, Vec<Record>) {
        let kept = std::mem::take(&mut self.kept);
        let made = self.versions.made.iter().filter(|made| made.is_cached());
        let cached = made.filter_map(|made| kept.get(made.at).map(|kept| kept.record.clone()));
        let cached = cached.collect();
        (kept, cached)
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} records)", self.kept.len())
    }
}

/// A version's bytes, in memory that is used again.
fn encoded(view: &View<'_>) -> Bytes {
    let mut buffer = Buffer::of(view.encoded_len());
    view.encode_into(&mut buffer.0);
    Bytes::from_owner(buffer)
}

/// What watchers are told of.
pub(crate) type Told = Vec<Event>;
