//! A peer that is asked for more than it can do: who is told to come again, and what waits meanwhile.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crypto::{ClientKey, Tier};
use document::Record;
use env::Env;
use env::calls::{CallError, Calls, Credential, FindRequest, FindResponse, StoreOutcome};
use futures::FutureExt;
use futures::future::{Either, join_all, select};
use testkit::network::key;

use crate::repair::{fragments_of, kill, put_copies, put_stripes, quick, sum, town};
use crate::town::{LIMIT, Town, introduce, page};

/// Callers that each store one record after the other: more than make a peer look how long that takes.
const CALLERS: u32 = 12;
/// How long storing takes: late beside a disk that stores at once.
const STORING: Duration = Duration::from_millis(150);
/// After so long as much is refused as ever is.
const SETTLED: Duration = Duration::from_secs(30);

/// A record that nobody has yet.
fn new(env: &Env) -> Record {
    let seed: [u8; 4] = env.random();
    page(u32::from_be_bytes(seed), 200)
}

/// Stores without end at peers whose disk is slow, and does `work` from when they refuse as much as they ever do.
async fn while_strained<T>(town: &Town, peers: &[usize], work: impl Future<Output = T>) -> T {
    let client = town.client_of(0, Tier::Own, peers).await;
    for number in peers {
        client.store(&town.at(*number), new(&town.env), LIMIT).await.unwrap();
        town.stores[*number].slow(&town.env, STORING);
    }
    let caller = |number: usize, lag: u32| {
        let client = client.clone();
        async move {
            // Not all in step.
            town.env.clock.sleep(STORING / CALLERS * lag).await;
            loop {
                client.store(&town.at(number), new(&town.env), LIMIT).await.unwrap();
            }
        }
    };
    let callers = peers.iter().flat_map(|number| (0..CALLERS).map(|lag| caller(*number, lag)));
    let work = async {
        town.env.clock.sleep(SETTLED).await;
        work.await
    };
    let done = match select(join_all(callers).boxed_local(), work.boxed_local()).await {
        Either::Left((_, _)) => panic!("callers never end"),
        Either::Right((done, _)) => done,
    };
    peers.iter().for_each(|number| town.stores[*number].slow(&town.env, Duration::ZERO));
    done
}

/// Of fifty answers those that say *busy*; each names a time to come again.
fn refused<T: std::fmt::Debug>(answers: &[Result<T, CallError>]) -> usize {
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    refused
        .map(|error| {
            let CallError::Busy { retry_after } = error else { panic!("{error}") };
            assert!((50..=1000).contains(&retry_after.as_millis()), "{retry_after:?}");
        })
        .count()
}

#[test]
fn of_what_can_be_brought_again_a_strained_peer_refuses_some_and_afterwards_none() {
    testkit::time::run(71, |env| async move {
        let town = Town::new(&env, 2, 4).await;
        let client = town.client(0, Tier::Own).await;
        let to = town.at(2);
        let known = put_copies(&town, 1).await.remove(0);
        let request = FindRequest { id: known.id, place: known.id.into() };
        let ask = || async {
            let (mut puts, mut gets) = (Vec::new(), Vec::new());
            for _ in 0..50 {
                puts.push(client.put(&to, new(&env), Duration::ZERO, LIMIT).await.map(drop));
                gets.push(client.get(&to, request, LIMIT).await.map(drop));
                // Who holds a record, and who stores one as its holder, is always answered.
                assert!(matches!(
                    client.find(&to, request, LIMIT).await,
                    Ok(FindResponse::Found(_))
                ));
            }
            (refused(&puts), refused(&gets))
        };
        assert_eq!(ask().await, (0, 0));
        let (puts, gets) = while_strained(&town, &[2], ask()).await;
        assert!((40..50).contains(&puts) && (40..50).contains(&gets), "{puts} and {gets} of 50");
        let metrics = town.peers[2].metrics();
        // No line of it stands there from the start.
        assert!(metrics.contains("bound=\"Strained\""), "{metrics}");
        env.clock.sleep(SETTLED).await;
        assert_eq!(ask().await, (0, 0));
    });
}

#[test]
fn who_asks_for_little_is_not_refused_because_others_ask_for_much() {
    testkit::time::run(75, |env| async move {
        let town = Town::new(&env, 2, 4).await;
        let much = town.client(0, Tier::Own).await;
        let secret = key("client", 77);
        let pass = town.community.pass(ClientKey::new(secret.public()), 0, Tier::Own, &env);
        let little = town.network.calls(secret.public());
        introduce(&little, &town.at(2), Credential::Client(pass)).await.unwrap();
        let put = |calls: &Arc<dyn Calls>, wait| {
            let (calls, to, record) = (calls.clone(), town.at(2), new(&env));
            async move { calls.put(&to, record, wait, LIMIT).await.map(drop) }
        };
        let refused_of_much = Cell::new(0);
        let asks_for_much = || async {
            loop {
                // Until every copy is there, which this peer's own slow disk has.
                match put(&much, Duration::from_secs(1)).await {
                    Err(CallError::Busy { .. }) => {
                        refused_of_much.set(refused_of_much.get() + 1);
                        env.clock.sleep(Duration::from_millis(10)).await;
                    }
                    answer => answer.unwrap(),
                }
            }
        };
        let asks_for_little = async {
            env.clock.sleep(Duration::from_secs(2)).await;
            for _ in 0..40 {
                put(&little, Duration::ZERO).await.unwrap();
                env.clock.sleep(Duration::from_millis(100)).await;
            }
        };
        let both = async {
            let many = join_all((0..40).map(|_| asks_for_much())).boxed_local();
            match select(many, asks_for_little.boxed_local()).await {
                Either::Left(_) => panic!("they never end"),
                Either::Right(((), _)) => refused_of_much.get(),
            }
        };
        let refused = while_strained(&town, &[2], both).await;
        assert!(refused > 40, "{refused}");
    });
}

/// Storing what is there already waits for nothing, and tells nothing of the disk.
#[test]
fn records_that_are_there_already_do_not_hide_that_storing_is_late() {
    testkit::time::run(72, |env| async move {
        let town = Town::new(&env, 2, 4).await;
        let client = town.client(0, Tier::Own).await;
        let (to, old) = (town.at(2), new(&env));
        client.store(&to, old.clone(), LIMIT).await.unwrap();
        let again = async {
            let mut puts = Vec::new();
            for _ in 0..400 {
                // More of them than are stored.
                for _ in 0..10 {
                    let outcome = client.store(&to, old.clone(), LIMIT).await.unwrap();
                    assert_eq!(outcome, StoreOutcome::Present);
                }
                env.clock.sleep(Duration::from_millis(10)).await;
                puts.push(client.put(&to, old.clone(), Duration::ZERO, LIMIT).await.map(drop));
            }
            refused(&puts)
        };
        let refused = while_strained(&town, &[2], again).await;
        assert!(refused > 300, "{refused} of 400");
    });
}

#[test]
fn what_a_strained_peer_lacks_waits_for_its_callers_and_comes_some_at_a_time() {
    testkit::time::run(73, |env| async move {
        let mut town = town(&env, 2, 4).await;
        let records = put_copies(&town, 1_200).await;
        env.clock.sleep(Duration::from_secs(60)).await;
        let here: Vec<_> = records.iter().filter(|one| town.stores[2].holds(&one.id)).collect();
        assert!(here.len() > 800, "{}", here.len());
        town.take_down(2).await;
        town.bring_back_with(2, Vec::new(), quick).await;
        let holds = |town: &Town| here.iter().filter(|one| town.stores[2].holds(&one.id)).count();
        let minute = async {
            env.clock.sleep(Duration::from_secs(60)).await;
            holds(&town)
        };
        let meanwhile = while_strained(&town, &[2], minute).await;
        let most = (60 + SETTLED.as_secs() as usize) / 10 * 32;
        assert!((32..=most).contains(&meanwhile), "{meanwhile} of {}, at most {most}", here.len());
        town.until("all are there again", |town| holds(town) == here.len()).await;
    });
}

#[test]
fn strained_peers_mend_one_stripe_at_a_time() {
    testkit::time::run(74, |env| async move {
        let town = town(&env, 3, 6).await;
        let stripes = put_stripes(&town, 60, 2, 4).await;
        let alive = [0, 2, 3, 4, 5];
        let whole = |town: &Town| {
            stripes.iter().filter(|one| fragments_of(town, &alive, one).0 == 4).count()
        };
        let kill_and_wait = async {
            kill(&town, 1).await;
            let lack = 60 - whole(&town);
            assert!(lack > 30, "{lack}");
            // Until it is missed, and then as long as each takes two or three of its own share.
            env.clock.sleep(Duration::from_secs(90 + 4 + 25)).await;
            60 - whole(&town)
        };
        let lack = while_strained(&town, &alive, kill_and_wait).await;
        let mended = sum(&town, &alive, |status| status.fragments_made);
        assert!(mended > 0 && mended <= 3 * alive.len() as u64, "{mended}, {lack} lack");
        town.until("all are whole again", |town| whole(town) == 60).await;
    });
}
