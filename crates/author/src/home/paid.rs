//! Which contents are paid for, and which counters were forgotten.
//!
//! ```text
//! paid        rows of `crypto::keyring::paid`: an address and until when; the last row of an address counts, 0 is *not any more*
//! forgotten   rows of `crypto::keyring::issued`: counters whose keys open nothing any more
//! ```
//! Both are appended to. `paid` is a help to renew all at once and is not synced: after a power cut a content may be missing
//! in it, which can be renewed by its address. Rows that do not check are counted and stay, since whoever renews all is to hear of
//! them, until all is noted anew ([`drop_damaged`]). `forgotten` is synced before the counter's row is taken out of `issued`; rows of
//! zeros in it are no counter's, and room for those of contents that are being forgotten (`forgetting`).
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
/// Rows of `paid` that do not check and stay when others go, at most.
const DAMAGED_MAX: usize = 4 << 10;
/// Bytes of `paid` that are read at once.
const BUFFER_BYTES: usize = 64 << 10;
/// A row of `forgotten` that is no counter's.
const FREE: [u8; ROW_BYTES] = [0; ROW_BYTES];

/// A row of `paid`.
type PaidRow = [u8; PAID_ROW_BYTES];

/// What is noted of contents that are paid for.
#[derive(Default)]
struct Notes {
    /// Until when each is, Unix seconds, and the row that says so.
    paid: BTreeMap<RecordId, (u64, PaidRow)>,
    /// Rows that do not check, the first [`DAMAGED_MAX`] of them.
    damaged: Vec<PaidRow>,
    /// How many there are.
    damaged_count: u64,
    /// How many rows there are.
    rows: usize,
}

/// Notes until when a content is paid for, Unix seconds; 0 where it is not any more.
pub(super) fn note(
    dir: &Path,
    keyring: &Keyring,
    salt: &[u8; PAID_SALT_BYTES],
    address: &RecordId,
    until: u64,
) -> Result<(), AuthorError> {
    let row = keyring.paid_row(salt, address, until);
    write(&dir.join(PAID), None, &row, PAID_ROW_BYTES, false)
}

/// Every content that is paid for, and until when, Unix seconds; and how many rows do not check, each of which may have been of one
/// more. Where more rows count no more than do, only those stay that do, and those that do not check.
pub(super) fn all(
    dir: &Path,
    keyring: &Keyring,
) -> Result<(BTreeMap<RecordId, u64>, u64), AuthorError> {
    all_within(dir, keyring, ROWS_MAX)
}

/// Of so many contents: each may have any number of rows, as it has that was renewed often.
fn all_within(
    dir: &Path,
    keyring: &Keyring,
    max: usize,
) -> Result<(BTreeMap<RecordId, u64>, u64), AuthorError> {
    let path = dir.join(PAID);
    let Notes { paid, damaged, damaged_count, rows } = notes(&path, keyring, max)?;
    if rows > 2 * (paid.len() + damaged.len()) + ROWS_SPARE {
        let stay = damaged.iter().chain(paid.values().map(|(_, row)| row));
        let stay: Vec<u8> = stay.flatten().copied().collect();
        // What it would save is saved the next time.
        if let Err(error) = files::replace(&path, &stay) {
            tracing::warn!(%error, path = %path.display(), "rows that count no more stay");
        }
    }
    Ok((paid.into_iter().map(|(address, (until, _))| (address, until)).collect(), damaged_count))
}

/// Takes the rows that do not check out of the file: what they may have been of is noted anew.
pub(super) fn drop_damaged(dir: &Path, keyring: &Keyring) -> Result<(), AuthorError> {
    let path = dir.join(PAID);
    let Notes { paid, damaged_count, .. } = notes(&path, keyring, ROWS_MAX)?;
    if damaged_count == 0 {
        return Ok(());
    }
    let stay: Vec<u8> = paid.values().flat_map(|(_, row)| *row).collect();
    files::replace(&path, &stay).map_err(files::failed("write", &path))
}

/// Reads the rows of at most so many contents.
fn notes(path: &Path, keyring: &Keyring, max: usize) -> Result<Notes, AuthorError> {
    let failed = || files::failed("read", path);
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Notes::default()),
        opened => opened.map_err(failed())?,
    };
    let mut from = io::BufReader::with_capacity(BUFFER_BYTES, file);
    let (mut notes, mut row) = (Notes::default(), [0; PAID_ROW_BYTES]);
    loop {
        match from.read_exact(&mut row) {
            // A last one that was torn was never noted.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            read => read.map_err(failed())?,
        }
        notes.rows += 1;
        match keyring.read_paid_row(&row) {
            Ok((address, 0)) => drop(notes.paid.remove(&address)),
            Ok((address, until)) => drop(notes.paid.insert(address, (until, row))),
            Err(_) => {
                notes.damaged_count += 1;
                if notes.damaged.len() < DAMAGED_MAX {
                    notes.damaged.push(row);
                }
            }
        }
        if notes.paid.len() > 2 * max {
            break;
        }
    }
    if notes.paid.len() > max {
        // Not the oldest of them alone, as if there were no others.
        return Err(failed()(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(notes)
}

/// Sees to it, durably, that so many counters can be forgotten where there is no room for another row.
pub(super) fn reserve(dir: &Path, count: usize) -> Result<(), AuthorError> {
    let path = dir.join(FORGOTTEN);
    let rows = rows(&path, ROW_BYTES)?;
    let free = rows.chunks_exact(ROW_BYTES).filter(|row| **row == FREE).count();
    match count.saturating_sub(free) {
        0 => Ok(()),
        lacking => write(&path, None, &FREE.repeat(lacking), ROW_BYTES, true),
    }
}

/// Notes durably that the keys of a counter open nothing any more, in a row that was reserved where there is one.
pub(super) fn forget(dir: &Path, keyring: &Keyring, counter: u64) -> Result<(), AuthorError> {
    let path = dir.join(FORGOTTEN);
    let key = keyring.own_reader(counter).public();
    let row = keyring.issued_row(Purpose::OwnReader, counter, &key);
    let rows = rows(&path, ROW_BYTES)?;
    let mut rows = rows.chunks_exact(ROW_BYTES);
    if rows.clone().any(|known| *known == row) {
        return Ok(());
    }
    let free = rows.position(|row| *row == FREE);
    write(&path, free, &row, ROW_BYTES, true)
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

/// Writes rows behind the last whole one, or one row over that of this number.
fn write(
    path: &Path,
    over: Option<usize>,
    rows: &[u8],
    row_bytes: usize,
    durably: bool,
) -> Result<(), AuthorError> {
    let written = (|| {
        let mut file = files::private().create(true).truncate(false).open(path)?;
        let row_bytes = row_bytes as u64;
        let at = match over {
            Some(number) => number as u64,
            None => file.metadata()?.len() / row_bytes,
        };
        file.seek(SeekFrom::Start(at * row_bytes))?;
        file.write_all(rows)?;
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
        let all = || all_within(dir.path(), &keyring, 3).map(|(paid, _)| paid);
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

    /// A disk turns a bit: what the row was of is not known, and that there was one is told until all is noted anew.
    #[test]
    fn rows_that_do_not_check_are_counted_and_stay_when_others_go() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let keyring = Keyring::from_seed(&[7; 32]);
        let (salt, path) = ([3; PAID_SALT_BYTES], dir.path().join(PAID));
        let address = |n: u8| RecordId::new([n; 32]);
        for n in 1..=3 {
            note(dir.path(), &keyring, &salt, &address(n), 7).expect("noted");
        }
        let mut bytes = fs::read(&path).expect("it is there");
        // A torn last row is none.
        bytes.extend_from_slice(&[1; PAID_ROW_BYTES / 2]);
        fs::write(&path, &bytes).expect("written");
        assert_eq!(all(dir.path(), &keyring).expect("read").1, 0);
        bytes[PAID_ROW_BYTES + 20] ^= 1;
        fs::write(&path, &bytes).expect("written");
        let left = || {
            let (paid, damaged) = all(dir.path(), &keyring).expect("read");
            (paid.into_keys().collect::<Vec<_>>(), damaged)
        };
        assert_eq!(left(), (vec![address(1), address(3)], 1));
        for until in 0..2 * ROWS_SPARE as u64 {
            note(dir.path(), &keyring, &salt, &address(3), 8 + until).expect("noted");
        }
        for _ in 0..2 {
            assert_eq!(left(), (vec![address(1), address(3)], 1));
            let len = fs::metadata(&path).expect("it is there").len();
            assert_eq!(len, 3 * PAID_ROW_BYTES as u64, "those that count no more are gone");
        }
        drop_damaged(dir.path(), &keyring).expect("dropped");
        assert_eq!(left(), (vec![address(1), address(3)], 0));
    }

    #[test]
    fn of_many_rows_that_do_not_check_some_stay() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let keyring = Keyring::from_seed(&[7; 32]);
        let path = dir.path().join(PAID);
        let count = 4 * DAMAGED_MAX;
        fs::write(&path, vec![1; count * PAID_ROW_BYTES]).expect("written");
        for damaged in [count, DAMAGED_MAX, DAMAGED_MAX] {
            let (paid, told) = all(dir.path(), &keyring).expect("read");
            assert_eq!((paid.len(), told), (0, damaged as u64));
        }
    }

    #[test]
    fn a_counter_is_forgotten_in_the_row_that_was_reserved_for_it() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let keyring = Keyring::from_seed(&[7; 32]);
        let path = dir.path().join(FORGOTTEN);
        forget(dir.path(), &keyring, 9).expect("forgotten");
        for _ in 0..2 {
            reserve(dir.path(), 2).expect("reserved");
        }
        let len = || fs::metadata(&path).expect("it is there").len();
        assert_eq!(len(), 3 * ROW_BYTES as u64);
        assert_eq!(forgotten(dir.path(), &keyring).expect("read"), BTreeSet::from([9]));
        for counter in [0, 5, 5, 9] {
            forget(dir.path(), &keyring, counter).expect("forgotten");
        }
        assert_eq!(len(), 3 * ROW_BYTES as u64, "each once");
        assert_eq!(forgotten(dir.path(), &keyring).expect("read"), BTreeSet::from([0, 5, 9]));
        forget(dir.path(), &keyring, 6).expect("forgotten");
        assert_eq!(len(), 4 * ROW_BYTES as u64);
    }
}
