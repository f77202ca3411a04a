//! What clients ask a member.

use commonware_p2p::{AddressableManager as _, Recipients};
use version::ObjectKey;

use super::{Fresh, Member};
use crate::certificate::verify_notarised;
use crate::engine::links::addresses;
use crate::engine::pool::{RETRY_MS, Reply};
use crate::engine::wire::{Message, Notarised};
use crate::engine::{Key, Runtime, now_ms};
use crate::entry::Subject;
use crate::handle::{ReadReply, Request, Status};
use crate::{CommitteeError, Read, Submission};

/// The most fresh reads at once.
const FRESH_MAX: usize = 4_096;

/// What a read is of, and who waits for it.
pub(super) struct What {
    pub(super) object: ObjectKey,
    pub(super) branch: Box<str>,
    pub(super) reply: ReadReply,
}

impl<E: Runtime> Member<E> {
    pub(super) fn take(&mut self, request: Request) {
        match request {
            Request::Update { submission, reply } => self.update(submission, reply),
            Request::Read { object, branch, fresh, reply } => {
                let what = What { object, branch, reply };
                if fresh { self.read_fresh(what) } else { self.read(what) }
            }
            Request::Moved { members } => {
                let _ = self.oracle.overwrite(addresses(&members));
            }
            Request::Status { reply } => {
                let _ = reply.send(self.status());
            }
        }
    }

    fn status(&self) -> Status {
        let tip = self.chain.tip();
        Status {
            height: tip.height,
            time_ms: tip.time_ms,
            view: self.chain.view(),
            epoch: tip.epoch,
            members: self.charter.members(),
            needed: self.charter.quorum(),
            heard: self.heard(),
            votes: self.votes,
            waiting: self.pool.len() as u64,
            entries: self.chain.state().len() as u64,
            state_bytes: self.chain.state().bytes() as u64,
        }
    }

    fn update(&mut self, submission: Submission, reply: Reply) {
        if !self.is_ours(&submission) {
            let _ = reply.send(Err(CommitteeError::Group));
            return;
        }
        let key = submission.key();
        let submission = if self.pool.has(&submission) {
            None
        } else {
            match submission.verify() {
                Ok(submission) => Some(submission),
                Err(error) => {
                    let _ = reply.send(Err(error));
                    return;
                }
            }
        };
        if let Some(submission) = submission {
            let bytes = submission.encode();
            match self.pool.take(submission) {
                Ok(true) => self.outbox.push(bytes),
                Ok(false) => {}
                Err(error) => {
                    let _ = reply.send(Err(error));
                    return;
                }
            }
        }
        let until = now_ms(&self.context) + self.settings.answer_within.as_millis() as u64;
        self.pool.wait(&key, reply, until);
    }

    fn read(&self, what: What) {
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
        self.nonce = self.nonce.wrapping_add(1);
        let until_ms = now_ms(&self.context) + self.settings.answer_within.as_millis() as u64;
        let view = self.notarised.as_ref().map_or(0, |known| known.view);
        let from = self.has_read().then(|| self.me.clone()).into_iter().collect();
        self.fresh.push(Fresh { nonce: self.nonce, from, view, until_ms, what });
        self.send(Recipients::All, &Message::HowFar(self.nonce));
    }

    /// Asks again for fresh reads that too few answered.
    pub(super) fn ask_how_far(&mut self) {
        let needed = self.charter.quorum() as usize;
        let short = self.fresh.iter().filter(|fresh| fresh.from.len() < needed);
        let nonces: Vec<u64> = short.map(|fresh| fresh.nonce).collect();
        for nonce in nonces {
            self.send(Recipients::All, &Message::HowFar(nonce));
        }
    }

    pub(super) fn this_far(&mut self, from: Key, nonce: u64, notarised: &Notarised) {
        let Some(at) = self.fresh.iter().position(|fresh| fresh.nonce == nonce) else { return };
        let known = self.notarised.as_ref().is_some_and(|known| known == notarised)
            || notarised.view <= self.chain.view();
        let rules = &self.charter.rules;
        if !known && !verify_notarised(notarised, &rules.network, &self.charter.group) {
            tracing::warn!(%from, "a member claimed a notarisation that there is not");
            return;
        }
        if let Some(fresh) = self.fresh.get_mut(at) {
            fresh.from.insert(from);
            fresh.view = fresh.view.max(notarised.view);
        }
        self.answer_fresh();
    }

    /// Answers fresh reads whose view is final.
    pub(super) fn answer_fresh(&mut self) {
        let (needed, view) = (self.charter.quorum() as usize, self.chain.view());
        let ready = |fresh: &mut Fresh| fresh.from.len() >= needed && fresh.view <= view;
        let all: Vec<Fresh> = self.fresh.extract_if(.., ready).collect();
        all.into_iter().for_each(|fresh| self.read(fresh.what));
    }

    /// Tells those who waited too long.
    pub(super) fn give_up(&mut self) {
        let now = now_ms(&self.context);
        let (needed, heard) = (self.charter.quorum(), self.heard());
        let error = || match heard < needed {
            true => CommitteeError::NotEnoughMembers { needed, heard },
            false => CommitteeError::Busy { retry_ms: RETRY_MS },
        };
        for reply in self.pool.late(now) {
            let _ = reply.send(Err(error()));
        }
        let late = |fresh: &mut Fresh| fresh.until_ms <= now;
        for fresh in self.fresh.extract_if(.., late) {
            let _ = fresh.what.reply.send(Err(error()));
        }
    }
}
