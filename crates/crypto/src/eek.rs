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
//! it is the third part, as in the original. The keys of the MACs over a whole made of parts ([`WholeKeys`]) are derived alike.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::seal::{Cipher, NONCE_BYTES, SealError, TAG_BYTES};
use crate::{Mac, Suite};

/// An EEK's length, in bytes.
pub const EEK_BYTES: usize = 108;
/// The derivation context of `holdfast-1`'s MAC key.
const MAC_CONTEXT: &str = "holdfast-1 mac";
/// Those of the keys of [`WholeKeys`].
const CHUNK_CONTEXT: &str = "holdfast-1 mac of a chunk";
const CHUNKS_CONTEXT: &str = "holdfast-1 mac of all chunks";
const PAGES_CONTEXT: &str = "holdfast-1 mac of all pages";

/// The keys of the MACs over a whole content that are made of the MACs of its parts (`holdfast-1`). Wiped when dropped.
pub struct WholeKeys {
    /// Of the MAC of one chunk.
    pub chunk: Zeroizing<[u8; 32]>,
    /// Of the MAC of all chunks' MACs.
    pub chunks: Zeroizing<[u8; 32]>,
    /// Of the MAC of all pages' MACs.
    pub pages: Zeroizing<[u8; 32]>,
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

    /// The key of every MAC of this entry.
    pub fn mac_key(&self, suite: Suite) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(match suite {
            Suite::Holdfast1 => blake3::derive_key(MAC_CONTEXT, &self.to_bytes()[..]),
            Suite::Libri1 => self.mac,
        })
    }

    /// The keys of the MACs over the whole, where these are made of the MACs of its parts.
    pub fn whole_keys(&self) -> WholeKeys {
        let bytes = self.to_bytes();
        let key = |context| Zeroizing::new(blake3::derive_key(context, &bytes[..]));
        WholeKeys {
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

    /// Opens the page at `index`. The MAC is the caller's to check first ([`Eek::verify_mac`]).
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
