//! Two peers that hold the same, or nearly: what it costs them to know it, however much it is.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use crypto::{Place, RecordId, Suite};
use document::{Kind, Record};
use env::calls::keep::{CompareAnswer, KeepAnswer, KeepRequest, Listed};
use store::{MemoryStore, RecordStore};

use crate::audit::{Bent, bend};
use crate::repair::{put_stripes, quick, town};
use crate::town::{LIMIT, Shop, Town, page};

/// Messages that two peers may need for a million records.
const MESSAGES_MAX: u64 = 100;
const LOST: usize = 37;

/// A million in full, where a part has more than a list may, and is cut once more.
fn records() -> usize {
    match std::env::var_os("HOLD_SHOWS_FULL") {
        Some(_) => 1_000_000,
        None => 50_000,
    }
}

/// Not real ones: nothing is read or sent here, only compared.
fn record(number: usize) -> Record {
    let id: RecordId = Suite::Holdfast1.id(&(number as u64).to_be_bytes());
    Record { kind: Kind::Entry, id, place: Place::from(id), bytes: Bytes::from_static(b"e") }
}

fn messages(town: &Town) -> u64 {
    let of = |text: String| -> u64 {
        let line = text.lines().find(|line| line.starts_with("holdfast_repair_messages_total"));
        line.and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap()
    };
    town.peers.iter().map(|peer| of(peer.metrics())).sum()
}

async fn filled(records: impl Iterator<Item = Record>) -> Arc<dyn RecordStore> {
    let store = MemoryStore::new();
    let mut batch = Vec::new();
    for record in records {
        batch.push(record);
        if batch.len() == 4096 {
            store.put(std::mem::take(&mut batch)).await.unwrap();
        }
    }
    store.put(batch).await.unwrap();
    Arc::new(store)
}

#[test]
fn a_million_records_are_agreed_about_by_less_than_a_hundred_messages_and_what_lacks_is_found_too()
{
    testkit::time::run(81, |env| async move {
        let count = records();
        let lost: BTreeSet<usize> = (0..LOST).map(|number| number * (count / LOST)).collect();
        for lacking in [BTreeSet::new(), lost] {
            let mut town = Town::empty(&env, 2, 2);
            let all = filled((0..count).map(record)).await;
            let most = (0..count).filter(|number| !lacking.contains(number));
            let some = filled(most.map(record)).await;
            for (number, store) in [all, some].into_iter().enumerate() {
                let peer = town.start(number, store, quick).await;
                town.peers.push(peer);
            }
            let lacks = |town: &Town| -> usize {
                town.peers.iter().map(|peer| peer.repair().unwrap().copies_lacking).sum()
            };
            let knows = |town: &Town| town.peers.iter().all(|p| p.repair().unwrap().unknown == 0);
            town.until("both know all of it", |town| {
                town.peers.iter().all(|peer| peer.directory().view().len() == 2)
                    && knows(town)
                    && messages(town) > 0
                    && lacks(town) == lacking.len()
            })
            .await;
            let needed = messages(&town);
            println!("{count} records, {} lack: {needed} messages", lacking.len());
            assert!(needed < MESSAGES_MAX, "{needed} messages");
            for peer in &town.peers {
                peer.stop().await.unwrap();
            }
            env.clock.sleep(Duration::from_secs(1)).await;
        }
    });
}

/// While a peer reads its store more changes than it keeps.
#[test]
fn a_store_is_read_once_however_much_is_written_meanwhile() {
    const HELD: u32 = 20_000;
    const BATCH: u32 = 1_000;
    const BATCHES: u32 = 330;
    testkit::time::run(82, |env| async move {
        let mut town = Town::empty(&env, 2, 2);
        let held = || filled((0..HELD).map(|number| page(BATCH + number, 16)));
        let (shop, same) = (Arc::new(Shop::new(held().await)), Arc::new(Shop::new(held().await)));
        shop.slow_reads(&env, Duration::from_millis(2));
        for (number, store) in [shop.clone(), same].into_iter().enumerate() {
            let peer = town.start(number, store, quick).await;
            town.peers.push(peer);
        }
        let views = |town: &Town| town.peers.iter().all(|peer| peer.directory().view().len() == 2);
        town.until("both know both", views).await;
        let pages: Vec<Record> = (0..BATCH).map(|number| page(number, 16)).collect();
        let calls = town.peer_calls(1);
        for _ in 0..BATCHES {
            let stored = calls.store_batch(&town.at(0), pages.clone(), LIMIT).await.unwrap();
            assert!(stored.iter().all(Result::is_ok));
            env.clock.sleep(Duration::from_millis(130)).await;
        }
        env.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(town.peers[0].repair().unwrap().unknown, 0);
        let reads = shop.reads.load(Ordering::SeqCst);
        assert!(reads < HELD as usize * 3 / 2, "{reads} reads of {HELD} records");
    });
}

/// A peer that starts again reads the header of each stripe of which it has something.
#[test]
fn headers_of_stripes_are_read_some_at_a_time() {
    testkit::time::run(83, |env| async move {
        let mut town = town(&env, 3, 6).await;
        put_stripes(&town, 120, 2, 4).await;
        let records = town.take_down(2).await;
        let held = records.len();
        let headers = records.iter().filter(|record| record.kind == Kind::Stripe).count();
        assert!(headers > 40, "{headers} headers");
        town.bring_back_with(2, records, quick).await;
        let takes = Duration::from_millis(200);
        town.stores[2].slow_reads(&env, takes);
        let since = env.clock.elapsed();
        town.until("it knows what it has", |town| town.peers[2].repair().unwrap().unknown == 0)
            .await;
        let took = env.clock.elapsed() - since;
        // Each is listed by itself here, and a real store lists without a read.
        let listed = takes * u32::try_from(held).unwrap();
        let read = takes * u32::try_from(headers).unwrap() * 3 / 4;
        assert!(took < listed + read, "{took:?}, {listed:?} of it for the list");
    });
}

/// What stays different, as copies for which there is no room, is not all that two peers ever come to.
#[test]
fn each_comparison_begins_with_another_part_of_what_differs() {
    testkit::time::run(84, |env| async move {
        let town = town(&env, 2, 2).await;
        // Whether the next list is the first of a comparison, and which parts were first.
        let seen = Arc::new(Mutex::new((false, Vec::new())));
        let noted = seen.clone();
        let answers = move |request: &KeepRequest| {
            let mut noted = noted.lock().unwrap();
            Some(match request {
                KeepRequest::Compare(compare) => {
                    noted.0 = true;
                    let (view, words) = (compare.view, compare.words.clone());
                    let differ = (0..=255).collect();
                    KeepAnswer::Compare(CompareAnswer { differ, view, words })
                }
                KeepRequest::Lists(lists) => {
                    if std::mem::take(&mut noted.0) {
                        noted.1.push(lists[0].range);
                    }
                    let ranges = lists.iter().map(|one| one.range);
                    let none = |range| Listed {
                        range,
                        copies: Vec::new(),
                        fragments: Vec::new(),
                        more: false,
                    };
                    KeepAnswer::Lists(ranges.map(none).collect())
                }
                _ => return None,
            })
        };
        bend(&town, 1, Bent::With(Arc::new(answers)));
        env.clock.sleep(Duration::from_secs(60)).await;
        let firsts = std::mem::take(&mut seen.lock().unwrap().1);
        let different: BTreeSet<_> = firsts.iter().copied().collect();
        assert!(firsts.len() >= 10, "{firsts:?}");
        assert!(different.len() * 2 > firsts.len(), "{firsts:?}");
    });
}
