//! Files that are written once: keys that only their owner may read, and public files beside them.
//!
//! A new file is written whole under a temporary name, synced and then given its final name, so
//! a crash leaves no half file and an existing one is never replaced by accident.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crypto::SecretKey;
use zeroize::Zeroizing;

use crate::error::HoldError;

/// Small files (keys, certificates, configuration) are at most this long, in bytes.
pub(crate) const SMALL_BYTES_MAX: u64 = 1 << 20;
/// Temporary names that are tried: those of processes that were killed may be taken.
const NAMES_MAX: u64 = 1_024;

/// Who may read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Its owner alone (0600).
    Secret,
    /// Everybody (0644).
    Public,
}

impl Access {
    const fn mode(self) -> u32 {
        match self {
            Self::Secret => 0o600,
            Self::Public => 0o644,
        }
    }
}

/// Makes a folder that only its owner enters, and its parents, where they are not there.
pub(crate) fn make_private_folder(path: &Path) -> Result<(), HoldError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(HoldError::io("create", path))
}

/// Waits until nobody else has this lock; it ends with the file that is returned.
///
/// # Errors
/// Where there can be no such file.
pub(crate) fn lock(path: &Path) -> Result<fs::File, HoldError> {
    let mut options = fs::OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(path);
    let file = file.map_err(HoldError::io("open", path))?;
    file.lock().map_err(HoldError::io("lock", path))?;
    Ok(file)
}

/// Writes a new file; one that is there is an error and stays as it is.
pub(crate) fn write_new(path: &Path, bytes: &[u8], access: Access) -> Result<(), HoldError> {
    let draft = write_draft(path, bytes, access)?;
    name_new(&draft, path).inspect_err(|_| drop(fs::remove_file(&draft)))?;
    sync_folder(path)
}

/// Gives a file its final name, which must be free. Its temporary name is gone then, and still there where this fails.
///
/// # Errors
/// [`HoldError::Exists`]; [`HoldError::Io`].
pub(crate) fn name_new(draft: &Path, path: &Path) -> Result<(), HoldError> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    let renamed = match renameat_with(CWD, draft, CWD, path, RenameFlags::NOREPLACE) {
        // The file system cannot: a second name is never one that is there, either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            // The content is whole under its final name, whatever becomes of the other.
            fs::hard_link(draft, path).map(|()| drop(fs::remove_file(draft)))
        }
        renamed => renamed.map_err(io::Error::from),
    };
    renamed.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => HoldError::Exists(path.to_owned()),
        _ => HoldError::io("write", path)(source),
    })
}

/// Writes a file over the one that is there, all or nothing; through a link, over the one that it leads to. What a user names goes
/// through a [`Draft`](crate::draft::Draft), which writes to devices and pipes as well.
///
/// # Errors
/// [`HoldError::NotA`] where something else is there, which stays; [`HoldError::Io`].
pub(crate) fn replace(path: &Path, bytes: &[u8], access: Access) -> Result<(), HoldError> {
    let path = &behind_links(path);
    if path.symlink_metadata().is_ok_and(|there| !there.is_file() && !there.is_symlink()) {
        return Err(HoldError::NotA { what: "a regular file", path: path.clone() });
    }
    let draft = write_draft(path, bytes, access)?;
    fs::rename(&draft, path).map_err(|source| {
        let _ = fs::remove_file(&draft);
        HoldError::io("write", path)(source)
    })?;
    sync_folder(path)
}

/// Whether anything is there, a link that leads nowhere too.
///
/// # Errors
/// Where nothing can be there: a name that is too long, a folder above that is none.
pub(crate) fn is_there(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where the file is that a path leads to. A link that leads nowhere is replaced itself.
pub(crate) fn behind_links(path: &Path) -> PathBuf {
    match path.is_symlink() {
        true => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
        false => path.to_owned(),
    }
}

fn write_draft(path: &Path, bytes: &[u8], access: Access) -> Result<PathBuf, HoldError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(access.mode());
    let made = make_beside(path, |draft| options.open(draft));
    let (draft, mut file) = made.map_err(HoldError::io("write", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|source| {
        let _ = fs::remove_file(&draft);
        HoldError::io("write", path)(source)
    })?;
    Ok(draft)
}

/// Makes something new under a temporary name in the same folder: `make` fails where the name is taken, as by a process
/// of this number that was killed, or that runs in another container; then others are tried. Names are short, as the final
/// one may be the longest that the file system takes.
///
/// # Errors
/// What `make` says; nothing of this call is left then.
pub(crate) fn make_beside<T>(
    path: &Path,
    mut make: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..NAMES_MAX {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let draft = path.with_file_name(format!(".hold.{}-{number}.part", std::process::id()));
        match make(&draft) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            made => return made.map(|made| (draft, made)),
        }
    }
    Err(last)
}

/// Makes the names in the folder of `path` durable.
///
/// # Errors
/// [`HoldError::Io`].
pub(crate) fn sync_folder(path: &Path) -> Result<(), HoldError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(HoldError::io("sync", folder))
}

/// Reads a small file whole.
pub(crate) fn read_small(path: &Path) -> Result<Zeroizing<Vec<u8>>, HoldError> {
    read_bounded(path, SMALL_BYTES_MAX, "a file of at most 1 MiB")
}

/// Reads a file of at most `max` bytes whole; a longer one is not `what` it should be.
pub(crate) fn read_bounded(
    path: &Path,
    max: u64,
    what: &'static str,
) -> Result<Zeroizing<Vec<u8>>, HoldError> {
    let file = File::open(path).map_err(HoldError::io("read", path))?;
    read_open(file, path, max, what)
}

fn read_open(
    file: File,
    path: &Path,
    max: u64,
    what: &'static str,
) -> Result<Zeroizing<Vec<u8>>, HoldError> {
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(max + 1).read_to_end(&mut bytes).map_err(HoldError::io("read", path))?;
    if bytes.len() as u64 > max {
        return Err(HoldError::NotA { what, path: path.to_owned() });
    }
    Ok(bytes)
}

/// As [`read_small`], of a regular file alone: a pipe that somebody put there would be waited for without an end.
///
/// # Errors
/// [`HoldError::NotA`] of anything else; [`HoldError::Io`].
pub(crate) fn read_regular(path: &Path) -> Result<Zeroizing<Vec<u8>>, HoldError> {
    use rustix::fs::{Mode, OFlags, open};
    let opened = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    let file = opened.map(File::from).map_err(|error| HoldError::io("read", path)(error.into()))?;
    let found = file.metadata().map_err(HoldError::io("read", path))?;
    if !found.is_file() {
        return Err(HoldError::NotA { what: "a regular file", path: path.to_owned() });
    }
    read_open(file, path, SMALL_BYTES_MAX, "a file of at most 1 MiB")
}

/// Reads a small file that `what` must be in; `hint` says which command makes it.
pub(crate) fn read_needed(
    path: &Path,
    what: &'static str,
    hint: &'static str,
) -> Result<Zeroizing<Vec<u8>>, HoldError> {
    match read_small(path) {
        Err(HoldError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Err(HoldError::Missing { what, path: path.to_owned(), hint })
        }
        read => read,
    }
}

fn no_key(path: &Path) -> HoldError {
    HoldError::NotA { what: "a private key (64 hex digits)", path: path.to_owned() }
}

/// Reads the 32 bytes of a private key that a file holds in hex; `what` must be in it, and `hint` says which command makes it.
pub(crate) fn read_key(
    path: &Path,
    what: &'static str,
    hint: &'static str,
) -> Result<Zeroizing<[u8; 32]>, HoldError> {
    let text = read_needed(path, what, hint)?;
    let mut bytes = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text.trim_ascii(), &mut *bytes).map_err(|_| no_key(path))?;
    Ok(bytes)
}

/// Writes the bytes of a private key in hex to a new file that only its owner reads.
pub(crate) fn write_key(path: &Path, bytes: &[u8; 32]) -> Result<(), HoldError> {
    let mut text = Zeroizing::new(hex::encode(bytes));
    text.push('\n');
    write_new(path, text.as_bytes(), Access::Secret)
}

/// Reads a file that holds a private key in hex.
pub(crate) fn read_secret_key(path: &Path, hint: &'static str) -> Result<SecretKey, HoldError> {
    let bytes = read_key(path, "a private key", hint)?;
    SecretKey::from_bytes(&bytes).map_err(|_| no_key(path))
}

/// Writes a private key in hex to a new file that only its owner reads.
pub(crate) fn write_secret_key(path: &Path, key: &SecretKey) -> Result<(), HoldError> {
    write_key(path, &key.to_bytes())
}

/// A fresh private key from the system's randomness.
pub(crate) fn fresh_key() -> SecretKey {
    use env::Entropy;
    let mut bytes = Zeroizing::new([0; 32]);
    loop {
        env::SystemEntropy.fill(&mut *bytes);
        // Fails about once in 2^128 tries.
        if let Ok(key) = SecretKey::from_bytes(&bytes) {
            return key;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_file_has_its_mode_and_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = fresh_key();
        write_secret_key(&path, &key).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read_secret_key(&path, "").unwrap().public(), key.public());
        assert!(matches!(write_secret_key(&path, &fresh_key()), Err(HoldError::Exists(_))));
        assert_eq!(read_secret_key(&path, "").unwrap().public(), key.public());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn names_that_a_killed_process_left_are_passed_over_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        // Other tests of this process take numbers as well.
        let number = |draft: &Path| -> u64 {
            let name = draft.file_name().unwrap().to_str().unwrap();
            name.rsplit_once('-').unwrap().1.trim_end_matches(".part").parse().unwrap()
        };
        let (first, _) = make_beside(&path, |draft| fs::write(draft, b"left")).unwrap();
        let left: Vec<PathBuf> = (0..NAMES_MAX / 2)
            .map(|ahead| {
                let next = number(&first) + ahead;
                path.with_file_name(format!(".hold.{}-{next}.part", std::process::id()))
            })
            .collect();
        left.iter().for_each(|draft| fs::write(draft, b"left").unwrap());
        write_new(&path, b"new", Access::Secret).unwrap();
        replace(&path, b"newer", Access::Secret).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert!(left.iter().all(|draft| fs::read(draft).unwrap() == b"left"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), left.len() + 1);
        let taken = |_: &Path| Err::<(), _>(io::Error::from(io::ErrorKind::AlreadyExists));
        let error = make_beside(&path, taken).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "it ends");
    }

    #[test]
    fn what_is_replaced_is_a_file_also_behind_a_link_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, pipe, below] =
            ["file", "link", "pipe", "below"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("file", &link).unwrap();
        // It leads nowhere yet, and takes the place of itself.
        replace(&link, b"1", Access::Public).unwrap();
        assert!(!link.is_symlink() && !file.exists());
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        fs::write(&file, b"2").unwrap();
        replace(&link, b"3", Access::Public).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"3");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        fs::create_dir(&below).unwrap();
        for other in [&pipe, &below] {
            let refused = replace(other, b"4", Access::Public);
            assert!(matches!(refused, Err(HoldError::NotA { .. })), "{refused:?}");
            assert!(!other.is_file());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "no draft is left");
    }

    #[test]
    fn a_file_that_holds_no_key_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let missing = read_secret_key(&path, "make one");
        assert!(matches!(missing, Err(HoldError::Missing { hint: "make one", .. })));
        for text in ["", "zz", &"00".repeat(32), &"ab".repeat(33)] {
            fs::write(&path, text).unwrap();
            assert!(matches!(read_secret_key(&path, ""), Err(HoldError::NotA { .. })), "{text}");
        }
    }
}
