//! Whose an object is and what it is called, as its record here says.
//!
//! Records are read when they are asked for: a peer may keep millions of objects, of which few are in use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use document::Kind;
use env::calls::CallError;
use store::StoreError;
use version::{ObjectKey, ObjectRecord};

use super::ObjectShelf;

/// Names in memory at most, of up to about 1.2 KB each. Of more, all are forgotten and read again.
const NAMES_MAX: usize = 16_384;

#[derive(Default)]
pub(super) struct Names {
    known: Mutex<HashMap<ObjectKey, Arc<ObjectRecord>>>,
}

impl Names {
    fn get(&self, object: &ObjectKey) -> Option<Arc<ObjectRecord>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(object).cloned()
    }

    fn put(&self, object: ObjectKey, record: Arc<ObjectRecord>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= NAMES_MAX {
            known.clear();
        }
        known.insert(object, record);
    }
}

impl ObjectShelf {
    /// An object by its record; `None` where that is not here, or not what it was.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub(super) async fn named(
        &self,
        object: &ObjectKey,
    ) -> Result<Option<Arc<ObjectRecord>>, CallError> {
        if let Some(known) = self.names.get(object) {
            return Ok(Some(known));
        }
        let record = match self.store.get(&object.record()).await {
            Ok(record) => record.filter(|record| record.kind == Kind::Object),
            Err(StoreError::Damaged { .. }) => None,
            Err(error) => return Err(self.shelf.refused(error)),
        };
        let Some(record) = record else { return Ok(None) };
        // The key is the hash of the bytes: nobody becomes an owner by altering them.
        if self.suite.id(&record.bytes) != record.id {
            self.metrics.objects.altered.inc();
            tracing::error!(%object, "an object's record was altered on disk");
            return Ok(None);
        }
        let named = ObjectRecord::decode(&record.bytes).ok();
        let named = named.filter(|named| named.network == self.network).map(Arc::new);
        if let Some(named) = &named {
            self.names.put(*object, Arc::clone(named));
        }
        Ok(named)
    }
}
