//! What an operator sees in time: settings changed in place, a certificate that is about to end, and a disk
//! that damages what is on it.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::{Network, Peer, assert_same, hold, random_file, run};
use serde_json::Value;

#[test]
fn set_keeps_what_the_operator_wrote() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let path = network.peers[0].dir.join("peer.toml");
    let before = fs::read_to_string(&path).unwrap();
    assert!(before.contains("# Serve reads and refuse writes."), "{before}");
    let mine = format!(
        "# ours: rack 4\n{before}\n[limits.known] # for the audit\nfind = {{ per_second = 7 }}\n"
    );
    fs::write(&path, &mine).unwrap();
    let set = |value: &str| {
        let mut set = hold(["peer", "set", "--dir"]);
        run(set.arg(&network.peers[0].dir).args(["read-only", value])).expect(0);
        fs::read_to_string(&path).unwrap()
    };
    assert_eq!(set("on"), mine.replace("read_only = false", "read_only = true"));
    assert_eq!(set("off"), mine);
    network.start_all();
}

/// Signs the peer's kept request anew.
fn sign(network: &Network, days: &str) {
    let dir = &network.peers[0].dir;
    let new = network.folder.path().join("new.cert");
    let mut sign = hold(["org", "sign-peer", "--days", days, "--dir"]);
    sign.arg(&network.orgs[0]).arg("--network").arg(&network.file).arg("--request");
    run(sign.arg(dir.join("peer.request")).arg("-o").arg(&new)).expect(0);
    fs::rename(new, dir.join("peer.cert")).unwrap();
}

/// A peer warns in its log, `peer status` and `doctor` tell it, and signing the kept request renews it.
#[test]
fn a_certificate_that_ends_soon_is_told_and_renewed() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let home = network.home("home", 0);
    let warned =
        |network: &Network| network.peers[0].log().contains("the peer's certificate expires");
    sign(&network, "20");
    network.peers[0].start();
    let started = Instant::now();
    while !warned(&network) {
        assert!(started.elapsed() < harness::PATIENCE, "no warning:\n{}", network.peers[0].log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let via = network.via();
    let status = run(&mut home.hold(["peer", "status", "--via", &via])).expect(0).text();
    assert!(status.contains("certificate ends in 19 days"), "{status}");
    let dir = &network.peers[0].dir;
    let own = run(hold(["peer", "status", "--dir"]).arg(dir)).expect(0).text();
    assert!(own.contains("certificate: 19 days left"), "{own}");
    let doctor = run(&mut home.hold(["doctor", "--json", "--via", &via])).expect(0).json();
    let check = doctor["checks"].as_array().unwrap().iter().find(|c| c["check"] == "certificate");
    assert_eq!(check.unwrap()["verdict"], "warn", "{doctor}");
    assert_eq!(doctor["ok"], true);

    assert_eq!(network.peers[0].terminate(), Some(0));
    sign(&network, "365");
    network.peers[0].start();
    let status = run(&mut home.hold(["peer", "status", "--via", &network.via()])).expect(0).text();
    assert!(!status.contains("certificate ends"), "{status}");
}

/// Flips a bit of a peer's newest file of records, so many bytes before its end.
fn flip(peer: &Peer, before_end: u64) {
    let files = fs::read_dir(peer.dir.join("store")).unwrap().map(|file| file.unwrap().path());
    let logs = files.filter(|path| path.extension().is_some_and(|end| end == "log"));
    let file = fs::OpenOptions::new().read(true).write(true).open(logs.max().unwrap()).unwrap();
    let at = file.metadata().unwrap().len() - before_end;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

fn own_status(peer: &Peer) -> Value {
    run(hold(["peer", "status", "--json", "--dir"]).arg(&peer.dir)).expect(0).json()
}

/// Waits until the peer's own status is as it should be.
fn until(peer: &Peer, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let status = own_status(peer);
        if holds(&status) {
            return status;
        }
        assert!(started.elapsed() < harness::PATIENCE, "{what}: {status}\n{}", peer.log());
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn metric(peer: &Peer, name: &str) -> u64 {
    let mut page = TcpStream::connect(&peer.metrics).unwrap();
    page.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    page.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("holdfast_{name} ")));
    line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
}

fn said(peer: &Peer, what: &str) {
    let started = Instant::now();
    while !peer.log().contains(what) {
        assert!(started.elapsed() < harness::PATIENCE, "never {what}:\n{}", peer.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A byte flips on the disk of a peer that runs: scrub finds it, another peer's copy mends it, and
/// with no other peer up it is told, and never served.
#[test]
fn a_disk_that_rots_is_found_told_and_mended() {
    let mut network = Network::new(3, &[]);
    network.add_peers(3);
    let settings = network.peers[0].dir.join("peer.toml");
    let mut text = fs::read_to_string(&settings).unwrap();
    text.push_str("\n[upkeep]\nscrub_rest_s = 1\n");
    fs::write(&settings, text).unwrap();
    network.start_all();
    let home = network.home("home", 0);
    let file = network.folder.path().join("file");
    random_file(&file, 300_000, 1);
    let put = home.put(&network.via(), &file);
    let address = put["address"].as_str().unwrap();
    let peer = &network.peers[0];
    until(peer, "it holds all", |status| status["store"]["bytes"].as_u64() > Some(300_000));

    flip(peer, 150_000);
    let mended = until(peer, "never mended", |status| status["upkeep"]["mended_records"] == 1);
    assert_eq!(
        (&mended["upkeep"]["scrub_damaged"], &mended["store"]["damaged"]),
        (&1.into(), &0.into())
    );
    assert_eq!(mended["state"], "serving");
    assert_eq!((metric(peer, "scrub_damaged_total"), metric(peer, "damaged_records")), (1, 0));
    assert_eq!(metric(peer, "mended_records_total"), 1);
    said(peer, "scrub found damage");

    network.peers[1..].iter_mut().for_each(Peer::kill);
    let peer = &network.peers[0];
    // What was mended was written at the end.
    flip(peer, 150_000);
    let told = until(peer, "never found", |status| status["store"]["damaged"] == 1);
    assert!(told["upkeep"]["scrub_last_pass"].as_u64().is_some(), "{told}");
    assert_eq!((metric(peer, "scrub_damaged_total"), metric(peer, "damaged_records")), (2, 1));
    let text = run(hold(["peer", "status", "--dir"]).arg(&peer.dir)).expect(0).text();
    assert!(text.contains("damage: 1 records now, 2 found by scrub, 1 mended"), "{text}");
    assert!(text.contains("replace it"), "{text}");
    let to = network.folder.path().join("back");
    let refused = home.get(&network.peers[0].address, address, &to);
    assert!(matches!(refused.code, Some(10 | 15 | 16)), "{refused:?}");
    assert!(!to.exists());
    network.start_all();
    home.get(&network.via(), address, &to).expect(0);
    assert_same(&file, &to);
}

#[test]
fn the_status_of_a_peer_that_does_not_run_says_so() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let status = |dir: &Path| run(hold(["peer", "status", "--dir"]).arg(dir));
    let dir = network.peers[0].dir.clone();
    let never = status(&dir).expect_error(10);
    assert!(never.stderr.contains("hold peer run"), "{}", never.stderr);
    network.peers[0].start();
    let text = status(&dir).expect(0).text();
    assert!(text.starts_with("serving for"), "{text}");
    network.peers[0].kill();
    status(&dir).expect_error(15);
    network.peers[0].start();
    assert_eq!(network.peers[0].terminate(), Some(0));
    status(&dir).expect_error(10);
}
