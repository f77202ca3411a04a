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
