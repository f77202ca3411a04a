//! Leases over real peers: what is put is paid for, renewed and forgotten from the command line, over restarts and kill -9.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::time::{Duration, Instant};

use harness::{Network, random_file, run};
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
    let forgot = run(&mut home.hold(["forget", address, "--via", &via, "--json"])).expect(3).json();
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
    assert_eq!(run(&mut home.hold(["renew", "--all", "--via", &via])).expect(0).text(), "");
}
