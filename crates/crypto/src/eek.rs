//! The entry encryption key: 108 random bytes that seal one content and its metadata, and no other.
//!
//! ```text
//! AES key 32 | page IV seed 32 | MAC key 32 | metadata IV 12
//! ```
//! Page nonces follow from the index, so an EEK that sealed a second content would repeat nonces and
//! give both away. The rule "one EEK, one content" is kept above: `document::EntrySealer` takes the
//! EEK and hands out every index once.
//!
//! In `holdfast-1` the MAC key is derived from all 108 bytes, so that every MAC commits to every key
//! in it (AES-GCM alone does not commit to its key: one ciphertext can open under two). In `libri-1`
//! it is the third part, as in the original. The keys of the MACs that are of tags ([`WholeKeys`]) are derived alike.
//!
//! ```text
//! page's MAC    = MAC(page key, the 16 bytes of the page ciphertext's tag)
//! chunk's tag   = AES-256-GCM(chunk key, nonce BE96(index), aad the chunk, text "")      (GMAC, SP 800-38D)
//! whole's MACs  = MAC(pages key, the pages' MACs in order), MAC(chunks key, the chunks' tags in order)
//! ```
//! A tag says that the bytes are those sealed, to whoever cannot make one; which bytes were sealed is what a record's id says, to
//! everybody; and the MAC of the tag commits to the key.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::seal::{self, Cipher, NONCE_BYTES, SealError, TAG_BYTES};
use crate::suite::same_mac;
use crate::{Mac, Suite};

/// An EEK's length, in bytes.
pub const EEK_BYTES: usize = 108;
/// The derivation context of `holdfast-1`'s MAC key.
const MAC_CONTEXT: &str = "holdfast-1 mac";
/// Those of the keys of [`WholeKeys`].
const PAGE_CONTEXT: &str = "holdfast-1 mac of a page's tag";
const CHUNK_CONTEXT: &str = "holdfast-1 tag of a chunk";
const CHUNKS_CONTEXT: &str = "holdfast-1 mac of all chunks";
const PAGES_CONTEXT: &str = "holdfast-1 mac of all pages";

/// What a chunk of content is known again by: its GMAC ([`WholeKeys::chunk_tag`]). Not secret, and not to be shown either.
pub type ChunkTag = [u8; TAG_BYTES];

/// The keys of the MACs that are made of tags (`holdfast-1`; a journal has chunks' tags in both suites). Wiped when dropped.
pub struct WholeKeys {
    /// Of the MAC of one page's tag.
    pub page: Zeroizing<[u8; 32]>,
    /// Of the tag of one chunk.
    pub chunk: Zeroizing<[u8; 32]>,
    /// Of the MAC of all chunks' tags.
    pub chunks: Zeroizing<[u8; 32]>,
    /// Of the MAC of all pages' MACs.
    pub pages: Zeroizing<[u8; 32]>,
}

impl WholeKeys {
    /// The MAC of a page by its ciphertext, of which its tag alone is read.
    ///
    /// # Errors
    /// [`SealError::Length`] for what is shorter than a tag.
    pub fn page_mac(&self, ciphertext: &[u8]) -> Result<Mac, SealError> {
        let tag = ciphertext.last_chunk::<TAG_BYTES>().ok_or(SealError::Length)?;
        Ok(Suite::Holdfast1.mac(&self.page, tag))
    }

    /// Whether this is the MAC of the page with this ciphertext, compared in constant time.
    ///
    /// # Errors
    /// [`SealError::Length`] for what is shorter than a tag.
    pub fn is_page_mac(&self, ciphertext: &[u8], mac: &Mac) -> Result<bool, SealError> {
        Ok(same_mac(&self.page_mac(ciphertext)?, mac))
    }

    /// The tag of the chunk at an index: another one has the same once in 2^111, whoever chose it without the key.
    ///
    /// A nonce may come twice, where a chunk was changed between two runs of a put. Two tags under it would let who sees both make
    /// others; they lie in sealed frames of a journal, which the keyring's owner alone opens, or go into a MAC. The key must seal
    /// nothing.
    ///
    /// # Errors
    /// [`SealError::TooLong`]: no chunk is.
    pub fn chunk_tag(&self, index: u32, chunk: &[u8]) -> Result<ChunkTag, SealError> {
        let mut nonce = [0; NONCE_BYTES];
        nonce[NONCE_BYTES - 4..].copy_from_slice(&index.to_be_bytes());
        seal::tag(&self.chunk, nonce, chunk)
    }
}

impl fmt::Debug for WholeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WholeKeys(..)")
    }
}

/// An entry encryption key. Wiped when dropped, never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Eek {
    aes: [u8; 32],
    page_iv_seed: [u8; 32],
    mac: [u8; 32],
    metadata_iv: [u8; NONCE_BYTES],
}

impl Eek {
    /// The key with these bytes; fresh random ones for a new entry.
    pub fn from_bytes(bytes: &[u8; EEK_BYTES]) -> Self {
        let mut key = Self {
            aes: [0; 32],
            page_iv_seed: [0; 32],
            mac: [0; 32],
            metadata_iv: [0; NONCE_BYTES],
        };
        key.aes.copy_from_slice(&bytes[..32]);
        key.page_iv_seed.copy_from_slice(&bytes[32..64]);
        key.mac.copy_from_slice(&bytes[64..96]);
        key.metadata_iv.copy_from_slice(&bytes[96..]);
        key
    }

    /// Its bytes, to be sealed in an envelope or a journal.
    pub fn to_bytes(&self) -> Zeroizing<[u8; EEK_BYTES]> {
        let mut bytes = Zeroizing::new([0; EEK_BYTES]);
        bytes[..32].copy_from_slice(&self.aes);
        bytes[32..64].copy_from_slice(&self.page_iv_seed);
        bytes[64..96].copy_from_slice(&self.mac);
        bytes[96..].copy_from_slice(&self.metadata_iv);
        bytes
    }

    /// The key of the MACs of ciphertexts: of the metadata, and of pages where their MACs are not of tags.
    pub fn mac_key(&self, suite: Suite) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(match suite {
            Suite::Holdfast1 => blake3::derive_key(MAC_CONTEXT, &self.to_bytes()[..]),
            Suite::Libri1 => self.mac,
        })
    }

    /// The keys of the MACs that are made of tags.
    pub fn whole_keys(&self) -> WholeKeys {
        let bytes = self.to_bytes();
        let key = |context| Zeroizing::new(blake3::derive_key(context, &bytes[..]));
        WholeKeys {
            page: key(PAGE_CONTEXT),
            chunk: key(CHUNK_CONTEXT),
            chunks: key(CHUNKS_CONTEXT),
            pages: key(PAGES_CONTEXT),
        }
    }

    /// The nonce of the page at `index`.
    ///
    /// In `libri-1` it is what the original program does, `BE32(index) || HMAC(seed, "")[..8]`; the
    /// paper's formula does not open its documents.
    pub fn page_nonce(&self, suite: Suite, index: u32) -> [u8; NONCE_BYTES] {
        let mut nonce = [0; NONCE_BYTES];
        match suite {
            Suite::Holdfast1 => {
                let mac = suite.mac(&self.page_iv_seed, &u64::from(index).to_be_bytes());
                nonce.copy_from_slice(&mac[..NONCE_BYTES]);
            }
            Suite::Libri1 => {
                nonce[..4].copy_from_slice(&index.to_be_bytes());
                nonce[4..].copy_from_slice(&suite.mac(&self.page_iv_seed, b"")[..8]);
            }
        }
        nonce
    }

    /// Seals the page at `index` in place and gives the tag to append. Never call it twice with one
    /// index and different bytes.
    ///
    /// # Errors
    /// [`SealError::TooLong`] above 64 GiB.
    pub fn seal_page_in_place(
        &self,
        suite: Suite,
        index: u32,
        text: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], SealError> {
        Cipher::new(&self.aes).seal(self.page_nonce(suite, index), b"", text)
    }

    /// Seals the page at `index`: ciphertext, then tag. Never call it twice with one index and
    /// different bytes.
    ///
    /// # Errors
    /// [`SealError::TooLong`] above 64 GiB.
    pub fn seal_page(
        &self,
        suite: Suite,
        index: u32,
        plaintext: Vec<u8>,
    ) -> Result<Vec<u8>, SealError> {
        Cipher::new(&self.aes).seal_vec(self.page_nonce(suite, index), b"", plaintext)
    }

    /// Opens the page at `index`. The MAC is the caller's to check first ([`Eek::verify_mac`],
    /// [`WholeKeys::is_page_mac`]).
    ///
    /// # Errors
    /// [`SealError`].
    pub fn open_page(&self, suite: Suite, index: u32, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        Cipher::new(&self.aes).open_vec(self.page_nonce(suite, index), b"", sealed)
    }

    /// The same, into memory that is [`TAG_BYTES`] shorter than what is sealed. After an error what is in it means nothing and
    /// must not be used.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn open_page_into(
        &self,
        suite: Suite,
        index: u32,
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<(), SealError> {
        Cipher::new(&self.aes).open_into(self.page_nonce(suite, index), b"", sealed, out)
    }

    /// Seals the entry's metadata: ciphertext with tag, and its MAC. Once in a key's life.
    ///
    /// # Errors
    /// [`SealError::TooLong`] above 64 GiB.
    pub fn seal_metadata(
        &self,
        suite: Suite,
        metadata: Vec<u8>,
    ) -> Result<(Vec<u8>, Mac), SealError> {
        let sealed = Cipher::new(&self.aes).seal_vec(self.metadata_iv, b"", metadata)?;
        let mac = suite.mac(&self.mac_key(suite), &sealed);
        Ok((sealed, mac))
    }

    /// Checks the MAC and opens the metadata.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn open_metadata(
        &self,
        suite: Suite,
        sealed: &[u8],
        mac: &Mac,
    ) -> Result<Vec<u8>, SealError> {
        self.verify_mac(suite, sealed, mac)?;
        Cipher::new(&self.aes).open_vec(self.metadata_iv, b"", sealed)
    }

    /// Checks the MAC of a ciphertext of this entry, in constant time.
    ///
    /// # Errors
    /// [`SealError::Mac`].
    pub fn verify_mac(&self, suite: Suite, bytes: &[u8], mac: &Mac) -> Result<(), SealError> {
        if suite.verify_mac(&self.mac_key(suite), bytes, mac) {
            Ok(())
        } else {
            Err(SealError::Mac)
        }
    }
}

impl fmt::Debug for Eek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Eek(..)")
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::cipher::{AES_256, EncryptingKey, UnboundCipherKey};

    use super::*;

    fn eek() -> Eek {
        Eek::from_bytes(&std::array::from_fn(|i| i as u8 + 1))
    }

    #[test]
    fn bytes_round_trip_and_do_not_print() {
        assert_eq!(*eek().to_bytes(), std::array::from_fn(|i| i as u8 + 1));
        assert_eq!(format!("{:?}", eek()), "Eek(..)");
    }

    #[test]
    fn page_nonces_differ_by_index() {
        for suite in Suite::ALL {
            let mut nonces: Vec<_> =
                (0..1000).chain([1 << 31]).map(|index| eek().page_nonce(suite, index)).collect();
            nonces.sort_unstable();
            nonces.dedup();
            assert_eq!(nonces.len(), 1001);
        }
    }

    #[test]
    fn every_part_of_the_key_is_in_the_mac_key_of_holdfast_1() {
        let key = eek().mac_key(Suite::Holdfast1);
        for at in 0..EEK_BYTES {
            let mut bytes = *eek().to_bytes();
            bytes[at] ^= 1;
            assert_ne!(*Eek::from_bytes(&bytes).mac_key(Suite::Holdfast1), *key, "byte {at}");
        }
        assert_eq!(eek().mac_key(Suite::Libri1)[..], eek().to_bytes()[64..96]);
    }

    #[test]
    fn a_page_opens_at_its_own_index_alone() {
        for suite in Suite::ALL {
            let sealed = eek().seal_page(suite, 3, b"chunk".to_vec()).expect("short");
            assert_eq!(eek().open_page(suite, 3, &sealed), Ok(b"chunk".to_vec()));
            assert_eq!(eek().open_page(suite, 4, &sealed), Err(SealError::Tag));
        }
    }

    #[test]
    fn a_tag_is_of_the_chunk_its_index_and_the_key() {
        let chunk = vec![7; 100_000];
        let tag = |key: &Eek, index, chunk: &[u8]| {
            key.whole_keys().chunk_tag(index, chunk).expect("short")
        };
        let first = tag(&eek(), 2, &chunk);
        assert_eq!(tag(&eek(), 2, &chunk), first);
        let mut changed = chunk.clone();
        changed[99_999] ^= 1;
        let other = Eek::from_bytes(&[9; EEK_BYTES]);
        for differs in [
            tag(&other, 2, &chunk),
            tag(&eek(), 3, &chunk),
            tag(&eek(), 2, &changed),
            tag(&eek(), 2, &chunk[..99_999]),
            tag(&eek(), 2, b""),
        ] {
            assert_ne!(differs, first);
        }
    }

    /// The tag of a page's ciphertext says what its bytes are, and the MAC of it under which keys.
    #[test]
    fn the_mac_of_a_page_is_of_its_tag_and_commits_to_the_whole_key() {
        let sealed = eek().seal_page(Suite::Holdfast1, 3, vec![7; 5_000]).expect("short");
        let mac = eek().whole_keys().page_mac(&sealed);
        assert!(mac.is_ok());
        assert_eq!(eek().whole_keys().page_mac(&sealed[5_000..]), mac);
        for at in 0..EEK_BYTES {
            let mut bytes = *eek().to_bytes();
            bytes[at] ^= 1;
            assert_ne!(Eek::from_bytes(&bytes).whole_keys().page_mac(&sealed), mac, "byte {at}");
        }
        for at in 5_000..5_016 {
            let mut other = sealed.clone();
            other[at] ^= 1;
            assert_ne!(eek().whole_keys().page_mac(&other), mac);
        }
        assert_eq!(eek().whole_keys().page_mac(&sealed[..15]), Err(SealError::Length));
    }

    /// One ciphertext that opens under two keys, whose holder gives each reader another content: what AES-GCM allows to whoever has
    /// both. The MAC of the one tag, which the record has and its id says, is that of one key alone.
    #[test]
    fn a_page_that_opens_under_two_keys_has_the_mac_of_one() {
        let suite = Suite::Holdfast1;
        let (one, other) = (eek(), Eek::from_bytes(&[9; EEK_BYTES]));
        // GHASH of two blocks and their length, under each key, less the block that the tag is masked with.
        let block = |key: &Eek, text: [u8; 16]| {
            let key = UnboundCipherKey::new(&AES_256, &key.aes).expect("32 bytes");
            let mut block = text;
            EncryptingKey::ecb(key).expect("AES").encrypt(&mut block).expect("a block");
            u128::from_be_bytes(block)
        };
        let parts = |key: &Eek| {
            let mut first = [0; 16];
            first[..NONCE_BYTES].copy_from_slice(&key.page_nonce(suite, 0));
            first[15] = 1;
            (block(key, [0; 16]), block(key, first))
        };
        let ((h, mask), (other_h, other_mask)) = (parts(&one), parts(&other));
        let (square, other_square) = (times(h, h), times(other_h, other_h));
        let chosen = u128::from_be_bytes(*b"what one chooses");
        let length = 2 * 128_u128;
        let rest = times(chosen, times(square, h) ^ times(other_square, other_h))
            ^ times(length, h ^ other_h)
            ^ mask
            ^ other_mask;
        let solved = times(rest, inverse(square ^ other_square));
        let tag = times(times(times(chosen, h) ^ solved, h) ^ length, h) ^ mask;
        let sealed = [chosen, solved, tag].map(u128::to_be_bytes).concat();
        let texts = [&one, &other].map(|key| key.open_page(suite, 0, &sealed).expect("it opens"));
        assert_ne!(texts[0], texts[1]);
        let mac = one.whole_keys().page_mac(&sealed).expect("a tag");
        assert_eq!(one.whole_keys().is_page_mac(&sealed, &mac), Ok(true));
        assert_eq!(other.whole_keys().is_page_mac(&sealed, &mac), Ok(false));
    }

    /// The product in GCM's field (NIST SP 800-38D, 6.3).
    fn times(x: u128, y: u128) -> u128 {
        let (mut product, mut shifted) = (0, y);
        for bit in (0..128).rev() {
            if x >> bit & 1 == 1 {
                product ^= shifted;
            }
            let carry = shifted & 1;
            shifted >>= 1;
            if carry == 1 {
                shifted ^= 0xe1 << 120;
            }
        }
        product
    }

    /// x to the power of 2^128 - 2.
    fn inverse(x: u128) -> u128 {
        let mut power = x;
        // 1 is the first bit.
        let mut product = 1 << 127;
        for _ in 1..128 {
            power = times(power, power);
            product = times(product, power);
        }
        product
    }

    #[test]
    fn metadata_needs_its_mac() {
        for suite in Suite::ALL {
            let (sealed, mac) = eek().seal_metadata(suite, b"names".to_vec()).expect("short");
            assert_eq!(eek().open_metadata(suite, &sealed, &mac), Ok(b"names".to_vec()));
            assert_eq!(eek().open_metadata(suite, &sealed, &[0; 32]), Err(SealError::Mac));
            let other = suite.mac(&eek().mac_key(suite), b"short");
            assert_eq!(eek().open_metadata(suite, b"short", &other), Err(SealError::Length));
        }
    }
}
