//! Temporary folders, and the room they have.

use std::fs;
use std::path::{Path, PathBuf};

use env::{Entropy, SystemEntropy};

use crate::error::BenchError;

/// A temporary folder, removed when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one below `within`, else below the system's folder for such.
    ///
    /// # Errors
    /// [`BenchError::Io`].
    pub fn new(within: Option<&Path>) -> Result<Self, BenchError> {
        let mut random = [0; 8];
        SystemEntropy.fill(&mut random);
        let within = within.map_or_else(std::env::temp_dir, Path::to_owned);
        let within = std::path::absolute(&within).map_err(BenchError::io("find", &within))?;
        let path = within.join(format!("hold-bench-{}", hex::encode(random)));
        fs::create_dir_all(&path).map_err(BenchError::io("make", &path))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether there is room for so many bytes below `within`, which need not be there yet: [`Folder::new`] makes it.
    ///
    /// # Errors
    /// [`BenchError::Room`] where fewer bytes are free.
    pub(crate) fn check_room(within: Option<&Path>, needed: u64) -> Result<(), BenchError> {
        let within = within.map_or_else(std::env::temp_dir, Path::to_owned);
        let path = std::path::absolute(&within).map_err(BenchError::io("find", &within))?;
        let there = path.ancestors().find(|above| above.exists()).unwrap_or(&path);
        let about = rustix::fs::statvfs(there)
            .map_err(|error| BenchError::io("look at", there)(error.into()))?;
        let free = about.f_bavail.saturating_mul(about.f_frsize);
        if free < needed {
            return Err(BenchError::Room { path, free, needed });
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_folder_goes_with_its_owner() {
        let within = tempfile::tempdir().unwrap();
        let folder = Folder::new(Some(within.path())).unwrap();
        fs::write(folder.path().join("file"), b"bytes").unwrap();
        drop(folder);
        assert_eq!(fs::read_dir(within.path()).unwrap().count(), 0);
        Folder::check_room(Some(within.path()), 1).unwrap();
        let full = Folder::check_room(Some(within.path()), u64::MAX);
        assert!(matches!(full, Err(BenchError::Room { .. })));
        // One that is not there yet has the room of where it will be.
        let new = within.path().join("not/yet");
        Folder::check_room(Some(&new), 1).unwrap();
        let full = Folder::check_room(Some(&new), u64::MAX);
        assert!(matches!(full, Err(BenchError::Room { path, .. }) if path == new));
        assert!(!new.exists());
    }
}
