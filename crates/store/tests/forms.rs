//! Versions kept as forms: less room, the same record to whoever reads it, and the same survival as any other.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{Place, RecordId, Suite};
use document::{Kind, Record};
use env::Env;
use env::disk::Disk;
use store::{
    CompactionOptions, Durability, Kept, LogOptions, LogStore, MemoryStore, RecordStore, ScrubPass,
    StoreError,
};
use testkit::disk::FaultyDisk;
use testkit::time::run;
use version::{Bases, Codecs, Hint, ObjectKey, ValueKind, Version, View};

const SUITE: Suite = Suite::Holdfast1;

fn open(disk: &FaultyDisk, env: &Env) -> Arc<LogStore> {
    let options =
        LogOptions { segment_bytes_max: 16 << 10, reserve_free_bytes: 0, ..LogOptions::default() };
    LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap()
}

/// A chain of versions of a thousand bytes of which the same hundred change.
fn chain(len: u64) -> Vec<Record> {
    let mut bases = Bases::NONE;
    let mut out: Vec<Record> = Vec::new();
    for l in 0..len {
        let mut value: Vec<u8> = (0..1000_u32).map(|at| (at.wrapping_mul(37) >> 3) as u8).collect();
        let noise = testkit::network::noise("change", l as usize, 100);
        value[450..550].copy_from_slice(&noise);
        let object = ObjectKey::new([9; 32]);
        let version =
            Version { object, bases, l, kind: ValueKind::Bytes, value: Bytes::from(value) };
        let (record, _) = version.record(SUITE, Hint::FIRST);
        bases = Bases::one(record.id);
        out.push(record);
    }
    out
}

fn form(record: &Record, base: &Record) -> Option<Bytes> {
    let (version, value) =
        (View::decode(&record.bytes).unwrap(), View::decode(&base.bytes).unwrap().value);
    Codecs::new().compress(&version, &base.id, value)
}

fn kept(records: &[Record]) -> Vec<Kept> {
    let root = &records[0];
    let form = |record: &Record| form(record, root);
    let kept = |(at, record): (usize, &Record)| {
        let form = (at > 0).then(|| form(record).expect("it is worth it"));
        Kept { record: record.clone(), form, new: false }
    };
    records.iter().enumerate().map(kept).collect()
}

async fn holds(store: &LogStore, records: &[Record]) {
    for record in records {
        assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
    }
}

#[test]
fn a_form_reads_as_the_record_it_stands_for_and_takes_a_quarter() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let records = chain(60);
        let store = open(&disk, &env);
        // Some in the batch of their base, some after it.
        let mut kept = kept(&records);
        let later = kept.split_off(20);
        assert_eq!(store.put_kept(kept, None).await.unwrap(), vec![true; 20]);
        assert_eq!(store.put_kept(later.clone(), None).await.unwrap(), vec![true; 40]);
        assert_eq!(store.put_kept(later, None).await.unwrap(), vec![false; 40], "they are there");
        holds(&store, &records).await;
        assert_eq!(store.form_base(&records[0].id).unwrap(), None);
        assert_eq!(store.form_base(&records[7].id).unwrap(), Some(records[0].id));
        let plain: u64 = records.iter().map(|record| 88 + record.bytes.len() as u64).sum();
        let ratio = store.stats().file_bytes as f64 / plain as f64;
        assert!(ratio < 0.3, "{ratio}");
        store.close().await.unwrap();
        // Again from the log, from its index files, and after a power cut.
        for disk in [disk.copy(), disk.crash()] {
            let store = open(&disk, &env);
            holds(&store, &records).await;
            assert_eq!(store.stats().fragments, 0, "a version is no fragment");
        }
    });
}

#[test]
fn without_its_base_a_version_is_kept_plain() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let records = chain(3);
        let store = open(&disk, &env);
        store.put_kept(kept(&records)[1..2].to_vec(), None).await.unwrap();
        assert_eq!(store.form_base(&records[1].id).unwrap(), None);
        holds(&store, &records[1..2]).await;
        // Against a form: no, that would take two reads and lose two versions with one.
        store.put_kept(kept(&records)[..1].to_vec(), None).await.unwrap();
        store.put_kept(kept(&records)[2..].to_vec(), None).await.unwrap();
        assert_eq!(store.form_base(&records[2].id).unwrap(), Some(records[0].id));
        let mut next = chain(4);
        let last = next.pop().unwrap();
        let form = form(&last, &records[2]);
        store.put_kept(vec![Kept { record: last.clone(), form, new: false }], None).await.unwrap();
        assert_eq!(store.form_base(&last.id).unwrap(), None);
        holds(&store, &[last]).await;
    });
}

#[test]
fn a_damaged_base_damages_what_stands_on_it_until_it_is_written_again() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let records = chain(10);
        let store = open(&disk, &env);
        store.put_kept(kept(&records), None).await.unwrap();
        let name = disk.list().unwrap().into_iter().find(|name| name.ends_with(".log")).unwrap();
        let bytes = disk.bytes(&name).unwrap();
        let wanted = &records[0].bytes[..];
        let at = bytes.windows(wanted.len()).position(|window| window == wanted).unwrap();
        disk.flip(&name, at + 300, 1);
        let found = store.get(&records[5].id).await;
        assert!(matches!(found, Err(StoreError::Damaged { .. })), "{found:?}");
        let pass: ScrubPass = store.scrub(u64::MAX).await.unwrap();
        assert!(pass.damaged >= 9, "all that stand on it: {pass:?}");
        // As other holders hand them back, plain: some, and what all stand on.
        store.put(vec![records[3].clone(), records[0].clone()]).await.unwrap();
        let found = store.get(&records[5].id).await;
        assert!(matches!(found, Err(StoreError::Damaged { .. })), "{found:?}");
        let pass: ScrubPass = store.scrub(u64::MAX).await.unwrap();
        assert_eq!(pass.damaged, 0, "{pass:?}");
        holds(&store, &records).await;
        assert_eq!(store.stats().damaged, 0);
    });
}

#[test]
fn compaction_moves_forms_as_they_are() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let records = chain(200);
        let store = open(&disk, &env);
        store.put_kept(kept(&records), None).await.unwrap();
        let gone: Vec<_> = records[1..].iter().step_by(2).map(|record| record.id).collect();
        store.remove(gone.clone()).await.unwrap();
        let fast = CompactionOptions { dead_percent: 10, bytes_per_s: u64::MAX };
        let before = disk.used_bytes();
        store.compact(fast).await.unwrap();
        assert!(disk.used_bytes() < before * 3 / 4);
        let left: Vec<_> =
            records.iter().filter(|record| !gone.contains(&record.id)).cloned().collect();
        holds(&store, &left).await;
        assert_eq!(store.form_base(&left[50].id).unwrap(), Some(records[0].id));
        holds(&open(&disk.crash(), &env), &left).await;
    });
}

#[test]
fn every_record_of_a_kind_is_handed_over_in_the_order_of_the_log() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        let records = chain(100);
        let others: Vec<Record> = (0..40)
            .map(|number| testkit::store::record(number, 900))
            .filter(|record| record.kind != Kind::Version)
            .collect();
        for (versions, others) in kept(&records).chunks(10).zip(others.chunks(3)) {
            store.put_kept(versions.to_vec(), None).await.unwrap();
            store.put(others.to_vec()).await.unwrap();
        }
        let walk = |store: &dyn RecordStore| {
            let mut found = Vec::new();
            store
                .each_of(&[Kind::Version], &mut |part| {
                    assert_eq!(part.is_form, part.id != records[0].id);
                    assert_eq!(part.place, records[0].place);
                    found.push(part.id);
                })
                .unwrap();
            found
        };
        let wanted: Vec<_> = records.iter().map(|record| record.id).collect();
        assert_eq!(walk(&*store), wanted);
        store.close().await.unwrap();
        let store = open(&disk, &env);
        assert_eq!(walk(&*store), wanted);
        let memory = MemoryStore::new();
        memory.put_kept(kept(&records), None).await.unwrap();
        let mut found = 0;
        memory.each_of(&[Kind::Version], &mut |part| found += usize::from(!part.is_form)).unwrap();
        assert_eq!(found, 100, "in memory all are plain");
        env.clock.sleep(Duration::from_millis(1)).await;
    });
}

/// A write says for itself when it is answered, whatever the store is set to.
#[test]
fn a_write_is_as_durable_as_it_asked_for() {
    for seed in 0..20 {
        run(seed, move |env| async move {
            let records = chain(30);
            let disk = FaultyDisk::new(seed);
            let store = open(&disk, &env);
            let none = Some(Durability::Memory);
            store.put_kept(kept(&records)[..10].to_vec(), none).await.unwrap();
            // Who asks for more of what is there is answered when it is on the disk.
            let group = Some(Durability::Group);
            let new = store.put_kept(kept(&records)[..10].to_vec(), group).await.unwrap();
            assert_eq!(new, vec![false; 10]);
            let disk = disk.crash();
            let store = open(&disk, &env);
            holds(&store, &records[..10]).await;
            // Within a second and what an fsync takes.
            let second = Some(Durability::EverySecond);
            store.put_kept(kept(&records)[10..20].to_vec(), second).await.unwrap();
            env.clock.sleep(Duration::from_millis(1100)).await;
            let disk = disk.crash();
            let store = open(&disk, &env);
            holds(&store, &records[..20]).await;
            // Closing is enough for all.
            store.put_kept(kept(&records)[20..].to_vec(), none).await.unwrap();
            store.close().await.unwrap();
            holds(&open(&disk.crash(), &env), &records).await;
        });
    }
}

#[test]
fn a_failed_sync_ends_the_writes_of_a_store_that_syncs_every_second() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let records = chain(20);
        let store = open(&disk, &env);
        store.put_kept(kept(&records)[..5].to_vec(), None).await.unwrap();
        disk.fail_syncs(1);
        let second = Some(Durability::EverySecond);
        store.put_kept(kept(&records)[5..10].to_vec(), second).await.unwrap();
        env.clock.sleep(Duration::from_millis(1100)).await;
        let refused = store.put_kept(kept(&records)[10..].to_vec(), second).await;
        assert!(matches!(refused, Err(StoreError::Poisoned)), "{refused:?}");
        holds(&store, &records[..10]).await;
    });
}

/// A thread that waits anyhow does its writes itself: they are as good as those that are handed over.
#[test]
fn a_thread_writes_by_itself_beside_others() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let disk = FaultyDisk::new(1);
    let records = chain(60);
    let others: Vec<Record> = (0..200).map(|n| testkit::store::record(n, 300)).collect();
    let store = {
        let _guard = runtime.enter();
        open(&disk, &Env::real())
    };
    let beside = store.clone();
    let wanted = others.clone();
    let writer = runtime.spawn(async move {
        for one in wanted {
            assert_eq!(beside.put(vec![one]).await.unwrap(), [true]);
        }
    });
    let mut known = kept(&records);
    known.iter_mut().skip(1).for_each(|kept| kept.new = true);
    for (at, part) in known.chunks(6).enumerate() {
        let durability = [Durability::EverySecond, Durability::Group][at % 2];
        assert_eq!(store.put_here(part.to_vec(), Some(durability)).unwrap(), [true; 6]);
    }
    runtime.block_on(writer).unwrap();
    let bytes = store.stats().bytes;
    // Who says new of what is there has it written twice and counted once.
    assert_eq!(store.put_here(known[3..5].to_vec(), None).unwrap(), [true; 2]);
    known[3].new = false;
    assert_eq!(store.put_here(known[3..4].to_vec(), None).unwrap(), [false]);
    assert_eq!((store.stats().records, store.stats().bytes), (260, bytes));
    let all: Vec<Record> = records.iter().chain(&others).cloned().collect();
    runtime.block_on(async {
        holds(&store, &all).await;
        store.close().await.unwrap();
    });
    assert!(matches!(store.put_here(known, None), Err(StoreError::Closed)));
    let again = disk.crash();
    let _guard = runtime.enter();
    let store = open(&again, &Env::real());
    runtime.block_on(holds(&store, &all));
    assert_eq!((store.stats().records, store.stats().bytes), (260, bytes));
}

/// Whoever kept the middle one as a form does not know of it.
#[test]
fn a_version_never_stands_on_one_that_is_kept_as_a_form() {
    run(1, |env| async move {
        let records = chain(3);
        let middle = |form| Kept { record: records[1].clone(), form, new: false };
        let on_middle =
            Kept { record: records[2].clone(), form: form(&records[2], &records[1]), new: false };
        assert!(on_middle.form.is_some());
        // Asked for after it was written, and while it is.
        for beside in [false, true] {
            let disk = FaultyDisk::new(1);
            let store = open(&disk, &env);
            store.put_kept(kept(&records)[..1].to_vec(), None).await.unwrap();
            let as_form = store.put_kept(kept(&records)[1..2].to_vec(), None);
            let both = store.put_kept(vec![middle(None), on_middle.clone()], None);
            let (first, second) = match beside {
                true => futures::join!(as_form, both),
                false => (as_form.await, both.await),
            };
            assert_eq!((first.unwrap(), second.unwrap()), (vec![true], vec![false, true]));
            assert_eq!(store.form_base(&records[1].id).unwrap(), Some(records[0].id));
            holds(&store, &records).await;
            holds(&open(&disk.crash(), &env), &records).await;
        }
    });
}

#[test]
fn a_damaged_version_that_others_stand_on_is_written_again_plain() {
    run(1, |env| async move {
        let records = chain(3);
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &env);
        // The last stands on the middle one, which is damaged then.
        let middle = Kept { record: records[1].clone(), form: None, new: false };
        let last = form(&records[2], &records[1]);
        let last = Kept { record: records[2].clone(), form: last, new: false };
        store.put_kept(vec![kept(&records)[0].clone(), middle, last], None).await.unwrap();
        assert_eq!(store.form_base(&records[2].id).unwrap(), Some(records[1].id));
        let bytes = disk.bytes("00000001.log").unwrap();
        let wanted = &records[1].bytes[..];
        let at = bytes.windows(wanted.len()).position(|window| window == wanted).unwrap();
        disk.flip("00000001.log", at + 500, 1);
        assert!(store.get(&records[2].id).await.is_err());
        let again = kept(&records)[1].clone();
        assert!(again.form.is_some());
        assert_eq!(store.put_kept(vec![again], None).await.unwrap(), [true]);
        store.close().await.unwrap();
        holds(&open(&disk, &env), &records).await;
    });
}

/// A disk that does something once, before a file is opened.
struct Before {
    disk: FaultyDisk,
    file: &'static str,
    what: std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Disk for Before {
    fn open(&self, name: &str, create: bool) -> std::io::Result<Arc<dyn env::disk::File>> {
        let what = if name == self.file { self.what.lock().unwrap().take() } else { None };
        if let Some(what) = what {
            what();
        }
        self.disk.open(name, create)
    }

    fn list(&self) -> std::io::Result<Vec<String>> {
        self.disk.list()
    }

    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> std::io::Result<()> {
        self.disk.sync_names()
    }

    fn free_bytes(&self) -> std::io::Result<u64> {
        self.disk.free_bytes()
    }
}

#[test]
fn a_form_is_read_though_its_base_is_moved_meanwhile() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _guard = runtime.enter();
    let records = chain(4);
    let others: Vec<Record> = (0..17).map(|n| testkit::store::record(n, 1000)).collect();
    let (gone, more) = others.split_at(12);
    for scrub in [false, true] {
        let disk = FaultyDisk::new(1);
        let store = open(&disk, &Env::real());
        runtime.block_on(async {
            // The base is all that is left of the first segment; the forms are in the last.
            store.put_kept(kept(&records)[..1].to_vec(), None).await.unwrap();
            store.put(gone.to_vec()).await.unwrap();
            store.remove(gone.iter().map(|record| record.id).collect()).await.unwrap();
            store.put(more.to_vec()).await.unwrap();
            store.put_kept(kept(&records)[1..].to_vec(), None).await.unwrap();
            store.close().await.unwrap();
        });
        assert!(disk.bytes("00000002.log").is_some());
        let file = "00000001.log";
        let before = Arc::new(Before { disk: disk.clone(), file, what: None.into() });
        let options = LogOptions { segment_bytes_max: 16 << 10, ..LogOptions::default() };
        let store = LogStore::open(before.clone(), Env::real(), options).unwrap();
        let (handle, moving) = (runtime.handle().clone(), store.clone());
        let compact = move || {
            let fast = CompactionOptions { dead_percent: 33, bytes_per_s: u64::MAX };
            let compacting = std::thread::spawn(move || handle.block_on(moving.compact(fast)));
            assert_eq!(compacting.join().unwrap().unwrap().segments, 1);
        };
        *before.what.lock().unwrap() = Some(Box::new(compact));
        runtime.block_on(async {
            if scrub {
                let upkeep = store.upkeep().unwrap();
                let step = upkeep.scrub_step(upkeep.scrub_start(1), 1 << 20).await.unwrap();
                assert!(step.records == 8 && !step.damaged.contains(&records[2].id), "{step:?}");
            } else {
                let found = store.get(&records[2].id).await;
                assert_eq!(found.unwrap().as_ref(), Some(&records[2]));
            }
            assert!(disk.bytes(file).is_none(), "the base was moved meanwhile");
            holds(&store, &records).await;
        });
    }
}

#[test]
fn a_record_is_listed_though_it_is_moved_meanwhile() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _guard = runtime.enter();
    // Every third has a place of its own, which its header has.
    let records: Vec<Record> = (0..40).map(|n| testkit::store::record(n, 1000)).collect();
    let options = LogOptions { segment_bytes_max: 16 << 10, ..LogOptions::default() };
    let disk = FaultyDisk::new(1);
    let file = "00000001.log";
    runtime.block_on(async {
        let store = LogStore::open(Arc::new(disk.clone()), Env::real(), options).unwrap();
        for record in &records {
            store.put(vec![record.clone()]).await.unwrap();
        }
        let gone = records[1..14].iter().filter(|record| record.place == Place::from(record.id));
        store.remove(gone.map(|record| record.id).collect()).await.unwrap();
        store.close().await.unwrap();
    });
    let before = Arc::new(Before { disk: disk.clone(), file, what: None.into() });
    let store = LogStore::open(before.clone(), Env::real(), options).unwrap();
    let (handle, moving) = (runtime.handle().clone(), store.clone());
    let compact = move || {
        let fast = CompactionOptions { dead_percent: 33, bytes_per_s: u64::MAX };
        let compacting = std::thread::spawn(move || handle.block_on(moving.compact(fast)));
        assert!(compacting.join().unwrap().unwrap().segments > 0);
    };
    *before.what.lock().unwrap() = Some(Box::new(compact));
    runtime.block_on(async {
        let listed = store.list(&RecordId::new([0; 32]), 100).await.unwrap();
        assert!(disk.bytes(file).is_none(), "it was moved meanwhile");
        assert_eq!(listed.len() as u64, store.stats().records);
        for placed in listed {
            let record = records.iter().find(|record| record.id == placed.id).unwrap();
            assert_eq!(placed.place, record.place);
        }
    });
}
