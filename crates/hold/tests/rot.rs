//! Bytes flipped anywhere on a peer's disk: found, told, and mended, so that the peer holds what it should again.
//!
//! The flips are drawn from a seed over the frames of the peer's record log (`docs/formats/store.md`), as they lie on the
//! disk: heads, checksums, ids, places, payloads. The peer runs, or is stopped meanwhile and starts over what is there.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/frames.rs"]
mod frames;
#[path = "system/harness.rs"]
mod harness;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::{Home, Network, Noise, Peer, full, random_file, run};

/// How long finding and mending may take, the first comparisons included.
const LIMIT: Duration = Duration::from_secs(300);
const SETTINGS: &str = "\n[repair]\ncompare_s = 1\nsettle_s = 2\naudit_s = 1\n\
                        [upkeep]\nscrub_bytes_s = 50000000\nscrub_rest_s = 1\n";
/// The peer whose disk rots.
const VICTIM: usize = 1;

fn flip(file: &Path, at: u64, bit: u8) {
    let file = fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << bit)], at).unwrap();
}

struct Draws(Noise);

impl Draws {
    fn below(&mut self, count: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % count
    }
}

/// What the victim keeps.
const KINDS: [u8; 9] = [
    frames::ENVELOPE,
    frames::ENTRY,
    frames::PAGE,
    frames::PARITY,
    frames::STRIPE,
    frames::VERSION,
    frames::OBJECT,
    frames::POLICY,
    frames::ATTESTATION,
];

/// Flips one byte in one frame of each kind: in the header of every second kind, in the payload of the others, and the other way
/// round in the next turn. What was hit, for people.
fn rot(peer: &Peer, draws: &mut Draws, turn: usize) -> Vec<String> {
    let frames = frames::live(&peer.dir);
    let one = |(number, kind): (usize, &u8)| {
        let some: Vec<_> = frames.iter().filter(|frame| frame.kind == *kind).collect();
        assert!(!some.is_empty(), "the peer keeps nothing of kind {kind}");
        let frame = some[draws.below(some.len() as u64) as usize];
        let offset = match (number + turn) % 2 {
            0 => draws.below(frame.header),
            _ => frame.header + draws.below(frame.payload),
        };
        flip(&frame.file, frame.at + offset, draws.below(8) as u8);
        let (header, payload) = (frame.header, frame.payload);
        format!("kind {kind}, byte {offset} of {header} + {payload}")
    };
    KINDS.iter().enumerate().map(one).collect()
}

/// Flips a byte of the content of each frame of this kind.
fn spoil(peer: &Peer, kind: u8) {
    for frame in frames::live(&peer.dir).iter().filter(|frame| frame.kind == kind) {
        flip(&frame.file, frame.at + frame.header + frame.payload / 2, 1);
    }
}

/// Flips a byte of the header of each frame of these kinds, so that nothing of it is known any more once the peer starts anew.
fn behead(peer: &Peer, kinds: &[u8]) -> Vec<String> {
    let mut frames = frames::live(&peer.dir);
    frames.retain(|frame| kinds.contains(&frame.kind));
    for kind in kinds {
        assert!(frames.iter().any(|frame| frame.kind == *kind), "nothing of kind {kind}");
    }
    for frame in &frames {
        // The last bytes of the record's id, or of its place.
        flip(&frame.file, frame.at + frame.header - 10, 1);
    }
    frames.iter().map(|frame| format!("kind {}", frame.kind)).collect()
}

fn until(peer: &Peer, what: &str, hit: &[String], mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        let told = || format!("{}\n{}", peer.status(), peer.log());
        assert!(started.elapsed() < LIMIT, "{what}, of {hit:#?}: {}", told());
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// How often the peer found and told that something is damaged: its scrub, or whatever read it before the scrub came there.
fn found(peer: &Peer) -> u64 {
    let upkeep = &peer.status()["store"]["upkeep"];
    let scrub = ["scrub_damaged", "scrub_damaged_ranges"];
    let by_scrub: u64 = scrub.iter().map(|count| upkeep[count].as_u64().unwrap()).sum();
    by_scrub + peer.log().matches("a record is damaged").count() as u64
}

/// A user with contents and an object, and where they are.
struct World {
    network: Network,
    home: Home,
    files: Vec<String>,
    versions: Vec<(String, String)>,
}

impl World {
    /// Four peers: two fragments of four bring a page back, and three of the four hold a version.
    fn new(orgs: usize) -> Self {
        let mut network = Network::new(orgs, &["--profile", "2/4"]);
        network.add_peers(4);
        for peer in &network.peers {
            let path = peer.dir.join("peer.toml");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text + SETTINGS).unwrap();
        }
        network.start_all();
        network.acquainted();
        let home = network.home("owner", 0);
        let via = network.everybody();
        let mut world = Self { network, home, files: Vec::new(), versions: Vec::new() };
        [500, 40_000, 300_000, 3 << 20].into_iter().for_each(|bytes| world.put(bytes));
        let object = |args: &[&str]| {
            run(&mut world.home.hold([&["object"], args, &["--json", "--via", &via]].concat()))
        };
        object(&["create", "notes", "--open", "--copies", "4/3"]).expect(0);
        for number in 0..10 {
            let value = format!("value {number} {}", "of many words ".repeat(number * 20));
            let put = object(&["put", "notes", "--value", &value]);
            assert!(matches!(put.code, Some(0 | 3)), "{put:?}");
            let version = put.json()["version"].as_str().unwrap().to_owned();
            world.versions.push((version, value));
        }
        world
    }

    fn put(&mut self, bytes: usize) {
        let number = self.files.len();
        let file = self.network.folder.path().join(format!("file{number}"));
        random_file(&file, bytes, number as u64 + 1);
        let put = self.home.put(&self.network.everybody(), &file);
        self.files.push(put["address"].as_str().unwrap().to_owned());
    }

    fn victim(&self) -> &Peer {
        &self.network.peers[VICTIM]
    }

    /// Whether all copies and fragments of all files are read at their holders and proven.
    fn is_whole(&self) -> bool {
        let via = self.network.everybody();
        let args = ["check", "--read-data", "--json", "--via", &via];
        let checked = run(self.home.hold(args).args(&self.files));
        let text = checked.text();
        text.lines().count() == self.files.len()
            && text.lines().all(|line| line.contains("\"state\":\"full\""))
    }

    /// Whether the peer alone gives every version as it was put.
    fn gives_versions(&self) -> bool {
        let via = &self.victim().address;
        self.versions.iter().all(|(version, value)| {
            let args = ["object", "get", "notes", version, "--via", via];
            let got = run(&mut self.home.hold(args));
            assert!(got.code != Some(0) || got.text() == value.trim_end(), "another value");
            got.code == Some(0)
        })
    }

    /// What it gives when the others are gone is its own.
    fn is_served_by_the_victim_alone(&mut self) {
        let others = self.network.peers.iter_mut().enumerate();
        others.filter(|(number, _)| *number != VICTIM).for_each(|(_, peer)| peer.kill());
        assert!(self.gives_versions(), "it lacks versions: {}", self.victim().status());
    }

    fn is_mended(&self) -> bool {
        let status = self.victim().status();
        let objects = &status["objects"];
        status["store"]["damaged"] == 0
            && status["repair"]["settled"] == true
            // Each version was signed by itself. Without its attestation none is served.
            && objects["attestations"] == objects["versions"]
            && self.is_whole()
    }

    /// Waits until the victim has read its whole store twice: what was damaged before is known then.
    fn scrubbed(&self) {
        let passes = || self.victim().status()["store"]["upkeep"]["scrub_passes"].as_u64().unwrap();
        let before = passes();
        until(self.victim(), "no scrub", &[], || passes() >= before + 2);
    }
}

#[test]
fn bytes_flipped_anywhere_are_found_told_and_mended() {
    let mut world = World::new(3);
    let mut draws = Draws(Noise::new(11));
    let lacks = |world: &World| {
        let frames = frames::live(&world.victim().dir);
        KINDS.into_iter().find(|kind| frames.iter().all(|frame| frame.kind != *kind))
    };
    // Which fragment of a stripe it holds, and whether it does, is by their ids.
    for _ in 0..40 {
        if lacks(&world).is_some() {
            world.put(40_000);
        }
    }
    assert_eq!(lacks(&world), None, "the victim holds something of each kind");
    until(world.victim(), "never whole", &[], || world.is_mended());
    let rounds = if full() { 10 } else { 1 };
    for round in 0..rounds {
        // It runs.
        let before = found(world.victim());
        let hit = rot(world.victim(), &mut draws, round);
        println!("round {round}, while it runs: {hit:#?}");
        until(world.victim(), "never found", &hit, || found(world.victim()) > before);
        until(world.victim(), "never told", &hit, || {
            let log = world.victim().log();
            log.contains("scrub found damage") || log.contains("a record is damaged")
        });
        world.scrubbed();
        until(world.victim(), "never mended", &hit, || world.is_mended());

        // It is stopped, and starts over what is there.
        world.network.peers[VICTIM].kill();
        let hit = rot(world.victim(), &mut draws, round + 1);
        println!("round {round}, while it is down: {hit:#?}");
        world.network.peers[VICTIM].start();
        world.scrubbed();
        until(world.victim(), "never mended after a start", &hit, || world.is_mended());
    }
    world.is_served_by_the_victim_alone();
}

/// What versions came with is not counted by itself when peers compare what they hold.
#[test]
fn what_came_with_versions_is_found_lost_and_fetched_again() {
    let mut world = World::new(3);
    until(world.victim(), "never whole", &[], || world.is_mended());
    for kinds in [&[frames::ATTESTATION][..], &[frames::OBJECT, frames::POLICY]] {
        world.network.peers[VICTIM].kill();
        let hit = behead(world.victim(), kinds);
        world.network.peers[VICTIM].start();
        until(world.victim(), "never mended after a start", &hit, || world.is_mended());
    }
    // Attestations that a start cannot read are mended before the versions come that they name.
    world.network.peers[VICTIM].kill();
    spoil(world.victim(), frames::ATTESTATION);
    let hit = behead(world.victim(), &[frames::VERSION]);
    world.network.peers[VICTIM].start();
    world.scrubbed();
    until(world.victim(), "never mended after a start", &hit, || world.is_mended());
    // A place that is damaged while the peer runs is known to others alone, once it is counted no more.
    let mended = |world: &World| {
        world.victim().status()["store"]["upkeep"]["mended_records"].as_u64().unwrap()
    };
    let before = mended(&world);
    let hit = behead(world.victim(), &[frames::VERSION]);
    until(world.victim(), "none is mended", &hit, || mended(&world) > before);
    until(world.victim(), "never mended", &hit, || world.is_mended());
    world.is_served_by_the_victim_alone();
}
