//! Who may ask a running peer for what: each caller that may not gets its documented refusal, and those
//! that may are served beside them.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::{AuthorKey, ClientKey, Genesis, OrgId, Pass, PeerId, SecretKey, Suite, Tier};
use document::{Document, Page, Record};
use env::Env;
use env::calls::{CallError, Calls, Credential, Endpoint, FindRequest};
use harness::{Network, full, hold, run};
use rpc::{Client, ClientLimits, Identity, SignedDial};

const LIMIT: Duration = Duration::from_secs(20);
/// A peer takes what is set in its directory within this time.
const TAKEN_WITHIN: Duration = Duration::from_secs(15);

fn record(seed: u32) -> Record {
    let author = AuthorKey::new(client_key(250).public());
    let ciphertext = Bytes::from(vec![7; 4096]);
    let page = Page { author, index: seed, ciphertext, mac: [1; 32] };
    Record::of(Suite::Holdfast1, &Document::Page(page))
}

fn client_key(n: u8) -> SecretKey {
    SecretKey::from_bytes(&[n; 32]).unwrap()
}

/// Organisations, a network and its peers as a caller outside of `hold` sees them.
struct World {
    network: Network,
    genesis: Genesis,
}

impl World {
    fn organisation(&self, number: usize) -> SecretKey {
        let text = std::fs::read_to_string(self.network.orgs[number].join("org.key")).unwrap();
        let bytes: Vec<u8> =
            (0..32).map(|at| u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).unwrap()).collect();
        SecretKey::from_bytes(&bytes.try_into().unwrap()).unwrap()
    }

    /// A pass of organisation 0 that begins this many seconds from now and lasts an hour.
    fn pass(&self, client: &SecretKey, tier: Tier, from: i64) -> Credential {
        let key = self.organisation(0);
        let from = Env::real().clock.unix_s().saturating_add_signed(from);
        let pass = Pass {
            client: ClientKey::new(client.public()),
            organisation: OrgId::new(key.public()),
            tier,
            quota: 0,
            from,
            until: from + 3600,
        };
        Credential::Client(pass.sign(&key, &self.genesis.network()))
    }

    fn client(&self, key: &SecretKey, credential: Credential) -> Arc<Client> {
        let identity = Identity::new(key.clone(), self.genesis.network()).unwrap();
        let shown = Arc::new(move || credential.clone());
        Client::new(identity, shown, Env::real(), ClientLimits::default())
    }

    fn at(&self, number: usize) -> Endpoint {
        let peer: PeerId = self.network.peers[number].id.parse().unwrap();
        Endpoint { peer: Some(peer), address: self.network.peers[number].address.clone() }
    }

    /// How many calls of this method the peer answered well.
    fn good(&self, number: usize, method: &str) -> u64 {
        let page = metrics(&self.network.peers[number].metrics);
        let name = format!("holdfast_calls_total{{method=\"{method}\",outcome=\"Good\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&name).map(str::to_owned));
        line.map_or(0, |count| count.trim().parse().unwrap())
    }
}

fn metrics(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// Two peers of one organisation each; the first takes signed requests and holds known callers to five
/// records a second.
fn world() -> (World, Vec<String>) {
    let mut network = Network::new(2, &[]);
    network.add_peers(2);
    let mut signed = Vec::new();
    for peer in &network.peers {
        let path = peer.dir.join("peer.toml");
        let text = std::fs::read_to_string(&path).unwrap().replace("signed_plain = false\n", "");
        // The port after the peer's own: no other peer is given it.
        let own = text.lines().find_map(|line| line.strip_prefix("listen = \"127.0.0.1:")).unwrap();
        let own: u16 = own.trim_end_matches('"').parse().unwrap();
        let listen = format!("127.0.0.1:{}", own + 1);
        let text = format!(
            "signed_listen = \"{listen}\"\nsigned_plain = true\n{text}\n\
             [limits.known]\nstore = {{ per_second = 5 }}\n"
        );
        std::fs::write(&path, text).unwrap();
        signed.push(listen);
    }
    network.start_all();
    let genesis = Genesis::decode(&std::fs::read(&network.file).unwrap()).unwrap();
    (World { network, genesis }, signed)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn denied<T: std::fmt::Debug>(answer: Result<T, CallError>, why: &str) {
    let told = |reason: &String| reason.contains(why);
    assert!(
        matches!(&answer, Err(CallError::Denied { reason }) if told(reason)),
        "{why}: {answer:?}"
    );
}

#[test]
fn each_caller_that_may_not_gets_its_documented_refusal() {
    let (world, signed) = world();
    runtime().block_on(async {
        let to = world.at(0);
        let own_key = client_key(1);
        let own = world.client(&own_key, world.pass(&own_key, Tier::Own, 0));
        own.store(&to, record(0), LIMIT).await.unwrap();

        let stranger = world.client(&client_key(2), Credential::None);
        denied(stranger.store(&to, record(1), LIMIT).await, "introduce yourself");
        let find = FindRequest { id: record(0).id, place: record(0).place };
        stranger.find(&to, find, LIMIT).await.unwrap();
        // Two within the second in which the first one's runs out; the machine may be slow.
        let (a, b) = tokio::join!(
            stranger.find(&to, find, LIMIT),
            stranger.find(&to, find, LIMIT),
        );
        assert!(matches!(a.and(b), Err(CallError::Busy { .. })), "one find a second");

        let late_key = client_key(3);
        let late = world.client(&late_key, world.pass(&late_key, Tier::Own, -3601));
        denied(late.store(&to, record(1), LIMIT).await, "valid from");

        let known_key = client_key(4);
        let known = world.client(&known_key, world.pass(&known_key, Tier::Known, 0));
        let batch = |from: u32| (from..from + 5).map(record).collect::<Vec<_>>();
        known.store_batch(&to, batch(10), LIMIT).await.unwrap();
        let over = tokio::join!(
            known.store_batch(&to, batch(20), LIMIT),
            known.store_batch(&to, batch(30), LIMIT),
        );
        let busy = |answer: &Result<_, CallError>| {
            matches!(answer, Err(CallError::Busy { retry_after }) if !retry_after.is_zero())
        };
        assert!(busy(&over.0) || busy(&over.1), "{over:?}");

        revoked_is_denied(&world, &own, &own_key).await;
        signed_once_and_for_one_peer(&world, &signed).await;
        for client in [own, stranger, late, known] {
            client.close();
        }
    });
}

async fn revoked_is_denied(world: &World, own: &Client, key: &SecretKey) {
    let list = world.network.folder.path().join("revoked");
    let mut revoke = hold(["org", "revoke", "--dir"]);
    revoke.arg(&world.network.orgs[0]).arg("--network").arg(&world.network.file);
    let made = run(revoke.args(["--json", "--key", &key.public().to_string(), "-o"]).arg(&list));
    assert_eq!(made.expect(0).json()["revoked"][0], key.public().to_string());
    let set = |dir: &Path| {
        let mut set = hold(["peer", "set", "--dir"]);
        run(set.arg(dir).arg("--revocations").arg(&list)).expect(0);
    };
    set(&world.network.peers[0].dir);
    // The second peer hears it from the first.
    for number in [0, 1] {
        let since = Instant::now();
        let refused = loop {
            let answer = own.store(&world.at(number), record(40), LIMIT).await;
            if answer.is_err() || since.elapsed() > TAKEN_WITHIN {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert!(matches!(refused, Err(CallError::Denied { .. })), "peer {number}: {refused:?}");
        let again = world.client(key, world.pass(key, Tier::Own, 0));
        denied(again.store(&world.at(number), record(41), LIMIT).await, "revoked");
        again.close();
    }
}

/// What a client sends to an address that only listens, as bytes.
async fn captured(world: &World, key: &SecretKey, find: FindRequest) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let taken = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        // Before the client gives up: its cancellation is not to be among the bytes.
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut part = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut part) {
            bytes.extend(&part[..n]);
        }
        bytes
    });
    let pass = world.pass(key, Tier::Own, 0);
    let network = world.genesis.network();
    let shown = Arc::new(move || pass.clone());
    let limits = ClientLimits::default();
    let client =
        Client::signed(key.clone(), network, SignedDial::Plain, shown, Env::real(), limits);
    let to = Endpoint { address, ..world.at(0) };
    let unanswered = client.find(&to, find, Duration::from_secs(5)).await;
    assert!(unanswered.is_err());
    client.close();
    tokio::task::spawn_blocking(move || taken.join().unwrap()).await.unwrap()
}

fn send(address: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut part = [0; 4096];
    while let Ok(1..) = stream.read(&mut part) {}
}

async fn signed_once_and_for_one_peer(world: &World, signed: &[String]) {
    let key = client_key(5);
    let find = FindRequest { id: record(0).id, place: record(0).place };
    let bytes = captured(world, &key, find).await;
    assert!(!bytes.is_empty());
    let finds = |number| world.good(number, "Find");
    let (first, other) = (finds(0), finds(1));
    tokio::task::block_in_place(|| send(&signed[1], &bytes));
    assert_eq!(finds(1), other, "a token for another peer");
    tokio::task::block_in_place(|| send(&signed[0], &bytes));
    assert_eq!(finds(0), first + 1, "the request as its caller sent it");
    tokio::task::block_in_place(|| send(&signed[0], &bytes));
    assert_eq!(finds(0), first + 1, "the same request again");
}

#[test]
fn read_only_is_switched_while_a_peer_runs() {
    let mut network = Network::new(1, &[]);
    network.add_peers(1);
    network.start_all();
    let genesis = Genesis::decode(&std::fs::read(&network.file).unwrap()).unwrap();
    let world = World { network, genesis };
    let set = |value: &str| {
        let mut set = hold(["peer", "set", "--json", "--dir"]);
        set.arg(&world.network.peers[0].dir).args(["read-only", value]);
        assert_eq!(run(&mut set).expect(0).json()["read_only"], value == "on");
    };
    runtime().block_on(async {
        let key = client_key(1);
        let client = world.client(&key, world.pass(&key, Tier::Own, 0));
        let to = world.at(0);
        let becomes = async |wanted: fn(&Result<_, CallError>) -> bool| {
            let since = Instant::now();
            loop {
                let answer = client.store(&to, record(1), LIMIT).await;
                if wanted(&answer) {
                    return;
                }
                assert!(since.elapsed() < TAKEN_WITHIN, "{answer:?}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        becomes(Result::is_ok).await;
        set("on");
        becomes(|answer| matches!(answer, Err(CallError::ReadOnly { .. }))).await;
        set("off");
        becomes(Result::is_ok).await;
        client.close();
    });
}

/// The median time of a member's store while strangers knock as fast as they can, over that without.
#[test]
fn members_are_served_as_quickly_beside_a_flood_of_strangers() {
    let (world, _) = world();
    runtime().block_on(async {
        let key = client_key(1);
        let own = world.client(&key, world.pass(&key, Tier::Own, 0));
        let to = world.at(0);
        let rounds = if full() { 2000 } else { 200 };
        let quiet = median(&own, &to, 0, rounds).await;
        let flood = (0..4).map(|n| {
            let stranger = world.client(&client_key(100 + n), Credential::None);
            let to = to.clone();
            tokio::spawn(async move {
                let mut refused = 0_u64;
                loop {
                    let answer = stranger.store(&to, record(1), LIMIT).await;
                    refused += u64::from(answer.is_err());
                    assert!(refused > 0);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
        });
        let flood: Vec<_> = flood.collect();
        let beside = median(&own, &to, rounds, rounds).await;
        flood.iter().for_each(tokio::task::JoinHandle::abort);
        let ratio = beside.as_secs_f64() / quiet.as_secs_f64();
        eprintln!("a member's store: {quiet:?} alone, {beside:?} beside strangers: {ratio:.2}");
        if full() {
            assert!(ratio <= 1.2, "{ratio}");
        }
        own.close();
    });
}

async fn median(own: &Client, to: &Endpoint, from: u32, rounds: u32) -> Duration {
    let mut times = Vec::new();
    for n in 0..rounds {
        let since = Instant::now();
        own.store(to, record(1000 + from + n), LIMIT).await.unwrap();
        times.push(since.elapsed());
    }
    times.sort();
    times[times.len() / 2]
}
