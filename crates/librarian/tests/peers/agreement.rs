//! Two peers that hold the same, or nearly: what it costs them to know it, however much it is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{Place, RecordId, Suite};
use document::{Kind, Record};
use store::{MemoryStore, RecordStore};

use crate::repair::quick;
use crate::town::Town;

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
