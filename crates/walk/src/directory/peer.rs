//! One peer of the directory: what it announced, and how calls to it went.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{Announcement, OrgId, PeerId, PeerState, Roster};
use env::calls::{CallError, KnownPeer};
use placement::Candidate;

use super::turnover::SLOT_S;
use crate::health::{Health, Outcomes};
use crate::latency::Latency;

/// A peer, for people and for operators' pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Who it is.
    pub peer: PeerId,
    /// Whose it is.
    pub organisation: OrgId,
    /// What its organisation is called.
    pub organisation_name: String,
    /// Where it answers, best first.
    pub addresses: Vec<String>,
    /// What it says it is doing.
    pub state: PeerState,
    /// How well it is.
    pub health: Health,
    /// Time since the last good call to it, if there was one.
    pub last_good: Option<Duration>,
    /// Bytes it offers.
    pub capacity: u64,
}

/// Newer announcements that are taken of a peer at once.
const CHANGES_AT_ONCE: u32 = 16;
/// How long until one more is.
const CHANGE_EVERY: Duration = Duration::from_secs(2);

/// How many announcements of a peer were taken lately. Each is passed on by whoever takes it, changes what is placed where, and is a
/// line in everybody's log; so a peer that changes all the time is followed at a walk.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    count: u32,
    /// When the last of those that count no more ran out.
    since: Duration,
}

impl Changes {
    fn take(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.since).as_secs() / CHANGE_EVERY.as_secs();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        self.count = self.count.saturating_sub(passed);
        self.since = match self.count {
            0 => now,
            _ => self.since + CHANGE_EVERY * passed,
        };
        let may = self.count < CHANGES_AT_ONCE;
        self.count += u32::from(may);
        may
    }
}

pub(super) struct Peer {
    pub(super) announcement: Arc<Announcement>,
    pub(super) bytes: Bytes,
    pub(super) outcomes: Outcomes,
    pub(super) latency: Latency,
    /// Which of its addresses is tried next.
    address: usize,
    lateness: Lateness,
    changes: Changes,
    /// When a slow peer is asked in its turn again, to see whether it still is.
    pub(super) probe_at: Duration,
}

/// From when whoever announced this is in no view, Unix seconds: the first multiple of ten minutes at or behind the end of its
/// certificate. So those whose certificates end one after the other leave all at once, and views are the same for ten minutes.
pub(super) fn leaves_view_at(announcement: &Announcement) -> u64 {
    announcement.certificate.until.div_ceil(SLOT_S).saturating_mul(SLOT_S)
}

/// How placement ranks whoever announced this; `None` where it does not: it left, or its time is over.
pub(super) fn candidate(announcement: &Announcement, now_s: u64) -> Option<Candidate> {
    let ranks = announcement.state != PeerState::Left && now_s < leaves_view_at(announcement);
    let certificate = &announcement.certificate;
    ranks.then_some(Candidate {
        peer: certificate.peer,
        organisation: certificate.organisation,
        weight: certificate.capacity,
    })
}

/// What a call that was not answered in time says of the address in use. A firewall that drops what it is sent ends a dial so, and a
/// peer that is slow ends a call so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lateness {
    /// Nothing was answered there yet: it leads nowhere.
    #[default]
    Unknown,
    /// The last call was answered there.
    Answers,
    /// It was not, and one before it was: a second one in a row says that it leads nowhere any more.
    Late,
}

impl Lateness {
    fn is_too_late(&mut self) -> bool {
        let before = std::mem::replace(self, Self::Late);
        before != Self::Answers
    }
}

impl Peer {
    pub(super) fn new(announcement: Arc<Announcement>, bytes: Bytes) -> Self {
        Self {
            announcement,
            bytes,
            outcomes: Outcomes::default(),
            latency: Latency::default(),
            address: 0,
            lateness: Lateness::default(),
            changes: Changes::default(),
            probe_at: Duration::ZERO,
        }
    }

    /// Whether one more newer announcement is taken now; it counts.
    pub(super) fn may_change(&mut self, now: Duration) -> bool {
        self.changes.take(now)
    }

    /// Takes a newer announcement. A peer that came back or moved gets a fresh start: whoever announces is alive.
    pub(super) fn renew(&mut self, announcement: Arc<Announcement>, bytes: Bytes) {
        let addresses = &announcement.certificate.addresses;
        let moved = *addresses != self.announcement.certificate.addresses;
        if moved || self.announcement.state == PeerState::Stopped {
            self.outcomes = Outcomes::default();
            self.address = 0;
            self.lateness = Lateness::default();
        }
        self.announcement = announcement;
        self.bytes = bytes;
    }

    /// Whether it ever answered this program.
    pub(super) fn was_heard(&self) -> bool {
        self.outcomes.last_good().is_some()
    }

    /// Whether its certificate counts now (Unix seconds).
    pub(super) fn is_valid(&self, now_s: u64) -> bool {
        now_s < self.announcement.certificate.until
    }

    /// From when it is in no view any more, Unix seconds.
    pub(super) fn leaves_view_at(&self) -> u64 {
        leaves_view_at(&self.announcement)
    }

    /// How placement ranks it now; `None` where it does not.
    pub(super) fn candidate(&self, now_s: u64) -> Option<Candidate> {
        candidate(&self.announcement, now_s)
    }

    pub(super) fn address(&self) -> Option<&str> {
        let addresses = &self.announcement.certificate.addresses;
        let at = self.address % addresses.len().max(1);
        addresses.get(at).map(String::as_str)
    }

    /// The one that is tried next, and behind it all others.
    pub(super) fn addresses(&self) -> Option<(String, Vec<String>)> {
        let all = &self.announcement.certificate.addresses;
        let at = self.address % all.len().max(1);
        let mut all = all.iter().cycle().skip(at).take(all.len()).cloned();
        Some((all.next()?, all.collect()))
    }

    pub(super) fn good(&mut self, now: Duration) {
        self.lateness = Lateness::Answers;
        self.outcomes.good(now);
    }

    /// Nobody answered at the address that is tried next: where that is its only one, nor did the peer.
    pub(super) fn unanswered(&mut self, error: &CallError, now: Duration) {
        if self.announcement.certificate.addresses.len() > 1 {
            self.address = self.address.wrapping_add(1);
            self.lateness = Lateness::default();
        } else {
            self.failed(error, now);
        }
    }

    /// The next address counts from now on where this failure says that the one in use leads nowhere. Calls that shared a
    /// dial fail together, and only the first of them moves on.
    pub(super) fn failed(&mut self, error: &CallError, now: Duration) {
        let leads_nowhere = match error {
            CallError::Unreachable { address, .. } | CallError::WrongPeer { address, .. } => {
                self.address() == Some(address)
            }
            CallError::TimedOut { address, .. } => {
                self.address() == Some(address) && self.lateness.is_too_late()
            }
            _ => false,
        };
        if leads_nowhere {
            self.address = self.address.wrapping_add(1);
            self.lateness = Lateness::default();
        }
        self.outcomes.failed(error, now);
    }

    pub(super) fn health(&self, now: Duration) -> Health {
        self.outcomes.health(self.announcement.state, now)
    }

    pub(super) fn known(&self, now: Duration) -> KnownPeer {
        let since = self.outcomes.last_good().map(|at| now.saturating_sub(at).as_millis());
        KnownPeer {
            announcement: self.bytes.clone(),
            last_good_ms: since.map(|since| u64::try_from(since).unwrap_or(u64::MAX)),
        }
    }

    pub(super) fn status(&self, roster: &Roster, now: Duration) -> PeerStatus {
        let certificate = &self.announcement.certificate;
        let organisation = roster.organisation(&certificate.organisation);
        PeerStatus {
            peer: certificate.peer,
            organisation: certificate.organisation,
            organisation_name: organisation.map(|found| found.name.clone()).unwrap_or_default(),
            addresses: certificate.addresses.clone(),
            state: self.announcement.state,
            health: self.health(now),
            last_good: self.outcomes.last_good().map(|at| now.saturating_sub(at)),
            capacity: certificate.capacity,
        }
    }
}
