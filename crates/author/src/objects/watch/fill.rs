//! What a version was made of and was not told: walked back to what was, then told.
//!
//! Deepest first, as to a common ancestor: from the version, and from what was told last of its object. What the latter leads to was
//! told, or was there before the watch began; what only the version leads to is new. Where nothing new is left to look at, it ends.
//!
//! Of thousands of versions on the way back no value is kept: each is read when it is told. They are told the other way round, so what
//! the cache has of a long history by then is what is told first.

use std::collections::BTreeMap;

use crypto::RecordId;
use version::{Bases, Hint, VersionError, VersionId};

use super::point::Step;
use super::{Watching, gap};
use crate::objects::reading::{AHEAD, past};
use crate::objects::{Object, ObjectsError, Past};

/// Versions that are looked at for one that was told, at most.
const STEPS_MAX: usize = 4_096;

/// What is known of a version in the border, by its depth and hash: not its value.
struct Looked {
    is_new: bool,
    n: Hint,
    bases: Bases,
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
    ) -> Result<Vec<VersionId>, ObjectsError> {
        let mut border: BTreeMap<(u64, RecordId), Looked> = BTreeMap::new();
        let n = past.id.n;
        for (h, _) in frontier {
            // What was told and cannot be had any more leads nowhere: then more is told twice, and nothing is missed.
            if let Ok((id, bases)) = self.looked(h, &n).await {
                border.insert((id.l, id.h), Looked { is_new: false, n: id.n, bases });
            }
        }
        let bases = past.version.bases;
        border.insert((past.id.l, past.id.h), Looked { is_new: true, n, bases });
        let mut untold = Vec::new();
        for _ in 0..STEPS_MAX {
            if !border.values().any(|looked| looked.is_new) {
                untold.reverse();
                return Ok(untold);
            }
            let Some(((l, h), Looked { is_new, n, bases })) = border.pop_last() else { break };
            if is_new && h != past.id.h {
                untold.push(VersionId { h, l, n });
            }
            for base in bases.iter() {
                if is_new && seen(&base) {
                    continue;
                }
                let (next, bases) = self.looked(&base, &n).await?;
                let new = Looked { is_new, n: next.n, bases };
                let looked = border.entry((next.l, base)).or_insert(new);
                looked.is_new &= is_new;
            }
        }
        Err(VersionError::TooFar { max: STEPS_MAX }.into())
    }

    async fn looked(&self, h: &RecordId, n: &Hint) -> Result<(VersionId, Bases), ObjectsError> {
        let found = self.ahead(h, n).await?;
        let id = VersionId { h: *h, l: found.version.l, n: found.hint };
        Ok((id, found.version.bases))
    }
}

impl Watching {
    /// Tells versions that were not told, in this order; a gap in the place of the first that cannot be had any more, and of all behind
    /// it.
    pub(super) async fn tell_untold(&mut self, object: &Object, untold: &[VersionId]) -> bool {
        for some in untold.chunks(AHEAD) {
            // Short ones come together, with the last of them; who has none of them says so below.
            if let Some(last) = some.last()
                && let Err(error) = object.ahead(&last.h, &last.n).await
            {
                tracing::debug!(object = %object.key, %error, "versions do not come together");
            }
            for id in some {
                let told = match object.find(&id.h, &id.n, None).await {
                    Ok(found) => {
                        let past = past(id.h, found.version, found.hint);
                        self.tell_version(object.clone(), past, None).await
                    }
                    Err(error) => {
                        let gap = gap(object, &error);
                        return self.tell(Some(gap), Step::default()).await;
                    }
                };
                if !told {
                    return false;
                }
            }
        }
        true
    }
}
