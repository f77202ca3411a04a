//! A folder of append-only files, small enough that torn writes and lost fsyncs are simulated under
//! it.
//!
//! Names are flat: no slashes, no `.` or `..`. Calls block; whoever calls runs on a thread of its
//! own.

mod behind;
mod bulk;
mod dir;
mod room;
mod unwritten;

use std::any::Any;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

pub use bulk::{BULK_BYTES_MIN, Bulk};
pub use dir::{DirDisk, NAME_BYTES_MAX};
pub use room::{ALIGNMENT as WRITE_ALIGNMENT, ROOM_BYTES_MAX, Room, give_back};
pub use unwritten::unwritten_room;

/// A folder of files.
pub trait Disk: Send + Sync {
    /// Opens a file, creating it where `create` says so.
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>>;
    /// The names of all files, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Renames over what is there.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; one that is not there is no error.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_names(&self) -> io::Result<()>;
    /// Overwrites what the disk keeps of written bytes beside the files that they are in.
    fn wipe(&self) -> io::Result<()> {
        Ok(())
    }
    /// Bytes that can still be written.
    fn free_bytes(&self) -> io::Result<u64>;
    /// The folder of the file system that it is, if it is one: between two of those, files can be
    /// linked.
    fn folder(&self) -> Option<&Path> {
        None
    }
    /// Keeps every other opener out until the lock, and all others this opener took, are dropped.
    /// Another opener's lock is [`io::ErrorKind::ResourceBusy`]. A folder that nobody else can
    /// reach needs none.
    fn lock(&self) -> io::Result<Lock> {
        Ok(Lock::none())
    }
}

/// A folder held for one opener, as long as this lives.
#[must_use]
pub struct Lock {
    _held: Option<Arc<dyn Any + Send + Sync>>,
}

impl Lock {
    /// No lock: the folder is reached by one opener alone.
    pub const fn none() -> Self {
        Self { _held: None }
    }

    /// A lock that ends when the last clone of `held` is dropped.
    pub fn holding(held: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _held: Some(held) }
    }
}

/// One open file. It is closed when dropped.
pub trait File: Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `into` from `offset`; an end of file before that is [`io::ErrorKind::UnexpectedEof`].
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// The same, of bytes that nobody is expected to ask for soon again: what is in the system's
    /// cache is used, and what is not does not come to stay there.
    fn read_once_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_at(offset, into)
    }
    /// So many bytes from `offset`, as [`File::read_once_at`] reads them. Where they are many they may stand in memory of
    /// [`ROOM_BYTES_MAX`] that other records use after them.
    fn read_once(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; len];
        self.read_once_at(offset, &mut bytes)?;
        Ok(bytes.into())
    }
    /// As [`File::read_at`] where no disk need be waited for: an I/O thread that waits for one keeps all that it serves. Whether
    /// `into` was filled; where it was not, for whatever reason, somebody who may wait is to read it and told what is wrong.
    fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        self.read_at(offset, into).is_ok()
    }
    /// Writes all of `parts`, one after the other, from `offset`. After an error any part of it may
    /// be on the disk.
    fn write_at(&self, offset: u64, parts: &[io::IoSlice<'_>]) -> io::Result<()>;
    /// Where a part of at least [`BULK_BYTES_MIN`] bytes leaves the same rest by this in memory as in the file, it is
    /// written from where it lies, without a copy. `None` where that makes no difference.
    fn memory_alignment(&self) -> Option<usize> {
        None
    }
    /// As [`File::write_at`], for what need not be on the disk before `sync`: a process that dies after it loses none of it,
    /// a system that does may lose all. Until `flush` other openers of the folder may not see it.
    fn write_soon(&self, offset: u64, parts: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.write_at(offset, parts)
    }
    /// Waits until what was written soon is in the file, for others to read. `sync` does so too.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    /// Tells the system that nobody is expected to ask for these bytes soon again: what of them is on the disk leaves its
    /// cache, and what is not goes there. A hint.
    fn uncache(&self, _range: Range<u64>) {}
    /// Whether the disk reads anything of the other files of the folder: all of a short file may lie in one bad place of a disk
    /// that is well else.
    fn others_answer(&self) -> bool {
        false
    }
    /// Whether its name leads to no file any more: it is gone once nobody has it open.
    fn is_removed(&self) -> io::Result<bool> {
        Ok(false)
    }
    /// Cuts the file to `len` bytes.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Makes everything written so far durable.
    fn sync(&self) -> io::Result<()>;
}
