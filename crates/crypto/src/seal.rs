//! AES-256-GCM without associated state: the one cipher of both suites.
//!
//! Callers own the nonces: every key here is fresh random bytes (an EEK), derived for one pair (a
//! KEK) or from a fresh salt (a keyring), and each seals a nonce once
//! (the key of [`WholeKeys::chunk_tag`](crate::WholeKeys::chunk_tag) seals nothing and says why). [`Eek`](crate::Eek) and
//! [`Kek`](crate::Kek) are the types that keep that rule; this module is the arithmetic.
//!
//! aws-lc-rs is used because it is 17 times faster than the portable Rust cipher (19 against
//! 1.1 GB/s on one core), which puts the cipher out of the way of the hashes. Where the processor has the vector
//! instructions of AES without AVX-512, ring is ([`Library`]).

use std::hint::black_box;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::aead as ring_aead;

use crate::{Class, Classified};

/// Bytes a sealed text is longer than its plaintext.
pub const TAG_BYTES: usize = 16;
/// A nonce's length, in bytes.
pub const NONCE_BYTES: usize = 12;

/// Whether this build seals at all. A control build with the feature `unsealed` leaves the plaintext
/// as it is (tags are still made and checked), so that a search of the disks for planted markers can
/// be shown to find what it looks for. This constant is the only place that knows.
pub const SEALED: bool = cfg!(not(feature = "unsealed"));

/// Why sealed bytes did not open.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealError {
    /// Shorter than a tag, or not the length this format has.
    #[error("sealed bytes of a length that they cannot have")]
    Length,
    /// The MAC is not that of these bytes under this key.
    #[error("the MAC does not match")]
    Mac,
    /// The cipher's tag is not that of these bytes under this key and nonce.
    #[error("the cipher's tag does not match")]
    Tag,
    /// More bytes than one nonce may seal (2^36 - 32).
    #[error("too many bytes for one nonce")]
    TooLong,
}

impl Classified for SealError {
    fn class(&self) -> Class {
        match self {
            Self::Length | Self::Mac | Self::Tag => Class::Corrupt,
            Self::TooLong => Class::Invalid,
        }
    }
}

/// Whose AES-GCM is used. Both give the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// aws-lc: sixteen blocks at once with AVX-512, else as older processors can.
    AwsLc,
    /// ring: with AVX2 and the vector instructions of AES two blocks an instruction, which aws-lc has no code for.
    Ring,
}

impl Library {
    /// The one that is faster on this processor: of 1 MiB on an EPYC without AVX-512 ring seals at 5.1 to 6.5 GB/s and aws-lc at
    /// 2.5 to 2.7 (ADR 3); with AVX-512 aws-lc is.
    pub fn fastest() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let two_blocks = has!("avx2") && has!("vaes") && has!("vpclmulqdq");
            let four_blocks =
                has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            if two_blocks && !four_blocks {
                return Self::Ring;
            }
        }
        Self::AwsLc
    }
}

/// An expanded AES-256-GCM key, wiped when it is dropped.
pub(crate) enum Cipher {
    /// aws-lc wipes its schedule.
    AwsLc(LessSafeKey),
    Ring(RingKey),
}

/// ring leaves its schedule in memory, so another takes its place.
pub(crate) struct RingKey(Box<ring_aead::LessSafeKey>);

impl RingKey {
    fn expanded(key: &[u8; 32]) -> ring_aead::LessSafeKey {
        let key = ring_aead::UnboundKey::new(&ring_aead::AES_256_GCM, key);
        ring_aead::LessSafeKey::new(key.expect("an AES-256 key has 32 bytes"))
    }
}

impl Drop for RingKey {
    fn drop(&mut self) {
        *self.0 = Self::expanded(&[0; 32]);
        // What is read after is written.
        black_box(&*self.0);
    }
}

/// The tag of bytes that are not sealed (GMAC). Of aws-lc always: ring takes such bytes a block at a time.
pub(crate) fn tag(
    key: &[u8; 32],
    nonce: [u8; NONCE_BYTES],
    bytes: &[u8],
) -> Result<[u8; TAG_BYTES], SealError> {
    Cipher::of(Library::AwsLc, key).seal_real(nonce, bytes, &mut [])
}

impl Cipher {
    /// The cipher with this key.
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self::of(Library::fastest(), key)
    }

    fn of(library: Library, key: &[u8; 32]) -> Self {
        match library {
            Library::AwsLc => {
                let key = UnboundKey::new(&AES_256_GCM, key).expect("an AES-256 key has 32 bytes");
                Self::AwsLc(LessSafeKey::new(key))
            }
            Library::Ring => Self::Ring(RingKey(Box::new(RingKey::expanded(key)))),
        }
    }

    /// Seals in place and gives the tag.
    pub(crate) fn seal(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], SealError> {
        if !SEALED {
            return self.seal_real(nonce, aad, &mut text.to_vec());
        }
        self.seal_real(nonce, aad, text)
    }

    /// Opens `sealed` (ciphertext, then tag) into `out`, which is a tag shorter. On an error what is
    /// in `out` means nothing and must not be used.
    pub(crate) fn open_into(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<(), SealError> {
        let length = sealed.len().checked_sub(TAG_BYTES).ok_or(SealError::Length)?;
        let (text, tag) = sealed.split_at(length);
        if out.len() != length {
            return Err(SealError::Length);
        }
        if !SEALED {
            out.copy_from_slice(text);
            let ours = self.seal_real(nonce, aad, &mut text.to_vec())?;
            return if ours[..] == *tag { Ok(()) } else { Err(SealError::Tag) };
        }
        match self {
            Self::AwsLc(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.open_separate_gather(nonce, Aad::from(aad), text, tag, out)
                    .map_err(|_| SealError::Tag)
            }
            Self::Ring(key) => {
                let nonce = ring_aead::Nonce::assume_unique_for_key(nonce);
                let tag = ring_aead::Tag::try_from(tag).map_err(|_| SealError::Length)?;
                out.copy_from_slice(text);
                key.0
                    .open_in_place_separate_tag(nonce, ring_aead::Aad::from(aad), tag, out, 0..)
                    .map_err(|_| SealError::Tag)?;
                Ok(())
            }
        }
    }

    fn seal_real(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], SealError> {
        let mut out = [0; TAG_BYTES];
        match self {
            Self::AwsLc(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), text);
                out.copy_from_slice(tag.map_err(|_| SealError::TooLong)?.as_ref());
            }
            Self::Ring(key) => {
                let nonce = ring_aead::Nonce::assume_unique_for_key(nonce);
                let tag = key.0.seal_in_place_separate_tag(nonce, ring_aead::Aad::from(aad), text);
                out.copy_from_slice(tag.map_err(|_| SealError::TooLong)?.as_ref());
            }
        }
        Ok(out)
    }

    /// Seals a vector and appends the tag to it.
    pub(crate) fn seal_vec(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        mut text: Vec<u8>,
    ) -> Result<Vec<u8>, SealError> {
        let tag = self.seal(nonce, aad, &mut text)?;
        text.extend_from_slice(&tag);
        Ok(text)
    }

    /// Opens into a new vector.
    pub(crate) fn open_vec(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let length = sealed.len().checked_sub(TAG_BYTES).ok_or(SealError::Length)?;
        let mut out = vec![0; length];
        self.open_into(nonce, aad, sealed, &mut out)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARIES: [Library; 2] = [Library::AwsLc, Library::Ring];

    /// Test case 14 of the GCM specification (McGrew and Viega): zero key, zero nonce, one zero block.
    #[test]
    fn it_is_aes_256_gcm() {
        for library in LIBRARIES {
            let cipher = Cipher::of(library, &[0; 32]);
            let sealed = cipher.seal_vec([0; 12], b"", vec![0; 16]).expect("short");
            assert_eq!(
                hex::encode(&sealed),
                "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"
            );
            assert_eq!(cipher.open_vec([0; 12], b"", &sealed), Ok(vec![0; 16]));
        }
        // Test case 13: no text, nothing beside it.
        let nothing = tag(&[0; 32], [0; 12], b"").expect("short");
        assert_eq!(hex::encode(nothing), "530f8afbc74536b9a963b4f1c4cb738b");
        let cipher = Cipher::new(&[0; 32]);
        assert_eq!(tag(&[0; 32], [1; 12], b"aad"), cipher.seal([1; 12], b"aad", &mut []));
    }

    #[test]
    fn any_flipped_bit_other_nonce_or_other_aad_is_refused() {
        for cipher in LIBRARIES.map(|library| Cipher::of(library, &[1; 32])) {
            let sealed = cipher.seal_vec([2; 12], b"aad", b"text".to_vec()).expect("short");
            for bit in 0..sealed.len() * 8 {
                let mut bad = sealed.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(cipher.open_vec([2; 12], b"aad", &bad), Err(SealError::Tag));
            }
            assert_eq!(cipher.open_vec([3; 12], b"aad", &sealed), Err(SealError::Tag));
            assert_eq!(cipher.open_vec([2; 12], b"add", &sealed), Err(SealError::Tag));
            assert_eq!(cipher.open_vec([2; 12], b"aad", &sealed[..15]), Err(SealError::Length));
            let mut short = [0; 3];
            assert_eq!(
                cipher.open_into([2; 12], b"aad", &sealed, &mut short),
                Err(SealError::Length)
            );
        }
    }

    /// What one library sealed the other opens, whatever ends of blocks and of vectors a length has.
    #[test]
    fn both_libraries_give_the_same_bytes() {
        let lengths = (0..530).chain([4095, 4096, 4097, 16_383, 65_537, 2 << 20]);
        for length in lengths {
            let key = std::array::from_fn(|at| (at * 7 + length) as u8);
            let [one, other] = LIBRARIES.map(|library| Cipher::of(library, &key));
            let text: Vec<u8> = (0..length).map(|at| ((at * at) >> 3) as u8).collect();
            let nonce = std::array::from_fn(|at| (length >> at) as u8);
            let aad = &key[..length % 33];
            let sealed = one.seal_vec(nonce, aad, text.clone()).expect("short");
            assert_eq!(other.seal_vec(nonce, aad, text.clone()), Ok(sealed.clone()), "{length}");
            for cipher in [&one, &other] {
                assert_eq!(cipher.open_vec(nonce, aad, &sealed), Ok(text.clone()), "{length}");
            }
        }
    }
}
