//! The graph behind a version: predecessors, the closest common ancestor, merges.

use std::collections::BinaryHeap;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use crypto::RecordId;
use version::{Bases, ObjectKey, ValueKind, VersionId};

use crate::{NewVersion, Objects, ObjectsError, Stored};

/// The most predecessors one request is answered with.
pub const PREVIOUS_MAX: usize = 4096;
/// Versions looked at for a common ancestor.
const ANCESTOR_STEPS_MAX: usize = 100_000;

/// What makes one value of three: the closest common ancestor's and two that descend from it; `None` for a conflict.
pub type MergeFunction<'a> = dyn Fn(&[u8], &[u8], &[u8]) -> Option<Vec<u8>> + Sync + 'a;

/// What a merge came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Both are in this version now.
    Version(VersionId),
    /// The function does not decide: the caller has to, and puts a version on both.
    Conflict,
}

impl Objects {
    /// Up to `m` predecessors of a version, at most [`PREVIOUS_MAX`], nearest first. It ends behind a root, and behind
    /// the two bases of a merge (UStore, 3.2): which branch to follow is for the caller to say.
    ///
    /// # Errors
    /// [`ObjectsError::NotHere`] where the version, or one on the way, is not here; as [`Objects::get`].
    pub async fn previous(
        &self,
        object: &ObjectKey,
        h: &RecordId,
        m: usize,
    ) -> Result<Vec<Stored>, ObjectsError> {
        let m = m.min(PREVIOUS_MAX);
        let mut found: Vec<Stored> = Vec::with_capacity(m.min(64));
        let mut bases = self.needed(object, h).await?.version.bases;
        while found.len() < m {
            for base in bases.iter().take(m - found.len()) {
                found.push(self.needed(object, &base).await?);
            }
            match found.last() {
                Some(last) if bases.len() == 1 => bases = last.version.bases,
                _ => break,
            }
        }
        Ok(found)
    }

    async fn needed(&self, object: &ObjectKey, h: &RecordId) -> Result<Stored, ObjectsError> {
        let found = self.get(object, h).await?;
        found.ok_or(ObjectsError::NotHere { object: *object, id: *h })
    }

    /// The closest common ancestor: of the versions that both descend from (each descends from itself), the deepest;
    /// where two are as deep, the one with the lesser h. `None` where they share none: two roots.
    ///
    /// # Errors
    /// [`ObjectsError::NotHere`], [`ObjectsError::NoAncestor`]; as [`Objects::get`].
    pub async fn common_ancestor(
        &self,
        object: &ObjectKey,
        a: &RecordId,
        b: &RecordId,
    ) -> Result<Option<Stored>, ObjectsError> {
        const FROM_A: u8 = 1;
        const BOTH: u8 = 3;
        // The deepest first: whatever descends from a version is deeper, so when it is met all its marks are there.
        let mut open = BinaryHeap::new();
        let mut marks: HashMap<RecordId, u8> = HashMap::new();
        for (h, mark) in [(a, FROM_A), (b, BOTH ^ FROM_A)] {
            let stored = self.needed(object, h).await?;
            match marks.entry(*h) {
                Entry::Vacant(entry) => {
                    entry.insert(mark);
                    open.push((stored.id.l, std::cmp::Reverse(*h)));
                }
                Entry::Occupied(mut entry) => *entry.get_mut() |= mark,
            }
        }
        for _ in 0..ANCESTOR_STEPS_MAX {
            let Some((_, std::cmp::Reverse(h))) = open.pop() else { return Ok(None) };
            let mark = marks.get(&h).copied().unwrap_or_default();
            let stored = self.needed(object, &h).await?;
            if mark == BOTH {
                return Ok(Some(stored));
            }
            for base in stored.version.bases.iter() {
                match marks.entry(base) {
                    Entry::Vacant(entry) => {
                        entry.insert(mark);
                        let l = self.needed(object, &base).await?.id.l;
                        open.push((l, std::cmp::Reverse(base)));
                    }
                    Entry::Occupied(mut entry) => *entry.get_mut() |= mark,
                }
            }
        }
        Err(ObjectsError::NoAncestor(ANCESTOR_STEPS_MAX))
    }

    /// Merges two versions: the function gets the value of their closest common ancestor (empty where there is none) and
    /// theirs, and what it makes of them is put on both. One that descends from the other is the merge already.
    ///
    /// # Errors
    /// As [`Objects::common_ancestor`] and [`crate::Batch::put`].
    pub async fn merge_with(
        self: &Arc<Self>,
        object: &ObjectKey,
        a: &RecordId,
        b: &RecordId,
        function: &MergeFunction<'_>,
    ) -> Result<Merged, ObjectsError> {
        let ancestor = self.common_ancestor(object, a, b).await?;
        let (first, second) = (self.needed(object, a).await?, self.needed(object, b).await?);
        if let Some(ancestor) = &ancestor {
            if ancestor.id.h == *a {
                return Ok(Merged::Version(second.id));
            }
            if ancestor.id.h == *b {
                return Ok(Merged::Version(first.id));
            }
        }
        let empty = Bytes::new();
        let base = ancestor.as_ref().map_or(&empty, |ancestor| &ancestor.version.value);
        let Some(value) = function(base, &first.version.value, &second.version.value) else {
            return Ok(Merged::Conflict);
        };
        let mut batch = self.batch();
        let bases = Bases::two(*a, *b)?;
        let (object, kind) = (*object, ValueKind::Bytes);
        let new = NewVersion { object, bases, kind, value: value.into(), compress: true };
        let id = batch.put(new).await?;
        batch.commit(None).await?;
        Ok(Merged::Version(id))
    }
}
