//! Signed heads: two devices, a revoked one, lies, and holders that lagged.

use std::sync::Arc;

use author::heads::Reconciled;
use author::objects::{MergeOutcome, ObjectsError, PolicyOptions, Value, VersionId, WriteOptions};
use crypto::{Class, Classified};
use env::calls::objects::ObjectsAnswer;
use testkit::network::Fault;
use testkit::time::run;
use version::head::RECORDS_MAX;
use version::merge::{Aggregate, ThreeWayText};
use version::{BranchName, Head};

use crate::keeper::Lie;
use crate::stage::Stage;

fn open() -> PolicyOptions {
    PolicyOptions { open: true, public: true, ..PolicyOptions::default() }
}

fn write() -> WriteOptions {
    WriteOptions::default()
}

#[test]
fn two_devices_that_write_at_once_are_two_tips_and_their_merge_supersedes_both() {
    run(1, |env| async move {
        let stage = Stage::new(&env);
        let (ada, phone) = (stage.user("ada"), stage.user("phone"));
        let writers = vec![phone.public_key()];
        let notes = ada.create(b"notes", PolicyOptions { writers, ..open() }).await.unwrap();
        let root = notes.put(None, "a\nb\nc\n", write()).await.unwrap().id;
        let heads = ada.heads();
        let new = heads.read(&notes, "main").await.unwrap();
        assert!(new.tips.is_empty() && new.is_enough);
        heads.update(&new, &root).await.unwrap();

        // Not before its owner says so.
        let theirs = phone.open(ada.public_key(), b"notes").await.unwrap();
        let seen = phone.heads().read(&theirs, "main").await.unwrap();
        assert_eq!(seen.tips[0].version, root);
        let error = phone.heads().update(&seen, &root).await.unwrap_err();
        assert!(matches!(error, ObjectsError::NotADevice(_)), "{error}");
        let given = heads.delegate(None, phone.public_key()).await.unwrap();
        assert_eq!((given.list.sequence, given.acked), (1, 9));

        let here = heads.read(&notes, "main").await.unwrap();
        let there = phone.heads().read(&theirs, "main").await.unwrap();
        let one = notes.put(Some(&root), "A\nb\nc\n", write()).await.unwrap().id;
        let other = theirs.put(Some(&root), "a\nb\nC\n", write()).await.unwrap().id;
        heads.update(&here, &one).await.unwrap();
        phone.heads().update(&there, &other).await.unwrap();
        let both = stage.user("ada").heads().read(&notes, "main").await.unwrap();
        assert_eq!(both.tips.len(), 2);
        let devices: Vec<_> = both.tips.iter().map(|tip| tip.device).collect();
        assert!(devices.contains(&ada.public_key()) && devices.contains(&phone.public_key()));
        let merged = heads.reconcile(&both, &ThreeWayText, write()).await.unwrap();
        let Reconciled::One(merged) = merged else { panic!("{merged:?}") };
        let at = notes.get(&merged.tips[0].version).await.unwrap();
        assert_eq!(at, Value::from("A\nb\nC\n"));
        let read = phone.heads().read(&theirs, "main").await.unwrap();
        assert_eq!(read.tips, merged.tips);

        // Off the list: what it says from now on, and said before without being superseded, is no tip.
        phone.heads().update(&read, &other).await.unwrap();
        assert_eq!(heads.read(&notes, "main").await.unwrap().tips[0].version, other);
        let list = heads.devices(&notes, "main").await.unwrap();
        let gone = heads.revoke(list.as_ref(), phone.public_key()).await.unwrap();
        assert_eq!((gone.list.sequence, gone.list.devices.len()), (2, 0));
        let read = stage.user("ada").heads().read(&notes, "main").await.unwrap();
        assert_eq!(read.tips, merged.tips);
        let late = phone.heads().read(&theirs, "main").await.unwrap();
        assert_eq!(late.tips, merged.tips);
        let error = phone.heads().update(&late, &other).await.unwrap_err();
        assert_eq!(error.class(), Class::Denied, "{error}");
    });
}

/// How deep a version is is the word of the device that signed the head.
#[test]
fn a_head_that_names_another_depth_ends_no_merge() {
    run(5, |env| async move {
        let stage = Stage::new(&env);
        let (ada, phone) = (stage.user("ada"), stage.user("phone"));
        let notes = ada.create(b"notes", open()).await.unwrap();
        let root = notes.put(None, "root", write()).await.unwrap().id;
        let (heads, theirs) = (ada.heads(), phone.heads());
        let new = heads.read(&notes, "main").await.unwrap();
        heads.delegate(None, phone.public_key()).await.unwrap();
        let seen = theirs.read(&notes, "main").await.unwrap();
        heads.update(&new, &VersionId { l: 9, ..root }).await.unwrap();
        theirs.update(&seen, &root).await.unwrap();
        let both = heads.read(&notes, "main").await.unwrap();
        assert_eq!(both.tips.len(), 2);
        let merged = heads.reconcile(&both, &ThreeWayText, write()).await.unwrap();
        let Reconciled::One(merged) = merged else { panic!("{merged:?}") };
        assert_eq!(merged.tips[0].version, root);
    });
}

/// The merge of what both merged has two versions in common with each, and counts what those counted once.
#[test]
fn two_devices_that_merged_each_others_versions_count_nothing_twice() {
    run(4, |env| async move {
        let stage = Stage::new(&env);
        let (ada, phone) = (stage.user("ada"), stage.user("phone"));
        let writers = vec![phone.public_key()];
        let count = ada.create(b"count", PolicyOptions { writers, ..open() }).await.unwrap();
        let root = count.put(None, "0", write()).await.unwrap().id;
        let heads = ada.heads();
        let new = heads.read(&count, "main").await.unwrap();
        heads.update(&new, &root).await.unwrap();
        heads.delegate(None, phone.public_key()).await.unwrap();
        let theirs = phone.open(ada.public_key(), b"count").await.unwrap();
        let here = heads.read(&count, "main").await.unwrap();
        let there = phone.heads().read(&theirs, "main").await.unwrap();

        let ours = count.put(Some(&root), "1", write()).await.unwrap().id;
        let other = theirs.put(Some(&root), "2", write()).await.unwrap().id;
        let later = theirs.put(Some(&other), "6", write()).await.unwrap().id;
        let one = count.merge_with(&ours, &other, &Aggregate::Sum, write()).await.unwrap();
        let two = theirs.merge_with(&ours, &later, &Aggregate::Sum, write()).await.unwrap();
        let (MergeOutcome::Merged(one), MergeOutcome::Merged(two)) = (one, two) else { panic!() };
        heads.update(&here, &one.id).await.unwrap();
        phone.heads().update(&there, &two.id).await.unwrap();

        let both = stage.user("ada").heads().read(&count, "main").await.unwrap();
        assert_eq!(both.tips.len(), 2);
        let made = heads.reconcile(&both, &Aggregate::Sum, write()).await.unwrap();
        let Reconciled::One(made) = made else { panic!("{made:?}") };
        assert_eq!(count.get(&made.tips[0].version).await.unwrap(), Value::from("7"));
    });
}

#[test]
fn holders_that_lagged_are_given_what_they_lack_and_liars_are_named() {
    run(2, |env| async move {
        let stage = Stage::of(&env, 3);
        let ada = stage.user("ada");
        let notes = ada.create(b"notes", PolicyOptions::default()).await.unwrap();
        let one = notes.put(None, "one", write()).await.unwrap().id;
        let heads = ada.heads();
        let new = heads.read(&notes, "main").await.unwrap();
        stage.set(0, Fault::Down);
        heads.update(&new, &one).await.unwrap();
        stage.network.heal();
        env.clock.sleep(std::time::Duration::from_secs(60)).await;
        assert!(stage.keepers[0].state.lock().unwrap().heads.is_empty());
        let read = stage.user("ada").heads().read(&notes, "main").await.unwrap();
        assert_eq!(read.tips[0].version, one);
        assert_eq!(stage.keepers[0].state.lock().unwrap().heads.len(), 1, "given to it");
        // A head that was altered, and one of another branch.
        let other = heads.read(&notes, "other").await.unwrap();
        heads.update(&other, &one).await.unwrap();
        let foreign = {
            let state = stage.keepers[1].state.lock().unwrap();
            let other = state.heads.values().find(|(_, head)| head.branch.branch == "other");
            other.unwrap().0.clone()
        };
        let altered: Lie = Arc::new(|answer| match answer {
            ObjectsAnswer::Heads(mut answer) => {
                for record in &mut answer.heads {
                    let mut bytes = record.bytes.to_vec();
                    let last = bytes.len() - 1;
                    bytes[last] ^= 1;
                    record.bytes = bytes.into();
                    record.id = crypto::Suite::Holdfast1.id(&record.bytes);
                }
                ObjectsAnswer::Heads(answer)
            }
            other => other,
        });
        let moved: Lie = Arc::new(move |answer| match answer {
            ObjectsAnswer::Heads(mut answer) => {
                answer.heads = vec![foreign.clone()];
                ObjectsAnswer::Heads(answer)
            }
            other => other,
        });
        for lie in [altered, moved] {
            stage.keepers[1].lies(Some(lie));
            let read = stage.user("ada").heads().read(&notes, "main").await.unwrap();
            assert_eq!(read.refused, [stage.keepers[1].id]);
            assert_eq!(read.tips[0].version, one);
        }
    });
}

#[test]
fn heads_under_made_up_keys_crowd_out_nobodys() {
    run(3, |env| async move {
        let stage = Stage::of(&env, 3);
        let ada = stage.user("ada");
        let notes = ada.create(b"notes", PolicyOptions::default()).await.unwrap();
        let one = notes.put(None, "one", write()).await.unwrap().id;
        let two = notes.put(Some(&one), "two", write()).await.unwrap().id;
        let heads = ada.heads();
        let new = heads.read(&notes, "main").await.unwrap();
        let first = heads.update(&new, &one).await.unwrap();
        heads.update(&first, &two).await.unwrap();
        let suite = crypto::Suite::Holdfast1;
        let signed = |seed: u64, like: &Head| {
            let mut bytes = [1; 32];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            let key = crypto::SecretKey::from_bytes(&bytes).unwrap();
            Head { device: key.public(), ..like.clone() }.sign(suite, &key).unwrap()
        };
        let like = {
            let state = stage.keepers[1].state.lock().unwrap();
            state.heads.values().next().unwrap().1.clone()
        };
        let made_up: Vec<_> = (0..RECORDS_MAX as u64).map(|seed| signed(seed, &like)).collect();
        let lie: Lie = Arc::new(move |answer| match answer {
            ObjectsAnswer::Heads(mut answer) => {
                answer.heads = made_up.clone();
                ObjectsAnswer::Heads(answer)
            }
            other => other,
        });
        stage.keepers[1].lies(Some(lie));
        let read = stage.user("ada").heads().read(&notes, "main").await.unwrap();
        assert_eq!(read.tips.iter().map(|tip| tip.version).collect::<Vec<_>>(), [two]);
    });
}

/// Lets a holder tell these heads alone.
fn alone(ids: Vec<crypto::RecordId>) -> Lie {
    Arc::new(move |answer| match answer {
        ObjectsAnswer::Heads(mut answer) => {
            answer.heads.retain(|head| ids.contains(&head.id));
            ObjectsAnswer::Heads(answer)
        }
        other => other,
    })
}

#[test]
fn what_a_holder_tells_that_was_away_is_no_tip_and_the_next_update_says_so() {
    run(5, |env| async move {
        let stage = Stage::of(&env, 3);
        let ada = stage.user("ada");
        let notes = ada.create(b"notes", open()).await.unwrap();
        let heads = ada.heads();
        let mut state = heads.read(&notes, "main").await.unwrap();
        let (mut ids, mut versions) = (Vec::new(), Vec::new());
        for number in 0..6_u64 {
            let value = Value::from(number.to_string().as_str());
            let version = notes.put(versions.last(), value, write()).await.unwrap().id;
            state = heads.update(&state, &version).await.unwrap();
            ids.push(state.tips[0].id);
            versions.push(version);
        }
        // All copies are where they should be.
        env.clock.sleep(std::time::Duration::from_secs(60)).await;
        // What took the place of the first head is kept nowhere any more, and one holder was away since.
        stage.keepers[0].lies(Some(alone(ids[4..].to_vec())));
        stage.keepers[1].lies(Some(alone(ids[..1].to_vec())));
        stage.keepers[2].lies(Some(alone(ids[4..].to_vec())));
        let fresh = stage.user("ada");
        let read = fresh.heads().read(&notes, "main").await.unwrap();
        assert_eq!(read.tips.iter().map(|tip| tip.id).collect::<Vec<_>>(), ids[5..]);
        let value = Value::from("more");
        let next = notes.put(versions.last(), value, write()).await.unwrap().id;
        let next = fresh.heads().update(&read, &next).await.unwrap();
        env.clock.sleep(std::time::Duration::from_secs(60)).await;
        let said = stage.keepers[2].state.lock().unwrap().heads[&next.tips[0].id].1.clone();
        let mut both = vec![ids[0], ids[5]];
        both.sort_unstable();
        assert_eq!(said.supersedes, both);
        stage.keepers.iter().for_each(|keeper| keeper.lies(None));
        let read = fresh.heads().read(&notes, "main").await.unwrap();
        assert_eq!(read.tips, next.tips);
    });
}

/// One goes back to an older version while another goes on: both were written at once, and both are heard.
#[test]
fn an_undo_beside_an_update_is_a_tip_as_well() {
    run(6, |env| async move {
        let stage = Stage::of(&env, 3);
        let ada = stage.user("ada");
        let notes = ada.create(b"notes", open()).await.unwrap();
        let heads = ada.heads();
        let new = heads.read(&notes, "main").await.unwrap();
        let one = notes.put(None, "one", write()).await.unwrap().id;
        let two = notes.put(Some(&one), "two", write()).await.unwrap().id;
        let three = notes.put(Some(&two), "three", write()).await.unwrap().id;
        let seen = heads.update(&new, &two).await.unwrap();
        heads.update(&seen, &three).await.unwrap();
        heads.update(&seen, &one).await.unwrap();
        let read = stage.user("ada").heads().read(&notes, "main").await.unwrap();
        let mut at: Vec<_> = read.tips.iter().map(|tip| tip.version.l).collect();
        at.sort_unstable();
        assert_eq!(at, [one.l, three.l]);
    });
}

#[test]
fn thousands_of_true_heads_that_one_holder_tells_do_not_end_a_read() {
    run(7, |env| async move {
        let stage = Stage::of(&env, 3);
        let ada = stage.user("ada");
        let notes = ada.create(b"notes", open()).await.unwrap();
        let one = notes.put(None, "one", write()).await.unwrap().id;
        let phone = crypto::SecretKey::from_bytes(&[7; 32]).unwrap();
        ada.heads().delegate(None, phone.public()).await.unwrap();
        let branch = BranchName {
            network: stage.community.genesis.network(),
            owner: ada.public_key(),
            name: notes.record_name().clone(),
            branch: "main".to_owned(),
        };
        let mut supersedes = Vec::new();
        let mut next = |time_ms: u64| {
            let head = Head {
                branch: branch.clone(),
                device: phone.public(),
                version: one,
                supersedes: supersedes.clone(),
                time_ms,
            };
            let record = head.sign(crypto::Suite::Holdfast1, &phone).unwrap();
            supersedes = vec![record.id];
            (record, head)
        };
        let mut old: Vec<_> = (0..RECORDS_MAX as u64).map(|at| next(at).0).collect();
        let (record, head) = next(RECORDS_MAX as u64);
        for keeper in &stage.keepers {
            let newest = (record.clone(), head.clone());
            keeper.state.lock().unwrap().heads.insert(record.id, newest);
        }
        // The nearest first, as holders tell them; without the newest.
        old.reverse();
        let lie: Lie = Arc::new(move |answer| match answer {
            ObjectsAnswer::Heads(mut answer) => {
                answer.heads = old.clone();
                ObjectsAnswer::Heads(answer)
            }
            other => other,
        });
        stage.keepers[1].lies(Some(lie));
        let read = stage.user("ada").heads().read(&notes, "main").await.unwrap();
        assert_eq!(read.tips.iter().map(|tip| tip.id).collect::<Vec<_>>(), [record.id]);
    });
}
