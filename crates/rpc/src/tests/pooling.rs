use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use crypto::RecordId;
use env::calls::*;
use futures::StreamExt;

use super::memory::{MEMBERS_FIRST, PRIVATE, of};
use super::relay::{Fault, Relay};
use super::*;

const ID: RecordId = RecordId::new([1; 32]);

/// Waits for what another task will make true.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LIMIT, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_one_dial() {
    let peer = Running::start(ServerLimits::default());
    let relay = Relay::start(peer.address, Fault::None).await;
    let (client, to) = (client(), endpoint(relay.address));
    let verify = VerifyRequest { id: ID, place: ID.into(), mac_key: [0; 32] };
    let all = (0..32).map(|_| client.verify(&to, verify, LIMIT));
    assert!(futures::future::join_all(all).await.iter().all(Result::is_ok));
    assert_eq!(relay.connections.load(Ordering::SeqCst), 1);
    for _ in 0..5 {
        client.find(&to, of(ID), LIMIT).await.unwrap();
    }
    assert_eq!(relay.connections.load(Ordering::SeqCst), 1, "one after the other needs one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_dial_is_remembered_for_a_moment() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    // One that remembers for longer than this takes, however slow the machine is, and one for a moment.
    let [long, moment] = [Duration::from_secs(3600), Duration::from_millis(300)].map(|back_off| {
        client_with(ClientLimits { dial_back_off: back_off, ..ClientLimits::default() })
    });
    let failed = long.find(&endpoint(address), of(ID), LIMIT).await;
    assert!(matches!(failed, Err(CallError::Unreachable { .. })), "{failed:?}");
    assert_eq!(moment.find(&endpoint(address), of(ID), LIMIT).await, failed);
    // Somebody is there now, and is not asked until the back-off is over.
    let peer = Running::at(&address.to_string(), ServerLimits::default());
    assert_eq!(long.find(&peer.endpoint(), of(ID), LIMIT).await, failed);
    tokio::time::sleep(Duration::from_millis(310)).await;
    assert!(moment.find(&peer.endpoint(), of(ID), LIMIT).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_further_connection_is_not_to_be_had_the_first_carries_all() {
    let peer = Running::start(ServerLimits::default());
    let relay = Relay::of(peer.address, Fault::None, 1).await;
    let limits = ClientLimits { dial: Duration::from_millis(100), ..ClientLimits::default() };
    let (client, to) = (client_with(limits), endpoint(relay.address));
    client.find(&to, of(ID), LIMIT).await.unwrap();
    let asked = || peer.service.asked.lock().unwrap().contains(&memory::SLOW);
    let beside = async {
        until("a slow call", asked).await;
        for _ in 0..2 {
            // A quarter of it is the dial's (`DIAL_SHARE`); the first connection has the rest.
            client.find(&to, of(ID), Duration::from_secs(8)).await.unwrap();
        }
        peer.service.slow.cancel();
    };
    let (slow, ()) = tokio::join!(client.find(&to, of(memory::SLOW), LIMIT), beside);
    slow.unwrap();
    assert!(relay.connections.load(Ordering::SeqCst) >= 2, "a further one was tried");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_reached_by_an_address_is_known_by_its_name_and_the_other_way_round() {
    let peer = Running::start(ServerLimits::default());
    let named = peer.endpoint();
    assert!(named.peer.is_some());
    let by_address = Endpoint::at(&named.address);
    for (first, then) in [(&by_address, &named), (&named, &by_address)] {
        let client = client();
        client.find(first, of(ID), LIMIT).await.unwrap();
        client.find(then, of(ID), LIMIT).await.unwrap();
        assert_eq!(client.open_connections(), 1, "{first:?}, then {then:?}");
    }
    // Somebody else's name is not taken for who is there.
    let client = client();
    client.find(&by_address, of(ID), LIMIT).await.unwrap();
    let other = PeerId::new(secret(77).public());
    let wrong = Endpoint::of(other, named.address.clone());
    let refused = client.find(&wrong, of(ID), LIMIT).await;
    assert!(matches!(refused, Err(CallError::WrongPeer { .. })), "{refused:?}");
}

/// One of its addresses may be of another network, where nobody is, or somebody else, or what is sent is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_of_several_addresses_is_reached_at_whichever_leads_to_it() {
    let peer = Running::start(ServerLimits::default());
    let other = Server::bind("127.0.0.1:0", identity(4, 1), ServerLimits::default()).unwrap();
    let (another, stop) = (other.address().to_string(), CancellationToken::new());
    let serving = other.serve(Arc::new(Memory::default()), Env::real(), stop.clone());
    let serving = tokio::spawn(serving);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = (silent.local_addr().unwrap().to_string(), silent);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = nobody.local_addr().unwrap().to_string();
    let own = peer.address.to_string();
    for wrong in [&nobody, &another, &silent.0] {
        let to = Endpoint { further: vec![own.clone()], ..peer.endpoint() };
        let to = Endpoint { address: wrong.clone(), ..to };
        let client = client();
        client.find(&to, of(ID), LIMIT).await.unwrap();
        assert_eq!(client.open_connections(), 1, "{wrong}");
        let alone = Endpoint { further: Vec::new(), ..to.clone() };
        let limits = ClientLimits { dial: Duration::from_millis(500), ..ClientLimits::default() };
        let (client, limit) = (client_with(limits), Duration::from_secs(2));
        assert!(client.find(&alone, of(ID), limit).await.is_err(), "{wrong}");
        // What is told is of the address that was asked for.
        let to = Endpoint { further: vec![nobody.clone()], ..alone };
        let client = client_with(limits);
        match client.find(&to, of(ID), limit).await {
            Err(
                CallError::Unreachable { address, .. }
                | CallError::WrongPeer { address, .. }
                | CallError::TimedOut { address, .. },
            ) => assert_eq!(address, *wrong),
            told => panic!("{told:?}"),
        }
    }
    stop.cancel();
    serving.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_are_closed_and_all_are_bounded() {
    let peers: Vec<_> = (0..3).map(|_| Running::start(ServerLimits::default())).collect();
    let limits = ClientLimits {
        connections: 2,
        idle: Duration::from_millis(200),
        ..ClientLimits::default()
    };
    let client = client_with(limits);
    for peer in &peers {
        client.find(&peer.endpoint(), of(ID), LIMIT).await.unwrap();
        assert!(client.open_connections() <= 2);
    }
    until("the end of idle connections", || client.open_connections() == 0).await;
    client.find(&peers[0].endpoint(), of(ID), LIMIT).await.unwrap();

    // Where none is idle, a further peer is busy rather than over the bound.
    let (first, second, third) = (peers[0].endpoint(), peers[1].endpoint(), peers[2].endpoint());
    let slow = |to: Endpoint| {
        let client = client.clone();
        async move { client.find(&to, of(memory::SLOW), LIMIT).await }
    };
    let third = async {
        let asked = |peer: &Running| peer.service.asked.lock().unwrap().contains(&memory::SLOW);
        until("two slow calls", || asked(&peers[0]) && asked(&peers[1])).await;
        let answer = client.find(&third, of(ID), LIMIT).await;
        peers.iter().for_each(|peer| peer.service.slow.cancel());
        answer
    };
    let (first, second, third) = tokio::join!(slow(first), slow(second), third);
    assert!(first.is_ok() && second.is_ok());
    assert!(matches!(third, Err(CallError::Busy { .. })), "{third:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_peer_is_called_again_on_its_old_port() {
    let peer = Running::start(ServerLimits::default());
    let (client, to, address) = (client(), peer.endpoint(), peer.address.to_string());
    client.find(&to, of(ID), LIMIT).await.unwrap();
    peer.stop().await;
    let gone = client.find(&to, of(ID), LIMIT).await;
    assert!(matches!(gone, Err(CallError::Unreachable { .. })), "{gone:?}");
    let again = Running::at(&address, ServerLimits::default());
    tokio::time::sleep(ClientLimits::default().dial_back_off).await;
    assert!(client.find(&again.endpoint(), of(ID), LIMIT).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_connection_introduces_itself_first_and_again_when_forgotten() {
    let peer = Running::start(ServerLimits::default());
    let given = Arc::new(AtomicUsize::new(0));
    let counter = given.clone();
    let credential = move || {
        let number = counter.fetch_add(1, Ordering::SeqCst);
        Credential::Client(Bytes::from(format!("pass {number}")))
    };
    let limits = ClientLimits { reintroduce_after: Duration::ZERO, ..ClientLimits::default() };
    let client = Client::new(identity(2, 1), Arc::new(credential), Env::real(), limits);
    let to = peer.endpoint();
    // The first call is answered: the introduction came before it.
    client.find(&to, of(PRIVATE), LIMIT).await.unwrap();
    // The peer forgets (it restarted, or the pass expired).
    peer.service.known.lock().unwrap().clear();
    client.find(&to, of(PRIVATE), LIMIT).await.unwrap();
    let introductions = peer.service.introductions.lock().unwrap().clone();
    // Twice at first: once it is known, it connects again for wider windows.
    let passes = ["pass 0", "pass 1", "pass 2"].map(|pass| Credential::Client(pass.into()));
    assert_eq!(introductions, passes.to_vec());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_is_busy_for_strangers_is_told_again_who_calls() {
    let peer = Running::start(ServerLimits::default());
    let pass = || Credential::Client(Bytes::from_static(b"pass"));
    let to = peer.endpoint();
    let often = ClientLimits { reintroduce_busy_after: Duration::ZERO, ..ClientLimits::default() };
    for (limits, is_told) in [(often, true), (ClientLimits::default(), false)] {
        let client = Client::new(identity(2, 1), Arc::new(pass), Env::real(), limits);
        client.find(&to, of(MEMBERS_FIRST), LIMIT).await.unwrap();
        // Its pass ran out there, and it has another.
        peer.service.known.lock().unwrap().clear();
        let found = client.find(&to, of(MEMBERS_FIRST), LIMIT).await;
        assert_eq!(found.is_ok(), is_told, "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_for_good_is_not_asked_again_and_again() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    for _ in 0..3 {
        let denied = client.find(&to, of(PRIVATE), LIMIT).await;
        assert!(matches!(denied, Err(CallError::Denied { .. })), "{denied:?}");
    }
    assert!(peer.service.asked.lock().unwrap().len() <= 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_client_calls_nobody() {
    let peer = Running::start(ServerLimits::default());
    let client = client();
    client.find(&peer.endpoint(), of(ID), LIMIT).await.unwrap();
    client.close();
    let refused = client.find(&peer.endpoint(), of(ID), LIMIT).await;
    assert!(matches!(refused, Err(CallError::Unreachable { .. })), "{refused:?}");
    assert_eq!(client.open_connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_outlives_its_client() {
    let peer = Running::start(ServerLimits::default());
    let client = client();
    let request = SubscribeRequest { follow: true, ..SubscribeRequest::default() };
    let mut events = client.subscribe(&peer.endpoint(), request, LIMIT).await.unwrap();
    drop(client);
    for _ in 0..3 {
        events.next().await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_gives_up_does_not_end_the_dial_for_others() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    let impatient = client.find(&to, of(ID), Duration::ZERO).await;
    assert!(matches!(impatient, Err(CallError::TimedOut { .. })), "{impatient:?}");
    assert!(client.find(&to, of(ID), LIMIT).await.is_ok());
}
