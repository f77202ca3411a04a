//! How readily each peer gives and takes fragments: whom mending asks for them, and hands what it made.
//!
//! It is this peer's own experience and nobody's word, and it orders alone: who was late or refused comes behind others, and is asked
//! where nobody else is left. Only who said that it takes nothing, of anybody, is not asked at all for a while: each fragment that is
//! made for it costs k. What a peer did counts for half an hour: who was slow may be quick again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crypto::PeerId;
use env::calls::CallError;

/// How long a call for one fragment takes at most beside its bytes, and how fast these go at least, where a peer is not late.
const LATE: Duration = Duration::from_secs(2);
const FLOOR_BYTES_S: u64 = 512 << 10;
/// For how long it counts what a peer did last.
const KNOWN_FOR: Duration = Duration::from_secs(1800);
/// For how long a peer is not asked that said that it takes nothing.
const CLOSED_FOR: Duration = Duration::from_secs(300);
/// Thousandths of what is late.
const LATE_PART: u32 = 1000;
/// From so many on a peer is slow.
const SLOW_PART: u32 = 500;
/// What a call that failed counts as, and any one at most.
const PART_MAX: u32 = 4000;
/// Fragments that did not come, or were waited for in vain, less those that came, from which on a peer gives none, and at most.
const FAILS_MIN: u32 = 3;
const FAILS_MAX: u32 = 8;

/// How long a call that moves so many bytes takes before it is late.
pub(super) fn late(bytes: usize) -> Duration {
    let millis = (bytes as u64).saturating_mul(1000) / FLOOR_BYTES_S;
    LATE + Duration::from_millis(millis)
}

/// How one peer did something.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Thousandths of what is late that it took, the last ones most.
    part: u32,
    /// How often it failed or was waited for in vain, less how often it was in time.
    fails: u32,
    /// When it did so last; `None` before it did.
    at: Option<Duration>,
}

impl Pace {
    fn is_known(&self, now: Duration) -> bool {
        self.at.is_some_and(|at| now < at + KNOWN_FOR)
    }

    fn add(&mut self, part: u32, failed: bool, now: Duration) {
        if !self.is_known(now) {
            *self = Self { part: part.min(PART_MAX), ..Self::default() };
        }
        self.part = (self.part * 3 + part.min(PART_MAX)) / 4;
        // One that came late may have shared a slow line with others.
        self.fails = match (failed, part < LATE_PART) {
            (true, _) => (self.fails + 1).min(FAILS_MAX),
            (false, true) => self.fails.saturating_sub(1),
            (false, false) => self.fails,
        };
        self.at = Some(now);
    }

    fn is_slow(&self, now: Duration) -> bool {
        self.is_known(now) && self.part >= SLOW_PART
    }
}

/// So many thousandths of what is late a call took that moved so many bytes.
fn part(bytes: usize, took: Duration) -> u32 {
    let part = took.as_millis() * u128::from(LATE_PART) / late(bytes).as_millis();
    u32::try_from(part).unwrap_or(u32::MAX)
}

/// How the peers do.
#[derive(Default)]
pub(crate) struct Paces {
    giving: BTreeMap<PeerId, Pace>,
    taking: BTreeMap<PeerId, Pace>,
    /// Who said that it takes nothing, and until when it is not asked.
    closed: BTreeMap<PeerId, Duration>,
}

impl Paces {
    /// A peer gave a fragment of so many bytes, in so long.
    pub(crate) fn gave(&mut self, peer: PeerId, bytes: usize, took: Duration, now: Duration) {
        self.giving.entry(peer).or_default().add(part(bytes, took), false, now);
    }

    /// Another was asked beside a peer that had not given one of so many bytes in so long.
    pub(crate) fn kept_waiting(
        &mut self,
        peer: PeerId,
        bytes: usize,
        waited: Duration,
        now: Duration,
    ) {
        self.giving.entry(peer).or_default().add(part(bytes, waited), true, now);
    }

    /// A peer gave none of those that it said it has.
    pub(crate) fn gave_none(&mut self, peer: PeerId, now: Duration) {
        self.giving.entry(peer).or_default().add(PART_MAX, true, now);
    }

    /// Who is asked for fragments behind others, and how far behind.
    pub(crate) fn slow_to_give(&self, now: Duration) -> BTreeMap<PeerId, u32> {
        let slow = self.giving.iter().filter(|(_, pace)| pace.is_slow(now));
        slow.map(|(peer, pace)| (*peer, pace.part)).collect()
    }

    /// Who is not counted on to give any.
    pub(crate) fn give_nothing(&self, now: Duration) -> BTreeSet<PeerId> {
        let none = |(_, pace): &(&PeerId, &Pace)| pace.is_known(now) && pace.fails >= FAILS_MIN;
        self.giving.iter().filter(none).map(|(peer, _)| *peer).collect()
    }

    /// A peer took so many bytes, in so long; whether it had said before that it takes nothing.
    pub(crate) fn took(
        &mut self,
        peer: PeerId,
        bytes: usize,
        took: Duration,
        now: Duration,
    ) -> bool {
        self.taking.entry(peer).or_default().add(part(bytes, took), false, now);
        self.closed.remove(&peer).is_some()
    }

    /// A peer took them not.
    pub(crate) fn refused(&mut self, peer: PeerId, error: &CallError, now: Duration) {
        // Of its disk and its operator: no author makes a peer say this of one stripe.
        if matches!(error, CallError::Full | CallError::ReadOnly { .. }) {
            self.closed.insert(peer, now + CLOSED_FOR);
        } else {
            self.taking.entry(peer).or_default().add(PART_MAX, true, now);
        }
    }

    /// Who is not asked to take anything.
    pub(crate) fn closed(&self, now: Duration) -> BTreeSet<PeerId> {
        let closed = self.closed.iter().filter(|(_, until)| now < **until);
        closed.map(|(peer, _)| *peer).collect()
    }

    /// Who takes what others are not there for.
    pub(crate) fn slow_to_take(&self, now: Duration) -> BTreeSet<PeerId> {
        let slow = self.taking.iter().filter(|(_, pace)| pace.is_slow(now));
        slow.map(|(peer, _)| *peer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> PeerId {
        PeerId::new(crypto::SecretKey::from_bytes(&[n; 32]).expect("a scalar").public())
    }

    #[test]
    fn who_takes_nothing_is_not_asked_and_who_is_slow_comes_behind_for_a_while() {
        let at = Duration::from_secs;
        let (full, liar, slow, well) = (peer(1), peer(2), peer(3), peer(4));
        let mut paces = Paces::default();
        paces.refused(full, &CallError::Full, at(0));
        paces.refused(liar, &CallError::Denied { reason: String::new() }, at(0));
        assert!(!paces.took(slow, 2 << 20, at(59), at(0)));
        assert!(!paces.took(well, 2 << 20, at(1), at(0)));
        assert_eq!(paces.closed(at(1)), BTreeSet::from([full]));
        assert_eq!(paces.slow_to_take(at(1)), BTreeSet::from([liar, slow]));
        assert_eq!(paces.closed(CLOSED_FOR), BTreeSet::new());
        assert!(paces.took(full, 100, at(0), CLOSED_FOR), "it takes something again");
        assert_eq!(paces.slow_to_take(KNOWN_FOR), BTreeSet::new());
        // Once more at once, and it is believed again only when it was quick for long.
        paces.took(slow, 100, Duration::from_millis(50), at(2));
        assert!(paces.slow_to_take(at(3)).contains(&slow));
        for second in 0..10 {
            paces.took(slow, 100, at(0), at(10 + second));
        }
        assert!(!paces.slow_to_take(at(30)).contains(&slow));
    }

    #[test]
    fn who_gives_late_is_asked_behind_others_and_who_does_so_again_and_again_is_not_counted_on() {
        let at = Duration::from_secs;
        let (late, liar, well, waited_for) = (peer(1), peer(2), peer(3), peer(4));
        let mut paces = Paces::default();
        for second in 0..3 {
            assert!(paces.give_nothing(at(second)).is_empty());
            paces.gave(late, 100, at(1), at(second));
            paces.gave_none(liar, at(second));
            paces.gave(well, 100, Duration::from_millis(20), at(second));
            paces.kept_waiting(waited_for, 100, at(2), at(second));
            // It comes all the same, at last.
            paces.gave(waited_for, 100, at(59), at(second));
        }
        assert_eq!(paces.give_nothing(at(3)), BTreeSet::from([liar, waited_for]));
        let slow = paces.slow_to_give(at(3));
        assert_eq!(slow.keys().copied().collect::<BTreeSet<_>>(), {
            BTreeSet::from([late, liar, waited_for])
        });
        assert_eq!((slow[&late], slow[&liar]), (SLOW_PART, PART_MAX));
        // One that came does not make up for those that did not.
        paces.gave(liar, 100, at(0), at(4));
        paces.gave_none(liar, at(5));
        assert!(paces.give_nothing(at(6)).contains(&liar));
        // Nor does a slow line make one give nothing.
        (0..9).for_each(|second| paces.gave(well, 100, at(30), at(second)));
        assert!(!paces.give_nothing(at(10)).contains(&well));
        assert_eq!(paces.give_nothing(at(5) + KNOWN_FOR), BTreeSet::new());
    }

    #[test]
    fn long_fragments_have_the_time_that_they_need() {
        assert_eq!(late(0), LATE);
        assert_eq!(late(2 << 20), LATE + Duration::from_secs(4));
        assert_eq!(part(2 << 20, late(2 << 20)), LATE_PART);
        assert!(part(1 << 10, Duration::from_millis(200)) < SLOW_PART);
    }
}
