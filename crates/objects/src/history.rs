//! The graph behind a version: predecessors, the closest common ancestor, merges.
//!
//! The walks are `version`'s; here they are given what this peer's memory and disk have.

use std::sync::Arc;

use crypto::RecordId;
use version::merge::{Conflict, Merge, Merged as Made, Value, merge};
use version::{
    ANCESTORS_MAX, Bases, CommonAncestor, Links, ObjectKey, PREVIOUS_MAX, Previous, Step, VersionId,
};

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

    /// The closest common ancestor: of the versions that both are, or were made of, the deepest; of several as deep,
    /// the one with the least h. `None` where they share none: two roots.
    ///
    /// # Errors
    /// [`ObjectsError::NotHere`], [`ObjectsError::Version`] where it is too far; as [`Objects::get`].
    pub async fn common_ancestor(
        &self,
        object: &ObjectKey,
        a: &RecordId,
        b: &RecordId,
    ) -> Result<Option<Stored>, ObjectsError> {
        self.common_ancestor_within(object, a, b, (ANCESTORS_MAX, usize::MAX)).await
    }

    /// As [`Objects::common_ancestor`], for whoever has others wait: it gives up after so many versions, and so many bytes of values.
    ///
    /// # Errors
    /// As [`Objects::common_ancestor`]; [`ObjectsError::TooMuch`].
    pub async fn common_ancestor_within(
        &self,
        object: &ObjectKey,
        a: &RecordId,
        b: &RecordId,
        (versions_max, bytes_max): (usize, usize),
    ) -> Result<Option<Stored>, ObjectsError> {
        let mut walk = CommonAncestor::new(*a, *b, versions_max);
        let mut bytes = 0_usize;
        loop {
            match walk.step()? {
                Step::Need(h) => {
                    let stored = self.needed(object, &h).await?;
                    bytes = bytes.saturating_add(stored.version.value.len());
                    if bytes > bytes_max {
                        return Err(ObjectsError::TooMuch { max: bytes_max });
                    }
                    walk.give(&h, &links(&stored))?;
                }
                Step::Done(None) => return Ok(None),
                Step::Done(Some(h)) => return self.needed(object, &h).await.map(Some),
            }
        }
    }

    /// What a merge function makes of two versions and their closest common ancestor; nothing is put.
    ///
    /// # Errors
    /// As [`Objects::common_ancestor`].
    pub async fn merged(
        &self,
        object: &ObjectKey,
        a: &RecordId,
        b: &RecordId,
        function: &dyn Merge,
    ) -> Result<Made, ObjectsError> {
        let ancestor = self.common_ancestor(object, a, b).await?;
        let (first, second) = (self.needed(object, a).await?, self.needed(object, b).await?);
        let ancestor = ancestor.as_ref().map(value);
        Ok(merge(function, ancestor, value(&first), value(&second))?)
    }

    /// Merges two versions: what a function makes of them is put on both. One that descends from the other is the merge
    /// already.
    ///
    /// # Errors
    /// As [`Objects::common_ancestor`] and [`crate::Batch::put`].
    pub async fn merge_with(
        self: &Arc<Self>,
        object: &ObjectKey,
        a: &RecordId,
        b: &RecordId,
        function: &dyn Merge,
    ) -> Result<Merged, ObjectsError> {
        if let Some(ancestor) = self.common_ancestor(object, a, b).await? {
            for (older, newer) in [(a, b), (b, a)] {
                if ancestor.id.h == *older {
                    return Ok(Merged::Version(self.needed(object, newer).await?.id));
                }
            }
        }
        let (kind, value) = match self.merged(object, a, b, function).await? {
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

fn links(stored: &Stored) -> Links {
    Links::from(&stored.version.view())
}

fn value(stored: &Stored) -> Value<'_> {
    Value { kind: stored.version.kind, bytes: &stored.version.value }
}
