//! Who a member is outside of its committee: which peer hosts it, and where the other members reach it.
//!
//! ```text
//! card  "holdfast member v1" | peer's signature 64 | member's signature 64 | network 32 | peer 33 | member 32 | committee 1 [group id 32] | time 8 | address length 1 | address
//! ```
//! Both sign all behind the signatures: the hosting librarian with the peer's key, in the domain `member`, and the member with its
//! own, so that nobody claims to host another's member. The librarian gives the card to everyone who introduces themselves.
//! Founders find each other's keys by it before there is a committee, clients the members' librarians afterwards. It proves nothing
//! about heads: those prove themselves with the group key.

use std::net::SocketAddr;

use bytes::Bytes;
use commonware_codec::{DecodeExt as _, Encode as _};
use commonware_cryptography::{Signer as _, Verifier as _, ed25519};
use crypto::{NetworkId, PeerId, SecretKey};

use crate::engine::{MemberId, MemberSecret};
use crate::reader::Reader;
use crate::{CommitteeError, GroupId};

/// The longest card, in bytes.
pub const CARD_BYTES_MAX: usize = 512;
/// How far ahead of a reader's clock a card may have been signed, in milliseconds. One of the years to come would be the newest until
/// then, whatever its member signs later.
pub const CARD_AHEAD_MS_MAX: u64 = 600_000;

const PREFIX: &[u8] = b"holdfast member v1";
const DOMAIN: &str = "member";
const NAMESPACE: &[u8] = b"holdfast member card v1";
const WHAT: &str = "member's card";
/// The longest address, in bytes.
const ADDRESS_BYTES_MAX: usize = 64;

/// What a librarian says of the member that it hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The network.
    pub network: NetworkId,
    /// Which peer hosts it.
    pub peer: PeerId,
    /// The member's key.
    pub member: MemberId,
    /// Its committee; `None` before there is one.
    pub committee: Option<GroupId>,
    /// When the card was signed, Unix milliseconds: the newest of one peer counts.
    pub time_ms: u64,
    /// Where the other members reach it.
    pub address: SocketAddr,
}

impl Card {
    /// The card, signed; `key` is the peer's, `secret` the member's.
    pub fn sign(&self, key: &SecretKey, secret: &MemberSecret) -> Bytes {
        let mut body = Vec::with_capacity(200);
        body.extend_from_slice(self.network.as_bytes());
        body.extend_from_slice(self.peer.as_bytes());
        body.extend_from_slice(self.member.as_bytes());
        body.push(u8::from(self.committee.is_some()));
        self.committee.iter().for_each(|group| body.extend_from_slice(group.as_bytes()));
        body.extend_from_slice(&self.time_ms.to_be_bytes());
        let address = self.address.to_string();
        body.push(address.len() as u8);
        body.extend_from_slice(address.as_bytes());
        let signature = key.sign(DOMAIN, &self.network, &body);
        let own = secret.0.sign(NAMESPACE, &body).encode();
        [PREFIX, &signature, &own, &body].concat().into()
    }

    /// Whether it was signed later than a right clock can say at this time, Unix milliseconds: then it counts for none.
    pub const fn is_of_the_future(&self, now_ms: u64) -> bool {
        self.time_ms > now_ms.saturating_add(CARD_AHEAD_MS_MAX)
    }

    /// Of two cards of a member the one with the greater rank counts at this time: the later one, and one of the future only where there
    /// is no other.
    pub const fn rank(&self, now_ms: u64) -> (bool, u64) {
        (!self.is_of_the_future(now_ms), self.time_ms)
    }

    /// Reads a card of this network and checks that the peer and the member it names signed it.
    ///
    /// # Errors
    /// [`CommitteeError`] with the reason.
    pub fn verify(bytes: &[u8], network: &NetworkId) -> Result<Self, CommitteeError> {
        if bytes.len() > CARD_BYTES_MAX {
            let (found, max) = (bytes.len(), CARD_BYTES_MAX);
            return Err(CommitteeError::TooLarge { what: "bytes of a card", found, max });
        }
        let mut reader = Reader::new(WHAT, bytes);
        reader.prefix(PREFIX)?;
        let (signature, own) = (reader.array::<64>()?, reader.array::<64>()?);
        let body = reader.rest();
        let found = NetworkId::new(reader.array()?);
        if found != *network {
            return Err(CommitteeError::Network(found));
        }
        let peer = PeerId::from_slice(&reader.array::<33>()?)?;
        let member = MemberId::new(reader.array()?);
        let committee = match reader.flag()? {
            true => Some(GroupId::new(reader.array()?)),
            false => None,
        };
        let time_ms = reader.u64()?;
        let length = usize::from(reader.u8()?);
        let address = reader.take(length.min(ADDRESS_BYTES_MAX + 1))?;
        reader.end()?;
        const ADDRESS: CommitteeError = CommitteeError::Field("address of the member");
        let text = std::str::from_utf8(address).map_err(|_| ADDRESS)?;
        let parsed: SocketAddr = text.parse().map_err(|_| ADDRESS)?;
        // One card has one encoding.
        if parsed.to_string() != text {
            return Err(ADDRESS);
        }
        let own = ed25519::Signature::decode(Bytes::copy_from_slice(&own));
        let own = own.map_err(|_| CommitteeError::Signature)?;
        if !member.key()?.verify(NAMESPACE, body, &own) {
            return Err(CommitteeError::Signature);
        }
        peer.key().verify(DOMAIN, network, body, &signature)?;
        Ok(Self { network: found, peer, member, committee, time_ms, address: parsed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proving::{NETWORK, secret};

    fn member(byte: u8) -> MemberSecret {
        MemberSecret::new(&[byte; 32]).expect("a key")
    }

    fn card() -> Card {
        Card {
            network: NETWORK,
            peer: PeerId::new(secret(3).public()),
            member: member(5).id(),
            committee: Some(GroupId::new([8; 32])),
            time_ms: 1_700_000_000_000,
            address: "127.0.0.1:4100".parse().expect("an address"),
        }
    }

    #[test]
    fn a_card_is_its_peers_word_and_no_bit_of_it_changes() {
        let bytes = card().sign(&secret(3), &member(5));
        assert_eq!(Card::verify(&bytes, &NETWORK).expect("our own"), card());
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Card::verify(&changed, &NETWORK).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Card::verify(&bytes[..length], &NETWORK).is_err(), "{length}");
        }
        let none = Card { committee: None, ..card() };
        let bytes = none.sign(&secret(3), &member(5));
        assert_eq!(Card::verify(&bytes, &NETWORK).expect("our own"), none);
    }

    #[test]
    fn a_card_by_another_peer_or_member_or_for_another_network_is_refused() {
        let forged = card().sign(&secret(4), &member(5));
        assert!(matches!(Card::verify(&forged, &NETWORK), Err(CommitteeError::Key(_))));
        // A peer that claims another's member.
        let claimed = Card { peer: PeerId::new(secret(4).public()), ..card() };
        let claimed = claimed.sign(&secret(4), &member(6));
        assert!(matches!(Card::verify(&claimed, &NETWORK), Err(CommitteeError::Signature)));
        let other = NetworkId::new([7; 32]);
        let elsewhere = Card { network: other, ..card() }.sign(&secret(3), &member(5));
        assert!(matches!(Card::verify(&elsewhere, &NETWORK), Err(CommitteeError::Network(_))));
    }
}
