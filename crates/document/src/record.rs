//! The narrow waist: an immutable record has an id that proves it and a place where it lives.

use bytes::Bytes;
use crypto::{Place, RecordId};

/// The largest chunk of plaintext, and of a list page's keys, in bytes.
pub const CHUNK_BYTES_MAX: usize = 2 << 20;
/// The largest encoded document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = CHUNK_BYTES_MAX + 1024;

/// What a record is. Up to [`Kind::Stripe`] the number is that of its field in the `Document` wrapper; the others are
/// no documents, and crate `version` decodes and proves them.
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
    /// A version of an object.
    Version = 6,
    /// An object's name and owner.
    Object = 7,
    /// Who may do what with an object, or with all of a family.
    Policy = 8,
    /// An author's signature under versions.
    Attestation = 9,
    /// What a device says a branch of an object is at.
    Head = 10,
    /// The devices that may write an owner's heads.
    Devices = 11,
    /// What a peer keeps of leases beside the records. It lives at the peer alone: nobody finds or stores one.
    Lease = 12,
}

impl Kind {
    /// Every kind this release stores.
    pub const ALL: [Self; 12] = [
        Self::Envelope,
        Self::Entry,
        Self::Page,
        Self::Parity,
        Self::Stripe,
        Self::Version,
        Self::Object,
        Self::Policy,
        Self::Attestation,
        Self::Head,
        Self::Devices,
        Self::Lease,
    ];

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
            Self::Version => "version",
            Self::Object => "object",
            Self::Policy => "policy",
            Self::Attestation => "attestation",
            Self::Head => "head",
            Self::Devices => "devices",
            Self::Lease => "lease",
        }
    }

    /// Whether its bytes are an encoded `Document`, which [`crate::prove`] proves. Of the others, which versioned
    /// objects are made of, `version::prove` does.
    pub const fn is_document(self) -> bool {
        match self {
            Self::Envelope | Self::Entry | Self::Page | Self::Parity | Self::Stripe => true,
            Self::Version
            | Self::Object
            | Self::Policy
            | Self::Attestation
            | Self::Head
            | Self::Devices
            | Self::Lease => false,
        }
    }
}

/// An immutable record. `bytes` is the encoded `Document`, or what else the kind is, and `id` its hash: [`crate::prove`]
/// checks it, or `version::prove`.
/// The fields are as somebody claimed them until then.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub kind: Kind,
    /// The hash of `bytes`.
    pub id: RecordId,
    /// Where it lives: at its id, or, a fragment, at its stripe's, a version and a policy at their object's.
    pub place: Place,
    /// The encoded `Document`, or what else the kind is, at most [`DOCUMENT_BYTES_MAX`].
    pub bytes: Bytes,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Record({} {}, {} bytes)", self.kind.name(), self.id, self.bytes.len())
    }
}
