//! What a door in the same process keeps: its versions go to `objects` at once, and what stands beside them comes here.

use bytes::Bytes;
use document::{Kind, Record};
use objects::ObjectsError;
use store::{Durability, Kept};

use super::ObjectShelf;

impl ObjectShelf {
    /// Keeps a policy or an attestation that this process made, and lets it count when it is durable.
    ///
    /// # Errors
    /// [`ObjectsError::Store`].
    pub(crate) async fn keep(
        &self,
        record: Record,
        durability: Durability,
    ) -> Result<(), ObjectsError> {
        let (kind, id, bytes) = (record.kind, record.id, record.bytes.clone());
        let kept = Kept { record, form: None, new: false };
        let new = self.store.put_kept(vec![kept], Some(durability)).await?;
        if new.first() == Some(&true) {
            self.stored(kind, id, &bytes);
        }
        Ok(())
    }

    /// A record that stands beside versions is in the store.
    pub(super) fn stored(&self, kind: Kind, id: crypto::RecordId, bytes: &Bytes) {
        match kind {
            Kind::Attestation => {
                self.attestations.met(id, bytes);
                self.feed.attested(version::attestation::named(bytes));
            }
            Kind::Policy => drop(self.policies.met(id, bytes)),
            _ => {}
        }
    }
}
