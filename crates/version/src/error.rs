//! What can be wrong with the records of versioned objects, and with what is done to them.

use crypto::canonical::CanonicalError;
use crypto::{Class, Classified, KeyError, NetworkId, RecordId};
use document::Kind;

/// Why bytes are none of the formats of this crate, or do not count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// The bytes begin otherwise than those of this format.
    #[error("not a {0}: the bytes begin otherwise")]
    Prefix(&'static str),
    /// The bytes end too soon, or go on behind their end.
    #[error("a {0} that is cut short, or goes on behind its end")]
    Length(&'static str),
    /// A field holds what it cannot.
    #[error("the {0} is not valid")]
    Field(&'static str),
    /// Over a bound.
    #[error("a {what} of {found} bytes; at most {max} are allowed")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// Bytes found.
        found: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// A part that should be canonical protobuf is not.
    #[error("not a {what}")]
    Encoding {
        /// What it should have been.
        what: &'static str,
        /// What is wrong with it.
        source: CanonicalError,
    },
    /// A key or a signature.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The bytes are another record's.
    #[error("the bytes are not those of record {0}")]
    Id(RecordId),
    /// A kind that this crate does not prove.
    #[error("record {id} is a {kind}, and no part of a versioned object", kind = .kind.name())]
    Kind {
        /// The record.
        id: RecordId,
        /// What it is called.
        kind: Kind,
    },
    /// A record at a place where it does not live.
    #[error("record {0} does not live where it is claimed to")]
    Place(RecordId),
    /// A codec that is not known here, or a number that no application may take.
    #[error(
        "codec {0} is not registered here; applications register theirs from 128 on, each once"
    )]
    Codec(u8),
    /// A delta that makes no value.
    #[error("a delta of codec {codec} that makes no value of {length} bytes of this ancestor's")]
    Delta {
        /// The codec.
        codec: u8,
        /// The length that was stated.
        length: usize,
    },
    /// Made for another network.
    #[error("made for network {0}, not for this one")]
    Network(NetworkId),
    /// No room for more.
    #[error("a full {what}: at most {max}")]
    Full {
        /// What is full.
        what: &'static str,
        /// Its bound.
        max: usize,
    },
    /// A policy that a later one took the place of, or another of the same number.
    #[error("policy {found} does not count: policy {newest} is known, and differs")]
    OldPolicy {
        /// Its version.
        found: u64,
        /// The version that is known.
        newest: u64,
    },
    /// A list of devices that a later one took the place of, or another of the same number.
    #[error("list of devices {found} does not count: list {newest} is known, and differs")]
    OldDevices {
        /// Its sequence.
        found: u64,
        /// The sequence that is known.
        newest: u64,
    },
    /// A version that is needed is not here.
    #[error("version {0} is needed and is not here")]
    Missing(RecordId),
    /// A walk through a history that came to no end.
    #[error("nothing common was found in the last {max} versions")]
    TooFar {
        /// The bound.
        max: usize,
    },
    /// A version whose bases are not what it says of them.
    #[error("version {0} and its bases do not fit together: they were made up")]
    History(RecordId),
    /// A merge function's name that is taken, or is none.
    #[error(
        "a merge function cannot be registered as {0:?}: taken, or not 1 to 64 printable bytes"
    )]
    MergeName(Box<str>),
    /// A history so long that no version can follow.
    #[error("no version can follow one of the greatest depth")]
    Depth,
}

impl Classified for VersionError {
    fn class(&self) -> Class {
        match self {
            Self::Key(source) => source.class(),
            Self::Id(_) | Self::Delta { .. } | Self::History(_) => Class::Corrupt,
            Self::Missing(_) => Class::NotFound,
            Self::TooFar { .. } | Self::Full { .. } => Class::Busy,
            Self::Network(_) => Class::Denied,
            Self::OldPolicy { .. } | Self::OldDevices { .. } => Class::Conflict,
            _ => Class::Invalid,
        }
    }
}
