//! Twenty-four peers of six organisations: any eight of them, or two whole organisations, are killed
//! with SIGKILL, and every file reads back as it was, with nobody repairing anything.
//!
//! Which ones is drawn from a seed that is told; `HOLD_SHOWS_SEED=x` draws the same again. In full
//! (`HOLD_SHOWS_FULL=1`): files of up to 300 MB, and more draws.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness::{Home, Network, Noise, Running, assert_same, full, random_file, run};
use serde_json::Value;

const ORGANISATIONS: usize = 6;
const PEERS: usize = 24;
/// What 8/16, the profile of so many peers, may lose.
const LOST: usize = 8;
const PAGE: usize = 2 << 20;
const SEGMENT: usize = 16 << 20;
/// The longest content that lies in its entry.
const INLINE: usize = 16 << 10;
/// What is read here is there without anybody's mending: a peer that was started again and does not know yet where a fragment went
/// may make another.
const REPAIRS_NOTHING: &str = "\n[repair]\noff = true\n";
/// The longest that one run may take with all files.
const LIMIT: Duration = Duration::from_secs(600);
/// Puts of one file until it is full.
const PUTS_MAX: usize = 5;

fn sizes() -> Vec<usize> {
    let mut sizes = vec![0, 1, INLINE, INLINE + 1, PAGE, SEGMENT + 1];
    if full() {
        sizes.extend([PAGE - 1, PAGE + 1, SEGMENT - 1, SEGMENT, 3 * SEGMENT + PAGE, 300_000_000]);
    }
    sizes
}

/// The draws of one run.
struct Draws {
    seed: u64,
    noise: Noise,
}

impl Draws {
    fn new() -> Self {
        let given = std::env::var("HOLD_SHOWS_SEED").ok().map(|seed| seed.parse().unwrap());
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        let seed = given.unwrap_or_else(now);
        println!("HOLD_SHOWS_SEED={seed}");
        Self { seed, noise: Noise::new(seed) }
    }

    /// So many different numbers below `of`.
    fn some(&mut self, count: usize, of: usize) -> BTreeSet<usize> {
        let mut some = BTreeSet::new();
        while some.len() < count {
            let mut word = [0; 8];
            self.noise.fill(&mut word);
            some.insert((u64::from_le_bytes(word) >> 16) as usize % of);
        }
        some
    }
}

struct Story {
    network: Network,
    home: Home,
    /// Every peer, since any may be killed.
    via: String,
    files: PathBuf,
    /// What a put of all files printed.
    list: PathBuf,
}

impl Story {
    fn new() -> Self {
        let mut network = Network::new(ORGANISATIONS, &[]);
        network.add_peers(PEERS);
        for peer in &network.peers {
            let path = peer.dir.join("peer.toml");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text + REPAIRS_NOTHING).unwrap();
        }
        network.start_all();
        network.acquainted();
        let (home, via) = (network.home("author", 0), network.everybody());
        let files = network.folder.path().join("files");
        fs::create_dir(&files).unwrap();
        for (number, size) in sizes().into_iter().enumerate() {
            random_file(&files.join(format!("file{number:02}")), size, number as u64 + 1);
        }
        let list = network.folder.path().join("list");
        Self { network, home, via, files, list }
    }

    /// Puts every file, again where it was not full.
    fn put(&self) {
        let mut command = self.home.hold(["put", "--json", "--via", &self.via]);
        let told = Running::start(command.arg(&self.files)).finish(LIMIT);
        assert!(matches!(told.code, Some(0 | 3)), "{told:?}");
        let told = told.text();
        let puts = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let lines = puts.map(|put| self.until_full(put).to_string()).collect::<Vec<_>>();
        assert_eq!(lines.len(), sizes().len());
        fs::write(&self.list, lines.join("\n")).unwrap();
    }

    /// Puts a file again until every record and stripe of it has all that it should.
    fn until_full(&self, mut put: Value) -> Value {
        let name = put["name"].as_str().unwrap().to_owned();
        for _ in 0..PUTS_MAX {
            assert_eq!(put["profile"], "8/16", "{put}");
            if put["full"] == true {
                return put;
            }
            let mut command = self.home.hold(["put", "--json", "--via", &self.via]);
            let again = Running::start(command.arg(self.files.join(&name))).finish(LIMIT);
            put = again.json();
            put["name"] = name.as_str().into();
        }
        panic!("never full: {put}")
    }

    /// Kills these peers and reads everything back; then all run again.
    fn without(&mut self, lost: &BTreeSet<usize>, why: &str) {
        lost.iter().for_each(|peer| self.network.peers[*peer].kill());
        let held = self.network.counter("holdfast_record_bytes");
        let back = self.network.folder.path().join("back");
        let mut command = self.home.hold(["get", "--json", "--via", &self.via, "--list"]);
        let told = Running::start(command.arg(&self.list).arg("-o").arg(&back)).finish(LIMIT);
        assert_eq!(told.code, Some(0), "{why}: without {lost:?}: {}", told.stderr);
        for number in 0..sizes().len() {
            let name = format!("file{number:02}");
            assert_same(&self.files.join(&name), &back.join(&name));
        }
        let text = told.text();
        let degraded = text.lines().filter(|line| line.contains("\"degraded\":true")).count();
        assert!(degraded > 0, "{why}: without {lost:?} nothing was missed: {text}");
        // Nobody made anything again: what is held is what was held when they were killed.
        assert_eq!(self.network.counter("holdfast_record_bytes"), held, "{why}");
        assert_eq!(self.network.counter("holdfast_rebuilt_fragments_total"), 0, "{why}");
        println!("{why}: without {lost:?}: {} files, {degraded} degraded", sizes().len());
        fs::remove_dir_all(&back).unwrap();
        self.network.start_all();
        self.network.acquainted();
    }
}

#[test]
fn eight_of_twenty_four_or_two_organisations_are_killed_and_every_file_comes_back() {
    let mut draws = Draws::new();
    let mut story = Story::new();
    story.put();
    let all = run(&mut story.home.hold(["check", "--all", "--json", "--via", &story.via]));
    assert_eq!(all.code, Some(0), "{all:?}");
    for _ in 0..if full() { 3 } else { 1 } {
        let lost = draws.some(LOST, PEERS);
        story.without(&lost, &format!("seed {}, any eight", draws.seed));
        let organisations = draws.some(2, ORGANISATIONS);
        let lost = (0..PEERS).filter(|peer| organisations.contains(&(peer % ORGANISATIONS)));
        story.without(&lost.collect(), &format!("seed {}, two organisations", draws.seed));
    }
}
