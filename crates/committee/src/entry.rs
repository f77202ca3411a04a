//! What the certified state holds: heads, objects, peers, how much each owner has there, and who the members are.
//!
//! ```text
//! head     1 | object 32 | branch length 1 | branch | h 32 | l 8 | n 16 | height 8 | made by 1 | (update digest 32 | height 8) each, the newest first
//! object   2 | object 32 | owner 33 | policy version 8 | receipts wanted 1 | branches 2 | writers 2 | 33 each, in order
//! peer     3 | peer 33 | organisation 33 | until 8
//! account  4 | owner 33 | entries 4
//! members  5 | ...  dealt 6 | ...  (crate::members)
//! key      BLAKE3("holdfast state v1" | kind 1 | object 32 and branch, object 32, peer 33, owner 33, nothing, slot 1)
//! ```
//! An entry says itself what it is of, so a snapshot of the state is its values. A head names the last [`MADE_BY_MAX`] updates that
//! moved it: one that is sent again is answered as it was then.

use bytes::Bytes;
use crypto::{OrgId, PeerId, PublicKey, Suite};
use version::head::BRANCH_BYTES_MAX;
use version::policy::POLICY_KEYS_MAX;
use version::{ObjectKey, VersionId};

use crate::CommitteeError;
use crate::map::Hash;
use crate::members::{Dealt, Members};
use crate::reader::Reader;
use crate::update::{UpdateDigest, put_version, read_branch, read_version};

/// How many of the updates that moved a head it names.
pub const MADE_BY_MAX: usize = 4;

const PREFIX: &[u8] = b"holdfast state v1";
const WHAT: &str = "entry of the state";

/// Where a branch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadEntry {
    /// Of which object.
    pub object: ObjectKey,
    /// Which branch.
    pub branch: Box<str>,
    /// The version it is at.
    pub version: VersionId,
    /// Since which height.
    pub height: u64,
    /// The last updates that moved it, the newest first, with their heights.
    pub made_by: Vec<(UpdateDigest, u64)>,
}

/// Whose an object is, and who may write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEntry {
    /// Its key.
    pub object: ObjectKey,
    /// Its owner.
    pub owner: PublicKey,
    /// The number of its policy; 0 where there is none.
    pub policy: u64,
    /// Receipts that a new version of it needs.
    pub wanted: u8,
    /// How many heads it has.
    pub branches: u16,
    /// Who may write beside the owner, in order.
    pub writers: Vec<PublicKey>,
}

/// A peer whose receipts count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEntry {
    /// The peer.
    pub peer: PeerId,
    /// Whose it is.
    pub organisation: OrgId,
    /// Until when, Unix seconds.
    pub until: u64,
}

/// How much an owner has in the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountEntry {
    /// The owner.
    pub owner: PublicKey,
    /// Objects and heads.
    pub entries: u32,
}

/// What an entry is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// A branch of an object.
    Head(&'a ObjectKey, &'a str),
    /// An object.
    Object(&'a ObjectKey),
    /// A peer.
    Peer(&'a PeerId),
    /// An owner.
    Account(&'a PublicKey),
    /// The members.
    Members,
    /// The log of the dealer in this slot.
    Dealt(u8),
}

/// The hash of what names an entry: it is asked for several times an update, so it takes no memory from the heap.
fn hash_of(kind: u8, first: &[u8], second: &[u8]) -> Hash {
    let mut bytes = [0; PREFIX.len() + 1 + 33 + BRANCH_BYTES_MAX];
    let mut length = 0;
    for part in [PREFIX, &[kind], first, second] {
        let Some(place) = bytes.get_mut(length..length + part.len()) else {
            return Suite::Holdfast1.hash(&[PREFIX, &[kind], first, second].concat());
        };
        place.copy_from_slice(part);
        length += part.len();
    }
    Suite::Holdfast1.hash(bytes.get(..length).unwrap_or_default())
}

impl Subject<'_> {
    /// Where its entry is in the map.
    pub fn key(&self) -> Hash {
        match self {
            Self::Head(object, branch) => hash_of(1, object.as_bytes(), branch.as_bytes()),
            Self::Object(object) => hash_of(2, object.as_bytes(), &[]),
            Self::Peer(peer) => hash_of(3, peer.as_bytes(), &[]),
            Self::Account(owner) => hash_of(4, owner.as_bytes(), &[]),
            Self::Members => hash_of(5, &[], &[]),
            Self::Dealt(slot) => hash_of(6, &[*slot], &[]),
        }
    }
}

/// Any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Where a branch is.
    Head(HeadEntry),
    /// Whose an object is.
    Object(ObjectEntry),
    /// A peer.
    Peer(PeerEntry),
    /// An owner's account.
    Account(AccountEntry),
    /// The members.
    Members(Members),
    /// A dealer's log.
    Dealt(Dealt),
}

impl Entry {
    /// What it is of.
    pub fn subject(&self) -> Subject<'_> {
        match self {
            Self::Head(head) => Subject::Head(&head.object, &head.branch),
            Self::Object(object) => Subject::Object(&object.object),
            Self::Peer(peer) => Subject::Peer(&peer.peer),
            Self::Account(account) => Subject::Account(&account.owner),
            Self::Members(_) => Subject::Members,
            Self::Dealt(dealt) => Subject::Dealt(dealt.slot),
        }
    }

    /// How many bytes a head takes; of the others, about as many.
    const fn room(&self) -> usize {
        match self {
            Self::Head(head) => {
                1 + 32 + 1 + head.branch.len() + 56 + 8 + 1 + 40 * head.made_by.len()
            }
            Self::Object(object) => 1 + 32 + 33 + 8 + 1 + 2 + 2 + 33 * object.writers.len(),
            _ => 192,
        }
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.room());
        match self {
            Self::Head(HeadEntry { object, branch, version, height, made_by }) => {
                out.push(1);
                out.extend_from_slice(object.as_bytes());
                out.push(branch.len() as u8);
                out.extend_from_slice(branch.as_bytes());
                put_version(&mut out, version);
                out.extend_from_slice(&height.to_be_bytes());
                out.push(made_by.len() as u8);
                for (digest, height) in made_by {
                    out.extend_from_slice(digest.as_bytes());
                    out.extend_from_slice(&height.to_be_bytes());
                }
            }
            Self::Object(ObjectEntry { object, owner, policy, wanted, branches, writers }) => {
                out.push(2);
                out.extend_from_slice(object.as_bytes());
                out.extend_from_slice(owner.as_bytes());
                out.extend_from_slice(&policy.to_be_bytes());
                out.push(*wanted);
                out.extend_from_slice(&branches.to_be_bytes());
                out.extend_from_slice(&(writers.len() as u16).to_be_bytes());
                writers.iter().for_each(|writer| out.extend_from_slice(writer.as_bytes()));
            }
            Self::Peer(PeerEntry { peer, organisation, until }) => {
                out.push(3);
                out.extend_from_slice(peer.as_bytes());
                out.extend_from_slice(organisation.key().as_bytes());
                out.extend_from_slice(&until.to_be_bytes());
            }
            Self::Account(AccountEntry { owner, entries }) => {
                out.push(4);
                out.extend_from_slice(owner.as_bytes());
                out.extend_from_slice(&entries.to_be_bytes());
            }
            Self::Members(members) => {
                out.push(5);
                members.write(&mut out);
            }
            Self::Dealt(dealt) => {
                out.push(6);
                dealt.write(&mut out);
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
        let entry = match reader.u8()? {
            1 => Self::Head(read_head(&mut reader)?),
            2 => Self::Object(read_object(&mut reader)?),
            3 => Self::Peer(PeerEntry {
                peer: PeerId::from_slice(&reader.array::<33>()?)?,
                organisation: OrgId::from_slice(&reader.array::<33>()?)?,
                until: reader.u64()?,
            }),
            4 => Self::Account(AccountEntry {
                owner: PublicKey::from_slice(&reader.array::<33>()?)?,
                entries: reader.u32()?,
            }),
            5 => Self::Members(Members::read(&mut reader)?),
            6 => Self::Dealt(Dealt::read(&mut reader)?),
            _ => return Err(CommitteeError::Field(WHAT)),
        };
        reader.end()?;
        Ok(entry)
    }
}

fn read_head(reader: &mut Reader<'_>) -> Result<HeadEntry, CommitteeError> {
    let object = ObjectKey::new(reader.array()?);
    let branch = read_branch(reader)?;
    let (version, height) = (read_version(reader)?, reader.u64()?);
    let (found, max) = (usize::from(reader.u8()?), MADE_BY_MAX);
    if found > max {
        return Err(CommitteeError::TooLarge { what: "updates of a head", found, max });
    }
    let mut made_by = Vec::with_capacity(found + 1);
    for _ in 0..found {
        made_by.push((UpdateDigest::new(reader.array()?), reader.u64()?));
    }
    Ok(HeadEntry { object, branch, version, height, made_by })
}

fn read_object(reader: &mut Reader<'_>) -> Result<ObjectEntry, CommitteeError> {
    let object = ObjectKey::new(reader.array()?);
    let owner = PublicKey::from_slice(&reader.array::<33>()?)?;
    let (policy, wanted, branches) = (reader.u64()?, reader.u8()?, reader.u16()?);
    let (found, max) = (usize::from(reader.u16()?), POLICY_KEYS_MAX);
    if found > max {
        return Err(CommitteeError::TooLarge { what: "writers of an object", found, max });
    }
    let writer = |_| Ok::<_, CommitteeError>(PublicKey::from_slice(&reader.array::<33>()?)?);
    let writers: Vec<PublicKey> = (0..found).map(writer).collect::<Result<_, _>>()?;
    if !writers.is_sorted_by(|a, b| a < b) {
        return Err(CommitteeError::Field("order of the writers"));
    }
    Ok(ObjectEntry { object, owner, policy, wanted, branches, writers })
}
