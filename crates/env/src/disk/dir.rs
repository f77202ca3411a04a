//! A directory of the file system as a [`Disk`].
//!
//! Files are opened by name below one directory handle, so that the directory may be renamed
//! meanwhile and a name can never lead out of it: names are letters, digits, `.`, `-` and `_`, do
//! not begin with a dot, and symbolic links are not followed. Files are readable by their owner
//! alone (0600, the directory 0700).
//!
//! `sync` is fdatasync, which makes bytes and length durable but no times; `sync_names` is fsync of
//! the directory.

use std::fs;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use rustix::fs::{Advice, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::bulk::Bulk;
use super::{Disk, File, Lock};

/// The longest name of a file, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// The file whose lock stands for the directory. It is empty, and not listed.
const LOCK_NAME: &str = "lock";

/// A directory of files.
pub struct DirDisk {
    path: PathBuf,
    dir: OwnedFd,
    lock: Mutex<Weak<OwnedFd>>,
}

impl DirDisk {
    /// The directory at `path`; it and its parents are created where they are missing.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_path_buf();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Self { path, dir, lock: Mutex::default() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open_at(&self, name: &str, create: bool) -> io::Result<OwnedFd> {
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if create {
            flags |= OFlags::CREATE;
        }
        Ok(rustix::fs::openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)?)
    }
}

/// Whether `name` may name a file; see the module's head.
fn check_name(name: &str) -> io::Result<()> {
    let good = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && name != LOCK_NAME
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if good { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

impl Disk for DirDisk {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        Ok(Arc::new(DirFile(self.open_at(name, create)?, Bulk::default())))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string()
                && check_name(&name).is_ok()
                && entry.file_type()?.is_file()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        Ok(rustix::fs::renameat(&self.dir, from, &self.dir, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn lock(&self) -> io::Result<Lock> {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = held.upgrade() {
            return Ok(Lock::holding(lock));
        }
        let file = self.open_at(LOCK_NAME, true)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(io::ErrorKind::ResourceBusy.into()),
            Err(error) => return Err(error.into()),
        }
        let lock = Arc::new(file);
        *held = Arc::downgrade(&lock);
        Ok(Lock::holding(lock))
    }
}

/// A file of a [`DirDisk`].
struct DirFile(OwnedFd, Bulk);

impl File for DirFile {
    fn len(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&self.0)?;
        u64::try_from(stat.st_size).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.1.read_at(&self.0, offset, into, false)
    }

    fn read_once_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.1.read_at(&self.0, offset, into, true)
    }

    fn read_once(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.1.read_once(&self.0, offset, len)
    }

    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.1.write_at(&self.0, offset, parts)
    }

    fn uncache(&self, range: Range<u64>) {
        if let Some(len) = NonZeroU64::new(range.end.saturating_sub(range.start)) {
            let _ = rustix::fs::fadvise(&self.0, range.start, Some(len), Advice::DontNeed);
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.0, len)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.0)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn disk() -> (tempfile::TempDir, DirDisk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let disk = DirDisk::open(folder.path().join("a/store")).expect("it opens");
        (folder, disk)
    }

    #[test]
    fn what_was_written_in_parts_is_read_back_as_one() {
        let (_folder, disk) = disk();
        let file = disk.open("x", true).expect("created");
        // More parts than the system takes in one call.
        let parts: Vec<[u8; 3]> = (0..3000u32).map(|i| [i as u8, (i >> 8) as u8, 7]).collect();
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        file.write_at(5, &slices).expect("written");
        file.sync().expect("synced");
        disk.sync_names().expect("synced");
        let mut back = vec![0; 9000];
        file.read_at(5, &mut back).expect("read");
        assert_eq!(back, parts.concat());
        assert_eq!(file.len().expect("length"), 9005);
        let end = file.read_at(9000, &mut [0; 6]).expect_err("past the end");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        file.truncate(5).expect("cut");
        assert_eq!(file.len().expect("length"), 5);
    }

    #[test]
    fn files_and_directory_are_their_owners_alone() {
        let (_folder, disk) = disk();
        disk.open("x", true).expect("created");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(disk.path()), 0o700);
        assert_eq!(mode(&disk.path().join("x")), 0o600);
    }

    #[test]
    fn a_name_cannot_lead_out_of_the_directory() {
        let (_folder, disk) = disk();
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["", ".", "..", ".x", "a/b", "../x", "/x", "a\0b", "ä", "lock", &long] {
            let error = disk.open(name, true).err().expect(name);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
            assert!(disk.remove(name).is_err(), "{name}");
            assert!(disk.rename(name, "y").is_err() && disk.rename("y", name).is_err(), "{name}");
        }
        std::os::unix::fs::symlink("/etc/hostname", disk.path().join("link")).expect("linked");
        assert!(disk.open("link", false).is_err(), "links are not followed");
        assert!(disk.list().expect("listed").is_empty());
    }

    #[test]
    fn names_are_listed_renamed_and_removed() {
        let (_folder, disk) = disk();
        assert_eq!(disk.open("a", false).err().expect("none").kind(), io::ErrorKind::NotFound);
        disk.open("a", true).expect("created");
        disk.open("b", true).expect("created");
        disk.rename("a", "b").expect("renamed");
        assert_eq!(disk.list().expect("listed"), ["b"]);
        disk.remove("b").expect("removed");
        disk.remove("b").expect("removing nothing is no error");
        assert!(disk.list().expect("listed").is_empty());
        assert!(disk.free_bytes().expect("free") > 0);
    }

    #[test]
    fn the_lock_excludes_others_until_it_is_dropped() {
        let (_folder, disk) = disk();
        let other = DirDisk::open(disk.path()).expect("it opens");
        let first = disk.lock().expect("locked");
        let second = disk.lock().expect("one opener may lock twice");
        assert_eq!(other.lock().err().expect("held").kind(), io::ErrorKind::ResourceBusy);
        drop(first);
        assert!(other.lock().is_err());
        drop(second);
        drop(other.lock().expect("free again"));
    }
}
