//! `hold inbox` as a feed for other systems, and the references that travel with a content.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{Home, Network, PATIENCE, Running, random_file, run};
use serde_json::Value;

const SCHEMA: &str = "acme/ehr/schemas/v2/patient@1.0";

#[test]
fn a_feed_goes_on_where_it_ended_and_a_content_names_its_schema() {
    let network = Network::running(4, &[]);
    let via = network.via();
    let (author, reader) = (network.home("author", 0), network.home("reader", 1));
    let file = network.folder.path().join("file.bin");
    random_file(&file, 30_000, 1);
    let address = schema(&author, &via, &file);

    let share = || {
        let mut share = author.hold(["share", &address, "--json", "--via", &via, "--to"]);
        run(share.arg(reader.reader())).expect(0).json()["address"].clone()
    };
    let (cursor, out) = (network.folder.path().join("cursor"), network.folder.path().join("out"));
    let mut shared = vec![share(), share()];
    listed(&reader, &via, &cursor, &out);
    same(&lines(&out), &shared);
    assert_eq!(followed(&cursor), 3, "also those that told nothing");
    // Nothing new: nothing is told again.
    listed(&reader, &via, &cursor, &out);
    same(&lines(&out), &shared);

    // A kill after the cursor was kept loses nothing and repeats nothing.
    let mut follow = feed(&reader, &via, &cursor, &out);
    let follow = Running::start(follow.arg("--follow"));
    shared.push(share());
    let started = Instant::now();
    while lines(&out).len() < 3 || !kept(&cursor, &shared[2]) {
        assert!(started.elapsed() < PATIENCE, "the third never came");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(follow);
    shared.push(share());
    listed(&reader, &via, &cursor, &out);
    same(&lines(&out), &shared);

    // `-` is standard output here too, and no file's name.
    let mut told = reader.hold(["inbox", "--json", "--via", &via, "-o", "-"]);
    let told = run(told.current_dir(network.folder.path())).expect(0).text();
    assert_eq!(told.lines().count(), shared.len(), "{told}");
    assert!(!network.folder.path().join("-").exists());

    // Where nothing can be remembered nothing is told.
    let nowhere = network.folder.path().join("none/cursor");
    let mut told = reader.hold(["inbox", "--via", &via, "--cursor-file"]);
    assert!(run(told.arg(&nowhere)).expect_error(10).stdout.is_empty());

    through_a_pipe(&reader, &via, network.folder.path(), &shared);
    // What is no cursor file is refused and left as it is.
    fs::write(&cursor, "a letter").unwrap();
    run(&mut feed(&reader, &via, &cursor, &out)).expect_error(2);
    assert_eq!(fs::read_to_string(&cursor).unwrap(), "a letter");
}

/// Puts with a schema and gives the address; `info` tells the schema.
fn schema(author: &Home, via: &str, file: &Path) -> String {
    let mut put = author.hold(["put", "--json", "--via", via, "--schema", SCHEMA]);
    let put = put.args(["--data-dictionary", "acme/ehr/words/all@7"]).arg(file).output().unwrap();
    assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
    let put: Value = serde_json::from_slice(&put.stdout).unwrap();
    let address = put["address"].as_str().unwrap().to_owned();
    let info = run(&mut author.hold(["info", &address, "--json", "--via", via])).expect(0).json();
    assert_eq!(info["schema"], SCHEMA);
    assert_eq!(info["data_dictionary"], "acme/ehr/words/all@7");
    let mut wrong = author.hold(["put", "--via", via, "--schema", "patient@1"]);
    run(wrong.arg(file)).expect_error(2);
    address
}

fn feed(reader: &Home, via: &str, cursor: &Path, out: &Path) -> Command {
    let mut feed = reader.hold(["inbox", "--json", "--via", via, "--cursor-file"]);
    feed.arg(cursor).arg("-o").arg(out);
    feed
}

fn listed(reader: &Home, via: &str, cursor: &Path, out: &Path) {
    run(&mut feed(reader, via, cursor, out)).expect(0);
}

fn through_a_pipe(reader: &Home, via: &str, folder: &Path, shared: &[Value]) {
    let (pipe, cursor) = (folder.join("pipe"), folder.join("pipe-cursor"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let follow = Running::start(feed(reader, via, &cursor, &pipe).arg("--follow"));
    let mut through = BufReader::new(fs::File::open(&pipe).unwrap()).lines();
    let read: Vec<Value> = through
        .by_ref()
        .take(shared.len())
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    same(&read, shared);
    follow.signal("TERM");
    follow.finish(PATIENCE).expect(130);
}

fn lines(out: &Path) -> Vec<Value> {
    let text = fs::read_to_string(out).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kept(cursor: &Path, address: &Value) -> bool {
    let text = fs::read_to_string(cursor).unwrap_or_default();
    text.contains(address.as_str().unwrap().strip_prefix("hold:").unwrap())
}

/// How many librarians the cursor file is of.
fn followed(cursor: &Path) -> usize {
    let kept: Value = serde_json::from_slice(&fs::read(cursor).unwrap()).unwrap();
    kept["cursors"].as_array().unwrap().len()
}

/// Whether these addresses were told, each once, in whatever order.
#[track_caller]
fn same(told: &[Value], shared: &[Value]) {
    let mut told: Vec<&str> = told.iter().map(|line| line["address"].as_str().unwrap()).collect();
    let mut shared: Vec<&str> = shared.iter().map(|address| address.as_str().unwrap()).collect();
    told.sort_unstable();
    shared.sort_unstable();
    assert_eq!(told, shared);
}
