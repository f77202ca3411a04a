//! Parity: a fragment that is no page, and its encoding written and compared without copying its bytes.
//!
//! ```text
//! 22 len | 08 index | 12 len | bytes
//! `---------- head --------´
//! ```
//! Three parity fragments of 2 MiB go with each page of a large network's default stripe. Their bytes are
//! computed where they will lie in the record ([`ParityBuffer`]), decoding shares them with it, and the
//! canonical check compares the head alone.

use bytes::Bytes;
use crypto::{HASHED_BYTES, HashState, RecordId, Suite};
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::page::ENCODED_BYTES_MAX;
use crate::stripe::FRAGMENTS_MAX;
use crate::{DocumentError, Kind, Record, wire};

/// The longest head.
const HEAD_BYTES_MAX: usize = 16;
/// The first byte of an encoded parity: field 4 of `Document`, length-delimited.
pub(crate) const FIRST_BYTE: u8 = 4 << 3 | 2;

/// A parity fragment: what the erasure code made of a stripe's encoded pages.
#[derive(Clone, PartialEq, Eq)]
pub struct Parity {
    /// The fragment's number, from k to n-1.
    pub index: u32,
    /// Its bytes, as many as the longest encoded page of the stripe has.
    pub bytes: Bytes,
}

impl Parity {
    pub(crate) fn from_wire(wire: wire::Parity) -> Result<Self, DocumentError> {
        if !(1..FRAGMENTS_MAX as u32).contains(&wire.index) {
            return Err(DocumentError::Field("parity index"));
        }
        if !(1..=ENCODED_BYTES_MAX).contains(&wire.bytes.len()) {
            return Err(DocumentError::Field("parity bytes"));
        }
        Ok(Self { index: wire.index, bytes: wire.bytes })
    }

    /// The encoded `Document`, whose bytes are copied once.
    pub(crate) fn encode(&self) -> Bytes {
        [&head(self.index, self.bytes.len())[..], &self.bytes].concat().into()
    }
}

impl std::fmt::Debug for Parity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parity({}, {} bytes)", self.index, self.bytes.len())
    }
}

/// Room for a parity fragment, to be computed where it will lie in its record.
pub struct ParityBuffer {
    buffer: Vec<u8>,
    head_bytes: usize,
    /// How many there will be behind the head.
    bytes: usize,
    /// What is hashed already, and how many bytes that is.
    hashed: Option<(HashState, usize)>,
}

impl ParityBuffer {
    /// Zeros for the parity fragment `index` of a stripe whose longest encoded page has `bytes` bytes.
    ///
    /// # Errors
    /// [`DocumentError::Field`] for numbers that no stripe has.
    pub fn new(index: u32, bytes: usize) -> Result<Self, DocumentError> {
        let mut buffer = Self::empty(index, bytes)?;
        buffer.grow(bytes);
        Ok(buffer)
    }

    /// The same, with nothing in it yet: [`ParityBuffer::grow`] adds zeros a part at a time, which are written over while they
    /// are in the processor's cache. All at once, they were a thirtieth of an author's processor time.
    ///
    /// # Errors
    /// As [`ParityBuffer::new`].
    pub fn empty(index: u32, bytes: usize) -> Result<Self, DocumentError> {
        if !(1..FRAGMENTS_MAX as u32).contains(&index) {
            return Err(DocumentError::Field("parity index"));
        }
        if !(1..=ENCODED_BYTES_MAX).contains(&bytes) {
            return Err(DocumentError::Field("parity bytes"));
        }
        let head = head(index, bytes);
        let mut buffer = Vec::with_capacity(head.len() + bytes);
        buffer.extend_from_slice(&head);
        Ok(Self { buffer, head_bytes: head.len(), bytes, hashed: None })
    }

    /// The next `more` bytes, zeros.
    ///
    /// # Panics
    /// Where that is beyond the length it was made for.
    pub fn grow(&mut self, more: usize) -> &mut [u8] {
        let start = self.buffer.len();
        let end = start + more;
        assert!(end <= self.head_bytes + self.bytes, "parity is as long as the longest page");
        self.buffer.resize(end, 0);
        &mut self.buffer[start..]
    }

    /// Where the code writes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.hashed = None;
        &mut self.buffer[self.head_bytes..]
    }

    /// Takes what is there into the id of the record, in whole [`HASHED_BYTES`]: while it is in the processor's cache.
    pub fn hash(&mut self, suite: Suite) {
        let (state, hashed) = self.hashed.get_or_insert_with(|| (suite.hash_state(), 0));
        for part in self.buffer[*hashed..].chunks_exact(HASHED_BYTES) {
            state.update(part);
            *hashed += part.len();
        }
    }

    /// The record of what is written, whose id is computed: CPU work of a fraction of a millisecond for
    /// 2 MiB, less what [`ParityBuffer::hash`] took, in the same suite. Its place is the stripe's, which
    /// [`crate::Stripe::of`] sets; until then it is its id.
    ///
    /// # Panics
    /// Where not all of it is there.
    pub fn record(self, suite: Suite) -> Record {
        assert_eq!(self.buffer.len(), self.head_bytes + self.bytes, "all of the parity is there");
        let (mut state, hashed) = self.hashed.unwrap_or_else(|| (suite.hash_state(), 0));
        state.update(&self.buffer[hashed..]);
        let id = RecordId::new(state.finish());
        Record::of_hashed(id, Kind::Parity, self.buffer.into())
    }
}

impl std::fmt::Debug for ParityBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ParityBuffer({} bytes)", self.buffer.len() - self.head_bytes)
    }
}

/// What stands before so many bytes of parity. The index is never 0, so it is always written.
fn head(index: u32, bytes: usize) -> Vec<u8> {
    let length = bytes as u64;
    let index_bytes = 1 + encoded_len_varint(u64::from(index));
    let inner = index_bytes + 1 + encoded_len_varint(length) + bytes;
    let mut out = Vec::with_capacity(HEAD_BYTES_MAX);
    out.push(FIRST_BYTE);
    encode_varint(inner as u64, &mut out);
    out.push(0x08);
    encode_varint(u64::from(index), &mut out);
    out.push(0x12);
    encode_varint(length, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::Document;
    use crate::record::DOCUMENT_BYTES_MAX;

    /// The hand-written encoding is protobuf's, at every width of the varints, and so is the buffer's.
    #[test]
    fn it_writes_what_protobuf_writes() {
        for index in [1, 16, 127, 128, 255] {
            for length in [1, 127, 128, 16_383, 16_384, ENCODED_BYTES_MAX] {
                let parity = Parity { index, bytes: vec![7; length].into() };
                let wire = wire::Parity { index, bytes: parity.bytes.clone() };
                let contents = Some(wire::Contents::Parity(wire));
                let protobuf = Bytes::from(wire::Document { contents }.encode_to_vec());
                assert!(parity.encode() == protobuf, "index {index}, {length} bytes");
                assert!(protobuf.len() <= DOCUMENT_BYTES_MAX);
                let mut buffer = ParityBuffer::new(index, length).expect("within bounds");
                buffer.bytes_mut().fill(7);
                let record = buffer.record(Suite::Holdfast1);
                assert!(record.bytes == protobuf && record.kind == Kind::Parity);
                assert_eq!(record.id, Suite::Holdfast1.id(&protobuf));
                assert_eq!(Document::decode(&protobuf).expect("its own"), Document::Parity(parity));
            }
        }
    }

    /// Hashed as it grows, whatever the steps, or not: the id is that of the bytes.
    #[test]
    fn an_id_that_is_computed_in_parts_is_the_bytes_id() {
        let lengths = [1, HASHED_BYTES - 16, HASHED_BYTES, 3 * HASHED_BYTES + 5, ENCODED_BYTES_MAX];
        for suite in Suite::ALL {
            for (length, step) in lengths.into_iter().zip([1, 1_000, 70_000, HASHED_BYTES, 1 << 20])
            {
                let mut buffer = ParityBuffer::empty(4, length).expect("within bounds");
                for from in (0..length).step_by(step) {
                    let part = buffer.grow(step.min(length - from));
                    part.iter_mut().zip(from..).for_each(|(byte, at)| *byte = (at % 251) as u8);
                    buffer.hash(suite);
                }
                let record = buffer.record(suite);
                assert_eq!(record.id, suite.id(&record.bytes), "{length} bytes by {step}");
            }
            let mut changed = ParityBuffer::new(4, 2 * HASHED_BYTES).expect("within bounds");
            changed.hash(suite);
            changed.bytes_mut().fill(1);
            let record = changed.record(suite);
            assert_eq!(record.id, suite.id(&record.bytes), "what changed is hashed again");
        }
    }

    #[test]
    fn no_buffer_is_made_for_what_no_stripe_has() {
        for (index, bytes) in [(0, 9), (256, 9), (u32::MAX, 9), (4, 0), (4, ENCODED_BYTES_MAX + 1)]
        {
            assert!(ParityBuffer::new(index, bytes).is_err(), "{index} {bytes}");
        }
    }
}
