//! One pass of a scrub finds every flipped byte, at its pace, and what it finds is healed by a put.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{Place, RecordId, Suite};
use document::{Kind, Record};
use env::Env;
use env::disk::Disk;
use store::{CompactionOptions, LogOptions, LogStore, RecordStore, ScrubCursor, StoreError};
use testkit::disk::FaultyDisk;
use testkit::network::noise;
use testkit::time::run;

fn open(disk: &FaultyDisk, env: &Env) -> Arc<LogStore> {
    let options =
        LogOptions { segment_bytes_max: 4 << 10, reserve_free_bytes: 0, ..LogOptions::default() };
    LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap()
}

/// A record whose id is the hash of its bytes; every second has a place of its own.
fn hashed(number: usize, len: usize) -> Record {
    let bytes: Bytes = noise("scrubbed", number, len);
    let id = Suite::Holdfast1.id(&bytes);
    let place = match number % 2 {
        0 => Place::new(Suite::Holdfast1.hash(id.as_bytes())),
        _ => Place::from(id),
    };
    Record { kind: Kind::Page, id, place, bytes }
}

const FIRST: RecordId = RecordId::new([0; 32]);

async fn filled(disk: &FaultyDisk, env: &Env, records: usize, len: usize) -> Vec<Record> {
    let store = open(disk, env);
    let records: Vec<Record> = (0..records).map(|number| hashed(number, len)).collect();
    for record in &records {
        store.put(vec![record.clone()]).await.unwrap();
    }
    let gone = hashed(1000, len);
    store.put(vec![gone.clone()]).await.unwrap();
    store.remove(vec![gone.id]).await.unwrap();
    store.close().await.unwrap();
    records
}

#[test]
fn one_pass_finds_a_flipped_byte_anywhere_in_the_log() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let records = filled(&disk, &env, 8, 700).await;
        let clean = open(&disk, &env).scrub(1 << 30).await.unwrap();
        assert_eq!((clean.records, clean.damaged, clean.damaged_ranges), (8, 0, 0));
        let logs = disk.list().unwrap().into_iter().filter(|name| name.ends_with(".log"));
        for name in logs {
            for offset in 0..disk.bytes(&name).unwrap().len() {
                let rotten = disk.copy();
                let store = open(&rotten, &env);
                rotten.flip(&name, offset, 1 << (offset % 8));
                let pass = store.scrub(1 << 30).await.unwrap();
                assert!(pass.damaged + pass.damaged_ranges >= 1, "{name} at {offset}: {pass:?}");
                assert!(pass.damaged <= 1, "{name} at {offset}: {pass:?}");
                let found = store.damaged_ids(&FIRST, 10);
                assert_eq!(found.len() as u64, pass.damaged);
                assert_eq!(store.stats().damaged, pass.damaged);
                for id in &found {
                    let read = store.get(id).await;
                    assert!(matches!(read, Err(StoreError::Damaged { .. })), "{read:?}");
                    let record = records.iter().find(|record| record.id == *id).unwrap();
                    assert_eq!(store.put(vec![record.clone()]).await.unwrap(), [true]);
                    assert_eq!(store.get(id).await.unwrap().as_ref(), Some(record));
                }
                assert_eq!(store.stats().damaged, 0);
                assert!(store.damaged_ids(&FIRST, 10).is_empty());
            }
        }
    });
}

#[test]
fn a_record_that_was_wrong_before_it_was_written_is_found() {
    run(1, |env| async move {
        let store = open(&FaultyDisk::new(1), &env);
        let mut wrong = hashed(1, 300);
        wrong.bytes = noise("other", 1, 300);
        store.put(vec![hashed(0, 300), wrong.clone(), hashed(2, 300)]).await.unwrap();
        let step = store.scrub_step(ScrubCursor::default(), 1 << 20).await.unwrap();
        assert_eq!(step.damaged, [wrong.id]);
        assert_eq!((step.records, step.cursor), (3, None));
        store.put(vec![hashed(1, 300)]).await.unwrap();
        assert_eq!(store.get(&wrong.id).await.unwrap(), Some(hashed(1, 300)));
    });
}

#[test]
fn a_pass_takes_as_long_as_its_pace_says() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        filled(&disk, &env, 20, 1000).await;
        let store = open(&disk, &env);
        for bytes_per_s in [500, 5_000] {
            let begun = env.clock.elapsed();
            let pass = store.scrub(bytes_per_s).await.unwrap();
            let took = env.clock.elapsed() - begun;
            assert!(pass.bytes > 20_000);
            let wanted = Duration::from_millis(pass.bytes * 1000 / bytes_per_s);
            assert!(took >= wanted && took < wanted + Duration::from_secs(1), "{took:?}");
        }
    });
}

#[test]
fn steps_are_bounded_and_see_everything_once_beside_writers() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        filled(&disk, &env, 30, 500).await;
        let store = open(&disk, &env);
        let mut cursor = ScrubCursor::default();
        let (mut records, mut steps) = (0, 0);
        loop {
            let step = store.scrub_step(cursor, 600).await.unwrap();
            assert!(step.bytes <= 600 + 64 + 88 + 500, "{step:?}");
            assert!(step.damaged.is_empty() && step.damaged_ranges == 0, "{step:?}");
            records += step.records;
            steps += 1;
            if steps <= 5 {
                store.put(vec![hashed(100 + steps, 200)]).await.unwrap();
            }
            let Some(next) = step.cursor else { break };
            assert_ne!(next, cursor, "it goes on");
            cursor = next;
        }
        assert_eq!(records, 35);
        assert!(steps >= 15);
        store.close().await.unwrap();
        let closed = store.scrub_step(ScrubCursor::default(), 1).await;
        assert!(matches!(closed, Err(StoreError::Closed)));
    });
}

#[test]
fn a_disk_that_cannot_be_read_is_an_error_and_marks_nothing() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        filled(&disk, &env, 3, 500).await;
        let store = open(&disk, &env);
        disk.fail_reads(true);
        assert!(matches!(store.scrub(1 << 20).await, Err(StoreError::Io { .. })));
        disk.fail_reads(false);
        assert_eq!(store.stats().damaged, 0);
    });
}

/// Their ids are of BLAKE3 whatever the suite.
#[test]
fn what_is_kept_of_leases_is_sound_in_every_suite() {
    run(9, |env| async move {
        let disk = FaultyDisk::new(9);
        let options = LogOptions { suite: Suite::Libri1, ..LogOptions::default() };
        let options = LogOptions { reserve_free_bytes: 0, ..options };
        let store = LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap();
        let bytes: Bytes = noise("lease", 1, 700);
        let id = Suite::Holdfast1.id(&bytes);
        let lease = Record { kind: Kind::Lease, id, place: id.into(), bytes };
        let bytes: Bytes = noise("page", 1, 700);
        let id = Suite::Libri1.id(&bytes);
        let page = Record { kind: Kind::Page, id, place: id.into(), bytes };
        store.put(vec![lease, page]).await.unwrap();
        let pass = store.scrub(1 << 30).await.unwrap();
        assert_eq!((pass.records, pass.damaged), (2, 0));
    });
}

#[test]
fn what_lies_in_a_bad_sector_is_marked_and_mended_and_the_rest_is_checked() {
    run(1, |env| async move {
        let len = 700;
        let disk = FaultyDisk::new(1);
        let options = LogOptions { reserve_free_bytes: 0, ..LogOptions::default() };
        let store = LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap();
        let records: Vec<Record> = (0..60).map(|number| hashed(number, len)).collect();
        store.put(records.clone()).await.unwrap();
        let name = "00000001.log";
        let bytes = disk.bytes(name).unwrap();
        let frame = |record: &Record| {
            let payload =
                bytes.windows(len).position(|window| window == record.bytes).unwrap() as u64;
            let header = if record.place == Place::from(record.id) { 56 } else { 88 };
            payload - header..payload + len as u64
        };
        for (bad, heads) in [(0..4096, 1), (12_288..16_384, 0), (20_480..28_672, 0)] {
            let disk = disk.copy();
            let store = LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap();
            disk.fail_reads_in(name, bad.clone());
            let mut hit: Vec<RecordId> = records
                .iter()
                .filter(|record| frame(record).start < bad.end && bad.start < frame(record).end)
                .map(|record| record.id)
                .collect();
            hit.sort_unstable();
            assert!(hit.len() >= 5);
            let pass = store.scrub(1 << 30).await.unwrap();
            assert_eq!((pass.damaged, pass.damaged_ranges), (hit.len() as u64, heads), "{pass:?}");
            assert_eq!(pass.records, 60 - hit.len() as u64);
            assert_eq!(store.damaged_ids(&FIRST, 60), hit);
            let new = store.put(records.clone()).await.unwrap();
            assert_eq!(new.iter().filter(|new| **new).count(), hit.len());
            let again = store.scrub(1 << 30).await.unwrap();
            assert_eq!((again.records, again.damaged), (60, 0));
            for record in &records {
                assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
            }
        }
    });
}

/// Each is open, so that all of it can be read until the next start, and not behind it.
#[test]
fn what_is_in_a_segment_removed_beside_the_store_is_written_into_another() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        let records: Vec<Record> = (0..8).map(|number| hashed(number, 700)).collect();
        for record in &records {
            store.put(vec![record.clone()]).await.unwrap();
        }
        let logs = || {
            let names = disk.list().unwrap().into_iter();
            names.filter(|name| name.ends_with(".log")).collect::<Vec<_>>()
        };
        // The last of them is the one that is written to.
        let gone = logs();
        assert!(gone.len() > 1);
        gone.iter().for_each(|name| disk.remove(name).unwrap());
        for _ in 0..2 {
            let pass = store.scrub(1 << 30).await.unwrap();
            assert_eq!((pass.records, pass.damaged), (8, 0));
        }
        // The one that is written to is ended by the next write.
        let more = hashed(8, 700);
        assert_eq!(store.put(vec![more.clone()]).await.unwrap(), [true]);
        let done = store.compact(CompactionOptions::default()).await.unwrap();
        assert_eq!((done.segments, done.blocked), (gone.len() as u64, 0));
        assert!(logs().iter().all(|name| !gone.contains(name)));
        store.close().await.unwrap();
        let store = open(&disk, &env);
        for record in records.iter().chain([&more]) {
            assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
        }
        assert_eq!(store.scrub(1 << 30).await.unwrap().damaged, 0);
    });
}
