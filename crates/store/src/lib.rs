//! A peer's own storage: records in a checksummed log with an index, or in memory.
//!
//! It is an append-only store of immutable records by id, with one fsync for many writers. It is not a general key-value
//! database: nothing is updated in place, and a record's id proves its bytes.

use async_trait::async_trait;
use crypto::{Class, Classified, RecordId};
use document::Record;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk is full: nothing of the write is kept, reads go on.
    #[error("the disk is full; free space or move the store, then restart the peer")]
    Full,
    /// An fsync failed before: what was written since may not be on the disk, so nothing more is taken. Reads go on.
    #[error("writes ended after a failed fsync; check the disk, then restart the peer")]
    Poisoned,
    /// The record's bytes on the disk are not those that were written. It is not served.
    #[error("record {id} is damaged on disk ({file} at {offset})")]
    Damaged {
        /// The record.
        id: RecordId,
        /// The file it is in.
        file: String,
        /// Where.
        offset: u64,
    },
    /// Another process has the store open.
    #[error("the store is in use by another process")]
    Locked,
    /// A file was written by a newer release, or is no store file.
    #[error("{file} is not a store file of a format this program knows")]
    Format {
        /// The file.
        file: String,
    },
    /// The operating system.
    #[error("{action} {file}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        file: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl Classified for StoreError {
    fn class(&self) -> Class {
        match self {
            Self::Full | Self::Poisoned | Self::Locked => Class::Busy,
            Self::Damaged { .. } => Class::Corrupt,
            Self::Format { .. } => Class::Invalid,
            Self::Io { .. } | Self::Closed => Class::Unavailable,
        }
    }
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// When one fsync that covers it and all writes that waited beside it is done.
    #[default]
    Group,
    /// When an fsync of its own is done.
    Always,
    /// At once; fsync every second.
    EverySecond,
    /// At once; fsync when the system likes.
    Memory,
}

/// What is in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    /// Live records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of the files, dead ones too.
    pub file_bytes: u64,
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Records found damaged since the store was opened, and not yet written again.
    pub damaged: u64,
    /// Whether writes are refused for good (see [`StoreError::Poisoned`]).
    pub poisoned: bool,
}

/// Stores immutable records by id. Callers prove records before they put them.
#[async_trait]
pub trait RecordStore: Send + Sync + 'static {
    /// Stores records, all or none, and answers when they are durable as the store is set; `true` for those that were new.
    /// One that is there already (and reads well) costs no write. Dropping the future does not undo the write.
    async fn put(&self, records: Vec<Record>) -> Result<Vec<bool>, StoreError>;
    /// The record with this id, its checksum checked.
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError>;
    /// Whether it is there, by the index alone.
    fn contains(&self, id: &RecordId) -> bool;
    /// Drops records durably; those not there are no error.
    async fn remove(&self, ids: Vec<RecordId>) -> Result<(), StoreError>;
    /// Up to `limit` ids in ascending order, from `from` on (inclusive).
    fn ids(&self, from: &RecordId, limit: usize) -> Vec<RecordId>;
    /// What is in it.
    fn stats(&self) -> Stats;
    /// Makes everything written durable and ends; later calls are [`StoreError::Closed`].
    async fn close(&self) -> Result<(), StoreError>;
}
