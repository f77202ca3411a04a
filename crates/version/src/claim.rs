//! What is signed for one call, or in answer to one, and kept by nobody as a record: who reads, and where a branch goes on.
//!
//! ```text
//! "holdfast reader v1"   | network 32 | reader's key 33 | until 8 (Unix s) | signature 64
//! "holdfast redirect v1" | network 32 | peer's key 33 | object 32 | n 16 | next n 16 | time 8 (Unix ms) | signature 64
//! ```
//! A **reader's claim** is signed by the reader, in the domain `reader`, over the key that the caller's connection proves (33) and
//! until (8): "whoever holds this connection reads for me". Replayed from another connection it says nothing, so it needs no nonce.
//!
//! A **redirect** is signed by a holder, in the domain `redirect`, over object, n, next n and time: "the region that I keep for this
//! object at n is full, go on at next n". A client that has those of W holders goes there directly.

use bytes::Bytes;
use crypto::{NetworkId, PeerId, PublicKey, SecretKey, Signature};

use crate::reader::Reader;
use crate::{Hint, ObjectKey, VersionError};

/// The length of a reader's claim, in bytes.
pub const READER_BYTES: usize = READER_PREFIX.len() + 32 + 33 + 8 + 64;
/// The length of a redirect, in bytes.
pub const REDIRECT_BYTES: usize = REDIRECT_PREFIX.len() + 32 + 33 + 32 + 16 + 16 + 8 + 64;
/// The longest that a reader's claim counts after it is made, in seconds: what a caller may send and a peer takes.
pub const READER_LIFE_S: u64 = 24 * 3600;

const READER_PREFIX: &[u8] = b"holdfast reader v1";
const READER_DOMAIN: &str = "reader";
const REDIRECT_PREFIX: &[u8] = b"holdfast redirect v1";
const REDIRECT_DOMAIN: &str = "redirect";

/// Who reads over one connection. Decoded, it says nothing yet: [`ReaderClaim::verify`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReaderClaim {
    /// The network.
    pub network: NetworkId,
    /// Who reads, as policies name it.
    pub reader: PublicKey,
    /// Until when it counts, Unix seconds.
    pub until_s: u64,
    /// The signature, r||s.
    pub signature: Signature,
}

fn reader_message(caller: &PublicKey, until_s: u64) -> [u8; 41] {
    let mut message = [0; 41];
    message[..33].copy_from_slice(caller.as_bytes());
    message[33..].copy_from_slice(&until_s.to_be_bytes());
    message
}

impl ReaderClaim {
    /// The claim that `caller`, the key of a connection, reads for `reader` until then.
    pub fn sign(network: NetworkId, reader: &SecretKey, caller: &PublicKey, until_s: u64) -> Self {
        let signature = reader.sign(READER_DOMAIN, &network, &reader_message(caller, until_s));
        Self { network, reader: reader.public(), until_s, signature }
    }

    /// Checks it for a caller in a network; `now_s` is Unix seconds.
    ///
    /// # Errors
    /// [`VersionError::Network`], [`VersionError::Field`] where it is over or lasts longer than [`READER_LIFE_S`],
    /// [`VersionError::Key`] where the reader did not sign it for this caller.
    pub fn verify(
        &self,
        network: &NetworkId,
        caller: &PublicKey,
        now_s: u64,
    ) -> Result<(), VersionError> {
        if self.network != *network {
            return Err(VersionError::Network(self.network));
        }
        if self.until_s < now_s || self.until_s - now_s > READER_LIFE_S {
            return Err(VersionError::Field("time of the reader's claim"));
        }
        let message = reader_message(caller, self.until_s);
        Ok(self.reader.verify(READER_DOMAIN, network, &message, &self.signature)?)
    }

    /// Reads what [`ReaderClaim::encode`] wrote.
    ///
    /// # Errors
    /// [`VersionError`] for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, VersionError> {
        let mut reader = Reader::new("reader's claim", bytes);
        reader.prefix(READER_PREFIX)?;
        let network = NetworkId::new(reader.array()?);
        let key = PublicKey::from_slice(&reader.array::<33>()?)?;
        let claim =
            Self { network, reader: key, until_s: reader.u64()?, signature: reader.array()? };
        reader.end()?;
        Ok(claim)
    }

    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(READER_BYTES);
        out.extend_from_slice(READER_PREFIX);
        out.extend_from_slice(self.network.as_bytes());
        out.extend_from_slice(self.reader.as_bytes());
        out.extend_from_slice(&self.until_s.to_be_bytes());
        out.extend_from_slice(&self.signature);
        out.into()
    }
}

/// Where a branch goes on. Decoded, it is nobody's word yet: [`Redirect::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The network.
    pub network: NetworkId,
    /// Whose region is full.
    pub peer: PeerId,
    /// Of which object.
    pub object: ObjectKey,
    /// The hint whose region is full.
    pub n: Hint,
    /// The hint to go on with.
    pub next: Hint,
    /// When it was said, Unix milliseconds.
    pub time_ms: u64,
    /// The signature, r||s.
    pub signature: Signature,
}

impl Redirect {
    /// The word of the peer whose key this is.
    pub fn sign(
        key: &SecretKey,
        network: NetworkId,
        object: ObjectKey,
        (n, next): (Hint, Hint),
        time_ms: u64,
    ) -> Self {
        let mut redirect = Self {
            network,
            peer: PeerId::new(key.public()),
            object,
            n,
            next,
            time_ms,
            signature: [0; 64],
        };
        redirect.signature = key.sign(REDIRECT_DOMAIN, &network, &redirect.message());
        redirect
    }

    fn message(&self) -> [u8; 72] {
        let mut message = [0; 72];
        message[..32].copy_from_slice(self.object.as_bytes());
        message[32..48].copy_from_slice(self.n.as_bytes());
        message[48..64].copy_from_slice(self.next.as_bytes());
        message[64..].copy_from_slice(&self.time_ms.to_be_bytes());
        message
    }

    /// Checks that its peer signed it in this network.
    ///
    /// # Errors
    /// [`VersionError::Network`], [`VersionError::Key`].
    pub fn verify(&self, network: &NetworkId) -> Result<(), VersionError> {
        if self.network != *network {
            return Err(VersionError::Network(self.network));
        }
        let key = self.peer.key();
        Ok(key.verify(REDIRECT_DOMAIN, network, &self.message(), &self.signature)?)
    }

    /// Reads what [`Redirect::encode`] wrote.
    ///
    /// # Errors
    /// [`VersionError`] for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, VersionError> {
        let mut reader = Reader::new("redirect", bytes);
        reader.prefix(REDIRECT_PREFIX)?;
        let network = NetworkId::new(reader.array()?);
        let peer = PeerId::from_slice(&reader.array::<33>()?)?;
        let object = ObjectKey::new(reader.array()?);
        let (n, next) = (Hint::new(reader.array()?), Hint::new(reader.array()?));
        let (time_ms, signature) = (reader.u64()?, reader.array()?);
        reader.end()?;
        Ok(Self { network, peer, object, n, next, time_ms, signature })
    }

    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(REDIRECT_BYTES);
        out.extend_from_slice(REDIRECT_PREFIX);
        out.extend_from_slice(self.network.as_bytes());
        out.extend_from_slice(self.peer.as_bytes());
        out.extend_from_slice(&self.message());
        out.extend_from_slice(&self.signature);
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use crypto::SecretKey;

    use super::*;

    fn key(seed: u8) -> SecretKey {
        SecretKey::from_bytes(&[seed; 32]).expect("a scalar")
    }

    const NETWORK: NetworkId = NetworkId::new([9; 32]);

    #[test]
    fn a_claim_counts_for_its_caller_and_time_alone() {
        let (reader, caller) = (key(1), key(2).public());
        let claim = ReaderClaim::sign(NETWORK, &reader, &caller, 1_000);
        let bytes = claim.encode();
        assert_eq!(bytes.len(), READER_BYTES);
        let read = ReaderClaim::decode(&bytes).expect("its own bytes");
        assert_eq!(read, claim);
        read.verify(&NETWORK, &caller, 1_000).expect("counts");
        assert!(read.verify(&NETWORK, &caller, 1_001).is_err(), "over");
        assert!(read.verify(&NETWORK, &key(3).public(), 1_000).is_err(), "another connection");
        assert!(read.verify(&NetworkId::new([8; 32]), &caller, 1_000).is_err());
        let long = ReaderClaim::sign(NETWORK, &reader, &caller, 1_000 + READER_LIFE_S + 1);
        assert!(long.verify(&NETWORK, &caller, 1_000).is_err(), "too long");
        for at in 18 + 32..bytes.len() {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1;
            let read = ReaderClaim::decode(&bytes);
            assert!(read.is_err() || read.is_ok_and(|c| c.verify(&NETWORK, &caller, 900).is_err()));
        }
    }

    #[test]
    fn a_redirect_is_its_peers_word() {
        let object = ObjectKey::new([7; 32]);
        let hints = (Hint::FIRST, Hint::new([1; 16]));
        let redirect = Redirect::sign(&key(1), NETWORK, object, hints, 5);
        let bytes = redirect.encode();
        assert_eq!(bytes.len(), REDIRECT_BYTES);
        let read = Redirect::decode(&bytes).expect("its own bytes");
        assert_eq!(read, redirect);
        read.verify(&NETWORK).expect("signed");
        assert!(Redirect::decode(&bytes[1..]).is_err());
        for at in 20..bytes.len() {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1;
            let read = Redirect::decode(&bytes);
            assert!(read.is_err() || read.is_ok_and(|one| one.verify(&NETWORK).is_err()));
        }
    }

    #[test]
    fn their_bytes_are_these() {
        let claim = ReaderClaim::sign(NETWORK, &key(1), &key(2).public(), 1_000).encode();
        let hints = (Hint::FIRST, Hint::new([1; 16]));
        let redirect = Redirect::sign(&key(1), NETWORK, ObjectKey::new([7; 32]), hints, 5);
        let hash = |bytes: &[u8]| crypto::Suite::Holdfast1.id(bytes).to_string();
        assert_eq!(
            hash(&claim),
            "8958ebbc448dfe4fc35c577cd746a316be825cb7d7a7c715b2e49e47f270d986"
        );
        assert_eq!(
            hash(&redirect.encode()),
            "9ba196d5b74a2ada7b41bfc65aacb059f9ce4f80beb465d732f1f7f877dea117"
        );
    }
}
