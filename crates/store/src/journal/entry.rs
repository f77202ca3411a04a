//! The frame around a journal's entry.
//!
//! ```text
//! 0   marker       8   the segment's
//! 8   offset       8
//! 16  time         8   Unix milliseconds
//! 24  length       4
//! 28  payload crc  4   CRC-32C
//! 32  header crc   4   CRC-32C of the 32 bytes before it
//! 36  payload
//! ```

use super::ENTRY_BYTES_MAX;
use crate::checksum::crc32c;
use crate::log::frame::{Marker, be32, be64};
use crate::scan::FrameHeader;

/// Bytes before an entry's payload.
pub(crate) const ENTRY_HEADER_BYTES: usize = 36;

/// What an entry's frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    pub offset: u64,
    pub unix_ms: u64,
    pub length: u32,
    pub payload_crc: u32,
}

impl EntryHeader {
    pub(crate) fn encode(&self, marker: &Marker, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend_from_slice(marker);
        into.extend_from_slice(&self.offset.to_be_bytes());
        into.extend_from_slice(&self.unix_ms.to_be_bytes());
        into.extend_from_slice(&self.length.to_be_bytes());
        into.extend_from_slice(&self.payload_crc.to_be_bytes());
        let crc = crc32c(&into[start..]);
        into.extend_from_slice(&crc.to_be_bytes());
    }
}

impl FrameHeader for EntryHeader {
    const BYTES_MAX: usize = ENTRY_HEADER_BYTES;

    fn decode(marker: &Marker, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..ENTRY_HEADER_BYTES)?;
        let header = Self {
            offset: be64(&bytes[8..16]),
            unix_ms: be64(&bytes[16..24]),
            length: be32(&bytes[24..28]),
            payload_crc: be32(&bytes[28..32]),
        };
        let valid = bytes[..8] == *marker
            && crc32c(&bytes[..32]) == be32(&bytes[32..])
            && header.length as usize <= ENTRY_BYTES_MAX;
        valid.then_some(header)
    }

    fn header_len(&self) -> u64 {
        ENTRY_HEADER_BYTES as u64
    }

    fn payload_len(&self) -> u64 {
        self.length.into()
    }

    fn payload_crc(&self) -> u32 {
        self.payload_crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_which_every_bit_counts() {
        let marker = *b"\x01\x23\x45\x67\x89\xab\xcd\xef";
        let payload_crc = crc32c(b"hello");
        let header = EntryHeader { offset: 7, unix_ms: 0x0102_0304_0506, length: 5, payload_crc };
        let mut bytes = Vec::new();
        header.encode(&marker, &mut bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "0123456789abcdef00000000000000070000010203040506000000059a71bb4cb52faa49");
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(EntryHeader::decode(&marker, &bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(EntryHeader::decode(&marker, &bytes), Some(header));
    }
}
