//! Every implementation does what the trait promises.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use env::Env;
use env::disk::{DirDisk, Disk};
use store::{Durability, LogOptions, LogStore, MemoryStore, RecordStore, StoreError};
use testkit::disk::FaultyDisk;
use testkit::store::{conformance, record};

const ALL: [Durability; 4] =
    [Durability::Group, Durability::Always, Durability::EverySecond, Durability::Memory];

fn options(durability: Durability) -> LogOptions {
    // Small segments, so that the suite crosses many of them; no reserve on a temporary folder's
    // disk.
    LogOptions {
        durability,
        segment_bytes_max: 1 << 20,
        reserve_free_bytes: 0,
        ..LogOptions::default()
    }
}

#[tokio::test]
async fn memory() {
    conformance(|| async { Arc::new(MemoryStore::new()) as Arc<dyn RecordStore> }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_on_a_directory() {
    for durability in ALL {
        let folder = tempfile::tempdir().unwrap();
        let mut number = 0;
        conformance(|| {
            number += 1;
            let disk = DirDisk::open(folder.path().join(number.to_string())).unwrap();
            let store = LogStore::open(Arc::new(disk), Env::real(), options(durability)).unwrap();
            async move { store as Arc<dyn RecordStore> }
        })
        .await;
    }
}

#[test]
fn log_on_a_disk_in_memory_in_virtual_time() {
    for durability in ALL {
        testkit::time::run(1, |env| async move {
            conformance(|| {
                let disk = Arc::new(FaultyDisk::new(1));
                let store = LogStore::open(disk, env.clone(), options(durability)).unwrap();
                async move { store as Arc<dyn RecordStore> }
            })
            .await;
        });
    }
}

#[tokio::test]
async fn a_store_has_one_process_and_is_free_after_it_was_closed() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let disk: Arc<dyn Disk> = Arc::new(DirDisk::open(folder.path()).unwrap());
        LogStore::open(disk, Env::real(), options(Durability::Group))
    };
    let store = open().unwrap();
    assert!(matches!(open(), Err(StoreError::Locked)));
    store.put(vec![record(1, 10)]).await.unwrap();
    store.close().await.unwrap();
    // The closed store is still there; the lock is not.
    let again = open().unwrap();
    assert_eq!(again.get(&record(1, 10).id).await.unwrap(), Some(record(1, 10)));
    drop(store);
}
