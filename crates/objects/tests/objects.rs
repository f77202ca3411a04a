//! Objects over a log that can lose power, against a model that is a map.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use crypto::{NetworkId, RecordId, SecretKey};
use env::Env;
use futures::FutureExt;
use objects::{Likely, Merged, NewVersion, Objects, ObjectsError, ObjectsOptions};
use proptest::prelude::*;
use store::{LogOptions, LogStore, RecordStore};
use testkit::disk::FaultyDisk;
use testkit::time::run;
use version::merge::{Aggregate, Append, OwnedValue};
use version::{Bases, ObjectKey, ObjectRecord, ValueKind, VersionId, View};

fn store(disk: &FaultyDisk, env: &Env) -> Arc<LogStore> {
    let options =
        LogOptions { segment_bytes_max: 64 << 10, reserve_free_bytes: 0, ..LogOptions::default() };
    LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap()
}

fn open(disk: &FaultyDisk, env: &Env) -> Arc<Objects> {
    Objects::open(store(disk, env), ObjectsOptions::default()).unwrap()
}

fn object(number: u8) -> ObjectKey {
    ObjectKey::new([number; 32])
}

fn new(object: ObjectKey, bases: &[VersionId], value: &[u8]) -> NewVersion {
    let hs: Vec<RecordId> = bases.iter().map(|base| base.h).collect();
    NewVersion {
        object,
        bases: Bases::from_slice(&hs).unwrap(),
        kind: ValueKind::Bytes,
        value: Bytes::copy_from_slice(value),
        compress: true,
    }
}

async fn put(
    objects: &Arc<Objects>,
    object: ObjectKey,
    bases: &[VersionId],
    value: &[u8],
) -> Result<VersionId, ObjectsError> {
    let mut batch = objects.batch();
    let id = batch.put(new(object, bases, value)).await?;
    batch.commit(None).await?;
    Ok(id)
}

/// A form may be made against any version that is plain, and never against a form.
#[test]
fn a_form_is_against_the_version_that_was_chosen() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let store = store(&disk, &env);
        let objects = Objects::open(store.clone(), ObjectsOptions::default()).unwrap();
        let (key, mut ids) = (object(1), Vec::new());
        let value = |number: u8| [vec![number; 50], (0..=255).cycle().take(900).collect()].concat();
        // Which ancestor is chosen for each: none, plain ones, a form, one that is nowhere.
        let chosen = [None, None, Some(0), Some(2), Some(3), None, Some(9)];
        for (number, chosen) in chosen.into_iter().enumerate() {
            let bases: Vec<VersionId> = ids.last().copied().into_iter().collect();
            let mut batch = objects.batch();
            if let Some(chosen) = chosen {
                let nowhere = RecordId::new([chosen as u8; 32]);
                batch.against(ids.get(chosen).map_or(nowhere, |id: &VersionId| id.h));
            }
            let mut new = new(key, &bases, &value(number as u8));
            new.compress = number != 1;
            ids.push(batch.put(new).await.unwrap());
            batch.commit(None).await.unwrap();
        }
        let base = |number: usize| store.form_base(&ids[number].h).unwrap();
        assert_eq!([base(0), base(1)], [None, None], "a root, and one that was not to be small");
        assert_eq!(base(2), Some(ids[0].h), "chosen, though 1 is nearer and plain");
        assert_eq!(base(3), None, "2 is a form");
        assert_eq!(base(4), Some(ids[3].h));
        assert_eq!(base(5), Some(ids[3].h), "4's, since nobody chose any more");
        assert_eq!(base(6), None, "what is nowhere is no base");
        for (number, id) in ids.iter().enumerate() {
            let stored = objects.get(&key, &id.h).await.unwrap().unwrap();
            assert_eq!(stored.version.value, value(number as u8), "{number}");
        }
    });
}

/// Whoever writes here has the value: only what the next form is made against is cached at once, all else when it is read.
#[test]
fn what_is_written_is_cached_for_the_next_form_or_once_it_is_read() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let objects = open(&disk, &env);
        for (number, compress) in [(1, false), (2, true)] {
            let (key, before) = (object(number), objects.stats().cached_bytes);
            let cached = || objects.stats().cached_bytes > before;
            let mut batch = objects.batch();
            let id = batch.put(NewVersion { compress, ..new(key, &[], b"one") }).await.unwrap();
            batch.commit(None).await.unwrap();
            assert_eq!(cached(), compress);
            let mut batch = objects.batch();
            let bases = Bases::one(id.h);
            let (id, _) = batch.put_now(&key, bases, ValueKind::Bytes, b"two").unwrap().unwrap();
            batch.commit(None).await.unwrap();
            assert_eq!(cached(), compress);
            let read = objects.get(&key, &id.h).await.unwrap().unwrap();
            assert_eq!(read.version.value, b"two"[..]);
            assert!(cached(), "it was read");
        }
    });
}

#[test]
fn two_puts_on_one_base_are_two_branches_and_a_merge_joins_them() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let objects = open(&disk, &env);
        let k = object(1);
        let root = put(&objects, k, &[], b"a").await.unwrap();
        let left = put(&objects, k, &[root], b"ab").await.unwrap();
        let right = put(&objects, k, &[root], b"ac").await.unwrap();
        assert_eq!((root.l, left.l, right.l), (0, 1, 1));
        let tips = |objects: &Arc<Objects>| BTreeSet::from_iter(objects.tips(&k));
        assert_eq!(tips(&objects), BTreeSet::from([left, right]));
        assert_eq!(put(&objects, k, &[root], b"ab").await.unwrap(), left, "the same version");
        assert_eq!(tips(&objects), BTreeSet::from([left, right]), "it did not become another");
        let merged = objects.merge_with(&k, &left.h, &right.h, &Append).await.unwrap();
        let Merged::Version(merged) = merged else { panic!("{merged:?}") };
        assert_eq!(merged.l, 2);
        assert_eq!(tips(&objects), BTreeSet::from([merged]));
        let stored = objects.get(&k, &merged.h).await.unwrap().unwrap();
        assert_eq!(stored.version.value, "abc");
        // What is behind a merge is both; what is behind a put is one after the other.
        let behind = |found: Vec<objects::Stored>| -> Vec<VersionId> {
            found.into_iter().map(|stored| stored.id).collect()
        };
        let found = objects.previous(&k, &merged.h, 9).await.unwrap();
        assert_eq!(behind(found), [left, right]);
        let after = put(&objects, k, &[merged], b"abcd").await.unwrap();
        let found = objects.previous(&k, &after.h, 9).await.unwrap();
        assert_eq!(behind(found), [merged], "a merge ends the line");
        let found = objects.previous(&k, &left.h, 9).await.unwrap();
        assert_eq!(behind(found), [root]);
        // One that descends from the other is the merge.
        let same = objects.merge_with(&k, &root.h, &after.h, &Append).await.unwrap();
        assert_eq!(same, Merged::Version(after));
        // After a power cut all of it is there.
        let objects = open(&disk.crash(), &env);
        assert_eq!(tips(&objects), BTreeSet::from([after]));
        let stored = objects.get(&k, &left.h).await.unwrap().unwrap();
        assert_eq!(stored.version.value, "ab");
    });
}

/// Two writers merge each other's versions while both go on: what their merges have in common are two versions, and by either of
/// them alone one put counts twice.
#[test]
fn the_merge_of_a_criss_cross_counts_nothing_twice() {
    run(1, |env| async move {
        let objects = open(&FaultyDisk::new(1), &env);
        let k = object(1);
        let sum = async |a: VersionId, b: VersionId| {
            let merged = objects.merge_with(&k, &a.h, &b.h, &Aggregate::Sum).await.unwrap();
            let Merged::Version(merged) = merged else { panic!("{merged:?}") };
            merged
        };
        let o = put(&objects, k, &[], b"0").await.unwrap();
        let a1 = put(&objects, k, &[o], b"1").await.unwrap();
        let b1 = put(&objects, k, &[o], b"2").await.unwrap();
        let m1 = sum(a1, b1).await;
        let b2 = put(&objects, k, &[b1], b"6").await.unwrap();
        let m2 = sum(a1, b2).await;
        for (one, other) in [(m1, m2), (m2, m1)] {
            let all = sum(one, other).await;
            let stored = objects.get(&k, &all.h).await.unwrap().unwrap();
            assert_eq!(stored.version.value, "7");
        }
        // What both have in common is the merge of those two, within what may be read for it.
        let (x, y, function) = (&m1.h, &m2.h, &Aggregate::Sum);
        let v0 = objects.v0_within(&k, x, y, function, (100, 1_000)).await.unwrap();
        let three = OwnedValue { kind: ValueKind::Bytes, bytes: Bytes::from_static(b"3") };
        assert_eq!(v0, Ok(Some(three)));
        let few = objects.v0_within(&k, x, y, function, (100, 5)).await;
        assert!(matches!(few, Err(ObjectsError::TooMuch { max: 5 })), "{few:?}");
        let few = objects.v0_within(&k, x, y, function, (5, 1_000)).await;
        assert!(matches!(few, Err(ObjectsError::Version(_))), "{few:?}");
    });
}

#[test]
fn a_base_that_is_not_here_or_another_objects_is_refused() {
    run(1, |env| async move {
        let objects = open(&FaultyDisk::new(1), &env);
        let root = put(&objects, object(1), &[], b"a").await.unwrap();
        let strange = VersionId { h: RecordId::new([8; 32]), ..root };
        let refused = put(&objects, object(1), &[strange], b"b").await;
        assert!(matches!(refused, Err(ObjectsError::NoBase { .. })), "{refused:?}");
        let refused = put(&objects, object(2), &[root], b"b").await;
        assert!(matches!(refused, Err(ObjectsError::OtherObject { .. })), "{refused:?}");
        let refused = objects.get(&object(2), &root.h).await;
        assert!(matches!(refused, Err(ObjectsError::OtherObject { .. })), "{refused:?}");
        assert!(objects.tips(&object(2)).is_empty());
        assert!(objects.get(&object(1), &strange.h).await.unwrap().is_none());
    });
}

#[test]
fn a_batch_is_made_at_once_and_written_whole_or_not() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let objects = open(&disk, &env);
        let k = object(1);
        let mut watch = objects.watch();
        let mut batch = objects.batch();
        let mut base: Vec<VersionId> = Vec::new();
        for l in 0..50_u64 {
            let value = format!("value number {l} of the chain, which is long enough to be a form");
            // Nothing waits: each base is in the batch.
            let id = batch.put(new(k, &base, value.as_bytes())).now_or_never().unwrap().unwrap();
            assert_eq!(id.l, l);
            base = vec![id];
        }
        assert!(objects.tips(&k).is_empty(), "nobody is told before it is written");
        batch.commit(None).await.unwrap();
        assert_eq!(objects.tips(&k), base);
        assert_eq!(watch.try_recv().unwrap().len(), 50);
        // The disk fills: nothing of the next batch is told.
        disk.set_capacity(disk.used_bytes() + 100);
        let refused = put(&objects, k, &base, &[7; 1000]).await;
        assert!(matches!(refused, Err(ObjectsError::Store(_))), "{refused:?}");
        assert_eq!(objects.tips(&k), base);
        disk.set_capacity(u64::MAX);
        let next = put(&objects, k, &base, &[7; 1000]).await.unwrap();
        assert_eq!(objects.tips(&k), [next]);
    });
}

#[test]
fn a_batch_stands_on_one_that_is_being_written_and_falls_with_it() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let objects = open(&disk, &env);
        let k = object(1);
        let now = |batch: &mut objects::Batch, base: Option<VersionId>, value: &[u8]| {
            let bases = base.map_or(Bases::NONE, |base| Bases::one(base.h));
            batch.put_now(&k, bases, ValueKind::Bytes, value).unwrap().unwrap().0
        };
        let mut batch = objects.batch();
        let first = now(&mut batch, None, b"first");
        let (flight, mut batch) = batch.begin();
        let second = now(&mut batch, Some(first), b"second");
        assert_eq!((second.l, objects.tips(&k)), (1, vec![]));
        assert_eq!(flight.write(None).unwrap()[..], [(k, first)]);
        batch.landed(true);
        assert_eq!(objects.tips(&k), [first], "the other is not written");
        let (flight, mut batch) = batch.begin();
        let third = now(&mut batch, Some(second), b"third");
        flight.write(None).unwrap();
        batch.landed(true);
        batch.commit(None).await.unwrap();
        assert_eq!(objects.tips(&k), [third]);
        // The disk is full: what is being written fails, and what stands on it is forgotten.
        disk.set_capacity(disk.used_bytes() + 100);
        let mut batch = objects.batch();
        let lost = now(&mut batch, Some(third), &[7; 1000]);
        let (flight, mut batch) = batch.begin();
        now(&mut batch, Some(lost), b"on it");
        assert!(matches!(flight.write(None), Err(ObjectsError::Store(_))));
        batch.landed(false);
        assert!(batch.is_empty() && batch.versions() == 0);
        assert!(batch.put_now(&k, Bases::one(lost.h), ValueKind::Bytes, b"x").unwrap().is_none());
        disk.set_capacity(u64::MAX);
        now(&mut batch, Some(third), b"fourth");
        batch.commit(None).await.unwrap();
        assert_eq!((objects.tips(&k).len(), objects.tips(&k)[0].l), (1, 3));
    });
}

/// What is made ahead is taken only for what is just that; whatever it was told, a batch makes the same versions.
#[test]
fn what_was_made_ahead_changes_no_version() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let objects = open(&disk, &env);
        let (kind, none) = (ValueKind::Bytes, Bases::NONE);
        let values: Vec<Vec<u8>> = (0..40_usize).map(|n| vec![n as u8; n * 61]).collect();
        let likely = |at: usize, bases: Bases| Likely {
            object: object(at as u8),
            bases,
            kind,
            value: &values[at],
        };
        let mut batch = objects.batch();
        let all: Vec<Likely<'_>> = (0..40).map(|at| likely(at, none)).collect();
        batch.prepare(&all);
        let mut made = Vec::new();
        for at in 0..40 {
            // Some are skipped, and some are asked for with another value, base or object.
            if at % 5 == 1 {
                continue;
            }
            let other = if at % 5 == 2 { at + 1 } else { at };
            let mut value = values[at].clone();
            if at % 5 == 3 {
                value[at] ^= 1;
            }
            let value = &value[..];
            let put = batch.put_now(&object(other as u8), none, kind, value).unwrap();
            let (id, kept) = put.unwrap();
            assert_eq!(&kept[..], value);
            let same = View { object: object(other as u8), bases: none, l: 0, kind, value };
            assert_eq!(id.h, crypto::Suite::default().id(&same.encode()), "{at}");
            made.push((other, id));
        }
        // What was made ahead of one batch is there for the one that follows it.
        let (last, base) = made[made.len() - 1];
        let next = likely(last, Bases::one(base.h));
        batch.prepare(&[next, next]);
        let (flight, mut batch) = batch.begin();
        let put = batch.put_now(&next.object, next.bases, kind, next.value).unwrap();
        let Likely { object: of, bases, value, .. } = next;
        let same = View { object: of, bases, l: 1, kind, value };
        assert_eq!(put.unwrap().0.h, crypto::Suite::default().id(&same.encode()));
        flight.write(None).unwrap();
        batch.landed(true);
        batch.commit(None).await.unwrap();
        assert_eq!(objects.tips(&next.object).len(), 1);
        for (object_of, id) in made {
            let found = objects.get(&object(object_of as u8), &id.h).await.unwrap().unwrap();
            assert_eq!(found.id, id);
        }
    });
}

/// What was made ahead stands on nothing that was taken back since, and on no other object's version.
#[test]
fn what_was_made_ahead_goes_with_its_base() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let objects = open(&disk, &env);
        let kind = ValueKind::Bytes;
        let first = |batch: &mut objects::Batch| {
            let put = batch.put_now(&object(1), Bases::NONE, kind, b"first").unwrap();
            put.unwrap().0
        };
        let next = |base: VersionId| Likely {
            object: object(1),
            bases: Bases::one(base.h),
            kind,
            value: b"next",
        };
        let put = |batch: &mut objects::Batch, of: u8, base: VersionId| {
            batch.put_now(&object(of), Bases::one(base.h), kind, b"next")
        };
        let mut batch = objects.batch();
        let base = first(&mut batch);
        batch.prepare(&[next(base), Likely { object: object(2), ..next(base) }]);
        assert!(put(&mut batch, 2, base).is_err());
        batch.truncate(0);
        assert!(put(&mut batch, 1, base).unwrap().is_none());

        let base = first(&mut batch);
        let (flight, mut batch) = batch.begin();
        batch.prepare(&[next(base)]);
        drop(flight);
        batch.landed(false);
        assert!(put(&mut batch, 1, base).unwrap().is_none());
    });
}

#[test]
fn an_owners_objects_are_listed_by_name() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let objects = open(&disk, &env);
        let (mine, others) = (SecretKey::from_bytes(&[1; 32]), SecretKey::from_bytes(&[2; 32]));
        let (mine, others) = (mine.unwrap().public(), others.unwrap().public());
        let network = NetworkId::new([3; 32]);
        let mut batch = objects.batch();
        for (owner, name) in [(mine, "one"), (others, "one"), (mine, "two")] {
            batch.object(&ObjectRecord { network, owner, name: name.into() }).unwrap();
        }
        batch.commit(None).await.unwrap();
        let mut names = Vec::new();
        objects.objects_of(&mine, &mut |_, object| names.push(object.name)).unwrap();
        assert_eq!(names, ["one", "two"]);
    });
}

/// A version, its bases, its value.
type Acknowledged = (VersionId, Vec<VersionId>, Vec<u8>);

#[derive(Clone, Debug)]
enum Step {
    /// An object, which of its versions are bases, a value.
    Put(u8, prop::sample::Index, Option<prop::sample::Index>, u8),
    Restart,
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let put = (
        0..3_u8,
        any::<prop::sample::Index>(),
        prop::option::weighted(0.2, any::<prop::sample::Index>()),
        any::<u8>(),
    );
    let step = prop_oneof![
        20 => put.prop_map(|(o, a, b, value)| Step::Put(o, a, b, value)),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whatever is put on whatever, and however often the power goes: what was acknowledged is there, with its history,
    /// and the tips are those that are nobody's base.
    #[test]
    fn it_is_the_graph_that_was_acknowledged(steps in steps()) {
        run(1, move |env| async move {
            let mut disk = FaultyDisk::new(5);
            let mut log = store(&disk, &env);
            let small = ObjectsOptions { cache_bytes_max: 8 << 10, ..ObjectsOptions::default() };
            let mut objects = Objects::open(log.clone(), small).unwrap();
            let mut model: BTreeMap<u8, Vec<Acknowledged>> = BTreeMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Put(o, a, b, value) => {
                        let versions = model.entry(o).or_default();
                        let mut bases = Vec::new();
                        if !versions.is_empty() {
                            bases.push(versions[a.index(versions.len())].0);
                            if let Some(b) = b {
                                let b = versions[b.index(versions.len())].0;
                                if b != bases[0] { bases.push(b); }
                            }
                        }
                        let mut text = format!("{} ", o).repeat(100).into_bytes();
                        let at = usize::from(value) % text.len();
                        text[at] = number as u8;
                        let id = put(&objects, object(o), &bases, &text).await.unwrap();
                        if versions.iter().all(|(other, ..)| other.h != id.h) {
                            versions.push((id, bases, text));
                        }
                    }
                    Step::Restart => {
                        log.close().await.unwrap();
                        log = store(&disk, &env);
                        objects = Objects::open(log.clone(), ObjectsOptions::default()).unwrap();
                    }
                    Step::Crash => {
                        disk = disk.crash();
                        log = store(&disk, &env);
                        objects = Objects::open(log.clone(), ObjectsOptions::default()).unwrap();
                    }
                }
            }
            for (o, versions) in &model {
                let is_base =
                    |id: &VersionId| versions.iter().any(|(_, bases, _)| bases.contains(id));
                let ids = versions.iter().map(|(id, ..)| *id);
                let tips: BTreeSet<_> = ids.filter(|id| !is_base(id)).collect();
                assert_eq!(BTreeSet::from_iter(objects.tips(&object(*o))), tips);
                for (id, bases, text) in versions {
                    let stored = objects.get(&object(*o), &id.h).await.unwrap().unwrap();
                    assert_eq!((stored.id, &stored.version.value[..]), (*id, &text[..]));
                    let found = objects.previous(&object(*o), &id.h, 2).await.unwrap();
                    let found = found.into_iter().map(|stored| stored.id).take(bases.len());
                    let found: Vec<_> = found.collect();
                    assert_eq!(&found, bases);
                }
            }
        });
    }
}
