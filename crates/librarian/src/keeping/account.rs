//! What one peer proved of what it should hold, and what it did not.
//!
//! ```text
//!   items: the last 64, failed or proven  --> faulty: over a quarter failed, and 8 at least
//!   times: its last 32 answers in time    --> the deadline of the next: four times their 95th percentile
//!   agreed: the parts of all places in which both counted the same --> what it can be asked for
//! ```
//! A peer is asked for what it said that it holds: copies are under way for a while after a put, and a peer that has a new duty fetches
//! first. Only where it agrees to nothing for hours in which it could be reached, whatever it says instead, is it asked for what it should
//! have by then.
//!
//! Pure: whoever asks brings the time and the answers.

use std::collections::VecDeque;
use std::time::Duration;

use env::calls::keep::{SUMS, Sum};

/// Items that count.
pub(super) const WINDOW: u32 = u64::BITS;
/// Of those, so many that failed make a peer faulty, where they are more than [`FAULTY_PART`].
const FAULTY_MIN: u32 = 8;
/// One in so many.
const FAULTY_PART: u32 = 4;
/// Items proven one after the other that end it.
const WELL_AFTER: u32 = 64;
/// How long a peer is believed to be faulty, though it is asked nothing any more; twice as long each further time.
const FAULTY_FOR: Duration = Duration::from_secs(3600);
/// Doublings of it at most.
const DOUBLINGS_MAX: u32 = 5;
/// Answers whose times count.
const TIMES_MAX: usize = 32;
/// The least deadline.
pub(super) const DEADLINE_MIN: Duration = Duration::from_secs(2);
/// So many times the 95th percentile of a peer's answers.
const DEADLINE_TIMES: u32 = 4;
/// Bytes of records that a holder reads in a millisecond.
const READ_BYTES_MS: u64 = 64 << 10;
/// Challenges without a verdict, one after the other, from which on they count as failed.
const VOIDS_MAX: u32 = 8;
/// How long a part may not agree, while the peer can be reached, before what is in it is asked for all the same.
const DIFFERS_MAX: Duration = Duration::from_secs(6 * 3600);

/// How long reading so many bytes may take.
pub(super) fn reading(bytes: u64) -> Duration {
    Duration::from_millis(bytes / READ_BYTES_MS)
}

/// What a comparison of all places with a peer said.
struct Agreed {
    /// The view that both had.
    view: [u8; 16],
    /// What both counted in each part, as of the last comparison in which it was the same.
    sums: Box<[Option<Sum>; SUMS]>,
    /// When that was, or when it was first to be asked for something; later by as long as it was away since.
    at: Box<[Duration; SUMS]>,
}

impl Agreed {
    /// It agreed to nothing yet.
    fn to_nothing(view: [u8; 16], now: Duration) -> Self {
        Self { view, sums: Box::new([None; SUMS]), at: Box::new([now; SUMS]) }
    }
}

/// One peer's record.
#[derive(Default)]
pub(crate) struct Account {
    /// The last items, the newest in the lowest bit; set: it failed.
    window: u64,
    /// How many there are.
    challenged: u32,
    /// Items proven since the last that failed.
    in_a_row: u32,
    /// Challenges without a verdict since the last that had one.
    voids: u32,
    /// Since when it is faulty.
    faulty_since: Option<Duration>,
    /// How often it was.
    times_faulty: u32,
    /// Of its last answers, without the time to read.
    times: VecDeque<Duration>,
    agreed: Option<Agreed>,
    /// Since when it is away.
    away_since: Option<Duration>,
    /// When it was believed last that it had lost what it had.
    excused: Option<Duration>,
    /// Since the start.
    pub(super) proven: u64,
    /// As above.
    pub(super) failed: u64,
}

impl Account {
    /// How many of the last items there are, and how many of them failed.
    pub(super) fn last(&self) -> (u32, u32) {
        (self.challenged, self.window.count_ones())
    }

    pub(super) fn is_faulty(&self) -> bool {
        self.faulty_since.is_some()
    }

    /// Counts items of one challenge.
    pub(super) fn count(&mut self, failed: impl Iterator<Item = bool>, now: Duration) {
        self.voids = 0;
        for failed in failed {
            self.window = self.window << 1 | u64::from(failed);
            self.challenged = (self.challenged + 1).min(WINDOW);
            if failed {
                (self.failed, self.in_a_row) = (self.failed + 1, 0);
            } else {
                (self.proven, self.in_a_row) = (self.proven + 1, self.in_a_row.saturating_add(1));
            }
        }
        let (challenged, failed) = self.last();
        if self.is_faulty() && self.in_a_row >= WELL_AFTER {
            self.faulty_since = None;
            self.times_faulty = 0;
        } else if !self.is_faulty() && failed >= FAULTY_MIN && failed * FAULTY_PART > challenged {
            self.faulty_since = Some(now);
            self.times_faulty = self.times_faulty.saturating_add(1);
        }
    }

    /// Counts a challenge that says nothing of what is held; whether there were so many that it says something.
    pub(super) fn is_one_too_many(&mut self) -> bool {
        self.voids = self.voids.saturating_add(1);
        self.voids > VOIDS_MAX
    }

    /// Believes a peer again that nobody asked for long: others have its share, so there is nothing that it could prove.
    pub(super) fn forgive(&mut self, now: Duration) -> bool {
        let doublings = self.times_faulty.saturating_sub(1).min(DOUBLINGS_MAX);
        let Some(since) = self.faulty_since else { return false };
        if now.saturating_sub(since) < FAULTY_FOR * (1 << doublings) {
            return false;
        }
        (self.faulty_since, self.window, self.challenged, self.in_a_row) = (None, 0, 0, 0);
        true
    }

    /// Notes how long an answer took for which so many bytes were read.
    pub(super) fn took(&mut self, took: Duration, bytes: u64) {
        if self.times.len() == TIMES_MAX {
            self.times.pop_front();
        }
        self.times.push_back(took.saturating_sub(reading(bytes)));
    }

    /// The 95th percentile of its answers.
    pub(super) fn usual(&self) -> Duration {
        let mut times: Vec<Duration> = self.times.iter().copied().collect();
        times.sort_unstable();
        let at = (times.len() * 95).div_ceil(100).saturating_sub(1);
        times.get(at).copied().unwrap_or_default()
    }

    /// When an answer is late for which so many bytes are read.
    pub(super) fn deadline(&self, bytes: u64) -> Duration {
        DEADLINE_MIN.max(self.usual() * DEADLINE_TIMES) + reading(bytes)
    }

    /// Whether it is believed, now, that it lost what it had: once in the time that it has to fetch it, or who keeps nothing would
    /// say so whenever it is asked.
    pub(super) fn excuse(&mut self, now: Duration) -> bool {
        let again = self.excused.is_none_or(|at| now.saturating_sub(at) >= DIFFERS_MAX);
        if again {
            self.excused = Some(now);
        }
        again
    }

    /// It is away: what it holds when it is back it has to say again, and until then it is not counted how long it agrees to nothing.
    pub(super) fn lost_sight(&mut self, now: Duration) {
        self.agrees_no_more();
        self.away_since.get_or_insert(now);
    }

    /// It answered, or refused.
    pub(super) fn seen(&mut self, now: Duration) {
        if let (Some(since), Some(agreed)) = (self.away_since.take(), &mut self.agreed) {
            let away = now.saturating_sub(since);
            agreed.at.iter_mut().for_each(|at| *at = at.saturating_add(away).min(now));
        }
    }

    /// What it said that it holds counts no more. When it last agreed stays: who says nothing again and again had else only to wait.
    pub(super) fn agrees_no_more(&mut self) {
        if let Some(agreed) = &mut self.agreed {
            agreed.sums.fill(None);
        }
    }

    /// It is to be asked for something. From the first time on it is counted how long it agrees to nothing, whether it sees other peers whenever
    /// it is compared with, or does not answer that at all.
    pub(super) fn is_due(&mut self, view: [u8; 16], now: Duration) {
        self.agreed.get_or_insert_with(|| Agreed::to_nothing(view, now));
    }

    /// Notes what a comparison of all places said: what this side counted, and which parts differ, ascending.
    pub(super) fn compared(&mut self, view: [u8; 16], mine: &[Sum], differ: &[u8], now: Duration) {
        self.seen(now);
        let agreed = self.agreed.get_or_insert_with(|| Agreed::to_nothing(view, now));
        if agreed.view != view {
            // When it last agreed stays: else whoever agrees to nothing had only to wait for others to come and go.
            agreed.view = view;
            agreed.sums.fill(None);
        }
        let parts = (0..=u8::MAX).zip(mine).zip(agreed.sums.iter_mut().zip(agreed.at.iter_mut()));
        for ((number, mine), (sum, at)) in parts {
            if differ.binary_search(&number).is_ok() {
                *sum = None;
            } else {
                (*sum, *at) = (Some(*mine), now);
            }
        }
    }

    /// Whether both count the same in a part of all places, as this side counts now.
    pub(super) fn agrees(&self, view: [u8; 16], mine: &[Sum], part: u8) -> bool {
        let part = usize::from(part);
        self.agreed.as_ref().filter(|agreed| agreed.view == view).is_some_and(|agreed| {
            let sum = agreed.sums.get(part).copied().flatten();
            sum.is_some() && sum == mine.get(part).copied()
        })
    }

    /// The parts of all places in which it can be asked for what both should hold, as this side counts now.
    pub(super) fn parts(&self, view: [u8; 16], mine: &[Sum], now: Duration) -> Vec<u8> {
        let Some(agreed) = self.agreed.as_ref().filter(|_| self.away_since.is_none()) else {
            return Vec::new();
        };
        let all = (0..=u8::MAX).zip(mine).zip(agreed.sums.iter().zip(agreed.at.iter()));
        let asked = all.filter(|((_, mine), (sum, at))| {
            let sum = sum.filter(|_| agreed.view == view);
            let agrees = sum.is_some_and(|sum| sum == **mine);
            // Also where it agreed once, and was not compared with since something was stored.
            let differs_long = now.saturating_sub(**at) >= DIFFERS_MAX;
            // Where nothing is common the sum is nothing.
            **mine != 0 && (agrees || differs_long)
        });
        asked.map(|((number, _), _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);
    const TICK: Duration = Duration::from_secs(1);
    const VIEW: [u8; 16] = [1; 16];

    fn counted(account: &mut Account, failed: u32, proven: u32) {
        let items = (0..failed).map(|_| true).chain((0..proven).map(|_| false));
        account.count(items, NOW);
    }

    #[test]
    fn a_quarter_is_not_more_than_a_quarter() {
        let mut account = Account::default();
        counted(&mut account, 16, 48);
        assert_eq!((account.last(), account.is_faulty()), ((64, 16), false));
        // The oldest go out of the window as new ones come.
        counted(&mut account, 1, 0);
        assert_eq!((account.last(), account.is_faulty()), ((64, 16), false));
        counted(&mut account, 15, 0);
        assert!(!account.is_faulty(), "as many failed ones went out");
        counted(&mut account, 1, 0);
        assert_eq!((account.last(), account.is_faulty()), ((64, 17), true));
    }

    #[test]
    fn few_that_failed_make_nobody_faulty() {
        let mut account = Account::default();
        counted(&mut account, 7, 0);
        assert!(!account.is_faulty(), "seven of seven");
        counted(&mut account, 1, 0);
        assert!(account.is_faulty(), "eight of eight");
    }

    #[test]
    fn sixty_four_in_a_row_end_it_and_one_less_does_not() {
        let mut account = Account::default();
        counted(&mut account, 64, 0);
        counted(&mut account, 0, 63);
        assert!(account.is_faulty());
        counted(&mut account, 1, 63);
        assert!(account.is_faulty(), "it begins anew");
        counted(&mut account, 0, 1);
        assert!(!account.is_faulty());
        assert_eq!((account.proven, account.failed), (127, 65));
    }

    #[test]
    fn who_is_asked_nothing_any_more_is_believed_again_and_later_each_time() {
        let mut account = Account::default();
        for doublings in [0, 1, 2] {
            counted(&mut account, 16, 0);
            assert!(account.is_faulty());
            let until = NOW + FAULTY_FOR * (1 << doublings);
            assert!(!account.forgive(until - Duration::from_millis(1)));
            assert!(account.forgive(until));
            assert!(!account.is_faulty() && account.last() == (0, 0));
        }
        assert!(!account.forgive(NOW * 1_000_000), "there is nothing to forgive");
    }

    #[test]
    fn a_deadline_is_by_the_peers_own_answers() {
        let mut account = Account::default();
        assert_eq!(account.deadline(0), DEADLINE_MIN);
        assert_eq!(account.deadline(64 << 20), DEADLINE_MIN + Duration::from_millis(1024));
        for _ in 0..31 {
            account.took(Duration::from_millis(100), 0);
        }
        account.took(Duration::from_secs(9), 0);
        assert_eq!(account.deadline(0), DEADLINE_MIN, "one of 32 is beyond the 95th percentile");
        for _ in 0..2 {
            account.took(Duration::from_secs(9), 64 << 20);
        }
        let usual = Duration::from_secs(9) - Duration::from_millis(1024);
        assert_eq!(account.usual(), usual);
        assert_eq!(account.deadline(0), usual * 4);
        for _ in 0..32 {
            account.took(Duration::from_millis(100), 0);
        }
        assert_eq!(account.deadline(0), DEADLINE_MIN, "the old ones are forgotten");
    }

    #[test]
    fn challenges_without_a_verdict_count_when_there_are_many() {
        let mut account = Account::default();
        assert!((0..VOIDS_MAX).all(|_| !account.is_one_too_many()));
        assert!(account.is_one_too_many());
        counted(&mut account, 0, 1);
        assert!(!account.is_one_too_many());
    }

    #[test]
    fn only_what_both_agreed_about_is_asked_for() {
        let mut account = Account::default();
        let mut mine = vec![7; SUMS];
        mine[3] = 0;
        assert!(account.parts(VIEW, &mine, NOW).is_empty(), "nothing was compared");
        account.compared(VIEW, &mine, &[1, 2, 255], NOW);
        let asked = account.parts(VIEW, &mine, NOW);
        assert_eq!(asked.len(), 252);
        assert!(account.agrees(VIEW, &mine, 0) && !account.agrees(VIEW, &mine, 255));
        assert!(!account.agrees([2; 16], &mine, 0));
        assert!([1, 2, 3, 255].iter().all(|number| !asked.contains(number)));
        assert!(account.parts([2; 16], &mine, NOW).is_empty(), "another view");
        // Something was stored since: what the other has of it nobody said.
        mine[9] = 8;
        assert!(!account.parts(VIEW, &mine, NOW).contains(&9));
        // A part that differs for hours is asked for; one that agreed in between is not.
        let later = NOW + DIFFERS_MAX;
        account.compared(VIEW, &mine, &[2, 255], later - Duration::from_secs(1));
        account.compared(VIEW, &mine, &[1, 2, 255], later);
        let asked = account.parts(VIEW, &mine, later);
        assert!(asked.contains(&2) && asked.contains(&255) && !asked.contains(&1));
        // Who was away is asked for nothing until it says again what it holds.
        account.compared(VIEW, &mine, &[], later);
        account.lost_sight(later);
        assert!(account.parts(VIEW, &mine, later + DIFFERS_MAX).is_empty());
        // Another view begins anew.
        account.compared([2; 16], &mine, &[2], later);
        assert!(!account.parts([2; 16], &mine, later).contains(&2));
        assert!(account.parts(VIEW, &mine, later).is_empty());
    }

    #[test]
    fn who_agrees_to_nothing_is_asked_in_the_end_whatever_it_refuses_meanwhile() {
        let (mut account, mine) = (Account::default(), [7; SUMS]);
        let all: Vec<u8> = (0..=u8::MAX).collect();
        account.compared(VIEW, &mine, &all, NOW);
        // The peers that there are change.
        account.compared([9; 16], &mine, &all, NOW + DIFFERS_MAX / 2);
        assert!(account.parts([9; 16], &mine, NOW + DIFFERS_MAX / 2).is_empty());
        assert_eq!(account.parts(VIEW, &mine, NOW + DIFFERS_MAX).len(), SUMS);
        // Once it agrees to all, it begins anew.
        account.compared(VIEW, &mine, &[], NOW + DIFFERS_MAX);
        account.compared([9; 16], &mine, &all, NOW + DIFFERS_MAX);
        assert!(account.parts([9; 16], &mine, NOW + DIFFERS_MAX * 2 - TICK).is_empty());
        // Who was away for long is given time.
        account.lost_sight(NOW + DIFFERS_MAX * 2 - TICK);
        assert!(account.parts([9; 16], &mine, NOW + DIFFERS_MAX * 3).is_empty());
        account.seen(NOW + DIFFERS_MAX * 3);
        assert!(account.parts([9; 16], &mine, NOW + DIFFERS_MAX * 3).is_empty());
        assert_eq!(account.parts([9; 16], &mine, NOW + DIFFERS_MAX * 3 + TICK).len(), SUMS);
    }

    #[test]
    fn who_shows_nothing_to_compare_is_asked_in_the_end() {
        let (mut account, mine) = (Account::default(), [7; SUMS]);
        account.is_due(VIEW, NOW);
        account.is_due(VIEW, NOW + DIFFERS_MAX / 2);
        let asked = |account: &Account, at| account.parts([9; 16], &mine, at).len();
        assert_eq!(asked(&account, NOW + DIFFERS_MAX - TICK), 0);
        assert_eq!(asked(&account, NOW + DIFFERS_MAX), SUMS, "whatever view it is");
        // Being away for a moment now and then ends nothing, and so does saying nothing.
        account.lost_sight(NOW + TICK);
        account.seen(NOW + TICK * 60);
        account.agrees_no_more();
        let away = TICK * 59;
        assert_eq!(asked(&account, NOW + DIFFERS_MAX + away - TICK), 0);
        assert_eq!(asked(&account, NOW + DIFFERS_MAX + away), SUMS);
        // One that agreed once, while there was nothing to hold, and to nothing since.
        let mut account = Account::default();
        account.compared(VIEW, &[0; SUMS], &[], NOW);
        assert_eq!(account.parts(VIEW, &mine, NOW + DIFFERS_MAX - TICK).len(), 0);
        assert_eq!(account.parts(VIEW, &mine, NOW + DIFFERS_MAX).len(), SUMS);
    }
}
