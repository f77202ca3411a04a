//! A page: one sealed chunk, and its encoding written and compared without copying the ciphertext.
//!
//! ```text
//! 1a len | 0a 21 author 33 | [10 index] | 1a len | ciphertext | 22 20 mac 32
//! `------------------- head -------------------´               `-- tail ---´
//! ```
//! Almost all bytes of the network are pages of 2 MiB. Decoding shares the ciphertext with the record,
//! and the canonical check compares head and tail with what this module would write: re-encoding the
//! whole would copy every byte once more.

use bytes::Bytes;
use crypto::{AuthorKey, Mac};
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::DocumentError;
use crate::fields;
use crate::record::CHUNK_BYTES_MAX;
use crate::wire;

/// The shortest ciphertext: a tag over nothing.
pub const CIPHERTEXT_BYTES_MIN: usize = crypto::seal::TAG_BYTES;
/// The longest ciphertext: a codec byte, a chunk and a tag.
pub const CIPHERTEXT_BYTES_MAX: usize = 1 + CHUNK_BYTES_MAX + crypto::seal::TAG_BYTES;
/// The longest encoded page, in bytes, at the widest index.
pub const ENCODED_BYTES_MAX: usize = 51 + CIPHERTEXT_BYTES_MAX + TAIL_BYTES;
/// The longest head.
pub(crate) const HEAD_BYTES_MAX: usize = 64;
/// The tail's length.
pub(crate) const TAIL_BYTES: usize = 34;
/// The first byte of an encoded page: field 3 of `Document`, length-delimited.
pub(crate) const FIRST_BYTE: u8 = 3 << 3 | 2;

/// One sealed chunk of a content.
#[derive(Clone, PartialEq, Eq)]
pub struct Page {
    /// Who sealed it.
    pub author: AuthorKey,
    /// Which chunk it is; list pages count from 2^31.
    pub index: u32,
    /// The sealed chunk with its tag.
    pub ciphertext: Bytes,
    /// The MAC of `ciphertext` under the entry's MAC key.
    pub mac: Mac,
}

impl Page {
    pub(crate) fn from_wire(wire: wire::Page) -> Result<Self, DocumentError> {
        let bounds = CIPHERTEXT_BYTES_MIN..=CIPHERTEXT_BYTES_MAX;
        if !bounds.contains(&wire.ciphertext.len()) {
            return Err(DocumentError::Field("page ciphertext"));
        }
        Ok(Self {
            author: AuthorKey::from_slice(&wire.author)?,
            index: wire.index,
            ciphertext: wire.ciphertext,
            mac: fields::fixed(&wire.mac, "page MAC")?,
        })
    }

    pub(crate) fn to_wire(&self) -> wire::Page {
        wire::Page {
            author: Bytes::copy_from_slice(self.author.as_bytes()),
            index: self.index,
            ciphertext: self.ciphertext.clone(),
            mac: Bytes::copy_from_slice(&self.mac),
        }
    }

    /// The encoded `Document`, whose ciphertext is copied once.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(HEAD_BYTES_MAX + self.ciphertext.len() + TAIL_BYTES);
        out.extend_from_slice(&head(&self.author, self.index, self.ciphertext.len()));
        out.extend_from_slice(&self.ciphertext);
        out.extend_from_slice(&tail(&self.mac));
        out.into()
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Page({}, {} bytes)", self.index, self.ciphertext.len())
    }
}

/// What stands before a ciphertext of this length.
pub(crate) fn head(author: &AuthorKey, index: u32, ciphertext_bytes: usize) -> Vec<u8> {
    let length = ciphertext_bytes as u64;
    let index_bytes = if index == 0 { 0 } else { 1 + encoded_len_varint(u64::from(index)) };
    let inner = 35 + index_bytes + 1 + encoded_len_varint(length) + ciphertext_bytes + TAIL_BYTES;
    let mut out = Vec::with_capacity(HEAD_BYTES_MAX);
    out.push(FIRST_BYTE);
    encode_varint(inner as u64, &mut out);
    out.extend_from_slice(&[0x0a, 33]);
    out.extend_from_slice(author.as_bytes());
    if index != 0 {
        out.push(0x10);
        encode_varint(u64::from(index), &mut out);
    }
    out.push(0x1a);
    encode_varint(length, &mut out);
    out
}

/// What stands after a ciphertext with this MAC.
pub(crate) fn tail(mac: &Mac) -> [u8; TAIL_BYTES] {
    let mut out = [0; TAIL_BYTES];
    out[..2].copy_from_slice(&[0x22, 32]);
    out[2..].copy_from_slice(mac);
    out
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    /// The hand-written encoding is protobuf's, at every width of the two varints.
    #[test]
    fn it_writes_what_protobuf_writes() {
        let author = crypto::SecretKey::from_bytes(&[1; 32]).expect("small").public();
        for index in [0, 1, 127, 128, 1 << 14, 1 << 31, u32::MAX] {
            for length in [16, 127, 128, 16_383, 16_384, CIPHERTEXT_BYTES_MAX] {
                let page = Page {
                    author: author.into(),
                    index,
                    ciphertext: vec![7; length].into(),
                    mac: [9; 32],
                };
                let contents = Some(wire::Contents::Page(page.to_wire()));
                let protobuf = wire::Document { contents }.encode_to_vec();
                assert!(page.encode() == protobuf, "index {index}, {length} bytes");
                assert!(head(&page.author, index, length).len() <= HEAD_BYTES_MAX);
                assert!(protobuf.len() <= ENCODED_BYTES_MAX);
                let widest = index >= 1 << 31 && length == CIPHERTEXT_BYTES_MAX;
                assert_eq!(protobuf.len() == ENCODED_BYTES_MAX, widest);
            }
        }
    }
}
