//! The door beside Redis, driven by redis-benchmark on the same cores, in turns: `cargo bench -p
//! door-redis`.
//!
//! Both keep what they are told on the disk, one fsync a second. Absolute figures do not repeat on
//! shared machines, so the table shows ratios within one run, the median of the rounds. What is
//! given after `--` chooses: `serve SECONDS` opens a door and waits, for profiles.
#![allow(clippy::unwrap_used, reason = "a program that stops at the first failure")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crypto::{NetworkId, RecordId, SecretKey, Suite};
use door_redis::{Engine, Handle, Options};
use env::Env;
use env::disk::DirDisk;
use objects::{Objects, ObjectsOptions};
use store::{Durability, LogOptions, LogStore};
use version::BatchAttester;

const ROUNDS: usize = 3;
const VALUE_BYTES: &str = "1024";
const CALLERS: &str = "50";
/// Different keys: what redis-benchmark does by itself, and many.
const KEYS: [&str; 2] = ["1", "100000"];
/// Requests at once on a connection, and how many in all.
const PIPELINES: [(&str, &str); 2] = [("1", "100000"), ("16", "600000")];
/// How long a version waits for others to be signed with it.
const EVERY: Duration = Duration::from_secs(1);

fn open(dir: &Path, runtime: &tokio::runtime::Runtime) -> Handle {
    let _guard = runtime.enter();
    let env = Env::real();
    let disk = std::sync::Arc::new(DirDisk::open(dir).unwrap());
    let log = LogOptions { durability: Durability::EverySecond, ..LogOptions::default() };
    let store = LogStore::open(disk, env.clone(), log).unwrap();
    let objects = Objects::open(store, ObjectsOptions::default()).unwrap();
    let owner = SecretKey::from_slice(&[7; 32]).unwrap().public();
    let network = NetworkId::new([9; 32]);
    let (attest, made) = std::sync::mpsc::sync_channel(4096);
    let keeper = objects.clone();
    std::thread::spawn(move || attest_all(&keeper, &made));
    let engine =
        Engine::new(objects, Suite::default(), network, owner, Some(Durability::EverySecond))
            .attested(attest);
    let options = Options { listen: ([127, 0, 0, 1], 0).into(), ..Options::default() };
    door_redis::open(options, Box::new(engine), env.clock.clone()).unwrap()
}

/// Signs what was made, up to a second's with one signature, as `hold serve redis` does.
fn attest_all(objects: &std::sync::Arc<Objects>, made: &Receiver<Vec<RecordId>>) {
    let key = SecretKey::from_slice(&[7; 32]).unwrap();
    let suite = Suite::default();
    let begin = || BatchAttester::new(suite, NetworkId::new([9; 32]), 0);
    let keep = |batch: BatchAttester| {
        let Some(record) = batch.finish(suite, &key) else { return };
        let mut kept = objects.batch();
        kept.add(record);
        futures::executor::block_on(kept.commit(None)).unwrap();
    };
    let (mut batch, mut due) = (begin(), Instant::now() + EVERY);
    while let Ok(hs) = made.recv() {
        for h in &hs {
            if batch.add(h).is_err() {
                keep(std::mem::replace(&mut batch, begin()));
                batch.add(h).unwrap();
            }
        }
        if Instant::now() >= due {
            keep(std::mem::replace(&mut batch, begin()));
            due = Instant::now() + EVERY;
        }
    }
}

struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Redis that appends to a file and syncs it every second, on a free port.
fn redis(dir: &Path) -> Option<(Redis, u16)> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "yes"]);
    command.args(["--appendfsync", "everysec", "--dir"]).arg(dir).stdout(Stdio::null());
    let child = Redis(command.spawn().ok()?);
    for _ in 0..200 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some((child, port));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

/// Requests a second.
fn measure(port: u16, test: &str, pipeline: &str, requests: &str, keys: &str) -> f64 {
    let done = Command::new("redis-benchmark")
        .args(["-p", &port.to_string(), "-t", test, "-P", pipeline, "-n", requests])
        .args(["-d", VALUE_BYTES, "-c", CALLERS, "-r", keys, "--csv"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let line = text.lines().find(|line| line.to_lowercase().starts_with(&format!("\"{test}")));
    let rate = line.and_then(|line| line.split(',').nth(1)).map(|rate| rate.trim_matches('"'));
    rate.and_then(|rate| rate.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let dir = folder.path().join("door");
    std::fs::create_dir(&dir).unwrap();
    let door = open(&dir, &runtime);
    let words: Vec<String> = std::env::args().skip_while(|word| word != "serve").collect();
    if let Some(seconds) = words.get(1).and_then(|seconds| seconds.parse().ok()) {
        println!("{}", door.address());
        std::thread::sleep(Duration::from_secs(seconds));
        return door.close();
    }
    let Some((_redis, theirs)) = redis(folder.path()) else {
        println!("SKIPPED: redis-server is not installed");
        return;
    };
    println!(
        "{:>7} {:>8} {:>9} {:>12} {:>12} {:>7}",
        "keys", "command", "pipeline", "door/s", "redis/s", "ratio"
    );
    for (keys, (pipeline, requests)) in
        KEYS.into_iter().flat_map(|keys| PIPELINES.map(|pipeline| (keys, pipeline)))
    {
        for test in ["set", "get"] {
            let (mut ours, mut other) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                ours.push(measure(door.address().port(), test, pipeline, requests, keys));
                other.push(measure(theirs, test, pipeline, requests, keys));
            }
            let (ours, other) = (median(ours), median(other));
            let ratio = ours / other;
            println!("{keys:>7} {test:>8} {pipeline:>9} {ours:>12.0} {other:>12.0} {ratio:>7.2}");
        }
    }
    door.close();
}
