//! What clients ask a member.

use std::collections::HashSet;

use commonware_p2p::Recipients;
use version::ObjectKey;

use super::Member;
use crate::certificate::verify_notarised;
use crate::engine::pool::{RETRY_MS, Reply};
use crate::engine::wire::{Message, Notarised};
use crate::engine::{Key, MemberId, Runtime, now_ms};
use crate::entry::Subject;
use crate::handle::{ReadReply, Request, Status};
use crate::{CommitteeError, Read, Submission};

/// The most fresh reads at once.
pub(super) const FRESH_MAX: usize = 4_096;
/// The others are asked once for all fresh reads that came within so long.
const TOGETHER_MS: u64 = 5;
/// The most questions that are asked again at once.
const AGAIN_MAX: usize = 16;

/// What a read is of, and who waits for it.
pub(super) struct What {
    pub(super) object: ObjectKey,
    pub(super) branch: Box<str>,
    pub(super) reply: ReadReply,
}

/// Fresh reads that one question to the others serves.
struct Round {
    nonce: u64,
    from: HashSet<Key>,
    /// The highest epoch and view that one of them told of.
    round: (u64, u64),
    reads: Vec<(What, u64)>,
}

/// Fresh reads under way: those that the others were not asked for yet, and the questions.
pub(super) struct FreshReads {
    waiting: Vec<(What, u64)>,
    rounds: Vec<Round>,
    /// Reads that wait for an epoch and view, which their clients learnt themselves.
    pub(super) at: Vec<((u64, u64), What, u64)>,
    nonce: u64,
    asked_ms: u64,
}

impl FreshReads {
    pub(super) const fn new(nonce: u64) -> Self {
        Self { waiting: Vec::new(), rounds: Vec::new(), at: Vec::new(), nonce, asked_ms: 0 }
    }

    pub(super) fn len(&self) -> usize {
        let asked: usize = self.rounds.iter().map(|round| round.reads.len()).sum();
        self.waiting.len() + asked
    }

    /// After how long the others are to be asked.
    pub(super) const fn wait_ms(&self, now: u64) -> u64 {
        if self.waiting.is_empty() {
            return u64::MAX;
        }
        (self.asked_ms + TOGETHER_MS).saturating_sub(now)
    }
}

impl<E: Runtime> Member<E> {
    pub(super) async fn take(&mut self, request: Request) -> Result<(), CommitteeError> {
        match request {
            Request::Update { submission, reply } => self.update(submission, reply),
            Request::Read { object, branch, fresh, reply } => {
                let what = What { object, branch, reply };
                if fresh { self.read_fresh(what) } else { self.read(what) }
            }
            Request::ReadAt { object, branch, at, reply } => {
                self.read_at(What { object, branch, reply }, at);
            }
            Request::HowFar { nonce, reply } => {
                let _ = reply.send(self.position(nonce));
            }
            Request::Moved { members } => {
                self.peers.moved(&members);
                self.track();
            }
            Request::Reshare { members, least, reply } => {
                let changing = match self.want_members(members, least).await {
                    Ok(()) => self.changing(),
                    Err(error @ CommitteeError::Storage(_)) => return Err(error),
                    Err(error) => Err(error),
                };
                let _ = reply.send(changing);
            }
            Request::Changing { reply } => {
                let _ = reply.send(self.changing());
            }
            Request::Status { reply } => {
                let _ = reply.send(self.status());
            }
        }
        Ok(())
    }

    fn status(&self) -> Status {
        let tip = self.chain.tip();
        Status {
            height: tip.height,
            time_ms: tip.time_ms,
            view: self.chain.round().1,
            epoch: tip.epoch,
            members: self.certified_members(),
            seated: self.term.is_member(&self.me),
            needed: self.term.quorum(),
            heard: self.heard(),
            votes: self.share.is_some(),
            waiting: self.pool.len() as u64,
            entries: self.chain.state().len() as u64,
            state_bytes: self.chain.state().bytes() as u64,
        }
    }

    /// The members that the newest header names. From the last block of an epoch to the first one
    /// of the next these are those before, however long that takes: a client is told no list that
    /// it cannot check with a read.
    fn certified_members(&self) -> Vec<MemberId> {
        if self.chain.tip().epoch < self.term.epoch
            && let Some(members) = self.chain.state().members()
        {
            return members.before.iter().map(|place| place.member).collect();
        }
        self.term.members()
    }

    fn update(&mut self, submission: Submission, reply: Reply) {
        if !self.is_ours(&submission) {
            let _ = reply.send(Err(CommitteeError::Group));
            return;
        }
        if self.pool.has(&submission) {
            let until = now_ms(&self.context) + self.settings.answer_within.as_millis() as u64;
            self.pool.wait(submission.key(), reply, until);
        } else {
            self.ask_check(submission, reply);
        }
    }

    pub(super) fn read(&self, what: What) {
        let What { object, branch, reply } = what;
        let Some(certificate) = self.certificate() else {
            let _ = reply.send(Err(CommitteeError::Busy { retry_ms: RETRY_MS }));
            return;
        };
        let subject = Subject::Head(&object, &branch);
        let (value, proof) =
            (self.chain.state().value(subject).cloned(), self.chain.state().prove(subject));
        let certificate = certificate.clone();
        let _ = reply.send(Ok(Read { object, branch, value, proof, certificate }));
    }

    fn read_fresh(&mut self, what: What) {
        if self.fresh.len() >= FRESH_MAX {
            let _ = what.reply.send(Err(CommitteeError::Busy { retry_ms: RETRY_MS }));
            return;
        }
        let until_ms = now_ms(&self.context) + self.settings.answer_within.as_millis() as u64;
        self.fresh.waiting.push((what, until_ms));
    }

    /// Asks the others how far they are, for all fresh reads that came since they were asked.
    pub(super) fn ask_how_far(&mut self) {
        let now = now_ms(&self.context);
        if self.fresh.wait_ms(now) > 0 {
            return;
        }
        let round = self.highest();
        let from = self.counts().then(|| self.me.clone()).into_iter().collect();
        self.fresh.asked_ms = now;
        self.fresh.nonce = self.fresh.nonce.wrapping_add(1);
        let (nonce, reads) = (self.fresh.nonce, std::mem::take(&mut self.fresh.waiting));
        self.fresh.rounds.push(Round { nonce, from, round, reads });
        self.send(Recipients::All, &Message::HowFar(nonce));
    }

    /// Whether what this member knows counts as one member's word of how far it is.
    fn counts(&self) -> bool {
        self.has_read() && self.term.is_member(&self.me) && !self.chain.may_be_over()
    }

    /// The highest round that this member knows of.
    pub(super) fn highest(&self) -> (u64, u64) {
        let notarised = self.notarised.as_ref().map_or((0, 0), Notarised::round);
        notarised.max(self.chain.round())
    }

    /// What the members of another epoch said counts for nothing in this one.
    pub(super) fn forget_how_far(&mut self) {
        let round = self.chain.round();
        for one in &mut self.fresh.rounds {
            one.from.clear();
            one.round = round;
        }
    }

    /// Asks again for fresh reads that too few answered.
    pub(super) fn ask_how_far_again(&mut self) {
        let needed = self.term.quorum() as usize;
        if self.counts() {
            let highest = self.highest();
            for one in &mut self.fresh.rounds {
                one.from.insert(self.me.clone());
                one.round = one.round.max(highest);
            }
        }
        let short = self.fresh.rounds.iter().filter(|round| round.from.len() < needed);
        let nonces: Vec<u64> = short.map(|round| round.nonce).take(AGAIN_MAX).collect();
        for nonce in nonces {
            self.send(Recipients::All, &Message::HowFar(nonce));
        }
        self.answer_fresh();
    }

    pub(super) fn this_far(&mut self, from: Key, nonce: u64, notarised: &Notarised) {
        let Some(at) = self.fresh.rounds.iter().position(|round| round.nonce == nonce) else {
            return;
        };
        if !self.term.is_member(&from) {
            return;
        }
        let known = self.notarised.as_ref().is_some_and(|known| known == notarised)
            || notarised.round() <= self.chain.round();
        let rules = &self.charter.rules;
        if !known && !verify_notarised(notarised, &rules.network, &self.charter.group) {
            self.offended(&from, "claimed a notarisation that there is not");
            return;
        }
        if let Some(round) = self.fresh.rounds.get_mut(at) {
            round.from.insert(from);
            round.round = round.round.max(notarised.round());
        }
        self.answer_fresh();
    }

    /// Answers fresh reads whose view is final.
    pub(super) fn answer_fresh(&mut self) {
        let (needed, final_to) = (self.term.quorum() as usize, self.chain.round());
        let ready = |one: &mut Round| one.from.len() >= needed && one.round <= final_to;
        let all: Vec<Round> = self.fresh.rounds.extract_if(.., ready).collect();
        all.into_iter().flat_map(|round| round.reads).for_each(|(what, _)| self.read(what));
        self.answer_at();
    }

    /// Tells those who waited too long.
    pub(super) fn give_up(&mut self) {
        let now = now_ms(&self.context);
        let (needed, heard) = (self.term.quorum(), self.heard());
        let error = || match heard < needed {
            true => CommitteeError::NotEnoughMembers { needed, heard },
            false => CommitteeError::Busy { retry_ms: RETRY_MS },
        };
        for reply in self.pool.late(now) {
            let _ = reply.send(Err(error()));
        }
        let late = |(_, until_ms): &mut (What, u64)| *until_ms <= now;
        let FreshReads { waiting, rounds, at, .. } = &mut self.fresh;
        let late_at = at.extract_if(.., |(_, _, until_ms)| *until_ms <= now);
        let late_at: Vec<_> = late_at.map(|(_, what, until_ms)| (what, until_ms)).collect();
        let rounds_late = rounds.iter_mut().flat_map(|round| round.reads.extract_if(.., late));
        let all: Vec<(What, u64)> =
            rounds_late.chain(waiting.extract_if(.., late)).chain(late_at).collect();
        rounds.retain(|round| !round.reads.is_empty());
        for (what, _) in all {
            let _ = what.reply.send(Err(error()));
        }
    }
}
