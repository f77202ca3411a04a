//! `hold put DIR`: many files at once, told in the order of their names.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use harness::{Network, Running, assert_same, full, random_file, run};
use serde_json::Value;

#[test]
fn a_folder_of_files_large_and_small_is_told_in_order_and_comes_back() {
    let network = Network::running(3, &[]);
    let (home, via) = (network.home("author", 0), network.via());
    let folder = network.folder.path().join("files");
    fs::create_dir_all(folder.join("below")).unwrap();
    let count = if full() { 2_000 } else { 60 };
    for number in 0..count {
        random_file(&folder.join(format!("f{number:05}")), 4096 + number, number as u64 + 1);
    }
    // The first takes longest: the others wait for it to be told.
    random_file(&folder.join("a"), 20 << 20, 7);
    random_file(&folder.join("below/z"), 0, 8);
    let mut put = home.hold(["put", "--json", "--via", &via]);
    let put = run(put.arg(&folder)).expect(0);
    println!("{count} files in {:.1} s", put.seconds);
    let lines: Vec<Value> =
        put.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = lines.iter().map(|line| line["name"].as_str().unwrap()).collect();
    let mut wanted = vec!["a".to_owned(), "below/z".to_owned()];
    wanted.extend((0..count).map(|number| format!("f{number:05}")));
    assert_eq!(names, wanted);
    let back = network.folder.path().join("back");
    for line in [&lines[0], &lines[1], &lines[2], &lines[count / 2], &lines[count + 1]] {
        home.get(&via, line["address"].as_str().unwrap(), &back).expect(0);
        assert_same(&folder.join(line["name"].as_str().unwrap()), &back);
    }
    // All of it at once, by what was printed.
    let list = network.folder.path().join("list");
    fs::write(&list, put.text()).unwrap();
    let tree = network.folder.path().join("tree");
    let mut get = home.hold(["get", "--json", "--via", &via, "--list"]);
    let got = run(get.arg(&list).arg("-o").arg(&tree)).expect(0);
    assert_eq!(got.text().lines().count(), lines.len());
    names.iter().for_each(|name| assert_same(&folder.join(name), &tree.join(name)));
    let drafts = fs::read_dir(&tree).unwrap().count();
    assert_eq!(drafts, count + 2, "and nothing beside it");
    let journals = fs::read_dir(home.dir.join("journals")).map_or(0, Iterator::count);
    assert_eq!(journals, 0, "none is left");
}

#[test]
fn a_folder_is_packed_into_one_content_and_unpacked_again() {
    let network = Network::running(3, &[]);
    let (home, via) = (network.home("author", 0), network.via());
    let folder = network.folder.path().join("tree");
    fs::create_dir_all(folder.join("deep/below")).unwrap();
    fs::create_dir_all(folder.join("empty")).unwrap();
    let count = if full() { 10_000 } else { 300 };
    for number in 0..count {
        random_file(&folder.join(format!("f{number:05}")), number % 5000, number as u64 + 1);
    }
    random_file(&folder.join("deep/below/large"), 9 << 20, 7);
    let long = format!("deep/{}", "n".repeat(200));
    random_file(&folder.join(&long), 100, 8);
    std::os::unix::fs::symlink("/etc/passwd", folder.join("link")).unwrap();
    let mut put = home.hold(["put", "--pack", "--json", "--via", &via]);
    let put = run(put.arg(&folder)).expect(0);
    println!("{count} files packed in {:.1} s", put.seconds);
    let lines: Vec<Value> =
        put.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "one address");
    let address = lines[0]["address"].as_str().unwrap();
    let out = network.folder.path().join("out");
    let mut get = home.hold(["get", "--unpack", "--via", &via, address, "-o"]);
    let got = run(get.arg(&out)).expect(0);
    println!("unpacked in {:.1} s", got.seconds);
    for number in 0..count {
        let name = format!("f{number:05}");
        assert_same(&folder.join(&name), &out.join(&name));
    }
    assert_same(&folder.join("deep/below/large"), &out.join("deep/below/large"));
    assert_same(&folder.join(&long), &out.join(&long));
    assert!(out.join("empty").is_dir() && !out.join("link").exists());
    // It is a tar like any other.
    let tar = network.folder.path().join("tree.tar");
    home.get(&via, address, &tar).expect(0);
    let listed = std::process::Command::new("tar").arg("-tf").arg(&tar).output().unwrap();
    assert!(listed.status.success());
    assert_eq!(String::from_utf8(listed.stdout).unwrap().lines().count(), count + 6);
    // Standard output by another name is standard output: what is in it stays, and nothing but the content comes behind.
    let appended = network.folder.path().join("appended");
    fs::write(&appended, "before\n").unwrap();
    let to = fs::OpenOptions::new().append(true).open(&appended).unwrap();
    let mut get = home.hold(["get", "--via", &via, address, "-o", "/dev/stdout"]);
    assert!(get.stdout(to).status().unwrap().success());
    let expected = [&b"before\n"[..], &fs::read(&tar).unwrap()].concat();
    assert!(fs::read(&appended).unwrap() == expected);
    // The same, waiting for the disk; a file that is there is replaced.
    let synced = network.folder.path().join("synced");
    let mut get = home.hold(["get", "--unpack", "--sync", "--via", &via, address, "-o"]);
    run(get.arg(&synced)).expect(0);
    assert_same(&folder.join(&long), &synced.join(&long));
    let before = fs::read(&tar).unwrap();
    fs::write(&tar, b"older").unwrap();
    for flags in [&["get", "--via"][..], &["get", "--sync", "--via"]] {
        let mut get = home.hold(flags.iter().copied().chain([via.as_str(), address, "-o"]));
        run(get.arg(&tar)).expect(0);
        assert!(fs::read(&tar).unwrap() == before);
    }
    // What is there is not touched; what is no tar leaves nothing behind.
    let mut again = home.hold(["get", "--unpack", "--via", &via, address, "-o"]);
    run(again.arg(&out)).expect(14);
    let mut plain = home.hold(["put", "--json", "--via", &via]);
    let plain = run(plain.arg(folder.join("f00299"))).expect(0);
    let plain: Value = serde_json::from_str(plain.text().trim()).unwrap();
    let none = network.folder.path().join("none");
    let mut get = home.hold(["get", "--unpack", "--via", &via, plain["address"].as_str().unwrap()]);
    run(get.arg("-o").arg(&none)).expect(2);
    assert!(!none.exists());
    let left = fs::read_dir(network.folder.path()).unwrap();
    let left =
        left.filter(|item| item.as_ref().unwrap().file_name().to_string_lossy().contains(".part"));
    assert_eq!(left.count(), 0, "no draft is left");
}

/// Neither of a put nor of a get: the others are stored, and back.
#[test]
fn one_bad_file_keeps_no_other_of_a_folder_from_its_place() {
    let network = Network::running(3, &[]);
    let (home, via) = (network.home("author", 0), network.via());
    let folder = network.folder.path().join("files");
    fs::create_dir(&folder).unwrap();
    for number in 0..60 {
        random_file(&folder.join(format!("f{number:02}")), 1 << 20, number + 1);
    }
    std::os::unix::fs::symlink("f00", folder.join("link")).unwrap();
    let mut put = home.hold(["put", "--json", "--via", &via]);
    let mut put = put.arg(&folder).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(put.stdout.take().unwrap());
    // Some at once: the last is not among them when the first is told.
    let mut text = String::new();
    told.read_line(&mut text).unwrap();
    fs::remove_file(folder.join("f58")).unwrap();
    std::io::Read::read_to_string(&mut told, &mut text).unwrap();
    let output = put.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    for said in
        ["f58: cannot read", "59 of 60 files are stored; 1 failed, 0 were not", "left out: 1 link;"]
    {
        assert!(stderr.contains(said), "{said}: {stderr}");
    }
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), lines[58]["name"].as_str()), (59, Some("f59")));
    // One address is of nothing.
    let list = network.folder.path().join("list");
    let mut mine = lines.clone();
    mine[3]["address"] = format!("hold:{}", "ab".repeat(32)).into();
    let bad: String = mine.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&list, bad).unwrap();
    let tree = network.folder.path().join("tree");
    let mut get = home.hold(["get", "--via", &via, "--list"]);
    let got = run(get.arg(&list).arg("-o").arg(&tree)).expect(3);
    assert!(got.stderr.contains("58 of 59 files are here; 1 failed"), "{}", got.stderr);
    assert!(!tree.join("f03").exists());
    for line in lines.iter().filter(|line| line["name"] != "f03") {
        let name = line["name"].as_str().unwrap();
        assert_same(&folder.join(name), &tree.join(name));
    }
    // No link is followed that is in the folder; the folder itself may be one.
    let (elsewhere, linked) = (tree.join("elsewhere"), network.folder.path().join("linked"));
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("theirs"), "theirs").unwrap();
    let below = tree.join("below");
    fs::create_dir(&below).unwrap();
    std::os::unix::fs::symlink(&below, &linked).unwrap();
    std::os::unix::fs::symlink(&elsewhere, below.join("out")).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("theirs"), below.join("theirs")).unwrap();
    let mut out = lines[..3].to_vec();
    out[0]["name"] = "out/f00".into();
    out[1]["name"] = "theirs".into();
    out[2]["name"] = "in/f02".into();
    let list_of_links: String = out.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&list, list_of_links).unwrap();
    let mut get = home.hold(["get", "--via", &via, "--list"]);
    let got = run(get.arg(&list).arg("-o").arg(&linked)).expect(3);
    assert!(got.stderr.contains("1 of 3 files are here; 2 failed"), "{}", got.stderr);
    assert_same(&folder.join("f02"), &below.join("in/f02"));
    assert_eq!(fs::read_to_string(elsewhere.join("theirs")).unwrap(), "theirs");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    // Of nothing but failures the first is the run's.
    fs::write(&list, format!("{}\n", mine[3])).unwrap();
    let mut get = home.hold(["get", "--via", &via, "--list"]);
    run(get.arg(&list).arg("-o").arg(&tree)).expect_error(10);
    let mut get = home.hold(["get", "--via", &via, "-o", "-", "--list"]);
    run(get.arg(&list)).expect_error(2);
}

#[test]
fn a_put_says_what_it_stored_otherwise_than_was_asked_for() {
    let network = Network::running(3, &[]);
    let (home, via) = (network.home("author", 0), network.via());
    let file = network.folder.path().join("growing");
    random_file(&file, 96 << 20, 1);
    let mut put = home.hold(["put", "--json", "--via", &via]);
    let put = Running::start(put.arg(&file));
    let handles = format!("/proc/{}/fd", put.pid());
    let opened = || {
        let links = fs::read_dir(&handles).into_iter().flatten().flatten();
        let mut files = links.filter_map(|link| fs::read_link(link.path()).ok());
        files.any(|of| of == file)
    };
    while !opened() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut grows = fs::OpenOptions::new().append(true).open(&file).unwrap();
    grows.write_all(b"more").unwrap();
    let put = put.finish(harness::PATIENCE * 5).expect(3);
    assert!(put.json()["changed"] == true && put.json()["full"] == true, "{put:?}");
    assert!(put.stderr.contains("changed while it was read"), "{}", put.stderr);
    let put = run(home.hold(["put", "--json", "--via", &via]).arg(&file)).expect(0);
    assert!(put.json()["changed"] == false && put.json()["noted"] == true, "{put:?}");
    // More copies than there are peers are not to be had.
    let put = ["put", "--via", &via, "--profile", "copies:4"];
    let refused = run(home.hold(put).arg(&file)).expect_error(15);
    assert!(
        refused.stderr.contains("copies:4 takes 4 peers, one for each copy, and 3"),
        "{}",
        refused.stderr
    );
    // A home that takes no note of what is paid for.
    let paid = home.dir.join("paid");
    fs::remove_file(&paid).unwrap();
    fs::create_dir(&paid).unwrap();
    let small = network.folder.path().join("small");
    random_file(&small, 100, 2);
    let put = run(home.hold(["put", "--json", "--via", &via]).arg(&small)).expect(3);
    assert!(put.json()["noted"] == false && put.json()["full"] == true, "{put:?}");
    assert!(put.stderr.contains("renew by it"), "{}", put.stderr);
    let put = run(home.hold(["put", "--json", "-q", "--via", &via]).arg(&small)).expect(3);
    assert!(put.stderr.is_empty(), "results and errors alone: {}", put.stderr);
}

/// An address that nobody read is of something that nobody finds again.
#[test]
fn addresses_that_cannot_be_printed_are_told_on_standard_error() {
    let network = Network::running(3, &[]);
    let (home, via) = (network.home("author", 0), network.via());
    let folder = network.folder.path().join("files");
    fs::create_dir(&folder).unwrap();
    for number in 0..100 {
        random_file(&folder.join(format!("f{number:02}")), 1_000, number + 1);
    }
    let told = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter(|line| line.starts_with("hold:"));
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    // Whoever reads goes away at once.
    let mut put = home.hold(["put", "-q", "--via", &via]);
    let mut put = put.arg(&folder).spawn().unwrap();
    drop(put.stdout.take());
    let put = put.wait_with_output().unwrap();
    let stderr = String::from_utf8(put.stderr).unwrap();
    assert_eq!(put.status.code(), Some(1), "{stderr}");
    let addresses = told(&stderr);
    assert!((1..50).contains(&addresses.len()), "no more are begun: {}", addresses.len());
    let noted = run(&mut home.hold(["renew", "--all", "--json", "--via", &via])).expect(0).text();
    let noted = noted.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let noted = noted.map(|line| line["address"].as_str().unwrap().to_owned());
    assert_eq!(noted.collect::<BTreeSet<_>>(), addresses, "all that are stored");

    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let file = folder.join("f00");
    let mut put = home.hold(["put", "-q", "--via", &via]);
    let put = run(put.arg(&file).stdout(full())).expect_error(1);
    let address = told(&put.stderr).pop_first().unwrap();
    let back = network.folder.path().join("back");
    home.get(&via, &address, &back).expect(0);
    assert_same(&file, &back);
    let reader = network.home("reader", 1);
    let mut share = home.hold(["share", &address, "--json", "--via", &via, "--to"]);
    let share = run(share.arg(reader.reader()).stdout(full())).expect_error(1);
    let line = share.stderr.lines().find(|line| line.contains("hold:")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    fs::remove_file(&back).unwrap();
    reader.get(&via, line["address"].as_str().unwrap(), &back).expect(0);
    assert_same(&file, &back);
}
