//! Merging two versions by a function of their values and of what both were made of.
//!
//! It runs here and not at a peer: of sealed objects a peer sees no value, and of open ones it does the same. The walk to the
//! closest common ancestors fetches histories in batches.

use version::merge::{Ancestor, AncestorWalk, Conflict, Making, Merge, Merged, OwnedValue, V0};
use version::{ANCESTORS_MAX, Hint, Links, Step, VersionId};

use super::batch::WriteOptions;
use super::{Object, ObjectsError, Value, Written};

/// What came of a merge.
#[derive(Clone, Debug)]
pub enum MergeOutcome {
    /// The version with both as bases.
    Merged(Written),
    /// One of the two was made of the other: it stands for both, and nothing was written.
    Already(VersionId),
    /// The function gave no value; both stay tips, and nothing was written.
    Conflict(Conflict),
}

impl Object {
    /// The closest common ancestors of two versions: of all that both are, or were made of, those that no other was made of. Nearly
    /// always it is one; two writers who merged each other's versions while both went on leave several. Greatest depth first, of the
    /// same depth the greatest hash.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// As [`Object::get`], of any version on the way; [`ObjectsError::Version`] where they are too far apart (100,000 versions), or a
    /// history was made up.
    pub async fn common_ancestors(
        &self,
        first: &VersionId,
        second: &VersionId,
    ) -> Result<Vec<VersionId>, ObjectsError> {
        let hint = self.later(first, second);
        let ancestor = self.ancestor(first, second, &hint).await?;
        let mut found = Vec::with_capacity(ancestor.closest().len());
        for h in ancestor.closest() {
            let one = self.ahead(h, &hint).await?;
            found.push(VersionId { h: *h, l: one.version.l, n: one.hint });
        }
        Ok(found)
    }

    /// Merges two versions by a function of their values and that of their closest common ancestor; where they have several, of what
    /// the function makes of these. The order of the two counts: whoever wants every writer to make the same version orders them, as
    /// [`super::Tips`] does.
    ///
    /// # Errors
    /// As [`Object::common_ancestors`], [`Object::get`] and [`Object::merge`].
    pub async fn merge_with(
        &self,
        first: &VersionId,
        second: &VersionId,
        function: &dyn Merge,
        options: WriteOptions,
    ) -> Result<MergeOutcome, ObjectsError> {
        let hint = self.later(first, second);
        let ancestor = self.ancestor(first, second, &hint).await?;
        for (older, newer) in [(first, second), (second, first)] {
            if ancestor.is(&older.h) {
                return Ok(MergeOutcome::Already(*newer));
            }
        }
        let before = match self.v0(&ancestor, &hint, function).await? {
            Ok(before) => before,
            Err(conflict) => return Ok(MergeOutcome::Conflict(conflict)),
        };
        let before = before.as_ref().map(OwnedValue::as_value);
        let (one, other) = (self.get(first).await?, self.get(second).await?);
        match function.merge(before, one.merged(), other.merged()) {
            Merged::Conflict(conflict) => Ok(MergeOutcome::Conflict(conflict)),
            Merged::Value { kind, value } => {
                let value = Value::of_merged(kind, value)?;
                let written = self.merge(first, second, value, options).await?;
                Ok(MergeOutcome::Merged(written))
            }
        }
    }

    /// Where to look for what both were made of: at the later place of the two.
    fn later(&self, first: &VersionId, second: &VersionId) -> Hint {
        match self.number(&first.n) >= self.number(&second.n) {
            true => first.n,
            false => second.n,
        }
    }

    async fn ancestor(
        &self,
        first: &VersionId,
        second: &VersionId,
        hint: &Hint,
    ) -> Result<Ancestor, ObjectsError> {
        let mut walk = AncestorWalk::new(first.h, second.h, ANCESTORS_MAX);
        loop {
            match walk.step()? {
                Step::Need(h) => {
                    let version = self.ahead(&h, hint).await?.version;
                    let links =
                        Links { object: version.object, l: version.l, bases: version.bases };
                    walk.give(&h, &links)?;
                }
                Step::Done(found) => return Ok(found),
            }
        }
    }

    /// What both have in common: a value, or a conflict of their closest common ancestors.
    async fn v0(
        &self,
        ancestor: &Ancestor,
        hint: &Hint,
        function: &dyn Merge,
    ) -> Result<V0, ObjectsError> {
        let mut making = Making::new(ancestor, function);
        loop {
            match making.step()? {
                Step::Need(h) => {
                    let version = self.ahead(&h, hint).await?.version;
                    let value = self.opened(h, version).await?;
                    making.give(&h, OwnedValue::from(value.merged()));
                }
                Step::Done(v0) => return Ok(v0),
            }
        }
    }
}
