//! Versions here that nobody is served, since what came with them was lost.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use crypto::{PublicKey, RecordId};
use document::Kind;
use objects::ObjectsError;
use store::{Part, Placed, StoreError};
use version::{Form, ObjectKey, View};

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
            None => shelf.unattested(most, &|_| true),
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

    /// The same versions of an owner's objects whose names begin so: what was written in this process, which was killed before it
    /// attested that.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub(crate) async fn unattested_of(
        self: &Arc<Self>,
        owner: PublicKey,
        family: Bytes,
        most: usize,
    ) -> Result<Vec<RecordId>, ObjectsError> {
        let shelf = Arc::clone(self);
        let look = move || {
            let mut objects = HashSet::new();
            shelf.objects.objects_of(&owner, &mut |object, record| {
                if record.network == shelf.network && record.name.starts_with(&family) {
                    objects.insert(object);
                }
            })?;
            let wanted = |part: &Part<'_>| object(part).is_some_and(|one| objects.contains(&one));
            let found = shelf.unattested(most, &wanted)?;
            Ok(found.into_iter().map(|placed| placed.id).collect())
        };
        self.env.blocking(look).await
    }

    fn unattested(
        &self,
        most: usize,
        wanted: &dyn Fn(&Part<'_>) -> bool,
    ) -> Result<Vec<Placed>, StoreError> {
        let (mut found, mut behind) = (Vec::new(), 0);
        loop {
            // So many at a time as memory is meant for.
            let (mut doubted, mut met) = (HashMap::new(), 0);
            self.store.each_of(&[Kind::Version], &mut |part| {
                let whole = |id: &RecordId| self.shelf.holds(id);
                if self.attestations.naming(&part.id).iter().any(whole) || !wanted(&part) {
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

/// Of which object a version is.
fn object(part: &Part<'_>) -> Option<ObjectKey> {
    if part.is_form {
        return Some(Form::decode(&Bytes::copy_from_slice(part.payload)).ok()?.object);
    }
    Some(View::decode(part.payload).ok()?.object)
}
