//! What can go wrong with an object.

use crypto::{Class, Classified, RecordId};
use store::StoreError;
use version::{ObjectKey, VersionError};

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectsError {
    /// A version is to be put on a base that this peer does not have.
    #[error("version {base} of object {object} is not here; put on a version that is")]
    NoBase {
        /// The object.
        object: ObjectKey,
        /// The base that was asked for.
        base: RecordId,
    },
    /// A record with this id is there and is no version of the object.
    #[error("{id} is no version of object {object}")]
    OtherObject {
        /// The object.
        object: ObjectKey,
        /// The id that was asked for.
        id: RecordId,
    },
    /// A version's predecessor is not here.
    #[error("version {id} of object {object} is not here yet; ask again")]
    NotHere {
        /// The object.
        object: ObjectKey,
        /// The version.
        id: RecordId,
    },
    /// A version's bytes on the disk are not those that its id names.
    #[error("version {id} of object {object} was altered on the disk and is not served")]
    Altered {
        /// The object.
        object: ObjectKey,
        /// The version.
        id: RecordId,
    },
    /// So many versions stand on bases that are not here that no more are taken of this organisation.
    #[error("too many versions stand on versions that are not here; put those first")]
    Awaited,
    /// So many versions of an object have no successor that none is taken that makes them more.
    #[error("object {object} has {max} versions without a successor; put one on two of them first")]
    Branches {
        /// The object.
        object: ObjectKey,
        /// The bound.
        max: usize,
    },
    /// A walk that read so much and came to no end.
    #[error("nothing common was found in the last {max} bytes of versions")]
    TooMuch {
        /// The bound.
        max: usize,
    },
    /// What was handed over is no valid version.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Classified for ObjectsError {
    fn class(&self) -> Class {
        match self {
            Self::NoBase { .. } | Self::NotHere { .. } => Class::NotFound,
            Self::OtherObject { .. } => Class::Invalid,
            Self::Altered { .. } => Class::Corrupt,
            Self::Awaited | Self::Branches { .. } | Self::TooMuch { .. } => Class::Busy,
            Self::Version(error) => error.class(),
            Self::Store(error) => error.class(),
        }
    }
}
