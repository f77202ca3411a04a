//! Leases over real peers: what is put is paid for, renewed and forgotten from the command line, over restarts and kill -9.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/frames.rs"]
mod frames;
#[path = "system/harness.rs"]
mod harness;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::{Network, assert_same, full, random_file, run};
use serde_json::Value;

const PEERS: usize = 3;
const LIMIT: Duration = Duration::from_secs(60);

fn records(network: &Network) -> Vec<u64> {
    let of = |status: Value| status["store"]["records"].as_u64().unwrap();
    network.peers.iter().filter(|peer| peer.running()).map(|peer| of(peer.status())).collect()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < LIMIT, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_content_is_paid_for_renewed_and_forgotten_also_by_a_peer_that_was_killed() {
    let mut network = Network::running(PEERS, &[]);
    network.acquainted();
    let (via, home) = (network.via(), network.home("author", 0));
    let file = network.folder.path().join("file");
    random_file(&file, 70_000, 1);
    let kept = home.put(&via, &file);
    let put = run(home.hold(["put", "--via", &via, "--for", "30d", "--json"]).arg(&file)).expect(0);
    let put = put.json();
    let (address, ends) = (put["address"].as_str().unwrap(), put["until"].as_u64().unwrap());
    assert!(kept["until"].as_u64().unwrap() > ends + 300 * 86_400, "a year by default: {kept}");
    let both = records(&network);
    assert!(both.iter().all(|count| *count == both[0] && *count > 2), "{both:?}");

    let info = run(&mut home.hold(["info", address, "--via", &via, "--json"])).expect(0).json();
    assert_eq!(info["paid_until"], ends, "{info}");
    assert_eq!(info["leases"][0]["own"], true, "{info}");
    let renewed = home.hold(["renew", address, "--via", &via, "--for", "2y", "--json"]);
    let renewed = run(&mut { renewed }).expect(0).json();
    assert!(renewed["until"].as_u64().unwrap() > ends, "{renewed}");
    let text = run(&mut home.hold(["info", address, "--via", &via])).expect(0).text();
    assert!(text.contains("by you"), "{text}");
    let all = run(&mut home.hold(["renew", "--all", "--via", &via])).expect(0).text();
    assert_eq!(all.lines().count(), 2, "{all}");
    run(&mut home.hold(["renew", address, "--via", &via, "--for", "5 days"])).expect(2);

    // One is killed, and hears of it when it is back.
    let away = PEERS - 1;
    network.peers[away].kill();
    let via = network.via();
    let forgot = run(&mut home.hold(["forget", address, "--via", &via, "--json"])).expect(3);
    assert!(forgot.stderr.contains("\"warning\":\"not all of it ended"), "{}", forgot.stderr);
    let forgot = forgot.json();
    assert_eq!(forgot["unreached"].as_array().unwrap().len(), 1, "{forgot}");
    assert_eq!((&forgot["key_forgotten"], &forgot["kept"]), (&true.into(), &0.into()), "{forgot}");
    let left = records(&network);
    assert!(left.iter().all(|count| *count < both[0] && *count > 0), "{left:?} of {both:?}");
    let back = network.folder.path().join("back");
    run(home.hold(["get", address, "--via", &via, "-o"]).arg(&back)).expect_error(10);
    network.peers[away].start();
    until("the killed peer drops it too", || records(&network) == vec![left[0]; PEERS]);

    let other = kept["address"].as_str().unwrap();
    run(home.hold(["get", other, "--via", &via, "-o"]).arg(&back)).expect(0);
    assert!(fs::read(&back).unwrap() == fs::read(&file).unwrap());
    run(&mut home.hold(["forget", other, "--via", &via])).expect(0);
    until("nothing is left", || records(&network) == vec![0; PEERS]);
    let none = run(&mut home.hold(["renew", "--all", "--via", &via])).expect_error(10);
    assert!(none.stdout.is_empty() && none.stderr.contains("hold renew ADDRESS"), "{none:?}");
    let none = run(&mut home.hold(["renew", "--all", "--json", "--via", &via])).expect(10).stderr;
    let none: serde_json::Value = serde_json::from_str(none.trim()).unwrap();
    assert_eq!((&none["exit"], &none["class"]), (&10.into(), &"not-found".into()));
}

/// A disk turned a bit in what the home notes: whoever renews all hears of it until it is noted again.
#[test]
fn a_note_that_is_damaged_is_no_success_of_renewing_all() {
    let network = Network::running(PEERS, &[]);
    network.acquainted();
    let (via, home) = (network.via(), network.home("author", 0));
    let file = network.folder.path().join("file");
    random_file(&file, 1_000, 1);
    let [_, other] = [home.put(&via, &file), home.put(&via, &file)];
    let notes = home.dir.join("paid");
    let mut rows = fs::read(&notes).unwrap();
    rows[30] ^= 1;
    fs::write(&notes, &rows).unwrap();
    for _ in 0..2 {
        let all = run(&mut home.hold(["renew", "--all", "--json", "--via", &via])).expect(3);
        assert_eq!(all.json()["address"], other["address"], "{all:?}");
        let says = "1 notes of what is paid for are damaged";
        assert!(all.stderr.contains(says) && all.stderr.contains("keys recover"), "{all:?}");
    }
    run(&mut home.hold(["keys", "recover", "--via", &via])).expect(0);
    let all = run(&mut home.hold(["renew", "--all", "--via", &via])).expect(0);
    assert!(all.stderr.is_empty() && all.text().lines().count() == 2, "{all:?}");
}

const SETTINGS: &str = "\n[repair]\ncompare_s = 1\nsettle_s = 1\n\
                        [leases]\nsweep_s = 1\nerase_within_s = 1\n";
/// What clocks may differ by: so long nobody drops what a lease paid for that ended by its time.
const CLOCKS: Duration = Duration::from_secs(120);

/// Samples of the payloads of records that were not there before.
fn samples(dir: &Path, before: &BTreeSet<Vec<u8>>) -> Vec<Vec<u8>> {
    let new = frames::live(dir).into_iter();
    let new = new.filter(|frame| frame.kind != frames::LEASE && !before.contains(&frame.id));
    new.filter(|frame| frame.payload >= 200).map(|frame| frame.sample()).collect()
}

/// The bytes that nobody pays for any more are in no file of any peer, also of one that was away when they were
/// forgotten, and repair brings none of them back.
#[test]
fn bytes_that_nobody_pays_for_leave_every_disk_and_do_not_come_back() {
    let mut network = Network::new(3, &[]);
    network.add_peers(PEERS);
    for peer in &network.peers {
        let path = peer.dir.join("peer.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text + SETTINGS).unwrap();
    }
    network.start_all();
    network.acquainted();
    let (via, home) = (network.via(), network.home("author", 0));
    let file = network.folder.path().join("file");
    random_file(&file, 70_000, 1);
    let kept = home.put(&via, &file);
    let kept = kept["address"].as_str().unwrap();
    let count = records(&network);
    let before: Vec<BTreeSet<Vec<u8>>> = network
        .peers
        .iter()
        .map(|peer| frames::live(&peer.dir).into_iter().map(|frame| frame.id).collect())
        .collect();
    let other = network.folder.path().join("other");
    random_file(&other, 90_000, 2);
    let put = run(home.hold(["put", "--via", &via, "--for", "30d", "--json"]).arg(&other));
    let put = put.expect(0).json();
    let address = put["address"].as_str().unwrap();
    let mut limit = LIMIT;
    if full() {
        // Another one's lease ends by its time, which takes as long as clocks may differ.
        let short = network.folder.path().join("short");
        random_file(&short, 80_000, 3);
        run(home.hold(["put", "--via", &via, "--for", "20s"]).arg(&short)).expect(0);
        limit += CLOCKS + Duration::from_secs(20);
    }
    until("all peers have it", || records(&network).iter().all(|now| *now > count[0]));
    let dirs: Vec<_> = network.peers.iter().map(|peer| peer.dir.clone()).collect();
    let gone: Vec<_> = dirs.iter().zip(&before).map(|(dir, before)| samples(dir, before)).collect();
    assert!(gone.iter().all(|samples| samples.len() >= 2), "{gone:?}");
    let left = || -> usize {
        let each = dirs.iter().zip(&gone);
        each.map(|(dir, gone)| gone.iter().filter(|one| frames::on_disk(dir, one)).count()).sum()
    };
    assert_eq!(left(), gone.iter().map(Vec::len).sum::<usize>());

    let away = PEERS - 1;
    network.peers[away].kill();
    let forget = home.hold(["forget", address, "--via", &network.via(), "--json"]);
    run(&mut { forget }).expect(3);
    network.peers[away].start();
    let since = Instant::now();
    while left() > 0 {
        assert!(since.elapsed() < limit, "{} of the bytes are still on disks", left());
        std::thread::sleep(Duration::from_millis(500));
    }
    println!(
        "gone from all disks {:.1} s after they were forgotten",
        since.elapsed().as_secs_f64()
    );
    // Comparisons go round several times.
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!((left(), records(&network)), (0, count), "they came back");
    let back = network.folder.path().join("back");
    home.get(&network.via(), kept, &back).expect(0);
    assert_same(&file, &back);
}
