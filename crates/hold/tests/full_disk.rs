//! The only peer of a network on a disk that fills up: what does not fit is refused and told so, all that
//! was acknowledged stays readable, also after kill -9, and with room the peer takes writes again.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;
#[path = "system/small_disk.rs"]
mod small_disk;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use harness::{Home, Network, Peer, assert_same, hold, random_file, run};
use serde_json::Value;
use small_disk::SmallDisk;

const FILE_BYTES: usize = 8 << 20;

/// A network of one peer on a small disk, and what it acknowledged.
struct World {
    // Goes first: the folder below it could not be removed otherwise.
    disk: SmallDisk,
    network: Network,
    home: Home,
    acknowledged: Vec<(PathBuf, String)>,
}

impl World {
    fn new(size: &str) -> Option<Self> {
        let mut network = Network::new(1, &[]);
        let at = network.folder.path().join("small");
        let Some(disk) = SmallDisk::mount(&at, size) else {
            testkit::skipped(&format!("a full disk: no tmpfs of {size} can be mounted here"));
            return None;
        };
        network.add_peer_at(at.join("peer"));
        network.start_all();
        let home = network.home("home", 0);
        Some(Self { network, home, acknowledged: Vec::new(), disk })
    }

    fn peer(&self) -> &Peer {
        &self.network.peers[0]
    }

    /// Puts one more file; whether it was acknowledged. What is refused is told as the books say.
    fn put(&mut self) -> bool {
        let number = self.acknowledged.len();
        let file = self.network.folder.path().join(format!("file{number}"));
        random_file(&file, FILE_BYTES, number as u64);
        let mut put = self.home.hold(["put", "--json", "--via", &self.network.via()]);
        let put = run(put.arg(&file));
        if put.code == Some(0) {
            let address = put.json()["address"].as_str().unwrap().to_owned();
            self.acknowledged.push((file, address));
            return true;
        }
        assert_eq!(put.code, Some(11), "{put:?}\n{}", self.peer().log());
        let put = put.expect_error(11);
        assert!(put.stderr.contains("full"), "{}", put.stderr);
        false
    }

    /// Puts one more file as soon as the peer has told that it takes writes again.
    fn put_soon(&mut self) {
        let started = Instant::now();
        while !self.put() {
            assert!(started.elapsed() < harness::PATIENCE, "it takes no writes again");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn put_until_full(&mut self) {
        for _ in 0..30 {
            if !self.put() {
                return;
            }
        }
        panic!("it is never full");
    }

    fn reads_all(&self) {
        let back = self.network.folder.path().join("back");
        for (file, address) in &self.acknowledged {
            self.home.get(&self.network.via(), address, &back).expect(0);
            assert_same(file, &back);
            fs::remove_file(&back).unwrap();
        }
    }

    fn status(&self) -> Value {
        run(hold(["peer", "status", "--json", "--dir"]).arg(&self.peer().dir)).expect(0).json()
    }

    fn until(&self, state: &str) -> Value {
        let started = Instant::now();
        loop {
            let status = self.status();
            if status["state"] == state {
                return status;
            }
            assert!(started.elapsed() < harness::PATIENCE, "never {state}: {status}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_full_peer_refuses_and_reads_on_and_recovers_with_room() {
    // 64 MiB of it are the reserve.
    let Some(mut world) = World::new("90m") else { return };
    world.put_until_full();
    assert!(world.acknowledged.len() > 1, "{}", world.acknowledged.len());
    let full = world.until("read-only");
    assert_eq!(full["read_only"], "its disk is full");
    assert!(world.peer().log().contains("the disk is full"), "{}", world.peer().log());
    world.reads_all();

    // Restarted after kill -9, without a byte free: it serves what it has.
    world.network.peers[0].kill();
    let ballast = world.disk.fill();
    world.network.peers[0].start();
    world.reads_all();
    assert!(!world.put());
    // To the last byte once more: it cannot even write down whom it knows, and a setting says why it is not set.
    world.disk.fill();
    let dir = world.peer().dir.clone();
    let mut set = hold(["peer", "set", "read-only", "on", "--dir"]);
    let refused = run(set.arg(&dir)).expect_error(11);
    assert!(refused.stderr.contains("free some space"), "{}", refused.stderr);
    let target = world.disk.path().join("snap");
    let mut snapshot = hold(["peer", "snapshot", "--dir"]);
    let refused = run(snapshot.arg(&dir).arg("--to").arg(&target)).expect_error(11);
    let named = refused.stderr.contains(target.to_str().unwrap());
    assert!(named && !refused.stderr.contains("restart"), "{}", refused.stderr);
    assert_eq!(world.network.peers[0].terminate(), Some(0), "{}", world.peer().log());
    fs::remove_file(ballast).unwrap();
    world.network.start_all();
    world.reads_all();
    assert!(!world.put());
    world.until("read-only");

    world.disk.grow("150m");
    world.until("serving");
    world.put_soon();
    world.reads_all();
    world.network.peers[0].kill();
}

/// Another program takes the rest of the disk while the peer writes, reserve and all: a write that breaks off
/// is no damage.
#[test]
fn a_disk_that_another_program_fills_is_survived() {
    let Some(mut world) = World::new("120m") else { return };
    assert!(world.put());
    let ballast = world.disk.fill();
    assert!(!world.put());
    world.reads_all();
    fs::remove_file(ballast).unwrap();
    world.until("serving");
    world.put_soon();
    world.reads_all();
    world.network.peers[0].kill();
    world.network.start_all();
    world.reads_all();
    assert!(world.put());
    world.network.peers[0].kill();
}
