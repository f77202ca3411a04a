//! What a member says to the others, and hears from them.

use std::collections::HashMap;

use bytes::Bytes;
use commonware_codec::Encode as _;
use commonware_consensus::simplex::types::Notarization;
use commonware_p2p::Recipients;

use super::{ASK_AGAIN_MS, HEARD_MS, Member, QUIET_MS, parked};
use crate::certificate::{Digest, Scheme};
use crate::engine::wire::{Message, Notarised, SINCE_BLOCKS_MAX, SUBMISSIONS_MAX};
use crate::engine::{Key, Runtime, now_ms};
use crate::header::{BLOCK_BYTES_MAX, HeaderDigest};
use crate::{Block, Certificate, CommitteeError, Header, Submission};

/// A tip that is one block behind another's for so long is behind.
const LAGS_MS: u64 = 2_000;
/// How often a member says that it is there.
const HERE_MS: u64 = 1_000;
/// How many of those that wait longest are passed on again.
const AGAIN_MAX: usize = 64;
/// Bytes of submissions in one message.
const PASS_ON_BYTES: usize = 2 << 20;
/// What one member is given a second of what it asks for: answers, and bytes. Who asks for more is not answered.
const GIVEN_MAX: usize = 256;
const GIVEN_BYTES_MAX: usize = 128 << 20;

/// What each member was given of late.
#[derive(Debug, Default)]
pub(super) struct GivenOut(HashMap<Key, (u64, usize, usize)>);

impl GivenOut {
    /// Whether a member may be given one answer more this second.
    fn may(&mut self, to: &Key, now_ms: u64) -> bool {
        let one = self.0.entry(to.clone()).or_default();
        let second = now_ms / 1_000;
        if one.0 != second {
            *one = (second, 0, 0);
        }
        one.1 += 1;
        one.1 <= GIVEN_MAX && one.2 < GIVEN_BYTES_MAX
    }

    /// Counts what it was given.
    pub(super) fn gave(&mut self, to: &Key, bytes: usize) {
        if let Some(one) = self.0.get_mut(to) {
            one.2 += bytes;
        }
    }
}

impl Notarised {
    /// What a member tells of a notarisation.
    pub(super) fn of(notarization: &Notarization<Scheme, Digest>) -> Option<Self> {
        let proposal = &notarization.proposal;
        Some(Self {
            view: proposal.round.view().get(),
            parent_view: proposal.parent.get(),
            epoch: proposal.round.epoch().get(),
            digest: proposal.payload.0,
            signature: notarization.certificate.encode()[..].try_into().ok()?,
        })
    }
}

/// The headers of blocks that follow each other up to a certificate, with their bytes. Nothing else is kept of what a member says
/// that this one lacks.
fn chained(
    certificate: &Certificate,
    blocks: Vec<Bytes>,
) -> Result<Vec<(HeaderDigest, Header, Bytes)>, CommitteeError> {
    let mut all = Vec::with_capacity(blocks.len());
    let mut wanted = certificate.header().digest();
    for bytes in blocks.into_iter().rev() {
        let header = Block::header_of(&bytes)?;
        let digest = header.digest();
        if digest != wanted {
            return Err(CommitteeError::Chain);
        }
        wanted = header.parent;
        all.push((digest, header, bytes));
    }
    all.reverse();
    Ok(all)
}

impl<E: Runtime> Member<E> {
    /// How many members are heard, this one among them.
    pub(super) fn heard(&self) -> u32 {
        let now = now_ms(&self.context);
        let heard = |key: &&Key| {
            **key == self.me || self.heard.get(*key).is_some_and(|said| said + HEARD_MS >= now)
        };
        self.term.keys().iter().filter(heard).count() as u32
    }

    /// Whether its journal is read: before that, what it voted on would be missing. The engine asks about no round before it has told
    /// all that is in its journal; a member without a vote has none, and waits a little.
    pub(super) fn has_read(&self) -> bool {
        if self.share.is_some() {
            self.has_voted
        } else {
            now_ms(&self.context) >= self.started_ms + QUIET_MS
        }
    }

    pub(super) async fn hear(&mut self, from: Key, message: Bytes) -> Result<(), CommitteeError> {
        let now = now_ms(&self.context);
        self.heard.insert(from.clone(), now);
        let Ok(message) = Message::decode(&message) else {
            self.offended(&from, "sent what is no message");
            return Ok(());
        };
        match message {
            Message::Block(bytes) => self.take_block(from, &bytes).await?,
            Message::Submissions(all) => self.take_submissions(&from, &all),
            Message::WantBlock(digest) if self.given_out.may(&from, now) => {
                if let Some(bytes) = self.bytes(&digest).await? {
                    self.given_out.gave(&from, bytes.len());
                    self.send(Recipients::One(from), &Message::Block(bytes));
                }
            }
            Message::WantSince(height) if self.given_out.may(&from, now) => {
                self.tell_since(from, height).await?;
            }
            Message::WantPart { digest, offset } if self.given_out.may(&from, now) => {
                self.give_part(from, Some(digest), offset);
            }
            Message::WantBlock(_) | Message::WantSince(_) | Message::WantPart { .. } => {}
            Message::Since { certificate, blocks } => {
                if let Err(error) = self.catch_up(&certificate, blocks).await {
                    if matches!(error, CommitteeError::Storage(_)) {
                        return Err(error);
                    }
                    tracing::warn!(%error, "what a member says comes next does not hold");
                    self.offended(&from, "sent what does not follow");
                }
            }
            Message::HowFar(nonce) => {
                if let Some(notarised) = self.notarised.clone().filter(|_| self.has_read()) {
                    let answer = Message::ThisFar { nonce, notarised };
                    self.send(Recipients::One(from), &answer);
                }
            }
            Message::Part { certificate, total, offset, bytes } => {
                let taken = self.take_part(from.clone(), &certificate, total, offset, &bytes).await;
                if let Err(error) = taken {
                    if matches!(error, CommitteeError::Storage(_)) {
                        return Err(error);
                    }
                    self.taken = None;
                    tracing::warn!(%error, "a snapshot does not hold");
                    self.offended(&from, "sent what is no snapshot");
                }
            }
            Message::ThisFar { nonce, notarised } => self.this_far(from, nonce, &notarised),
            Message::Wish(signed) => self.hear_wish(&from, signed),
            Message::Dealt { number, public, private } => {
                self.take_dealt(from, number, public, private).await?;
            }
            Message::Taken { number, acknowledgement } => {
                self.take_acknowledgement(&from, number, acknowledgement);
            }
            Message::Here(height) => {
                self.heights.insert(from, height);
                // One behind is mostly one whose certificate is on its way.
                let tip = self.chain.tip().height;
                let rests = self.moved_ms + LAGS_MS <= now;
                if height > tip.saturating_add(1) || (height > tip && rests) {
                    self.want_since();
                }
            }
        }
        Ok(())
    }

    async fn take_block(&mut self, from: Key, bytes: &Bytes) -> Result<(), CommitteeError> {
        let Ok(header) = Block::header_of(bytes) else {
            self.offended(&from, "sent what is no block");
            return Ok(());
        };
        let digest = header.digest();
        let asked = self.wanted.contains_key(&digest);
        let room = asked || self.parked.has_room(&from, bytes.len());
        if header.height <= self.chain.tip().height || !room {
            return Ok(());
        }
        if self.chain.above(&digest).is_none() {
            let bytes = bytes.clone();
            self.parked.put(digest, parked::Waiting { from, header, bytes, certified: false });
        }
        // What nobody asked for is not even decoded: a liar's blocks take no more than their bytes.
        if !asked {
            return Ok(());
        }
        let waiting: Vec<_> = self.wanted.keys().copied().collect();
        for digest in waiting {
            self.settle(digest).await?;
        }
        if let Some(ahead) = self.ahead.clone() {
            self.finalise(ahead).await?;
        }
        Ok(())
    }

    /// Takes what another passes on. It checked every signature before, so one that does not hold is its lie.
    fn take_submissions(&mut self, from: &Key, all: &[Bytes]) {
        for bytes in all {
            if self.pool.known(&Submission::id_of(bytes)).is_some() {
                continue;
            }
            // In bytes of its own, or a short one would keep the whole message.
            let checked = Submission::detached(bytes).and_then(Submission::verify);
            match checked {
                Ok(submission) if self.is_ours(&submission) => {
                    // One that finds no room here waits at the member that passed it on.
                    let _ = self.pool.take(submission);
                }
                _ => {
                    self.offended(from, "passed on an update that is none");
                    return;
                }
            }
        }
    }

    /// Whether all of it is for this committee.
    pub(super) fn is_ours(&self, submission: &Submission) -> bool {
        let rules = &self.charter.rules;
        let ours =
            |update: &crate::Update| update.network == rules.network && update.group == rules.group;
        submission.updates().iter().all(ours)
    }

    /// Passes new submissions on to all.
    pub(super) fn pass_on(&mut self) {
        let outbox = std::mem::take(&mut self.outbox);
        let (mut part, mut bytes) = (Vec::new(), 0);
        for one in outbox {
            bytes += one.len();
            part.push(one);
            if bytes >= PASS_ON_BYTES || part.len() == SUBMISSIONS_MAX {
                let message = Message::Submissions(std::mem::take(&mut part));
                self.send(Recipients::All, &message);
                bytes = 0;
            }
        }
        if !part.is_empty() {
            self.send(Recipients::All, &Message::Submissions(part));
        }
    }

    async fn tell_since(&mut self, from: Key, height: u64) -> Result<(), CommitteeError> {
        if height >= self.chain.tip().height {
            return Ok(());
        }
        let since = self.log.since(height, SINCE_BLOCKS_MAX, BLOCK_BYTES_MAX / 2).await?;
        match since {
            Some((certificate, blocks)) => {
                self.given_out.gave(&from, blocks.iter().map(Bytes::len).sum());
                self.send(Recipients::One(from), &Message::Since { certificate, blocks });
            }
            // The log begins later: the whole state.
            None => {
                self.renew_given(height);
                self.give_part(from, None, 0);
            }
        }
        Ok(())
    }

    /// Executes what another has that this one lacks, up to its certificate.
    async fn catch_up(
        &mut self,
        certificate: &[u8],
        blocks: Vec<Bytes>,
    ) -> Result<(), CommitteeError> {
        let certificate = Certificate::decode(certificate)?;
        if certificate.header().height <= self.chain.tip().height {
            return Ok(());
        }
        certificate.verify(&self.charter.rules.network, &self.charter.group)?;
        let last = certificate.header().digest();
        let height = self.chain.tip().height;
        for (digest, header, bytes) in chained(&certificate, blocks)? {
            if header.height > height && self.chain.above(&digest).is_none() {
                let from = self.me.clone();
                self.parked.put(digest, parked::Waiting { from, header, bytes, certified: true });
            }
        }
        if let Some(error) = self.execute(last) {
            return Err(error);
        }
        if self.chain.above(&last).is_some() {
            self.finalise(certificate.finalization()?).await?;
            self.asked_since_ms = 0;
            if let Some(ahead) = self.ahead.clone() {
                self.finalise(ahead).await?;
            }
            if self.ahead.is_some() {
                self.want_since();
            }
        }
        Ok(())
    }

    /// Asks one of the others for what comes after the tip: each in its turn, so that none can keep this one from the rest.
    pub(super) fn want_since(&mut self) {
        let now = now_ms(&self.context);
        if self.asked_since_ms + ASK_AGAIN_MS > now || self.taken.is_some() {
            return;
        }
        self.asked_since_ms = now;
        self.turn = self.turn.wrapping_add(1);
        let others = self.heard.iter().filter(|(_, said)| **said + HEARD_MS >= now);
        let mut others: Vec<&Key> = others.map(|(key, _)| key).collect();
        others.sort_unstable();
        let which = others.get(self.turn % others.len().max(1));
        if let Some(other) = which.map(|key| (*key).clone()) {
            let message = Message::WantSince(self.chain.tip().height);
            self.asked_of = Some(other.clone());
            self.send(Recipients::One(other), &message);
        }
    }

    /// What is late: asked for again, given up, or told.
    pub(super) async fn tick(&mut self) -> Result<(), CommitteeError> {
        let now = now_ms(&self.context);
        if now / HERE_MS != self.told_ms / HERE_MS {
            self.send(Recipients::All, &Message::Here(self.chain.tip().height));
            self.ask_how_far_again();
            // A member that was away has not heard of what waits.
            if self.pool.len() > 0 {
                self.outbox.extend(self.pool.encoded(AGAIN_MAX));
            }
        }
        self.told_ms = now;
        let waiting: Vec<_> = self.wanted.keys().copied().collect();
        for digest in waiting {
            self.settle(digest).await?;
        }
        if let Some(ahead) = self.ahead.clone() {
            self.finalise(ahead).await?;
            if self.ahead.is_some() {
                self.want_since();
            }
        }
        self.forget_snapshots();
        self.give_up();
        self.change_members().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MemberSecret;
    use crate::proving::Founded;

    #[test]
    fn only_blocks_that_lead_to_the_certificate_are_kept() {
        let mut founded = Founded::new(4);
        let blocks: Vec<Block> = (0..3).map(|_| founded.block(Vec::new()).0).collect();
        let certificate = founded.certify(&blocks[2].header);
        let bytes = |which: &[usize]| which.iter().map(|one| blocks[*one].encode()).collect();
        assert_eq!(chained(&certificate, bytes(&[0, 1, 2])).expect("they follow").len(), 3);
        assert!(chained(&certificate, bytes(&[0, 1])).is_err(), "they end elsewhere");
        assert!(chained(&certificate, bytes(&[0, 2])).is_err(), "one is missing");
        let mut other = Founded::seeded(4, 8);
        let foreign = other.block(Vec::new()).0.encode();
        let mixed = [vec![foreign], bytes(&[1, 2])].concat();
        assert!(chained(&certificate, mixed).is_err(), "a block beside the chain");
    }

    #[test]
    fn who_asks_without_end_is_answered_so_often() {
        let secret = MemberSecret::new(&[1; 32]).expect("a key");
        let (from, mut given) = (secret.id().key().expect("a key"), GivenOut::default());
        let answered = (0..10_000).filter(|_| given.may(&from, 5)).count();
        assert_eq!(answered, GIVEN_MAX);
        assert!(given.may(&from, 1_000), "the next second");
        given.gave(&from, GIVEN_BYTES_MAX);
        assert!(!given.may(&from, 1_001), "bytes count too");
    }
}
