//! Versions that others made, as records, and what stands beside them: in the store with one write, or none of them.
//!
//! [`crate::Batch`] makes versions from values; these have their id already, and may stand on versions that are not here.
//! Whoever hands them over has proven them (`version::prove`); what only a holder of the bases can check is checked here.
//!
//! What stands beside versions comes before them in the log, so after a torn write no version is there without it.
//!
//! What an organisation's members bring ([`Incoming::of`]) is bounded beside its bytes: how many of its versions stand on others
//! that are not here (`arrivals`), and how many tips one object has ([`BRANCHES_MAX`]). What is fetched to keep the network whole is
//! not: another holder took it within its own bounds, and of a version that all but one refused there is one copy, until that
//! disk breaks. So tips at one holder may be more: those that its clients left here and at the object's other holders. Each
//! write costs the logarithm of them, and their bytes are bounded as all of an object's are, by its region. A version that is
//! here is never refused for a bound: putting it again adds nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use crypto::{OrgId, RecordId};
use document::Record;
use env::Env;
use foldhash::fast::RandomState;
use store::{Durability, Kept, StoreError};
use version::{Bases, ObjectKey, Version, VersionError, VersionId, View};

use crate::arrivals::Base;
use crate::index::Tip;
use crate::objects::hint_at;
use crate::{Objects, ObjectsError};

/// From so many bytes on a form is made on a CPU thread.
const LARGE_BYTES: usize = 64 << 10;
/// How much deeper than its deepest base that is here a version may say it is where another is missing: more versions than any object
/// has, and so few that versions can follow it without end.
const UNPROVEN_DEPTH_MAX: u64 = 1 << 40;
/// Tips of an object at which no organisation's version is taken that makes them more: about 20 MB. Those on their way when there
/// are so many come on top, at most a request's each.
const BRANCHES_MAX: usize = 65_536;

/// A version on its way.
struct Arrival {
    object: ObjectKey,
    bases: Bases,
    tip: Tip,
    record: Record,
    form: Option<Bytes>,
    /// Whether it is a bounded one that becomes a tip, as far as is known before it is written.
    rises: bool,
}

/// Writes that are made durable together. Dropped without [`Incoming::commit`] nothing of it was done.
#[must_use = "nothing is written before `commit`"]
pub struct Incoming {
    objects: Arc<Objects>,
    env: Env,
    beside: Vec<Record>,
    versions: Vec<Arrival>,
    places: HashMap<RecordId, usize, RandomState>,
    /// Whose it is, where it is bounded.
    room: Option<Room>,
    /// What versions of it stand on.
    stood_on: HashSet<(ObjectKey, RecordId), RandomState>,
    /// By how many tips objects grow with it.
    grown: HashMap<ObjectKey, usize, RandomState>,
}

/// Room for bases that are not here, kept until their versions are written, when they are counted themselves.
struct Room {
    objects: Arc<Objects>,
    of: OrgId,
    bases: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.objects.arrivals.lock().give_back(&self.of, self.bases);
    }
}

/// How a version stands on what is here.
#[derive(Default)]
struct Standing {
    /// What its form can be made against.
    anchor: Option<RecordId>,
    /// Whether it takes the place of a tip.
    replaces: bool,
    /// Bases that are not here.
    missing: Vec<RecordId>,
}

/// What was new in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Of what stands beside versions, in its order.
    pub beside: Vec<bool>,
    /// Of the versions, in their order.
    pub versions: Vec<bool>,
}

impl Objects {
    /// Begins to take what others made.
    pub fn incoming(self: &Arc<Self>, env: Env) -> Incoming {
        Incoming {
            objects: Arc::clone(self),
            env,
            beside: Vec::new(),
            versions: Vec::new(),
            places: HashMap::default(),
            room: None,
            stood_on: HashSet::default(),
            grown: HashMap::default(),
        }
    }
}

impl Incoming {
    /// All of it is an organisation's, and bounded as such.
    pub fn of(mut self, organisation: OrgId) -> Self {
        self.room = Some(Room { objects: Arc::clone(&self.objects), of: organisation, bases: 0 });
        self
    }

    /// Adds a proven record that stands beside versions; its number among those.
    pub fn add(&mut self, record: Record) -> usize {
        self.beside.push(record);
        self.beside.len() - 1
    }

    /// What stands beside versions, in its order.
    pub fn beside(&self) -> impl Iterator<Item = &Record> {
        self.beside.iter()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.beside.is_empty() && self.versions.is_empty()
    }

    /// Adds a proven version; its number among the versions. With `compress` it may be kept as a form.
    ///
    /// # Errors
    /// [`ObjectsError::OtherObject`] and [`VersionError::History`] where a base that is here is not what the version says,
    /// [`ObjectsError::Awaited`] and [`ObjectsError::Branches`] of an organisation's, [`ObjectsError::Store`]. Nothing was added then.
    pub async fn version(
        &mut self,
        record: Record,
        version: &Version,
        compress: bool,
    ) -> Result<usize, ObjectsError> {
        if let Some(at) = self.places.get(&record.id) {
            return Ok(*at);
        }
        let object = version.object;
        let id = VersionId {
            h: record.id,
            l: version.l,
            n: hint_at(self.objects.suite, &object, &record)?,
        };
        let standing = self.check_bases(&id, version).await?;
        let rises = self.keep_room(&id.h, version, &standing)?;
        let form = match standing.anchor {
            Some(anchor) if compress => self.form(&record.bytes, anchor).await?,
            _ => None,
        };
        let anchor = standing.anchor.filter(|_| form.is_some()).unwrap_or(id.h);
        let tip = Tip { id, kind: version.kind, anchor, place: record.place };
        let at = self.versions.len();
        self.places.insert(id.h, at);
        self.stood_on.extend(version.bases.iter().map(|base| (object, base)));
        if rises && !standing.replaces {
            *self.grown.entry(object).or_default() += 1;
        }
        self.versions.push(Arrival { object, bases: version.bases, tip, record, form, rises });
        Ok(at)
    }

    /// Compares a version with those of its bases that are here.
    async fn check_bases(
        &self,
        id: &VersionId,
        version: &Version,
    ) -> Result<Standing, ObjectsError> {
        let mut standing = Standing::default();
        let mut deepest = None;
        for base in version.bases.iter() {
            match self.known(&version.object, &base).await? {
                Some((tip, is_tip)) => {
                    deepest = deepest.max(Some(tip.id.l));
                    standing.anchor = standing.anchor.or(Some(tip.anchor));
                    standing.replaces |= is_tip && !self.stood_on.contains(&(version.object, base));
                }
                None => standing.missing.push(base),
            }
        }
        let missing = !standing.missing.is_empty();
        let fits = match deepest.map(|l| l.checked_add(1)) {
            None => !missing || id.l <= UNPROVEN_DEPTH_MAX,
            // The one that is not here may be the deeper one, though not by any number.
            Some(Some(least)) if missing => id.l >= least && id.l - least <= UNPROVEN_DEPTH_MAX,
            Some(least) => least == Some(id.l),
        };
        if fits { Ok(standing) } else { Err(VersionError::History(id.h).into()) }
    }

    /// Keeps room for an organisation's version; whether it becomes a tip.
    fn keep_room(
        &mut self,
        h: &RecordId,
        version: &Version,
        standing: &Standing,
    ) -> Result<bool, ObjectsError> {
        let Some(room) = &mut self.room else { return Ok(false) };
        if self.objects.store.contains(h) {
            return Ok(false);
        }
        let (suite, object) = (self.objects.suite, version.object);
        let mut state = self.objects.arrivals.lock();
        let is_base = |h: &RecordId| {
            self.stood_on.contains(&(object, *h)) || state.is_awaited(&Base::new(suite, &object, h))
        };
        let rises = !is_base(h);
        let grown = self.grown.get(&object).copied().unwrap_or_default();
        let is_full = || self.objects.index.count(&object) + grown >= BRANCHES_MAX;
        if rises && !standing.replaces && is_full() {
            return Err(ObjectsError::Branches { object, max: BRANCHES_MAX });
        }
        let more = standing.missing.iter().filter(|base| !is_base(base)).count();
        if !state.reserve(&room.of, more) {
            return Err(ObjectsError::Awaited);
        }
        room.bases += more;
        Ok(rises)
    }

    /// A base, where it is here, and whether it is a tip or becomes one.
    async fn known(
        &self,
        object: &ObjectKey,
        base: &RecordId,
    ) -> Result<Option<(Tip, bool)>, ObjectsError> {
        if let Some(arrival) = self.places.get(base).and_then(|at| self.versions.get(*at)) {
            if arrival.object != *object {
                return Err(ObjectsError::OtherObject { object: *object, id: *base });
            }
            let is_tip = arrival.rises || self.objects.index.tip(object, base).is_some();
            return Ok(Some((arrival.tip, is_tip)));
        }
        if let Some(tip) = self.objects.index.tip(object, base) {
            return Ok(Some((tip, true)));
        }
        match self.objects.stand(object, base).await {
            // What cannot be read is as good as not here: whoever walks the history checks it.
            Err(ObjectsError::Store(StoreError::Damaged { .. })) => Ok(None),
            found => Ok(found?.map(|tip| (tip, false))),
        }
    }

    /// The form of a version against its anchor, where it is worth it.
    async fn form(&self, bytes: &Bytes, anchor: RecordId) -> Result<Option<Bytes>, ObjectsError> {
        let base = match self.places.get(&anchor).and_then(|at| self.versions.get(*at)) {
            Some(arrival) => Some(arrival.record.bytes.clone()),
            None => self.objects.bytes_of(&anchor).await?,
        };
        let Some(base) = base else { return Ok(None) };
        let (bytes, codecs) = (bytes.clone(), self.objects.codecs.clone());
        let large = bytes.len() + base.len() >= LARGE_BYTES;
        let compress = move || -> Result<Option<Bytes>, VersionError> {
            let (version, base) = (View::decode(&bytes)?, View::decode(&base)?);
            Ok(codecs.compress(&version, &anchor, base.value))
        };
        Ok(if large { self.env.cpu(compress).await } else { compress() }?)
    }

    /// Writes all of it; done, it is as durable as was asked for, with `None` as the store is set. `stored` is called in
    /// between: all is in the store, and nobody was told of a version yet. What was there already is no error.
    ///
    /// A future that is dropped leaves versions in the store that are tips only after the next start: let it run in a task of
    /// its own.
    ///
    /// # Errors
    /// [`ObjectsError::Store`]; nothing of it is told to anybody then.
    pub async fn commit(
        self,
        durability: Option<Durability>,
        stored: impl FnOnce(&Written),
    ) -> Result<Written, ObjectsError> {
        let Self { objects, beside, versions, room, .. } = self;
        let count = beside.len();
        let mut kept: Vec<Kept> =
            beside.into_iter().map(|record| Kept { record, form: None, new: false }).collect();
        let forms = versions.iter();
        kept.extend(forms.map(|one| Kept {
            record: one.record.clone(),
            form: one.form.clone(),
            new: false,
        }));
        if kept.is_empty() {
            stored(&Written::default());
            return Ok(Written::default());
        }
        let mut written = Writing::begin(&objects, &versions);
        let mut new = objects.store.put_kept(kept, durability).await?;
        let fresh = std::mem::take(&mut written.fresh);
        let done = Written { versions: new.split_off(count.min(new.len())), beside: new };
        stored(&done);
        let mut told = Vec::new();
        for ((one, fresh), new) in versions.iter().zip(fresh).zip(&done.versions) {
            if objects.settle(one, fresh, *new, room.as_ref().map(|room| &room.of)) {
                told.push((one.object, one.tip.id));
            }
        }
        objects.tell(told);
        Ok(done)
    }
}

/// Versions being written: forgotten where the write fails.
struct Writing<'a> {
    objects: &'a Objects,
    versions: &'a [Arrival],
    /// Which of them were not here, or are being written by others too.
    fresh: Vec<bool>,
}

impl<'a> Writing<'a> {
    fn begin(objects: &'a Objects, versions: &'a [Arrival]) -> Self {
        let mut state = objects.arrivals.lock();
        let begin = |one: &Arrival| {
            let h = &one.tip.id.h;
            // What is in the store and not on its way there is in the index: both change under this lock.
            let fresh = state.is_arriving(h) || !objects.store.contains(h);
            if fresh {
                state.begin(*h);
            }
            fresh
        };
        let fresh = versions.iter().map(begin).collect();
        Self { objects, versions, fresh }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.objects.arrivals.lock();
        for (one, fresh) in self.versions.iter().zip(&self.fresh) {
            if *fresh {
                state.failed(&one.tip.id.h);
            }
        }
    }
}

impl Objects {
    /// A version is in the store: it becomes a tip unless something here stands on it. Whether it is news.
    fn settle(&self, one: &Arrival, fresh: bool, new: bool, of: Option<&OrgId>) -> bool {
        let h = one.tip.id.h;
        let base = |h: &RecordId| Base::new(self.suite, &one.object, h);
        let waited_for = base(&h);
        let mut state = self.arrivals.lock();
        // Of several that wrote it the first says so. One that was here, damaged, is news where nobody could read it since the start:
        // else the index has it, perhaps as what others stand on.
        let unread = (fresh || new) && state.unread.remove(&h);
        let first = if fresh { state.arrived(&h) } else { unread };
        if !first {
            return false;
        }
        let tip = (!state.came(&waited_for)).then_some(one.tip);
        let were = self.index.arrive(&one.object, one.bases.iter(), tip);
        for (h, was) in one.bases.iter().zip(were) {
            let is_here =
                !(state.is_arriving(&h) || state.unread.contains(&h)) && self.store.contains(&h);
            if !was && !is_here {
                state.wait_for(base(&h), of);
            }
        }
        drop(state);
        self.cache.add(one.record.clone());
        true
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Incoming({} versions, {} beside)", self.versions.len(), self.beside.len())
    }
}

#[cfg(test)]
mod tests;
