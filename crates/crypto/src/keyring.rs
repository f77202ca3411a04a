//! One seed from which all keys of a user follow.
//!
//! ```text
//! key = HKDF-SHA-256-Expand(HKDF-Extract(salt "holdfast keyring v1", seed),
//!                           lp(purpose) || BE64(counter) || BE32(try), 32)
//! ```
//! with the first try, from 0, that is a scalar of the curve (the next one is needed about once in
//! 2^128). Purposes: `reader` 0 to 63, published; `author` and `self`, each counter used once;
//! `client` 0, the key of connections.
//!
//! One seed and not a file of keys, because a seed can be written down as 24 words and never grows.
//! Author keys are used once, because a fixed pool of keys ties all of a person's records together
//! after a few hundred uploads.
//!
//! What a counter was used for is found by the `issued` rows (see [`issued`]); the file form is
//! [`file`], the keys of a put's journal are in [`journal`]. A counter's row must be durable before the counter is used.

pub mod file;
pub mod issued;
pub mod journal;
pub mod paid;
mod words;

use std::fmt;

use aws_lc_rs::hkdf;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::{Class, Classified, ClientKey, ReaderKey, SecretKey};

/// A seed's length, in bytes.
pub const SEED_BYTES: usize = 32;
/// How many reader keys a keyring publishes.
pub const READER_KEYS: u32 = 64;
const SALT: &[u8] = b"holdfast keyring v1";

/// What a derived key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Purpose {
    /// Published: others seal envelopes to it.
    Reader = 1,
    /// Seals one document, then is not used again.
    Author = 2,
    /// The reader's side of one document's self-addressed envelope.
    OwnReader = 3,
    /// Proves who connects to the network.
    Client = 4,
    /// Owns this user's objects: their policies count where it signed them.
    Owner = 5,
}

impl Purpose {
    /// Its name in the derivation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Author => "author",
            Self::OwnReader => "self",
            Self::Client => "client",
            Self::Owner => "owner",
        }
    }
}

/// Why words, a file or a passphrase gave no keyring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyringError {
    /// The passphrase is not the one the file was sealed with, or the file's sealed part is damaged:
    /// the two cannot be told apart.
    #[error("wrong passphrase, or the keyring file is damaged")]
    WrongPassphrase,
    /// Not a keyring file.
    #[error("not a keyring file")]
    Encoding(#[from] crate::canonical::CanonicalError),
    /// A version this program does not know.
    #[error("keyring file version {0} is not known to this program; a newer one may read it")]
    Version(u32),
    /// A field of a length it cannot have.
    #[error("the keyring file's {0} is not valid")]
    Field(&'static str),
    /// scrypt parameters outside of the bounds.
    #[error(
        "the keyring file asks for scrypt parameters out of bounds (log N {log_n}, r {r}, p {p})"
    )]
    Scrypt {
        /// Base-2 logarithm of N.
        log_n: u32,
        /// Block size.
        r: u32,
        /// Parallelism.
        p: u32,
    },
    /// Not 24 words of the English BIP-39 list with a right checksum.
    #[error("not the 24 words of a keyring")]
    Words(#[source] bip39::Error),
    /// A reader key beyond the published ones.
    #[error("reader keys are numbered 0 to 63")]
    ReaderIndex,
    /// A row of the `issued` file whose check does not match, or another keyring's.
    #[error("a row of the list of issued keys is damaged, or of another keyring")]
    Issued,
}

impl Classified for KeyringError {
    fn class(&self) -> Class {
        match self {
            Self::WrongPassphrase => Class::Denied,
            Self::Issued => Class::Corrupt,
            _ => Class::Invalid,
        }
    }
}

/// A user's keys. Wiped when dropped, never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Keyring {
    seed: [u8; SEED_BYTES],
    /// The key of the `issued` rows, derived once: a home with a million rows checks every one.
    index: [u8; 32],
}

impl Keyring {
    /// The keyring of this seed: 32 random bytes for a new one.
    pub fn from_seed(seed: &[u8; SEED_BYTES]) -> Self {
        let mut keyring = Self { seed: *seed, index: [0; 32] };
        keyring.index = *keyring.expand("index", 0, 0);
        keyring
    }

    /// The published reader key `index`, 0 to 63.
    ///
    /// # Errors
    /// [`KeyringError::ReaderIndex`].
    pub fn reader(&self, index: u32) -> Result<SecretKey, KeyringError> {
        if index >= READER_KEYS {
            return Err(KeyringError::ReaderIndex);
        }
        Ok(self.derive(Purpose::Reader, u64::from(index)))
    }

    /// All published reader keys' public sides, in order.
    pub fn readers(&self) -> Vec<ReaderKey> {
        (0..u64::from(READER_KEYS))
            .map(|index| ReaderKey::new(self.derive(Purpose::Reader, index).public()))
            .collect()
    }

    /// The author key of one counter. Each counter is for one document.
    pub fn author(&self, counter: u64) -> SecretKey {
        self.derive(Purpose::Author, counter)
    }

    /// The reader key of one counter, for the self-addressed envelope of one document.
    pub fn own_reader(&self, counter: u64) -> SecretKey {
        self.derive(Purpose::OwnReader, counter)
    }

    /// The key of this user's connections.
    pub fn client(&self) -> SecretKey {
        self.derive(Purpose::Client, 0)
    }

    /// The public side of [`Keyring::client`].
    pub fn client_key(&self) -> ClientKey {
        ClientKey::new(self.client().public())
    }

    /// The key that owns this user's objects.
    pub fn owner(&self) -> SecretKey {
        self.derive(Purpose::Owner, 0)
    }

    fn derive(&self, purpose: Purpose, counter: u64) -> SecretKey {
        (0..=u32::MAX)
            .find_map(|attempt| {
                let bytes = self.expand(purpose.name(), counter, attempt);
                SecretKey::from_bytes(&bytes).ok()
            })
            .expect("all but one in 2^128 tries is a scalar")
    }

    /// 32 derived bytes, key or not.
    fn expand(&self, purpose: &str, counter: u64, attempt: u32) -> Zeroizing<[u8; 32]> {
        let mut bytes = Zeroizing::new([0; 32]);
        hkdf::Salt::new(hkdf::HKDF_SHA256, SALT)
            .extract(&self.seed)
            .expand(
                &[
                    &(purpose.len() as u64).to_be_bytes(),
                    purpose.as_bytes(),
                    &counter.to_be_bytes(),
                    &attempt.to_be_bytes(),
                ],
                hkdf::HKDF_SHA256,
            )
            .and_then(|key| key.fill(&mut bytes[..]))
            .expect("32 bytes are within HKDF's 255 blocks");
        bytes
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyring(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_purposes_and_counters_differ_and_repeat() {
        let keyring = Keyring::from_seed(&[1; 32]);
        let keys = |keyring: &Keyring| {
            let mut keys = keyring.readers().iter().map(|key| *key.key()).collect::<Vec<_>>();
            keys.push(keyring.client().public());
            keys.push(keyring.owner().public());
            for counter in [0, 1, 63, 64, u64::MAX] {
                keys.push(keyring.author(counter).public());
                keys.push(keyring.own_reader(counter).public());
            }
            keys
        };
        let first = keys(&keyring);
        assert_eq!(first, keys(&keyring.clone()));
        let mut sorted = first.clone();
        sorted.extend(keys(&Keyring::from_seed(&[2; 32])));
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 2 * first.len());
    }

    #[test]
    fn reader_keys_end_at_64() {
        let keyring = Keyring::from_seed(&[1; 32]);
        assert_eq!(keyring.readers().len(), 64);
        let last = keyring.reader(63).expect("63 is published").public();
        assert_eq!(last, *keyring.readers()[63].key());
        assert!(matches!(keyring.reader(64), Err(KeyringError::ReaderIndex)));
    }

    #[test]
    fn a_keyring_does_not_print() {
        assert_eq!(format!("{:?}", Keyring::from_seed(&[1; 32])), "Keyring(..)");
    }
}
