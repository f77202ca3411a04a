//! Making one of several tips: their versions are merged, and a head takes the place of all.

use version::merge::{Conflict, Merge};

use super::{BranchState, Heads};
use crate::objects::{MergeOutcome, ObjectsError, WriteOptions};

/// What came of it.
#[derive(Clone, Debug)]
pub enum Reconciled {
    /// The branch has one tip.
    One(Box<BranchState>),
    /// Two of the versions do not merge by this function. All tips stay, and what was merged before of others is written and no
    /// head names it.
    Conflict(Conflict),
}

impl Heads {
    /// Merges the versions of all tips, one after the other in the order of `seen`, and says that the branch is at what comes out. One tip,
    /// or none, is left as it is. Of a version a head names no more than the hash counts: how deep it is is the word of the device that
    /// signed it.
    ///
    /// # Errors
    /// As [`crate::objects::Object::merge_with`] and [`Heads::update`].
    pub async fn reconcile(
        &self,
        seen: &BranchState,
        function: &dyn Merge,
        options: WriteOptions,
    ) -> Result<Reconciled, ObjectsError> {
        let mut versions = seen.tips.iter().map(|tip| tip.version);
        let Some(first) = versions.next().filter(|_| seen.tips.len() > 1) else {
            return Ok(Reconciled::One(Box::new(seen.clone())));
        };
        let mut at = seen.object.found(&first).await?;
        for next in versions {
            if next.h == at.h {
                continue;
            }
            let next = seen.object.found(&next).await?;
            match seen.object.merge_with(&at, &next, function, options).await? {
                MergeOutcome::Merged(written) => at = written.id,
                MergeOutcome::Already(id) => at = id,
                MergeOutcome::Conflict(conflict) => return Ok(Reconciled::Conflict(conflict)),
            }
        }
        Ok(Reconciled::One(Box::new(self.update(seen, &at).await?)))
    }
}
