#![allow(clippy::unwrap_used, reason = "tests")]

use crypto::{Place, SecretKey, Suite};
use store::MemoryStore;
use testkit::time::run;
use version::{Hint, ValueKind};

use super::*;
use crate::ObjectsOptions;

const SUITE: Suite = Suite::Holdfast1;
const OBJECT: ObjectKey = ObjectKey::new([1; 32]);

fn organisation(number: u8) -> OrgId {
    OrgId::new(SecretKey::from_bytes(&[number; 32]).unwrap().public())
}

/// A version on these, as somebody else makes it.
fn made(bases: &[RecordId], l: u64, value: &str) -> (Record, Version) {
    let version = Version {
        object: OBJECT,
        bases: Bases::from_slice(bases).unwrap(),
        l,
        kind: ValueKind::Bytes,
        value: Bytes::copy_from_slice(value.as_bytes()),
    };
    (version.record(SUITE, Hint::FIRST).0, version)
}

/// One on two versions that there are nowhere.
fn made_up(number: u32) -> (Record, Version) {
    let none = |side: u8| SUITE.id(&[&[side][..], &number.to_be_bytes()].concat());
    made(&[none(0), none(1)], 7, &format!("made up {number}"))
}

/// Takes versions in one write, all or none.
async fn take(
    objects: &Arc<Objects>,
    env: &Env,
    of: Option<OrgId>,
    versions: &[&(Record, Version)],
) -> Result<(), ObjectsError> {
    let incoming = objects.incoming(env.clone());
    let mut incoming = match of {
        Some(of) => incoming.of(of),
        None => incoming,
    };
    for (record, version) in versions {
        incoming.version(record.clone(), version, false).await?;
    }
    incoming.commit(None, |_| {}).await.map(drop)
}

fn is_awaited(result: &Result<(), ObjectsError>) -> bool {
    matches!(result, Err(ObjectsError::Awaited))
}

fn is_branches(result: &Result<(), ObjectsError>) -> bool {
    matches!(result, Err(ObjectsError::Branches { max: BRANCHES_MAX, .. }))
}

#[test]
fn versions_on_nothing_keep_no_other_organisation_from_writing_and_none_after_a_restart() {
    run(1, |env| async move {
        let store = Arc::new(MemoryStore::new());
        let open = || {
            let objects = Objects::open(store.clone(), ObjectsOptions::default()).unwrap();
            objects.arrivals.lock().bound(16);
            objects
        };
        let [one, two] = [1, 2].map(organisation);
        let mut number = 0;
        for starts in 0..5 {
            let objects = open();
            assert_eq!(objects.stats().awaited, starts * 20);
            // Eight of one, four of the other: none has more than is left.
            for (of, fits) in [(one, 4), (two, 2)] {
                for _ in 0..fits {
                    take(&objects, &env, Some(of), &[&made_up(number)]).await.unwrap();
                    number += 1;
                }
                let refused = take(&objects, &env, Some(of), &[&made_up(number)]).await;
                assert!(is_awaited(&refused), "{refused:?}");
                // What is here is no more of it, nor what stands on nothing.
                take(&objects, &env, Some(of), &[&made_up(number - 1)]).await.unwrap();
                let root = made(&[], 0, &format!("root {number}"));
                take(&objects, &env, Some(of), &[&root]).await.unwrap();
            }
            // What keeps the network whole is taken however many there are.
            for _ in 0..4 {
                take(&objects, &env, None, &[&made_up(number)]).await.unwrap();
                number += 1;
            }
            assert_eq!(objects.stats().awaited, (starts + 1) * 20);
        }
    });
}

#[test]
fn what_is_on_its_way_counts_and_is_given_back_where_it_is_not_written() {
    run(2, |env| async move {
        let store = Arc::new(MemoryStore::new());
        let objects = Objects::open(store, ObjectsOptions::default()).unwrap();
        objects.arrivals.lock().bound(16);
        let [one, two] = [1, 2].map(organisation);
        let mut waiting = objects.incoming(env.clone()).of(one);
        for number in 0..4 {
            let (record, version) = made_up(number);
            waiting.version(record, &version, false).await.unwrap();
        }
        // The same bases once more take no more room.
        let (_, version) = made_up(0);
        let hs: Vec<RecordId> = version.bases.iter().collect();
        let again = made(&hs, 7, "on the same");
        waiting.version(again.0.clone(), &again.1, false).await.unwrap();
        let refused = take(&objects, &env, Some(one), &[&made_up(9)]).await;
        assert!(is_awaited(&refused), "{refused:?}");
        take(&objects, &env, Some(two), &[&made_up(9)]).await.unwrap();
        assert_eq!(objects.stats().awaited, 2);
        drop(waiting);
        let four: Vec<_> = (10..14).map(made_up).collect();
        take(&objects, &env, Some(one), &four.iter().collect::<Vec<_>>()).await.unwrap();
        assert_eq!(objects.stats().awaited, 10);
        let refused = take(&objects, &env, Some(one), &[&made_up(20)]).await;
        assert!(is_awaited(&refused), "eight of one, two of the other: {refused:?}");
    });
}

#[test]
fn an_object_of_very_many_branches_gets_no_more_but_of_repair() {
    run(3, |env| async move {
        let store = Arc::new(MemoryStore::new());
        let objects = Objects::open(store, ObjectsOptions::default()).unwrap();
        let of = Some(organisation(1));
        let roots: Vec<_> = (0..4).map(|number| made(&[], 0, &format!("root {number}"))).collect();
        for root in &roots {
            take(&objects, &env, of, &[root]).await.unwrap();
        }
        // The others are in the index alone.
        for number in roots.len()..BRANCHES_MAX {
            let h = SUITE.id(&number.to_be_bytes());
            let id = VersionId { h, l: 0, n: Hint::FIRST };
            let place = Place::from(h);
            let tip = Tip { id, kind: ValueKind::Bytes, anchor: h, place };
            objects.index.arrive(&OBJECT, std::iter::empty(), Some(tip));
        }
        let refused = take(&objects, &env, of, &[&made(&[], 0, "one more")]).await;
        assert!(is_branches(&refused), "{refused:?}");
        let h = |at: usize| roots[at].0.id;
        let on = made(&[h(0)], 1, "on a tip");
        // Of two on one tip the first takes its place.
        let beside = made(&[h(0)], 1, "on it too");
        let refused = take(&objects, &env, of, &[&on, &beside]).await;
        assert!(is_branches(&refused), "{refused:?}");
        take(&objects, &env, of, &[&on]).await.unwrap();
        let refused = take(&objects, &env, of, &[&beside]).await;
        assert!(is_branches(&refused), "{refused:?}");
        // What is here comes again, and does not make room for what stands on it.
        take(&objects, &env, of, &[&roots[0], &on]).await.unwrap();
        let refused = take(&objects, &env, of, &[&roots[0], &beside]).await;
        assert!(is_branches(&refused), "{refused:?}");
        // A merge makes room for one, once it is written.
        let merge = made(&[h(1), h(2)], 1, "two become one");
        let next = made(&[merge.0.id], 2, "on the merge");
        let (first, second) = (made(&[], 0, "the first"), made(&[], 0, "the second"));
        let refused = take(&objects, &env, of, &[&merge, &next, &first, &second]).await;
        assert!(is_branches(&refused), "{refused:?}");
        take(&objects, &env, of, &[&merge, &next]).await.unwrap();
        assert_eq!(objects.index.count(&OBJECT), BRANCHES_MAX - 1);
        take(&objects, &env, of, &[&first]).await.unwrap();
        let refused = take(&objects, &env, of, &[&second]).await;
        assert!(is_branches(&refused), "{refused:?}");
        // Another holder took these: they are not lost with it.
        take(&objects, &env, None, &[&second, &beside]).await.unwrap();
        assert_eq!(objects.index.count(&OBJECT), BRANCHES_MAX + 2);
        let (found, more) = objects.first_tips(&OBJECT, 64);
        assert_eq!((found.len(), more, found[0].h), (64, true, next.0.id));
        assert_eq!(objects.newest(&OBJECT).unwrap().0, found[0]);
        assert_eq!(objects.tips(&OBJECT)[..64], found);
    });
}
