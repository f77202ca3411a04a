//! Which contents are paid for, and which counters were forgotten.
//!
//! ```text
//! paid        rows of `crypto::keyring::paid`: an address and until when; the last row of an address counts, 0 is *not any more*
//! forgotten   rows of `crypto::keyring::issued`: counters whose keys open nothing any more
//! ```
//! Both are appended to. `paid` is a help to renew all at once and is not synced: after a power cut a content may be missing
//! in it, which can be renewed by its address. `forgotten` is synced before the counter's row is taken out of `issued`.
//!
//! All functions are called with the home's lock held.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crypto::keyring::issued::ROW_BYTES;
use crypto::keyring::paid::{PAID_ROW_BYTES, PAID_SALT_BYTES};
use crypto::{Keyring, Purpose, ReaderKey, RecordId};

use super::files;
use crate::error::AuthorError;

const PAID: &str = "paid";
const FORGOTTEN: &str = "forgotten";
/// Contents that are paid for, and forgotten counters, that are read: a million contents are 64 MB.
const ROWS_MAX: usize = 4 << 20;
/// Rows of `paid` that count no more and may stay, besides as many as count.
const ROWS_SPARE: usize = 4 << 10;
/// Bytes of `paid` that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Notes until when a content is paid for, Unix seconds; 0 where it is not any more.
pub(super) fn note(
    dir: &Path,
    keyring: &Keyring,
    salt: &[u8; PAID_SALT_BYTES],
    address: &RecordId,
    until: u64,
) -> Result<(), AuthorError> {
    append(&dir.join(PAID), &keyring.paid_row(salt, address, until), false)
}

/// Every content that is paid for, and until when, Unix seconds. Where more rows count no more than do, only those stay that do.
pub(super) fn all(dir: &Path, keyring: &Keyring) -> Result<BTreeMap<RecordId, u64>, AuthorError> {
    all_within(dir, keyring, ROWS_MAX)
}

/// Of so many contents: each may have any number of rows, as it has that was renewed often.
fn all_within(
    dir: &Path,
    keyring: &Keyring,
    max: usize,
) -> Result<BTreeMap<RecordId, u64>, AuthorError> {
    let path = dir.join(PAID);
    let failed = || files::failed("read", &path);
    let file = match fs::File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        opened => opened.map_err(failed())?,
    };
    let mut rows = io::BufReader::with_capacity(BUFFER_BYTES, file);
    let (mut paid, mut met, mut row) = (BTreeMap::new(), 0, [0; PAID_ROW_BYTES]);
    loop {
        match rows.read_exact(&mut row) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            read => read.map_err(failed())?,
        }
        met += 1;
        // One that does not check is lost: its content can be renewed by its address.
        match keyring.read_paid_row(&row) {
            Ok((address, 0)) => drop(paid.remove(&address)),
            Ok((address, until)) => drop(paid.insert(address, (until, row))),
            Err(_) => {}
        }
        if paid.len() > 2 * max {
            break;
        }
    }
    if paid.len() > max {
        // Not the oldest of them alone, as if there were no others.
        return Err(failed()(io::ErrorKind::FileTooLarge.into()));
    }
    if met > 2 * paid.len() + ROWS_SPARE {
        let stay: Vec<u8> = paid.values().flat_map(|(_, row)| *row).collect();
        // What it would save is saved the next time.
        if let Err(error) = files::replace(&path, &stay) {
            tracing::warn!(%error, path = %path.display(), "rows that count no more stay");
        }
    }
    Ok(paid.into_iter().map(|(address, (until, _))| (address, until)).collect())
}

/// Notes durably that the keys of a counter open nothing any more.
pub(super) fn forget(dir: &Path, keyring: &Keyring, counter: u64) -> Result<(), AuthorError> {
    let key = keyring.own_reader(counter).public();
    append(&dir.join(FORGOTTEN), &keyring.issued_row(Purpose::OwnReader, counter, &key), true)
}

/// Whether the key of a forgotten counter.
pub(super) fn is_forgotten(
    dir: &Path,
    keyring: &Keyring,
    reader: &ReaderKey,
) -> Result<bool, AuthorError> {
    let tag = keyring.issued_tag(Purpose::OwnReader, reader.key());
    let rows = rows(&dir.join(FORGOTTEN), ROW_BYTES)?;
    Ok(rows.chunks_exact(ROW_BYTES).any(|row| row.starts_with(&tag)))
}

/// Every forgotten counter.
pub(super) fn forgotten(dir: &Path, keyring: &Keyring) -> Result<BTreeSet<u64>, AuthorError> {
    let rows = rows(&dir.join(FORGOTTEN), ROW_BYTES)?;
    let counter = |row: &[u8]| keyring.read_issued_row(row).ok().map(|(_, counter)| counter);
    Ok(rows.chunks_exact(ROW_BYTES).filter_map(counter).collect())
}

fn rows(path: &Path, row_bytes: usize) -> Result<Vec<u8>, AuthorError> {
    match files::read(path, ROWS_MAX * row_bytes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Ok(bytes) if bytes.len() > ROWS_MAX * row_bytes => {
            // Not the oldest of them alone, as if there were no others.
            Err(files::failed("read", path)(io::ErrorKind::FileTooLarge.into()))
        }
        other => other.map_err(files::failed("read", path)),
    }
}

/// Appends a row behind the last whole one.
fn append(path: &Path, row: &[u8], durably: bool) -> Result<(), AuthorError> {
    let written = (|| {
        let mut file = files::private().create(true).truncate(false).open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len - len % row.len() as u64))?;
        file.write_all(row)?;
        if durably {
            file.sync_all()?;
            let dir = path.parent().unwrap_or(Path::new("."));
            fs::File::open(dir)?.sync_all()?;
        }
        Ok(())
    })();
    written.map_err(files::failed("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is renewed every week for years is one content.
    #[test]
    fn contents_are_bounded_and_not_how_often_each_was_noted() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let keyring = Keyring::from_seed(&[7; 32]);
        let salt = [3; PAID_SALT_BYTES];
        let address = |n: u8| RecordId::new([n; 32]);
        let all = || all_within(dir.path(), &keyring, 3);
        assert!(all().expect("none yet").is_empty());
        for until in 1..=2 * ROWS_SPARE as u64 {
            note(dir.path(), &keyring, &salt, &address((until % 3) as u8), until).expect("noted");
        }
        let paid = all().expect("three contents");
        assert_eq!(paid.len(), 3);
        assert_eq!(paid[&address(1)], 2 * ROWS_SPARE as u64 - 1);
        let len = fs::metadata(dir.path().join(PAID)).expect("it is there").len();
        assert_eq!(len, 3 * PAID_ROW_BYTES as u64, "the others are gone");
        note(dir.path(), &keyring, &salt, &address(9), 1).expect("noted");
        assert!(all().is_err(), "a fourth is over the bound, and told");
        note(dir.path(), &keyring, &salt, &address(9), 0).expect("noted");
        assert_eq!(all().expect("three again").len(), 3, "it is paid for no more");
    }
}
