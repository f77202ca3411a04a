//! What is damaged and written again stays paid for, or goes.

use std::time::Duration;

use env::calls::leases::{Forgotten, LeaseAnswer, LeaseRequest};
use env::calls::{FindRequest, FindResponse};
use store::RecordStore;
use testkit::disk::FaultyDisk;

use super::{Client, SPAN_S};
use crate::town::{LIMIT, Town, page};
use crate::upkeep::{Watched, damage, options};

/// Its lease ends between the look whether it is here and the write, which would bring it back for nobody.
#[test]
fn a_damaged_record_that_is_forgotten_while_it_is_mended_does_not_stay() {
    testkit::time::run(79, |env| async move {
        let disk = FaultyDisk::new(79);
        let store = Watched::open(&disk, &env);
        let mut town = Town::empty(&env, 2, 2);
        let first = town.start(0, store.clone(), |all| all.upkeep = options(0, 0)).await;
        town.peers.push(first);
        town.start_next(|_| {}).await;
        town.until("all know all", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == 2)
        })
        .await;
        let client = Client::new(&town, 1).await;
        let record = page(7, 5_000);
        let shown = client.lease(&town, &[&record], 300 * SPAN_S);
        for peer in 0..2 {
            client.store(&town, peer, &record, vec![shown.clone()]).await.unwrap();
        }
        damage(&disk, &record);
        store.write_late(record.id, Duration::from_secs(30));
        let find = FindRequest { id: record.id, place: record.place };
        let found = client.calls.find(&town.at(0), find, LIMIT).await;
        assert!(matches!(found, Ok(FindResponse::Closest(_))), "{found:?}");
        town.until("it is being written again", |_| store.late_writes() == 1).await;
        let word = client.forget(&town, &shown);
        let ended = client.ask(&town, 0, LeaseRequest::Forget(vec![word])).await;
        assert_eq!(ended, LeaseAnswer::Forget(vec![Forgotten::Ended]));
        env.clock.sleep(Duration::from_secs(3600)).await;
        assert!(!store.contains(&record.id), "nobody pays for it");
    });
}
