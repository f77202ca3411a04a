//! The key encryption key: what an author and a reader share, and nobody else, seals an EEK.
//!
//! ```text
//! AES key 32 | IV 12 | MAC key 32      from the x-coordinate of the two keys' shared point
//! ```
//! In `holdfast-1` the derivation names the network, the entry and both keys, so each envelope has a
//! key and a nonce of its own. In `libri-1` key *and* nonce depend on the pair alone: two EEKs sealed
//! between the same two keys repeat a nonce. Whoever seals in `libri-1` must refuse a pair that was
//! used for another EEK.

use std::fmt;

use aws_lc_rs::hkdf;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::eek::{EEK_BYTES, Eek};
use crate::seal::{Cipher, NONCE_BYTES, SealError, TAG_BYTES};
use crate::{AuthorKey, Mac, NetworkId, PublicKey, ReaderKey, RecordId, SecretKey, Suite};

/// A sealed EEK's length, in bytes.
pub const EEK_CIPHERTEXT_BYTES: usize = EEK_BYTES + TAG_BYTES;
const KEK_BYTES: usize = 76;
const INFO_LABEL: &[u8] = b"holdfast-1 kek";

/// What the KEK of `holdfast-1` is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KekContext {
    /// The network; [`NetworkId::NONE`] offline.
    pub network: NetworkId,
    /// The entry whose EEK is sealed.
    pub entry: RecordId,
    /// The author's side of the pair.
    pub author: AuthorKey,
    /// The reader's side of the pair.
    pub reader: ReaderKey,
}

/// A key encryption key. Wiped when dropped, never printed.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Kek {
    aes: [u8; 32],
    iv: [u8; NONCE_BYTES],
    mac: [u8; 32],
}

struct KekLength;

impl hkdf::KeyType for KekLength {
    fn len(&self) -> usize {
        KEK_BYTES
    }
}

impl Kek {
    /// The key that the owner of `secret` shares with the owner of `other`; both sides get the same.
    /// `libri-1` takes no account of the context.
    pub fn derive(
        suite: Suite,
        secret: &SecretKey,
        other: &PublicKey,
        context: &KekContext,
    ) -> Self {
        let x = secret.shared_x(other);
        match suite {
            Suite::Holdfast1 => {
                let parts: [&[u8]; 5] = [
                    INFO_LABEL,
                    context.network.as_bytes(),
                    context.entry.as_bytes(),
                    context.author.as_bytes(),
                    context.reader.as_bytes(),
                ];
                Self::expand(&x[..], &parts)
            }
            // The original takes the bytes of a big integer: leading zeros are gone.
            Suite::Libri1 => {
                let zeros = x.iter().take_while(|byte| **byte == 0).count();
                Self::expand(&x[zeros..], &[])
            }
        }
    }

    fn expand(secret: &[u8], info: &[&[u8]]) -> Self {
        let mut bytes = Zeroizing::new([0; KEK_BYTES]);
        hkdf::Salt::new(hkdf::HKDF_SHA256, &[])
            .extract(secret)
            .expand(info, KekLength)
            .and_then(|key| key.fill(&mut bytes[..]))
            .expect("76 bytes are within HKDF's 255 blocks");
        Self::from_bytes(&bytes)
    }

    fn from_bytes(bytes: &[u8; KEK_BYTES]) -> Self {
        let mut key = Self { aes: [0; 32], iv: [0; NONCE_BYTES], mac: [0; 32] };
        key.aes.copy_from_slice(&bytes[..32]);
        key.iv.copy_from_slice(&bytes[32..44]);
        key.mac.copy_from_slice(&bytes[44..]);
        key
    }

    /// Its bytes, for comparison with other implementations.
    pub fn to_bytes(&self) -> Zeroizing<[u8; KEK_BYTES]> {
        let mut bytes = Zeroizing::new([0; KEK_BYTES]);
        bytes[..32].copy_from_slice(&self.aes);
        bytes[32..44].copy_from_slice(&self.iv);
        bytes[44..].copy_from_slice(&self.mac);
        bytes
    }

    /// Seals an EEK: ciphertext with tag, and its MAC.
    pub fn seal_eek(&self, suite: Suite, eek: &Eek) -> ([u8; EEK_CIPHERTEXT_BYTES], Mac) {
        let mut sealed = [0; EEK_CIPHERTEXT_BYTES];
        sealed[..EEK_BYTES].copy_from_slice(&eek.to_bytes()[..]);
        let (text, tag) = sealed.split_at_mut(EEK_BYTES);
        let made =
            Cipher::new(&self.aes).seal(self.iv, b"", text).expect("108 bytes are not too many");
        tag.copy_from_slice(&made);
        let mac = suite.mac(&self.mac, &sealed);
        (sealed, mac)
    }

    /// Checks the MAC and opens an EEK.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn open_eek(&self, suite: Suite, sealed: &[u8], mac: &Mac) -> Result<Eek, SealError> {
        if sealed.len() != EEK_CIPHERTEXT_BYTES {
            return Err(SealError::Length);
        }
        if !suite.verify_mac(&self.mac, sealed, mac) {
            return Err(SealError::Mac);
        }
        let mut bytes = Zeroizing::new([0; EEK_BYTES]);
        Cipher::new(&self.aes).open_into(self.iv, b"", sealed, &mut bytes[..])?;
        Ok(Eek::from_bytes(&bytes))
    }
}

impl fmt::Debug for Kek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kek(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> SecretKey {
        SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key")
    }

    fn context() -> KekContext {
        KekContext {
            network: NetworkId::new([9; 32]),
            entry: RecordId::new([8; 32]),
            author: AuthorKey::new(secret(1).public()),
            reader: ReaderKey::new(secret(2).public()),
        }
    }

    #[test]
    fn both_sides_derive_the_same_key() {
        for suite in Suite::ALL {
            let author = Kek::derive(suite, &secret(1), &secret(2).public(), &context());
            let reader = Kek::derive(suite, &secret(2), &secret(1).public(), &context());
            assert_eq!(*author.to_bytes(), *reader.to_bytes());
            let other = Kek::derive(suite, &secret(3), &secret(1).public(), &context());
            assert_ne!(*author.to_bytes(), *other.to_bytes());
        }
    }

    #[test]
    fn the_key_of_holdfast_1_is_bound_to_its_context() {
        let derive = |context: &KekContext| {
            Kek::derive(Suite::Holdfast1, &secret(1), &secret(2).public(), context).to_bytes()
        };
        let ours = derive(&context());
        let key = secret(4).public();
        for other in [
            KekContext { network: NetworkId::NONE, ..context() },
            KekContext { entry: RecordId::new([7; 32]), ..context() },
            KekContext { author: AuthorKey::new(key), ..context() },
            KekContext { reader: ReaderKey::new(key), ..context() },
        ] {
            assert_ne!(*derive(&other), *ours);
        }
    }

    /// A pair whose shared x-coordinate starts with a zero byte, found by trying scalars: the original
    /// drops that byte, and a derivation over all 32 would not open its envelopes.
    #[test]
    fn libri_1_drops_leading_zeros_of_the_shared_x() {
        let reader = secret(2).public();
        let author = (1..2000_u32)
            .map(|number| {
                let mut bytes = [0; 32];
                bytes[28..].copy_from_slice(&number.to_be_bytes());
                SecretKey::from_bytes(&bytes).expect("small")
            })
            .find(|author| author.shared_x(&reader)[0] == 0)
            .expect("one in 256 has a zero");
        let kek = Kek::derive(Suite::Libri1, &author, &reader, &context());
        let x = author.shared_x(&reader);
        assert_eq!(*kek.to_bytes(), *Kek::expand(&x[1..], &[]).to_bytes());
        assert_ne!(*kek.to_bytes(), *Kek::expand(&x[..], &[]).to_bytes());
    }

    #[test]
    fn every_flipped_bit_of_a_sealed_eek_is_refused() {
        let eek = Eek::from_bytes(&[5; EEK_BYTES]);
        for suite in Suite::ALL {
            let kek = Kek::derive(suite, &secret(1), &secret(2).public(), &context());
            let (sealed, mac) = kek.seal_eek(suite, &eek);
            let opened = kek.open_eek(suite, &sealed, &mac).expect("as sealed");
            assert_eq!(*opened.to_bytes(), *eek.to_bytes());
            for bit in 0..sealed.len() * 8 {
                let mut bad = sealed;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(kek.open_eek(suite, &bad, &mac).is_err());
            }
            assert!(kek.open_eek(suite, &sealed[..123], &mac).is_err());
        }
    }
}
