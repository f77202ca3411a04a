//! An organisation that hears too few others: its peers serve its readers, take nothing from writers, and say so.

use crypto::Tier;
use document::Kind;
use env::Env;
use env::calls::{CallError, FindRequest, FindResponse};
use std::time::Duration;

use crate::repair::{kill, put_copies, quick, town};
use crate::town::{LIMIT, Town, envelope, page};

/// Peers 0 and 4 are of one organisation, the others of three.
const OWN: [usize; 2] = [0, 4];

fn is_cut_off(town: &Town, number: usize) -> bool {
    town.peers[number].status().read_only.is_some_and(|why| why.contains("cut off"))
}

async fn alone(env: &Env) -> Town {
    let town = town(env, 4, 8).await;
    put_copies(&town, 12).await;
    for number in [1, 2, 3, 5, 6, 7] {
        kill(&town, number).await;
    }
    town
}

#[test]
fn an_organisation_that_is_cut_off_serves_its_readers_and_takes_no_writes_until_it_hears_others() {
    testkit::time::run(71, |env| async move {
        let mut town = alone(&env).await;
        let client = town.client_of(0, Tier::Own, &OWN).await;
        town.until("both know", |town| OWN.iter().all(|own| is_cut_off(town, *own))).await;
        assert_eq!(town.peers[0].status().state, "read-only");

        let write = client.store(&town.at(0), page(90, 100), LIMIT).await;
        assert!(matches!(write, Err(CallError::ReadOnly { .. })), "{write:?}");
        let batch = client.store_batch(&town.at(4), vec![page(90, 100)], LIMIT).await;
        assert!(matches!(batch, Err(CallError::ReadOnly { .. })), "{batch:?}");
        let put = client.put(&town.at(0), page(90, 100), Duration::ZERO, LIMIT).await;
        assert!(matches!(put, Err(CallError::ReadOnly { .. })), "{put:?}");

        // What its peers have is served, each of what it has.
        let mut served = 0;
        for number in OWN {
            let ids = (0..12).map(|of| match of % 2 {
                0 => page(of, 500),
                _ => envelope(of, 0).0,
            });
            for record in ids.filter(|record| town.stores[number].holds(&record.id)) {
                let request = FindRequest { id: record.id, place: record.place };
                let found = client.find(&town.at(number), request, LIMIT).await;
                assert!(matches!(found, Ok(FindResponse::Found(_))), "{found:?}");
                served += 1;
            }
        }
        assert!(served > 0, "they hold something");
        // Repair among them goes on: a peer of theirs is no client.
        let copy = page(91, 100);
        assert_eq!(copy.kind, Kind::Page);
        town.peer_calls(4).store(&town.at(0), copy, LIMIT).await.unwrap();

        for number in [1, 2] {
            // With an empty disk: what it says is what counts.
            town.bring_back_with(number, Vec::new(), quick).await;
        }
        let heard = |town: &Town| OWN.iter().all(|own| !is_cut_off(town, *own));
        town.until("half of the organisations are heard", heard).await;
        client.store(&town.at(0), page(90, 100), LIMIT).await.unwrap();
    });
}

#[test]
fn a_peer_that_has_just_started_waits_before_it_takes_itself_for_cut_off() {
    testkit::time::run(72, |env| async move {
        let mut town = alone(&env).await;
        town.until("it knows", |town| is_cut_off(town, 0)).await;
        town.restart_with(0, quick).await;
        let client = town.client_of(0, Tier::Own, &OWN).await;
        client.store(&town.at(0), page(90, 100), LIMIT).await.unwrap();
    });
}
