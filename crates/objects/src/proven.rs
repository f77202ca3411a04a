//! Versions for others to read: what comes from the disk is hashed first.
//!
//! A frame's checksum finds what a disk did to it, and not what somebody did who made the checksum anew. What is read for
//! others is compared with its id; what is in memory was when it came there, or was read by this process for itself.

use crypto::RecordId;
use document::{Kind, Record};
use version::Version;

use crate::objects::hint_at;
use crate::{Objects, ObjectsError, Stored};

impl Objects {
    /// A version of an object as a record, proven; `None` where it is not here, or is being written and not as durable yet as
    /// it is to be.
    ///
    /// # Errors
    /// [`ObjectsError::Altered`], [`ObjectsError::OtherObject`], [`ObjectsError::Store`].
    pub async fn proven(
        &self,
        object: &version::ObjectKey,
        h: &RecordId,
    ) -> Result<Option<(Record, Stored)>, ObjectsError> {
        if self.arrivals.is_arriving(h) {
            return Ok(None);
        }
        let record = match self.cache.get(h) {
            Some(record) => record,
            None => {
                let Some(record) = self.store.get(h).await? else { return Ok(None) };
                if record.kind != Kind::Version {
                    return Err(ObjectsError::OtherObject { object: *object, id: *h });
                }
                if self.suite.id(&record.bytes) != *h {
                    return Err(ObjectsError::Altered { object: *object, id: *h });
                }
                self.cache.add(record.clone());
                record
            }
        };
        let version = Version::decode(&record.bytes)?;
        if version.object != *object {
            return Err(ObjectsError::OtherObject { object: *object, id: *h });
        }
        let n = hint_at(self.suite, object, &record)?;
        let id = version::VersionId { h: *h, l: version.l, n };
        Ok(Some((record, Stored { id, version })))
    }

    /// Whether a version is here and no longer being written.
    pub fn holds(&self, h: &RecordId) -> bool {
        self.store.contains(h) && !self.arrivals.is_arriving(h)
    }
}
