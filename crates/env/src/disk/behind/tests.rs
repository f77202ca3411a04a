//! Files against a model of their bytes, and what a process that dies leaves.

use std::fs;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::dir::DirDisk;
use super::super::{Disk, File, Lock};
use super::*;

struct World {
    folder: tempfile::TempDir,
    disk: DirDisk,
    lock: Lock,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (disk, lock) = open(folder.path());
        Self { folder, disk, lock }
    }

    /// The process dies: nothing that it has in memory is written any more.
    fn die(self, files: Vec<Arc<dyn File>>) -> tempfile::TempDir {
        self.disk.die();
        std::mem::forget(files);
        self.disk.release(self.lock);
        std::mem::forget(self.disk);
        self.folder
    }
}

fn open(folder: &Path) -> (DirDisk, Lock) {
    let disk = DirDisk::open(folder).expect("it opens");
    let lock = disk.lock().expect("it is locked");
    (disk, lock)
}

fn write_soon(file: &dyn File, offset: u64, bytes: &[u8]) {
    let (a, b) = bytes.split_at(bytes.len() / 3);
    file.write_soon(offset, &[IoSlice::new(a), IoSlice::new(b)]).expect("taken");
}

fn read(file: &dyn File, range: std::ops::Range<usize>) -> Vec<u8> {
    let mut back = vec![0; range.len()];
    file.read_at(range.start as u64, &mut back).expect("read");
    let once = file.read_once(range.start as u64, range.len()).expect("read");
    assert!(back == once, "both reads give the same");
    let mut now = vec![0; range.len()];
    let filled = file.read_now(range.start as u64, &mut now);
    assert!(!filled || now == back, "what need not be waited for is the same");
    back
}

/// Bytes that tell where they come from.
fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|i| (i / 7 + i / 4099) as u8).collect()
}

/// Whether this machine's temporary folder is on a file system that blocks are made on.
fn is_behind(folder: &Path) -> bool {
    folder.join(FILE_NAME).exists()
}

#[derive(Clone, Debug)]
enum Step {
    Soon(usize),
    At(usize),
    Over(usize, usize),
    Read(usize, usize),
    Flush,
    Sync,
    Cut(usize),
    Again,
    Die,
    Rename,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![12 => 1_usize..5000, 6 => 1_usize..200_000, 1 => 1_usize..(9 << 20)];
    prop_oneof![
        8 => len.prop_map(Step::Soon),
        2 => (1_usize..300_000).prop_map(Step::At),
        1 => (0_usize..1000, 1_usize..9000).prop_map(|(at, len)| Step::Over(at, len)),
        4 => (0_usize..1000, 1_usize..700_000).prop_map(|(at, len)| Step::Read(at, len)),
        1 => Just(Step::Flush),
        1 => Just(Step::Sync),
        1 => (0_usize..1000).prop_map(Step::Cut),
        1 => Just(Step::Again),
        1 => Just(Step::Die),
        1 => Just(Step::Rename),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever is written, read, cut and renamed, and wherever the process dies: the file has the model's bytes.
    #[test]
    fn a_file_is_what_was_written(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::new();
        let (mut name, mut other) = ("00000001.log", "00000002.log");
        let mut file = world.disk.open(name, true).expect("created");
        // Opened before anything is in a block.
        let mut reader = world.disk.open(name, false).expect("opened");
        let mut model: Vec<u8> = Vec::new();
        for step in steps {
            match step {
                Step::Soon(len) => {
                    let bytes = pattern(model.len(), len);
                    write_soon(&*file, model.len() as u64, &bytes);
                    model.extend(bytes);
                }
                Step::At(len) => {
                    let bytes = pattern(model.len() + 1, len);
                    file.write_at(model.len() as u64, &[IoSlice::new(&bytes)]).expect("written");
                    model.extend(bytes);
                }
                Step::Over(at, len) => {
                    let at = model.len() * at / 1000;
                    let bytes = pattern(at + 3, len);
                    write_soon(&*file, at as u64, &bytes);
                    model.resize(model.len().max(at + len), 0);
                    model[at..at + len].copy_from_slice(&bytes);
                }
                Step::Read(at, len) => {
                    let at = model.len() * at / 1000;
                    let to = (at + len).min(model.len());
                    prop_assert!(read(&*file, at..to) == model[at..to]);
                    prop_assert!(read(&*reader, at..to) == model[at..to]);
                    let mut beyond = vec![0; model.len() - at + 1];
                    let error = file.read_at(at as u64, &mut beyond).expect_err("past the end");
                    prop_assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                }
                Step::Flush => {
                    file.flush().expect("flushed");
                    let there = fs::read(world.disk.path().join(name)).expect("read");
                    prop_assert!(there == model, "others see all of it");
                }
                Step::Sync => file.sync().expect("synced"),
                Step::Cut(at) => {
                    model.truncate(model.len() * at / 1000);
                    file.truncate(model.len() as u64).expect("cut");
                }
                Step::Again => {
                    drop(file);
                    file = world.disk.open(name, false).expect("opened");
                }
                Step::Die => {
                    let folder = world.die(vec![file, reader]);
                    let (disk, lock) = open(folder.path());
                    world = World { folder, disk, lock };
                    let there = fs::read(world.disk.path().join(name)).expect("read");
                    prop_assert!(there == model, "{} of {} bytes", there.len(), model.len());
                    file = world.disk.open(name, false).expect("opened");
                    reader = world.disk.open(name, false).expect("opened");
                }
                Step::Rename => {
                    drop((file, reader));
                    world.disk.rename(name, other).expect("renamed");
                    (name, other) = (other, name);
                    file = world.disk.open(name, false).expect("opened");
                    reader = world.disk.open(name, false).expect("opened");
                }
            }
            prop_assert_eq!(file.len().expect("measured"), model.len() as u64);
        }
        prop_assert!(read(&*file, 0..model.len()) == model);
        prop_assert_eq!(world.disk.list().expect("listed"), [name]);
    }
}

#[test]
fn what_is_quiet_is_written_by_itself() {
    let world = World::new();
    let file = world.disk.open("a", true).expect("created");
    write_soon(&*file, 0, b"some bytes");
    let there = || fs::read(world.disk.path().join("a")).expect("read");
    let begin = Instant::now();
    while there() != b"some bytes" {
        assert!(begin.elapsed() < Duration::from_secs(60), "it is not written");
        std::thread::sleep(QUIET);
    }
    assert_eq!(read(&*file, 5..10), b"bytes");
}

#[test]
fn a_file_that_was_removed_does_not_come_back() {
    let world = World::new();
    let file = world.disk.open("a", true).expect("created");
    write_soon(&*file, 0, b"old");
    world.disk.remove("a").expect("removed");
    assert!(world.disk.list().expect("listed").is_empty());
    // One of the same name is another.
    let new = world.disk.open("a", true).expect("created");
    write_soon(&*new, 0, b"new one");
    assert_eq!((read(&*file, 0..3), read(&*new, 0..7)), (b"old".to_vec(), b"new one".to_vec()));
    fs::remove_file(world.disk.path().join("a")).expect("removed by another");
    let folder = world.die(vec![file, new]);
    let (disk, _lock) = open(folder.path());
    assert!(disk.list().expect("listed").is_empty());
}

#[test]
fn after_another_start_of_the_system_blocks_are_nothing() {
    for same in [true, false] {
        let world = World::new();
        let file = world.disk.open("a", true).expect("created");
        file.write_at(0, &[IoSlice::new(b"safe")]).expect("written");
        // Full blocks are on their way meanwhile; the last is not.
        write_soon(&*file, 4, b" and more");
        if !is_behind(world.disk.path()) {
            return;
        }
        let folder = world.die(vec![file]);
        let blocks =
            fs::OpenOptions::new().write(true).open(folder.path().join(FILE_NAME)).expect("there");
        if !same {
            for number in 0..BLOCKS {
                blocks.write_all_at(&[0xaa; 16], places(number).0 + 24).expect("written");
            }
        }
        // Before its thread does it.
        fs::write(folder.path().join("a"), b"safe").expect("cut");
        let (disk, _lock) = open(folder.path());
        let wanted: &[u8] = if same { b"safe and more" } else { b"safe" };
        assert_eq!(fs::read(folder.path().join("a")).expect("read"), wanted);
        assert!(!is_behind(folder.path()), "they are gone");
        assert_eq!(disk.list().expect("listed"), ["a"]);
    }
}

#[test]
fn blocks_are_not_written_over_what_a_file_has() {
    let world = World::new();
    let file = world.disk.open("a", true).expect("created");
    write_soon(&*file, 0, b"some bytes of ours");
    if !is_behind(world.disk.path()) {
        return;
    }
    let folder = world.die(vec![file]);
    fs::write(folder.path().join("a"), b"some bytes of another's").expect("written");
    let _open = open(folder.path());
    let there = fs::read(folder.path().join("a")).expect("read");
    assert_eq!(there, b"some bytes of another's");
}

#[test]
fn who_lets_go_of_the_lock_leaves_all_in_the_files_and_no_blocks() {
    let World { folder, disk, lock } = World::new();
    let file = disk.open("a", true).expect("created");
    write_soon(&*file, 0, &pattern(0, 3 << 20));
    drop(lock);
    assert!(!is_behind(folder.path()));
    assert!(fs::read(folder.path().join("a")).expect("read") == pattern(0, 3 << 20));
    write_soon(&*file, 3 << 20, b"and more");
    assert_eq!(fs::read(folder.path().join("a")).expect("read").len(), (3 << 20) + 8);
    let _again = disk.lock().expect("locked");
    write_soon(&*file, (3 << 20) + 8, b"and more");
    assert_eq!(read(&*file, 3 << 20..(3 << 20) + 16), b"and moreand more");
}

#[test]
fn without_the_lock_all_writes_are_ordinary() {
    let world = World::new();
    drop(world.lock);
    let file = world.disk.open("a", true).expect("created");
    write_soon(&*file, 0, b"bytes");
    assert_eq!(fs::read(world.disk.path().join("a")).expect("read"), b"bytes");
    assert!(!is_behind(world.disk.path()));
}

/// What cannot be written.
fn unwritable() -> (Arc<Tailed>, Option<i32>) {
    let (reader, _) = io::pipe().expect("a pipe");
    (Arc::new(Tailed::new("a", reader.into())), Some(Errno::SPIPE.raw_os_error()))
}

#[test]
fn a_write_that_fails_is_said_by_all_that_follow_and_is_kept_for_the_next_opener() {
    let world = World::new();
    let dir = rustix::fs::open(world.disk.path(), OFlags::RDONLY, Mode::empty()).expect("opened");
    let Some(behind) = Owned::new(&dir) else { return };
    let (tailed, wanted) = unwritable();
    tailed.write_soon(&behind, 0, &[IoSlice::new(b"some bytes")]).expect("taken");
    for _ in 0..2 {
        let error = tailed.flush(&behind).expect_err("it cannot be written");
        assert_eq!(error.raw_os_error(), wanted);
        let error = tailed.write_soon(&behind, 10, &[IoSlice::new(b"!")]).expect_err("no more");
        assert_eq!(error.raw_os_error(), wanted);
    }
    let mut back = [0; 10];
    tailed.read_at(0, &mut back, false).expect("reads go on");
    assert_eq!(&back, b"some bytes");
    drop((tailed, behind));
    // Whose disk has been mended.
    fs::write(world.disk.path().join("a"), b"").expect("made");
    let folder = world.die(Vec::new());
    let _open = open(folder.path());
    assert_eq!(fs::read(folder.path().join("a")).expect("read"), b"some bytes");
}

#[test]
fn a_disk_that_takes_nothing_ends_the_wait_for_a_block() {
    let world = World::new();
    let dir = rustix::fs::open(world.disk.path(), OFlags::RDONLY, Mode::empty()).expect("opened");
    let Some(behind) = Owned::new(&dir) else { return };
    let (tailed, wanted) = unwritable();
    let long = vec![1; (BLOCKS + 2) * STRIDE];
    let error =
        tailed.write_soon(&behind, 0, &[IoSlice::new(&long)]).expect_err("no blocks come back");
    assert_eq!(error.raw_os_error(), wanted);
    // Others have what is left.
    let other = world.disk.open("b", true).expect("created");
    write_soon(&*other, 0, b"goes on");
    other.sync().expect("synced");
}

#[test]
fn what_is_in_files_leaves_the_blocks_when_they_are_wiped_and_what_is_not_stays() {
    let world = World::new();
    let old = world.disk.open("a", true).expect("created");
    let secret = b"what was dropped".repeat(1000);
    write_soon(&*old, 0, &secret);
    old.sync().expect("synced");
    if !is_behind(world.disk.path()) {
        return;
    }
    // Less of another takes the same block.
    let new = world.disk.open("b", true).expect("created");
    write_soon(&*new, 0, b"a few bytes");
    let blocks = || fs::read(world.disk.path().join(FILE_NAME)).expect("there");
    let has = |wanted: &[u8]| blocks().windows(wanted.len()).any(|bytes| bytes == wanted);
    assert!(has(b"what was dropped"));
    world.disk.wipe().expect("wiped");
    assert!(!has(b"what was dropped") && !has(&secret[5..16]));
    assert_eq!(read(&*new, 0..11), b"a few bytes");
    write_soon(&*new, 11, b" and more");
    let folder = world.die(vec![old, new]);
    let _open = open(folder.path());
    assert_eq!(fs::read(folder.path().join("b")).expect("read"), b"a few bytes and more");
    assert!(fs::read(folder.path().join("a")).expect("read") == secret);
}
