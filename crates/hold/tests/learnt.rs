//! What a peer learns from what it stores: the documents on its disk, as `hold document show` tells them to anybody.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crypto::RecordId;
use env::Env;
use env::disk::DirDisk;
use harness::{Network, hold, random_file, run};
use serde_json::Value;
use store::{LogOptions, LogStore, RecordStore};

/// More than the tests store.
const RECORDS_MAX: usize = 1_000;

/// Every document that any peer of a stopped network has on its disk, as shown, by id.
async fn shown(network: &Network) -> BTreeMap<String, Value> {
    let out = network.folder.path().join("documents");
    std::fs::create_dir_all(&out).unwrap();
    let mut shown = BTreeMap::new();
    for peer in &network.peers {
        let disk = Arc::new(DirDisk::open(peer.dir.join("store")).unwrap());
        let store = LogStore::open(disk, Env::real(), LogOptions::default()).unwrap();
        for id in store.ids(&RecordId::new([0; 32]), RECORDS_MAX) {
            if shown.contains_key(&id.to_string()) {
                continue;
            }
            let record = store.get(&id).await.unwrap().unwrap();
            // A lease names who pays and the client that signed: SECURITY tells what that shows.
            if !record.kind.is_document() {
                continue;
            }
            let file = out.join(format!("{id}.doc"));
            std::fs::write(&file, &record.bytes).unwrap();
            let one = run(hold(["document", "show", "--json"]).arg(file)).expect(0).json();
            shown.insert(id.to_string(), one);
        }
        store.close().await.unwrap();
    }
    shown
}

fn stopped(network: &mut Network) -> BTreeMap<String, Value> {
    network.peers.iter_mut().for_each(|peer| assert_eq!(peer.terminate(), Some(0)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(shown(network))
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

fn of_kind<'a>(all: &'a BTreeMap<String, Value>, kind: &str) -> Vec<&'a Value> {
    all.values().filter(|one| one["kind"] == kind).collect()
}

#[test]
fn an_envelope_shows_its_keys_and_its_entry_and_no_more() {
    let mut network = Network::running(3, &[]);
    let (home, reader) = (network.home("home", 0), network.home("reader", 1));
    let file = network.folder.path().join("file");
    random_file(&file, 100_000, 1);
    let via = network.via();
    let mut put = home.hold(["put", "--json", "--via", &via, "--to", &reader.reader()]);
    let put = run(put.arg(&file)).expect(0).json();
    let all = stopped(&mut network);
    let envelopes = of_kind(&all, "envelope");
    assert_eq!(envelopes.len(), 2);
    for envelope in &envelopes {
        let fields: BTreeSet<&str> =
            envelope.as_object().unwrap().keys().map(String::as_str).collect();
        let known = ["kind", "bytes", "holdfast-1", "libri-1", "entry", "author", "reader"];
        assert_eq!(fields, BTreeSet::from(known), "what else is in it is sealed");
        assert_eq!(text(envelope, "entry"), text(&put, "entry"));
    }
    // The other reader's published key is seen; this user's own envelope names a key used once.
    let readers: BTreeSet<&str> = envelopes.iter().map(|one| text(one, "reader")).collect();
    assert!(readers.contains(reader.reader().as_str()));
    assert!(!readers.contains(home.reader().as_str()));
}

#[test]
fn two_puts_of_one_user_share_no_key() {
    let mut network = Network::running(3, &[]);
    let home = network.home("home", 0);
    let via = network.via();
    let keys = run(&mut home.hold(["keys", "list", "--json"])).expect(0).json();
    let mut entries = Vec::new();
    for seed in 0..3 {
        let file = network.folder.path().join("file");
        // Over a page, so that there are page records with author keys too.
        random_file(&file, 2_500_000, seed);
        entries.push(text(&home.put(&via, &file), "entry").to_owned());
    }
    let all = stopped(&mut network);
    let mut owner: BTreeMap<&str, &str> = BTreeMap::new();
    for (id, one) in &all {
        let entry = match text(one, "kind") {
            "entry" => id.as_str(),
            "envelope" => text(one, "entry"),
            _ => continue,
        };
        for key in [text(one, "author"), text(one, "reader")].into_iter().filter(|k| !k.is_empty())
        {
            let before = owner.insert(key, entry);
            assert!(before.is_none_or(|before| before == entry), "{key} is in two puts");
        }
    }
    assert_eq!(owner.values().collect::<BTreeSet<_>>().len(), entries.len());
    // None of them is a key that the user publishes or connects with.
    let published = keys["reader_keys"].as_array().unwrap().iter().chain([&keys["client_key"]]);
    for key in published.filter_map(Value::as_str) {
        assert!(!owner.contains_key(key), "{key}");
    }
    for page in of_kind(&all, "page") {
        assert!(owner.contains_key(text(page, "author")), "{page}");
    }
}
