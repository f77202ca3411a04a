//! What becomes of news that arrives: heard and passed on, kept for a moment, or dropped.
//!
//! ```text
//! not the wire form                          refused: counts against the link it came by
//! over the link's budget                     dropped; a link that goes on is closed ([`FLOODS_FOR`])
//! heard or published in the last 2 minutes   dropped
//! its signer is forgotten                    dropped
//! over what may be told                      dropped: see below whose budget it is
//! its signer is a member                     heard; passed on where a member's link brought it
//! its signer is no member (yet):
//!   no room for it                           dropped, before its signature is checked
//!   an announcement                          heard (it proves itself), passed on once it made
//!                                            its signer a member, dropped after WAIT_FOR
//!   an envelope                              heard and passed on once its signer is a member,
//!                                            dropped after WAIT_FOR
//! ```
//! Why a stranger's link has nothing passed on: news has no time in it, so what a member told long ago is new again once it
//! is out of memory, and whoever kept it could have the whole network believe and pass it on anew. So it ends
//! at the peer it was brought to. It is heard there all the same, once, or a stranger that is quicker than the members could
//! hide what they tell; and it does not count as told: who was to tell it still does, and a member's telling is passed on.
//!
//! Why not drop a stranger's news at once: a newcomer's announcement and its first envelope race
//! each other to peers that have not heard of it, and what a peer dropped once the mesh will not
//! bring again. Why an announcement is heard before anybody vouches for its signer: otherwise
//! nobody could ever become known. What is passed on was always believed first, so a stranger's
//! noise ends at the peers it is linked to.
//!
//! The mesh names a message by all of its bytes, signer and signature among them, not by its news alone: else a stranger
//! could sign a member's envelope anew, or badly in the member's name, and, arriving first, keep the genuine one
//! from being heard. A message of several news counts while any of it is new.
//!
//! Why organisations have budgets beside links: what is passed on comes by honest links, so a member that gives each neighbour
//! other noise would use up theirs with everybody else. Whose budget a member's message is taken from depends on who brought it,
//! since anybody can bring again what was told long ago, and must not silence in this way who told it then:
//! ```text
//! a stranger's link                          one that all strangers share: nothing of it is passed on
//! a link of the signer's own organisation    that organisation's
//! another member's link                      the same, and of it no more than PASSED_ON_BYTES_*, a quarter, by all links of
//!                                            the organisation that brings it
//! ```
//! So it takes several organisations that all replay to use up another's budget at a peer. What this leaves: a member that
//! brings other old messages to each of many neighbours has each pass a quarter on, and where those meet they are the
//! teller's. Only a time in each message could tell old from new.
//!
//! And why a member's link is closed too where it goes on over its budget: of each message,
//! dropped or not, gossipsub keeps for two minutes that it came.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crypto::OrgId;
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
/// Bytes of news that the members of one organisation may tell a second, on average: two cannot use up a link.
pub(super) const ORGANISATION_BYTES_A_SECOND: usize = LINK_BYTES_A_SECOND / 2;
/// Bytes of news that they may tell at once.
pub(super) const ORGANISATION_BYTES_BURST: usize = LINK_BYTES_BURST / 2;
/// Bytes of one organisation's news that the links of another one may bring a second, on average, all together.
pub(super) const PASSED_ON_BYTES_A_SECOND: usize = ORGANISATION_BYTES_A_SECOND / 4;
/// Bytes of them that they may bring at once.
pub(super) const PASSED_ON_BYTES_BURST: usize = ORGANISATION_BYTES_BURST / 4;
/// Bytes of members' news that the links of all strangers together may bring a second, on average.
pub(super) const STRANGERS_BYTES_A_SECOND: usize = ORGANISATION_BYTES_A_SECOND;
/// Bytes of it that they may bring at once.
pub(super) const STRANGERS_BYTES_BURST: usize = ORGANISATION_BYTES_BURST;
/// What a message counts as at least where a stranger's link brings it: small ones cost as much to look at.
pub(super) const STRANGERS_MESSAGE_BYTES_MIN: usize = 4 << 10;
/// The same of a member's link. Peers tell many news in one message, and give theirs to others to tell.
pub(super) const MESSAGE_BYTES_MIN: usize = 1 << 10;
/// How long a link that brought [`LINK_BYTES_BURST`] more than it may is not taken again.
pub const FLOODS_FOR: Duration = Duration::from_secs(60);
/// Organisations whose budgets are remembered: more than a roster has.
const ORGANISATIONS_MAX: usize = 4_096;
/// Pairs of who tells and who passes it on whose budgets are remembered; each is full again after four seconds without news.
const PASSED_ON_MAX: usize = 4_096;
/// Budgets of links that are gone, at most; each is kept until it is full again.
const BUDGETS_KEPT: usize = 1_024;

/// Who is a member of the network, of those that a message is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trust {
    /// Its signer.
    pub(super) signer: bool,
    /// Whoever passed it to us.
    pub(super) link: bool,
}

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
    /// Published here, or heard from a member by a member's link.
    seen: Seen,
    /// Heard because a stranger brought or signed it: strangers make it heard once.
    early: Seen,
    waiting: VecDeque<Waiting>,
    budgets: HashMap<PeerId, Budget>,
    /// By who tells, as it signed.
    organisations: HashMap<OrgId, Budget>,
    /// By who tells, as it signed, and who of another organisation passes it on.
    passed_on: HashMap<(OrgId, OrgId), Budget>,
    /// Of what members told and strangers bring; `None` before the first of it.
    strangers: Option<Budget>,
}

/// What a message told whose signer is not known yet.
struct Waiting {
    until: Duration,
    arrival: Arrival,
    /// What of it was heard all the same.
    heard: Vec<News>,
}

/// Bytes that may come, at a rate and with a burst.
#[derive(Clone, Copy)]
struct Budget {
    left: usize,
    /// What came although nothing was left; it runs out at the same rate.
    over: usize,
    at: Duration,
}

impl Budget {
    const fn full(burst: usize, now: Duration) -> Self {
        Self { left: burst, over: 0, at: now }
    }

    /// Takes so many bytes, all or none.
    fn take(&mut self, bytes: usize, (rate, burst): (usize, usize), now: Duration) -> bool {
        let passed_ms = now.saturating_sub(self.at).as_millis();
        let gained = passed_ms.saturating_mul(rate as u128) / 1_000;
        if gained > 0 {
            let gained = usize::try_from(gained).unwrap_or(usize::MAX);
            self.left = self.left.saturating_add(gained).min(burst);
            self.over = self.over.saturating_sub(gained);
            self.at = now;
        }
        let enough = self.left >= bytes;
        match enough {
            true => self.left -= bytes,
            false => self.over = self.over.saturating_add(bytes),
        }
        enough
    }
}

/// A link's rate and burst.
const LINK: (usize, usize) = (LINK_BYTES_A_SECOND, LINK_BYTES_BURST);
/// What a link is over it that is not taken for a while: it runs out when the link may be taken again.
const FLOODING: usize = LINK_BYTES_BURST + FLOODS_FOR.as_secs() as usize * LINK_BYTES_A_SECOND;
/// Those of an organisation.
const ORGANISATION: (usize, usize) = (ORGANISATION_BYTES_A_SECOND, ORGANISATION_BYTES_BURST);
/// Those of what one organisation passes on of another.
const PASSED_ON: (usize, usize) = (PASSED_ON_BYTES_A_SECOND, PASSED_ON_BYTES_BURST);
/// Those of what strangers bring of members.
const STRANGERS: (usize, usize) = (STRANGERS_BYTES_A_SECOND, STRANGERS_BYTES_BURST);

impl Intake {
    /// Whether the link may still bring a message of so many bytes; they are taken from its budget.
    pub(super) fn affordable(
        &mut self,
        link: PeerId,
        member: bool,
        bytes: usize,
        now: Duration,
    ) -> bool {
        let least = if member { MESSAGE_BYTES_MIN } else { STRANGERS_MESSAGE_BYTES_MIN };
        let budget = self.budgets.entry(link).or_insert(Budget::full(LINK_BYTES_BURST, now));
        let may = budget.take(bytes.max(least), LINK, now);
        if budget.over > LINK_BYTES_BURST {
            budget.over = FLOODING;
        }
        may
    }

    /// Counts the link as one that brought so much more than it may that it is not taken for a while.
    pub(super) fn floods(&mut self, link: PeerId, now: Duration) {
        self.budgets.insert(link, Budget { left: 0, over: FLOODING, at: now });
    }

    /// Whether the link brought so much more than it may that it is not taken for a while.
    pub(super) fn is_flooding(&mut self, link: &PeerId, now: Duration) -> bool {
        let Some(budget) = self.budgets.get_mut(link) else { return false };
        budget.take(0, LINK, now);
        budget.over > LINK_BYTES_BURST
    }

    /// Whether a message of so many bytes may still count that a member of the organisation signed and a link of the
    /// organisation `by` brought, `None` of a stranger. The bytes are taken from the budgets that the module names. That it
    /// was signed says who told it once, and not who tells it now.
    pub(super) fn may_tell(
        &mut self,
        organisation: OrgId,
        by: Option<OrgId>,
        bytes: usize,
        now: Duration,
    ) -> bool {
        let Some(by) = by else {
            let full = Budget::full(STRANGERS_BYTES_BURST, now);
            return self.strangers.get_or_insert(full).take(bytes, STRANGERS, now);
        };
        // First: what is over this takes nothing of what is the teller's.
        if by != organisation && !self.may_pass_on(organisation, by, bytes, now) {
            return false;
        }
        if self.organisations.len() >= ORGANISATIONS_MAX
            && !self.organisations.contains_key(&organisation)
        {
            self.organisations.clear();
        }
        let full = Budget::full(ORGANISATION_BYTES_BURST, now);
        let budget = self.organisations.entry(organisation).or_insert(full);
        budget.take(bytes, ORGANISATION, now)
    }

    /// Whether the links of `by` may still bring so many bytes that members of the organisation signed.
    fn may_pass_on(&mut self, organisation: OrgId, by: OrgId, bytes: usize, now: Duration) -> bool {
        let pair = (organisation, by);
        if self.passed_on.len() >= PASSED_ON_MAX && !self.passed_on.contains_key(&pair) {
            self.passed_on.retain(|_, budget| {
                budget.take(0, PASSED_ON, now);
                budget.left < PASSED_ON_BYTES_BURST
            });
            if self.passed_on.len() >= PASSED_ON_MAX {
                self.passed_on.clear();
            }
        }
        let full = Budget::full(PASSED_ON_BYTES_BURST, now);
        self.passed_on.entry(pair).or_insert(full).take(bytes, PASSED_ON, now)
    }

    /// A link is gone. Its budget stays until it is full again, or a new link would begin with another burst.
    pub(super) fn link_closed(&mut self, link: &PeerId, now: Duration) {
        if self.budgets.len() > BUDGETS_KEPT {
            self.budgets.retain(|_, budget| {
                budget.take(0, LINK, now);
                budget.left < LINK_BYTES_BURST || budget.over > 0
            });
            if self.budgets.len() > BUDGETS_KEPT {
                self.budgets.remove(link);
            }
        }
    }

    /// Whether news waits for its signer to become a member.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether one more message that came by the link could wait for its signer.
    pub(super) fn has_room(&self, link: &PeerId) -> bool {
        let of_link = self.waiting.iter().filter(|waiting| waiting.arrival.link == *link);
        self.waiting.len() < WAITING_MAX && of_link.count() < WAITING_OF_LINK_MAX
    }

    /// Whether the news was told a moment ago: published here, or passed on.
    pub(super) fn knows(&mut self, news: &News, now: Duration) -> bool {
        self.seen.has(news, now)
    }

    /// Whether it makes no difference that this link brings the news.
    pub(super) fn is_old(&mut self, news: &News, by_member: bool, now: Duration) -> bool {
        self.seen.has(news, now) || !by_member && self.early.has(news, now)
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
        trust: Trust,
        now: Duration,
    ) -> (Option<Verdict>, Vec<Heard>) {
        if arrival.news.iter().all(|one| self.is_old(one, trust.link, now)) {
            return (Some(arrival.dropped()), Vec::new());
        }
        if trust.signer {
            return (Some(self.believe(arrival, trust.link, now)), Vec::new());
        }
        if !self.has_room(&arrival.link) {
            return (Some(arrival.dropped()), Vec::new());
        }
        let mut heard = Vec::new();
        for news in &arrival.news {
            let proves_itself = matches!(news, News::Announcement(_) | News::Roster(_));
            if proves_itself && self.early.note(news, now) {
                heard.push(Heard { from: arrival.from, news: news.clone() });
            }
        }
        let told = heard.iter().map(|heard: &Heard| heard.news.clone()).collect();
        self.waiting.push_back(Waiting { until: now + WAIT_FOR, arrival, heard: told });
        (None, heard)
    }

    /// Judges again what waits: by who is a member now, of its signer and its link, or its time is up.
    pub(super) fn review(
        &mut self,
        now: Duration,
        trust: impl Fn(&crypto::PeerId, &PeerId) -> Trust,
    ) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let mut still = VecDeque::new();
        for waiting in std::mem::take(&mut self.waiting) {
            let trust = trust(&waiting.arrival.from, &waiting.arrival.link);
            if trust.signer {
                let mut verdict = self.believe(waiting.arrival, trust.link, now);
                verdict.heard.retain(|heard| !waiting.heard.contains(&heard.news));
                verdicts.push(verdict);
            } else if waiting.until <= now {
                verdicts.push(waiting.arrival.dropped());
            } else {
                still.push_back(waiting);
            }
        }
        self.waiting = still;
        verdicts
    }

    /// What a member tells; passed on where a member's link brought it. What was heard of a stranger is heard again of a
    /// member: it may have been dropped then, for many strangers share one rate.
    fn believe(&mut self, arrival: Arrival, by_member: bool, now: Duration) -> Verdict {
        let Arrival { id, link, from, news } = arrival;
        let note = |one: &News| match by_member {
            true => self.seen.note(one, now),
            false => !self.seen.has(one, now) && self.early.note(one, now),
        };
        let new: Vec<News> = news.into_iter().filter(note).collect();
        let pass_on = by_member && !new.is_empty();
        let acceptance = match pass_on {
            true => MessageAcceptance::Accept,
            false => MessageAcceptance::Ignore,
        };
        let heard = new.into_iter().map(|news| Heard { from, news }).collect();
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

    fn organisation(byte: u8) -> OrgId {
        OrgId::new(*peer(byte).key())
    }

    fn arrival(link: PeerId, from: u8, news: News) -> Arrival {
        let id = MessageId::new(&[from]);
        Arrival { id, link, from: peer(from), news: vec![news] }
    }

    /// A member's link brings it.
    const fn by_member(signer: bool) -> Trust {
        Trust { signer, link: true }
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
        let (verdict, _) = intake.arrived(arrival(link, 1, envelope(1)), by_member(true), NOW);
        let verdict = verdict.expect("no wait");
        assert!(is_accept(&verdict));
        assert_eq!(verdict.heard[0].news, envelope(1));
        let (again, heard) = intake.arrived(arrival(link, 2, envelope(1)), by_member(true), NOW);
        assert!(!is_accept(&again.expect("no wait")));
        assert!(heard.is_empty());
    }

    #[test]
    fn of_news_told_together_only_the_new_is_heard() {
        let mut intake = Intake::default();
        intake.published(&envelope(2), NOW);
        let mut together = arrival(PeerId::random(), 1, envelope(1));
        together.news.extend([envelope(2), envelope(3)]);
        let (verdict, _) = intake.arrived(together, by_member(true), NOW);
        let verdict = verdict.expect("no wait");
        assert!(is_accept(&verdict));
        let heard: Vec<_> = verdict.heard.into_iter().map(|heard| heard.news).collect();
        assert_eq!(heard, [envelope(1), envelope(3)]);
        let mut again = arrival(PeerId::random(), 2, envelope(3));
        again.news.push(envelope(1));
        let (verdict, _) = intake.arrived(again, by_member(true), NOW);
        assert!(!is_accept(&verdict.expect("no wait")));
    }

    #[test]
    fn a_strangers_envelope_waits_for_it_to_become_a_member() {
        let mut intake = Intake::default();
        let link = PeerId::random();
        for (from, number) in [(1, 1), (2, 2)] {
            let found =
                intake.arrived(arrival(link, from, envelope(number)), by_member(false), NOW);
            assert!(found.0.is_none() && found.1.is_empty());
        }
        assert!(intake.review(NOW, |_, _| by_member(false)).is_empty());
        let verdicts = intake.review(NOW, |from, _| by_member(*from == peer(1)));
        assert_eq!(verdicts.len(), 1);
        assert!(is_accept(&verdicts[0]) && verdicts[0].heard.len() == 1);
        let verdicts = intake.review(NOW + WAIT_FOR, |_, _| by_member(false));
        assert_eq!(verdicts.len(), 1);
        assert!(!is_accept(&verdicts[0]) && verdicts[0].heard.is_empty());
        assert!(!intake.is_waiting());
        // What was dropped so was not heard: from a member it still counts.
        let (verdict, _) =
            intake.arrived(arrival(link, 3, envelope(2)), by_member(true), NOW + WAIT_FOR);
        assert!(is_accept(&verdict.expect("no wait")));
    }

    #[test]
    fn a_strangers_announcement_is_heard_at_once_and_passed_on_when_it_counts() {
        let mut intake = Intake::default();
        let news = News::Announcement(vec![9].into());
        let (verdict, heard) =
            intake.arrived(arrival(PeerId::random(), 1, news.clone()), by_member(false), NOW);
        assert!(verdict.is_none());
        assert_eq!(heard[0].news, news);
        let (again, heard) =
            intake.arrived(arrival(PeerId::random(), 2, news.clone()), by_member(false), NOW);
        assert!(again.is_none() && heard.is_empty(), "strangers make it heard once");
        let verdicts = intake.review(NOW, |from, _| by_member(*from == peer(1)));
        assert!(is_accept(&verdicts[0]));
        assert!(verdicts[0].heard.is_empty(), "heard when it came");
    }

    #[test]
    fn a_strangers_telling_first_hides_no_members_roster() {
        let mut intake = Intake::default();
        let roster = News::Roster(vec![9].into());
        let (verdict, heard) =
            intake.arrived(arrival(PeerId::random(), 1, roster.clone()), by_member(false), NOW);
        assert!(verdict.is_none() && heard.len() == 1);
        let (verdict, _) =
            intake.arrived(arrival(PeerId::random(), 2, roster.clone()), by_member(true), NOW);
        let verdict = verdict.expect("no wait");
        assert!(is_accept(&verdict));
        assert_eq!(verdict.heard[0].news, roster);
    }

    #[test]
    fn what_a_strangers_link_brings_is_heard_and_not_passed_on() {
        let mut intake = Intake::default();
        let stranger = PeerId::random();
        let trust = Trust { signer: true, link: false };
        let (verdict, _) = intake.arrived(arrival(stranger, 1, envelope(1)), trust, NOW);
        let verdict = verdict.expect("no wait");
        assert!(!is_accept(&verdict) && verdict.heard.len() == 1);
        // Nor where it waited for its signer; where its link is a member by then, it is.
        for (link, number) in [(false, 2), (true, 3)] {
            let waits = Trust { signer: false, link: false };
            let (verdict, _) = intake.arrived(arrival(stranger, 2, envelope(number)), waits, NOW);
            assert!(verdict.is_none());
            let verdicts = intake.review(NOW, |_, _| Trust { signer: true, link });
            assert_eq!(is_accept(&verdicts[0]), link);
            assert_eq!(verdicts[0].heard.len(), 1);
        }
    }

    #[test]
    fn what_a_strangers_link_brings_is_heard_once_and_does_not_count_as_told() {
        let mut intake = Intake::default();
        let stranger = Trust { signer: true, link: false };
        let by_stranger = |intake: &mut Intake, from| {
            let (verdict, _) =
                intake.arrived(arrival(PeerId::random(), from, envelope(1)), stranger, NOW);
            verdict.expect("no wait").heard.len()
        };
        assert_eq!((by_stranger(&mut intake, 1), by_stranger(&mut intake, 2)), (1, 0));
        assert!(!intake.knows(&envelope(1), NOW), "who was to tell it still does");
        let told = arrival(PeerId::random(), 2, envelope(1));
        let (verdict, _) = intake.arrived(told, by_member(true), NOW);
        let verdict = verdict.expect("no wait");
        assert!(is_accept(&verdict) && verdict.heard.len() == 1);
        assert!(intake.knows(&envelope(1), NOW));
        assert_eq!(by_stranger(&mut intake, 3), 0);
    }

    #[test]
    fn what_waits_is_bounded_by_link_and_in_all() {
        let mut intake = Intake::default();
        let mut waiting = 0;
        for _ in 0..WAITING_MAX {
            let link = PeerId::random();
            for number in 0..=WAITING_OF_LINK_MAX as u8 {
                let found =
                    intake.arrived(arrival(link, 1, envelope(number)), by_member(false), NOW);
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
        assert!(intake.affordable(a, true, LINK_BYTES_BURST, NOW));
        assert!(!intake.affordable(a, true, 1, NOW));
        assert!(intake.affordable(b, true, 1, NOW));
        let second = NOW + Duration::from_secs(1);
        assert!(!intake.affordable(a, true, LINK_BYTES_A_SECOND + 1, second));
        assert!(intake.affordable(a, true, LINK_BYTES_A_SECOND, second));
        let hour = NOW + Duration::from_secs(3_600);
        assert!(!intake.affordable(a, true, LINK_BYTES_BURST + 1, hour));
    }

    #[test]
    fn a_new_link_of_the_same_peer_has_what_is_left_of_the_budget() {
        let mut intake = Intake::default();
        let link = PeerId::random();
        assert!(intake.affordable(link, true, LINK_BYTES_BURST, NOW));
        intake.link_closed(&link, NOW);
        assert!(!intake.affordable(link, true, 1, NOW));
        // Of those that are gone only so many are kept, and those that are full again are the first to go.
        for _ in 0..2 * BUDGETS_KEPT {
            let other = PeerId::random();
            assert!(intake.affordable(other, true, 1, NOW));
            intake.link_closed(&other, NOW + Duration::from_secs(1));
        }
        assert!(intake.budgets.len() <= BUDGETS_KEPT + 1);
        assert!(!intake.affordable(link, true, LINK_BYTES_BURST, NOW + Duration::from_secs(1)));
    }

    #[test]
    fn a_link_that_goes_on_over_its_budget_floods_for_a_while() {
        let mut intake = Intake::default();
        let (link, steady) = (PeerId::random(), PeerId::random());
        let messages = LINK_BYTES_BURST / MESSAGE_BYTES_MIN;
        for _ in 0..2 * messages {
            intake.affordable(link, true, 1, NOW);
        }
        assert!(!intake.is_flooding(&link, NOW), "a burst over it is met anywhere");
        assert!(!intake.affordable(link, true, 1, NOW));
        assert!(intake.is_flooding(&link, NOW));
        intake.link_closed(&link, NOW);
        assert!(intake.is_flooding(&link, NOW + FLOODS_FOR - Duration::from_secs(1)));
        assert!(!intake.is_flooding(&link, NOW + FLOODS_FOR));
        // Twice what it may: as much is dropped as it may bring, and runs out as fast.
        for second in 0..100 {
            for _ in 0..2 * LINK_BYTES_A_SECOND / MESSAGE_BYTES_MIN {
                intake.affordable(steady, true, 1, NOW + Duration::from_secs(second));
            }
        }
        assert!(!intake.is_flooding(&steady, NOW + Duration::from_secs(100)));
    }

    #[test]
    fn an_organisation_leaves_room_for_others_on_every_link() {
        let mut intake = Intake::default();
        let [one, other] = [organisation(1), organisation(2)];
        assert!(intake.may_tell(one, Some(one), ORGANISATION_BYTES_BURST, NOW));
        assert!(!intake.may_tell(one, Some(one), 1, NOW));
        assert!(!intake.may_tell(one, Some(other), 1, NOW), "nor what others pass on of it");
        assert!(intake.may_tell(other, Some(other), 1, NOW));
        assert!(intake.may_tell(other, Some(one), 1, NOW));
        let second = NOW + Duration::from_secs(1);
        assert!(intake.may_tell(one, Some(one), ORGANISATION_BYTES_A_SECOND, second));
        assert!(!intake.may_tell(one, Some(one), 1, second));
    }

    #[test]
    fn what_strangers_bring_of_a_member_takes_nothing_of_its_organisations_budget() {
        let mut intake = Intake::default();
        let [one, other] = [organisation(1), organisation(2)];
        // Half of it of each of two organisations: strangers have one budget for all of them.
        let half = STRANGERS_BYTES_BURST / 2;
        assert!(intake.may_tell(one, None, half, NOW));
        assert!(intake.may_tell(other, None, half, NOW));
        assert!(!intake.may_tell(one, None, 1, NOW));
        assert!(intake.may_tell(one, Some(one), ORGANISATION_BYTES_BURST, NOW));
        assert!(intake.may_tell(other, Some(one), PASSED_ON_BYTES_BURST, NOW));
        let second = NOW + Duration::from_secs(1);
        assert!(intake.may_tell(one, None, STRANGERS_BYTES_A_SECOND, second));
        assert!(!intake.may_tell(one, None, 1, second));
    }

    #[test]
    fn what_another_organisation_brings_takes_a_part_of_the_tellers_budget_alone() {
        let mut intake = Intake::default();
        let [one, other, third] = [organisation(1), organisation(2), organisation(3)];
        let mut brought = 0;
        // All that a link of the other may bring at once, of what the one told long ago.
        for _ in 0..LINK_BYTES_BURST / MESSAGE_BYTES_MIN {
            let taken = intake.may_tell(one, Some(other), MESSAGE_BYTES_MIN, NOW);
            brought += usize::from(taken) * MESSAGE_BYTES_MIN;
        }
        assert_eq!(brought, PASSED_ON_BYTES_BURST);
        let left = ORGANISATION_BYTES_BURST - PASSED_ON_BYTES_BURST;
        assert!(intake.may_tell(one, Some(third), PASSED_ON_BYTES_BURST, NOW));
        assert!(intake.may_tell(one, Some(one), left - PASSED_ON_BYTES_BURST, NOW));
        assert!(!intake.may_tell(one, Some(one), 1, NOW), "the whole of it is bounded as before");
        let second = NOW + Duration::from_secs(1);
        assert!(intake.may_tell(one, Some(other), PASSED_ON_BYTES_A_SECOND, second));
        assert!(!intake.may_tell(one, Some(other), 1, second));
    }

    #[test]
    fn budgets_of_who_passes_on_whose_news_are_bounded() {
        let mut intake = Intake::default();
        let organisations: Vec<OrgId> = (1..=70).map(organisation).collect();
        let mut pairs = Vec::new();
        for teller in &organisations {
            pairs.extend(organisations.iter().filter(|by| *by != teller).map(|by| (*teller, *by)));
        }
        assert!(pairs.len() > PASSED_ON_MAX);
        let (used_up, others) = pairs.split_first().expect("a pair");
        assert!(intake.may_tell(used_up.0, Some(used_up.1), PASSED_ON_BYTES_BURST, NOW));
        let (first, last) = others.split_at(PASSED_ON_MAX - 1);
        for (teller, by) in first {
            assert!(intake.may_tell(*teller, Some(*by), 1, NOW));
        }
        assert_eq!(intake.passed_on.len(), PASSED_ON_MAX);
        // Where there is no more room, those that are full again are forgotten, and not the one that is used up.
        let later = NOW + Duration::from_millis(1);
        for (teller, by) in last {
            assert!(intake.may_tell(*teller, Some(*by), 1, later));
        }
        assert_eq!(intake.passed_on.len(), last.len() + 1);
        assert!(!intake.may_tell(used_up.0, Some(used_up.1), PASSED_ON_BYTES_BURST, later));
        // Nor does it grow where none is full.
        for (teller, by) in first {
            assert!(intake.may_tell(*teller, Some(*by), 2, later));
            assert!(intake.passed_on.len() <= PASSED_ON_MAX);
        }
    }

    #[test]
    fn a_strangers_small_messages_count_as_larger_ones() {
        let mut intake = Intake::default();
        let (stranger, member) = (PeerId::random(), PeerId::random());
        let most = LINK_BYTES_BURST / STRANGERS_MESSAGE_BYTES_MIN;
        let taken = (0..2 * most).filter(|_| intake.affordable(stranger, false, 100, NOW)).count();
        assert_eq!(taken, most);
        assert!((0..2 * most).all(|_| intake.affordable(member, true, 100, NOW)));
        let members = LINK_BYTES_BURST / MESSAGE_BYTES_MIN - 2 * most;
        let taken = (0..2 * members).filter(|_| intake.affordable(member, true, 1, NOW)).count();
        assert_eq!(taken, members);
    }
}
