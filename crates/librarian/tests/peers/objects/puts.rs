//! What becomes of puts: order, depth, batches, regions, receipts, restarts.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crypto::{RecordId, Tier};
use env::calls::CallError;
use env::calls::objects::{PutObjects, PutOutcome};
use testkit::network::key;
use version::{
    AnyAttestation, Bases, BatchAttester, Durability, Hint, Policy, Receipt, Redirect, ValueKind,
    Version,
};

use super::pen::{Caller, Made, Pen, SUITE, is_denied, public};
use crate::town::Town;

async fn caller(town: &Town) -> Caller {
    Caller::new(town.client(0, Tier::Own).await, town.at(0))
}

/// Everybody reads.
fn open(pen: &Pen) -> Policy {
    Policy { open: true, public: true, ..pen.policy(1) }
}

#[test]
fn a_put_is_answered_record_by_record_and_once() {
    testkit::time::run(1, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = pen.write(&[], "root");
        let put = pen.write(&[&root], "put");
        let unknown = client.put(vec![root.record.clone(), pen.attest(&root, 0)]).await;
        assert_eq!(unknown[0], Ok(PutOutcome::NoObject));
        assert!(is_denied(&unknown[1], "names no version"), "{unknown:?}");
        let records = vec![
            pen.record(),
            pen.sign(&open(&pen)),
            root.record.clone(),
            put.record.clone(),
            pen.attest(&root, 1),
            pen.attest(&put, 0),
        ];
        assert_eq!(client.put(records.clone()).await, vec![Ok(PutOutcome::Stored); 6]);
        assert_eq!(client.put(records).await, vec![Ok(PutOutcome::Present); 6]);
        // What is attested here needs no attestation again.
        assert_eq!(client.put(vec![put.record.clone()]).await, [Ok(PutOutcome::Present)]);
        assert_eq!(client.tip_hs(&pen).await, [put.h()]);
        let tips = client.tips(&pen).await.unwrap();
        assert_eq!(tips.object, Some(pen.record()));
        assert_eq!(tips.policy, Some(pen.sign(&open(&pen))));
        let attestation = tips.tips[0].attestation.clone().unwrap();
        let attestation = AnyAttestation::decode(&attestation).unwrap();
        attestation.verify(SUITE).unwrap();
        assert!(attestation.names(&put.h()));
        let found = client.previous(pen.at(&put), 5).await.unwrap();
        assert_eq!((found.records, found.missing), (vec![put.record, root.record], None));
    });
}

#[test]
fn two_writers_on_one_base_make_two_tips_and_a_merge_joins_them() {
    testkit::time::run(2, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = pen.write(&[], "root");
        let records = vec![pen.record(), pen.sign(&open(&pen)), root.record.clone()];
        client.must_put([records, vec![pen.attest(&root, 1)]].concat()).await;
        let (left, right) = (pen.write(&[&root], "left"), pen.write(&[&root], "right"));
        let put = |made: &Made| client.put(vec![made.record.clone(), pen.attest(made, 1)]);
        futures::join!(put(&left), put(&right));
        let mut both = vec![left.h(), right.h()];
        both.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(client.tip_hs(&pen).await, both);
        let merge = pen.write(&[&left, &right], "both");
        client.must_put(vec![merge.record.clone(), pen.attest(&merge, 1)]).await;
        assert_eq!(client.tip_hs(&pen).await, [merge.h()]);
        let found = client.previous(pen.at(&merge), 9).await.unwrap();
        assert_eq!(found.records, [merge.record, left.record, right.record]);
    });
}

#[test]
fn a_version_before_its_base_is_taken_and_the_base_is_no_tip() {
    testkit::time::run(3, |env| async move {
        let mut town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = pen.write(&[], "root");
        let put = pen.write(&[&root], "put");
        let records = vec![pen.record(), pen.sign(&open(&pen)), put.record.clone()];
        client.must_put([records, vec![pen.attest(&put, 1)]].concat()).await;
        let found = client.previous(pen.at(&put), 5).await.unwrap();
        assert_eq!((found.records, found.missing), (vec![put.record.clone()], Some(root.h())));
        town.restart(0).await;
        let client = caller(&town).await;
        client.must_put(vec![root.record.clone(), pen.attest(&root, 1)]).await;
        assert_eq!(client.tip_hs(&pen).await, [put.h()]);
        // Bases that are here must be what a version says.
        let mut deep: Version = put.version.clone();
        deep.l = 5;
        let deep = Made { record: deep.record(SUITE, Hint::FIRST).0, version: deep };
        let outcome = client.put(vec![deep.record.clone(), pen.attest(&deep, 1)]).await.remove(0);
        assert!(matches!(outcome, Err(CallError::Invalid { .. })), "{outcome:?}");
        let other = Pen::new(&town, 1, "another");
        let mixed = other.write(&[&root], "on another object's");
        let records = vec![other.record(), mixed.record.clone(), other.attest(&mixed, 0)];
        let outcome = client.put(records).await.remove(1);
        assert!(matches!(outcome, Err(CallError::Invalid { .. })), "{outcome:?}");
        assert_eq!(client.tip_hs(&pen).await, [put.h()]);
    });
}

#[test]
fn of_a_batch_what_was_taken_keeps_its_path() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = pen.write(&[], "root");
        let rest: Vec<Made> =
            (0..100).map(|number| pen.write(&[&root], &format!("put {number}"))).collect();
        let mut batch = BatchAttester::new(SUITE, pen.network, 1);
        for made in [&root].into_iter().chain(&rest) {
            batch.add(&made.h()).unwrap();
        }
        let batch = batch.finish(SUITE, &pen.owner).unwrap();
        let records = vec![pen.record(), pen.sign(&open(&pen)), root.record.clone()];
        let few = rest[..2].iter().map(|made| made.record.clone()).collect();
        client.must_put([records, few, vec![batch.clone()]].concat()).await;
        assert!(!town.stores[0].holds(&batch.id), "not whole");
        let attested = async |made: &Made| {
            let found = client.get(&pen, made).await.unwrap().unwrap();
            let found = AnyAttestation::decode(&found.attestation.unwrap()).unwrap();
            found.verify(SUITE).unwrap();
            assert!(found.names(&made.h()));
            matches!(found, AnyAttestation::One(_))
        };
        assert!(attested(&rest[1]).await);
        // Each needs it again; the last of them completes it.
        let outcome = client.put(vec![rest[5].record.clone()]).await.remove(0);
        assert!(is_denied(&outcome, "no attestation"), "{outcome:?}");
        let all = rest.iter().map(|made| made.record.clone()).chain([batch.clone()]).collect();
        client.must_put(all).await;
        assert!(town.stores[0].holds(&batch.id));
        for made in [&root, &rest[0], &rest[99]] {
            assert!(attested(made).await, "a path, and not all hashes");
        }
    });
}

#[test]
fn a_full_region_sends_writers_on_and_a_new_policy_opens_it() {
    testkit::time::run(5, |env| async move {
        let mut town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = pen.write(&[], &"x".repeat(400));
        let size = root.record.bytes.len() as u64;
        let policy = |version, bytes| Policy { region_bytes: bytes, version, ..open(&pen) };
        let records = vec![pen.record(), pen.sign(&policy(1, 2 * size)), root.record.clone()];
        client.must_put([records, vec![pen.attest(&root, 1)]].concat()).await;
        let long = |n, number: usize| {
            pen.write_at(n, &[&root], &format!("{number:03}{}", "y".repeat(397)))
        };
        let mut n = Hint::FIRST;
        let mut redirects = Vec::new();
        for overflow in 0..=16 {
            for number in 0..3 {
                let made = long(n, overflow * 10 + number);
                let outcome = client.put(vec![made.record.clone(), pen.attest(&made, 1)]).await;
                match &outcome[0] {
                    Ok(PutOutcome::Stored) => {}
                    Ok(PutOutcome::Redirect(redirect)) => {
                        let told = Redirect::decode(redirect).unwrap();
                        told.verify(&pen.network).unwrap();
                        assert_eq!((told.peer, told.object), (town.peers[0].peer(), pen.object()));
                        assert_eq!(told.n, n);
                        redirects.push(redirect.clone());
                        n = told.next;
                        break;
                    }
                    Err(CallError::Full) => assert_eq!(overflow, 16),
                    outcome => panic!("{outcome:?}"),
                }
            }
        }
        assert_eq!(redirects.len(), 16);
        assert_eq!(client.tips(&pen).await.unwrap().redirects, redirects);
        // After a restart it is full, and told, all the same.
        town.restart(0).await;
        let client = caller(&town).await;
        assert_eq!(client.tips(&pen).await.unwrap().redirects.len(), 16);
        let more = long(Hint::FIRST, 500);
        let records = vec![more.record.clone(), pen.attest(&more, 1)];
        let outcome = client.put(records.clone()).await;
        assert!(matches!(outcome[0], Ok(PutOutcome::Redirect(_))), "{outcome:?}");
        client.must_put(vec![pen.sign(&policy(2, 5 * size))]).await;
        client.must_put(records).await;
    });
}

#[test]
fn receipts_are_for_what_is_kept() {
    testkit::time::run(6, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = pen.write(&[], "root");
        let refused = pen.write(&[&root], "not attested");
        let put = pen.write(&[&root], "put");
        let records = vec![
            pen.record(),
            root.record.clone(),
            refused.record.clone(),
            put.record.clone(),
            pen.attest(&root, 0),
            pen.attest(&put, 0),
        ];
        let durability = Some(Durability::Group);
        let request = PutObjects { records, durability, receipt: true, compress: false };
        for _ in 0..2 {
            let answer = client.put_all(request.clone()).await.unwrap();
            let receipt = Receipt::decode(&answer.receipt.unwrap()).unwrap();
            receipt.verify(SUITE, &[root.h(), put.h()]).unwrap();
            assert!(receipt.verify(SUITE, &[root.h(), refused.h()]).is_err());
            assert_eq!((receipt.peer, receipt.network), (town.peers[0].peer(), pen.network));
            assert_eq!(receipt.durability, Durability::Group);
        }
        let none =
            PutObjects { records: vec![refused.record], receipt: true, ..Default::default() };
        assert_eq!(client.put_all(none).await.unwrap().receipt, None);
    });
}

#[test]
fn nothing_of_a_put_is_there_that_the_disk_did_not_take() {
    testkit::time::run(7, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = pen.write(&[], "root");
        let size = root.record.bytes.len() as u64;
        let policy = pen.sign(&Policy { region_bytes: size, ..open(&pen) });
        client.must_put(vec![pen.record(), policy]).await;
        town.stores[0].full.store(true, Ordering::SeqCst);
        let records = vec![root.record.clone(), pen.attest(&root, 1)];
        assert_eq!(client.put(records.clone()).await, vec![Err(CallError::Full); 2]);
        assert_eq!(client.get(&pen, &root).await, Ok(None));
        assert!(client.tip_hs(&pen).await.is_empty());
        town.stores[0].full.store(false, Ordering::SeqCst);
        // Its bytes were given back, else it would be sent on.
        assert_eq!(client.put(records).await, vec![Ok(PutOutcome::Stored); 2]);
        town.peers[0].set_read_only(true).await;
        let put = PutObjects { records: vec![root.record.clone()], ..Default::default() };
        let refused = client.put_all(put).await;
        assert!(matches!(refused, Err(CallError::ReadOnly { .. })), "{refused:?}");
    });
}

#[test]
fn all_of_it_is_there_after_a_restart() {
    testkit::time::run(8, |env| async move {
        let mut town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = pen.write(&[], "root");
        let records = vec![
            pen.record(),
            pen.sign(&open(&pen)),
            pen.sign(&Policy { version: 2, ..open(&pen) }),
        ];
        client.must_put([records, vec![root.record.clone(), pen.attest(&root, 1)]].concat()).await;
        let before = client.tips(&pen).await.unwrap();
        town.restart(0).await;
        let client = caller(&town).await;
        assert_eq!(client.tips(&pen).await.unwrap(), before);
        let back = client.put(vec![pen.sign(&open(&pen))]).await.remove(0);
        assert!(is_denied(&back, "rolled back"), "{back:?}");
        assert_eq!(client.put(vec![root.record.clone()]).await, [Ok(PutOutcome::Present)]);
        let hs: Vec<RecordId> = client.tip_hs(&pen).await;
        assert_eq!(hs, [root.h()]);
    });
}

#[test]
fn a_put_whose_caller_went_away_counts_until_it_is_done() {
    testkit::time::run(9, |env| async move {
        let mut town = Town::empty(&env, 1, 1);
        town.start_next(|options| options.limits.write_bytes_max = 10_000).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        client.must_put(vec![pen.record(), pen.sign(&open(&pen))]).await;
        let root = pen.write(&[], &"x".repeat(6_000));
        let next = pen.write(&[&root], &"y".repeat(6_000));
        let put = |made: &Made| {
            let records = vec![made.record.clone(), pen.attest(made, 1)];
            client.put_all(PutObjects { records, ..PutObjects::default() })
        };
        town.stores[0].slow(&env, Duration::from_secs(5));
        {
            let call = put(&root);
            futures::pin_mut!(call);
            for _ in 0..3 {
                assert!(futures::poll!(call.as_mut()).is_pending(), "it is being written");
            }
        }
        for _ in 0..4 {
            let refused = put(&next).await;
            assert!(matches!(refused, Err(CallError::Busy { .. })), "{refused:?}");
            env.clock.sleep(Duration::from_secs(1)).await;
        }
        assert!(!town.stores[0].holds(&root.h()), "it is still being written");
        env.clock.sleep(Duration::from_secs(2)).await;
        assert_eq!(client.tip_hs(&pen).await, [root.h()]);
        put(&next).await.unwrap();
        assert_eq!(client.tip_hs(&pen).await, [next.h()]);
    });
}

/// The same attestations are not read for each copy, and no copy is told something else than the first.
#[test]
fn a_version_that_stands_in_a_request_a_thousand_times_is_looked_at_once() {
    testkit::time::run(10, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let writer = key("writer", 1);
        let policy = |version, writers| pen.sign(&Policy { version, writers, ..open(&pen) });
        let root = pen.write(&[], "root");
        client.must_put(vec![pen.record(), policy(1, vec![public(&writer)])]).await;
        let mut copies = vec![root.record.clone(); 3];
        copies.push(pen.attest_by(&writer, &root, 1));
        assert_eq!(client.put(copies.clone()).await, vec![Ok(PutOutcome::Stored); 4]);
        assert_eq!(client.put(copies).await, vec![Ok(PutOutcome::Present); 4]);
        // Struck off: its attestation, which is here, is looked at in vain.
        client.must_put(vec![policy(2, vec![])]).await;
        let reads = || town.stores[0].reads.load(Ordering::SeqCst);
        let before = reads();
        let outcomes = client.put(vec![root.record.clone(); 1_000]).await;
        assert!(outcomes.iter().all(|outcome| is_denied(outcome, "may not write")));
        assert!(reads() - before < 20, "{} reads for one version", reads() - before);
    });
}

#[test]
fn a_put_that_ends_with_an_error_gives_back_what_it_kept_of_a_region() {
    testkit::time::run(11, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let (pen, other) = (Pen::new(&town, 1, "report"), Pen::new(&town, 1, "another"));
        let (root, of_other) = (pen.write(&[], "root"), other.write(&[], "another root"));
        let region_bytes = root.record.bytes.len() as u64;
        let policy = pen.sign(&Policy { region_bytes, ..open(&pen) });
        client.must_put(vec![pen.record(), policy, other.record()]).await;
        let unreadable = &town.stores[0].unreadable;
        unreadable.lock().unwrap().insert(other.record().id);
        let records = vec![root.record.clone(), pen.attest(&root, 1)];
        let both = vec![of_other.record.clone(), other.attest(&of_other, 0)];
        let both = PutObjects { records: [records.clone(), both].concat(), ..Default::default() };
        let failed = client.put_all(both).await;
        assert!(matches!(failed, Err(CallError::Internal { .. })), "{failed:?}");
        unreadable.lock().unwrap().clear();
        // Else it would be sent on.
        assert_eq!(client.put(records).await, vec![Ok(PutOutcome::Stored); 2]);
    });
}

#[test]
fn of_one_authors_attestations_of_a_version_a_few_are_taken() {
    testkit::time::run(12, |env| async move {
        let mut town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let writer = key("writer", 1);
        let writers = vec![public(&writer)];
        let policy = pen.sign(&Policy { version: 20, writers, ..open(&pen) });
        let root = pen.write(&[], "root");
        let records = vec![pen.record(), policy, root.record.clone(), pen.attest(&root, 0)];
        client.must_put(records).await;
        // Each says the same in other bytes.
        let again = |number| pen.attest(&root, number);
        let is_enough = |outcome: &Result<PutOutcome, CallError>| {
            let says = |reason: &str| reason.contains("one is enough");
            matches!(outcome, Err(CallError::Invalid { reason }) if says(reason))
        };
        let outcomes = client.put((1..=10).map(again).collect()).await;
        assert_eq!(outcomes[..3], vec![Ok(PutOutcome::Stored); 3]);
        assert!(outcomes[3..].iter().all(is_enough), "{outcomes:?}");
        assert!(is_enough(&client.put(vec![again(11)]).await[0]));
        assert_eq!(client.put(vec![again(2)]).await, [Ok(PutOutcome::Present)]);
        // Another's word is taken, and one that is for a version of which there is none.
        client.must_put(vec![pen.attest_by(&writer, &root, 0)]).await;
        let next = pen.write(&[&root], "next");
        let mut batch = BatchAttester::new(SUITE, pen.network, 12);
        for made in [&root, &next] {
            batch.add(&made.h()).unwrap();
        }
        let batch = batch.finish(SUITE, &pen.owner).unwrap();
        client.must_put(vec![next.record.clone(), batch.clone()]).await;
        assert!(town.stores[0].holds(&batch.id), "whole");
        town.restart(0).await;
        let client = caller(&town).await;
        assert!(is_enough(&client.put(vec![again(12)]).await[0]));
        client.must_put(vec![pen.attest_by(&writer, &root, 1)]).await;
        assert!(client.get(&pen, &next).await.unwrap().unwrap().attestation.is_some());
    });
}

#[test]
fn a_branch_more_of_an_object_of_very_many_is_busy_until_some_are_merged() {
    testkit::time::run(13, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        client.must_put(vec![pen.record(), pen.sign(&open(&pen))]).await;
        let (objects, object) = (town.peers[0].objects(), pen.object());
        let numbers: Vec<u32> = (0..65_536).collect();
        for some in numbers.chunks(1_000) {
            let mut batch = objects.batch();
            for number in some {
                let value = number.to_string();
                let put = batch.put_now(&object, Bases::NONE, ValueKind::Bytes, value.as_bytes());
                put.unwrap().unwrap();
            }
            batch.commit(None).await.unwrap();
        }
        let more = pen.write(&[], "one more");
        let more = vec![more.record.clone(), pen.attest(&more, 1)];
        let outcome = client.put(more.clone()).await.remove(0);
        assert!(matches!(outcome, Err(CallError::Busy { .. })), "{outcome:?}");
        let (left, right) = (pen.write(&[], "0"), pen.write(&[], "1"));
        let merge = pen.write(&[&left, &right], "both");
        client.must_put(vec![merge.record.clone(), pen.attest(&merge, 1)]).await;
        client.must_put(more).await;
    });
}
