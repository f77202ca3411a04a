//! What an operator sees in time: settings changed in place, and a certificate that is about to end.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::time::{Duration, Instant};

use harness::{Network, hold, run};

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
