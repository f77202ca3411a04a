//! Signed heads: tips of several devices, revoked ones, and what is kept of a branch.

use bytes::Bytes;
use crypto::{RecordId, SecretKey, Tier};
use document::Record;
use env::calls::CallError;
use env::calls::objects::{GetHeads, HeadsAnswer, ObjectsAnswer, ObjectsRequest, PutOutcome};
use testkit::network::key;
use version::head::BranchName;
use version::{DeviceList, Head, Hint, Policy, VersionId};

use super::pen::{Caller, Pen, SUITE, is_denied, public};
use crate::town::Town;

async fn caller(town: &Town) -> Caller {
    Caller::new(town.client(0, Tier::Own).await, town.at(0))
}

fn branch(pen: &Pen) -> BranchName {
    let (network, owner) = (pen.network, public(&pen.owner));
    BranchName { network, owner, name: pen.name.clone(), branch: "main".to_owned() }
}

/// A device's word that the branch is at a version, superseding these.
fn head(pen: &Pen, device: &SecretKey, at: u8, supersedes: &[&Record]) -> Record {
    let version = VersionId { h: RecordId::new([at; 32]), l: u64::from(at), n: Hint::FIRST };
    let mut supersedes: Vec<RecordId> = supersedes.iter().map(|head| head.id).collect();
    supersedes.sort_unstable();
    let device_key = public(device);
    let head = Head { branch: branch(pen), device: device_key, version, supersedes, time_ms: 0 };
    head.sign(SUITE, device).unwrap()
}

fn devices(pen: &Pen, sequence: u64, devices: &[&SecretKey]) -> Record {
    let devices = devices.iter().map(|device| public(device)).collect();
    let list = DeviceList { network: pen.network, owner: public(&pen.owner), sequence, devices };
    list.sign(SUITE, &pen.owner).unwrap()
}

async fn heads(who: &Caller, pen: &Pen) -> Result<HeadsAnswer, CallError> {
    let (owner, object) = (public(&pen.owner), pen.object());
    let branch = Bytes::from_static(b"main");
    let request = GetHeads { owner, object, branch, reader: who.reader.clone() };
    match who.ask(ObjectsRequest::Heads(request)).await? {
        ObjectsAnswer::Heads(heads) => Ok(heads),
        answer => panic!("{answer:?}"),
    }
}

/// The tips, as whoever reads works them out.
fn tips(pen: &Pen, answer: &HeadsAnswer) -> Vec<RecordId> {
    let devices = answer.devices.as_ref().map(|list| DeviceList::verify(&list.bytes).unwrap());
    let mut known = version::Branch::new(branch(pen));
    for head in &answer.heads {
        known.take(head.id, Head::verify(&head.bytes).unwrap()).unwrap();
    }
    let tips = known.tips(devices.as_ref()).into_iter().map(|(id, _)| id);
    let mut tips: Vec<RecordId> = tips.collect();
    let first: Vec<RecordId> = answer.heads.iter().take(tips.len()).map(|head| head.id).collect();
    assert!(tips.iter().all(|tip| first.contains(tip)), "tips come first");
    tips.sort_unstable();
    tips
}

fn sorted(records: &[&Record]) -> Vec<RecordId> {
    let mut ids: Vec<RecordId> = records.iter().map(|record| record.id).collect();
    ids.sort_unstable();
    ids
}

async fn opened(client: &Caller, pen: &Pen) {
    client.must_put(vec![pen.record(), pen.sign(&Policy { public: true, ..pen.policy(1) })]).await;
}

#[test]
fn two_devices_at_once_are_two_tips_and_a_revoked_one_is_none() {
    testkit::time::run(1, |env| async move {
        let mut town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        opened(&client, &pen).await;
        let (phone, laptop) = (key("device", 1), key("device", 2));
        client.must_put(vec![devices(&pen, 1, &[&phone, &laptop])]).await;
        let first = head(&pen, &pen.owner, 1, &[]);
        client.must_put(vec![first.clone()]).await;
        let by_phone = head(&pen, &phone, 2, &[&first]);
        let by_laptop = head(&pen, &laptop, 3, &[&first]);
        futures::join!(
            client.must_put(vec![by_phone.clone()]),
            client.must_put(vec![by_laptop.clone()]),
        );
        let told = heads(&client, &pen).await.unwrap();
        assert_eq!(tips(&pen, &told), sorted(&[&by_phone, &by_laptop]));
        assert_eq!(told.heads.len(), 3, "what they supersede is kept");
        let merge = head(&pen, &phone, 4, &[&by_phone, &by_laptop]);
        client.must_put(vec![merge.clone()]).await;
        assert_eq!(tips(&pen, &heads(&client, &pen).await.unwrap()), [merge.id]);
        assert_eq!(client.put(vec![merge.clone()]).await, [Ok(PutOutcome::Present)]);
        // The laptop is lost: its word does not count any more, and the old list does not come back.
        client.must_put(vec![devices(&pen, 2, &[&phone])]).await;
        let lost = head(&pen, &laptop, 9, &[&merge]);
        client.must_put(vec![lost]).await;
        assert_eq!(tips(&pen, &heads(&client, &pen).await.unwrap()), [merge.id]);
        for list in [devices(&pen, 1, &[&phone, &laptop]), devices(&pen, 2, &[&laptop])] {
            let outcome = client.put(vec![list]).await.remove(0);
            assert!(is_denied(&outcome, "rolled back"), "{outcome:?}");
        }
        town.restart(0).await;
        let client = caller(&town).await;
        let told = heads(&client, &pen).await.unwrap();
        assert_eq!(tips(&pen, &told), [merge.id]);
        assert_eq!(told.devices, Some(devices(&pen, 2, &[&phone])));
        assert_eq!(told.heads.len(), 5);
        let back = client.put(vec![devices(&pen, 1, &[&laptop])]).await.remove(0);
        assert!(is_denied(&back, "rolled back"), "{back:?}");
    });
}

#[test]
fn a_branch_keeps_its_tips_and_the_newest_of_the_rest_whoever_crowds_it() {
    testkit::time::run(2, |env| async move {
        let mut town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        opened(&client, &pen).await;
        let mut last = head(&pen, &pen.owner, 1, &[]);
        client.must_put(vec![last.clone()]).await;
        let first = last.id;
        let mut mine = Vec::new();
        for at in 0..400_usize {
            let next = head(&pen, &pen.owner, 1 + (at % 250) as u8, &[&last]);
            mine.push(next.clone());
            last = next;
        }
        let stranger = key("stranger", 3);
        let others = (0..400_usize).map(|at| {
            let mut of = head(&pen, &stranger, 1, &[]);
            let mut said = Head::verify(&of.bytes).unwrap();
            said.time_ms = at as u64;
            of = said.sign(SUITE, &stranger).unwrap();
            of
        });
        let others: Vec<Record> = others.collect();
        for records in mine.chunks(100).chain(others.chunks(100)) {
            client.must_put(records.to_vec()).await;
        }
        let told = heads(&client, &pen).await.unwrap();
        assert_eq!(tips(&pen, &told), [last.id], "nobody crowds it out");
        assert!((513..600).contains(&told.heads.len()), "{}", told.heads.len());
        assert!(!town.stores[0].holds(&first), "removed from the disk too");
        town.restart(0).await;
        let client = caller(&town).await;
        assert_eq!(tips(&pen, &heads(&client, &pen).await.unwrap()), [last.id]);
    });
}

/// From a peer that was away, or from anybody: what was said once is signed for good.
#[test]
fn an_old_head_that_is_sent_again_is_no_tip_and_is_not_kept() {
    testkit::time::run(4, |env| async move {
        let town = Town::new(&env, 1, 1).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "report");
        opened(&client, &pen).await;
        let mut all = vec![head(&pen, &pen.owner, 1, &[])];
        for at in 1..300_usize {
            all.push(head(&pen, &pen.owner, 1 + (at % 250) as u8, &[&all[at - 1]]));
        }
        for records in all.chunks(100) {
            client.must_put(records.to_vec()).await;
        }
        let is_gone = |one: &&Record| !town.stores[0].holds(&one.id);
        let gone: Vec<Record> = all.iter().filter(is_gone).cloned().collect();
        assert!((30..100).contains(&gone.len()), "{}", gone.len());
        assert_eq!(gone, all[..gone.len()], "the oldest");
        let latest_first = gone.iter().rev().cloned().collect();
        for records in [gone[..1].to_vec(), latest_first, gone.clone()] {
            let outcomes = client.put(records).await;
            let is_present =
                |outcome: &Result<PutOutcome, CallError>| *outcome == Ok(PutOutcome::Present);
            assert!(outcomes.iter().all(is_present), "{outcomes:?}");
        }
        assert!(gone.iter().all(|one| !town.stores[0].holds(&one.id)));
        let told = heads(&client, &pen).await.unwrap();
        assert_eq!(tips(&pen, &told), [all[299].id]);
        // They are superseded on this branch alone.
        let other = Pen::new(&town, 1, "other");
        opened(&client, &other).await;
        client.must_put(vec![head(&other, &other.owner, 1, &[])]).await;
        assert_eq!(heads(&client, &other).await.unwrap().heads.len(), 1);
    });
}

#[test]
fn a_branch_is_for_whoever_may_read_its_object() {
    testkit::time::run(3, |env| async move {
        let town = Town::new(&env, 2, 2).await;
        let client = caller(&town).await;
        let pen = Pen::new(&town, 1, "private");
        let first = head(&pen, &pen.owner, 1, &[]);
        client.must_put(vec![first.clone(), devices(&pen, 1, &[])]).await;
        let nothing = Pen::new(&town, 1, "not there");
        let refused = heads(&client, &pen).await;
        assert!(is_denied(&refused, "may read"), "{refused:?}");
        assert_eq!(refused, heads(&client, &nothing).await);
        // Somebody's own object does not open another's list of devices.
        let mine = Pen::new(&town, 2, "mine");
        opened(&client, &mine).await;
        let mixed = GetHeads {
            owner: public(&pen.owner),
            object: mine.object(),
            branch: Bytes::from_static(b"main"),
            reader: None,
        };
        let refused = client.ask(ObjectsRequest::Heads(mixed)).await;
        assert!(is_denied(&refused, "may read"), "{refused:?}");
        let peer = Caller::new(town.peer_calls(1), town.at(0));
        assert_eq!(heads(&peer, &pen).await.unwrap().heads, [first]);
        // The owner reads it by its heads alone, over any connection.
        let until = env.clock.unix_s() + 60;
        let own = key("client", 1).public();
        let claim = version::ReaderClaim::sign(pen.network, &pen.owner, &own, until).encode();
        let owner = Caller { reader: Some(claim), ..caller(&town).await };
        assert_eq!(heads(&owner, &pen).await.unwrap().heads.len(), 1);
    });
}

/// They dropped it as superseded by others, which the one that leaves was read-only for: they fetch it no more, and say that it is there.
#[test]
fn a_peer_leaves_though_its_head_of_a_branch_is_long_of_the_past_at_all_others() {
    testkit::time::run(5, |env| async move {
        let town = crate::repair::town(&env, 3, 3).await;
        let calls = town.client(0, Tier::Own).await;
        let writers = [0, 1, 2].map(|number| Caller::new(calls.clone(), town.at(number)));
        let pen = Pen::new(&town, 1, "report");
        let mut all = vec![head(&pen, &pen.owner, 1, &[])];
        for at in 1..400_usize {
            all.push(head(&pen, &pen.owner, 1 + (at % 250) as u8, &[&all[at - 1]]));
        }
        for writer in &writers {
            opened(writer, &pen).await;
            writer.must_put(all[..1].to_vec()).await;
        }
        town.peers[2].set_read_only(true).await;
        for records in all[1..].chunks(100) {
            for writer in &writers[..2] {
                writer.must_put(records.to_vec()).await;
            }
        }
        let has_first = |peer: usize| town.stores[peer].holds(&all[0].id);
        assert_eq!([0, 1, 2].map(has_first), [false, false, true]);
        assert!(town.peers[2].leave());
        town.until("it has left", |town| town.peers[2].has_left()).await;
    });
}
