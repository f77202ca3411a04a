//! Versions here that nobody is served, since what came with them was lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use document::Kind;
use store::{Placed, StoreError};

use super::ObjectShelf;

impl ObjectShelf {
    /// Up to `most` versions here of which no attestation is here whole. With `everywhere` also one version of each place,
    /// whatever is here of it: its object's record or policy may be what was lost, and nothing here says so.
    ///
    /// Reads every version once, on a blocking thread.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub(crate) async fn bereft(
        self: &Arc<Self>,
        everywhere: bool,
        most: usize,
    ) -> Result<Vec<Placed>, StoreError> {
        let shelf = Arc::clone(self);
        let look = move || {
            let (mut found, mut places) = (Vec::new(), BTreeSet::new());
            shelf.store.each_of(&[Kind::Version], &mut |part| {
                if found.len() >= most {
                    return;
                }
                let whole = |id: &crypto::RecordId| shelf.shelf.holds(id);
                let attested = shelf.attestations.candidates(&part.id).iter().any(whole);
                if !attested || (everywhere && places.insert(part.place)) {
                    found.push(Placed { id: part.id, kind: part.kind, place: part.place });
                }
            })?;
            Ok(found)
        };
        self.env.blocking(look).await
    }
}
