//! The final tip, and the executed blocks above it.
//!
//! Invariants:
//! 1. Every block here was executed on its parent, which is here or is the tip ([`Chain::execute`]).
//! 2. A block is of the epoch and names the members that the state before it says. So the block that completes a round is the last of
//!    its epoch ([`Chain::ends_epoch`]): in its own epoch nothing follows it but itself, proposed again.
//! 3. The tip moves to a block only by a finalisation of it or of a block above it, and only along parents ([`Chain::finalise`]).
//!    A finalisation of a block that does not stand on the tip is a fork: more than f members lie. It is refused, and the member stops.
//! 4. What the blocks above may take is bounded, and the bound never keeps out a block that stands on those that the members agree
//!    to go on from: first go those that it does not stand on ([`Chain::make_room`]). A chain that nothing finalises grows by blocks
//!    without updates alone, since honest leaders put none so far above the tip ([`Chain::is_deep`]).

use std::collections::{BTreeMap, HashSet, VecDeque};

use bytes::Bytes;
use commonware_consensus::simplex::types::Finalization;

use super::charter::Charter;
use crate::certificate::{Digest, LATER_MAX, Scheme};
use crate::header::HeaderDigest;
use crate::map::Hash;
use crate::{
    Answer, Block, Certificate, Checked, CommitteeError, Executed, Header, Rules, State,
    Submission, UpdateDigest,
};

/// The most blocks above the tip, beside those that a new one stands on.
pub(crate) const ABOVE_MAX: usize = 256;
/// From so many blocks above the tip on a leader proposes none with updates: what is final by one that comes more than
/// [`LATER_MAX`] blocks later has no certificate of its own.
const DEEP: u64 = LATER_MAX as u64 / 2;
/// How many final blocks are remembered by digest alone.
const RECENT_MAX: usize = 1_024;

/// A block above the tip.
pub(crate) struct Above {
    pub(crate) block: Block,
    pub(crate) bytes: Bytes,
    executed: Executed,
    next: Next,
}

/// What the block after one must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) epoch: u64,
    members: Hash,
}

impl Next {
    /// As the state says it; as the block itself, where the state was not begun by a charter.
    fn after(header: &Header, state: &State) -> Self {
        match state.members() {
            Some(members) => Self { epoch: members.epoch, members: members.digest() },
            None => Self { epoch: header.epoch, members: header.members },
        }
    }
}

/// A block that became final.
pub(crate) struct Final {
    pub(crate) digest: HeaderDigest,
    pub(crate) block: Block,
    pub(crate) bytes: Bytes,
    executed: Executed,
    certificate: Option<Certificate>,
}

/// What a member knows of the chain.
pub(crate) struct Chain {
    rules: Rules,
    tip: Header,
    tip_digest: HeaderDigest,
    state: State,
    next: Next,
    certificate: Option<Certificate>,
    above: BTreeMap<HeaderDigest, Above>,
    recent: VecDeque<HeaderDigest>,
    checked: Checked,
}

/// What became of executing a block.
pub(crate) enum Fit {
    /// It is here now, or was.
    Here,
    /// Its parent is not here: it comes back.
    NoParent(Box<Block>),
    /// It is below the tip.
    Aside,
    /// No honest leader proposes it.
    Bad(CommitteeError),
}

impl Chain {
    /// The chain of a charter, from its genesis.
    pub(crate) fn new(charter: &Charter) -> Self {
        Self::at(charter.rules.clone(), charter.genesis(), charter.state())
    }

    /// The chain that begins with a header, and the state after it.
    pub(crate) fn at(rules: Rules, tip: Header, state: State) -> Self {
        Self {
            rules,
            next: Next::after(&tip, &state),
            tip_digest: tip.digest(),
            tip,
            state,
            certificate: None,
            above: BTreeMap::new(),
            recent: VecDeque::new(),
            checked: Checked::default(),
        }
    }

    /// Goes on from a snapshot. Blocks that stand on it stay: this member may have voted to finalise them.
    pub(crate) fn start_from(&mut self, certificate: Certificate, state: State) {
        self.tip = certificate.header().clone();
        self.tip_digest = self.tip.digest();
        self.next = Next::after(&self.tip, &state);
        (self.state, self.certificate) = (state, Some(certificate));
        let mut all: Vec<(HeaderDigest, Above)> =
            std::mem::take(&mut self.above).into_iter().collect();
        all.sort_by_key(|(_, above)| above.block.header.height);
        for (digest, above) in all {
            let parent = &above.block.header.parent;
            if *parent == self.tip_digest || self.above.contains_key(parent) {
                self.above.insert(digest, above);
            }
        }
    }

    /// Whether a block after this one should carry no updates.
    pub(crate) fn is_deep(&self, parent: &HeaderDigest) -> bool {
        let above = self.above.get(parent);
        above.is_some_and(|above| above.block.header.height >= self.tip.height + DEEP)
    }

    /// Whether a block with updates stands so far above the tip that no honest leader proposed it, unless this member has heard of none
    /// of what is final for long. One that its finalisation would leave without a certificate keeps its clients without an answer.
    const fn is_too_far(&self, header: &Header) -> bool {
        header.count > 0 && header.height.saturating_sub(self.tip.height) > 1 + LATER_MAX as u64
    }

    /// Whether a block that is here may be voted for as one of this epoch after this parent. The last one of an epoch follows itself.
    pub(crate) fn is_votable(&self, header: &Header, parent: &HeaderDigest, epoch: u64) -> bool {
        let digest = header.digest();
        let again = *parent == digest && self.ends_epoch(&digest);
        (again || header.parent == *parent) && header.epoch == epoch && !self.is_too_far(header)
    }

    /// Makes room for a block after `parent`: those that it does not stand on go. They are asked for again should they be decided.
    fn make_room(&mut self, parent: &HeaderDigest) {
        if self.above.len() < ABOVE_MAX {
            return;
        }
        let (mut path, mut at) = (HashSet::new(), *parent);
        while let Some(above) = self.above.get(&at) {
            path.insert(at);
            at = above.block.header.parent;
        }
        self.above.retain(|digest, _| path.contains(digest));
    }

    /// Moves the tip to the block after it, which is known to be final by one that comes later.
    pub(crate) fn fold(&mut self, digest: &HeaderDigest) {
        let follows = |above: &Above| above.block.header.parent == self.tip_digest;
        if !self.above.get(digest).is_some_and(follows) {
            return;
        }
        if let Some(above) = self.above.remove(digest) {
            (self.tip, self.tip_digest) = (above.block.header, *digest);
            (self.state, self.next) = (above.executed.state, above.next);
            self.certificate = None;
            let height = self.tip.height;
            self.above.retain(|_, above| above.block.header.height > height);
        }
    }

    /// The final tip.
    pub(crate) const fn tip(&self) -> &Header {
        &self.tip
    }

    /// The state after it.
    pub(crate) const fn state(&self) -> &State {
        &self.state
    }

    /// Its certificate; `None` at the genesis.
    pub(crate) const fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// The epoch and view of its certificate.
    pub(crate) fn round(&self) -> (u64, u64) {
        self.certificate.as_ref().map_or((0, 0), Certificate::round)
    }

    /// The epoch of the block after one that is here.
    pub(crate) fn epoch_after(&self, digest: &HeaderDigest) -> Option<u64> {
        self.next_after(digest).map(|next| next.epoch)
    }

    /// The epoch of the block after the tip.
    pub(crate) const fn epoch(&self) -> u64 {
        self.next.epoch
    }

    fn next_after(&self, digest: &HeaderDigest) -> Option<Next> {
        if *digest == self.tip_digest {
            return Some(self.next);
        }
        self.above.get(digest).map(|above| above.next)
    }

    /// Whether a block that is here is the last of its epoch.
    pub(crate) fn ends_epoch(&self, digest: &HeaderDigest) -> bool {
        let header = self.parent(digest).map(|(header, _)| header.epoch);
        header.zip(self.epoch_after(digest)).is_some_and(|(epoch, next)| epoch != next)
    }

    /// Whether the epoch may be over: a block that ends it is above the tip, so this member may have voted to finalise it, and others may
    /// know that it is final.
    pub(crate) fn may_be_over(&self) -> bool {
        self.above.keys().any(|digest| self.ends_epoch(digest))
    }

    /// Whether a block is final, as far as is remembered.
    pub(crate) fn is_final(&self, digest: &HeaderDigest) -> bool {
        *digest == self.tip_digest || self.recent.contains(digest)
    }

    /// A block above the tip.
    pub(crate) fn above(&self, digest: &HeaderDigest) -> Option<&Above> {
        self.above.get(digest)
    }

    /// All of them.
    pub(crate) fn all_above(&self) -> impl Iterator<Item = (&HeaderDigest, &Above)> {
        self.above.iter()
    }

    /// The header and the state to go on from, where the block is here.
    pub(crate) fn parent(&self, digest: &HeaderDigest) -> Option<(&Header, &State)> {
        if *digest == self.tip_digest {
            return Some((&self.tip, &self.state));
        }
        let above = self.above.get(digest)?;
        Some((&above.block.header, &above.executed.state))
    }

    /// A block above the tip and those that it stands on, down to the tip or the first that is kept already; the oldest first.
    pub(crate) fn standing(
        &self,
        from: &HeaderDigest,
        is_kept: impl Fn(&HeaderDigest) -> bool,
    ) -> Vec<(HeaderDigest, Bytes)> {
        let (mut all, mut at) = (Vec::new(), *from);
        while let Some(above) = self.above.get(&at).filter(|_| !is_kept(&at)) {
            all.push((at, above.bytes.clone()));
            at = above.block.header.parent;
        }
        all.reverse();
        all
    }

    /// The submissions of the blocks from one down to the tip.
    pub(crate) fn taken(&self, from: &HeaderDigest) -> HashSet<UpdateDigest> {
        let (mut taken, mut at) = (HashSet::new(), *from);
        while let Some(above) = self.above.get(&at) {
            taken.extend(above.block.submissions.iter().map(|one| *one.key()));
            at = above.block.header.parent;
        }
        taken
    }

    /// Makes the block after one that is here.
    pub(crate) fn propose(
        &mut self,
        parent: &HeaderDigest,
        now_ms: u64,
        submissions: Vec<Submission>,
    ) -> Option<(HeaderDigest, Bytes)> {
        let (header, state) =
            self.parent(parent).map(|(header, state)| (header.clone(), state.clone()))?;
        let next = self.next_after(parent)?;
        let start = crate::header::Start {
            parent: &header,
            before: &state,
            epoch: next.epoch,
            members: next.members,
            time_ms: now_ms,
        };
        self.make_room(parent);
        let (block, executed) = Block::propose(&self.rules, &start, submissions, &mut self.checked);
        let (digest, bytes) = (block.header.digest(), block.encode());
        let next = Next::after(&block.header, &executed.state);
        self.above.insert(digest, Above { block, bytes: bytes.clone(), executed, next });
        Some((digest, bytes))
    }

    /// Executes a block on its parent, if that is here.
    pub(crate) fn execute(
        &mut self,
        block: Block,
        bytes: Bytes,
        known: impl FnMut(&Submission) -> bool,
    ) -> Fit {
        let digest = block.header.digest();
        if self.above.contains_key(&digest) || self.is_final(&digest) {
            return Fit::Here;
        }
        if block.header.height <= self.tip.height {
            return Fit::Aside;
        }
        if self.parent(&block.header.parent).is_none() {
            return Fit::NoParent(Box::new(block));
        }
        self.make_room(&block.header.parent);
        let Some((parent, state)) = self.parent(&block.header.parent) else {
            return Fit::NoParent(Box::new(block));
        };
        let next = self.next_after(&block.header.parent);
        let said = Next { epoch: block.header.epoch, members: block.header.members };
        if next != Some(said) {
            return Fit::Bad(CommitteeError::Block("epoch or set of members"));
        }
        let (parent, state) = (parent.clone(), state.clone());
        match block.execute(&self.rules, &parent, &state, &mut self.checked, known) {
            Ok(executed) => {
                let next = Next::after(&block.header, &executed.state);
                self.above.insert(digest, Above { block, bytes, executed, next });
                Fit::Here
            }
            Err(error) => Fit::Bad(error),
        }
    }

    /// Moves the tip to a block that is here; what became final, the oldest first. Those that are more than [`LATER_MAX`] blocks
    /// below it have no certificate.
    pub(crate) fn finalise(
        &mut self,
        finalization: &Finalization<Scheme, Digest>,
    ) -> Result<Vec<Final>, CommitteeError> {
        let mut at = HeaderDigest::new(finalization.proposal.payload.0);
        let mut path = Vec::new();
        while at != self.tip_digest {
            let above = self.above.remove(&at).ok_or(CommitteeError::Chain)?;
            let digest = std::mem::replace(&mut at, above.block.header.parent);
            path.push((digest, above));
        }
        path.reverse();
        let headers: Vec<Header> = path.iter().map(|(_, one)| one.block.header.clone()).collect();
        let mut all = Vec::with_capacity(path.len());
        for (index, (digest, above)) in path.into_iter().enumerate() {
            let Above { block, bytes, executed, .. } = above;
            let later = headers.get(index + 1..).unwrap_or_default();
            let certificate = match later.len() <= LATER_MAX {
                true => Some(Certificate::new(block.header.clone(), later.to_vec(), finalization)?),
                false => None,
            };
            all.push(Final { digest, block, bytes, executed, certificate });
        }
        if let Some(last) = all.last() {
            self.tip = last.block.header.clone();
            self.tip_digest = last.digest;
            self.state = last.executed.state.clone();
            self.next = Next::after(&self.tip, &self.state);
            self.certificate = last.certificate.clone();
        }
        self.recent.extend(all.iter().map(|one| one.digest));
        let over = self.recent.len().saturating_sub(RECENT_MAX);
        self.recent.drain(..over);
        let height = self.tip.height;
        self.above.retain(|_, above| above.block.header.height > height);
        Ok(all)
    }
}

impl Final {
    /// Its certificate, unless its finalisation came too late for one.
    pub(crate) const fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// Tells whoever watches.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn see(&self, name: &str) {
        crate::planted::see(|| {
            let digests = self.block.submissions.iter().flat_map(Submission::digests);
            let all = digests.copied().zip(self.executed.outcomes.iter().cloned()).collect();
            crate::planted::Seen::Final(
                String::from(name),
                Box::new(self.block.header.clone()),
                all,
            )
        });
    }

    /// Its submissions, each with the index of its first update.
    pub(crate) fn submissions(&self) -> impl Iterator<Item = (&Submission, usize)> {
        self.block.submissions.iter().scan(0, |next, one| {
            let first = *next;
            *next += one.updates().len();
            Some((one, first))
        })
    }

    /// The answers to a submission whose first update has this index; none where it has no certificate.
    pub(crate) fn answers(&self, submission: &Submission, first: usize) -> Vec<Answer> {
        let Some(certificate) = &self.certificate else { return Vec::new() };
        let answer = |(index, body): (usize, &Bytes)| {
            Some(Answer {
                body: body.clone(),
                outcome: self.executed.outcomes.get(index)?.clone(),
                path: self.executed.tree.as_ref()?.path(index)?,
                certificate: certificate.clone(),
            })
        };
        (first..).zip(submission.bodies()).filter_map(answer).collect()
    }
}

#[cfg(test)]
mod tests;
