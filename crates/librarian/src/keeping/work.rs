//! What is to be done: copies to fetch, stripes to mend.
//!
//! It is a list in memory and no promise: after a crash the same comparisons make the same list.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crypto::{PeerId, Place, RecordId};

/// Copies that are lacking and remembered; more come again with a later comparison.
pub(crate) const LACKING_MAX: usize = 1 << 16;
/// Stripes that are to be mended and remembered.
pub(crate) const DUE_MAX: usize = 1 << 16;
/// Holders remembered of one copy.
const HOLDERS_MAX: usize = 4;
/// Of the copies that lack, those that one peer told of first: one that tells of many leaves room for others.
const LACKING_OF_ONE_MAX: usize = LACKING_MAX / 8;
/// Stripes remembered that nobody can mend.
const GIVEN_UP_MAX: usize = 4096;
/// Copies remembered that were fetched and are not to be kept here, and for how long.
const REFUSED_MAX: usize = 1 << 16;
const REFUSED_FOR: Duration = Duration::from_secs(3600);
/// Tries of a stripe that others' claims may end, until it is mended all the same.
const BLOCKED_MAX: u32 = 3;

/// With so few fragments to spare a stripe waits for nothing, unless it lacks less and less.
const SPARE_MIN: i32 = 1;
/// For how long a stripe of which a fragment more is seen is left to whoever stores it, and one with few to spare: a put over a
/// slow line takes minutes. A peer that tells now of more and now of fewer fragments gains no more than this.
const GROWS_MAX: Duration = Duration::from_secs(300);
const GROWS_IN_DANGER_MAX: Duration = Duration::from_secs(120);

/// A copy that should be here.
struct Lacking {
    since: Duration,
    /// How many of those whose duty it is first are absent.
    missing: usize,
    holders: Vec<PeerId>,
    /// Who told of it first.
    told_by: PeerId,
    /// Whether somebody asked for it now.
    hurried: bool,
}

/// A stripe that is to be mended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) since: Duration,
    /// Since when it has lacked something.
    first: Duration,
    /// Whole fragments less k; negative: nobody can read it now.
    pub(crate) spare: i32,
    /// Fragments to make.
    pub(crate) missing: usize,
    /// Not to be tried before.
    pub(crate) not_before: Duration,
    pub(crate) tries: u32,
    /// Tries that others' claims ended.
    blocked: u32,
    /// Whether somebody asked for it now.
    pub(crate) hurried: bool,
    /// When that was last: who asks all the time has it tried no more often.
    hurried_at: Option<Duration>,
}

/// How often everything is done at once for who asks.
const HURRY_ALL_EVERY: Duration = Duration::from_secs(60);
/// How often one stripe is: a try that fails costs up to k fragments.
const HURRY_EVERY: Duration = Duration::from_secs(10);

/// Everything that is to be done.
#[derive(Default)]
pub(crate) struct Work {
    lacking: BTreeMap<(RecordId, Place), Lacking>,
    /// How many of these each peer told of first.
    told_by: BTreeMap<PeerId, usize>,
    /// Copies that are not fetched again before, each from the one that sent what was not to be kept: whoever lies about a record, its
    /// kind or its leases keeps nobody from fetching it elsewhere.
    refused: BTreeMap<(RecordId, PeerId), Duration>,
    pub(crate) due: BTreeMap<RecordId, Due>,
    /// Fragments that are here and at another peer too.
    pub(crate) twice: BTreeMap<RecordId, (u8, PeerId)>,
    given_up: BTreeSet<RecordId>,
    /// Peers from which nothing is fetched before this time, as long as others have something.
    resting: BTreeMap<PeerId, Duration>,
    /// When everything was hurried last.
    hurried_all: Option<Duration>,
    /// Stripes being mended.
    pub(crate) mending: usize,
}

impl Work {
    /// A copy is not here that a peer has.
    pub(crate) fn lacks(
        &mut self,
        id: RecordId,
        place: Place,
        missing: usize,
        holder: PeerId,
        now: Duration,
    ) {
        if self.refused.get(&(id, holder)).is_some_and(|until| now < *until) {
            return;
        }
        if let Some(lacking) = self.lacking.get_mut(&(id, place)) {
            if !lacking.holders.contains(&holder) && lacking.holders.len() < HOLDERS_MAX {
                lacking.holders.push(holder);
            }
            return;
        }
        let told = self.told_by.entry(holder).or_default();
        if self.lacking.len() < LACKING_MAX && *told < LACKING_OF_ONE_MAX {
            *told += 1;
            let lacking = Lacking {
                since: now,
                missing,
                holders: vec![holder],
                told_by: holder,
                hurried: false,
            };
            self.lacking.insert((id, place), lacking);
        }
    }

    /// How many copies lack.
    pub(crate) fn lacking(&self) -> usize {
        self.lacking.len()
    }

    /// Whether something is to be done about what lives at a place.
    pub(crate) fn concerns(&self, place: &Place) -> bool {
        let id = RecordId::new(*place.as_bytes());
        self.due.contains_key(&id) || self.lacking.keys().any(|(_, of)| of == place)
    }

    /// Does what lacks at these places now, or everywhere where none are named, without waiting for more to be missed.
    pub(crate) fn hurry(&mut self, places: &[Place], now: Duration) {
        if places.is_empty() {
            // Any client may ask: what cannot be mended is not to be tried all the time for it.
            let again = self.hurried_all.is_none_or(|last| now >= last + HURRY_ALL_EVERY);
            if !again {
                return;
            }
            self.hurried_all = Some(now);
        }
        let named: BTreeSet<&Place> = places.iter().collect();
        let is_named = |place: &Place| named.is_empty() || named.contains(place);
        let due = self.due.iter_mut().filter(|(id, _)| is_named(&Place::from(**id)));
        for (_, due) in due {
            due.hurried = true;
            if due.hurried_at.is_none_or(|last| now >= last + HURRY_EVERY) {
                (due.hurried_at, due.not_before) = (Some(now), now);
            }
        }
        let lacking = self.lacking.iter_mut().filter(|((_, place), _)| is_named(place));
        lacking.for_each(|(_, lacking)| lacking.hurried = true);
    }

    /// A copy lacks no more.
    pub(crate) fn found(&mut self, id: &RecordId, place: &Place) {
        if let Some(lacking) = self.lacking.remove(&(*id, *place))
            && let Some(told) = self.told_by.get_mut(&lacking.told_by)
        {
            *told -= 1;
            if *told == 0 {
                self.told_by.remove(&lacking.told_by);
            }
        }
    }

    /// Forgets copies that should not be here any more, now that other peers are there, and what was refused: it may be this
    /// peer's to hold by now.
    pub(crate) fn only_those(&mut self, should_be_here: impl Fn(&Place) -> bool) {
        self.refused.clear();
        let gone: Vec<(RecordId, Place)> =
            self.lacking.keys().filter(|(_, place)| !should_be_here(place)).copied().collect();
        gone.iter().for_each(|(id, place)| self.found(id, place));
    }

    /// A copy was fetched and is not to be kept here: that holder is not asked for it again for a while.
    pub(crate) fn refuse(&mut self, id: &RecordId, place: &Place, holder: &PeerId, now: Duration) {
        self.not_at(id, place, holder);
        if self.refused.len() >= REFUSED_MAX {
            self.refused.retain(|_, until| now < *until);
        }
        if self.refused.len() < REFUSED_MAX {
            self.refused.insert((*id, *holder), now + REFUSED_FOR);
        }
    }

    /// Notes that another's claim ended a try; whether it does.
    pub(crate) fn is_blocked(&mut self, id: &RecordId) -> bool {
        let Some(due) = self.due.get_mut(id) else { return true };
        due.blocked += 1;
        due.blocked <= BLOCKED_MAX
    }

    /// A stripe lacks something, or lacks nothing any more.
    pub(crate) fn stripe(&mut self, id: RecordId, state: Option<(usize, i32)>, now: Duration) {
        let Some((missing, spare)) = state else {
            self.due.remove(&id);
            return;
        };
        if self.given_up.contains(&id) {
            return;
        }
        if let Some(due) = self.due.get_mut(&id) {
            // Peers of one organisation die together and are missed one after the other: making what lacks costs k
            // fragments each time, so it waits until no more are missed, unless few are left.
            // One that lacks less than before and that nobody began to mend is being stored.
            let untouched = due.tries == 0 && !due.hurried;
            let most = if spare > SPARE_MIN { GROWS_MAX } else { GROWS_IN_DANGER_MAX };
            let grows = missing < due.missing && untouched && now.saturating_sub(due.first) < most;
            if grows || (due.missing != missing && spare > SPARE_MIN) {
                due.since = now;
            }
            (due.spare, due.missing) = (spare, missing);
        } else if self.due.len() < DUE_MAX {
            let due = Due {
                since: now,
                first: now,
                spare,
                missing,
                not_before: now,
                tries: 0,
                blocked: 0,
                hurried: false,
                hurried_at: None,
            };
            self.due.insert(id, due);
        }
    }

    /// A fragment that is here is at another peer too.
    pub(crate) fn is_twice(&mut self, stripe: RecordId, index: u8, other: PeerId) {
        if self.twice.len() < DUE_MAX {
            self.twice.insert(stripe, (index, other));
        }
    }

    /// Leaves a stripe for good, as its author made it.
    pub(crate) fn give_up(&mut self, id: RecordId) {
        self.due.remove(&id);
        if self.given_up.len() >= GIVEN_UP_MAX {
            self.given_up.clear();
        }
        self.given_up.insert(id);
    }

    /// Puts a try off.
    pub(crate) fn later(&mut self, id: &RecordId, now: Duration, by: Duration) {
        if let Some(due) = self.due.get_mut(id) {
            due.tries = due.tries.saturating_add(1);
            due.not_before = now + by * due.tries.min(10);
        }
    }

    /// Copies that have been lacking for so long, the most urgent first, of one holder.
    pub(crate) fn pulls(
        &self,
        now: Duration,
        settle: Duration,
        most: usize,
    ) -> Option<(PeerId, Vec<(RecordId, Place)>)> {
        let is_ready =
            |lacking: &&Lacking| lacking.hurried || now.saturating_sub(lacking.since) >= settle;
        let rests = |peer: &&PeerId| self.rests(peer, now);
        let ready = self.lacking.values().filter(is_ready);
        let best = |lacking: &Lacking| {
            let holder = lacking.holders.iter().find(|peer| !rests(peer));
            let rested = holder.is_some();
            let holder = *holder.or_else(|| lacking.holders.first())?;
            Some((rested, lacking.missing, holder))
        };
        let (_, _, holder) =
            ready.filter_map(best).max_by_key(|(rested, missing, _)| (*rested, *missing))?;
        let mut all: Vec<(usize, RecordId, Place)> = self
            .lacking
            .iter()
            .filter(|(_, lacking)| is_ready(lacking) && lacking.holders.contains(&holder))
            .map(|((id, place), lacking)| (lacking.missing, *id, *place))
            .collect();
        all.sort_by_key(|(missing, ..)| std::cmp::Reverse(*missing));
        all.truncate(most);
        Some((holder, all.into_iter().map(|(_, id, place)| (id, place)).collect()))
    }

    /// A holder let its caller wait, or broke off: whoever else has something goes first for a while.
    pub(crate) fn rest(&mut self, holder: PeerId, until: Duration) {
        self.resting.insert(holder, until);
    }

    /// Whether it is that one's while.
    pub(crate) fn rests(&self, holder: &PeerId, now: Duration) -> bool {
        self.resting.get(holder).is_some_and(|until| now < *until)
    }

    /// A holder did not have it after all, or does not answer.
    pub(crate) fn not_at(&mut self, id: &RecordId, place: &Place, holder: &PeerId) {
        if let Some(lacking) = self.lacking.get_mut(&(*id, *place)) {
            lacking.holders.retain(|known| known != holder);
            if lacking.holders.is_empty() {
                self.found(id, place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_that_is_being_stored_is_left_alone_and_not_for_ever() {
        let id = RecordId::new([7; 32]);
        let at = Duration::from_secs;
        let mut work = Work::default();
        // A fragment every twelve seconds: nobody can read it at first.
        for (fragments, seconds) in (1..8).zip((0..).step_by(12)) {
            work.stripe(id, Some((8 - fragments, fragments as i32 - 4)), at(seconds));
            assert_eq!(work.due[&id].since, at(seconds), "{fragments} of 8");
        }
        // It is whole, and later it loses some: as far as there are enough to spare, it waits until no more are missed.
        work.stripe(id, None, at(140));
        work.stripe(id, Some((1, 3)), at(1_000));
        work.stripe(id, Some((2, 2)), at(1_010));
        assert_eq!(work.due[&id].since, at(1_010));
        work.stripe(id, Some((3, 1)), at(1_014));
        assert_eq!(work.due[&id].since, at(1_010), "it is in danger");
        // A peer tells now of more and now of fewer.
        for seconds in (1_020..2_000).step_by(10) {
            let missing = 3 + usize::from(seconds % 20 == 0);
            work.stripe(id, Some((missing, 4 - missing as i32)), at(seconds));
        }
        assert!(work.due[&id].since <= at(1_000) + GROWS_IN_DANGER_MAX);
        assert!(work.due[&id].since > at(1_010), "some of it was believed");
    }

    #[test]
    fn who_asks_for_it_all_the_time_has_it_tried_no_more_often() {
        let at = Duration::from_secs;
        let (id, other) = (RecordId::new([7; 32]), RecordId::new([8; 32]));
        let mut work = Work::default();
        for id in [id, other] {
            work.stripe(id, Some((3, 1)), at(0));
        }
        let mut fails = |places: &[Place], seconds: u64| {
            work.hurry(places, at(seconds));
            let tried = work.due[&id].not_before <= at(seconds);
            if tried {
                work.later(&id, at(seconds), at(600));
            }
            assert!(work.due[&id].hurried);
            tried
        };
        let tried: Vec<u64> = (1..200).filter(|seconds| fails(&[], *seconds)).collect();
        assert_eq!(tried, [1, 61, 121, 181]);
        let named = [Place::from(id)];
        let tried: Vec<u64> = (200..230).filter(|seconds| fails(&named, *seconds)).collect();
        assert_eq!(tried, [200, 210, 220]);
        assert_eq!(work.due[&other].not_before, at(181), "it was not named");
    }
}
