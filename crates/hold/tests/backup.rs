//! Snapshots of peers that run, as processes: what was acknowledged before comes back from the restored
//! peer alone, and a snapshot that cannot be trusted is refused.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use harness::{Home, Network, assert_same, hold, random_file, run};

const BYTES: usize = 300_000;

/// A network of three peers, so that each holds everything; files that were put into it.
struct World {
    network: Network,
    home: Home,
    files: Vec<(PathBuf, String)>,
}

impl World {
    fn new() -> Self {
        let network = Network::running(3, &[]);
        let home = network.home("home", 0);
        Self { network, home, files: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.network.folder.path().join(name)
    }

    /// Puts some files; each is at all three peers when this returns.
    fn put(&mut self, count: usize) {
        for _ in 0..count {
            let file = self.path(&format!("file{}", self.files.len()));
            random_file(&file, BYTES, self.files.len() as u64);
            let put = self.home.put(&self.network.via(), &file);
            self.files.push((file, put["address"].as_str().unwrap().to_owned()));
        }
    }

    fn snapshot(&self, to: &str, args: &[&str]) -> Command {
        let mut command = hold(["peer", "snapshot", "--json", "--dir"]);
        command.arg(&self.network.peers[0].dir).arg("--to").arg(self.path(to)).args(args);
        command
    }

    fn restore(&self, from: &str, to: &Path, args: &[&str]) -> Command {
        let mut command = hold(["peer", "restore", "--json", "--from"]);
        command.arg(self.path(from)).arg("--dir").arg(to).args(args);
        command
    }

    /// Whether the first peer alone gives back the first `count` files.
    fn reads_back_alone(&mut self, count: usize) {
        self.network.peers[1..].iter_mut().for_each(harness::Peer::kill);
        let via = self.network.peers[0].address.clone();
        let to = self.path("back");
        for (file, address) in &self.files[..count] {
            self.home.get(&via, address, &to).expect(0);
            assert_same(file, &to);
            std::fs::remove_file(&to).unwrap();
        }
    }
}

/// Puts small files until it is told to end.
fn load(world: &World) -> (Arc<AtomicBool>, Arc<AtomicUsize>, std::thread::JoinHandle<()>) {
    let (ended, puts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (end, count) = (ended.clone(), puts.clone());
    let home = Home { dir: world.home.dir.clone() };
    let (via, file) = (world.network.via(), world.path("load"));
    let thread = std::thread::spawn(move || {
        for seed in 1000.. {
            if ended.load(Ordering::SeqCst) {
                break;
            }
            random_file(&file, 200_000, seed);
            // Copies may be on their way when it ends.
            let put = run(home.hold(["put", "--via", &via]).arg(&file));
            assert!(matches!(put.code, Some(0 | 3)), "{put:?}");
            puts.fetch_add(1, Ordering::SeqCst);
        }
    });
    (end, count, thread)
}

#[test]
fn a_peer_that_burnt_comes_back_from_its_snapshots() {
    let mut world = World::new();
    world.put(4);
    let (end, puts, thread) = load(&world);
    while puts.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let first = run(&mut world.snapshot("one", &[])).expect(0).json();
    assert!(first["bytes"].as_u64().unwrap() > 4 * BYTES as u64, "{first}");
    assert_eq!(
        (first["with_key"].as_bool(), first["left_out"].as_array().unwrap().len()),
        (Some(false), 0)
    );
    world.put(3);
    let base = world.path("one");
    let args = ["--base", base.to_str().unwrap(), "--rate", "1000000000"];
    let second = run(&mut world.snapshot("two", &args)).expect(0).json();
    assert!(second["bytes"].as_u64().unwrap() > first["bytes"].as_u64().unwrap());
    let acknowledged = world.files.len();
    world.put(1);
    end.store(true, Ordering::SeqCst);
    thread.join().unwrap();
    assert!(puts.load(Ordering::SeqCst) >= 1);

    let key = world.path("kept.key");
    let dir = world.network.peers[0].dir.clone();
    std::fs::copy(dir.join("peer.key"), &key).unwrap();
    world.network.peers[0].kill();
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::remove_dir_all(&base).unwrap();
    run(&mut world.restore("two", &dir, &["--key", key.to_str().unwrap()])).expect(0);
    world.network.peers[0].start();
    world.reads_back_alone(acknowledged);
    // It goes on with its log where no subscriber of the lost one has been.
    let journal = std::fs::read_dir(dir.join("news")).unwrap();
    let last = journal.map(|entry| entry.unwrap().file_name()).max().unwrap();
    assert!(last.to_str().unwrap() > "news-00000000004294967296.jnl", "{last:?}");
    assert_eq!(world.network.peers[0].terminate(), Some(0));
}

#[test]
fn what_is_damaged_or_in_the_way_is_told_and_changes_nothing() {
    let mut world = World::new();
    world.put(1);
    let taken = run(&mut world.snapshot("snap", &["--with-key"])).expect(0).json();
    assert_eq!(taken["with_key"], true);
    let check =
        |from: &Path| run(hold(["peer", "restore", "--check", "--json", "--from"]).arg(from));
    let snap = world.path("snap");
    let checked = check(&snap).expect(0).json();
    assert_eq!((&checked["bytes"], &checked["peer"]), (&taken["bytes"], &taken["peer"]));
    let new = world.path("new");

    // What is in the way stays.
    run(&mut world.snapshot("snap", &[])).expect_error(14);
    run(&mut world.restore("snap", &world.network.peers[1].dir.clone(), &[])).expect_error(14);
    run(&mut world.restore("none", &new, &[])).expect_error(10);
    run(&mut world.restore("home", &new, &[])).expect_error(16);
    let base = world.path("home");
    run(&mut world.snapshot("next", &["--base", base.to_str().unwrap()])).expect_error(16);
    let other = world.network.peers[1].dir.join("peer.key");
    run(&mut world.restore("snap", &new, &["--key", other.to_str().unwrap()])).expect_error(2);

    // One flipped bit anywhere.
    let log = std::fs::read_dir(snap.join("store")).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(&log).unwrap();
    let mut bytes = good.clone();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let refused = check(&snap).expect_error(16);
    assert!(refused.stderr.contains("00000001.log"), "{}", refused.stderr);
    run(&mut world.restore("snap", &new, &[])).expect_error(16);
    assert!(!new.exists());
    assert!(!world.path("next").exists());

    // Whole again, it has all it takes. What was forgotten in between (here: nothing) would be back.
    std::fs::write(&log, &good).unwrap();
    run(&mut world.restore("snap", &new, &[])).expect(0);
    world.network.peers[0].kill();
    world.network.peers[0].dir = new;
    world.network.peers[0].start();
    world.reads_back_alone(1);
}

#[test]
fn a_snapshot_without_the_key_has_it_neither_from_a_copy_nor_from_another_snapshot() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let (peer, folder) = (&network.peers[0].dir, network.folder.path());
    let snapshot = |to: &Path, args: &[&str]| {
        let mut command = hold(["peer", "snapshot", "--json", "--dir"]);
        run(command.arg(peer).arg("--to").arg(to).args(args))
    };
    let inside = peer.join("snap");
    let refused = snapshot(&inside, &["--with-key"]).expect_error(2);
    assert!(refused.stderr.contains("outside"), "{}", refused.stderr);
    assert!(!inside.exists());
    // By hand it may come there.
    snapshot(&folder.join("first"), &["--with-key"]).expect(0);
    std::fs::rename(folder.join("first"), &inside).unwrap();
    std::fs::copy(peer.join("peer.key"), peer.join("peer.key.bak")).unwrap();
    let second = folder.join("second");
    let taken = snapshot(&second, &[]).expect(0);
    assert_eq!(taken.json()["with_key"], false);
    assert_eq!(taken.json()["left_out"], serde_json::json!(["peer.key.bak", "snap"]));
    let key = std::fs::read(peer.join("peer.key")).unwrap();
    let mut folders = vec![second];
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(folder).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(64).any(|part| part == &key[..64]), "{}", path.display());
        }
    }
}

#[test]
fn a_snapshot_without_key_says_what_is_missing() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    let peer = &network.peers[0].dir;
    let to = network.folder.path().join("snap");
    // A peer that does not run, and has no store yet.
    run(hold(["peer", "snapshot", "--dir"]).arg(peer).arg("--to").arg(&to)).expect(0);
    let new = network.folder.path().join("new");
    let restored =
        run(hold(["peer", "restore", "--from"]).arg(&to).arg("--dir").arg(&new)).expect(3);
    assert!(restored.stderr.contains("peer.key"), "{}", restored.stderr);
    std::fs::copy(peer.join("peer.key"), new.join("peer.key")).unwrap();
    network.peers[0].dir = new;
    network.peers[0].start();
}
