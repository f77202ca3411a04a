//! Merging two versions by a function of their values and of that of what both were made of.
//!
//! It runs here and not at a peer: of sealed objects a peer sees no value, and of open ones it does the same. The walk to the
//! closest common ancestor fetches histories in batches.

use version::merge::{Conflict, Merge, Merged};
use version::{ANCESTORS_MAX, CommonAncestor, Links, Step, VersionId};

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
    /// The closest common ancestor of two versions: the deepest of all that both are, or were made of; `None` where they have none.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// As [`Object::get`], of any version on the way; [`ObjectsError::Version`] where they are too far apart (100,000 versions), or a
    /// history was made up.
    pub async fn common_ancestor(
        &self,
        first: &VersionId,
        second: &VersionId,
    ) -> Result<Option<VersionId>, ObjectsError> {
        let hint = match self.number(&first.n) >= self.number(&second.n) {
            true => first.n,
            false => second.n,
        };
        let mut walk = CommonAncestor::new(first.h, second.h, ANCESTORS_MAX);
        loop {
            match walk.step()? {
                Step::Need(h) => {
                    let version = self.ahead(&h, &hint).await?.version;
                    let links =
                        Links { object: version.object, l: version.l, bases: version.bases };
                    walk.give(&h, &links)?;
                }
                Step::Done(None) => return Ok(None),
                Step::Done(Some(h)) => {
                    let found = self.ahead(&h, &hint).await?;
                    return Ok(Some(VersionId { h, l: found.version.l, n: found.hint }));
                }
            }
        }
    }

    /// Merges two versions by a function of their values and that of their closest common ancestor. The order of the two counts:
    /// whoever wants every writer to make the same version orders them, as [`super::Tips`] does.
    ///
    /// # Errors
    /// As [`Object::common_ancestor`], [`Object::get`] and [`Object::merge`].
    pub async fn merge_with(
        &self,
        first: &VersionId,
        second: &VersionId,
        function: &dyn Merge,
        options: WriteOptions,
    ) -> Result<MergeOutcome, ObjectsError> {
        let ancestor = self.common_ancestor(first, second).await?;
        if let Some(ancestor) = ancestor {
            if ancestor.h == first.h {
                return Ok(MergeOutcome::Already(*second));
            }
            if ancestor.h == second.h {
                return Ok(MergeOutcome::Already(*first));
            }
        }
        let before = match &ancestor {
            Some(ancestor) => Some(self.get(ancestor).await?),
            None => None,
        };
        let (one, other) = (self.get(first).await?, self.get(second).await?);
        let merged =
            function.merge(before.as_ref().map(Value::merged), one.merged(), other.merged());
        match merged {
            Merged::Conflict(conflict) => Ok(MergeOutcome::Conflict(conflict)),
            Merged::Value { kind, value } => {
                let value = Value::of_merged(kind, value)?;
                let written = self.merge(first, second, value, options).await?;
                Ok(MergeOutcome::Merged(written))
            }
        }
    }
}
