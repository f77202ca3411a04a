//! What is to be done: copies to fetch, stripes to mend.
//!
//! It is a list in memory and no promise: after a crash the same comparisons make the same list.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use crypto::{PeerId, Place, RecordId};

/// Copies that are lacking and remembered; more come again with a later comparison.
pub(crate) const LACKING_MAX: usize = 1 << 16;
/// Stripes that are to be mended and remembered, of those that can be as far as is known.
pub(crate) const DUE_MAX: usize = 1 << 16;
/// Of the others: those of which too few fragments are left, and those that were tried in vain. Any author can make thousands of them.
pub(crate) const STUCK_MAX: usize = 1 << 14;
/// Of these, how many were tried once and make room together: each time all of them are looked through.
const SHED_MIN: usize = STUCK_MAX / 4;
/// Tries that fetched or sent in vain from which on a stripe is in nobody's way.
const FAILED_MAX: u32 = 2;
/// Holders remembered of one copy.
const HOLDERS_MAX: usize = 4;
/// Of the copies that lack, those that one peer told of first: one that tells of many leaves room for others.
const LACKING_OF_ONE_MAX: usize = LACKING_MAX / 8;
/// Stripes remembered that nobody can mend.
const GIVEN_UP_MAX: usize = 4096;
/// Copies remembered that were fetched and are not to be kept here, and for how long.
const REFUSED_MAX: usize = 1 << 16;
const REFUSED_FOR: Duration = Duration::from_secs(3600);
/// The longest that a stripe which could not be mended is put off.
const STUCK_LATER_MAX: Duration = Duration::from_secs(3600);
/// How often all stripes are looked at for those that found no room, at most.
const LOOK_AGAIN_EVERY: Duration = Duration::from_secs(60);
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
    /// Whether it is being fetched.
    asked: bool,
}

/// What a stripe lacks, as far as is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    /// Fragments to make.
    pub(crate) missing: usize,
    /// Whole fragments less k; negative: nobody can read it now.
    pub(crate) spare: i32,
    /// Whether this peer can do something about it.
    pub(crate) mendable: bool,
}

/// A stripe that is to be mended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) since: Duration,
    /// Since when it has lacked something.
    first: Duration,
    pub(crate) lack: Lack,
    /// Not to be tried before.
    pub(crate) not_before: Duration,
    pub(crate) tries: u32,
    /// Tries that fetched or sent in vain.
    failed: u32,
    /// Tries that others' claims ended.
    blocked: u32,
    /// Whether somebody asked for it now.
    pub(crate) hurried: bool,
    /// When that was last: who asks all the time has it tried no more often.
    hurried_at: Option<Duration>,
}

impl Due {
    /// Whether others go first, and it is tried ever more seldom: nobody can mend it now, or nobody could. Else whoever stores headers
    /// without fragments would have nothing else mended.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.lack.mendable || self.failed >= FAILED_MAX
    }

    /// Whether all that may have something of it were asked, and too few of them do: nothing is left to be done.
    fn is_hopeless(&self) -> bool {
        self.lack.spare < 0 && !self.lack.mendable && self.tries > 0
    }
}

/// How often everything is done at once for who asks.
const HURRY_ALL_EVERY: Duration = Duration::from_secs(60);
/// How often one stripe is: a try that fails costs up to k fragments.
const HURRY_EVERY: Duration = Duration::from_secs(10);

/// Everything that is to be done.
#[derive(Default)]
pub(crate) struct Work {
    lacking: BTreeMap<(RecordId, Place), Lacking>,
    /// The same by their places.
    places: BTreeSet<(Place, RecordId)>,
    /// How many of these each peer told of first.
    told_by: BTreeMap<PeerId, usize>,
    /// Copies that are not fetched again before, each from the one that sent what was not to be kept: whoever lies about a record, its
    /// kind or its leases keeps nobody from fetching it elsewhere.
    refused: BTreeMap<(RecordId, PeerId), Duration>,
    pub(crate) due: BTreeMap<RecordId, Due>,
    /// How many of these are stuck, and of those how many were tried.
    stuck: usize,
    stuck_tried: usize,
    /// Whether stripes that could be mended found no room, and whether they are looked for now.
    left_out: bool,
    looking: bool,
    /// When they were looked for last.
    looked_at: Option<Duration>,
    /// Stripes that are claimed or mended here now.
    at_work: BTreeSet<RecordId>,
    /// Fragments that are here and at another peer too.
    pub(crate) twice: BTreeMap<RecordId, (u8, PeerId)>,
    given_up: BTreeSet<RecordId>,
    /// Peers from which nothing is fetched before this time, as long as others have something.
    resting: BTreeMap<PeerId, Duration>,
    /// Peers from which something is being fetched.
    pulling: BTreeSet<PeerId>,
    /// How often something was to be fetched, and by that number when it was so from each peer last.
    pulls: u64,
    turns: BTreeMap<PeerId, u64>,
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
                asked: false,
            };
            self.lacking.insert((id, place), lacking);
            self.places.insert((place, id));
        }
    }

    /// How many copies lack.
    pub(crate) fn lacking(&self) -> usize {
        self.lacking.len()
    }

    /// Whether something is to be done about what lives at a place.
    pub(crate) fn concerns(&self, place: &Place) -> bool {
        let id = RecordId::new(*place.as_bytes());
        self.due.contains_key(&id) || self.lacking_at(place).next().is_some()
    }

    /// What lacks at a place.
    fn lacking_at(&self, place: &Place) -> impl Iterator<Item = RecordId> {
        let [first, last] = [u8::MIN, u8::MAX].map(|byte| (*place, RecordId::new([byte; 32])));
        self.places.range(first..=last).map(|(_, id)| *id)
    }

    /// Does what lacks at these places now, or everywhere where none are named, without waiting for more to be missed.
    pub(crate) fn hurry(&mut self, places: &[Place], now: Duration) {
        let hurry = |due: &mut Due| {
            due.hurried = true;
            if due.hurried_at.is_none_or(|last| now >= last + HURRY_EVERY) {
                (due.hurried_at, due.not_before) = (Some(now), now);
            }
        };
        if places.is_empty() {
            // Any client may ask: what cannot be mended is not to be tried all the time for it.
            let again = self.hurried_all.is_none_or(|last| now >= last + HURRY_ALL_EVERY);
            if again {
                self.hurried_all = Some(now);
                // Those of which nobody can say more than before are tried when they are named.
                self.due.values_mut().filter(|due| !due.is_stuck()).for_each(hurry);
                self.lacking.values_mut().for_each(|lacking| lacking.hurried = true);
            }
            return;
        }
        for place in places.iter().collect::<BTreeSet<_>>() {
            self.due.get_mut(&RecordId::new(*place.as_bytes())).into_iter().for_each(&hurry);
            let ids: Vec<RecordId> = self.lacking_at(place).collect();
            for id in ids {
                let lacking = self.lacking.get_mut(&(id, *place));
                lacking.into_iter().for_each(|lacking| lacking.hurried = true);
            }
        }
    }

    /// A copy lacks no more.
    pub(crate) fn found(&mut self, id: &RecordId, place: &Place) {
        self.places.remove(&(*place, *id));
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
    pub(crate) fn stripe(&mut self, id: RecordId, lack: Option<Lack>, now: Duration) {
        let known = self.take(&id);
        let Some(lack) = lack.filter(|_| !self.given_up.contains(&id)) else { return };
        let due = match known {
            Some(mut due) => {
                // Peers of one organisation die together and are missed one after the other: making what lacks costs k
                // fragments each time, so it waits until no more are missed, unless few are left.
                // One that lacks less than before and that nobody began to mend is being stored.
                let untouched = due.tries == 0 && !due.hurried;
                let most = if lack.spare > SPARE_MIN { GROWS_MAX } else { GROWS_IN_DANGER_MAX };
                let before = due.lack;
                let grows = lack.missing < before.missing
                    && untouched
                    && now.saturating_sub(due.first) < most;
                if grows || (before.missing != lack.missing && lack.spare > SPARE_MIN) {
                    due.since = now;
                }
                // What is back may be what it waited for.
                if lack.mendable && !before.mendable {
                    (due.since, due.not_before) = (now, now);
                }
                due.lack = lack;
                due
            }
            None => Due {
                since: now,
                first: now,
                lack,
                not_before: now,
                tries: 0,
                failed: 0,
                blocked: 0,
                hurried: false,
                hurried_at: None,
            },
        };
        self.put(id, due);
    }

    /// Takes a stripe out, to be changed and put back.
    fn take(&mut self, id: &RecordId) -> Option<Due> {
        let due = self.due.remove(id)?;
        self.stuck -= usize::from(due.is_stuck());
        self.stuck_tried -= usize::from(due.is_stuck() && due.tries > 0);
        Some(due)
    }

    /// Puts a stripe that is not there where there is room for its sort.
    fn put(&mut self, id: RecordId, due: Due) {
        let stuck = due.is_stuck();
        if stuck && self.stuck >= STUCK_MAX && self.stuck_tried >= SHED_MIN {
            // They come again with what is learnt of them, or with the next look at all.
            let mut left_out = false;
            self.due.retain(|_, due| {
                let goes = due.is_stuck() && due.tries > 0;
                left_out |= goes && due.lack.mendable;
                !goes
            });
            self.left_out |= left_out;
            self.stuck -= std::mem::take(&mut self.stuck_tried);
        }
        let room = match stuck {
            true => self.stuck < STUCK_MAX,
            false => self.due.len() - self.stuck < DUE_MAX,
        };
        if room {
            self.stuck += usize::from(stuck);
            self.stuck_tried += usize::from(stuck && due.tries > 0);
            self.due.insert(id, due);
        } else {
            // Of what nobody can mend more is not remembered than that: where that changes, the change says so.
            self.left_out |= due.lack.mendable;
        }
    }

    /// Whether all stripes are to be looked at again for those that found no room; if so, until [`Work::looked`].
    pub(crate) fn looks_again(&mut self, now: Duration) -> bool {
        let few = self.due.len() - self.stuck < DUE_MAX / 2;
        let again = self.looked_at.is_none_or(|last| now >= last + LOOK_AGAIN_EVERY);
        if !(self.left_out && few && again) {
            return false;
        }
        (self.left_out, self.looking, self.looked_at) = (false, true, Some(now));
        true
    }

    /// All stripes were looked at.
    pub(crate) fn looked(&mut self) {
        self.looking = false;
    }

    /// Whether nothing is left to be done about stripes.
    pub(crate) fn is_done(&self) -> bool {
        !self.left_out && !self.looking && self.due.values().all(Due::is_hopeless)
    }

    /// Notes that these are claimed and mended from now on: nobody else here begins with them.
    pub(crate) fn begin(&mut self, stripes: &[RecordId]) {
        self.at_work.extend(stripes);
    }

    /// Notes that they are not any more.
    pub(crate) fn end(&mut self, stripes: &[RecordId]) {
        self.at_work.retain(|id| !stripes.contains(id));
    }

    /// Whether a stripe is being mended here.
    pub(crate) fn is_at_work(&self, id: &RecordId) -> bool {
        self.at_work.contains(id)
    }

    /// A fragment that is here is at another peer too.
    pub(crate) fn is_twice(&mut self, stripe: RecordId, index: u8, other: PeerId) {
        if self.twice.len() < DUE_MAX {
            self.twice.insert(stripe, (index, other));
        }
    }

    /// The next stripe behind this one of which a fragment is here and at another peer too, which one, and at whom.
    pub(crate) fn next_twice(&self, behind: Option<RecordId>) -> Option<(RecordId, u8, PeerId)> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let (stripe, (index, other)) = self.twice.range((from, Bound::Unbounded)).next()?;
        Some((*stripe, *index, *other))
    }

    /// Leaves a stripe for good, as its author made it.
    pub(crate) fn give_up(&mut self, id: RecordId) {
        self.take(&id);
        if self.given_up.len() >= GIVEN_UP_MAX {
            self.given_up.clear();
        }
        self.given_up.insert(id);
    }

    /// Puts a try off: each time by as much more, one that is stuck by twice as much.
    pub(crate) fn later(&mut self, id: &RecordId, now: Duration, by: Duration) {
        let Some(mut due) = self.take(id) else { return };
        due.tries = due.tries.saturating_add(1);
        let by = match due.is_stuck() {
            true => (by * (1 << (due.tries - 1).min(16))).min(STUCK_LATER_MAX),
            false => by * due.tries.min(10),
        };
        due.not_before = now + by;
        self.put(*id, due);
    }

    /// Others are there, or take something again: what nobody could mend is tried like any other once more.
    pub(crate) fn anew(&mut self, now: Duration) {
        let stuck = self.due.iter().filter(|(_, due)| due.is_stuck());
        let stuck: Vec<RecordId> = stuck.map(|(id, _)| *id).collect();
        for id in stuck {
            let Some(mut due) = self.take(&id) else { continue };
            due.not_before = due.not_before.min(now);
            due.failed = due.failed.min(FAILED_MAX - 1);
            self.put(id, due);
        }
    }

    /// Of those that give theirs there are too few for it: it is tried beside the others.
    pub(crate) fn doubt(&mut self, id: &RecordId) {
        let Some(mut due) = self.take(id) else { return };
        due.failed = due.failed.max(FAILED_MAX);
        self.put(*id, due);
    }

    /// Notes that a try fetched or sent in vain.
    pub(crate) fn failed(&mut self, id: &RecordId) {
        let Some(mut due) = self.take(id) else { return };
        due.failed = due.failed.saturating_add(1);
        self.put(*id, due);
    }

    /// Copies that have been lacking for so long and are not being fetched, the most urgent first, of one holder from which nothing is
    /// being fetched: now of who has the most urgent, now of who waited longest, since a liar's are all urgent. Until
    /// [`Work::pulled`] no other holder is asked for them.
    pub(crate) fn pulls(
        &mut self,
        now: Duration,
        settle: Duration,
        most: usize,
    ) -> Option<(PeerId, Vec<(RecordId, Place)>)> {
        let is_ready = |lacking: &Lacking| {
            let settled = lacking.hurried || now.saturating_sub(lacking.since) >= settle;
            settled && !lacking.asked
        };
        let best = |lacking: &Lacking| {
            let free = || lacking.holders.iter().filter(|peer| !self.pulling.contains(*peer));
            let holder = free().find(|peer| !self.rests(peer, now));
            let rested = holder.is_some();
            Some((rested, lacking.missing, *holder.or_else(|| free().next())?))
        };
        let in_turn = self.pulls % 2 == 1;
        let key = |(rested, missing, holder): &(bool, usize, PeerId)| {
            let last = self.turns.get(holder).copied().unwrap_or(0);
            (*rested, if in_turn { 0 } else { *missing }, Reverse(last))
        };
        let ready = self.lacking.values().filter(|lacking| is_ready(lacking));
        let (_, _, holder) = ready.filter_map(best).max_by_key(key)?;
        let mut all: Vec<(usize, RecordId, Place)> = self
            .lacking
            .iter()
            .filter(|(_, lacking)| is_ready(lacking) && lacking.holders.contains(&holder))
            .map(|((id, place), lacking)| (lacking.missing, *id, *place))
            .collect();
        all.sort_by_key(|(missing, ..)| Reverse(*missing));
        all.truncate(most);
        let all: Vec<(RecordId, Place)> =
            all.into_iter().map(|(_, id, place)| (id, place)).collect();
        for at in &all {
            self.lacking.get_mut(at).into_iter().for_each(|lacking| lacking.asked = true);
        }
        self.pulls += 1;
        self.pulling.insert(holder);
        self.turns.insert(holder, self.pulls);
        Some((holder, all))
    }

    /// Nothing is being fetched from a holder any more: what did not come of this may be fetched from others.
    pub(crate) fn pulled(&mut self, holder: &PeerId, asked: &[(RecordId, Place)]) {
        self.pulling.remove(holder);
        for at in asked {
            self.lacking.get_mut(at).into_iter().for_each(|lacking| lacking.asked = false);
        }
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

    /// As the map of a stripe says it: with too few fragments nothing can be made.
    fn lack(missing: usize, spare: i32) -> Lack {
        Lack { missing, spare, mendable: spare >= 0 }
    }

    fn stripe(number: usize) -> RecordId {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&(number as u64).to_be_bytes());
        RecordId::new(id)
    }

    fn recounted(work: &Work) -> (usize, usize) {
        let stuck = || work.due.values().filter(|due| due.is_stuck());
        (stuck().count(), stuck().filter(|due| due.tries > 0).count())
    }

    #[test]
    fn stripes_that_nobody_can_mend_take_no_room_from_others() {
        let at = Duration::from_secs;
        let mut work = Work::default();
        // A client stores headers that few fragments, or none but one, are stored of.
        for number in 0..DUE_MAX {
            work.stripe(stripe(number), Some(lack(20, -19)), at(0));
        }
        assert_eq!(work.due.len(), STUCK_MAX);
        for number in DUE_MAX..2 * DUE_MAX {
            work.stripe(stripe(number), Some(lack(2, 3)), at(0));
        }
        assert_eq!(work.due.len(), STUCK_MAX + DUE_MAX, "others have all the room that there is");
        let late = stripe(2 * DUE_MAX);
        work.stripe(late, Some(lack(20, -19)), at(1));
        assert!(!work.due.contains_key(&late), "all of them are to be tried");
        for number in 0..SHED_MIN {
            work.later(&stripe(number), at(1), at(10));
        }
        work.stripe(late, Some(lack(20, -19)), at(2));
        assert!(work.due.contains_key(&late), "who was tried makes room");
        assert_eq!((work.stuck, work.stuck_tried), recounted(&work));
        assert_eq!(work.stuck, STUCK_MAX - SHED_MIN + 1);
        // What comes back is to be mended like any other, and at once; the rest is tried seldom.
        work.stripe(stripe(DUE_MAX), None, at(2));
        work.stripe(late, Some(lack(2, 0)), at(3));
        assert!(!work.due[&late].is_stuck());
        let hopeless = stripe(STUCK_MAX - 1);
        let waits = |work: &mut Work| {
            work.later(&hopeless, at(0), at(10));
            work.due[&hopeless].not_before.as_secs()
        };
        let waited: Vec<u64> = (0..11).map(|_| waits(&mut work)).collect();
        assert_eq!(waited, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]);
        work.hurry(&[], at(5));
        assert_eq!(work.due[&hopeless].not_before, at(3600), "not for who asks for everything");
        work.hurry(&[Place::from(hopeless)], at(5));
        assert_eq!(work.due[&hopeless].not_before, at(5), "it was named");
        assert_eq!((work.stuck, work.stuck_tried), recounted(&work));
    }

    #[test]
    fn stripes_that_find_no_room_are_looked_for_again_and_not_forgotten() {
        let at = Duration::from_secs;
        let mut work = Work::default();
        let all = DUE_MAX + 10;
        let look = |work: &mut Work, mended: usize, now: Duration| {
            (mended..all).for_each(|number| work.stripe(stripe(number), Some(lack(2, 3)), now));
        };
        let mend = |work: &mut Work, upto: usize| {
            (0..upto).for_each(|number| work.stripe(stripe(number), None, at(1)));
        };
        look(&mut work, 0, at(0));
        assert_eq!(work.due.len(), DUE_MAX);
        assert!(!work.looks_again(at(1)), "they would find no room");
        mend(&mut work, DUE_MAX / 2 + 1);
        assert!(work.looks_again(at(2)));
        assert!(!work.looks_again(at(2)), "it is being looked");
        // All that is known is mended before they were found.
        mend(&mut work, DUE_MAX);
        assert!(!work.is_done());
        look(&mut work, DUE_MAX, at(3));
        work.looked();
        assert_eq!(work.due.len(), 10);
        mend(&mut work, all);
        assert!(work.is_done() && !work.looks_again(at(100)), "all of them are mended");
        // Not again and again where there are ever more.
        (0..2).for_each(|_| look(&mut work, 0, at(200)));
        mend(&mut work, all);
        assert!(!work.is_done() && work.looks_again(at(200)));
        look(&mut work, 0, at(201));
        work.looked();
        mend(&mut work, all);
        assert!(!work.looks_again(at(259)) && work.looks_again(at(260)));
    }

    #[test]
    fn what_was_tried_in_vain_again_and_again_is_in_nobodys_way() {
        let at = Duration::from_secs;
        let (id, mut work) = (stripe(1), Work::default());
        work.stripe(id, Some(lack(2, 0)), at(0));
        for _ in 0..FAILED_MAX {
            assert!(!work.due[&id].is_stuck());
            work.failed(&id);
        }
        // Not either where somebody says now that it can be read and now that it cannot.
        for seconds in 1..9 {
            work.stripe(id, Some(lack(2, -((seconds % 2) as i32))), at(seconds));
            assert!(work.due[&id].is_stuck());
        }
        assert!(!work.is_done(), "it lacks, and may be mended still");
        work.later(&id, at(10), at(10));
        work.anew(at(11));
        assert!(!work.due[&id].is_stuck() && work.due[&id].not_before == at(11));
        work.failed(&id);
        assert!(work.due[&id].is_stuck(), "once, and no more often");
        work.stripe(id, Some(lack(2, -1)), at(20));
        let other = stripe(2);
        work.stripe(other, Some(lack(2, -1)), at(20));
        assert!(!work.is_done(), "nobody was asked");
        work.later(&other, at(20), at(10));
        assert!(work.is_done(), "nobody has it");
        [id, other].into_iter().for_each(|id| work.stripe(id, None, at(30)));
        assert_eq!((work.stuck, work.stuck_tried), (0, 0));
        work.stripe(id, Some(lack(2, 0)), at(40));
        assert!(!work.due[&id].is_stuck(), "it was whole meanwhile");
    }

    #[test]
    fn a_stripe_that_is_being_stored_is_left_alone_and_not_for_ever() {
        let id = RecordId::new([7; 32]);
        let at = Duration::from_secs;
        let mut work = Work::default();
        let lack = |missing, spare| Some(lack(missing, spare));
        // A fragment every twelve seconds: nobody can read it at first.
        for (fragments, seconds) in (1..8).zip((0..).step_by(12)) {
            work.stripe(id, lack(8 - fragments, fragments as i32 - 4), at(seconds));
            assert_eq!(work.due[&id].since, at(seconds), "{fragments} of 8");
        }
        // It is whole, and later it loses some: as far as there are enough to spare, it waits until no more are missed.
        work.stripe(id, None, at(140));
        work.stripe(id, lack(1, 3), at(1_000));
        work.stripe(id, lack(2, 2), at(1_010));
        assert_eq!(work.due[&id].since, at(1_010));
        work.stripe(id, lack(3, 1), at(1_014));
        assert_eq!(work.due[&id].since, at(1_010), "it is in danger");
        // A peer tells now of more and now of fewer.
        for seconds in (1_020..2_000).step_by(10) {
            let missing = 3 + usize::from(seconds % 20 == 0);
            work.stripe(id, lack(missing, 4 - missing as i32), at(seconds));
        }
        assert!(work.due[&id].since <= at(1_000) + GROWS_IN_DANGER_MAX);
        assert!(work.due[&id].since > at(1_010), "some of it was believed");
    }

    fn peer(n: u8) -> PeerId {
        PeerId::new(crypto::SecretKey::from_bytes(&[n; 32]).expect("a scalar").public())
    }

    fn copy(number: u16) -> (RecordId, Place) {
        let mut id = [0; 32];
        id[..2].copy_from_slice(&number.to_be_bytes());
        (RecordId::new(id), Place::new(id))
    }

    #[test]
    fn what_lacks_is_found_by_its_place() {
        let now = Duration::ZERO;
        let mut work = Work::default();
        let places = [7, 8].map(|byte| Place::new([byte; 32]));
        let ids = [0, 9, u8::MAX].map(|byte| RecordId::new([byte; 32]));
        for (id, place) in [(ids[0], places[0]), (ids[2], places[0]), (ids[1], places[1])] {
            work.lacks(id, place, 0, peer(1), now);
        }
        work.hurry(&places[..1], now);
        let hurried: Vec<bool> = work.lacking.values().map(|lacking| lacking.hurried).collect();
        assert_eq!(hurried, [true, false, true]);
        work.found(&ids[0], &places[0]);
        assert!(work.concerns(&places[0]));
        work.not_at(&ids[2], &places[0], &peer(1));
        assert!(!work.concerns(&places[0]) && work.concerns(&places[1]));
        work.only_those(|_| false);
        assert!(!work.concerns(&places[1]) && work.places.is_empty());
    }

    #[test]
    fn who_lists_the_most_urgent_copies_keeps_nobody_from_being_asked_for_others() {
        let (now, most) = (Duration::from_secs(60), 10);
        let (liar, one, other) = (peer(1), peer(2), peer(3));
        let mut work = Work::default();
        for number in 0..1000 {
            let (id, place) = copy(number);
            work.lacks(id, place, 9, liar, Duration::ZERO);
        }
        for number in 1000..1040 {
            let (id, place) = copy(number);
            work.lacks(id, place, 1, one, Duration::ZERO);
            work.lacks(id, place, 1, other, Duration::ZERO);
        }
        let pull =
            |work: &mut Work| work.pulls(now, Duration::from_secs(15), most).expect("copies lack");
        let (first, urgent) = pull(&mut work);
        assert_eq!(first, liar);
        // While it is asked others are, each for copies of its own.
        let ((second, some), (third, more)) = (pull(&mut work), pull(&mut work));
        assert_eq!(BTreeSet::from([second, third]), BTreeSet::from([one, other]));
        assert!(some.iter().chain(&more).all(|at| !urgent.contains(at)));
        assert!(some.iter().all(|at| !more.contains(at)));
        assert_eq!(work.pulls(now, Duration::from_secs(15), most), None, "all are being asked");
        for (holder, asked) in [(second, some), (third, more), (liar, urgent.clone())] {
            asked.iter().filter(|_| holder != liar).for_each(|(id, place)| work.found(id, place));
            work.pulled(&holder, &asked);
        }
        // Those that were not had from it are to be had again; the others have their turns all the same.
        let mut asked = Vec::new();
        for _ in 0..5 {
            let (holder, some) = pull(&mut work);
            asked.push(holder);
            some.iter().filter(|_| holder != liar).for_each(|(id, place)| work.found(id, place));
            work.pulled(&holder, &some);
        }
        assert_eq!(asked, [liar, liar, one, liar, one]);
        assert_eq!(work.lacking(), 1000);
        // Who was slow comes behind those that have something, and is asked when nobody else has.
        let (id, place) = copy(2000);
        work.lacks(id, place, 0, one, Duration::ZERO);
        work.rest(liar, now * 2);
        assert_eq!(pull(&mut work).0, one);
        assert_eq!(pull(&mut work).0, liar);
    }

    #[test]
    fn who_asks_for_it_all_the_time_has_it_tried_no_more_often() {
        let at = Duration::from_secs;
        let (id, other) = (RecordId::new([7; 32]), RecordId::new([8; 32]));
        let mut work = Work::default();
        for id in [id, other] {
            work.stripe(id, Some(lack(3, 1)), at(0));
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
