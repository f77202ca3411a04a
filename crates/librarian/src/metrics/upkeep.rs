//! What scrub and compaction count.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::status::UpkeepStatus;

/// Counts of the upkeep since the peer's start.
#[derive(Default)]
pub(crate) struct UpkeepCounts {
    pub(crate) scrubbed: Counter,
    pub(crate) passes: Counter,
    /// Unix seconds; 0 before the first.
    pub(crate) last_pass: Gauge,
    pub(crate) damaged: Counter,
    /// Of the last whole pass.
    pub(crate) ranges: Gauge,
    pub(crate) log_damaged: Counter,
    pub(crate) mended: Counter,
    pub(crate) rebuilt: Counter,
    pub(crate) freed: Counter,
    pub(crate) moved: Counter,
}

impl UpkeepCounts {
    pub(super) fn register(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("scrubbed_bytes", "Bytes of its own disk read by scrub", &self.scrubbed),
            ("scrub_passes", "Whole passes of scrub over the store", &self.passes),
            ("scrub_damaged", "Records found damaged by scrub or at the start", &self.damaged),
            (
                "log_damaged",
                "Publications whose entries in the log were damaged",
                &self.log_damaged,
            ),
            ("mended_records", "Damaged records fetched or made again", &self.mended),
            ("rebuilt_fragments", "Fragments made again from their stripe", &self.rebuilt),
            ("compaction_freed_bytes", "Bytes of files removed by compaction", &self.freed),
            ("compaction_moved_bytes", "Bytes written again by compaction", &self.moved),
        ] {
            registry.register(name, help, counter.clone());
        }
        let help = "Damaged parts of files that hold no live record, by the last whole pass";
        registry.register("scrub_damaged_ranges", help, self.ranges.clone());
        let help = "When the last whole pass of scrub ended, Unix time; 0 before the first";
        registry.register("scrub_last_pass_timestamp_seconds", help, self.last_pass.clone());
    }

    /// The same, for people and scripts.
    pub(crate) fn status(&self) -> UpkeepStatus {
        let last = u64::try_from(self.last_pass.get()).unwrap_or(0);
        UpkeepStatus {
            scrubbed_bytes: self.scrubbed.get(),
            scrub_passes: self.passes.get(),
            scrub_last_pass: (last > 0).then_some(last),
            scrub_damaged: self.damaged.get(),
            scrub_damaged_ranges: u64::try_from(self.ranges.get()).unwrap_or(0),
            log_damaged: self.log_damaged.get(),
            mended_records: self.mended.get(),
            rebuilt_fragments: self.rebuilt.get(),
            compaction_freed_bytes: self.freed.get(),
            compaction_moved_bytes: self.moved.get(),
        }
    }
}
