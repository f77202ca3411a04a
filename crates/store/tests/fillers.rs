//! Large records on a real disk, with fillers before and behind them: they are read, found again without an index, moved and
//! erased like any others, and compaction does not take a filler for something dead.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::Suite;
use document::{Kind, Record};
use env::Env;
use env::disk::{BULK_BYTES_MIN, DirDisk, Disk};
use store::{CompactionOptions, Durability, LogOptions, LogStore, RecordStore};

const FAST: CompactionOptions = CompactionOptions { dead_percent: 33, bytes_per_s: u64::MAX };

/// A record whose bytes lie anywhere in memory.
fn record(number: usize) -> Record {
    let len = match number % 3 {
        0 => 500 + number,
        1 => BULK_BYTES_MIN + number * 7,
        _ => 3 * BULK_BYTES_MIN + number * 1003,
    };
    let shift = number * 577 % 4096;
    let bytes: Vec<u8> = (0..shift + len).map(|at| (at + number * 31) as u8).collect();
    let bytes = Bytes::from(bytes).slice(shift..);
    let id = Suite::Holdfast1.id(&bytes);
    Record { kind: Kind::Page, id, place: id.into(), bytes }
}

fn open(folder: &Path) -> Arc<LogStore> {
    let options = LogOptions {
        segment_bytes_max: 4 << 20,
        durability: Durability::Group,
        ..LogOptions::default()
    };
    let disk = Arc::new(DirDisk::open(folder).unwrap());
    LogStore::open(disk, Env::real(), options).unwrap()
}

async fn check(store: &LogStore, records: &[Record]) {
    assert_eq!(store.stats().records, records.len() as u64);
    assert_eq!(store.stats().damaged, 0);
    for record in records {
        assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
    }
    let pass = store.scrub(u64::MAX).await.unwrap();
    assert_eq!((pass.damaged, pass.damaged_ranges), (0, 0));
    assert_eq!(pass.records, records.len() as u64);
}

fn whole(store: &LogStore) {
    let recovery = store.recovery();
    assert_eq!((recovery.gaps, recovery.damaged_frames, recovery.cut_bytes), (0, 0, 0));
}

#[tokio::test]
async fn large_records_between_fillers_are_like_any_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut records: Vec<Record> = (0..40).map(record).collect();
    let store = open(folder.path());
    for some in records.chunks(5) {
        let each = some.iter().map(|record| store.put(vec![record.clone()]));
        futures::future::try_join_all(each).await.unwrap();
    }
    check(&store, &records).await;
    store.close().await.unwrap();

    // With the index files, and without one of them.
    for without in [false, true] {
        if without {
            for file in folder.path().read_dir().unwrap() {
                let path = file.unwrap().path();
                if path.extension().is_some_and(|ending| ending == "idx") {
                    std::fs::remove_file(path).unwrap();
                }
            }
        }
        let store = open(folder.path());
        whole(&store);
        check(&store, &records).await;
        store.close().await.unwrap();
    }

    // With nothing removed there is nothing to compact, however much of a segment fillers are.
    let store = open(folder.path());
    let none = CompactionOptions { dead_percent: 0, ..FAST };
    let compacted = tokio::time::timeout(Duration::from_secs(60), store.compact(none));
    let done = compacted.await.expect("it ends").unwrap();
    assert_eq!((done.segments, done.moved_bytes), (0, 0));
    let erased = tokio::time::timeout(Duration::from_secs(60), store.erase(FAST));
    let done = erased.await.expect("it ends").unwrap();
    assert_eq!((done.segments, done.moved_bytes), (0, 0));

    let gone: Vec<Record> =
        records.extract_if(.., |record| record.id.as_bytes()[0] % 2 == 0).collect();
    assert!(!gone.is_empty() && !records.is_empty());
    store.remove(gone.iter().map(|record| record.id).collect()).await.unwrap();
    let before = store.stats().file_bytes;
    let erased = tokio::time::timeout(Duration::from_secs(60), store.erase(FAST));
    let done = erased.await.expect("it ends").unwrap();
    assert!(done.segments > 0 && store.stats().file_bytes < before, "{done:?}");
    check(&store, &records).await;
    store.close().await.unwrap();
    let store = open(folder.path());
    whole(&store);
    check(&store, &records).await;
}

/// A byte of any filler that rots costs no record, and is told.
#[tokio::test]
async fn a_damaged_filler_costs_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let records: Vec<Record> = [4, 7].map(record).to_vec();
    let store = open(folder.path());
    for record in &records {
        store.put(vec![record.clone()]).await.unwrap();
    }
    store.close().await.unwrap();
    let path = folder.path().join("00000001.log");
    let bytes = std::fs::read(&path).unwrap();
    let marker = &bytes[20..28];
    let frames = bytes.windows(10).enumerate().skip(64);
    let fillers = frames.filter(|(_, bytes)| bytes[..8] == *marker && bytes[8..] == [0, 8]);
    let fillers: Vec<usize> = fillers.map(|(at, _)| at).collect();
    let file = DirDisk::open(folder.path()).unwrap().open("00000001.log", false).unwrap();
    let Some(last) = fillers.last().copied() else {
        assert_eq!(file.memory_alignment(), None, "a disk that takes direct writes has fillers");
        return;
    };
    for at in fillers {
        // In its header, and in what it holds.
        for byte in [at + 20, at + 53] {
            let mut other = bytes.clone();
            other[byte] ^= 1;
            std::fs::write(&path, &other).unwrap();
            let store = open(folder.path());
            let recovery = store.recovery();
            assert!(recovery.gaps + recovery.damaged_frames > 0 || at == last, "{recovery:?}");
            for record in &records {
                assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
            }
            store.close().await.unwrap();
        }
    }
}
