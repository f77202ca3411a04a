//! Compaction gives back what was removed, brings nothing back, and disturbs nobody.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use document::Record;
use env::disk::Disk;
use env::{Env, Task, Tasks};
use futures::future::BoxFuture;
use store::{CompactionOptions, LogOptions, LogStore, RecordStore, StoreError};
use testkit::disk::FaultyDisk;
use testkit::store::record;
use testkit::time::run;

const FAST: CompactionOptions = CompactionOptions { dead_percent: 33, bytes_per_s: u64::MAX };
const LEN: usize = 700;

fn open_with_reserve(disk: &FaultyDisk, env: &Env, reserve: u64) -> Arc<LogStore> {
    let options = LogOptions {
        segment_bytes_max: 4 << 10,
        reserve_free_bytes: reserve,
        ..LogOptions::default()
    };
    LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap()
}

fn open(disk: &FaultyDisk, env: &Env) -> Arc<LogStore> {
    open_with_reserve(disk, env, 0)
}

fn some(numbers: std::ops::Range<usize>) -> Vec<Record> {
    numbers.map(|number| record(number, LEN)).collect()
}

async fn put_each(store: &LogStore, records: &[Record]) {
    for record in records {
        store.put(vec![record.clone()]).await.unwrap();
    }
}

/// Whether these records are all there, and no others.
async fn holds(store: &LogStore, wanted: &[Record]) {
    assert_eq!(store.stats().records, wanted.len() as u64);
    for record in wanted {
        assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
    }
}

/// All but every `keep`-th of the records removed; those left are returned.
async fn thin_out(store: &LogStore, records: &[Record], keep: usize) -> Vec<Record> {
    let (kept, gone): (Vec<_>, Vec<_>) =
        records.iter().cloned().enumerate().partition(|(at, _)| at % keep == 0);
    store.remove(gone.into_iter().map(|(_, record)| record.id).collect()).await.unwrap();
    kept.into_iter().map(|(_, record)| record).collect()
}

#[test]
fn removing_frees_the_space_and_nothing_comes_back() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        let records = some(0..100);
        put_each(&store, &records).await;
        let full = disk.used_bytes();
        let kept = thin_out(&store, &records, 10).await;
        let done = store.compact(FAST).await.unwrap();
        assert!(done.segments >= 15 && done.blocked == 0, "{done:?}");
        assert!(done.moved_bytes >= 10 * LEN as u64 && done.moved_bytes < full / 4, "{done:?}");
        assert_eq!(store.stats().file_bytes, disk.used_bytes(), "the count is the disk's");
        assert!(disk.used_bytes() < full / 3, "{} of {full}", disk.used_bytes());
        holds(&store, &kept).await;
        let again = store.compact(FAST).await.unwrap();
        assert_eq!(again.moved_bytes, 0, "it ends: {again:?}");
        // A power cut now, and every later opening, find the same.
        for disk in [disk.copy(), disk.crash()] {
            holds(&open(&disk, &env), &kept).await;
        }
    });
}

#[test]
fn a_removal_is_kept_as_long_as_an_older_segment_has_the_record() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        // The first segment stays: one dead record of five is below the share.
        let first = some(0..5);
        put_each(&store, &first).await;
        let second = some(5..10);
        put_each(&store, &second).await;
        store.remove(vec![first[0].id]).await.unwrap();
        put_each(&store, &some(10..15)).await;
        let mut gone: Vec<_> = second.iter().map(|record| record.id).collect();
        gone.extend(some(10..14).iter().map(|record| record.id));
        store.remove(gone).await.unwrap();
        put_each(&store, &some(20..30)).await;
        let names = disk.list().unwrap();
        let done = store.compact(FAST).await.unwrap();
        assert!(done.segments >= 1);
        assert!(disk.bytes("00000001.log").is_some());
        assert!(names.len() > disk.list().unwrap().len());
        store.close().await.unwrap();
        let store = open(&disk, &env);
        assert!(!store.contains(&first[0].id), "the removal moved with the rest");
        holds(&store, &[some(1..5), some(14..15), some(20..30)].concat()).await;
    });
}

#[test]
fn writers_and_readers_go_on_beside_it_at_its_pace() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        let records = some(0..60);
        put_each(&store, &records).await;
        let kept = thin_out(&store, &records, 2).await;
        let begun = env.clock.elapsed();
        let options = CompactionOptions { dead_percent: 33, bytes_per_s: 2000 };
        let beside = async {
            for number in 60..80 {
                store.put(some(number..number + 1)).await.unwrap();
                store.remove(vec![kept[number - 60].id]).await.unwrap();
                for record in &kept[number - 59..] {
                    assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
                }
                env.clock.sleep(Duration::from_millis(700)).await;
            }
        };
        let (done, ()) = futures::join!(store.compact(options), beside);
        let done = done.unwrap();
        let took = env.clock.elapsed() - begun;
        assert!(done.segments >= 5, "{done:?}");
        assert!(took >= Duration::from_millis(done.moved_bytes / 2), "{took:?} {done:?}");
        let wanted = [kept[20..].to_vec(), some(60..80)].concat();
        holds(&store, &wanted).await;
        holds(&open(&disk.crash(), &env), &wanted).await;
    });
}

#[test]
fn a_segment_with_a_damaged_record_waits_until_it_is_healed() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        let records = some(0..15);
        put_each(&store, &records).await;
        let kept = thin_out(&store, &records[..5], 5).await;
        disk.flip("00000001.log", 64 + 88 + 10, 1);
        let done = store.compact(FAST).await.unwrap();
        assert_eq!((done.segments, done.blocked), (0, 1));
        assert!(matches!(store.get(&kept[0].id).await, Err(StoreError::Damaged { .. })));
        store.put(kept.clone()).await.unwrap();
        let done = store.compact(FAST).await.unwrap();
        assert_eq!((done.segments, done.blocked), (1, 0));
        holds(&store, &[kept, some(5..15)].concat()).await;
    });
}

#[test]
fn a_segment_for_which_there_is_no_room_keeps_no_other_from_being_compacted() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let open = |segment_bytes_max| {
            let options =
                LogOptions { segment_bytes_max, reserve_free_bytes: 0, ..LogOptions::default() };
            LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap()
        };
        let store = open(1 << 20);
        let large = some(0..100);
        put_each(&store, &large).await;
        let gone = large[10..].iter().map(|record| record.id).collect();
        store.remove(gone).await.unwrap();
        store.close().await.unwrap();
        let live: usize = large[..10].iter().map(|record| record.bytes.len()).sum();
        let store = open(live as u64 / 2);
        let small = some(100..140);
        put_each(&store, &small).await;
        let kept = thin_out(&store, &small, 4).await;
        disk.set_capacity(disk.used_bytes() + live as u64 * 3 / 4);
        // The emptiest is the large one, and the others make room for it.
        store.compact(FAST).await.unwrap();
        assert!(disk.bytes("00000001.log").is_none());
        holds(&store, &[&large[..10], &kept].concat()).await;
    });
}

#[test]
fn half_of_the_reserve_is_left_alone_and_what_is_dead_goes() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        let records = some(0..30);
        put_each(&store, &records).await;
        store.remove(records[..5].iter().map(|record| record.id).collect()).await.unwrap();
        let kept = thin_out(&store, &records[5..], 2).await;
        store.close().await.unwrap();
        let store = open_with_reserve(&disk, &env, 200_000);
        disk.set_capacity(disk.used_bytes() + 50_000);
        let before = disk.used_bytes();
        assert!(matches!(store.compact(FAST).await, Err(StoreError::Full)));
        assert!(disk.bytes("00000001.log").is_none(), "wholly dead");
        assert!(disk.used_bytes() < before);
        holds(&store, &kept).await;
        let after = disk.used_bytes();
        assert!(matches!(store.compact(FAST).await, Err(StoreError::Full)));
        assert_eq!(disk.used_bytes(), after, "no room is taken where none is given back");
        store.close().await.unwrap();
        // Writes find the disk full, and compaction makes it less so.
        let store = open_with_reserve(&disk, &env, 100_000);
        let more = some(900..901).pop().unwrap();
        assert!(store.stats().free_bytes < more.bytes.len() as u64);
        store.compact(FAST).await.unwrap();
        assert!(disk.used_bytes() < after);
        holds(&store, &kept).await;
    });
}

/// Whether any file has this record's bytes.
fn on_disk(disk: &FaultyDisk, record: &Record) -> bool {
    let names = Disk::list(disk).unwrap();
    let files = names.iter().filter_map(|name| disk.bytes(name));
    files.into_iter().any(|bytes| bytes.windows(record.bytes.len()).any(|at| at == record.bytes))
}

#[test]
fn erasing_takes_the_bytes_of_every_removed_record_off_the_disk_also_out_of_the_last_file() {
    run(11, |env| async move {
        let disk = FaultyDisk::new(11);
        let store = open(&disk, &env);
        let records = some(0..40);
        put_each(&store, &records).await;
        // One of each file is far too little for compaction, and the last one is in the file that is written to.
        let (gone, kept): (Vec<_>, Vec<_>) =
            records.into_iter().enumerate().partition(|(at, _)| at % 8 == 7);
        let plain = |some: Vec<(usize, Record)>| some.into_iter().map(|(_, one)| one).collect();
        let (gone, kept): (Vec<Record>, Vec<Record>) = (plain(gone), plain(kept));
        store.remove(gone.iter().map(|record| record.id).collect()).await.unwrap();
        store.compact(FAST).await.unwrap();
        assert!(gone.iter().any(|record| on_disk(&disk, record)), "compaction alone left some");
        let done = store.erase(FAST).await.unwrap();
        assert!(done.segments > 0 && done.blocked == 0, "{done:?}");
        for record in &gone {
            assert!(!on_disk(&disk, record), "{} is on the disk still", record.id);
        }
        holds(&store, &kept).await;
        let again = store.erase(FAST).await.unwrap();
        assert_eq!(again.moved_bytes, 0, "it ends: {again:?}");
        for disk in [disk.copy(), disk.crash()] {
            holds(&open(&disk, &env), &kept).await;
            assert!(gone.iter().all(|record| !on_disk(&disk, record)));
        }
    });
}

/// The file and the bytes of it that a record's payload takes.
fn place(disk: &FaultyDisk, record: &Record) -> (String, std::ops::Range<usize>) {
    let names = Disk::list(disk).unwrap();
    let found = names.into_iter().find_map(|name| {
        let bytes = disk.bytes(&name)?;
        let at = bytes.windows(LEN).position(|window| window == record.bytes)?;
        Some((name, at..at + LEN))
    });
    found.unwrap()
}

/// Four fifths of the second segment dead, and removals in it that the first, which stays, makes necessary.
async fn with_removals(disk: &FaultyDisk, env: &Env) -> (Vec<Record>, Record, Arc<LogStore>) {
    let store = open(disk, env);
    let mut first = some(0..5);
    put_each(&store, &first).await;
    let mut second = some(5..9);
    put_each(&store, &second).await;
    store.remove(vec![first.remove(0).id]).await.unwrap();
    let left = second.pop().unwrap();
    store.remove(second.iter().map(|record| record.id).collect()).await.unwrap();
    put_each(&store, &some(20..30)).await;
    assert_eq!(place(disk, &left).0, "00000002.log");
    (first, left, store)
}

#[test]
fn removals_beside_a_record_that_stays_are_not_moved_again_and_again() {
    run(1, |env| async move {
        for unreadable in [false, true] {
            let disk = FaultyDisk::new(1);
            let (first, left, store) = with_removals(&disk, &env).await;
            let (name, bytes) = place(&disk, &left);
            let range = bytes.start as u64..bytes.end as u64;
            if unreadable {
                disk.fail_reads_in(&name, range);
            } else {
                disk.flip(&name, bytes.start, 1);
            }
            let used = disk.used_bytes();
            for _ in 0..3 {
                let done = store.compact(FAST).await.unwrap();
                assert_eq!((done.segments, done.blocked, done.moved_bytes), (0, 1, 0));
            }
            assert_eq!(disk.used_bytes(), used);
            if unreadable {
                disk.fail_reads_in(&name, 0..0);
                assert_eq!(store.get(&left.id).await.unwrap().as_ref(), Some(&left));
            } else {
                store.put(vec![left.clone()]).await.unwrap();
            }
            let done = store.compact(FAST).await.unwrap();
            assert_eq!((done.segments, done.blocked), (1, 0));
            store.close().await.unwrap();
            // The removals moved with it.
            holds(&open(&disk, &env), &[first, vec![left], some(20..30)].concat()).await;
        }
    });
}

type Work = Box<dyn FnOnce() + Send>;

/// Blocking work that waits, from when it is held until it is let go.
#[derive(Clone)]
struct Held {
    tasks: Arc<dyn Tasks>,
    held: Arc<Mutex<Option<Vec<Work>>>>,
}

impl Held {
    fn under(env: &mut Env) -> Self {
        let held = Self { tasks: env.tasks.clone(), held: Arc::default() };
        env.tasks = Arc::new(held.clone());
        held
    }

    fn hold(&self) {
        *self.held.lock().unwrap() = Some(Vec::new());
    }

    fn let_go(&self) {
        let held = self.held.lock().unwrap().take();
        held.into_iter().flatten().for_each(|work| work());
    }
}

impl Tasks for Held {
    fn spawn(&self, work: BoxFuture<'static, ()>) -> Task {
        self.tasks.spawn(work)
    }

    fn cpu(&self, work: Work) {
        self.tasks.cpu(work);
    }

    fn blocking(&self, work: Work) {
        if let Some(held) = &mut *self.held.lock().unwrap() {
            held.push(work);
            return;
        }
        self.tasks.blocking(work);
    }

    fn parallelism(&self) -> usize {
        self.tasks.parallelism()
    }
}

/// The record that kept them in their segment goes before the segment could be dropped: they are needed all the same.
#[test]
fn removals_beside_a_record_that_stays_are_not_dropped_with_it_a_moment_later() {
    run(1, |mut env| async move {
        let writer = Held::under(&mut env);
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        let first = some(0..5);
        put_each(&store, &first).await;
        let second = some(5..9);
        put_each(&store, &second).await;
        store.remove(vec![first[0].id, second[0].id, second[1].id]).await.unwrap();
        put_each(&store, &some(20..30)).await;
        let (good, damaged) = (&second[2], &second[3]);
        let (name, bytes) = place(&disk, damaged);
        assert_eq!((&name[..], place(&disk, good).0), ("00000002.log", name.clone()));
        disk.flip(&name, bytes.start, 1);
        let slowly = CompactionOptions { bytes_per_s: 1000, ..FAST };
        let beside = async {
            // It keeps its pace behind what it moved, and the writer comes to nothing until it has gone on.
            env.clock.sleep(Duration::from_millis(10)).await;
            writer.hold();
            let later = async {
                env.clock.sleep(Duration::from_secs(60)).await;
                writer.let_go();
            };
            futures::join!(store.remove(vec![damaged.id]), later).0.unwrap();
        };
        let (done, ()) = futures::join!(store.compact(slowly), beside);
        let done = done.unwrap();
        assert_eq!((done.segments, done.blocked), (0, 1), "{done:?}");
        let kept = [&first[1..], std::slice::from_ref(good), &some(20..30)].concat();
        holds(&store, &kept).await;
        holds(&open(&disk.copy(), &env), &kept).await;
        let done = store.compact(FAST).await.unwrap();
        assert_eq!((done.segments, done.blocked), (1, 0), "{done:?}");
        store.close().await.unwrap();
        holds(&open(&disk, &env), &kept).await;
    });
}

#[test]
fn a_segment_that_damage_alone_keeps_is_not_read_again_with_each_pass() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let (first, left, store) = with_removals(&disk, &env).await;
        let (name, bytes) = place(&disk, &left);
        disk.flip(&name, bytes.start, 1);
        let done = store.compact(FAST).await.unwrap();
        assert_eq!((done.segments, done.blocked), (0, 1));
        disk.fail_reads_in(&name, 0..u64::MAX);
        disk.take_met();
        for _ in 0..3 {
            let done = store.compact(FAST).await.unwrap();
            assert_eq!((done.segments, done.blocked), (0, 1), "it is told all the same");
        }
        let done = store.erase(FAST).await.unwrap();
        assert_eq!(done.blocked, 1, "{done:?}");
        let met = disk.take_met();
        assert!(!met.contains_key("disk: a failed read"), "{met:?}");
        disk.fail_reads_in(&name, 0..0);
        store.put(vec![left.clone()]).await.unwrap();
        let done = store.compact(FAST).await.unwrap();
        assert!(done.segments > 0 && done.blocked == 0, "{done:?}");
        holds(&store, &[first, vec![left], some(20..30)].concat()).await;
    });
}

#[test]
fn a_removal_whose_frame_is_damaged_brings_nothing_back() {
    run(1, |env| async move {
        for index_is_gone in [false, true] {
            let disk = FaultyDisk::new(1);
            let (first, left, store) = with_removals(&disk, &env).await;
            store.remove(vec![left.id]).await.unwrap();
            let removed = some(0..1).remove(0).id;
            let bytes = disk.bytes("00000002.log").unwrap();
            let at = bytes.windows(32).position(|window| window == removed.as_bytes()).unwrap();
            disk.flip("00000002.log", at, 1);
            if index_is_gone {
                Disk::remove(&disk, "00000002.idx").unwrap();
            }
            let done = store.compact(FAST).await.unwrap();
            let (segments, blocked) = if index_is_gone { (0, 1) } else { (1, 0) };
            assert_eq!((done.segments, done.blocked), (segments, blocked), "{done:?}");
            holds(&store, &[first.clone(), some(20..30)].concat()).await;
            store.close().await.unwrap();
            if !index_is_gone {
                holds(&open(&disk, &env), &[first, some(20..30)].concat()).await;
            }
        }
    });
}

#[test]
fn a_place_that_cannot_be_read_blocks_its_own_segment_and_no_other() {
    run(1, |env| async move {
        // In the payload of the first record that stays, and in its header.
        for bad in [300_u64..310, 0..10] {
            let disk = FaultyDisk::new(1);
            let store = open(&disk, &env);
            let records = some(0..60);
            put_each(&store, &records).await;
            let kept = thin_out(&store, &records, 10).await;
            let (name, bytes) = place(&disk, &kept[0]);
            let frame = bytes.start as u64 - 88;
            disk.fail_reads_in(&name, frame + bad.start..frame + bad.end);
            let done = store.compact(FAST).await.unwrap();
            assert!(done.segments >= 8 && done.blocked == 1, "{done:?}");
            let done = store.erase(FAST).await.unwrap();
            assert_eq!(done.blocked, 1, "{done:?}");
            assert!(disk.bytes(&name).is_some());
            holds_but(&store, &kept[1..]).await;
            disk.fail_reads_in(&name, 0..0);
            let done = store.erase(FAST).await.unwrap();
            assert!(done.segments > 0 && done.blocked == 0, "{done:?}");
            holds(&store, &kept).await;
            // Where nothing can be read it says so.
            store.remove(vec![kept[1].id, kept[5].id]).await.unwrap();
            store.close().await.unwrap();
            let store = open(&disk, &env);
            disk.fail_reads(true);
            assert!(matches!(store.erase(FAST).await, Err(StoreError::Io { .. })));
        }
    });
}

/// Whether these records are all there.
async fn holds_but(store: &LogStore, wanted: &[Record]) {
    for record in wanted {
        assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
    }
}

/// A sector that an error of a cable hid from a start is whole: what lies there is no dead byte.
#[test]
fn what_a_disk_could_not_read_at_a_start_is_not_erased_before_one_that_reads_it() {
    run(1, |env| async move {
        let large = LogOptions {
            segment_bytes_max: 64 << 10,
            reserve_free_bytes: 0,
            ..LogOptions::default()
        };
        let open =
            |disk: &FaultyDisk| LogStore::open(Arc::new(disk.clone()), env.clone(), large).unwrap();
        let disk = FaultyDisk::new(1);
        let (records, more) = (some(0..50), some(60..150));
        let store = open(&disk);
        store.put(records.clone()).await.unwrap();
        store.remove(records[..10].iter().map(|record| record.id).collect()).await.unwrap();
        store.close().await.unwrap();
        let name = "00000001.log";
        let bytes = disk.bytes(name).unwrap();
        let hidden = &records[20].bytes[..];
        let at = bytes.windows(hidden.len()).position(|window| window == hidden).unwrap() as u64;
        // Its header lies before it.
        disk.fail_sectors_in(name, at - 88..at);
        let store = open(&disk);
        assert_eq!(store.get(&records[20].id).await.unwrap(), None);
        store.put(more.clone()).await.unwrap();
        disk.fail_reads_in(name, 0..0);
        for first in [true, false] {
            let done = store.erase(CompactionOptions::default()).await.unwrap();
            assert_eq!(done.blocked > 0, first, "it is told once: {done:?}");
            assert!(disk.list().unwrap().iter().any(|other| other == name));
        }
        store.close().await.unwrap();
        let store = open(&disk);
        for record in records[10..].iter().chain(&more) {
            assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
        }
        // Now that all of it is known.
        assert_eq!(store.erase(CompactionOptions::default()).await.unwrap().blocked, 0);
        assert!(!disk.list().unwrap().iter().any(|other| other == name));
    });
}
