//! Where something whole is to be: a folder beside it is filled, synced, and gets its name at the end.
//!
//! The folder is named after the one that is wanted and locked while it is filled, so that two
//! tries do not mix, and what a killed one left is removed by the next.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use env::disk::{DirDisk, Disk, Lock};

use crate::log::take_lock;
use crate::{StoreError, io_error};

/// A folder being filled; removed when dropped before it is finished.
pub(super) struct Draft {
    path: PathBuf,
    to: PathBuf,
    lock: Option<Lock>,
}

/// A folder as a disk, made where it is not there.
pub(super) fn open(path: &Path) -> Result<DirDisk, StoreError> {
    DirDisk::open(path).map_err(io_error("open", &path.display().to_string()))
}

impl Draft {
    /// Begins what will be `to`, which must not be there or be empty.
    pub(super) fn new(to: &Path) -> Result<Self, StoreError> {
        let shown = to.display().to_string();
        match fs::read_dir(to) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(StoreError::NotEmpty(to.to_owned()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error("open", &shown)(error)),
        }
        let absolute = std::path::absolute(to).map_err(io_error("find", &shown))?;
        let Some(name) = absolute.file_name() else {
            return Err(StoreError::NotEmpty(to.to_owned()));
        };
        let path = absolute.with_file_name(format!(".{}.part", name.to_string_lossy()));
        let lock = take_lock(&open(&path)?).map_err(|error| match error {
            StoreError::Locked => StoreError::Written(to.to_owned()),
            other => other,
        })?;
        let draft = Self { path, to: absolute, lock: Some(lock) };
        draft.clear().map_err(io_error("clear", &shown))?;
        Ok(draft)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what an earlier try left, but for its lock.
    fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else if entry.file_name() != "lock" {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Makes the names durable and gives the folder its own.
    pub(super) fn finish(mut self) -> Result<(), StoreError> {
        let shown = self.to.display().to_string();
        let parent = self.to.parent().unwrap_or(Path::new("/")).to_owned();
        let renamed = (|| {
            open(&self.path).map_err(io::Error::other)?.sync_names()?;
            // Over an empty folder too, and over no other. The lock goes behind that: who had it between would find a draft that
            // a killed one left.
            fs::rename(&self.path, &self.to)?;
            fs::remove_file(self.to.join("lock"))?;
            fs::File::open(&self.to)?.sync_all()?;
            fs::File::open(&parent)?.sync_all()
        })();
        renamed.map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                StoreError::NotEmpty(self.to.clone())
            }
            _ => io_error("finish", &shown)(error),
        })?;
        self.lock = None;
        self.path.clear();
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // What cannot be removed now, the next try removes.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
