//! Reading a file from front to back in large steps, and searching it for a marker.

use std::io;

use env::disk::File;

use crate::checksum::Running;
use crate::log::frame::Marker;

/// What is read at once. Small frames are read hundreds at a time; of large ones only the headers'
/// surroundings are.
const WINDOW_BYTES: usize = 64 * 1024;
/// What of a payload is read at once to be checked: so much goes past the system's cache.
const PAYLOAD_BYTES: usize = env::disk::BULK_BYTES_MIN;

/// A part of a file in memory, moved along as it is read.
pub(crate) struct Window<'a> {
    file: &'a dyn File,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    /// A window over the first `len` bytes of `file`.
    pub(crate) fn new(file: &'a dyn File, len: u64) -> Self {
        Self { file, len, start: 0, bytes: Vec::new() }
    }

    /// The bytes from `offset` on: `want` of them, or as many as there are before the end.
    pub(crate) fn at(&mut self, offset: u64, want: usize) -> io::Result<&[u8]> {
        let there = self.len.saturating_sub(offset);
        let want = want.min(usize::try_from(there).unwrap_or(usize::MAX));
        let end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + want as u64 > end {
            let take = usize::try_from(there).unwrap_or(usize::MAX).min(WINDOW_BYTES.max(want));
            self.bytes.resize(take, 0);
            self.start = offset;
            if let Err(error) = self.file.read_once_at(offset, &mut self.bytes) {
                self.bytes.clear();
                return Err(error);
            }
        }
        // The window covers the range: it did before, or was moved to begin at `offset`.
        let from = (offset - self.start) as usize;
        Ok(&self.bytes[from..from + want])
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
        while from + marker.len() as u64 <= self.len {
            let part = self.at(from, WINDOW_BYTES)?;
            if let Some(at) = part.windows(marker.len()).position(|bytes| bytes == marker) {
                return Ok(Some(from + at as u64));
            }
            // A marker may begin in the last seven bytes and end in the next part.
            from += (part.len() - (marker.len() - 1)) as u64;
        }
        Ok(None)
    }
}
