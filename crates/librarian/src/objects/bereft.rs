//! Versions here that nobody is served, since what came with them was lost.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crypto::RecordId;
use document::Kind;
use store::{Placed, StoreError};

use super::ObjectShelf;

impl ObjectShelf {
    /// Up to `most` versions here of which no attestation is here whole; with `places` in their place one version of each place
    /// behind the first so many, whatever is here of it: its object's record or policy may be what was lost, and nothing here
    /// says so.
    ///
    /// Reads every version on a blocking thread; and where large batches alone may name some, what those name: of a hundred filters
    /// most say of any version that it may be there.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub(crate) async fn bereft(
        self: &Arc<Self>,
        places: Option<usize>,
        most: usize,
    ) -> Result<Vec<Placed>, StoreError> {
        let shelf = Arc::clone(self);
        let look = move || match places {
            Some(behind) => shelf.one_of_each_place(behind, most),
            None => shelf.unattested(most),
        };
        self.env.blocking(look).await
    }

    fn one_of_each_place(&self, behind: usize, most: usize) -> Result<Vec<Placed>, StoreError> {
        let (mut found, mut met) = (Vec::new(), BTreeSet::new());
        self.store.each_of(&[Kind::Version], &mut |part| {
            if found.len() < most && met.insert(part.place) && met.len() > behind {
                found.push(Placed { id: part.id, kind: part.kind, place: part.place });
            }
        })?;
        Ok(found)
    }

    fn unattested(&self, most: usize) -> Result<Vec<Placed>, StoreError> {
        let (mut found, mut behind) = (Vec::new(), 0);
        loop {
            // So many at a time as memory is meant for.
            let (mut doubted, mut met) = (HashMap::new(), 0);
            self.store.each_of(&[Kind::Version], &mut |part| {
                let whole = |id: &RecordId| self.shelf.holds(id);
                if self.attestations.naming(&part.id).iter().any(whole) {
                    return;
                }
                let placed = Placed { id: part.id, kind: part.kind, place: part.place };
                if self.attestations.candidates(&part.id).iter().any(whole) {
                    met += 1;
                    if met > behind && doubted.len() < most {
                        doubted.insert(placed.id, placed);
                    }
                } else if behind == 0 && found.len() < most {
                    found.push(placed);
                }
            })?;
            let last = doubted.len() < most;
            behind += doubted.len();
            if !doubted.is_empty() {
                self.store.each_of(&[Kind::Attestation], &mut |part| {
                    for h in version::attestation::named(part.payload) {
                        doubted.remove(&h);
                    }
                })?;
            }
            let room = most.saturating_sub(found.len());
            found.extend(doubted.into_values().take(room));
            if last || found.len() >= most {
                return Ok(found);
            }
        }
    }
}
