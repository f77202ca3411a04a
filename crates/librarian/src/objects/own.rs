//! What a door in the same process keeps: its versions go to `objects` at once, and what stands beside them comes here.

use bytes::Bytes;
use crypto::RecordId;
use document::{Kind, Record};
use objects::ObjectsError;
use store::{Durability, Kept, StoreError};

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

    /// Writes a proven record again that is damaged here, and lets it count: where a start could not read it, it did not. Whether it
    /// was written: not where it is being dropped.
    ///
    /// # Errors
    /// Where the store cannot write it.
    pub(crate) async fn mend(&self, record: Record) -> Result<bool, StoreError> {
        let (kind, id, bytes) = (record.kind, record.id, record.bytes.clone());
        if !self.shelf.mend(record, &id).await? {
            return Ok(false);
        }
        match kind {
            Kind::Head | Kind::Devices => drop(self.met(kind, id, &bytes)),
            _ => self.stored(kind, id, &bytes),
        }
        Ok(true)
    }

    /// Takes what stands beside versions as the store has it; whether it is one of these.
    pub(super) fn met(&self, kind: Kind, id: RecordId, bytes: &[u8]) -> bool {
        let copy = || Bytes::copy_from_slice(bytes);
        match kind {
            Kind::Attestation => self.attestations.met(id, bytes),
            Kind::Policy => self.policies.met(id, &copy()),
            Kind::Head | Kind::Devices => self.heads.met(id, &copy(), kind == Kind::Head),
            _ => false,
        }
    }

    /// A record that stands beside versions is in the store.
    pub(super) fn stored(&self, kind: Kind, id: RecordId, bytes: &Bytes) {
        match kind {
            Kind::Attestation => {
                self.attestations.written(id, bytes);
                self.feed.attested(version::attestation::named(bytes));
            }
            Kind::Policy => drop(self.policies.met(id, bytes)),
            _ => {}
        }
    }
}
