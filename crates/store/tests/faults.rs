//! What a store does when its disk fails: every fault of `testkit::disk`, and every byte of its
//! files flipped once.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use crypto::{Place, RecordId};
use document::{Kind, Record};
use env::Env;
use env::disk::Disk;
use store::{
    CompactionOptions, Durability, Kept, LogOptions, LogStore, RecordStore, StoreError, Upkeep,
};
use testkit::disk::FaultyDisk;
use testkit::store::record;
use testkit::time::run;

fn options(durability: Durability) -> LogOptions {
    LogOptions {
        durability,
        segment_bytes_max: 4 << 10,
        reserve_free_bytes: 0,
        ..LogOptions::default()
    }
}

fn open(disk: &FaultyDisk, env: &Env) -> Arc<LogStore> {
    LogStore::open(Arc::new(disk.clone()), env.clone(), options(Durability::Group)).unwrap()
}

fn some(numbers: std::ops::Range<usize>, len: usize) -> Vec<Record> {
    numbers.map(|number| record(number, len)).collect()
}

/// The records of one small file: an envelope, an entry and its pages, over several segments, one
/// of them removed.
async fn small_file(env: &Env) -> (FaultyDisk, Vec<Record>, Record) {
    let disk = FaultyDisk::new(1);
    let store = open(&disk, env);
    let records = some(0..8, 900);
    for record in &records {
        store.put(vec![record.clone()]).await.unwrap();
    }
    let gone = record(20, 300);
    store.put(vec![gone.clone()]).await.unwrap();
    store.remove(vec![gone.id]).await.unwrap();
    store.put(vec![record(21, 0)]).await.unwrap();
    store.close().await.unwrap();
    let names = disk.list().unwrap();
    assert!(names.iter().filter(|name| name.ends_with(".idx")).count() >= 2, "{names:?}");
    (disk, records, gone)
}

#[test]
fn no_flipped_byte_gives_wrong_bytes_or_hides_another_record() {
    run(1, |env| async move {
        let (disk, records, gone) = small_file(&env).await;
        for name in disk.list().unwrap() {
            for offset in 0..disk.bytes(&name).unwrap().len() {
                let rotten = disk.copy();
                rotten.flip(&name, offset, 1 << (offset % 8));
                let store = open(&rotten, &env);
                let mut lost = 0;
                for wanted in &records {
                    match store.get(&wanted.id).await {
                        Ok(Some(found)) => assert_eq!(&found, wanted, "{name} at {offset}"),
                        Ok(None) | Err(StoreError::Damaged { .. }) => lost += 1,
                        Err(error) => panic!("{name} at {offset}: {error}"),
                    }
                }
                assert!(lost <= 1, "{lost} records lost by {name} at {offset}");
                // A removal that is lost brings the record back, never other bytes.
                let back = store.get(&gone.id).await.unwrap();
                assert!(back.is_none_or(|found| found == gone), "{name} at {offset}");
                // Putting everything again heals it.
                store.put(records.clone()).await.unwrap();
                for wanted in &records {
                    let healed = store.get(&wanted.id).await.unwrap();
                    assert_eq!(healed.as_ref(), Some(wanted), "{name} at {offset}");
                }
                assert_eq!(store.stats().damaged, 0);
            }
        }
    });
}

#[test]
fn a_damaged_record_is_counted_not_served_and_healed_by_putting_it_again() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        let records = some(0..3, 500);
        store.put(records.clone()).await.unwrap();
        disk.flip("00000001.log", 64 + 88 + 10, 1);
        let damaged = store.get(&records[0].id).await;
        assert!(matches!(damaged, Err(StoreError::Damaged { id, .. }) if id == records[0].id));
        assert_eq!(store.stats().damaged, 1);
        assert!(store.get(&records[1].id).await.unwrap().is_some());
        assert_eq!(store.put(records.clone()).await.unwrap(), [true, false, false]);
        assert_eq!(store.get(&records[0].id).await.unwrap().as_ref(), Some(&records[0]));
        assert_eq!(store.stats().damaged, 0);
        // Without having been read, too.
        disk.flip("00000001.log", 64 + 88 + 500 + 56 + 7, 1);
        assert_eq!(store.put(records).await.unwrap(), [false, true, false]);
    });
}

#[test]
fn a_large_record_is_read_from_memory_for_some_seconds_and_then_from_the_disk() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        let (large, gone) = (record(1, 100 << 10), record(2, 100 << 10));
        store.put(vec![large.clone(), gone.clone()]).await.unwrap();
        store.remove(vec![gone.id]).await.unwrap();
        assert_eq!(store.get(&gone.id).await.unwrap(), None, "it was removed");
        disk.flip("00000001.log", 64 + 88 + 10, 1);
        assert_eq!(store.get(&large.id).await.unwrap(), Some(large.clone()));
        env.clock.sleep(Duration::from_secs(12)).await;
        assert!(matches!(store.get(&large.id).await, Err(StoreError::Damaged { .. })));
        assert_eq!(store.stats().damaged, 1);
        // A page lives where it came first, whatever place it comes with a moment later.
        let page = Record { place: record(7, 1).id.into(), ..record(3, 100 << 10) };
        assert_eq!(store.put(vec![page.clone()]).await.unwrap(), [true]);
        let again = Record { place: record(8, 1).id.into(), ..page.clone() };
        assert_eq!(store.put(vec![again]).await.unwrap(), [false]);
        assert_eq!(store.get(&page.id).await.unwrap(), Some(page));
        // Known to be damaged, it is not served from memory either; put again it is whole, on the disk too.
        assert_eq!(store.put(vec![large.clone()]).await.unwrap(), [true]);
        env.clock.sleep(Duration::from_secs(12)).await;
        assert_eq!(store.get(&large.id).await.unwrap(), Some(large));
    });
}

/// A stranger's record that holds what looks like the frame of another record.
#[test]
fn a_frame_inside_a_record_is_never_taken_for_one() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        store.put(vec![record(1, 400)]).await.unwrap();
        let forged = disk.bytes("00000001.log").unwrap();
        store.close().await.unwrap();
        let other = FaultyDisk::new(2);
        let other_env = Env { entropy: Arc::new(testkit::time::SeededEntropy::new(2)), ..env };
        let store = open(&other, &other_env);
        let bytes = forged[64..].to_vec().into();
        let trap = Record { bytes, ..record(2, 1) };
        store.put(vec![trap.clone(), record(3, 50)]).await.unwrap();
        store.close().await.unwrap();
        // The trap's own header is damaged, so that recovery searches through its payload.
        other.flip("00000001.log", 70, 1);
        let store = open(&other, &other_env);
        assert_eq!(store.recovery().gaps, 1);
        assert!(!store.contains(&record(1, 400).id) && !store.contains(&trap.id));
        assert_eq!(store.get(&record(3, 50).id).await.unwrap(), Some(record(3, 50)));
    });
}

#[test]
fn only_the_unfinished_tail_of_the_last_segment_is_cut() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        store.put(some(0..2, 300)).await.unwrap();
        let whole = disk.bytes("00000001.log").unwrap().len();
        store.put(some(2..3, 300)).await.unwrap();
        store.close().await.unwrap();
        let file = disk.open("00000001.log", false).unwrap();
        let len = file.len().unwrap();
        file.truncate(len - 1).unwrap();
        let store = open(&disk, &env);
        assert_eq!(store.recovery().cut_bytes, len - 1 - whole as u64);
        assert_eq!(disk.bytes("00000001.log").unwrap().len(), whole);
        assert_eq!(store.stats().records, 2);
        assert!(!store.contains(&record(2, 300).id));
        assert_eq!(store.put(some(0..3, 300)).await.unwrap(), [false, false, true]);
    });
}

#[test]
fn a_failed_sync_ends_writing_and_not_reading() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        store.put(some(0..2, 100)).await.unwrap();
        disk.fail_syncs(1);
        let failed = store.put(some(2..3, 100)).await;
        assert!(matches!(failed, Err(StoreError::Poisoned)), "{failed:?}");
        assert!(store.stats().poisoned);
        assert!(matches!(store.put(some(3..4, 100)).await, Err(StoreError::Poisoned)));
        let removed = store.remove(vec![record(0, 100).id]).await;
        assert!(matches!(removed, Err(StoreError::Poisoned)));
        assert!(!store.contains(&record(2, 100).id), "never acknowledged, never served");
        for wanted in some(0..2, 100) {
            assert_eq!(store.get(&wanted.id).await.unwrap(), Some(wanted));
        }
        store.close().await.unwrap();
        // The system still shows what the failed sync left; it must not count as stored after a
        // restart.
        let store = open(&disk, &env);
        assert_eq!(store.put(some(0..3, 100)).await.unwrap(), [false, false, true]);
        let store = open(&disk.crash(), &env);
        for wanted in some(0..3, 100) {
            assert_eq!(store.get(&wanted.id).await.unwrap(), Some(wanted));
        }
    });
}

/// The system takes for written what it could not write, and shows it as long as it is in its cache.
#[test]
fn what_a_failed_sync_kept_from_the_disk_is_not_present_at_the_next_start() {
    run(1, |env| async move {
        // Of a segment with room, and of one that is full.
        for count in [2, 20] {
            let disk = FaultyDisk::new(1);
            let everysec = options(Durability::EverySecond);
            let store = LogStore::open(Arc::new(disk.clone()), env.clone(), everysec).unwrap();
            let records = some(0..count, 900);
            store.put_kept(kept(&records[0]), None).await.unwrap();
            env.clock.sleep(Duration::from_secs(2)).await;
            disk.fail_syncs(u32::MAX);
            let mut answered = 1;
            for record in &records[1..] {
                answered += usize::from(store.put_kept(kept(record), None).await.is_ok());
            }
            assert!(answered >= 2, "{answered} were answered");
            env.clock.sleep(Duration::from_secs(2)).await;
            assert!(matches!(store.close().await, Err(StoreError::Poisoned)));
            disk.fail_syncs(0);
            let store = open(&disk, &env);
            assert!(matches!(store.get(&records[0].id).await, Ok(Some(_))), "it was synced");
            assert!(!matches!(store.get(&records[1].id).await, Ok(Some(_))), "it is not there");
            let new = store.put(records.clone()).await.unwrap();
            assert_eq!(new.iter().filter(|new| !**new).count(), 1);
            let store = open(&disk.crash(), &env);
            for record in &records {
                assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
            }
        }
    });
}

#[test]
fn what_was_not_acknowledged_goes_after_a_failed_sync_also_behind_what_was() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        let soon = Some(Durability::EverySecond);
        let before = store.put_kept(kept(&record(0, 100)), soon).await.unwrap();
        assert_eq!(before, [true], "answered, and not synced yet");
        let answered = disk.bytes("00000001.log");
        disk.fail_syncs(1);
        let failed = store.put(some(1..2, 100)).await;
        assert!(matches!(failed, Err(StoreError::Poisoned)), "{failed:?}");
        // The one that was answered is still owed, and it alone is shown still.
        assert!(matches!(store.close().await, Err(StoreError::Poisoned)));
        assert_eq!(disk.bytes("00000001.log"), answered);
        let store = open(&disk, &env);
        let new = store.put(some(0..2, 100)).await.unwrap();
        assert_eq!(new, [true, true], "neither came to the disk: they have to be written again");
        let store = open(&disk.crash(), &env);
        for wanted in some(0..2, 100) {
            assert!(store.contains(&wanted.id), "acknowledged, so it is there");
        }
    });
}

#[test]
fn a_full_disk_refuses_writes_whole_and_takes_them_when_there_is_room() {
    run(1, |env| async move {
        for reserve in [0, 3000] {
            let disk = FaultyDisk::new(1);
            disk.set_capacity(2500 + reserve);
            let options = LogOptions { reserve_free_bytes: reserve, ..options(Durability::Group) };
            let store = LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap();
            store.put(some(0..2, 500)).await.unwrap();
            let before = disk.bytes("00000001.log");
            for _ in 0..3 {
                let full = store.put(some(2..6, 500)).await;
                assert!(matches!(full, Err(StoreError::Full)), "{full:?}");
            }
            assert_eq!(disk.bytes("00000001.log"), before, "nothing of it is kept");
            assert!(!store.contains(&record(2, 500).id) && !store.stats().poisoned);
            assert_eq!(store.get(&record(1, 500).id).await.unwrap(), Some(record(1, 500)));
            // What fits is still taken, and so is a removal.
            store.put(some(2..3, 100)).await.unwrap();
            store.remove(vec![record(0, 500).id]).await.unwrap();
            disk.set_capacity(20_000 + reserve);
            store.put(some(2..6, 500)).await.unwrap();
            store.close().await.unwrap();
            let store = LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap();
            assert_eq!(store.stats().records, 6);
        }
    });
}

/// A lease that is renewed, and a word that ends one: without them a full peer would drop what is paid for, and keep what was
/// forgotten.
#[test]
fn what_is_of_leases_alone_finds_room_in_a_part_of_the_reserve() {
    run(1, |env| async move {
        let (disk, reserve) = (FaultyDisk::new(1), 8000);
        disk.set_capacity(2000 + reserve);
        let options = LogOptions { reserve_free_bytes: reserve, ..options(Durability::Group) };
        let store = LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap();
        let of = |kind, number| Record { kind, ..record(number, 500) };
        let (mut pages, mut leases) = (0, 0);
        while store.put(vec![of(Kind::Page, pages)]).await.is_ok() {
            pages += 1;
        }
        let with_another = vec![of(Kind::Page, 50), of(Kind::Lease, 51)];
        let full = store.put(with_another).await;
        assert!(
            matches!(full, Err(StoreError::Full)),
            "a lease brings no other record in: {full:?}"
        );
        let full = loop {
            match store.put(vec![of(Kind::Lease, 100 + leases)]).await {
                Ok(_) => leases += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, StoreError::Full), "{full:?}");
        assert!(pages >= 2 && (2..=4).contains(&leases), "{pages} pages, {leases} leases");
        assert!(disk.free_bytes().unwrap() > reserve / 2, "compaction has room");
        store.remove(vec![of(Kind::Page, 0).id]).await.unwrap();
    });
}

/// Who asks whether there is room may hear what the disk said a moment ago; who writes asks it anew.
#[test]
fn a_disk_is_asked_for_its_room_ten_times_a_second() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        disk.set_capacity(200 << 10);
        let free = store.stats().free_bytes;
        disk.set_capacity(100 << 10);
        env.clock.sleep(Duration::from_millis(99)).await;
        assert_eq!(store.stats().free_bytes, free);
        env.clock.sleep(Duration::from_millis(1)).await;
        let less = store.stats().free_bytes;
        assert!(less <= 100 << 10 && less < free, "{less} of {free}");
        disk.set_capacity(0);
        let full = store.put(some(0..1, 900)).await;
        assert!(matches!(full, Err(StoreError::Full)), "{full:?}");
        assert_eq!(store.stats().free_bytes, 0, "a write asked");
    });
}

/// Who asks a librarian of its room would hear that it is full, and write elsewhere.
#[test]
fn a_disk_that_does_not_say_what_is_free_is_not_full() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        disk.silence_capacity(true);
        let store = open(&disk, &env);
        assert_eq!(store.stats().free_bytes, u64::MAX);
        disk.silence_capacity(false);
        disk.set_capacity(100 << 10);
        let free = store.stats().free_bytes;
        assert!(free <= 100 << 10);
        disk.silence_capacity(true);
        assert_eq!(store.stats().free_bytes, free, "as it said last");
        store.put(some(0..1, 900)).await.unwrap();
    });
}

#[test]
fn a_failing_write_is_undone() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        store.put(some(0..1, 100)).await.unwrap();
        let before = disk.bytes("00000001.log");
        disk.fail_writes(1);
        let failed = store.put(some(1..3, 100)).await;
        assert!(matches!(failed, Err(StoreError::Io { action: "write", .. })), "{failed:?}");
        assert_eq!(disk.bytes("00000001.log"), before);
        assert_eq!(store.put(some(1..3, 100)).await.unwrap(), [true, true]);
        disk.fail_reads(true);
        assert!(matches!(store.get(&record(0, 100).id).await, Err(StoreError::Io { .. })));
        disk.fail_reads(false);
        assert!(store.get(&record(0, 100).id).await.unwrap().is_some());
    });
}

#[test]
fn every_second_syncs_within_a_second_or_so() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let options = options(Durability::EverySecond);
        let store = LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap();
        store.put(some(0..2, 100)).await.unwrap();
        env.clock.sleep(Duration::from_millis(1100)).await;
        let store = open(&disk.crash(), &env);
        assert_eq!(store.stats().records, 2);
    });
}

#[test]
fn another_suite_and_a_newer_release_are_refused() {
    run(1, |env| async move {
        let (disk, ..) = small_file(&env).await;
        let other = LogOptions { suite: crypto::Suite::Libri1, ..options(Durability::Group) };
        let refused = LogStore::open(Arc::new(disk.clone()), env.clone(), other);
        assert!(matches!(refused, Err(StoreError::Format { .. })));
    });
}

#[test]
fn without_or_with_foreign_index_files_everything_is_found() {
    run(1, |env| async move {
        let (disk, records, gone) = small_file(&env).await;
        let first = disk.open("00000001.idx", false).unwrap();
        let second = disk.open("00000002.idx", false).unwrap();
        let mut bytes = vec![0; second.len().unwrap() as usize];
        second.read_at(0, &mut bytes).unwrap();
        first.truncate(0).unwrap();
        first.write_at(0, &[std::io::IoSlice::new(&bytes)]).unwrap();
        disk.remove("00000002.idx").unwrap();
        let store = open(&disk, &env);
        assert_eq!(store.recovery().rebuilt_indexes, 2);
        for wanted in &records {
            assert_eq!(store.get(&wanted.id).await.unwrap().as_ref(), Some(wanted));
        }
        assert!(!store.contains(&gone.id));
        store.close().await.unwrap();
        assert_eq!(open(&disk, &env).recovery(), store::Recovery::default());
    });
}

/// The bytes of every index file.
fn indexes(disk: &FaultyDisk) -> Vec<(String, Vec<u8>)> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.ends_with(".idx"));
    names.sort();
    names.into_iter().map(|name| (name.clone(), disk.bytes(&name).unwrap())).collect()
}

/// Rows are written while their segment is: what comes of it is what reading the segment gives, also where a start lies
/// between, which leaves the rows of before behind the head that they were begun with.
#[test]
fn an_index_written_on_the_way_is_the_one_that_reading_the_segment_gives() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(3);
        let large = LogOptions { segment_bytes_max: 256 << 10, ..options(Durability::Group) };
        let open =
            |disk: &FaultyDisk| LogStore::open(Arc::new(disk.clone()), env.clone(), large).unwrap();
        let write = async |store: &LogStore, numbers: std::ops::Range<usize>| {
            for from in numbers.step_by(50) {
                store.put(some(from..from + 50, 40)).await.unwrap();
                store.remove(vec![record(from + 7, 40).id]).await.unwrap();
            }
        };
        let store = open(&disk);
        let mut count = 0;
        // Begun as that of a segment of nothing but its head.
        let begun = |bytes: &[u8]| bytes[24..32] == 64_u64.to_be_bytes();
        let is_unfinished = |(_, bytes): &(String, Vec<u8>)| begun(bytes) && bytes.len() > 48;
        while count < 4500 || !indexes(&disk).last().is_some_and(is_unfinished) {
            write(&store, count..count + 50).await;
            count += 50;
        }
        // As after a crash: the last segment has rows and no head yet.
        let disk = disk.copy();
        drop(store);
        let store = open(&disk);
        assert_eq!(store.recovery(), store::Recovery::default());
        write(&store, count..count + 4500).await;
        store.close().await.unwrap();
        drop(store);
        let whole = |(_, bytes): &(String, Vec<u8>)| !begun(bytes);
        let written: Vec<_> = indexes(&disk).into_iter().filter(whole).collect();
        assert!(written.len() >= 3, "{} sealed", written.len());
        for (name, _) in &written {
            disk.remove(name).unwrap();
        }
        let store = open(&disk);
        assert_eq!(store.recovery().rebuilt_indexes, written.len() as u64);
        let made: Vec<_> = indexes(&disk).into_iter().filter(whole).collect();
        assert_eq!(made, written);
        for number in 0..count + 4500 {
            let there = store.contains(&record(number, 40).id);
            assert_eq!(there, number % 50 != 7, "record {number}");
        }
    });
}

fn kept(record: &Record) -> Vec<Kept> {
    vec![Kept { record: record.clone(), form: None, new: true }]
}

/// Full segments are finished beside the writes, but whoever waits for the disk has all that was written before.
#[test]
fn who_waits_has_the_full_segments_before_it_on_the_disk() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _guard = runtime.enter();
    let env = Env::real();
    for seed in 0..20 {
        let disk = FaultyDisk::new(seed);
        let everysec = options(Durability::EverySecond);
        let store = LogStore::open(Arc::new(disk.clone()), env.clone(), everysec).unwrap();
        let records = some(0..60, 900);
        let (last, first) = records.split_last().unwrap();
        for record in first {
            assert_eq!(store.put_here(kept(record), None).unwrap(), [true]);
        }
        store.put_here(kept(last), Some(Durability::Group)).unwrap();
        let store = open(&disk.crash(), &env);
        // Index files alone are made again: they are not synced.
        let found = store.recovery();
        assert_eq!((found.cut_bytes, found.gaps, found.damaged_frames), (0, 0, 0));
        runtime.block_on(async {
            for wanted in &records {
                assert_eq!(store.get(&wanted.id).await.unwrap().as_ref(), Some(wanted));
            }
        });
    }
}

#[test]
fn what_a_power_cut_took_of_a_full_segment_is_not_served_and_can_be_put_again() {
    let mut lost = 0;
    for seed in 0..30 {
        lost += run(seed, move |env| async move {
            let disk = FaultyDisk::new(seed);
            disk.lose_syncs(100);
            let everysec = options(Durability::EverySecond);
            let store = LogStore::open(Arc::new(disk.clone()), env.clone(), everysec).unwrap();
            let records = some(0..40, 900);
            for record in &records {
                store.put_kept(kept(record), None).await.unwrap();
            }
            let disk = disk.crash();
            let Ok(store) =
                LogStore::open(Arc::new(disk.clone()), env.clone(), options(Durability::Group))
            else {
                return 0;
            };
            let mut lost = 0;
            for wanted in &records {
                match store.get(&wanted.id).await {
                    Ok(Some(found)) => assert_eq!(&found, wanted),
                    Ok(None) | Err(StoreError::Damaged { .. }) => lost += 1,
                    Err(error) => panic!("{error}"),
                }
                store.put(vec![wanted.clone()]).await.unwrap();
            }
            let store = open(&disk.crash(), &env);
            for wanted in &records {
                assert_eq!(store.get(&wanted.id).await.unwrap().as_ref(), Some(wanted));
            }
            lost
        });
    }
    assert!(lost > 0, "no power cut took anything");
}

#[test]
fn a_failed_sync_of_a_full_segment_ends_writing() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let everysec = options(Durability::EverySecond);
        let store = LogStore::open(Arc::new(disk.clone()), env.clone(), everysec).unwrap();
        let records = some(0..20, 900);
        store.put_kept(kept(&records[0]), None).await.unwrap();
        disk.fail_syncs(1);
        let mut written = 1;
        let refused = loop {
            match store.put_kept(kept(&records[written]), None).await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, StoreError::Poisoned), "{refused}");
        assert!(written < 6, "the segment is full after four");
        assert!(store.put_kept(kept(&records[19]), None).await.is_err());
        assert_eq!(store.get(&records[0].id).await.unwrap().as_ref(), Some(&records[0]));
    });
}

#[test]
fn a_read_that_fails_once_costs_no_record_where_the_new_one_finds_no_room() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        let records = some(0..2, 500);
        store.put(records.clone()).await.unwrap();
        disk.set_capacity(disk.used_bytes() + 100);
        disk.fail_reads(true);
        assert!(matches!(store.put(records.clone()).await, Err(StoreError::Full)));
        disk.fail_reads(false);
        for record in &records {
            assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
        }
        assert_eq!(store.stats().damaged, 0);
        // With room it is written again: the disk may never read the old one.
        disk.set_capacity(u64::MAX);
        disk.fail_reads_in("00000001.log", 64..164);
        assert_eq!(store.put(records.clone()).await.unwrap(), [true, false]);
        assert_eq!(store.put(records.clone()).await.unwrap(), [false, false]);
        assert_eq!(store.get(&records[0].id).await.unwrap().as_ref(), Some(&records[0]));
    });
}

/// A power cut takes payloads of the second writing of a record, and the first is whole.
#[test]
fn a_torn_copy_never_hides_a_whole_one_however_often_the_store_is_opened() {
    run(1, |env| async move {
        for sealed in [true, false] {
            let disk = FaultyDisk::new(1);
            let store = open(&disk, &env);
            let records = some(0..4, 900);
            for record in &records {
                store.put(vec![record.clone()]).await.unwrap();
            }
            // As compaction does before it removes the old one.
            store.put_kept(kept(&records[0]), None).await.unwrap();
            let torn = disk.bytes("00000002.log").unwrap().len() - 1;
            store.put(some(4..5, 900)).await.unwrap();
            if sealed {
                store.put(some(5..9, 900)).await.unwrap();
                disk.remove("00000002.idx").unwrap();
            }
            store.close().await.unwrap();
            disk.flip("00000002.log", torn, 1);
            for _ in 0..3 {
                let store = open(&disk, &env);
                assert_eq!(store.get(&records[0].id).await.unwrap().as_ref(), Some(&records[0]));
                assert_eq!(store.recovery().damaged_frames, 1);
                assert_eq!(store.stats().damaged, 0);
                // Which makes the second segment a full one, begun before this start.
                store.put(some(10..14, 900)).await.unwrap();
                store.close().await.unwrap();
            }
        }
    });
}

/// The file and the bytes of it that a record's payload takes.
fn place(disk: &FaultyDisk, record: &Record) -> (String, std::ops::Range<u64>) {
    let found = disk.list().unwrap().into_iter().find_map(|name| {
        let bytes = disk.bytes(&name)?;
        let at = bytes.windows(record.bytes.len()).position(|window| window == record.bytes)?;
        Some((name, at as u64..(at + record.bytes.len()) as u64))
    });
    found.unwrap()
}

#[test]
fn a_bad_place_keeps_no_store_from_opening_and_costs_what_lies_in_it() {
    run(1, |env| async move {
        let (disk, records, _) = small_file(&env).await;
        let (name, bytes) = place(&disk, &records[1]);
        assert_eq!(name, "00000001.log");
        // In a payload, with and without an index file; in the head of a file that has one.
        let middle = bytes.start + 100..bytes.start + 110;
        for (bad, indexed) in [(middle.clone(), true), (middle, false), (0..64, true)] {
            let disk = disk.copy();
            if !indexed {
                disk.remove("00000001.idx").unwrap();
            }
            disk.fail_reads_in(&name, bad.clone());
            let store = open(&disk, &env);
            for record in &records {
                let found = store.get(&record.id).await;
                if record.id == records[1].id && bad.start > 0 {
                    assert!(found.is_err(), "{found:?}");
                } else {
                    assert_eq!(found.unwrap().as_ref(), Some(record));
                }
            }
            store.put(some(30..31, 100)).await.unwrap();
            store.close().await.unwrap();
            assert_eq!(disk.bytes("00000001.idx").is_some(), indexed, "no index hides it");
            disk.fail_reads_in(&name, 0..0);
            let store = open(&disk, &env);
            for record in &records {
                assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
            }
        }
    });
}

/// Both copies of a segment's head lie in one sector, and without the marker that they tell nothing of it is found.
#[test]
fn a_bad_first_sector_of_a_segment_costs_what_lies_in_it_and_not_the_segment() {
    run(1, |env| async move {
        let large = LogOptions { segment_bytes_max: 64 << 10, ..options(Durability::Group) };
        let open =
            |disk: &FaultyDisk| LogStore::open(Arc::new(disk.clone()), env.clone(), large).unwrap();
        let name = "00000001.log";
        let records = some(0..40, 900);
        // Written to by one start, and by two.
        for starts in [1, 2] {
            let disk = FaultyDisk::new(1);
            for some in records.chunks(records.len() / starts) {
                let store = open(&disk);
                store.put(some.to_vec()).await.unwrap();
                store.close().await.unwrap();
            }
            let inside = |record: &Record| place(&disk, record).1.start - 88 < 4096;
            let (lost, left): (Vec<_>, Vec<_>) = records.iter().cloned().partition(inside);
            assert!((2..=6).contains(&lost.len()), "{}", lost.len());
            for rot in [false, true] {
                let disk = disk.copy();
                match rot {
                    true => (0..64).for_each(|at| disk.flip(name, at, 1)),
                    false => disk.fail_sectors_in(name, 0..1),
                }
                let store = open(&disk);
                assert_eq!(store.recovery().unreadable_segments, 0);
                for record in if rot { &records } else { &left } {
                    assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
                }
                store.put(records.clone()).await.unwrap();
                store.put(some(50..51, 900)).await.unwrap();
                store.close().await.unwrap();
                // Nothing was written to it, nor cut.
                disk.fail_reads_in(name, 0..0);
                let store = open(&disk);
                for record in records.iter().chain(&some(50..51, 900)) {
                    assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
                }
            }
        }
    });
}

#[test]
fn a_segment_of_which_nothing_can_be_read_counts_where_dropped_bytes_are_to_go() {
    run(1, |env| async move {
        let (disk, ..) = small_file(&env).await;
        disk.remove("00000001.idx").unwrap();
        (0..64).for_each(|at| disk.flip("00000001.log", at, 1));
        let store = open(&disk, &env);
        assert_eq!(store.recovery().unreadable_segments, 1);
        let options = CompactionOptions::default();
        // Nothing of it changes before another start, so neither is told of it for ever.
        for blocked in [1, 0, 0] {
            assert_eq!(store.erase(options).await.unwrap().blocked, blocked);
            assert_eq!(store.compact(options).await.unwrap().blocked, blocked);
        }
        store.close().await.unwrap();
        let store = open(&disk, &env);
        assert_eq!(store.erase(options).await.unwrap().blocked, 1);
    });
}

/// All that tells a bad place from a dead disk in the file itself lies in the same sector.
#[test]
fn a_bad_sector_that_takes_a_whole_file_keeps_no_store_from_opening_and_ends_no_upkeep() {
    run(1, |env| async move {
        let (disk, records, _) = small_file(&env).await;
        for name in disk.list().unwrap() {
            let there = disk.bytes(&name).unwrap();
            let len = there.len() as u64;
            assert!(len <= 4096, "{name} has {len} bytes");
            let disk = disk.copy();
            disk.fail_sectors_in(&name, 0..len);
            let store = open(&disk, &env);
            for record in &records {
                let inside = there.windows(record.bytes.len()).any(|window| window == record.bytes);
                match store.get(&record.id).await {
                    Ok(Some(found)) => assert_eq!(&found, record),
                    other => assert!(inside, "{name}: {other:?}"),
                }
            }
            store.erase(CompactionOptions::default()).await.unwrap();
            store.put(records.clone()).await.unwrap();
            for record in &records {
                assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
            }
            store.scrub(u64::MAX).await.unwrap();
            store.close().await.unwrap();
            // A disk that reads nothing is no bad place.
            disk.fail_reads(true);
            let opened =
                LogStore::open(Arc::new(disk.clone()), env.clone(), options(Durability::Group));
            assert!(matches!(opened, Err(StoreError::Io { .. })));
        }
    });
}

/// The records of a store that are known to be damaged.
fn damaged(store: &LogStore) -> Vec<RecordId> {
    store.damaged_ids(&RecordId::new([0; 32]), usize::MAX)
}

fn ids<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<RecordId> {
    let mut ids: Vec<RecordId> = records.map(|record| record.id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn what_an_index_lists_behind_the_end_of_its_segment_is_known_to_be_lost() {
    run(1, |env| async move {
        let (whole, records, gone) = small_file(&env).await;
        let inside = |name: &str| {
            let inside = records.iter().filter(|record| place(&whole, record).0 == name);
            inside.cloned().collect::<Vec<_>>()
        };
        let first = inside("00000001.log");
        let (_, second) = place(&whole, &first[1]);
        // In a payload, and between two frames; of a full segment, and of one whose successor is not there either.
        for (cut, is_last) in [(second.end - 1, false), (second.end, false), (second.end, true)] {
            let disk = whole.copy();
            if is_last {
                for name in disk.list().unwrap().iter().filter(|name| !name.starts_with("00000001"))
                {
                    disk.remove(name).unwrap();
                }
            }
            let file = disk.open("00000001.log", false).unwrap();
            file.truncate(cut).unwrap();
            let index = disk.bytes("00000001.idx");
            let lost = ids(first.iter().skip(if cut < second.end { 1 } else { 2 }));
            for round in 0..2 {
                let store = open(&disk, &env);
                assert!(
                    store.recovery().gaps > 0 && store.lost_records(),
                    "{:?}",
                    store.recovery()
                );
                assert_eq!(disk.bytes("00000001.idx"), index, "it is kept");
                assert_eq!(file.len().unwrap(), cut, "nothing is cut, or written behind it");
                assert_eq!(damaged(&store), if round == 0 { lost.clone() } else { vec![] });
                store.put(records.clone()).await.unwrap();
                assert!(damaged(&store).is_empty());
                for record in &records {
                    assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
                }
                assert!(!store.contains(&gone.id));
                store.scrub(u64::MAX).await.unwrap();
                store.close().await.unwrap();
            }
            let store = open(&disk, &env);
            store.remove(ids(first.iter())).await.unwrap();
            assert_eq!(store.erase(CompactionOptions::default()).await.unwrap().blocked, 0);
            assert_eq!(disk.bytes("00000001.log"), None);
            assert_eq!(store.stats().file_bytes, disk.used_bytes());
            store.close().await.unwrap();
            assert_eq!(open(&disk, &env).recovery().gaps, 0);
        }
    });
}

#[test]
fn what_an_index_lists_of_a_segment_that_is_gone_is_known_to_be_lost_and_what_it_removed_stays_so()
{
    run(1, |env| async move {
        let whole = FaultyDisk::new(1);
        let store = open(&whole, &env);
        let mut records = some(0..12, 900);
        for (at, record) in records.iter().enumerate() {
            store.put(vec![record.clone()]).await.unwrap();
            if at == 4 {
                store.remove(vec![records[0].id]).await.unwrap();
            }
        }
        store.close().await.unwrap();
        assert_eq!(place(&whole, &records[4]).0, "00000002.log");
        let gone = records.remove(0);
        let logs = whole.list().unwrap().into_iter().filter(|name| name.ends_with(".log"));
        let logs: Vec<String> = logs.collect();
        assert_eq!(logs.len(), 3);
        for (at, name) in logs.iter().enumerate() {
            let disk = whole.copy();
            disk.remove(name).unwrap();
            if at < 2 {
                let store = open(&disk, &env);
                store.scrub(u64::MAX).await.unwrap();
                store.close().await.unwrap();
            }
            let store = open(&disk, &env);
            assert_eq!(store.recovery().gaps, 1, "{name}");
            assert!(store.lost_records() && !store.contains(&gone.id));
            let inside = records.iter().filter(|record| place(&whole, record).0 == *name);
            // Of the last one nothing is listed yet.
            let lost = if at < 2 { ids(inside) } else { vec![] };
            assert_eq!(damaged(&store), lost, "{name}");
            store.compact(CompactionOptions::default()).await.unwrap();
            store.put(records.clone()).await.unwrap();
            assert!(damaged(&store).is_empty() && !store.contains(&gone.id));
            // Now that all of it is elsewhere its index file goes too.
            let done = store.erase(CompactionOptions::default()).await.unwrap();
            assert_eq!(done.blocked, 0, "{name}");
            assert_eq!(store.stats().file_bytes, disk.used_bytes());
            store.close().await.unwrap();
            let store = open(&disk, &env);
            assert_eq!(store.recovery().gaps, 0, "{name}");
            for record in &records {
                assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
            }
            assert!(!store.contains(&gone.id), "{name}");
        }
    });
}

#[test]
fn nothing_is_cut_at_a_bad_place_in_the_end_of_the_last_segment() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        let records = some(0..3, 900);
        store.put(records.clone()).await.unwrap();
        store.close().await.unwrap();
        let before = disk.bytes("00000001.log").unwrap();
        let (_, bytes) = place(&disk, &records[2]);
        // Its payload; its header, and what is behind.
        for bad in [bytes.start + 5..bytes.start + 6, bytes.start - 10..bytes.end] {
            let disk = disk.copy();
            disk.fail_reads_in("00000001.log", bad);
            let store = open(&disk, &env);
            assert_eq!(store.recovery().cut_bytes, 0);
            assert_eq!(store.get(&records[1].id).await.unwrap().as_ref(), Some(&records[1]));
            assert!(!matches!(store.get(&records[2].id).await, Ok(Some(_))));
            store.put(some(5..6, 900)).await.unwrap();
            store.close().await.unwrap();
            assert!(disk.bytes("00000001.log").unwrap() == before);
            disk.fail_reads_in("00000001.log", 0..0);
            let store = open(&disk, &env);
            for record in [&records[..], &some(5..6, 900)].concat() {
                assert_eq!(store.get(&record.id).await.unwrap(), Some(record));
            }
        }
        // A disk that reads nothing is no bad place.
        disk.fail_reads(true);
        let opened =
            LogStore::open(Arc::new(disk.clone()), env.clone(), options(Durability::Group));
        assert!(matches!(opened, Err(StoreError::Io { .. })));
    });
}

#[test]
fn a_walk_over_records_of_a_kind_goes_past_a_bad_place() {
    run(1, |env| async move {
        let (disk, records, _) = small_file(&env).await;
        let store = open(&disk, &env);
        let (name, bytes) = place(&disk, &records[1]);
        disk.fail_reads_in(&name, bytes.start + 100..bytes.start + 110);
        let mut found = Vec::new();
        let kinds: Vec<_> = records.iter().map(|record| record.kind).collect();
        let damaged = store.each_of(&kinds, &mut |part| found.push(part.id)).unwrap();
        assert_eq!(damaged, [records[1].id]);
        for (at, record) in records.iter().enumerate() {
            assert_eq!(found.contains(&record.id), at != 1);
        }
        disk.fail_reads(true);
        assert!(store.each_of(&kinds, &mut |_| {}).is_err());
        assert_eq!(store.stats().damaged, 1, "only what is known to be");
    });
}

#[test]
fn what_is_listed_leaves_out_a_bad_place_and_nothing_else() {
    run(1, |env| async move {
        let (disk, records, _) = small_file(&env).await;
        let store = open(&disk, &env);
        let first = RecordId::new([0; 32]);
        let whole = store.list(&first, 100).await.unwrap();
        let at = records.iter().position(|record| record.place != Place::from(record.id)).unwrap();
        let (name, bytes) = place(&disk, &records[at]);
        // The header that has its place.
        disk.fail_reads_in(&name, bytes.start - 40..bytes.start - 30);
        let listed = store.list(&first, 100).await.unwrap();
        let others = whole.iter().filter(|placed| placed.id != records[at].id);
        assert_eq!(listed, others.copied().collect::<Vec<_>>());
        // A disk that reads nothing does not say where anything lives.
        disk.fail_reads(true);
        let listed = store.list(&first, 100).await;
        assert!(matches!(listed, Err(StoreError::Io { .. })), "{listed:?}");
        disk.fail_reads(false);
        disk.fail_reads_in(&name, 0..0);
        assert_eq!(store.list(&first, 100).await.unwrap(), whole);
    });
}
