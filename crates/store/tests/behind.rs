//! A log whose puts wait for no fsync, on a real disk: they are read at once, by whoever has the segment open how, and outlive
//! the process.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use crypto::Suite;
use document::{Kind, Record};
use env::Env;
use env::disk::DirDisk;
use store::{CompactionOptions, Durability, Kept, LogOptions, LogStore, RecordStore};

fn record(number: u32, len: usize) -> Record {
    let bytes: Vec<u8> = number.to_be_bytes().into_iter().cycle().take(len).collect();
    let id = Suite::Holdfast1.id(&bytes);
    Record { kind: Kind::Page, id, place: id.into(), bytes: bytes.into() }
}

fn open(folder: &Path) -> Arc<LogStore> {
    let disk = Arc::new(DirDisk::open(folder).unwrap());
    LogStore::open(disk, Env::real(), LogOptions::default()).unwrap()
}

async fn put(store: &LogStore, record: &Record, durability: Durability) {
    let kept = Kept { record: record.clone(), form: None, new: false };
    store.put_kept(vec![kept], Some(durability)).await.unwrap();
}

async fn check(store: &LogStore, records: &[Record]) {
    for record in records {
        assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
    }
}

#[tokio::test]
async fn what_waits_for_no_fsync_is_read_at_once_and_after_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut records = Vec::new();
    for round in 0..3 {
        let store = open(folder.path());
        // The segment was read before anything of it was in memory only.
        check(&store, &records).await;
        for number in 0..300 {
            let durability = match number % 100 {
                99 => Durability::Group,
                _ => Durability::EverySecond,
            };
            let new = record(round * 1000 + number, 700 + number as usize * 13);
            put(&store, &new, durability).await;
            records.push(new);
            if number % 10 == 0 {
                let last = records.len().saturating_sub(5);
                check(&store, &records[last..]).await;
            }
        }
        check(&store, &records).await;
        assert_eq!(store.stats().damaged, 0);
        store.close().await.unwrap();
    }
    let store = open(folder.path());
    assert_eq!(store.recovery(), store::Recovery::default());
    check(&store, &records).await;
}

#[tokio::test]
async fn erasing_takes_what_was_removed_out_of_every_file_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let records: Vec<Record> = (7_000_001..7_000_040).map(|number| record(number, 5000)).collect();
    for record in &records {
        put(&store, record, Durability::EverySecond).await;
    }
    let (kept, gone) = records.split_at(10);
    store.remove(gone.iter().map(|record| record.id).collect()).await.unwrap();
    store.erase(CompactionOptions { dead_percent: 0, bytes_per_s: u64::MAX }).await.unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        for record in gone {
            let there = bytes.windows(100).any(|bytes| bytes == &record.bytes[..100]);
            assert!(!there, "{} has some of it", path.display());
        }
    }
    check(&store, kept).await;
    put(&store, &gone[0], Durability::EverySecond).await;
    check(&store, &gone[..1]).await;
}
