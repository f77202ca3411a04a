//! Versions that are written together: made at once, in the store with one write, or none of them.
//!
//! A version may stand on one made earlier in the same batch. Its id is there as soon as it is made; nobody else is told of
//! it before [`Batch::commit`] is done.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use crypto::RecordId;
use document::{Kind, Record};
use foldhash::fast::RandomState;
use store::{Durability, Kept};
use version::{Bases, Hint, ObjectKey, ObjectRecord, ValueKind, VersionId, View, depth, place};

use crate::index::Tip;
use crate::objects::Event;
use crate::{Objects, ObjectsError};

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

/// A version of this batch.
struct Made {
    object: ObjectKey,
    bases: Bases,
    tip: Tip,
    /// Where it stands in the list of records.
    at: usize,
}

/// Writes that are made durable together. Dropped without [`Batch::commit`] nothing of it was done.
#[must_use = "nothing is written before `commit`"]
pub struct Batch {
    objects: Arc<Objects>,
    kept: Vec<Kept>,
    made: HashMap<RecordId, Made, RandomState>,
    /// In the order in which they were made.
    order: Vec<RecordId>,
}

impl Batch {
    pub(crate) fn new(objects: Arc<Objects>) -> Self {
        Self { objects, kept: Vec::new(), made: HashMap::default(), order: Vec::new() }
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
        self.order.len()
    }

    /// Forgets the newest versions until `versions` are left, and what was added behind those.
    pub fn truncate(&mut self, versions: usize) {
        let Some(first) = self.order.get(versions).and_then(|h| self.made.get(h)) else { return };
        self.kept.truncate(first.at);
        for h in self.order.drain(versions..) {
            self.made.remove(&h);
        }
    }

    /// Adds a record that stands beside versions: an attestation, a policy. The caller has proven it.
    pub fn add(&mut self, record: Record) {
        self.kept.push(Kept { record, form: None });
    }

    /// Adds an object's record, which tells whose the object is and its name.
    ///
    /// # Errors
    /// [`ObjectsError::Version`] where it cannot be called so.
    pub fn object(&mut self, object: &ObjectRecord) -> Result<ObjectKey, ObjectsError> {
        let record = object.record(self.objects.suite)?;
        let key = record.id.into();
        self.add(record);
        Ok(key)
    }

    /// Makes a version. It waits only where a base is no tip and not in memory.
    ///
    /// # Errors
    /// [`ObjectsError::NoBase`], [`ObjectsError::OtherObject`], [`ObjectsError::Version`] where the value is too long,
    /// [`ObjectsError::Store`] where a base cannot be read. Nothing was added then.
    pub async fn put(&mut self, new: NewVersion) -> Result<VersionId, ObjectsError> {
        new.kind.check(new.value.len())?;
        let mut anchor = None;
        let mut hint = Hint::FIRST;
        let mut depths = [None; version::BASES_MAX];
        for (base, at) in new.bases.iter().zip(&mut depths) {
            let tip = self.known(&new.object, base).await?;
            *at = Some(tip.id.l);
            if anchor.is_none() {
                (anchor, hint) = (Some(tip.anchor), tip.id.n);
            }
        }
        let l = depth(depths.into_iter().flatten())?;
        let view =
            View { object: new.object, bases: new.bases, l, kind: new.kind, value: &new.value };
        let bytes = view.encode();
        let suite = self.objects.suite;
        let h = suite.id(&bytes);
        let id = VersionId { h, l, n: hint };
        if self.made.contains_key(&h) {
            return Ok(id);
        }
        let form = match anchor {
            Some(anchor) if new.compress => self.form(&bytes, &anchor).await?,
            _ => None,
        };
        let anchor = anchor.filter(|_| form.is_some()).unwrap_or(h);
        let place = place(suite, &new.object, &hint);
        let record = Record { kind: Kind::Version, id: h, place, bytes };
        let made = Made {
            object: new.object,
            bases: new.bases,
            tip: Tip { id, kind: new.kind, anchor },
            at: self.kept.len(),
        };
        self.kept.push(Kept { record, form });
        self.made.insert(h, made);
        self.order.push(h);
        Ok(id)
    }

    /// A base: made in this batch, a tip, or in the store.
    async fn known(&self, object: &ObjectKey, base: RecordId) -> Result<Tip, ObjectsError> {
        if let Some(made) = self.made.get(&base) {
            if made.object != *object {
                return Err(ObjectsError::OtherObject { object: *object, id: base });
            }
            return Ok(made.tip);
        }
        match self.objects.index.tip(object, &base) {
            Some(tip) => Ok(tip),
            None => {
                let tip = self.objects.stand(object, &base).await?;
                tip.ok_or(ObjectsError::NoBase { object: *object, base })
            }
        }
    }

    /// The form of a version against its anchor, where there is one that is worth it.
    async fn form(&self, bytes: &Bytes, anchor: &RecordId) -> Result<Option<Bytes>, ObjectsError> {
        let base = match self.made.get(anchor) {
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
    pub async fn commit(self, durability: Option<Durability>) -> Result<(), ObjectsError> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let objects = self.objects;
        // A record shares its bytes: what the cache takes costs no copy.
        let records: Vec<Record> = self.kept.iter().map(|kept| kept.record.clone()).collect();
        let new = objects.store.put_kept(self.kept, durability).await?;
        let mut events = Vec::with_capacity(self.order.len());
        for h in &self.order {
            let Some(made) = self.made.get(h) else { continue };
            if !new.get(made.at).copied().unwrap_or(false) {
                continue;
            }
            let bases: Vec<RecordId> = made.bases.iter().collect();
            objects.index.succeed(&made.object, &bases, made.tip);
            if let Some(record) = records.get(made.at) {
                objects.cache.add(record.clone());
            }
            events.push((made.object, made.tip.id));
        }
        objects.tell(events);
        Ok(())
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} records)", self.kept.len())
    }
}

/// What watchers are told of.
pub(crate) type Told = Vec<Event>;
