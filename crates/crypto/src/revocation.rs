//! An organisation's word that keys it vouched for count no more.
//!
//! ```text
//! Signed             body 1 (bytes of the message below) · signature 2 (64)
//! Revocation         network 1 (32) · organisation 2 (33) · sequence 3 (u64) · keys 4 (repeated, 33 each)
//! ```
//! Signed by `organisation` in the domain `revocation`. A list is whole: of two by one organisation the
//! higher sequence (Unix milliseconds at signing) counts and replaces the other, so that nobody needs
//! the history and a mistake can be taken back. It speaks of the organisation's own peers and clients
//! alone: whoever is vouched for by another organisation as well keeps that. A certificate that
//! expired may leave the list, which is why a bound of [`REVOKED_MAX`] keys does for an organisation.

use bytes::Bytes;
use prost::Message;

use crate::certificate::{CLOCK_SKEW_S, CertificateError, check_network, open, sign};
use crate::{Listing, NetworkId, OrgId, PublicKey, SecretKey};

/// The most keys one list revokes.
pub const REVOKED_MAX: usize = 400;

const DOMAIN: &str = "revocation";

/// The peers and clients that an organisation does not vouch for any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The organisation that signed, by its key in the roster.
    pub organisation: OrgId,
    /// Rises with each list: Unix milliseconds at signing.
    pub sequence: u64,
    /// Keys of peers and clients, ascending, each once.
    pub keys: Vec<PublicKey>,
}

#[derive(Clone, PartialEq, Message)]
struct RevocationWire {
    #[prost(bytes = "bytes", tag = "1")]
    network: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    organisation: Bytes,
    #[prost(uint64, tag = "3")]
    sequence: u64,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    keys: Vec<Bytes>,
}

impl Revocation {
    /// The signed list, its keys put in order; `key` is the organisation's.
    pub fn sign(&self, key: &SecretKey, network: &NetworkId) -> Bytes {
        let mut keys = self.keys.clone();
        keys.sort_unstable();
        keys.dedup();
        let keys = keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes()));
        let wire = RevocationWire {
            network: Bytes::copy_from_slice(network.as_bytes()),
            organisation: Bytes::copy_from_slice(self.organisation.as_bytes()),
            sequence: self.sequence,
            keys: keys.collect(),
        };
        sign(key, DOMAIN, network, wire.encode_to_vec())
    }

    /// Checks form, network, roster, signature, and that it is not of the future (`now` in Unix seconds).
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn verify(
        bytes: &Bytes,
        roster: &impl Listing,
        now: u64,
    ) -> Result<Self, CertificateError> {
        let list = Self::verify_kept(bytes, roster, now)?;
        if list.sequence > now.saturating_add(CLOCK_SKEW_S).saturating_mul(1000) {
            return Err(CertificateError::Field("sequence"));
        }
        Ok(list)
    }

    /// As [`Revocation::verify`] for a list that was accepted before and kept: it may be of the future, since a clock that
    /// was set back does not take back what it says.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn verify_kept(
        bytes: &Bytes,
        roster: &impl Listing,
        now: u64,
    ) -> Result<Self, CertificateError> {
        let (signed, wire) = open::<RevocationWire>(bytes)?;
        let signer = OrgId::from_slice(&wire.organisation)?;
        let (network, listed) = check_network(roster, &wire.network, &signer, now)?;
        signer.key().verify(DOMAIN, &network, &signed.body, &signed.signature)?;
        if wire.keys.len() > REVOKED_MAX {
            return Err(CertificateError::TooLarge);
        }
        if !wire.keys.is_sorted_by(|a, b| a < b) {
            return Err(CertificateError::Field("order of keys"));
        }
        let keys = wire.keys.iter().map(|key| PublicKey::from_slice(key));
        let keys = keys.collect::<Result<_, _>>()?;
        Ok(Self { organisation: listed.organisation, sequence: wire.sequence, keys })
    }

    /// Whether the list names this key.
    pub fn names(&self, key: &PublicKey) -> bool {
        self.keys.binary_search(key).is_ok()
    }
}
