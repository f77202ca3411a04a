//! What becomes of news that arrives: heard and passed on, kept for a moment, or dropped.
//!
//! ```text
//! not the wire form                          refused: counts against the link it came by
//! over the link's budget                     dropped
//! heard or published in the last 2 minutes   dropped
//! its signer is forgotten                    dropped
//! its signer is a member                     heard, passed on
//! its signer is no member (yet):
//!   an announcement                          heard (it proves itself), passed on once it made
//!                                            its signer a member, dropped after WAIT_FOR
//!   an envelope                              heard and passed on once its signer is a member,
//!                                            dropped after WAIT_FOR
//! ```
//! Why not drop a stranger's news at once: a newcomer's announcement and its first envelope race
//! each other to peers that have not heard of it, and what a peer dropped once the mesh will not
//! bring again. Why an announcement is heard before anybody vouches for its signer: otherwise
//! nobody could ever become known. What is passed on was always believed first, so a stranger's
//! noise ends at the peers it is linked to.
//!
//! The mesh names a message by all of its bytes, signer and signature among them, not by its news alone: else a stranger
//! could sign a member's envelope anew, or badly in the member's name, and, arriving first, keep the genuine one
//! from being heard. A message of several news counts while any of it is new.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use libp2p::PeerId;
use libp2p::gossipsub::{MessageAcceptance, MessageId};

use crate::seen::Seen;
use crate::{Heard, News};

/// How long news of somebody who is no member yet is kept.
pub const WAIT_FOR: Duration = Duration::from_secs(5);
/// The most such news at a time: at most 8 MiB.
pub const WAITING_MAX: usize = 256;
/// The most of it that came by one link.
pub const WAITING_OF_LINK_MAX: usize = 16;
/// Bytes of news a link may bring a second, on average.
pub const LINK_BYTES_A_SECOND: usize = 1 << 20;
/// Bytes of news a link may bring at once.
pub const LINK_BYTES_BURST: usize = 4 << 20;

/// News as the mesh brought it.
pub(super) struct Arrival {
    pub(super) id: MessageId,
    /// Who passed it to us.
    pub(super) link: PeerId,
    /// Who signed it.
    pub(super) from: crypto::PeerId,
    pub(super) news: Vec<News>,
}

/// What to tell the mesh of a message, and what to tell the receivers.
pub(super) struct Verdict {
    pub(super) id: MessageId,
    pub(super) link: PeerId,
    pub(super) acceptance: MessageAcceptance,
    pub(super) heard: Vec<Heard>,
}

#[derive(Default)]
pub(super) struct Intake {
    /// Published here, or heard from a member.
    seen: Seen,
    /// Announcements that were heard before their signer was a member.
    early: Seen,
    waiting: VecDeque<(Duration, Arrival)>,
    budgets: HashMap<PeerId, Budget>,
}

#[derive(Clone, Copy)]
struct Budget {
    left: usize,
    at: Duration,
}

impl Intake {
    /// Whether the link may still bring so many bytes; they are taken from its budget.
    pub(super) fn affordable(&mut self, link: PeerId, bytes: usize, now: Duration) -> bool {
        let full = Budget { left: LINK_BYTES_BURST, at: now };
        let budget = self.budgets.entry(link).or_insert(full);
        let passed_ms = now.saturating_sub(budget.at).as_millis();
        let gained = passed_ms.saturating_mul(LINK_BYTES_A_SECOND as u128) / 1_000;
        if gained > 0 {
            let gained = usize::try_from(gained).unwrap_or(usize::MAX);
            budget.left = budget.left.saturating_add(gained).min(LINK_BYTES_BURST);
            budget.at = now;
        }
        let enough = budget.left >= bytes;
        budget.left = budget.left.saturating_sub(if enough { bytes } else { 0 });
        enough
    }

    /// Forgets the budget of a link that is gone.
    pub(super) fn link_closed(&mut self, link: &PeerId) {
        self.budgets.remove(link);
    }

    /// Whether news waits for its signer to become a member.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the news was published or heard a moment ago.
    pub(super) fn knows(&mut self, news: &News, now: Duration) -> bool {
        self.seen.has(news, now)
    }

    /// Notes news that was published here.
    pub(super) fn published(&mut self, news: &News, now: Duration) {
        self.seen.note(news, now);
    }

    /// Judges a message by its signer; `None` where it waits. What proves itself is heard all
    /// the same: then the verdict is given later.
    pub(super) fn arrived(
        &mut self,
        arrival: Arrival,
        member: bool,
        now: Duration,
    ) -> (Option<Verdict>, Vec<Heard>) {
        if arrival.news.iter().all(|one| self.seen.has(one, now)) {
            return (Some(arrival.dropped()), Vec::new());
        }
        if member {
            return (Some(self.believe(arrival, now)), Vec::new());
        }
        let of_link = self.waiting.iter().filter(|(_, waiting)| waiting.link == arrival.link);
        if self.waiting.len() >= WAITING_MAX || of_link.count() >= WAITING_OF_LINK_MAX {
            return (Some(arrival.dropped()), Vec::new());
        }
        let mut heard = Vec::new();
        for news in &arrival.news {
            let proves_itself = matches!(news, News::Announcement(_) | News::Roster(_));
            if proves_itself && self.early.note(news, now) {
                heard.push(Heard { from: arrival.from, news: news.clone() });
            }
        }
        self.waiting.push_back((now + WAIT_FOR, arrival));
        (None, heard)
    }

    /// Judges again what waits: by whether its signer is a member now, or its time is up.
    pub(super) fn review(
        &mut self,
        now: Duration,
        member: impl Fn(&crypto::PeerId) -> bool,
    ) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let mut still = VecDeque::new();
        for (until, arrival) in std::mem::take(&mut self.waiting) {
            if member(&arrival.from) {
                verdicts.push(self.believe(arrival, now));
            } else if until <= now {
                verdicts.push(arrival.dropped());
            } else {
                still.push_back((until, arrival));
            }
        }
        self.waiting = still;
        verdicts
    }

    fn believe(&mut self, arrival: Arrival, now: Duration) -> Verdict {
        let Arrival { id, link, from, news } = arrival;
        let new: Vec<News> = news.into_iter().filter(|one| self.seen.note(one, now)).collect();
        let acceptance =
            if new.is_empty() { MessageAcceptance::Ignore } else { MessageAcceptance::Accept };
        let unheard = new.into_iter().filter(|one| !self.early.has(one, now));
        let heard = unheard.map(|news| Heard { from, news }).collect();
        Verdict { id, link, acceptance, heard }
    }
}

impl Arrival {
    pub(super) fn dropped(self) -> Verdict {
        let Self { id, link, .. } = self;
        Verdict { id, link, acceptance: MessageAcceptance::Ignore, heard: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(7);

    fn peer(byte: u8) -> crypto::PeerId {
        let secret = crypto::SecretKey::from_bytes(&[byte; 32]).expect("a scalar");
        crypto::PeerId::new(secret.public())
    }

    fn arrival(link: PeerId, from: u8, news: News) -> Arrival {
        let id = MessageId::new(&[from]);
        Arrival { id, link, from: peer(from), news: vec![news] }
    }

    fn envelope(number: u8) -> News {
        News::Envelope(vec![number].into())
    }

    fn is_accept(verdict: &Verdict) -> bool {
        matches!(verdict.acceptance, MessageAcceptance::Accept)
    }

    #[test]
    fn a_members_news_is_heard_once_and_passed_on() {
        let mut intake = Intake::default();
        let link = PeerId::random();
        let (verdict, _) = intake.arrived(arrival(link, 1, envelope(1)), true, NOW);
        let verdict = verdict.expect("no wait");
        assert!(is_accept(&verdict));
        assert_eq!(verdict.heard[0].news, envelope(1));
        let (again, heard) = intake.arrived(arrival(link, 2, envelope(1)), true, NOW);
        assert!(!is_accept(&again.expect("no wait")));
        assert!(heard.is_empty());
    }

    #[test]
    fn of_news_told_together_only_the_new_is_heard() {
        let mut intake = Intake::default();
        intake.published(&envelope(2), NOW);
        let mut together = arrival(PeerId::random(), 1, envelope(1));
        together.news.extend([envelope(2), envelope(3)]);
        let (verdict, _) = intake.arrived(together, true, NOW);
        let verdict = verdict.expect("no wait");
        assert!(is_accept(&verdict));
        let heard: Vec<_> = verdict.heard.into_iter().map(|heard| heard.news).collect();
        assert_eq!(heard, [envelope(1), envelope(3)]);
        let mut again = arrival(PeerId::random(), 2, envelope(3));
        again.news.push(envelope(1));
        let (verdict, _) = intake.arrived(again, true, NOW);
        assert!(!is_accept(&verdict.expect("no wait")));
    }

    #[test]
    fn a_strangers_envelope_waits_for_it_to_become_a_member() {
        let mut intake = Intake::default();
        let link = PeerId::random();
        for (from, number) in [(1, 1), (2, 2)] {
            let found = intake.arrived(arrival(link, from, envelope(number)), false, NOW);
            assert!(found.0.is_none() && found.1.is_empty());
        }
        assert!(intake.review(NOW, |_| false).is_empty());
        let verdicts = intake.review(NOW, |from| *from == peer(1));
        assert_eq!(verdicts.len(), 1);
        assert!(is_accept(&verdicts[0]) && verdicts[0].heard.len() == 1);
        let verdicts = intake.review(NOW + WAIT_FOR, |_| false);
        assert_eq!(verdicts.len(), 1);
        assert!(!is_accept(&verdicts[0]) && verdicts[0].heard.is_empty());
        assert!(!intake.is_waiting());
        // What was dropped so was not heard: from a member it still counts.
        let (verdict, _) = intake.arrived(arrival(link, 3, envelope(2)), true, NOW + WAIT_FOR);
        assert!(is_accept(&verdict.expect("no wait")));
    }

    #[test]
    fn a_strangers_announcement_is_heard_at_once_and_passed_on_when_it_counts() {
        let mut intake = Intake::default();
        let news = News::Announcement(vec![9].into());
        let (verdict, heard) =
            intake.arrived(arrival(PeerId::random(), 1, news.clone()), false, NOW);
        assert!(verdict.is_none());
        assert_eq!(heard[0].news, news);
        let verdicts = intake.review(NOW, |_| true);
        assert!(is_accept(&verdicts[0]) && verdicts[0].heard.is_empty());
    }

    #[test]
    fn what_waits_is_bounded_by_link_and_in_all() {
        let mut intake = Intake::default();
        let mut waiting = 0;
        for _ in 0..WAITING_MAX {
            let link = PeerId::random();
            for number in 0..=WAITING_OF_LINK_MAX as u8 {
                let found = intake.arrived(arrival(link, 1, envelope(number)), false, NOW);
                waiting += usize::from(found.0.is_none());
            }
            assert!(waiting % WAITING_OF_LINK_MAX == 0);
        }
        assert_eq!((waiting, intake.waiting.len()), (WAITING_MAX, WAITING_MAX));
    }

    #[test]
    fn a_link_brings_no_more_than_its_budget() {
        let mut intake = Intake::default();
        let (a, b) = (PeerId::random(), PeerId::random());
        assert!(intake.affordable(a, LINK_BYTES_BURST, NOW));
        assert!(!intake.affordable(a, 1, NOW));
        assert!(intake.affordable(b, 1, NOW));
        let second = NOW + Duration::from_secs(1);
        assert!(!intake.affordable(a, LINK_BYTES_A_SECOND + 1, second));
        assert!(intake.affordable(a, LINK_BYTES_A_SECOND, second));
        let hour = NOW + Duration::from_secs(3_600);
        assert!(!intake.affordable(a, LINK_BYTES_BURST + 1, hour));
        intake.link_closed(&a);
        assert!(intake.affordable(a, LINK_BYTES_BURST, second));
    }
}
