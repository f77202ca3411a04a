//! The index of a sealed segment in a file of its own, so that opening reads 44 bytes a record and
//! not the records.
//!
//! ```text
//! 0   magic       8   HOLDFIDX
//! 8   version     2   1
//! 10  suite       1   as in the segment
//! 11  zero        1
//! 12  segment     4
//! 16  marker      8   the segment's
//! 24  log length  8   the segment's, in bytes
//! 32  rows        4
//! 36  gaps        4   ranges of the segment that belong to no frame
//! 40  rows crc    4   CRC-32C of all rows
//! 44  header crc  4   CRC-32C of the 44 bytes before it
//! 48  rows, 44 bytes each, in the order of the frames:
//!     id 32 | offset 4 | payload length 4 | kind 1 | flags 1 | zero 2
//! ```
//!
//! It holds nothing that the segment does not: where it is missing, torn, damaged or of another
//! length it is written again from the segment. So it needs no fsync, and no failure to write it is
//! one of the store. But one that lists more than its segment has, or whose segment is gone, tells what the disk lost: it is
//! removed before its segment is, and where that grows again.
//!
//! It is begun with its segment, as the index of the [`FILE_HEADER_BYTES`] that are in that then, which fits no longer once a
//! frame follows. So the marker is in two places of the disk: both copies in the segment's head lie in one sector, and without
//! it nothing of the segment is found again.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use crypto::RecordId;
use env::disk::{Disk, File};

use super::frame::{self, Content, HEADER_BYTES_MAX, Header, Marker, be32, be64};
use super::segment::{Segment, index_name};
use crate::checksum::{Running, crc32c};
use crate::header::FILE_HEADER_BYTES;
use crate::scan::{Seen, scan};

const MAGIC: &[u8; 8] = b"HOLDFIDX";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 48;
const ROW_BYTES: usize = 44;
/// Rows read or written at once.
const CHUNK_ROWS: usize = 1024;
const REMOVAL: u8 = 1;
const PLACED: u8 = 2;
const FORM: u8 = 4;
const FILLER: u8 = 8;

/// A frame as the index has it: all of the header but its place and payload checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub id: RecordId,
    pub offset: u32,
    pub length: u32,
    pub removal: bool,
    pub filler: bool,
    pub placed: bool,
    pub form: bool,
    pub kind: u8,
}

impl Row {
    fn of(offset: u32, header: &Header) -> Self {
        let (kind, form) = match header.content {
            Content::Record { kind, form, .. } => (kind.number(), form),
            Content::Removal | Content::Filler { .. } => (0, false),
        };
        let removal = matches!(header.content, Content::Removal);
        let filler = matches!(header.content, Content::Filler { .. });
        let (id, placed) = (header.id, header.placed());
        Self { id, offset, length: header.payload_bytes(), removal, filler, placed, form, kind }
    }

    /// Where its frame ends.
    pub(crate) fn end(&self) -> u64 {
        let header = if self.placed { HEADER_BYTES_MAX } else { frame::HEADER_BYTES };
        u64::from(self.offset) + header as u64 + u64::from(self.length)
    }

    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.id.as_bytes());
        into.extend_from_slice(&self.offset.to_be_bytes());
        into.extend_from_slice(&self.length.to_be_bytes());
        let removal = if self.removal { REMOVAL } else { 0 };
        let placed = if self.placed { PLACED } else { 0 };
        let form = if self.form { FORM } else { 0 };
        let filler = if self.filler { FILLER } else { 0 };
        into.extend_from_slice(&[self.kind, removal | placed | form | filler, 0, 0]);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let id = RecordId::from_slice(bytes.get(..32)?).ok()?;
        let flags = bytes[41];
        Some(Self {
            id,
            offset: be32(&bytes[32..36]),
            length: be32(&bytes[36..40]),
            removal: flags & REMOVAL != 0,
            filler: flags & FILLER != 0,
            placed: flags & PLACED != 0,
            form: flags & FORM != 0,
            kind: bytes[40],
        })
    }
}

/// What the head of an index file says.
struct Head {
    marker: Marker,
    log_len: u64,
    rows: u32,
    gaps: u32,
    rows_crc: u32,
}

impl Head {
    fn encode(&self, segment: u32, suite: u8) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEADER_BYTES);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&VERSION.to_be_bytes());
        head.extend_from_slice(&[suite, 0]);
        head.extend_from_slice(&segment.to_be_bytes());
        head.extend_from_slice(&self.marker);
        head.extend_from_slice(&self.log_len.to_be_bytes());
        head.extend_from_slice(&self.rows.to_be_bytes());
        head.extend_from_slice(&self.gaps.to_be_bytes());
        head.extend_from_slice(&self.rows_crc.to_be_bytes());
        let crc = crc32c(&head);
        head.extend_from_slice(&crc.to_be_bytes());
        head
    }

    /// That of the index file of a segment; `None` where there is none that is whole.
    fn read(file: &dyn File, segment: u32, suite: u8) -> Option<Self> {
        let mut head = [0; HEADER_BYTES];
        file.read_at(0, &mut head).ok()?;
        let fits = crc32c(&head[..44]) == be32(&head[44..])
            && head[..8] == *MAGIC
            && head[8..10] == VERSION.to_be_bytes()
            && head[10..12] == [suite, 0]
            && be32(&head[12..16]) == segment;
        let mut marker = [0; 8];
        marker.copy_from_slice(&head[16..24]);
        fits.then(|| Self {
            marker,
            log_len: be64(&head[24..32]),
            rows: be32(&head[32..36]),
            gaps: be32(&head[36..40]),
            rows_crc: be32(&head[40..44]),
        })
    }
}

/// The marker of a segment, as its index file tells it, which may be begun and not written yet.
pub(crate) fn marker_of(disk: &dyn Disk, segment: u32, suite: u8) -> Option<Marker> {
    let file = disk.open(&index_name(segment), false).ok()?;
    Head::read(&*file, segment, suite).map(|head| head.marker)
}

/// Begins the index file of a segment of which no frame is listed yet; its length, or 0 where it could not be written, which is
/// no reason not to go on.
pub(crate) fn begin(disk: &dyn Disk, segment: u32, marker: Marker, suite: u8) -> u64 {
    let (rows, gaps, rows_crc) = (0, 0, Running::default().so_far());
    let head = Head { marker, log_len: FILE_HEADER_BYTES, rows, gaps, rows_crc };
    let head = head.encode(segment, suite);
    let begun = disk.open(&index_name(segment), true).and_then(|file| {
        file.truncate(0)?;
        file.write_at(0, &[IoSlice::new(&head)])
    });
    if let Err(error) = begun {
        tracing::debug!(segment, %error, "cannot begin a segment's index");
        let _ = disk.remove(&index_name(segment));
        return 0;
    }
    head.len() as u64
}

/// Cuts the rows off an index file that is not written to its end: their room is of more use to others.
pub(crate) fn cut(disk: &dyn Disk, segment: u32) {
    let file = disk.open(&index_name(segment), false);
    let _ = file.and_then(|file| file.truncate(HEADER_BYTES as u64));
}

/// Bytes of the index file of a segment, whatever is in it.
pub(crate) fn bytes_of(disk: &dyn Disk, segment: u32) -> u64 {
    disk.open(&index_name(segment), false).and_then(|file| file.len()).unwrap_or(0)
}

/// A valid index file.
pub(crate) struct IndexFile {
    file: Arc<dyn File>,
    rows: u32,
    pub marker: Marker,
    /// Bytes that the segment has, or had.
    pub log_len: u64,
    pub gaps: u32,
}

impl IndexFile {
    /// Opens and checks the index of a segment of `log_len` bytes. `None` where there is none that
    /// fits.
    pub(crate) fn open(disk: &dyn Disk, segment: u32, suite: u8, log_len: u64) -> Option<Self> {
        Self::find(disk, segment, suite).filter(|index| index.log_len == log_len)
    }

    /// Opens and checks the index of a segment of whatever length.
    pub(crate) fn find(disk: &dyn Disk, segment: u32, suite: u8) -> Option<Self> {
        let file = disk.open(&index_name(segment), false).ok()?;
        let Head { marker, log_len, rows, gaps, rows_crc } = Head::read(&*file, segment, suite)?;
        let bytes = HEADER_BYTES as u64 + u64::from(rows) * ROW_BYTES as u64;
        if file.len().ok()? != bytes {
            return None;
        }
        let index = Self { file, rows, marker, log_len, gaps };
        let mut crc = Running::default();
        index.chunks(0..rows, |bytes| crc.add(bytes)).ok()?;
        (crc.so_far() == rows_crc).then_some(index)
    }

    /// Hands over every row, in the order of the frames.
    pub(crate) fn all_rows(&self, each: impl FnMut(Row)) -> io::Result<()> {
        self.each_row(0..self.rows, each)
    }

    /// How many rows it has.
    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    /// Hands over some of its rows, in the order of the frames.
    pub(crate) fn each_row(&self, rows: Range<u32>, mut each: impl FnMut(Row)) -> io::Result<()> {
        self.chunks(rows, |bytes| {
            bytes.chunks_exact(ROW_BYTES).filter_map(Row::decode).for_each(&mut each)
        })
    }

    fn chunks(&self, rows: Range<u32>, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let mut offset = HEADER_BYTES as u64 + u64::from(rows.start) * ROW_BYTES as u64;
        let mut left = rows.len();
        let mut bytes = Vec::new();
        while left > 0 {
            let take = left.min(CHUNK_ROWS);
            bytes.resize(take * ROW_BYTES, 0);
            self.file.read_at(offset, &mut bytes)?;
            each(&bytes);
            offset += bytes.len() as u64;
            left -= take;
        }
        Ok(())
    }
}

/// Rows on their way to a segment's index file, in chunks. The file fits no segment before the whole head is written.
#[derive(Clone)]
pub(crate) struct Rows {
    segment: u32,
    /// `None` before the first chunk.
    file: Option<Arc<dyn File>>,
    offset: u64,
    chunk: Vec<u8>,
    rows: u32,
    crc: Running,
}

impl Rows {
    /// Of a segment in which there is no frame yet.
    pub(crate) fn new(segment: u32) -> Self {
        Self {
            segment,
            file: None,
            offset: HEADER_BYTES as u64,
            chunk: Vec::new(),
            rows: 0,
            crc: Running::default(),
        }
    }

    /// Takes in the frame at `offset`, which is behind all before it.
    ///
    /// # Errors
    /// Of the disk; the rows are of no use then.
    pub(crate) fn push(&mut self, disk: &dyn Disk, offset: u64, header: &Header) -> io::Result<()> {
        // Segments are under 4 GiB; where one is not, its index is not written.
        let offset = u32::try_from(offset).map_err(io::Error::other)?;
        Row::of(offset, header).encode(&mut self.chunk);
        self.rows += 1;
        if self.chunk.len() >= CHUNK_ROWS * ROW_BYTES { self.flush(disk).map(drop) } else { Ok(()) }
    }

    /// Takes in frames that follow one another from `offset` on.
    ///
    /// # Errors
    /// As [`Rows::push`].
    pub(crate) fn extend<'a>(
        &mut self,
        disk: &dyn Disk,
        mut offset: u64,
        headers: impl Iterator<Item = &'a Header>,
    ) -> io::Result<()> {
        for header in headers {
            self.push(disk, offset, header)?;
            offset += header.frame_len();
        }
        Ok(())
    }

    fn flush(&mut self, disk: &dyn Disk) -> io::Result<Arc<dyn File>> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let file = disk.open(&index_name(self.segment), true)?;
                // The head that it was begun with stays till the whole one takes its place.
                file.truncate(HEADER_BYTES as u64)?;
                file
            }
        };
        self.file = Some(file.clone());
        self.crc.add(&self.chunk);
        file.write_at(self.offset, &[IoSlice::new(&self.chunk)])?;
        self.offset += self.chunk.len() as u64;
        self.chunk.clear();
        Ok(file)
    }

    /// Writes what is left and the head; the file's length.
    fn finish(
        mut self,
        disk: &dyn Disk,
        segment: &Segment,
        suite: u8,
        gaps: u32,
    ) -> io::Result<u64> {
        let file = self.flush(disk)?;
        let (marker, log_len, rows_crc) = (segment.marker, segment.len, self.crc.so_far());
        let head = Head { marker, log_len, rows: self.rows, gaps, rows_crc };
        let head = head.encode(segment.number, suite);
        file.write_at(0, &[IoSlice::new(&head)])?;
        Ok(self.offset)
    }
}

/// Writes the index of a sealed segment, and returns the file's length: from the rows that were kept while it was written,
/// or, where it was begun before this start, from its frames' headers.
pub(crate) fn write(disk: &dyn Disk, segment: &Segment, suite: u8) -> io::Result<u64> {
    let written = match &segment.rows {
        Some(rows) => rows.clone().finish(disk, segment, suite, 0),
        None => {
            scanned(disk, segment).and_then(|(rows, gaps)| rows.finish(disk, segment, suite, gaps))
        }
    };
    if written.is_err() {
        cut(disk, segment.number);
    }
    written
}

/// The rows of a segment, and how many of its ranges belong to no frame.
fn scanned(disk: &dyn Disk, segment: &Segment) -> io::Result<(Rows, u32)> {
    let mut rows = Rows::new(segment.number);
    let mut failed = None;
    let mut gaps = 0u32;
    scan(&*segment.file, 0, segment.len, &segment.marker, false, &mut |seen| match seen {
        Seen::Gap { .. } => gaps += 1,
        Seen::Frame { offset, header, .. } => {
            if failed.is_none()
                && let Err(error) = rows.push(disk, offset, &header)
            {
                failed = Some(error);
            }
        }
    })?;
    match failed {
        Some(error) => Err(error),
        None => Ok((rows, gaps)),
    }
}
