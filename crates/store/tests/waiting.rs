//! Which thread waits for a disk that takes long: none that serves others too.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use env::Env;
use env::disk::{Disk, File};
use store::{LogOptions, LogStore, RecordStore};
use testkit::disk::FaultyDisk;
use testkit::store::record;

const PATIENCE: Duration = Duration::from_secs(20);

/// A disk that reads nothing of `held` files before they are let go.
#[derive(Clone)]
struct SlowDisk {
    disk: FaultyDisk,
    slow: Arc<Slow>,
}

#[derive(Default)]
struct Slow {
    held: Mutex<bool>,
    let_go: Condvar,
    reads: AtomicU64,
}

impl Slow {
    fn hold(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.let_go.notify_all();
    }
}

impl Disk for SlowDisk {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(name, create)?;
        Ok(Arc::new(SlowFile { file, slow: self.slow.clone() }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}

struct SlowFile {
    file: Arc<dyn File>,
    slow: Arc<Slow>,
}

impl File for SlowFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.slow.reads.fetch_add(1, Ordering::SeqCst);
        let held = self.slow.held.lock().unwrap();
        // As a disk that gives up in the end: the thread is not lost with the test.
        drop(self.slow.let_go.wait_timeout_while(held, 2 * PATIENCE, |held| *held).unwrap());
        self.file.read_at(offset, into)
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        !*self.slow.held.lock().unwrap() && self.file.read_now(offset, into)
    }

    fn write_at(&self, offset: u64, parts: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.file.write_at(offset, parts)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

#[test]
fn a_small_record_that_the_disk_reads_slowly_keeps_nothing_else_of_its_thread() {
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let disk = SlowDisk { disk: FaultyDisk::new(1), slow: Arc::default() };
            let slow = disk.slow.clone();
            let store = LogStore::open(Arc::new(disk), Env::real(), LogOptions::default()).unwrap();
            let records = [record(1, 1000), record(2, 300)];
            store.put(records.to_vec()).await.unwrap();
            let reads = slow.reads.load(Ordering::SeqCst);
            for record in &records {
                assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
            }
            assert_eq!(slow.reads.load(Ordering::SeqCst), reads, "nothing was waited for");

            slow.hold(true);
            let (got, put) = (store.clone(), store.clone());
            let [first, second] = records.clone();
            let got = tokio::spawn(async move { got.get(&first.id).await });
            // What is there already is read before it is answered.
            let put = tokio::spawn(async move { put.put(vec![second]).await });
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!got.is_finished() && !put.is_finished());
            slow.hold(false);
            assert_eq!(got.await.unwrap().unwrap().as_ref(), Some(&records[0]));
            assert_eq!(put.await.unwrap().unwrap(), [false]);
            store.close().await.unwrap();
        });
        let _ = done.send(());
    });
    finished.recv_timeout(PATIENCE).expect("the thread went on with its other work");
}
