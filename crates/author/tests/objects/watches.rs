//! Watching: each version once, after what it was made of, over restarts of holders and of the watcher.

use std::sync::Arc;
use std::time::Duration;

use author::objects::{
    Object, Objects, ObjectsOptions, PolicyOptions, VersionId, Watch, WatchPoint, WatchTold,
    WriteOptions,
};
use env::Env;
use env::calls::objects::{WatchCursor, WatchEvent};
use futures::StreamExt;
use testkit::network::Fault;
use testkit::time::run;

use crate::keeper::WatchLie;
use crate::living::Living;
use crate::stage::{Stage, place};

fn open() -> PolicyOptions {
    PolicyOptions { open: true, public: true, ..PolicyOptions::default() }
}

async fn put(object: &Object, base: Option<&VersionId>, value: &str) -> VersionId {
    object.put(base, value, WriteOptions::default()).await.unwrap().id
}

/// The versions that are told within so much time, and whether a gap or *caught up* was.
async fn told(env: &Env, watch: &mut Watch, seconds: u64) -> (Vec<VersionId>, usize, usize) {
    let (mut ids, mut gaps, mut caught) = (Vec::new(), 0, 0);
    while let Ok(Some(event)) = env.within(Duration::from_secs(seconds), watch.next()).await {
        match event {
            WatchTold::Version { past, .. } => ids.push(past.id),
            WatchTold::Gap { .. } => gaps += 1,
            WatchTold::CaughtUp => caught += 1,
        }
    }
    (ids, gaps, caught)
}

#[test]
fn each_version_is_told_once_and_a_resumed_watch_misses_none() {
    run(1, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        let object = ada.create(b"feed", open()).await.unwrap();
        let one = put(&object, None, "one").await;
        let bobs = stage.user("bob").plain(ada.public_key(), b"feed").unwrap();
        let mut watch = bobs.watch(None).await.unwrap();
        assert_eq!(told(&env, &mut watch, 5).await, (vec![one], 0, 1));
        let two = put(&object, Some(&one), "two").await;
        let three = put(&object, Some(&two), "three").await;
        assert_eq!(told(&env, &mut watch, 5).await, (vec![two, three], 0, 0));
        let point = WatchPoint::decode(&watch.point().encode()).unwrap();
        drop(watch);
        let four = put(&object, Some(&three), "four").await;
        let branch = put(&object, Some(&one), "branch").await;
        let again = stage.user("bob").plain(ada.public_key(), b"feed").unwrap();
        let mut watch = again.watch(Some(point)).await.unwrap();
        let (mut ids, gaps, caught) = told(&env, &mut watch, 5).await;
        ids.sort_unstable();
        let mut wanted = vec![four, branch];
        wanted.sort_unstable();
        assert_eq!((ids, gaps, caught), (wanted, 0, 1));
    });
}

#[test]
fn what_happened_while_holders_forgot_is_walked_back_to() {
    run(2, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        let object = ada.create(b"feed", open()).await.unwrap();
        let mut last = put(&object, None, "0").await;
        let bobs = stage.user("bob").plain(ada.public_key(), b"feed").unwrap();
        let mut watch = bobs.watch(None).await.unwrap();
        assert_eq!(told(&env, &mut watch, 5).await.0, [last]);
        let point = watch.point().clone();
        drop(watch);
        let mut wanted = Vec::new();
        for number in 1..20 {
            last = put(&object, Some(&last), &number.to_string()).await;
            wanted.push(last);
        }
        // Their numbers begin anew: they tell their tips alone.
        stage.keepers.iter().for_each(|keeper| keeper.forget_events());
        let again = stage.user("bob").plain(ada.public_key(), b"feed").unwrap();
        let mut watch = again.watch(Some(point)).await.unwrap();
        let (ids, gaps, _) = told(&env, &mut watch, 5).await;
        assert_eq!((ids, gaps), (wanted, 0), "all of them, in the order in which they were made");
        // While it watches, too: the streams end, and go on.
        stage.keepers.iter().for_each(|keeper| keeper.forget_events());
        let next = put(&object, Some(&last), "next").await;
        assert_eq!(told(&env, &mut watch, 30).await.0, [next]);
    });
}

/// Values of up to 2 MiB each, thousands of them: they are not in memory together.
#[test]
fn of_what_a_watch_missed_few_values_are_in_memory_at_once() {
    const MISSED: usize = 800;
    run(7, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        let object = ada.create(b"feed", open()).await.unwrap();
        let mut last = put(&object, None, "0").await;
        let bobs = stage.user("bob").plain(ada.public_key(), b"feed").unwrap();
        let mut watch = bobs.watch(None).await.unwrap();
        assert_eq!(told(&env, &mut watch, 5).await.0, [last]);
        let point = watch.point().clone();
        drop(watch);
        let mut wanted = Vec::new();
        let mut batch = ada.batch(WriteOptions::default());
        for number in 0..MISSED {
            let value = format!("{number:04}").repeat(250);
            last = batch.put(&object, Some(&last), &value[..]).await.unwrap();
            wanted.push(last);
        }
        assert!(batch.send().await.unwrap().iter().all(Result::is_ok));
        stage.keepers.iter().for_each(|keeper| keeper.forget_events());
        // Room for a fourth of them.
        let options = ObjectsOptions { cache_bytes: 256 << 10, ..ObjectsOptions::default() };
        let again = Objects::new(&stage.author("bob"), options);
        let again = again.plain(ada.public_key(), b"feed").unwrap();
        let living = Living::of(&stage);
        let mut watch = again.watch(Some(point)).await.unwrap();
        let (ids, gaps, _) = told(&env, &mut watch, 5).await;
        assert_eq!((ids, gaps), (wanted, 0), "all of them, in the order in which they were made");
        assert!(living.most() < MISSED / 2, "{} at once", living.most());
    });
}

#[test]
fn a_watch_goes_on_over_holders_that_fail_and_a_family_is_watched_whole() {
    run(3, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        ada.set_family_policy(b"kv/", open()).await.unwrap();
        let bob = stage.user("bob");
        let mut watch = bob.watch_family(ada.public_key(), b"kv/", None);
        assert_eq!(told(&env, &mut watch, 5).await.2, 1);
        let mut wanted = Vec::new();
        for number in 0..6 {
            if number == 3 {
                stage.set(0, Fault::Down);
                stage.set(1, Fault::Down);
            }
            let member = ada.plain(ada.public_key(), format!("kv/{number}").as_bytes()).unwrap();
            wanted.push(put(&member, None, "v").await);
        }
        let other = ada.create(b"other", open()).await.unwrap();
        put(&other, None, "not of the family").await;
        let (mut ids, gaps, _) = told(&env, &mut watch, 30).await;
        ids.sort_unstable();
        wanted.sort_unstable();
        assert_eq!((ids, gaps), (wanted, 0));
    });
}

#[test]
fn where_nobody_answers_at_first_it_is_caught_up_with_the_first_that_does() {
    run(4, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        let object = ada.create(b"feed", open()).await.unwrap();
        let one = put(&object, None, "one").await;
        (0..stage.keepers.len()).for_each(|number| stage.set(number, Fault::Down));
        let bobs = stage.user("bob").plain(ada.public_key(), b"feed").unwrap();
        let mut watch = bobs.watch(None).await.unwrap();
        assert_eq!(told(&env, &mut watch, 5).await, (vec![], 0, 0));
        stage.network.heal();
        assert_eq!(told(&env, &mut watch, 30).await, (vec![one], 0, 1), "once");
    });
}

#[test]
fn a_holder_moves_no_other_holders_cursor() {
    run(5, |env| async move {
        let stage = Stage::new(&env);
        let ada = stage.user("ada");
        let object = ada.create(b"feed", open()).await.unwrap();
        let one = put(&object, None, "one").await;
        let rank = stage.rank(&ada, &place(&object));
        let (liar, victim) = (&stage.keepers[rank[0]], &stage.keepers[rank[1]]);
        let far = WatchCursor { peer: victim.id, run: 0, next: 1_000 };
        let lie: WatchLie = Arc::new(move |event| match event {
            WatchEvent::Record { found, .. } => WatchEvent::Record { found, cursor: Some(far) },
            WatchEvent::CaughtUp(_) => WatchEvent::CaughtUp(far),
            other => other,
        });
        *liar.watch_lie.lock().unwrap() = Some(lie);
        let bobs = stage.user("bob").plain(ada.public_key(), b"feed").unwrap();
        let mut watch = bobs.watch(None).await.unwrap();
        assert_eq!(told(&env, &mut watch, 5).await.0, [one]);
        // It has the last word.
        let again = liar.events.borrow().records.last().cloned().unwrap();
        liar.events.send_modify(|log| log.records.push(again));
        assert!(told(&env, &mut watch, 5).await.0.is_empty());
        let point = watch.point().clone();
        drop(watch);
        let two = put(&object, Some(&one), "two").await;
        let others = (0..stage.keepers.len()).filter(|number| *number != rank[1]);
        others.for_each(|number| stage.set(number, Fault::Down));
        let again = stage.user("bob").plain(ada.public_key(), b"feed").unwrap();
        let mut watch = again.watch(Some(point)).await.unwrap();
        assert_eq!(told(&env, &mut watch, 5).await.0, [two]);
    });
}

#[test]
fn a_family_tells_what_somebody_wrote_who_was_not_known_to_be_a_writer() {
    run(6, |env| async move {
        let stage = Stage::new(&env);
        let [ada, bob, carol, dave] = ["ada", "bob", "carol", "dave"].map(|name| stage.user(name));
        let member = |of: &Objects| of.plain(ada.public_key(), b"kv/1").unwrap();
        let writers = |writers: Vec<_>| PolicyOptions { writers, ..open() };
        ada.set_family_policy(b"kv/", open()).await.unwrap();
        let one = put(&member(&ada), None, "one").await;
        let mut watch = bob.watch_family(ada.public_key(), b"kv/", None);
        assert_eq!(told(&env, &mut watch, 5).await, (vec![one], 0, 1));
        ada.set_family_policy(b"kv/", writers(vec![carol.public_key()])).await.unwrap();
        let two = put(&member(&carol), Some(&one), "two").await;
        assert_eq!(told(&env, &mut watch, 5).await.0, [two], "the policy is asked for");
        let both = writers(vec![carol.public_key(), dave.public_key()]);
        ada.set_family_policy(b"kv/", both).await.unwrap();
        let three = put(&member(&dave), Some(&two), "three").await;
        assert!(told(&env, &mut watch, 5).await.0.is_empty(), "not so soon again");
        let point = watch.point().clone();
        assert_eq!(told(&env, &mut watch, 200).await.0, [three]);
        let mut watch = stage.user("bob").watch_family(ada.public_key(), b"kv/", Some(point));
        assert_eq!(told(&env, &mut watch, 5).await.0, [three], "one that goes on from before, too");
    });
}
