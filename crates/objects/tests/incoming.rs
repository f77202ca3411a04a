//! Versions that others made, in any order, at once, and over power cuts, against the graph that they are.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use crypto::{RecordId, Suite};
use document::Record;
use env::Env;
use env::disk::Disk;
use objects::{Objects, ObjectsError, ObjectsOptions};
use proptest::prelude::*;
use store::{Durability, LogOptions, LogStore, RecordStore};
use testkit::disk::FaultyDisk;
use testkit::time::run;
use version::{Bases, Hint, ObjectKey, ValueKind, Version, VersionError};

const SUITE: Suite = Suite::Holdfast1;
const OBJECT: ObjectKey = ObjectKey::new([1; 32]);

fn store(disk: &FaultyDisk, env: &Env) -> Arc<LogStore> {
    let options =
        LogOptions { segment_bytes_max: 64 << 10, reserve_free_bytes: 0, ..LogOptions::default() };
    LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap()
}

fn open(disk: &FaultyDisk, env: &Env) -> Arc<Objects> {
    Objects::open(store(disk, env), ObjectsOptions::default()).unwrap()
}

/// A version on these, as somebody else makes it.
fn made(object: ObjectKey, bases: &[&(Record, Version)], value: &str) -> (Record, Version) {
    let hs: Vec<RecordId> = bases.iter().map(|(record, _)| record.id).collect();
    let l = version::depth(bases.iter().map(|(_, version)| version.l)).unwrap();
    let version = Version {
        object,
        bases: Bases::from_slice(&hs).unwrap(),
        l,
        kind: ValueKind::Bytes,
        value: Bytes::copy_from_slice(value.as_bytes()),
    };
    (version.record(SUITE, Hint::FIRST).0, version)
}

async fn take(
    objects: &Arc<Objects>,
    env: &Env,
    versions: &[&(Record, Version)],
) -> Result<Vec<bool>, ObjectsError> {
    let mut incoming = objects.incoming(env.clone());
    for (record, version) in versions {
        incoming.version(record.clone(), version, true).await?;
    }
    Ok(incoming.commit(None, |_| {}).await?.versions)
}

fn tips(objects: &Objects) -> BTreeSet<RecordId> {
    objects.tips(&OBJECT).into_iter().map(|tip| tip.h).collect()
}

#[test]
fn one_that_comes_before_its_base_makes_the_base_no_tip() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let objects = open(&disk, &env);
        let root = made(OBJECT, &[], "root");
        let put = made(OBJECT, &[&root], "put");
        assert_eq!(take(&objects, &env, &[&put]).await.unwrap(), [true]);
        assert_eq!((tips(&objects), objects.stats().awaited), ([put.0.id].into(), 1));
        // Also where the peer was off in between.
        let objects = open(&disk.crash(), &env);
        assert_eq!(objects.stats().awaited, 1);
        assert_eq!(take(&objects, &env, &[&root]).await.unwrap(), [true]);
        assert_eq!((tips(&objects), objects.stats().awaited), ([put.0.id].into(), 0));
        assert_eq!(take(&objects, &env, &[&root]).await.unwrap(), [false], "here already");
        assert_eq!(tips(&objects), [put.0.id].into(), "no tip again");
        let (record, stored) = objects.proven(&OBJECT, &root.0.id).await.unwrap().unwrap();
        assert_eq!((record, stored.version), root);
    });
}

/// Whoever knows a version before it comes here does not keep it from being a tip by naming it as the base of one of his own.
#[test]
fn a_version_that_anothers_object_names_as_its_base_is_a_tip_all_the_same() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let objects = open(&disk, &env);
        let root = made(OBJECT, &[], "root");
        let (left, right) = (made(OBJECT, &[&root], "left"), made(OBJECT, &[&root], "right"));
        let other = ObjectKey::new([2; 32]);
        let strange = made(other, &[&root, &left], "on another object's");
        let beside = made(other, &[&right], "in one write with it");
        take(&objects, &env, &[&strange]).await.unwrap();
        take(&objects, &env, &[&root]).await.unwrap();
        assert_eq!(tips(&objects), [root.0.id].into());
        take(&objects, &env, &[&left]).await.unwrap();
        take(&objects, &env, &[&beside, &right]).await.unwrap();
        let both: BTreeSet<_> = [left.0.id, right.0.id].into();
        assert_eq!(tips(&objects), both);
        // They stand behind it in the log.
        let objects = open(&disk.crash(), &env);
        assert_eq!(tips(&objects), both);
    });
}

#[test]
fn bases_that_are_here_must_be_what_a_version_says() {
    run(1, |env| async move {
        let objects = open(&FaultyDisk::new(1), &env);
        let root = made(OBJECT, &[], "root");
        let other = made(ObjectKey::new([2; 32]), &[], "another object's");
        take(&objects, &env, &[&root, &other]).await.unwrap();
        let strange = made(OBJECT, &[&other], "on another object's");
        let refused = take(&objects, &env, &[&strange]).await;
        assert!(matches!(refused, Err(ObjectsError::OtherObject { .. })), "{refused:?}");
        let deep = |l| {
            let mut version = made(OBJECT, &[&root], "deep").1;
            version.l = l;
            (version.record(SUITE, Hint::FIRST).0, version)
        };
        let refused = take(&objects, &env, &[&deep(2)]).await;
        let history =
            |error: &ObjectsError| matches!(error, ObjectsError::Version(VersionError::History(_)));
        assert!(refused.as_ref().is_err_and(history), "{refused:?}");
        // Of a merge of which one base is not here, the other one sets a lower bound.
        let far = made(OBJECT, &[&deep(7)], "far");
        let merge = |l| {
            let mut version = made(OBJECT, &[&root, &far], "merge").1;
            version.l = l;
            (version.record(SUITE, Hint::FIRST).0, version)
        };
        take(&objects, &env, &[&merge(9)]).await.unwrap();
        assert!(tips(&objects).contains(&merge(9).0.id) && !tips(&objects).contains(&root.0.id));
    });
}

#[test]
fn a_depth_that_nobody_can_check_leaves_room_for_what_follows() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let objects = open(&disk, &env);
        let root = made(OBJECT, &[], "root");
        take(&objects, &env, &[&root]).await.unwrap();
        let absent = made(OBJECT, &[&root], "absent");
        let on = |bases: &[&(Record, Version)], l| {
            let mut version = made(OBJECT, bases, "deep").1;
            version.l = l;
            (version.record(SUITE, Hint::FIRST).0, version)
        };
        let most = 1 << 40;
        let history =
            |error: &ObjectsError| matches!(error, ObjectsError::Version(VersionError::History(_)));
        for (bases, least) in [(&[&absent][..], 0), (&[&root, &absent][..], 1)] {
            for l in [u64::MAX, u64::MAX - 1, least + most + 1] {
                let refused = take(&objects, &env, &[&on(bases, l)]).await;
                assert!(refused.as_ref().is_err_and(history), "{l}: {refused:?}");
            }
            let last = on(bases, least + most);
            take(&objects, &env, &[&last]).await.unwrap();
            take(&objects, &env, &[&made(OBJECT, &[&last], "follows")]).await.unwrap();
        }
    });
}

#[test]
fn a_region_is_what_is_there_and_counted_again_at_the_start() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let objects = open(&disk, &env);
        let root = made(OBJECT, &[], &"x".repeat(500));
        let put = made(OBJECT, &[&root], &format!("{}y", "x".repeat(500)));
        let bytes = (root.0.bytes.len() + put.0.bytes.len()) as u64;
        assert!(objects.reserve(&OBJECT, &Hint::FIRST, bytes, bytes));
        assert!(!objects.reserve(&OBJECT, &Hint::FIRST, 1, bytes), "to the last byte");
        take(&objects, &env, &[&root, &put]).await.unwrap();
        let next = Hint::overflow(SUITE, &OBJECT, 1).unwrap();
        let mut away = made(OBJECT, &[&put], "elsewhere").1;
        away.value = Bytes::from_static(b"at the next place");
        let away = (away.record(SUITE, next).0, away);
        assert!(objects.reserve(&OBJECT, &next, away.0.bytes.len() as u64, bytes));
        take(&objects, &env, &[&away]).await.unwrap();
        let regions = objects.regions(&OBJECT);
        assert_eq!(regions, [(Hint::FIRST, bytes), (next, away.0.bytes.len() as u64)]);
        // One of them is kept as a form: it is counted as long as it is.
        assert!(objects.stats().cached_bytes > 0);
        let objects = open(&disk.crash(), &env);
        assert_eq!(objects.regions(&OBJECT), regions);
        objects.give_back(&OBJECT, &next, 10);
        assert_eq!(objects.regions(&OBJECT)[1].1, away.0.bytes.len() as u64 - 10);
    });
}

#[test]
fn bytes_that_are_not_those_of_the_id_are_not_served() {
    run(1, |env| async move {
        let store = Arc::new(store::MemoryStore::new());
        let none = ObjectsOptions { cache_bytes_max: 0, ..ObjectsOptions::default() };
        let root = made(OBJECT, &[], "root");
        let altered = Record { bytes: made(OBJECT, &[], "rust").0.bytes, ..root.0.clone() };
        store.put(vec![altered]).await.unwrap();
        let objects = Objects::open(store, none).unwrap();
        let refused = objects.proven(&OBJECT, &root.0.id).await;
        assert!(matches!(refused, Err(ObjectsError::Altered { .. })), "{refused:?}");
        drop(env);
    });
}

/// Flips a byte of a version that is kept plain.
fn damage(disk: &FaultyDisk, one: &(Record, Version)) {
    for name in disk.list().unwrap().into_iter().filter(|name| name.ends_with(".log")) {
        let bytes = disk.bytes(&name).unwrap();
        let wanted = &one.0.bytes;
        if let Some(at) = bytes.windows(wanted.len()).position(|window| window == wanted) {
            disk.flip(&name, at + wanted.len() - 1, 0x40);
            return;
        }
    }
    panic!("the version is not on the disk");
}

/// Damaged while it runs, or found damaged by a start: written again each is what it was, and counted once.
#[test]
fn versions_that_are_written_again_are_in_their_old_places() {
    run(1, |env| async move {
        let root = made(OBJECT, &[], "root");
        let put = made(OBJECT, &[&root], "put");
        let last = made(OBJECT, &[&put], "last");
        let all = [&root, &put, &last];
        let last_alone: BTreeSet<_> = [last.0.id].into();
        for (hit, without) in [(&root, &last), (&put, &last), (&last, &put)] {
            let disk = FaultyDisk::new(1);
            let objects = open(&disk, &env);
            let mut incoming = objects.incoming(env.clone());
            for (record, version) in all {
                incoming.version(record.clone(), version, false).await.unwrap();
            }
            incoming.commit(None, |_| {}).await.unwrap();
            damage(&disk, hit);
            let mut news = objects.watch();
            assert_eq!(take(&objects, &env, &[hit]).await.unwrap(), [true], "written again");
            assert_eq!((tips(&objects), objects.stats().versions), (last_alone.clone(), 3));
            assert!(news.try_recv().is_err(), "it is no news");

            damage(&disk, hit);
            let objects = open(&disk.crash(), &env);
            assert!(tips(&objects).contains(&without.0.id));
            let stood_on = u64::from(hit.0.id != last.0.id);
            assert_eq!((objects.stats().versions, objects.stats().awaited), (2, stood_on));
            let both = [&last, hit];
            let bases = if stood_on == 0 { &both[..1] } else { &both[..] };
            let next = made(OBJECT, bases, "on what cannot be read");
            take(&objects, &env, &[&next]).await.unwrap();
            for new in [true, false] {
                assert_eq!(take(&objects, &env, &[hit]).await.unwrap(), [new]);
                let stats = objects.stats();
                assert_eq!(tips(&objects), [next.0.id].into());
                assert_eq!((stats.versions, stats.awaited), (4, 0));
            }
        }
    });
}

/// What a start could not read may be dropped before anybody writes it again.
#[test]
fn a_version_that_could_not_be_read_and_was_dropped_comes_as_any_other() {
    run(1, |env| async move {
        let disk = FaultyDisk::new(1);
        let (root, other) = (made(OBJECT, &[], "root"), made(OBJECT, &[], "another root"));
        take(&open(&disk, &env), &env, &[&root, &other]).await.unwrap();
        damage(&disk, &root);
        let store = store(&disk.crash(), &env);
        let objects = Objects::open(store.clone(), ObjectsOptions::default()).unwrap();
        store.remove(vec![root.0.id]).await.unwrap();
        assert_eq!(take(&objects, &env, &[&root]).await.unwrap(), [true]);
        assert_eq!(tips(&objects), [root.0.id, other.0.id].into());
        // It is known where it is: nothing waits for it.
        let merge = made(OBJECT, &[&root, &other], "both");
        let put = made(OBJECT, &[&root], "on the first alone");
        take(&objects, &env, &[&merge, &put]).await.unwrap();
        let stats = objects.stats();
        assert_eq!(tips(&objects), [merge.0.id, put.0.id].into());
        assert_eq!((stats.versions, stats.awaited), (4, 0));
    });
}

#[test]
fn two_that_write_the_same_at_once_make_one_tip() {
    run(1, |env| async move {
        let objects = open(&FaultyDisk::new(1), &env);
        let root = made(OBJECT, &[], "root");
        let mut first = objects.incoming(env.clone());
        first.version(root.0.clone(), &root.1, false).await.unwrap();
        let mut second = objects.incoming(env.clone());
        second.version(root.0.clone(), &root.1, false).await.unwrap();
        let put = made(OBJECT, &[&root], "put");
        let mut third = objects.incoming(env.clone());
        third.version(put.0.clone(), &put.1, false).await.unwrap();
        let mut news = objects.watch();
        let always = Some(Durability::Always);
        let done = futures::join!(
            third.commit(None, |_| {}),
            first.commit(always, |_| {}),
            second.commit(None, |_| {}),
        );
        assert_eq!(done.0.unwrap().versions, [true]);
        assert_ne!(done.1.unwrap().versions, done.2.unwrap().versions, "new to one of them");
        assert_eq!(tips(&objects), [put.0.id].into());
        let mut told = 0;
        while let Ok(events) = news.try_recv() {
            told += events.len();
        }
        assert_eq!((told, objects.stats().awaited), (2, 0));
    });
}

#[derive(Clone, Debug)]
enum Step {
    /// These of the graph, at once.
    Take(Vec<prop::sample::Index>),
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let take = prop::collection::vec(any::<prop::sample::Index>(), 1..5).prop_map(Step::Take);
    prop::collection::vec(prop_oneof![8 => take, 1 => Just(Step::Crash)], 1..30)
}

/// For each version of a graph, which ones before it are its bases.
type Graph = Vec<(prop::sample::Index, Option<prop::sample::Index>)>;

fn graph() -> impl Strategy<Value = Graph> {
    let bases =
        (any::<prop::sample::Index>(), prop::option::weighted(0.3, any::<prop::sample::Index>()));
    prop::collection::vec(bases, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// In whatever order the versions of a graph come, some of them twice or never, the tips are those here on which nothing
    /// here stands, and all that is here is what was sent.
    #[test]
    fn tips_are_those_on_which_nothing_here_stands(graph in graph(), steps in steps()) {
        run(1, move |env| async move {
            let mut all: Vec<(Record, Version)> = Vec::new();
            for (number, (first, second)) in graph.iter().enumerate() {
                let mut bases = Vec::new();
                if number > 0 {
                    bases.push(&all[first.index(number)]);
                    let second = second.map(|second| &all[second.index(number)]);
                    bases.extend(second.filter(|second| second.0.id != bases[0].0.id));
                }
                let value = format!("{} {number}", "a value that may be a form ".repeat(9));
                let one = made(OBJECT, &bases, &value);
                all.push(one);
            }
            let mut disk = FaultyDisk::new(5);
            let mut objects = open(&disk, &env);
            let mut here: BTreeMap<RecordId, usize> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Take(which) => {
                        let which: Vec<usize> =
                            which.iter().map(|one| one.index(all.len())).collect();
                        let versions: Vec<_> = which.iter().map(|at| &all[*at]).collect();
                        take(&objects, &env, &versions).await.unwrap();
                        here.extend(which.iter().map(|at| (all[*at].0.id, *at)));
                    }
                    Step::Crash => {
                        disk = disk.crash();
                        objects = open(&disk, &env);
                    }
                }
                let is_base = |h: &RecordId| here.values().any(|at| all[*at].1.bases.contains(h));
                let wanted = here.keys().filter(|h| !is_base(h)).copied().collect();
                assert_eq!(tips(&objects), wanted);
                let bases = here.values().flat_map(|at| all[*at].1.bases.iter());
                let missing: BTreeSet<_> = bases.filter(|base| !here.contains_key(base)).collect();
                assert_eq!(objects.stats().awaited, missing.len() as u64);
            }
            for (h, at) in here {
                let (record, _) = objects.proven(&OBJECT, &h).await.unwrap().unwrap();
                assert_eq!(&record, &all[at].0);
            }
        });
    }
}
