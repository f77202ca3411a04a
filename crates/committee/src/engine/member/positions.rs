//! How far a member is, in its own signed words, and reads that wait until it is so far: what a client's fresh read is made of.

use super::Member;
use super::requests::What;
use crate::engine::pool::RETRY_MS;
use crate::engine::wire::Notarised;
use crate::engine::{Runtime, now_ms};
use crate::{CommitteeError, Position};

/// The most reads that wait for a view.
const AT_MAX: usize = 4_096;
/// A read waits for a view that is so far ahead of what this member knows; for a later one it is asked at another member.
const AHEAD_VIEWS: u64 = 64;

/// Whether a view is further ahead of what is known than any member is; a later epoch's is, unless
/// this member's own is that one.
const fn is_far((epoch, view): (u64, u64), own: u64, at: (u64, u64)) -> bool {
    if at.0 > epoch {
        return at.0 > own || at.1 > AHEAD_VIEWS;
    }
    at.0 == epoch && at.1 > view.saturating_add(AHEAD_VIEWS)
}

impl<E: Runtime> Member<E> {
    /// The highest notarisation that this member holds. One that does not vote may have forgotten higher ones, or is no member any
    /// more: it does not count. Nor does one that cannot say in which epoch it is ([`Member::told`]).
    pub(super) fn position(&self, nonce: [u8; 32]) -> Result<Position, CommitteeError> {
        let votes = self.share.is_some() && self.term.is_member(&self.me);
        let known = self.told().filter(|_| votes).cloned();
        let notarised = known.ok_or(CommitteeError::Busy { retry_ms: RETRY_MS })?;
        let (rules, secret) = (&self.charter.rules, &self.settings.links.secret);
        Position::sign(nonce, &rules.network, rules.group, notarised, secret)
    }

    /// The highest notarisation that this member tells of. While a block that ends the epoch is above the tip there is none: f + 1 honest
    /// members have it so, or know it to be final, before anything of the next epoch is answered. So no n - f of them tell of the epoch
    /// before as if nothing came after it.
    pub(super) fn told(&self) -> Option<&Notarised> {
        self.notarised.as_ref().filter(|_| self.has_read() && !self.chain.may_be_over())
    }

    /// Reads once this epoch and view, or later ones, are final: who asks has heard from enough members itself.
    pub(super) fn read_at(&mut self, what: What, at: (u64, u64)) {
        // As far as any member is, or nearly: strangers' impossible ones would keep the room from others.
        let far = is_far(self.highest(), self.term.epoch, at);
        if self.fresh.at.len() >= AT_MAX {
            // Who is gone keeps no room from others.
            self.fresh.at.retain(|(_, what, _)| !what.reply.is_closed());
        }
        if self.chain.round() >= at {
            self.read(what);
        } else if far || self.fresh.at.len() >= AT_MAX {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_waits_for_a_view_that_is_near_alone() {
        let known = (3, 100);
        for near in [(2, u64::MAX), (3, 99), (3, 100 + AHEAD_VIEWS)] {
            assert!(!is_far(known, 3, near) && !is_far(known, 4, near), "{near:?}");
        }
        let far = [(3, 101 + AHEAD_VIEWS), (4, 1 + AHEAD_VIEWS), (5, 0), (u64::MAX, u64::MAX)];
        for far in far {
            assert!(is_far(known, 3, far) && is_far(known, 4, far), "{far:?}");
        }
        // Of the next epoch once this member's has ended.
        for next in [(4, 0), (4, AHEAD_VIEWS)] {
            assert!(is_far(known, 3, next) && !is_far(known, 4, next), "{next:?}");
        }
    }
}
