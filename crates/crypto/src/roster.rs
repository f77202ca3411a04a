//! Who takes part in a network, as it changes: numbered rosters, each signed by more than half of the organisations
//! of the one before.
//!
//! ```text
//! SignedRoster       body 1 (bytes of the message below) · signatures 2 (repeated RosterSignature)
//! Roster             network 1 (32) · number 2 (u64, from 1) · previous 3 (32) · organisations 4 (repeated Organisation) · former 5 (repeated FormerKey)
//! Organisation       key 1 (33) · name 2
//! FormerKey          former 1 (33) · organisation 2 (33) · until 3 (u64, Unix seconds)
//! RosterSignature    organisation 1 (33) · signature 2 (64)
//! ```
//! Roster 0 is the genesis's, and its hash is the network's id; the hash of a later one is the suite's hash of its
//! body. `previous` is the hash of the roster numbered one less, so the newest roster names the whole history. A
//! signature is over the body in the domain `roster`; it is of an organisation of the previous roster, by the key that
//! is listed there. Who signed is no part of the hash: any majority makes the same roster.
//!
//! A former key is one that an organisation had: what it signed (certificates, passes, revocations) counts as the
//! organisation's until `until`, so that a key can be changed without a moment in which its peers count for nothing.
//! It signs no rosters. A key that was stolen is changed without that. It stays in the list behind that time, for leases
//! that were signed before.
//!
//! Limits: [`ROSTER_BYTES_MAX`] encoded, [`ORGANISATIONS_MAX`] organisations and as many former keys,
//! [`ROSTERS_MAX`] changes in the life of a network.

mod chain;
mod change;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use crate::canonical::{self, CanonicalError};
use crate::genesis::{ORGANISATIONS_MAX, is_name};
use crate::{
    Class, Classified, Genesis, KeyError, NetworkId, OrgId, Organisation, SecretKey, Signature,
    Suite,
};

pub use chain::{Conflict, Rosters, Taught};
pub use change::Change;

/// The largest encoded signed roster, in bytes: it fits a request without records.
pub const ROSTER_BYTES_MAX: usize = 224 << 10;
/// The highest number of a roster.
pub const ROSTERS_MAX: u64 = 1_024;

const DOMAIN: &str = "roster";

/// Why a roster does not count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RosterError {
    /// Not a canonical encoding.
    #[error("not a roster")]
    Encoding(#[from] CanonicalError),
    /// Over [`ROSTER_BYTES_MAX`].
    #[error("a roster is at most {ROSTER_BYTES_MAX} bytes")]
    TooLarge,
    /// A field holds what it cannot.
    #[error("the roster's {0} is not valid")]
    Field(&'static str),
    /// A key or a signature.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Made for another network.
    #[error("made for network {0}, not for this one")]
    Network(NetworkId),
    /// Not the one after the roster at hand.
    #[error("it is roster {found}, and after the newest one known comes {expected}")]
    Number {
        /// The number it should have.
        expected: u64,
        /// The number it has.
        found: u64,
    },
    /// It follows another roster of the number before its own.
    #[error("roster {0} was made from another roster than the one that is known")]
    Link(u64),
    /// It lists what the roster before it lists.
    #[error("it changes nothing")]
    Unchanged,
    /// A signature is not of an organisation of the roster before.
    #[error("organisation {0} signed, and the roster before does not list it")]
    Signer(OrgId),
    /// Not more than half signed.
    #[error("signed by {signed} of {of} organisations; {needed} are needed")]
    NotEnough {
        /// How many signed.
        signed: usize,
        /// How many the roster before lists.
        of: usize,
        /// How many must sign.
        needed: usize,
    },
}

impl Classified for RosterError {
    fn class(&self) -> Class {
        match self {
            Self::Encoding(_) | Self::TooLarge | Self::Field(_) | Self::Unchanged => Class::Invalid,
            Self::Key(source) => source.class(),
            Self::Network(_) | Self::Signer(_) | Self::NotEnough { .. } => Class::Denied,
            Self::Number { .. } | Self::Link(_) => Class::Conflict,
        }
    }
}

/// Whom a key speaks for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The organisation, by its key in the roster.
    pub organisation: OrgId,
    /// Until when, Unix seconds, exclusive: only a former key has an end.
    pub until: u64,
}

/// What certificates, passes and revocations are checked against: a network and who takes part in it.
pub trait Listing {
    /// The network's id.
    fn network_id(&self) -> NetworkId;
    /// Whom a key speaks for at `now`, Unix seconds.
    fn listed(&self, key: &OrgId, now: u64) -> Option<Listed>;
}

impl<T: Listing + ?Sized> Listing for Arc<T> {
    fn network_id(&self) -> NetworkId {
        (**self).network_id()
    }

    fn listed(&self, key: &OrgId, now: u64) -> Option<Listed> {
        (**self).listed(key, now)
    }
}

impl Listing for Genesis {
    fn network_id(&self) -> NetworkId {
        self.network()
    }

    fn listed(&self, key: &OrgId, _: u64) -> Option<Listed> {
        self.organisation(key).map(|found| Listed { organisation: found.key, until: u64::MAX })
    }
}

/// A key that an organisation had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerKey {
    /// The key.
    pub former: OrgId,
    /// The organisation whose word it signed, by its key now.
    pub organisation: OrgId,
    /// Until when what it signed counts, Unix seconds, exclusive.
    pub until: u64,
}

/// The organisations of a network at one number, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roster {
    network: NetworkId,
    suite: Suite,
    number: u64,
    hash: [u8; 32],
    previous: [u8; 32],
    organisations: Vec<Organisation>,
    former: Vec<FormerKey>,
}

#[derive(Clone, PartialEq, Message)]
struct OrganisationWire {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct FormerWire {
    #[prost(bytes = "bytes", tag = "1")]
    former: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    organisation: Bytes,
    #[prost(uint64, tag = "3")]
    until: u64,
}

#[derive(Clone, PartialEq, Message)]
struct RosterWire {
    #[prost(bytes = "bytes", tag = "1")]
    network: Bytes,
    #[prost(uint64, tag = "2")]
    number: u64,
    #[prost(bytes = "bytes", tag = "3")]
    previous: Bytes,
    #[prost(message, repeated, tag = "4")]
    organisations: Vec<OrganisationWire>,
    #[prost(message, repeated, tag = "5")]
    former: Vec<FormerWire>,
}

#[derive(Clone, PartialEq, Message)]
struct SignatureWire {
    #[prost(bytes = "bytes", tag = "1")]
    organisation: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    signature: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct SignedRosterWire {
    #[prost(bytes = "bytes", tag = "1")]
    body: Bytes,
    #[prost(message, repeated, tag = "2")]
    signatures: Vec<SignatureWire>,
}

impl Listing for Roster {
    fn network_id(&self) -> NetworkId {
        self.network
    }

    fn listed(&self, key: &OrgId, now: u64) -> Option<Listed> {
        if self.organisation(key).is_some() {
            return Some(Listed { organisation: *key, until: u64::MAX });
        }
        let at = self.former.binary_search_by_key(key, |former| former.former).ok()?;
        let FormerKey { organisation, until, .. } = *self.former.get(at)?;
        (now < until).then_some(Listed { organisation, until })
    }
}

impl Roster {
    /// Roster 0.
    pub fn first(genesis: &Genesis) -> Self {
        let network = genesis.network();
        Self {
            network,
            suite: genesis.suite,
            number: 0,
            hash: *network.as_bytes(),
            previous: [0; 32],
            organisations: genesis.organisations.clone(),
            former: Vec::new(),
        }
    }

    /// The roster after this one with these organisations and former keys, in any order.
    ///
    /// # Errors
    /// [`RosterError`] where they make none.
    pub fn next(
        &self,
        mut organisations: Vec<Organisation>,
        mut former: Vec<FormerKey>,
    ) -> Result<Self, RosterError> {
        organisations.sort_by_key(|organisation| organisation.key);
        former.sort_by_key(|former| former.former);
        let mut next = Self {
            network: self.network,
            suite: self.suite,
            number: self.number.saturating_add(1),
            hash: [0; 32],
            previous: self.hash,
            organisations,
            former,
        };
        next.hash = self.suite.hash(&next.body());
        next.check(self)?;
        Ok(next)
    }

    /// The network it is of.
    pub fn network(&self) -> NetworkId {
        self.network
    }

    /// Its number; the genesis's is 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What names it: the hash of its body, or the network's id where it is the genesis's.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Its organisations, ascending by key.
    pub fn organisations(&self) -> &[Organisation] {
        &self.organisations
    }

    /// Keys its organisations had, ascending.
    pub fn former(&self) -> &[FormerKey] {
        &self.former
    }

    /// The organisation with this very key.
    pub fn organisation(&self, key: &OrgId) -> Option<&Organisation> {
        let at = self.organisations.binary_search_by_key(key, |organisation| organisation.key);
        at.ok().and_then(|at| self.organisations.get(at))
    }

    /// How many of its organisations must sign the next one: more than half.
    pub fn needed(&self) -> usize {
        self.organisations.len() / 2 + 1
    }

    /// Its canonical bytes, which are hashed and signed.
    pub fn body(&self) -> Vec<u8> {
        let copied = |key: &OrgId| Bytes::copy_from_slice(key.as_bytes());
        let organisations = self.organisations.iter().map(|organisation| OrganisationWire {
            key: copied(&organisation.key),
            name: organisation.name.clone(),
        });
        let former = self.former.iter().map(|former| FormerWire {
            former: copied(&former.former),
            organisation: copied(&former.organisation),
            until: former.until,
        });
        RosterWire {
            network: Bytes::copy_from_slice(self.network.as_bytes()),
            number: self.number,
            previous: Bytes::copy_from_slice(&self.previous),
            organisations: organisations.collect(),
            former: former.collect(),
        }
        .encode_to_vec()
    }

    /// Everything but signatures, against the roster before.
    fn check(&self, previous: &Self) -> Result<(), RosterError> {
        previous.check_link(&self.network, self.number, &self.previous)?;
        let ascending = self.organisations.is_sorted_by(|a, b| a.key < b.key);
        if !ascending || !(1..=ORGANISATIONS_MAX).contains(&self.organisations.len()) {
            return Err(RosterError::Field("list of organisations"));
        }
        if !self.organisations.iter().all(|organisation| is_name(&organisation.name)) {
            return Err(RosterError::Field("name of an organisation"));
        }
        let ascending = self.former.is_sorted_by(|a, b| a.former < b.former);
        if !ascending || self.former.len() > ORGANISATIONS_MAX {
            return Err(RosterError::Field("list of former keys"));
        }
        if !self.former.iter().all(|former| self.may_have_had(former, previous)) {
            return Err(RosterError::Field("former key"));
        }
        if self.organisations == previous.organisations && self.former == previous.former {
            return Err(RosterError::Unchanged);
        }
        Ok(())
    }

    /// Whether one of this network, number and hash of the roster before is the next after this.
    fn check_link(
        &self,
        network: &NetworkId,
        number: u64,
        previous: &[u8; 32],
    ) -> Result<(), RosterError> {
        if *network != self.network {
            return Err(RosterError::Network(*network));
        }
        let expected = self.number + 1;
        if number != expected || number > ROSTERS_MAX {
            return Err(RosterError::Number { expected, found: number });
        }
        if *previous != self.hash {
            return Err(RosterError::Link(number));
        }
        Ok(())
    }

    /// Whether a former key is one: no longer a key, and a key or, no longer than now, a former one before.
    fn may_have_had(&self, former: &FormerKey, previous: &Self) -> bool {
        let known = previous.organisation(&former.former).is_some()
            || previous
                .former
                .iter()
                .any(|known| known.former == former.former && former.until <= known.until);
        known
            && self.organisation(&former.former).is_none()
            && self.organisation(&former.organisation).is_some()
    }

    /// Reads its keys, each of which is a point of the curve to be found (some 15 us): so who calls this has looked at
    /// everything that is cheaper.
    fn of(wire: RosterWire, hash: [u8; 32], suite: Suite) -> Result<Self, RosterError> {
        let organisations = wire.organisations.into_iter().map(|organisation| {
            let key = OrgId::from_slice(&organisation.key)?;
            Ok(Organisation { key, name: organisation.name })
        });
        let former = wire.former.into_iter().map(|former| {
            Ok(FormerKey {
                former: OrgId::from_slice(&former.former)?,
                organisation: OrgId::from_slice(&former.organisation)?,
                until: former.until,
            })
        });
        let network = NetworkId::from_slice(&wire.network);
        Ok(Self {
            network: network.map_err(|_| RosterError::Field("network"))?,
            suite,
            number: wire.number,
            hash,
            previous: (&wire.previous[..])
                .try_into()
                .map_err(|_| RosterError::Field("previous"))?,
            organisations: organisations.collect::<Result<_, RosterError>>()?,
            former: former.collect::<Result<_, RosterError>>()?,
        })
    }
}

/// What a signed roster says of itself, with nothing checked but form and counts. None of its keys was looked at.
struct Claimed {
    wire: SignedRosterWire,
    body: RosterWire,
    network: NetworkId,
    number: u64,
    previous: [u8; 32],
    hash: [u8; 32],
    suite: Suite,
}

impl Claimed {
    fn of(bytes: &Bytes, suite: Suite) -> Result<Self, RosterError> {
        if bytes.len() > ROSTER_BYTES_MAX {
            return Err(RosterError::TooLarge);
        }
        let wire: SignedRosterWire = canonical::decode(bytes)?;
        let body: RosterWire = canonical::decode(&wire.body)?;
        if !(1..=ORGANISATIONS_MAX).contains(&body.organisations.len()) {
            return Err(RosterError::Field("list of organisations"));
        }
        if body.former.len() > ORGANISATIONS_MAX {
            return Err(RosterError::Field("list of former keys"));
        }
        let network = NetworkId::from_slice(&body.network);
        let network = network.map_err(|_| RosterError::Field("network"))?;
        let previous =
            (&body.previous[..]).try_into().map_err(|_| RosterError::Field("previous"))?;
        let (number, hash) = (body.number, suite.hash(&wire.body));
        Ok(Self { wire, body, network, number, previous, hash, suite })
    }

    /// Its own content, which nobody's signature was checked for.
    fn roster(self) -> Result<Roster, RosterError> {
        Roster::of(self.body, self.hash, self.suite)
    }

    /// Refuses what nobody signed whom an older roster, of which the bytes are at hand, lists: before its keys, up to three
    /// thousand, are read for a whole check. Of the signatures the first is checked, and it must be of one of them.
    fn probe(&self, before: &Self) -> Result<(), RosterError> {
        let listed = &before.body.organisations;
        let (of, needed) = (listed.len(), listed.len() / 2 + 1);
        let signed = self.wire.signatures.len();
        let Some(first) = self.wire.signatures.first().filter(|_| (needed..=of).contains(&signed))
        else {
            return Err(RosterError::NotEnough { signed, of, needed });
        };
        let organisation = OrgId::from_slice(&first.organisation)?;
        if !listed.iter().any(|listed| listed.key == first.organisation) {
            return Err(RosterError::Signer(organisation));
        }
        organisation.key().verify(DOMAIN, &self.network, &self.wire.body, &first.signature)?;
        Ok(())
    }

    /// Checks it against the roster before, of whose organisations at least `needed` must have signed. What anybody can make is
    /// refused by what is cheap: the link first, then signatures, and its keys last.
    fn check(self, previous: &Roster, needed: usize) -> Result<SignedRoster, RosterError> {
        previous.check_link(&self.network, self.number, &self.previous)?;
        let signatures = &self.wire.signatures;
        let of = previous.organisations.len();
        if signatures.len() > of {
            return Err(RosterError::Field("list of signatures"));
        }
        if !signatures.is_sorted_by(|a, b| a.organisation < b.organisation) {
            return Err(RosterError::Field("order of signatures"));
        }
        if signatures.len() < needed {
            return Err(RosterError::NotEnough { signed: signatures.len(), of, needed });
        }
        let mut checked = BTreeMap::new();
        for one in signatures {
            let organisation = OrgId::from_slice(&one.organisation)?;
            let signature = signature_of(organisation, &one.signature, previous, &self.wire.body)?;
            checked.insert(organisation, signature);
        }
        let roster = self.roster()?;
        roster.check(previous)?;
        Ok(SignedRoster { roster, signatures: checked })
    }
}

/// A signature over a roster's body, checked, of an organisation of the roster before.
fn signature_of(
    organisation: OrgId,
    signature: &[u8],
    previous: &Roster,
    body: &[u8],
) -> Result<Signature, RosterError> {
    if previous.organisation(&organisation).is_none() {
        return Err(RosterError::Signer(organisation));
    }
    organisation.key().verify(DOMAIN, &previous.network, body, signature)?;
    Ok(signature.try_into().map_err(|_| KeyError::Signature)?)
}

/// A roster with signatures of organisations of the one before it: a proposal until there are enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedRoster {
    /// The roster.
    pub roster: Roster,
    /// Who signed, each signature checked.
    signatures: BTreeMap<OrgId, Signature>,
}

impl SignedRoster {
    /// A roster that nobody signed yet.
    pub fn proposal(roster: Roster) -> Self {
        Self { roster, signatures: BTreeMap::new() }
    }

    /// Decodes and checks all but the number of signatures against the roster before.
    ///
    /// # Errors
    /// [`RosterError`].
    pub fn decode(bytes: &Bytes, previous: &Roster) -> Result<Self, RosterError> {
        Claimed::of(bytes, previous.suite)?.check(previous, 0)
    }

    /// As [`SignedRoster::decode`], and more than half signed.
    ///
    /// # Errors
    /// [`RosterError`].
    pub fn verify(bytes: &Bytes, previous: &Roster) -> Result<Self, RosterError> {
        Claimed::of(bytes, previous.suite)?.check(previous, previous.needed())
    }

    /// Adds an organisation's signature.
    ///
    /// # Errors
    /// [`RosterError::Signer`] where the roster before does not list its key.
    pub fn sign(&mut self, key: &SecretKey, previous: &Roster) -> Result<(), RosterError> {
        let body = self.roster.body();
        let signature = key.sign(DOMAIN, &self.roster.network, &body);
        let organisation = OrgId::new(key.public());
        let signature = signature_of(organisation, &signature, previous, &body)?;
        self.signatures.insert(organisation, signature);
        Ok(())
    }

    /// Adds the signatures that another copy of the same roster has; `false` where it is another roster.
    pub fn merge(&mut self, other: &Self) -> bool {
        let same = self.roster.hash == other.roster.hash;
        if same {
            self.signatures.extend(&other.signatures);
        }
        same
    }

    /// Who signed, ascending.
    pub fn signers(&self) -> impl Iterator<Item = &OrgId> {
        self.signatures.keys()
    }

    /// Whether more than half of the organisations before signed.
    ///
    /// # Errors
    /// [`RosterError::NotEnough`] where they did not.
    pub fn check_enough(&self, previous: &Roster) -> Result<(), RosterError> {
        let (signed, needed) = (self.signatures.len(), previous.needed());
        if signed < needed {
            let of = previous.organisations.len();
            return Err(RosterError::NotEnough { signed, of, needed });
        }
        Ok(())
    }

    /// The canonical bytes.
    pub fn encode(&self) -> Bytes {
        let signatures = self.signatures.iter().map(|(organisation, signature)| SignatureWire {
            organisation: Bytes::copy_from_slice(organisation.as_bytes()),
            signature: Bytes::copy_from_slice(signature),
        });
        let signatures = signatures.collect();
        SignedRosterWire { body: self.roster.body().into(), signatures }.encode_to_vec().into()
    }
}
