//! What is counted of versioned objects.

use env::calls::CallError;
use env::calls::objects::PutOutcome;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What became of a version that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Put {
    Stored,
    Present,
    Redirected,
    NoObject,
    Denied,
    Refused,
}

impl Put {
    const ALL: [Self; 6] = [
        Self::Stored,
        Self::Present,
        Self::Redirected,
        Self::NoObject,
        Self::Denied,
        Self::Refused,
    ];
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PutLabels {
    outcome: Put,
}

/// Levels at the moment somebody asks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ObjectLevels {
    pub(crate) objects: u64,
    pub(crate) versions: u64,
    pub(crate) cached_bytes: u64,
    pub(crate) awaited: u64,
    pub(crate) policies: usize,
    pub(crate) attestations: usize,
    pub(crate) heads: usize,
}

/// Counts since the peer's start.
#[derive(Default)]
pub(crate) struct ObjectCounts {
    versions: Family<PutLabels, Counter>,
    /// Redirects signed or told again.
    pub(crate) redirects: Counter,
    /// Records that were not what their ids say when they were read.
    pub(crate) altered: Counter,
    objects: Gauge,
    held: Gauge,
    cached_bytes: Gauge,
    awaited: Gauge,
    policies: Gauge,
    attestations: Gauge,
    heads: Gauge,
}

impl ObjectCounts {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Versions put, by what became of them";
        registry.register("objects_versions_put", help, self.versions.clone());
        for outcome in Put::ALL {
            self.versions.get_or_create(&PutLabels { outcome }).inc_by(0);
        }
        let help = "Writers told that a region is full";
        registry.register("objects_redirects", help, self.redirects.clone());
        let help = "Records of objects found altered on disk, and not served";
        registry.register("objects_altered", help, self.altered.clone());
        for (name, help, gauge) in [
            ("objects", "Objects with a version here", &self.objects),
            ("objects_versions", "Versions here", &self.held),
            ("objects_cached_bytes", "Versions in memory", &self.cached_bytes),
            ("objects_awaited", "Versions that others here stand on, not here", &self.awaited),
            ("objects_policies", "Policies known", &self.policies),
            ("objects_attestations", "Attestations held", &self.attestations),
            ("objects_heads", "Signed heads held", &self.heads),
        ] {
            registry.register(name, help, gauge.clone());
        }
    }

    /// A version was put.
    pub(crate) fn put(&self, outcome: &Result<PutOutcome, CallError>) {
        let outcome = match outcome {
            Ok(PutOutcome::Stored) => Put::Stored,
            Ok(PutOutcome::Present) => Put::Present,
            Ok(PutOutcome::Redirect(_)) => Put::Redirected,
            Ok(PutOutcome::NoObject) => Put::NoObject,
            Err(CallError::Denied { .. }) => Put::Denied,
            Err(_) => Put::Refused,
        };
        self.versions.get_or_create(&PutLabels { outcome }).inc();
    }

    pub(super) fn set(&self, levels: &ObjectLevels) {
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.objects.set(whole(levels.objects));
        self.held.set(whole(levels.versions));
        self.cached_bytes.set(whole(levels.cached_bytes));
        self.awaited.set(whole(levels.awaited));
        self.policies.set(whole(levels.policies as u64));
        self.attestations.set(whole(levels.attestations as u64));
        self.heads.set(whole(levels.heads as u64));
    }
}
