//! The network mends itself, and forgets, whatever befalls it and whoever cheats (`sim::trial::Trial::Keeping`).
//!
//! `HOLD_SIM_SEEDS=n` runs n seeds, from `HOLD_SIM_START=x` on (0), on `HOLD_SIM_THREADS=t` threads (all cores); `HOLD_SHOWS_FULL=1` runs
//! 10,000. `HOLD_SIM_SEED=x` runs one, with all that happens.

use std::collections::BTreeMap;
use std::time::Instant;

use sim::trial::{self, Trial};
use sim::{Report, RunOptions};

/// Seeds of a test run without a wish: every one of the cast several times.
const SEEDS: u64 = 78;
/// Seeds beyond those that found something once.
const FOUND: [u64; 19] = [
    106, 131, 153, 199, 492, 692, 716, 728, 748, 989, 1313, 1366, 2450, 2810, 3499, 3875, 4100,
    4577, 8148,
];
/// Seeds of a full run.
const SEEDS_FULL: u64 = 10_000;
/// What the seeds of a test run must have met between them.
const MET: [&str; 35] = [
    "cast: an organisation of many accuses",
    "cast: claims and never mends",
    "cast: corrupts",
    "cast: delays",
    "cast: floods",
    "cast: grinds ids",
    "cast: headers that lie",
    "cast: holds nothing",
    "cast: invents",
    "cast: many go at once",
    "cast: nobody",
    "cast: proves through others",
    "cast: returns with old data",
    "disk: a failed sync",
    "disk: a torn write",
    "disk: a write lost with the power",
    "event: a peer is gone for good",
    "event: a peer leaves",
    "event: an organisation is dismissed",
    "event: an organisation is killed",
    "event: disk lost",
    "event: disk set back",
    "event: failed sync",
    "event: failed write",
    "event: failing reads",
    "event: full disk",
    "event: many are gone for good",
    "event: partition",
    "event: partition one way",
    "event: pause",
    "event: power cut",
    "over: forgotten",
    "over: something stays gone",
    "poison: a header that lies is stored",
    "put in full at the end",
];

fn wish(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value}")))
}

#[test]
fn what_is_paid_for_is_whole_again_by_itself_and_what_is_not_is_gone() {
    if let Some(seed) = wish("HOLD_SIM_SEED") {
        let options = RunOptions { keep_events: true, ..RunOptions::default() };
        let report = trial::run(seed, Trial::Keeping, options);
        report.lines.iter().for_each(|line| println!("{line}"));
        return assert_eq!(report.findings, [], "{}", trial::command(seed, Trial::Keeping));
    }
    let full = std::env::var_os("HOLD_SHOWS_FULL").is_some();
    let (start, seeds) = (wish("HOLD_SIM_START"), wish("HOLD_SIM_SEEDS"));
    let from = start.unwrap_or(0);
    let until = from + seeds.unwrap_or(if full { SEEDS_FULL } else { SEEDS });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = wish("HOLD_SIM_THREADS").map_or(cores, |threads| threads as usize);
    let began = Instant::now();
    let mut reports: Vec<Report> =
        trial::run_many(from..until, threads, Trial::Keeping, RunOptions::default());
    if start.is_none() && seeds.is_none() {
        let beyond = FOUND.into_iter().filter(|seed| !(from..until).contains(seed));
        reports.extend(beyond.map(|seed| trial::run(seed, Trial::Keeping, RunOptions::default())));
    }
    let seconds = began.elapsed().as_secs_f64();
    let events: u64 = reports.iter().map(|report| report.events).sum();
    let count = reports.len();
    let rate = count as f64 / seconds;
    println!("{count} seeds, {events} events in {seconds:.1} s: {rate:.1} seeds/s");
    let mut tallies: BTreeMap<&str, u64> = BTreeMap::new();
    for (what, count) in reports.iter().flat_map(|report| &report.tallies) {
        *tallies.entry(what).or_default() += count;
    }
    tallies.iter().for_each(|(what, times)| println!("{times:>8} {what}"));
    let failed: Vec<&Report> = reports.iter().filter(|one| !one.findings.is_empty()).collect();
    let commands: Vec<String> =
        failed.iter().map(|one| trial::command(one.seed, Trial::Keeping)).collect();
    assert!(failed.is_empty(), "{} seeds found something: {commands:#?}", failed.len());
    // Fewer or other seeds need not meet everything.
    if start.is_none() && seeds.is_none_or(|seeds| seeds >= SEEDS) {
        let missing: Vec<&&str> = MET.iter().filter(|what| !tallies.contains_key(**what)).collect();
        assert!(missing.is_empty(), "no seed met {missing:?}");
    }
}
