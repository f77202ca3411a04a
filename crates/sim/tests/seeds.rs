//! Seeds that must find nothing, and must meet every fault and every path of recovery between them.
//!
//! `HOLD_SIM_SEEDS=n` runs n seeds, from `HOLD_SIM_START=x` on (0), on `HOLD_SIM_THREADS=t` threads (all cores).
//! `HOLD_SIM_SEED=x` runs one, with all that happens.

use std::collections::BTreeMap;
use std::time::Instant;

use sim::{Report, RunOptions};

/// Seeds of a test run without a wish: as many as it takes to meet all of [`sim::probe::REACHED`], and some more.
const SEEDS: u64 = 240;

fn wish(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value}")))
}

#[test]
fn no_seed_finds_anything() {
    if let Some(seed) = wish("HOLD_SIM_SEED") {
        let report = sim::run(seed, RunOptions { keep_events: true, ..RunOptions::default() });
        report.lines.iter().for_each(|line| println!("{line}"));
        println!("hash {}", hex(&report.hash));
        assert_eq!(report.findings, [], "{}", sim::command(seed));
        return;
    }
    let (start, seeds) = (wish("HOLD_SIM_START"), wish("HOLD_SIM_SEEDS"));
    let from = start.unwrap_or(0);
    let until = from + seeds.unwrap_or(SEEDS);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = wish("HOLD_SIM_THREADS").map_or(cores, |threads| threads as usize);
    let began = Instant::now();
    let reports = sim::run_many(from..until, threads, RunOptions::default());
    let seconds = began.elapsed().as_secs_f64();
    let events: u64 = reports.iter().map(|report| report.events).sum();
    let count = reports.len();
    let rate = count as f64 / seconds;
    println!("{count} seeds, {events} events in {seconds:.1} s: {rate:.1} seeds/s");
    let tallies = tallies(&reports);
    tallies.iter().for_each(|(what, times)| println!("{times:>8} {what}"));
    let failed: Vec<&Report> = reports.iter().filter(|one| !one.findings.is_empty()).collect();
    assert!(failed.is_empty(), "{} seeds found something: {:#?}", failed.len(), commands(&failed));
    // Fewer or other seeds need not meet everything.
    if start.is_none() && seeds.is_none_or(|seeds| seeds >= SEEDS) {
        let missed = sim::probe::REACHED.iter().filter(|what| !tallies.contains_key(*what));
        let missed: Vec<_> = missed.collect();
        assert!(missed.is_empty(), "no seed met {missed:#?}");
    }
}

/// How often what should happen in runs did.
fn tallies(reports: &[Report]) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for (what, count) in reports.iter().flat_map(|report| &report.tallies) {
        *sums.entry(*what).or_default() += count;
    }
    sums
}

fn commands(failed: &[&Report]) -> Vec<String> {
    failed.iter().map(|report| sim::command(report.seed)).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
