//! The proof of each kind of record that versioned objects are made of.

use crypto::Suite;
use document::{Kind, Record};

use crate::{ObjectRecord, Version, VersionError, place, places};

/// What a record proved to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proven {
    /// A version. That its depth is one more than its bases', and that the object is what it says, others tell.
    Version(Version),
    /// An object's record. Its network may be another: that is for the caller to compare.
    Object(ObjectRecord),
}

/// Proves a record: its bytes are of its kind's format, hash to its id, and it lives where it may. Nothing of a record
/// counts before. The value of a version shares the record's bytes.
///
/// # Errors
/// [`VersionError`]; [`VersionError::Kind`] for the kinds that [`document::prove`] proves.
pub fn prove(suite: Suite, record: &Record) -> Result<Proven, VersionError> {
    // The form first: it is cheaper than the hash, and bounds what is hashed.
    let proven = match record.kind {
        Kind::Version => Proven::Version(Version::decode(&record.bytes)?),
        Kind::Object => Proven::Object(ObjectRecord::decode(&record.bytes)?),
        kind => return Err(VersionError::Kind { id: record.id, kind }),
    };
    if suite.id(&record.bytes) != record.id {
        return Err(VersionError::Id(record.id));
    }
    let may = match &proven {
        Proven::Version(version) => {
            let first = place(suite, &version.object, &crate::Hint::FIRST);
            let overflows = || places(suite, version.object).skip(1);
            record.place == first || overflows().any(|(_, place)| place == record.place)
        }
        Proven::Object(_) => record.place == record.id.into(),
    };
    if may { Ok(proven) } else { Err(VersionError::Place(record.id)) }
}
