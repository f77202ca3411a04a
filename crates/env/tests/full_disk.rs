//! A disk that another program fills, and one that became read-only. A program of its own: what is forked to mount one holds other tests' locks for a moment.
#![allow(missing_docs, clippy::expect_used, reason = "tests")]

use std::fs;
use std::io::{self, IoSlice, Write};
use std::process::Command;

use env::disk::{DirDisk, Disk};
use skipped::skipped;

#[allow(unreachable_pub, reason = "testkit's, which names this crate")]
#[path = "../../testkit/src/skipped.rs"]
mod skipped;

/// Bytes that tell where they come from.
fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|i| (i / 7 + i / 4099) as u8).collect()
}

/// A disk of 14 MiB in memory; `None` where none may be mounted here.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=14m", "tmpfs"]).arg(folder.path());
        mount.output().is_ok_and(|done| done.status.success()).then(|| Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_refuses_what_it_could_not_keep_and_takes_more_when_it_has_room() {
    let Some(small) = SmallDisk::mount() else {
        return skipped("a full disk: a tmpfs cannot be mounted here");
    };
    let disk = DirDisk::open(small.0.path().join("store")).expect("it opens");
    let _lock = disk.lock().expect("it is locked");
    let file = disk.open("a", true).expect("created");
    file.write_soon(0, &[IoSlice::new(&pattern(0, 1000))]).expect("taken");
    // Another program fills it to the last byte.
    let ballast = small.0.path().join("ballast");
    let mut other = fs::File::create(&ballast).expect("created");
    while other.write_all(&[7; 4096]).is_ok() {}
    let (mut len, step) = (1000, 1000);
    let full = loop {
        let bytes = pattern(len, step);
        match file.write_soon(len as u64, &[IoSlice::new(&bytes)]) {
            Ok(()) => len += step,
            Err(error) => break error,
        }
        assert!(len < 4 << 20, "it takes more than there is room for");
    };
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    // As a log does where a write fails.
    file.truncate(len as u64).expect("cut");
    file.sync().expect("all that was taken has its room");
    fs::remove_file(&ballast).expect("removed");
    drop(other);
    for _ in 0..3 << 10 {
        file.write_soon(len as u64, &[IoSlice::new(&pattern(len, step))]).expect("taken");
        len += step;
    }
    file.sync().expect("synced");
    let mut back = vec![0; len];
    file.read_at(0, &mut back).expect("read");
    assert!(back == pattern(0, len));
}

/// As ext4 is behind an error of its disk: what is there is read, also what nobody had open.
#[test]
fn what_is_on_a_disk_that_became_read_only_is_read() {
    let Some(small) = SmallDisk::mount() else {
        return skipped("a disk that became read-only: a tmpfs cannot be mounted here");
    };
    let place = small.0.path().join("store");
    let disk = DirDisk::open(&place).expect("it opens");
    disk.open("a", true)
        .expect("made")
        .write_at(0, &[IoSlice::new(&pattern(0, 1000))])
        .expect("written");
    drop(disk);
    let mut remount = Command::new("mount");
    remount.args(["-o", "remount,ro"]).arg(small.0.path());
    if !remount.output().is_ok_and(|done| done.status.success()) {
        return skipped("a disk that became read-only: a tmpfs cannot be made so here");
    }
    let disk = DirDisk::open(&place).expect("it opens");
    let file = disk.open("a", false).expect("to be read");
    let mut bytes = vec![0; 1000];
    file.read_at(0, &mut bytes).expect("read");
    assert_eq!(bytes, pattern(0, 1000));
    let refused =
        file.write_at(1000, &[IoSlice::new(&pattern(1000, 10))]).and_then(|()| file.sync());
    assert!(refused.is_err(), "nothing is taken that cannot be kept");
    assert!(disk.open("b", true).is_err() && disk.lock().is_err());
}
