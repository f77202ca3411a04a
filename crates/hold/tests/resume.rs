//! `hold put` killed with SIGKILL at random points of a large file: each next run goes on where the one before was. And stopped
//! when all is stored but late copies: it tells its address.
//!
//! What is sent is counted at the peers: bytes of records they received, against bytes of records they hold. The
//! difference is what was sent again. In full (`HOLD_SHOWS_FULL=1`): 1 GiB and 20 kills.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crypto::keyring::paid::PAID_ROW_BYTES;
use harness::{Home, Network, Noise, PATIENCE, Running, assert_same, full, random_file, run};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const COPIES: u64 = 3;
/// What a run may send beyond what its predecessors had not got acknowledged.
const AGAIN_MAX: u64 = 64 * MIB;
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// Record bytes that came to all peers, and that they hold.
fn received(network: &Network) -> u64 {
    network.counter("holdfast_record_received_bytes_total")
}

fn held(network: &Network) -> u64 {
    network.counter("holdfast_record_bytes")
}

struct Story {
    network: Network,
    home: Home,
    via: String,
    file: PathBuf,
    bytes: u64,
}

impl Story {
    fn new(bytes: u64) -> Self {
        let network = Network::running(3, &[]);
        let home = network.home("author", 0);
        let (via, file) = (network.via(), network.folder.path().join("big.bin"));
        random_file(&file, usize::try_from(bytes).unwrap(), 7);
        Self { network, home, via, file, bytes }
    }

    fn put(&self, args: &[&str]) -> std::process::Command {
        let mut put = self.home.hold(["put", "--json", "--via", &self.via]);
        put.args(args).arg(&self.file);
        put
    }

    /// Starts a put and kills it when so many bytes came to the peers.
    fn killed_at(&self, point: u64) {
        let mut putting = Running::start(&mut self.put(&[]));
        let started = Instant::now();
        while received(&self.network) < point {
            assert!(!putting.ended(), "it ended before {point} bytes were sent");
            assert!(started.elapsed() < PATIENCE, "{point} bytes are never sent");
            std::thread::sleep(LOOK_EVERY);
        }
        putting.signal("KILL");
        let outcome = putting.finish(PATIENCE);
        assert_eq!(outcome.code, None, "it was killed: {outcome:?}");
        // What was on its way when it died is taken or dropped by now.
        let mut last = received(&self.network);
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let now = received(&self.network);
            if now == last {
                return;
            }
            last = now;
        }
    }

    fn journals(&self) -> usize {
        std::fs::read_dir(self.home.dir.join("journals")).map_or(0, Iterator::count)
    }
}

#[test]
fn a_put_killed_at_random_points_sends_nothing_twice_that_was_acknowledged() {
    let (bytes, kills) = if full() { (1024 * MIB, 20) } else { (96 * MIB, 4) };
    let story = Story::new(bytes);
    let total = bytes * COPIES;
    let mut noise = Noise::new(11);
    let mut points: Vec<u64> = (0..kills)
        .map(|_| {
            let mut random = [0; 8];
            noise.fill(&mut random);
            u64::from_le_bytes(random) % (total * 9 / 10)
        })
        .collect();
    points.sort_unstable();
    let mut again = 0;
    for point in points {
        let target = point.max(received(&story.network) + MIB);
        story.killed_at(target);
        let so_far = received(&story.network).saturating_sub(held(&story.network));
        let by_this = so_far.saturating_sub(again);
        println!(
            "killed at {} of {} MiB: sent again {} MiB",
            received(&story.network) / MIB,
            total / MIB,
            by_this / MIB
        );
        assert!(by_this <= AGAIN_MAX, "{} MiB were sent again", by_this / MIB);
        again = so_far;
    }
    let missing = total.saturating_sub(held(&story.network));
    let before = received(&story.network);
    let report = run(&mut story.put(&[])).expect(0).json();
    let sent = received(&story.network) - before;
    println!(
        "the last run sent {} MiB, {} MiB were missing: {}",
        sent / MIB,
        missing / MIB,
        report["resumed"]
    );
    assert!(sent <= missing + AGAIN_MAX, "{} of {} MiB", sent / MIB, missing / MIB);
    assert!(report["sent"].as_u64().unwrap() <= missing + AGAIN_MAX);
    assert!(report["resumed"]["pages"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["bytes"], story.bytes);
    assert_eq!(story.journals(), 0, "no journal is left");

    let back = story.network.folder.path().join("back.bin");
    story.home.get(&story.via, report["address"].as_str().unwrap(), &back).expect(0);
    assert_same(&story.file, &back);
}

#[test]
fn a_file_changed_after_the_kill_and_a_put_told_not_to_resume_start_anew() {
    let story = Story::new(40 * MIB);
    story.killed_at(30 * MIB);
    assert_eq!(story.journals(), 2, "a journal and its lock");
    let fresh = run(&mut story.put(&["--no-resume"])).expect(0).json();
    assert_eq!((&fresh["resumed"]["pages"], story.journals()), (&0.into(), 0));

    let point = received(&story.network) + 30 * MIB;
    story.killed_at(point);
    random_file(&story.file, usize::try_from(story.bytes).unwrap(), 8);
    let other = run(&mut story.put(&[])).expect(0).json();
    assert_eq!((&other["resumed"]["pages"], story.journals()), (&0.into(), 0));
    let back = story.network.folder.path().join("back.bin");
    story.home.get(&story.via, other["address"].as_str().unwrap(), &back).expect(0);
    assert_same(&story.file, &back);
}

/// What is stored is told though a holder hangs: nobody would know by which address it is found.
#[test]
fn a_put_that_is_stored_tells_its_address_when_a_signal_comes() {
    let network = Network::running(3, &[]);
    network.acquainted();
    let home = network.home("author", 0);
    let via = [&network.peers[0], &network.peers[1]].map(|peer| peer.address.clone()).join(",");
    let folder = network.folder.path();
    let (file, tree) = (folder.join("file"), folder.join("tree"));
    random_file(&file, 300_000, 1);
    std::fs::create_dir(&tree).unwrap();
    for number in 0..4 {
        random_file(&tree.join(format!("{number}")), 100_000, number);
    }
    let noted = || std::fs::metadata(home.dir.join("paid")).map_or(0, |about| about.len());
    run(&mut home.hold(["object", "create", "letter", "--via", &network.via()])).expect(0);
    let hangs = network.peers[2].pid();
    harness::signal(hangs, "STOP");
    let stopped = |command: &mut std::process::Command, rows: u64| {
        let before = noted();
        let mut putting = Running::start(command);
        let started = Instant::now();
        while noted() < before + rows * PAID_ROW_BYTES as u64 {
            assert!(!putting.ended() && started.elapsed() < PATIENCE, "it is never noted as paid");
            std::thread::sleep(LOOK_EVERY);
        }
        // As long as a signal may take to come between the note and the wait.
        std::thread::sleep(Duration::from_millis(200));
        putting.signal("INT");
        putting.finish(Duration::from_secs(20))
    };
    let put = |args: &[&str]| home.hold([&["put", "--json", "--via", &via], args].concat());
    let one = stopped(put(&[]).arg(&file), 1).expect(3);
    assert!(one.stderr.contains("repair owes"), "{}", one.stderr);
    let one = one.json();
    assert_eq!(
        (&one["full"], &one["noted"], &one["acked"]),
        (&false.into(), &true.into(), &2.into())
    );
    // Of a folder those are told that are stored, and the run is not done.
    let all = stopped(put(&[]).arg(&tree), 4);
    let told = all.text().lines().count();
    assert!(matches!((all.code, told), (Some(3 | 130), 4)), "{all:?}");
    is_told_of_a_version(&home, &via);
    harness::signal(hangs, "CONT");

    let back = folder.join("back");
    home.get(&via, one["address"].as_str().unwrap(), &back).expect(0);
    assert_same(&file, &back);
    let renewed = run(&mut home.hold(["renew", "--all", "--json", "--via", &via])).text();
    let addresses = all.text();
    let lines = addresses.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    for stored in lines.chain([one]) {
        assert!(renewed.contains(stored["address"].as_str().unwrap()), "{stored} is not noted");
    }
}

/// Of a version too: its receipts are kept when it is stored, before late copies are waited for.
fn is_told_of_a_version(home: &Home, via: &str) {
    let mut put = home.hold(["object", "put", "letter", "--receipt", "--json", "--via", via]);
    let mut putting = Running::start(put.args(["--value", "one"]));
    let started = Instant::now();
    let kept = || std::fs::read_dir(home.dir.join("receipts")).map_or(0, Iterator::count);
    while kept() == 0 {
        assert!(!putting.ended() && started.elapsed() < PATIENCE, "it is never stored");
        std::thread::sleep(LOOK_EVERY);
    }
    putting.signal("TERM");
    let ended = putting.finish(Duration::from_secs(20)).expect(3);
    assert!(ended.json()["version"].is_string());
    assert!(ended.stderr.contains("stored at 2 of 3 peers"), "{}", ended.stderr);
}
