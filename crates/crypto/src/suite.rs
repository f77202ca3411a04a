//! The two suites: which hash names a record, which MAC guards it.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::{digest, hmac};

use crate::ids::RecordId;
use crate::side_by_side;

/// A 32-byte message authentication code. Compare with [`Suite::verify_mac`], never with `==`.
pub type Mac = [u8; 32];

/// The set of algorithms a network is created with, named in its genesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Suite {
    /// BLAKE3 ids and MACs, chunks compressed one by one.
    #[default]
    Holdfast1,
    /// SHA-256 ids and HMAC-SHA-256: byte-compatible with the original Libri.
    Libri1,
}

/// A suite's name that is neither `holdfast-1` nor `libri-1`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown suite: use holdfast-1 or libri-1")]
pub struct UnknownSuite;

impl Suite {
    /// Both suites.
    pub const ALL: [Self; 2] = [Self::Holdfast1, Self::Libri1];

    /// The suite's name, as it stands in a genesis.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holdfast1 => "holdfast-1",
            Self::Libri1 => "libri-1",
        }
    }

    /// The id of a record with these bytes: BLAKE3-256 or SHA-256.
    pub fn id(self, bytes: &[u8]) -> RecordId {
        RecordId::new(self.hash(bytes))
    }

    /// The suite's hash of these bytes.
    pub fn hash(self, bytes: &[u8]) -> [u8; 32] {
        match self {
            Self::Holdfast1 => *blake3::hash(bytes).as_bytes(),
            Self::Libri1 => {
                let mut out = [0; 32];
                out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
                out
            }
        }
    }

    /// The suite's hash of each message, at its place in `out`: of several short ones at once, where that is faster.
    ///
    /// # Panics
    /// Where `out` is not as long as `messages`.
    pub fn hash_each(self, messages: &[&[u8]], out: &mut [[u8; 32]]) {
        assert_eq!(messages.len(), out.len(), "a place for each hash");
        match self {
            Self::Holdfast1 => side_by_side::hash_each(messages, out),
            Self::Libri1 => {
                for (message, out) in messages.iter().zip(out) {
                    *out = self.hash(message);
                }
            }
        }
    }

    /// The suite's hash of these parts, one behind the other, which are not copied together.
    pub fn hash_parts(self, parts: &[&[u8]]) -> [u8; 32] {
        match self {
            Self::Holdfast1 => {
                let mut hasher = blake3::Hasher::new();
                for part in parts {
                    hasher.update(part);
                }
                *hasher.finalize().as_bytes()
            }
            Self::Libri1 => {
                let mut context = digest::Context::new(&digest::SHA256);
                parts.iter().for_each(|part| context.update(part));
                let mut out = [0; 32];
                out.copy_from_slice(context.finish().as_ref());
                out
            }
        }
    }

    /// The MAC of these bytes under this key: keyed BLAKE3 or HMAC-SHA-256.
    pub fn mac(self, key: &[u8; 32], bytes: &[u8]) -> Mac {
        let mut state = self.mac_state(key);
        state.update(bytes);
        state.finish()
    }

    /// A MAC that is fed in parts.
    pub fn mac_state(self, key: &[u8; 32]) -> MacState {
        match self {
            Self::Holdfast1 => MacState::Blake3(Box::new(blake3::Hasher::new_keyed(key))),
            Self::Libri1 => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, key);
                MacState::Hmac(Box::new(hmac::Context::with_key(&key)))
            }
        }
    }

    /// Whether `mac` is the MAC of these bytes, compared in constant time.
    pub fn verify_mac(self, key: &[u8; 32], bytes: &[u8], mac: &[u8]) -> bool {
        same_mac(&self.mac(key, bytes), mac)
    }
}

/// Whether two MACs are equal, in time that does not depend on where they differ.
pub(crate) fn same_mac(ours: &Mac, theirs: &[u8]) -> bool {
    use subtle::ConstantTimeEq;
    ours.ct_eq(theirs).into()
}

/// A MAC being computed over a stream.
#[derive(Clone)]
pub enum MacState {
    /// Keyed BLAKE3.
    Blake3(Box<blake3::Hasher>),
    /// HMAC-SHA-256.
    Hmac(Box<hmac::Context>),
}

impl MacState {
    /// Takes the next bytes of the stream.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Self::Hmac(context) => context.update(bytes),
        }
    }

    /// The MAC of all that was taken.
    pub fn finish(self) -> Mac {
        match self {
            Self::Blake3(hasher) => *hasher.finalize().as_bytes(),
            Self::Hmac(context) => {
                let mut out = [0; 32];
                out.copy_from_slice(context.sign().as_ref());
                out
            }
        }
    }

    /// Whether the MAC of all that was taken is `mac`, compared in constant time.
    pub fn verify(self, mac: &[u8]) -> bool {
        same_mac(&self.finish(), mac)
    }
}

impl fmt::Debug for MacState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacState(..)")
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Suite {
    type Err = UnknownSuite;
    fn from_str(text: &str) -> Result<Self, UnknownSuite> {
        Self::ALL.into_iter().find(|suite| suite.name() == text).ok_or(UnknownSuite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for suite in Suite::ALL {
            assert_eq!(suite.name().parse(), Ok(suite));
        }
        assert_eq!("libri-2".parse::<Suite>(), Err(UnknownSuite));
    }

    #[test]
    fn hashes_are_the_published_ones() {
        assert_eq!(
            Suite::Holdfast1.id(b"").to_string(),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
        assert_eq!(
            Suite::Libri1.id(b"").to_string(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_hash_of_parts_is_the_hash_of_the_whole() {
        for suite in Suite::ALL {
            let whole = [7; 5_000];
            for at in [0, 1, 64, 1_024, 1_025, 4_999, 5_000] {
                let (left, right) = whole.split_at(at);
                assert_eq!(suite.hash_parts(&[left, right]), suite.hash(&whole), "{at}");
            }
            assert_eq!(suite.hash_parts(&[]), suite.hash(b""));
        }
    }

    #[test]
    fn a_mac_in_parts_is_the_mac_of_the_whole() {
        for suite in Suite::ALL {
            let mut state = suite.mac_state(&[1; 32]);
            state.update(b"one ");
            state.update(b"two");
            let whole = suite.mac(&[1; 32], b"one two");
            assert!(state.clone().verify(&whole));
            assert!(!suite.verify_mac(&[2; 32], b"one two", &whole));
            assert!(!suite.verify_mac(&[1; 32], b"one two", &whole[..31]));
        }
    }
}
