//! What can be wrong with a document, and with content being sealed or opened.

use crypto::canonical::CanonicalError;
use crypto::{Class, Classified, KeyError, RecordId, SealError};

use crate::Kind;

/// Why bytes are no document, or a document did not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// Not a canonical encoding.
    #[error("not a document")]
    Encoding(#[from] CanonicalError),
    /// Metadata that is not protobuf, or says something twice.
    #[error("the sealed metadata is not valid")]
    Metadata(#[source] MetadataError),
    /// Longer than a document may be.
    #[error("a document of {found} bytes; at most {max} are allowed")]
    TooLarge {
        /// Bytes found.
        found: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// None of the kinds this release knows.
    #[error("a document of no kind that this program knows")]
    Kind,
    /// A record of a kind that is no document: of a versioned object.
    #[error("record {id} is called {kind}, and documents alone are taken here", kind = .kind.name())]
    NoDocument {
        /// The record.
        id: RecordId,
        /// What it is called.
        kind: Kind,
    },
    /// A field holds what it cannot (a wrong length, all zero bytes, out of bounds).
    #[error("the document's {0} is not valid")]
    Field(&'static str),
    /// A key that is not on the curve.
    #[error("a key in the document is not valid")]
    Key(#[from] KeyError),
    /// The bytes are another record's.
    #[error("the bytes are not those of record {0}")]
    Id(RecordId),
    /// What somebody sent as proof of a record's chunk proves nothing.
    #[error("the proof of a chunk of record {id} {what}")]
    Proof {
        /// The record.
        id: RecordId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A record of another kind than was claimed or asked for.
    #[error("record {id} is not a {wanted}", wanted = .wanted.name())]
    OtherKind {
        /// The record.
        id: RecordId,
        /// What it should have been.
        wanted: Kind,
    },
    /// A record that claims to live elsewhere than at its id.
    #[error("record {0} does not live where it is claimed to")]
    Place(RecordId),
    /// What only networks of the other suite have.
    #[error("{0} cannot be in a network of the suite libri-1, which copies its documents")]
    Suite(&'static str),
    /// A fragment that is not what its stripe's header says of it.
    #[error("the record is not what the stripe's header says of fragment {index}")]
    Fragment {
        /// Its number in the stripe.
        index: u32,
    },
    /// A stripe of another k than its entry says.
    #[error("stripe {id} has {found} pages where its entry says {wanted}")]
    StripePages {
        /// The stripe.
        id: RecordId,
        /// What the entry says.
        wanted: u32,
        /// What the header says.
        found: u32,
    },
    /// Sealed bytes that do not open.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// An envelope for somebody else.
    #[error("the envelope is sealed to another reader")]
    NotForReader,
    /// A page in the place of another.
    #[error("page {found} in the place of page {wanted}")]
    PageIndex {
        /// The index that was due.
        wanted: u32,
        /// The index the page has.
        found: u32,
    },
    /// Another number of pages, stripes or lists than the content's size calls for.
    #[error("an entry of {found} pages, stripes or lists where its size calls for {wanted}")]
    PageCount {
        /// As many as are called for.
        wanted: u64,
        /// As many as are named.
        found: u64,
    },
    /// More content than an entry can name.
    #[error("the content is too large for one entry")]
    TooMuchContent,
    /// A chunk that does not hold what its place in the content calls for.
    #[error("a chunk does not decompress to the {wanted} bytes it should hold")]
    Chunk {
        /// Bytes called for.
        wanted: usize,
    },
    /// A compressed stream that is not one.
    #[error("the content's compressed stream is damaged")]
    Stream,
    /// More or fewer bytes than the metadata state.
    #[error("the content's {0} is not the stated size")]
    Size(&'static str),
    /// The whole content's MAC.
    #[error("the MAC of the whole {0} does not match")]
    WholeMac(&'static str),
    /// Empty content in `libri-1`.
    #[error("empty content cannot be stored in libri-1")]
    Empty,
    /// Too few fragments of a stripe to bring back the others.
    #[error("of the stripe {id} {found} fragments are there, and {needed} are needed")]
    TooFew {
        /// The stripe.
        id: RecordId,
        /// Fragments found.
        found: u32,
        /// Fragments needed (k).
        needed: u32,
    },
    /// The erasure code's own failure.
    #[error("coding a stripe failed")]
    Code(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The compressor's own failure.
    #[error("compression failed")]
    Compress(#[source] std::io::Error),
    /// A record that is needed and was not found.
    #[error("the {kind} {id} is missing", kind = .kind.name())]
    Missing {
        /// What it is.
        kind: Kind,
        /// Its id.
        id: RecordId,
    },
    /// Content could not be read from where it comes.
    #[error("reading the content")]
    Read(#[source] std::io::Error),
    /// Content or records could not be written to where they go.
    #[error("writing")]
    Write(#[source] std::io::Error),
}

/// Why sealed metadata is not valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// Not protobuf of this message.
    #[error("not a valid message")]
    Malformed(#[from] prost::DecodeError),
    /// A field or a property twice.
    #[error("a field or a property is given twice")]
    Duplicate,
    /// A value that cannot be.
    #[error("the metadata's {0} is not valid")]
    Field(&'static str),
    /// Too long.
    #[error("metadata of {found} bytes; at most {max} are allowed")]
    TooLarge {
        /// Bytes found.
        found: usize,
        /// Bytes allowed.
        max: usize,
    },
}

impl Classified for DocumentError {
    fn class(&self) -> Class {
        match self {
            Self::NotForReader => Class::Denied,
            Self::Missing { .. } | Self::TooFew { .. } => Class::NotFound,
            Self::Read(_) | Self::Write(_) => Class::Unavailable,
            Self::Compress(_) | Self::Code(_) => Class::Bug,
            Self::Id(_)
            | Self::Proof { .. }
            | Self::PageIndex { .. }
            | Self::StripePages { .. }
            | Self::Chunk { .. }
            | Self::Stream
            | Self::Size(_)
            | Self::WholeMac(_) => Class::Corrupt,
            Self::Seal(source) => source.class(),
            _ => Class::Invalid,
        }
    }
}

impl From<MetadataError> for DocumentError {
    fn from(source: MetadataError) -> Self {
        match source {
            MetadataError::TooLarge { found, max } => Self::TooLarge { found, max },
            source => Self::Metadata(source),
        }
    }
}
