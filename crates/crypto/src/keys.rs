//! secp256k1 key pairs: identities, signatures with a domain, and the shared point of two keys.

use std::fmt;
use std::sync::OnceLock;

use aws_lc_rs::digest;
use secp256k1::ecdh;
use secp256k1::ecdsa;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::ids::NetworkId;

mod checks;
mod points;

/// What is wrong with bytes that should have been a key or a signature.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// Not 33 bytes of a compressed point on secp256k1.
    #[error("not a compressed secp256k1 public key (33 bytes)")]
    PublicKey,
    /// Not 32 bytes of a scalar between 1 and the group order.
    #[error("not a secp256k1 private key (32 bytes)")]
    SecretKey,
    /// Not 64 bytes r||s, or not this key's signature of this message.
    #[error("the signature does not verify")]
    Signature,
}

impl crate::Classified for KeyError {
    fn class(&self) -> crate::Class {
        match self {
            Self::PublicKey | Self::SecretKey => crate::Class::Invalid,
            Self::Signature => crate::Class::Denied,
        }
    }
}

/// A point on secp256k1, compressed, checked when it was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 33]);

/// An ECDSA signature over secp256k1, r||s, s in the lower half.
pub type Signature = [u8; 64];

/// The x-coordinate of the product of one's secret and the other's public key, 32 bytes with
/// leading zeros kept. Wiped when dropped.
pub type SharedX = Zeroizing<[u8; 32]>;

impl PublicKey {
    /// The key in a slice of exactly 33 bytes.
    ///
    /// # Errors
    /// [`KeyError::PublicKey`] where they are not a compressed point on the curve.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, KeyError> {
        let bytes: [u8; 33] = bytes.try_into().map_err(|_| KeyError::PublicKey)?;
        points::point(&bytes).ok_or(KeyError::PublicKey)?;
        Ok(Self(bytes))
    }

    /// Its 33 bytes.
    pub const fn as_bytes(&self) -> &[u8; 33] {
        &self.0
    }

    /// Checks a signature made by [`SecretKey::sign`] for the same domain and network.
    ///
    /// # Errors
    /// [`KeyError::Signature`]. A high s is refused: one message has one signature form.
    pub fn verify(
        &self,
        domain: &str,
        network: &NetworkId,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), KeyError> {
        self.verify_digest(&signing_digest(domain, network, message), signature)
    }

    /// As [`PublicKey::verify`], for what comes with the same signature again and again: one that held is remembered by the process, so
    /// that it is looked up and not computed the next time.
    ///
    /// # Errors
    /// [`KeyError::Signature`], as there.
    pub(crate) fn verify_again(
        &self,
        domain: &str,
        network: &NetworkId,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), KeyError> {
        checks::verify(self, &signing_digest(domain, network, message), signature)
    }

    /// Checks a signature over a 32-byte digest as it is, without a domain.
    ///
    /// For foreign formats only (the JWTs of the original Libri); normalise their s first with
    /// [`PublicKey::normalise`].
    ///
    /// # Errors
    /// [`KeyError::Signature`].
    pub fn verify_digest(&self, digest: &[u8; 32], signature: &[u8]) -> Result<(), KeyError> {
        let signature =
            ecdsa::Signature::from_compact(signature).map_err(|_| KeyError::Signature)?;
        let message = secp256k1::Message::from_digest(*digest);
        secp256k1::SECP256K1
            .verify_ecdsa(message, &signature, &self.point())
            .map_err(|_| KeyError::Signature)
    }

    /// The same signature with s in the lower half, for signatures made elsewhere.
    ///
    /// # Errors
    /// [`KeyError::Signature`] where the bytes are not r||s at all.
    pub fn normalise(signature: &[u8]) -> Result<Signature, KeyError> {
        let mut signature =
            ecdsa::Signature::from_compact(signature).map_err(|_| KeyError::Signature)?;
        signature.normalize_s();
        Ok(signature.serialize_compact())
    }

    #[expect(clippy::unwrap_used, reason = "the bytes were checked when the key was made")]
    fn point(&self) -> secp256k1::PublicKey {
        points::point(&self.0).unwrap()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// A private key. Wiped when dropped, never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SecretKey {
    bytes: [u8; 32],
    /// What is no secret, once it was asked for: it takes about as long as a signature.
    #[zeroize(skip)]
    public: OnceLock<PublicKey>,
}

impl SecretKey {
    /// The key with these bytes.
    ///
    /// # Errors
    /// [`KeyError::SecretKey`] for zero and for values not below the group order: with random
    /// bytes, about once in 2^128 tries.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        secp256k1::SecretKey::from_byte_array(*bytes).map_err(|_| KeyError::SecretKey)?;
        Ok(Self { bytes: *bytes, public: OnceLock::new() })
    }

    /// The key in a slice of exactly 32 bytes.
    ///
    /// # Errors
    /// As [`SecretKey::from_bytes`].
    pub fn from_slice(bytes: &[u8]) -> Result<Self, KeyError> {
        let bytes = Zeroizing::new(<[u8; 32]>::try_from(bytes).map_err(|_| KeyError::SecretKey)?);
        Self::from_bytes(&bytes)
    }

    /// Its bytes, to be sealed or written to a file that only its owner reads.
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.bytes)
    }

    /// The public key that belongs to it.
    pub fn public(&self) -> PublicKey {
        let point = || self.scalar().public_key(secp256k1::SECP256K1).serialize();
        *self.public.get_or_init(|| PublicKey(point()))
    }

    /// The x-coordinate of the point shared with the holder of `other`.
    pub fn shared_x(&self, other: &PublicKey) -> SharedX {
        let point = Zeroizing::new(ecdh::shared_secret_point(&other.point(), &self.scalar()));
        let mut x = Zeroizing::new([0; 32]);
        x.copy_from_slice(&point[..32]);
        x
    }

    /// Signs `message` for one purpose in one network: the digest covers both, so a signature made
    /// for one means nothing in another.
    pub fn sign(&self, domain: &str, network: &NetworkId, message: &[u8]) -> Signature {
        self.sign_digest(&signing_digest(domain, network, message))
    }

    /// Signs a 32-byte digest as it is, without a domain; for foreign formats only.
    pub fn sign_digest(&self, digest: &[u8; 32]) -> Signature {
        let message = secp256k1::Message::from_digest(*digest);
        secp256k1::SECP256K1.sign_ecdsa(message, &self.scalar()).serialize_compact()
    }

    #[expect(clippy::unwrap_used, reason = "the bytes were checked when the key was made")]
    fn scalar(&self) -> secp256k1::SecretKey {
        secp256k1::SecretKey::from_byte_array(self.bytes).unwrap()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// SHA-256("holdfast sign v1" || u8 length of domain || domain || network id || message).
///
/// The domain's length is explicit and the network id has a fixed one, so no two triples give the
/// same bytes. The network id covers the suite, as the genesis names it.
fn signing_digest(domain: &str, network: &NetworkId, message: &[u8]) -> [u8; 32] {
    assert!(domain.len() < 256, "a signing domain is a short constant");
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(b"holdfast sign v1");
    context.update(&[domain.len() as u8]);
    context.update(domain.as_bytes());
    context.update(network.as_bytes());
    context.update(message);
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> SecretKey {
        SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key")
    }

    #[test]
    fn a_signature_holds_for_its_key_domain_network_and_message_only() {
        let network = NetworkId::new([7; 32]);
        let signature = key(1).sign("pass", &network, b"message");
        let public = key(1).public();
        assert_eq!(public.verify("pass", &network, b"message", &signature), Ok(()));
        let refused = Err(KeyError::Signature);
        assert_eq!(public.verify("passm", &network, b"essage", &signature), refused);
        assert_eq!(public.verify("pass", &NetworkId::NONE, b"message", &signature), refused);
        assert_eq!(public.verify("pass", &network, b"massage", &signature), refused);
        assert_eq!(key(2).public().verify("pass", &network, b"message", &signature), refused);
        assert_eq!(public.verify("pass", &network, b"message", &signature[..63]), refused);
    }

    #[test]
    fn both_sides_share_the_same_x() {
        let (a, b) = (key(1), key(2));
        assert_eq!(*a.shared_x(&b.public()), *b.shared_x(&a.public()));
        assert_eq!(
            hex::encode(*a.shared_x(&b.public())),
            "d0158a38faf6118af133af12d9bfa388eab4a08d1a2088ea6e6ec1269e03567f"
        );
    }

    #[test]
    fn zero_and_the_group_order_are_no_keys() {
        assert!(SecretKey::from_bytes(&[0; 32]).is_err());
        assert!(SecretKey::from_bytes(&[0xff; 32]).is_err());
        assert!(PublicKey::from_slice(&[2; 32]).is_err());
    }

    #[test]
    fn a_secret_does_not_print() {
        assert_eq!(format!("{:?}", key(1)), "SecretKey(..)");
    }
}
