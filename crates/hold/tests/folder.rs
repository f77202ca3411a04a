//! `hold put DIR`: many files at once, told in the order of their names.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;

use harness::{Network, assert_same, full, random_file, run};
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
    assert_eq!(String::from_utf8(listed.stdout).unwrap().lines().count(), count + 5);
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
