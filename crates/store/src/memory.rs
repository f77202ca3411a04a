//! Records in memory: the store of tests, of `hold up`'s embedded peers and of simulations that
//! look elsewhere.
//!
//! Nothing is durable, nothing can be damaged, and the memory used is the records' own bytes.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use crypto::{Place, RecordId};
use document::{Kind, Record};

use crate::{Part, Placed, RecordStore, Stats, StoreError, check_put};

/// A [`RecordStore`] without a disk.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<RecordId, Record>,
    bytes: u64,
    placed: u64,
    closed: bool,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    // No code that can panic runs under the lock, so a poisoned one still guards a whole state.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<RwLockReadGuard<'_, State>, StoreError> {
        let state = self.read();
        if state.closed { Err(StoreError::Closed) } else { Ok(state) }
    }

    fn open_mut(&self) -> Result<RwLockWriteGuard<'_, State>, StoreError> {
        let state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.closed { Err(StoreError::Closed) } else { Ok(state) }
    }
}

#[async_trait]
impl RecordStore for MemoryStore {
    async fn put(&self, records: Vec<Record>) -> Result<Vec<bool>, StoreError> {
        check_put(&records)?;
        let mut state = self.open_mut()?;
        let new = records.into_iter().map(|record| {
            let len = record.bytes.len() as u64;
            let new = !state.records.contains_key(&record.id);
            if new {
                state.placed += u64::from(is_placed(&record));
                state.records.insert(record.id, record);
                state.bytes += len;
            }
            new
        });
        Ok(new.collect())
    }

    /// In the order of the ids.
    fn each_of(
        &self,
        kinds: &[Kind],
        each: &mut dyn FnMut(Part<'_>),
    ) -> Result<Vec<RecordId>, StoreError> {
        for record in self.open()?.records.values().filter(|record| kinds.contains(&record.kind)) {
            let Record { id, kind, place, bytes } = record;
            each(Part { id: *id, kind: *kind, place: *place, payload: bytes, is_form: false });
        }
        Ok(Vec::new())
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        Ok(self.open()?.records.get(id).cloned())
    }

    fn contains(&self, id: &RecordId) -> bool {
        self.read().records.contains_key(id)
    }

    async fn remove(&self, ids: Vec<RecordId>) -> Result<(), StoreError> {
        let mut state = self.open_mut()?;
        for id in ids {
            if let Some(record) = state.records.remove(&id) {
                state.bytes -= record.bytes.len() as u64;
                state.placed -= u64::from(is_placed(&record));
            }
        }
        Ok(())
    }

    fn ids(&self, from: &RecordId, limit: usize) -> Vec<RecordId> {
        self.read().records.range(from..).take(limit).map(|(id, _)| *id).collect()
    }

    async fn list(&self, from: &RecordId, limit: usize) -> Result<Vec<Placed>, StoreError> {
        let state = self.open()?;
        let found = state.records.range(from..).take(limit);
        let placed = |(id, record): (&RecordId, &Record)| Placed {
            id: *id,
            kind: record.kind,
            place: record.place,
        };
        Ok(found.map(placed).collect())
    }

    fn stats(&self) -> Stats {
        let state = self.read();
        Stats {
            records: state.records.len() as u64,
            bytes: state.bytes,
            fragments: state.placed,
            file_bytes: 0,
            free_bytes: u64::MAX,
            damaged: 0,
            poisoned: false,
        }
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.open_mut()?.closed = true;
        Ok(())
    }
}

/// Whether it is a fragment of a stripe.
fn is_placed(record: &Record) -> bool {
    matches!(record.kind, Kind::Page | Kind::Parity) && record.place != Place::from(record.id)
}
