//! The value of a version of a sealed object: compressed and sealed by its writer, as a chunk is.
//!
//! ```text
//! text   = length of the plaintext, 4 | codec 1 | data          the codec of a chunk
//! value  = siv 32 | ciphertext | tag 16                          crypto::ContentKey
//! ```
//! It is deterministic: the same plaintext under the same key is the same value, by one build's compressor. Another release of zstd, or
//! other samples, may write other frames, and then the same plaintext is another version, which any build reads.

use bytes::Bytes;
use crypto::{ContentKey, Suite, VALUE_SEAL_BYTES};

use crate::{DocumentError, chunk};

/// The longest sealed value, in bytes: what a version holds.
pub const SEALED_BYTES_MAX: usize = 2 << 20;
/// The longest plaintext of one.
pub const VALUE_PLAINTEXT_BYTES_MAX: usize = SEALED_BYTES_MAX - VALUE_SEAL_BYTES - HEAD_BYTES;

/// The length, and the codec.
const HEAD_BYTES: usize = 4 + 1;

/// Seals a value. CPU work: compresses, hashes and encrypts it.
///
/// # Errors
/// [`DocumentError::TooLarge`] over [`VALUE_PLAINTEXT_BYTES_MAX`].
pub fn seal(
    suite: Suite,
    key: &ContentKey,
    kind: u8,
    plaintext: &[u8],
) -> Result<Bytes, DocumentError> {
    let (found, max) = (plaintext.len(), VALUE_PLAINTEXT_BYTES_MAX);
    if found > max {
        return Err(DocumentError::TooLarge { found, max });
    }
    let mut text = Vec::with_capacity(HEAD_BYTES + found);
    text.extend_from_slice(&(found as u32).to_be_bytes());
    let text = chunk::encode(plaintext, text)?;
    Ok(key.seal(suite, kind, &text)?.into())
}

/// Opens a value. CPU work as [`seal`]'s; what it holds is bounded before it is allocated.
///
/// # Errors
/// [`DocumentError::Seal`] for what was not sealed so, [`DocumentError::Chunk`], [`DocumentError::TooLarge`].
pub fn open(
    suite: Suite,
    key: &ContentKey,
    kind: u8,
    sealed: &[u8],
) -> Result<Bytes, DocumentError> {
    if sealed.len() > SEALED_BYTES_MAX {
        let (found, max) = (sealed.len(), SEALED_BYTES_MAX);
        return Err(DocumentError::TooLarge { found, max });
    }
    let text = Bytes::from(key.open_value(suite, kind, sealed)?);
    let Some(length) = text.first_chunk::<4>() else {
        return Err(DocumentError::Field("length of the sealed value"));
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > VALUE_PLAINTEXT_BYTES_MAX {
        return Err(DocumentError::TooLarge { found: length, max: VALUE_PLAINTEXT_BYTES_MAX });
    }
    chunk::decode(text.slice(4..), length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SUITE: Suite = Suite::Holdfast1;

    #[test]
    fn the_longest_fits_a_version_and_one_byte_more_does_not() {
        let key = ContentKey::from_bytes(&[1; 32]);
        // Bytes that do not compress.
        let mut noise = Vec::new();
        while noise.len() <= VALUE_PLAINTEXT_BYTES_MAX {
            noise.extend_from_slice(&SUITE.hash(&noise.len().to_be_bytes()));
        }
        noise.truncate(VALUE_PLAINTEXT_BYTES_MAX + 1);
        let longest = &noise[..VALUE_PLAINTEXT_BYTES_MAX];
        let sealed = seal(SUITE, &key, 0, longest).expect("the longest");
        assert_eq!(sealed.len(), SEALED_BYTES_MAX);
        assert_eq!(open(SUITE, &key, 0, &sealed).expect("its own"), longest);
        let over = seal(SUITE, &key, 0, &noise);
        assert!(matches!(over, Err(DocumentError::TooLarge { .. })));
    }

    #[test]
    fn a_stated_length_is_bounded_before_it_is_believed() {
        let key = ContentKey::from_bytes(&[1; 32]);
        for text in
            [&b"\xff\xff\xff\xff\0"[..], b"\0\0\0", b"", b"\0\0\0\x02\0a", b"\0\0\0\x01\x07a"]
        {
            let sealed = key.seal(SUITE, 0, text).expect("short");
            assert!(open(SUITE, &key, 0, &sealed).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn values_round_trip_and_equal_ones_are_equal(
            unit in proptest::collection::vec(any::<u8>(), 0..60),
            times in 0..40_usize,
            kind in 0..4_u8,
        ) {
            let key = ContentKey::from_bytes(&[7; 32]);
            let value = unit.repeat(times);
            let sealed = seal(SUITE, &key, kind, &value).expect("short");
            prop_assert_eq!(&sealed, &seal(SUITE, &key, kind, &value).expect("short"));
            prop_assert_eq!(open(SUITE, &key, kind, &sealed).expect("its own"), value);
        }
    }
}
