//! Versioned objects: their records and ids, how they are kept small, merged, attested and pointed at.
//!
//! An object is everything ever written under one key: a graph of immutable [`Version`]s, each of which names its
//! bases by the hash of their bytes. So a version's id proves its value and its history, whoever sends it. All that
//! stands beside versions is a record too, and [`prove`] proves each. The formats are in `docs/formats/versions.md`.
//!
//! It is pure: no clock, no disk, no peers, no randomness. It holds no versions and fetches none: whoever walks a
//! graph is told which version is needed next.
#![forbid(unsafe_code)]

pub mod attestation;
pub mod claim;
mod codecs;
mod dictionary;
mod error;
mod form;
mod graph;
pub mod head;
mod id;
mod key;
pub mod merge;
pub mod merkle;
mod object;
pub mod policy;
mod reader;
pub mod receipt;
mod record;
mod signed;
pub mod splice;
mod varint;
mod version;

pub use attestation::{AnyAttestation, Attestation, Attested, BatchAttester};
pub use claim::{ReaderClaim, Redirect};
pub use codecs::{Codec, Codecs, OWN_CODECS, SPLICE, ZSTD};
pub use error::VersionError;
pub use form::{FORM_BYTES_MAX, FORM_HEAD_BYTES_MAX, Form, expand};
pub use graph::{
    ANCESTORS_MAX, CommonAncestor, Graph, Links, PREVIOUS_MAX, Previous, Step, common_ancestor,
    previous,
};
pub use head::{Branch, BranchName, DeviceList, Head};
pub use id::{ParseVersionIdError, VersionId};
pub use key::{HINT_BYTES, Hint, OVERFLOWS_MAX, ObjectKey, place, places};
pub use merge::{Merge, Merged, Merges};
pub use object::{NAME_BYTES_MAX, ObjectRecord, key_of};
pub use policy::{COPIES_MAX, Policies, Policy};
pub use receipt::{Durability, Receipt, Received};
pub use record::{Proven, prove};
pub use version::{
    BASES_MAX, Bases, VALUE_BYTES_MAX, VERSION_BYTES_MAX, ValueKind, Version, View, depth,
};
