//! Signed heads: two devices, a revoked one, lies, and holders that lagged.

use std::sync::Arc;

use author::heads::Reconciled;
use author::objects::{ObjectsError, PolicyOptions, Value, WriteOptions};
use crypto::{Class, Classified};
use env::calls::objects::ObjectsAnswer;
use testkit::network::Fault;
use testkit::time::run;
use version::Head;
use version::head::RECORDS_MAX;
use version::merge::ThreeWayText;

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
