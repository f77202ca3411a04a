//! Rows that find the counter of a one-time key again, and tell nobody else anything.
//!
//! ```text
//! row, 32 bytes    tag 16 | BE64 counter | check 8
//! tag   = keyed BLAKE3(index key, purpose byte || public key 33)[..16]
//! check = keyed BLAKE3(index key, tag || counter)[..8]
//! ```
//! A user's home keeps an append-only file of such rows. Public keys in the clear would say which
//! envelopes are this user's to whoever reads the disk; tags under a key from the seed do not. The
//! index key is the keyring's derivation for purpose `index`, counter 0, try 0. The two inputs have
//! lengths of their own (34 and 24 bytes), so one key serves both.

use super::{Keyring, KeyringError, Purpose};
use crate::PublicKey;

/// A row's length, in bytes.
pub const ROW_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const BODY_BYTES: usize = TAG_BYTES + 8;

impl Keyring {
    /// What a row says instead of this public key.
    pub fn issued_tag(&self, purpose: Purpose, key: &PublicKey) -> [u8; TAG_BYTES] {
        let mut input = [0; 34];
        input[0] = purpose as u8;
        input[1..].copy_from_slice(key.as_bytes());
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&self.index_hash(&input)[..TAG_BYTES]);
        tag
    }

    /// The row of a key with its counter.
    pub fn issued_row(&self, purpose: Purpose, counter: u64, key: &PublicKey) -> [u8; ROW_BYTES] {
        let mut row = [0; ROW_BYTES];
        row[..TAG_BYTES].copy_from_slice(&self.issued_tag(purpose, key));
        row[TAG_BYTES..BODY_BYTES].copy_from_slice(&counter.to_be_bytes());
        let check = self.index_hash(&row[..BODY_BYTES]);
        row[BODY_BYTES..].copy_from_slice(&check[..8]);
        row
    }

    /// Checks a row; gives its tag and counter.
    ///
    /// # Errors
    /// [`KeyringError::Issued`] for a row cut short, damaged, or of another keyring.
    pub fn read_issued_row(&self, row: &[u8]) -> Result<([u8; TAG_BYTES], u64), KeyringError> {
        let row: &[u8; ROW_BYTES] = row.try_into().map_err(|_| KeyringError::Issued)?;
        if self.index_hash(&row[..BODY_BYTES])[..8] != row[BODY_BYTES..] {
            return Err(KeyringError::Issued);
        }
        let (mut tag, mut counter) = ([0; TAG_BYTES], [0; 8]);
        tag.copy_from_slice(&row[..TAG_BYTES]);
        counter.copy_from_slice(&row[TAG_BYTES..BODY_BYTES]);
        Ok((tag, u64::from_be_bytes(counter)))
    }

    fn index_hash(&self, bytes: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.index, bytes).as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gives_its_counter_back_and_no_flipped_bit_does() {
        let keyring = Keyring::from_seed(&[1; 32]);
        let key = keyring.own_reader(77).public();
        let row = keyring.issued_row(Purpose::OwnReader, 77, &key);
        let tag = keyring.issued_tag(Purpose::OwnReader, &key);
        assert_eq!(keyring.read_issued_row(&row).expect("our own"), (tag, 77));
        for bit in 0..ROW_BYTES * 8 {
            let mut bad = row;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(keyring.read_issued_row(&bad), Err(KeyringError::Issued)));
        }
        assert!(keyring.read_issued_row(&row[..31]).is_err());
    }

    #[test]
    fn tags_differ_by_purpose_and_keyring() {
        let (one, two) = (Keyring::from_seed(&[1; 32]), Keyring::from_seed(&[2; 32]));
        let key = one.author(0).public();
        let tag = one.issued_tag(Purpose::Author, &key);
        assert_ne!(tag, one.issued_tag(Purpose::OwnReader, &key));
        assert_ne!(tag, two.issued_tag(Purpose::Author, &key));
        let row = one.issued_row(Purpose::Author, 0, &key);
        assert!(two.read_issued_row(&row).is_err());
    }
}
