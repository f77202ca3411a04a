//! Canonical protobuf with its signature behind it, as a record.
//!
//! ```text
//! prefix | length of the message, 4 | canonical protobuf | signature, 64
//! ```

use bytes::Bytes;
use crypto::{NetworkId, PublicKey, SecretKey, Signature, canonical};
use prost::Message;

use crate::VersionError;
use crate::reader::Reader;

/// One of the formats.
pub(crate) struct Format {
    /// What it is, in errors.
    pub(crate) what: &'static str,
    pub(crate) prefix: &'static [u8],
    /// The domain of its signature.
    pub(crate) domain: &'static str,
    /// The longest record.
    pub(crate) max: usize,
}

/// A message whose signature was not looked at.
pub(crate) struct Unverified<M> {
    pub(crate) message: M,
    body: Bytes,
    signature: Signature,
}

impl Format {
    /// The record of a message, signed.
    pub(crate) fn sign(
        &self,
        message: &impl Message,
        key: &SecretKey,
        network: &NetworkId,
    ) -> Result<Bytes, VersionError> {
        let body = message.encode_to_vec();
        let signature = key.sign(self.domain, network, &body);
        let bytes = [self.prefix, &(body.len() as u32).to_be_bytes(), &body, &signature].concat();
        if bytes.len() > self.max {
            let (what, found) = (self.what, bytes.len());
            return Err(VersionError::TooLarge { what, found, max: self.max });
        }
        Ok(bytes.into())
    }

    /// The message of a record.
    pub(crate) fn open<M: Message + Default>(
        &self,
        bytes: &Bytes,
    ) -> Result<Unverified<M>, VersionError> {
        let what = self.what;
        if bytes.len() > self.max {
            return Err(VersionError::TooLarge { what, found: bytes.len(), max: self.max });
        }
        let mut reader = Reader::new(what, bytes);
        reader.prefix(self.prefix)?;
        let length = reader.u32()? as usize;
        reader.take(length)?;
        let signature = reader.array()?;
        reader.end()?;
        let start = self.prefix.len() + 4;
        let body = bytes.slice(start..start + length);
        let message =
            canonical::decode(&body).map_err(|source| VersionError::Encoding { what, source })?;
        Ok(Unverified { message, body, signature })
    }

    /// Checks that `key` signed it in this network.
    pub(crate) fn verify<M>(
        &self,
        signed: &Unverified<M>,
        key: &PublicKey,
        network: &NetworkId,
    ) -> Result<(), VersionError> {
        Ok(key.verify(self.domain, network, &signed.body, &signed.signature)?)
    }
}

/// The network in a field, which is 32 bytes and not all zero.
pub(crate) fn network(bytes: &[u8]) -> Result<NetworkId, VersionError> {
    let network = NetworkId::from_slice(bytes).map_err(|_| VersionError::Field("network"))?;
    if network == NetworkId::NONE { Err(VersionError::Field("network")) } else { Ok(network) }
}

/// Keys in their order, each once, at most `max`.
pub(crate) fn keys(
    list: &[Bytes],
    max: usize,
    what: &'static str,
) -> Result<Vec<PublicKey>, VersionError> {
    if list.len() > max || !list.is_sorted_by(|a, b| a < b) {
        return Err(VersionError::Field(what));
    }
    Ok(list.iter().map(|key| PublicKey::from_slice(key)).collect::<Result<_, _>>()?)
}

/// As they are written: in order, each once.
pub(crate) fn in_order(keys: &[PublicKey]) -> Vec<Bytes> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys.dedup();
    keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect()
}
