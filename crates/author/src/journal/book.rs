//! A journal's file: written once from its start, frame by frame, and read whole.
//!
//! A frame's nonce is its number, so no frame is ever sealed a second time: a book that was read is not written on.
//! Whoever goes on with it writes all its rows into a new one under a fresh salt, which takes the old one's name when
//! it is durable.

use std::io::{self, IoSlice};
use std::sync::Arc;

use crypto::Keyring;
use crypto::keyring::journal::{JOURNAL_SALT_BYTES, JournalCipher};
use crypto::seal::TAG_BYTES;
use env::disk::{Disk, File};

use super::row::{HEADER_BYTES, Header, ROW_BYTES, Row};

const MAGIC: &[u8; 8] = b"HFPUTJ03";
const HEADER_FRAME: usize = HEADER_BYTES + TAG_BYTES;
const ROW_FRAME: usize = ROW_BYTES + TAG_BYTES;
/// The head of the file, before the first row.
const HEAD_BYTES: usize = MAGIC.len() + JOURNAL_SALT_BYTES + HEADER_FRAME;
/// The largest journal that is read: two rows for each page of a content of 2 TiB.
const BYTES_MAX: u64 = 256 << 20;
/// What a new journal is called until it is durable.
const NEW: &str = ".new";

/// A journal that is being written.
pub(crate) struct Book {
    file: Arc<dyn File>,
    cipher: JournalCipher,
    /// The number of the next frame.
    next: u64,
    offset: u64,
}

/// What a journal's file holds.
#[derive(Debug)]
pub(crate) enum Read {
    /// Its header and rows. Rows at its end may be missing that were never made durable.
    Whole(Box<Header>, Vec<Row>),
    /// There is a file, and it is not a journal of this user, whole.
    Damaged,
    /// There is none.
    Missing,
}

impl Book {
    /// Writes a new journal with these rows over one of that name, durably. `salt` is fresh random bytes.
    ///
    /// # Errors
    /// The disk's; then what was there is there still.
    pub(crate) fn create(
        disk: &dyn Disk,
        name: &str,
        keyring: &Keyring,
        salt: &[u8; JOURNAL_SALT_BYTES],
        header: &Header,
        rows: &[Row],
    ) -> io::Result<Self> {
        let new = format!("{name}{NEW}");
        // What a killed program left under this name may be longer than what is written now.
        disk.remove(&new)?;
        let file = disk.open(&new, true)?;
        let cipher = keyring.journal_cipher(salt);
        let sealed = cipher.seal(0, MAGIC, header.encode()).map_err(invalid)?;
        file.write_at(0, &[IoSlice::new(MAGIC), IoSlice::new(salt), IoSlice::new(&sealed)])?;
        let mut book = Self { file, cipher, next: 1, offset: HEAD_BYTES as u64 };
        book.append(rows)?;
        book.sync()?;
        disk.rename(&new, name)?;
        disk.sync_names()?;
        Ok(book)
    }

    /// Writes rows at the end.
    ///
    /// # Errors
    /// The disk's. A book whose write failed must not be written on: its frames' numbers are used up.
    pub(crate) fn append(&mut self, rows: &[Row]) -> io::Result<()> {
        let mut frames = Vec::with_capacity(rows.len() * ROW_FRAME);
        for row in rows {
            let number = self.next;
            self.next += 1;
            frames.extend(self.cipher.seal(number, MAGIC, row.encode()).map_err(invalid)?);
        }
        self.file.write_at(self.offset, &[IoSlice::new(&frames)])?;
        self.offset += frames.len() as u64;
        Ok(())
    }

    /// Makes all rows durable.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Reads the journal of that name.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn read(disk: &dyn Disk, name: &str, keyring: &Keyring) -> io::Result<Read> {
        let file = match disk.open(name, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Read::Missing),
            other => other?,
        };
        let length = file.len()?;
        if length > BYTES_MAX {
            return Ok(Read::Damaged);
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        file.read_at(0, &mut bytes)?;
        Ok(opened(&bytes, keyring).unwrap_or(Read::Damaged))
    }

    /// The header alone of the journal of that name; `None` where there is none that opens.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn header(
        disk: &dyn Disk,
        name: &str,
        keyring: &Keyring,
    ) -> io::Result<Option<Header>> {
        let file = match disk.open(name, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut bytes = vec![0; HEAD_BYTES];
        match file.read_at(0, &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        Ok(match opened(&bytes, keyring) {
            Some(Read::Whole(header, _)) => Some(*header),
            _ => None,
        })
    }

    /// Removes the journal of that name, durably.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn remove(disk: &dyn Disk, name: &str) -> io::Result<()> {
        disk.remove(&format!("{name}{NEW}"))?;
        disk.remove(name)?;
        disk.sync_names()
    }
}

/// Opens a journal's bytes; `None` where a frame does not.
fn opened(bytes: &[u8], keyring: &Keyring) -> Option<Read> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (salt, rest) = rest.split_first_chunk::<JOURNAL_SALT_BYTES>()?;
    let (header, rest) = rest.split_first_chunk::<HEADER_FRAME>()?;
    let cipher = keyring.journal_cipher(salt);
    let header = Header::decode(&cipher.open(0, MAGIC, header).ok()?)?;
    let rows = rest.chunks_exact(ROW_FRAME).zip(1..);
    let rows: Option<Vec<Row>> =
        rows.map(|(frame, number)| Row::decode(&cipher.open(number, MAGIC, frame).ok()?)).collect();
    Some(Read::Whole(Box::new(header), rows?))
}

fn invalid(error: crypto::SealError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
