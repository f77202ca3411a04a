//! A Bloom filter over public keys: what a subscriber follows, without a list of whom.
//!
//! ```text
//! Bloom          hashes 1 (u32, 1 to 16) · seed 2 (u64) · bits 3 (bytes, a power of two, 8 to 65,536)
//! ```
//! Key x sets the bits `(a + i * b) mod bits`, i from 0 to hashes - 1, in wrapping u64 arithmetic; a and
//! b are the first two little-endian u64 of BLAKE3(BE64 seed || x), b made odd. Bit n is bit `n mod 8`,
//! from the lowest, of byte `n / 8`.
//!
//! The subscriber chooses a random seed, so nobody can make keys that pass everybody's filters.

use bytes::Bytes;
use crypto::{Suite, canonical};
use prost::Message;

use crate::DocumentError;

/// The smallest filter, in bytes.
pub const BITS_BYTES_MIN: usize = 8;
/// The largest filter, in bytes: one in 100 false for 54,000 keys.
pub const BITS_BYTES_MAX: usize = 64 << 10;
/// The most hash functions.
pub const HASHES_MAX: u32 = 16;
/// Keys of up to so many bytes, all that there are, are hashed without an allocation.
const KEY_BYTES: usize = 33;
/// Bits a key, where the size is ours to choose: about one in 100 false.
const BITS_PER_KEY: usize = 10;
/// Where what it says wrongly would be missed, and the least of bytes then: about one in a million false. A small filter has few
/// different sets of bits, and two keys may have the same.
const STRICT_BITS_PER_KEY: usize = 32;
const STRICT_BYTES_MIN: usize = 1 << 10;

#[derive(Clone, PartialEq, Message)]
struct Wire {
    #[prost(uint32, tag = "1")]
    hashes: u32,
    #[prost(uint64, tag = "2")]
    seed: u64,
    #[prost(bytes = "bytes", tag = "3")]
    bits: Bytes,
}

/// A set of keys that may say yes to a key that is not in it, and never no to one that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bloom {
    hashes: u32,
    seed: u64,
    bits: Vec<u8>,
}

impl Bloom {
    /// An empty filter for about `keys` keys; `seed` is random. Above some 52,000 keys it stays at its
    /// largest size and says yes more often.
    pub fn with_capacity(keys: usize, seed: u64) -> Self {
        Self::sized(keys, BITS_PER_KEY, BITS_BYTES_MIN, seed)
    }

    /// One for where a wrong yes costs more than bytes: about one in a million for up to 16,000 keys, one in 100 for 52,000, at
    /// least 1 KiB long.
    pub fn strict(keys: usize, seed: u64) -> Self {
        Self::sized(keys, STRICT_BITS_PER_KEY, STRICT_BYTES_MIN, seed)
    }

    fn sized(keys: usize, bits_per_key: usize, bytes_min: usize, seed: u64) -> Self {
        let keys = keys.clamp(1, 8 * BITS_BYTES_MAX);
        let wanted = (keys * bits_per_key).div_ceil(8).next_power_of_two();
        let bytes = wanted.clamp(bytes_min, BITS_BYTES_MAX);
        // The best number of hash functions is ln 2 times the bits a key, here in integers.
        let best = (8 * bytes * 693 / 1000 / keys) as u32;
        Self { hashes: best.clamp(1, HASHES_MAX), seed, bits: vec![0; bytes] }
    }

    /// Adds a key.
    pub fn insert(&mut self, key: &[u8]) {
        for bit in self.bits_of(key) {
            self.bits[bit / 8] |= 1 << (bit % 8);
        }
    }

    /// Whether the key may be in the set.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.bits_of(key).all(|bit| self.bits[bit / 8] & 1 << (bit % 8) != 0)
    }

    /// The canonical bytes.
    pub fn encode(&self) -> Bytes {
        let bits = Bytes::copy_from_slice(&self.bits);
        Wire { hashes: self.hashes, seed: self.seed, bits }.encode_to_vec().into()
    }

    /// Decodes and checks.
    ///
    /// # Errors
    /// [`DocumentError`] for what is not canonical or out of bounds.
    pub fn decode(bytes: &Bytes) -> Result<Self, DocumentError> {
        let max = BITS_BYTES_MAX + 32;
        if bytes.len() > max {
            return Err(DocumentError::TooLarge { found: bytes.len(), max });
        }
        let wire: Wire = canonical::decode(bytes)?;
        if !(1..=HASHES_MAX).contains(&wire.hashes) {
            return Err(DocumentError::Field("number of hash functions"));
        }
        let length = wire.bits.len();
        if !length.is_power_of_two() || !(BITS_BYTES_MIN..=BITS_BYTES_MAX).contains(&length) {
            return Err(DocumentError::Field("filter"));
        }
        Ok(Self { hashes: wire.hashes, seed: wire.seed, bits: wire.bits.to_vec() })
    }

    fn bits_of(&self, key: &[u8]) -> impl Iterator<Item = usize> + use<> {
        // The filter is the same in both suites; BLAKE3 is the hash of the first.
        let (mut short, long);
        let hashed: &[u8] = if key.len() <= KEY_BYTES {
            short = [0; 8 + KEY_BYTES];
            short[..8].copy_from_slice(&self.seed.to_be_bytes());
            short[8..8 + key.len()].copy_from_slice(key);
            &short[..8 + key.len()]
        } else {
            long = [&self.seed.to_be_bytes(), key].concat();
            &long
        };
        let hash = Suite::Holdfast1.hash(hashed);
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&hash[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let (a, b) = (word(0), word(8) | 1);
        let mask = 8 * self.bits.len() as u64 - 1;
        (0..u64::from(self.hashes))
            .map(move |i| (a.wrapping_add(i.wrapping_mul(b)) & mask) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_contains_what_was_put_in_and_little_else() {
        for keys in [1_usize, 10, 1_000, 20_000] {
            let mut bloom = Bloom::with_capacity(keys, 42);
            for key in 0..keys as u64 {
                bloom.insert(&key.to_le_bytes());
            }
            assert!((0..keys as u64).all(|key| bloom.may_contain(&key.to_le_bytes())));
            let others = 1_000_000..1_010_000_u64;
            let wrong = others.filter(|key| bloom.may_contain(&key.to_le_bytes())).count();
            assert!(wrong < 300, "{wrong} of 10,000 with {keys} keys");
            assert_eq!(Bloom::decode(&bloom.encode()).expect("our own"), bloom);
        }
    }

    #[test]
    fn a_strict_one_says_yes_to_almost_nothing_else() {
        for keys in [1_usize, 3, 10, 1_000, 16_000] {
            let wrong = |bloom: Bloom| {
                let mut bloom = bloom;
                (0..keys as u64).for_each(|key| bloom.insert(&key.to_le_bytes()));
                let others = 1_000_000..1_020_000_u64;
                others.filter(|key| bloom.may_contain(&key.to_le_bytes())).count()
            };
            let found: usize = (0..5).map(|seed| wrong(Bloom::strict(keys, seed))).sum();
            assert!(found <= 1, "{found} of 100,000 with {keys} keys");
        }
        let (few, many) = (Bloom::strict(1, 1).encode(), Bloom::strict(1_000_000, 1).encode());
        assert!((1 << 10..1100).contains(&few.len()) && many.len() < BITS_BYTES_MAX + 32);
        assert!(Bloom::decode(&few).is_ok() && Bloom::decode(&many).is_ok());
    }

    #[test]
    fn an_empty_filter_contains_nothing() {
        let bloom = Bloom::with_capacity(0, 0);
        assert!((0..1000_u32).all(|key| !bloom.may_contain(&key.to_le_bytes())));
    }

    #[test]
    fn sizes_out_of_bounds_are_refused() {
        let encode = |hashes, length| {
            Bytes::from(Wire { hashes, seed: 0, bits: vec![1; length].into() }.encode_to_vec())
        };
        assert!(Bloom::decode(&encode(1, 8)).is_ok());
        assert!(Bloom::decode(&encode(16, 65_536)).is_ok());
        for (hashes, length) in
            [(0, 8), (17, 8), (u32::MAX, 8), (1, 0), (1, 4), (1, 12), (1, 131_072), (1, 65_537)]
        {
            assert!(Bloom::decode(&encode(hashes, length)).is_err(), "{hashes} {length}");
        }
    }
}
