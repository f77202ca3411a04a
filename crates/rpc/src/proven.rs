//! What certificates proved, so that each is checked once and not at every handshake.
//!
//! A certificate is two signatures to check, 0.1 ms, and a handshake asks for it up to three times; a
//! peer shows the same one for as long as it runs. What is kept follows from the bytes alone: who lies has no
//! gain from it. That a caller has the certificate's secret is proven in every handshake anew.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crypto::PublicKey;
use libp2p_tls::certificate;
use rustls::Error;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use x509_parser::certificate::Validity;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::verifier::{Refused, refuse};

/// Certificates that are kept, some 600 bytes each. Once there are so many, all are forgotten: a stranger who shows one after
/// the other costs the others a check each.
const KEPT_MAX: usize = 512;
/// Longer certificates are checked each time.
const KEPT_BYTES_MAX: usize = 2048;
/// A libp2p peer id of a secp256k1 key: identity multihash (0, 37) of the protobuf key
/// `{type 1: 2 (secp256k1), data 2: 33 bytes}`.
const PEER_ID_PREFIX: [u8; 6] = [0x00, 37, 0x08, 0x02, 0x12, 33];

/// By the certificate's bytes.
type Kept = HashMap<Box<[u8]>, Arc<Proven>>;
static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

/// What a certificate proves.
#[derive(Debug)]
pub(crate) struct Proven {
    /// Whose it is.
    pub(crate) key: PublicKey,
    /// The key that signs the handshake.
    pub(crate) signs: SubjectPublicKeyInfoDer<'static>,
    validity: Validity,
}

impl Proven {
    /// Checks a certificate, unless it was.
    ///
    /// # Errors
    /// Why it does not count.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Arc<Self>, Error> {
        let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().get(certificate.as_ref()).cloned();
        if let Some(known) = known.filter(|known| known.validity.is_valid()) {
            return Ok(known);
        }
        let proven = Arc::new(Self::check(certificate)?);
        if certificate.len() <= KEPT_BYTES_MAX {
            let mut kept = kept();
            if kept.len() >= KEPT_MAX {
                kept.clear();
            }
            kept.insert(certificate.as_ref().into(), Arc::clone(&proven));
        }
        Ok(proven)
    }

    fn check(der: &CertificateDer<'_>) -> Result<Self, Error> {
        let id = certificate::parse(der).map_err(refuse)?.peer_id().to_bytes();
        let bytes =
            id.strip_prefix(&PEER_ID_PREFIX).ok_or_else(|| refuse(Refused::NotSecp256k1))?;
        let key = PublicKey::from_slice(bytes).map_err(|_| refuse(Refused::NotSecp256k1))?;
        let (_, parsed) =
            X509Certificate::from_der(der).map_err(|error| refuse(error.to_owned()))?;
        let signs = SubjectPublicKeyInfoDer::from(parsed.public_key().raw.to_vec());
        Ok(Self { key, signs, validity: parsed.validity().clone() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn certificate() -> (CertificateDer<'static>, PublicKey) {
        let secret = libp2p_identity::secp256k1::SecretKey::try_from_bytes([7; 32]).unwrap();
        let pair = libp2p_identity::secp256k1::Keypair::from(secret);
        let key = PublicKey::from_slice(&pair.public().to_bytes()).unwrap();
        (certificate::generate(&pair.into()).unwrap().0, key)
    }

    fn is_kept(der: &CertificateDer<'_>) -> bool {
        KEPT.lock().unwrap().contains_key(der.as_ref())
    }

    /// One test, since there is one list of a process.
    #[test]
    fn what_was_checked_is_known_and_what_differs_in_a_bit_is_checked_anew() {
        let (der, key) = certificate();
        let proven = Proven::of(&der).unwrap();
        assert_eq!(proven.key, key);
        assert!(is_kept(&der));
        assert!(Arc::ptr_eq(&proven, &Proven::of(&der).unwrap()));
        for at in [der.len() - 1, der.len() / 2, 40] {
            let mut bytes = der.to_vec();
            bytes[at] ^= 1;
            let altered = CertificateDer::from(bytes);
            assert!(Proven::of(&altered).is_err(), "byte {at}");
            assert!(!is_kept(&altered), "what does not count is not kept");
        }
        // One that has ended since is no longer taken from the list.
        let ended = Validity { not_after: proven.validity.not_before, ..proven.validity.clone() };
        let ended = Proven { key, signs: proven.signs.clone(), validity: ended };
        KEPT.lock().unwrap().insert(der.as_ref().into(), Arc::new(ended));
        assert!(Proven::of(&der).unwrap().validity.is_valid(), "it was checked anew");
        for _ in 0..KEPT_MAX + 10 {
            Proven::of(&certificate().0).unwrap();
            assert!(KEPT.lock().unwrap().len() <= KEPT_MAX);
        }
    }
}
