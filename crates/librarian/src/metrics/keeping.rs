//! What comparing and mending count.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counts since the peer's start.
#[derive(Default)]
pub(crate) struct KeepingCounts {
    pub(crate) compared: Counter,
    pub(crate) messages: Counter,
    pub(crate) copies: Counter,
    pub(crate) made: Counter,
    pub(crate) moved: Counter,
    pub(crate) dropped: Counter,
    pub(crate) fetched_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) served_bytes: Counter,
    /// Of a peer that leaves.
    pub(crate) to_hand_over: Gauge,
}

impl KeepingCounts {
    pub(super) fn register(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("repair_comparisons", "Comparisons with another peer that ended", &self.compared),
            ("repair_messages", "Calls made for comparisons", &self.messages),
            ("repair_copies_fetched", "Copies fetched that lacked here", &self.copies),
            ("repair_fragments_made", "Fragments made again and handed out", &self.made),
            ("repair_fragments_moved", "Own fragments handed to another holder", &self.moved),
            ("repair_surplus_dropped", "Records dropped that others hold", &self.dropped),
            ("repair_fetched_bytes", "Bytes of records fetched to mend", &self.fetched_bytes),
            ("repair_sent_bytes", "Bytes of records sent to mend", &self.sent_bytes),
            (
                "repair_served_bytes",
                "Bytes of copies given to peers that lack them",
                &self.served_bytes,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        let help = "Records that this peer, which leaves, has not handed over yet";
        registry.register("repair_to_hand_over", help, self.to_hand_over.clone());
    }
}
