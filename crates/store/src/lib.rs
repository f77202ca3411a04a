//! A peer's own storage: records in a checksummed log with an index, or in memory.
//!
//! It is an append-only store of immutable records by id, with one fsync for many writers. It is
//! not a general key-value database: nothing is updated in place, and a record's id proves its
//! bytes.
//!
//! - [`LogStore`]: checksummed segment files over an `env::disk::Disk`, an index in memory.
//! - [`MemoryStore`]: the same without a disk.
//! - [`Journal`]: an append-only log of small entries with dense offsets, for a peer's
//!   publications.
//! - [`snapshot`]: copies of both, and of all else in a peer's directory, while it runs.
//!
//! All bytes on the disk are described in `docs/formats/store.md`.

mod checksum;
mod form;
mod header;
pub mod journal;
mod line;
mod log;
mod memory;
mod scan;
pub mod snapshot;
mod upkeep;
mod window;

pub use journal::{Journal, JournalOptions};
#[cfg(feature = "planted-bugs")]
pub use log::PlantedBug;
pub use log::compaction::{Compaction, CompactionOptions};
pub use log::scrub::{ScrubCursor, ScrubPass, ScrubStep};
pub use log::{LogOptions, LogStore, Recovery};
pub use memory::MemoryStore;
pub use upkeep::{Damaged, Upkeep};

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use crypto::{Class, Classified, Place, RecordId};
use document::{Kind, Record};
use env::disk::Disk;

/// The largest record a store takes, in bytes: twice the largest document, so that formats may
/// grow.
pub const RECORD_BYTES_MAX: usize = 4 << 20;
/// Bytes of records in one `put` at most.
pub const PUT_BYTES_MAX: usize = 64 << 20;
/// Records in one `put` at most.
pub const PUT_RECORDS_MAX: usize = 65_536;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk is full: nothing of the write is kept, reads go on.
    #[error("the disk is full; make room, and writes go on by themselves")]
    Full,
    /// A folder that is to be filled is on a disk without room for it.
    #[error("the disk that {} is on is full", .0.display())]
    FullAt(PathBuf),
    /// An fsync failed before: what was written since may not be on the disk, so nothing more is
    /// taken. Reads go on.
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
    /// A record, a journal's entry or a whole write is over its bound; nothing was written.
    #[error("{size} is over the bound of {max} for one write")]
    TooLarge {
        /// Bytes, or records, that were to be written.
        size: usize,
        /// The bound.
        max: usize,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// A folder holds no manifest of a snapshot, so it is none, or was not finished.
    #[error("{} is not a finished snapshot: it has no manifest", .0.display())]
    NotASnapshot(PathBuf),
    /// A snapshot's manifest is damaged, or of a format of a newer release.
    #[error("{}: {why}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        why: snapshot::ManifestError,
    },
    /// A file of a snapshot is not what its manifest says.
    #[error("the snapshot is damaged: {} {fault}", path.display())]
    SnapshotFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: snapshot::Fault,
    },
    /// A snapshot that would be part of what it is of.
    #[error("{} is in the peer's directory itself: choose a folder outside of it", .0.display())]
    Inside(PathBuf),
    /// Another process fills the same folder.
    #[error("another snapshot is being written to {}, or a peer restored there", .0.display())]
    Written(PathBuf),
    /// A folder that is to be filled holds something already.
    #[error("{} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// Files came and went so often that no moment was found to copy.
    #[error("the store changed all the time while it was copied")]
    Unsettled,
    /// Whoever watched the copying did not want it any more.
    #[error("copying was stopped")]
    Stopped,
}

impl StoreError {
    /// The same error for another caller of the same write. The system's errors are carried by
    /// their number or kind.
    fn again(&self) -> Self {
        match self {
            Self::Full => Self::Full,
            Self::FullAt(path) => Self::FullAt(path.clone()),
            Self::Poisoned => Self::Poisoned,
            Self::Damaged { id, file, offset } => {
                Self::Damaged { id: *id, file: file.clone(), offset: *offset }
            }
            Self::Locked => Self::Locked,
            Self::Format { file } => Self::Format { file: file.clone() },
            Self::Io { action, file, source } => {
                let source = match source.raw_os_error() {
                    Some(number) => io::Error::from_raw_os_error(number),
                    None => source.kind().into(),
                };
                Self::Io { action, file: file.clone(), source }
            }
            Self::TooLarge { size, max } => Self::TooLarge { size: *size, max: *max },
            Self::Closed => Self::Closed,
            Self::NotASnapshot(path) => Self::NotASnapshot(path.clone()),
            Self::Manifest { path, why } => Self::Manifest { path: path.clone(), why: *why },
            Self::SnapshotFile { path, fault } => {
                Self::SnapshotFile { path: path.clone(), fault: *fault }
            }
            Self::Inside(path) => Self::Inside(path.clone()),
            Self::Written(path) => Self::Written(path.clone()),
            Self::NotEmpty(path) => Self::NotEmpty(path.clone()),
            Self::Unsettled => Self::Unsettled,
            Self::Stopped => Self::Stopped,
        }
    }

    /// The same error, where the disk is full told of this folder: not of a peer's store, which may be on another disk.
    fn full_at(self, folder: &Path) -> Self {
        match self {
            Self::Full => Self::FullAt(folder.to_owned()),
            other => other,
        }
    }

    /// The same error of a file that is named alone, its folder before it.
    fn in_folder(self, disk: &dyn Disk) -> Self {
        match self {
            Self::Io { action, file, source } => {
                Self::Io { action, file: shown(disk, &file), source }
            }
            Self::Format { file } => Self::Format { file: shown(disk, &file) },
            other => other,
        }
    }
}

/// A file's path where the disk is a folder, for an error that an operator reads; else its name.
fn shown(disk: &dyn Disk, name: &str) -> String {
    let path = disk.folder().map(|folder| folder.join(name).display().to_string());
    path.unwrap_or_else(|| name.to_owned())
}

/// Whether the disk, or the quota, had no room.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The error of an operation of the system on a file.
fn io_error<'a>(action: &'static str, file: &'a str) -> impl Fn(io::Error) -> StoreError + 'a {
    move |source| {
        if is_full(&source) {
            StoreError::Full
        } else {
            StoreError::Io { action, file: file.to_owned(), source }
        }
    }
}

/// Refuses a write that is over a bound.
fn check_put(records: &[Record]) -> Result<(), StoreError> {
    check_put_of(records.iter().map(|record| record.bytes.len()))
}

/// Refuses a write of records of these lengths where it is over a bound.
fn check_put_of(lengths: impl Iterator<Item = usize>) -> Result<(), StoreError> {
    let add = |(records, largest, total): (usize, usize, usize), length: usize| {
        (records + 1, largest.max(length), total + length)
    };
    let (records, largest, total) = lengths.fold((0, 0, 0), add);
    for (size, max) in
        [(records, PUT_RECORDS_MAX), (largest, RECORD_BYTES_MAX), (total, PUT_BYTES_MAX)]
    {
        if size > max {
            return Err(StoreError::TooLarge { size, max });
        }
    }
    Ok(())
}

impl Classified for StoreError {
    fn class(&self) -> Class {
        match self {
            Self::Full | Self::FullAt(_) | Self::Poisoned => Class::Busy,
            Self::Locked | Self::Written(_) | Self::Unsettled => Class::Busy,
            Self::Damaged { .. } | Self::NotASnapshot(_) => Class::Corrupt,
            Self::Manifest { why: snapshot::ManifestError::Version, .. } => Class::Invalid,
            Self::Manifest { .. } | Self::SnapshotFile { .. } => Class::Corrupt,
            Self::NotEmpty(_) => Class::Conflict,
            Self::Format { .. } | Self::TooLarge { .. } | Self::Inside(_) => Class::Invalid,
            Self::Io { .. } | Self::Closed | Self::Stopped => Class::Unavailable,
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

impl Durability {
    /// Whether whoever has an answer has it on the disk.
    pub const fn syncs_before_answer(self) -> bool {
        matches!(self, Self::Group | Self::Always)
    }
}

/// What is in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    /// Live records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of the records, those that live elsewhere than at their id: fragments of stripes.
    pub fragments: u64,
    /// Bytes of the files, dead ones too.
    pub file_bytes: u64,
    /// Bytes that can still be written, by what the disk said a tenth of a second ago at most.
    pub free_bytes: u64,
    /// Records found damaged since the store was opened, and not yet written again.
    pub damaged: u64,
    /// Whether writes are refused for good (see [`StoreError::Poisoned`]).
    pub poisoned: bool,
}

/// A record to be stored, and what may be kept of it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The record, its own bytes whole.
    pub record: Record,
    /// The [`version::Form`] of a version that expands to these bytes. Whoever hands it over has made sure of that, and
    /// never removes its base before it. Where the base is not in the store, or is a form itself, the record
    /// is kept plain.
    pub form: Option<Bytes>,
    /// Whoever hands it over knows that it is not here, and nobody need look: a version made on a tip, whose id nobody
    /// had before. Where it is here all the same it is written twice and counted once.
    pub new: bool,
}

/// What is kept of one record.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The record.
    pub id: RecordId,
    /// What it is.
    pub kind: Kind,
    /// Where it lives.
    pub place: Place,
    /// Its bytes, or its form. They have the checksum they were written with; what they are was not proven again.
    pub payload: &'a [u8],
    /// Whether the payload is a form.
    pub is_form: bool,
}

/// Where one record lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The record.
    pub id: RecordId,
    /// What it is.
    pub kind: Kind,
    /// Where it lives.
    pub place: Place,
}

/// Stores immutable records by id. Callers prove records before they put them.
#[async_trait]
pub trait RecordStore: Send + Sync + 'static {
    /// Stores records, all or none, and answers when they are durable as the store is set; `true`
    /// for those that were new. One that is there already (and reads well) costs no write. After a
    /// power cut any part of a write that was not answered may be there. Dropping the future does
    /// not undo the write.
    async fn put(&self, records: Vec<Record>) -> Result<Vec<bool>, StoreError>;
    /// As [`RecordStore::put`]; what has a form may be kept as that, in less room. It reads like any other.
    /// It is answered as `durability` says, with none as the store is set.
    async fn put_kept(
        &self,
        kept: Vec<Kept>,
        durability: Option<Durability>,
    ) -> Result<Vec<bool>, StoreError> {
        let _ = durability;
        self.put(kept.into_iter().map(|kept| kept.record).collect()).await
    }
    /// When writes are answered where their caller asks for nothing else.
    fn durability(&self) -> Durability {
        Durability::Memory
    }
    /// As [`RecordStore::put_kept`], done by the calling thread, which waits: for a thread of its own that has nothing
    /// else to do, and whose small writes take less than the way to another thread and back. A thread of a runtime
    /// must not call it.
    ///
    /// # Errors
    /// As [`RecordStore::put_kept`].
    fn put_here(
        &self,
        kept: Vec<Kept>,
        durability: Option<Durability>,
    ) -> Result<Vec<bool>, StoreError> {
        futures::executor::block_on(self.put_kept(kept, durability))
    }
    /// The base of the form that this record is kept as; `None` where it is plain, or not here. It may read the record.
    fn form_base(&self, _id: &RecordId) -> Result<Option<RecordId>, StoreError> {
        Ok(None)
    }
    /// Hands over what is kept of every record of these kinds, in the order in which it was written
    /// (compaction writes again). It blocks while it reads. Damaged ones are left out, and returned.
    fn each_of(
        &self,
        kinds: &[Kind],
        each: &mut dyn FnMut(Part<'_>),
    ) -> Result<Vec<RecordId>, StoreError>;
    /// The record with this id, its checksum checked.
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError>;
    /// Whether it is there, by the index alone.
    fn contains(&self, id: &RecordId) -> bool;
    /// Drops records durably, at most [`PUT_RECORDS_MAX`]; those not there are no error.
    async fn remove(&self, ids: Vec<RecordId>) -> Result<(), StoreError>;
    /// Up to `limit` ids in ascending order, from `from` on (inclusive).
    fn ids(&self, from: &RecordId, limit: usize) -> Vec<RecordId>;
    /// What and where up to `limit` records are, in ascending order from `from` on (inclusive). Those whose place was lost
    /// with them are left out: that one is not listed does not say where it lives.
    ///
    /// # Errors
    /// Of a store that cannot say of each whether it is so, the system's.
    async fn list(&self, from: &RecordId, limit: usize) -> Result<Vec<Placed>, StoreError> {
        let mut all = Vec::new();
        for id in self.ids(from, limit) {
            let Ok(Some(record)) = self.get(&id).await else { continue };
            all.push(Placed { id, kind: record.kind, place: record.place });
        }
        Ok(all)
    }
    /// What is in it.
    fn stats(&self) -> Stats;
    /// What it needs done to it while it serves, where it needs something.
    fn upkeep(&self) -> Option<&dyn Upkeep> {
        None
    }
    /// Makes everything written durable and ends; later calls are [`StoreError::Closed`].
    async fn close(&self) -> Result<(), StoreError>;
}
