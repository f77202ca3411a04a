//! The keyring file: the seed sealed by one scrypt of a passphrase.
//!
//! ```text
//! KeyringFile    version 1 (u32, 1) · log_n 2 (u32) · r 3 (u32) · p 4 (u32) · salt 5 (16) · nonce 6 (12) · sealed 7 (48)
//! ```
//! Canonical protobuf. `sealed` is the seed under AES-256-GCM with scrypt(passphrase, salt) as key and
//! the encoding with `sealed` empty as associated data, so that no parameter can be changed under it.
//!
//! scrypt's cost is in the file, so a file from elsewhere could ask for any amount of memory and
//! time: [`open`](KeyringFile::open) refuses what is out of bounds before it starts.

use bytes::Bytes;
use prost::Message;
use zeroize::Zeroizing;

use super::{Keyring, KeyringError, SEED_BYTES};
use crate::canonical;
use crate::seal::{Cipher, NONCE_BYTES, TAG_BYTES};

/// A salt's length, in bytes.
pub const SALT_BYTES: usize = 16;
/// Base-2 logarithm of scrypt's N for new files: 2^17, 128 MiB with r = 8.
pub const LOG_N: u8 = 17;
/// The largest keyring file read, in bytes; a real one has 92.
pub const FILE_BYTES_MAX: usize = 1024;
const VERSION: u32 = 1;
const R: u32 = 8;
const P: u32 = 1;
const LOG_N_BOUNDS: std::ops::RangeInclusive<u32> = 10..=20;
const R_MAX: u32 = 16;
const P_MAX: u32 = 4;
/// The most memory that opening may take, in bytes.
const MEMORY_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, PartialEq, Message)]
struct Wire {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(uint32, tag = "2")]
    log_n: u32,
    #[prost(uint32, tag = "3")]
    r: u32,
    #[prost(uint32, tag = "4")]
    p: u32,
    #[prost(bytes = "bytes", tag = "5")]
    salt: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    nonce: Bytes,
    #[prost(bytes = "bytes", tag = "7")]
    sealed: Bytes,
}

/// A keyring file's bytes, checked in form; opening it takes the passphrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyringFile {
    log_n: u32,
    r: u32,
    p: u32,
    salt: [u8; SALT_BYTES],
    nonce: [u8; NONCE_BYTES],
    sealed: [u8; SEED_BYTES + TAG_BYTES],
}

impl KeyringFile {
    /// Seals a keyring into a file's bytes. `salt` and `nonce` are fresh random bytes. Takes about
    /// half a second and 128 MiB.
    pub fn seal(
        keyring: &Keyring,
        passphrase: &[u8],
        salt: [u8; SALT_BYTES],
        nonce: [u8; NONCE_BYTES],
    ) -> Vec<u8> {
        Self::seal_with(keyring, passphrase, salt, nonce, LOG_N)
    }

    /// As [`KeyringFile::seal`] with another N, for tests: below 2^17 a passphrase is guessed faster.
    ///
    /// # Panics
    /// Where `log_n` is outside of what [`KeyringFile::open`] takes (10 to 20).
    pub fn seal_with(
        keyring: &Keyring,
        passphrase: &[u8],
        salt: [u8; SALT_BYTES],
        nonce: [u8; NONCE_BYTES],
        log_n: u8,
    ) -> Vec<u8> {
        let log_n = u32::from(log_n);
        assert!(LOG_N_BOUNDS.contains(&log_n), "log N is 10 to 20");
        let mut file = Self { log_n, r: R, p: P, salt, nonce, sealed: [0; SEED_BYTES + TAG_BYTES] };
        let (cipher, aad) = (file.cipher(passphrase), file.aad());
        let mut seed = Zeroizing::new(keyring.seed);
        let tag = cipher.seal(nonce, &aad, &mut seed[..]).expect("32 bytes are not too many");
        file.sealed[..SEED_BYTES].copy_from_slice(&seed[..]);
        file.sealed[SEED_BYTES..].copy_from_slice(&tag);
        file.encode()
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.wire(Bytes::copy_from_slice(&self.sealed)).encode_to_vec()
    }

    /// Decodes a file's bytes and checks their form, without the passphrase.
    ///
    /// # Errors
    /// [`KeyringError`], never [`KeyringError::WrongPassphrase`].
    pub fn decode(bytes: &[u8]) -> Result<Self, KeyringError> {
        if bytes.len() > FILE_BYTES_MAX {
            return Err(KeyringError::Field("length"));
        }
        let wire: Wire = canonical::decode(&Bytes::copy_from_slice(bytes))?;
        match wire.version {
            VERSION => {}
            // Versions count from 1: it is not in these bytes at all, as in an empty file.
            0 => return Err(KeyringError::Field("version")),
            other => return Err(KeyringError::Version(other)),
        }
        let (log_n, r, p) = (wire.log_n, wire.r, wire.p);
        let bounded = LOG_N_BOUNDS.contains(&log_n)
            && (1..=R_MAX).contains(&r)
            && (1..=P_MAX).contains(&p)
            // Of scrypt itself (RFC 7914, 6).
            && log_n < 16 * r
            && (128 * u64::from(r)) << log_n <= MEMORY_BYTES_MAX;
        if !bounded {
            return Err(KeyringError::Scrypt { log_n, r, p });
        }
        Ok(Self {
            log_n,
            r,
            p,
            salt: wire.salt[..].try_into().map_err(|_| KeyringError::Field("salt"))?,
            nonce: wire.nonce[..].try_into().map_err(|_| KeyringError::Field("nonce"))?,
            sealed: wire.sealed[..].try_into().map_err(|_| KeyringError::Field("sealed seed"))?,
        })
    }

    /// Decodes a file's bytes and opens them. Takes about half a second and 128 MiB.
    ///
    /// # Errors
    /// [`KeyringError`]; [`KeyringError::WrongPassphrase`] only for a file of good form.
    pub fn open(bytes: &[u8], passphrase: &[u8]) -> Result<Keyring, KeyringError> {
        let file = Self::decode(bytes)?;
        let mut seed = Zeroizing::new([0; SEED_BYTES]);
        file.cipher(passphrase)
            .open_into(file.nonce, &file.aad(), &file.sealed, &mut seed[..])
            .map_err(|_| KeyringError::WrongPassphrase)?;
        Ok(Keyring::from_seed(&seed))
    }

    fn cipher(&self, passphrase: &[u8]) -> Cipher {
        let log_n = u8::try_from(self.log_n).expect("checked to be at most 20");
        let parameters = scrypt::Params::new(log_n, self.r, self.p, 32)
            .expect("parameters within our bounds are within scrypt's");
        let mut key = Zeroizing::new([0; 32]);
        scrypt::scrypt(passphrase, &self.salt, &parameters, &mut key[..])
            .expect("32 bytes are within scrypt's output");
        Cipher::new(&key)
    }

    fn aad(&self) -> Vec<u8> {
        self.wire(Bytes::new()).encode_to_vec()
    }

    fn wire(&self, sealed: Bytes) -> Wire {
        Wire {
            version: VERSION,
            log_n: self.log_n,
            r: self.r,
            p: self.p,
            salt: Bytes::copy_from_slice(&self.salt),
            nonce: Bytes::copy_from_slice(&self.nonce),
            sealed,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealed() -> Vec<u8> {
        KeyringFile::seal_with(&Keyring::from_seed(&[7; 32]), b"open", [1; 16], [2; 12], 10)
    }

    fn with(change: impl FnOnce(&mut Wire)) -> Vec<u8> {
        let mut wire = Wire::decode(&sealed()[..]).expect("our own");
        change(&mut wire);
        wire.encode_to_vec()
    }

    #[test]
    fn it_opens_with_its_passphrase_alone() {
        let keyring = KeyringFile::open(&sealed(), b"open").expect("its passphrase");
        assert_eq!(*keyring.to_words(), *Keyring::from_seed(&[7; 32]).to_words());
        let wrong = KeyringFile::open(&sealed(), b"opem").expect_err("another passphrase");
        assert!(matches!(wrong, KeyringError::WrongPassphrase));
    }

    #[test]
    fn the_seed_is_not_in_the_file() {
        assert!(!sealed().windows(8).any(|window| window == [7; 8]));
    }

    #[test]
    fn the_default_cost_is_two_to_the_17() {
        let bytes = KeyringFile::seal(&Keyring::from_seed(&[7; 32]), b"open", [1; 16], [2; 12]);
        let wire = Wire::decode(&bytes[..]).expect("our own");
        assert_eq!((wire.log_n, wire.r, wire.p), (17, 8, 1));
    }

    #[test]
    fn costs_out_of_bounds_are_refused_before_they_are_paid() {
        type Change = fn(&mut Wire);
        let changes: [Change; 10] = [
            |wire| wire.log_n = 9,
            |wire| wire.log_n = 21,
            |wire| wire.log_n = u32::MAX,
            |wire| wire.r = 0,
            |wire| wire.r = 17,
            |wire| wire.p = 0,
            |wire| wire.p = 5,
            |wire| (wire.log_n, wire.r) = (20, 9),
            |wire| (wire.log_n, wire.r) = (16, 1),
            |wire| (wire.log_n, wire.r) = (17, 1),
        ];
        for change in changes {
            let refused = KeyringFile::open(&with(change), b"open").expect_err("out of bounds");
            assert!(matches!(refused, KeyringError::Scrypt { .. }), "{refused}");
        }
    }

    #[test]
    fn malformed_files_are_told_from_a_wrong_passphrase() {
        type Change = fn(&mut Wire);
        let changes: [Change; 4] = [
            |wire| wire.salt = Bytes::from_static(&[1; 15]),
            |wire| wire.nonce = Bytes::new(),
            |wire| wire.sealed = Bytes::from_static(&[0; 47]),
            |wire| wire.version = 2,
        ];
        let files = changes.into_iter().map(with).chain([
            Vec::new(),
            b"garbage".to_vec(),
            vec![0; FILE_BYTES_MAX + 1],
            sealed()[..sealed().len() - 1].to_vec(),
            [&sealed()[..], &[0]].concat(),
        ]);
        for file in files {
            let refused = KeyringFile::open(&file, b"open").expect_err("malformed");
            assert!(!matches!(refused, KeyringError::WrongPassphrase), "{refused}");
        }
        let empty = KeyringFile::decode(&[]).expect_err("nothing is in it");
        assert!(matches!(empty, KeyringError::Field("version")), "no other version: {empty}");
        let newer = KeyringFile::decode(&with(|wire| wire.version = 2)).expect_err("not known");
        assert!(matches!(newer, KeyringError::Version(2)), "{newer}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn a_flipped_bit_never_opens(bit in 0..sealed().len() * 8) {
            let mut bad = sealed();
            bad[bit / 8] ^= 1 << (bit % 8);
            // Flips in the cost that stay in bounds could be dear; they are few and small here.
            prop_assert!(KeyringFile::open(&bad, b"open").is_err());
        }
    }
}
