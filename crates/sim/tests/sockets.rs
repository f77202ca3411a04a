//! Networks over real connections on simulated sockets: nothing acknowledged is lost, no other bytes are read, all finishes.
//!
//! `HOLD_SHOWS_FULL=1` runs 64 peers and more seeds; `HOLD_SIM_SEED=x` one seed of the small network, with all that happens.

use std::collections::BTreeSet;
use std::time::Instant;

use sim::sockets::{self, Size};

/// Seeds of a test run at least.
const SEEDS: u64 = 3;
/// Seeds by which all of [`MET`] was met: there are more than [`SEEDS`] where no power cut came in the middle of a write.
const SEEDS_MAX: u64 = 16;
/// What the seeds of a test run must have met between them.
const MET: [&str; 2] = ["disk: a torn write", "power cut"];

/// Runs a seed, which must find nothing; what it met.
fn passes(seed: u64, size: Size) -> BTreeSet<&'static str> {
    let began = Instant::now();
    let report = sockets::run(seed, size);
    let seconds = began.elapsed().as_secs_f64();
    println!("seed {seed}, {} peers: {seconds:.1} s, {:?}", size.peers, report.tallies);
    if std::env::var_os("HOLD_SIM_SEED").is_some() {
        report.lines.iter().for_each(|line| println!("{line}"));
    }
    assert_eq!(report.findings, [], "{}", sockets::command(seed));
    let count = |what: &str| report.tallies.iter().find(|(one, _)| *one == what).map(|one| one.1);
    assert!(count("read") > Some(0), "something was read");
    assert!(count("put in full") > Some(0), "something was put");
    report.tallies.iter().map(|(what, _)| *what).collect()
}

#[test]
fn a_network_over_real_connections_keeps_its_promises() {
    if let Ok(seed) = std::env::var("HOLD_SIM_SEED") {
        passes(seed.parse().expect("a number"), Size::SMALL);
        return;
    }
    let full = std::env::var_os("HOLD_SHOWS_FULL").is_some();
    let least = if full { 40 } else { SEEDS };
    let mut met = BTreeSet::new();
    let mut seed = 0;
    while seed < least || !MET.iter().all(|what| met.contains(what)) {
        assert!(seed < least.max(SEEDS_MAX), "no seed met all of {MET:?}, but {met:?}");
        met.extend(passes(seed, Size::SMALL));
        seed += 1;
    }
    if full {
        passes(0, Size::FULL);
    }
}
