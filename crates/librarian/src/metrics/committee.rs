//! Levels of the member of a committee that the peer hosts; all zero where it hosts none.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::committee::MemberStatus;

/// The member at the moment somebody asks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemberLevels {
    height: u64,
    epoch: u64,
    votes: bool,
    needed: u32,
    heard: u32,
    waiting: u64,
    entries: u64,
    state_bytes: u64,
}

impl From<&MemberStatus> for MemberLevels {
    fn from(status: &MemberStatus) -> Self {
        Self {
            height: status.height,
            epoch: status.epoch,
            votes: status.running && status.votes,
            needed: status.needed,
            heard: status.heard,
            waiting: status.waiting,
            entries: status.entries,
            state_bytes: status.state_bytes,
        }
    }
}

/// Levels as they are told.
#[derive(Default)]
pub(crate) struct MemberGauges {
    height: Gauge,
    epoch: Gauge,
    votes: Gauge,
    needed: Gauge,
    heard: Gauge,
    waiting: Gauge,
    entries: Gauge,
    state_bytes: Gauge,
}

impl MemberGauges {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Height of the newest certified header that the committee's member here knows";
        registry.register("committee_height", help, self.height.clone());
        registry.register("committee_epoch", "Its epoch", self.epoch.clone());
        let help = "1 where the committee's member here runs and votes";
        registry.register("committee_votes", help, self.votes.clone());
        let help = "Members of the committee that must agree";
        registry.register("committee_needed", help, self.needed.clone());
        let help = "Members of the committee that are heard, the one here among them";
        registry.register("committee_heard", help, self.heard.clone());
        let help = "Submissions that wait at the committee's member here";
        registry.register("committee_waiting", help, self.waiting.clone());
        let help = "Entries of the committee's state";
        registry.register("committee_entries", help, self.entries.clone());
        let help = "Bytes of the committee's state";
        registry.register("committee_state_bytes", help, self.state_bytes.clone());
    }

    pub(super) fn set(&self, levels: &MemberLevels) {
        let level = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.height.set(level(levels.height));
        self.epoch.set(level(levels.epoch));
        self.votes.set(i64::from(levels.votes));
        self.needed.set(i64::from(levels.needed));
        self.heard.set(i64::from(levels.heard));
        self.waiting.set(level(levels.waiting));
        self.entries.set(level(levels.entries));
        self.state_bytes.set(level(levels.state_bytes));
    }
}
