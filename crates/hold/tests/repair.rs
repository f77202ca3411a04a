//! Repair on separate processes: what killed peers held comes back at others by itself, and a peer that leaves hands over.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::time::{Duration, Instant};

use harness::{Network, assert_same, hold, random_file, run};

/// How long repair may take, the minute until a peer counts as away included.
const LIMIT: Duration = Duration::from_secs(300);

const REPAIR: &str = "\n[repair]\nabsent_after_s = 5\ncompare_s = 1\nsettle_s = 2\n";

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn what_killed_and_leaving_peers_held_is_at_others_afterwards() {
    let mut network = Network::new(3, &[]);
    network.add_peers(7);
    for peer in &network.peers {
        let path = peer.dir.join("peer.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text + REPAIR).unwrap();
    }
    network.start_all();
    network.acquainted();
    let home = network.home("owner", 0);
    let via = network.everybody();
    let (small, large) = (network.folder.path().join("small"), network.folder.path().join("large"));
    random_file(&small, 5_000, 1);
    random_file(&large, 9 << 20, 2);
    let files = [&small, &large];
    let puts = files.map(|file| home.put(&via, file)["address"].as_str().unwrap().to_owned());
    let check = || {
        let args = ["check", "--json", "--via", &via];
        let checked = run(home.hold(args).args(&puts));
        let lines = checked.text();
        lines.lines().all(|line| line.contains("\"state\":\"full\"")) && lines.lines().count() == 2
    };
    until("all was put", check);
    // One that is not there keeps none of the others from being asked for.
    let none = format!("hold:{}", "ab".repeat(32));
    let asked = run(home.hold(["repair", "--json", "--via", &via, &none]).args(&puts)).expect(3);
    let asked = asked.text();
    assert_eq!(asked.lines().count(), 3, "{asked}");
    assert_eq!(asked.matches("\"error\":null").count(), 2, "{asked}");

    // Two peers of one organisation, without a word.
    for number in [1, 4] {
        network.peers[number].kill();
    }
    until("what they held is at others", check);
    for (file, address) in files.iter().zip(&puts) {
        let out = network.folder.path().join("out");
        home.get(&via, address, &out).expect(0);
        assert_same(file, &out);
        fs::remove_file(&out).unwrap();
    }

    // One hands over and goes.
    let (leaver, pid) = (network.peers[2].dir.clone(), network.peers[2].pid());
    let left = run(hold(["peer", "leave", "--json", "--dir"]).arg(&leaver)).expect(0).json();
    assert_eq!(left["left"], true, "{left}");
    until("it ended", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
    assert!(check(), "nothing is degraded");
    let again = run(hold(["peer", "run", "--dir"]).arg(&leaver)).expect(2);
    assert!(again.stderr.contains("has left"), "{}", again.stderr);
    let still = run(hold(["peer", "leave", "--json", "--dir"]).arg(&leaver)).expect(0).json();
    assert_eq!(still["left"], true, "{still}");

    let status = run(hold(["peer", "status", "--json", "--dir"]).arg(&network.peers[0].dir));
    let status = status.expect(0).json();
    assert_eq!(status["repair"]["on"], true, "{status}");
    assert_eq!(status["repair"]["absent"].as_array().unwrap().len(), 2, "{status}");
}
