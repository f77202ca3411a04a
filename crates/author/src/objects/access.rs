//! What lets others than its owner open a sealed object: a secret, to be handed over on a way that nobody else reads.
//!
//! ```text
//! "holdfast access v1" | network 32 | owner's key 33 | length of the name 2 | name in the object's record | content key 32
//! ```
//! It opens values. What peers give out, the owner's policy says: an access without a line in the policy gets nothing from them.

use std::fmt;

use bytes::Bytes;
use crypto::{ContentKey, NetworkId, PublicKey};
use version::{NAME_BYTES_MAX, ObjectRecord};
use zeroize::Zeroizing;

use super::ObjectsError;

const PREFIX: &[u8] = b"holdfast access v1";

/// What opens a sealed object. It does not print its key.
#[derive(Clone)]
pub struct Access {
    pub(crate) record: ObjectRecord,
    pub(crate) content: ContentKey,
}

impl Access {
    /// Whose object it is.
    pub fn owner(&self) -> PublicKey {
        self.record.owner
    }

    /// Its bytes: whoever has them reads every value of the object that a peer gives out. Seal them, as with [`crate::Author::put`].
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let name = &self.record.name;
        let bytes = PREFIX.len() + 32 + 33 + 2 + name.len() + 32;
        let mut out = Zeroizing::new(Vec::with_capacity(bytes));
        out.extend_from_slice(PREFIX);
        out.extend_from_slice(self.record.network.as_bytes());
        out.extend_from_slice(self.record.owner.as_bytes());
        out.extend_from_slice(&(name.len() as u16).to_be_bytes());
        out.extend_from_slice(name);
        out.extend_from_slice(&self.content.to_bytes()[..]);
        out
    }

    /// Reads what [`Access::encode`] wrote.
    ///
    /// # Errors
    /// [`ObjectsError::Access`] for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, ObjectsError> {
        Self::read(bytes).ok_or(ObjectsError::Access)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(PREFIX)?;
        let (network, rest) = rest.split_first_chunk::<32>()?;
        let (owner, rest) = rest.split_first_chunk::<33>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (name, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return None;
        }
        let content = ContentKey::from_bytes(rest.try_into().ok()?);
        let record = ObjectRecord {
            network: NetworkId::new(*network),
            owner: PublicKey::from_slice(owner).ok()?,
            name: Bytes::copy_from_slice(name),
        };
        Some(Self { record, content })
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({:?})", self.record)
    }
}

#[cfg(test)]
mod tests {
    use crypto::SecretKey;

    use super::*;

    #[test]
    fn it_is_read_again_and_nothing_else_is() {
        let owner = SecretKey::from_bytes(&[1; 32]).expect("a scalar").public();
        let network = NetworkId::new([9; 32]);
        let record = ObjectRecord { network, owner, name: Bytes::from_static(b"a name") };
        let access = Access { record, content: ContentKey::from_bytes(&[7; 32]) };
        let bytes = access.encode();
        let read = Access::decode(&bytes).expect("its own");
        assert_eq!((read.record, read.content), (access.record.clone(), access.content.clone()));
        assert!(!format!("{access:?}").contains("0707"));
        for length in 0..bytes.len() {
            assert!(Access::decode(&bytes[..length]).is_err(), "{length}");
        }
        assert!(Access::decode(&[&bytes[..], b"x"].concat()).is_err());
    }
    /// The bytes that `docs/formats/versions.md` shows.
    #[test]
    fn its_bytes_are_these() {
        let owner = SecretKey::from_bytes(&[1; 32]).expect("a scalar");
        let network = NetworkId::new([9; 32]);
        let keys = crypto::OwnerKeys::new(&owner, &network);
        let name = keys.name(crypto::Suite::Holdfast1, b"report");
        let name = Bytes::copy_from_slice(&name);
        let record = ObjectRecord { network, owner: owner.public(), name };
        let access = Access { record, content: keys.content(&[7; 32]) };
        testkit::golden::check(testkit::manifest!(), "access", &access.encode());
    }
}
