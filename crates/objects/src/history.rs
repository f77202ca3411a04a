//! The graph behind a version: predecessors, closest common ancestors, merges.
//!
//! The walks are `version`'s; here they are given what this peer's memory and disk have.

use std::sync::Arc;

use crypto::RecordId;
use version::merge::{
    Ancestor, AncestorWalk, Conflict, Making, Merge, Merged as Made, OwnedValue, V0, Value, merge,
};
use version::{ANCESTORS_MAX, Bases, Links, ObjectKey, PREVIOUS_MAX, Previous, Step, VersionId};

use crate::{NewVersion, Objects, ObjectsError, Stored};

/// What a merge came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Both are in this version now.
    Version(VersionId),
    /// The function does not decide: both stay tips, and the caller puts a version on both.
    Conflict(Conflict),
}

impl Objects {
    /// Up to `m` predecessors of a version, at most [`PREVIOUS_MAX`], nearest first. It ends behind a root, and behind
    /// a merge (UStore, 3.2), whose two bases are what is behind it: which branch to follow is for the caller to say.
    ///
    /// # Errors
    /// [`ObjectsError::NotHere`] where the version, or one on the way, is not here; as [`Objects::get`].
    pub async fn previous(
        &self,
        object: &ObjectKey,
        h: &RecordId,
        m: usize,
    ) -> Result<Vec<Stored>, ObjectsError> {
        let mut found = Vec::with_capacity(m.min(PREVIOUS_MAX));
        let each = |stored| {
            found.push(stored);
            true
        };
        self.previous_each(object, h, m, each).await?;
        Ok(found)
    }

    /// As [`Objects::previous`], each handed over as it is read, until `each` says `false`: for whoever has no room for the
    /// values of all.
    ///
    /// # Errors
    /// As [`Objects::previous`].
    pub async fn previous_each(
        &self,
        object: &ObjectKey,
        h: &RecordId,
        m: usize,
        mut each: impl FnMut(Stored) -> bool,
    ) -> Result<(), ObjectsError> {
        let mut walk = Previous::new(*h, m);
        let (mut count, mut last) = (0, None);
        while let Step::Need(needed) = walk.step() {
            // The first is where the walk begins, every other is the last that was found.
            let of_needed = match last {
                Some((h, links)) if h == needed => links,
                _ => links(&self.needed(object, &needed).await?),
            };
            walk.give(&needed, &of_needed)?;
            for h in walk.found().iter().skip(count) {
                let stored = self.needed(object, h).await?;
                (count, last) = (count + 1, Some((*h, links(&stored))));
                if !each(stored) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn needed(&self, object: &ObjectKey, h: &RecordId) -> Result<Stored, ObjectsError> {
        let found = self.get(object, h).await?;
        found.ok_or(ObjectsError::NotHere { object: *object, id: *h })
    }

    /// What two versions have in common, as a merge function takes it: the value of their closest common ancestor, or what the
    /// function makes of several. For whoever has others wait: it gives up after so many versions, and so many bytes of values.
    ///
    /// # Errors
    /// [`ObjectsError::NotHere`], [`ObjectsError::TooMuch`]; [`ObjectsError::Version`] where it is too far; as
    /// [`Objects::get`].
    pub async fn v0_within(
        &self,
        object: &ObjectKey,
        a: &RecordId,
        b: &RecordId,
        function: &dyn Merge,
        (versions_max, bytes_max): (usize, usize),
    ) -> Result<V0, ObjectsError> {
        let mut reads = Reads::new(self, object, bytes_max);
        let ancestor = reads.ancestor(a, b, versions_max).await?;
        reads.v0(&ancestor, function).await
    }

    /// What a merge function makes of two versions and their closest common ancestors; nothing is put.
    ///
    /// # Errors
    /// [`ObjectsError::NotHere`], [`ObjectsError::Version`] where what they have in common is too far; as [`Objects::get`].
    pub async fn merged(
        &self,
        object: &ObjectKey,
        a: &RecordId,
        b: &RecordId,
        function: &dyn Merge,
    ) -> Result<Made, ObjectsError> {
        let mut reads = Reads::new(self, object, usize::MAX);
        let ancestor = reads.ancestor(a, b, ANCESTORS_MAX).await?;
        reads.merged(&ancestor, (a, b), function).await
    }

    /// Merges two versions: what a function makes of them is put on both. One that descends from the other is the merge
    /// already.
    ///
    /// # Errors
    /// As [`Objects::merged`] and [`crate::Batch::put`].
    pub async fn merge_with(
        self: &Arc<Self>,
        object: &ObjectKey,
        a: &RecordId,
        b: &RecordId,
        function: &dyn Merge,
    ) -> Result<Merged, ObjectsError> {
        let mut reads = Reads::new(self, object, usize::MAX);
        let ancestor = reads.ancestor(a, b, ANCESTORS_MAX).await?;
        for (older, newer) in [(a, b), (b, a)] {
            if ancestor.is(older) {
                return Ok(Merged::Version(self.needed(object, newer).await?.id));
            }
        }
        let (kind, value) = match reads.merged(&ancestor, (a, b), function).await? {
            Made::Value { kind, value } => (kind, value),
            Made::Conflict(conflict) => return Ok(Merged::Conflict(conflict)),
        };
        let mut batch = self.batch();
        let bases = Bases::two(*a, *b)?;
        let object = *object;
        let id = batch.put(NewVersion { object, bases, kind, value, compress: true }).await?;
        batch.commit(None).await?;
        Ok(Merged::Version(id))
    }
}

/// What one merge reads, and how many bytes of values that was.
struct Reads<'a> {
    objects: &'a Objects,
    object: &'a ObjectKey,
    bytes: usize,
    bytes_max: usize,
}

impl<'a> Reads<'a> {
    const fn new(objects: &'a Objects, object: &'a ObjectKey, bytes_max: usize) -> Self {
        Self { objects, object, bytes: 0, bytes_max }
    }

    async fn version(&mut self, h: &RecordId) -> Result<Stored, ObjectsError> {
        let stored = self.objects.needed(self.object, h).await?;
        self.bytes = self.bytes.saturating_add(stored.version.value.len());
        match self.bytes > self.bytes_max {
            true => Err(ObjectsError::TooMuch { max: self.bytes_max }),
            false => Ok(stored),
        }
    }

    async fn ancestor(
        &mut self,
        a: &RecordId,
        b: &RecordId,
        versions_max: usize,
    ) -> Result<Ancestor, ObjectsError> {
        let mut walk = AncestorWalk::new(*a, *b, versions_max);
        loop {
            match walk.step()? {
                Step::Need(h) => walk.give(&h, &links(&self.version(&h).await?))?,
                Step::Done(found) => return Ok(found),
            }
        }
    }

    async fn v0(&mut self, ancestor: &Ancestor, function: &dyn Merge) -> Result<V0, ObjectsError> {
        let mut making = Making::new(ancestor, function);
        loop {
            match making.step()? {
                Step::Need(h) => {
                    let version = self.version(&h).await?.version;
                    making.give(&h, OwnedValue { kind: version.kind, bytes: version.value });
                }
                Step::Done(v0) => return Ok(v0),
            }
        }
    }

    async fn merged(
        &mut self,
        ancestor: &Ancestor,
        (a, b): (&RecordId, &RecordId),
        function: &dyn Merge,
    ) -> Result<Made, ObjectsError> {
        let v0 = match self.v0(ancestor, function).await? {
            Ok(v0) => v0,
            Err(conflict) => return Ok(Made::Conflict(conflict)),
        };
        let (first, second) = (self.version(a).await?, self.version(b).await?);
        let v0 = v0.as_ref().map(OwnedValue::as_value);
        Ok(merge(function, v0, value(&first), value(&second))?)
    }
}

fn links(stored: &Stored) -> Links {
    Links::from(&stored.version.view())
}

fn value(stored: &Stored) -> Value<'_> {
    Value { kind: stored.version.kind, bytes: &stored.version.value }
}
