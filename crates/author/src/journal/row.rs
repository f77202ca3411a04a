//! What a journal says: a header, then rows, each of a fixed length.
//!
//! Fixed lengths, so that no length field can be damaged: a journal that ends early lost what was never synced, and
//! anything else that does not open is damage.

use crypto::{ChunkTag, EEK_BYTES, Eek, RecordId};
use zeroize::Zeroizing;

/// A header before it is sealed, in bytes.
pub(crate) const HEADER_BYTES: usize = 256;
/// A row before it is sealed, in bytes.
pub(crate) const ROW_BYTES: usize = 80;
const PAGE: u8 = 1;
const REACHED: u8 = 2;
const END: u8 = 3;

/// Which file it was, and as it was: all of it must be the same for a put to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// A keyed hash of its path.
    pub(crate) path: [u8; 32],
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// When it was changed last: Unix seconds and nanoseconds.
    pub(crate) changed: (i64, u32),
    pub(crate) inode: u64,
    pub(crate) device: u64,
}

/// What every page, the entry and the envelopes of one put are made with.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) eek: Zeroizing<[u8; EEK_BYTES]>,
    /// The counter of the author key and of the self-addressed reader key; readers' envelopes have the next ones.
    pub(crate) counter: u64,
    /// Unix seconds.
    pub(crate) created: u32,
    pub(crate) source: Source,
    /// A digest of the options, the suite, the network and the compressor.
    pub(crate) options: [u8; 32],
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// A page was sealed and may have been sent.
    Page {
        index: u32,
        /// Of the chunk ([`chunk_tag`](crypto::WholeKeys::chunk_tag)).
        tag: ChunkTag,
        id: RecordId,
    },
    /// A page has all the copies it will get.
    Reached { index: u32, acked: u32, wanted: u32 },
    /// So many pages are all; the metadata may have been sealed.
    End { pages: u32 },
}

impl Header {
    /// Whether the put that it began seals with this key.
    pub(crate) fn is_of(&self, eek: &Eek) -> bool {
        self.eek[..] == eek.to_bytes()[..]
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&self.eek[..]);
        out.extend_from_slice(&self.counter.to_be_bytes());
        out.extend_from_slice(&self.created.to_be_bytes());
        out.extend_from_slice(&self.source.path);
        out.extend_from_slice(&self.source.bytes.to_be_bytes());
        out.extend_from_slice(&self.source.changed.0.to_be_bytes());
        out.extend_from_slice(&self.source.changed.1.to_be_bytes());
        out.extend_from_slice(&self.source.inode.to_be_bytes());
        out.extend_from_slice(&self.source.device.to_be_bytes());
        out.extend_from_slice(&self.options);
        out.resize(HEADER_BYTES, 0);
        out
    }

    /// The header in these bytes; `None` where they are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let header = Self {
            eek: Zeroizing::new(fields.take()?),
            counter: u64::from_be_bytes(fields.take()?),
            created: u32::from_be_bytes(fields.take()?),
            source: Source {
                path: fields.take()?,
                bytes: u64::from_be_bytes(fields.take()?),
                changed: (i64::from_be_bytes(fields.take()?), u32::from_be_bytes(fields.take()?)),
                inode: u64::from_be_bytes(fields.take()?),
                device: u64::from_be_bytes(fields.take()?),
            },
            options: fields.take()?,
        };
        (bytes.len() == HEADER_BYTES && fields.is_zero()).then_some(header)
    }
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Header(counter {})", self.counter)
    }
}

impl Row {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ROW_BYTES);
        match self {
            Self::Page { index, tag, id } => {
                out.push(PAGE);
                out.extend_from_slice(&index.to_be_bytes());
                out.extend_from_slice(tag);
                out.extend_from_slice(id.as_bytes());
            }
            Self::Reached { index, acked, wanted } => {
                out.push(REACHED);
                for number in [index, acked, wanted] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
            }
            Self::End { pages } => {
                out.push(END);
                out.extend_from_slice(&pages.to_be_bytes());
            }
        }
        out.resize(ROW_BYTES, 0);
        out
    }

    /// The row in these bytes; `None` where they are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let mut fields = Fields(rest);
        let number = u32::from_be_bytes(fields.take()?);
        let row = match *kind {
            PAGE => {
                Self::Page { index: number, tag: fields.take()?, id: RecordId::new(fields.take()?) }
            }
            REACHED => Self::Reached {
                index: number,
                acked: u32::from_be_bytes(fields.take()?),
                wanted: u32::from_be_bytes(fields.take()?),
            },
            END => Self::End { pages: number },
            _ => return None,
        };
        (bytes.len() == ROW_BYTES && fields.is_zero()).then_some(row)
    }
}

/// Bytes that are taken field by field.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }
}
