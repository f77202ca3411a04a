//! What leases count.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counts of the leases since the peer's start, and levels as they are asked for.
#[derive(Default)]
pub(crate) struct LeaseCounts {
    pub(crate) ended: Counter,
    pub(crate) dropped: Counter,
    held: Gauge,
    places: Gauge,
    bytes: Gauge,
    tombstones: Gauge,
}

/// The leases of a peer at the moment somebody asks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseLevels {
    pub(crate) leases: usize,
    pub(crate) places: usize,
    /// Of all organisations together.
    pub(crate) bytes: u64,
    pub(crate) tombstones: usize,
}

impl LeaseCounts {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Leases that ended, by their time or by a word of their client";
        registry.register("leases_ended", help, self.ended.clone());
        let help = "Records dropped since nobody paid for them any more";
        registry.register("lease_dropped_records", help, self.dropped.clone());
        let help = "Leases that run here";
        registry.register("leases", help, self.held.clone());
        let help = "Places that leases pay for";
        registry.register("leased_places", help, self.places.clone());
        let help = "Bytes that organisations pay for here";
        registry.register("leased_bytes", help, self.bytes.clone());
        let help = "Kept words that ended leases";
        registry.register("lease_tombstones", help, self.tombstones.clone());
    }

    pub(super) fn set(&self, levels: &LeaseLevels) {
        let level = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        self.held.set(level(levels.leases));
        self.places.set(level(levels.places));
        self.bytes.set(i64::try_from(levels.bytes).unwrap_or(i64::MAX));
        self.tombstones.set(level(levels.tombstones));
    }
}
