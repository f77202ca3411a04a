//! What nobody may do: write under another's name, read what is not theirs, bring back what was.

use crypto::{NetworkId, SecretKey, Tier};
use env::calls::CallError;
use env::calls::objects::{PutOutcome, VersionAt};
use testkit::network::key;
use version::attestation::attest;
use version::{ObjectRecord, Policy, ReaderClaim};

use super::pen::{Caller, Pen, SUITE, is_denied, public};
use crate::town::Town;

/// A client of peer 0.
async fn caller(town: &Town) -> Caller {
    Caller::new(town.client(0, Tier::Own).await, town.at(0))
}

#[test]
fn nobody_writes_under_anothers_name() {
    testkit::time::run(1, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let root = pen.write(&[], "root");
        let policy = pen.sign(&Policy { public: true, ..pen.policy(1) });
        let records = vec![pen.record(), policy, root.record.clone(), pen.attest(&root, 0)];
        client.must_put(records).await;

        // An object's record that says another owner is another object.
        let thief = key("thief", 0);
        let mut other = ObjectRecord::decode(&pen.record().bytes).unwrap();
        other.owner = public(&thief);
        let mut planted = other.record(SUITE).unwrap();
        planted.id = pen.record().id;
        planted.place = pen.record().place;
        let outcome = client.put(vec![planted]).await.remove(0);
        assert!(matches!(outcome, Err(CallError::Invalid { .. })), "{outcome:?}");
        // A policy in the owner's name that somebody else signed.
        let policy = Policy { writers: vec![public(&thief)], ..pen.policy(2) };
        let mut forged = pen.sign(&policy);
        let last = forged.bytes.len() - 1;
        let mut bytes = forged.bytes.to_vec();
        bytes[last] ^= 1;
        forged.id = SUITE.id(&bytes);
        forged.bytes = bytes.into();
        let outcome = client.put(vec![forged]).await.remove(0);
        assert!(is_denied(&outcome, "signature"), "{outcome:?}");
        // A version by somebody whom nobody lists, a version without an attestation, one attested under another network.
        let put = pen.write(&[&root], "forged");
        let outcomes = client.put(vec![put.record.clone(), pen.attest_by(&thief, &put, 0)]).await;
        assert!(is_denied(&outcomes[0], "may not write"), "{outcomes:?}");
        assert!(is_denied(&outcomes[1], "names no version"), "{outcomes:?}");
        let outcome = client.put(vec![put.record.clone()]).await.remove(0);
        assert!(is_denied(&outcome, "no attestation"), "{outcome:?}");
        let elsewhere = attest(SUITE, NetworkId::new([7; 32]), 0, &put.h(), &pen.owner);
        let outcomes = client.put(vec![put.record.clone(), elsewhere]).await;
        assert!(is_denied(&outcomes[0], "no attestation"), "{outcomes:?}");
        assert!(is_denied(&outcomes[1], "another network"), "{outcomes:?}");
        // The owner's attestation of another version.
        let outcomes = client.put(vec![put.record.clone(), pen.attest(&root, 0)]).await;
        assert!(is_denied(&outcomes[0], "no attestation"), "{outcomes:?}");
        assert_eq!(outcomes[1], Ok(PutOutcome::Present));
        assert_eq!(client.tip_hs(&pen).await, [root.h()]);
        // Who signed under a key does not count for another key's object of the same name.
        let theirs = Pen { owner: thief.clone(), ..Pen::new(&town, 1, "report") };
        let stolen = theirs.write(&[], "root");
        let replayed = pen.attest(&stolen, 0);
        let outcomes = client.put(vec![theirs.record(), stolen.record.clone(), replayed]).await;
        assert!(is_denied(&outcomes[1], "may not write"), "{outcomes:?}");
    });
}

#[test]
fn writers_are_those_that_the_policy_that_counts_lists() {
    testkit::time::run(2, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        let writer = key("writer", 1);
        let root = pen.write(&[], "by a writer");
        let by_writer = |version| pen.attest_by(&writer, &root, version);
        let policy = |version, writers: &[&SecretKey]| {
            let writers = writers.iter().map(|writer| public(writer)).collect();
            pen.sign(&Policy { writers, ..pen.policy(version) })
        };
        let outcomes = client.put(vec![pen.record(), root.record.clone(), by_writer(1)]).await;
        assert!(is_denied(&outcomes[1], "may not write"), "{outcomes:?}");
        // Its word for a policy that this peer does not know is not believed.
        let records = vec![policy(1, &[&writer]), root.record.clone(), by_writer(2)];
        let outcomes = client.put(records).await;
        assert_eq!(outcomes[0], Ok(PutOutcome::Stored));
        assert!(is_denied(&outcomes[1], "under policy 2"), "{outcomes:?}");
        client.must_put(vec![root.record.clone(), by_writer(1)]).await;
        // Taken off the list, it writes no more, whatever it says of the old one.
        client.must_put(vec![policy(2, &[])]).await;
        let next = pen.write(&[&root], "one more");
        let outcomes =
            client.put(vec![next.record.clone(), pen.attest_by(&writer, &next, 1)]).await;
        assert!(is_denied(&outcomes[0], "may not write"), "{outcomes:?}");
        // The old policy does not come back, nor another of the same number.
        for (back, says) in
            [(policy(1, &[&writer]), "policy 1"), (policy(2, &[&writer]), "policy 2")]
        {
            let outcome = client.put(vec![back]).await.remove(0);
            assert!(is_denied(&outcome, says) && is_denied(&outcome, "rolled back"), "{outcome:?}");
            assert!(is_denied(&outcome, "policy 2 is known"), "{outcome:?}");
        }
        assert_eq!(client.put(vec![policy(2, &[])]).await, [Ok(PutOutcome::Present)]);
    });
}

#[test]
fn who_may_not_read_cannot_tell_whether_an_object_exists() {
    testkit::time::run(3, |env| async move {
        let town = Town::new(&env, 2, 2).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "private");
        let root = pen.write(&[], "root");
        client.must_put(vec![pen.record(), root.record.clone(), pen.attest(&root, 0)]).await;
        let nothing = Pen::new(&town, 1, "not there");
        let stranger = Caller::new(town.stranger(), town.at(0));
        for who in [&client, &stranger] {
            // Strangers may ask once a second.
            let mut answers = Vec::new();
            for pen in [&pen, &nothing] {
                env.clock.sleep(std::time::Duration::from_secs(10)).await;
                let got = who.get(pen, &root).await.unwrap_err();
                env.clock.sleep(std::time::Duration::from_secs(10)).await;
                let tips = who.tips(pen).await.unwrap_err();
                env.clock.sleep(std::time::Duration::from_secs(10)).await;
                let at = VersionAt { object: pen.object(), ..pen.at(&root) };
                let previous = who.previous(at, 1).await.unwrap_err();
                assert!(matches!(got, CallError::Denied { .. }), "{got:?}");
                answers.push((got, tips, previous));
            }
            assert_eq!(answers[0], answers[1]);
        }
        // A stranger cannot put at all; a peer reads all; the public reads what is public.
        env.clock.sleep(std::time::Duration::from_secs(10)).await;
        let put = stranger.put_all(env::calls::objects::PutObjects {
            records: vec![pen.record()],
            ..Default::default()
        });
        assert!(matches!(put.await, Err(CallError::Denied { .. })));
        let peer = Caller::new(town.peer_calls(1), town.at(0));
        assert_eq!(peer.get(&pen, &root).await.unwrap().unwrap().record, root.record);
        assert!(peer.tips(&nothing).await.unwrap().tips.is_empty());
        client.must_put(vec![pen.sign(&Policy { public: true, ..pen.policy(1) })]).await;
        env.clock.sleep(std::time::Duration::from_secs(10)).await;
        assert_eq!(stranger.get(&pen, &root).await.unwrap().unwrap().record, root.record);
        assert_eq!(client.get(&pen, &root).await.unwrap().unwrap().record, root.record);
    });
}

#[test]
fn a_readers_claim_counts_for_its_connection_and_time_alone() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let mut client = caller(&town).await;
        let pen = Pen::new(&town, 1, "private");
        let root = pen.write(&[], "root");
        let reader = key("reader", 7);
        let policy = pen.sign(&Policy { readers: vec![public(&reader)], ..pen.policy(1) });
        let records = vec![pen.record(), policy, root.record.clone(), pen.attest(&root, 0)];
        client.must_put(records).await;
        // The key of `town.client(0, Tier::Own)`, and of `town.client(1, Tier::Known)`.
        let (own, other) = (key("client", 1).public(), key("client", 0).public());
        let until = env.clock.unix_s() + 3_600;
        let claim = ReaderClaim::sign(pen.network, &reader, &own, until).encode();
        assert!(client.get(&pen, &root).await.is_err(), "its own key is no reader's");
        client.reader = Some(claim.clone());
        for _ in 0..2 {
            assert!(client.get(&pen, &root).await.unwrap().is_some());
        }
        let mut replayed = Caller::new(town.client(0, Tier::Known).await, town.at(0));
        replayed.reader = Some(claim.clone());
        let refused = replayed.get(&pen, &root).await;
        assert!(is_denied(&refused, "claim does not count"), "{refused:?}");
        // Nor for another's connection that was made for that key's, nor when it is over.
        let theirs = ReaderClaim::sign(pen.network, &reader, &other, until).encode();
        replayed.reader = Some(theirs.clone());
        assert!(replayed.get(&pen, &root).await.unwrap().is_some());
        client.reader = Some(theirs);
        assert!(client.get(&pen, &root).await.is_err());
        client.reader = Some(claim);
        env.clock.sleep(std::time::Duration::from_secs(3_601)).await;
        let client = Caller {
            calls: town.client(0, Tier::Own).await,
            reader: client.reader.clone(),
            to: town.at(0),
        };
        let over = client.get(&pen, &root).await;
        assert!(is_denied(&over, "claim does not count"), "{over:?}");
    });
}
