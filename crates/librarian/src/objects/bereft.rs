//! Versions here that nobody is served, since what came with them was lost.

use std::collections::BTreeSet;
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
    /// Reads every version once, on a blocking thread; and where large batches alone may name some, opens those: of a hundred filters
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
        let look = move || {
            let (mut found, mut met) = (Vec::new(), BTreeSet::new());
            let mut doubted: Vec<Placed> = Vec::new();
            shelf.store.each_of(&[Kind::Version], &mut |part| {
                if found.len() >= most {
                    return;
                }
                let whole = |id: &RecordId| shelf.shelf.holds(id);
                let placed = Placed { id: part.id, kind: part.kind, place: part.place };
                match places {
                    Some(behind) => {
                        if met.insert(part.place) && met.len() > behind {
                            found.push(placed);
                        }
                    }
                    None if shelf.attestations.naming(&part.id).iter().any(whole) => {}
                    None if shelf.attestations.candidates(&part.id).iter().any(whole) => {
                        if doubted.len() < most {
                            doubted.push(placed);
                        }
                    }
                    None => found.push(placed),
                }
            })?;
            Ok((found, doubted))
        };
        let (mut found, doubted) = self.env.blocking(look).await?;
        // Those of one batch were written together, so that it is opened once.
        for (number, placed) in doubted.into_iter().enumerate() {
            if number % 64 == 0 {
                tokio::task::yield_now().await;
            }
            let attested = self.attested(&placed.id).await;
            if found.len() < most && attested.is_ok_and(|all| all.is_empty()) {
                found.push(placed);
            }
        }
        Ok(found)
    }
}
