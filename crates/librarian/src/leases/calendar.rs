//! Whether the calendar may end leases: what is dropped by it does not come back.
//!
//! A machine that begins a year ahead of the time would end every lease at its next sweep, and so would all that take their time from
//! the same source. So leases end by a calendar that other organisations' peers do not contradict: they say theirs with each
//! introduction. One that is behind ends leases late, which harms nobody.

use std::sync::PoisonError;
use std::time::Duration;

use super::Leases;

/// By how much a calendar may be ahead. What clocks may differ by is less; nobody drops much too soon by this.
const AHEAD_MAX_MS: u64 = 600_000;
/// For how long a calendar that was set ahead ends no lease where there is nobody to ask.
const SET_FOR: Duration = Duration::from_secs(24 * 3600);

/// The own calendar, as it was seen so far.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    /// What it said when the clock began, Unix milliseconds: the same until it is set.
    began_ms: Option<u64>,
    /// When it was seen to have been set ahead, and nobody said since that it is right.
    set: Option<Duration>,
}

/// Why the calendar ends no lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It is ahead of what so many of so many organisations say.
    Ahead { organisations: usize, of: usize },
    /// There are others, and none said anything since the start.
    Unheard,
    /// It was set ahead lately, and there is nobody to ask.
    Set,
}

impl Calendar {
    /// Why this calendar, Unix milliseconds, ends no lease, `elapsed` into the clock: by what others say now, one an organisation.
    /// Where none does, `peopled` says whether there are others.
    fn doubt(
        &mut self,
        unix_ms: u64,
        elapsed: Duration,
        others: &[u64],
        peopled: bool,
    ) -> Option<Doubt> {
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let began = unix_ms.saturating_sub(elapsed_ms);
        let before = *self.began_ms.get_or_insert(began);
        if began.abs_diff(before) > AHEAD_MAX_MS {
            self.began_ms = Some(began);
            self.set = (began > before).then_some(elapsed);
        }
        let behind = others.iter().filter(|other| unix_ms > other.saturating_add(AHEAD_MAX_MS));
        let behind = behind.count();
        if behind * 2 > others.len() {
            return Some(Doubt::Ahead { organisations: behind, of: others.len() });
        }
        if !others.is_empty() {
            self.set = None;
            return None;
        }
        if peopled {
            return Some(Doubt::Unheard);
        }
        self.set.filter(|set| elapsed < *set + SET_FOR).map(|_| Doubt::Set)
    }
}

impl Leases {
    /// Why no lease ends by the calendar now. `reaches_out` is whether this peer was told of others to join.
    pub(super) fn doubt(&self, reaches_out: bool) -> Option<Doubt> {
        let mut others = self.directory.calendars();
        let own = self.directory.own().and_then(|own| self.directory.organisation_of(&own));
        let own = own.and_then(|own| self.directory.listed(&own));
        if others.keys().any(|other| Some(*other) != own) {
            // Machines of one organisation may have their time from one source.
            others.retain(|other, _| Some(*other) != own);
        }
        let others: Vec<u64> = others.into_values().collect();
        let peopled = reaches_out || self.directory.view().len() > 1;
        let (unix_ms, elapsed) = (self.env.clock.unix_ms(), self.env.clock.elapsed());
        let mut calendar = self.calendar.lock().unwrap_or_else(PoisonError::into_inner);
        calendar.doubt(unix_ms, elapsed, &others, peopled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;
    const YEAR_MS: u64 = 365 * 24 * 3_600_000;
    const DAY_S: u64 = 24 * 3600;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_calendar_that_most_organisations_contradict_ends_no_lease() {
        let mut calendar = Calendar::default();
        let mut doubt = |ahead_ms: u64, others: &[u64]| {
            calendar.doubt(NOW_MS + ahead_ms, Duration::ZERO, others, true)
        };
        let ahead = |organisations, of| Some(Doubt::Ahead { organisations, of });
        assert_eq!(doubt(0, &[]), Some(Doubt::Unheard));
        assert_eq!(doubt(0, &[NOW_MS]), None);
        assert_eq!(doubt(YEAR_MS, &[NOW_MS]), ahead(1, 1));
        assert_eq!(doubt(YEAR_MS, &[NOW_MS, NOW_MS, NOW_MS + YEAR_MS]), ahead(2, 3));
        assert_eq!(doubt(YEAR_MS, &[]), Some(Doubt::Unheard), "nobody says that it is right");
        assert_eq!(doubt(AHEAD_MAX_MS, &[NOW_MS]), None);
        // Half that lie keep nothing from ending, whatever they say.
        for lie in [0, 1, NOW_MS - YEAR_MS, u64::MAX] {
            assert_eq!(doubt(0, &[NOW_MS, lie]), None);
        }
        assert_eq!(doubt(0, &[NOW_MS + YEAR_MS]), None, "who is behind ends leases late");
    }

    #[test]
    fn who_is_alone_waits_a_day_where_its_calendar_was_set_ahead() {
        let mut calendar = Calendar::default();
        let mut doubt = |seconds: u64, ahead_ms: u64| {
            calendar.doubt(NOW_MS + seconds * 1000 + ahead_ms, at(seconds), &[], false)
        };
        assert_eq!(doubt(0, 0), None);
        assert_eq!(doubt(600, YEAR_MS), Some(Doubt::Set));
        assert_eq!(doubt(1200, YEAR_MS), Some(Doubt::Set));
        assert_eq!(doubt(1800, 0), None, "it was set back");
        assert_eq!(doubt(2400, YEAR_MS), Some(Doubt::Set));
        assert_eq!(doubt(2399 + DAY_S, YEAR_MS), Some(Doubt::Set));
        assert_eq!(doubt(2400 + DAY_S, YEAR_MS), None, "it stays");
        assert_eq!(doubt(3000 + DAY_S, YEAR_MS + AHEAD_MAX_MS), None);
    }
}
