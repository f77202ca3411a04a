//! What runs on the hosts: a peer as `hold peer run` puts it together, an author, and what they share with the run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::bytes::Bytes;
use author::{Author, AuthorOptions, Home, NoProgress, PutOptions};
use crypto::{ClientKey, RecordId, SecretKey, Tier};
use env::Env;
use env::calls::Credential;
use librarian::{Librarian, LibrarianOptions};
use overlay::MemoryMesh;
use rpc::{Client, ClientLimits, Identity, Server, ServerLimits};
use store::{Journal, JournalOptions, LogOptions, LogStore, RecordStore};
use testkit::disk::FaultyDisk;
use testkit::network::{Community, key};
use tokio_util::sync::CancellationToken;
use walk::{Directory, Health, WalkOptions, Walker};

use super::net::{Port, Sockets, env_of};
use crate::chance::{Chance, noise};
use crate::check::liveness::FULL_WITHIN;
use crate::check::{bytes, liveness};
use crate::history::History;

/// The port in the peers' certificates (`testkit::network`).
const PORT: u16 = 4000;
const PASSPHRASE: &[u8] = b"correct horse";
/// The base-2 logarithm of scrypt's N: the least there is.
const LOG_N: u8 = 10;
/// An answer takes no longer than this, whatever goes wrong.
const ANSWER_WITHIN: Duration = crate::workload::ANSWER_WITHIN;
/// All see each other within this once the trouble is over: a dead connection is noticed after half a minute, back-offs end
/// after as long.
const WHOLE_WITHIN: Duration = Duration::from_secs(300);
const SIZES: [usize; 8] = [0, 1, 1000, 16_384, 16_385, 70_000, 300_000, 2_100_000];

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Things go wrong.
    Trouble,
    /// All trouble is over.
    Calm,
    /// All peers see each other.
    Whole,
    /// One peer is lost for good.
    Lost,
}

/// One peer as it outlives its programs.
pub(super) struct Slot {
    pub(super) disks: [FaultyDisk; 2],
    pub(super) runs: u64,
    pub(super) librarian: Option<Arc<Librarian>>,
}

struct Put {
    author: usize,
    address: RecordId,
    bytes: Bytes,
}

/// What the run and all programs share.
pub(super) struct Shared {
    pub(super) seed: u64,
    pub(super) history: History,
    pub(super) community: Community,
    pub(super) mesh: MemoryMesh,
    pub(super) slots: Mutex<Vec<Slot>>,
    pub(super) phase: Mutex<Phase>,
    /// Authors that are done with the phase.
    pub(super) arrived: Mutex<usize>,
    pub(super) homes: tempfile::TempDir,
    puts: Mutex<Vec<Put>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(
        seed: u64,
        peers: usize,
        history: History,
        community: Community,
        mesh: MemoryMesh,
        homes: tempfile::TempDir,
    ) -> Arc<Self> {
        let mut chance = Chance::new(seed, "disks");
        let directly = Chance::new(seed, "kinds of disks").permille(500);
        let mut disk = || {
            let disk = FaultyDisk::new(chance.bits());
            if directly {
                disk.write_directly();
            }
            disk
        };
        let slot = |_| Slot { disks: [disk(), disk()], runs: 0, librarian: None };
        Arc::new(Self {
            seed,
            history,
            community,
            mesh,
            slots: Mutex::new((0..peers).map(slot).collect()),
            phase: Mutex::new(Phase::Trouble),
            arrived: Mutex::new(0),
            homes,
            puts: Mutex::default(),
        })
    }

    pub(super) fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        lock(&self.slots)
    }

    pub(super) fn phase(&self) -> Phase {
        *lock(&self.phase)
    }

    /// Goes on to a phase, in which no author has arrived yet.
    pub(super) fn enter(&self, phase: Phase) {
        self.history.event(format!("{phase:?}"));
        *lock(&self.arrived) = 0;
        *lock(&self.phase) = phase;
    }

    pub(super) fn arrived(&self) -> usize {
        *lock(&self.arrived)
    }

    /// A peer's program ended by itself: rightly, where its power went while it was started.
    pub(super) fn ended(&self, number: usize, what: &str) {
        if self.slots()[number].disks.iter().all(FaultyDisk::is_powered) {
            self.history.find("Q6", what.to_owned());
        } else {
            self.history.event(what);
        }
    }
}

/// A peer, until its host crashes.
pub(super) async fn peer(shared: Arc<Shared>, number: usize) -> turmoil::Result {
    let (disks, run) = {
        let mut slots = shared.slots();
        let slot = &mut slots[number];
        slot.runs += 1;
        (slot.disks.clone(), slot.runs)
    };
    let env = env_of(Chance::new(shared.seed, &format!("peer {number} run {run}")).bits());
    let member = &shared.community.members[number];
    let genesis = shared.community.genesis.clone();
    let identity = Identity::new(member.key.clone(), genesis.network())?;
    let port = Port::open(PORT).await?;
    let server = Server::over(Box::new(port), Arc::clone(&identity), ServerLimits::default());
    let [records, news] = disks;
    let options = LogOptions { segment_bytes_max: 8 << 20, ..LogOptions::default() };
    let store = LogStore::open(Arc::new(records), env.clone(), options)?;
    let journal = Journal::open(Arc::new(news), env.clone(), "news", JournalOptions::default())?;
    let mut options =
        LibrarianOptions::new(member.key.clone(), genesis, member.certificate.clone());
    let others = shared.community.members.iter().filter(|other| other.peer != member.peer);
    options.bootstrap = others.map(|other| other.address.clone()).take(3).collect();
    let prepared = Librarian::prepare(options, env.clone())?;
    let overlay = shared.mesh.join(member.peer);
    let limits = ClientLimits::default();
    let credential = prepared.credential();
    let client = Client::through(Arc::new(Sockets), identity, credential, env.clone(), limits);
    let records = store.stats().records;
    let librarian = prepared.start(store, journal, overlay, client).await?;
    shared.history.event(format!("peer {number} runs with {records} records"));
    shared.slots()[number].librarian = Some(Arc::clone(&librarian));
    server.serve(librarian.service(), env, CancellationToken::new()).await?;
    Ok(())
}

/// Waits for all peers to see each other, once the trouble is over.
pub(super) async fn watch(shared: Arc<Shared>) -> turmoil::Result {
    while shared.phase() < Phase::Calm {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let mut waited = Duration::ZERO;
    loop {
        let lacks = lacks(&shared);
        if lacks.is_empty() {
            break;
        }
        if waited > WHOLE_WITHIN {
            lacks.into_iter().take(4).for_each(|what| shared.history.find("Q6", what));
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        waited += Duration::from_secs(1);
    }
    shared.enter(Phase::Whole);
    Ok(())
}

fn lacks(shared: &Shared) -> Vec<String> {
    let slots = shared.slots();
    let mut lacks = Vec::new();
    for (number, slot) in slots.iter().enumerate() {
        let Some(librarian) = &slot.librarian else {
            lacks.push(format!("peer {number} does not run"));
            continue;
        };
        let peers = librarian.directory().peers();
        let others = peers.iter().filter(|status| status.peer != librarian.peer());
        let well = others.filter(|status| status.health == Health::Healthy).count() + 1;
        if well < slots.len() {
            lacks.push(format!("peer {number} sees {well} of {} peers", slots.len()));
        }
        lacks.extend(liveness::refuses(number, librarian));
    }
    lacks
}

/// One author's program.
struct Writer {
    shared: Arc<Shared>,
    number: usize,
    env: Env,
    author: Arc<Author>,
    chance: Chance,
}

/// An author: puts and reads while things go wrong, then reads all it has, and again when a peer is lost.
pub(super) async fn author(shared: Arc<Shared>, number: usize) -> turmoil::Result {
    let mut writer = Writer::new(&shared, number)?;
    // The first peers are up after some round trips.
    tokio::time::sleep(Duration::from_secs(2)).await;
    writer.join().await;
    while shared.phase() < Phase::Calm {
        let pause = writer.chance.below(3000);
        tokio::time::sleep(Duration::from_millis(200 + pause)).await;
        match writer.chance.below(5) {
            0 | 1 => _ = writer.put().await,
            4 => writer.join().await,
            _ => writer.get_one().await,
        }
    }
    for phase in [Phase::Whole, Phase::Lost] {
        while shared.phase() < phase {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        // A new program, which knows nobody.
        writer = Writer::new(&shared, number)?;
        writer.join().await;
        writer.get_all().await;
        if phase == Phase::Whole {
            writer.put_in_full().await;
        }
        *lock(&shared.arrived) += 1;
    }
    Ok(())
}

impl Writer {
    fn new(shared: &Arc<Shared>, number: usize) -> Result<Self, Box<dyn std::error::Error>> {
        let phase = shared.phase();
        let purpose = format!("author {number} {phase:?}");
        let mut chance = Chance::new(shared.seed, &purpose);
        let env = env_of(chance.bits());
        let secret: SecretKey = key("sim author", number);
        let community = &shared.community;
        let organisation = number % community.organisations.len();
        let client = ClientKey::new(secret.public());
        let credential = Credential::Client(community.pass(client, organisation, Tier::Own, &env));
        let shown = credential.clone();
        let identity = Identity::new(secret, community.genesis.network())?;
        let limits = ClientLimits::default();
        let shows = Arc::new(move || shown.clone());
        let calls = Client::through(Arc::new(Sockets), identity, shows, env.clone(), limits);
        let directory = Directory::new(community.genesis.clone(), env.clone(), None);
        let walker = Walker::new(
            env.clone(),
            calls,
            directory,
            WalkOptions { own: None, credential, through: Vec::new() },
        );
        let dir = shared.homes.path().join(format!("author-{number}"));
        let home = if Home::exists(&dir) {
            Home::open(&dir, PASSPHRASE)?
        } else {
            Home::create_with(&dir, PASSPHRASE, env.entropy.as_ref(), LOG_N)?
        };
        let options = AuthorOptions::default();
        let author = Author::new(env.clone(), Arc::new(home), walker, &options);
        Ok(Self { shared: Arc::clone(shared), number, env, author, chance })
    }

    async fn join(&self) {
        let members = self.shared.community.members.iter();
        let bootstrap: Vec<String> = members.map(|member| member.address.clone()).collect();
        let joined = Box::pin(self.author.walker().join(&bootstrap)).await;
        let known = joined.ok();
        self.shared.history.event(format!("author {} knows {known:?}", self.number));
    }

    /// What is put once all trouble is over gets all its copies, and soon.
    async fn put_in_full(&mut self) {
        let until = self.env.clock.elapsed() + FULL_WITHIN;
        while !self.put().await {
            if self.env.clock.elapsed() > until {
                let what = format!("all is well and author {} cannot put in full", self.number);
                return self.shared.history.find("Q6", what);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Puts a content; whether it got all its copies.
    async fn put(&mut self) -> bool {
        let (seed, len) = (self.chance.bits(), self.chance.one(&SIZES));
        let source = Bytes::from(noise(seed, len));
        let putting = self.author.put(&source[..], PutOptions::default(), Arc::new(NoProgress));
        let history = &self.shared.history;
        match self.env.within(ANSWER_WITHIN, Box::pin(putting)).await {
            Ok(Ok(report)) => {
                history.tally(if report.full { "put in full" } else { "put partly" });
                history.event(format!("author {} put {len} full {}", self.number, report.full));
                let put = Put { author: self.number, address: report.address, bytes: source };
                lock(&self.shared.puts).push(put);
                return report.full;
            }
            Ok(Err(error)) => {
                history.tally("failed");
                history.event(format!("author {} cannot put", self.number));
                bytes::check_error(history, "put", &error);
            }
            Err(_) => history.find("Q6", format!("author {} got no answer: put", self.number)),
        }
        false
    }

    fn own(&self) -> Vec<(RecordId, Bytes)> {
        let puts = lock(&self.shared.puts);
        let own = puts.iter().filter(|put| put.author == self.number);
        own.map(|put| (put.address, put.bytes.clone())).collect()
    }

    async fn get_one(&mut self) {
        let own = self.own();
        if !own.is_empty() {
            let (address, wanted) = own[self.chance.index(own.len())].clone();
            self.get(address, &wanted, false).await;
        }
    }

    /// Reads what was acknowledged, every content of which must be there (Q2).
    async fn get_all(&self) {
        for (address, wanted) in self.own() {
            self.get(address, &wanted, true).await;
        }
    }

    async fn get(&self, address: RecordId, wanted: &[u8], must: bool) {
        let history = &self.shared.history;
        let mut got = Vec::new();
        let getting = self.author.get(address, &mut got, None, Arc::new(NoProgress));
        let answer = self.env.within(ANSWER_WITHIN, Box::pin(getting)).await;
        let Ok(answer) = answer else {
            return history.find("Q6", format!("author {} got no answer: get", self.number));
        };
        bytes::check(history, &got, wanted, answer.is_ok());
        match answer {
            Ok(_) => {
                history.tally("read");
                history.event(format!("author {} read {} bytes", self.number, got.len()));
            }
            Err(error) => {
                history.tally("failed");
                bytes::check_error(history, "get", &error);
                if must {
                    let what = format!("an acknowledged content is lost: {}", bytes::text(&error));
                    history.find("Q2", what);
                }
            }
        }
    }
}
