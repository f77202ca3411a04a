//! What every `RecordStore` does, and a model to compare one with.
//!
//! [`conformance`] is run over the log on a directory, the log on a faulty disk and the store in
//! memory.

use std::future::Future;
use std::sync::Arc;

use crypto::{Place, RecordId, Suite};
use document::{Kind, Record};
use store::{PUT_RECORDS_MAX, RECORD_BYTES_MAX, RecordStore, StoreError};

use crate::network::noise;

/// A record of `len` bytes that `number` decides, with the id that proves it. Every third has a
/// place of its own. A store does not look into records, so the bytes are noise.
pub fn record(number: usize, len: usize) -> Record {
    let bytes = noise("stored", number, len);
    // Records without bytes would all have one id.
    let id = Suite::Holdfast1.id(format!("{number} {}", Suite::Holdfast1.id(&bytes)).as_bytes());
    let place = match number % 3 {
        0 => Place::new(Suite::Holdfast1.hash(id.as_bytes())),
        _ => Place::from(id),
    };
    Record { kind: Kind::ALL[number % Kind::ALL.len()], id, place, bytes }
}

/// Checks everything the trait promises; `open` gives a new, empty store each time.
///
/// # Panics
/// Where the store does something else.
pub async fn conformance<F, S>(mut open: F)
where
    F: FnMut() -> S,
    S: Future<Output = Arc<dyn RecordStore>>,
{
    what_was_put_is_got(open().await).await;
    a_record_is_new_once(open().await).await;
    removed_records_are_gone_and_can_come_back(open().await).await;
    ids_are_in_order(open().await).await;
    writes_over_a_bound_are_refused(open().await).await;
    many_at_once_are_all_kept(open().await).await;
    a_dropped_put_is_whole_or_absent(open().await).await;
    a_closed_store_says_so(open().await).await;
}

async fn get(store: &dyn RecordStore, id: &RecordId) -> Option<Record> {
    store.get(id).await.expect("it reads")
}

async fn what_was_put_is_got(store: Arc<dyn RecordStore>) {
    assert_eq!(get(&*store, &record(0, 9).id).await, None);
    let lens = [0, 1, 100, 1000, 4095, 4096, 70_000, 2 << 20, RECORD_BYTES_MAX];
    let records: Vec<Record> = lens.iter().enumerate().map(|(i, len)| record(i, *len)).collect();
    let new = store.put(records.clone()).await.expect("stored");
    assert_eq!(new, vec![true; records.len()]);
    for record in &records {
        assert!(store.contains(&record.id));
        assert_eq!(get(&*store, &record.id).await.as_ref(), Some(record));
    }
    let stats = store.stats();
    assert_eq!(stats.records, lens.len() as u64);
    assert_eq!(stats.bytes, lens.iter().sum::<usize>() as u64);
    let fragments = records.iter().filter(|record| is_fragment(record)).count() as u64;
    assert!(fragments > 0 && stats.fragments == fragments, "{stats:?}");
    assert!(stats.damaged == 0 && !stats.poisoned && stats.free_bytes > 0);
    assert_eq!(store.put(Vec::new()).await.expect("nothing is stored"), Vec::<bool>::new());
}

/// Versions have places too.
fn is_fragment(record: &Record) -> bool {
    matches!(record.kind, Kind::Page | Kind::Parity) && record.place != Place::from(record.id)
}

async fn a_record_is_new_once(store: Arc<dyn RecordStore>) {
    let (a, b) = (record(1, 50), record(2, 60));
    let new = store.put(vec![a.clone(), a.clone(), b.clone()]).await.expect("stored");
    assert_eq!(new, [true, false, true]);
    // Not all of it: what is free on a disk is others' to change too.
    let size = |stats: store::Stats| (stats.records, stats.bytes, stats.file_bytes);
    let before = size(store.stats());
    assert_eq!(store.put(vec![b, a]).await.expect("stored"), [false, false]);
    assert_eq!(size(store.stats()), before, "what is there costs no write");
}

async fn removed_records_are_gone_and_can_come_back(store: Arc<dyn RecordStore>) {
    let records: Vec<Record> = (0..4).map(|i| record(i, 100)).collect();
    store.put(records.clone()).await.expect("stored");
    assert_eq!(store.stats().fragments, 1, "the fourth, a parity fragment");
    let ids = vec![records[1].id, record(9, 9).id, records[3].id, records[3].id];
    store.remove(ids).await.expect("removed");
    assert_eq!(get(&*store, &records[0].id).await.as_ref(), Some(&records[0]));
    assert_eq!(get(&*store, &records[1].id).await, None);
    assert!(!store.contains(&records[3].id));
    assert_eq!((store.stats().records, store.stats().bytes), (2, 200));
    assert_eq!(store.stats().fragments, 0, "it is gone");
    assert_eq!(store.put(vec![records[1].clone()]).await.expect("stored"), [true]);
    assert_eq!(get(&*store, &records[1].id).await.as_ref(), Some(&records[1]));
}

async fn ids_are_in_order(store: Arc<dyn RecordStore>) {
    let records: Vec<Record> = (0..100).map(|i| record(i, 10)).collect();
    store.put(records.clone()).await.expect("stored");
    let mut ids: Vec<RecordId> = records.iter().map(|record| record.id).collect();
    ids.sort_unstable();
    assert_eq!(store.ids(&RecordId::new([0; 32]), 1000), ids);
    assert_eq!(store.ids(&ids[40], 3), ids[40..43], "the first is inclusive");
    assert_eq!(store.ids(&RecordId::new([0; 32]), 0), []);
    assert_eq!(store.ids(&RecordId::new([0xff; 32]), 5), []);
}

async fn writes_over_a_bound_are_refused(store: Arc<dyn RecordStore>) {
    let small = record(1, 10);
    let large = record(2, RECORD_BYTES_MAX + 1);
    let refused = store.put(vec![small.clone(), large]).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
    assert!(!store.contains(&small.id), "all or none");
    let many = vec![small.clone(); PUT_RECORDS_MAX + 1];
    assert!(matches!(store.put(many).await, Err(StoreError::TooLarge { .. })));
    let many: Vec<Record> = (0..17).map(|i| record(i, RECORD_BYTES_MAX)).collect();
    assert!(matches!(store.put(many).await, Err(StoreError::TooLarge { .. })));
    assert_eq!(store.stats().records, 0);
    assert_eq!(store.put(vec![small]).await.expect("it goes on"), [true]);
}

async fn many_at_once_are_all_kept(store: Arc<dyn RecordStore>) {
    let puts = (0..64).map(|writer| {
        let store = store.clone();
        // Neighbours write half of the same records.
        let records: Vec<Record> = (0..8).map(|i| record(writer * 4 + i, 300)).collect();
        async move { store.put(records).await.expect("stored") }
    });
    let new = futures::future::join_all(puts).await;
    let count = new.iter().flatten().filter(|new| **new).count();
    assert_eq!(count, 64 * 4 + 4, "each record is new for one of its writers");
    for number in 0..64 * 4 + 4 {
        let wanted = record(number, 300);
        assert_eq!(get(&*store, &wanted.id).await, Some(wanted));
    }
}

async fn a_dropped_put_is_whole_or_absent(store: Arc<dyn RecordStore>) {
    let records: Vec<Record> = (0..4).map(|i| record(i, 1000)).collect();
    let mut put = Box::pin(store.put(records.clone()));
    let _ = futures::poll!(&mut put);
    drop(put);
    // A later write is behind it in line.
    store.put(vec![record(50, 10)]).await.expect("stored");
    let there = records.iter().filter(|record| store.contains(&record.id)).count();
    assert!(there == 0 || there == records.len(), "{there} of {}", records.len());
}

async fn a_closed_store_says_so(store: Arc<dyn RecordStore>) {
    let one = record(1, 10);
    store.put(vec![one.clone()]).await.expect("stored");
    store.close().await.expect("closed");
    assert!(matches!(store.put(vec![one.clone()]).await, Err(StoreError::Closed)));
    assert!(matches!(store.get(&one.id).await, Err(StoreError::Closed)));
    assert!(matches!(store.remove(vec![one.id]).await, Err(StoreError::Closed)));
    assert!(matches!(store.close().await, Err(StoreError::Closed)));
}
