//! Thin clients as processes: one address is connected to, memory is bounded, and what one librarian cannot do the next does.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::{
    Home, Network, Noise, PATIENCE, Running, assert_same, full, memory, random_file, run,
};

const MIB: u64 = 1 << 20;
const PEAK_MAX: u64 = 256 * MIB;
const BLOCK: usize = 1 << 20;

/// Remote ports that a process is connected to right now.
fn connected(pid: i32) -> BTreeSet<u16> {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
    let inodes: BTreeSet<String> = links
        .filter_map(|link| {
            let link = link.to_string_lossy().into_owned();
            Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    let ours = rows.filter(|row| row.get(9).is_some_and(|inode| inodes.contains(*inode)));
    ours.filter_map(|row| {
        let (_, port) = row.get(2)?.split_once(':')?;
        u16::from_str_radix(port, 16).ok().filter(|port| *port != 0)
    })
    .collect()
}

/// Looks all the time whom a process is connected to, until told to stop.
struct Watch {
    stop: Arc<AtomicBool>,
    seen: std::thread::JoinHandle<BTreeSet<u16>>,
}

impl Watch {
    fn start(pid: i32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let seen = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !stopped.load(Ordering::Relaxed) {
                seen.extend(connected(pid));
                std::thread::sleep(Duration::from_millis(2));
            }
            seen
        });
        Self { stop, seen }
    }

    fn seen(self) -> BTreeSet<u16> {
        self.stop.store(true, Ordering::Relaxed);
        self.seen.join().unwrap()
    }
}

fn port(address: &str) -> u16 {
    address.rsplit(':').next().unwrap().parse().unwrap()
}

fn thin(home: &Home, via: &str, args: &[&str]) -> Command {
    let mut command = home.hold(args);
    command.args(["--thin", "--json", "--via", via]);
    command
}

#[test]
fn a_stream_goes_through_one_address_in_bounded_memory() {
    let network = Network::running(6, &[]);
    let home = network.home("author", 0);
    let via = network.peers[0].address.clone();
    let blocks = if full() { 4096 } else { 48 };

    let mut put = thin(&home, &via, &["put", "-"]);
    let mut put = put.stdin(Stdio::piped()).spawn().unwrap();
    let pid = i32::try_from(put.id()).unwrap();
    let watch = Watch::start(pid);
    let mut stdin = put.stdin.take().unwrap();
    let (mut noise, mut block) = (Noise::new(3), vec![0; BLOCK]);
    for _ in 0..blocks {
        noise.fill(&mut block);
        stdin.write_all(&block).unwrap();
    }
    let peak = memory(pid, "VmHWM");
    drop(stdin);
    let put = put.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&put.stderr).into_owned();
    assert_eq!(put.status.code(), Some(0), "every copy is stored: {text}");
    assert!(peak < PEAK_MAX, "the author took {} MiB to put", peak / MIB);
    assert_eq!(watch.seen(), BTreeSet::from([port(&via)]), "and no other peer");
    let put: serde_json::Value = serde_json::from_slice(&put.stdout).unwrap();
    assert_eq!((&put["acked"], &put["wanted"]), (&3.into(), &3.into()));
    let sent = put["sent"].as_u64().unwrap();
    assert!(sent < blocks as u64 * BLOCK as u64 * 11 / 10, "one copy is sent, not three: {sent}");

    let address = put["address"].as_str().unwrap();
    let mut get = thin(&home, &via, &["get", address, "-o", "-"]);
    let mut get = get.stderr(Stdio::null()).spawn().unwrap();
    let pid = i32::try_from(get.id()).unwrap();
    let watch = Watch::start(pid);
    let mut stdout = get.stdout.take().unwrap();
    let (mut noise, mut got) = (Noise::new(3), vec![0; BLOCK]);
    for number in 0..blocks {
        stdout.read_exact(&mut got).unwrap();
        noise.fill(&mut block);
        assert!(got == block, "block {number} differs");
        if number + 8 == blocks {
            let peak = memory(pid, "VmHWM");
            assert!(peak < PEAK_MAX, "the author took {} MiB to get", peak / MIB);
        }
    }
    assert_eq!(get.wait().unwrap().code(), Some(0));
    assert_eq!(watch.seen(), BTreeSet::from([port(&via)]));
    for peer in &network.peers {
        let peak = memory(peer.pid(), "VmHWM");
        assert!(peak < PEAK_MAX, "a peer took {} MiB", peak / MIB);
    }
}

#[test]
fn a_thin_client_shares_lists_and_tells_and_others_read_it_as_ever() {
    let network = Network::running(6, &[]);
    let (author, reader) = (network.home("author", 0), network.home("reader", 1));
    let (own, theirs) = (network.peers[0].address.clone(), network.peers[1].address.clone());
    let file = network.folder.path().join("file.bin");
    random_file(&file, 3 << 20, 1);
    let path = file.to_str().unwrap();
    let put = run(&mut thin(&author, &own, &["put", path])).expect(0).json();
    let address = put["address"].as_str().unwrap();

    // What walked, a thin client reads, and the other way round.
    let back = network.folder.path().join("back.bin");
    author.get(&network.via(), address, &back).expect(0);
    assert_same(&file, &back);
    let walked = author.put(&network.via(), &file);
    let args = ["get", walked["address"].as_str().unwrap(), "-o", back.to_str().unwrap()];
    run(&mut thin(&author, &own, &args)).expect(0);
    assert_same(&file, &back);

    let info = run(&mut thin(&author, &own, &["info", address])).expect(0).json();
    assert_eq!((&info["size"], &info["name"]), (&(3 << 20).into(), &"file.bin".into()));
    assert_eq!(info["fragments"], serde_json::json!([]), "nobody was asked for proof");
    let told = run(author.hold(["info", address, "--thin", "--via", &own]).arg("-q")).expect(0);
    assert!(told.text().contains("holders  not asked"), "{}", told.text());

    let to = reader.reader();
    let shared = run(&mut thin(&author, &own, &["share", address, "--to", &to])).expect(0).json();
    let listed = run(&mut thin(&reader, &theirs, &["inbox"])).expect(0).json();
    assert_eq!(listed["address"], shared["address"]);
    let args = ["get", shared["address"].as_str().unwrap(), "-o", back.to_str().unwrap()];
    run(&mut thin(&reader, &theirs, &args)).expect(0);
    assert_same(&file, &back);

    // By the environment and by the settings, too; a librarian of another organisation does not walk for it.
    let refused = run(&mut thin(&author, &theirs, &["get", address, "-o", "-"])).expect_error(13);
    assert!(refused.stderr.contains("--thin"), "a hint: {}", refused.stderr);
    let mut by_environment = author.hold(["get", address, "-o", "-", "--via", &theirs]);
    run(by_environment.env("HOLD_THIN", "1")).expect_error(13);
    run(author.hold(["get", address, "-o", "-", "--via", &theirs]).env("HOLD_THIN", "0")).expect(0);
    let settings = author.dir.join("holdfast.toml");
    let mut text = fs::read_to_string(&settings).unwrap();
    text.insert_str(0, "thin = true\n");
    fs::write(&settings, text).unwrap();
    run(&mut author.hold(["get", address, "-o", "-", "--via", &theirs])).expect_error(13);
    // And where both are named, the one that does serves.
    let both = format!("{theirs},{own}");
    run(&mut author.hold(["get", address, "-o", "-", "--via", &both])).expect(0);
}

#[test]
fn the_next_librarian_takes_over_and_what_is_owed_is_told() {
    let mut network = Network::running(4, &[]);
    let home = network.home("author", 0);
    let (first, second) = (network.peers[0].address.clone(), network.peers[3].address.clone());
    let both = format!("{first},{second}");
    let file = network.folder.path().join("file.bin");
    random_file(&file, 64 << 20, 1);

    // The first dies with pages on their way through it; the second is of the same organisation.
    let mut putting = Running::start(thin(&home, &both, &["put"]).arg(&file));
    let started = Instant::now();
    while held(&network) < 8 * MIB {
        assert!(!putting.ended() && started.elapsed() < PATIENCE, "it never got going");
        std::thread::sleep(Duration::from_millis(2));
    }
    network.peers[0].kill();
    let put = putting.finish(PATIENCE).expect(0).json();
    assert_eq!((&put["acked"], &put["wanted"]), (&3.into(), &3.into()));
    let back = network.folder.path().join("back.bin");
    let args = ["get", put["address"].as_str().unwrap(), "-o", back.to_str().unwrap()];
    run(&mut thin(&home, &both, &args)).expect(0);
    assert_same(&file, &back);

    // Two peers of four are left: two copies are stored, and one is owed.
    network.peers[1].kill();
    let small = network.folder.path().join("small.bin");
    random_file(&small, 50_000, 2);
    let owed = run(thin(&home, &both, &["put"]).arg(&small)).expect(3).json();
    assert_eq!((&owed["acked"], &owed["wanted"]), (&2.into(), &3.into()));

    // Nobody is left.
    network.peers[3].kill();
    run(thin(&home, &both, &["put"]).arg(&small)).expect_error(15);
    run(&mut thin(&home, &both, &["inbox"])).expect_error(15);
}

#[test]
fn a_thin_put_that_was_killed_goes_on_where_it_was() {
    let network = Network::running(3, &[]);
    let home = network.home("author", 0);
    let via = network.peers[0].address.clone();
    let file = network.folder.path().join("file.bin");
    random_file(&file, 80 << 20, 1);
    let mut putting = Running::start(thin(&home, &via, &["put"]).arg(&file));
    let started = Instant::now();
    while held(&network) < 90 * MIB {
        assert!(!putting.ended() && started.elapsed() < PATIENCE, "it never got going");
        std::thread::sleep(Duration::from_millis(2));
    }
    putting.signal("KILL");
    putting.finish(PATIENCE);
    let put = run(thin(&home, &via, &["put"]).arg(&file)).expect(0).json();
    assert!(put["resumed"]["pages"].as_u64().unwrap() > 0, "{put}");
    assert!(put["sent"].as_u64().unwrap() < 80 * MIB, "{put}");
    let back = network.folder.path().join("back.bin");
    home.get(&network.via(), put["address"].as_str().unwrap(), &back).expect(0);
    assert_same(&file, &back);
}

/// Bytes of records at all peers that run, by their files.
fn held(network: &Network) -> u64 {
    let folders = network.peers.iter().map(|peer| peer.dir.join("store"));
    folders.map(|folder| bytes_below(&folder)).sum()
}

fn bytes_below(folder: &std::path::Path) -> u64 {
    let items = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = items.map(|item| match item.metadata() {
        Ok(about) if about.is_dir() => bytes_below(&item.path()),
        Ok(about) => {
            use std::os::unix::fs::MetadataExt;
            about.blocks() * 512
        }
        Err(_) => 0,
    });
    sizes.sum()
}
