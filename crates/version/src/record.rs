//! The proof of each kind of record that versioned objects are made of.

use bytes::Bytes;
use crypto::Suite;
use document::{DOCUMENT_BYTES_MAX, Kind, Record};

use crate::head::devices_place;
use crate::{
    AnyAttestation, DeviceList, Head, Hint, ObjectRecord, Policy, Version, VersionError, place,
    places,
};

/// What a record proved to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proven {
    /// A version. That its depth is one more than its bases', and that the object is what it says, others tell.
    Version(Version),
    /// An object's record. Its network may be another: that is for the caller to compare.
    Object(ObjectRecord),
    /// A policy, signed by the owner that it names. Its network may be another: that is for the caller to compare.
    Policy(Box<Policy>),
    /// An attestation, signed by the author that it names. Its network may be another: that is for the caller to compare.
    Attestation(Box<AnyAttestation>),
    /// A signed head, signed by the device that it names. Whether the device counts, and the network, others tell.
    Head(Box<Head>),
    /// A list of devices, signed by the owner that it names. Its network may be another: that is for the caller to compare.
    Devices(Box<DeviceList>),
}

/// Proves a record: its bytes are of its kind's format, hash to its id and are signed by whom they name, and it lives
/// where it may. Nothing of a record counts before. The value of a version shares the record's bytes.
///
/// CPU work of a hash of the bytes; for a policy one verification more, and for an attestation two short hashes a version.
///
/// # Errors
/// [`VersionError`]; [`VersionError::Kind`] for the kinds that [`document::prove`] proves.
pub fn prove(suite: Suite, record: &Record) -> Result<Proven, VersionError> {
    let Record { kind, id, ref bytes, .. } = *record;
    // A bound on what is hashed; each format has its own, which is less.
    if bytes.len() > DOCUMENT_BYTES_MAX {
        let (found, max) = (bytes.len(), DOCUMENT_BYTES_MAX);
        return Err(VersionError::TooLarge { what: "record", found, max });
    }
    // What is cheaper than the hash comes before it, and signatures behind.
    let early = match kind {
        Kind::Version => Some(Proven::Version(Version::decode(bytes)?)),
        Kind::Object => Some(Proven::Object(ObjectRecord::decode(bytes)?)),
        Kind::Policy | Kind::Attestation | Kind::Head | Kind::Devices => None,
        kind => return Err(VersionError::Kind { id, kind }),
    };
    if suite.id(bytes) != id {
        return Err(VersionError::Id(id));
    }
    let proven = match early {
        Some(proven) => proven,
        None => prove_signed(suite, kind, bytes)?,
    };
    let may = match &proven {
        Proven::Version(version) => {
            let first = place(suite, &version.object, &Hint::FIRST);
            let overflows = || places(suite, version.object).skip(1);
            record.place == first || overflows().any(|(_, place)| place == record.place)
        }
        Proven::Policy(policy) => record.place == policy.place(suite)?,
        Proven::Head(head) => record.place == head.branch.place(suite)?,
        Proven::Devices(list) => record.place == devices_place(suite, &list.owner),
        Proven::Object(_) | Proven::Attestation(_) => record.place == id.into(),
    };
    if may { Ok(proven) } else { Err(VersionError::Place(id)) }
}

/// What is proven by a signature, whose bytes are those of its id.
fn prove_signed(suite: Suite, kind: Kind, bytes: &Bytes) -> Result<Proven, VersionError> {
    Ok(match kind {
        Kind::Policy => Proven::Policy(Box::new(Policy::verify(bytes)?)),
        Kind::Head => Proven::Head(Box::new(Head::verify(bytes)?)),
        Kind::Devices => Proven::Devices(Box::new(DeviceList::verify(bytes)?)),
        _ => {
            let attestation = AnyAttestation::decode(bytes)?;
            attestation.verify(suite)?;
            Proven::Attestation(Box::new(attestation))
        }
    })
}
