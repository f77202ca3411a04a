//! The one key that a committee's word is checked with, whoever its members are.
//!
//! It is a point of BLS12-381's G2, 96 bytes compressed; signatures are points of G1, 48 bytes. Wherever short is better than
//! whole, its **id** stands for it: `BLAKE3("holdfast group v1" | key)`.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use bytes::Bytes;
use commonware_codec::{DecodeExt, Encode};
use commonware_cryptography::bls12381::primitives::variant::{MinSig, Variant};
use crypto::Suite;

use crate::CommitteeError;

/// The length of a group key, in bytes.
pub const GROUP_KEY_BYTES: usize = 96;
/// The length of a certificate's signature, in bytes.
pub(crate) const SIGNATURE_BYTES: usize = 48;

const PREFIX: &[u8] = b"holdfast group v1";

/// The id of a group key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId([u8; 32]);

impl GroupId {
    /// The id with these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupId({self})")
    }
}

type Point = <MinSig as Variant>::Public;

/// A committee's public key. It stays the same though the members do not.
#[derive(Clone)]
pub struct GroupKey {
    bytes: [u8; GROUP_KEY_BYTES],
    /// Looked for when it is first asked for: a header's key is compared with one that is known, and nothing is checked with it.
    point: OnceLock<Option<Point>>,
}

impl PartialEq for GroupKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for GroupKey {}

impl GroupKey {
    /// The key with these bytes.
    ///
    /// # Errors
    /// [`CommitteeError::Field`] for what is no point of the group, or its zero.
    pub fn decode(bytes: &[u8]) -> Result<Self, CommitteeError> {
        const WRONG: CommitteeError = CommitteeError::Field("group key");
        let key = Self::named(bytes.try_into().map_err(|_| WRONG)?);
        if key.point().is_some() { Ok(key) } else { Err(WRONG) }
    }

    /// The key that something names: whether it is one is not looked at.
    pub(crate) const fn named(bytes: [u8; GROUP_KEY_BYTES]) -> Self {
        Self { bytes, point: OnceLock::new() }
    }

    /// The key of this point.
    pub(crate) fn of(point: &Point) -> Result<Self, CommitteeError> {
        Self::decode(&point.encode())
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; GROUP_KEY_BYTES] {
        &self.bytes
    }

    /// The point; `None` where the bytes are none of the group, or its zero.
    pub(crate) fn point(&self) -> Option<&Point> {
        let find = || Point::decode(Bytes::copy_from_slice(&self.bytes)).ok();
        self.point.get_or_init(find).as_ref()
    }

    /// Its id.
    pub fn id(&self) -> GroupId {
        GroupId(Suite::Holdfast1.hash(&[PREFIX, &self.bytes[..]].concat()))
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.bytes))
    }
}

impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupKey({self})")
    }
}

impl FromStr for GroupKey {
    type Err = CommitteeError;
    fn from_str(text: &str) -> Result<Self, CommitteeError> {
        let bytes = hex::decode(text).map_err(|_| CommitteeError::Field("group key"))?;
        Self::decode(&bytes)
    }
}
