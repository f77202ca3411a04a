//! What a member says to the others, and hears from them.

use bytes::Bytes;
use commonware_codec::Encode as _;
use commonware_consensus::simplex::types::Notarization;
use commonware_p2p::Recipients;

use super::{ASK_AGAIN_MS, HEARD_MS, Member, PARKED_MAX, PARKED_OF_ONE_MAX, QUIET_MS};
use crate::certificate::{Digest, Scheme};
use crate::engine::wire::{Message, Notarised, SINCE_BLOCKS_MAX, SUBMISSIONS_MAX};
use crate::engine::{Key, Runtime, now_ms};
use crate::header::BLOCK_BYTES_MAX;
use crate::{Block, Certificate, CommitteeError, Submission};

/// How often a member says that it is there.
const HERE_MS: u64 = 1_000;
/// How many of those that wait longest are passed on again.
const AGAIN_MAX: usize = 64;
/// Bytes of submissions in one message.
const PASS_ON_BYTES: usize = 2 << 20;

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

impl<E: Runtime> Member<E> {
    /// How many members are heard, this one among them.
    pub(super) fn heard(&self) -> u32 {
        let now = now_ms(&self.context);
        let others = self.heard.values().filter(|said| **said + HEARD_MS >= now).count();
        1 + others as u32
    }

    /// Whether its journal is read: before that, what it voted on would be missing.
    pub(super) fn has_read(&self) -> bool {
        now_ms(&self.context) >= self.started_ms + QUIET_MS
    }

    pub(super) async fn hear(&mut self, from: Key, message: Bytes) -> Result<(), CommitteeError> {
        self.heard.insert(from.clone(), now_ms(&self.context));
        let Ok(message) = Message::decode(&message) else {
            tracing::warn!(%from, "a member sent what is no message");
            return Ok(());
        };
        match message {
            Message::Block(bytes) => self.take_block(from, &bytes).await?,
            Message::Submissions(all) => self.take_submissions(&all),
            Message::WantBlock(digest) => {
                if let Some(bytes) = self.bytes(&digest).await? {
                    self.send(Recipients::One(from), &Message::Block(bytes));
                }
            }
            Message::WantSince(height) => self.tell_since(from, height).await?,
            Message::Since { certificate, blocks } => {
                if let Err(error) = self.catch_up(&certificate, blocks).await {
                    if matches!(error, CommitteeError::Storage(_)) {
                        return Err(error);
                    }
                    tracing::warn!(%from, %error, "a member sent what does not follow");
                }
            }
            Message::HowFar(nonce) => {
                if let Some(notarised) = self.notarised.clone().filter(|_| self.has_read()) {
                    let answer = Message::ThisFar { nonce, notarised };
                    self.send(Recipients::One(from), &answer);
                }
            }
            Message::WantPart { digest, offset } => self.give_part(from, Some(digest), offset),
            Message::Part { certificate, total, offset, bytes } => {
                let taken = self.take_part(from.clone(), &certificate, total, offset, &bytes).await;
                if let Err(error) = taken {
                    if matches!(error, CommitteeError::Storage(_)) {
                        return Err(error);
                    }
                    self.taken = None;
                    tracing::warn!(%from, %error, "a member sent what is no snapshot");
                }
            }
            Message::ThisFar { nonce, notarised } => self.this_far(from, nonce, &notarised),
            Message::Here(height) => {
                if height > self.chain.tip().height + 1 {
                    self.want_since();
                }
            }
        }
        Ok(())
    }

    async fn take_block(&mut self, from: Key, bytes: &Bytes) -> Result<(), CommitteeError> {
        let block = match Block::decode(bytes) {
            Ok(block) => block,
            Err(error) => {
                tracing::warn!(%from, %error, "a member sent what is no block");
                return Ok(());
            }
        };
        let digest = block.header.digest();
        let asked = self.wanted.contains_key(&digest);
        let of_one = self.parked.values().filter(|(sender, ..)| *sender == from).count();
        let room = self.parked.len() < PARKED_MAX && of_one < PARKED_OF_ONE_MAX;
        if block.header.height <= self.chain.tip().height || !(asked || room) {
            return Ok(());
        }
        if self.chain.above(&digest).is_none() {
            self.parked.insert(digest, (from, block, bytes.clone()));
        }
        // What nobody asked for is not executed: a liar's blocks take no more than their bytes.
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

    fn take_submissions(&mut self, all: &[Bytes]) {
        for bytes in all {
            let Ok(submission) = Submission::decode(bytes) else { continue };
            if !self.pool.has(&submission)
                && self.is_ours(&submission)
                && let Ok(submission) = submission.verify()
            {
                // One that finds no room here waits at the member that passed it on.
                let _ = self.pool.take(submission);
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
                self.send(Recipients::One(from), &Message::Since { certificate, blocks });
            }
            // The log begins later: the whole state.
            None => self.give_part(from, None, 0),
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
        for bytes in blocks {
            let block = Block::decode(&bytes)?;
            if block.header.height > self.chain.tip().height {
                let digest = block.header.digest();
                self.parked.insert(digest, (self.me.clone(), block, bytes));
                if let Some(error) = self.execute(digest) {
                    return Err(error);
                }
            }
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

    /// Asks one of the others for what comes after the tip.
    pub(super) fn want_since(&mut self) {
        let now = now_ms(&self.context);
        if self.asked_since_ms + ASK_AGAIN_MS > now || self.taken.is_some() {
            return;
        }
        self.asked_since_ms = now;
        self.nonce = self.nonce.wrapping_add(1);
        let heard = |key: &&Key| self.heard.get(*key).is_some_and(|said| said + HEARD_MS >= now);
        let others: Vec<&Key> = self.charter.keys().iter().filter(heard).collect();
        let which = others.get(self.nonce as usize % others.len().max(1));
        if let Some(other) = which.map(|key| (*key).clone()) {
            let message = Message::WantSince(self.chain.tip().height);
            self.send(Recipients::One(other), &message);
        }
    }

    /// What is late: asked for again, given up, or told.
    pub(super) async fn tick(&mut self) -> Result<(), CommitteeError> {
        let now = now_ms(&self.context);
        if now / HERE_MS != self.told_ms / HERE_MS {
            self.send(Recipients::All, &Message::Here(self.chain.tip().height));
            self.ask_how_far();
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
        Ok(())
    }
}
