//! Versions in memory, by a budget of bytes.

use bytes::Bytes;
use crypto::RecordId;
use document::Record;
use foldhash::fast::RandomState;
use quick_cache::Weighter;
use quick_cache::sync::{Cache as Inner, DefaultLifecycle};

/// What a version is taken to cost beside its bytes.
const OVERHEAD_BYTES: u64 = 160;
/// The length that the number of entries is guessed by.
const USUAL_BYTES: u64 = 1024;

#[derive(Clone)]
struct ByBytes;

impl Weighter<RecordId, Record> for ByBytes {
    fn weight(&self, _: &RecordId, record: &Record) -> u64 {
        record.bytes.len() as u64 + OVERHEAD_BYTES
    }
}

/// Versions as records, with their own bytes whole.
pub(crate) struct Cache(Inner<RecordId, Record, ByBytes, RandomState>);

impl Cache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let entries = usize::try_from(bytes_max / USUAL_BYTES).unwrap_or(usize::MAX).max(16);
        let hash = RandomState::default();
        Self(Inner::with(entries, bytes_max, ByBytes, hash, DefaultLifecycle::default()))
    }

    pub(crate) fn get(&self, id: &RecordId) -> Option<Record> {
        self.0.get(id)
    }

    pub(crate) fn bytes_of(&self, id: &RecordId) -> Option<Bytes> {
        self.0.get(id).map(|record| record.bytes)
    }

    pub(crate) fn add(&self, record: Record) {
        self.0.insert(record.id, record);
    }

    pub(crate) fn weight(&self) -> u64 {
        self.0.weight()
    }
}
