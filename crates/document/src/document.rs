//! The wrapper around the three kinds: one decoder, one encoder, one proof.

use bytes::Bytes;
use crypto::canonical::{self, CanonicalError};
use crypto::{Place, Suite};
use prost::Message;

use crate::entry::Entry;
use crate::envelope::Envelope;
use crate::page::{self, Page};
use crate::record::DOCUMENT_BYTES_MAX;
use crate::{DocumentError, Kind, Record, wire};

/// A document, checked in form: canonical, within its limits, fixed-length fields of their lengths and
/// not all zero, keys on the curve. What is sealed in it is not looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// An entry's key sealed to one reader.
    Envelope(Envelope),
    /// What a document is made of.
    Entry(Entry),
    /// One sealed chunk.
    Page(Page),
}

impl Document {
    /// Decodes and checks. A page's ciphertext shares `bytes`.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, DocumentError> {
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(DocumentError::TooLarge { found: bytes.len(), max: DOCUMENT_BYTES_MAX });
        }
        if bytes.first() == Some(&page::FIRST_BYTE) {
            return decode_page(bytes).map(Self::Page);
        }
        let wire: wire::Document = canonical::decode(bytes)?;
        match wire.contents.ok_or(DocumentError::Kind)? {
            wire::Contents::Envelope(envelope) => {
                Envelope::from_wire(&envelope).map(Self::Envelope)
            }
            wire::Contents::Entry(entry) => Entry::from_wire(entry).map(Self::Entry),
            wire::Contents::Page(page) => Page::from_wire(page).map(Self::Page),
        }
    }

    /// The canonical bytes.
    pub fn encode(&self) -> Bytes {
        let contents = match self {
            Self::Page(page) => return page.encode(),
            Self::Envelope(envelope) => wire::Contents::Envelope(envelope.to_wire()),
            Self::Entry(entry) => wire::Contents::Entry(entry.to_wire()),
        };
        wire::Document { contents: Some(contents) }.encode_to_vec().into()
    }

    /// What it is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Envelope(_) => Kind::Envelope,
            Self::Entry(_) => Kind::Entry,
            Self::Page(_) => Kind::Page,
        }
    }
}

fn decode_page(bytes: &Bytes) -> Result<Page, DocumentError> {
    let wire = wire::Document::decode(bytes.clone())
        .map_err(|source| DocumentError::Encoding(CanonicalError::Malformed(source)))?;
    let Some(wire::Contents::Page(page)) = wire.contents else {
        return Err(DocumentError::Encoding(CanonicalError::NotCanonical));
    };
    let page = Page::from_wire(page)?;
    if !page.is_canonical(bytes) {
        return Err(DocumentError::Encoding(CanonicalError::NotCanonical));
    }
    Ok(page)
}

impl Record {
    /// The record of a document.
    pub fn of(suite: Suite, document: &Document) -> Self {
        Self::of_encoded(suite, document.kind(), document.encode())
    }

    /// The record of a document's bytes, which are decoded and checked; its id is computed.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn from_bytes(suite: Suite, bytes: Bytes) -> Result<(Self, Document), DocumentError> {
        let document = Document::decode(&bytes)?;
        Ok((Self::of_encoded(suite, document.kind(), bytes), document))
    }

    pub(crate) fn of_encoded(suite: Suite, kind: Kind, bytes: Bytes) -> Self {
        let id = suite.id(&bytes);
        Self { kind, id, place: Place::from(id), bytes }
    }
}

/// Proves a record: its bytes hash to its id, are the canonical encoding of a valid document of its
/// kind, and it lives where it may. Nothing of a record counts before.
///
/// # Errors
/// [`DocumentError`].
pub fn prove(suite: Suite, record: &Record) -> Result<Document, DocumentError> {
    // The form first: it is cheaper than the hash, and bounds what is hashed.
    let document = Document::decode(&record.bytes)?;
    if suite.id(&record.bytes) != record.id {
        return Err(DocumentError::Id(record.id));
    }
    if document.kind() != record.kind {
        return Err(DocumentError::OtherKind { id: record.id, wanted: record.kind });
    }
    if record.place != Place::from(record.id) {
        return Err(DocumentError::Place(record.id));
    }
    Ok(document)
}
