//! The folder of journals: one put at a time has a journal, and those nobody comes back for are removed.
//!
//! The lock is a file of its own beside the journal, since a journal is replaced as a whole. Whoever removes a journal
//! removes the lock's file too, while it holds it; so whoever locks a file looks whether it still has its name.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crypto::{Eek, Keyring};
use env::disk::{DirDisk, Disk};

use super::book::Book;

/// Journals that are kept, at most.
pub const JOURNALS_MAX: usize = 64;
/// How long a journal is kept after its last row.
pub const JOURNAL_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
const LOCK: &str = ".lock";
/// How often a lock is tried whose file another program removes meanwhile.
const TRIES: usize = 8;

/// The folder.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    dir: PathBuf,
}

/// A journal's name, locked by this put until it is dropped; the lock ends with the process, however that ends.
pub(crate) struct Held {
    pub(crate) disk: DirDisk,
    pub(crate) name: String,
    lock: PathBuf,
    _file: File,
}

impl Folder {
    pub(crate) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Takes the journal of this name; `None` where another put has it. The folder is made where it is missing.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn take(&self, name: &str) -> io::Result<Option<Held>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let lock = self.dir.join(format!("{name}{LOCK}"));
        for _ in 0..TRIES {
            let mut options = File::options();
            let file = options.write(true).create(true).truncate(false).mode(0o600).open(&lock)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if named(&file, &lock)? {
                let disk = DirDisk::open(&self.dir)?;
                return Ok(Some(Held { disk, name: name.to_owned(), lock, _file: file }));
            }
        }
        Ok(None)
    }

    /// Removes journals that are too old. Those in use stay.
    pub(crate) fn remove_old(&self, now: SystemTime) {
        let journals = self.journals().into_iter();
        journals.filter(|(changed, _)| is_old(now, *changed)).for_each(|old| self.remove(old));
    }

    /// Removes journals that are too old, and the oldest of too many, so that the one that is about to be used is within the
    /// bound. That one, where it is not too old, and those in use stay.
    pub(crate) fn prune(&self, now: SystemTime, own: &str) {
        self.remove_old(now);
        let mut journals = self.journals();
        journals.retain(|(_, name)| name != own);
        journals.sort_unstable();
        let surplus = (journals.len() + 1).saturating_sub(JOURNALS_MAX);
        journals.into_iter().take(surplus).for_each(|one| self.remove(one));
    }

    /// Removes the journals of a content: what they say was stored is about to be dropped. One that a put has stays, and one that
    /// cannot be read, which nobody goes on with.
    ///
    /// # Errors
    /// The system's, where one of it cannot be removed.
    pub(crate) fn remove_of(&self, keyring: &Keyring, eek: &Eek) -> io::Result<()> {
        for (_, name) in self.journals() {
            let Ok(Some(held)) = self.take(&name) else { continue };
            match Book::header(&held.disk, &name, keyring) {
                Ok(Some(header)) if header.is_of(eek) => held.remove()?,
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, name, "a put's journal cannot be read"),
            }
        }
        Ok(())
    }

    /// Removes a journal, unless a put has it, or had it since it was looked at.
    fn remove(&self, journal: (SystemTime, String)) {
        if let Ok(Some(held)) = self.take(&journal.1)
            && self.journals().contains(&journal)
        {
            let _ = held.remove();
        }
    }

    /// All journals and locks left behind: when each was changed last, and its name.
    fn journals(&self) -> Vec<(SystemTime, String)> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let mut journals = std::collections::BTreeMap::new();
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(changed) = entry.metadata().and_then(|about| about.modified()) else { continue };
            let name = name.split_once('.').map_or(name.as_str(), |(name, _)| name).to_owned();
            let latest = journals.entry(name).or_insert(changed);
            *latest = changed.max(*latest);
        }
        journals.into_iter().map(|(name, changed)| (changed, name)).collect()
    }
}

impl Held {
    /// Removes the journal, durably, and its lock's file.
    ///
    /// # Errors
    /// The system's; the journal may be there still.
    pub(crate) fn remove(&self) -> io::Result<()> {
        Book::remove(&self.disk as &dyn Disk, &self.name)?;
        fs::remove_file(&self.lock)
    }
}

/// Whether a file still has this name.
fn named(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
fn is_old(now: SystemTime, changed: SystemTime) -> bool {
    now.duration_since(changed).is_ok_and(|age| age > JOURNAL_AGE_MAX)
}
