//! Three peers over real gRPC, libp2p and disks: joined from one address, a record put and found, a
//! publication followed at another peer, and a restart.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{AuthorKey, ClientKey, PeerCertificate, ReaderKey, RecordId, SecretKey, Suite, Tier};
use document::{Document, Envelope, Page, Record};
use env::Env;
use env::calls::{
    CallError, Calls, Credential, Cursor, Endpoint, Events, FindRequest, SubscribeEvent,
    SubscribeRequest,
};
use env::disk::DirDisk;
use futures::StreamExt;
use librarian::{Librarian, LibrarianOptions, Rhythm};
use overlay::{Libp2p, Libp2pOptions};
use rpc::{Client, ClientLimits, Identity, Server, ServerLimits};
use store::{Journal, JournalOptions, LogOptions, LogStore};
use testkit::network::{Community, community, key};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(20);

/// One peer as a program runs it.
struct Running {
    librarian: Arc<Librarian>,
    client: Arc<Client>,
    address: String,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Running {
    async fn stop(self) {
        self.librarian.stop().await.unwrap();
        self.stop.cancel();
        self.serving.await.unwrap();
        self.client.close();
    }
}

/// Starts peer `number` with a certificate for the port it got.
async fn start(
    community: &Community,
    number: usize,
    listen: &str,
    folder: &Path,
    bootstrap: &[&Running],
) -> Running {
    let env = Env::real();
    let member = &community.members[number];
    let network = community.genesis.network();
    let identity = Identity::new(member.key.clone(), network).unwrap();
    let server = Server::bind(listen, identity.clone(), ServerLimits::default()).unwrap();
    let address = server.address().to_string();
    let organisation = number % community.organisations.len();
    let certificate = PeerCertificate {
        peer: member.peer,
        organisation: member.organisation,
        addresses: vec![address.clone()],
        capacity: 1 << 30,
        from: 0,
        until: 10_000_000_000,
    };
    let certificate = certificate.sign(&community.organisations[organisation], &network);
    let mut options =
        LibrarianOptions::new(member.key.clone(), community.genesis.clone(), certificate);
    options.bootstrap = bootstrap.iter().map(|peer| peer.address.clone()).collect();
    options.rhythm = Rhythm { introduce: Duration::from_secs(2), ..Rhythm::default() };
    let prepared = Librarian::prepare(options, env.clone()).unwrap();
    let overlay = Libp2p::start(Libp2pOptions {
        secret: member.key.clone(),
        network,
        listen: "127.0.0.1:0".to_owned(),
        announce: None,
        members: prepared.members(),
        env: env.clone(),
    });
    let overlay = overlay.await.unwrap();
    let client = Client::new(identity, prepared.credential(), env.clone(), ClientLimits::default());
    let disk = |name: &str| Arc::new(DirDisk::open(folder.join(name)).unwrap());
    let store = LogStore::open(disk("records"), env.clone(), LogOptions::default()).unwrap();
    let news = JournalOptions::default();
    let journal = Journal::open(disk("news"), env.clone(), "news", news).unwrap();
    let librarian = prepared.start(store, journal, overlay, client.clone()).await.unwrap();
    let stop = CancellationToken::new();
    let (service, stopped) = (librarian.service(), stop.clone());
    let serving = tokio::spawn(async move {
        server.serve(service, env, stopped).await.unwrap();
    });
    Running { librarian, client, address, stop, serving }
}

fn page() -> Record {
    let author = AuthorKey::new(key("author", 0).public());
    let ciphertext = Bytes::from(vec![5; 1_000_000]);
    let page = Page { author, index: 1, ciphertext, mac: [1; 32] };
    Record::of(Suite::Holdfast1, &Document::Page(page))
}

fn envelope(seed: u8) -> Record {
    let envelope = Envelope {
        entry: RecordId::new([seed; 32]),
        author: AuthorKey::new(key("author", 1).public()),
        reader: ReaderKey::new(key("reader", 1).public()),
        eek_ciphertext: [3; crypto::EEK_CIPHERTEXT_BYTES],
        eek_ciphertext_mac: [4; 32],
    };
    Record::of(Suite::Holdfast1, &Document::Envelope(envelope))
}

fn client(community: &Community, secret: &SecretKey, pass: bool) -> Arc<Client> {
    let env = Env::real();
    let identity = Identity::new(secret.clone(), community.genesis.network()).unwrap();
    let credential = if pass {
        let client = ClientKey::new(secret.public());
        Credential::Client(community.pass(client, 0, Tier::Own, &env))
    } else {
        Credential::None
    };
    Client::new(identity, Arc::new(move || credential.clone()), env, ClientLimits::default())
}

fn at(peer: &Running) -> Endpoint {
    Endpoint::of(peer.librarian.peer(), peer.address.clone())
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within 30 seconds: {what}");
}

async fn next_publication(events: &mut Events) -> (Bytes, Cursor) {
    loop {
        let event = tokio::time::timeout(LIMIT, events.next()).await.expect("in time");
        match event.unwrap().unwrap() {
            SubscribeEvent::Publication { publication, cursor, .. } => {
                return (publication, cursor);
            }
            SubscribeEvent::CaughtUp { .. } => {}
            SubscribeEvent::Gap { cursor } => panic!("a gap at {cursor:?}"),
        }
    }
}

fn follow(from: Cursor) -> SubscribeRequest {
    SubscribeRequest { from, follow: true, ..SubscribeRequest::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_peers_over_real_wires() {
    let community = community(3, 3);
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let first = start(&community, 0, "127.0.0.1:0", folders[0].path(), &[]).await;
    let second = start(&community, 1, "127.0.0.1:0", folders[1].path(), &[&first]).await;
    let third = start(&community, 2, "127.0.0.1:0", folders[2].path(), &[&first]).await;
    let all = [&first, &second, &third];
    until("all know all", || all.iter().all(|p| p.librarian.directory().view().len() == 3)).await;
    until("the overlay links them", || all.iter().all(|p| p.librarian.status().peers.links == 2))
        .await;

    // A client of organisation 0 puts through its own peer and reads at the others.
    let own = client(&community, &key("client", 1), true);
    let record = page();
    let put = own.put(&at(&first), record.clone(), Duration::ZERO, LIMIT).await.unwrap();
    assert!(put.acked >= 2 && put.wanted == 3, "{put:?}");
    let find = FindRequest { id: record.id, place: record.place };
    assert_eq!(own.get(&at(&first), find, LIMIT).await, Ok(record.clone()));

    // A stranger may look, and no more.
    let stranger = client(&community, &key("client", 2), false);
    stranger.find(&at(&first), find, LIMIT).await.unwrap();
    let denied = stranger.store(&at(&first), record.clone(), LIMIT).await;
    assert!(matches!(denied, Err(CallError::Denied { .. })), "{denied:?}");

    // What is stored at one peer is followed at another.
    let mut events = own.subscribe(&at(&third), follow(Cursor::default()), LIMIT).await.unwrap();
    let sent = envelope(1);
    own.store(&at(&second), sent.clone(), LIMIT).await.unwrap();
    let (told, cursor) = next_publication(&mut events).await;
    let named = document::Publication::decode(&told).unwrap().envelope;
    assert_eq!(named, sent.id);

    // The third stops and comes back at the same address; nothing is lost, the cursor goes on.
    let address = third.address.clone();
    let peer = third.librarian.peer();
    third.stop().await;
    let stopped = || first.librarian.directory().announcement(&peer).unwrap().state;
    until("it is known to have stopped", || stopped() == crypto::PeerState::Stopped).await;
    own.store(&at(&second), envelope(2), LIMIT).await.unwrap();
    let third = start(&community, 2, &address, folders[2].path(), &[&first, &second]).await;
    until("it is known to serve", || stopped() == crypto::PeerState::Serving).await;
    let mut events = own.subscribe(&at(&third), follow(cursor), LIMIT).await.unwrap();
    let (told, _) = next_publication(&mut events).await;
    assert_eq!(document::Publication::decode(&told).unwrap().envelope, envelope(2).id);
    let held = own.find(&at(&third), find, LIMIT).await.unwrap();
    assert_eq!(held, env::calls::FindResponse::Found(record));
    drop(events);

    own.close();
    stranger.close();
    for peer in [third, second, first] {
        peer.stop().await;
    }
}
