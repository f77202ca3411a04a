//! How often an organisation changes who is in the view, and when that counts.
//!
//! Peers compare what they hold only where their views are the same to the byte. A certificate costs an organisation nothing; so one
//! that is told of all the time, with ever new peers or other capacities, would have any two views differ at any moment, and end
//! all comparing.
//!
//! The obvious bound is to take so many changes of it and to refuse the others. That makes it worse: each peer refuses others, by
//! what it heard first, and one burst of certificates keeps views apart for as long as it takes until all are taken. Here all are
//! taken. But of an organisation that is *hectic* the view has those that it had when that began, the same at every peer:
//!
//! ```text
//! ten minutes of the calendar |  0:10        |  0:20                 |  0:30              |  0:40
//! its changes                 |  12          |  400                  |  30                |  5
//! the view has of it          |  who it says |  who it said at 0:20, |  the same still    |  who it says
//!                             |              |  from the 65th on     |                    |
//! ```
//! Calm again, all that was heard counts, everywhere at the same time, as an expiry does.
//!
//! Each peer that a list of revoked keys takes out is a change, else a list a second would be free. By lists that name ever more all come to
//! the same so, whichever of them they heard. Who is revoked counts no more at once for all but its rank: it is not known, not a
//! member, and called by nobody.
//!
//! Limits: a view still differs from another while a change is on its way, up to [`CHANGES_MAX`] times in ten minutes for each
//! organisation. An organisation whose change reaches some before ten minutes begin and others after, and that is hectic in these, has
//! kept both apart until it is calm: nobody can tell from within where others drew the line. For [`FREE_FOR`] after its start a
//! program counts no changes, since it learns everybody then; so one that begins while an organisation is hectic knows more of
//! it than others until that ends. Nor are they counted in a network of one organisation, which has nobody to keep from comparing but
//! itself.

use std::collections::BTreeMap;
use std::time::Duration;

use crypto::OrgId;
use placement::Candidate;

use super::{At, Inner};

/// The parts of the calendar in which changes are counted, and at whose beginnings views change for the time alone, seconds.
pub(super) const SLOT_S: u64 = 600;
/// Changes that an organisation may make in one of them, each of which counts at once.
pub(super) const CHANGES_MAX: u32 = 64;
/// For how long a program counts no changes.
pub(super) const FREE_FOR: Duration = Duration::from_secs(600);

/// When a change counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    /// Now.
    AtOnce,
    /// Later, and from now on the view has of its organisation who was there before.
    NotAnyMore,
    /// Later.
    Later,
}

/// What organisations changed lately: at most as many as the roster has.
#[derive(Default)]
pub(super) struct Turnover {
    all: BTreeMap<OrgId, Turn>,
    /// One that became hectic, until that was told.
    began: Option<OrgId>,
}

/// What one organisation changed in one slot.
struct Turn {
    /// Its number.
    slot: u64,
    changes: u32,
    /// Who was in the view when it began; or, where it is hectic since an earlier one, when that one did.
    before: Vec<Candidate>,
    is_hectic: bool,
}

impl Turn {
    /// Whether it is hectic, in this slot or a later one.
    fn is_hectic(&self, slot: u64) -> bool {
        let lasts = match slot.checked_sub(self.slot) {
            Some(0) => true,
            // A calm one must pass first.
            Some(1) => self.changes > CHANGES_MAX,
            // Longer ago; or the calendar was set back.
            _ => false,
        };
        self.is_hectic && lasts
    }
}

impl Turnover {
    /// An organisation changes who is in the view; `before` says who is now.
    fn count(
        &mut self,
        organisation: OrgId,
        slot: u64,
        before: impl FnOnce() -> Vec<Candidate>,
    ) -> Counts {
        let goes_on = |turn: &Turn| turn.slot == slot || turn.is_hectic(slot);
        if !self.all.get(&organisation).is_some_and(goes_on) {
            let turn = Turn { slot, changes: 0, before: before(), is_hectic: false };
            self.all.insert(organisation, turn);
        }
        let Some(turn) = self.all.get_mut(&organisation) else { return Counts::AtOnce };
        if turn.slot != slot {
            (turn.slot, turn.changes) = (slot, 0);
        }
        turn.changes = turn.changes.saturating_add(1);
        if turn.is_hectic {
            return Counts::Later;
        }
        turn.is_hectic = turn.changes > CHANGES_MAX;
        if !turn.is_hectic {
            return Counts::AtOnce;
        }
        self.began = Some(organisation);
        Counts::NotAnyMore
    }

    /// Who is in the view, in this slot, of each organisation that is hectic.
    fn hectic(&self, slot: u64) -> BTreeMap<OrgId, &[Candidate]> {
        let hectic = self.all.iter().filter(|(_, turn)| turn.is_hectic(slot));
        hectic.map(|(organisation, turn)| (*organisation, turn.before.as_slice())).collect()
    }

    /// The organisation that became hectic since this was last asked.
    pub(super) fn take_begun(&mut self) -> Option<OrgId> {
        self.began.take()
    }

    /// Forgets everything: another roster counts, and with it perhaps other organisations.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Tells whoever runs this of an organisation that became hectic.
pub(super) fn tell_begun(begun: Option<OrgId>) {
    if let Some(organisation) = begun {
        tracing::warn!(%organisation, "an organisation changes all the time who takes part: what it changes counts when that ends");
    }
}

impl Inner {
    /// Who is in the view now, in no order.
    pub(super) fn candidates(&self, now_s: u64) -> Vec<Candidate> {
        let hectic = self.turnover.hectic(now_s / SLOT_S);
        let all = self.peers.values().filter_map(|peer| peer.candidate(now_s));
        let calm = all.filter(|candidate| !hectic.contains_key(&candidate.organisation));
        calm.chain(hectic.values().flat_map(|before| before.iter().cloned())).collect()
    }

    /// Until when that stays so by the time alone, Unix seconds.
    pub(super) fn view_lasts_until(&self, now_s: u64) -> u64 {
        let slot = now_s / SLOT_S;
        let ends = self.peers.values().map(|peer| peer.leaves_view_at());
        let ends = ends.filter(|at| now_s < *at).min().unwrap_or(u64::MAX);
        let calm = match self.turnover.hectic(slot).is_empty() {
            true => u64::MAX,
            false => (slot + 1).saturating_mul(SLOT_S),
        };
        ends.min(calm)
    }

    /// What a peer is in the view becomes something else: the view is made anew where that counts now. Called before it does.
    pub(super) fn changes(
        &mut self,
        before: Option<&Candidate>,
        after: Option<&Candidate>,
        at: At,
    ) {
        if before == after {
            return;
        }
        let of = |candidate: Option<&Candidate>| candidate.map(|one| one.organisation);
        let (old, new) = (of(before), of(after));
        let organisations = [old, new.filter(|new| Some(*new) != old)];
        for organisation in organisations.into_iter().flatten() {
            if self.count_change(organisation, at) != Counts::Later {
                self.view = None;
            }
        }
    }

    fn count_change(&mut self, organisation: OrgId, at: At) -> Counts {
        let is_new = at.elapsed.saturating_sub(self.began) < FREE_FOR;
        if is_new || self.roster.organisations().len() < 2 {
            return Counts::AtOnce;
        }
        let peers = self.peers.values();
        let before = || {
            let of_it = |one: &Candidate| one.organisation == organisation;
            peers.filter_map(|peer| peer.candidate(at.unix_s)).filter(of_it).collect()
        };
        self.turnover.count(organisation, at.unix_s / SLOT_S, before)
    }
}

#[cfg(test)]
mod tests;
