//! The wrapper around all kinds: one decoder, one encoder, one proof.

use bytes::Bytes;
use crypto::canonical::{self, CanonicalError};
use crypto::{Place, RecordId, Suite};
use prost::Message;

use crate::entry::Entry;
use crate::entry::EntryContent;
use crate::envelope::Envelope;
use crate::page::Page;
use crate::parity::Parity;
use crate::record::DOCUMENT_BYTES_MAX;
use crate::stripe::{self, STRIPE_BYTES_MAX, Stripe};
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
    /// A fragment of a stripe that is no page.
    Parity(Parity),
    /// A stripe's header.
    Stripe(Stripe),
}

impl Document {
    /// Decodes and checks. A page's ciphertext and a parity's bytes share `bytes`.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, DocumentError> {
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(DocumentError::TooLarge { found: bytes.len(), max: DOCUMENT_BYTES_MAX });
        }
        let tag = check_fields(bytes)?;
        // Else two million lengths of a byte would be taken apart before they are counted.
        if tag == u64::from(stripe::FIRST_BYTE) && bytes.len() > STRIPE_BYTES_MAX {
            return Err(DocumentError::TooLarge { found: bytes.len(), max: STRIPE_BYTES_MAX });
        }
        let wire: wire::Document = canonical::decode(bytes)?;
        match wire.contents.ok_or(DocumentError::Kind)? {
            wire::Contents::Envelope(envelope) => {
                Envelope::from_wire(&envelope).map(Self::Envelope)
            }
            wire::Contents::Entry(entry) => Entry::from_wire(entry).map(Self::Entry),
            wire::Contents::Page(page) => Page::from_wire(page).map(Self::Page),
            wire::Contents::Parity(parity) => Parity::from_wire(parity).map(Self::Parity),
            wire::Contents::Stripe(stripe) => Stripe::from_wire(stripe).map(Self::Stripe),
        }
    }

    /// The canonical bytes.
    pub fn encode(&self) -> Bytes {
        let contents = match self {
            Self::Page(page) => return page.encode(),
            Self::Parity(parity) => return parity.encode(),
            Self::Envelope(envelope) => wire::Contents::Envelope(envelope.to_wire()),
            Self::Entry(entry) => wire::Contents::Entry(entry.to_wire()),
            Self::Stripe(stripe) => wire::Contents::Stripe(stripe.to_wire()),
        };
        wire::Document { contents: Some(contents) }.encode_to_vec().into()
    }

    /// What it is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Envelope(_) => Kind::Envelope,
            Self::Entry(_) => Kind::Entry,
            Self::Page(_) => Kind::Page,
            Self::Parity(_) => Kind::Parity,
            Self::Stripe(_) => Kind::Stripe,
        }
    }
}

impl Record {
    /// The record of a document.
    pub fn of(suite: Suite, document: &Document) -> Self {
        Self::of_encoded(suite, document.kind(), document.encode())
    }

    /// The record of a document's bytes, which are decoded and checked; its id is computed, and is its
    /// place. A parity's place, and a page's in a stripe, is the stripe's, which the bytes do not say.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn from_bytes(suite: Suite, bytes: Bytes) -> Result<(Self, Document), DocumentError> {
        let document = Document::decode(&bytes)?;
        in_suite(suite, &document)?;
        Ok((Self::of_encoded(suite, document.kind(), bytes), document))
    }

    pub(crate) fn of_encoded(suite: Suite, kind: Kind, bytes: Bytes) -> Self {
        Self::of_hashed(suite.id(&bytes), kind, bytes)
    }

    /// The same of bytes whose id is known.
    pub(crate) fn of_hashed(id: RecordId, kind: Kind, bytes: Bytes) -> Self {
        Self { kind, id, place: Place::from(id), bytes }
    }
}

/// Fields of an entry, the document with most: its keys, and what else is in it once.
const FIELDS_MAX: usize = crate::entry::PAGE_KEYS_MAX + 16;

/// Looks at the form alone, before anything is taken apart: one document, with no more fields than one may have, and nothing
/// that is no field of a document. Else two MiB of empty keys would become a million of them before they are counted. The tag of
/// the document; 0 where there are no bytes.
pub(crate) fn check_fields(bytes: &[u8]) -> Result<u64, DocumentError> {
    const OTHER: DocumentError = DocumentError::Encoding(CanonicalError::NotCanonical);
    if bytes.is_empty() {
        return Ok(0);
    }
    let (tag, contents, behind) = field(bytes).ok_or(OTHER)?;
    if !behind.is_empty() {
        return Err(OTHER);
    }
    let mut rest = contents;
    for _ in 0..=FIELDS_MAX {
        if rest.is_empty() {
            return Ok(tag);
        }
        (_, _, rest) = field(rest).ok_or(OTHER)?;
    }
    Err(DocumentError::Field("count of fields"))
}

/// The first field of a message: its tag, what is in it, and what is behind it; none where that is no field.
fn field(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    use prost::encoding::decode_varint;
    let mut rest = bytes;
    let tag = decode_varint(&mut rest).ok()?;
    match tag & 7 {
        0 => {
            let from = rest;
            decode_varint(&mut rest).ok()?;
            Some((tag, &from[..from.len() - rest.len()], rest))
        }
        2 => {
            let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            let (contents, behind) = rest.split_at_checked(length)?;
            Some((tag, contents, behind))
        }
        // No document has such.
        _ => None,
    }
}

/// Proves a record: its bytes hash to its id, are the canonical encoding of a valid document of its
/// kind, and it lives where it may. Nothing of a record counts before; and of a page or parity that does
/// not live at its id, [`Stripe::prove`] must say as well that a stripe lists it.
///
/// # Errors
/// [`DocumentError`]; [`DocumentError::NoDocument`] for the kinds that `version::prove` proves.
pub fn prove(suite: Suite, record: &Record) -> Result<Document, DocumentError> {
    if !record.kind.is_document() {
        return Err(DocumentError::NoDocument { id: record.id, kind: record.kind });
    }
    // The form first: it is cheaper than the hash, and bounds what is hashed.
    let document = Document::decode(&record.bytes)?;
    in_suite(suite, &document)?;
    if suite.id(&record.bytes) != record.id {
        return Err(DocumentError::Id(record.id));
    }
    if document.kind() != record.kind {
        return Err(DocumentError::OtherKind { id: record.id, wanted: record.kind });
    }
    // A fragment lives at its stripe. That the stripe names it, its bytes cannot say: `Stripe::prove` does.
    let at_its_id = record.place == Place::from(record.id);
    let may = match record.kind {
        Kind::Page => at_its_id || suite == Suite::Holdfast1,
        Kind::Parity => !at_its_id,
        Kind::Envelope | Kind::Entry | Kind::Stripe => at_its_id,
        // Refused above.
        _ => false,
    };
    if may { Ok(document) } else { Err(DocumentError::Place(record.id)) }
}

/// Whether a network of this suite has such documents: `libri-1` copies, and knows no stripes.
pub(crate) fn in_suite(suite: Suite, document: &Document) -> Result<(), DocumentError> {
    let what = match document {
        Document::Parity(_) => "parity",
        Document::Stripe(_) => "a stripe",
        Document::Entry(entry) => match entry.content {
            EntryContent::Stripes { .. } | EntryContent::ListedStripes { .. } => {
                "an entry of stripes"
            }
            EntryContent::Inline(_) | EntryContent::Pages(_) | EntryContent::Lists(_) => {
                return Ok(());
            }
        },
        Document::Envelope(_) | Document::Page(_) => return Ok(()),
    };
    match suite {
        Suite::Holdfast1 => Ok(()),
        Suite::Libri1 => Err(DocumentError::Suite(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{page, parity};

    #[test]
    fn what_hides_fields_is_refused_before_anything_is_taken_apart() {
        let one = |tag: u8, contents: &[u8]| {
            let length = u8::try_from(contents.len()).expect("short");
            [&[tag, length], contents].concat()
        };
        let (fixed, entry) = ([0x7d, 0, 0, 0, 0], one(0x12, &[0x1a, 0]));
        assert_eq!(check_fields(&entry).ok(), Some(0x12));
        assert_eq!(check_fields(&[&[0x92, 0], &entry[1..]].concat()).ok(), Some(0x12));
        for hidden in [
            [&fixed[..], &entry].concat(),
            one(0x12, &[&fixed[..], &[0x1a, 0]].concat()),
            [one(page::FIRST_BYTE, &[]), entry.clone()].concat(),
            [one(parity::FIRST_BYTE, &[]), entry.clone()].concat(),
            entry[..3].to_vec(),
            fixed.to_vec(),
        ] {
            assert!(check_fields(&hidden).is_err(), "{hidden:?}");
        }
    }
}
