//! What a peer counts, as OpenMetrics text.
//!
//! Counters and histograms are written as things happen; gauges are set when somebody asks, so that
//! an idle peer does nothing for them. Labels are closed sets (methods, outcomes, health): never a
//! key, an id or an address, since a page of metrics is read by more people than a log.
//! `docs/operating/metrics.md` lists every name, and a test holds the two together.

mod audit;
mod committee;
mod keeping;
mod leases;
mod objects;
mod upkeep;

use std::time::Duration;

use crypto::Tier;
use env::calls::CallError;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

pub(crate) use self::audit::AuditCounts;
pub(crate) use self::committee::{MemberGauges, MemberLevels};
pub(crate) use self::keeping::KeepingCounts;
pub(crate) use self::leases::{LeaseCounts, LeaseLevels};
pub(crate) use self::objects::{ObjectCounts, ObjectLevels};
pub(crate) use self::upkeep::UpkeepCounts;

/// The smallest bucket of the latency histograms: 0.1 ms; each next one is twice as wide.
const LATENCY_FIRST_S: f64 = 0.000_1;
/// Buckets of the latency histograms: up to 26 s.
const LATENCY_BUCKETS: u16 = 19;

/// Of these, which every network is used by, each line is there from the start; those of other methods come with their first call, as
/// all together were hundreds.
const FROM_START: [Method; 2] = [Method::Find, Method::Store];

/// An endpoint of the librarian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Method {
    Introduce,
    Find,
    FindBatch,
    Verify,
    VerifyBatch,
    Store,
    StoreBatch,
    Put,
    Get,
    Tell,
    Subscribe,
    ObjectsPut,
    ObjectsGet,
    ObjectsPrevious,
    ObjectsTips,
    ObjectsHeads,
    ObjectsList,
    Keep,
    Watch,
    Lease,
    CommitteeUpdate,
    CommitteeRead,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Outcome {
    Good,
    Invalid,
    NotFound,
    Denied,
    Busy,
    Full,
    ReadOnly,
    Corrupt,
    Unavailable,
    Failed,
}

impl Outcome {
    fn of<T>(result: &Result<T, CallError>) -> Self {
        match result {
            Ok(_) => Self::Good,
            Err(CallError::Invalid { .. }) => Self::Invalid,
            Err(CallError::NotFound) => Self::NotFound,
            Err(CallError::Denied { .. } | CallError::WrongPeer { .. }) => Self::Denied,
            Err(CallError::Busy { .. }) => Self::Busy,
            Err(CallError::Full) => Self::Full,
            Err(CallError::ReadOnly { .. }) => Self::ReadOnly,
            Err(CallError::Corrupt { .. }) => Self::Corrupt,
            Err(
                CallError::TooFewPeers { .. }
                | CallError::Unreachable { .. }
                | CallError::TimedOut { .. },
            ) => Self::Unavailable,
            Err(_) => Self::Failed,
        }
    }
}

/// Whose call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Trust {
    Stranger,
    Known,
    Own,
}

impl From<Tier> for Trust {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Stranger => Self::Stranger,
            Tier::Known => Self::Known,
            Tier::Own => Self::Own,
        }
    }
}

/// The bound that a refused call was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Bound {
    /// Calls or bytes at once.
    Crowded,
    /// What the processors and the disk can do.
    Strained,
    /// Requests a second.
    Second,
    /// Requests a day.
    Day,
    /// Record bytes a day.
    Bytes,
    /// Different callers of the tier.
    Callers,
    /// The quota of the pass.
    Quota,
}

impl Bound {
    /// Those that refuse a call of any method: see [`FROM_START`].
    const FROM_START: [Self; 5] =
        [Self::Crowded, Self::Second, Self::Day, Self::Bytes, Self::Callers];
}

/// Why news of another peer were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Dropped {
    Stranger,
    Malformed,
    Rate,
    Queue,
    Full,
}

impl Dropped {
    const ALL: [Self; 5] = [Self::Stranger, Self::Malformed, Self::Rate, Self::Queue, Self::Full];
}

/// Where a publication came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Source {
    Stored,
    News,
    CatchUp,
}

impl Source {
    const ALL: [Self; 3] = [Self::Stored, Self::News, Self::CatchUp];
}

/// How well other peers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum PeerHealth {
    Healthy,
    Suspect,
    Away,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: Method,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method: Method,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    tier: Trust,
    method: Method,
    bound: Bound,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DroppedLabels {
    reason: Dropped,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HealthLabels {
    health: PeerHealth,
}

/// The state of a peer at the moment somebody asks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Levels {
    pub(crate) uptime: Duration,
    pub(crate) store: store::Stats,
    pub(crate) dead_bytes: u64,
    pub(crate) healthy: usize,
    pub(crate) suspect: usize,
    pub(crate) away: usize,
    pub(crate) links: usize,
    pub(crate) calls: usize,
    pub(crate) write_bytes: usize,
    pub(crate) subscribers: usize,
    pub(crate) log_start: u64,
    pub(crate) log_end: u64,
    pub(crate) log_poisoned: bool,
    pub(crate) spreading: usize,
    pub(crate) certificate_until: u64,
    pub(crate) disowned: bool,
    pub(crate) read_only: bool,
    pub(crate) roster: u64,
    pub(crate) organisations: usize,
    pub(crate) roster_conflicts: u64,
    pub(crate) objects: ObjectLevels,
    pub(crate) leases: LeaseLevels,
    pub(crate) member: MemberLevels,
}

/// Everything a peer counts.
pub(crate) struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    latency: Family<MethodLabels, Histogram, fn() -> Histogram>,
    refused: Family<RefusedLabels, Counter>,
    received: Family<MethodLabels, Counter>,
    sent: Family<MethodLabels, Counter>,
    publications: Family<SourceLabels, Counter>,
    dropped: Family<DroppedLabels, Counter>,
    spread_lost: Counter,
    announcements: Counter,
    damaged_reads: Counter,
    health: Family<HealthLabels, Gauge>,
    gauges: Gauges,
    /// What scrub and compaction did.
    pub(crate) upkeep: UpkeepCounts,
    /// What comparing and mending did.
    pub(crate) keeping: KeepingCounts,
    pub(crate) audit: AuditCounts,
    /// What happened to versioned objects.
    pub(crate) objects: ObjectCounts,
    /// What happened to leases.
    pub(crate) leases: LeaseCounts,
    /// How the member of a committee is.
    member: MemberGauges,
}

#[derive(Default)]
struct Gauges {
    uptime: Gauge,
    records: Gauge,
    record_bytes: Gauge,
    fragments: Gauge,
    file_bytes: Gauge,
    dead: Gauge,
    free: Gauge,
    damaged: Gauge,
    poisoned: Gauge,
    read_only: Gauge,
    links: Gauge,
    calls: Gauge,
    write_bytes: Gauge,
    subscribers: Gauge,
    log_start: Gauge,
    log_end: Gauge,
    log_poisoned: Gauge,
    spreading: Gauge,
    certificate_until: Gauge,
    disowned: Gauge,
    roster: Gauge,
    organisations: Gauge,
    roster_conflicts: Gauge,
}

fn latency_histogram() -> Histogram {
    Histogram::new(exponential_buckets(LATENCY_FIRST_S, 2.0, LATENCY_BUCKETS))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("holdfast"),
            calls: Family::default(),
            latency: Family::new_with_constructor(latency_histogram),
            refused: Family::default(),
            received: Family::default(),
            sent: Family::default(),
            publications: Family::default(),
            dropped: Family::default(),
            spread_lost: Counter::default(),
            announcements: Counter::default(),
            damaged_reads: Counter::default(),
            health: Family::default(),
            gauges: Gauges::default(),
            upkeep: UpkeepCounts::default(),
            keeping: KeepingCounts::default(),
            audit: AuditCounts::default(),
            objects: ObjectCounts::default(),
            leases: LeaseCounts::default(),
            member: MemberGauges::default(),
        };
        metrics.objects.register(&mut metrics.registry);
        metrics.leases.register(&mut metrics.registry);
        metrics.member.register(&mut metrics.registry);
        metrics.upkeep.register(&mut metrics.registry);
        metrics.keeping.register(&mut metrics.registry);
        metrics.audit.register(&mut metrics.registry);
        metrics.register_counted();
        metrics.register_levels();
        metrics.begin();
        metrics
    }

    /// Counts from 0, where a collector would otherwise not see the first one as growth.
    fn begin(&self) {
        for source in Source::ALL {
            self.publications.get_or_create(&SourceLabels { source }).inc_by(0);
        }
        for reason in Dropped::ALL {
            self.dropped.get_or_create(&DroppedLabels { reason }).inc_by(0);
        }
        for method in FROM_START {
            let outcome = Outcome::Good;
            self.calls.get_or_create(&CallLabels { method, outcome }).inc_by(0);
            drop(self.latency.get_or_create(&MethodLabels { method }));
            for tier in [Trust::Stranger, Trust::Known, Trust::Own] {
                for bound in Bound::FROM_START {
                    let labels = RefusedLabels { tier, method, bound };
                    self.refused.get_or_create(&labels).inc_by(0);
                }
            }
        }
        self.received(Method::Store, 0);
        self.sent(Method::Find, 0);
    }

    fn register_counted(&mut self) {
        let registry = &mut self.registry;
        registry.register("calls", "Calls answered, by outcome", self.calls.clone());
        registry.register_with_unit(
            "call_duration",
            "Time from a call's arrival to its answer",
            Unit::Seconds,
            self.latency.clone(),
        );
        let help = "Calls refused by a limit, by the caller's tier and the bound";
        registry.register("refused", help, self.refused.clone());
        registry.register("record_received_bytes", "Record bytes taken", self.received.clone());
        registry.register("record_sent_bytes", "Record bytes answered", self.sent.clone());
        let help = "Publications logged, by where they came from";
        registry.register("publications", help, self.publications.clone());
        registry.register("news_dropped", "News not taken, by reason", self.dropped.clone());
        let help = "Publications that could not be spread and are left to the others' catching up";
        registry.register("spread_lost", help, self.spread_lost.clone());
        let help = "Announcements of peers that taught something";
        registry.register("announcements_learnt", help, self.announcements.clone());
        let help = "Reads that met a damaged record, which was not served";
        registry.register("damaged_reads", help, self.damaged_reads.clone());
    }

    fn register_levels(&mut self) {
        let gauges = &self.gauges;
        let plain = [
            ("uptime_seconds", "Time since the start", &gauges.uptime),
            ("records", "Records held", &gauges.records),
            ("record_bytes", "Bytes of the records held", &gauges.record_bytes),
            ("fragments", "Of the records held, fragments of stripes", &gauges.fragments),
            ("store_file_bytes", "Bytes of the store's files, dead ones too", &gauges.file_bytes),
            ("store_dead_bytes", "Of those, bytes no live record needs", &gauges.dead),
            ("free_bytes", "Bytes that can still be written", &gauges.free),
            ("damaged_records", "Records found damaged and not mended", &gauges.damaged),
            ("poisoned", "1 after a failed fsync: no more writes", &gauges.poisoned),
            ("read_only", "1 while the peer takes no writes", &gauges.read_only),
            ("overlay_links", "Peers linked for news", &gauges.links),
            ("calls_in_progress", "Calls being answered", &gauges.calls),
            ("write_bytes_in_progress", "Record bytes being written", &gauges.write_bytes),
            ("subscribers", "Open subscriptions", &gauges.subscribers),
            ("log_start", "First offset of the publication log", &gauges.log_start),
            ("log_end", "Next offset of the publication log", &gauges.log_end),
            ("log_poisoned", "1 after a failed fsync of the log", &gauges.log_poisoned),
            ("spread_queue", "Publications waiting to be spread", &gauges.spreading),
            ("roster_number", "Number of the newest roster known", &gauges.roster),
            ("roster_organisations", "Organisations that it lists", &gauges.organisations),
            (
                "roster_conflicts",
                "Pairs of signed rosters of one number seen since the start",
                &gauges.roster_conflicts,
            ),
            (
                "certificate_expiry_timestamp_seconds",
                "When the peer's certificate expires, Unix time",
                &gauges.certificate_until,
            ),
            ("disowned", "1 while the peer is no member any more", &gauges.disowned),
        ];
        for (name, help, gauge) in plain {
            self.registry.register(name, help, gauge.clone());
        }
        self.registry.register("peers", "Other peers known, by health", self.health.clone());
    }

    /// A call was answered.
    pub(crate) fn answered<T>(
        &self,
        method: Method,
        took: Duration,
        result: &Result<T, CallError>,
    ) {
        let outcome = Outcome::of(result);
        self.calls.get_or_create(&CallLabels { method, outcome }).inc();
        self.latency.get_or_create(&MethodLabels { method }).observe(took.as_secs_f64());
    }

    /// A call was refused by a limit.
    pub(crate) fn refused(&self, tier: Tier, method: Method, bound: Bound) {
        let labels = RefusedLabels { tier: tier.into(), method, bound };
        self.refused.get_or_create(&labels).inc();
    }

    pub(crate) fn received(&self, method: Method, bytes: usize) {
        self.received.get_or_create(&MethodLabels { method }).inc_by(bytes as u64);
    }

    pub(crate) fn sent(&self, method: Method, bytes: usize) {
        self.sent.get_or_create(&MethodLabels { method }).inc_by(bytes as u64);
    }

    pub(crate) fn published(&self, source: Source) {
        self.publications.get_or_create(&SourceLabels { source }).inc();
    }

    pub(crate) fn dropped(&self, reason: Dropped) {
        self.dropped.get_or_create(&DroppedLabels { reason }).inc();
    }

    pub(crate) fn spread_lost(&self, count: usize) {
        self.spread_lost.inc_by(count as u64);
    }

    pub(crate) fn announcement(&self) {
        self.announcements.inc();
    }

    pub(crate) fn damaged_read(&self) {
        self.damaged_reads.inc();
    }

    /// The whole as OpenMetrics text.
    pub(crate) fn encode(&self, levels: &Levels) -> String {
        self.set(levels);
        let mut out = String::new();
        // Writing into a String does not fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }

    fn set(&self, levels: &Levels) {
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.objects.set(&levels.objects);
        self.leases.set(&levels.leases);
        self.member.set(&levels.member);
        let gauges = &self.gauges;
        gauges.uptime.set(whole(levels.uptime.as_secs()));
        gauges.records.set(whole(levels.store.records));
        gauges.record_bytes.set(whole(levels.store.bytes));
        gauges.fragments.set(whole(levels.store.fragments));
        gauges.file_bytes.set(whole(levels.store.file_bytes));
        gauges.dead.set(whole(levels.dead_bytes));
        gauges.free.set(whole(levels.store.free_bytes));
        gauges.damaged.set(whole(levels.store.damaged));
        gauges.poisoned.set(i64::from(levels.store.poisoned));
        gauges.read_only.set(i64::from(levels.read_only));
        gauges.links.set(count(levels.links));
        gauges.calls.set(count(levels.calls));
        gauges.write_bytes.set(count(levels.write_bytes));
        gauges.subscribers.set(count(levels.subscribers));
        gauges.log_start.set(whole(levels.log_start));
        gauges.log_end.set(whole(levels.log_end));
        gauges.log_poisoned.set(i64::from(levels.log_poisoned));
        gauges.spreading.set(count(levels.spreading));
        gauges.certificate_until.set(whole(levels.certificate_until));
        gauges.disowned.set(i64::from(levels.disowned));
        gauges.roster.set(whole(levels.roster));
        gauges.organisations.set(count(levels.organisations));
        gauges.roster_conflicts.set(whole(levels.roster_conflicts));
        for (health, peers) in [
            (PeerHealth::Healthy, levels.healthy),
            (PeerHealth::Suspect, levels.suspect),
            (PeerHealth::Away, levels.away),
        ] {
            self.health.get_or_create(&HealthLabels { health }).set(count(peers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full_page() -> String {
        let metrics = Metrics::new();
        metrics.answered(Method::Find, Duration::from_millis(3), &Ok(()));
        metrics.answered::<()>(Method::Store, Duration::ZERO, &Err(CallError::Full));
        metrics.refused(Tier::Known, Method::StoreBatch, Bound::Second);
        metrics.received(Method::Store, 10);
        metrics.sent(Method::Find, 20);
        metrics.published(Source::Stored);
        metrics.dropped(Dropped::Rate);
        metrics.objects.put(&Ok(env::calls::objects::PutOutcome::NoObject));
        metrics.encode(&Levels { healthy: 8, ..Levels::default() })
    }

    #[test]
    fn the_page_counts_what_happened() {
        let page = full_page();
        let has = |line: &str| assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        has("holdfast_calls_total{method=\"Find\",outcome=\"Good\"} 1");
        has("holdfast_calls_total{method=\"Store\",outcome=\"Full\"} 1");
        has("holdfast_refused_total{tier=\"Known\",method=\"StoreBatch\",bound=\"Second\"} 1");
        has("holdfast_record_received_bytes_total{method=\"Store\"} 10");
        has("holdfast_call_duration_seconds_count{method=\"Find\"} 1");
        has("holdfast_peers{health=\"Healthy\"} 8");
        has("# EOF");
    }

    /// A collector takes no growth from a line that was not there before.
    #[test]
    fn what_is_counted_is_there_from_the_start() {
        let page = Metrics::new().encode(&Levels::default());
        for line in [
            "calls_total{method=\"Store\",outcome=\"Good\"}",
            "call_duration_seconds_count{method=\"Find\"}",
            "refused_total{tier=\"Known\",method=\"Store\",bound=\"Bytes\"}",
            "record_received_bytes_total{method=\"Store\"}",
            "record_sent_bytes_total{method=\"Find\"}",
            "publications_total{source=\"CatchUp\"}",
            "news_dropped_total{reason=\"Queue\"}",
            "objects_versions_put_total{outcome=\"Denied\"}",
        ] {
            let line = format!("holdfast_{line} 0");
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }

    #[test]
    fn the_operators_page_lists_every_metric_and_no_other() {
        // Those too that nothing happened to.
        let page = Metrics::new().encode(&Levels::default());
        let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let mut ours: Vec<&str> = types.filter_map(|line| line.split(' ').next()).collect();
        let docs = include_str!("../../../docs/operating/metrics.md");
        let rows = docs.lines().filter_map(|line| line.strip_prefix("| `holdfast_"));
        let mut listed: Vec<String> = rows
            .filter_map(|row| row.split(['`', '{']).next())
            .map(|name| format!("holdfast_{name}"))
            .map(|name| name.strip_suffix("_total").map_or(name.clone(), str::to_owned))
            .collect();
        ours.sort_unstable();
        listed.sort_unstable();
        assert_eq!(ours, listed);
    }
}
