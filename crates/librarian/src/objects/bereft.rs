//! Versions here that nobody is served, since what came with them was lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use document::Kind;
use store::{Placed, StoreError};

use super::ObjectShelf;

impl ObjectShelf {
    /// Up to `most` versions here of which no attestation is here whole; with `places` in their place one version of each place
    /// behind the first so many, whatever is here of it: its object's record or policy may be what was lost, and nothing here
    /// says so.
    ///
    /// Reads every version once, on a blocking thread.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub(crate) async fn bereft(
        self: &Arc<Self>,
        places: Option<usize>,
        most: usize,
    ) -> Result<Vec<Placed>, StoreError> {
        let shelf = Arc::clone(self);
        let look = move || {
            let (mut found, mut met) = (Vec::new(), BTreeSet::new());
            shelf.store.each_of(&[Kind::Version], &mut |part| {
                if found.len() >= most {
                    return;
                }
                let wanted = match places {
                    Some(behind) => met.insert(part.place) && met.len() > behind,
                    None => {
                        let whole = |id: &crypto::RecordId| shelf.shelf.holds(id);
                        !shelf.attestations.candidates(&part.id).iter().any(whole)
                    }
                };
                if wanted {
                    found.push(Placed { id: part.id, kind: part.kind, place: part.place });
                }
            })?;
            Ok(found)
        };
        self.env.blocking(look).await
    }
}
