//! Q10, old data opens: `testdata/golden/RELEASE/` has a peer's directories and a user's home as that release wrote them, and
//! what was put. Today's code opens copies of them and reads everything.
//!
//! `HOLD_GOLDEN=update` writes this release's directory anew; older ones are never written again.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use author::{Author, AuthorOptions, Home, InboxEvent, NoProgress, PutOptions};
use bytes::Bytes;
use crypto::{ClientKey, Genesis, RecordId, Tier};
use document::Publication;
use env::Env;
use env::calls::{Calls, Credential, Endpoint, IntroduceRequest};
use env::disk::DirDisk;
use futures::StreamExt;
use librarian::{Librarian, LibrarianOptions};
use overlay::MemoryMesh;
use store::{Journal, JournalOptions, LogOptions, LogStore, RecordStore};
use testkit::golden::updating;
use testkit::network::{Community, DirectNetwork, community, key};
use walk::{Directory, WalkOptions, Walker};

const RELEASE: &str = "0.1";
const PASSPHRASE: &[u8] = b"golden";
const SEED: u64 = 2026;
/// Lengths of what is put: empty, in the entry, one page, three pages (which compress well).
const LENGTHS: [usize; 4] = [0, 1000, 60_000, (4 << 20) + 7];

fn directory(release: &str) -> PathBuf {
    Path::new(testkit::manifest!()).join("../../testdata/golden").join(release)
}

/// Content of this length: noise while it is small, else text that compresses.
fn content(len: usize) -> Vec<u8> {
    if len <= 100_000 {
        return sim::chance::noise(len as u64, len);
    }
    let lines = (0..).flat_map(|line: u32| format!("line {}\n", line % 1000).into_bytes());
    lines.take(len).collect()
}

/// A peer over a directory, and a user of it.
struct Pair {
    peer: Arc<Librarian>,
    store: Arc<LogStore>,
    author: Arc<Author>,
}

async fn open(env: &Env, dir: &Path, community: &Community, genesis: &Arc<Genesis>) -> Pair {
    let member = &community.members[0];
    let disk = |name: &str| Arc::new(DirDisk::open(dir.join(name)).unwrap());
    let store = LogStore::open(disk("store"), env.clone(), LogOptions::default()).unwrap();
    let journal =
        Journal::open(disk("news"), env.clone(), "news", JournalOptions::default()).unwrap();
    let certificate = Bytes::from(std::fs::read(dir.join("certificate")).unwrap());
    let options = LibrarianOptions::new(member.key.clone(), genesis.clone(), certificate);
    let network = DirectNetwork::new(env.clone());
    let mesh = MemoryMesh::with(env.clock.clone(), overlay::everybody());
    let calls = network.calls(member.key.public());
    let overlay = mesh.join(member.peer);
    let peer = Librarian::start(options, env.clone(), store.clone(), journal, overlay, calls);
    let peer = Box::pin(peer).await.unwrap();
    network.serve(&member.address, member.peer, peer.service());

    let secret = key("golden user", 0);
    let pass = community.pass(ClientKey::new(secret.public()), 0, Tier::Own, env);
    let credential = Credential::Client(pass);
    let calls = network.calls(secret.public());
    introduce(&calls, &member.address, credential.clone()).await;
    let directory = Directory::new(genesis.clone(), env.clone(), None);
    let options = WalkOptions { credential, ..WalkOptions::default() };
    let walker = Walker::new(env.clone(), calls, directory, options);
    walker.join(std::slice::from_ref(&member.address)).await.unwrap();
    let home = dir.join("home");
    let home = if Home::exists(&home) {
        Home::open(&home, PASSPHRASE)
    } else {
        Home::create_with(&home, PASSPHRASE, env.entropy.as_ref(), 10)
    };
    let home = Arc::new(home.unwrap());
    let author = Author::new(env.clone(), home, walker, &AuthorOptions::default());
    Pair { peer, store, author }
}

async fn introduce(calls: &Arc<dyn Calls>, address: &str, credential: Credential) {
    let to = Endpoint::at(address);
    let request = IntroduceRequest::new(credential, 0);
    calls.introduce(&to, request, std::time::Duration::from_secs(5)).await.unwrap();
}

/// Writes the directory: contents, each shared to the user's own first reader key, and `contents` with their addresses.
async fn write(env: &Env, dir: &Path) {
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).unwrap();
    let community = community(1, 1);
    std::fs::write(dir.join("genesis"), community.genesis.encode()).unwrap();
    std::fs::write(dir.join("certificate"), &community.members[0].certificate).unwrap();
    let pair = open(env, dir, &community, &community.genesis).await;
    let mut lines = String::new();
    for len in LENGTHS {
        let options = PutOptions {
            name: Some(format!("golden/{len}")),
            readers: vec![pair.author.reader_keys()[0]],
            ..PutOptions::default()
        };
        let put = pair.author.put(&content(len)[..], options, Arc::new(NoProgress)).await.unwrap();
        let shared = put.envelopes[0].address;
        lines += &format!("{} {shared} {len}\n", put.address);
    }
    std::fs::write(dir.join("contents"), lines).unwrap();
    pair.peer.stop().await.unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Opens a copy of a directory and reads everything in it.
async fn read(env: &Env, golden: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("golden");
    copy(golden, &dir);
    let genesis = Genesis::decode(&std::fs::read(dir.join("genesis")).unwrap()).unwrap();
    let pair = open(env, &dir, &community(1, 1), &Arc::new(genesis)).await;
    assert_eq!(pair.store.recovery(), store::Recovery::default(), "nothing is damaged");
    assert!(pair.store.stats().records >= 3 * LENGTHS.len() as u64);
    let lines = std::fs::read_to_string(dir.join("contents")).unwrap();
    let mut addresses = Vec::new();
    for line in lines.lines() {
        let [own, shared, len] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let len: usize = len.parse().unwrap();
        for address in [own, shared] {
            let address: RecordId = address.parse().unwrap();
            let mut got = Vec::new();
            let sink = &mut got;
            let report = pair.author.get(address, sink, None, Arc::new(NoProgress)).await.unwrap();
            assert!(got == content(len), "{len} bytes");
            assert_eq!(report.details.name, Some(format!("golden/{len}")));
            addresses.push(address);
        }
    }
    assert_eq!(addresses.len(), 2 * LENGTHS.len());
    let journal = pair.peer.journal();
    let rows = journal.read(journal.start(), 1000).await.unwrap();
    let logged = rows.iter().map(|(.., row)| Publication::decode(row).unwrap().envelope);
    let mut logged: Vec<RecordId> = logged.collect();
    let mut told = addresses.clone();
    logged.sort_unstable();
    told.sort_unstable();
    assert_eq!(logged, told, "every publication is in the log");
    let inbox = pair.author.inbox(false, &[]).collect::<Vec<_>>().await;
    let received =
        inbox.iter().filter(|event| matches!(event, Ok(InboxEvent::Received(_)))).count();
    assert_eq!(received, LENGTHS.len());
    // It is not only read: the old store takes new records.
    let put = pair.author.put(&b"new"[..], PutOptions::default(), Arc::new(NoProgress)).await;
    assert!(put.unwrap().full);
    pair.peer.stop().await.unwrap();
}

#[test]
fn every_released_directory_opens_and_reads_whole() {
    if updating() {
        testkit::time::run(SEED, |env| async move { write(&env, &directory(RELEASE)).await });
    }
    let root = directory("");
    let mut releases: Vec<PathBuf> =
        std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    releases.sort_unstable();
    assert!(releases.contains(&directory("").join(RELEASE)), "this release has one");
    for golden in releases {
        testkit::time::run(SEED + 1, |env| async move { read(&env, &golden).await });
    }
}
