//! A certificate: a header, and the one signature of the committee that stands for n - f of its members.
//!
//! ```text
//! certificate  "holdfast certificate v1" | header 332 | later 1 | header 332 each | view 8 | parent view 8 | signature 48
//! ```
//! The signature is that of a *finalisation* of simplex over (epoch, view, parent view, digest of the last header): the epoch and the
//! digest are the header's, so neither stands there a second time. Mostly there is no later header. A block whose own finalisation
//! never came together is final by that of a block after it; then the headers from one to the other follow, each of which names
//! the one before. Such a certificate proves what became of the block's updates, and not that its state is as new as the view of the
//! finalisation: a read and a snapshot are under a header's own ([`Certificate::is_own`]).
//!
//! Whoever has the group key checks it offline: one pairing. A **notarisation** has the same shape and proves nothing, since another
//! block may still take its place; its signature is over other words and is refused by name.

use std::sync::Arc;

use bytes::Bytes;
use commonware_codec::{DecodeExt, Encode};
use commonware_consensus::simplex::scheme::Namespace;
use commonware_consensus::simplex::scheme::bls12381_threshold::standard;
use commonware_consensus::simplex::types::{Finalization, Proposal, Subject};
use commonware_consensus::types::{Epoch, Round, View};
use commonware_cryptography::bls12381::primitives::ops::verify_message;
use commonware_cryptography::bls12381::primitives::variant::MinSig;
use commonware_cryptography::certificate::{Subject as _, Verifier};
use commonware_cryptography::{blake3, ed25519};
use crypto::NetworkId;

use crate::group::SIGNATURE_BYTES;
use crate::header::{HEADER_BYTES, Header};
use crate::reader::Reader;
use crate::{CommitteeError, GroupKey};

/// The most headers between a block and the one whose finalisation certifies it.
pub const LATER_MAX: usize = 64;
/// The longest certificate, in bytes.
pub const CERTIFICATE_BYTES_MAX: usize =
    PREFIX.len() + (1 + LATER_MAX) * HEADER_BYTES + 1 + 16 + SIGNATURE_BYTES;

const PREFIX: &[u8] = b"holdfast certificate v1";
/// What all signatures of the engine are made under, before the network's id.
const NAMESPACE: &[u8] = b"holdfast committee v1";

/// The scheme that members vote with.
pub(crate) type Scheme = standard::Scheme<ed25519::PublicKey, MinSig>;
/// What consensus decides on: a header's digest.
pub(crate) type Digest = blake3::Digest;
type Signature = <Scheme as Verifier>::Certificate;

/// What the signatures of a network's committees are made under.
pub(crate) fn namespace(network: &NetworkId) -> Vec<u8> {
    [NAMESPACE, network.as_bytes()].concat()
}

/// Whether the committee notarised what a member claims.
pub(crate) fn verify_notarised(
    claim: &crate::engine::Notarised,
    network: &NetworkId,
    group: &GroupKey,
) -> bool {
    let round = Round::new(Epoch::new(claim.epoch), View::new(claim.view));
    let proposal = Proposal::new(round, View::new(claim.parent_view), blake3::Digest(claim.digest));
    let signature = Signature::decode(Bytes::copy_from_slice(&claim.signature));
    let Ok(signature) = signature else { return false };
    holds(network, group, Subject::Notarize { proposal: &proposal }, &signature)
}

/// Whether a signature is the committee's for this.
fn holds(
    network: &NetworkId,
    group: &GroupKey,
    subject: Subject<'_, Digest>,
    signature: &Signature,
) -> bool {
    let names = Namespace::new(&namespace(network));
    let (name, message) = (subject.namespace(&names), subject.message());
    let (Some(point), Some(signature)) = (group.point(), signature.get()) else { return false };
    verify_message::<MinSig>(point, name, &message, signature).is_ok()
}

/// The committee's word for a header. A copy shares everything: each answer of a block has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate(Arc<Word>);

#[derive(Debug, PartialEq, Eq)]
struct Word {
    header: Header,
    later: Vec<Header>,
    view: u64,
    parent_view: u64,
    signature: [u8; SIGNATURE_BYTES],
    /// All of it as it is encoded: each answer of a block ends with it.
    encoded: Bytes,
}

impl Certificate {
    fn of(
        header: Header,
        later: Vec<Header>,
        (view, parent_view): (u64, u64),
        signature: [u8; SIGNATURE_BYTES],
    ) -> Self {
        let headers = (1 + later.len()) * HEADER_BYTES;
        let mut out = Vec::with_capacity(PREFIX.len() + headers + 17 + SIGNATURE_BYTES);
        out.extend_from_slice(PREFIX);
        out.extend_from_slice(&header.encode());
        out.push(later.len() as u8);
        later.iter().for_each(|header| out.extend_from_slice(&header.encode()));
        out.extend_from_slice(&view.to_be_bytes());
        out.extend_from_slice(&parent_view.to_be_bytes());
        out.extend_from_slice(&signature);
        let encoded = out.into();
        Self(Arc::new(Word { header, later, view, parent_view, signature, encoded }))
    }

    /// The certificate of a header by the finalisation of it, or of the last of those that follow it.
    pub(crate) fn new(
        header: Header,
        later: Vec<Header>,
        finalization: &Finalization<Scheme, Digest>,
    ) -> Result<Self, CommitteeError> {
        let proposal = &finalization.proposal;
        let signature = finalization.certificate.encode();
        let signature = signature[..].try_into().map_err(|_| CommitteeError::Field("signature"))?;
        let views = (proposal.round.view().get(), proposal.parent.get());
        let certificate = Self::of(header, later, views, signature);
        let digest = blake3::Digest(*certificate.last().digest().as_bytes());
        if proposal.payload != digest || certificate.last().epoch != proposal.round.epoch().get() {
            return Err(CommitteeError::Chain);
        }
        certificate.follows()?;
        Ok(certificate)
    }

    /// What is certified. It is only certified once [`Certificate::verify`] said so.
    pub fn header(&self) -> &Header {
        &self.0.header
    }

    /// The view of the finalisation.
    pub fn view(&self) -> u64 {
        self.0.view
    }

    /// The epoch and the view of the finalisation: they grow along the chain. They are the header's where the certificate
    /// [is its own](Certificate::is_own), and else those of the last header after it.
    pub fn round(&self) -> (u64, u64) {
        (self.last().epoch, self.0.view)
    }

    /// Whether the finalisation is that of the header itself, and not of a block after it. A header that a later block's finalisation
    /// certifies is final, and says nothing of what those between did: only its own says how fresh its state is.
    pub fn is_own(&self) -> bool {
        self.0.later.is_empty()
    }

    fn last(&self) -> &Header {
        self.0.later.last().unwrap_or(&self.0.header)
    }

    fn follows(&self) -> Result<(), CommitteeError> {
        if self.0.later.len() > LATER_MAX {
            return Err(CommitteeError::Chain);
        }
        let mut before = &self.0.header;
        for header in &self.0.later {
            let next = before.height.checked_add(1) == Some(header.height);
            if !next || header.parent != before.digest() || header.network != before.network {
                return Err(CommitteeError::Chain);
            }
            before = header;
        }
        Ok(())
    }

    fn proposal(&self) -> Proposal<Digest> {
        let last = self.last();
        let round = Round::new(Epoch::new(last.epoch), View::new(self.0.view));
        Proposal::new(
            round,
            View::new(self.0.parent_view),
            blake3::Digest(*last.digest().as_bytes()),
        )
    }

    /// The finalisation, as the engine takes it.
    pub(crate) fn finalization(&self) -> Result<Finalization<Scheme, Digest>, CommitteeError> {
        Ok(Finalization { proposal: self.proposal(), certificate: self.point()? })
    }

    fn point(&self) -> Result<Signature, CommitteeError> {
        let bytes = Bytes::copy_from_slice(&self.0.signature);
        Signature::decode(bytes).map_err(|_| CommitteeError::Signature)
    }

    /// Checks, with nothing but the group key, that the committee certified the header in this network.
    ///
    /// # Errors
    /// [`CommitteeError::Network`], [`CommitteeError::Group`], [`CommitteeError::Chain`], [`CommitteeError::Notarisation`],
    /// [`CommitteeError::Signature`].
    pub fn verify(&self, network: &NetworkId, group: &GroupKey) -> Result<(), CommitteeError> {
        if self.0.header.network != *network {
            return Err(CommitteeError::Network(self.0.header.network));
        }
        if self.0.header.group != *group {
            return Err(CommitteeError::Group);
        }
        self.follows()?;
        let (proposal, signature) = (self.proposal(), self.point()?);
        let holds = |subject| holds(network, group, subject, &signature);
        if holds(Subject::Finalize { proposal: &proposal }) {
            return Ok(());
        }
        if holds(Subject::Notarize { proposal: &proposal }) {
            return Err(CommitteeError::Notarisation);
        }
        Err(CommitteeError::Signature)
    }

    /// As [`Certificate::verify`], and that it [is the header's own](Certificate::is_own): for whoever takes the state after the header
    /// for that of the certificate's view. No member has another for its tip.
    ///
    /// # Errors
    /// As [`Certificate::verify`]; [`CommitteeError::Chain`] where headers follow.
    pub(crate) fn verify_own(
        &self,
        network: &NetworkId,
        group: &GroupKey,
    ) -> Result<(), CommitteeError> {
        if !self.is_own() {
            return Err(CommitteeError::Chain);
        }
        self.verify(network, group)
    }

    /// Itself with a notarisation of its header for its signature, where it is of this header.
    pub(crate) fn notarised(
        &self,
        view: u64,
        parent_view: u64,
        digest: &[u8; 32],
        signature: &[u8; SIGNATURE_BYTES],
    ) -> Option<Self> {
        let same = self.last().digest().as_bytes() == digest;
        let (header, later) = (self.0.header.clone(), self.0.later.clone());
        same.then(|| Self::of(header, later, (view, parent_view), *signature))
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        self.0.encoded.clone()
    }

    /// Reads one.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, CommitteeError> {
        reader.prefix(PREFIX)?;
        let header = Header::read(reader)?;
        let (found, max) = (usize::from(reader.u8()?), LATER_MAX);
        if found > max {
            return Err(CommitteeError::TooLarge { what: "later headers", found, max });
        }
        let later = (0..found).map(|_| Header::read(reader)).collect::<Result<_, _>>()?;
        let views = (reader.u64()?, reader.u64()?);
        Ok(Self::of(header, later, views, reader.array()?))
    }

    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`CommitteeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CommitteeError> {
        let mut reader = Reader::new("certificate", bytes);
        let certificate = Self::read(&mut reader)?;
        reader.end()?;
        Ok(certificate)
    }
}
