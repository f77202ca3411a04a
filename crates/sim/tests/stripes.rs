//! What the design promises of stripes, each promise by trials of its own (`sim::trial`).
//!
//! `HOLD_SIM_SEEDS=n` runs n seeds of each, from `HOLD_SIM_START=x` on (0); `HOLD_SIM_SEED=x` runs one, with all that happens.

use std::collections::BTreeMap;
use std::time::Instant;

use sim::trial::{self, Trial};
use sim::{Report, RunOptions};

fn wish(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value}")))
}

/// Runs the seeds of a trial, which find nothing and meet all that is listed.
fn finds_nothing(trial: Trial, seeds: u64, reached: &[&str]) {
    if let Some(seed) = wish("HOLD_SIM_SEED") {
        let options = RunOptions { keep_events: true, ..RunOptions::default() };
        let report = trial::run(seed, trial, options);
        report.lines.iter().for_each(|line| println!("{line}"));
        return assert_eq!(report.findings, []);
    }
    let (start, wanted) = (wish("HOLD_SIM_START"), wish("HOLD_SIM_SEEDS"));
    let from = start.unwrap_or(0);
    let began = Instant::now();
    let mut tallies = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in from..from + wanted.unwrap_or(seeds) {
        let report: Report = trial::run(seed, trial, RunOptions::default());
        if !report.findings.is_empty() {
            println!("{:#?}\n{}", report.findings, trial::command(seed, trial));
            failed.push(seed);
        }
        for (what, count) in report.tallies {
            *tallies.entry(what).or_default() += count;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{} seeds of {trial:?} in {seconds:.1} s", wanted.unwrap_or(seeds));
    tallies.iter().for_each(|(what, times): (_, &u64)| println!("{times:>8} {what}"));
    assert!(failed.is_empty(), "seeds found something: {failed:?}");
    if start.is_none() && wanted.is_none_or(|wanted| wanted >= seeds) {
        let missed: Vec<_> = reached.iter().filter(|what| !tallies.contains_key(*what)).collect();
        assert!(missed.is_empty(), "no seed met {missed:#?}");
    }
}

#[test]
fn a_put_survives_whatever_it_promises_to_survive() {
    let reached = [
        "disk: a failed sync",
        "disk: a torn write",
        "event: disk lost",
        "liar: a fragment of another stripe",
        "liar: a record cut short",
        "liar: another fragment of the stripe",
        "liar: present, and not kept",
        "liar: the header of another stripe",
        "losses: N-1 copies",
        "losses: all but k of a stripe",
        "losses: n-k of a full stripe",
        "path: a spare takes a fragment",
        "path: an open question finds something",
        "path: parity is fetched",
        "put partly",
    ];
    finds_nothing(Trial::Losses, 60, &reached);
}

#[test]
fn what_is_full_is_read_while_peers_come_and_go() {
    let reached = [
        "churn: as many away as may be",
        "event: a peer joins",
        "event: a peer leaves",
        "event: kill",
        "event: stop",
        "path: an open question finds something",
        "path: parity is fetched",
    ];
    finds_nothing(Trial::Churn, 6, &reached);
}

#[test]
fn one_slow_holder_does_not_slow_the_reader() {
    for seed in 0..3 {
        let (reports, compared) = trial::slow(seed, RunOptions::default());
        for one in &compared {
            println!("seed {seed}: {one:?}");
        }
        for report in reports {
            assert_eq!(report.findings, [], "seed {seed}");
        }
        assert!(compared.iter().all(trial::Compared::is_kept), "seed {seed}: {compared:#?}");
        assert_eq!(compared.len(), 4);
    }
}
