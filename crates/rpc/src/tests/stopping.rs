use std::time::Instant;

use crypto::RecordId;
use env::calls::*;
use futures::StreamExt;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use super::memory::{HANGS, SLOW, of};
use super::*;
use crate::client::connection::Connection;

async fn asked(peer: &Running, id: RecordId) {
    while !peer.service.asked.lock().unwrap().contains(&id) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_finish_and_new_ones_are_refused() {
    let peer = Running::start(ServerLimits::default());
    let to = peer.endpoint();
    let connection = Connection::dial(&identity(3, 1), None, &pacing(), &to).await.unwrap();
    let request = HealthCheckRequest { service: "holdfast.v1.Librarian".into() };
    let mut health = HealthClient::new(connection.line.channel.clone());
    let mut watch = health.watch(request).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);

    let client = client();
    let in_flight = tokio::spawn({
        let (client, to) = (client.clone(), to.clone());
        async move { client.find(&to, of(SLOW), LIMIT).await }
    });
    asked(&peer, SLOW).await;
    peer.stop.cancel();
    let told = watch.message().await.unwrap().unwrap().status();
    assert_eq!(told, ServingStatus::NotServing);
    // A call on the connection that is open, and one on a new connection.
    for caller in [client, super::client()] {
        let refused = caller.find(&to, of(RecordId::new([1; 32])), LIMIT).await;
        assert!(matches!(refused, Err(CallError::Unreachable { .. })), "{refused:?}");
    }
    peer.service.slow.cancel();
    assert!(in_flight.await.unwrap().is_ok());
    // The watch is no reason to wait.
    let started = Instant::now();
    peer.task.await.unwrap().unwrap();
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_hangs_holds_the_stop_up_for_the_drain_and_no_longer() {
    let limits = ServerLimits { drain: Duration::from_millis(100), ..ServerLimits::default() };
    let peer = Running::start(limits);
    let (client, to) = (client(), peer.endpoint());
    let hanging = tokio::spawn(async move { client.find(&to, of(HANGS), LIMIT).await });
    asked(&peer, HANGS).await;
    peer.stop().await;
    let ended = hanging.await.unwrap();
    assert!(matches!(ended, Err(CallError::Unreachable { .. })), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_end_with_the_server() {
    let peer = Running::start(ServerLimits::default());
    let request = SubscribeRequest { follow: true, ..SubscribeRequest::default() };
    let client = client();
    let mut events = client.subscribe(&peer.endpoint(), request, LIMIT).await.unwrap();
    for _ in 0..3 {
        events.next().await.unwrap().unwrap();
    }
    let started = Instant::now();
    peer.stop().await;
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    assert!(matches!(events.next().await, Some(Err(CallError::Unreachable { .. }))));
    assert!(events.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_server_closes_everything() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    client.find(&to, of(RecordId::new([1; 32])), LIMIT).await.unwrap();
    peer.task.abort();
    let _ = peer.task.await;
    let gone = client.find(&to, of(RecordId::new([1; 32])), LIMIT).await;
    assert!(matches!(gone, Err(CallError::Unreachable { .. })), "{gone:?}");
}
