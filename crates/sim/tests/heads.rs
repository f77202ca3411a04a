//! Certified heads hold whoever lies and whatever befalls the members (`sim::heads`).
//!
//! `HOLD_SIM_SEEDS=n` runs n seeds, from `HOLD_SIM_START=x` on (0), on `HOLD_SIM_THREADS=t` threads (all cores); `HOLD_SHOWS_FULL=1` runs
//! 1,000. `HOLD_SIM_SEED=x` runs one, with all that happens.

use std::collections::BTreeMap;
use std::time::Instant;

use sim::heads::{self, CASTS};
use sim::{PlantedBug, Report, RunOptions};

/// Seeds of a test run without a wish: each of the cast several times.
const SEEDS: u64 = 30;
/// Seeds of a full run.
const SEEDS_FULL: u64 = 1_000;
/// What the seeds of a test run must have met between them.
const MET: [&str; 11] = [
    "accepted",
    "moved on",
    "not stored",
    "fresh reads",
    "cuts",
    "crashes",
    "crashes of all",
    "twins change sides",
    "votes lost",
    "refreshes asked for",
    "members in a later epoch",
];

fn wish(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value}")))
}

#[test]
fn heads_are_one_whoever_lies_and_everything_goes_on_when_trouble_ends() {
    if let Some(seed) = wish("HOLD_SIM_SEED") {
        let began = Instant::now();
        let report = heads::run(seed, RunOptions { keep_events: true, ..RunOptions::default() });
        report.lines.iter().for_each(|line| println!("{line}"));
        println!("{:?}", began.elapsed());
        return assert_eq!(report.findings, [], "{}", heads::command(seed));
    }
    let full = std::env::var_os("HOLD_SHOWS_FULL").is_some();
    let from = wish("HOLD_SIM_START").unwrap_or(0);
    let until = from + wish("HOLD_SIM_SEEDS").unwrap_or(if full { SEEDS_FULL } else { SEEDS });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = wish("HOLD_SIM_THREADS").map_or(cores, |threads| threads as usize);
    let began = Instant::now();
    let reports = heads::run_many(from..until, threads, RunOptions::default());
    let seconds = began.elapsed().as_secs_f64();
    println!("{} seeds in {seconds:.1} s", reports.len());
    let mut tallies: BTreeMap<&str, u64> = BTreeMap::new();
    for (what, count) in reports.iter().flat_map(|report| &report.tallies) {
        *tallies.entry(what).or_default() += count;
    }
    tallies.iter().for_each(|(what, times)| println!("{times:>8} {what}"));
    let failed: Vec<&Report> = reports.iter().filter(|one| !one.findings.is_empty()).collect();
    let commands: Vec<String> = failed.iter().map(|one| heads::command(one.seed)).collect();
    assert!(failed.is_empty(), "{} seeds found something: {commands:#?}", failed.len());
    if until - from >= SEEDS {
        let missing: Vec<&&str> = MET.iter().filter(|what| !tallies.contains_key(**what)).collect();
        assert!(missing.is_empty(), "no seed met {missing:?}");
    }
}

#[test]
fn one_seed_of_heads_is_one_run() {
    for seed in 0..2 {
        let run = || heads::run(seed, RunOptions::default());
        assert_eq!(run(), run(), "seed {seed}");
    }
}

/// A defect is found by one of the first seeds of this cast, as another than one chain; without it they find nothing.
fn is_found(bug: PlantedBug, cast: heads::Cast) {
    let run = |seed, bug| heads::run(seed, RunOptions { bug, ..RunOptions::default() }).findings;
    let of_cast = |seed: &u64| CASTS[(seed % CASTS.len() as u64) as usize] == cast;
    let seeds = (0..).filter(of_cast).take(6);
    let found = seeds.map(|seed| (seed, run(seed, Some(bug)))).find(|(_, found)| !found.is_empty());
    let (seed, findings) = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
    println!("{bug:?}: seed {seed}: {findings:#?}");
    assert!(findings.iter().any(|one| one.promise == "Q4"), "{bug:?} shows so: {findings:#?}");
    assert_eq!(run(seed, None), [], "it is the bug that was found");
}

#[test]
fn skipping_the_compare_and_set_is_found() {
    is_found(PlantedBug::SkipCompareAndSet, heads::Cast::Honest);
}

#[test]
fn counting_one_signature_twice_is_found() {
    is_found(PlantedBug::CountSignatureTwice, heads::Cast::Honest);
}

#[test]
fn voting_after_amnesia_is_found() {
    is_found(PlantedBug::VoteAfterAmnesia, heads::Cast::Amnesiac);
}
