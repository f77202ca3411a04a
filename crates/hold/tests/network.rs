//! Nine librarians as processes, three organisations: a file survives two kills and a restart of
//! all, a reader with another home sees and reads it, a third home cannot.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use harness::{Network, assert_only, assert_same, full, random_file, run};
use serde_json::Value;

/// From the share's answer to the inbox's line.
const INBOX_WITHIN: Duration = Duration::from_secs(1);

#[test]
fn a_file_survives_kills_and_restarts_and_reaches_its_reader_alone() {
    let mut network = Network::running(9, &[]);
    let (author, reader) = (network.home("author", 0), network.home("reader", 1));
    let stranger = network.home("third", 2);
    let folder = network.folder.path().to_owned();
    let (file, back) = (folder.join("file.bin"), folder.join("back.bin"));
    random_file(&file, if full() { 300 << 20 } else { 24 << 20 }, 1);

    let put = author.put(&network.via(), &file);
    let address = put["address"].as_str().unwrap().to_owned();
    assert!(address.starts_with("hold:") && address.len() == 5 + 64, "{address}");
    assert_eq!(put["acked"], put["wanted"]);

    share_reaches_the_inbox(&network, &author, &reader, &address, &file);
    let denied = stranger.get(&network.via(), &address, &folder.join("none"));
    denied.expect_error(12);

    // Any two: the one that everybody met first, and one of another organisation.
    let mut killed = network.peers[0].id.clone();
    network.peers[0].kill();
    network.peers[4].kill();
    author.get(&network.via(), &address, &back).expect(0);
    assert_same(&file, &back);

    network.peers.iter_mut().for_each(harness::Peer::kill);
    network.start_all();
    std::fs::remove_file(&back).unwrap();
    author.get(&network.via(), &address, &back).expect(0);
    assert_same(&file, &back);

    // The bootstrap's loss: the others know each other from before, and still find everything.
    killed.clone_from(&network.peers[0].id);
    network.peers[0].kill();
    network.peers[5].kill();
    network.peers[5].start();
    assert_ne!(killed, network.peers[5].id);
    let only = network.peers[5].address.clone();
    std::fs::remove_file(&back).unwrap();
    author.get(&only, &address, &back).expect(0);
    assert_same(&file, &back);
    let codes: Vec<_> = network
        .peers
        .iter_mut()
        .filter(|peer| peer.running())
        .map(|peer| peer.terminate())
        .collect();
    assert_eq!(codes, [Some(0); 8]);
}

fn share_reaches_the_inbox(
    network: &Network,
    author: &harness::Home,
    reader: &harness::Home,
    address: &str,
    file: &std::path::Path,
) {
    let via = network.via();
    let mut inbox = reader.hold(["inbox", "--follow", "--json", "--via", &via]);
    let mut inbox = inbox.stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(inbox.stdout.take().unwrap()).lines();
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        lines.map_while(Result::ok).for_each(|line| drop(send.send((line, Instant::now()))));
    });
    // A second reader's inbox opens its keyring first; the clock starts at the share's answer.
    std::thread::sleep(Duration::from_secs(3));
    let mut share = author.hold(["share", address, "--json", "--via", &via, "--to"]);
    let shared = run(share.arg(reader.reader())).expect(0);
    let answered = Instant::now();
    let (line, seen) = receive.recv_timeout(Duration::from_secs(20)).unwrap();
    let _ = inbox.kill();
    let _ = inbox.wait();
    // All tests of a machine at once are no measure of it.
    let within = if harness::full() { INBOX_WITHIN } else { INBOX_WITHIN * 10 };
    assert!(seen.saturating_duration_since(answered) < within, "{line}");
    let line: Value = serde_json::from_str(&line).unwrap();
    let shared = shared.json();
    assert_eq!(line["address"], shared["address"]);
    assert_eq!(shared["reader"], reader.reader().as_str());

    // Once more without following: the same line, and it is enough to read the file.
    let listed = run(&mut reader.hold(["inbox", "--json", "--via", &via])).expect(0);
    let listed: Value = serde_json::from_str(listed.text().lines().next().unwrap()).unwrap();
    assert_eq!(listed["address"], line["address"]);
    assert_eq!(listed["entry"], line["entry"]);
    let folder = network.folder.path().join("downloads");
    std::fs::create_dir(&folder).unwrap();
    let mut get = reader.hold(["get", line["address"].as_str().unwrap(), "--via", &via]);
    run(get.current_dir(&folder)).expect(0);
    assert_only(&folder, &["file.bin"]);
    assert_same(file, &folder.join("file.bin"));
    let mut again = reader.hold(["get", line["address"].as_str().unwrap(), "--via", &via]);
    run(again.current_dir(&folder)).expect_error(14);
    assert_only(&folder, &["file.bin"]);
}
