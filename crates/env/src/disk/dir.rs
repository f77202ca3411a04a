//! A directory of the file system as a [`Disk`].
//!
//! Files are opened by name below one directory handle, so that the directory may be renamed
//! meanwhile and a name can never lead out of it: names are letters, digits, `.`, `-` and `_`, do
//! not begin with a dot, and symbolic links are not followed. Files are readable by their owner
//! alone (0600, the directory 0700).
//!
//! `sync` is fdatasync, which makes bytes and length durable but no times; `sync_names` is fsync of
//! the directory. While the directory is locked, what is written "soon" goes through blocks that survive the
//! process (`behind`); the first lock writes what an opener before left there.

use std::fs;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use rustix::fs::{Advice, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::behind::{self, Tailed};
use super::bulk::BULK_BYTES_MIN;
use super::room::ALIGNMENT;
use super::{Disk, File, Lock};

/// The longest name of a file, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// The file whose lock stands for the directory. It is empty, and not listed.
const LOCK_NAME: &str = "lock";

/// Files that are tried where nothing of one can be read. A disk may take half a minute to say that it cannot.
const OTHERS_MAX: usize = 4;

/// A directory of files.
pub struct DirDisk {
    path: PathBuf,
    shared: Arc<Shared>,
}

/// What the directory's files need of it.
struct Shared {
    dir: OwnedFd,
    lock: Mutex<Weak<Held>>,
    /// `None` where there can be none.
    behind: OnceLock<Option<behind::Owned>>,
    /// The lock was let go, and the blocks with it: writes are ordinary ones from then on.
    ended: AtomicBool,
    /// The files that are open: whoever opens one again gets the same, which knows what of it is in blocks.
    tailed: Mutex<Vec<Weak<Tailed>>>,
}

/// The lock.
struct Held {
    _file: OwnedFd,
    shared: Arc<Shared>,
}

impl Drop for Held {
    /// Whoever has the folder next finds all in its files, and no blocks.
    fn drop(&mut self) {
        if let Some(Some(behind)) = self.shared.behind.get()
            && !self.shared.ended.load(Ordering::Acquire)
            && behind.end(&self.shared.dir)
        {
            self.shared.ended.store(true, Ordering::Release);
        }
    }
}

impl Shared {
    fn tailed(&self) -> MutexGuard<'_, Vec<Weak<Tailed>>> {
        self.tailed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The blocks, made for the first who needs them.
    fn behind(&self) -> Option<&behind::Owned> {
        if self.ended.load(Ordering::Acquire) {
            return None;
        }
        if self.behind.get().is_none() {
            // Whoever has no lock does not know what others do with them.
            self.lock.lock().unwrap_or_else(PoisonError::into_inner).upgrade()?;
        }
        self.behind.get_or_init(|| behind::Owned::new(&self.dir)).as_ref()
    }

    /// The file of this name: the one that is open, unless somebody else removed it.
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<Tailed>> {
        let mut all = self.tailed();
        all.retain(|other| other.strong_count() > 0);
        let found = all.iter().filter_map(Weak::upgrade).find(|tailed| tailed.name == name);
        if let Some(tailed) = found
            && !self.is_removed(&tailed)?
        {
            return Ok(tailed);
        }
        let tailed = Arc::new(Tailed::new(name, self.open_at(name, create)?));
        all.push(Arc::downgrade(&tailed));
        Ok(tailed)
    }

    /// Whether somebody removed the file, or renamed it.
    fn is_removed(&self, tailed: &Tailed) -> io::Result<bool> {
        if rustix::fs::fstat(&tailed.file)?.st_nlink == 0 {
            return Ok(true);
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::statat(&self.dir, tailed.name.as_str(), flags) {
            Err(Errno::NOENT) => Ok(true),
            found => Ok(found.map(|_| false)?),
        }
    }

    /// What there is and cannot be written, as on a file system that an error made read-only, is opened to be read.
    fn open_at(&self, name: &str, create: bool) -> io::Result<OwnedFd> {
        let (flags, mode) = (OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::RUSR | Mode::WUSR);
        let written = if create { OFlags::RDWR | OFlags::CREATE } else { OFlags::RDWR };
        let opened = rustix::fs::openat(&self.dir, name, flags | written, mode);
        Ok(match opened {
            Err(Errno::ROFS | Errno::ACCESS) if !create => {
                rustix::fs::openat(&self.dir, name, flags | OFlags::RDONLY, mode)?
            }
            opened => opened?,
        })
    }

    /// Whether the disk reads the first byte of some file but this one, of [`OTHERS_MAX`] at most.
    fn others_answer(&self, name: &str) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut tried = 0;
        for entry in rustix::fs::Dir::read_from(&self.dir)? {
            let entry = entry?;
            let Ok(other) = entry.file_name().to_str() else { continue };
            if other == name || check_name(other).is_err() {
                continue;
            }
            let Ok(file) = rustix::fs::openat(&self.dir, other, flags, Mode::empty()) else {
                continue;
            };
            let found = rustix::fs::fstat(&file)?;
            if !FileType::from_raw_mode(found.st_mode).is_file() || found.st_size == 0 {
                continue;
            }
            // The system's cache says nothing of the disk.
            let sector = NonZeroU64::new(ALIGNMENT as u64);
            let _ = rustix::fs::fadvise(&file, 0, sector, Advice::DontNeed);
            if rustix::io::pread(&file, &mut [0; 1], 0).is_ok_and(|read| read > 0) {
                return Ok(true);
            }
            tried += 1;
            if tried == OTHERS_MAX {
                break;
            }
        }
        Ok(false)
    }

    /// What is behind of a file is written, and its name may become another's.
    fn settle(&self, name: &str) -> io::Result<()> {
        let all = self.tailed().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        let mut done = Ok(());
        for tailed in all.iter().filter(|tailed| tailed.name == name) {
            if let Some(Some(behind)) = self.behind.get() {
                done = done.and(tailed.flush(behind));
            }
            self.tailed().retain(|other| other.as_ptr() != Arc::as_ptr(tailed));
        }
        done
    }
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
        let (behind, tailed) = (OnceLock::new(), Mutex::default());
        let (lock, ended) = (Mutex::default(), AtomicBool::new(false));
        let shared = Shared { dir, lock, behind, ended, tailed };
        Ok(Self { path, shared: Arc::new(shared) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there may be bytes that a process wrote soon and that are not in their files: its own, or, where nobody has the
    /// lock, of one that was killed, which taking the lock writes.
    pub fn is_behind(&self) -> bool {
        self.path.join(behind::FILE_NAME).exists()
    }

    /// What is behind is written no more, as in a process that died.
    #[cfg(test)]
    pub(super) fn die(&self) {
        if let Some(Some(behind)) = self.shared.behind.get() {
            behind.die();
        }
    }

    /// The system takes the lock from a process that died, which does nothing more.
    #[cfg(test)]
    pub(super) fn release(&self, lock: Lock) {
        self.shared.ended.store(true, Ordering::Release);
        drop(lock);
    }
}

/// Whether `name` may name a file; see the module's head.
pub(super) fn check_name(name: &str) -> io::Result<()> {
    let good = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && ![LOCK_NAME, behind::FILE_NAME].contains(&name)
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if good { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

impl Disk for DirDisk {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        let shared = self.shared.clone();
        Ok(Arc::new(DirFile { tailed: shared.open(name, create)?, shared }))
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
        self.shared.settle(from)?;
        self.shared.settle(to)?;
        Ok(rustix::fs::renameat(&self.shared.dir, from, &self.shared.dir, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        // What cannot be written is not needed either.
        let _ = self.shared.settle(name);
        match rustix::fs::unlinkat(&self.shared.dir, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.shared.dir)?)
    }

    fn wipe(&self) -> io::Result<()> {
        match self.shared.behind.get() {
            Some(Some(behind)) if !self.shared.ended.load(Ordering::Acquire) => behind.wipe(),
            _ => Ok(()),
        }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.shared.dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn lock(&self) -> io::Result<Lock> {
        let mut held = self.shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = held.upgrade() {
            return Ok(Lock::holding(lock));
        }
        let file = self.shared.open_at(LOCK_NAME, true)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(io::ErrorKind::ResourceBusy.into()),
            Err(error) => return Err(error.into()),
        }
        if self.shared.behind.get().is_none() || self.shared.ended.load(Ordering::Acquire) {
            behind::replay(&self.shared.dir)?;
        }
        let lock = Arc::new(Held { _file: file, shared: self.shared.clone() });
        *held = Arc::downgrade(&lock);
        Ok(Lock::holding(lock))
    }
}

/// A file of a [`DirDisk`].
struct DirFile {
    tailed: Arc<Tailed>,
    shared: Arc<Shared>,
}

impl DirFile {
    /// Puts what is behind into the file.
    fn settle(&self) -> io::Result<()> {
        match self.shared.behind.get() {
            Some(Some(behind)) => self.tailed.flush(behind),
            _ => Ok(()),
        }
    }
}

impl Drop for DirFile {
    fn drop(&mut self) {
        if let Some(Some(behind)) = self.shared.behind.get() {
            self.tailed.begin_flush(behind);
        }
    }
}

impl File for DirFile {
    fn len(&self) -> io::Result<u64> {
        // In this order: what is not behind any more is in the file.
        let behind = self.tailed.end();
        let stat = rustix::fs::fstat(&self.tailed.file)?;
        let len = u64::try_from(stat.st_size).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(len.max(behind))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.tailed.read_at(offset, into, false)
    }

    fn read_once_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.tailed.read_at(offset, into, true)
    }

    fn read_once(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        if self.tailed.is_behind(offset, len) {
            let mut bytes = vec![0; len];
            self.tailed.read_at(offset, &mut bytes, true)?;
            return Ok(bytes.into());
        }
        self.tailed.bulk.read_once(&self.tailed.file, offset, len)
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        self.tailed.read_now(offset, into)
    }

    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.settle()?;
        self.tailed.bulk.write_at(&self.tailed.file, offset, parts)
    }

    fn memory_alignment(&self) -> Option<usize> {
        self.tailed.bulk.memory_alignment(&self.tailed.file)
    }

    fn write_soon(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let large = parts.iter().any(|part| part.len() >= BULK_BYTES_MIN);
        let Some(behind) = self.shared.behind().filter(|_| !large) else {
            return self.write_at(offset, parts);
        };
        let tailed = &self.tailed;
        if tailed.end() != offset && self.len()? > offset {
            // Blocks are for what is added: whoever finds them writes nothing over what a file has.
            return self.write_at(offset, parts);
        }
        tailed.write_soon(behind, offset, parts)
    }

    fn flush(&self) -> io::Result<()> {
        self.settle()
    }

    fn uncache(&self, range: Range<u64>) {
        if let Some(len) = NonZeroU64::new(range.end.saturating_sub(range.start)) {
            let _ =
                rustix::fs::fadvise(&self.tailed.file, range.start, Some(len), Advice::DontNeed);
        }
    }

    fn others_answer(&self) -> bool {
        self.shared.others_answer(&self.tailed.name).unwrap_or(false)
    }

    fn is_removed(&self) -> io::Result<bool> {
        self.shared.is_removed(&self.tailed)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.settle()?;
        self.tailed.was_cut(len);
        Ok(rustix::fs::ftruncate(&self.tailed.file, len)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.settle()?;
        Ok(rustix::fs::fdatasync(&self.tailed.file)?)
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
    fn a_file_that_somebody_else_removed_or_renamed_is_known_and_not_opened_again() {
        let (_folder, disk) = disk();
        let path = |name: &str| disk.path().join(name);
        let [removed, renamed, stays] = ["a", "b", "c"].map(|name| {
            let file = disk.open(name, true).expect("created");
            file.write_at(0, &[IoSlice::new(b"x")]).expect("written");
            file
        });
        fs::remove_file(path("a")).expect("removed");
        fs::rename(path("b"), path("d")).expect("renamed");
        let is_removed = |file: &Arc<dyn File>| file.is_removed().expect("looked");
        assert!(is_removed(&removed) && is_removed(&renamed) && !is_removed(&stays));
        for name in ["a", "b"] {
            assert_eq!(disk.open(name, false).err().expect(name).kind(), io::ErrorKind::NotFound);
        }
        assert!(disk.open("c", false).is_ok());
    }

    #[test]
    fn other_files_answer_where_there_are_some_with_a_byte() {
        let (_folder, disk) = disk();
        let file = disk.open("a", true).expect("created");
        file.write_at(0, &[IoSlice::new(b"x")]).expect("written");
        let lock = disk.lock().expect("locked");
        let empty = disk.open("b", true).expect("created");
        fs::create_dir(disk.path().join("c")).expect("made");
        assert!(!file.others_answer(), "neither a lock, nor a folder, nor what is empty");
        assert!(empty.others_answer());
        empty.write_at(0, &[IoSlice::new(b"y")]).expect("written");
        assert!(file.others_answer());
        drop(lock);
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
