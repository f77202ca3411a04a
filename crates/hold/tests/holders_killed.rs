//! Stripes over real peers: four of nine are killed with SIGKILL, and every byte comes back.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::collections::BTreeSet;
use std::fs;

use harness::{Home, Network, assert_same, random_file, run};
use serde_json::Value;

const MIB: usize = 1 << 20;
const PEERS: usize = 9;

struct Story {
    network: Network,
    home: Home,
    via: String,
}

impl Story {
    fn new() -> Self {
        let network = Network::running(PEERS, &[]);
        let home = network.home("author", 0);
        // Every peer, since any may be killed.
        let via = network.everybody();
        Self { network, home, via }
    }

    fn json(&self, args: &[&str], exit: i32) -> Value {
        let mut command = self.home.hold(args);
        run(command.args(["--json", "--via", &self.via])).expect(exit).json()
    }

    /// Kills the peers with these ids.
    fn kill(&mut self, ids: &BTreeSet<String>) {
        self.network.peers.iter_mut().filter(|peer| ids.contains(&peer.id)).for_each(|peer| {
            peer.kill();
        });
    }

    fn start_all(&mut self) {
        self.network.peers.iter_mut().filter(|peer| !peer.running()).for_each(|peer| peer.start());
    }
}

/// Who holds the fragments of a stripe, in their order.
fn holders(info: &Value, stripe: u64) -> Vec<String> {
    let rows = info["fragments"].as_array().unwrap().iter();
    let rows = rows.filter(|row| row["stripe"] == stripe && row["healthy"] == true);
    rows.map(|row| row["holder"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn four_of_nine_peers_are_killed_and_every_byte_comes_back() {
    let mut story = Story::new();
    let folder = story.network.folder.path().to_owned();
    let (file, small, back) = (folder.join("file"), folder.join("small"), folder.join("back"));
    // Two stripes, the second one short; and a letter, whose stripe is as wide.
    random_file(&file, 9 * MIB + 7, 1);
    random_file(&small, 40_000, 2);
    let file_text = file.to_str().unwrap();
    let put = story.json(&["put", file_text], 0);
    assert_eq!((&put["profile"], &put["full"]), (&"4/8".into(), &true.into()), "{put}");
    // Twice the bytes, and a little for headers and the copies of what is small.
    let stored = put["stored"].as_f64().unwrap() / (9.0 * MIB as f64);
    assert!((2.0..2.01).contains(&stored), "{stored} times its bytes");
    let letter = story.json(&["put", small.to_str().unwrap(), "--profile", "4/8"], 0);
    let address = put["address"].as_str().unwrap().to_owned();
    let letter = letter["address"].as_str().unwrap().to_owned();

    let info = story.json(&["info", &address], 0);
    assert_eq!((&info["profile"], &info["stripes"]), (&"4/8".into(), &2.into()), "{info}");
    let all: Vec<Vec<String>> = (0..2).map(|stripe| holders(&info, stripe)).collect();
    for holders in &all {
        assert_eq!(holders.iter().collect::<BTreeSet<_>>().len(), 8, "a peer each");
    }
    let whole = story.json(&["check", "--read-data", &address], 0);
    assert_eq!((&whole["state"], &whole["survives"]), (&"full".into(), &4.into()), "{whole}");
    assert_eq!((&whole["read"], &whole["stripes"]), (&16.into(), &2.into()), "{whole}");

    // The four that hold the pages of the first stripe.
    let lost: BTreeSet<String> = all[0][..4].iter().cloned().collect();
    story.kill(&lost);
    for (address, original) in [(&address, &file), (&letter, &small)] {
        let got = story.home.get(&story.via, address, &back).expect(0).json();
        assert_same(original, &back);
        // Of the letter's own stripe chance may leave all pages.
        assert!(got["degraded"] == true || original == &small, "{got}");
        fs::remove_file(&back).unwrap();
    }
    let mut range = story.home.hold(["get", &address, "--via", &story.via, "--range"]);
    let range = run(range.args(["3000000-3000009", "-o"]).arg(&back));
    range.expect(0);
    assert_eq!(fs::read(&back).unwrap(), fs::read(&file).unwrap()[3_000_000..3_000_010]);
    let lacking = story.json(&["check", &address], 3);
    assert_eq!((&lacking["state"], &lacking["survives"]), (&"lacking".into(), &0.into()));
    let info = story.json(&["info", &address], 0);
    assert_eq!(holders(&info, 0), all[0][4..], "info tells which are left");

    // One more than a stripe survives: nothing is written, and nothing is said to be lost as long as peers are away.
    story.kill(&[all[0][4].clone()].into());
    let refused = story.home.get(&story.via, &address, &folder.join("none")).expect_error(15);
    assert!(!folder.join("none").exists() && refused.text().is_empty());
    let away = run(&mut story.home.hold(["check", &address, "--json", "--via", &story.via]));
    assert!(away.stderr.contains("\"error\":"), "why it ended is told: {away:?}");
    assert_ne!(away.json()["state"], "full", "{away:?}");

    story.start_all();
    story.home.get(&story.via, &address, &back).expect(0);
    assert_same(&file, &back);
    assert_eq!(story.json(&["check", &address], 0)["state"], "full");
}
