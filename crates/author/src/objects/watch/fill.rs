//! What a version was made of and was not told: walked back to what was.
//!
//! Deepest first, as to a common ancestor: from the version, and from what was told last of its object. What the latter leads to was
//! told, or was there before the watch began; what only the version leads to is new. Where nothing new is left to look at, it ends.

use std::collections::BTreeMap;

use crypto::RecordId;
use version::{Bases, Hint, VersionError};

use crate::objects::{Object, ObjectsError, Past};

/// Versions that are looked at for one that was told, at most.
const STEPS_MAX: usize = 4_096;

struct Looked {
    is_new: bool,
    past: Past,
}

impl Object {
    /// The versions that `past` was made of and were not told, those that others were made of first. `frontier` is what was told last.
    ///
    /// # Errors
    /// Where the history cannot be had, or is too long.
    pub(super) async fn untold(
        &self,
        past: &Past,
        frontier: &[(RecordId, u64)],
        seen: impl Fn(&RecordId) -> bool,
    ) -> Result<Vec<Past>, ObjectsError> {
        let mut border: BTreeMap<(u64, RecordId), Looked> = BTreeMap::new();
        let n = past.id.n;
        for (h, _) in frontier {
            // What was told and cannot be had any more leads nowhere: then more is told twice, and nothing is missed.
            if let Ok(past) = self.looked(h, &n).await {
                border.insert((past.id.l, *h), Looked { is_new: false, past });
            }
        }
        border.insert((past.id.l, past.id.h), Looked { is_new: true, past: past.clone() });
        let mut untold = Vec::new();
        for _ in 0..STEPS_MAX {
            if !border.values().any(|looked| looked.is_new) {
                untold.reverse();
                return Ok(untold);
            }
            let Some((_, Looked { is_new, past: at })) = border.pop_last() else { break };
            let bases: Bases = at.version.bases;
            if is_new && at.id.h != past.id.h {
                untold.push(at.clone());
            }
            for base in bases.iter() {
                if is_new && seen(&base) {
                    continue;
                }
                let next = self.looked(&base, &at.id.n).await?;
                let looked =
                    border.entry((next.id.l, base)).or_insert(Looked { is_new, past: next });
                looked.is_new &= is_new;
            }
        }
        Err(VersionError::TooFar { max: STEPS_MAX }.into())
    }

    async fn looked(&self, h: &RecordId, n: &Hint) -> Result<Past, ObjectsError> {
        let found = self.ahead(h, n).await?;
        let id = version::VersionId { h: *h, l: found.version.l, n: found.hint };
        Ok(Past { id, version: found.version })
    }
}
