//! A block: its header, which is what the members certify, and the updates that it carries.
//!
//! ```text
//! header  "holdfast head v1" | network 32 | group key 96 | epoch 8 | height 8 | parent 32 | time 8 | members 32 | updates 32 | count 4 | results 32 | state 32
//! block   "holdfast block v1" | header 332 | submissions 4 | (length 4 | submission) each
//! ```
//! `parent` is the digest of the header before; `time` is Unix milliseconds and never runs backwards; `members` is the digest of the
//! set of members; `updates` is the BLAKE3 of all that follows the header, so one header has one block; `count` is how many updates
//! there are, `results` the root over what became of them, zero where there are none ([`crate::outcome`]); `state` is the root of the
//! state after them ([`crate::map`]). The digest of a header is its BLAKE3, and it is what consensus decides on.

use bytes::Bytes;
use crypto::{NetworkId, Suite};
use version::merkle::Tree;

use crate::map::Hash;
use crate::outcome::{self, Outcome};
use crate::reader::{Reader, put_long};
use crate::state::{Checked, Moment, Rules, State};
use crate::update::{SUBMISSION_BYTES_MAX, Submission, UpdateDigest};
use crate::{CommitteeError, GroupKey};

/// The length of a header, in bytes.
pub const HEADER_BYTES: usize = 16 + 32 + 96 + 8 + 8 + 32 + 8 + 32 + 32 + 4 + 32 + 32;
/// The most updates of a block.
pub const BLOCK_UPDATES_MAX: usize = 8_192;
/// The longest block, in bytes.
pub const BLOCK_BYTES_MAX: usize = 4 << 20;

const PREFIX: &[u8] = b"holdfast head v1";
const BLOCK_PREFIX: &[u8] = b"holdfast block v1";

/// The digest of a header.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeaderDigest([u8; 32]);

impl HeaderDigest {
    /// The digest with these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for HeaderDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeaderDigest({})", hex::encode(self.0))
    }
}

/// What the members certify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The network.
    pub network: NetworkId,
    /// The committee.
    pub group: GroupKey,
    /// Which set of key parts the members hold.
    pub epoch: u64,
    /// How many blocks there were before it.
    pub height: u64,
    /// The digest of the header before.
    pub parent: HeaderDigest,
    /// When it was proposed, Unix milliseconds.
    pub time_ms: u64,
    /// The digest of the set of members.
    pub members: Hash,
    /// The digest of the block's updates.
    pub updates: Hash,
    /// How many updates the block has.
    pub count: u32,
    /// The root of what became of them.
    pub results: Hash,
    /// The root of the state after them.
    pub state: Hash,
}

impl Header {
    /// The header before the first block.
    pub fn genesis(network: NetworkId, group: GroupKey, members: Hash) -> Self {
        Self {
            network,
            group,
            epoch: 0,
            height: 0,
            parent: HeaderDigest::new([0; 32]),
            time_ms: 0,
            members,
            updates: [0; 32],
            count: 0,
            results: [0; 32],
            state: State::default().root(),
        }
    }

    /// The encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(PREFIX);
        out.extend_from_slice(self.network.as_bytes());
        out.extend_from_slice(self.group.as_bytes());
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.extend_from_slice(&self.height.to_be_bytes());
        out.extend_from_slice(self.parent.as_bytes());
        out.extend_from_slice(&self.time_ms.to_be_bytes());
        out.extend_from_slice(&self.members);
        out.extend_from_slice(&self.updates);
        out.extend_from_slice(&self.count.to_be_bytes());
        out.extend_from_slice(&self.results);
        out.extend_from_slice(&self.state);
        out
    }

    /// Reads one.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, CommitteeError> {
        reader.prefix(PREFIX)?;
        Ok(Self {
            network: NetworkId::new(reader.array()?),
            group: GroupKey::named(reader.array()?),
            epoch: reader.u64()?,
            height: reader.u64()?,
            parent: HeaderDigest::new(reader.array()?),
            time_ms: reader.u64()?,
            members: reader.array()?,
            updates: reader.array()?,
            count: reader.u32()?,
            results: reader.array()?,
            state: reader.array()?,
        })
    }

    /// Its digest.
    pub fn digest(&self) -> HeaderDigest {
        HeaderDigest(Suite::Holdfast1.hash(&self.encode()))
    }

    const fn moment(&self) -> Moment {
        Moment { height: self.height, time_ms: self.time_ms }
    }
}

/// A block. Decoded, its updates' signatures are not checked yet, nor is it executed: [`Block::execute`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What is certified.
    pub header: Header,
    /// What it carries.
    pub submissions: Vec<Submission>,
}

/// A block that was executed.
#[derive(Clone, Debug)]
pub struct Executed {
    /// The state after it.
    pub state: State,
    /// What became of each update, in order.
    pub outcomes: Vec<Outcome>,
    /// The tree over them; `None` of none.
    pub tree: Option<Tree>,
}

fn encoded(header: &Header, submissions: &[Submission]) -> Bytes {
    let mut out = Vec::with_capacity(Block::size(submissions.iter().map(Submission::size)));
    out.extend_from_slice(BLOCK_PREFIX);
    out.extend_from_slice(&header.encode());
    write_body(&mut out, submissions);
    out.into()
}

/// Appends what follows the header.
fn write_body(out: &mut Vec<u8>, submissions: &[Submission]) {
    out.extend_from_slice(&(submissions.len() as u32).to_be_bytes());
    submissions.iter().for_each(|one| put_long(out, &one.encode()));
}

/// The digest of what follows the header.
fn body_hash(submissions: &[Submission]) -> Hash {
    let mut out =
        Vec::with_capacity(4 + submissions.iter().map(|one| one.size() + 4).sum::<usize>());
    write_body(&mut out, submissions);
    Suite::Holdfast1.hash(&out)
}

fn run(
    rules: &Rules,
    before: &State,
    moment: Moment,
    submissions: &[Submission],
    checked: &mut Checked,
) -> Executed {
    let mut state = before.clone();
    let all = submissions.iter().flat_map(Submission::asked);
    let pairs: Vec<(&UpdateDigest, Outcome)> =
        all.map(|asked| (asked.digest, state.apply(rules, moment, &asked, checked))).collect();
    let tree = outcome::tree(pairs.iter().map(|(digest, outcome)| (*digest, outcome)));
    let outcomes = pairs.into_iter().map(|(_, outcome)| outcome).collect();
    Executed { state, outcomes, tree }
}

/// What a block is made on.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The header before.
    pub parent: &'a Header,
    /// The state after it.
    pub before: &'a State,
    /// The epoch.
    pub epoch: u64,
    /// The digest of the set of members.
    pub members: Hash,
    /// Now, Unix milliseconds; pushed to the parent's time where it is before that.
    pub time_ms: u64,
}

impl Block {
    /// Makes the next block.
    pub fn propose(
        rules: &Rules,
        start: &Start<'_>,
        submissions: Vec<Submission>,
        checked: &mut Checked,
    ) -> (Self, Executed) {
        let Start { parent, before, epoch, members, time_ms } = *start;
        let moment = Moment { height: parent.height + 1, time_ms: time_ms.max(parent.time_ms) };
        let executed = run(rules, before, moment, &submissions, checked);
        let header = Header {
            network: rules.network,
            group: parent.group.clone(),
            epoch,
            height: moment.height,
            parent: parent.digest(),
            time_ms: moment.time_ms,
            members,
            updates: body_hash(&submissions),
            count: executed.outcomes.len() as u32,
            results: executed.tree.as_ref().map_or([0; 32], Tree::root),
            state: executed.state.root(),
        };
        (Self { header, submissions }, executed)
    }

    /// Executes it after `parent` and compares everything that its header says. `known` tells which submissions' signatures were
    /// checked before.
    ///
    /// # Errors
    /// [`CommitteeError::Block`] with what is wrong, [`CommitteeError::Key`] for a signature.
    pub fn execute(
        &self,
        rules: &Rules,
        parent: &Header,
        before: &State,
        checked: &mut Checked,
        mut known: impl FnMut(&Submission) -> bool,
    ) -> Result<Executed, CommitteeError> {
        let header = &self.header;
        let right =
            |right: bool, what| if right { Ok(()) } else { Err(CommitteeError::Block(what)) };
        right(header.network == rules.network, "network")?;
        right(header.group == parent.group, "group key")?;
        right(header.parent == parent.digest(), "parent")?;
        right(parent.height.checked_add(1) == Some(header.height), "height")?;
        right(header.time_ms >= parent.time_ms, "time")?;
        for one in &self.submissions {
            let ours = |update: &crate::Update| {
                update.network == rules.network && update.group == rules.group
            };
            right(one.updates().iter().all(ours), "committee of an update")?;
            if !known(one) {
                one.clone().verify()?;
            }
        }
        let executed = run(rules, before, header.moment(), &self.submissions, checked);
        let results = executed.tree.as_ref().map_or([0; 32], Tree::root);
        right(header.count as usize == executed.outcomes.len(), "number of results")?;
        right(header.results == results, "root of the results")?;
        right(header.state == executed.state.root(), "root of the state")?;
        Ok(executed)
    }

    /// The encoding.
    pub fn encode(&self) -> Bytes {
        encoded(&self.header, &self.submissions)
    }

    /// The length of a block with submissions of these lengths, in bytes.
    pub(crate) fn size(submissions: impl Iterator<Item = usize>) -> usize {
        BLOCK_PREFIX.len() + HEADER_BYTES + 4 + submissions.map(|one| one + 4).sum::<usize>()
    }

    /// The encoding of the block with this header, where these are its submissions.
    pub(crate) fn whole(header: &Header, submissions: &[Submission]) -> Option<Bytes> {
        let bytes = encoded(header, submissions);
        let body = bytes.get(BLOCK_PREFIX.len() + HEADER_BYTES..)?;
        (Suite::Holdfast1.hash(body) == header.updates).then_some(bytes)
    }

    /// The header of an encoded block, whose updates are those of the header; they are not looked at otherwise.
    pub(crate) fn header_of(bytes: &[u8]) -> Result<Header, CommitteeError> {
        if bytes.len() > BLOCK_BYTES_MAX {
            let (found, max) = (bytes.len(), BLOCK_BYTES_MAX);
            return Err(CommitteeError::TooLarge { what: "bytes of a block", found, max });
        }
        let mut reader = Reader::new("block", bytes);
        reader.prefix(BLOCK_PREFIX)?;
        let header = Header::read(&mut reader)?;
        if Suite::Holdfast1.hash(reader.rest()) != header.updates {
            return Err(CommitteeError::Block("updates"));
        }
        Ok(header)
    }

    /// Decodes, and checks that the updates are those of the header.
    ///
    /// # Errors
    /// [`CommitteeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, CommitteeError> {
        let header = Self::header_of(bytes)?;
        Self::decode_after(header, bytes, |_| None)
    }

    /// Decodes what follows a header that was read from the same bytes. `known` gives submissions that are here already, by
    /// their encoding: they are not decoded again.
    pub(crate) fn decode_after(
        header: Header,
        bytes: &Bytes,
        mut known: impl FnMut(&[u8]) -> Option<Submission>,
    ) -> Result<Self, CommitteeError> {
        let mut reader = Reader::new("block", bytes);
        reader.take(BLOCK_PREFIX.len() + HEADER_BYTES)?;
        let (found, max) = (reader.u32()? as usize, BLOCK_UPDATES_MAX);
        if found > max || header.count as usize > max {
            return Err(CommitteeError::TooLarge { what: "updates of a block", found, max });
        }
        let mut submissions = Vec::with_capacity(found.min(BLOCK_UPDATES_MAX));
        let mut count = 0;
        for _ in 0..found {
            let one = reader.long("bytes of a bundle", SUBMISSION_BYTES_MAX)?;
            let one = match known(one) {
                Some(known) => known,
                None => Submission::decode(&bytes.slice_ref(one))?,
            };
            count += one.updates().len();
            if count > header.count as usize {
                return Err(CommitteeError::Block("number of results"));
            }
            submissions.push(one);
        }
        reader.end()?;
        Ok(Self { header, submissions })
    }
}

#[cfg(test)]
mod tests;
