//! The head of every log and journal file: what it is, which one, and the marker of its frames,
//! twice.
//!
//! ```text
//! 0   magic    8   HOLDFLOG or HOLDFJNL
//! 8   version  2   1
//! 10  suite    1   1 holdfast-1, 2 libri-1; 0 in a journal
//! 11  zero     1
//! 12  number   8   the segment's number; a journal segment's first offset
//! 20  marker   8   random
//! 28  crc      4   CRC-32C of the 28 bytes before it
//! 32  all of it again
//! ```
//!
//! It is there twice, because without the marker no frame of the file can be found by searching. Both lie in one sector of the
//! disk: the marker of a segment is in its index file too (`log::index_file`). The head
//! is synced before the first frame is written, so after a power cut a file without a valid copy
//! holds nothing that was acknowledged.

use std::io;

use crypto::Suite;
use env::disk::File;

use crate::checksum::crc32c;
use crate::log::frame::{Marker, be32, be64};

/// Bytes before the first frame of a file.
pub(crate) const FILE_HEADER_BYTES: u64 = 64;

const COPY_BYTES: usize = 32;
const VERSION: u16 = 1;

/// Which family a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// A segment of the record log, of a network with this suite.
    Log(Suite),
    /// A segment of a journal.
    Journal,
}

impl Family {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Log(_) => b"HOLDFLOG",
            Self::Journal => b"HOLDFJNL",
        }
    }

    /// The suite's number; 0 for none.
    pub(crate) fn suite_number(self) -> u8 {
        match self {
            Self::Log(Suite::Holdfast1) => 1,
            Self::Log(Suite::Libri1) => 2,
            Self::Journal => 0,
        }
    }
}

/// What the head of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub number: u64,
    pub marker: Marker,
}

/// What was found at the head of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// A header; `whole` where both copies are good.
    Valid { header: FileHeader, whole: bool },
    /// A good header of another release, family or suite.
    Foreign,
    /// No good copy.
    Damaged,
    /// The disk cannot read it.
    Unread,
}

impl FileHeader {
    pub(crate) fn encode(&self, family: Family) -> [u8; FILE_HEADER_BYTES as usize] {
        let mut copy = Vec::with_capacity(COPY_BYTES);
        copy.extend_from_slice(family.magic());
        copy.extend_from_slice(&VERSION.to_be_bytes());
        copy.extend_from_slice(&[family.suite_number(), 0]);
        copy.extend_from_slice(&self.number.to_be_bytes());
        copy.extend_from_slice(&self.marker);
        let crc = crc32c(&copy);
        copy.extend_from_slice(&crc.to_be_bytes());
        let mut both = [0; FILE_HEADER_BYTES as usize];
        both[..COPY_BYTES].copy_from_slice(&copy);
        both[COPY_BYTES..].copy_from_slice(&copy);
        both
    }

    /// Reads the head of a file of `len` bytes.
    pub(crate) fn read(file: &dyn File, len: u64, family: Family) -> io::Result<Head> {
        let mut bytes = [0; FILE_HEADER_BYTES as usize];
        if len < FILE_HEADER_BYTES {
            return Ok(Head::Damaged);
        }
        file.read_at(0, &mut bytes)?;
        Ok(Self::decode(&bytes, family))
    }

    pub(crate) fn decode(bytes: &[u8; FILE_HEADER_BYTES as usize], family: Family) -> Head {
        let (first, second) = bytes.split_at(COPY_BYTES);
        let whole = first == second;
        let valid = |copy: &&[u8]| crc32c(&copy[..28]) == be32(&copy[28..]);
        let Some(copy) = [first, second].into_iter().find(valid) else { return Head::Damaged };
        let ours = copy[..8] == *family.magic()
            && copy[8..10] == VERSION.to_be_bytes()
            && copy[10] == family.suite_number()
            && copy[11] == 0;
        if !ours {
            return Head::Foreign;
        }
        let mut marker = [0; 8];
        marker.copy_from_slice(&copy[20..28]);
        Head::Valid { header: Self { number: be64(&copy[12..20]), marker }, whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: FileHeader =
        FileHeader { number: 7, marker: *b"\x01\x23\x45\x67\x89\xab\xcd\xef" };
    const LOG: Family = Family::Log(Suite::Holdfast1);

    #[test]
    fn golden_bytes() {
        let copy = b"HOLDFLOG\0\x01\x01\0\0\0\0\0\0\0\0\x07\x01\x23\x45\x67\x89\xab\xcd\xef";
        let mut wanted = copy.to_vec();
        wanted.extend_from_slice(&GOLDEN_CRC.to_be_bytes());
        wanted.extend_from_within(..);
        assert_eq!(HEADER.encode(LOG).to_vec(), wanted);
    }

    /// CRC-32C (Castagnoli), as RFC 3720 has it.
    const GOLDEN_CRC: u32 = 0xa1981923;

    #[test]
    fn one_damaged_copy_is_no_loss_and_two_are() {
        let good = HEADER.encode(LOG);
        assert_eq!(FileHeader::decode(&good, LOG), Head::Valid { header: HEADER, whole: true });
        for at in 0..64 {
            let mut bytes = good;
            bytes[at] ^= 0x10;
            let head = FileHeader::decode(&bytes, LOG);
            assert_eq!(head, Head::Valid { header: HEADER, whole: false }, "{at}");
            bytes[(at + 32) % 64] ^= 0x10;
            assert_eq!(FileHeader::decode(&bytes, LOG), Head::Damaged, "{at}");
        }
    }

    #[test]
    fn another_suite_family_or_release_is_foreign() {
        let good = HEADER.encode(LOG);
        for family in [Family::Log(Suite::Libri1), Family::Journal] {
            assert_eq!(FileHeader::decode(&good, family), Head::Foreign);
        }
        let mut newer = good[..28].to_vec();
        newer[9] = 2;
        newer.extend_from_slice(&crc32c(&newer).to_be_bytes());
        newer.extend_from_within(..);
        let newer = newer.try_into().expect("64 bytes");
        assert_eq!(FileHeader::decode(&newer, LOG), Head::Foreign);
    }
}
