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

/// Writes a new file; one that is there is an error and stays as it is.
pub(crate) fn write_new(path: &Path, bytes: &[u8], access: Access) -> Result<(), HoldError> {
    let draft = write_draft(path, bytes, access)?;
    let named = name_new(&draft, path);
    // After it there is nothing to remove.
    let _ = fs::remove_file(&draft);
    named?;
    sync_folder(path)
}

/// Gives a file its final name, which must be free. Its temporary name may be there afterwards.
///
/// # Errors
/// [`HoldError::Exists`]; [`HoldError::Io`].
pub(crate) fn name_new(draft: &Path, path: &Path) -> Result<(), HoldError> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    let renamed = match renameat_with(CWD, draft, CWD, path, RenameFlags::NOREPLACE) {
        // The file system cannot: a second name is never one that is there, either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => fs::hard_link(draft, path),
        renamed => renamed.map_err(io::Error::from),
    };
    renamed.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => HoldError::Exists(path.to_owned()),
        _ => HoldError::io("write", path)(source),
    })
}

/// Writes a file over what is there, all or nothing.
pub(crate) fn replace(path: &Path, bytes: &[u8], access: Access) -> Result<(), HoldError> {
    let draft = write_draft(path, bytes, access)?;
    fs::rename(&draft, path).map_err(|source| {
        let _ = fs::remove_file(&draft);
        HoldError::io("write", path)(source)
    })?;
    sync_folder(path)
}

fn write_draft(path: &Path, bytes: &[u8], access: Access) -> Result<PathBuf, HoldError> {
    let draft = beside(path);
    let written = (|| {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(access.mode()).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()
    })();
    written.map_err(|source| {
        let _ = fs::remove_file(&draft);
        HoldError::io("write", path)(source)
    })?;
    Ok(draft)
}

/// A temporary name in the same folder, different for each process and call. It is short, as the name may be the longest that
/// the file system takes.
pub(crate) fn beside(path: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".hold.{}-{number}.part", std::process::id()))
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
    let mut bytes = Zeroizing::new(Vec::new());
    let read = File::open(path).and_then(|file| file.take(max + 1).read_to_end(&mut bytes));
    read.map_err(HoldError::io("read", path))?;
    if bytes.len() as u64 > max {
        return Err(HoldError::NotA { what, path: path.to_owned() });
    }
    Ok(bytes)
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
