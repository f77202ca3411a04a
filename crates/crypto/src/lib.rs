//! Keys, suites, sealing, and the certificates that say who may do what.
//!
//! It is pure: bytes in, bytes out. It has no clock, no randomness of its own (callers hand in
//! random bytes) and no I/O, so every function is tested by properties and golden bytes.
//! It is not a general cryptography library: each primitive is fixed by the network's [`Suite`].
#![deny(unsafe_code)]

pub mod canonical;
pub mod certificate;
mod class;
mod content;
mod eek;
pub mod genesis;
mod ids;
pub mod jwt;
mod kek;
pub mod keyring;
mod keys;
pub mod lease;
pub mod revocation;
pub mod roster;
pub mod seal;
mod side_by_side;
mod suite;

pub use certificate::{Announcement, CertificateError, Pass, PeerCertificate, PeerState, Tier};
pub use class::{Class, Classified};
pub use content::{ContentKey, OwnerKeys, VALUE_SEAL_BYTES};
pub use eek::{ChunkTag, EEK_BYTES, Eek, WholeKeys};
pub use genesis::{Genesis, GenesisError, GenesisProfile, Organisation};
pub use ids::{
    AuthorKey, ClientKey, LeaseId, NetworkId, OrgId, ParseIdError, PeerId, Place, ReaderKey,
    RecordId,
};
pub use kek::{EEK_CIPHERTEXT_BYTES, Kek, KekContext};
pub use keyring::file::KeyringFile;
pub use keyring::{Keyring, KeyringError, Purpose};
pub use keys::{KeyError, PublicKey, SecretKey, SharedX, Signature};
pub use revocation::Revocation;
pub use roster::{
    Change, Conflict, FormerKey, Listed, Listing, Roster, RosterError, Rosters, SignedRoster,
    Taught,
};
pub use seal::SealError;
pub use suite::{HASHED_BYTES, HashState, Mac, MacState, Suite, UnknownSuite};
