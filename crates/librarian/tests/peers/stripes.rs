//! Fragments of stripes: kept where their header is and as it says, found at their place, charged like any record.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crypto::{Place, RecordId, Suite, Tier};
use document::{Document, Kind, ParityBuffer, Record, Stripe, Striped};
use env::calls::{
    BATCH_MAX, CallError, FindRequest, FindResponse, StoreOutcome, VerifyRequest, VerifyResponse,
};
use testkit::network::Fault;
use walk::{Directory, Fetched, FragmentState, StripeRecords, StripeShape, WalkOptions, Walker};

use crate::town::{LIMIT, Town, envelope, page};

const SUITE: Suite = Suite::Holdfast1;

/// A stripe of `k` pages of n that depends on `seed`. What the parity holds is not what a librarian looks at.
fn stripe(seed: u32, k: u32, n: u32, bytes: usize) -> Striped {
    let pages: Vec<Record> = (0..k).map(|index| page(seed + index, bytes)).collect();
    of(pages, n)
}

fn of(pages: Vec<Record>, n: u32) -> Striped {
    let longest = pages.iter().map(|page| page.bytes.len()).max().unwrap();
    let parity = (pages.len() as u32..n).map(|index| {
        let mut buffer = ParityBuffer::new(index, longest).unwrap();
        buffer.bytes_mut()[..32].copy_from_slice(pages[0].id.as_bytes());
        buffer.record(SUITE)
    });
    Stripe::of(SUITE, pages.clone(), parity.collect()).unwrap()
}

fn with_header(striped: &Striped, fragments: &[usize]) -> Vec<Record> {
    let fragments = fragments.iter().map(|index| striped.fragments[*index].clone());
    std::iter::once(striped.header.clone()).chain(fragments).collect()
}

fn find(record: &Record) -> FindRequest {
    FindRequest { id: record.id, place: record.place }
}

fn invalid<T: std::fmt::Debug>(outcome: &Result<T, CallError>, says: &str) {
    let Err(CallError::Invalid { reason }) = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains(says), "{reason}");
}

#[test]
fn a_fragment_comes_with_its_header_and_is_found_and_proven_at_its_place() {
    testkit::time::run(1, |env| async move {
        let town = Town::new(&env, 1, 2).await;
        let client = town.client(0, Tier::Known).await;
        let to = town.at(1);
        let striped = stripe(1, 4, 8, 70_000);
        let batch = with_header(&striped, &[2, 7]);
        let outcomes = client.store_batch(&to, batch.clone(), LIMIT).await.unwrap();
        assert_eq!(outcomes, vec![Ok(StoreOutcome::Stored); 3]);
        assert!(town.peers[1].metrics().contains("holdfast_fragments 2\n"));
        assert_eq!(town.peers[1].status().store.fragments, 2);
        // From then on by itself too, and once.
        let later = client.store(&to, striped.fragments[5].clone(), LIMIT).await;
        assert_eq!(later, Ok(StoreOutcome::Stored));
        let again = client.store(&to, striped.fragments[2].clone(), LIMIT).await;
        assert_eq!(again, Ok(StoreOutcome::Present));
        for record in batch.iter().chain([&striped.fragments[5]]) {
            let found = client.find(&to, find(record), LIMIT).await;
            assert_eq!(found, Ok(FindResponse::Found(record.clone())));
            let FindRequest { id, place } = find(record);
            let proof = VerifyRequest { id, place, mac_key: [8; 32] };
            let mac = SUITE.mac(&[8; 32], &record.bytes);
            assert_eq!(client.verify(&to, proof, LIMIT).await, Ok(VerifyResponse::Mac(mac)));
        }
        let all = batch.iter().map(find).collect();
        let found = client.find_batch(&to, all, LIMIT).await.unwrap();
        let wanted: Vec<_> = batch.into_iter().map(|one| Ok(FindResponse::Found(one))).collect();
        assert_eq!(found, wanted);
    });
}

#[test]
fn the_header_may_stand_anywhere_in_the_batch_and_serves_its_own_fragments_alone() {
    testkit::time::run(2, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = town.client(0, Tier::Known).await;
        let (one, two) = (stripe(1, 2, 4, 100), stripe(50, 2, 4, 100));
        let there = |record: &Record| Record { place: one.header.place, ..record.clone() };
        let batch = vec![
            one.fragments[3].clone(),
            page(90, 100),
            there(&two.fragments[0]),
            two.fragments[1].clone(),
            one.header.clone(),
            one.fragments[0].clone(),
        ];
        let outcomes = client.store_batch(&town.at(0), batch, LIMIT).await.unwrap();
        for at in [0, 1, 4, 5] {
            assert_eq!(outcomes[at], Ok(StoreOutcome::Stored), "{at}");
        }
        invalid(&outcomes[2], "does not list");
        invalid(&outcomes[3], "send the stripe's header first");
        assert_eq!(town.stores[0].stats_records(), 4);
    });
}

#[test]
fn a_fragment_without_a_header_that_lists_it_so_is_refused() {
    testkit::time::run(3, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = town.client(0, Tier::Known).await;
        let to = town.at(0);
        let striped = stripe(1, 3, 6, 500);
        for fragment in &striped.fragments {
            let alone = client.store(&to, fragment.clone(), LIMIT).await;
            invalid(&alone, "send the stripe's header first");
        }
        // A record that is held at that id, but is no header.
        let other = page(80, 100);
        client.store(&to, other.clone(), LIMIT).await.unwrap();
        let there = Record { place: other.place, ..striped.fragments[0].clone() };
        invalid(&client.store(&to, there, LIMIT).await, "send the stripe's header first");

        // Headers that list the right ids at the wrong numbers, or with other lengths.
        type Lie = fn(&mut Vec<u32>, &mut Vec<RecordId>);
        let lies: [(u32, Lie, &[usize]); 3] = [
            (20, |_, ids| ids.swap(2, 3), &[2, 3]),
            (30, |_, ids| ids.swap(4, 5), &[4, 5]),
            (40, |lengths, _| lengths[2] += 1, &[2, 3, 4, 5]),
        ];
        for (seed, lie, wrong) in lies {
            let striped = stripe(seed, 3, 6, 500);
            let mut lengths = striped.stripe.lengths().to_vec();
            let mut ids = striped.stripe.fragments().to_vec();
            lie(&mut lengths, &mut ids);
            let lying = Document::Stripe(Stripe::new(lengths, ids).unwrap());
            let header = Record::of(SUITE, &lying);
            let place = header.place;
            let mut batch = vec![header];
            batch.extend(striped.fragments.into_iter().map(|one| Record { place, ..one }));
            let outcomes = client.store_batch(&to, batch.clone(), LIMIT).await.unwrap();
            for (at, (outcome, record)) in outcomes.iter().zip(&batch).enumerate() {
                let wrong = at > 0 && wrong.contains(&(at - 1));
                assert_eq!(town.stores[0].holds(&record.id), !wrong, "{seed} {at}");
                if wrong {
                    invalid(outcome, "is not what the stripe's header says");
                }
            }
        }

        // Parity at its own id, and other kinds at a stripe.
        client.store(&to, striped.header.clone(), LIMIT).await.unwrap();
        let parity = &striped.fragments[4];
        let at_its_id = Record { place: parity.id.into(), ..parity.clone() };
        invalid(&client.store(&to, at_its_id, LIMIT).await, "does not live where");
        let envelope = Record { place: striped.header.place, ..envelope(1, 0).0 };
        invalid(&client.store(&to, envelope, LIMIT).await, "does not live where");
        let elsewhere = Record { place: Place::new([7; 32]), ..striped.header.clone() };
        invalid(&client.store(&to, elsewhere, LIMIT).await, "does not live where");
    });
}

/// A page that is a copy at its id, or in two stripes, is one record, found wherever it may live.
#[test]
fn nobody_takes_a_fragment_away_from_its_stripe_by_naming_it_in_another() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = town.client(0, Tier::Known).await;
        let to = town.at(0);
        let first = stripe(1, 2, 4, 100);
        let other = of(vec![first.fragments[1].clone(), page(70, 100)], 5);
        assert_eq!(other.fragments[0].id, first.fragments[1].id);
        client.store_batch(&to, with_header(&other, &[0]), LIMIT).await.unwrap();
        let outcomes = client.store_batch(&to, with_header(&first, &[1]), LIMIT).await.unwrap();
        assert_eq!(outcomes, [Ok(StoreOutcome::Stored), Ok(StoreOutcome::Present)]);
        let at_its_id =
            Record { place: first.fragments[1].id.into(), ..first.fragments[1].clone() };
        for record in [&first.fragments[1], &other.fragments[0], &at_its_id] {
            let found = client.find(&to, find(record), LIMIT).await;
            assert_eq!(found, Ok(FindResponse::Found(record.clone())));
        }
        // But at no place where it may not live.
        let nowhere = FindRequest { id: first.fragments[1].id, place: Place::new([7; 32]) };
        let found = client.find(&to, nowhere, LIMIT).await;
        assert!(matches!(found, Ok(FindResponse::Closest(_))), "{found:?}");
        client.store(&to, first.fragments[3].clone(), LIMIT).await.unwrap();
        let parity = FindRequest { id: first.fragments[3].id, place: first.fragments[3].id.into() };
        let found = client.find(&to, parity, LIMIT).await;
        assert!(matches!(found, Ok(FindResponse::Closest(_))), "{found:?}");
    });
}

#[test]
fn a_batch_reads_each_header_once() {
    testkit::time::run(5, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = town.client(0, Tier::Known).await;
        let to = town.at(0);
        let stripes: Vec<Striped> = (0..4).map(|n| stripe(n * 1000, 128, 256, 32)).collect();
        for striped in &stripes {
            client.store(&to, striped.header.clone(), LIMIT).await.unwrap();
        }
        let batch: Vec<Record> =
            stripes.iter().flat_map(|striped| striped.fragments.clone()).collect();
        assert_eq!(batch.len(), BATCH_MAX);
        let before = town.stores[0].reads.load(Ordering::SeqCst);
        let outcomes = client.store_batch(&to, batch, LIMIT).await.unwrap();
        assert!(outcomes.iter().all(|outcome| *outcome == Ok(StoreOutcome::Stored)));
        assert_eq!(town.stores[0].reads.load(Ordering::SeqCst) - before, 4);
    });
}

#[test]
fn put_refuses_fragments_and_says_what_to_do() {
    testkit::time::run(6, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let client = town.client(0, Tier::Own).await;
        let striped = stripe(1, 2, 4, 100);
        for fragment in [&striped.fragments[0], &striped.fragments[3]] {
            let put = client.put(&town.at(0), fragment.clone(), Duration::ZERO, LIMIT).await;
            invalid(&put, "StoreBatch");
        }
        assert!(town.stores.iter().all(|store| store.stats_records() == 0));
        let got = client.get(&town.at(0), find(&striped.fragments[0]), LIMIT).await;
        assert_eq!(got, Err(CallError::NotFound));
    });
}

#[test]
fn a_damaged_header_is_no_header() {
    testkit::time::run(7, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = town.client(0, Tier::Known).await;
        let striped = stripe(1, 2, 4, 100);
        client.store(&town.at(0), striped.header.clone(), LIMIT).await.unwrap();
        town.stores[0].rotten.store(true, Ordering::SeqCst);
        let refused = client.store(&town.at(0), striped.fragments[0].clone(), LIMIT).await;
        invalid(&refused, "send the stripe's header first");
        assert_eq!(striped.fragments[0].kind, Kind::Page);
        let whole = with_header(&striped, &[0]);
        let outcomes = client.store_batch(&town.at(0), whole, LIMIT).await.unwrap();
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    });
}

#[test]
fn misses_at_one_place_tell_the_closest_peers_once_a_batch() {
    testkit::time::run(9, |env| async move {
        let town = Town::new(&env, 2, 4).await;
        let client = town.client(0, Tier::Known).await;
        let to = town.at(0);
        let striped = stripe(1, 4, 8, 100);
        let own = with_header(&striped, &[3]);
        client.store_batch(&to, own, LIMIT).await.unwrap();
        let asked: Vec<FindRequest> = striped.fragments.iter().map(find).collect();
        let found = client.find_batch(&to, asked.clone(), LIMIT).await.unwrap();
        let told = |answer: &Result<FindResponse, _>| match answer {
            Ok(FindResponse::Closest(closest)) => closest.len(),
            _ => 0,
        };
        assert_eq!(found.iter().map(told).collect::<Vec<_>>(), [3, 0, 0, 0, 0, 0, 0, 0]);
        assert!(matches!(&found[3], Ok(FindResponse::Found(_))));
        let proofs = asked.iter().map(|asked| VerifyRequest {
            id: asked.id,
            place: asked.place,
            mac_key: [8; 32],
        });
        let proven = client.verify_batch(&to, proofs.collect(), LIMIT).await.unwrap();
        let told = |answer: &Result<VerifyResponse, _>| match answer {
            Ok(VerifyResponse::Closest(closest)) => Some(closest.len()),
            _ => None,
        };
        let expected = [3, 0, 0, 9, 0, 0, 0, 0].map(|count| (count < 9).then_some(count));
        assert_eq!(proven.iter().map(told).collect::<Vec<_>>(), expected);
        // Another place in the same batch is another answer.
        let other = find(&stripe(20, 1, 2, 100).fragments[0]);
        let found = client.find_batch(&to, vec![asked[0], other, asked[1]], LIMIT).await.unwrap();
        let count = |answer: &Result<FindResponse, _>| match answer {
            Ok(FindResponse::Closest(closest)) => closest.len(),
            _ => 0,
        };
        assert_eq!(found.iter().map(count).collect::<Vec<_>>(), [3, 3, 0]);
    });
}

/// What the walk does with a stripe, at librarians: stored with its header, read whole, read around losses, surveyed, and
/// read through one of them.
#[test]
fn a_walk_stores_a_stripe_at_librarians_and_reads_it_around_losses() {
    testkit::time::run(10, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let striped = testkit::network::stripe(1, 4, 8, 70_000);
        let directory = Directory::new(town.community.genesis.clone(), env.clone(), None);
        directory.learn_from(&town.community.known());
        let calls = town.client(0, Tier::Own).await;
        let walker =
            Walker::new(env.clone(), calls.clone(), directory.clone(), WalkOptions::default());
        let Striped { header, fragments, .. } = striped.clone();
        let records = StripeRecords { header, fragments, threshold: 7 };
        let mut stored = walker.store_stripe(records).await.unwrap();
        assert!(stored.rest.wait(LIMIT).await.is_full());
        let shape = StripeShape::new(striped.header.id, &striped.stripe);
        let right = |fetched: &Fetched| {
            fetched.fragments.iter().all(|(index, record)| *record == striped.fragments[*index])
        };
        let whole = walker.fetch_stripe(&shape, 0..4).await.unwrap();
        assert!(right(&whole) && !whole.is_degraded() && whole.fragments.len() == 4);
        let told = walker.survey_stripe(&shape, &whole.fragments, &[]).await;
        let states: Vec<_> = told.iter().map(|at| &at.state).collect();
        assert_eq!(states[..4], [&FragmentState::Proven; 4]);
        assert_eq!(states[4..], [&FragmentState::Claimed; 4]);
        let holders = directory.view().holders(&striped.header.place, 8);
        assert!(told.iter().zip(&holders).all(|(at, peer)| at.holder == Some(*peer)));
        for lost in &holders[..4] {
            town.network.set(lost, Fault::Down);
        }
        let degraded = walker.fetch_stripe(&shape, 0..4).await.unwrap();
        assert!(right(&degraded) && degraded.is_degraded());
        // A thin client, through a librarian that is left.
        let mut own = town.community.members.iter().step_by(3);
        let door = own.find(|member| !holders[..4].contains(&member.peer)).unwrap();
        let options = WalkOptions { through: vec![door.address.clone()], ..WalkOptions::default() };
        let thin = Walker::new(env, calls, directory, options);
        let fetched = thin.fetch_stripe(&shape, 1..3).await.unwrap();
        assert!(right(&fetched) && fetched.fragments.len() == 4);
    });
}
