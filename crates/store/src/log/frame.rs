//! The frame around a record in the log: who it is, how long it is, and the checksums of both.
//!
//! ```text
//! 0   marker         8   the segment's random marker
//! 8   kind           1   the record's kind; 0 in a removal and in a filler
//! 9   flags          1   bit 0: a removal; bit 1: the place follows; bit 2: the payload is a form; bit 3: a filler
//! 10  zero           2
//! 12  payload length 4
//! 16  id            32   zeros in a filler
//! 48  payload crc    4   CRC-32C of the payload; 0 in a removal
//! 52  place         32   only where it is not the id
//! ..  header crc     4   CRC-32C of all before it
//! ..  payload
//! ```
//!
//! Header and payload have checksums of their own, so that a damaged payload still tells where the
//! next frame begins, and a damaged header leaves the frames behind it findable by their marker.
//! The marker is random and secret to the peer: a record is bytes chosen by a stranger, and with a
//! fixed magic number it could hold a forged frame that a search would take for one.
//!
//! A filler is a frame that says nothing. One stands before a large record so that its payload leaves the same rest in the
//! file as in memory, and is written from where it lies ([`filler_before`]); one before the first frame of its batch, up to where
//! that may begin past the cache; one behind the last, up to where the next may. Of the one before the first a power cut may leave
//! zeros though it keeps what is behind it.
//!
//! Integers are big-endian.

use crypto::{Place, RecordId};
use document::Kind;
use env::disk::WRITE_ALIGNMENT;

use crate::RECORD_BYTES_MAX;
use crate::checksum::crc32c;
use crate::scan::FrameHeader;

/// Bytes of a header without a place.
pub(crate) const HEADER_BYTES: usize = 56;
/// Bytes of a header with a place.
pub(crate) const HEADER_BYTES_MAX: usize = HEADER_BYTES + 32;

const REMOVAL: u8 = 1;
const PLACED: u8 = 2;
const FORM: u8 = 4;
const FILLER: u8 = 8;

/// Bytes of a filler at most, header and all.
pub(crate) const FILLER_BYTES_MAX: usize = 2 * WRITE_ALIGNMENT;

/// What fillers hold.
pub(crate) static ZEROS: [u8; FILLER_BYTES_MAX] = [0; FILLER_BYTES_MAX];

/// What opens every frame of one segment.
pub(crate) type Marker = [u8; 8];

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The record, or the one that is removed.
    pub id: RecordId,
    pub content: Content,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A record follows.
    /// Of a form (`crate::form`) the payload stands for the record's bytes.
    Record { kind: Kind, place: Place, length: u32, payload_crc: u32, form: bool },
    /// The record is gone.
    Removal,
    /// So many zeros, of no record.
    Filler { length: u32 },
}

impl Header {
    /// Bytes of the encoded header.
    pub(crate) fn len(&self) -> usize {
        if self.placed() { HEADER_BYTES_MAX } else { HEADER_BYTES }
    }

    /// Bytes of the payload.
    pub(crate) fn payload_bytes(&self) -> u32 {
        match self.content {
            Content::Record { length, .. } | Content::Filler { length } => length,
            Content::Removal => 0,
        }
    }

    /// A filler of so many bytes, header and all.
    ///
    /// # Panics
    /// Where that is less than [`HEADER_BYTES`] or over [`FILLER_BYTES_MAX`].
    pub(crate) fn filler(bytes: usize) -> Self {
        assert!((HEADER_BYTES..=FILLER_BYTES_MAX).contains(&bytes), "no filler has {bytes} bytes");
        let length = (bytes - HEADER_BYTES) as u32;
        Self { id: RecordId::new([0; 32]), content: Content::Filler { length } }
    }

    /// Bytes of header and payload.
    pub(crate) fn frame_len(&self) -> u64 {
        self.len() as u64 + u64::from(self.payload_bytes())
    }

    pub(crate) fn placed(&self) -> bool {
        matches!(self.content, Content::Record { place, .. } if place != Place::from(self.id))
    }

    /// Appends the encoded header.
    pub(crate) fn encode(&self, marker: &Marker, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend_from_slice(marker);
        let (kind, flags, length, payload_crc) = match self.content {
            Content::Record { kind, length, payload_crc, form, .. } => {
                let placed = if self.placed() { PLACED } else { 0 };
                (kind.number(), placed | if form { FORM } else { 0 }, length, payload_crc)
            }
            Content::Removal => (0, REMOVAL, 0, 0),
            Content::Filler { length } => (0, FILLER, length, zeros_crc(length)),
        };
        into.extend_from_slice(&[kind, flags, 0, 0]);
        into.extend_from_slice(&length.to_be_bytes());
        into.extend_from_slice(self.id.as_bytes());
        into.extend_from_slice(&payload_crc.to_be_bytes());
        if let Content::Record { place, .. } = self.content
            && self.placed()
        {
            into.extend_from_slice(place.as_bytes());
        }
        let crc = crc32c(&into[start..]);
        into.extend_from_slice(&crc.to_be_bytes());
    }

    /// The header at the start of `bytes`, which may go on behind it, with whatever marker it has:
    /// for a frame whose position is known. `None` where there is none, where it is cut off or
    /// where a single byte is not as it was written (the marker too: the checksum covers it).
    pub(crate) fn decode_unmarked(bytes: &[u8]) -> Option<Self> {
        let flags = *bytes.get(9)?;
        let len = if flags & PLACED == 0 { HEADER_BYTES } else { HEADER_BYTES_MAX };
        let bytes = bytes.get(..len)?;
        let (covered, crc) = bytes.split_at(len - 4);
        if crc32c(covered).to_be_bytes() != crc {
            return None;
        }
        let id = RecordId::from_slice(&bytes[16..48]).ok()?;
        let length = be32(&bytes[12..16]);
        let payload_crc = be32(&bytes[48..52]);
        // A valid checksum over values this release does not write is a newer release's or a
        // forgery: not a frame.
        let content = match flags {
            REMOVAL if bytes[8] == 0 && length == 0 && payload_crc == 0 => Content::Removal,
            FILLER
                if bytes[8] == 0
                    && id.as_bytes() == &[0; 32]
                    && length as usize <= FILLER_BYTES_MAX - HEADER_BYTES
                    && payload_crc == zeros_crc(length) =>
            {
                Content::Filler { length }
            }
            // Versions alone have forms.
            _ if flags & !(PLACED | FORM) == 0
                && (flags & FORM == 0 || bytes[8] == Kind::Version.number())
                && length as usize <= RECORD_BYTES_MAX =>
            {
                Content::Record {
                    kind: Kind::from_number(bytes[8].into())?,
                    place: match flags & PLACED {
                        0 => Place::from(id),
                        _ => Place::from_slice(&bytes[52..84]).ok()?,
                    },
                    length,
                    payload_crc,
                    form: flags & FORM != 0,
                }
            }
            _ => return None,
        };
        (bytes[10..12] == [0, 0]).then_some(Self { id, content })
    }
}

impl FrameHeader for Header {
    const BYTES_MAX: usize = HEADER_BYTES_MAX;
    const UNWRITTEN_BYTES_MAX: u64 = FILLER_BYTES_MAX as u64;

    fn decode(marker: &Marker, bytes: &[u8]) -> Option<Self> {
        if bytes.get(..8)? == marker { Self::decode_unmarked(bytes) } else { None }
    }

    fn header_len(&self) -> u64 {
        self.len() as u64
    }

    fn payload_len(&self) -> u64 {
        self.payload_bytes().into()
    }

    /// A removal has an empty payload, whose checksum is 0.
    fn payload_crc(&self) -> u32 {
        match self.content {
            Content::Record { payload_crc, .. } => payload_crc,
            Content::Removal => 0,
            Content::Filler { length } => zeros_crc(length),
        }
    }

    /// A filler of which the front, up to the first multiple of [`WRITE_ALIGNMENT`] in the file, is zeros from some byte on.
    fn unwritten(marker: &Marker, offset: u64, bytes: &[u8]) -> Option<Self> {
        if !(HEADER_BYTES..=FILLER_BYTES_MAX).contains(&bytes.len()) {
            return None;
        }
        let header = Self::filler(bytes.len());
        let mut wanted = Vec::with_capacity(bytes.len());
        header.encode(marker, &mut wanted);
        wanted.resize(bytes.len(), 0);
        let ahead = offset.next_multiple_of(WRITE_ALIGNMENT as u64) - offset;
        let ahead = usize::try_from(ahead).ok()?.min(bytes.len());
        let written = wanted.iter().zip(bytes).take_while(|(wanted, found)| wanted == found);
        let written = written.count().min(ahead);
        let lost = bytes[written..ahead].iter().all(|byte| *byte == 0);
        (lost && bytes[ahead..] == wanted[ahead..]).then_some(header)
    }
}

/// The CRC-32C of so many zeros, at most [`FILLER_BYTES_MAX`].
fn zeros_crc(length: u32) -> u32 {
    crc32c(&ZEROS[..(length as usize).min(FILLER_BYTES_MAX)])
}

/// Bytes of the filler that shifts what follows by `by`, or by so much more that it is a multiple of `period`: none, or enough
/// for a header. `period` is at most 4096, and `by` less.
pub(crate) fn filler_before(by: usize, period: usize) -> usize {
    match by {
        0 => 0,
        by => by + HEADER_BYTES.saturating_sub(by).next_multiple_of(period),
    }
}

/// The big-endian number in four bytes.
pub(crate) fn be32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// The big-endian number in eight bytes.
pub(crate) fn be64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
