//! Who the members are, and how that changes: what the committee orders about itself.
//!
//! The group secret never changes; its shares do. A **round** deals new shares from the members of an epoch to those of the next:
//!
//! ```text
//! wanted   n - f members sign a list of members under the next number                    an ordered entry: the round begins
//! dealing  each holder of a share deals to each of the wanted, who acknowledge            between members, encrypted
//! dealt    each dealer's signed log: commitments, acknowledgements, parts shown           an ordered entry each
//! epoch    with the (n - f)th usable log the next epoch's members and polynomial are known; the block ends its epoch
//! ```
//! All of it is a function of the blocks ([`round`]), so all members use the same logs. A round that showed a player's share is
//! repeated without that player under the next number; one that comes to nothing leaves the epoch as it is.
//!
//! ```text
//! change   1 wanted  wish | signatures 1 | (key 32 | signature 64) each, by key      2 dealt  number 8 | signature 64 | length 4 | log
//! wish     epoch 8 | number 8 | least 1 | places
//! places   count 1, at most 32 | (key 32 | 0, or 4 | address 4 | port 2, or 6 | address 16 | port 2) each, by key
//! members  5 | epoch 8 | number 8 | ended 1 | length 4 | outcome | places, the members | places, those before | round 1 (0 none, 1)
//!            [began 8 | least 1 | usable 1 | lost 1 | places, the players]
//! dealt    6 | slot 1 | number 8 | usable 1 | length 4 | log
//! ```
//! `log` and `outcome` are the engine's own encodings. A wish is signed under `holdfast members wanted v1`, over network, group id
//! and wish; a log under `holdfast members dealt v1`, over network, group id, number and log: so that nobody but a dealer makes the
//! members look into one. A **number** never comes twice: a wish names the one after the last.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use commonware_codec::{DecodeExt as _, Encode as _};
use commonware_cryptography::{Signer as _, Verifier as _, ed25519};
use crypto::{NetworkId, Suite};

use crate::engine::{MEMBERS_MAX, MEMBERS_MIN, MemberId, MemberSecret};
use crate::map::Hash;
use crate::reader::{Reader, put_long};
use crate::{CommitteeError, GroupId, Rules};

pub(crate) mod round;
#[cfg(test)]
pub(crate) mod tests;

/// For how long a round may go on, by the blocks' time, in milliseconds.
pub const ROUND_MS: u64 = 600_000;
/// The longest log of a dealer, in bytes.
pub(crate) const LOG_BYTES_MAX: usize = 12 << 10;
/// The longest outcome of a round, in bytes.
pub(crate) const OUTCOME_BYTES_MAX: usize = 8 << 10;

const NAMESPACE: &[u8] = b"holdfast members wanted v1";
const DEALT_NAMESPACE: &[u8] = b"holdfast members dealt v1";
const SET_PREFIX: &[u8] = b"holdfast members v1";
const WHAT: &str = "change of the members";

/// The digest of a set of members, by their keys in order.
pub(crate) fn set_digest(keys: impl IntoIterator<Item = MemberId>) -> Hash {
    let mut bytes = SET_PREFIX.to_vec();
    keys.into_iter().for_each(|key| bytes.extend_from_slice(key.as_bytes()));
    Suite::Holdfast1.hash(&bytes)
}

/// A member, and where it is reached as far as was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Who.
    pub member: MemberId,
    /// Where; `None` where the founders' own settings say so.
    pub address: Option<SocketAddr>,
}

fn put_places(out: &mut Vec<u8>, places: &[Place]) {
    out.push(places.len() as u8);
    for place in places {
        out.extend_from_slice(place.member.as_bytes());
        match place.address {
            None => out.push(0),
            Some(address) => {
                match address.ip() {
                    IpAddr::V4(ip) => {
                        out.push(4);
                        out.extend_from_slice(&ip.octets());
                    }
                    IpAddr::V6(ip) => {
                        out.push(6);
                        out.extend_from_slice(&ip.octets());
                    }
                }
                out.extend_from_slice(&address.port().to_be_bytes());
            }
        }
    }
}

fn read_places(reader: &mut Reader<'_>) -> Result<Vec<Place>, CommitteeError> {
    let (found, max) = (usize::from(reader.u8()?), MEMBERS_MAX);
    if found > max {
        return Err(CommitteeError::TooLarge { what: "members", found, max });
    }
    let mut places: Vec<Place> = Vec::with_capacity(found);
    for _ in 0..found {
        let member = MemberId::new(reader.array()?);
        let ip = match reader.u8()? {
            0 => None,
            4 => Some(IpAddr::from(reader.array::<4>()?)),
            6 => Some(IpAddr::from(reader.array::<16>()?)),
            _ => return Err(CommitteeError::Field("address of a member")),
        };
        let address = match ip {
            Some(ip) => Some(SocketAddr::from((ip, reader.u16()?))),
            None => None,
        };
        if places.last().is_some_and(|last| last.member >= member) {
            return Err(CommitteeError::Field("order of the members"));
        }
        places.push(Place { member, address });
    }
    Ok(places)
}

/// Which members are wanted: what n - f of those of now must sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The epoch that it changes.
    pub epoch: u64,
    /// The number of the round: one more than the last.
    pub number: u64,
    /// With fewer members than these the round comes to nothing.
    pub least: u8,
    /// The members of the next epoch, by key.
    pub members: Vec<Place>,
}

impl Wish {
    /// Puts the members in order and checks their number.
    ///
    /// # Errors
    /// [`CommitteeError::Members`].
    pub fn new(
        epoch: u64,
        number: u64,
        least: u8,
        members: &[(MemberId, Option<SocketAddr>)],
    ) -> Result<Self, CommitteeError> {
        let place = |(member, address): &(MemberId, Option<SocketAddr>)| {
            let address = address.map(|one| SocketAddr::new(one.ip(), one.port()));
            Place { member: *member, address }
        };
        let mut members: Vec<Place> = members.iter().map(place).collect();
        members.sort_unstable();
        if members.windows(2).any(|two| two[0].member == two[1].member) {
            return Err(CommitteeError::Members("a member is named twice"));
        }
        let wish = Self { epoch, number, least, members };
        wish.holds()?;
        for place in &wish.members {
            place.member.key()?;
        }
        Ok(wish)
    }

    fn holds(&self) -> Result<(), CommitteeError> {
        let (count, least) = (self.members.len(), usize::from(self.least));
        if !(MEMBERS_MIN..=MEMBERS_MAX).contains(&count) {
            return Err(CommitteeError::Members("a committee has 4 to 32 members"));
        }
        if !(MEMBERS_MIN..=count).contains(&least) {
            return Err(CommitteeError::Members("at least 4 must be left, at most all"));
        }
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
        out.push(self.least);
        put_places(out, &self.members);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CommitteeError> {
        let (epoch, number, least) = (reader.u64()?, reader.u64()?, reader.u8()?);
        let wish = Self { epoch, number, least, members: read_places(reader)? };
        wish.holds()?;
        Ok(wish)
    }

    fn signed(&self, network: &NetworkId, group: &GroupId) -> Vec<u8> {
        let mut out = [&network.as_bytes()[..], &group.as_bytes()[..]].concat();
        self.write(&mut out);
        out
    }

    /// A member's signature under it.
    pub(crate) fn sign(&self, rules: &Rules, secret: &MemberSecret) -> Signed {
        let signature = sign(NAMESPACE, &self.signed(&rules.network, &rules.group), secret);
        Signed { wish: self.clone(), member: secret.id(), signature }
    }

    /// Whether a signature is that member's.
    fn is_signed(&self, rules: &Rules, member: &MemberId, signature: &[u8; 64]) -> bool {
        is_signed(NAMESPACE, &self.signed(&rules.network, &rules.group), member, signature)
    }
}

fn sign(namespace: &[u8], message: &[u8], secret: &MemberSecret) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes.copy_from_slice(&secret.0.sign(namespace, message).encode());
    bytes
}

fn is_signed(namespace: &[u8], message: &[u8], member: &MemberId, signature: &[u8; 64]) -> bool {
    let signature = ed25519::Signature::decode(Bytes::copy_from_slice(signature));
    let (Ok(key), Ok(signature)) = (member.key(), signature) else { return false };
    key.verify(namespace, message, &signature)
}

fn dealt_message(rules: &Rules, number: u64, log: &[u8]) -> Vec<u8> {
    let (network, group) = (&rules.network.as_bytes()[..], &rules.group.as_bytes()[..]);
    [network, group, &number.to_be_bytes(), log].concat()
}

/// A wish as one member signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    pub(crate) wish: Wish,
    pub(crate) member: MemberId,
    pub(crate) signature: [u8; 64],
}

impl Signed {
    /// Whether the member signed it.
    pub(crate) fn verify(&self, rules: &Rules) -> bool {
        self.wish.is_signed(rules, &self.member, &self.signature)
    }

    /// The encoding: wish, key, signature.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.wish.write(&mut out);
        out.extend_from_slice(self.member.as_bytes());
        out.extend_from_slice(&self.signature);
        out
    }

    /// Decodes and checks the form.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CommitteeError> {
        let mut reader = Reader::new("member's wish", bytes);
        let wish = Wish::read(&mut reader)?;
        let (member, signature) = (MemberId::new(reader.array()?), reader.array()?);
        reader.end()?;
        Ok(Self { wish, member, signature })
    }
}

/// What an update says about the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Others are wanted.
    Wanted {
        /// Who.
        wish: Wish,
        /// The members that want it, by key, with their signatures.
        signatures: Vec<(MemberId, [u8; 64])>,
    },
    /// A dealer is done.
    Dealt {
        /// Of which round.
        number: u64,
        /// The dealer's signature.
        signature: [u8; 64],
        /// The engine's encoding of its signed log.
        log: Bytes,
    },
}

impl Change {
    /// A dealer's log, signed by it.
    pub(crate) fn dealt(rules: &Rules, number: u64, log: Bytes, dealer: &MemberSecret) -> Self {
        let signature = sign(DEALT_NAMESPACE, &dealt_message(rules, number, &log), dealer);
        Self::Dealt { number, signature, log }
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Wanted { wish, signatures } => {
                out.push(1);
                wish.write(&mut out);
                out.push(signatures.len() as u8);
                for (member, signature) in signatures {
                    out.extend_from_slice(member.as_bytes());
                    out.extend_from_slice(signature);
                }
            }
            Self::Dealt { number, signature, log } => {
                out.push(2);
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(signature);
                put_long(&mut out, log);
            }
        }
        out.into()
    }

    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`CommitteeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CommitteeError> {
        let mut reader = Reader::new(WHAT, bytes);
        let change = match reader.u8()? {
            1 => {
                let wish = Wish::read(&mut reader)?;
                let (found, max) = (usize::from(reader.u8()?), MEMBERS_MAX);
                if found > max {
                    return Err(CommitteeError::TooLarge { what: "signatures", found, max });
                }
                let one = |_| Ok((MemberId::new(reader.array()?), reader.array()?));
                let signatures = (0..found).map(one).collect::<Result<Vec<_>, CommitteeError>>()?;
                if !signatures.is_sorted_by(|(a, _), (b, _)| a < b) {
                    return Err(CommitteeError::Field("order of the signatures"));
                }
                Self::Wanted { wish, signatures }
            }
            2 => {
                let (number, signature) = (reader.u64()?, reader.array()?);
                let log = reader.long("bytes of a dealer's log", LOG_BYTES_MAX)?;
                Self::Dealt { number, signature, log: Bytes::copy_from_slice(log) }
            }
            _ => return Err(CommitteeError::Field(WHAT)),
        };
        reader.end()?;
        Ok(change)
    }
}

/// How the last round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// There was none, or it goes on.
    NotYet,
    /// The next epoch has the members that were wanted.
    Changed,
    /// It showed a player's share: it goes on without that player, under the next number.
    Shown,
    /// Too few dealers dealt to enough players.
    FewDealers,
    /// Fewer players were left than were wanted at least.
    FewPlayers,
    /// Another list was wanted before it was done.
    Replaced,
    /// It was not done within [`ROUND_MS`].
    TooLate,
}

impl Ended {
    const ALL: [Self; 7] = [
        Self::NotYet,
        Self::Changed,
        Self::Shown,
        Self::FewDealers,
        Self::FewPlayers,
        Self::Replaced,
        Self::TooLate,
    ];

    fn byte(self) -> u8 {
        Self::ALL.iter().position(|one| *one == self).unwrap_or_default() as u8
    }

    fn of(byte: u8) -> Result<Self, CommitteeError> {
        let found = Self::ALL.get(usize::from(byte)).copied();
        found.ok_or(CommitteeError::Field("end of the last round"))
    }
}

/// A round that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// When it began, the block's time, Unix milliseconds.
    pub began_ms: u64,
    /// With fewer players than these it comes to nothing.
    pub least: u8,
    /// Logs that can be used.
    pub usable: u8,
    /// Logs that cannot.
    pub lost: u8,
    /// To whom is dealt, by key.
    pub players: Vec<Place>,
}

/// Who the members are: an entry of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// The epoch of the next block.
    pub epoch: u64,
    /// The number of the last round, or of the founding.
    pub number: u64,
    /// How that ended.
    pub ended: Ended,
    /// The engine's encoding of what the epoch's round, or the founding, made.
    pub outcome: Bytes,
    /// The members, by key.
    pub members: Vec<Place>,
    /// Those of the epoch before.
    pub before: Vec<Place>,
    /// The round under way.
    pub round: Option<Round>,
}

impl Members {
    /// The digest of the set of members.
    pub(crate) fn digest(&self) -> Hash {
        set_digest(self.members.iter().map(|place| place.member))
    }

    /// The round under way, if it may go on at this time.
    pub fn round_at(&self, time_ms: u64) -> Option<&Round> {
        self.round.as_ref().filter(|round| time_ms <= round.began_ms.saturating_add(ROUND_MS))
    }

    /// How the last round ended, where it is looked at so late.
    pub fn ended_at(&self, time_ms: u64) -> Ended {
        let late = self.round.is_some() && self.round_at(time_ms).is_none();
        if late { Ended::TooLate } else { self.ended }
    }

    /// Appends the encoding.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
        out.push(self.ended.byte());
        put_long(out, &self.outcome);
        put_places(out, &self.members);
        put_places(out, &self.before);
        out.push(u8::from(self.round.is_some()));
        if let Some(round) = &self.round {
            out.extend_from_slice(&round.began_ms.to_be_bytes());
            out.extend_from_slice(&[round.least, round.usable, round.lost]);
            put_places(out, &round.players);
        }
    }

    /// Reads one.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, CommitteeError> {
        let (epoch, number) = (reader.u64()?, reader.u64()?);
        let ended = Ended::of(reader.u8()?)?;
        let outcome = reader.long("bytes of a round's outcome", OUTCOME_BYTES_MAX)?;
        let outcome = Bytes::copy_from_slice(outcome);
        let (members, before) = (read_places(reader)?, read_places(reader)?);
        let round = match reader.flag()? {
            false => None,
            true => Some(Round {
                began_ms: reader.u64()?,
                least: reader.u8()?,
                usable: reader.u8()?,
                lost: reader.u8()?,
                players: read_places(reader)?,
            }),
        };
        Ok(Self { epoch, number, ended, outcome, members, before, round })
    }
}

/// A dealer's log: an entry of the state. The next round writes over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dealt {
    /// The dealer's place among the members of its epoch.
    pub slot: u8,
    /// Of which round.
    pub number: u64,
    /// Whether it can be used.
    pub usable: bool,
    /// The engine's encoding of the signed log.
    pub log: Bytes,
}

impl Dealt {
    /// Appends the encoding.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(self.slot);
        out.extend_from_slice(&self.number.to_be_bytes());
        out.push(u8::from(self.usable));
        put_long(out, &self.log);
    }

    /// Reads one.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, CommitteeError> {
        let (slot, number, usable) = (reader.u8()?, reader.u64()?, reader.flag()?);
        if usize::from(slot) >= MEMBERS_MAX {
            return Err(CommitteeError::Field("slot of a dealer's log"));
        }
        let log = reader.long("bytes of a dealer's log", LOG_BYTES_MAX)?;
        Ok(Self { slot, number, usable, log: Bytes::copy_from_slice(log) })
    }
}
