//! Who may ask a running peer for what: each caller that may not gets its documented refusal, and those
//! that may are served beside them.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::{AuthorKey, ClientKey, Genesis, OrgId, Pass, PeerId, SecretKey, Suite, Tier};
use document::{Document, Page, Record};
use env::Env;
use env::calls::{CallError, Calls, Credential, Endpoint, FindRequest};
use harness::{Network, full, hold, run};
use rpc::{Client, ClientLimits, Identity, SignedDial};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const LIMIT: Duration = Duration::from_secs(20);
/// A peer takes what is set in its directory within this time.
const TAKEN_WITHIN: Duration = Duration::from_secs(15);
/// How long a flooder waits after each call, so that the six make two hundred calls a second in all. They run beside the peer, on a
/// machine of two cores at worst: of a faster flood the flooders' own work would be measured, and not what a refusal costs the peer.
const FLOOD_EVERY: Duration = Duration::from_millis(30);
/// How often a member is measured alone and beside a flood, in turns: what a shared machine gives changes within seconds.
const TURNS: u32 = 5;

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

    /// A client whose requests are each signed, over plain TCP.
    fn signing(&self, key: &SecretKey) -> Arc<Client> {
        let (pass, network) = (self.pass(key, Tier::Own, 0), self.genesis.network());
        let shown = Arc::new(move || pass.clone());
        let limits = ClientLimits::default();
        Client::signed(key.clone(), network, SignedDial::Plain, shown, Env::real(), limits)
    }

    /// The first organisation's list of revoked keys, with this one.
    fn revoked(&self, key: &SecretKey) -> PathBuf {
        let list = self.network.folder.path().join("revoked");
        let mut revoke = hold(["org", "revoke", "--dir"]);
        revoke.arg(&self.network.orgs[0]).arg("--network").arg(&self.network.file);
        let key = key.public().to_string();
        let made = run(revoke.args(["--json", "--key", &key, "-o"]).arg(&list));
        assert_eq!(made.expect(0).json()["revoked"][0], key);
        list
    }

    fn set_revocations(&self, number: usize, list: &Path) {
        let mut set = hold(["peer", "set", "--dir"]);
        set.arg(&self.network.peers[number].dir).arg("--revocations").arg(list);
        run(&mut set).expect(0);
    }

    fn at(&self, number: usize) -> Endpoint {
        let peer: PeerId = self.network.peers[number].id.parse().unwrap();
        Endpoint::of(peer, self.network.peers[number].address.clone())
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
    world.set_revocations(0, &world.revoked(key));
    // The second peer hears it from the first.
    for number in [0, 1] {
        becomes_denied(own, &world.at(number)).await;
        let again = world.client(key, world.pass(key, Tier::Own, 0));
        denied(again.store(&world.at(number), record(41), LIMIT).await, "revoked");
        again.close();
    }
}

async fn becomes_denied(client: &Client, to: &Endpoint) {
    let since = Instant::now();
    let refused = loop {
        let answer = client.store(to, record(40), LIMIT).await;
        if answer.is_err() || since.elapsed() > TAKEN_WITHIN {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(matches!(refused, Err(CallError::Denied { .. })), "{}: {refused:?}", to.address);
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
    let client = world.signing(key);
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

/// What flooders do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Wait,
    Call,
    End,
}

/// Callers that are refused, each kind over and over, at one peer.
struct Flood {
    state: watch::Sender<State>,
    flooders: Vec<Flooder>,
}

struct Flooder {
    kind: &'static str,
    refused: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Flood {
    fn new() -> Self {
        Self { state: watch::Sender::new(State::Wait), flooders: Vec::new() }
    }

    /// Adds one that calls while the flood flows. `call` says whether it was refused, and panics where that was not as documented.
    fn add<F>(&mut self, kind: &'static str, call: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = bool> + Send + 'static,
    {
        let (mut state, refused) = (self.state.subscribe(), Arc::new(AtomicU64::new(0)));
        let counted = refused.clone();
        let task = tokio::spawn(async move {
            while *state.wait_for(|state| *state != State::Wait).await.unwrap() == State::Call {
                counted.fetch_add(u64::from(call().await), Ordering::Relaxed);
                tokio::time::sleep(FLOOD_EVERY).await;
            }
        });
        self.flooders.push(Flooder { kind, refused, task });
    }

    /// Adds one whose stores are all denied for this reason.
    fn add_denied(
        &mut self,
        kind: &'static str,
        client: &Arc<Client>,
        to: &Endpoint,
        why: &'static str,
    ) {
        let (client, to) = (client.clone(), to.clone());
        self.add(kind, move || {
            let (client, to) = (client.clone(), to.clone());
            async move {
                denied(client.store(&to, record(1), LIMIT).await, why);
                true
            }
        });
    }

    fn refused(&self) -> Vec<u64> {
        self.flooders.iter().map(|one| one.refused.load(Ordering::Relaxed)).collect()
    }

    /// Lets it flow, and waits until each was refused, or failed.
    async fn flow(&self) {
        let (before, since) = (self.refused(), Instant::now());
        self.state.send_replace(State::Call);
        let flows = || {
            let mut all = self.flooders.iter().zip(self.refused()).zip(&before);
            all.all(|((one, now), before)| now > *before || one.task.is_finished())
        };
        while !flows() && since.elapsed() < TAKEN_WITHIN {
            tokio::time::sleep(FLOOD_EVERY).await;
        }
    }

    /// Lets nobody call, and waits until what was called is answered.
    async fn rest(&self) {
        self.state.send_replace(State::Wait);
        tokio::time::sleep(FLOOD_EVERY * 2).await;
    }

    /// Ends it, and fails as any of them did.
    async fn end(self) {
        self.state.send_replace(State::End);
        for Flooder { kind, task, .. } in self.flooders {
            if let Err(failed) = task.await {
                eprintln!("a flooder failed: {kind}");
                resume_unwind(failed.into_panic());
            }
        }
    }
}

/// Sends what was captured, and says whether it was answered by headers alone, which end a call that is refused: what is
/// answered well has a message.
async fn is_refused(address: &str, bytes: &[u8]) -> bool {
    const HEAD_BYTES: usize = 9;
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const END_STREAM: u8 = 1;
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    loop {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).await.unwrap();
        let [a, b, c, kind, flags, ..] = head;
        let mut frame = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut frame).await.unwrap();
        match kind {
            DATA => return false,
            HEADERS if flags & END_STREAM > 0 => return true,
            _ => (),
        }
    }
}

/// A stranger, a client with an expired pass, one whose key is revoked, a captured request that was answered already, a request that is
/// signed for another peer, and a known client far over its rate.
async fn flood(world: &World, signed: &str) -> (Flood, Vec<Arc<Client>>) {
    let mut flood = Flood::new();
    let to = world.at(0);
    let keys: Vec<SecretKey> = (100..106).map(client_key).collect();
    let stranger = world.client(&keys[0], Credential::None);
    flood.add_denied("a stranger", &stranger, &to, "introduce yourself");
    let expired = world.client(&keys[1], world.pass(&keys[1], Tier::Own, -3601));
    flood.add_denied("an expired pass", &expired, &to, "valid from");

    let before = world.client(&keys[2], world.pass(&keys[2], Tier::Own, 0));
    world.set_revocations(0, &world.revoked(&keys[2]));
    becomes_denied(&before, &to).await;
    let revoked = world.client(&keys[2], world.pass(&keys[2], Tier::Own, 0));
    flood.add_denied("a revoked key", &revoked, &to, "revoked");

    let find = FindRequest { id: record(0).id, place: record(0).place };
    let (address, bytes) = (signed.to_owned(), captured(world, &keys[3], find).await);
    assert!(!is_refused(&address, &bytes).await, "the request as its caller sent it");
    flood.add("a replay", move || {
        let (address, bytes) = (address.clone(), bytes.clone());
        async move {
            assert!(is_refused(&address, &bytes).await, "a request that was answered already");
            true
        }
    });

    let other = world.signing(&keys[4]);
    let elsewhere = Endpoint { address: signed.to_owned(), ..world.at(1) };
    flood.add_denied("signed for another peer", &other, &elsewhere, "another peer");

    let known = world.client(&keys[5], world.pass(&keys[5], Tier::Known, 0));
    let (calling, at) = (known.clone(), to.clone());
    flood.add("a known client over its rate", move || {
        let (calling, at) = (calling.clone(), at.clone());
        async move {
            let answer = calling.store(&at, record(2), LIMIT).await;
            assert!(matches!(answer, Ok(_) | Err(CallError::Busy { .. })), "{answer:?}");
            answer.is_err()
        }
    });
    (flood, vec![stranger, expired, before, revoked, other, known])
}

/// The median time of a member's store while callers of every kind that is refused knock at the same peer, over that without.
#[test]
fn members_are_served_as_quickly_beside_a_flood_of_strangers() {
    let (world, signed) = world();
    runtime().block_on(async {
        let key = client_key(1);
        let own = world.client(&key, world.pass(&key, Tier::Own, 0));
        let to = world.at(0);
        own.store(&to, record(0), LIMIT).await.unwrap();
        let (flood, clients) = flood(&world, &signed[0]).await;
        let finds = world.good(0, "Find");
        let rounds = if full() { 2000 } else { 200 } / TURNS;
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        let mut refused = vec![0; flood.flooders.len()];
        for turn in 0..TURNS {
            let from = 1000 + turn * 2 * rounds;
            flood.rest().await;
            alone.extend(times(&own, &to, from..from + rounds).await);
            flood.flow().await;
            let before = flood.refused();
            beside.extend(times(&own, &to, from + rounds..from + 2 * rounds).await);
            let meanwhile =
                flood.refused().into_iter().zip(before).map(|(now, before)| now - before);
            refused.iter_mut().zip(meanwhile).for_each(|(sum, more)| *sum += more);
        }
        let kinds: Vec<_> = flood.flooders.iter().map(|one| one.kind).collect();
        flood.end().await;
        for (kind, refused) in kinds.into_iter().zip(refused) {
            eprintln!("{kind}: refused {refused} times meanwhile");
            assert!(refused > 0, "{kind}: it was not refused meanwhile");
        }
        assert_eq!(world.good(0, "Find"), finds, "a request was answered again");
        let (alone, beside) = (median(alone), median(beside));
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        eprintln!("a member's store: {alone:?} alone, {beside:?} beside them: {ratio:.2}");
        if full() {
            assert!(ratio <= 1.2, "{ratio}");
        }
        clients.iter().chain([&own]).for_each(|client| client.close());
    });
}

/// How long a store of each of these records takes, one after the other.
async fn times(own: &Client, to: &Endpoint, records: Range<u32>) -> Vec<Duration> {
    let mut times = Vec::new();
    for number in records {
        let since = Instant::now();
        own.store(to, record(number), LIMIT).await.unwrap();
        times.push(since.elapsed());
    }
    times
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
