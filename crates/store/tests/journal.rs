//! The journal: dense offsets, power cuts, rot, retention.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use env::disk::{DirDisk, Disk};
use proptest::prelude::*;
use store::journal::ENTRY_BYTES_MAX;
use store::{Durability, Journal, JournalOptions, StoreError};
use testkit::disk::FaultyDisk;
use testkit::network::noise;
use testkit::time::run;

fn options(retain_ms: u64) -> JournalOptions {
    JournalOptions { retain_ms, segment_bytes_max: 4 << 10, ..JournalOptions::default() }
}

fn open(disk: &FaultyDisk, env: &Env) -> Arc<Journal> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Journal::open(disk, env.clone(), "news", options(u64::MAX)).unwrap()
}

/// The entry with this offset.
fn body(offset: u64) -> Bytes {
    noise("entry", offset as usize, (offset as usize * 37) % 300)
}

fn entries(offsets: std::ops::Range<u64>) -> Vec<(u64, Bytes)> {
    offsets.map(|offset| (1000 + offset * 10, body(offset))).collect()
}

async fn append(journal: &Journal, count: u64) {
    let first = journal.end();
    let offsets = journal.append(entries(first..first + count)).await.unwrap();
    assert_eq!(offsets, (first..first + count).collect::<Vec<_>>());
}

async fn read_all(journal: &Journal) -> Vec<(u64, u64, Bytes)> {
    journal.read(0, usize::MAX).await.unwrap()
}

fn as_read(offsets: std::ops::Range<u64>) -> Vec<(u64, u64, Bytes)> {
    let times = entries(offsets.clone());
    offsets.zip(times).map(|(offset, (ms, bytes))| (offset, ms, bytes)).collect()
}

#[test]
fn a_mark_is_the_one_before_or_the_new_one_whenever_the_power_is_cut() {
    run(9, |env| async move {
        for operations in 0..12 {
            let disk = FaultyDisk::new(operations);
            let journal = open(&disk, &env);
            assert_eq!(journal.marked_ms(), None);
            journal.mark(17).await.unwrap();
            assert_eq!(journal.marked_ms(), Some(17));
            disk.crash_after(operations);
            let marked = journal.mark(4711).await;
            let disk = disk.crash();
            let found = open(&disk, &env).marked_ms();
            match marked {
                Ok(()) => assert_eq!(found, Some(4711)),
                Err(_) => assert!(matches!(found, Some(17 | 4711)), "{operations}: {found:?}"),
            }
            // What a cut left half-way is in nobody's way.
            let journal = open(&disk, &env);
            journal.mark(5000).await.unwrap();
            append(&journal, 3).await;
            journal.close().await.unwrap();
            assert!(matches!(journal.mark(1).await, Err(StoreError::Closed)));
            let journal = open(&disk, &env);
            assert_eq!((journal.marked_ms(), journal.end()), (Some(5000), 3));
        }
    });
}

#[test]
fn entries_are_read_from_any_offset_and_any_time_before_and_after_reopening() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let journal = open(&disk, &env);
        assert_eq!((journal.start(), journal.end()), (0, 0));
        assert_eq!(journal.read(0, 10).await.unwrap(), []);
        assert_eq!(journal.offset_at_or_after(0).await.unwrap(), 0);
        for count in [1, 2, 70, 300, 27] {
            append(&journal, count).await;
        }
        for _ in 0..2 {
            let journal = open(&disk, &env);
            assert_eq!((journal.start(), journal.end()), (0, 400));
            assert_eq!(read_all(&journal).await, as_read(0..400));
            for from in [0, 1, 63, 64, 65, 200, 399] {
                let wanted = as_read(from..(from + 5).min(400));
                assert_eq!(journal.read(from, 5).await.unwrap(), wanted);
                assert_eq!(journal.offset_at_or_after(1000 + from * 10).await.unwrap(), from);
                assert_eq!(journal.offset_at_or_after(991 + from * 10).await.unwrap(), from);
            }
            assert_eq!(journal.read(400, 5).await.unwrap(), []);
            assert_eq!(journal.read(0, 0).await.unwrap(), []);
            assert_eq!(journal.offset_at_or_after(1000 + 3991).await.unwrap(), 400);
            journal.close().await.unwrap();
            assert!(matches!(journal.read(0, 1).await, Err(StoreError::Closed)));
            assert!(matches!(journal.append(entries(0..1)).await, Err(StoreError::Closed)));
        }
    });
}

#[test]
fn bounds_are_kept() {
    run(1, |env| async move {
        let journal = open(&FaultyDisk::new(1), &env);
        let largest = noise("large", 1, ENTRY_BYTES_MAX);
        journal.append(vec![(1, largest.clone())]).await.unwrap();
        assert_eq!(read_all(&journal).await, [(0, 1, largest)]);
        let over = Bytes::from(vec![0; ENTRY_BYTES_MAX + 1]);
        let refused = journal.append(vec![(1, Bytes::new()), (1, over)]).await;
        assert!(matches!(refused, Err(StoreError::TooLarge { .. })));
        let many = vec![(1, Bytes::new()); store::journal::APPEND_ENTRIES_MAX + 1];
        assert!(matches!(journal.append(many).await, Err(StoreError::TooLarge { .. })));
        assert_eq!(journal.end(), 1);
    });
}

#[test]
fn old_segments_go_and_offsets_go_on() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let retain = 8 * 3_600_000;
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let journal = Journal::open(shared, env.clone(), "news", options(retain)).unwrap();
        for hour in 0..24u64 {
            let now = env.clock.unix_ms();
            let offsets = journal.append(vec![(now, body(hour))]).await.unwrap();
            assert_eq!(offsets, [hour]);
            env.clock.sleep(Duration::from_secs(3600)).await;
        }
        let kept = journal.end() - journal.start();
        assert!((8..=12).contains(&kept), "{kept} hours are kept");
        assert_eq!(journal.read(0, 1).await.unwrap()[0].0, journal.start());
        let files = disk.list().unwrap().len();
        assert!(files <= 12, "{files} files");
        journal.close().await.unwrap();
        env.clock.sleep(Duration::from_secs(100 * 3600)).await;
        let shared: Arc<dyn Disk> = Arc::new(disk);
        let journal = Journal::open(shared, env.clone(), "news", options(retain)).unwrap();
        assert_eq!(journal.end(), 24, "no offset is ever given twice");
        let kept = journal.end() - journal.start();
        assert!(kept >= 8, "the calendar may be ahead: {kept} hours before the last are kept");
        let start = journal.start();
        for (offset, start) in [(24, start), (25, 24)] {
            let now = env.clock.unix_ms();
            assert_eq!(journal.append(vec![(now, body(offset))]).await.unwrap(), [offset]);
            assert_eq!(journal.start(), start, "what was logged since says that it is right");
            env.clock.sleep(Duration::from_secs(2 * 3600)).await;
        }
    });
}

#[test]
fn what_the_disk_cannot_read_costs_what_lies_in_it() {
    const ENTRIES: u64 = 60;
    /// In several appends: a file ends between two.
    async fn fill(journal: &Journal) {
        for _ in 0..ENTRIES / 6 {
            append(journal, 6).await;
        }
    }
    run(1, |env| async move {
        let whole = FaultyDisk::new(1);
        let journal = open(&whole, &env);
        fill(&journal).await;
        journal.close().await.unwrap();
        let names: Vec<_> = whole.list().unwrap();
        let mut files: Vec<_> = names.into_iter().filter(|name| name.ends_with(".jnl")).collect();
        files.sort_unstable();
        assert!(files.len() > 2);
        for name in [&files[0], &files[1], &files[files.len() - 1]] {
            let len = whole.open(name, false).unwrap().len().unwrap();
            for at in (0..len).step_by(61) {
                let disk = FaultyDisk::new(1);
                let journal = open(&disk, &env);
                fill(&journal).await;
                journal.close().await.unwrap();
                disk.fail_reads_in(name, at..(at + 9).min(len));
                let journal = open(&disk, &env);
                let read = read_all(&journal).await;
                assert!(read.iter().all(|entry| as_read(0..ENTRIES).contains(entry)));
                // A disk reads or refuses 4 KiB at a time, and a file here is not much longer.
                let others = files.len() as u64 - 1;
                assert!(read.len() as u64 >= ENTRIES * others / 4, "{name} {at}: {}", read.len());
                append(&journal, 3).await;
                let end = journal.end();
                let later = as_read(end - 3..end);
                assert_eq!(read_all(&journal).await, [read, later.clone()].concat());
                journal.close().await.unwrap();
                // A disk that reads it again: nothing of it was cut, and no offset given twice.
                disk.fail_reads_in(name, 0..0);
                let journal = open(&disk, &env);
                assert_eq!(read_all(&journal).await, [as_read(0..ENTRIES), later].concat());
                assert_eq!(journal.end(), end);
            }
        }
    });
}

#[test]
fn a_journal_that_is_too_long_loses_what_is_oldest() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let opened = |bytes_max: u64| {
            let options = JournalOptions { bytes_max, ..options(u64::MAX) };
            Journal::open(Arc::new(disk.clone()), env.clone(), "news", options).unwrap()
        };
        let bytes = || {
            let lens = disk.list().unwrap().into_iter().filter(|name| name.ends_with(".jnl"));
            lens.map(|name| disk.open(&name, false).unwrap().len().unwrap()).sum::<u64>()
        };
        let journal = opened(32 << 10);
        let mut most = 0;
        for _ in 0..100 {
            let body = Bytes::from(vec![7; 1_000]);
            journal.append(vec![(env.clock.unix_ms(), body)]).await.unwrap();
            most = most.max(bytes());
        }
        // One segment more: it was begun before the oldest went.
        assert!((24 << 10..=36 << 10).contains(&most), "{most}");
        assert_eq!(journal.end(), 100);
        let (start, read) = (journal.start(), journal.read(0, 1_000).await.unwrap());
        assert!(start > 60, "{start}");
        assert_eq!(
            read.iter().map(|(at, ..)| *at).collect::<Vec<_>>(),
            (start..100).collect::<Vec<_>>()
        );
        journal.close().await.unwrap();
        // A smaller bound counts at the next start.
        let journal = opened(1);
        assert_eq!(disk.list().unwrap().iter().filter(|name| name.ends_with(".jnl")).count(), 1);
        assert!(journal.start() > start && journal.end() == 100);
    });
}

/// All that tells a bad place from a dead disk in the file itself is bad too.
#[test]
fn a_journal_file_that_cannot_be_read_at_all_keeps_none_from_opening_and_gives_no_offset_twice() {
    run(1, |env| async move {
        let whole = FaultyDisk::new(1);
        let journal = open(&whole, &env);
        for _ in 0..10 {
            append(&journal, 6).await;
        }
        journal.close().await.unwrap();
        let mut files = whole.list().unwrap();
        files.sort_unstable();
        assert!(files.len() > 2, "{files:?}");
        let last = files.last().unwrap();
        // The last one also with nothing but its head, as restoring a snapshot leaves one.
        let cases = files.iter().map(|name| (name, false)).chain([(last, true)]);
        for (name, cut) in cases {
            let disk = whole.copy();
            let file = disk.open(name, false).unwrap();
            if cut {
                file.truncate(64).unwrap();
            }
            disk.fail_sectors_in(name, 0..file.len().unwrap());
            let journal = open(&disk, &env);
            let first: u64 = name[5..25].parse().unwrap();
            assert!(journal.end() > first, "{name}: {}", journal.end());
            assert!(cut || name == last || journal.end() == 60);
            let read = read_all(&journal).await;
            assert!(!read.is_empty() && read.iter().all(|one| as_read(0..60).contains(one)));
            let end = journal.end();
            append(&journal, 3).await;
            assert_eq!(read_all(&journal).await.len(), read.len() + 3);
            journal.close().await.unwrap();
            disk.fail_reads_in(name, 0..0);
            assert_eq!(open(&disk, &env).end(), end + 3);
            disk.fail_reads(true);
            let disk: Arc<dyn Disk> = Arc::new(disk);
            let refused = Journal::open(disk, env.clone(), "news", options(u64::MAX));
            assert!(matches!(refused, Err(StoreError::Io { .. })));
        }
    });
}

#[test]
fn a_full_disk_and_a_failed_sync_are_told_and_leave_what_was() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let journal = open(&disk, &env);
        append(&journal, 10).await;
        disk.set_capacity(disk.used_bytes() + 20);
        assert!(matches!(journal.append(entries(10..12)).await, Err(StoreError::Full)));
        assert_eq!(read_all(&journal).await, as_read(0..10));
        disk.set_capacity(u64::MAX);
        append(&journal, 5).await;
        disk.fail_syncs(1);
        assert!(matches!(journal.append(entries(15..16)).await, Err(StoreError::Poisoned)));
        assert!(matches!(journal.append(entries(15..16)).await, Err(StoreError::Poisoned)));
        assert_eq!(read_all(&journal).await, as_read(0..15));
        journal.close().await.unwrap();
        assert_eq!(read_all(&open(&disk, &env)).await, as_read(0..15));
    });
}

#[test]
fn entries_that_a_failed_sync_kept_from_the_disk_are_not_there_at_the_next_start() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let everysec = JournalOptions { durability: Durability::EverySecond, ..options(u64::MAX) };
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let journal = Journal::open(shared, env.clone(), "news", everysec).unwrap();
        append(&journal, 3).await;
        env.clock.sleep(Duration::from_secs(2)).await;
        append(&journal, 2).await;
        disk.fail_syncs(1);
        env.clock.sleep(Duration::from_secs(2)).await;
        assert!(journal.is_poisoned());
        journal.close().await.unwrap_err();
        let journal = open(&disk, &env);
        assert_eq!(read_all(&journal).await, as_read(0..3));
        append(&journal, 2).await;
        assert_eq!(read_all(&open(&disk.crash(), &env)).await, as_read(0..5));
    });
}

#[test]
fn no_flipped_byte_gives_a_wrong_entry_or_hides_another() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let journal = open(&disk, &env);
        for _ in 0..20 {
            append(&journal, 3).await;
        }
        journal.close().await.unwrap();
        let names = disk.list().unwrap();
        assert!(names.len() >= 2, "{names:?}");
        for name in names {
            for offset in 0..disk.bytes(&name).unwrap().len() {
                let rotten = disk.copy();
                rotten.flip(&name, offset, 1 << (offset % 8));
                let journal = open(&rotten, &env);
                let found = read_all(&journal).await;
                assert!(found.len() >= 59, "{name} at {offset}: {}", found.len());
                let wanted = as_read(0..60);
                assert!(found.iter().all(|entry| wanted.contains(entry)), "{name} at {offset}");
                assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
            }
        }
    });
}

#[tokio::test]
async fn it_works_beside_a_record_store_in_one_directory() {
    let folder = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(DirDisk::open(folder.path()).unwrap());
    let env = Env::real();
    let options = store::LogOptions { reserve_free_bytes: 0, ..Default::default() };
    let records = store::LogStore::open(disk.clone(), env.clone(), options).unwrap();
    let journal = Journal::open(disk, env.clone(), "news", JournalOptions::default()).unwrap();
    let record = testkit::store::record(1, 100);
    store::RecordStore::put(&*records, vec![record]).await.unwrap();
    append(&journal, 10).await;
    assert_eq!(read_all(&journal).await, as_read(0..10));
    let other: Arc<dyn Disk> = Arc::new(DirDisk::open(folder.path()).unwrap());
    let locked = Journal::open(other, env, "news", JournalOptions::default());
    assert!(matches!(locked, Err(StoreError::Locked)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_was_acknowledged_survives_power_cuts_in_order(
        seed: u64,
        rounds in proptest::collection::vec((1u64..8, proptest::option::of(0u64..5)), 1..25),
    ) {
        let checked = run(seed, |env| async move {
            let mut disk = FaultyDisk::new(seed);
            let mut journal = open(&disk, &env);
            let mut acknowledged = 0;
            for (count, crash) in rounds {
                if let Some(operations) = crash {
                    disk.crash_after(operations);
                }
                let first = journal.end();
                if journal.append(entries(first..first + count)).await.is_ok() {
                    acknowledged = first + count;
                }
                if !disk.is_powered() {
                    disk = disk.crash();
                    journal = open(&disk, &env);
                    let found = read_all(&journal).await;
                    // What was not acknowledged may be there, in part; what was is whole.
                    let wanted = as_read(0..journal.end());
                    let gaps = journal.end() as usize - found.len();
                    if !found.iter().all(|entry| wanted.contains(entry)) {
                        return Err("an entry is wrong".into());
                    }
                    let lost = as_read(0..acknowledged).into_iter().find(|e| !found.contains(e));
                    if let Some((offset, ..)) = lost {
                        return Err(format!("{offset} is lost"));
                    }
                    // A torn batch may have left a hole that is never filled: start anew.
                    if gaps > 0 {
                        disk = FaultyDisk::new(seed);
                        journal = open(&disk, &env);
                        acknowledged = 0;
                    }
                }
            }
            Ok(())
        });
        prop_assert_eq!(checked, Ok(()));
    }
}

#[test]
fn a_damaged_head_costs_its_own_entries_and_not_the_later_ones() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let day_ms = 24 * 3600 * 1000;
        let reopen = || {
            let disk: Arc<dyn Disk> = Arc::new(disk.clone());
            Journal::open(disk, env.clone(), "news", options(day_ms)).unwrap()
        };
        let now = env.clock.unix_ms();
        let journal = reopen();
        journal.append(vec![(now, body(0)), (now, body(1))]).await.unwrap();
        journal.close().await.unwrap();
        let name = disk.list().unwrap().remove(0);
        (0..64).for_each(|offset| disk.flip(&name, offset, 1));
        let journal = reopen();
        assert_eq!(journal.read(0, 10).await.unwrap(), []);
        let mut kept = Vec::new();
        for number in 2..5 {
            let offset = journal.append(vec![(now, body(number))]).await.unwrap()[0];
            assert!(offset >= 2, "no offset is given twice");
            kept.push((offset, now, body(number)));
            assert_eq!(journal.read(0, 10).await.unwrap(), kept);
        }
        journal.close().await.unwrap();
        let journal = reopen();
        assert_eq!(journal.read(0, 10).await.unwrap(), kept);
        assert_eq!(journal.end(), kept[2].0 + 1);
    });
}
