//! Seeds that must find nothing. `SIM_SEEDS=n` runs n of them, `SIM_SEED=x` one, with all that happens.

use std::collections::BTreeMap;
use std::time::Instant;

use sim::{Report, RunOptions};

/// Seeds of a test run without a wish.
const SEEDS: u64 = 200;

fn wish(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value}")))
}

#[test]
fn no_seed_finds_anything() {
    if let Some(seed) = wish("SIM_SEED") {
        let report = sim::run(seed, RunOptions { keep_events: true, ..RunOptions::default() });
        report.lines.iter().for_each(|line| println!("{line}"));
        println!("hash {}", hex(&report.hash));
        assert_eq!(report.findings, [], "{}", sim::command(seed));
        return;
    }
    let seeds = wish("SIM_SEEDS").unwrap_or(SEEDS);
    let began = Instant::now();
    let reports = sim::run_many(0..seeds, RunOptions::default());
    let seconds = began.elapsed().as_secs_f64();
    let events: u64 = reports.iter().map(|report| report.events).sum();
    println!(
        "{seeds} seeds, {events} events in {seconds:.1} s: {:.1} seeds/s",
        seeds as f64 / seconds
    );
    println!("{:?}", tallies(&reports));
    let failed: Vec<&Report> = reports.iter().filter(|one| !one.findings.is_empty()).collect();
    assert!(failed.is_empty(), "{} seeds found something: {:?}", failed.len(), commands(&failed));
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
