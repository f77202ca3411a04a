//! What challenges count.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Counts since the peer's start.
#[derive(Default)]
pub(crate) struct AuditCounts {
    pub(crate) challenges: Counter,
    pub(crate) proven: Counter,
    pub(crate) failed: Counter,
    pub(crate) late: Counter,
    pub(crate) void: Counter,
    pub(crate) given: Counter,
    pub(crate) refused: Counter,
    pub(crate) lost: Counter,
}

impl AuditCounts {
    pub(super) fn register(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("audit_challenges", "Challenges to other peers", &self.challenges),
            ("audit_proven", "Items that other peers proved", &self.proven),
            ("audit_failed", "Items that other peers did not prove in time", &self.failed),
            ("audit_late", "Challenges answered after the deadline", &self.late),
            ("audit_void", "Challenges that said nothing of what is held", &self.void),
            ("audit_given", "Items proven to other peers", &self.given),
            ("audit_refused", "Items that could not be proven to other peers", &self.refused),
            (
                "audit_lost",
                "Own records found lost or damaged when they were to be proven",
                &self.lost,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}
