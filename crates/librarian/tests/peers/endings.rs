//! Stopping, restarting, and options that cannot be.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crypto::Tier;
use env::Env;
use env::calls::{CallError, Cursor, FindRequest, FindResponse, StoreOutcome, SubscribeEvent};
use env::disk::DirDisk;
use futures::StreamExt;
use librarian::{Librarian, LibrarianError, LibrarianOptions, MetricsPage};
use store::{LogOptions, LogStore, RecordStore};
use testkit::network::Fault;

use crate::town::{LIMIT, Shop, Town, envelope, everything, next, page};

fn log_store(town: &Town, number: usize) -> Arc<Shop> {
    let disk = DirDisk::open(town.folder.path().join(format!("store-{number}"))).unwrap();
    let options = LogOptions { segment_bytes_max: 1 << 20, ..LogOptions::default() };
    let store: Arc<LogStore> = LogStore::open(Arc::new(disk), town.env.clone(), options).unwrap();
    Arc::new(Shop::new(store))
}

#[test]
fn a_restart_loses_nothing_and_cursors_go_on() {
    testkit::time::run(1, |env| async move {
        let mut town = Town::empty(&env, 1, 1);
        let shop = log_store(&town, 0);
        town.peers.push(town.start(0, shop.clone(), |_| {}).await);
        town.stores.push(shop);
        let client = town.client(0, Tier::Own).await;
        let mut records: Vec<_> = (0..30).map(|n| page(n, 3000)).collect();
        records.extend((0..10).map(|n| envelope(n, 0).0));
        for record in &records {
            client.store(&town.at(0), record.clone(), LIMIT).await.unwrap();
        }
        let all = everything(Cursor::default(), true);
        let mut events = client.subscribe(&town.at(0), all, LIMIT).await.unwrap();
        let mut cursor = Cursor::default();
        for _ in 0..6 {
            let event = next(&env, &mut events, LIMIT).await;
            let SubscribeEvent::Publication { cursor: at, .. } = event else { panic!("{event:?}") };
            cursor = at;
        }
        let known = town.peers[0].known_peers();
        town.peers[0].stop().await.unwrap();
        let shop = log_store(&town, 0);
        town.peers[0] = town.start(0, shop.clone(), |options| options.known_peers = known).await;
        town.stores[0] = shop;
        let client = town.client(0, Tier::Own).await;
        for record in &records {
            let find = FindRequest { id: record.id, place: record.place };
            let found = client.find(&town.at(0), find, LIMIT).await;
            assert_eq!(found, Ok(FindResponse::Found(record.clone())));
            let again = client.store(&town.at(0), record.clone(), LIMIT).await;
            assert_eq!(again, Ok(StoreOutcome::Present));
        }
        let rest = everything(cursor, false);
        let mut events = client.subscribe(&town.at(0), rest, LIMIT).await.unwrap();
        let mut publications = 0;
        while let SubscribeEvent::Publication { .. } = next(&env, &mut events, LIMIT).await {
            publications += 1;
        }
        assert_eq!(publications, 4, "no gap, none twice, though all were stored again");
    });
}

#[test]
fn stopping_lets_calls_finish_and_takes_no_more() {
    testkit::time::run(2, |env| async move {
        let town = Town::new(&env, 3, 9).await;
        let client = town.client(0, Tier::Own).await;
        // A put that takes two seconds, because its holders do.
        for number in 1..9 {
            let slow = Fault::Delay(Duration::from_secs(2));
            town.network.set(&town.community.peer(number), slow);
        }
        let (putting, to) = (client.clone(), town.at(0));
        let record = page(1, 100);
        let done = Arc::new(std::sync::Mutex::new(None));
        let (task_done, task_env) = (done.clone(), env.clone());
        let task = env.tasks.spawn(Box::pin(async move {
            let put = putting.put(&to, record, Duration::ZERO, LIMIT).await;
            *task_done.lock().unwrap() = Some((put, task_env.clock.elapsed()));
        }));
        let all = everything(Cursor::default(), true);
        let mut events = client.subscribe(&town.at(0), all, LIMIT).await.unwrap();
        assert!(matches!(next(&env, &mut events, LIMIT).await, SubscribeEvent::CaughtUp { .. }));
        env.clock.sleep(Duration::from_millis(100)).await;
        assert!(town.peers[0].is_serving());
        let stopping = {
            let peer = town.peers[0].clone();
            env.tasks.spawn(Box::pin(async move { peer.stop().await.unwrap() }))
        };
        env.clock.sleep(Duration::from_millis(100)).await;
        assert!(!town.peers[0].is_serving());
        assert_eq!(town.peers[0].status().state, "draining");
        let refused = client.store(&town.at(0), page(2, 100), LIMIT).await;
        assert!(matches!(refused, Err(CallError::Busy { .. })), "{refused:?}");
        assert!(matches!(events.next().await, Some(Err(CallError::Busy { .. }))));
        assert!(events.next().await.is_none());
        stopping.join().await;
        let finished = done.lock().unwrap().take();
        let Some((Ok(put), _)) = finished else { panic!("cut off: {finished:?}") };
        assert!(put.acked >= 2);
        task.join().await;
        assert_eq!(town.stores[0].put(vec![page(3, 10)]).await.unwrap_err().to_string(), {
            "the store is closed"
        });
        town.peers[0].stop().await.unwrap();
    });
}

#[test]
fn a_stop_with_calls_that_hang_ends_in_time() {
    testkit::time::run(3, |env| async move {
        let town = Town::new(&env, 3, 3).await;
        let client = town.client(0, Tier::Own).await;
        for number in 1..3 {
            town.network.set(&town.community.peer(number), Fault::Hang);
        }
        let (putting, to) = (client.clone(), town.at(0));
        let record = page(1, 100);
        let _task = env.tasks.spawn(Box::pin(async move {
            let _ = putting.put(&to, record, Duration::ZERO, Duration::from_secs(3600)).await;
        }));
        env.clock.sleep(Duration::from_millis(100)).await;
        let since = env.clock.elapsed();
        town.peers[0].stop().await.unwrap();
        assert!(env.clock.elapsed() - since < Duration::from_secs(30));
    });
}

#[test]
fn options_that_do_not_fit_are_refused() {
    testkit::time::run(4, |env| async move {
        let town = Town::empty(&env, 2, 2);
        let member = |n: usize| town.community.members[n].clone();
        let genesis = town.community.genesis.clone();
        let prepare = |secret, certificate, genesis| {
            let options = LibrarianOptions::new(secret, genesis, certificate);
            Librarian::prepare(options, env.clone()).map(drop)
        };
        prepare(member(0).key, member(0).certificate, genesis.clone()).unwrap();
        let other = prepare(member(0).key, member(1).certificate, genesis.clone());
        assert!(matches!(other, Err(LibrarianError::OtherKey { .. })), "{other:?}");
        let junk = prepare(member(0).key, bytes::Bytes::from_static(b"junk"), genesis);
        assert!(matches!(junk, Err(LibrarianError::Certificate(_))), "{junk:?}");
        let foreign = testkit::network::community(1, 1).genesis;
        let foreign = prepare(member(1).key, member(1).certificate, foreign);
        assert!(matches!(foreign, Err(LibrarianError::Certificate(_))), "{foreign:?}");
    });
}

#[test]
fn secrets_do_not_print() {
    testkit::time::run(5, |env| async move {
        let town = Town::empty(&env, 1, 1);
        let member = &town.community.members[0];
        let options = LibrarianOptions::new(
            member.key.clone(),
            town.community.genesis.clone(),
            member.certificate.clone(),
        );
        let printed = format!("{options:?}");
        assert!(!printed.contains("secret") && printed.contains("network"), "{printed}");
    });
}

async fn http(address: SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_operators_page_tells_metrics_health_and_status() {
    let env = Env::real();
    let mut town = Town::empty(&env, 1, 1);
    town.start_next(|_| {}).await;
    let page = MetricsPage::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = page.address();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(page.serve(town.peers[0].clone(), async {
        let _ = stopped.await;
    }));
    let metrics = http(address, "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains("holdfast_records 0"));
    assert!(metrics.contains("application/openmetrics-text"));
    let status = http(address, "/status").await;
    assert!(status.contains("\"state\":\"serving\""), "{status}");
    assert!(http(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    town.peers[0].stop().await.unwrap();
    assert!(http(address, "/healthz").await.starts_with("HTTP/1.1 503"));
    use tokio::io::AsyncWriteExt as _;
    // More of these than there are places, and one more that asks for something: they end, and so does the page.
    let mut idle = Vec::new();
    for _ in 0..33 {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /metr").await.unwrap();
        idle.push(stream);
    }
    assert!(http(address, "/healthz").await.starts_with("HTTP/1.1 503"));
    idle.push(tokio::net::TcpStream::connect(address).await.unwrap());
    drop(stop);
    serving.await.unwrap().unwrap();
    let open = MetricsPage::bind("0.0.0.0:0".parse().unwrap()).await.map(drop);
    assert!(matches!(open, Err(LibrarianError::NotLoopback(_))), "{open:?}");
}
