//! The two suites: which hash names a record, which MAC guards it.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::{digest, hmac};

use prefetch_index::prefetch_index;

use crate::ids::RecordId;
use crate::side_by_side;

/// Long messages are hashed so many bytes at a time, and the processor is asked for each from front to back before: so memory comes
/// several times as fast as it is hashed, and a hash by itself reads sixteen places at once, for which it waits. It is asked for and not
/// read, which would be waited for (of 64 MiB on an EPYC with AVX-512, ns a KiB: read before 270 to 284, asked for 222 to 248, neither 225 to
/// 261, in the second cache 175). And several hashes that take such parts one after the other find all but the first in that cache.
///
/// A power of two: BLAKE3 takes each as one tree, as wide as its vectors are.
pub const HASHED_BYTES: usize = 64 << 10;

/// What the processor reads at once, on every machine that counts.
const CACHE_LINE_BYTES: usize = 64;

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
            Self::Holdfast1 if bytes.len() > HASHED_BYTES => self.hash_parts(&[bytes]),
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
        let mut state = self.hash_state();
        parts.iter().for_each(|part| state.update(part));
        state.finish()
    }

    /// A hash that is fed in parts.
    pub fn hash_state(self) -> HashState {
        match self {
            Self::Holdfast1 => HashState::Blake3(Box::default()),
            Self::Libri1 => HashState::Sha256(Box::new(digest::Context::new(&digest::SHA256))),
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

/// Takes the next bytes into a hash, as [`HASHED_BYTES`] tells: in parts that end where those of the whole end.
fn feed(hasher: &mut blake3::Hasher, mut bytes: &[u8]) {
    while bytes.len() > blake3::CHUNK_LEN {
        let in_part = hasher.count() % HASHED_BYTES as u64;
        let (part, rest) = bytes.split_at((HASHED_BYTES - in_part as usize).min(bytes.len()));
        (0..part.len()).step_by(CACHE_LINE_BYTES).for_each(|line| prefetch_index(part, line));
        hasher.update(part);
        bytes = rest;
    }
    hasher.update(bytes);
}

/// A hash being computed over a stream.
#[derive(Clone)]
pub enum HashState {
    /// BLAKE3.
    Blake3(Box<blake3::Hasher>),
    /// SHA-256.
    Sha256(Box<digest::Context>),
}

impl HashState {
    /// Takes the next bytes of the stream.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(hasher) => feed(hasher, bytes),
            Self::Sha256(context) => context.update(bytes),
        }
    }

    /// The hash of all that was taken.
    pub fn finish(self) -> [u8; 32] {
        match self {
            Self::Blake3(hasher) => *hasher.finalize().as_bytes(),
            Self::Sha256(context) => {
                let mut out = [0; 32];
                out.copy_from_slice(context.finish().as_ref());
                out
            }
        }
    }
}

impl fmt::Debug for HashState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashState(..)")
    }
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
            Self::Blake3(hasher) => feed(hasher, bytes),
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

    /// Whatever the parts and where they end, also of long messages, which are hashed a part at a time.
    #[test]
    fn hash_and_mac_of_a_long_message_are_the_published_algorithms() {
        let long: Vec<u8> = (0..5 * HASHED_BYTES as u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let lengths =
            [0, 1, 1_024, 1_025, HASHED_BYTES - 1, HASHED_BYTES, HASHED_BYTES + 1, long.len() - 3];
        for length in lengths {
            let bytes = &long[..length];
            assert_eq!(Suite::Holdfast1.hash(bytes), *blake3::hash(bytes).as_bytes(), "{length}");
            let expected = *blake3::keyed_hash(&[3; 32], bytes).as_bytes();
            assert_eq!(Suite::Holdfast1.mac(&[3; 32], bytes), expected, "{length}");
            for step in [1_000, 1_024, 50_000, HASHED_BYTES, 3 * HASHED_BYTES + 17] {
                for suite in Suite::ALL {
                    let (mut hash, mut mac) = (suite.hash_state(), suite.mac_state(&[3; 32]));
                    for part in bytes.chunks(step) {
                        hash.update(part);
                        mac.update(part);
                    }
                    assert_eq!(hash.finish(), suite.hash(bytes), "{length} by {step}");
                    assert_eq!(mac.finish(), suite.mac(&[3; 32], bytes), "{length} by {step}");
                }
            }
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
