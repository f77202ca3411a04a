//! How far a member is, in its own words: what a client asks n - f members for, so that no one of them is trusted to be fresh.
//!
//! ```text
//! position  "holdfast position v1" | nonce 32 | group id 32 | member 32 | view 8 | parent view 8 | epoch 8 | digest 32 | notarisation 48 | signature 64
//! ```
//! A member votes to finalise a view only after it holds the view's notarisation. So when an update is answered, n - f members hold
//! one of its view or a later one, and any n - f of them have an honest one among these: the highest view that n - f members tell
//! covers every update that was answered before they were asked. (Views begin anew with an epoch: whoever may have voted to finalise the
//! last block of one tells none until it knows that block to be final, and then none of that epoch.) A certificate of that epoch and
//! view, or of later ones, is as fresh as the asking. The notarisation proves that there is such a view, so a liar makes nobody wait;
//! the member's signature, over the network and all before it, that it spoke after the nonce was made.

use bytes::Bytes;
use commonware_codec::{DecodeExt as _, Encode as _};
use commonware_cryptography::{Signer as _, Verifier as _, ed25519};
use crypto::NetworkId;

use crate::certificate::verify_notarised;
use crate::engine::{MemberId, MemberSecret, Notarised};
use crate::header::Header;
use crate::members::set_digest;
use crate::reader::Reader;
use crate::{Certificate, CommitteeError, GroupId, GroupKey};

const PREFIX: &[u8] = b"holdfast position v1";
const NAMESPACE: &[u8] = b"holdfast committee position v1";
/// The length of a position, in bytes.
pub const POSITION_BYTES: usize = PREFIX.len() + 3 * 32 + 3 * 8 + 32 + 48 + 64;

/// An epoch, and a view of it: they begin anew in each.
pub type At = (u64, u64);

/// The highest notarisation that a member holds, in its own words. Decoded, it is nobody's yet: [`Position::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// What was asked with.
    pub nonce: [u8; 32],
    /// Which committee.
    pub group: GroupId,
    /// Which member.
    pub member: MemberId,
    notarised: Notarised,
    signature: [u8; 64],
}

fn namespace(network: &NetworkId) -> Vec<u8> {
    [NAMESPACE, network.as_bytes()].concat()
}

impl Position {
    /// A member's word.
    pub(crate) fn sign(
        nonce: [u8; 32],
        network: &NetworkId,
        group: GroupId,
        notarised: Notarised,
        secret: &MemberSecret,
    ) -> Result<Self, CommitteeError> {
        let mut position =
            Self { nonce, group, member: secret.id(), notarised, signature: [0; 64] };
        let signature = secret.0.sign(&namespace(network), &position.body()).encode();
        position.signature =
            signature[..].try_into().map_err(|_| CommitteeError::Field("member's signature"))?;
        Ok(position)
    }

    /// The epoch and view of the notarisation.
    pub const fn at(&self) -> At {
        (self.notarised.epoch, self.notarised.view)
    }

    /// Checks that the member said so, in answer to the nonce, and that there is such a view.
    ///
    /// # Errors
    /// [`CommitteeError`] with the reason.
    pub fn verify(
        &self,
        nonce: &[u8; 32],
        network: &NetworkId,
        group: &GroupKey,
    ) -> Result<(), CommitteeError> {
        if self.group != group.id() {
            return Err(CommitteeError::Group);
        }
        if self.nonce != *nonce {
            return Err(CommitteeError::Field("nonce of the position"));
        }
        let signature = ed25519::Signature::decode(Bytes::copy_from_slice(&self.signature));
        let signature = signature.map_err(|_| CommitteeError::Signature)?;
        if !self.member.key()?.verify(&namespace(network), &self.body(), &signature) {
            return Err(CommitteeError::Signature);
        }
        match verify_notarised(&self.notarised, network, group) {
            true => Ok(()),
            false => Err(CommitteeError::Path("notarisation")),
        }
    }

    /// What a liar would show in a finalisation's place: the certificate with the notarisation of its header for its signature;
    /// `None` where it is of another header. For those who test what must be refused.
    #[doc(hidden)]
    pub fn instead_of(&self, certificate: &Certificate) -> Option<Certificate> {
        let Notarised { view, parent_view, digest, signature, .. } = &self.notarised;
        certificate.notarised(*view, *parent_view, digest, signature)
    }

    fn body(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(POSITION_BYTES);
        out.extend_from_slice(PREFIX);
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(self.group.as_bytes());
        out.extend_from_slice(self.member.as_bytes());
        out.extend_from_slice(&self.notarised.view.to_be_bytes());
        out.extend_from_slice(&self.notarised.parent_view.to_be_bytes());
        out.extend_from_slice(&self.notarised.epoch.to_be_bytes());
        out.extend_from_slice(&self.notarised.digest);
        out.extend_from_slice(&self.notarised.signature);
        out
    }

    /// The encoding.
    pub fn encode(&self) -> Vec<u8> {
        [&self.body()[..], &self.signature].concat()
    }

    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`CommitteeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CommitteeError> {
        let mut reader = Reader::new("position of a member", bytes);
        reader.prefix(PREFIX)?;
        let (nonce, group) = (reader.array()?, GroupId::new(reader.array()?));
        let member = MemberId::new(reader.array()?);
        let notarised = Notarised {
            view: reader.u64()?,
            parent_view: reader.u64()?,
            epoch: reader.u64()?,
            digest: reader.array()?,
            signature: reader.array()?,
        };
        let signature = reader.array()?;
        reader.end()?;
        Ok(Self { nonce, group, member, notarised, signature })
    }
}

/// Whether these are the members whom a certified header names; then n of them are, and n - f must agree.
pub fn are_members(header: &Header, members: &[MemberId]) -> bool {
    set_digest(members.iter().copied()) == header.members
}

/// How many of so many members must agree: n - f, with f = (n - 1) / 3.
pub const fn quorum(members: usize) -> usize {
    members - members.saturating_sub(1) / 3
}

/// How many of so many members may lie.
pub const fn faulty(members: usize) -> usize {
    members.saturating_sub(1) / 3
}

#[cfg(test)]
mod tests {
    use commonware_codec::Encode as _;

    use super::*;
    use crate::proving::{Founded, NETWORK};

    fn position(founded: &Founded, secret: &MemberSecret, nonce: [u8; 32]) -> Position {
        let signed = founded.sign(&founded.tip, 9, false);
        let notarised = Notarised {
            view: 9,
            parent_view: 8,
            epoch: 0,
            digest: *founded.tip.digest().as_bytes(),
            signature: signed.certificate.encode()[..].try_into().expect("48 bytes"),
        };
        Position::sign(nonce, &NETWORK, founded.group.id(), notarised, secret).expect("signed")
    }

    #[test]
    fn a_position_is_one_members_word_for_one_nonce() {
        let founded = Founded::new(4);
        let secret = MemberSecret::new(&[5; 32]).expect("a key");
        let said = position(&founded, &secret, [1; 32]);
        let bytes = said.encode();
        assert_eq!(bytes.len(), POSITION_BYTES);
        assert_eq!(Position::decode(&bytes).expect("our own"), said);
        said.verify(&[1; 32], &NETWORK, &founded.group).expect("our own");
        assert_eq!((said.at(), said.member), ((0, 9), secret.id()));

        assert!(said.verify(&[2; 32], &NETWORK, &founded.group).is_err());
        assert!(said.verify(&[1; 32], &NetworkId::new([3; 32]), &founded.group).is_err());
        assert!(said.verify(&[1; 32], &NETWORK, &Founded::seeded(4, 8).group).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let read = Position::decode(&changed);
            let holds = read.and_then(|one| one.verify(&[1; 32], &NETWORK, &founded.group));
            assert!(holds.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_view_that_there_is_not_is_no_position() {
        let founded = Founded::new(4);
        let secret = MemberSecret::new(&[5; 32]).expect("a key");
        let mut notarised = position(&founded, &secret, [1; 32]).notarised;
        notarised.view = 1_000_000;
        let group = founded.group.id();
        let said = Position::sign([1; 32], &NETWORK, group, notarised, &secret).expect("signed");
        let refused = said.verify(&[1; 32], &NETWORK, &founded.group);
        assert!(matches!(refused, Err(CommitteeError::Path("notarisation"))));
    }

    #[test]
    fn the_bounds_of_lies_are_those_of_the_engine() {
        let all: Vec<_> = (4..=10).map(|n| (faulty(n), quorum(n))).collect();
        assert_eq!(all, [(1, 3), (1, 4), (1, 5), (2, 5), (2, 6), (2, 7), (3, 7)]);
    }
}
