//! The journal of a put: what lets the next run go on under the same EEK, and makes sure that it may.
//!
//! An EEK seals one content. Whoever seals a page again under it must know that it is the same page, or two ciphertexts
//! under one nonce give both away. So a tag of each chunk and the id of its page are durable before the page is sent,
//! and are compared before the chunk is sealed again and before the page is sent again.
//!
//! ```text
//! header, durable --> [rows of pages, durable --> these pages are sent --> `reached`] ... --> `end`, durable --> metadata
//!                                                                                         --> removed when all is stored
//! ```
//! Invariants:
//! 1. No page is sent whose row is not durable: the stage `put::note` lies between sealing and sending.
//! 2. A journal is used by one put at a time, and written by the program that began it ([`book`]).
//! 3. What differs from the journal in any way is [`AuthorError::Changed`]: a new EEK.
//!
//! Limits: see [`JOURNALS_MAX`] and [`JOURNAL_AGE_MAX`] (also where no put of a large file comes again: `leftovers`). A home restored from a backup may hold a journal that is older than
//! what was sent; that is why only a whole copy of a home is a backup of it (`docs/concepts/sharing.md`).

mod book;
mod folder;
mod known;
mod options;
mod row;

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crypto::keyring::journal::JOURNAL_SALT_BYTES;
use crypto::{Keyring, RecordId};
use document::{PageTicket, SealedPage};
use env::disk::Disk;

use crate::error::AuthorError;
use crate::put::Chunk;
use book::{Book, Read};
pub(crate) use folder::{Folder, Held};
pub use folder::{JOURNAL_AGE_MAX, JOURNALS_MAX};
use known::{Known, KnownPage};
pub(crate) use options::digest;
pub(crate) use row::{Header, Row, Source};

/// A journal that a put goes by and writes. Its functions block and belong on threads that may.
pub(crate) struct Journal {
    held: Arc<Held>,
    header: Header,
    known: Known,
    /// `None` once it could not be written: it was removed, and the put goes on without.
    book: Mutex<Option<Book>>,
}

impl Journal {
    /// The journal that was left for this source, with options of one of these digests, ready to go on; `None` where there is none
    /// that may be used.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn resume(
        held: Arc<Held>,
        keyring: &Keyring,
        salt: &[u8; JOURNAL_SALT_BYTES],
        source: &Source,
        options: &[[u8; 32]],
    ) -> io::Result<Option<Self>> {
        let disk: &dyn Disk = &held.disk;
        let Read::Whole(header, rows) = Book::read(disk, &held.name, keyring)? else {
            return Ok(None);
        };
        let Some(known) = Known::of(&rows) else { return Ok(None) };
        if header.source != *source || !options.contains(&header.options) {
            return Ok(None);
        }
        let book = Book::create(disk, &held.name, keyring, salt, &header, &known.rows())?;
        Ok(Some(Self { held, header: *header, known, book: Mutex::new(Some(book)) }))
    }

    /// A new journal, durable, over what may be there.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn begin(
        held: Arc<Held>,
        keyring: &Keyring,
        salt: &[u8; JOURNAL_SALT_BYTES],
        header: Header,
    ) -> io::Result<Self> {
        let book = Book::create(&held.disk, &held.name, keyring, salt, &header, &[])?;
        Ok(Self { held, header, known: Known::default(), book: Mutex::new(Some(book)) })
    }

    /// What the put is made with.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// What is known about the page at `index`, to seal it by.
    pub(crate) fn check(&self, index: u32) -> Check {
        let known = self.known.pages.get(index as usize).copied();
        // A content that went on after its end was told is another one.
        let beyond = self.known.end.is_some_and(|end| index >= end);
        Check { known, beyond }
    }

    /// Makes the rows of pages that are about to be sent durable.
    ///
    /// # Errors
    /// [`AuthorError::Io`] where they cannot be written and the journal cannot be removed either: nothing more may be sent.
    pub(crate) fn note(&self, pages: &[Noted]) -> Result<(), AuthorError> {
        let new = pages.iter().filter(|page| page.is_new());
        let rows: Vec<Row> = new.map(|page| page.row).collect();
        if rows.is_empty() {
            return Ok(());
        }
        self.write(&rows, true)
    }

    /// Notes that a page has all copies it will get, or that all pages of a stripe have, whose fragments are counted then.
    ///
    /// # Errors
    /// As [`Journal::note`].
    pub(crate) fn reached(
        &self,
        pages: Range<u32>,
        acked: u32,
        wanted: u32,
    ) -> Result<(), AuthorError> {
        let rows: Vec<Row> = pages.map(|index| Row::Reached { index, acked, wanted }).collect();
        self.write(&rows, false)
    }

    /// Makes the count of pages durable, before the metadata is sealed.
    ///
    /// # Errors
    /// [`AuthorError::Changed`] where there were more or fewer before; else as [`Journal::note`].
    pub(crate) fn end(&self, pages: u32) -> Result<(), AuthorError> {
        if (pages as usize) < self.known.pages.len() {
            return Err(AuthorError::Changed);
        }
        match self.known.end {
            Some(end) if end == pages => Ok(()),
            Some(_) => Err(AuthorError::Changed),
            None => self.write(&[Row::End { pages }], true),
        }
    }

    /// Removes it: all is stored.
    ///
    /// # Errors
    /// [`AuthorError::Io`].
    pub(crate) fn remove(&self) -> Result<(), AuthorError> {
        self.close();
        self.held.remove().map_err(|source| self.failed("remove", source))
    }

    /// Writes nothing into it any more: another one takes its place.
    pub(crate) fn close(&self) {
        *self.book() = None;
    }

    fn write(&self, rows: &[Row], durably: bool) -> Result<(), AuthorError> {
        let mut slot = self.book();
        let Some(book) = slot.as_mut() else { return Ok(()) };
        let written = book.append(rows).and_then(|()| if durably { book.sync() } else { Ok(()) });
        let Err(error) = written else { return Ok(()) };
        tracing::warn!(%error, "the journal of this put cannot be written: it cannot be resumed");
        *slot = None;
        let disk: &dyn Disk = &self.held.disk;
        Book::remove(disk, &self.held.name).map_err(|source| self.failed("remove", source))
    }

    fn book(&self) -> MutexGuard<'_, Option<Book>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, action: &'static str, source: io::Error) -> AuthorError {
        AuthorError::Io { action, path: self.held.disk.path().join(&self.held.name), source }
    }
}

/// A page that was sealed, for its row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    row: Row,
    /// Whether the row is in the journal.
    known: bool,
    /// Copies acknowledged and wanted, where it need not be sent again.
    pub(crate) reached: Option<(u32, u32)>,
}

impl Noted {
    /// Whether its row is still to be written.
    pub(crate) const fn is_new(&self) -> bool {
        !self.known
    }
}

/// What the page at an index must be.
#[derive(Clone)]
pub(crate) struct Check {
    known: Option<KnownPage>,
    beyond: bool,
}

impl Check {
    /// Seals a chunk, after it was compared with what was sealed at its index before, and compares the page.
    ///
    /// # Errors
    /// [`AuthorError::Changed`] where either is another one; [`AuthorError::Unsealable`].
    pub(crate) fn seal(
        self,
        mut ticket: PageTicket,
        chunk: Chunk,
    ) -> Result<(SealedPage, Noted), AuthorError> {
        let index = ticket.index();
        let tag = ticket.tag(chunk.bytes()).map_err(AuthorError::Unsealable)?;
        if self.beyond || self.known.is_some_and(|known| known.tag != tag) {
            return Err(AuthorError::Changed);
        }
        let page = chunk.seal(ticket)?;
        let id: RecordId = page.record.id;
        if self.known.is_some_and(|known| known.id != id) {
            return Err(AuthorError::Changed);
        }
        let row = Row::Page { index, tag, id };
        let reached = self.known.and_then(|known| known.reached);
        Ok((page, Noted { row, known: self.known.is_some(), reached }))
    }
}

#[cfg(test)]
mod tests;
