//! A file in the making: under a temporary name until it is whole.
//!
//! What a get writes has its final name only after every check passed. Whatever ends it before, an
//! error, Ctrl-C, a dropped future, removes the temporary file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use author::FileSink;
use env::Env;

use crate::error::HoldError;
use crate::files;

/// A temporary file beside its final name; removed when dropped.
pub(crate) struct Draft {
    file: File,
    draft: PathBuf,
    path: PathBuf,
    replace: bool,
    /// A new file is the system's to write.
    unsynced: bool,
}

impl Draft {
    /// Makes the temporary file. `replace` says whether a file of the final name may be replaced.
    ///
    /// # Errors
    /// [`HoldError::Exists`] where one is there and may not be; [`HoldError::Io`] where the folder
    /// cannot be written.
    pub(crate) fn new(path: &Path, replace: bool) -> Result<Self, HoldError> {
        if path.is_dir() {
            let source = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(HoldError::io("write", path)(source));
        }
        if !replace && path.symlink_metadata().is_ok() {
            return Err(HoldError::Exists(path.to_owned()));
        }
        let draft = files::beside(path);
        let file = OpenOptions::new().write(true).create_new(true).open(&draft);
        let file = file.map_err(HoldError::io("write", path))?;
        Ok(Self { file, draft, path: path.to_owned(), replace, unsynced: false })
    }

    /// Without `sync` leaves it to the system when it is written to the disk, as `cp` does: after a power cut within a minute
    /// or so it may be short. One that goes over a file is durable first all the same: the old one is lost for the new one
    /// alone. So is one on a file system that may tell a write's error behind it (over a network: at the next sync or close).
    pub(crate) fn synced(mut self, sync: bool) -> Self {
        self.unsynced = !sync && !self.is_over_a_file() && tells_errors_at_once(&self.file);
        self
    }

    fn is_over_a_file(&self) -> bool {
        self.replace && self.path.symlink_metadata().is_ok()
    }

    /// A draft in `folder` whose name is not known yet: see [`Draft::keep_as`].
    ///
    /// # Errors
    /// [`HoldError::Io`] where the folder cannot be written.
    pub(crate) fn unnamed(folder: &Path) -> Result<Self, HoldError> {
        Self::new(&folder.join("hold-get"), true)
    }

    /// Keeps it under this name in its folder, never over a file that is there.
    ///
    /// # Errors
    /// As [`Draft::keep`].
    pub(crate) fn keep_as(mut self, name: &str) -> Result<PathBuf, HoldError> {
        self.path.set_file_name(name);
        self.replace = false;
        let path = self.path.clone();
        self.keep().map(|()| path)
    }

    /// To write to.
    ///
    /// # Errors
    /// Where the system has no more handles.
    pub(crate) fn file(&self) -> Result<File, HoldError> {
        self.file.try_clone().map_err(HoldError::io("write", &self.path))
    }

    /// For a content to be written to.
    ///
    /// # Errors
    /// As [`Draft::file`].
    pub(crate) fn sink(&self, env: &Env) -> Result<FileSink, HoldError> {
        let file = self.file()?;
        Ok(match self.unsynced {
            true => FileSink::left_to_the_system(env, file),
            false => FileSink::new(env, file),
        })
    }

    /// Makes it durable, unless it is left to the system, and gives it its final name.
    ///
    /// # Errors
    /// [`HoldError::Exists`] where a file came between; [`HoldError::Io`].
    pub(crate) fn keep(self) -> Result<(), HoldError> {
        let failed = || HoldError::io("write", &self.path);
        if !self.unsynced || self.is_over_a_file() {
            self.file.sync_all().map_err(failed())?;
        }
        if self.replace {
            fs::rename(&self.draft, &self.path).map_err(failed())?;
        } else {
            fs::hard_link(&self.draft, &self.path).map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => HoldError::Exists(self.path.clone()),
                _ => failed()(source),
            })?;
        }
        if self.unsynced {
            return Ok(());
        }
        // The name as well.
        files::sync_folder(&self.path)
    }
}

/// Whether a write into the cache of the file's system has its room, so that it is refused at once where there is none:
/// local ones that are known to (`statfs`'s types of `linux/magic.h`).
fn tells_errors_at_once(file: &File) -> bool {
    const EXT: u64 = 0xEF53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683E;
    const TMPFS: u64 = 0x0102_1994;
    let known = [EXT, XFS, BTRFS, TMPFS];
    rustix::fs::fstatfs(file).is_ok_and(|of| known.contains(&(of.f_type as u64)))
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename there is nothing to remove.
        let _ = fs::remove_file(&self.draft);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::Write;

    use super::*;

    #[test]
    fn a_draft_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let dropped = Draft::new(&path, false).unwrap();
        dropped.file().unwrap().write_all(b"half").unwrap();
        drop(dropped);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

        let kept = Draft::new(&path, false).unwrap();
        kept.file().unwrap().write_all(b"whole").unwrap();
        kept.keep().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert!(matches!(Draft::new(&path, false), Err(HoldError::Exists(_))));
        Draft::new(&path, true).unwrap().keep().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_new_file_may_be_left_to_the_system_and_one_over_another_may_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let draft = || Draft::new(&path, true).unwrap();
        assert!(!draft().unsynced, "unless it is asked for");
        let elsewhere = File::open("/proc/self/status").unwrap();
        assert!(!tells_errors_at_once(&elsewhere), "of that nothing is known");
        if !tells_errors_at_once(&draft().file) {
            assert!(!draft().synced(false).unsynced);
            return;
        }
        let new = draft().synced(false);
        assert!(new.unsynced);
        fs::write(&path, b"came between").unwrap();
        assert!(new.is_over_a_file(), "so it is synced");
        new.file().unwrap().write_all(b"new").unwrap();
        new.keep().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(!draft().synced(false).unsynced);
        let named = Draft::unnamed(folder.path()).unwrap().synced(false);
        assert!(named.unsynced, "it goes over nothing");
        assert!(matches!(named.keep_as("file"), Err(HoldError::Exists(_))));
    }
}
