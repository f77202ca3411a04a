//! The keys of a user's journals: files of numbered frames that only the keyring's programs read.
//!
//! ```text
//! journal's key = HKDF-SHA-256-Expand(prk, lp("journal") || salt 32, 32)
//! source key    = HKDF-SHA-256-Expand(prk, lp("journal-source") || BE64(0) || BE32(0), 32)
//! ```
//! Frame n of a journal is sealed with n as the nonce. So a key must belong to one file that is
//! written once, from its start to its end: whoever begins a journal, be it to go on with another
//! one, hands in a fresh random salt. A chunk's tag in it is the entry's ([`WholeKeys::chunk_tag`](crate::WholeKeys::chunk_tag)).

use aws_lc_rs::hkdf;
use zeroize::Zeroizing;

use super::{Keyring, SALT};
use crate::SealError;
use crate::seal::{Cipher, NONCE_BYTES};

/// A journal's salt, in bytes.
pub const JOURNAL_SALT_BYTES: usize = 32;
const PURPOSE: &str = "journal";
const SOURCE_PURPOSE: &str = "journal-source";

/// Seals and opens the frames of one journal.
pub struct JournalCipher(Cipher);

impl JournalCipher {
    /// Seals frame `number`, tag included. Never call it twice with one number and different bytes.
    ///
    /// # Errors
    /// [`SealError::TooLong`] above 64 GiB.
    pub fn seal(&self, number: u64, aad: &[u8], text: Vec<u8>) -> Result<Vec<u8>, SealError> {
        self.0.seal_vec(nonce(number), aad, text)
    }

    /// Opens frame `number`.
    ///
    /// # Errors
    /// [`SealError`] for what is not this frame of this journal.
    pub fn open(
        &self,
        number: u64,
        aad: &[u8],
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SealError> {
        self.0.open_vec(nonce(number), aad, sealed).map(Zeroizing::new)
    }
}

impl std::fmt::Debug for JournalCipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JournalCipher(..)")
    }
}

impl Keyring {
    /// The cipher of the journal with this salt.
    pub fn journal_cipher(&self, salt: &[u8; JOURNAL_SALT_BYTES]) -> JournalCipher {
        let mut key = Zeroizing::new([0; 32]);
        hkdf::Salt::new(hkdf::HKDF_SHA256, SALT)
            .extract(&self.seed)
            .expand(
                &[&(PURPOSE.len() as u64).to_be_bytes(), PURPOSE.as_bytes(), salt],
                hkdf::HKDF_SHA256,
            )
            .and_then(|derived| derived.fill(&mut key[..]))
            .expect("32 bytes are within HKDF's 255 blocks");
        JournalCipher(Cipher::new(&key))
    }

    /// What stands for a source's path in a journal and in its name: nobody without the seed can tell
    /// which path it is.
    pub fn journal_source(&self, path: &[u8]) -> [u8; 32] {
        let key = self.expand(SOURCE_PURPOSE, 0, 0);
        *blake3::keyed_hash(&key, path).as_bytes()
    }
}

fn nonce(number: u64) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_opens_at_its_number_in_its_journal_alone() {
        let keyring = Keyring::from_seed(&[1; 32]);
        let cipher = keyring.journal_cipher(&[2; 32]);
        let sealed = cipher.seal(3, b"aad", b"a row".to_vec()).expect("short");
        assert_eq!(cipher.open(3, b"aad", &sealed).expect("our own")[..], b"a row"[..]);
        assert!(cipher.open(4, b"aad", &sealed).is_err());
        assert!(cipher.open(3, b"add", &sealed).is_err());
        assert!(keyring.journal_cipher(&[3; 32]).open(3, b"aad", &sealed).is_err());
        let other = Keyring::from_seed(&[2; 32]);
        assert!(other.journal_cipher(&[2; 32]).open(3, b"aad", &sealed).is_err());
        assert_ne!(keyring.journal_source(b"a"), keyring.journal_source(b"b"));
        assert_ne!(keyring.journal_source(b"a"), other.journal_source(b"a"));
    }
}
