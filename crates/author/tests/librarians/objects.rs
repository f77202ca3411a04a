//! Objects: written, read, shared, redirected, cut in two and merged.

use std::time::Duration;

use author::objects::{
    Hint, MergeOutcome, ObjectsError, PolicyOptions, Value, VersionId, WriteOptions,
};
use crypto::{Class, Classified, Suite};
use testkit::time::run;
use version::merge::Append;

use crate::town::Town;

const LONG: Duration = Duration::from_secs(60);

fn open() -> PolicyOptions {
    PolicyOptions { open: true, public: true, ..PolicyOptions::default() }
}

#[test]
fn sealed_and_open_objects_go_there_and_back() {
    run(1, |env| async move {
        let town = Town::new(&env, 5).await;
        for options in [PolicyOptions::default(), open()] {
            let ada = town.user("ada").await;
            let name: &[u8] = if options.open { b"open" } else { b"sealed" };
            let object = ada.create(name, options.clone()).await.unwrap();
            ada.create(name, options.clone()).await.unwrap();
            let receipts = WriteOptions { receipt: true, ..WriteOptions::default() };
            let mut batch = ada.batch(receipts);
            let mut ids: Vec<VersionId> = Vec::new();
            for number in 0..40 {
                let value = format!("value {number}");
                ids.push(batch.put(&object, ids.last(), &value[..]).await.unwrap());
            }
            for written in batch.send().await.unwrap() {
                let written = written.unwrap();
                assert!(!written.receipts.is_empty());
                let reached = written.rest.clone().wait(LONG).await;
                assert!(reached.is_full(), "{reached:?}");
            }
            let again = town.user("ada").await.open(ada.public_key(), name).await.unwrap();
            assert_eq!(again.is_sealed(), !options.open);
            let tips = again.tips().await.unwrap();
            assert!(tips.is_enough && tips.refused.is_empty());
            assert_eq!(tips.tips.iter().map(|tip| tip.id).collect::<Vec<_>>(), [ids[39]]);
            let past = again.previous(&ids[39], 100).await.unwrap();
            assert_eq!(past.len(), 39);
            assert_eq!(again.open_value(&past[38]).unwrap(), Value::from("value 0"));
            assert_eq!(again.get(&ids[7]).await.unwrap(), Value::from("value 7"));
            assert_eq!(again.log(&[ids[39]], 10).await.unwrap().len(), 10);
            let never = VersionId { h: Suite::Holdfast1.id(b"none"), ..ids[7] };
            let error = again.get(&never).await.unwrap_err();
            assert!(matches!(error, ObjectsError::NotYet { .. }), "{error}");
            let listed = again.objects().list(ada.public_key(), b"", 100).await.unwrap();
            assert!(listed.iter().any(|one| one.key == object.key()));
        }
    });
}

#[test]
fn strangers_are_denied_and_listed_keys_are_not() {
    run(2, |env| async move {
        let town = Town::new(&env, 4).await;
        let (ada, bob) = (town.user("ada").await, town.user("bob").await);
        let object = ada.create(b"private", PolicyOptions::default()).await.unwrap();
        let one = object.put(None, "one", WriteOptions::default()).await.unwrap().id;
        let access = object.access().unwrap();
        let bobs = bob.with_access(&access).unwrap();
        let denied = bobs.get(&one).await.unwrap_err();
        assert_eq!(denied.class(), Class::Denied, "{denied}");
        let denied = bobs.tips().await.unwrap_err();
        assert_eq!(denied.class(), Class::Denied, "{denied}");
        let denied = bobs.put(Some(&one), "bob's", WriteOptions::default()).await.unwrap_err();
        assert_eq!(denied.class(), Class::Denied, "{denied}");
        let writers = vec![bob.public_key()];
        let options = PolicyOptions { writers, ..PolicyOptions::default() };
        object.set_policy(options).await.unwrap();
        let bobs = town.user("bob").await.with_access(&access).unwrap();
        let two = bobs.put(Some(&one), "bob's", WriteOptions::default()).await.unwrap().id;
        assert_eq!(object.get(&two).await.unwrap(), Value::from("bob's"));
        assert_eq!(object.tips().await.unwrap().tips[0].author, bob.public_key());
        // A family says it for all, and nobody has to create its members.
        let family = ada.set_family_policy(b"kv/", open()).await.unwrap();
        assert_eq!(family.version, 1);
        assert_eq!(ada.set_family_policy(b"kv/", open()).await.unwrap().version, 2);
        let member = town.user("ada").await.plain(ada.public_key(), b"kv/k").unwrap();
        let put = member.put(None, "v", WriteOptions::default()).await.unwrap();
        let read = town.user("bob").await.open(ada.public_key(), b"kv/k").await.unwrap();
        assert_eq!(read.get(&put.id).await.unwrap(), Value::from("v"));
    });
}

#[test]
fn a_full_region_sends_the_branch_on_and_everything_is_found() {
    run(3, |env| async move {
        let town = Town::new(&env, 5).await;
        let ada = town.user("ada").await;
        let small = PolicyOptions { region_bytes: 2_000, ..open() };
        let object = ada.create(b"long", small).await.unwrap();
        let mut ids: Vec<VersionId> = Vec::new();
        for number in 0..12 {
            let value = format!("{number:02}").repeat(200);
            let put = object.put(ids.last(), &value[..], WriteOptions::default()).await;
            ids.push(put.unwrap().id);
        }
        assert!(ids.iter().any(|id| id.n != Hint::FIRST), "it was redirected");
        let fresh = town.user("bob").await.plain(ada.public_key(), b"long").unwrap();
        let tips = fresh.tips().await.unwrap();
        assert_eq!(tips.tips.iter().map(|tip| tip.id.h).collect::<Vec<_>>(), [ids[11].h]);
        let past = fresh.previous(&ids[11], 100).await.unwrap();
        assert_eq!(past.len(), 11);
        let moved = VersionId { n: Hint::FIRST, ..ids[11] };
        let value = fresh.get(&moved).await.unwrap();
        assert_eq!(value, Value::from(&"11".repeat(200)[..]));
    });
}

#[test]
fn a_network_cut_in_two_has_two_branches_and_heals_to_one() {
    run(4, |env| async move {
        let town = Town::new(&env, 6).await;
        let ada = town.user("ada").await;
        let object = ada.create(b"log", PolicyOptions::default()).await.unwrap();
        let root = object.put(None, "root ", WriteOptions::default()).await.unwrap();
        root.rest.clone().wait(LONG).await;
        let all: Vec<_> = town.community.members.iter().map(|member| member.peer).collect();
        let mut sides = Vec::new();
        for (value, away) in [("root left ", &all[..2]), ("root right ", &all[4..])] {
            town.cut(away);
            let one = town.user("ada").await.sealed(b"log").unwrap();
            sides.push(one.put(Some(&root.id), value, WriteOptions::default()).await.unwrap().id);
        }
        town.cut(&[]);
        let healed = town.user("ada").await.sealed(b"log").unwrap();
        let tips = healed.tips_everywhere().await.unwrap();
        assert_eq!(tips.tips.len(), 2);
        let [first, second] = [tips.tips[0].id, tips.tips[1].id];
        let options = WriteOptions::default();
        let outcome = healed.merge_with(&first, &second, &Append, options).await.unwrap();
        let MergeOutcome::Merged(merged) = outcome else { panic!("{outcome:?}") };
        let tips = town.user("ada").await.sealed(b"log").unwrap();
        let tips = tips.tips_everywhere().await.unwrap();
        assert_eq!(tips.tips.iter().map(|tip| tip.id.h).collect::<Vec<_>>(), [merged.id.h]);
        let value = healed.get(&merged.id).await.unwrap();
        let text = String::from_utf8_lossy(value.bytes().unwrap()).into_owned();
        assert!(text.contains("left ") && text.contains("right "), "{text}");
        assert!(sides.iter().all(|side| [first.h, second.h].contains(&side.h)));
    });
}

#[test]
fn heads_of_two_devices_and_a_watch_are_served() {
    run(5, |env| async move {
        let town = Town::new(&env, 5).await;
        let (ada, phone) = (town.user("ada").await, town.user("phone").await);
        let writers = vec![phone.public_key()];
        let options = PolicyOptions { writers, ..open() };
        let notes = ada.create(b"notes", options).await.unwrap();
        let watcher = town.user("bob").await.plain(ada.public_key(), b"notes").unwrap();
        let mut watch = watcher.watch(None).await.unwrap();
        let root = notes.put(None, "root ", WriteOptions::default()).await.unwrap().id;
        let heads = ada.heads();
        let new = heads.read(&notes, "main").await.unwrap();
        heads.update(&new, &root).await.unwrap();
        heads.delegate(None, phone.public_key()).await.unwrap();
        let theirs = phone.plain(ada.public_key(), b"notes").unwrap();
        let (here, there) = (
            heads.read(&notes, "main").await.unwrap(),
            phone.heads().read(&theirs, "main").await.unwrap(),
        );
        assert_eq!(there.tips[0].version, root);
        let options = WriteOptions::default();
        let one = notes.put(Some(&root), "root one ", options).await.unwrap().id;
        let other = theirs.put(Some(&root), "root other ", options).await.unwrap().id;
        heads.update(&here, &one).await.unwrap();
        phone.heads().update(&there, &other).await.unwrap();
        let both = heads.read(&notes, "main").await.unwrap();
        assert_eq!(both.tips.len(), 2);
        let merged = heads.reconcile(&both, &Append, options).await.unwrap();
        let author::heads::Reconciled::One(merged) = merged else { panic!("{merged:?}") };
        let read = phone.heads().read(&theirs, "main").await.unwrap();
        assert_eq!(read.tips, merged.tips);
        heads.revoke(read.devices.as_ref(), phone.public_key()).await.unwrap();
        let read = town.user("bob").await.heads().read(&watcher, "main").await.unwrap();
        assert_eq!(read.devices.unwrap().devices, []);
        let mut told = std::collections::BTreeSet::new();
        while let Ok(Some(event)) = env.within(LONG, futures::StreamExt::next(&mut watch)).await {
            if let author::objects::WatchTold::Version { past, .. } = event {
                assert!(told.insert(past.id.h), "each once");
            }
            if told.len() == 4 {
                break;
            }
        }
        assert!([root, one, other].iter().all(|id| told.contains(&id.h)));
        assert_eq!(told.len(), 4);
    });
}
