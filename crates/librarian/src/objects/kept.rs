//! What another holder of a version is given with it.

use crypto::RecordId;
use document::{Kind, Record};
use version::{ObjectRecord, Version};

use super::ObjectShelf;

impl ObjectShelf {
    /// A record of an object, whole, and what a peer must have to take it: object, policy, attestation. `None` where it is
    /// not here, or not what it was.
    pub(crate) async fn kept(&self, id: &RecordId) -> Option<(Record, Vec<Record>)> {
        if !self.store.contains(id) {
            return None;
        }
        let record = self.intact(id).await.ok().flatten()?;
        let mut companions = Vec::new();
        if record.kind == Kind::Version {
            let version = Version::decode(&record.bytes).ok()?;
            let object = self.intact(&RecordId::new(*version.object.as_bytes())).await.ok()?;
            let named = object.as_ref().and_then(|object| ObjectRecord::decode(&object.bytes).ok());
            companions.extend(object);
            if let Some(named) = &named {
                companions.extend(self.policy_of(named).await.ok().flatten());
            }
            let attestation = self.attestation(id, named.as_ref()).await.ok().flatten();
            companions.extend(attestation.map(|bytes| {
                let id = self.suite.id(&bytes);
                Record { kind: Kind::Attestation, id, place: id.into(), bytes }
            }));
        } else if record.kind.is_document() {
            return None;
        }
        Some((record, companions))
    }

    /// How many copies the policy of a version's object asks for; `None` where it says nothing, or this is no version that is
    /// here.
    pub(crate) async fn copies_of(&self, id: &RecordId) -> Option<u32> {
        if !self.store.contains(id) {
            return None;
        }
        let record = self.intact(id).await.ok().flatten()?;
        if record.kind != Kind::Version {
            return None;
        }
        let version = Version::decode(&record.bytes).ok()?;
        let object = self.intact(&RecordId::new(*version.object.as_bytes())).await.ok()??;
        self.policies.copies_of(&ObjectRecord::decode(&object.bytes).ok()?)
    }
}
