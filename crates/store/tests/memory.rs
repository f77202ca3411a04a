//! What an idle store costs. Alone in its program, since it measures the whole of it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use env::Env;
use env::disk::{DirDisk, Disk};
use store::{LogOptions, LogStore, RecordStore};
use testkit::store::record;

#[tokio::test]
async fn an_idle_store_of_a_thousand_records_is_under_two_mebibytes() {
    let folder = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(DirDisk::open(folder.path()).unwrap());
    let options = LogOptions { reserve_free_bytes: 0, ..LogOptions::default() };
    let open = || LogStore::open(disk.clone(), Env::real(), options).unwrap();
    let store = open();
    for batch in 0..10 {
        store.put((0..100).map(|i| record(batch * 100 + i, 500)).collect()).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    let before = resident_bytes();
    // Ten, so that one page more or less does not decide.
    let stores: Vec<_> = (0..10).map(|_| open()).collect();
    let each = resident_bytes().saturating_sub(before) / 10;
    assert_eq!(stores[9].stats().records, 1000);
    assert!(each < 2 << 20, "{each} bytes");
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
