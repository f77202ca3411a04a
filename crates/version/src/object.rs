//! An object's record: whose it is, and what its owner calls it.
//!
//! ```text
//! "holdfast object" | network, 32 | owner's public key, 33 | name, 1 to 1,024 bytes
//! ```
//! The hash of these bytes is the object's key. So nobody squats a name, and whoever holds the record knows the only
//! key whose policies count. The name of an open object is the owner's. That of a sealed one is a MAC of it, so that no
//! peer sees a name.

use bytes::Bytes;
use crypto::{NetworkId, PublicKey, RecordId, Suite};
use document::{Kind, Record};

use crate::reader::Reader;
use crate::{ObjectKey, VersionError};

/// The longest name of an object, in bytes.
pub const NAME_BYTES_MAX: usize = 1_024;

const PREFIX: &[u8] = b"holdfast object";
const HEAD_BYTES: usize = PREFIX.len() + 32 + 33;
const WHAT: &str = "object's record";

/// Whose an object is, and what it is called.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectRecord {
    /// The network it is in.
    pub network: NetworkId,
    /// Its owner.
    pub owner: PublicKey,
    /// Its name, or a sealed one's MAC of it: 1 to [`NAME_BYTES_MAX`] bytes.
    pub name: Bytes,
}

impl ObjectRecord {
    /// Decodes and checks; the name shares `bytes`.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, VersionError> {
        let mut reader = Reader::new(WHAT, bytes);
        reader.prefix(PREFIX)?;
        let network = NetworkId::new(reader.array()?);
        let owner = PublicKey::from_slice(&reader.array::<33>()?)?;
        check_name(reader.rest())?;
        Ok(Self { network, owner, name: bytes.slice(HEAD_BYTES..) })
    }

    /// The encoding.
    ///
    /// # Errors
    /// [`VersionError`] where the name is empty or too long.
    pub fn encode(&self) -> Result<Bytes, VersionError> {
        encode(&self.network, &self.owner, &self.name).map(Bytes::from)
    }

    /// The record, whose id is the object's key.
    ///
    /// # Errors
    /// As [`ObjectRecord::encode`].
    pub fn record(&self, suite: Suite) -> Result<Record, VersionError> {
        let bytes = self.encode()?;
        let id: RecordId = suite.id(&bytes);
        Ok(Record { kind: Kind::Object, id, place: id.into(), bytes })
    }

    /// The object's key.
    ///
    /// # Errors
    /// As [`ObjectRecord::encode`].
    pub fn key(&self, suite: Suite) -> Result<ObjectKey, VersionError> {
        key_of(suite, &self.network, &self.owner, &self.name)
    }
}

/// The key of the object that `owner` calls `name`.
///
/// # Errors
/// [`VersionError`] where the name is empty or too long.
pub fn key_of(
    suite: Suite,
    network: &NetworkId,
    owner: &PublicKey,
    name: &[u8],
) -> Result<ObjectKey, VersionError> {
    encode(network, owner, name).map(|bytes| suite.id(&bytes).into())
}

fn encode(network: &NetworkId, owner: &PublicKey, name: &[u8]) -> Result<Vec<u8>, VersionError> {
    check_name(name)?;
    let mut out = Vec::with_capacity(HEAD_BYTES + name.len());
    out.extend_from_slice(PREFIX);
    out.extend_from_slice(network.as_bytes());
    out.extend_from_slice(owner.as_bytes());
    out.extend_from_slice(name);
    Ok(out)
}

/// Whether an object can be called so.
pub(crate) const fn check_name(name: &[u8]) -> Result<(), VersionError> {
    if name.is_empty() {
        return Err(VersionError::Field("name of the object, which is empty,"));
    }
    if name.len() > NAME_BYTES_MAX {
        let (found, max) = (name.len(), NAME_BYTES_MAX);
        return Err(VersionError::TooLarge { what: "name of an object", found, max });
    }
    Ok(())
}

impl std::fmt::Debug for ObjectRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectRecord({}, {})", self.owner, self.name.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use crypto::SecretKey;

    use super::*;

    fn object(name: &'static [u8]) -> ObjectRecord {
        let owner = SecretKey::from_bytes(&[1; 32]).expect("a small scalar").public();
        ObjectRecord { network: NetworkId::new([9; 32]), owner, name: Bytes::from_static(name) }
    }

    #[test]
    fn its_id_is_the_objects_key() {
        for suite in Suite::ALL {
            let object = object(b"report");
            let record = object.record(suite).expect("a good name");
            assert_eq!(ObjectRecord::decode(&record.bytes).expect("its own"), object);
            assert_eq!(object.key(suite).expect("a good name").record(), record.id);
            assert_eq!(suite.id(&record.bytes), record.id);
            let key = key_of(suite, &object.network, &object.owner, b"report");
            assert_eq!(key.expect("a good name").record(), record.id);
        }
    }

    #[test]
    fn names_have_bounds_and_owners_are_points() {
        assert!(object(b"").encode().is_err());
        assert!(object(&[b'x'; NAME_BYTES_MAX + 1]).encode().is_err());
        let longest = object(&[b'x'; NAME_BYTES_MAX]).encode().expect("the longest name");
        let long = Bytes::from([&longest[..], b"x"].concat());
        assert!(matches!(ObjectRecord::decode(&long), Err(VersionError::TooLarge { .. })));
        for length in 0..=HEAD_BYTES {
            assert!(ObjectRecord::decode(&longest.slice(..length)).is_err(), "{length}");
        }
        let mut other = longest.to_vec();
        other[PREFIX.len() + 32] = 7;
        assert!(matches!(ObjectRecord::decode(&other.into()), Err(VersionError::Key(_))));
    }
}
