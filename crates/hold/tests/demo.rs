//! The demonstration, the embedded network, and the forms of every verb that scripts rely on.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use harness::{Home, assert_only, assert_same, hold, random_file, run};
use serde_json::Value;

/// Later runs take under 20 seconds on a quiet machine of 2 cores; tests run beside each other.
const DEMO_SECONDS_MAX: f64 = 60.0;

#[test]
#[cfg(not(feature = "unsealed"))]
fn the_demonstration_holds_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(hold(["demo"]).env("TMPDIR", folder.path())).expect(0);
    assert!(outcome.seconds < DEMO_SECONDS_MAX, "{} s", outcome.seconds);
    assert_only(folder.path(), &[]);
    let file = folder.path().join("given.txt");
    std::fs::write(&file, "a given file of plain words, the same again and again. ".repeat(2000))
        .unwrap();
    // What the user's own network is has nothing to do with it.
    let mut given = hold(["demo", "--json"]);
    given.env("HOLD_ORG", "/nowhere/org").env("HOLD_NETWORK", "/nowhere/NET");
    given.env("HOLD_PASSPHRASE", "of another home");
    let outcome = run(given.arg(&file).env("TMPDIR", folder.path())).expect(0);
    let steps: Vec<Value> =
        outcome.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(steps.len() >= 8, "{steps:?}");
    assert!(steps.iter().all(|step| step["held"] == true), "{steps:?}");
    assert_only(folder.path(), &["given.txt"]);
}

#[test]
fn an_embedded_network_serves_until_it_is_stopped_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    let file = folder.path().join("file");
    random_file(&file, 3 << 20, 1);
    let mut address = None;
    for round in 1..=2 {
        let mut up = hold(["up", "--json", "--peers", "4", "--redis", "--dir"]);
        let mut up = up.arg(&dir).stderr(Stdio::inherit()).spawn().unwrap();
        let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
        let ready: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(ready["ready"], true);
        assert_eq!(ready["librarians"].as_array().unwrap().len(), 4);
        assert!(ready["metrics"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{ready}");
        // The door has the keys of the round before.
        let mut redis = TcpStream::connect(ready["redis"].as_str().unwrap()).unwrap();
        redis.write_all(b"INCR rounds\r\n").unwrap();
        let mut answer = String::new();
        BufReader::new(redis).read_line(&mut answer).unwrap();
        assert_eq!(answer, format!(":{round}\r\n"));
        // The home inside is ready: its settings name the librarians.
        let home = ready["home"].as_str().unwrap();
        let plain = |args: &[&str]| {
            let mut command = hold(args);
            command.env("HOLD_HOME", home);
            command
        };
        let address = address.get_or_insert_with(|| {
            let put = run(plain(&["put", "--json"]).arg(&file)).expect(0).json();
            put["address"].as_str().unwrap().to_owned()
        });
        let back = folder.path().join("back");
        run(plain(&["get", address, "-o"]).arg(&back)).expect(0);
        assert_same(&file, &back);
        harness::signal(i32::try_from(up.id()).unwrap(), "INT");
        let status = up.wait().unwrap();
        assert_eq!(status.code(), Some(0));
    }
}

#[test]
fn every_verb_speaks_json() {
    let network = harness::Network::running(3, &[]);
    let home = network.home("home", 0);
    let folder = network.folder.path();
    let (via, file) = (network.via(), folder.join("letter.txt"));
    std::fs::write(&file, "Dear reader").unwrap();
    let json = |home: &Home, args: &[&str]| {
        let mut command = home.hold(args);
        run(command.args(["--json", "--via", &via])).expect(0).json()
    };
    let put = json(&home, &["put", file.to_str().unwrap(), "--to", &home.reader()]);
    for field in ["address", "entry"] {
        assert!(put[field].is_string(), "{put}");
    }
    for field in ["bytes", "stored", "acked", "wanted", "seconds"] {
        assert!(put[field].is_number(), "{field}: {put}");
    }
    assert_eq!(put["envelopes"][0]["reader"], home.reader().as_str());
    let address = put["address"].as_str().unwrap();
    let get = json(&home, &["get", address, "-o", folder.join("x").to_str().unwrap()]);
    assert_eq!((&get["bytes"], &get["degraded"]), (&11.into(), &false.into()));
    let info = json(&home, &["info", address]);
    assert_eq!(info["size"], 11);
    assert_eq!(info["type"], "text/plain");
    let fragments = info["fragments"].as_array().unwrap();
    assert!(fragments.len() >= 2);
    for fragment in fragments {
        assert!(fragment["id"].is_string() && fragment["holder"].is_string(), "{fragment}");
        assert!(fragment["organisation"].is_string() && fragment["healthy"] == true, "{fragment}");
    }
    assert_eq!(json(&home, &["keys", "list"])["reader_keys"].as_array().unwrap().len(), 64);
    assert_eq!(json(&home, &["keys", "show"])["reader_key"], home.reader().as_str());
    assert_eq!(json(&home, &["doctor"])["ok"], true);
    let status = json(&home, &["peer", "status"]);
    assert_eq!(status["peers"].as_array().unwrap().len(), 3, "{status}");
    let inbox = json(&home, &["inbox"]);
    assert_eq!(inbox["address"], put["envelopes"][0]["address"]);
    assert!(inbox["author"].is_string() && inbox["entry"].is_string());
    assert!(inbox["received"].is_string() || inbox["received"].is_number());
    let shown = json(&home, &["network", "show", network.file.to_str().unwrap()]);
    assert_eq!(shown["organisations"].as_array().unwrap().len(), 3);
}

/// The help of every verb, as one text: a change of the command line is made on purpose.
/// `HOLD_UPDATE_SNAPSHOTS=1 cargo test -p hold --test demo help` writes it anew.
#[test]
fn the_help_is_the_one_that_was_agreed() {
    let path = Path::new(testkit::manifest!()).join("tests/snapshots/help.txt");
    let update = std::env::var_os("HOLD_UPDATE_SNAPSHOTS").is_some();
    let mut text = String::new();
    let verbs = [
        "",
        "demo",
        "up",
        "network",
        "network init",
        "network show",
        "org",
        "org init",
        "org sign-peer",
        "org pass",
        "org revoke",
        "peer",
        "peer init",
        "peer run",
        "peer set",
        "peer snapshot",
        "peer restore",
        "peer status",
        "keys",
        "keys init",
        "keys list",
        "keys show",
        "keys export",
        "keys import",
        "put",
        "get",
        "info",
        "check",
        "share",
        "renew",
        "forget",
        "inbox",
        "document",
        "document seal",
        "document open",
        "document show",
        "doctor",
        "bench",
        "completions",
        "man",
    ];
    for verb in verbs {
        let mut args: Vec<&str> = verb.split_whitespace().collect();
        args.push("-h");
        let help = run(hold(args).env("COLUMNS", "100")).expect(0).text();
        writeln!(text, "$ hold {verb} -h\n{help}\n").unwrap();
    }
    if update {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let agreed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(agreed == text, "the help changed; now it is:\n{text}");
}
