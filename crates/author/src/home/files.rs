//! The files of a home: private, written whole, and locked.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::error::AuthorError;

const LOCK: &str = "lock";
/// How long another program may hold the lock; it holds it for one fsync.
const LOCK_WAIT: Duration = Duration::from_secs(10);
const LOCK_RETRY: Duration = Duration::from_millis(5);
/// What the name of a draft has between its file's and its program's.
const DRAFT: &str = ".new-";
/// Temporary names that are tried: those of programs that died may be taken.
const NAMES_MAX: u64 = 1_024;

/// Names what was being done when the operating system failed.
pub(super) fn failed(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> AuthorError + use<> {
    let path = path.to_owned();
    move |source| AuthorError::Io { action, path, source }
}

/// Makes a folder that only its owner enters. One that is there keeps its permissions.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Options for a file that only its owner reads.
pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// The bytes of a file of at most so many; one byte more where it has more.
pub(super) fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a new file whole and durably, or not at all; never over one that is there.
///
/// Where the file system can, by a rename that fails where the name is taken; else by a link, which does too (vfat has no links, and
/// some others no such rename).
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = (|| {
        let mut file = private().create_new(true).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        name_new(&new, path)
    })();
    // Renamed it is there no more.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => written.and(Err(error))?,
        _ => written?,
    }
    File::open(dir)?.sync_all()
}

fn name_new(new: &Path, path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, new, CWD, path, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => fs::hard_link(new, path),
        renamed => renamed.map_err(io::Error::from),
    }
}

/// Puts a file in the place of the one that is there, whole and durably, or leaves that as it is: also where the power goes.
///
/// Each call has a temporary name of its own, so that two at once do not write into each other's.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let dir = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..NAMES_MAX {
        let (number, process) = (NEXT.fetch_add(1, Ordering::Relaxed), std::process::id());
        let new = dir.join(format!(".{name}{DRAFT}{process}-{number}"));
        let mut file = match private().create_new(true).open(&new) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                last = error;
                continue;
            }
            opened => opened?,
        };
        let written = file
            .write_all(bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&new, path));
        if let Err(error) = written {
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        return File::open(dir)?.sync_all();
    }
    Err(last)
}

/// Removes drafts of [`replace`] from before then: one that is in use has its final name within moments.
pub(super) fn remove_drafts(dir: &Path, before: SystemTime) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let changed = entry.metadata().and_then(|about| about.modified());
        if is_draft(&name.to_string_lossy()) && changed.is_ok_and(|at| at < before) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a name is one that [`replace`] gives: nothing else in the folder is ours to remove.
fn is_draft(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.strip_prefix('.').and_then(|name| name.rsplit_once(DRAFT));
    parts
        .and_then(|(_, number)| number.split_once('-'))
        .is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// The lock of a home, held until dropped; it ends with the process that holds it, however that ends.
pub(crate) fn lock(dir: &Path) -> Result<File, AuthorError> {
    let path = dir.join(LOCK);
    let file = private().create(true).truncate(false).open(&path);
    locked(file.map_err(failed("open", &path))?, path, File::try_lock)
}

/// The lock of a home in which nothing will be written, also of one that cannot be: `None` where there is no file to lock
/// then. What is read without it is whole all the same: files are replaced as a whole, and rows are appended and checked
/// each by itself.
pub(super) fn lock_to_read(dir: &Path) -> Result<Option<File>, AuthorError> {
    match lock(dir) {
        Err(AuthorError::Io { path, source, .. }) if is_unwritable(&source) => {
            let file = File::open(&path).ok();
            file.map(|file| locked(file, path, File::try_lock_shared)).transpose()
        }
        held => held.map(Some),
    }
}

/// Whether there is no room on the disk, or none for this user.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the system lets nobody, or not this user, write there.
pub(super) fn is_unwritable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn locked(
    file: File,
    path: PathBuf,
    lock: impl Fn(&File) -> Result<(), TryLockError>,
) -> Result<File, AuthorError> {
    let tries = LOCK_WAIT.as_millis() / LOCK_RETRY.as_millis();
    for _ in 0..tries {
        match lock(&file) {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_RETRY),
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
        }
    }
    Err(AuthorError::Locked(path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn drafts_of_long_ago_are_removed_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(1_000_000);
        for name in ["paid", ".hidden", "a.new-1-2", ".paid.new-1-2", ".paid.new-1-3"] {
            fs::write(folder.path().join(name), b"text").unwrap();
            let file = File::options().write(true).open(folder.path().join(name)).unwrap();
            if name != ".paid.new-1-3" {
                file.set_modified(long_ago).unwrap();
            }
        }
        remove_drafts(folder.path(), long_ago + Duration::from_secs(1));
        let left = |name: &str| folder.path().join(name).exists();
        assert!(!left(".paid.new-1-2"));
        assert!(["paid", ".hidden", "a.new-1-2", ".paid.new-1-3"].into_iter().all(left));
    }

    #[test]
    fn many_that_replace_a_file_at_once_leave_one_of_theirs_whole_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let text = |one: usize| vec![b'a' + one as u8; 40_000 + one];
        thread::scope(|scope| {
            for one in 0..8 {
                let (path, bytes) = (&path, text(one));
                scope.spawn(move || (0..4).for_each(|_| replace(path, &bytes).unwrap()));
            }
        });
        let found = fs::read(&path).unwrap();
        assert!((0..8).any(|one| found == text(one)), "{} bytes", found.len());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // A folder in the way: what was there stays, and no draft is left.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        replace(&taken, b"text").unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
