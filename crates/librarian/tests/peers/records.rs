//! Storing, finding and proving records, and what happens where they are bad or the disk is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use crypto::{Announcement, Place, RecordId, Suite, Tier};
use document::{Kind, Record};
use env::calls::{
    BATCH_BYTES_MAX, BATCH_MAX, CallError, FindRequest, FindResponse, StoreOutcome, VerifyRequest,
    VerifyResponse,
};

use crate::lines::Lines;
use crate::town::{LIMIT, Shop, Town, envelope, page};

fn find(record: &Record) -> FindRequest {
    FindRequest { id: record.id, place: record.place }
}

#[test]
fn a_stored_record_is_found_proven_and_put_once() {
    testkit::time::run(1, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let client = town.client(0, Tier::Known).await;
        for record in [page(1, 100), page(2, 300_000), envelope(1, 0).0] {
            let to = town.at(4);
            let outcome = client.store(&to, record.clone(), LIMIT).await;
            assert_eq!(outcome, Ok(StoreOutcome::Stored));
            let again = client.store(&to, record.clone(), LIMIT).await;
            assert_eq!(again, Ok(StoreOutcome::Present));
            let found = client.find(&to, find(&record), LIMIT).await;
            assert_eq!(found, Ok(FindResponse::Found(record.clone())));
            let proof = VerifyRequest { id: record.id, place: record.place, mac_key: [8; 32] };
            let mac = Suite::Holdfast1.mac(&[8; 32], &record.bytes);
            assert_eq!(client.verify(&to, proof, LIMIT).await, Ok(VerifyResponse::Mac(mac)));
        }
    });
}

#[test]
fn who_does_not_hold_a_record_tells_who_should() {
    testkit::time::run(2, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let client = town.client(0, Tier::Known).await;
        let record = page(3, 100);
        let found = client.find(&town.at(4), find(&record), LIMIT).await.unwrap();
        let FindResponse::Closest(closest) = found else { panic!("nobody stored it") };
        let now = env.clock.unix_s();
        let told: Vec<_> = closest
            .iter()
            .map(|bytes| Announcement::verify(bytes, &town.community.genesis, now).unwrap())
            .map(|announcement| announcement.certificate.peer)
            .collect();
        let mut rank = town.peers[4].directory().view().rank(&record.place);
        rank.retain(|peer| *peer != town.community.peer(4));
        assert_eq!(told, rank, "the others, in the order of their rank");
        let proof = VerifyRequest { id: record.id, place: record.place, mac_key: [8; 32] };
        let proof = client.verify(&town.at(4), proof, LIMIT).await;
        assert_eq!(proof, Ok(VerifyResponse::Closest(closest)));
    });
}

#[test]
fn batches_answer_one_by_one_and_in_order() {
    testkit::time::run(3, |env| async move {
        let town = Town::new(&env, 1, 2).await;
        let client = town.client(0, Tier::Known).await;
        let to = town.at(1);
        let good: Vec<Record> = (0..20).map(|n| page(n, 100)).collect();
        let mut mixed = good.clone();
        mixed[7].bytes = Bytes::from_static(b"garbage");
        mixed[9].kind = Kind::Entry;
        let outcomes = client.store_batch(&to, mixed.clone(), LIMIT).await.unwrap();
        for (at, outcome) in outcomes.iter().enumerate() {
            match at {
                7 | 9 => assert!(matches!(outcome, Err(CallError::Invalid { .. })), "{outcome:?}"),
                _ => assert_eq!(outcome, &Ok(StoreOutcome::Stored)),
            }
        }
        let wanted: Vec<FindRequest> = good.iter().map(find).collect();
        let found = client.find_batch(&to, wanted.clone(), LIMIT).await.unwrap();
        for (at, answer) in found.into_iter().enumerate() {
            match (at, answer.unwrap()) {
                (7 | 9, FindResponse::Closest(_)) => {}
                (at, FindResponse::Found(record)) => assert_eq!(record, good[at]),
                (at, other) => panic!("{at}: {other:?}"),
            }
        }
        let proofs = wanted.iter().map(|wanted| VerifyRequest {
            id: wanted.id,
            place: wanted.place,
            mac_key: [at_key(&wanted.id); 32],
        });
        let macs = client.verify_batch(&to, proofs.collect(), LIMIT).await.unwrap();
        for (at, mac) in macs.into_iter().enumerate().filter(|(at, _)| ![7, 9].contains(at)) {
            let key = [at_key(&good[at].id); 32];
            let own = Suite::Holdfast1.mac(&key, &good[at].bytes);
            assert_eq!(mac, Ok(VerifyResponse::Mac(own)));
        }
    });
}

fn at_key(id: &RecordId) -> u8 {
    id.as_bytes()[0].max(1)
}

#[test]
fn batches_over_their_bounds_are_refused_whole() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = town.client(0, Tier::Known).await;
        let to = town.at(0);
        let refused = |result: Result<(), CallError>| {
            assert!(matches!(result, Err(CallError::Invalid { .. })), "{result:?}");
        };
        let many: Vec<Record> = (0..=BATCH_MAX as u32).map(|n| page(n, 16)).collect();
        let wanted: Vec<FindRequest> = many.iter().map(find).collect();
        refused(client.store_batch(&to, many, LIMIT).await.map(drop));
        refused(client.find_batch(&to, wanted.clone(), LIMIT).await.map(drop));
        let proof =
            |find: FindRequest| VerifyRequest { id: find.id, place: find.place, mac_key: [1; 32] };
        let proofs = wanted.into_iter().map(proof).collect();
        refused(client.verify_batch(&to, proofs, LIMIT).await.map(drop));
        let large: Vec<Record> = (0..5).map(|n| page(n, 2 << 20)).collect();
        refused(client.store_batch(&to, large, LIMIT).await.map(drop));
        assert_eq!(town.stores[0].stats_records(), 0, "nothing of a refused batch is kept");
    });
}

#[test]
fn a_batch_of_finds_answers_what_fits_and_asks_to_come_again_for_the_rest() {
    testkit::time::run(5, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = town.client(0, Tier::Known).await;
        let to = town.at(0);
        let large: Vec<Record> = (0..6).map(|n| page(n, 2 << 20)).collect();
        for record in &large {
            client.store(&to, record.clone(), LIMIT).await.unwrap();
        }
        let wanted: Vec<FindRequest> = large.iter().map(find).collect();
        let answers = client.find_batch(&to, wanted, LIMIT).await.unwrap();
        let sent: usize = answers
            .iter()
            .filter_map(|answer| match answer {
                Ok(FindResponse::Found(record)) => Some(record.bytes.len()),
                _ => None,
            })
            .sum();
        assert!(sent <= BATCH_BYTES_MAX && sent > BATCH_BYTES_MAX / 2, "{sent}");
        let busy = |answer: &&Result<_, _>| matches!(answer, Err(CallError::Busy { .. }));
        assert_eq!(answers.iter().filter(busy).count(), 3);
    });
}

#[test]
fn garbage_is_refused_and_not_kept() {
    testkit::time::run(6, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = town.client(0, Tier::Known).await;
        let good = page(1, 1000);
        let bad = [
            Record { bytes: Bytes::new(), ..good.clone() },
            Record { bytes: good.bytes.slice(1..), ..good.clone() },
            Record { bytes: vec![0xff; 5000].into(), ..good.clone() },
            Record { id: RecordId::new([0; 32]), ..good.clone() },
            Record { kind: Kind::Envelope, ..good.clone() },
            Record { place: Place::new([7; 32]), ..good.clone() },
            page(1, (2 << 20) + 2048),
        ];
        for record in bad {
            let stored = client.store(&town.at(0), record.clone(), LIMIT).await;
            assert!(matches!(stored, Err(CallError::Invalid { .. })), "{record:?} {stored:?}");
        }
        for at in 0..good.bytes.len() {
            let mut bytes = good.bytes.to_vec();
            bytes[at] ^= 4;
            let record = Record { bytes: bytes.into(), ..good.clone() };
            assert!(client.store(&town.at(0), record, LIMIT).await.is_err(), "byte {at}");
        }
        assert_eq!(town.stores[0].stats_records(), 0);
    });
}

#[test]
fn a_damaged_record_is_never_served_and_is_counted() {
    testkit::time::run(7, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let client = town.client(0, Tier::Own).await;
        let record = page(1, 1000);
        let put = client.put(&town.at(0), record.clone(), Duration::ZERO, LIMIT).await.unwrap();
        assert_eq!((put.acked >= 2, put.wanted), (true, 3));
        let holder = (0..9).find(|n| town.stores[*n].holds(&record.id)).unwrap();
        town.stores[holder].rotten.store(true, Ordering::SeqCst);
        let found = client.find(&town.at(holder), find(&record), LIMIT).await;
        assert!(matches!(found, Ok(FindResponse::Closest(_))), "{found:?}");
        let proof = VerifyRequest { id: record.id, place: record.place, mac_key: [8; 32] };
        let proof = client.verify(&town.at(holder), proof, LIMIT).await;
        assert!(matches!(proof, Ok(VerifyResponse::Closest(_))), "{proof:?}");
        assert!(town.peers[holder].metrics().contains("holdfast_damaged_reads_total 2"));
        // The network still has it.
        let elsewhere = client.get(&town.at(0), find(&record), LIMIT).await;
        assert_eq!(elsewhere, Ok(record));
    });
}

#[test]
fn put_and_get_walk_for_a_thin_client() {
    testkit::time::run(8, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let client = town.client(0, Tier::Own).await;
        let record = page(5, 200_000);
        let put = client.put(&town.at(3), record.clone(), Duration::ZERO, LIMIT).await.unwrap();
        assert!(put.acked >= 2 && put.wanted == 3, "{put:?}");
        let rank = town.peers[0].directory().view().holders(&record.place, 3);
        town.until("three copies at the first three of the rank", |town| {
            let holds = |n: &usize| town.stores[*n].holds(&record.id);
            let holders: Vec<_> = (0..9).filter(holds).map(|n| town.community.peer(n)).collect();
            holders.len() == 3 && holders.iter().all(|peer| rank.contains(peer))
        })
        .await;
        for number in [0, 3, 6] {
            let got = client.get(&town.at(number), find(&record), LIMIT).await;
            assert_eq!(got, Ok(record.clone()));
        }
        let missing = client.get(&town.at(0), find(&page(6, 100)), LIMIT).await;
        assert_eq!(missing, Err(CallError::NotFound));
    });
}

#[test]
fn a_put_that_may_wait_is_answered_when_every_copy_is_stored_and_no_later_than_it_may() {
    testkit::time::run(8, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let client = town.client(0, Tier::Own).await;
        let wait = Duration::from_secs(5);
        let record = page(5, 200_000);
        let put = client.put(&town.at(3), record.clone(), wait, LIMIT).await.unwrap();
        assert_eq!((put.acked, put.wanted), (3, 3));
        let copies = (0..9).filter(|n| town.stores[*n].holds(&record.id)).count();
        assert_eq!(copies, 3, "they were there when it was answered");

        // One holder is slow, and not so slow that another takes its place: the answer says what is missing.
        let record = page(6, 200_000);
        let slow = town.peers[0].directory().view().holders(&record.place, 3)[2];
        town.network.set(&slow, testkit::network::Fault::Delay(Duration::from_secs(4)));
        let short = Duration::from_millis(300);
        let since = env.clock.elapsed();
        let asked = (0..9).find(|n| town.community.peer(*n) != slow && n % 3 == 0).unwrap();
        let put = client.put(&town.at(asked), record.clone(), short, LIMIT).await.unwrap();
        let took = env.clock.elapsed() - since;
        assert!(put.acked == 2 && put.wanted == 3 && took < Duration::from_secs(2), "{took:?}");
        let put = client.put(&town.at(asked), record, wait, LIMIT).await.unwrap();
        assert_eq!((put.acked, put.wanted), (3, 3));
    });
}

#[test]
fn a_full_disk_refuses_writes_and_stays_readable() {
    testkit::time::run(9, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let client = town.client(0, Tier::Own).await;
        let kept = page(1, 100);
        client.store(&town.at(2), kept.clone(), LIMIT).await.unwrap();
        town.stores[2].full.store(true, Ordering::SeqCst);
        let refused = client.store(&town.at(2), page(2, 100), LIMIT).await;
        assert_eq!(refused, Err(CallError::Full));
        let batch = client.store_batch(&town.at(2), vec![page(3, 10)], LIMIT).await.unwrap();
        assert_eq!(batch, [Err(CallError::Full)]);
        let found = client.find(&town.at(2), find(&kept), LIMIT).await;
        assert_eq!(found, Ok(FindResponse::Found(kept)));
        assert_eq!(town.peers[2].status().read_only, Some("its disk is full"));
        // It says so, and writers go past it.
        let full = town.community.peer(2);
        town.until("all know that it takes no writes", |town| {
            town.peers.iter().all(|peer| {
                let announced = peer.directory().announcement(&full).unwrap();
                announced.state == crypto::PeerState::ReadOnly
            })
        })
        .await;
        for n in 10..30 {
            client.put(&town.at(0), page(n, 100), Duration::ZERO, LIMIT).await.unwrap();
        }
        town.stores[2].full.store(false, Ordering::SeqCst);
        town.until("it serves again", |town| {
            let announced = town.peers[0].directory().announcement(&full).unwrap();
            announced.state == crypto::PeerState::Serving
        })
        .await;
        client.store(&town.at(2), page(40, 100), LIMIT).await.unwrap();
    });
}

/// Another program fills the disk, while the peer runs or before it starts: no write has to fail first.
#[test]
fn a_disk_that_fills_is_told_before_a_write_fails() {
    testkit::time::run(12, |env| async move {
        let lines = Lines::default();
        let _logs = tracing::subscriber::set_default(lines.clone());
        let mut town = Town::empty(&env, 1, 2);
        let kept = |options: &mut librarian::LibrarianOptions| {
            options.store_path = Some("/srv/peer/store".into());
        };
        town.start_next(kept).await;
        let announced = |town: &Town, number: usize| {
            let peer = town.community.peer(number);
            town.peers[number].directory().announcement(&peer).unwrap().state
        };
        town.stores[0].full.store(true, Ordering::SeqCst);
        town.until("it says so", |town| announced(town, 0) == crypto::PeerState::ReadOnly).await;
        env.clock.sleep(Duration::from_secs(60)).await;
        let told = lines.with("the disk is full");
        let [told] = &told[..] else { panic!("once: {told:?}") };
        assert!(told.starts_with("ERROR") && told.contains("path=/srv/peer/store"), "{told}");
        assert!(lines.with("room again").is_empty());

        town.stores[0].full.store(false, Ordering::SeqCst);
        town.until("it serves", |town| announced(town, 0) == crypto::PeerState::Serving).await;
        env.clock.sleep(Duration::from_secs(60)).await;
        let told = lines.with("room again");
        assert!(told.len() == 1 && told[0].starts_with("INFO"), "{told:?}");

        let shop = Arc::new(Shop::new(Arc::new(store::MemoryStore::new())));
        shop.full.store(true, Ordering::SeqCst);
        let peer = town.start(1, shop.clone(), kept).await;
        town.peers.push(peer);
        town.stores.push(shop);
        env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(announced(&town, 1), crypto::PeerState::ReadOnly, "from the start");
        assert_eq!(lines.with("the disk is full").len(), 2);
    });
}

#[test]
fn a_read_only_peer_serves_reads_alone() {
    testkit::time::run(10, |env| async move {
        let mut town = Town::empty(&env, 1, 1);
        town.start_next(|options| options.read_only = true).await;
        let client = town.client(0, Tier::Own).await;
        let refused = client.store(&town.at(0), page(1, 100), LIMIT).await;
        assert!(matches!(refused, Err(CallError::ReadOnly { .. })), "{refused:?}");
        let refused = client.store_batch(&town.at(0), vec![page(1, 100)], LIMIT).await.unwrap();
        assert!(matches!(refused[..], [Err(CallError::ReadOnly { .. })]), "{refused:?}");
        let found = client.find(&town.at(0), find(&page(1, 100)), LIMIT).await;
        assert!(matches!(found, Ok(FindResponse::Closest(_))));
        assert_eq!(town.peers[0].status().state, "read-only");
    });
}
