//! Rows that say which contents a user pays for, to that user alone.
//!
//! ```text
//! row, 64 bytes    salt 16 | (address 32 | BE64 until) ^ mask | check 8
//! mask  = keyed BLAKE3(paid key, 0x00 || salt) || keyed BLAKE3(paid key, 0x01 || salt)[..8]
//! check = keyed BLAKE3(paid key, 0x02 || the 56 bytes before)[..8]
//! ```
//! Addresses in the clear would say which envelopes are this user's to whoever reads the disk. The paid key is the keyring's
//! derivation for purpose `paid`, counter 0, try 0; a salt is random and used for one row.

use super::{Keyring, KeyringError};
use crate::RecordId;

/// A row's length, in bytes.
pub const PAID_ROW_BYTES: usize = 64;
/// Random bytes that each row needs.
pub const PAID_SALT_BYTES: usize = 16;
const BODY: std::ops::Range<usize> = PAID_SALT_BYTES..56;
const PURPOSE: &str = "paid";

impl Keyring {
    /// The row of a content that is paid for until then, Unix seconds; 0 for one that is not any more.
    pub fn paid_row(
        &self,
        salt: &[u8; PAID_SALT_BYTES],
        address: &RecordId,
        until: u64,
    ) -> [u8; PAID_ROW_BYTES] {
        let mut row = [0; PAID_ROW_BYTES];
        row[..PAID_SALT_BYTES].copy_from_slice(salt);
        row[16..48].copy_from_slice(address.as_bytes());
        row[48..56].copy_from_slice(&until.to_be_bytes());
        self.mask(&mut row);
        let check = self.paid_hash(2, &row[..56]);
        row[56..].copy_from_slice(&check[..8]);
        row
    }

    /// Checks a row; gives its address and time.
    ///
    /// # Errors
    /// [`KeyringError::Issued`] for a row cut short, damaged, or of another keyring.
    pub fn read_paid_row(&self, row: &[u8]) -> Result<(RecordId, u64), KeyringError> {
        let mut row: [u8; PAID_ROW_BYTES] = row.try_into().map_err(|_| KeyringError::Issued)?;
        if self.paid_hash(2, &row[..56])[..8] != row[56..] {
            return Err(KeyringError::Issued);
        }
        self.mask(&mut row);
        let address = RecordId::from_slice(&row[16..48]).map_err(|_| KeyringError::Issued)?;
        let until = row[48..56].iter().fold(0, |until, byte| until << 8 | u64::from(*byte));
        Ok((address, until))
    }

    fn mask(&self, row: &mut [u8; PAID_ROW_BYTES]) {
        let (salt, body) = row.split_at_mut(BODY.start);
        let mask = [self.paid_hash(0, salt), self.paid_hash(1, salt)].concat();
        for (byte, mask) in body[..BODY.len()].iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }

    fn paid_hash(&self, what: u8, bytes: &[u8]) -> [u8; 32] {
        let key = self.expand(PURPOSE, 0, 0);
        let mut hasher = blake3::Hasher::new_keyed(&key);
        *hasher.update(&[what]).update(bytes).finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gives_its_content_back_to_its_own_keyring_and_no_flipped_bit_does() {
        let (keyring, other) = (Keyring::from_seed(&[1; 32]), Keyring::from_seed(&[2; 32]));
        let address = RecordId::new([7; 32]);
        let row = keyring.paid_row(&[3; 16], &address, 1_800_000_000);
        assert_eq!(keyring.read_paid_row(&row).expect("our own"), (address, 1_800_000_000));
        assert!(other.read_paid_row(&row).is_err());
        assert!(!row.windows(4).any(|window| window == [7; 4]), "the address shows");
        assert_ne!(row[16..], keyring.paid_row(&[4; 16], &address, 1_800_000_000)[16..]);
        for bit in 0..PAID_ROW_BYTES * 8 {
            let mut bad = row;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(keyring.read_paid_row(&bad).is_err());
        }
    }
}
