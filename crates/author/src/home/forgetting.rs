//! Contents that are being forgotten: behind whose last record there is nothing else that finds the key of one again.
//!
//! ```text
//! forgetting   rows of `crypto::keyring::paid`: an address, and in the place of a time one more than the counter of the key that
//!              opens it; 0 where that is no counter's
//! ```
//! A row is durable, and has its room in `forgotten`, before anything of the content is ended, and is gone when its key is forgotten.
//! So a home that cannot be written ends nothing, and who was stopped in between brings it to its end by forgetting it again. A row of
//! a content that is there all the same says nothing.
//!
//! The salt of a row is a keyed hash of what it says: no two rows that differ have one salt.
//!
//! Limits: [`BEGUN_MAX`] contents, beyond which the oldest is let go.
//!
//! All functions are called with the home's lock held.

use std::fs;
use std::io;
use std::path::Path;

use crypto::keyring::paid::{PAID_ROW_BYTES, PAID_SALT_BYTES};
use crypto::{Keyring, RecordId};

use super::{files, paid};
use crate::error::AuthorError;

const FORGETTING: &str = "forgetting";
/// Contents that are begun and not at their ends.
const BEGUN_MAX: usize = 1_024;
/// What a row ends with: a keyed hash of all before.
const CHECK_BYTES: usize = 8;

/// A content, and the counter of the key that opens it, where it is one's.
type Begun = (RecordId, Option<u64>);

/// Notes durably that a content is being forgotten, and sees to room for what is written at its end.
pub(super) fn begin(
    dir: &Path,
    keyring: &Keyring,
    address: &RecordId,
    counter: Option<u64>,
) -> Result<(), AuthorError> {
    let mut begun = read(dir, keyring)?;
    begun.retain(|(known, _)| known != address);
    begun.push((*address, counter));
    let begun = &begun[begun.len().saturating_sub(BEGUN_MAX)..];
    paid::reserve(dir, begun.len())?;
    write(dir, keyring, begun)
}

/// Whether a content is being forgotten, and the counter of the key that opened it.
pub(super) fn find(
    dir: &Path,
    keyring: &Keyring,
    address: &RecordId,
) -> Result<Option<Option<u64>>, AuthorError> {
    let begun = read(dir, keyring)?;
    Ok(begun.into_iter().find(|(known, _)| known == address).map(|(_, counter)| counter))
}

/// Notes that nothing is left to forget of a content.
pub(super) fn end(dir: &Path, keyring: &Keyring, address: &RecordId) -> Result<(), AuthorError> {
    let mut begun = read(dir, keyring)?;
    let before = begun.len();
    begun.retain(|(known, _)| known != address);
    if begun.len() < before { write(dir, keyring, &begun) } else { Ok(()) }
}

fn read(dir: &Path, keyring: &Keyring) -> Result<Vec<Begun>, AuthorError> {
    let path = dir.join(FORGETTING);
    let rows = match files::read(&path, BEGUN_MAX * PAID_ROW_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        rows => rows.map_err(files::failed("read", &path))?,
    };
    let rows = rows.chunks_exact(PAID_ROW_BYTES).filter_map(|row| keyring.read_paid_row(row).ok());
    Ok(rows.map(|(address, said)| (address, said.checked_sub(1))).collect())
}

fn write(dir: &Path, keyring: &Keyring, begun: &[Begun]) -> Result<(), AuthorError> {
    let path = dir.join(FORGETTING);
    let row = |(address, counter): &Begun| {
        let said = counter.map_or(0, |counter| counter.saturating_add(1));
        keyring.paid_row(&salt_of(keyring, address, said), address, said)
    };
    let written = match begun {
        [] => fs::remove_file(&path),
        begun => files::replace(&path, &begun.iter().flat_map(row).collect::<Vec<u8>>()),
    };
    written.map_err(files::failed("write", &path))
}

fn salt_of(keyring: &Keyring, address: &RecordId, said: u64) -> [u8; PAID_SALT_BYTES] {
    let mut salt = [0; PAID_SALT_BYTES];
    for (number, part) in (0..).zip(salt.chunks_exact_mut(CHECK_BYTES)) {
        let row = keyring.paid_row(&[number; PAID_SALT_BYTES], address, said);
        part.copy_from_slice(&row[PAID_ROW_BYTES - CHECK_BYTES..]);
    }
    salt
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_is_begun_is_found_until_its_end_and_the_oldest_are_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let keyring = Keyring::from_seed(&[7; 32]);
        let address = |n: usize| {
            let mut id = [7; 32];
            id[..8].copy_from_slice(&n.to_be_bytes());
            RecordId::new(id)
        };
        let found = |n| find(dir, &keyring, &address(n)).unwrap();
        assert_eq!(found(0), None);
        end(dir, &keyring, &address(0)).unwrap();
        begin(dir, &keyring, &address(0), Some(0)).unwrap();
        begin(dir, &keyring, &address(1), None).unwrap();
        for _ in 0..2 {
            begin(dir, &keyring, &address(2), Some(5)).unwrap();
        }
        assert_eq!([found(0), found(1), found(2)], [Some(Some(0)), Some(None), Some(Some(5))]);
        let rows = || fs::metadata(dir.join(FORGETTING)).unwrap().len() / PAID_ROW_BYTES as u64;
        assert_eq!(rows(), 3, "each once");
        let other = Keyring::from_seed(&[8; 32]);
        assert_eq!(find(dir, &other, &address(0)).unwrap(), None);
        end(dir, &keyring, &address(1)).unwrap();
        assert_eq!([found(0), found(1), found(2)], [Some(Some(0)), None, Some(Some(5))]);
        let all: Vec<Begun> = (0..BEGUN_MAX).map(|n| (address(n), Some(n as u64))).collect();
        write(dir, &keyring, &all).unwrap();
        begin(dir, &keyring, &address(BEGUN_MAX), Some(9)).unwrap();
        assert_eq!([found(0), found(1), found(BEGUN_MAX)], [None, Some(Some(1)), Some(Some(9))]);
        write(dir, &keyring, &all[..1]).unwrap();
        end(dir, &keyring, &address(0)).unwrap();
        assert!(!dir.join(FORGETTING).exists(), "none is left");
    }

    #[test]
    fn rows_that_differ_have_salts_of_their_own() {
        let keyring = Keyring::from_seed(&[7; 32]);
        let [one, other] = [1, 2].map(|n| RecordId::new([n; 32]));
        let salt = |address, said| salt_of(&keyring, address, said);
        assert_eq!(salt(&one, 3), salt(&one, 3));
        let [first, second] = [salt(&one, 3), salt(&one, 4)];
        assert!(first != second && first != salt(&other, 3));
        assert_ne!(first[..CHECK_BYTES], first[CHECK_BYTES..]);
    }
}
