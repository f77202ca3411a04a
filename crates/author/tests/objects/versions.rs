//! Writing versions, and reading them and their history again.

use std::time::Duration;

use author::objects::{
    Access, Copies, MergeOutcome, Object, Objects, ObjectsError, ObjectsOptions, Past,
    PolicyOptions, Value, ValueKind, VersionId, WriteOptions,
};
use crypto::{Class, Classified, RecordId, Suite};
use testkit::network::Fault;
use testkit::time::run;
use version::merge::{Aggregate, Merge, ThreeWayText};

use crate::living::Living;
use crate::stage::{Stage, place};

const LONG: Duration = Duration::from_secs(60);

fn open() -> PolicyOptions {
    PolicyOptions { open: true, public: true, ..PolicyOptions::default() }
}

fn write() -> WriteOptions {
    WriteOptions::default()
}

#[test]
fn what_was_put_is_got_again_by_its_owner_anywhere() {
    run(1, |env| async move {
        let stage = Stage::new(&env);
        for options in [PolicyOptions::default(), open()] {
            let ada = stage.user("ada");
            let name = if options.open { b"open" as &[u8] } else { b"sealed" };
            let object = ada.create(name, options.clone()).await.unwrap();
            let one = object.put(None, "one", write()).await.unwrap();
            let two = object.put(Some(&one.id), "two", write()).await.unwrap();
            assert_eq!((two.id.l, two.wanted), (1, 3));
            let reached = two.rest.clone().wait(LONG).await;
            assert!(reached.is_full() && stage.copies(&two.id.h) == 3);
            let gone = object.put(Some(&two.id), Value::Tombstone, write()).await.unwrap();

            // From another machine, with the keyring alone.
            let again = stage.user("ada").open(ada.public_key(), name).await.unwrap();
            assert_eq!(again.is_sealed(), !options.open);
            assert_eq!(again.get(&two.id).await.unwrap(), Value::from("two"));
            assert_eq!(again.get(&gone.id).await.unwrap(), Value::Tombstone);
            let tips = again.tips().await.unwrap();
            assert!(tips.is_enough && !tips.more && tips.exists);
            let ids: Vec<_> = tips.tips.iter().map(|tip| tip.id).collect();
            assert_eq!((ids, tips.tips[0].kind), (vec![gone.id], ValueKind::Tombstone));
            assert_eq!(tips.tips[0].author, ada.public_key());
            let before = again.previous(&gone.id, 10).await.unwrap();
            assert_eq!(before.iter().map(|past| past.id).collect::<Vec<_>>(), [two.id, one.id]);
            assert_eq!(again.open_value(&before[1]).unwrap(), Value::from("one"));
            let log = again.log(&[gone.id], 2).await.unwrap();
            assert_eq!(log.iter().map(|past| past.id).collect::<Vec<_>>(), [gone.id, two.id]);
        }
    });
}

#[test]
fn the_same_value_is_the_same_version_and_no_peer_sees_it() {
    run(2, |env| async move {
        let stage = Stage::new(&env);
        let secret = "meet me at the harbour".repeat(3);
        let object = stage.user("ada").create(b"diary", PolicyOptions::default()).await.unwrap();
        let first = object.put(None, &secret[..], write()).await.unwrap();
        let again = stage.user("ada").sealed(b"diary").unwrap();
        let second = again.put(None, &secret[..], write()).await.unwrap();
        assert_eq!(first.id, second.id);
        // On another base, and in another object, it is another one.
        let later = object.put(Some(&first.id), &secret[..], write()).await.unwrap();
        let other = stage.user("ada").create(b"letters", PolicyOptions::default()).await.unwrap();
        let elsewhere = other.put(None, &secret[..], write()).await.unwrap();
        assert_ne!(later.id.h, first.id.h);
        let mut values = Vec::new();
        for keeper in &stage.keepers {
            let state = keeper.state.lock().unwrap();
            for (h, (record, version)) in &state.versions {
                let text = String::from_utf8_lossy(&record.bytes).into_owned();
                assert!(!text.contains("harbour"));
                values.push((*h, version.value.clone()));
            }
            for record in state.objects.values() {
                assert!(!String::from_utf8_lossy(&record.bytes).contains("diary"));
            }
        }
        let value = |h| values.iter().find(|(of, _)| *of == h).unwrap().1.clone();
        assert_eq!(value(first.id.h), value(later.id.h), "equal in one object, as it is said");
        assert_ne!(value(first.id.h), value(elsewhere.id.h));
        assert_eq!(object.get(&later.id).await.unwrap(), Value::from(&secret[..]));
    });
}

#[test]
fn w_of_n_are_enough_and_fewer_are_not() {
    run(3, |env| async move {
        let stage = Stage::of(&env, 3);
        let ada = stage.user("ada");
        let copies = Some(Copies { copies: 3, acknowledged: 2 });
        let object = ada.create(b"a", PolicyOptions { copies, ..open() }).await.unwrap();
        let rank = stage.rank(&ada, &place(&object));
        stage.set(rank[0], Fault::Down);
        let written = object.put(None, "one", write()).await.unwrap();
        assert_eq!((written.acked, written.wanted), (2, 3));
        assert_eq!(object.get(&written.id).await.unwrap(), Value::from("one"));
        stage.set(rank[1], Fault::Hang);
        let refused = object.put(Some(&written.id), "two", write()).await.unwrap_err();
        assert!(matches!(refused, ObjectsError::NotStored(_)), "{refused}");
        assert_eq!(refused.class(), Class::Unavailable);
        // Again when they are back: the same version.
        stage.network.heal();
        env.clock.sleep(LONG).await;
        let again = object.put(Some(&written.id), "two", write()).await.unwrap();
        assert_eq!(again.id.l, 1);
        assert!(stage.copies(&again.id.h) >= 2);
    });
}

#[test]
fn not_here_yet_is_not_unavailable() {
    run(4, |env| async move {
        let stage = Stage::new(&env);
        let object = stage.user("ada").create(b"a", open()).await.unwrap();
        let written = object.put(None, "one", write()).await.unwrap();
        let never = author::objects::VersionId { h: Suite::Holdfast1.id(b"nothing"), ..written.id };
        let error = object.get(&never).await.unwrap_err();
        assert!(matches!(error, ObjectsError::NotYet { .. }), "{error}");
        for number in 0..9 {
            stage.set(number, Fault::Down);
        }
        let fresh = stage.user("ada").plain(object.owner(), b"a").unwrap();
        let error = fresh.get(&written.id).await.unwrap_err();
        assert!(matches!(error, ObjectsError::Unavailable { .. }), "{error}");
        assert_eq!(error.class(), Class::Unavailable);
        // What was proven once needs nobody.
        assert_eq!(object.get(&written.id).await.unwrap(), Value::from("one"));
    });
}

/// Others answer that they know nothing of it; a second policy of its number would never agree with the first.
#[test]
fn an_object_whose_holders_are_away_is_neither_missing_nor_made_anew() {
    run(4, |env| async move {
        let stage = Stage::new(&env);
        for (name, options) in [(b"a", open()), (b"b", PolicyOptions::default())] {
            let ada = stage.user("ada");
            let object = ada.create(name, options.clone()).await.unwrap();
            object.put(None, "one", write()).await.unwrap();
            let rank = stage.rank(&ada, &place(&object));
            rank[..3].iter().for_each(|number| stage.set(*number, Fault::Down));
            let fresh = stage.user("ada");
            let unavailable = |error: ObjectsError| {
                assert!(matches!(error, ObjectsError::Unavailable { .. }), "{error}");
            };
            unavailable(fresh.open(object.owner(), name).await.unwrap_err());
            unavailable(fresh.create(name, options.clone()).await.unwrap_err());
            unavailable(object.set_policy(options).await.unwrap_err());
            stage.network.heal();
            env.clock.sleep(LONG).await;
            stage.user("ada").open(object.owner(), name).await.unwrap();
        }
    });
}

#[test]
fn two_branches_are_found_and_merged() {
    run(5, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        let object = ada.create(b"text", PolicyOptions::default()).await.unwrap();
        let root = object.put(None, "a\nb\nc\n", write()).await.unwrap();
        let rank = stage.rank(&ada, &place(&object));
        // Cut in two: each side reaches some of the holders, and goes on to others.
        let (left, right) = (&rank[..1], &rank[1..3]);
        left.iter().for_each(|number| stage.set(*number, Fault::Down));
        let here = stage.user("ada").sealed(b"text").unwrap();
        let one = here.put(Some(&root.id), "A\nb\nc\n", write()).await.unwrap();
        stage.network.heal();
        right.iter().for_each(|number| stage.set(*number, Fault::Down));
        let there = stage.user("ada").sealed(b"text").unwrap();
        let other = there.put(Some(&root.id), "a\nb\nC\n", write()).await.unwrap();
        stage.network.heal();
        let healed = stage.user("ada").sealed(b"text").unwrap();
        let tips = healed.tips_everywhere().await.unwrap();
        let mut found: Vec<_> = tips.tips.iter().map(|tip| tip.id.h).collect();
        let mut wanted = vec![one.id.h, other.id.h];
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        let [first, second] = [tips.tips[0].id, tips.tips[1].id];
        let outcome = healed.merge_with(&first, &second, &ThreeWayText, write()).await.unwrap();
        let MergeOutcome::Merged(merged) = outcome else { panic!("{outcome:?}") };
        assert_eq!(healed.get(&merged.id).await.unwrap(), Value::from("A\nb\nC\n"));
        let tips = healed.tips_everywhere().await.unwrap();
        assert_eq!(tips.tips.iter().map(|tip| tip.id.h).collect::<Vec<_>>(), [merged.id.h]);
        // Its history is both, and of a merge the two bases come before.
        let before = healed.previous(&merged.id, 5).await.unwrap();
        assert_eq!(before.iter().map(|past| past.id.h).collect::<Vec<_>>(), [first.h, second.h]);
        assert_eq!(healed.log(&[merged.id], 10).await.unwrap().len(), 4);
        let again = healed.merge_with(&first, &merged.id, &ThreeWayText, write()).await.unwrap();
        assert!(matches!(again, MergeOutcome::Already(id) if id.h == merged.id.h));
        let clash = healed.put(Some(&root.id), "x\nb\nc\n", write()).await.unwrap();
        let outcome = healed.merge_with(&one.id, &clash.id, &ThreeWayText, write()).await.unwrap();
        assert!(matches!(outcome, MergeOutcome::Conflict(_)));
    });
}

async fn put(object: &Object, base: &VersionId, value: &str) -> VersionId {
    object.put(Some(base), value, write()).await.unwrap().id
}

async fn merged(object: &Object, of: [VersionId; 2], function: &dyn Merge) -> VersionId {
    let outcome = object.merge_with(&of[0], &of[1], function, write()).await.unwrap();
    let MergeOutcome::Merged(written) = outcome else { panic!("{outcome:?}") };
    written.id
}

/// Two devices merge each other's versions while both go on: what their merges have in common are two versions, and by either of
/// them alone one change counts twice, or comes again that was taken back.
#[test]
fn the_merge_of_a_criss_cross_counts_nothing_twice_and_undoes_nothing() {
    run(9, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        let count = ada.create(b"count", PolicyOptions::default()).await.unwrap();
        let o = count.put(None, "0", write()).await.unwrap().id;
        let (a1, b1) = (put(&count, &o, "1").await, put(&count, &o, "2").await);
        let m1 = merged(&count, [a1, b1], &Aggregate::Sum).await;
        let b2 = put(&count, &b1, "6").await;
        let m2 = merged(&count, [a1, b2], &Aggregate::Sum).await;
        let fresh = stage.user("ada").sealed(b"count").unwrap();
        let mut both = [a1, b1];
        both.sort_unstable_by_key(|id| std::cmp::Reverse(id.h));
        assert_eq!(fresh.common_ancestors(&m1, &m2).await.unwrap(), both);
        for of in [[m1, m2], [m2, m1]] {
            let all = merged(&fresh, of, &Aggregate::Sum).await;
            assert_eq!(fresh.get(&all).await.unwrap(), Value::from("7"));
        }

        let text = ada.create(b"text", open()).await.unwrap();
        let (was, first, second) = ("1\n2\n3\n", "A\n2\n3\n", "1\n2\nB\n");
        let o = text.put(None, was, write()).await.unwrap().id;
        let (a1, b1) = (put(&text, &o, first).await, put(&text, &o, second).await);
        let (a2, b2) = (put(&text, &a1, was).await, put(&text, &b1, was).await);
        let m1 = merged(&text, [a2, b1], &ThreeWayText).await;
        let m2 = merged(&text, [a1, b2], &ThreeWayText).await;
        let all = merged(&text, [m1, m2], &ThreeWayText).await;
        assert_eq!(text.get(&all).await.unwrap(), Value::from(was), "both were taken back");
    });
}

/// A history of many branches: of those that are still to be told no value is in memory.
#[test]
fn of_a_wide_history_few_values_are_in_memory_at_once() {
    const BRANCHES: usize = 300;
    run(10, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        let object = ada.create(b"wide", open()).await.unwrap();
        let root = object.put(None, "root", write()).await.unwrap().id;
        let mut batch = ada.batch(write());
        let mut ids = Vec::new();
        for number in 0..BRANCHES {
            let value = format!("{number:04}").repeat(250);
            ids.push(batch.put(&object, Some(&root), &value[..]).await.unwrap());
        }
        assert!(batch.send().await.unwrap().iter().all(Result::is_ok));
        // Room for a sixth of them.
        let options = ObjectsOptions { cache_bytes: 64 << 10, ..ObjectsOptions::default() };
        let bobs = Objects::new(&stage.author("bob"), options);
        let bobs = bobs.plain(ada.public_key(), b"wide").unwrap();
        let living = Living::of(&stage);
        let mut told = Vec::new();
        let each = |past: Past| {
            assert_eq!(past.version.value.len(), if past.id == root { 4 } else { 1_000 });
            told.push(past.id);
            Ok::<_, ObjectsError>(())
        };
        bobs.log_each(&ids, 4_096, each).await.unwrap();
        ids.sort_unstable_by_key(|id| std::cmp::Reverse(id.h));
        ids.push(root);
        assert_eq!(told, ids);
        assert!(living.most() < BRANCHES / 2, "{} at once", living.most());
    });
}

#[test]
fn a_batch_is_signed_for_once_and_its_ids_are_known_at_once() {
    run(6, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        let objects = [
            ada.create(b"a", open()).await.unwrap(),
            ada.create(b"b", PolicyOptions::default()).await.unwrap(),
        ];
        let options = WriteOptions { receipt: true, ..write() };
        let mut batch = ada.batch(options);
        let mut ids = Vec::new();
        for object in &objects {
            let mut base = None;
            for number in 0..20 {
                let value = format!("value {number}");
                let id = batch.put(object, base.as_ref(), &value[..]).await.unwrap();
                base = Some(id);
                ids.push(id);
            }
        }
        assert_eq!(batch.len(), 40);
        let written = batch.send().await.unwrap();
        for (written, id) in written.into_iter().zip(&ids) {
            let written = written.unwrap();
            assert_eq!(written.id, *id);
            assert!(written.receipts.len() >= 2);
            for receipt in &written.receipts {
                let received = receipt.of(Suite::Holdfast1, &id.h).unwrap();
                received.verify(Suite::Holdfast1).unwrap();
                assert!(written.holders.contains(&received.receipt.peer));
            }
        }
        let past = objects[1].previous(&ids[39], 100).await.unwrap();
        assert_eq!(past.len(), 19);
        assert_eq!(objects[1].open_value(&past[18]).unwrap(), Value::from("value 0"));
        assert_eq!(objects[0].tips().await.unwrap().tips[0].id, ids[19]);
    });
}

#[test]
fn writers_and_readers_are_whom_the_owner_lists() {
    run(7, |env| async move {
        let stage = Stage::new(&env);
        let (ada, bob, eve) = (stage.user("ada"), stage.user("bob"), stage.user("eve"));
        let object = ada.create(b"shared", PolicyOptions::default()).await.unwrap();
        let root = object.put(None, "ada's", write()).await.unwrap();
        let access = Access::decode(&object.access().unwrap().encode()).unwrap();
        let bobs = bob.with_access(&access).unwrap();
        let denied = bobs.get(&root.id).await.unwrap_err();
        assert_eq!(denied.class(), Class::Denied, "{denied}");
        let readers = vec![bob.public_key()];
        let options = PolicyOptions { readers, ..PolicyOptions::default() };
        assert_eq!(object.set_policy(options).await.unwrap().version, 2);
        assert_eq!(bobs.get(&root.id).await.unwrap(), Value::from("ada's"));
        let denied = bobs.put(Some(&root.id), "bob's", write()).await.unwrap_err();
        assert_eq!(denied.class(), Class::Denied, "{denied}");
        let writers = vec![bob.public_key()];
        let options = PolicyOptions { writers, ..PolicyOptions::default() };
        assert_eq!(object.set_policy(options.clone()).await.unwrap().version, 3);
        let bobs = stage.user("bob").with_access(&access).unwrap();
        let written = bobs.put(Some(&root.id), "bob's", write()).await.unwrap();
        assert_eq!(object.get(&written.id).await.unwrap(), Value::from("bob's"));
        let tips = object.tips().await.unwrap();
        assert_eq!(tips.tips[0].author, bob.public_key());
        let denied = eve.with_access(&access).unwrap().get(&root.id).await.unwrap_err();
        assert_eq!(denied.class(), Class::Denied, "{denied}");
        assert!(matches!(bobs.set_policy(options).await, Err(ObjectsError::NotOwner(_))));
        // Who was taken out writes no more, and what they wrote is no tip.
        object.set_policy(PolicyOptions::default()).await.unwrap();
        let tips = stage.user("ada").sealed(b"shared").unwrap().tips().await.unwrap();
        assert!(tips.tips.is_empty());
        assert_eq!(tips.unlisted[0].id, written.id);
    });
}

#[test]
fn an_object_is_what_its_owner_said_and_nothing_goes_out_in_the_clear_by_mistake() {
    run(8, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        let sealed = ada.create(b"a", PolicyOptions::default()).await.unwrap();
        ada.create(b"a", PolicyOptions::default()).await.unwrap();
        let public = PolicyOptions { public: true, ..PolicyOptions::default() };
        let exists = stage.user("ada").create(b"a", public.clone()).await.unwrap_err();
        assert!(matches!(exists, ObjectsError::Exists(_)), "{exists}");
        assert!(matches!(sealed.set_policy(open()).await, Err(ObjectsError::NotOpen(_))));
        // An open object that its owner never said to be open.
        let plain = ada.plain(ada.public_key(), b"never").unwrap();
        let refused = plain.put(None, "in the clear", write()).await.unwrap_err();
        assert!(matches!(refused, ObjectsError::NotOpen(_)), "{refused}");
        let nothing = ada.open(ada.public_key(), b"never").await.unwrap_err();
        assert!(matches!(nothing, ObjectsError::NoObject(_)), "{nothing}");
        // A family says it for all names that begin so; none has to be created.
        let family = ada.set_family_policy(b"redis/", open()).await.unwrap();
        assert_eq!(family.version, 1);
        let member = stage.user("ada").plain(ada.public_key(), b"redis/k").unwrap();
        let written = member.put(None, "v", write()).await.unwrap();
        assert_eq!(member.get(&written.id).await.unwrap(), Value::from("v"));
        let other = stage.user("ada").plain(ada.public_key(), b"redit").unwrap();
        assert!(matches!(other.put(None, "v", write()).await, Err(ObjectsError::NotOpen(_))));
        assert_eq!(ada.set_family_policy(b"redis/", open()).await.unwrap().version, 2);
        // Where each of a family has a policy of its own, which is what peers tell of it.
        ada.create(b"kv/a", open()).await.unwrap();
        for version in [1, 2] {
            let set = stage.user("ada").set_family_policy(b"kv/", open()).await.unwrap();
            assert_eq!(set.version, version);
        }
    });
}

/// Any writer can make a version of one that is nowhere.
#[test]
fn a_log_tells_all_but_what_is_nowhere() {
    run(20, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        let notes = ada.create(b"notes", open()).await.unwrap();
        let root = notes.put(None, "root", write()).await.unwrap().id;
        let one = notes.put(Some(&root), "one", write()).await.unwrap().id;
        assert_eq!(notes.look_at(&one).await.unwrap(), one);
        let deep = VersionId { l: 9, ..one };
        let error = notes.look_at(&deep).await.unwrap_err();
        assert!(matches!(error, ObjectsError::Depth { said: 9, depth: 1, .. }), "{error}");
        let nowhere = VersionId { h: RecordId::new([7; 32]), l: 50, n: root.n };
        let error = notes.look_at(&nowhere).await.unwrap_err();
        assert_eq!(error.class(), Class::NotFound, "{error}");

        let bad = notes.put(Some(&nowhere), "bad", write()).await.unwrap().id;
        let mut told = Vec::new();
        let each = |past: Past| {
            told.push(past.id.h);
            Ok::<_, ObjectsError>(())
        };
        let error = notes.log_each(&[bad, one], 10, each).await.unwrap_err();
        assert_eq!(error.class(), Class::NotFound, "{error}");
        assert_eq!(told, [bad.h, one.h, root.h]);
    });
}
