//! Signed heads: which version a branch of an object is at now, as its owner's devices say.
//!
//! ```text
//! "holdfast signed head v1" | length, 4 | Head | signature, 64
//!
//! Head   network 1 (32) · owner 2 (33) · name 3 (bytes) · branch 4 (string) · device 5 (33) · h 6 (32) · l 7 (u64) · n 8 (16, absent where all are zero) ·
//!        supersedes 9 (repeated, 32 each) · time_ms 10 (u64)
//! ```
//! A version is a fact; a head is an opinion. Signed by the device in the domain `head`. A record names those that it
//! supersedes: all that its device knew to be tips. What no record supersedes is a tip, so two devices that write at once are both
//! heard, and whoever writes next has both before it and merges: nothing is lost, and no clock decides (`time_ms` is for
//! people).
//!
//! Which devices may write is the owner's to say ([`DeviceList`]). A device that the newest list does not name is
//! revoked, and its records are no tips and supersede nothing, unless a record that counts names them as superseded: then
//! what they superseded stays so, for its writer had seen all of it ([`Branch::tips`]).
//!
//! Like a policy, a record names its object as the owner does, and so proves whose it is.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use crypto::{NetworkId, Place, PublicKey, RecordId, SecretKey, Suite};
use document::{Kind, Record};
use prost::Message;

use crate::object::{check_name, key_of};
use crate::policy::Taken;
use crate::signed::{self, Format};
use crate::{HINT_BYTES, Hint, ObjectKey, VersionError, VersionId};

mod devices;

pub use devices::{DEVICES_MAX, DeviceList, devices_place};

/// The longest name of a branch, in bytes.
pub const BRANCH_BYTES_MAX: usize = 128;
/// The most records that one supersedes: as many as an owner has devices.
pub const SUPERSEDES_MAX: usize = DEVICES_MAX;
/// The longest record of a head, in bytes.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// The most records of one branch that are looked at.
pub const RECORDS_MAX: usize = 4_096;

const FORMAT: Format = Format {
    what: "signed head",
    prefix: b"holdfast signed head v1",
    domain: "head",
    max: HEAD_BYTES_MAX,
};

/// What one device says of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Of which object's which branch.
    pub branch: BranchName,
    /// Who says so.
    pub device: PublicKey,
    /// What the branch is at.
    pub version: VersionId,
    /// The records that it takes the place of, in order, each once.
    pub supersedes: Vec<RecordId>,
    /// When it was said, Unix milliseconds: for people, and decides nothing.
    pub time_ms: u64,
}

/// A branch, as its owner calls it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchName {
    /// The network.
    pub network: NetworkId,
    /// The object's owner.
    pub owner: PublicKey,
    /// The object's name.
    pub name: Bytes,
    /// The branch: 1 to [`BRANCH_BYTES_MAX`] bytes without control characters. The usual one is `main`.
    pub branch: String,
}

impl BranchName {
    /// The key of the object.
    ///
    /// # Errors
    /// [`VersionError`] where no object can be called so.
    pub fn object(&self, suite: Suite) -> Result<ObjectKey, VersionError> {
        key_of(suite, &self.network, &self.owner, &self.name)
    }

    /// Where its heads live ([`heads_place`]).
    ///
    /// # Errors
    /// As [`BranchName::object`].
    pub fn place(&self, suite: Suite) -> Result<Place, VersionError> {
        Ok(heads_place(suite, &self.object(suite)?, &self.branch))
    }
}

/// Where the heads of an object's branch live: H("head" || object's key || branch).
pub fn heads_place(suite: Suite, object: &ObjectKey, branch: &str) -> Place {
    Place::new(suite.hash(&[b"head", &object.as_bytes()[..], branch.as_bytes()].concat()))
}

#[derive(Clone, PartialEq, Message)]
struct Wire {
    #[prost(bytes = "bytes", tag = "1")]
    network: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    owner: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    name: Bytes,
    #[prost(string, tag = "4")]
    branch: String,
    #[prost(bytes = "bytes", tag = "5")]
    device: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    h: Bytes,
    #[prost(uint64, tag = "7")]
    l: u64,
    #[prost(bytes = "bytes", tag = "8")]
    n: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "9")]
    supersedes: Vec<Bytes>,
    #[prost(uint64, tag = "10")]
    time_ms: u64,
}

impl Head {
    /// The signed record; `key` is the device's.
    ///
    /// # Errors
    /// [`VersionError`] for what no head can say.
    pub fn sign(&self, suite: Suite, key: &SecretKey) -> Result<Record, VersionError> {
        let bytes = FORMAT.sign(&self.wire(), key, &self.branch.network)?;
        // What cannot be read again is not let out; a key that is not the device's is found so too.
        let head = Self::verify(&bytes)?;
        let (id, place) = (suite.id(&bytes), head.branch.place(suite)?);
        Ok(Record { kind: Kind::Head, id, place, bytes })
    }

    fn wire(&self) -> Wire {
        let BranchName { network, owner, name, branch } = &self.branch;
        let VersionId { h, l, n } = &self.version;
        let mut supersedes = self.supersedes.clone();
        supersedes.sort_unstable();
        supersedes.dedup();
        let n = if *n == Hint::FIRST { &[][..] } else { n.as_bytes() };
        Wire {
            network: Bytes::copy_from_slice(network.as_bytes()),
            owner: Bytes::copy_from_slice(owner.as_bytes()),
            name: name.clone(),
            branch: branch.clone(),
            device: Bytes::copy_from_slice(self.device.as_bytes()),
            h: Bytes::copy_from_slice(h.as_bytes()),
            l: *l,
            n: Bytes::copy_from_slice(n),
            supersedes: supersedes.iter().map(|id| Bytes::copy_from_slice(id.as_bytes())).collect(),
            time_ms: self.time_ms,
        }
    }

    /// Decodes, and checks the form and the device's signature. That the owner lists the device, [`Branch::tips`]
    /// checks; that the network is the caller's own, [`Branch::take`]. Nothing of it shares `bytes`: heads are kept.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn verify(bytes: &Bytes) -> Result<Self, VersionError> {
        let opened = FORMAT.open::<Wire>(bytes)?;
        let head = Self::from_wire(&opened.message)?;
        FORMAT.verify(&opened, &head.device, &head.branch.network)?;
        Ok(head)
    }

    fn from_wire(wire: &Wire) -> Result<Self, VersionError> {
        check_name(&wire.name)?;
        let length = (1..=BRANCH_BYTES_MAX).contains(&wire.branch.len());
        if !length || wire.branch.chars().any(char::is_control) {
            return Err(VersionError::Field("name of the branch"));
        }
        let id = |bytes: &Bytes| {
            let bytes = <[u8; 32]>::try_from(&bytes[..]).ok().filter(|bytes| *bytes != [0; 32]);
            bytes.map(RecordId::new).ok_or(VersionError::Field("hash in the head"))
        };
        let n = match <[u8; HINT_BYTES]>::try_from(&wire.n[..]) {
            // All zero is not written.
            Ok(n) if n != [0; HINT_BYTES] => Hint::new(n),
            Err(_) if wire.n.is_empty() => Hint::FIRST,
            _ => return Err(VersionError::Field("hint of the version")),
        };
        let supersedes = wire.supersedes.iter().map(id).collect::<Result<Vec<_>, _>>()?;
        if supersedes.len() > SUPERSEDES_MAX || !supersedes.is_sorted_by(|a, b| a < b) {
            return Err(VersionError::Field("list of superseded heads"));
        }
        Ok(Self {
            branch: BranchName {
                network: signed::network(&wire.network)?,
                owner: PublicKey::from_slice(&wire.owner)?,
                name: Bytes::copy_from_slice(&wire.name),
                branch: wire.branch.clone(),
            },
            device: PublicKey::from_slice(&wire.device)?,
            version: VersionId { h: id(&wire.h)?, l: wire.l, n },
            supersedes,
            time_ms: wire.time_ms,
        })
    }
}

impl Head {
    /// Whether its device may speak for the branch: the owner's own key always, others that the newest list names.
    pub fn counts(&self, devices: Option<&DeviceList>) -> bool {
        self.device == self.branch.owner || devices.is_some_and(|list| list.names(&self.device))
    }
}

/// All records of one branch that are known.
#[derive(Clone, Debug)]
pub struct Branch {
    name: BranchName,
    records: BTreeMap<RecordId, Head>,
}

impl Branch {
    /// None yet.
    pub const fn new(name: BranchName) -> Self {
        Self { name, records: BTreeMap::new() }
    }

    /// Takes a record that [`Head::verify`] gave.
    ///
    /// # Errors
    /// [`VersionError::Field`] for another branch's, [`VersionError::Full`] at [`RECORDS_MAX`].
    pub fn take(&mut self, id: RecordId, head: Head) -> Result<Taken, VersionError> {
        if head.branch != self.name {
            return Err(VersionError::Field("branch of the head, which is another,"));
        }
        if self.records.contains_key(&id) {
            return Ok(Taken::Known);
        }
        if self.records.len() == RECORDS_MAX {
            return Err(VersionError::Full { what: "branch", max: RECORDS_MAX });
        }
        self.records.insert(id, head);
        Ok(Taken::New)
    }

    /// The record with this id.
    pub fn get(&self, id: &RecordId) -> Option<&Head> {
        self.records.get(id)
    }

    /// Forgets a record; what it was.
    pub fn remove(&mut self, id: &RecordId) -> Option<Head> {
        self.records.remove(id)
    }

    /// What the branch is at, as far as these records tell: by id, all that count and that none which counts supersedes,
    /// itself or through others. The owner's own key always counts; `devices` is the newest list, `None` where there is none.
    pub fn tips(&self, devices: Option<&DeviceList>) -> Vec<(RecordId, &Head)> {
        let valid = || self.records.iter().filter(|(_, head)| head.counts(devices));
        let mut superseded = BTreeSet::new();
        let mut next: Vec<&RecordId> = valid().flat_map(|(_, head)| &head.supersedes).collect();
        while let Some(id) = next.pop() {
            if superseded.insert(id)
                && let Some(head) = self.records.get(id)
            {
                next.extend(&head.supersedes);
            }
        }
        let tips = valid().filter(|(id, _)| !superseded.contains(id));
        tips.map(|(id, head)| (*id, head)).collect()
    }

    /// The record, to be signed by `device`, that takes the place of these tips, which the caller saw (and merged to
    /// `version`, where they are several). At most [`SUPERSEDES_MAX`] of them: more stay tips until the next.
    pub fn next(
        &self,
        seen: &[RecordId],
        device: PublicKey,
        version: VersionId,
        time_ms: u64,
    ) -> Head {
        let mut supersedes = seen.to_vec();
        supersedes.sort_unstable();
        supersedes.dedup();
        supersedes.truncate(SUPERSEDES_MAX);
        Head { branch: self.name.clone(), device, version, supersedes, time_ms }
    }

    /// Every record, by its id.
    pub fn records(&self) -> impl Iterator<Item = (&RecordId, &Head)> {
        self.records.iter()
    }
}

#[cfg(test)]
mod tests;
