//! Versioned objects on separate processes: every verb, branches on both sides of a partition, killed holders, altered disks,
//! and who may do what.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use harness::{Home, Network, Outcome, full, run, signal};
use serde_json::Value;

/// A user of objects, and the peers that it asks.
struct User<'a> {
    home: &'a Home,
    via: String,
}

impl User<'_> {
    fn object(&self, args: &[&str]) -> Outcome {
        run(&mut self.home.hold([&["object"], args, &["--json", "--via", &self.via]].concat()))
    }

    /// The lines of a result.
    #[track_caller]
    fn lines(&self, args: &[&str]) -> Vec<Value> {
        let text = self.object(args).expect(0).text();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[track_caller]
    fn put(&self, args: &[&str]) -> String {
        let put = self.object(&[&["put"], args].concat());
        assert!(matches!(put.code, Some(0 | 3)), "{put:?}");
        put.json()["version"].as_str().unwrap().to_owned()
    }

    /// The value of an object, or of a version of it.
    #[track_caller]
    fn get(&self, args: &[&str]) -> String {
        let got =
            run(&mut self.home.hold([&["object", "get"], args, &["--via", &self.via]].concat()));
        got.expect(0).text()
    }

    #[track_caller]
    fn versions(&self, args: &[&str]) -> Vec<String> {
        let lines = self.lines(args);
        lines.iter().map(|line| line["version"].as_str().unwrap().to_owned()).collect()
    }

    /// The versions, once all holders answer: peers that were just started have still to meet.
    #[track_caller]
    fn versions_of_all(&self, args: &[&str]) -> Vec<String> {
        for _ in 0..60 {
            if self.object(args).code == Some(0) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        self.versions(args)
    }

    fn owner(&self) -> String {
        let listed = run(&mut self.home.hold(["keys", "list", "--json"])).expect(0).json();
        listed["owner_key"].as_str().unwrap().to_owned()
    }
}

fn user<'a>(network: &Network, home: &'a Home) -> User<'a> {
    User { home, via: network.everybody() }
}

#[test]
fn a_put_makes_the_object_at_first_use_and_none_hides_another() {
    let network = Network::running(4, &[]);
    let (home, other) = (network.home("owner", 0), network.home("other", 1));
    let (owner, other) = (user(&network, &home), user(&network, &other));
    let none = "0:0:0".to_owned();
    owner.object(&["get", "plan"]).expect_error(10);
    let first = owner.put(&["plan", "--value", "bread"]);
    assert!(first.contains(':') && first != none);
    assert_eq!(owner.get(&["plan"]), "bread");
    assert_eq!(owner.put(&["plan", "--value", "milk", "--base", &first]).matches(':').count(), 2);
    // Nothing is made under a base, nor for somebody else.
    owner.object(&["put", "elsewhere", "--value", "x", "--base", &first]).expect_error(10);
    let theirs = format!("{}:plan", owner.owner());
    other.object(&["put", &theirs, "--value", "x"]).expect_error(13);
    owner.object(&["put", "elsewhere", "--delete"]).expect_error(10);
    // What is in the one would be looked for in the other.
    owner.object(&["create", "plan", "--open", "--public"]).expect_error(14);
    owner.object(&["create", "board", "--open", "--public"]).expect(0);
    owner.object(&["create", "board"]).expect_error(14);
    owner.object(&["create", "board", "--open", "--public"]).expect(0);
    let lines = owner.object(&["put", "list", "--lines", "--file", "/dev/null"]);
    assert!(matches!(lines.code, Some(0)), "{lines:?}");
}

#[test]
fn a_user_makes_versions_reads_their_history_and_merges_branches() {
    let network = Network::running(4, &[]);
    let home = network.home("owner", 0);
    let owner = user(&network, &home);
    let made = owner.object(&["create", "notes"]).expect(0).json();
    assert_eq!(
        (made["sealed"].as_bool(), made["object"].as_str().unwrap().len()),
        (Some(true), 64)
    );
    owner.object(&["get", "notes"]).expect_error(10);
    owner.object(&["log", "notes"]).expect_error(10);
    owner.object(&["log", "notes", "-m", "100001"]).expect_error(2);
    let first = owner.put(&["notes", "--value", "bread"]);
    let second = owner.put(&["notes", "--value", "bread, milk"]);
    assert_eq!(owner.get(&["notes"]), "bread, milk");
    assert_eq!(owner.get(&["notes", &first]), "bread");
    assert_eq!(owner.versions(&["prev", "notes"]), [first.as_str()]);
    // The same value on the same base is the same version, whoever sends it again.
    assert_eq!(owner.put(&["notes", "--value", "bread, milk", "--base", &first]), second);
    let branch = owner.put(&["notes", "--value", "bread, eggs", "--base", &first]);
    let tips = owner.versions(&["tips", "notes"]);
    assert_eq!(tips.len(), 2);
    assert!(tips.contains(&second) && tips.contains(&branch));
    owner.object(&["put", "notes", "--value", "which?"]).expect_error(14);
    let merged = owner.object(&["merge", "notes", "--value", "bread, milk, eggs"]).expect(0).json();
    let merged = merged["version"].as_str().unwrap().to_owned();
    assert_eq!(owner.versions(&["tips", "notes"]), [merged.as_str()]);
    let log = owner.lines(&["log", "notes", "--values"]);
    assert_eq!(log.len(), 4);
    assert_eq!(log[0]["version"], merged.as_str());
    assert_eq!(log[0]["bases"].as_array().unwrap().len(), 2);
    assert_eq!((&log[3]["version"], &log[3]["value"]), (&first.as_str().into(), &"bread".into()));
    assert_eq!(owner.versions(&["prev", "notes", "-m", "9"]).len(), 2, "a merge ends it");
    // Deleted, and what was there before stays.
    owner.put(&["notes", "--delete"]);
    owner.object(&["get", "notes"]).expect_error(10);
    assert_eq!(owner.get(&["notes", &merged]), "bread, milk, eggs");

    // A function of the two and what they have in common.
    owner.object(&["create", "counter", "--open"]).expect(0);
    let root = owner.put(&["counter", "--value", "10", "--compress"]);
    owner.put(&["counter", "--value", "15", "--base", &root]);
    owner.put(&["counter", "--value", "7", "--base", &root]);
    owner.object(&["merge", "counter", "--function", "aggregate-sum"]).expect(0);
    assert_eq!(owner.get(&["counter"]), "12");
    let none = owner.object(&["merge", "counter", "--function", "no-such"]).expect_error(2);
    assert!(none.stderr.contains("aggregate-sum, append"), "those there are: {}", none.stderr);
    owner.object(&["get", "nothing-of-that-name"]).expect_error(10);
    owner.object(&["get", "notes", "zz:1:00"]).expect_error(2);
    // Many at once, each told; with receipts of the peers.
    let receipts = owner.object(&["put", "counter", "--value", "13", "--receipt"]).expect(0).json();
    assert!(receipts["receipts"].as_array().unwrap().len() >= 2, "{receipts}");
    let lines = network.folder.path().join("lines");
    fs::write(&lines, (0..500).map(|n| format!("{n}\n")).collect::<String>()).unwrap();
    let told = owner.versions(&["put", "counter", "--lines", "-f", lines.to_str().unwrap()]);
    assert_eq!(told.len(), 500);
    assert_eq!(owner.get(&["counter"]), "499");
    assert_eq!(owner.versions(&["prev", "counter", "-m", "1000"]).len(), 501);
    // Watched: what there is, then what is new; and from where it ended, what came meanwhile.
    let point = network.folder.path().join("point");
    let point = ["--resume", point.to_str().unwrap()];
    let watched = owner.versions(&[&["watch", "notes", "--once"], &point[..]].concat());
    assert_eq!(watched.len(), 1);
    let (fourth, fifth) =
        (owner.put(&["notes", "--value", "butter"]), owner.put(&["notes", "--value", "cheese"]));
    let watched = owner.versions(&[&["watch", "notes", "--once"], &point[..]].concat());
    assert!(watched.ends_with(&[fourth, fifth]), "{watched:?}");
    // Everything is there after all processes were killed at once.
    let mut network = network;
    network.peers.iter_mut().for_each(harness::Peer::kill);
    network.start_all();
    let owner = user(&network, &home);
    assert_eq!(owner.get(&["counter"]), "499");
    assert_eq!(owner.versions(&["tips", "counter"]), [told.last().unwrap().as_str()]);
    assert_eq!(owner.lines(&["log", "notes"]).len(), 7);
}

#[test]
fn a_value_that_does_not_open_is_told_with_all_the_others() {
    let network = Network::running(4, &[]);
    let home = network.home("owner", 0);
    let owner = user(&network, &home);
    let first = owner.put(&["notes", "--value", "bread"]);
    let second = owner.put(&["notes", "--value", "milk"]);
    // A writer that has another content key.
    let access = owner.object(&["access", "notes"]).expect(0).json();
    let mut access = access["access"].as_str().unwrap().to_owned();
    let last = access.pop().unwrap();
    access.push(if last == '0' { '1' } else { '0' });
    let file = network.folder.path().join("access");
    fs::write(&file, access).unwrap();
    let wrong = format!("@{}", file.display());
    let sealed = owner.put(&[&wrong, "--root", "--value", "butter"]);

    let log = owner.object(&["log", "notes", "--values"]);
    assert!(log.stderr.contains("does not open"), "{}", log.stderr);
    let lines: Vec<Value> =
        log.expect(3).text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |version: &str| lines.iter().find(|line| line["version"] == version).unwrap();
    assert_eq!(lines.len(), 3);
    assert_eq!((&of(&first)["value"], &of(&second)["value"]), (&"bread".into(), &"milk".into()));
    assert!(of(&sealed).get("value").is_none() && of(&sealed)["bytes"].as_u64().unwrap() > 6);
    let mut watched = owner.versions(&["watch", "notes", "--once", "--values"]);
    watched.sort_unstable();
    // Of what there is the tips are told.
    let mut all = vec![second, sealed];
    all.sort_unstable();
    assert_eq!(watched, all);
}

#[test]
fn a_version_that_is_nowhere_is_no_base_and_no_head() {
    let network = Network::running(4, &[]);
    let home = network.home("owner", 0);
    let owner = user(&network, &home);
    let first = owner.put(&["plan", "--value", "bread"]);
    let theirs = owner.put(&["board", "--value", "of another object"]);
    let (h, rest) = first.split_once(':').unwrap();
    let hint = rest.split_once(':').unwrap().1;
    let nowhere = format!("{}:0:{hint}", "ab".repeat(32));
    let deep = format!("{h}:7:{hint}");
    for (version, code) in [(&nowhere, 10), (&theirs, 10), (&deep, 2)] {
        owner.object(&["put", "plan", "--value", "x", "--base", version]).expect_error(code);
        owner.object(&["merge", "plan", &first, version, "--value", "x"]).expect_error(code);
        owner.object(&["get", "plan", version]).expect_error(code);
        let args = ["head", "update", "plan", version, "--via", &owner.via];
        run(&mut home.hold(args)).expect_error(code);
    }
    let deep = owner.object(&["get", "plan", &deep]).expect_error(2);
    assert!(deep.stderr.contains("has depth 0"), "{}", deep.stderr);
    assert_eq!(owner.versions(&["tips", "plan"]), [first.as_str()]);
    assert_eq!(owner.versions(&["log", "plan"]), [first.as_str()]);
    run(&mut home.hold(["head", "read", "plan", "--via", &owner.via])).expect_error(10);
}

#[test]
fn only_those_read_and_write_whom_the_owner_lists() {
    let network = Network::running(3, &[]);
    let (home, friends, strangers) =
        (network.home("owner", 0), network.home("friend", 1), network.home("other", 2));
    let (owner, friend) = (user(&network, &home), user(&network, &friends));
    let other = user(&network, &strangers);
    owner.object(&["create", "diary"]).expect(0);
    owner.object(&["create", "board", "--open"]).expect(0);
    owner.put(&["diary", "--value", "a secret"]);
    let root = owner.put(&["board", "--value", "hello"]);
    let board = format!("{}:board", owner.owner());
    // Not listed: the same answer whether or not it exists.
    friend.object(&["get", &board]).expect_error(13);
    friend.object(&["get", &format!("{}:none", owner.owner())]).expect_error(13);
    let key = friend.owner();
    owner.object(&["policy", "board", "--set", "--open", "--reader", &key]).expect(0);
    assert_eq!(friend.get(&[&board]), "hello");
    friend.object(&["put", &board, "--value", "mine", "--base", &root]).expect_error(13);
    owner.object(&["policy", "board", "--set", "--open", "--writer", &key]).expect(0);
    friend.put(&[&board, "--value", "from a friend"]);
    assert_eq!(owner.get(&["board"]), "from a friend");
    owner.put(&["board", "--value", "from us both"]);
    other.object(&["get", &board]).expect_error(13);
    // Taken off the list, by a policy of a higher number: what is not to be lost with its writer is built on before.
    let policy = owner.object(&["policy", "board", "--set", "--open", "--public"]).expect(0).json();
    assert_eq!(policy["version"], 4);
    friend.object(&["put", &board, "--value", "again"]).expect_error(13);
    assert_eq!(other.get(&[&board]), "from us both");
    // A sealed one needs a line in the policy, and the key.
    let access = network.folder.path().join("access");
    let told =
        run(&mut owner.home.hold(["object", "access", "diary", "--via", &owner.via])).expect(0);
    fs::write(&access, told.text()).unwrap();
    let access = format!("@{}", access.display());
    friend.object(&["get", &access]).expect_error(13);
    owner.object(&["policy", "diary", "--set", "--reader", &key]).expect(0);
    assert_eq!(friend.get(&[&access]), "a secret");
    // No peer has seen name or value.
    for peer in &network.peers {
        for file in files_below(&peer.dir) {
            let bytes = fs::read(&file).unwrap();
            for secret in [&b"a secret"[..], b"diary"] {
                let found = bytes.windows(secret.len()).any(|part| part == secret);
                assert!(!found, "{} holds it", file.display());
            }
        }
    }
}

#[test]
fn a_branch_made_on_both_sides_of_a_partition_is_found_and_merged() {
    let mut network = Network::running(4, &[]);
    let home = network.home("owner", 0);
    let owner = user(&network, &home);
    owner.object(&["create", "both", "--open", "--copies", "3/1"]).expect(0);
    let root = owner.put(&["both", "--value", "a\nb\nc\n"]);
    network.acquainted();
    // Each side sees two of the four peers: the others do not answer.
    let mut made = Vec::new();
    for (side, value) in [([0, 1], "a1\nb\nc\n"), ([2, 3], "a\nb\nc2\n")] {
        let cut: Vec<i32> =
            (0..4).filter(|at| !side.contains(at)).map(|at| network.peers[at].pid()).collect();
        cut.iter().for_each(|pid| signal(*pid, "STOP"));
        let via = side.map(|at| network.peers[at].address.clone()).join(",");
        let writer = User { home: &home, via };
        made.push(writer.put(&["both", "--value", value, "--base", &root]));
        // What is on the other side is not in it, and that is told.
        let part = writer.object(&["log", "both"]).expect(3);
        assert!(part.stderr.contains("there may be more"), "{}", part.stderr);
        assert!(part.text().lines().count() >= 2, "{}", part.text());
        cut.iter().for_each(|pid| signal(*pid, "CONT"));
    }
    let tips = owner.versions(&["tips", "both", "--wide"]);
    assert_eq!(tips.len(), 2, "{tips:?} of {made:?}");
    assert!(made.iter().all(|version| tips.iter().any(|tip| tip[..64] == version[..64])));
    let args = ["merge", "both", "--function", "three-way-text", &tips[0], &tips[1]];
    owner.object(&args).expect(0);
    assert_eq!(owner.get(&["both"]), "a1\nb\nc2");
    assert_eq!(owner.versions(&["tips", "both", "--wide"]).len(), 1);
    network.peers.iter_mut().for_each(harness::Peer::kill);
}

#[test]
fn no_acknowledged_version_is_lost_when_holders_are_killed() {
    let mut network = Network::running(4, &[]);
    let home = network.home("owner", 0);
    let via = network.everybody();
    let owner = User { home: &home, via: via.clone() };
    owner.object(&["create", "load", "--open", "--copies", "3/2"]).expect(0);
    let count = if full() { 20_000 } else { 2_000 };
    let args =
        ["object", "put", "load", "--lines", "--durability", "group", "--json", "--via", &via];
    let mut put = home.hold(args).stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut input = put.stdin.take().unwrap();
    let feed = std::thread::spawn(move || {
        for number in 0..count {
            if writeln!(input, "value {number} of many").is_err() {
                return;
            }
        }
    });
    let mut lines = BufReader::new(put.stdout.take().unwrap()).lines();
    let mut told: Vec<String> = Vec::new();
    let mut victim = 0;
    for line in lines.by_ref() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        told.push(line["version"].as_str().unwrap().to_owned());
        // W - 1 of them, one after the other, each back before the next goes.
        if told.len() * 5 / count > victim {
            network.peers[victim % 4].kill();
            network.peers[victim % 4].start();
            victim += 1;
        }
    }
    feed.join().unwrap();
    let ended = put.wait().unwrap();
    assert!(matches!(ended.code(), Some(0 | 3)), "{ended:?}");
    assert_eq!(told.len(), count);
    let before = told.len();
    // And all at once.
    network.peers.iter_mut().for_each(harness::Peer::kill);
    network.start_all();
    let tips = owner.versions_of_all(&["tips", "load"]);
    assert_eq!(tips[0][..64], told[count - 1][..64]);
    let mut history: Vec<String> = Vec::new();
    let mut from = told[count - 1].clone();
    while history.len() + 1 < count {
        let more = owner.versions(&["prev", "load", &from, "-m", "4096"]);
        assert!(!more.is_empty(), "after {} versions", history.len());
        from.clone_from(more.last().unwrap());
        history.extend(more);
    }
    let lost =
        told.iter().rev().skip(1).zip(&history).filter(|(told, found)| told[..64] != found[..64]);
    let after = history.len() + 1 - lost.count();
    println!("acknowledged {before}, found {after}; {victim} kills of one holder, one of all");
    assert_eq!(before, after);
}

#[test]
fn two_devices_write_one_head_and_the_merge_takes_the_place_of_both() {
    let network = Network::running(4, &[]);
    let (home, laptops) = (network.home("owner", 0), network.home("laptop", 0));
    let (owner, laptop) = (user(&network, &home), user(&network, &laptops));
    let head = |user: &User<'_>, args: &[&str]| {
        run(&mut user.home.hold([&["head"], args, &["--json", "--via", &user.via]].concat()))
    };
    let heads = |user: &User<'_>, args: &[&str]| -> Vec<Value> {
        let text = head(user, args).expect(0).text();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    owner.object(&["create", "plan", "--open"]).expect(0);
    head(&owner, &["read", "plan"]).expect_error(10);
    let root = owner.put(&["plan", "--value", "a\nb\nc\n"]);
    let first = heads(&owner, &["update", "plan", &root]);
    let plan = format!("{}:plan", owner.owner());
    // No device yet: refused, for versions and for heads.
    let device = laptop.owner();
    laptop.object(&["put", &plan, "--value", "x", "--base", &root]).expect_error(13);
    owner.object(&["policy", "plan", "--set", "--open", "--writer", &device]).expect(0);
    head(&laptop, &["update", &plan, &root]).expect_error(13);
    head(&owner, &["device", "plan", "--add", &device]).expect(0);
    // Both at once: each saw the first head alone.
    let theirs = laptop.put(&[&plan, "--value", "a\nb\nc2\n", "--base", &root]);
    let ours = owner.put(&["plan", "--value", "a1\nb\nc\n", "--base", &root]);
    let seen = first[0]["head"].as_str().unwrap();
    let branch = ["--branch", "both"];
    std::thread::scope(|scope| {
        let one = scope.spawn(|| head(&owner, &[&["update", "plan", &ours], &branch[..]].concat()));
        let other =
            scope.spawn(|| head(&laptop, &[&["update", &plan, &theirs], &branch[..]].concat()));
        one.join().unwrap().expect(0);
        other.join().unwrap().expect(0);
    });
    let both = heads(&owner, &[&["read", "plan"], &branch[..]].concat());
    assert!((1..=2).contains(&both.len()), "{both:?}");
    if both.len() == 2 {
        let merged = heads(&owner, &[&["merge", "plan"], &branch[..]].concat());
        assert_eq!(merged.len(), 1);
        let read = heads(&laptop, &[&["read", &plan], &branch[..]].concat());
        assert_eq!(read, merged);
        let version = merged[0]["version"].as_str().unwrap();
        assert_eq!(owner.get(&["plan", version]), "a1\nb\nc2");
    }
    // Whoever expects what was is told that it moved on.
    heads(&owner, &["update", "plan", &ours, "--expected", seen]);
    head(&laptop, &["update", &plan, &theirs, "--expected", seen]).expect_error(14);
    // A revoked device's head counts no more.
    let late = heads(&laptop, &["update", &plan, &theirs, "--branch", "late"]);
    assert_eq!(heads(&owner, &["read", "plan", "--branch", "late"]), late);
    head(&owner, &["device", "plan", "--revoke", &device]).expect(0);
    head(&owner, &["read", "plan", "--branch", "late"]).expect_error(10);
    head(&laptop, &["update", &plan, &theirs]).expect_error(13);
}

/// Whoever reads a watch may go away: the watch ends with its next line.
#[test]
fn a_watch_of_heads_ends_when_nobody_reads_it() {
    let network = Network::running(4, &[]);
    let home = network.home("owner", 0);
    let owner = user(&network, &home);
    owner.object(&["create", "plan", "--open"]).expect(0);
    let update = |version: &str| {
        run(&mut home.hold(["head", "update", "plan", version, "--via", &owner.via])).expect(0)
    };
    let first = owner.put(&["plan", "--value", "one"]);
    update(&first);
    let mut watch = home.hold(["head", "watch", "plan", "--json", "--via", &owner.via]);
    let mut watch = watch.stderr(Stdio::inherit()).spawn().unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(watch.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["version"], first.as_str());
    drop(lines);
    let second = owner.put(&["plan", "--value", "two", "--base", &first]);
    update(&second);
    let started = std::time::Instant::now();
    let ended = loop {
        match watch.try_wait().unwrap() {
            Some(ended) => break Some(ended),
            None if started.elapsed() > harness::PATIENCE => break None,
            None => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    };
    let _ = watch.kill();
    assert_eq!(ended.and_then(|ended| ended.code()), Some(0));
}

#[test]
fn what_a_disk_altered_is_not_believed() {
    let mut network = Network::running(3, &[]);
    let home = network.home("owner", 0);
    let owner = user(&network, &home);
    owner.object(&["create", "fact", "--open", "--copies", "3/3"]).expect(0);
    let marker = "the marker that is looked for on disks";
    let first = owner.put(&["fact", "--value", marker]);
    let second = owner.put(&["fact", "--value", "what came after"]);
    network.peers.iter_mut().for_each(harness::Peer::kill);
    // One of three: another holder's copy is taken.
    alter(&network.peers[0].dir, marker.as_bytes());
    network.start_all();
    assert_eq!(owner.get(&["fact", &first]), marker);
    assert_eq!(owner.versions(&["prev", "fact", &second]), [first.as_str()]);
    // All of them: refused, and said so.
    network.peers.iter_mut().for_each(harness::Peer::kill);
    alter(&network.peers[1].dir, marker.as_bytes());
    alter(&network.peers[2].dir, marker.as_bytes());
    network.start_all();
    let refused = owner.object(&["get", "fact", &first]);
    assert!(matches!(refused.code, Some(10 | 15 | 16)), "{refused:?}");
    assert!(refused.stderr.contains("error"), "{refused:?}");
    assert_eq!(owner.get(&["fact"]), "what came after", "the others are as good as before");
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for item in fs::read_dir(folder).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// Flips a bit in the middle of each place where the bytes stand in a folder's files.
fn alter(folder: &Path, what: &[u8]) {
    let mut altered = 0;
    for file in files_below(folder) {
        let mut bytes = fs::read(&file).unwrap();
        let places: Vec<usize> = (0..bytes.len().saturating_sub(what.len()))
            .filter(|at| bytes[*at..].starts_with(what))
            .collect();
        for at in &places {
            bytes[at + what.len() / 2] ^= 1;
        }
        if !places.is_empty() {
            altered += places.len();
            fs::write(&file, bytes).unwrap();
        }
    }
    assert!(altered > 0, "it is nowhere in {}", folder.display());
}
