//! A network that nobody uses: what it takes of memory, and of the processor while it waits.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::MIB;
use crate::Bench;
use crate::chart::Chart;
use crate::community::{Community, Kind};
use crate::error::BenchError;
use crate::percentiles::largest;
use crate::process;

/// How long the peers may settle: introductions, first looks at each other, news of the start; and after a minute
/// each the connections of the start that nobody uses end, and the links that are too many.
const SETTLE: Duration = Duration::from_secs(150);
const SETTLE_QUICK: Duration = Duration::from_millis(500);
/// How long they are watched.
const WATCH: Duration = Duration::from_secs(60);
const WATCH_QUICK: Duration = Duration::from_secs(1);

/// A network at rest.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Rest {
    peers: usize,
    watched_s: f64,
    /// All peers' proportional sizes.
    pub(super) proportional_mib: f64,
    /// All peers' resident sizes: what they share is counted for each.
    resident_mib: f64,
    /// The largest peer's proportional size.
    pub(super) largest_mib: f64,
    /// The largest resident size of one: 30 MiB are the program's own pages, which all of them share.
    pub(super) largest_resident_mib: f64,
    /// Cores busy on average, all peers together.
    pub(super) cores: f64,
    pub(super) threads_a_peer: u64,
    /// Resident sizes, each peer's.
    resident_each_mib: Vec<f64>,
    /// Processor time in ms a second, each peer's.
    cpu_each_ms_s: Vec<f64>,
}

pub(super) fn measure(bench: &Bench, peers: usize) -> Result<Rest, BenchError> {
    let kind = Kind { peers, suite: "holdfast-1", profile: None };
    let mut community = Community::start(bench, kind)?;
    bench.stop.sleep(if bench.quick { SETTLE_QUICK } else { SETTLE })?;
    let cpu = |community: &Community| -> Vec<Option<Duration>> {
        community.pids().map(process::cpu).collect()
    };
    let (before, started) = (cpu(&community), Instant::now());
    bench.stop.sleep(if bench.quick { WATCH_QUICK } else { WATCH })?;
    let (after, watched_s) = (cpu(&community), started.elapsed().as_secs_f64());
    community.check()?;
    let cores = |(after, before): (&Option<Duration>, &Option<Duration>)| {
        let used = after.zip(*before).map(|(after, before)| after.saturating_sub(before));
        used.map_or(f64::NAN, |used| used.as_secs_f64() / watched_s)
    };
    let used: Vec<f64> = after.iter().zip(&before).map(cores).collect();
    let mib = |size: Option<u64>| size.map_or(f64::NAN, |size| size as f64 / MIB);
    let resident: Vec<f64> = community.pids().map(|pid| mib(process::resident(pid))).collect();
    let proportional: Vec<f64> =
        community.pids().map(|pid| mib(process::proportional(pid))).collect();
    Ok(Rest {
        peers,
        watched_s,
        proportional_mib: proportional.iter().sum(),
        resident_mib: resident.iter().sum(),
        largest_mib: largest(proportional.iter().copied()),
        largest_resident_mib: largest(resident.iter().copied()),
        cores: used.iter().sum(),
        threads_a_peer: community.pids().filter_map(process::threads).max().unwrap_or(0),
        resident_each_mib: resident,
        cpu_each_ms_s: used.iter().map(|cores| cores * 1000.0).collect(),
    })
}

impl Rest {
    pub(super) fn chart(&self) -> Chart {
        let each = |values: &[f64]| {
            values.iter().enumerate().map(|(number, value)| (number as f64, *value)).collect()
        };
        let title = format!(
            "{} peers at rest: {:.0} MiB and {:.1} % of one core in all",
            self.peers,
            self.proportional_mib,
            self.cores * 100.0
        );
        Chart::lines(&title, "peer", "MiB, ms of processor a second")
            .with("resident MiB", each(&self.resident_each_mib))
            .with("processor ms/s", each(&self.cpu_each_ms_s))
    }
}
