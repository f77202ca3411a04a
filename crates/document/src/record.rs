//! The narrow waist: an immutable record has an id that proves it and a place where it lives.

use bytes::Bytes;
use crypto::{Place, RecordId};

/// The largest chunk of plaintext, and of a list page's keys, in bytes.
pub const CHUNK_BYTES_MAX: usize = 2 << 20;
/// The largest encoded document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = CHUNK_BYTES_MAX + 1024;

/// What a record is: the number of its field in the `Document` wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// An entry's key sealed to one reader.
    Envelope = 1,
    /// What a document is made of: its page or the keys of its pages, and sealed metadata.
    Entry = 2,
    /// One sealed chunk.
    Page = 3,
    /// A fragment of a stripe that is no page.
    Parity = 4,
    /// A stripe's header: its fragments and the lengths of its pages.
    Stripe = 5,
}

impl Kind {
    /// Every kind this release stores.
    pub const ALL: [Self; 5] =
        [Self::Envelope, Self::Entry, Self::Page, Self::Parity, Self::Stripe];

    /// The kind with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| u32::from(kind.number()) == number)
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Its name, in logs and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Envelope => "envelope",
            Self::Entry => "entry",
            Self::Page => "page",
            Self::Parity => "parity",
            Self::Stripe => "stripe",
        }
    }
}

/// An immutable record. `bytes` is the encoded `Document`, and `id` its hash: [`crate::prove`] checks it.
/// The fields are as somebody claimed them until then.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub kind: Kind,
    /// The hash of `bytes`.
    pub id: RecordId,
    /// Where it lives: at its id, or, a fragment, at its stripe's.
    pub place: Place,
    /// The encoded `Document`, at most [`DOCUMENT_BYTES_MAX`].
    pub bytes: Bytes,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Record({} {}, {} bytes)", self.kind.name(), self.id, self.bytes.len())
    }
}
