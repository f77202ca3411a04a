//! Whether the disk has room for more: by what the store says is free, and by writes that found none.
//!
//! What is free is looked at whenever the peer's state is (at the start, and every [`crate::Rhythm::state`]), so that a disk that
//! another program fills is told before a writer meets it. A full one counts as mended when a part of what the store's files
//! take is free again, so that the peer does not announce itself full and not full by turns.
//!
//! Invariant: the log has one line for each change, whoever noticed it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use store::Stats;

/// The part of what the store's files take that must be free again; between these bounds.
const FREE_AGAIN_PART: u64 = 16;
const FREE_AGAIN_BYTES_MIN: u64 = 4 << 20;
const FREE_AGAIN_BYTES_MAX: u64 = 256 << 20;

/// The room on the disk of one store.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Where the store is, for an operator who reads the log.
    path: Option<PathBuf>,
    full: AtomicBool,
}

impl Room {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, full: AtomicBool::new(false) }
    }

    /// Whether the disk has no more than the reserve, which compaction and removals need, or had no more and has too
    /// little again.
    pub(crate) fn is_full(&self, stats: &Stats) -> bool {
        if stats.free_bytes == 0 {
            self.ran_out();
            return true;
        }
        if !self.full.load(Ordering::Relaxed) {
            return false;
        }
        let part = stats.file_bytes / FREE_AGAIN_PART;
        if stats.free_bytes < part.clamp(FREE_AGAIN_BYTES_MIN, FREE_AGAIN_BYTES_MAX) {
            return true;
        }
        if self.full.swap(false, Ordering::Relaxed) {
            let (path, free) = (self.path(), stats.free_bytes);
            tracing::info!(path, free, "the disk has room again: the peer takes writes");
        }
        false
    }

    /// A write found no room.
    pub(crate) fn ran_out(&self) {
        if !self.full.swap(true, Ordering::Relaxed) {
            tracing::error!(
                path = self.path(),
                "the disk is full: no more writes, reads go on; remove what else is on it, or grow \
                 the file system, and remove nothing of the store (docs/operating/disk.md)"
            );
        }
    }

    fn path(&self) -> Option<tracing::field::DisplayValue<std::path::Display<'_>>> {
        self.path.as_deref().map(|path| tracing::field::display(path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_at_its_reserve_and_has_room_again_with_some_to_spare() {
        let room = Room::default();
        let with = |free_bytes, file_bytes| Stats { free_bytes, file_bytes, ..Stats::default() };
        assert!(!room.is_full(&with(1, 0)), "a write that fits is still taken");
        assert!(room.is_full(&with(0, 0)), "no write had to fail first");
        assert!(room.is_full(&with(FREE_AGAIN_BYTES_MIN - 1, 0)));
        assert!(room.is_full(&with(FREE_AGAIN_BYTES_MIN, 1 << 30)), "a sixteenth of the files");
        assert!(room.is_full(&with(FREE_AGAIN_BYTES_MAX - 1, 1 << 40)));
        assert!(!room.is_full(&with(FREE_AGAIN_BYTES_MAX, 1 << 40)));
        assert!(!room.is_full(&with(1, 0)));
        room.ran_out();
        assert!(room.is_full(&with(1, 0)), "what is free was too little for a write");
    }
}
