//! The record log beside plain files and fjall, on the same bytes and the same disk: `cargo bench
//! -p store`.
//!
//! Absolute figures do not repeat on shared machines, so the table shows ratios within one run.
//! Every line is the median of three rounds, the contenders taking turns. Everything is
//! acknowledged after an fsync that covers it. Checksums and their check on reading are part of our
//! figures; plain files have none. Records are written once and read back from the page cache, in
//! an order that is not that of writing.
#![allow(clippy::unwrap_used, reason = "a program that stops at the first failure")]

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crypto::{Place, RecordId};
use document::{Kind, Record};
use env::Env;
use env::disk::DirDisk;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use futures::StreamExt;
use store::{LogOptions, LogStore, RecordStore};

const ROUNDS: usize = 3;
const LARGE_BYTES: usize = 2 << 20;
const LARGE_RECORDS: usize = 256;
const SMALL_BYTES: usize = 1 << 10;
const SMALL_BATCH: usize = 100;
const SMALL_BATCHES: usize = 500;
/// Plain files are too slow for as many.
const SMALL_FILE_BATCHES: usize = 20;
const OPEN_RECORDS: usize = 1_000_000;

/// xorshift bytes: nothing compresses them.
fn record(number: usize, len: usize) -> Record {
    let mut state = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next()).take(len).collect();
    let id: Vec<u8> = (0..4).flat_map(|_| next()).collect();
    let id = RecordId::from_slice(&id).unwrap();
    Record { kind: Kind::Page, id, place: Place::from(id), bytes: Bytes::from(bytes) }
}

/// What one contender did: seconds to write, seconds to read.
type Seconds = (f64, f64);

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Not the order of writing.
fn shuffled(records: &[Record]) -> impl Iterator<Item = &Record> {
    (0..records.len()).map(|i| &records[i * 7919 % records.len()])
}

fn log(folder: &Path, batches: &[Vec<Record>], in_flight: usize) -> Seconds {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let disk = Arc::new(DirDisk::open(folder).unwrap());
        let store = LogStore::open(disk, Env::real(), LogOptions::default()).unwrap();
        let start = Instant::now();
        futures::stream::iter(batches.to_vec())
            .map(|batch| {
                let store = store.clone();
                async move { store.put(batch).await.unwrap() }
            })
            .buffer_unordered(in_flight)
            .for_each(|new| async move { assert!(new.iter().all(|new| *new)) })
            .await;
        let write = start.elapsed().as_secs_f64();
        let all = batches.concat();
        let start = Instant::now();
        for wanted in shuffled(&all) {
            let found = store.get(&wanted.id).await.unwrap().unwrap();
            assert_eq!(found.bytes.len(), wanted.bytes.len());
        }
        let read = start.elapsed().as_secs_f64();
        store.close().await.unwrap();
        (write, read)
    })
}

fn files(folder: &Path, batches: &[Vec<Record>]) -> Seconds {
    let all = batches.concat();
    let write = seconds(|| {
        for record in &all {
            let mut file = fs::File::create(folder.join(record.id.to_string())).unwrap();
            file.write_all(&record.bytes).unwrap();
            file.sync_data().unwrap();
        }
        fs::File::open(folder).unwrap().sync_all().unwrap();
    });
    let read = seconds(|| {
        for record in shuffled(&all) {
            let mut bytes = Vec::with_capacity(record.bytes.len());
            fs::File::open(folder.join(record.id.to_string()))
                .unwrap()
                .read_to_end(&mut bytes)
                .unwrap();
            assert_eq!(bytes.len(), record.bytes.len());
        }
    });
    (write, read)
}

fn fjall(folder: &Path, batches: &[Vec<Record>]) -> Seconds {
    let database = Database::builder(folder).open().unwrap();
    let options = || {
        KeyspaceCreateOptions::default().with_kv_separation(Some(KvSeparationOptions::default()))
    };
    let keyspace: Keyspace = database.keyspace("records", options).unwrap();
    let write = seconds(|| {
        for records in batches {
            let mut batch = database.batch();
            for record in records {
                batch.insert(&keyspace, record.id.as_bytes().as_slice(), record.bytes.to_vec());
            }
            batch.commit().unwrap();
            database.persist(PersistMode::SyncData).unwrap();
        }
    });
    let all = batches.concat();
    let read = seconds(|| {
        for record in shuffled(&all) {
            let found = keyspace.get(record.id.as_bytes()).unwrap().unwrap();
            assert_eq!(found.len(), record.bytes.len());
        }
    });
    (write, read)
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// Runs a contender in a folder of its own, on a disk that has nothing left to write.
fn fresh(work: impl FnOnce(&Path) -> Seconds) -> Seconds {
    let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    settle_disk();
    work(folder.path())
}

fn settle_disk() {
    // `sync` of the whole system: writes of the contender before must not be paid by this one.
    let _ = std::process::Command::new("sync").status();
}

type Contender<'a> = (&'static str, usize, Box<dyn Fn(&Path) -> Seconds + 'a>);

/// Prints a table: a contender's amount (MB or thousands of records) a second, and how many times
/// that the first contender does.
fn table(title: &str, unit: &str, contenders: &[Contender<'_>], amount: impl Fn(usize) -> f64) {
    println!(
        "\n{title}\n{:24} {:>12} {:>7} {:>12} {:>7}",
        "",
        format!("write {unit}"),
        "log is",
        format!("read {unit}"),
        "log is"
    );
    let mut rounds = vec![(Vec::new(), Vec::new()); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, _, work), (writes, reads)) in contenders.iter().zip(&mut rounds) {
            let (write, read) = fresh(work);
            writes.push(write);
            reads.push(read);
        }
    }
    let mut first = None;
    for ((name, batches, _), (writes, reads)) in contenders.iter().zip(rounds) {
        let (write, read) = (amount(*batches) / median(writes), amount(*batches) / median(reads));
        let (base_write, base_read) = *first.get_or_insert((write, read));
        println!(
            "{name:24} {write:12.1} {:7.2} {read:12.1} {:7.2}",
            base_write / write,
            base_read / read
        );
    }
}

fn open_a_million() {
    let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let open = || {
            let disk = Arc::new(DirDisk::open(folder.path()).unwrap());
            let options = LogOptions { segment_bytes_max: 32 << 20, ..LogOptions::default() };
            LogStore::open(disk, Env::real(), options).unwrap()
        };
        let store = open();
        for batch in 0..OPEN_RECORDS / 10_000 {
            let records = (0..10_000).map(|i| record(batch * 10_000 + i, 200)).collect();
            store.put(records).await.unwrap();
        }
        store.close().await.unwrap();
        drop(store);
        let before = resident_bytes();
        let start = Instant::now();
        let store = open();
        let took = start.elapsed();
        assert_eq!(store.stats().records, OPEN_RECORDS as u64);
        let grown = resident_bytes().saturating_sub(before);
        println!(
            "\nopening {OPEN_RECORDS} records: {took:.2?}; {:.0} bytes of memory a record",
            grown as f64 / OPEN_RECORDS as f64
        );
    });
}

fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn main() {
    open_a_million();
    let large: Vec<Vec<Record>> =
        (0..LARGE_RECORDS).map(|i| vec![record(i, LARGE_BYTES)]).collect();
    let contenders: Vec<Contender<'_>> = vec![
        ("log, 1 in flight", LARGE_RECORDS, Box::new(|folder| log(folder, &large, 1))),
        ("log, 4 in flight", LARGE_RECORDS, Box::new(|folder| log(folder, &large, 4))),
        ("plain files", LARGE_RECORDS, Box::new(|folder| files(folder, &large))),
        ("fjall, kv-separated", LARGE_RECORDS, Box::new(|folder| fjall(folder, &large))),
    ];
    table("2 MiB records", "MB/s", &contenders, |batches| (batches * LARGE_BYTES) as f64 / 1e6);
    drop(contenders);
    drop(large);
    let small: Vec<Vec<Record>> = (0..SMALL_BATCHES)
        .map(|i| (0..SMALL_BATCH).map(|j| record(i * SMALL_BATCH + j, SMALL_BYTES)).collect())
        .collect();
    let contenders: Vec<Contender<'_>> = vec![
        ("log, 1 in flight", SMALL_BATCHES, Box::new(|folder| log(folder, &small, 1))),
        ("log, 16 in flight", SMALL_BATCHES, Box::new(|folder| log(folder, &small, 16))),
        (
            "plain files",
            SMALL_FILE_BATCHES,
            Box::new(|folder| files(folder, &small[..SMALL_FILE_BATCHES])),
        ),
        ("fjall, kv-separated", SMALL_BATCHES, Box::new(|folder| fjall(folder, &small))),
    ];
    let thousands = |batches: usize| (batches * SMALL_BATCH) as f64 / 1e3;
    table("1 KiB records, batches of 100", "k/s", &contenders, thousands);
}
