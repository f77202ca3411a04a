//! How far a member is, in its own signed words, and reads that wait until it is so far: what a client's fresh read is made of.

use super::Member;
use super::requests::{FRESH_MAX, What};
use crate::engine::pool::RETRY_MS;
use crate::engine::{Runtime, now_ms};
use crate::{CommitteeError, Position};

impl<E: Runtime> Member<E> {
    /// The highest notarisation that this member holds. One that does not vote may have forgotten higher ones, or is no member any
    /// more: it does not count.
    pub(super) fn position(&self, nonce: [u8; 32]) -> Result<Position, CommitteeError> {
        let votes = self.share.is_some() && self.term.is_member(&self.me);
        let known = self.notarised.clone().filter(|_| votes && self.has_read());
        let notarised = known.ok_or(CommitteeError::Busy { retry_ms: RETRY_MS })?;
        let (rules, secret) = (&self.charter.rules, &self.settings.links.secret);
        Position::sign(nonce, &rules.network, rules.group, notarised, secret)
    }

    /// Reads once this epoch and view, or later ones, are final: who asks has heard from enough members itself.
    pub(super) fn read_at(&mut self, what: What, at: (u64, u64)) {
        if self.chain.round() >= at {
            self.read(what);
        } else if self.fresh.len() >= FRESH_MAX {
            let _ = what.reply.send(Err(CommitteeError::Busy { retry_ms: RETRY_MS }));
        } else {
            let until_ms = now_ms(&self.context) + self.settings.answer_within.as_millis() as u64;
            self.fresh.at.push((at, what, until_ms));
        }
    }

    /// Answers those whose view is final.
    pub(super) fn answer_at(&mut self) {
        let final_to = self.chain.round();
        let ready = self.fresh.at.extract_if(.., |(at, ..)| *at <= final_to);
        let ready: Vec<_> = ready.collect();
        ready.into_iter().for_each(|(_, what, _)| self.read(what));
    }
}
