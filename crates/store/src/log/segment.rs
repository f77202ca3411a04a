//! One file of the log: its name, its creation, and the handles of those that are open.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use env::disk::{Disk, File};

use super::frame::Marker;
use super::index_file::Rows;
use crate::header::{FILE_HEADER_BYTES, Family, FileHeader};

/// Files a store keeps open for reading at most.
pub(crate) const OPEN_FILES_MAX: usize = 64;

/// The number in a segment's name is below this.
pub(crate) const SEGMENTS_MAX: u32 = 100_000_000;

/// A segment with its file open.
#[derive(Clone)]
pub(crate) struct Segment {
    pub number: u32,
    pub file: Arc<dyn File>,
    pub len: u64,
    pub marker: Marker,
    /// What its index file will hold; `None` where it is to be read from the segment.
    pub rows: Option<Rows>,
    /// Bytes of its index file that are counted among those of the store's files.
    pub index_bytes: u64,
    /// Opening found payloads in it damaged, or could not read all of it. Index files do not say so, so it gets none: each
    /// opening looks again.
    pub suspect: bool,
}

/// `NNNNNNNN.log`.
pub(crate) fn log_name(number: u32) -> String {
    format!("{number:08}.log")
}

/// `NNNNNNNN.idx`.
pub(crate) fn index_name(number: u32) -> String {
    format!("{number:08}.idx")
}

/// The number of a segment file's name.
pub(crate) fn log_number(name: &str) -> Option<u32> {
    number_before(name, ".log")
}

/// The number of an index file's name.
pub(crate) fn index_number(name: &str) -> Option<u32> {
    number_before(name, ".idx")
}

fn number_before(name: &str, ending: &str) -> Option<u32> {
    let digits = name.strip_suffix(ending)?;
    let all_digits = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok() } else { None }
}

/// Writes the head of a new file and makes it and its name durable, before any frame follows. The
/// difference between the two errors is whether an fsync failed.
pub(crate) fn create(
    disk: &dyn Disk,
    name: &str,
    family: Family,
    header: FileHeader,
) -> Result<Arc<dyn File>, CreateError> {
    let written = disk.open(name, true).and_then(|file| {
        file.truncate(0)?;
        file.write_at(0, &[IoSlice::new(&header.encode(family))])?;
        Ok(file)
    });
    let file = match written {
        Ok(file) => file,
        Err(error) => {
            let _ = disk.remove(name);
            return Err(CreateError::Write(error));
        }
    };
    if let Err(error) = file.sync().and_then(|()| disk.sync_names()) {
        // The system may go on showing a head that never reaches the disk: the next opening must
        // not build on it.
        let _ = disk.remove(name);
        return Err(CreateError::Sync(error));
    }
    debug_assert!(file.len().is_ok_and(|len| len == FILE_HEADER_BYTES));
    Ok(file)
}

/// Why a file could not be created.
pub(crate) enum CreateError {
    /// Nothing of it is left.
    Write(io::Error),
    /// It may or may not be there after a power cut.
    Sync(io::Error),
}

/// The files that are open for reading: the least recently used is closed when there are too many.
pub(crate) struct OpenFiles {
    disk: Arc<dyn Disk>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    recent: VecDeque<(u32, Arc<dyn File>)>,
    /// Those that somebody else removed: they can be read as long as they are open, and never again.
    removed: BTreeMap<u32, Arc<dyn File>>,
}

impl OpenFiles {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, open: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A segment's file, where it is open.
    pub(crate) fn opened(&self, number: u32) -> Option<Arc<dyn File>> {
        let mut open = self.lock();
        let Some(at) = open.recent.iter().position(|(other, _)| *other == number) else {
            return open.removed.get(&number).cloned();
        };
        let found = open.recent.remove(at)?;
        let file = found.1.clone();
        open.recent.push_back(found);
        Some(file)
    }

    /// A segment's file, opened where it is not.
    pub(crate) fn get(&self, number: u32) -> io::Result<Arc<dyn File>> {
        if let Some(file) = self.opened(number) {
            return Ok(file);
        }
        let file = self.disk.open(&log_name(number), false)?;
        self.add(number, file.clone());
        Ok(file)
    }

    /// Keeps a file open that somebody else removed, until [`OpenFiles::forget`]; whether it was not yet. Of more than [`OPEN_FILES_MAX`]
    /// the others are closed like any.
    pub(crate) fn keep(&self, number: u32, file: Arc<dyn File>) -> bool {
        let mut open = self.lock();
        let more = open.removed.len() < OPEN_FILES_MAX && !open.removed.contains_key(&number);
        if more {
            open.removed.insert(number, file);
        }
        more
    }

    /// Whether somebody else removed a segment's file.
    pub(crate) fn is_removed(&self, number: u32) -> bool {
        self.lock().removed.contains_key(&number)
    }

    /// The segments whose files somebody else removed.
    pub(crate) fn removed(&self) -> Vec<u32> {
        self.lock().removed.keys().copied().collect()
    }

    /// Closes a file that was removed; whoever reads it goes on.
    pub(crate) fn forget(&self, number: u32) {
        let mut open = self.lock();
        open.recent.retain(|(other, _)| *other != number);
        open.removed.remove(&number);
    }

    /// Takes in a file that is open already.
    pub(crate) fn add(&self, number: u32, file: Arc<dyn File>) {
        let mut open = self.lock();
        open.recent.retain(|(other, _)| *other != number);
        open.recent.push_back((number, file));
        if open.recent.len() > OPEN_FILES_MAX {
            open.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_eight_digits_name_a_segment() {
        assert_eq!(log_number(&log_name(42)), Some(42));
        for name in ["42.log", "00000042.idx", "0000004x.log", "000000042.log", "+0000042.log"] {
            assert_eq!(log_number(name), None, "{name}");
            assert_eq!(index_number(name).is_some(), name == index_name(42), "{name}");
        }
    }
}
