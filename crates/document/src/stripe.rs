//! A stripe's header, and how pages and parity become a stripe's records and back.
//!
//! ```text
//!  page 0 .. page k-1, encoded --(erasure code, elsewhere)--> parity k .. n-1
//!        |  ids, lengths                                         |  ids
//!        `------------> header: k, lengths, n ids <--------------´
//!                       its id is the stripe's, and the place of all n + 1 records
//! ```
//! The code itself is not here (this crate names no other of its floor): whoever encodes gives the code
//! the pages' records ([`coded`]) and a [`crate::ParityBuffer`] for each parity, then calls [`Stripe::of`]. Whoever
//! repairs gives it what [`coded`] says of k fragments and proves what comes out ([`Stripe::page`], [`Stripe::prove`]).
//!
//! Invariants, checked when a header is decoded or made:
//! 1. 1 <= k < n <= [`FRAGMENTS_MAX`], as many lengths as k, all ids different and none all zeros.
//! 2. Each length is 1 to [`page_bytes_max`], so k fragments, whoever made the header, are about a segment at
//!    most: that much whoever reads or repairs a stripe holds at once. Data shorter than the longest counts as followed by zeros,
//!    which are never written.

use std::collections::HashSet;

use bytes::Bytes;
use crypto::{Place, RecordId, Suite};

use crate::document::in_suite;
use crate::layout::SEGMENT_BYTES_MAX;
use crate::page::ENCODED_BYTES_MAX;
use crate::record::CHUNK_BYTES_MAX;
use crate::{Document, DocumentError, Kind, Record, fields, wire};

/// The most fragments a stripe has (n).
pub const FRAGMENTS_MAX: usize = 256;
/// The longest encoded header, in bytes: 255 lengths of three bytes (four are of stripes of 8 pages at most),
/// 256 ids, and what stands before them.
pub const STRIPE_BYTES_MAX: usize = 3 + 3 + (3 + 255 * 3) + (3 + FRAGMENTS_MAX * 32);
/// The first byte of an encoded header: field 5 of `Document`, length-delimited.
pub(crate) const FIRST_BYTE: u8 = 5 << 3 | 2;

/// The longest encoded page in a stripe of k pages: of a chunk of the longest segment.
pub const fn page_bytes_max(k: u32) -> usize {
    let chunk = (SEGMENT_BYTES_MAX as usize).div_ceil(if k == 0 { 1 } else { k as usize });
    let shorter = CHUNK_BYTES_MAX.saturating_sub(chunk);
    ENCODED_BYTES_MAX - shorter
}

/// A stripe's header: which fragments it has and how long its pages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    lengths: Vec<u32>,
    fragments: Vec<RecordId>,
}

/// A stripe's records: what holders get.
#[derive(Clone, Debug)]
pub struct Striped {
    /// The header's document.
    pub stripe: Stripe,
    /// The header's record. Its id is the place of all of them.
    pub header: Record,
    /// The fragments in order: k pages, then parity.
    pub fragments: Vec<Record>,
}

impl Stripe {
    /// A header of k pages with these encoded lengths and of these n fragments.
    ///
    /// # Errors
    /// [`DocumentError::Field`] where an invariant of this module does not hold.
    pub fn new(lengths: Vec<u32>, fragments: Vec<RecordId>) -> Result<Self, DocumentError> {
        if lengths.is_empty() || lengths.len() >= fragments.len() {
            return Err(DocumentError::Field("stripe's k"));
        }
        if fragments.len() > FRAGMENTS_MAX {
            return Err(DocumentError::Field("stripe's number of fragments"));
        }
        let longest = page_bytes_max(lengths.len() as u32) as u32;
        if !lengths.iter().all(|length| (1..=longest).contains(length)) {
            return Err(DocumentError::Field("stripe's lengths"));
        }
        let different: HashSet<&RecordId> = fragments.iter().collect();
        if different.len() != fragments.len() || fragments.iter().any(is_zero) {
            return Err(DocumentError::Field("stripe's fragments"));
        }
        Ok(Self { lengths, fragments })
    }

    /// Makes a stripe of its pages' and its parity's records, in order: the header, and every record at
    /// the header's place. The ids are taken as they are, nothing is hashed but the header.
    ///
    /// # Errors
    /// [`DocumentError`] where they are no stripe: too few or many, of another kind, two alike, parity
    /// of another index or length; or in `libri-1`.
    pub fn of(
        suite: Suite,
        pages: Vec<Record>,
        parity: Vec<Record>,
    ) -> Result<Striped, DocumentError> {
        let lengths = pages.iter().map(|page| length_of(&page.bytes)).collect();
        let mut fragments = pages;
        fragments.extend(parity);
        let stripe = Self::new(lengths, fragments.iter().map(|record| record.id).collect())?;
        let document = Document::Stripe(stripe.clone());
        in_suite(suite, &document)?;
        let header = Record::of(suite, &document);
        for (index, record) in fragments.iter_mut().enumerate() {
            record.place = header.place;
            stripe.check(
                index as u32,
                record.kind,
                &Document::decode(&record.bytes)?,
                &record.bytes,
            )?;
        }
        Ok(Striped { stripe, header, fragments })
    }

    /// How many of the fragments are pages (k).
    pub fn k(&self) -> u32 {
        self.lengths.len() as u32
    }

    /// How many fragments there are (n).
    pub fn n(&self) -> u32 {
        self.fragments.len() as u32
    }

    /// The lengths of the k encoded pages, in bytes.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// The ids of all n fragments, in order.
    pub fn fragments(&self) -> &[RecordId] {
        &self.fragments
    }

    /// The bytes of each fragment as the code sees it: the longest page's.
    pub fn fragment_bytes(&self) -> usize {
        self.lengths.iter().max().map_or(0, |length| *length as usize)
    }

    /// The number of the fragment with this id; `None` where the stripe has no such.
    pub fn index_of(&self, id: &RecordId) -> Option<u32> {
        self.fragments.iter().position(|fragment| fragment == id).map(|index| index as u32)
    }

    /// What the fragment of this number is; `None` from n on.
    pub fn kind_of(&self, index: u32) -> Option<Kind> {
        match index {
            index if index < self.k() => Some(Kind::Page),
            index if index < self.n() => Some(Kind::Parity),
            _ => None,
        }
    }

    /// The number of a fragment that proved itself ([`crate::prove`] gave `document`), where this header,
    /// whose id is the record's place, lists it: a page of the header's length below k, parity of its own index
    /// from k on.
    ///
    /// # Errors
    /// [`DocumentError::Place`] where the header is not at the record's place's id or lists no such id;
    /// [`DocumentError::Fragment`] where the fragment is not what the header says of its number.
    pub fn prove(
        &self,
        header: &RecordId,
        record: &Record,
        document: &Document,
    ) -> Result<u32, DocumentError> {
        if record.place != Place::from(*header) {
            return Err(DocumentError::Place(record.id));
        }
        let index = self.index_of(&record.id).ok_or(DocumentError::Place(record.id))?;
        self.check(index, record.kind, document, &record.bytes)?;
        Ok(index)
    }

    /// Whether a record of this kind and form can be fragment `index`.
    fn check(
        &self,
        index: u32,
        kind: Kind,
        document: &Document,
        bytes: &Bytes,
    ) -> Result<(), DocumentError> {
        let fits = match document {
            Document::Page(_) => {
                self.lengths.get(index as usize) == Some(&length_of(bytes)) && kind == Kind::Page
            }
            Document::Parity(parity) => {
                self.kind_of(index) == Some(Kind::Parity)
                    && kind == Kind::Parity
                    && parity.index == index
                    && parity.bytes.len() == self.fragment_bytes()
            }
            Document::Envelope(_) | Document::Entry(_) | Document::Stripe(_) => false,
        };
        if fits { Ok(()) } else { Err(DocumentError::Fragment { index }) }
    }

    /// The record of page `index` that the code made again, `bytes` being at least the page's own length
    /// (what follows are the zeros). CPU work: the page is hashed.
    ///
    /// # Errors
    /// [`DocumentError::Fragment`] where there is no such page, too few bytes, or what the header names is no page;
    /// [`DocumentError::Id`] where it is not the one that the header names.
    pub fn page(
        &self,
        suite: Suite,
        header: &RecordId,
        index: u32,
        bytes: &Bytes,
    ) -> Result<Record, DocumentError> {
        let length = self.lengths.get(index as usize).map(|length| *length as usize);
        let Some(length) = length.filter(|length| *length <= bytes.len()) else {
            return Err(DocumentError::Fragment { index });
        };
        let page = bytes.slice(..length);
        let record = self.remade(header, index, Record::of_encoded(suite, Kind::Page, page))?;
        // An author may name bytes that are none: nobody takes such a fragment, so it would be made again and again.
        match Document::decode(&record.bytes) {
            Ok(Document::Page(_)) => Ok(record),
            _ => Err(DocumentError::Fragment { index }),
        }
    }

    /// The record of a parity fragment that the code made again in `buffer`. CPU work: it is hashed.
    ///
    /// # Errors
    /// [`DocumentError::Fragment`] where there is no such parity, [`DocumentError::Id`] where it is not the
    /// one that the header names.
    pub fn parity(
        &self,
        suite: Suite,
        header: &RecordId,
        index: u32,
        buffer: crate::ParityBuffer,
    ) -> Result<Record, DocumentError> {
        if self.kind_of(index) != Some(Kind::Parity) {
            return Err(DocumentError::Fragment { index });
        }
        self.remade(header, index, buffer.record(suite))
    }

    /// A fragment whose id is the one named; the id proves the rest.
    fn remade(
        &self,
        header: &RecordId,
        index: u32,
        record: Record,
    ) -> Result<Record, DocumentError> {
        match self.fragments.get(index as usize) {
            Some(id) if *id == record.id => Ok(Record { place: (*header).into(), ..record }),
            Some(id) => Err(DocumentError::Id(*id)),
            None => Err(DocumentError::Fragment { index }),
        }
    }

    pub(crate) fn from_wire(wire: wire::Stripe) -> Result<Self, DocumentError> {
        if wire.k as usize != wire.lengths.len() {
            return Err(DocumentError::Field("stripe's k"));
        }
        let (ids, rest) = wire.fragments.as_chunks::<32>();
        if !rest.is_empty() {
            return Err(DocumentError::Field("stripe's fragments"));
        }
        let ids: Result<_, _> = ids.iter().map(|id| fields::id(id, "stripe's fragments")).collect();
        Self::new(wire.lengths, ids?)
    }

    pub(crate) fn to_wire(&self) -> wire::Stripe {
        let fragments: Vec<u8> = self.fragments.iter().flat_map(|id| *id.as_bytes()).collect();
        wire::Stripe { k: self.k(), lengths: self.lengths.clone(), fragments: fragments.into() }
    }
}

/// What of a fragment goes through the code: all of an encoded page, a parity's own bytes. Neither is
/// copied. `None` for a document that is no fragment.
pub fn coded(record: &Record, document: &Document) -> Option<Bytes> {
    match document {
        Document::Page(_) => Some(record.bytes.clone()),
        Document::Parity(parity) => Some(parity.bytes.clone()),
        Document::Envelope(_) | Document::Entry(_) | Document::Stripe(_) => None,
    }
}

fn length_of(bytes: &Bytes) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

fn is_zero(id: &RecordId) -> bool {
    id.as_bytes() == &[0; 32]
}

#[cfg(test)]
mod tests;
