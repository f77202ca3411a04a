//! Who founded a committee, under which rules, and what came out: what every member keeps and none may differ in.
//!
//! ```text
//! charter  "holdfast committee charter v1" | network 32 | suite 1 | wanted 1 | organisations 1 | 33 each | number 8 | length 4 | outcome
//! ```
//! `outcome` is the engine's own encoding of what the key generation made: members, dealers and the public polynomial, whose
//! constant is the group key. It stays on members' disks and between members.

use std::num::NonZeroU32;

use bytes::Bytes;
use commonware_codec::{Encode, Read as _};
use commonware_cryptography::Signer as _;
use commonware_cryptography::bls12381::dkg::feldman_desmedt::Output;
use commonware_cryptography::bls12381::primitives::sharing::ModeVersion;
use commonware_cryptography::bls12381::primitives::variant::MinSig;
use commonware_cryptography::ed25519;
use commonware_utils::ordered::Set;
use commonware_utils::{Faults as _, N3f1, NZU32};
use crypto::{NetworkId, OrgId, Suite};

use super::{Key, MEMBERS_MAX};
use crate::entry::Entry;
use crate::map::Hash;
use crate::members::{Ended, Members, Place, set_digest};
use crate::reader::{Reader, put_long};
use crate::{CommitteeError, GroupKey, Header, Rules, State};

const PREFIX: &[u8] = b"holdfast committee charter v1";
const OUTCOME_BYTES_MAX: usize = 64 << 10;
const ORGANISATIONS_MAX: usize = 255;

pub(crate) type Outcome = Output<MinSig, Key>;

/// A member's public key in its committee.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId([u8; 32]);

impl MemberId {
    /// The key with these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn key(&self) -> Result<Key, CommitteeError> {
        let bytes = Bytes::copy_from_slice(&self.0);
        commonware_codec::DecodeExt::decode(bytes)
            .map_err(|_| CommitteeError::Field("member's key"))
    }

    pub(crate) fn of(key: &Key) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(&key.encode());
        Self(bytes)
    }
}

impl std::str::FromStr for MemberId {
    type Err = CommitteeError;
    fn from_str(text: &str) -> Result<Self, CommitteeError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes)
            .map_err(|_| CommitteeError::Field("member's key"))?;
        Ok(Self(bytes))
    }
}

impl std::fmt::Display for MemberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl std::fmt::Debug for MemberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemberId({self})")
    }
}

/// A member's private key in its committee: connections and the founding. Not the share, which no file but the member's has.
#[derive(Clone)]
pub struct MemberSecret(pub(crate) ed25519::PrivateKey);

impl MemberSecret {
    /// The key with these bytes.
    ///
    /// # Errors
    /// [`CommitteeError::Field`].
    pub fn new(bytes: &[u8; 32]) -> Result<Self, CommitteeError> {
        let bytes = Bytes::copy_from_slice(bytes);
        let key = commonware_codec::DecodeExt::decode(bytes);
        key.map(Self).map_err(|_| CommitteeError::Field("member's private key"))
    }

    /// Its public key.
    pub fn id(&self) -> MemberId {
        MemberId::of(&self.0.public_key())
    }
}

impl std::fmt::Debug for MemberSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemberSecret of {}", self.id())
    }
}

/// Whether so many organisations fit a charter, where their number is one byte.
pub(crate) fn fit(organisations: &[OrgId]) -> Result<(), CommitteeError> {
    let (what, found, max) = ("organisations", organisations.len(), ORGANISATIONS_MAX);
    match found > max {
        true => Err(CommitteeError::TooLarge { what, found, max }),
        false => Ok(()),
    }
}

/// What every member of a committee keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charter {
    /// The rules that blocks are executed by.
    pub rules: Rules,
    /// The group key.
    pub group: GroupKey,
    /// Which founding it was: a number never comes twice.
    pub number: u64,
    pub(crate) outcome: Outcome,
}

impl Charter {
    /// What a founding made.
    pub(crate) fn new(
        network: NetworkId,
        suite: Suite,
        organisations: Vec<OrgId>,
        wanted: u8,
        number: u64,
        outcome: Outcome,
    ) -> Result<Self, CommitteeError> {
        fit(&organisations)?;
        let group = GroupKey::of(outcome.public().public())?;
        let rules = Rules { network, suite, group: group.id(), organisations, wanted };
        Ok(Self { rules, group, number, outcome })
    }

    /// The members, in order.
    pub(crate) const fn keys(&self) -> &Set<Key> {
        self.outcome.players()
    }

    /// The members, in order.
    pub fn members(&self) -> Vec<MemberId> {
        self.keys().iter().map(MemberId::of).collect()
    }

    /// How many members must agree.
    pub fn quorum(&self) -> u32 {
        N3f1::quorum(self.keys().len())
    }

    /// The digest of the set of members.
    pub fn members_digest(&self) -> Hash {
        set_digest(self.members())
    }

    /// The state before the first block: who the founders are.
    pub fn state(&self) -> State {
        let place = |member| Place { member, address: None };
        let mut state = State::default();
        state.put(&Entry::Members(Members {
            epoch: 0,
            number: self.number,
            ended: Ended::NotYet,
            outcome: self.outcome.encode(),
            members: self.members().into_iter().map(place).collect(),
            before: Vec::new(),
            round: None,
        }));
        state
    }

    /// The header before the first block.
    pub fn genesis(&self) -> Header {
        let group = self.group.clone();
        let genesis = Header::genesis(self.rules.network, group, self.members_digest());
        Header { state: self.state().root(), ..genesis }
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        let mut out = PREFIX.to_vec();
        out.extend_from_slice(self.rules.network.as_bytes());
        out.push(if self.rules.suite == Suite::Holdfast1 { 1 } else { 2 });
        out.push(self.rules.wanted);
        out.push(self.rules.organisations.len() as u8);
        for organisation in &self.rules.organisations {
            out.extend_from_slice(organisation.key().as_bytes());
        }
        out.extend_from_slice(&self.number.to_be_bytes());
        put_long(&mut out, &self.outcome.encode());
        out.into()
    }

    /// Decodes and checks the form.
    ///
    /// # Errors
    /// [`CommitteeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CommitteeError> {
        let mut reader = Reader::new("charter", bytes);
        reader.prefix(PREFIX)?;
        let network = NetworkId::new(reader.array()?);
        let suite = match reader.u8()? {
            1 => Suite::Holdfast1,
            2 => Suite::Libri1,
            _ => return Err(CommitteeError::Field("suite of the charter")),
        };
        let (wanted, count) = (reader.u8()?, usize::from(reader.u8()?));
        let one = |_| Ok::<_, CommitteeError>(OrgId::from_slice(&reader.array::<33>()?)?);
        let organisations = (0..count.min(ORGANISATIONS_MAX)).map(one).collect::<Result<_, _>>()?;
        let number = reader.u64()?;
        let outcome = reader.long("bytes of a key generation's outcome", OUTCOME_BYTES_MAX)?;
        let mut outcome = Bytes::copy_from_slice(outcome);
        reader.end()?;
        let most = NonZeroU32::new(MEMBERS_MAX as u32).unwrap_or(NZU32!(1));
        let read = Outcome::read_cfg(&mut outcome, &(most, ModeVersion::v0()));
        let read = read.map_err(|_| CommitteeError::Field("outcome of the key generation"))?;
        if !outcome.is_empty() {
            return Err(CommitteeError::Length("charter"));
        }
        Self::new(network, suite, organisations, wanted, number, read)
    }
}
