//! Page, Parity, Stripe, Entry, Envelope, Publication: the wire formats, their ids, and how content becomes them.
//!
//! It is pure: bytes in, records out, nothing read and nothing sent. The formats are Libri's with its field
//! numbers; what differs between the suites is in `crypto::Suite` and in the sealing modules. It is not a
//! store and knows no peers.
//!
//! A writer cuts content ([`ContentCutter`], [`Layout`]), seals chunks in parallel ([`EntrySealer`],
//! [`PageTicket`]), feeds [`ContentMacs`] in order, finishes the entry and seals its key to readers
//! ([`envelope::seal`]). A reader goes back: [`envelope::open`], [`EntryOpener`], [`ContentAssembler`].
//! [`stripe`] makes pages and parity to a stripe. [`offline`] does either in one call. Whoever gets a record from elsewhere calls [`prove`] first. Whether somebody else has one, a [`proof`] tells.
#![forbid(unsafe_code)]

pub mod bloom;
mod chunk;
mod compressor;
mod content;
mod document;
pub mod entry;
pub mod envelope;
mod error;
mod fields;
pub mod layout;
mod libri;
mod macs;
pub mod metadata;
pub mod offline;
mod open;
pub mod page;
mod parity;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod proof;
mod publication;
mod record;
mod seal;
pub mod stripe;
pub mod value;
mod wire;

pub use bloom::Bloom;
pub use chunk::{CHUNK_AT, tries_to_compress};
pub use compressor::compressor;
pub use content::{ContentAssembler, ContentCutter};
pub use document::{Document, prove};
pub use entry::{Entry, EntryContent};
pub use envelope::Envelope;
pub use error::{DocumentError, MetadataError};
pub use layout::Layout;
pub use libri::{LibriCompressor, LibriDecompressor};
pub use macs::ContentMacs;
pub use metadata::{CompressionCodec, ContentInfo, EntryMetadata, SchemaArtifact, WholeMacs};
pub use open::{Chunk, EntryOpener};
pub use page::Page;
pub use parity::{Parity, ParityBuffer};
pub use publication::{PUBLICATION_BYTES_MAX, Publication};
pub use record::{CHUNK_BYTES_MAX, DOCUMENT_BYTES_MAX, Kind, Record};
pub use seal::{
    CHUNK_PREFIX_BYTES, CHUNK_SUFFIX_BYTES, EntrySealer, Finished, INLINE_BYTES_MAX, PageTicket,
    SealedContent, SealedPage,
};
pub use stripe::{Stripe, Striped};
