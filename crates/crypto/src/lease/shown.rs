//! A lease as it travels: with its pass, the leaves of what it is shown for, and their paths.

use bytes::Bytes;
use prost::Message;

use super::tree::{Hash, PATH_MAX};
use super::{Leaf, LeaseError};
use crate::certificate::SIGNED_BYTES_MAX;
use crate::{Place, canonical};

/// Leaves shown at once, at most.
pub const SHOWN_LEAVES_MAX: usize = 1024;
/// The largest encoding: lease and pass, and so many leaves with the longest paths.
pub const SHOWN_BYTES_MAX: usize = 2 * SIGNED_BYTES_MAX + SHOWN_LEAVES_MAX * LEAF_BYTES_ENCODED_MAX;
/// A leaf with the longest path, encoded.
const LEAF_BYTES_ENCODED_MAX: usize = 64 + 32 * PATH_MAX;

/// A leaf, and what proves that it is one of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownLeaf {
    /// The leaf.
    pub leaf: Leaf,
    /// Which one, from 0.
    pub index: u32,
    /// The hashes that lead to the root, lowest first.
    pub path: Vec<Hash>,
}

/// A lease, its pass, and some of its leaves. Nothing of it was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The signed lease.
    pub lease: Bytes,
    /// The signed pass.
    pub pass: Bytes,
    /// Leaves, for the places of the records that it goes with.
    pub leaves: Vec<ShownLeaf>,
}

#[derive(Clone, PartialEq, Message)]
struct ShownWire {
    #[prost(bytes = "bytes", tag = "1")]
    lease: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pass: Bytes,
    #[prost(message, repeated, tag = "3")]
    leaves: Vec<LeafWire>,
}

#[derive(Clone, PartialEq, Message)]
struct LeafWire {
    #[prost(bytes = "bytes", tag = "1")]
    place: Bytes,
    #[prost(uint64, tag = "2")]
    bytes: u64,
    #[prost(uint32, tag = "3")]
    index: u32,
    #[prost(bytes = "bytes", tag = "4")]
    path: Bytes,
}

/// Counts the fields before they are decoded: two bytes of an empty leaf are a hundred once they are.
fn check_count(mut bytes: &[u8]) -> Result<(), LeaseError> {
    for _ in 0..SHOWN_LEAVES_MAX + 2 {
        if bytes.is_empty() {
            return Ok(());
        }
        // Its three fields have tags of one byte. Anything else is no lease.
        let [0x0a | 0x12 | 0x1a, behind @ ..] = bytes else {
            return Err(LeaseError::Field("form"));
        };
        let mut rest = behind;
        let Ok(len) = prost::encoding::decode_varint(&mut rest) else { return Ok(()) };
        let Some(next) = usize::try_from(len).ok().and_then(|len| rest.get(len..)) else {
            return Ok(());
        };
        bytes = next;
    }
    if bytes.is_empty() { Ok(()) } else { Err(LeaseError::TooLarge) }
}

impl ShownLeaf {
    fn wire(&self) -> LeafWire {
        LeafWire {
            place: Bytes::copy_from_slice(self.leaf.place.as_bytes()),
            bytes: self.leaf.bytes,
            index: self.index,
            path: self.path.concat().into(),
        }
    }

    fn open(wire: &LeafWire) -> Result<Self, LeaseError> {
        let (hashes, rest) = wire.path.as_chunks::<32>();
        if !rest.is_empty() || hashes.len() > PATH_MAX {
            return Err(LeaseError::Field("path"));
        }
        let place = Place::from_slice(&wire.place).map_err(|_| LeaseError::Field("place"))?;
        let leaf = Leaf { place, bytes: wire.bytes };
        Ok(Self { leaf, index: wire.index, path: hashes.to_vec() })
    }

    /// Its canonical encoding.
    pub fn encode(&self) -> Bytes {
        self.wire().encode_to_vec().into()
    }

    /// Decodes one, checking its form.
    ///
    /// # Errors
    /// [`LeaseError::Encoding`], [`LeaseError::Field`].
    pub fn decode(bytes: &Bytes) -> Result<Self, LeaseError> {
        Self::open(&canonical::decode(bytes)?)
    }
}

impl Shown {
    /// The same lease with the leaves of these places alone; `None` where it has none of them.
    pub fn of(&self, places: impl Fn(&Place) -> bool) -> Option<Self> {
        let mine = self.leaves.iter().filter(|shown| places(&shown.leaf.place));
        let leaves: Vec<_> = mine.cloned().collect();
        let (lease, pass) = (self.lease.clone(), self.pass.clone());
        (!leaves.is_empty()).then_some(Self { lease, pass, leaves })
    }

    /// Its canonical encoding.
    pub fn encode(&self) -> Bytes {
        let wire = ShownWire {
            lease: self.lease.clone(),
            pass: self.pass.clone(),
            leaves: self.leaves.iter().map(ShownLeaf::wire).collect(),
        };
        wire.encode_to_vec().into()
    }

    /// Decodes one, checking its form and its bounds.
    ///
    /// # Errors
    /// [`LeaseError::TooLarge`], [`LeaseError::Encoding`], [`LeaseError::Field`].
    pub fn decode(bytes: &Bytes) -> Result<Self, LeaseError> {
        if bytes.len() > SHOWN_BYTES_MAX {
            return Err(LeaseError::TooLarge);
        }
        check_count(bytes)?;
        let wire: ShownWire = canonical::decode(bytes)?;
        if !(1..=SHOWN_LEAVES_MAX).contains(&wire.leaves.len()) {
            return Err(LeaseError::Field("count of leaves shown"));
        }
        let leaves = wire.leaves.iter().map(ShownLeaf::open).collect::<Result<_, _>>()?;
        Ok(Self { lease: wire.lease, pass: wire.pass, leaves })
    }
}
