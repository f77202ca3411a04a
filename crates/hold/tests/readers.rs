//! `hold share` with many readers, by processes: a file of keys, an outcome each, and no more work than so many need.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fmt::Write;
use std::fs;

use harness::{Home, Network, full, hold, memory, random_file, run};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// So many valid keys, which nobody has: multiples of the curve's generator.
fn keys(count: u64) -> Vec<String> {
    let key = |n: u64| {
        let mut secret = [0; 32];
        secret[24..].copy_from_slice(&(n + 1).to_be_bytes());
        crypto::SecretKey::from_bytes(&secret).unwrap().public().to_string()
    };
    (0..count).map(key).collect()
}

#[test]
fn a_file_of_readers_is_shared_with_and_each_has_its_line() {
    let mut network = Network::running(3, &[]);
    let via = network.via();
    let (ada, ben) = (network.home("ada", 0), network.home("ben", 1));
    let file = network.folder.path().join("file.bin");
    random_file(&file, 10_000, 1);
    let address = ada.put(&via, &file)["address"].as_str().unwrap().to_owned();
    let count = if full() { 10_000 } else { 1_000 };
    let list = network.folder.path().join("readers");
    let mut text = format!("# of the clinic\n\n{}  # Ben\n", ben.reader());
    for (number, key) in keys(count).iter().enumerate() {
        writeln!(text, "{key}\r").unwrap();
        if number % 100 == 0 {
            writeln!(text, "  {key} # the same again").unwrap();
        }
    }
    fs::write(&list, &text).unwrap();
    let share = |args: &[&str]| {
        let mut share = ada.hold(["share", &address, "--via", &via, "--to", &ben.reader()]);
        share.args(args).arg("--to-file").arg(&list);
        share
    };
    let outcome = run(&mut share(&["--json"])).expect(0);
    println!("{} readers in {:.1} s", count + 1, outcome.seconds);
    let lines: Vec<Value> =
        outcome.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len() as u64, count + 1, "each once");
    assert_eq!(lines[0]["reader"], ben.reader().as_str());
    assert!(lines.iter().all(|line| line["address"].is_string() && line["error"].is_null()));
    let back = network.folder.path().join("back.bin");
    ben.get(&via, lines[0]["address"].as_str().unwrap(), &back).expect(0);
    harness::assert_same(&file, &back);
    for peer in &network.peers {
        let peak = memory(peer.pid(), "VmHWM");
        assert!(peak < 128 * MIB, "a peer took {} MiB", peak / MIB);
    }

    // A bad line is named, before anything is done.
    fs::write(&list, format!("{text}\n02abc # half\n")).unwrap();
    let refused = run(&mut share(&[])).expect_error(2);
    let line = text.lines().count() + 2;
    assert!(refused.stderr.contains(&format!("line {line} of")), "{}", refused.stderr);
    fs::write(&list, "# nobody\n").unwrap();
    run(ada.hold(["share", &address, "--via", &via, "--to-file"]).arg(&list)).expect_error(2);
    run(ada.hold(["share", &address, "--via", &via, "--to-file", "/nowhere"]).arg("-q"))
        .expect_error(10);

    // With one peer of three nothing can be acknowledged.
    fs::write(&list, keys(2).join("\n")).unwrap();
    network.peers[1].kill();
    network.peers[2].kill();
    let failed = run(&mut share(&["--json"]));
    assert!(matches!(failed.code, Some(15)), "{failed:?}");
    let lines = failed.text().lines().count();
    assert_eq!(lines, 3, "each is told: {}", failed.text());
}

#[test]
fn some_readers_without_an_envelope_is_partly_done() {
    let network = Network::running(3, &[]);
    let via = network.via();
    // Its pass lets it store little: the first part of the readers, and not the second.
    let cara = Home { dir: network.folder.path().join("cara") };
    run(cara.hold(["keys", "init", "--network"]).arg(&network.file)).expect(0);
    let listed = run(&mut cara.hold(["keys", "list", "--json"])).expect(0).json();
    let client = listed["client_key"].as_str().unwrap();
    let mut pass = hold(["org", "pass", "--quota", "160000", "--client", client, "--dir"]);
    pass.arg(&network.orgs[0]).arg("--network").arg(&network.file);
    run(pass.arg("-o").arg(cara.dir.join("pass"))).expect(0);
    let file = network.folder.path().join("file.bin");
    random_file(&file, 1_000, 1);
    let address = cara.put(&via, &file)["address"].as_str().unwrap().to_owned();
    let list = network.folder.path().join("readers");
    fs::write(&list, keys(900).join("\n")).unwrap();
    let mut share = cara.hold(["share", &address, "--json", "--via", &via, "--to-file"]);
    let partly = run(share.arg(&list)).expect(3);
    let lines: Vec<Value> =
        partly.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 900, "each reader is told");
    let shared = lines.iter().filter(|line| line["address"].is_string()).count();
    assert!(shared > 0 && shared < 900, "{shared}");
    let failed: Vec<&Value> = lines.iter().filter(|line| line["address"].is_null()).collect();
    assert!(failed[0]["error"].as_str().unwrap().contains("quota"), "{}", failed[0]);
    assert!(failed.last().unwrap()["error"].as_str().unwrap().contains("not tried"));
    let warning = format!("{} of 900 readers were not shared with", 900 - shared);
    assert!(partly.stderr.contains(&warning), "{}", partly.stderr);
}
