//! The word that ends a lease before its time, signed by whose lease it is.

use bytes::Bytes;
use prost::Message;

use super::LeaseError;
use crate::certificate::{self, CertificateError};
use crate::{ClientKey, LeaseId, NetworkId, SecretKey};

const DOMAIN: &str = "forget";

/// That a lease ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forget {
    /// Which lease.
    pub lease: LeaseId,
    /// Whose it is.
    pub client: ClientKey,
    /// When it would have ended, Unix seconds: the word is of use until then.
    pub until: u64,
    /// When it was forgotten, Unix seconds.
    pub at: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ForgetWire {
    #[prost(bytes = "bytes", tag = "1")]
    lease: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    client: Bytes,
    #[prost(uint64, tag = "3")]
    until: u64,
    #[prost(uint64, tag = "4")]
    at: u64,
}

/// A [`Forget`] with the signed bytes that say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedForget {
    /// What it says.
    pub forget: Forget,
    /// The signed bytes.
    pub bytes: Bytes,
}

impl Forget {
    /// What a word says, its signature unchecked: for whoever looks first whether it has the lease.
    ///
    /// # Errors
    /// [`LeaseError`] where it is no such word.
    pub fn claimed(bytes: &Bytes) -> Result<Self, LeaseError> {
        Ok(opened(bytes)?.1)
    }

    /// The signed word; `key` is the client's.
    pub fn sign(&self, key: &SecretKey, network: &NetworkId) -> Bytes {
        let wire = ForgetWire {
            lease: Bytes::copy_from_slice(self.lease.as_bytes()),
            client: Bytes::copy_from_slice(self.client.as_bytes()),
            until: self.until,
            at: self.at,
        };
        certificate::sign(key, DOMAIN, network, wire.encode_to_vec())
    }
}

/// A word's parts, its form checked.
fn opened(bytes: &Bytes) -> Result<(certificate::SignedWire, Forget), LeaseError> {
    let opened = certificate::open::<ForgetWire>(bytes);
    let (signed, wire) = opened.map_err(|error| match error {
        CertificateError::Encoding(source) => LeaseError::Encoding(source),
        _ => LeaseError::TooLarge,
    })?;
    let client = ClientKey::from_slice(&wire.client).map_err(|_| LeaseError::Field("client"))?;
    let lease = LeaseId::from_slice(&wire.lease).map_err(|_| LeaseError::Field("id"))?;
    Ok((signed, Forget { lease, client, until: wire.until, at: wire.at }))
}

impl SignedForget {
    /// Checks form and signature. That the client is the lease's own is for whoever has the lease to compare.
    ///
    /// # Errors
    /// [`LeaseError`].
    pub fn verify(bytes: Bytes, network: &NetworkId) -> Result<Self, LeaseError> {
        let (signed, forget) = opened(&bytes)?;
        let key = forget.client.key();
        key.verify(DOMAIN, network, &signed.body, &signed.signature)
            .map_err(LeaseError::Forgetter)?;
        Ok(Self { forget, bytes })
    }
}
