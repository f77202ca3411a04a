//! The keys of sealed objects: one for an owner's names, and one for each object's values.
//!
//! ```text
//! names key     = HKDF-SHA-256(salt "holdfast objects v1", owner's private key, lp("names") || network)
//! content key   = HKDF-SHA-256(salt "holdfast objects v1", owner's private key, lp("content") || network || object's key)
//! siv           = MAC(HKDF(salt "holdfast value v1", content key, lp("mac")), value kind || text)
//! key || nonce  = HKDF(salt "holdfast value v1", content key, lp("value") || value kind || siv)
//! sealed        = siv 32 | AES-256-GCM ciphertext | tag 16
//! ```
//! A value's key is made of the MAC of its very bytes: the same value is sealed to the same bytes, so that it makes the same
//! version, and no nonce meets two texts. What shows is lengths, and that two values of one object are equal. The MAC is
//! compared after opening: sealed bytes open under one key alone.

use std::fmt;

use aws_lc_rs::hkdf;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::seal::{Cipher, NONCE_BYTES, SealError, TAG_BYTES};
use crate::suite::same_mac;
use crate::{AuthorKey, EEK_BYTES, Eek, Mac, NetworkId, SecretKey, Suite};

/// Bytes that a sealed value is longer than its text.
pub const VALUE_SEAL_BYTES: usize = 32 + TAG_BYTES;

const OWNER_SALT: &[u8] = b"holdfast objects v1";
const VALUE_SALT: &[u8] = b"holdfast value v1";
const OPEN_CONTEXT: &[u8] = b"holdfast open content v1";

/// What an owner's objects are made of: their names and their content keys. Wiped when dropped, never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct OwnerKeys {
    owner: [u8; 32],
    network: [u8; 32],
}

/// The secret of one object's values. Wiped when dropped, never printed.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct ContentKey([u8; 32]);

impl OwnerKeys {
    /// Those of an owner in a network.
    pub fn new(owner: &SecretKey, network: &NetworkId) -> Self {
        Self { owner: *owner.to_bytes(), network: *network.as_bytes() }
    }

    /// What stands for a name in a sealed object's record.
    pub fn name(&self, suite: Suite, name: &[u8]) -> Mac {
        let mut key = Zeroizing::new([0; 32]);
        expand(OWNER_SALT, &self.owner, &[&lp("names"), b"names", &self.network], &mut key[..]);
        suite.mac(&key, name)
    }

    /// The key of the values of the object with this key.
    pub fn content(&self, object: &[u8; 32]) -> ContentKey {
        let mut key = ContentKey([0; 32]);
        let info: [&[u8]; 4] = [&lp("content"), b"content", &self.network, object];
        expand(OWNER_SALT, &self.owner, &info, &mut key.0);
        key
    }
}

impl ContentKey {
    /// The key with these bytes.
    pub const fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(*bytes)
    }

    /// That of an open object, which is no secret.
    pub fn open(suite: Suite, object: &[u8; 32]) -> Self {
        Self(suite.hash(&[OPEN_CONTEXT, object].concat()))
    }

    /// Its bytes, to be handed to a reader over a way that nobody else reads.
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0)
    }

    /// Seals the text of a value of this kind. The same text gives the same bytes.
    ///
    /// # Errors
    /// [`SealError::TooLong`] over 64 GiB.
    pub fn seal(&self, suite: Suite, kind: u8, text: &[u8]) -> Result<Vec<u8>, SealError> {
        let siv = self.siv(suite, kind, text);
        let (cipher, nonce) = self.cipher(kind, &siv);
        let mut out = Vec::with_capacity(text.len() + VALUE_SEAL_BYTES);
        out.extend_from_slice(&siv);
        out.extend_from_slice(text);
        let tag = cipher.seal(nonce, &[kind], &mut out[32..])?;
        out.extend_from_slice(&tag);
        Ok(out)
    }

    /// The text of a sealed value of this kind.
    ///
    /// # Errors
    /// [`SealError`] for what was not sealed under this key, or as another kind.
    pub fn open_value(&self, suite: Suite, kind: u8, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (siv, sealed) = sealed.split_first_chunk::<32>().ok_or(SealError::Length)?;
        let (cipher, nonce) = self.cipher(kind, siv);
        let text = cipher.open_vec(nonce, &[kind], sealed)?;
        if same_mac(&self.siv(suite, kind, &text), siv) { Ok(text) } else { Err(SealError::Mac) }
    }

    /// The key of the entry that holds a large value; `author` is the entry's, which is used for no other.
    pub fn entry(&self, author: &AuthorKey) -> Eek {
        let mut bytes = Zeroizing::new([0; EEK_BYTES]);
        let info: [&[u8]; 3] = [&lp("entry"), b"entry", author.as_bytes()];
        expand(VALUE_SALT, &self.0, &info, &mut bytes[..]);
        Eek::from_bytes(&bytes)
    }

    fn siv(&self, suite: Suite, kind: u8, text: &[u8]) -> Mac {
        let mut key = Zeroizing::new([0; 32]);
        expand(VALUE_SALT, &self.0, &[&lp("mac"), b"mac"], &mut key[..]);
        let mut state = suite.mac_state(&key);
        state.update(&[kind]);
        state.update(text);
        state.finish()
    }

    fn cipher(&self, kind: u8, siv: &Mac) -> (Cipher, [u8; NONCE_BYTES]) {
        let mut bytes = Zeroizing::new([0; 32 + NONCE_BYTES]);
        expand(VALUE_SALT, &self.0, &[&lp("value"), b"value", &[kind], siv], &mut bytes[..]);
        let (mut key, mut nonce) = (Zeroizing::new([0; 32]), [0; NONCE_BYTES]);
        key.copy_from_slice(&bytes[..32]);
        nonce.copy_from_slice(&bytes[32..]);
        (Cipher::new(&key), nonce)
    }
}

impl fmt::Debug for OwnerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerKeys(..)")
    }
}

impl fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContentKey(..)")
    }
}

/// The length of a purpose, as it stands before it.
fn lp(purpose: &str) -> [u8; 8] {
    (purpose.len() as u64).to_be_bytes()
}

/// A length that HKDF fills.
struct Bytes(usize);

impl hkdf::KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(salt: &[u8], secret: &[u8; 32], info: &[&[u8]], out: &mut [u8]) {
    hkdf::Salt::new(hkdf::HKDF_SHA256, salt)
        .extract(secret)
        .expand(info, Bytes(out.len()))
        .and_then(|derived| derived.fill(out))
        .expect("a few bytes are within HKDF's 255 blocks");
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: NetworkId = NetworkId::new([9; 32]);

    fn owner(byte: u8) -> OwnerKeys {
        OwnerKeys::new(&SecretKey::from_bytes(&[byte; 32]).expect("a scalar"), &NETWORK)
    }

    #[test]
    fn names_and_keys_are_an_owners_a_networks_and_an_objects_own() {
        let suite = Suite::Holdfast1;
        let key = SecretKey::from_bytes(&[1; 32]).expect("a scalar");
        let elsewhere = OwnerKeys::new(&key, &NetworkId::new([8; 32]));
        assert_eq!(owner(1).name(suite, b"a"), owner(1).name(suite, b"a"));
        for other in [owner(1).name(suite, b"b"), owner(2).name(suite, b"a")] {
            assert_ne!(owner(1).name(suite, b"a"), other);
        }
        assert_ne!(owner(1).name(suite, b"a"), elsewhere.name(suite, b"a"));
        assert_eq!(owner(1).content(&[3; 32]), owner(1).content(&[3; 32]));
        let others =
            [owner(1).content(&[4; 32]), owner(2).content(&[3; 32]), elsewhere.content(&[3; 32])];
        assert!(others.iter().all(|other| *other != owner(1).content(&[3; 32])));
        assert_eq!(format!("{:?}{:?}", owner(1), others[0]), "OwnerKeys(..)ContentKey(..)");
    }

    #[test]
    fn the_same_value_is_the_same_bytes_and_opens_under_its_key_and_kind_alone() {
        for suite in Suite::ALL {
            let key = owner(1).content(&[3; 32]);
            let sealed = key.seal(suite, 0, b"text").expect("short");
            assert_eq!(sealed, key.seal(suite, 0, b"text").expect("short"));
            assert_eq!(sealed.len(), 4 + VALUE_SEAL_BYTES);
            assert_eq!(key.open_value(suite, 0, &sealed).expect("its own"), b"text");
            assert_ne!(sealed[32..], key.seal(suite, 0, b"texu").expect("short")[32..]);
            assert!(key.open_value(suite, 1, &sealed).is_err());
            assert!(owner(1).content(&[4; 32]).open_value(suite, 0, &sealed).is_err());
            for bit in 0..sealed.len() * 8 {
                let mut bad = sealed.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(key.open_value(suite, 0, &bad).is_err(), "bit {bit}");
            }
            for length in 0..sealed.len() {
                assert!(key.open_value(suite, 0, &sealed[..length]).is_err());
            }
        }
    }

    #[test]
    fn an_entrys_key_is_its_authors() {
        let key = owner(1).content(&[3; 32]);
        let author = |byte: u8| {
            let secret = SecretKey::from_bytes(&[byte; 32]).expect("a scalar");
            AuthorKey::new(secret.public())
        };
        assert_eq!(key.entry(&author(1)).to_bytes(), key.entry(&author(1)).to_bytes());
        assert_ne!(key.entry(&author(1)).to_bytes(), key.entry(&author(2)).to_bytes());
    }
}
