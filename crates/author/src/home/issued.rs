//! The append-only list of issued counters.
//!
//! Rows are `crypto::keyring::issued`'s, 32 bytes each: they say nothing to whoever has not the seed. The list is read
//! from the disk when it is needed and not kept in memory: a million contents are 32 MB, searched in some milliseconds and
//! checked in about a second, and what other programs appended is seen.
//!
//! The next counter is above every counter in a row. A row that does not check (bit rot, a torn write) may have been one
//! that was used, so a counter is skipped for each. A last row cut short was never synced and its counter never used: it
//! is overwritten.
//!
//! All functions are called with the home's lock held.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crypto::keyring::issued::ROW_BYTES;
use crypto::{Keyring, Purpose, ReaderKey};

use super::files;
use crate::error::AuthorError;

/// Counters beyond the highest known that are tried for a key without a row, and that an import skips.
pub const GAP: u64 = 1_024;
/// Counters issued at once, at most.
pub const ISSUE_MAX: u64 = 2_048;
/// The highest counter plus one.
pub const COUNTERS_MAX: u64 = 1 << 62;
/// Keys derived in one search for a counter, at most.
pub const SCAN_MAX: usize = 1 << 20;
const ISSUED: &str = "issued";
/// Rows read at once.
const ROWS_READ: usize = 2_048;

/// The list, and how far it was read.
pub(super) struct Issued {
    dir: PathBuf,
    /// Rows read so far.
    rows: u64,
    /// Above every counter in them.
    next: u64,
}

impl Issued {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), rows: 0, next: 0 }
    }

    /// Whether the file is there.
    pub(super) fn exists(&self) -> bool {
        self.path().exists()
    }

    /// Issues no counter below `next`, as long as this program runs.
    pub(super) fn skip_to(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Makes the file where it is missing, and sees to it that no counter below `next` is issued any more.
    pub(super) fn start_at(&mut self, next: u64, keyring: &Keyring) -> Result<(), AuthorError> {
        if next >= COUNTERS_MAX {
            return Err(AuthorError::Exhausted);
        }
        self.open()?;
        let dir = File::open(&self.dir).and_then(|dir| dir.sync_all());
        dir.map_err(files::failed("write", &self.dir))?;
        match next.checked_sub(1) {
            Some(last) if self.next(keyring)? < next => self.append(last..next, keyring),
            _ => Ok(()),
        }
    }

    /// The counter to be issued next.
    pub(super) fn next(&mut self, keyring: &Keyring) -> Result<u64, AuthorError> {
        let (mut rows, mut next) = (self.rows, self.next);
        self.read(rows, |row| {
            rows += 1;
            next = match keyring.read_issued_row(row) {
                Ok((_, counter)) => next.max(counter.saturating_add(1)),
                Err(_) => next.saturating_add(1),
            };
        })?;
        (self.rows, self.next) = (rows, next);
        Ok(next)
    }

    /// Appends the rows of the next `count` counters and makes them durable.
    pub(super) fn issue(
        &mut self,
        count: u64,
        keyring: &Keyring,
    ) -> Result<Range<u64>, AuthorError> {
        let first = self.next(keyring)?;
        let end = first.checked_add(count).filter(|end| *end <= COUNTERS_MAX);
        let counters = first..end.ok_or(AuthorError::Exhausted)?;
        self.append(counters.clone(), keyring)?;
        Ok(counters)
    }

    /// Appends the row of a counter that was found without one.
    pub(super) fn remember(&mut self, counter: u64, keyring: &Keyring) -> Result<(), AuthorError> {
        self.next(keyring)?;
        self.append(counter..counter + 1, keyring)
    }

    /// Appends the rows of counters that were found without one.
    pub(super) fn remember_all(
        &mut self,
        counters: &BTreeSet<u64>,
        keyring: &Keyring,
    ) -> Result<(), AuthorError> {
        self.next(keyring)?;
        let mut known = BTreeSet::new();
        self.read(0, |row| {
            known.extend(keyring.read_issued_row(row).map(|(_, counter)| counter));
        })?;
        let unknown: Vec<u64> = counters.difference(&known).copied().collect();
        for some in unknown.chunks(ROWS_READ) {
            self.append(some.iter().copied(), keyring)?;
        }
        Ok(())
    }

    /// The counter of a self-addressed reader key by its row; else the counters without a row among which to look, the
    /// likeliest first: those above the highest known, then those below from the top.
    pub(super) fn find(
        &mut self,
        reader: &ReaderKey,
        keyring: &Keyring,
    ) -> Result<(Option<u64>, [Vec<u64>; 2]), AuthorError> {
        let wanted = keyring.issued_tag(Purpose::OwnReader, reader.key());
        let mut found = None;
        self.read(0, |row| {
            if row.starts_with(&wanted)
                && let Ok((_, counter)) = keyring.read_issued_row(row)
            {
                found = Some(counter);
            }
        })?;
        if found.is_some() {
            return Ok((found, [Vec::new(), Vec::new()]));
        }
        let mut known = Vec::new();
        self.read(0, |row| {
            known.extend(keyring.read_issued_row(row).map(|(_, counter)| counter));
        })?;
        let next = self.next(keyring)?;
        known.sort_unstable();
        let lowest = next.saturating_sub(SCAN_MAX as u64);
        let below = (lowest..next).rev().filter(|counter| known.binary_search(counter).is_err());
        Ok((None, [(next..next.saturating_add(GAP)).collect(), below.collect()]))
    }

    /// Takes the rows of a counter off the disk. No counter that was issued is issued again for that: what is written over
    /// them checks as no row, and each such one may have been used.
    pub(super) fn erase(&mut self, counter: u64, keyring: &Keyring) -> Result<(), AuthorError> {
        let before = self.next(keyring)?;
        let (mut number, mut found) = (0, Vec::new());
        self.read(0, |row| {
            if keyring.read_issued_row(row).is_ok_and(|(_, of)| of == counter) {
                found.push(number);
            }
            number += 1;
        })?;
        let file = self.open()?;
        let erased = || {
            for row in &found {
                file.write_all_at(&[0; ROW_BYTES], row * ROW_BYTES as u64)?;
            }
            file.sync_data()
        };
        erased().map_err(files::failed("write", &self.path()))?;
        // What was read stays read: the next counter is above it in this program, and in others by what is written now.
        let mut others = Self::new(&self.dir);
        if others.next(keyring)? < before {
            self.append(before - 1..before, keyring)
        } else {
            Ok(())
        }
    }

    fn append(
        &mut self,
        counters: impl IntoIterator<Item = u64>,
        keyring: &Keyring,
    ) -> Result<(), AuthorError> {
        let (mut rows, mut end) = (Vec::new(), 0);
        for counter in counters {
            end = end.max(counter.saturating_add(1));
            let key = keyring.own_reader(counter).public();
            rows.extend_from_slice(&keyring.issued_row(Purpose::OwnReader, counter, &key));
        }
        let file = self.open()?;
        let written =
            file.write_all_at(&rows, self.rows * ROW_BYTES as u64).and_then(|()| file.sync_data());
        written.map_err(files::failed("write", &self.path()))?;
        self.rows += (rows.len() / ROW_BYTES) as u64;
        self.next = self.next.max(end);
        Ok(())
    }

    /// Calls `each` with every whole row from the `first` on.
    fn read(&self, first: u64, mut each: impl FnMut(&[u8])) -> Result<(), AuthorError> {
        let file = match File::open(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(files::failed("open", &self.path()))?,
        };
        let mut buffer = vec![0; ROWS_READ * ROW_BYTES];
        let mut offset = first * ROW_BYTES as u64;
        loop {
            let filled = fill(&file, offset, &mut buffer);
            let filled = filled.map_err(files::failed("read", &self.path()))?;
            let whole = filled - filled % ROW_BYTES;
            buffer[..whole].chunks_exact(ROW_BYTES).for_each(&mut each);
            offset += whole as u64;
            if filled < buffer.len() {
                return Ok(());
            }
        }
    }

    fn open(&self) -> Result<File, AuthorError> {
        let path = self.path();
        let file = files::private().create(true).truncate(false).open(&path);
        file.map_err(files::failed("open", &path))
    }

    fn path(&self) -> PathBuf {
        self.dir.join(ISSUED)
    }
}

/// Fills as much of `into` as the file has from `offset`.
fn fill(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
