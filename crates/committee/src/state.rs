//! The certified state, and what an update does to it: the only place where a head moves.
//!
//! Executing is a function of the state, the block's height and time, the update, and the receipts of its bundle: every
//! member that executes the same blocks has the same state, and its root is in each header. The signature is not looked at here ([`crate::Submission::verify`]); a block
//! with a bad one is no block.
//!
//! An update of a head is done where, in this order: it is not late; the object is known; the author is its owner or one of its
//! writers, and the owner where the head does not exist yet; it was not done before (then it is answered with that height); the
//! head is where it expects it, by version *and* height, so that a version that comes back is not taken for the old one; and as
//! many peers of the network as the policy says signed that they keep the new version.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use crypto::{
    Listed, Listing, NetworkId, OrgId, PeerCertificate, PeerId, PublicKey, Signature, Suite,
};
use version::merkle::Known;
use version::policy::For;
use version::{ObjectKey, ObjectRecord, Policy, Receipt, Received, VersionId};

use crate::engine::MEMBERS_MAX;
use crate::entry::{AccountEntry, Entry, HeadEntry, MADE_BY_MAX, ObjectEntry, PeerEntry, Subject};
use crate::map::{Hash, Map, Proof};
use crate::members::{Dealt, Members, round};
use crate::outcome::Outcome;
#[cfg(feature = "planted-bugs")]
use crate::planted;
use crate::reader::{Reader, put_long};
use crate::update::{Asked, At, Operation, RECEIPTS_MAX, Update};
use crate::{CommitteeError, GroupId};

/// The most entries of the state.
pub const ENTRIES_MAX: usize = 4 << 20;
/// The most bytes of all entries.
pub const STATE_BYTES_MAX: usize = 1 << 30;
/// The most objects and heads of one owner.
pub const OWNER_ENTRIES_MAX: u32 = 1 << 17;
/// The most heads of one object.
pub const BRANCHES_MAX: u16 = 256;

/// Bytes of receipts whose signature was checked, and of what is known of their trees: 1,800 of 64 versions, 20,000 of one.
const CHECKED_BYTES_MAX: usize = 8 << 20;
/// What one takes beside its tree.
const CHECKED_BYTES: usize = 400;
/// The longest entry, in bytes.
const ENTRY_BYTES_MAX: usize = 16 << 10;
/// Entries that clients leave free: the members, and what each of them dealt.
const OWN_ENTRIES: usize = 1 + MEMBERS_MAX;
const SNAPSHOT_PREFIX: &[u8] = b"holdfast state snapshot v1";

/// What the members agreed on when they founded the committee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The network.
    pub network: NetworkId,
    /// Its suite.
    pub suite: Suite,
    /// The committee.
    pub group: GroupId,
    /// Whose peers' receipts count; where there is none, every key's do.
    pub organisations: Vec<OrgId>,
    /// Receipts that a version needs where the object's policy does not say.
    pub wanted: u8,
}

impl Listing for Rules {
    fn network_id(&self) -> NetworkId {
        self.network
    }

    fn listed(&self, key: &OrgId, _: u64) -> Option<Listed> {
        let found = self.organisations.contains(key);
        found.then_some(Listed { organisation: *key, until: u64::MAX })
    }
}

/// When an update is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The height of the block.
    pub height: u64,
    /// Its time, Unix milliseconds.
    pub time_ms: u64,
}

/// Receipts whose signature held, with what is known of their trees: peers answer many versions with one.
#[derive(Debug, Default)]
pub struct Checked {
    held: HashMap<Signature, (Receipt, Known)>,
    bytes: usize,
}

impl Checked {
    /// Whether the receipt holds. What is remembered spares work and changes no answer, since members remember different things: what
    /// does not lead into a tree that is known is checked as if none were. (It may hold all the same: who chooses the key after two
    /// messages makes one signature that holds for both.)
    fn holds(&mut self, suite: Suite, received: &Received) -> bool {
        let Received { receipt, h, path } = received;
        if let Some((held, known)) = self.held.get_mut(&receipt.signature)
            && held == receipt
            && path.leads_into(suite, h, known)
        {
            return true;
        }
        let root = path.root(suite, h, receipt.count);
        let Some(known) = root.and_then(|root| Known::of(root, receipt.count)) else {
            return false;
        };
        if received.verify(suite).is_err() {
            return false;
        }
        let bytes = CHECKED_BYTES + known.bytes();
        if self.bytes + bytes > CHECKED_BYTES_MAX {
            *self = Self::default();
        }
        self.bytes += bytes;
        if let Some((_, before)) = self.held.insert(receipt.signature, (receipt.clone(), known)) {
            self.bytes -= CHECKED_BYTES + before.bytes();
        }
        true
    }
}

/// The certified state. A copy shares everything.
#[derive(Clone, Debug, Default)]
pub struct State {
    map: Map,
    /// The object that was looked for last, as the map has it: a bundle moves many heads of one.
    last: Option<Arc<ObjectEntry>>,
}

/// A head to be moved, as an update names it.
struct Set<'a> {
    object: &'a ObjectKey,
    branch: &'a str,
    expected: &'a Option<At>,
    new: &'a VersionId,
    receipts: &'a [Bytes],
}

impl State {
    /// Its root.
    pub fn root(&self) -> Hash {
        self.map.root()
    }

    /// How many entries it has.
    pub const fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Bytes of its entries.
    pub const fn bytes(&self) -> usize {
        self.map.value_bytes()
    }

    /// The encoded entry of a subject.
    pub fn value(&self, subject: Subject<'_>) -> Option<&Bytes> {
        self.map.get(&subject.key())
    }

    /// What proves the entry of a subject, or that there is none.
    pub fn prove(&self, subject: Subject<'_>) -> Proof {
        self.map.prove(&subject.key())
    }

    fn entry(&self, subject: Subject<'_>) -> Option<Entry> {
        self.entry_at(&subject.key())
    }

    fn entry_at(&self, key: &Hash) -> Option<Entry> {
        self.map.get(key).and_then(|bytes| Entry::decode(bytes).ok())
    }

    /// Where a branch is.
    pub fn head(&self, object: &ObjectKey, branch: &str) -> Option<HeadEntry> {
        match self.entry(Subject::Head(object, branch))? {
            Entry::Head(head) => Some(head),
            _ => None,
        }
    }

    /// Whose an object is.
    pub fn object(&self, object: &ObjectKey) -> Option<ObjectEntry> {
        match self.entry(Subject::Object(object))? {
            Entry::Object(object) => Some(object),
            _ => None,
        }
    }

    /// A peer whose receipts count.
    pub fn peer(&self, peer: &PeerId) -> Option<PeerEntry> {
        match self.entry(Subject::Peer(peer))? {
            Entry::Peer(peer) => Some(peer),
            _ => None,
        }
    }

    /// Who the members are; `None` where the state was not begun by a charter.
    pub fn members(&self) -> Option<Members> {
        match self.entry(Subject::Members)? {
            Entry::Members(members) => Some(members),
            _ => None,
        }
    }

    /// The log of the dealer in a slot: of the last round, or an older one.
    pub(crate) fn dealt_at(&self, slot: u8) -> Option<Dealt> {
        match self.entry(Subject::Dealt(slot))? {
            Entry::Dealt(dealt) => Some(dealt),
            _ => None,
        }
    }

    /// The logs of a round.
    pub(crate) fn dealt(&self, number: u64) -> impl Iterator<Item = Dealt> {
        let all = (0..MEMBERS_MAX as u8).filter_map(|slot| self.dealt_at(slot));
        all.filter(move |dealt| dealt.number == number)
    }

    /// As [`State::object`], and remembers it.
    fn object_again(&mut self, key: &ObjectKey) -> Option<Arc<ObjectEntry>> {
        if self.last.as_ref().is_none_or(|last| last.object != *key) {
            self.last = Some(Arc::new(self.object(key)?));
        }
        self.last.clone()
    }

    pub(crate) fn put(&mut self, entry: &Entry) {
        if matches!(entry, Entry::Object(_)) {
            self.last = None;
        }
        self.map.insert(entry.subject().key(), entry.encode());
    }

    /// Whether there is room for what one update adds: for new entries, and for an object's that becomes longer by its writers. A head
    /// that is moved needs none. It grows by three of its updates at most, and of all heads that is less than half of
    /// [`STATE_BYTES_MAX`], so a full state keeps no client from moving what it has, and a snapshot stays under twice that bound.
    const fn has_room(&self) -> bool {
        self.map.len() + 2 + OWN_ENTRIES <= ENTRIES_MAX
            && self.map.value_bytes() + (2 + OWN_ENTRIES) * ENTRY_BYTES_MAX <= STATE_BYTES_MAX
    }

    /// Counts one entry more for an owner; `false` where it has too many.
    fn charge(&mut self, owner: &PublicKey) -> bool {
        let entries = match self.entry(Subject::Account(owner)) {
            Some(Entry::Account(account)) => account.entries,
            _ => 0,
        };
        if entries >= OWNER_ENTRIES_MAX || !self.has_room() {
            return false;
        }
        self.put(&Entry::Account(AccountEntry { owner: *owner, entries: entries + 1 }));
        true
    }

    /// Does what an update asks for, or says why not. A refused update changes nothing.
    pub(crate) fn apply(
        &mut self,
        rules: &Rules,
        moment: Moment,
        asked: &Asked<'_>,
        checked: &mut Checked,
    ) -> Outcome {
        let Asked { update, .. } = *asked;
        if moment.height > update.last_valid {
            return Outcome::Expired;
        }
        match &update.operation {
            Operation::Set { object, branch, expected, new, receipts } => {
                let set = Set { object, branch, expected, new, receipts };
                self.set(rules, moment, asked, &set, checked)
            }
            Operation::Object { record, policy } => {
                self.make_known(rules, moment, update, record, policy)
            }
            Operation::Peer { certificate } => self.take_peer(rules, moment, certificate),
            Operation::Members(change) => round::apply(self, rules, moment, change),
        }
    }

    fn set(
        &mut self,
        rules: &Rules,
        moment: Moment,
        asked: &Asked<'_>,
        set: &Set<'_>,
        checked: &mut Checked,
    ) -> Outcome {
        let Asked { update, digest, .. } = *asked;
        let Some(object) = self.object_again(set.object) else { return Outcome::NoObject };
        let key = Subject::Head(set.object, set.branch).key();
        let head = match self.entry_at(&key) {
            Some(Entry::Head(head)) => Some(head),
            _ => None,
        };
        let owns = update.author == object.owner;
        let writes = owns || object.writers.binary_search(&update.author).is_ok();
        if !writes || (head.is_none() && !owns) {
            return Outcome::NotAWriter;
        }
        let (current, mut made_by) = match head {
            Some(head) => (Some((head.version, head.height)), head.made_by),
            None => (None, Vec::new()),
        };
        if let Some((_, height)) = made_by.iter().find(|(made, _)| made == digest) {
            return Outcome::Accepted { height: *height };
        }
        let moved_on = current.map(|(version, height)| (version.h, height)) != *set.expected;
        #[cfg(feature = "planted-bugs")]
        let moved_on = moved_on && !planted::is_on(planted::PlantedBug::SkipCompareAndSet);
        if moved_on {
            return Outcome::MovedOn { current };
        }
        let found = self.receipts(rules, moment, set, asked, checked);
        // More than an update may carry nobody could bring, and the head would never move again.
        let wanted = object.wanted.min(RECEIPTS_MAX as u8);
        if found < wanted {
            return Outcome::NotStored { wanted, found };
        }
        if current.is_none() {
            if object.branches >= BRANCHES_MAX || !self.charge(&object.owner) {
                return Outcome::Full;
            }
            let branches = object.branches + 1;
            self.put(&Entry::Object(ObjectEntry { branches, ..(*object).clone() }));
        }
        made_by.insert(0, (*digest, moment.height));
        made_by.truncate(MADE_BY_MAX);
        let (object, branch, version) = (*set.object, set.branch.into(), *set.new);
        let head = HeadEntry { object, branch, version, height: moment.height, made_by };
        self.map.insert(key, Entry::Head(head).encode());
        Outcome::Accepted { height: moment.height }
    }

    /// Whether a peer's receipts count.
    fn counts(&self, rules: &Rules, moment: Moment, peer: &PeerId) -> bool {
        let now = moment.time_ms / 1_000;
        rules.organisations.is_empty() || self.peer(peer).is_some_and(|peer| peer.until > now)
    }

    /// How many peers say that they keep the new version, those beside the update among them.
    fn receipts(
        &self,
        rules: &Rules,
        moment: Moment,
        set: &Set<'_>,
        asked: &Asked<'_>,
        checked: &mut Checked,
    ) -> u8 {
        let beside = asked.kept(rules.suite).iter().filter(|peer| self.counts(rules, moment, peer));
        let mut peers: Vec<PeerId> = beside.copied().collect();
        for bytes in set.receipts {
            let Ok(received) = Received::decode(bytes) else { continue };
            let receipt = &received.receipt;
            let known = self.counts(rules, moment, &receipt.peer);
            let fits = received.h == set.new.h && receipt.network == rules.network;
            let counted = peers.contains(&receipt.peer);
            #[cfg(feature = "planted-bugs")]
            let counted = counted && !planted::is_on(planted::PlantedBug::CountTwice);
            if fits && known && !counted && checked.holds(rules.suite, &received) {
                peers.push(receipt.peer);
            }
        }
        peers.len() as u8
    }

    fn make_known(
        &mut self,
        rules: &Rules,
        moment: Moment,
        update: &Update,
        record: &Bytes,
        policy: &Bytes,
    ) -> Outcome {
        let Ok(named) = ObjectRecord::decode(record) else { return Outcome::NotValid };
        let key = ObjectKey::from(rules.suite.id(record));
        if named.network != rules.network {
            return Outcome::NotValid;
        }
        if named.owner != update.author {
            return Outcome::NotAWriter;
        }
        let policy = match read_policy(rules, &named, policy) {
            Ok(policy) => policy,
            Err(outcome) => return outcome,
        };
        let before = self.object(&key);
        let known = before.as_ref().map(|object| object.policy);
        if known.is_some_and(|newest| newest > policy.version) {
            return Outcome::RolledBack { newest: known.unwrap_or_default() };
        }
        let mut writers = policy.writers;
        writers.sort_unstable();
        writers.dedup();
        let wanted = policy.copies.map_or(rules.wanted, |copies| copies.acknowledged as u8);
        let branches = before.as_ref().map_or(0, |object| object.branches);
        let (owner, policy) = (named.owner, policy.version);
        let object = ObjectEntry { object: key, owner, policy, wanted, branches, writers };
        let longer = before.as_ref().is_some_and(|one| one.writers.len() < object.writers.len());
        match before {
            Some(before) if before.policy == policy && before != object => {
                return Outcome::RolledBack { newest: policy };
            }
            Some(_) if longer && !self.has_room() => return Outcome::Full,
            Some(_) => {}
            None if !self.charge(&owner) => return Outcome::Full,
            None => {}
        }
        self.put(&Entry::Object(object));
        Outcome::Accepted { height: moment.height }
    }

    fn take_peer(&mut self, rules: &Rules, moment: Moment, certificate: &Bytes) -> Outcome {
        let now = moment.time_ms / 1_000;
        let Ok(found) = PeerCertificate::verify(certificate, rules, now) else {
            return Outcome::NotValid;
        };
        let PeerCertificate { peer, organisation, until, .. } = found;
        match self.peer(&peer) {
            Some(known) if known.until > until => {
                return Outcome::RolledBack { newest: known.until };
            }
            None if !self.has_room() => return Outcome::Full,
            _ => {}
        }
        self.put(&Entry::Peer(PeerEntry { peer, organisation, until }));
        Outcome::Accepted { height: moment.height }
    }

    /// All of it: a count of eight bytes, then each entry with a length of four bytes, in the order of their keys.
    pub fn snapshot(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.bytes() + 4 * self.len() + 64);
        out.extend_from_slice(SNAPSHOT_PREFIX);
        out.extend_from_slice(&(self.len() as u64).to_be_bytes());
        self.map.each(|_, value| put_long(&mut out, value));
        out.into()
    }

    /// The state of a snapshot. Whoever takes one from another compares the root with a header's.
    ///
    /// # Errors
    /// [`CommitteeError`] for what is none.
    pub fn restore(snapshot: &Bytes) -> Result<Self, CommitteeError> {
        let mut reader = Reader::new("snapshot of the state", snapshot);
        reader.prefix(SNAPSHOT_PREFIX)?;
        let (found, max) = (reader.u64()? as usize, ENTRIES_MAX);
        if found > max {
            return Err(CommitteeError::TooLarge { what: "entries of the state", found, max });
        }
        let mut map = Map::new();
        for _ in 0..found {
            let value = reader.long("bytes of an entry", ENTRY_BYTES_MAX)?;
            let entry = Entry::decode(value)?;
            map.insert(entry.subject().key(), Bytes::copy_from_slice(value));
        }
        reader.end()?;
        if map.len() != found {
            return Err(CommitteeError::Field(
                "entries of the state, of which one is there twice,",
            ));
        }
        Ok(Self { map, last: None })
    }
}

/// The policy that an update carries, or the implied one.
fn read_policy(rules: &Rules, named: &ObjectRecord, bytes: &Bytes) -> Result<Policy, Outcome> {
    if bytes.is_empty() {
        return Ok(Policy::implied(rules.network, named.owner));
    }
    let policy = Policy::verify(bytes).map_err(|_| Outcome::NotValid)?;
    let fits = policy.network == rules.network
        && policy.owner == named.owner
        && policy.for_what == For::Object(named.name.clone());
    if fits { Ok(policy) } else { Err(Outcome::NotValid) }
}

#[cfg(test)]
mod tests;
