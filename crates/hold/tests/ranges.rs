//! A range out of a large file moves the pages that it covers, and little else: bytes are counted at
//! the peers that send them.
//!
//! In full (`HOLD_SHOWS_FULL=1`): out of 1 GiB.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use harness::{Home, Network, full, random_file, run};

const MIB: u64 = 1 << 20;
const PEERS: usize = 9;
const PAGE: u64 = 2 * MIB;
/// Pages of a stripe of 4/8.
const K: u64 = 4;
const LENGTH: u64 = MIB;
/// What a range may fetch that lies in one page, and that crosses two.
const ONE_MAX: u64 = 3 * MIB;
const TWO_MAX: u64 = 5 * MIB;
/// Ranges of each kind.
const TRIES: u64 = 5;

/// Bytes of records that all peers have sent.
fn sent(network: &Network) -> u64 {
    network.counter("holdfast_record_sent_bytes_total")
}

/// What the peers send for ranges that begin there: the middle of all. Where a holder is slow for a
/// moment others are asked beside it, which is as it should be and no part of what a range costs.
fn fetched(network: &Network, home: &Home, address: &str, file: &Path, starts: &[u64]) -> u64 {
    let (via, back) = (network.via(), network.folder.path().join("range"));
    let original = fs::File::open(file).unwrap();
    let mut all: Vec<u64> = Vec::new();
    for start in starts {
        let before = sent(network);
        let range = format!("{start}-{}", start + LENGTH - 1);
        let mut get = home.hold(["get", address, "--via", &via, "--range", &range, "-o"]);
        run(get.arg(&back)).expect(0);
        all.push(sent(network) - before);
        let mut expected = vec![0; LENGTH as usize];
        original.read_exact_at(&mut expected, *start).unwrap();
        assert!(fs::read(&back).unwrap() == expected, "other bytes at {start}");
    }
    println!("bytes sent for 1 MiB at {starts:?}: {all:?}");
    all.sort_unstable();
    all[all.len() / 2]
}

#[test]
fn a_range_fetches_the_pages_that_it_covers() {
    let stripes = if full() { 128 } else { 3 };
    let network = Network::running(PEERS, &[]);
    network.acquainted();
    let home = network.home("author", 0);
    let file = network.folder.path().join("file");
    random_file(&file, (stripes * K * PAGE) as usize, 1);
    let put = home.put(&network.via(), &file);
    assert_eq!(put["profile"], "4/8", "{put}");
    let address = put["address"].as_str().unwrap();
    let pages = stripes * K;
    let spread = |number: u64| (number * 2 + 1) * pages / (TRIES * 2);
    // At the beginning of a page, in its middle, to its end.
    let inside: Vec<u64> =
        (0..TRIES).map(|at| spread(at) * PAGE + at * MIB / (TRIES - 1)).collect();
    let one = fetched(&network, &home, address, &file, &inside);
    assert!((LENGTH..ONE_MAX).contains(&one), "{one} bytes for a range in one page");
    // From one page to the next, of which some are those of the next stripe.
    let across = |page: u64| page.clamp(1, pages - 1) * PAGE - LENGTH / 2;
    let crossing: Vec<u64> = (0..TRIES)
        .map(|at| across(if at % 2 == 0 { spread(at) } else { K * (1 + at % 2) }))
        .collect();
    let two = fetched(&network, &home, address, &file, &crossing);
    assert!((2 * LENGTH..TWO_MAX).contains(&two), "{two} bytes for a range that crosses two");
    println!("1 MiB of {} MiB: {one} bytes from one page, {two} from two", stripes * K * 2);
}
