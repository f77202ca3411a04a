//! What is copied beside a busy log is a state that the log had, and what is damaged is not restored.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use bytes::Bytes;
use crypto::{Classified, SecretKey};
use env::Env;
use env::disk::{Disk, File};
use testkit::disk::FaultyDisk;
use testkit::store::record;
use testkit::time::run;

use super::*;
use crate::{CompactionOptions, Journal, JournalOptions, LogOptions, LogStore, RecordStore};

const LAYOUT: Layout =
    Layout { log: "store", journal: "news", prefix: "news", key: "peer.key", never: &["member"] };
const SUITE: Suite = Suite::Holdfast1;

fn open_log(disk: Arc<dyn Disk>, env: &Env) -> Arc<LogStore> {
    let options =
        LogOptions { segment_bytes_max: 4 << 10, reserve_free_bytes: 0, ..LogOptions::default() };
    LogStore::open(disk, env.clone(), options).unwrap()
}

fn open_journal(disk: Arc<dyn Disk>, env: &Env) -> Arc<Journal> {
    let options = JournalOptions { segment_bytes_max: 4 << 10, ..JournalOptions::default() };
    Journal::open(disk, env.clone(), "news", options).unwrap()
}

/// Which of the first `count` records a store has, each read.
async fn held(store: &LogStore, count: usize) -> BTreeSet<usize> {
    let mut held = BTreeSet::new();
    for number in 0..count {
        let wanted = record(number, 700);
        if let Some(found) = store.get(&wanted.id).await.unwrap() {
            assert_eq!(found, wanted);
            held.insert(number);
        }
    }
    assert_eq!(store.stats().records, held.len() as u64);
    held
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

const RECORDS: usize = 40;

/// A store, what was acknowledged by it, and random work.
struct Peer {
    store: Arc<LogStore>,
    there: BTreeSet<usize>,
    random: Random,
}

impl Peer {
    async fn work(&mut self) {
        let number = self.random.below(RECORDS as u64) as usize;
        match self.random.below(7) {
            0..3 => {
                self.store.put(vec![record(number, 700)]).await.unwrap();
                self.there.insert(number);
            }
            3..6 => {
                self.store.remove(vec![record(number, 700).id]).await.unwrap();
                self.there.remove(&number);
            }
            _ => {
                let options = CompactionOptions { dead_percent: 10, bytes_per_s: u64::MAX };
                self.store.compact(options).await.unwrap();
            }
        }
    }
}

fn chain<'a>(source: &'a FaultyDisk, target: &'a FaultyDisk) -> Chain<'a> {
    chain_into(source, target)
}

fn chain_into<'a>(source: &'a FaultyDisk, target: &'a dyn Disk) -> Chain<'a> {
    Chain { kind: Kind::Log(SUITE), folder: "store", source, target, base: None }
}

/// Copies one folder.
fn copy(
    chain: Chain<'_>,
    progress: &mut Progress<'_>,
) -> Result<BTreeMap<String, Copied>, StoreError> {
    super::chain::copy(&[chain], progress).map(|mut folders| folders.pop().unwrap())
}

/// Copies in a thread of its own, which stops before each file until it is told to go on.
fn copying(
    source: FaultyDisk,
    target: FaultyDisk,
) -> (Receiver<()>, SyncSender<()>, std::thread::JoinHandle<Result<(), StoreError>>) {
    let (stopped, stops) = sync_channel(0);
    let (go, goes) = sync_channel(0);
    let thread = std::thread::spawn(move || {
        let mut meanwhile = |_| {
            stopped.send(()).unwrap();
            goes.recv().unwrap();
        };
        let mut progress = Progress { meanwhile: Some(&mut meanwhile), ..Progress::none() };
        copy(chain(&source, &target), &mut progress).map(drop)
    });
    (stops, go, thread)
}

/// Whether a copy taken beside random work is one of the states of that time; how many states there
/// were.
fn copied_while_working(seed: u64, work_max: u64) -> Result<usize, String> {
    run(seed, |env| async move {
        let disk = FaultyDisk::new(seed);
        let store = open_log(Arc::new(disk.clone()), &env);
        let random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut peer = Peer { store, there: BTreeSet::new(), random };
        for _ in 0..120 {
            peer.work().await;
        }
        let mut states = vec![peer.there.clone()];
        let target = FaultyDisk::new(seed + 1);
        let (stops, go, thread) = copying(disk.clone(), target.clone());
        // For a while only: a copy that never ends proves nothing.
        let mut left = 200;
        while stops.recv().is_ok() {
            for _ in 0..peer.random.below(work_max + 1).min(left) {
                peer.work().await;
                states.push(peer.there.clone());
                left -= 1;
            }
            go.send(()).unwrap();
        }
        thread.join().unwrap().map_err(|error| error.to_string())?;
        // A power cut after the copying: what is copied is durable.
        let copy = open_log(Arc::new(target.crash()), &env);
        if copy.recovery() != crate::Recovery::default() {
            // Index files are not copied.
            let rebuilt = crate::Recovery {
                rebuilt_indexes: copy.recovery().rebuilt_indexes,
                ..crate::Recovery::default()
            };
            assert_eq!(copy.recovery(), rebuilt);
        }
        let found = held(&copy, RECORDS).await;
        if states.contains(&found) {
            Ok(states.len())
        } else {
            Err(format!("seed {seed}: {found:?} was never the state"))
        }
    })
}

#[test]
fn a_copy_beside_writes_removes_and_compaction_is_a_state_the_log_had() {
    let mut states = 0;
    for seed in 0..150 {
        states += copied_while_working(seed, [0, 1, 3, 10][seed as usize % 4]).unwrap();
    }
    assert!(states > 2000, "work went on meanwhile: {states}");
}

/// Copies in a thread of its own, which waits behind each part that it read until it is told to go on.
fn copying_slowly(
    copying: impl FnOnce(Watcher<'_>) -> Result<(), StoreError> + Send + 'static,
) -> (Receiver<()>, SyncSender<()>, std::thread::JoinHandle<Result<(), StoreError>>) {
    let (read, reads) = sync_channel(0);
    let (go, goes) = sync_channel(0);
    let thread = std::thread::spawn(move || {
        let mut watcher = |_: u64, _: u64| read.send(()).is_ok() && goes.recv().is_ok();
        copying(&mut watcher)
    });
    (reads, go, thread)
}

/// Records of a generation.
const GENERATION: usize = 20;

/// The records of a generation take the place of those of the one before, of which the bytes leave the files.
async fn renew(store: &LogStore, generation: usize) {
    let of = |generation: usize| generation * GENERATION..(generation + 1) * GENERATION;
    for number in of(generation) {
        store.put(vec![record(number, 700)]).await.unwrap();
    }
    if let Some(before) = generation.checked_sub(1) {
        let gone = of(before).map(|number| record(number, 700).id).collect();
        store.remove(gone).await.unwrap();
    }
    let options = CompactionOptions { dead_percent: 0, bytes_per_s: u64::MAX };
    store.erase(options).await.unwrap();
}

#[test]
fn a_copy_that_erasing_overtakes_all_the_time_ends_with_what_was_there_at_its_beginning() {
    run(1, |env| async move {
        let source = FaultyDisk::new(1);
        let store = open_log(Arc::new(source.clone()), &env);
        renew(&store, 0).await;
        let target = FaultyDisk::new(2);
        let into = target.clone();
        let (reads, go, thread) = copying_slowly(move |watcher| {
            let mut progress = Progress::new(watcher, 0);
            copy(chain(&source, &into), &mut progress).map(drop)
        });
        let mut renewals = 0;
        while reads.recv().is_ok() {
            renewals += 1;
            renew(&store, renewals).await;
            go.send(()).unwrap();
        }
        thread.join().unwrap().unwrap();
        assert!(renewals > 2, "all was written again behind each file: {renewals}");
        let copy = open_log(Arc::new(target.crash()), &env);
        let found = held(&copy, (renewals + 1) * GENERATION).await;
        assert_eq!(found, (0..GENERATION).collect());
    });
}

/// What is held of a disk that is nearly full would fill it.
#[test]
fn where_little_room_is_left_nothing_is_held_that_is_gone_and_the_copy_ends_all_the_same() {
    use super::chain::{FREE_BYTES_MIN, LET_GO_MAX};
    run(1, |env| async move {
        for renewals_max in [1, usize::MAX] {
            let source = FaultyDisk::new(1);
            source.set_capacity(FREE_BYTES_MIN / 2);
            let store = open_log(Arc::new(source.clone()), &env);
            renew(&store, 0).await;
            let target = FaultyDisk::new(2);
            let into = target.clone();
            let (reads, go, thread) = copying_slowly(move |watcher| {
                let mut progress = Progress::new(watcher, 0);
                copy(chain(&source, &into), &mut progress).map(drop)
            });
            let (mut renewals, mut parts) = (0, 0);
            while reads.recv().is_ok() {
                parts += 1;
                if renewals < renewals_max {
                    renewals += 1;
                    renew(&store, renewals).await;
                }
                go.send(()).unwrap();
            }
            let copied = thread.join().unwrap();
            if renewals_max > 1 {
                assert!(matches!(copied, Err(StoreError::Unsettled)), "{copied:?}");
                assert_eq!(parts, LET_GO_MAX + 1, "a file each time");
                continue;
            }
            copied.unwrap();
            let copy = open_log(Arc::new(target.crash()), &env);
            let found = held(&copy, 2 * GENERATION).await;
            assert_eq!(found, (GENERATION..2 * GENERATION).collect(), "of the second beginning");
        }
    });
}

/// A disk of which a file cannot be opened once, as the process has too many open.
struct FewFiles {
    disk: FaultyDisk,
    /// Files that are opened before.
    left: AtomicU32,
}

impl Disk for FewFiles {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        match self.left.fetch_sub(1, Ordering::SeqCst) {
            0 => Err(io::Error::from_raw_os_error(24)),
            _ => self.disk.open(name, create),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}

#[test]
fn where_no_more_files_can_be_open_the_others_are_copied_at_once() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open_log(Arc::new(disk.clone()), &env);
        renew(&store, 0).await;
        // The first one is held.
        let source = FewFiles { disk, left: AtomicU32::new(3) };
        let target = FaultyDisk::new(2);
        let chain = Chain {
            kind: Kind::Log(SUITE),
            folder: "store",
            source: &source,
            target: &target,
            base: None,
        };
        let copied = copy(chain, &mut Progress::none()).unwrap();
        assert!(copied.len() > 3, "{}", copied.len());
        let copy = open_log(Arc::new(target.crash()), &env);
        assert_eq!(held(&copy, GENERATION).await, (0..GENERATION).collect());
    });
}

fn peer_id() -> PeerId {
    PeerId::new(SecretKey::from_bytes(&[5; 32]).unwrap().public())
}

fn options(base: Option<&Path>) -> TakeOptions<'_> {
    TakeOptions {
        layout: LAYOUT,
        peer: peer_id(),
        network: NetworkId::new([1; 32]),
        suite: SUITE,
        unix_ms: 7,
        base,
        with_key: false,
    }
}

/// A peer's directory with records, publications and settings.
struct World {
    folder: tempfile::TempDir,
    env: Env,
    store: Arc<LogStore>,
    journal: Arc<Journal>,
}

impl World {
    async fn new(env: &Env) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("peer");
        let disk = |name: &str| Arc::new(DirDisk::open(dir.join(name)).unwrap());
        let store = open_log(disk("store"), env);
        let journal = open_journal(disk("news"), env);
        let world = Self { env: env.clone(), store, journal, folder };
        for (name, text) in [("peer.toml", "a"), ("peer.key", "secret"), ("network", "n")] {
            fs::write(world.path("peer").join(name), text).unwrap();
        }
        fs::create_dir_all(world.path("peer/revoked/deep")).unwrap();
        for name in ["revoked/ab", "lock", ".x.part", "revoked/deep/er"] {
            fs::write(world.path("peer").join(name), "x").unwrap();
        }
        world.grow(0..20).await;
        world
    }

    async fn grow(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            self.store.put(vec![record(number, 700)]).await.unwrap();
            let entries = vec![(self.env.clock.unix_ms(), Bytes::from(vec![number as u8; 300]))];
            self.journal.append(entries).await.unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn take(&self, to: &str, base: Option<&str>) -> Result<Summary, StoreError> {
        let base = base.map(|base| self.path(base));
        let options = options(base.as_deref());
        take(&self.path("peer"), &self.path(to), &options, &mut |_, _| true)
    }

    fn restore(&self, from: &str, to: &str, key: Option<&[u8]>) -> Result<Summary, StoreError> {
        let options = RestoreOptions { layout: LAYOUT, key };
        restore(&self.path(from), &self.path(to), &self.env, &options, &mut |_, _| true)
    }

    fn names(&self, of: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path(of))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn inode(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().ino()
}

#[test]
fn what_is_restored_is_what_was_there_and_the_snapshot_stays_as_it_is() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        let taken = world.take("snap", None).unwrap();
        assert_eq!(taken.left_out, ["revoked/deep"], "no folder of a peer's has folders");
        assert!(!taken.with_key && taken.files >= 8 && taken.linked_bytes > 0, "{taken:?}");
        assert_eq!(
            world.names("snap"),
            ["manifest", "network", "news", "peer.toml", "revoked", "store"]
        );
        assert_eq!(world.names("snap/revoked"), ["ab"]);
        world.grow(20..30).await;
        let key = world.restore("snap", "new", Some(b"key")).unwrap();
        assert_eq!((key.with_key, key.peer), (true, peer_id()));
        let disk = |name: &str| Arc::new(DirDisk::open(world.path("new").join(name)).unwrap());
        let store = open_log(disk("store"), &env);
        assert_eq!(held(&store, 40).await, (0..20).collect());
        assert_eq!(fs::read(world.path("new/peer.key")).unwrap(), b"key");
        let journal = open_journal(disk("news"), &env);
        assert_eq!(journal.read(0, 100).await.unwrap().len(), 20);
        // What the restored peer writes does not touch the snapshot.
        store.put(vec![record(90, 700)]).await.unwrap();
        store.compact(CompactionOptions::default()).await.unwrap();
        assert_eq!(
            verify(&world.path("snap"), &LAYOUT, &mut |_, _| true).unwrap().files,
            taken.files
        );
        assert_eq!(world.names(".").iter().filter(|name| name.ends_with(".part")).count(), 0);
    });
}

#[test]
fn a_snapshot_that_erasing_overtakes_all_the_time_has_what_was_there_at_its_beginning() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        let (peer, to) = (world.path("peer"), world.path("snap"));
        let (reads, go, thread) =
            copying_slowly(move |watcher| take(&peer, &to, &options(None), watcher).map(drop));
        let mut renewals = 0;
        while reads.recv().is_ok() {
            renewals += 1;
            renew(&world.store, renewals).await;
            go.send(()).unwrap();
        }
        thread.join().unwrap().unwrap();
        assert!(renewals > 2, "all was written again behind each file: {renewals}");
        verify(&world.path("snap"), &LAYOUT, &mut |_, _| true).unwrap();
        world.restore("snap", "new", None).unwrap();
        let disk = DirDisk::open(world.path("new/store")).unwrap();
        let found = held(&open_log(Arc::new(disk), &env), (renewals + 1) * GENERATION).await;
        assert_eq!(found, (0..GENERATION).collect());
    });
}

#[test]
fn offsets_given_after_the_snapshot_are_not_given_again() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        world.take("snap", None).unwrap();
        world.grow(20..25).await;
        let last = world.journal.end();
        let mut given = std::collections::BTreeSet::new();
        for name in ["first", "second"] {
            world.restore("snap", name, None).unwrap();
            let disk = DirDisk::open(world.path(name).join("news")).unwrap();
            let journal = open_journal(Arc::new(disk), &env);
            let now = env.clock.unix_ms();
            let offset = journal.append(vec![(now, Bytes::from_static(b"new"))]).await.unwrap()[0];
            assert!(offset >= 20 + (1 << 32) && offset > last, "{offset}");
            assert_eq!(journal.start(), 0, "older ones are still there");
            let read = journal.read(last, 10).await.unwrap();
            assert_eq!(read, [(offset, now, Bytes::from_static(b"new"))], "{name}");
            assert!(given.insert(offset), "{offset} was given after another restore");
        }
    });
}

/// Else a peer that was still catching up would never look for what it missed.
#[test]
fn up_to_when_a_peer_had_caught_up_comes_back_with_its_journal() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        world.take("before", None).unwrap();
        world.journal.mark(1_000).await.unwrap();
        world.take("snap", Some("before")).unwrap();
        world.journal.mark(2_000).await.unwrap();
        for (snapshot, marked) in [("before", None), ("snap", Some(1_000))] {
            let name = format!("of-{snapshot}");
            world.restore(snapshot, &name, None).unwrap();
            let disk = DirDisk::open(world.path(&name).join("news")).unwrap();
            assert_eq!(open_journal(Arc::new(disk), &env).marked_ms(), marked);
        }
    });
}

#[test]
fn an_incremental_snapshot_links_what_did_not_change_and_is_whole_without_the_first() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        world.take("one", None).unwrap();
        world.grow(20..40).await;
        // Nothing of the peer's own files can be linked, as on another file system.
        let log = |dir: &str| world.path(dir).join("store/00000001.log");
        let copied = fs::read(log("one")).unwrap();
        fs::remove_file(log("one")).unwrap();
        fs::write(log("one"), &copied).unwrap();
        let two = world.take("two", Some("one")).unwrap();
        assert_eq!(inode(&log("two")), inode(&log("one")));
        assert_ne!(inode(&log("two")), inode(&log("peer")));
        assert!(two.linked_bytes > two.bytes / 2, "{two:?}");
        let tail = world.names("two/store").pop().unwrap();
        let tail = |dir: &str| inode(&world.path(dir).join("store").join(&tail));
        assert_ne!(tail("two"), tail("peer"), "what is written to is never linked");
        fs::remove_dir_all(world.path("one")).unwrap();
        fs::remove_dir_all(world.path("peer")).unwrap();
        world.restore("two", "new", None).unwrap();
        let store = open_log(Arc::new(DirDisk::open(world.path("new/store")).unwrap()), &env);
        assert_eq!(held(&store, 50).await, (0..40).collect());
    });
}

#[test]
fn a_segment_of_the_same_name_and_size_but_of_another_life_is_copied() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        world.take("one", None).unwrap();
        let other = World::new(&env).await;
        let base = world.path("one");
        let to = other.path("two");
        take(&other.path("peer"), &to, &options(Some(&base)), &mut |_, _| true).unwrap();
        verify(&to, &LAYOUT, &mut |_, _| true).unwrap();
        let log = "store/00000001.log";
        assert_eq!(
            fs::metadata(base.join(log)).unwrap().len(),
            fs::metadata(to.join(log)).unwrap().len()
        );
        assert_ne!(inode(&base.join(log)), inode(&to.join(log)));
    });
}

#[test]
fn what_is_incomplete_or_damaged_is_refused_by_name_and_nothing_is_left() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        world.take("snap", None).unwrap();
        let damage = |name: &str, how: &dyn Fn(&Path)| {
            let _ = fs::remove_dir_all(world.path("bad"));
            let copied = std::process::Command::new("cp")
                .arg("-r")
                .args([world.path("snap"), world.path("bad")])
                .status();
            assert!(copied.unwrap().success());
            how(&world.path("bad").join(name));
            let refused = world.restore("bad", "new", None).unwrap_err();
            assert!(verify(&world.path("bad"), &LAYOUT, &mut |_, _| true).is_err());
            assert!(!world.path("new").exists() && !world.path(".new.part").exists());
            assert_eq!(refused.class(), crypto::Class::Corrupt, "{refused}");
            assert!(refused.to_string().contains("bad"), "{refused}");
            refused
        };
        let log = "store/00000001.log";
        let missing = damage(log, &|path| fs::remove_file(path).unwrap());
        assert!(matches!(missing, StoreError::SnapshotFile { fault: Fault::Missing, .. }));
        let short = damage(log, &|path| {
            fs::OpenOptions::new().write(true).open(path).unwrap().set_len(100).unwrap();
        });
        assert!(matches!(short, StoreError::SnapshotFile { fault: Fault::Length { .. }, .. }));
        let flipped = damage(log, &|path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[1000] ^= 1;
            fs::write(path, bytes).unwrap();
        });
        assert!(matches!(flipped, StoreError::SnapshotFile { fault: Fault::Checksum, .. }));
        let manifest = damage("manifest", &|path| {
            let text = fs::read_to_string(path).unwrap().replacen("taken 7", "taken 8", 1);
            fs::write(path, text).unwrap();
        });
        assert!(matches!(manifest, StoreError::Manifest { why: ManifestError::Checksum, .. }));
        let none = damage("manifest", &|path| fs::remove_file(path).unwrap());
        assert!(matches!(none, StoreError::NotASnapshot(_)));
    });
}

#[test]
fn nothing_that_is_there_is_written_over_and_a_killed_try_is_cleared_away() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        fs::create_dir(world.path("full")).unwrap();
        fs::write(world.path("full/x"), "x").unwrap();
        assert!(matches!(world.take("full", None), Err(StoreError::NotEmpty(_))));
        fs::create_dir(world.path("empty")).unwrap();
        // What a killed try left.
        fs::create_dir_all(world.path(".empty.part/store")).unwrap();
        fs::write(world.path(".empty.part/store/00000099.log"), "x").unwrap();
        world.take("empty", None).unwrap();
        verify(&world.path("empty"), &LAYOUT, &mut |_, _| true).unwrap();
        assert!(!world.names("empty/store").contains(&"00000099.log".to_owned()));
        assert!(matches!(world.restore("empty", "full", None), Err(StoreError::NotEmpty(_))));
        assert_eq!(world.names("full"), ["x"]);
        // Two at once.
        let other = DirDisk::open(world.path(".busy.part")).unwrap();
        let lock = other.lock().unwrap();
        let busy = world.take("busy", None).unwrap_err();
        assert!(matches!(busy, StoreError::Written(_)), "{busy}");
        assert!(busy.to_string().contains(world.path("busy").to_str().unwrap()), "{busy}");
        drop(lock);
        world.take("busy", None).unwrap();
    });
}

#[test]
fn whoever_watches_can_stop_it_and_nothing_is_left() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        let mut calls = 0;
        let mut stop = |done, total| {
            calls += 1;
            assert!(done <= total && total > 0);
            calls < 3
        };
        let to = world.path("snap");
        let taken = take(&world.path("peer"), &to, &options(None), &mut stop);
        assert!(matches!(taken, Err(StoreError::Stopped)) && calls == 3);
        assert!(!to.exists() && !world.path(".snap.part").exists());
        world.take("snap", None).unwrap();
        let options = RestoreOptions { layout: LAYOUT, key: None };
        let stopped = restore(&to, &world.path("new"), &env, &options, &mut |_, _| false);
        assert!(matches!(stopped, Err(StoreError::Stopped)));
        assert!(!world.path("new").exists() && !world.path(".new.part").exists());
    });
}

#[test]
fn a_folder_of_which_there_must_be_no_copy_is_left_out() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        fs::create_dir_all(world.path("peer/member/engine")).unwrap();
        for name in ["member/key", "member/engine/votes"] {
            fs::write(world.path("peer").join(name), b"secret").unwrap();
        }
        world.take("snap", None).unwrap();
        assert!(!world.path("snap/member").exists());
        world.restore("snap", "new", None).unwrap();
        assert!(!world.path("new/member").exists());
    });
}

#[test]
fn the_key_is_copied_only_when_asked_for_and_its_copy_is_its_owners_alone() {
    run(1, |env| async move {
        use std::os::unix::fs::PermissionsExt;
        let world = World::new(&env).await;
        let options = TakeOptions { with_key: true, ..options(None) };
        let to = world.path("snap");
        let taken = take(&world.path("peer"), &to, &options, &mut |_, _| true).unwrap();
        assert!(taken.with_key);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&to.join("peer.key")), mode(&to)), (0o600, 0o700));
        assert!(world.restore("snap", "new", None).unwrap().with_key);
        assert_eq!(fs::read(world.path("new/peer.key")).unwrap(), b"secret");
    });
}

#[test]
fn a_snapshot_without_the_key_has_it_in_no_file() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        let peer = world.path("peer");
        let with_key = TakeOptions { with_key: true, ..options(None) };
        std::os::unix::fs::symlink(&peer, world.path("link")).unwrap();
        for to in ["peer/snap", "link/snap", "peer/revoked/snap", "peer/../peer/snap"] {
            let refused = take(&peer, &world.path(to), &with_key, &mut |_, _| true).unwrap_err();
            assert!(matches!(refused, StoreError::Inside(_)), "{to}: {refused}");
            assert_eq!(refused.class(), crypto::Class::Invalid);
            assert!(!world.path(to).exists(), "{to}");
        }
        // One that was moved there later, and what an operator copied.
        let moved = peer.join("moved");
        take(&peer, &world.path("moved"), &with_key, &mut |_, _| true).unwrap();
        fs::rename(world.path("moved"), &moved).unwrap();
        assert_eq!(fs::read(moved.join("peer.key")).unwrap(), b"secret");
        fs::copy(peer.join("peer.key"), peer.join("peer.key.bak")).unwrap();
        fs::write(peer.join("revoked/key"), "SECRET\n").unwrap();
        let taken = world.take("snap", None).unwrap();
        assert!(!taken.with_key);
        assert_eq!(taken.left_out, ["moved", "peer.key.bak", "revoked/deep", "revoked/key"]);
        let mut folders = vec![world.path("snap")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let bytes = fs::read(&path).unwrap().to_ascii_lowercase();
                assert!(!bytes.windows(6).any(|part| part == b"secret"), "{}", path.display());
            }
        }
    });
}

#[test]
fn a_file_that_cannot_be_opened_is_told_with_its_folder() {
    run(1, |env| async move {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let disk = Arc::new(DirDisk::open(folder.path().join(name)).unwrap());
            Journal::open(disk, env.clone(), "news", JournalOptions::default())
        };
        let journal = open("news").unwrap();
        journal.append(vec![(1, Bytes::from_static(b"new"))]).await.unwrap();
        journal.close().await.unwrap();
        drop(journal);
        // A file that is not what its name says.
        let at = |name: &str| folder.path().join(name);
        let other = at("news/news-00000000000000000007.jnl");
        fs::rename(at("news/news-00000000000000000000.jnl"), &other).unwrap();
        let lock = at("locked/lock");
        fs::create_dir_all(&lock).unwrap();
        for (folder, named) in [("news", other), ("locked", lock)] {
            let refused = open(folder).err().unwrap().to_string();
            assert!(refused.contains(named.to_str().unwrap()), "{refused}");
        }
    });
}

#[test]
fn damage_is_copied_and_still_found_afterwards() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        let path = world.path("peer/store/00000001.log");
        let mut bytes = fs::read(&path).unwrap();
        bytes[500] ^= 1;
        fs::write(&path, bytes).unwrap();
        world.take("snap", None).unwrap();
        world.restore("snap", "new", None).unwrap();
        let store = open_log(Arc::new(DirDisk::open(world.path("new/store")).unwrap()), &env);
        assert!(matches!(store.get(&record(0, 700).id).await, Err(StoreError::Damaged { .. })));
        assert!(store.get(&record(1, 700).id).await.unwrap().is_some());
    });
}

/// What a disk cannot read costs what lies in it, and no more of the backup.
#[test]
fn what_the_disk_cannot_read_is_zeros_and_all_else_is_copied() {
    for log in ["00000001.log", "00000003.log", "last"] {
        for at in [10, 700, 2_000] {
            run(1, |env| async move {
                let source = FaultyDisk::new(1);
                let store = open_log(Arc::new(source.clone()), &env);
                for number in 0..20 {
                    store.put(vec![record(number, 700)]).await.unwrap();
                }
                store.close().await.unwrap();
                let names = source.list().unwrap();
                let last = names.into_iter().filter(|name| name.ends_with(".log")).max().unwrap();
                let log = if log == "last" { last.as_str() } else { log };
                source.fail_reads_in(log, at..at + 20);
                let target = FaultyDisk::new(2);
                let mut progress = Progress::none();
                copy(chain(&source, &target), &mut progress).unwrap();
                assert!((1..=8192).contains(&progress.unread), "{}", progress.unread);
                let copy = open_log(Arc::new(target), &env);
                let mut lost = 0;
                for number in 0..20 {
                    let wanted = record(number, 700);
                    match copy.get(&wanted.id).await {
                        Ok(Some(found)) => assert_eq!(found, wanted),
                        Ok(None) | Err(StoreError::Damaged { .. }) => lost += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                // Segments here are of one sector.
                assert!((1..=6).contains(&lost), "{lost} of {log} at {at}");
            });
        }
    }
}

/// Index files are not copied, so a copy without a head could be read by nobody.
#[test]
fn a_head_that_the_disk_cannot_read_is_that_of_the_index_file_in_the_copy() {
    run(1, |env| async move {
        for log in ["00000001.log", "00000002.log"] {
            let options = LogOptions {
                segment_bytes_max: 16 << 10,
                reserve_free_bytes: 0,
                ..LogOptions::default()
            };
            let source = FaultyDisk::new(1);
            let store = LogStore::open(Arc::new(source.clone()), env.clone(), options).unwrap();
            for number in 0..36 {
                store.put(vec![record(number, 700)]).await.unwrap();
            }
            let logs = source.list().unwrap().into_iter().filter(|name| name.ends_with(".log"));
            assert_eq!(logs.count(), 2, "one full, and one that is written to");
            source.fail_sectors_in(log, 0..1);
            let target = FaultyDisk::new(2);
            let mut progress = Progress::none();
            copy(chain(&source, &target), &mut progress).unwrap();
            assert_eq!(progress.unread, 4096);
            let copy = open_log(Arc::new(target), &env);
            assert_eq!(copy.recovery().unreadable_segments, 0);
            let mut lost = 0;
            for number in 0..36 {
                let wanted = record(number, 700);
                match copy.get(&wanted.id).await {
                    Ok(Some(found)) => assert_eq!(found, wanted),
                    _ => lost += 1,
                }
            }
            assert!((1..=6).contains(&lost), "{lost} of {log}");
        }
    });
}

#[test]
fn zeros_for_what_the_disk_could_not_read_are_in_no_later_snapshot_of_a_disk_that_reads_it() {
    run(1, |env| async move {
        // In the head, of which the one or the other copy is damaged before that; and far from it.
        for (at, rot) in [(0, None), (5000, None), (5000, Some(3)), (5000, Some(40))] {
            let options = LogOptions {
                segment_bytes_max: 16 << 10,
                reserve_free_bytes: 0,
                ..LogOptions::default()
            };
            let source = FaultyDisk::new(1);
            let store = LogStore::open(Arc::new(source.clone()), env.clone(), options).unwrap();
            for number in 0..70 {
                store.put(vec![record(number, 700)]).await.unwrap();
            }
            let log = "00000002.log";
            rot.into_iter().for_each(|at| source.flip(log, at, 1));
            let folder = tempfile::tempdir().unwrap();
            let disk = |name: &str| DirDisk::open(folder.path().join(name)).unwrap();
            let take = |to: &str, base: Option<(&DirDisk, &Manifest)>| {
                let target = disk(to);
                let base = base.map(|(disk, manifest)| (disk as &dyn Disk, manifest));
                let chain = Chain { base, ..chain_into(&source, &target) };
                let mut progress = Progress::none();
                let copied = copy(chain, &mut progress).unwrap();
                let linked = copied.values().filter(|copied| copied.linked).count();
                let files = copied.into_iter();
                let files = files.map(|(name, copied)| (format!("store/{name}"), copied.line));
                let manifest = Manifest {
                    network: NetworkId::new([1; 32]),
                    peer: peer_id(),
                    suite: SUITE,
                    unix_ms: 7,
                    files: files.collect(),
                };
                for (path, line) in &manifest.files {
                    let bytes = fs::read(target.path().join(&path["store/".len()..])).unwrap();
                    assert_eq!(*blake3::hash(&bytes).as_bytes(), line.checksum, "{path}");
                }
                (target, manifest, progress.unread, linked)
            };
            source.fail_sectors_in(log, at..at + 1);
            let (one, of_one, unread, _) = take("one", None);
            assert_eq!(unread, 4096);
            let (two, of_two, unread, linked) = take("two", Some((&one, &of_one)));
            assert_eq!((unread, linked), (4096, 2), "two others did not change");
            // Some of its records are there, whichever copy of the head was good.
            let copy = open_log(Arc::new(disk("two")), &env);
            assert_eq!(copy.recovery().unreadable_segments, 0);
            copy.close().await.unwrap();
            source.fail_reads_in(log, 0..0);
            let (three, _, unread, linked) = take("three", Some((&two, &of_two)));
            assert_eq!((unread, linked), (0, 2));
            assert!(fs::read(three.path().join(log)).unwrap() == source.bytes(log).unwrap());
        }
    });
}

#[test]
fn what_is_no_file_as_a_peer_has_is_told_and_a_link_to_a_file_is_followed() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        let peer = world.path("peer");
        fs::write(world.path("elsewhere.toml"), "of the operator").unwrap();
        std::os::unix::fs::symlink(world.path("elsewhere.toml"), peer.join("linked.toml")).unwrap();
        std::os::unix::fs::symlink("nowhere", peer.join("dangling")).unwrap();
        fs::write(peer.join("a name with spaces"), "x").unwrap();
        fs::write(peer.join(".draft"), "x").unwrap();
        let taken = world.take("snap", None).unwrap();
        assert_eq!(taken.left_out, ["a name with spaces", "dangling", "revoked/deep"]);
        world.restore("snap", "new", None).unwrap();
        let restored = world.path("new/linked.toml");
        assert!(fs::symlink_metadata(&restored).unwrap().is_file());
        assert_eq!(fs::read_to_string(restored).unwrap(), "of the operator");
    });
}

/// A later snapshot of the peer that was lost may have the same segment with other records in it.
#[test]
fn a_restored_peer_writes_to_no_segment_that_the_snapshot_has() {
    run(1, |env| async move {
        let world = World::new(&env).await;
        world.take("snap", None).unwrap();
        world.restore("snap", "new", None).unwrap();
        let logs = |of: &str| {
            let names = world.names(of).into_iter().filter(|name| name.ends_with(".log"));
            names.map(|name| (fs::read(world.path(of).join(&name)).unwrap(), name)).collect()
        };
        let before: BTreeSet<(Vec<u8>, String)> = logs("snap/store");
        let store = open_log(Arc::new(DirDisk::open(world.path("new/store")).unwrap()), &env);
        assert_eq!(held(&store, 40).await, (0..20).collect());
        for number in 20..30 {
            store.put(vec![record(number, 700)]).await.unwrap();
        }
        let after: BTreeSet<(Vec<u8>, String)> = logs("new/store");
        assert!(before.is_subset(&after) && after.len() > before.len());
    });
}

/// A peer that loses the end of its last segment with the power writes others there.
#[test]
fn the_last_segment_of_the_earlier_snapshot_is_never_linked() {
    run(1, |env| async move {
        let World { folder, store, journal, .. } = World::new(&env).await;
        let path = |name: &str| folder.path().join(name);
        let last = fs::read_dir(path("peer/store"))
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
            .filter(|name| name.ends_with(".log"))
            .max()
            .unwrap();
        let take = |to: &str, base: Option<&Path>| {
            take(&path("peer"), &path(to), &options(base), &mut |_, _| true)
        };
        take("one", None).unwrap();
        store.close().await.unwrap();
        journal.close().await.unwrap();
        drop((store, journal));
        // Two records of the same length: one that was lost, one that was written in its place.
        let log = path("peer/store").join(&last);
        let len = fs::metadata(&log).unwrap().len();
        let frame = 700 + if record(19, 700).place == record(19, 700).id.into() { 56 } else { 88 };
        fs::File::options().write(true).open(&log).unwrap().set_len(len - frame).unwrap();
        let store = open_log(Arc::new(DirDisk::open(path("peer/store")).unwrap()), &env);
        store.put(vec![record(19 + 3, 700)]).await.unwrap();
        assert_eq!(fs::metadata(&log).unwrap().len(), len);
        for number in 30..40 {
            store.put(vec![record(number, 700)]).await.unwrap();
        }
        take("two", Some(&path("one"))).unwrap();
        assert!(fs::read(path("two/store").join(&last)).unwrap() == fs::read(&log).unwrap());
    });
}
