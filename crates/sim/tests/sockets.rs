//! Networks over real connections on simulated sockets: nothing acknowledged is lost, no other bytes are read, all finishes.
//!
//! `HOLD_SHOWS_FULL=1` runs 64 peers and more seeds; `HOLD_SIM_SEED=x` one seed of the small network, with all that happens.

use std::time::Instant;

use sim::sockets::{self, Size};

fn passes(seed: u64, size: Size) {
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
}

#[test]
fn a_network_over_real_connections_keeps_its_promises() {
    if let Ok(seed) = std::env::var("HOLD_SIM_SEED") {
        return passes(seed.parse().expect("a number"), Size::SMALL);
    }
    let full = std::env::var_os("HOLD_SHOWS_FULL").is_some();
    (0..if full { 40 } else { 3 }).for_each(|seed| passes(seed, Size::SMALL));
    if full {
        passes(0, Size::FULL);
    }
}
