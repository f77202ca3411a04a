//! Reading a file from front to back in large steps, and searching it for a marker.
//!
//! A disk that cannot read one place of a file refuses the whole read that touches it. So what is asked for is read
//! alone then: it costs only what lies in that place.

use std::io;

use env::disk::File;

use crate::checksum::Running;
use crate::log::frame::Marker;

/// What is read at once. Small frames are read hundreds at a time; of large ones only the headers'
/// surroundings are.
const WINDOW_BYTES: usize = 64 * 1024;
/// What of a payload is read at once to be checked: so much goes past the system's cache.
const PAYLOAD_BYTES: usize = env::disk::BULK_BYTES_MIN;
/// What a disk reads or refuses at once: no bad place is smaller.
pub(crate) const SECTOR_BYTES: u64 = 4096;
/// What Linux says of a bad place: EIO, ENODATA (where the read went past its cache), EILSEQ (the disk's own checksum).
const BAD_PLACE: [i32; 3] = [5, 61, 84];

/// A part of a file in memory, moved along as it is read.
pub(crate) struct Window<'a> {
    file: &'a dyn File,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
    /// Whether it goes past bad places, and behind the last of those that it met.
    passing: bool,
    bad_end: Option<u64>,
}

/// Whether a read failed because of a bad place in a file of `len` bytes, and not because the disk answers nothing: then any of a
/// few bytes far from each other can be read, or something of another file. All of a short file may lie in one bad sector.
pub(crate) fn is_bad_place(file: &dyn File, len: u64, error: &io::Error) -> bool {
    let answers = |at: u64| file.read_once_at(at, &mut [0]).is_ok();
    error.raw_os_error().is_some_and(|number| BAD_PLACE.contains(&number))
        && ([0, len / 2, len.saturating_sub(1)].into_iter().any(answers) || file.others_answer())
}

impl<'a> Window<'a> {
    /// A window over the first `len` bytes of `file`.
    pub(crate) fn new(file: &'a dyn File, len: u64) -> Self {
        Self { file, len, start: 0, bytes: Vec::new(), passing: false, bad_end: None }
    }

    /// One that goes past bad places.
    pub(crate) fn passing(file: &'a dyn File, len: u64) -> Self {
        Self { passing: true, ..Self::new(file, len) }
    }

    /// Goes on behind a read up to `end` that failed.
    ///
    /// # Errors
    /// That of the read, where it is not to go past it.
    pub(crate) fn pass(&mut self, error: io::Error, end: u64) -> io::Result<()> {
        if !self.passing || !is_bad_place(self.file, self.len, &error) {
            return Err(error);
        }
        self.bad_end = Some(self.bad_end.unwrap_or(0).max(end));
        Ok(())
    }

    /// Behind the last bad place that it went past.
    pub(crate) fn bad_end(&self) -> Option<u64> {
        self.bad_end
    }

    /// The bytes from `offset` on: `want` of them, or as many as there are before the end.
    pub(crate) fn at(&mut self, offset: u64, want: usize) -> io::Result<&[u8]> {
        let there = self.len.saturating_sub(offset);
        let want = want.min(usize::try_from(there).unwrap_or(usize::MAX));
        let end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + want as u64 > end {
            let take = usize::try_from(there).unwrap_or(usize::MAX).min(WINDOW_BYTES.max(want));
            match self.fill(offset, take) {
                Err(_) if want < take => self.fill(offset, want)?,
                filled => filled?,
            }
        }
        // The window covers the range: it did before, or was moved to begin at `offset`.
        let from = (offset - self.start) as usize;
        Ok(&self.bytes[from..from + want])
    }

    fn fill(&mut self, offset: u64, take: usize) -> io::Result<()> {
        self.bytes.resize(take, 0);
        self.start = offset;
        let read = self.file.read_once_at(offset, &mut self.bytes);
        if read.is_err() {
            self.bytes.clear();
        }
        read
    }

    /// The CRC-32C of `length` bytes from `offset` on, all of which lie in the file.
    pub(crate) fn crc(&mut self, mut offset: u64, length: u64) -> io::Result<u32> {
        let end = offset + length;
        let mut crc = Running::default();
        while offset < end {
            let want = (end - offset).min(PAYLOAD_BYTES as u64) as usize;
            let part = self.at(offset, want)?;
            if part.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            crc.add(part);
            offset += part.len() as u64;
        }
        Ok(crc.so_far())
    }

    /// Where `marker` is next, at `from` or behind it.
    pub(crate) fn find(&mut self, mut from: u64, marker: &Marker) -> io::Result<Option<u64>> {
        let len = marker.len() as u64;
        let mut want = WINDOW_BYTES;
        while from + len <= self.len {
            let sector_end = (from / SECTOR_BYTES + 1) * SECTOR_BYTES;
            match self.at(from, want) {
                Ok(part) => {
                    let found = part.windows(marker.len()).position(|bytes| bytes == marker);
                    if let Some(at) = found {
                        return Ok(Some(from + at as u64));
                    }
                    // A marker may begin in the last seven bytes and end in the next part.
                    from += part.len() as u64 - (len - 1);
                    want = WINDOW_BYTES;
                }
                // A sector at a time, till it is known which of them are bad.
                Err(error) if want == WINDOW_BYTES && from + len <= sector_end => {
                    self.pass(error, from)?;
                    want = (sector_end - from) as usize;
                }
                Err(error) => {
                    self.pass(error, sector_end)?;
                    from = sector_end;
                    want = WINDOW_BYTES;
                }
            }
        }
        Ok(None)
    }
}
