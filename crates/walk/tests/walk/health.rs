//! Health as walks make it, and what slow and hanging peers cost the others.

use std::time::Duration;

use crypto::Suite;
use document::Kind;
use futures::StreamExt;
use testkit::network::{Fault, key, page};
use testkit::time::run;
use walk::{
    CALL_LIMIT, Directory, HEDGE_BURST, HEDGE_PERCENT, Health, Held, Holding, LAST_RESORT_LIMIT,
    WalkOptions, Walker,
};

use super::{LONG, PAGES, Stage, small};

#[test]
fn a_dead_peer_is_suspect_then_away_and_comes_back() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 3);
        let record = small(1);
        stage.walker.store(record.clone(), PAGES).await.unwrap();
        assert_eq!(stage.walker.drain(LONG).await, 0);
        let first = stage.rank(&record.place)[0];
        stage.set(first, Fault::Down);
        let health = || stage.directory.health(&stage.peer(first));
        let find = || async {
            let found = stage.walker.find(None, record.id, record.place).await;
            assert_eq!(found.unwrap().record, record);
        };
        find().await;
        assert_eq!(health(), Health::Suspect);
        let before = stage.network.counts(&stage.peer(first)).find;
        for _ in 0..100 {
            env.clock.sleep(Duration::from_secs(1)).await;
            find().await;
        }
        assert_eq!(health(), Health::Away);
        let tries = stage.network.counts(&stage.peer(first)).find - before;
        assert!((3..=10).contains(&tries), "{tries} tries in 100 s");
        stage.network.heal();
        let to = stage.directory.endpoint(&stage.peer(first)).unwrap();
        stage.walker.introduce(&to).await.unwrap();
        assert_eq!(health(), Health::Healthy);
        assert_eq!(stage.directory.peers().len(), 3);
    });
}

#[test]
fn one_hanging_peer_costs_little_and_then_nothing() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let records: Vec<_> = (0..100).map(small).collect();
        for record in &records {
            stage.walker.store(record.clone(), PAGES).await.unwrap();
        }
        assert_eq!(stage.walker.drain(LONG).await, 0);
        stage.set(0, Fault::Hang);
        let since = env.clock.elapsed();
        for record in &records {
            stage.walker.find(None, record.id, record.place).await.unwrap();
        }
        let took = env.clock.elapsed() - since;
        // All a hundred together wait less than one deadline.
        assert!(took < Duration::from_secs(3), "{took:?}");
    });
}

/// A reader that has just begun, and a peer that ranks first for all that it reads. Four records may be on their way while nothing is
/// known of the line: were all of them that peer's, the others' would wait until it is given up.
#[test]
fn one_hanging_peer_does_not_hold_up_a_reader_that_has_just_begun() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let all = (0..).map(|number| page(Suite::Holdfast1, number, 200_000));
        let records: Vec<_> =
            all.filter(|record| stage.rank(&record.place)[0] == 0).take(20).collect();
        for record in &records {
            stage.walker.store(record.clone(), PAGES).await.unwrap();
        }
        assert_eq!(stage.walker.drain(LONG).await, 0);
        (1..9).for_each(|number| stage.set(number, Fault::Delay(Duration::from_millis(20))));
        stage.set(0, Fault::Hang);
        let directory = Directory::new(stage.community.genesis.clone(), env.clone(), None);
        directory.learn_from(&stage.community.known());
        let calls = stage.network.calls(key("reader", 0).public());
        let reader = Walker::new(env.clone(), calls, directory, WalkOptions::default());
        let since = env.clock.elapsed();
        let found = records.iter().map(|record| {
            let (reader, record) = (&reader, record);
            async move {
                let found = reader.find(Some(Kind::Page), record.id, record.place).await.unwrap();
                assert_eq!(found.record.id, record.id);
            }
        });
        futures::stream::iter(found).buffer_unordered(8).collect::<Vec<()>>().await;
        let took = env.clock.elapsed() - since;
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
}

#[test]
fn who_did_not_answer_one_question_is_waited_for_less_at_the_next() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 3);
        let records: Vec<_> = (0..3).map(small).collect();
        for record in &records {
            stage.walker.store(record.clone(), PAGES).await.unwrap();
        }
        assert_eq!(stage.walker.drain(LONG).await, 0);
        stage.set(0, Fault::Hang);
        let mut took = Vec::new();
        for record in &records {
            let since = env.clock.elapsed();
            let told = stage.walker.holdings(record.id, record.place, PAGES, Some(record)).await;
            let silent = |one: &&Holding| matches!(one.held, Held::Unreachable(_));
            assert_eq!((told.len(), told.iter().filter(silent).count()), (3, 1));
            took.push(env.clock.elapsed() - since);
        }
        assert_eq!(took, [CALL_LIMIT, LAST_RESORT_LIMIT, LAST_RESORT_LIMIT]);
    });
}

#[test]
fn a_slow_peer_is_asked_after_the_others_and_again_when_it_is_fast() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let records: Vec<_> = (0..200).map(small).collect();
        (0..9).for_each(|number| stage.set(number, Fault::Delay(Duration::from_millis(10))));
        for record in &records {
            stage.walker.store(record.clone(), PAGES).await.unwrap();
        }
        assert_eq!(stage.walker.drain(LONG).await, 0);
        let read_all = || async {
            let mut times = Vec::new();
            for record in &records {
                let since = env.clock.elapsed();
                stage.walker.find(None, record.id, record.place).await.unwrap();
                times.push(env.clock.elapsed() - since);
            }
            times.sort_unstable();
            times[times.len() * 99 / 100]
        };
        let before = read_all().await;
        stage.set(0, Fault::Delay(Duration::from_secs(1)));
        read_all().await;
        let slow = read_all().await;
        assert!(slow.as_secs_f64() < before.as_secs_f64() * 1.2, "{slow:?} after {before:?}");
        stage.set(0, Fault::Delay(Duration::from_millis(10)));
        env.clock.sleep(Duration::from_secs(60)).await;
        read_all().await;
        let asked = stage.network.counts(&stage.peer(0)).find;
        read_all().await;
        assert!(stage.network.counts(&stage.peer(0)).find > asked + 10, "it has its turn again");
    });
}

#[test]
fn hedges_stay_within_their_budget() {
    run(1, |env| async move {
        let stage = Stage::new(&env, 3, 9);
        let records: Vec<_> = (0..100).map(small).collect();
        (0..9).for_each(|number| stage.set(number, Fault::Delay(Duration::from_millis(10))));
        for record in &records {
            stage.walker.store(record.clone(), PAGES).await.unwrap();
        }
        assert_eq!(stage.walker.drain(LONG).await, 0);
        for record in &records {
            stage.walker.find(None, record.id, record.place).await.unwrap();
        }
        // Everybody is late at once: an overload. Asking twice would double it.
        (0..9).for_each(|number| stage.set(number, Fault::Delay(Duration::from_millis(200))));
        let before = stage.network.total();
        for record in &records {
            stage.walker.find(None, record.id, record.place).await.unwrap();
        }
        let extra = stage.network.total() - before - records.len() as u64;
        let earned = records.len() as u64 * u64::from(HEDGE_PERCENT) / 100;
        assert!(extra > 0, "the first ones are hedged");
        assert!(extra <= u64::from(HEDGE_BURST) + earned + 1, "{extra} calls more");
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let once = |seed| {
        run(seed, |env| async move {
            let stage = Stage::new(&env, 3, 9);
            stage.set(3, Fault::Hang);
            stage.set(5, Fault::Delay(Duration::from_millis(70)));
            for number in 0..30 {
                let _ = stage.walker.store(small(number), PAGES).await;
            }
            stage.walker.drain(LONG).await;
            let counts = (0..9).map(|number| stage.network.counts(&stage.peer(number)));
            (counts.collect::<Vec<_>>(), env.clock.elapsed())
        })
    };
    assert_eq!(once(1), once(1));
}
