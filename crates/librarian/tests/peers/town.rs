//! A network of librarians in one process, and the records and callers that tests need.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::{AuthorKey, ClientKey, ReaderKey, RecordId, SecretKey, Suite, Tier};
use document::{Document, Envelope, Kind, Page, Publication, Record};
use env::Env;
use env::calls::{
    Calls, Credential, Cursor, Endpoint, Events, IntroduceRequest, SubscribeEvent, SubscribeRequest,
};
use env::disk::DirDisk;
use futures::StreamExt;
use librarian::{Librarian, LibrarianOptions};
use overlay::MemoryMesh;
use store::{
    Durability, Journal, JournalOptions, MemoryStore, Part, RecordStore, Stats, StoreError,
};
use tempfile::TempDir;
use testkit::network::{Community, DirectNetwork, community, key};

pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// A network of librarians.
pub(crate) struct Town {
    pub(crate) env: Env,
    pub(crate) community: Community,
    pub(crate) network: Arc<DirectNetwork>,
    pub(crate) mesh: MemoryMesh,
    pub(crate) folder: TempDir,
    pub(crate) peers: Vec<Arc<Librarian>>,
    pub(crate) stores: Vec<Arc<Shop>>,
}

impl Town {
    /// A community of which nobody runs yet.
    pub(crate) fn empty(env: &Env, organisations: usize, peers: usize) -> Self {
        let members = overlay::everybody();
        Self {
            env: env.clone(),
            community: community(organisations, peers),
            network: DirectNetwork::new(env.clone()),
            mesh: MemoryMesh::with(env.clock.clone(), members),
            folder: tempfile::tempdir().unwrap(),
            peers: Vec::new(),
            stores: Vec::new(),
        }
    }

    /// A community whose peers all run, started from the first one's address, and know each other.
    pub(crate) async fn new(env: &Env, organisations: usize, peers: usize) -> Self {
        let mut town = Self::empty(env, organisations, peers);
        for _ in 0..peers {
            town.start_next(|_| {}).await;
        }
        town.until("all know all", |town| {
            town.peers.iter().all(|peer| peer.directory().view().len() == peers)
        })
        .await;
        town
    }

    /// Starts the next peer of the community.
    pub(crate) async fn start_next(&mut self, change: impl FnOnce(&mut LibrarianOptions)) -> usize {
        let number = self.peers.len();
        let shop = Arc::new(Shop::new(Arc::new(MemoryStore::new())));
        let peer = self.start(number, shop.clone(), change).await;
        self.peers.push(peer);
        self.stores.push(shop);
        number
    }

    /// Drops a record of a peer behind its back.
    pub(crate) async fn lose(&self, number: usize, id: &RecordId) {
        self.stores[number].inner.remove(vec![*id]).await.unwrap();
    }

    /// Starts a peer over this store; its log is kept in the town's folder.
    pub(crate) async fn start(
        &self,
        number: usize,
        store: Arc<dyn RecordStore>,
        change: impl FnOnce(&mut LibrarianOptions),
    ) -> Arc<Librarian> {
        self.start_with(number, store, JournalOptions::default(), change).await
    }

    pub(crate) async fn start_with(
        &self,
        number: usize,
        store: Arc<dyn RecordStore>,
        journal: JournalOptions,
        change: impl FnOnce(&mut LibrarianOptions),
    ) -> Arc<Librarian> {
        let disk = DirDisk::open(self.folder.path().join(format!("peer-{number}"))).unwrap();
        let journal = JournalOptions { durability: Durability::Memory, ..journal };
        let journal = Journal::open(Arc::new(disk), self.env.clone(), "news", journal).unwrap();
        self.start_over(number, store, journal, change).await
    }

    /// Starts a peer over this store and this log.
    pub(crate) async fn start_over(
        &self,
        number: usize,
        store: Arc<dyn RecordStore>,
        journal: Arc<Journal>,
        change: impl FnOnce(&mut LibrarianOptions),
    ) -> Arc<Librarian> {
        let member = &self.community.members[number];
        let mut options = LibrarianOptions::new(
            member.key.clone(),
            self.community.genesis.clone(),
            member.certificate.clone(),
        );
        if number > 0 {
            options.bootstrap = vec![self.community.members[0].address.clone()];
        }
        change(&mut options);
        let overlay = self.mesh.join(member.peer);
        let calls = self.network.calls(member.key.public());
        let env = self.env.clone();
        let unvouched = self.network.calls(key("unvouched", number).public());
        let prepared = Librarian::prepare(options, env).unwrap().asking_unvouched(unvouched);
        let peer = prepared.start(store, journal, overlay, calls).await.unwrap();
        self.network.serve(&member.address, member.peer, peer.service());
        peer
    }

    /// Stops a peer and starts it again over what its store has.
    pub(crate) async fn restart(&mut self, number: usize) {
        self.restart_with(number, |_| {}).await;
    }

    pub(crate) async fn restart_with(
        &mut self,
        number: usize,
        change: impl FnOnce(&mut LibrarianOptions),
    ) {
        let records = self.take_down(number).await;
        self.bring_back_with(number, records, change).await;
    }

    /// Stops a peer; what its store has.
    pub(crate) async fn take_down(&mut self, number: usize) -> Vec<Record> {
        let (store, mut records) = (&self.stores[number].inner, Vec::new());
        for id in store.ids(&RecordId::new([0; 32]), usize::MAX) {
            records.push(store.get(&id).await.unwrap().unwrap());
        }
        self.peers[number].stop().await.unwrap();
        records
    }

    /// Starts a peer that was taken down, with these records.
    pub(crate) async fn bring_back(&mut self, number: usize, records: Vec<Record>) {
        self.bring_back_with(number, records, |_| {}).await;
    }

    pub(crate) async fn bring_back_with(
        &mut self,
        number: usize,
        records: Vec<Record>,
        change: impl FnOnce(&mut LibrarianOptions),
    ) {
        let store = MemoryStore::new();
        store.put(records).await.unwrap();
        self.stores[number] = Arc::new(Shop::new(Arc::new(store)));
        self.peers[number] = self.start(number, self.stores[number].clone(), change).await;
    }

    pub(crate) fn at(&self, number: usize) -> Endpoint {
        let member = &self.community.members[number];
        Endpoint::of(member.peer, member.address.clone())
    }

    /// A client that introduced itself to all running peers by a pass of this organisation.
    pub(crate) async fn client(&self, organisation: usize, tier: Tier) -> Arc<dyn Calls> {
        let all: Vec<usize> = (0..self.peers.len()).collect();
        self.client_of(organisation, tier, &all).await
    }

    /// A client that introduced itself to these peers.
    pub(crate) async fn client_of(
        &self,
        organisation: usize,
        tier: Tier,
        peers: &[usize],
    ) -> Arc<dyn Calls> {
        let secret = key("client", organisation * 10 + usize::from(tier == Tier::Own));
        let calls = self.network.calls(secret.public());
        let client = ClientKey::new(secret.public());
        let pass = self.community.pass(client, organisation, tier, &self.env);
        for number in peers {
            introduce(&calls, &self.at(*number), Credential::Client(pass.clone())).await.unwrap();
        }
        calls
    }

    /// The network as a peer calls into it.
    pub(crate) fn peer_calls(&self, number: usize) -> Arc<dyn Calls> {
        self.network.calls(self.community.members[number].key.public())
    }

    pub(crate) fn stranger(&self) -> Arc<dyn Calls> {
        self.network.calls(key("stranger", 0).public())
    }

    /// Waits for something to become true, for at most ten virtual minutes.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..6_000 {
            if holds(self) {
                return;
            }
            self.env.clock.sleep(Duration::from_millis(100)).await;
        }
        panic!("not within ten minutes: {what}");
    }

    /// The publications in a peer's log.
    pub(crate) async fn log_of(&self, number: usize) -> Vec<Bytes> {
        let journal = self.peers[number].journal();
        let rows = journal.read(journal.start(), 100_000).await.unwrap();
        rows.into_iter().map(|(_, _, publication)| publication).collect()
    }
}

pub(crate) async fn introduce(
    calls: &Arc<dyn Calls>,
    to: &Endpoint,
    credential: Credential,
) -> Result<env::calls::IntroduceResponse, env::calls::CallError> {
    calls.introduce(to, IntroduceRequest::new(credential, 100), LIMIT).await
}

/// A page with content that depends on `seed`.
pub(crate) fn page(seed: u32, bytes: usize) -> Record {
    let ciphertext: Vec<u8> = (0..bytes.max(16) as u32).map(|at| (at ^ seed) as u8).collect();
    let author = AuthorKey::new(key("author", 0).public());
    let page = Page { author, index: seed, ciphertext: ciphertext.into(), mac: [1; 32] };
    Record::of(Suite::Holdfast1, &Document::Page(page))
}

pub(crate) fn reader(number: usize) -> SecretKey {
    key("reader", number)
}

/// An envelope for reader `reader` that depends on `seed`, and its publication.
pub(crate) fn envelope(seed: u32, to: usize) -> (Record, Bytes) {
    let mut entry = [9; 32];
    entry[..4].copy_from_slice(&seed.to_be_bytes());
    let envelope = Envelope {
        entry: RecordId::new(entry),
        author: AuthorKey::new(key("author", 1).public()),
        reader: ReaderKey::new(reader(to).public()),
        eek_ciphertext: [3; crypto::EEK_CIPHERTEXT_BYTES],
        eek_ciphertext_mac: [4; 32],
    };
    let record = Record::of(Suite::Holdfast1, &Document::Envelope(envelope.clone()));
    let publication = Publication::from_envelope(record.id, &envelope).encode();
    (record, publication)
}

/// All of a log from a cursor on.
pub(crate) fn everything(from: Cursor, follow: bool) -> SubscribeRequest {
    SubscribeRequest { from, follow, ..SubscribeRequest::default() }
}

/// The next event, within virtual `limit`.
pub(crate) async fn next(env: &Env, events: &mut Events, limit: Duration) -> SubscribeEvent {
    let event = env.within(limit, events.next()).await.expect("an event in time");
    event.expect("the subscription goes on").unwrap()
}

/// A store whose disk is full or slow, or whose records rot, when told so.
pub(crate) struct Shop {
    inner: Arc<dyn RecordStore>,
    pub(crate) full: AtomicBool,
    pub(crate) rotten: AtomicBool,
    /// Nothing can be removed.
    pub(crate) stuck: AtomicBool,
    pub(crate) reads: AtomicUsize,
    /// Records that lie where the disk cannot be read.
    pub(crate) unreadable: Mutex<BTreeSet<RecordId>>,
    /// Records whose bytes are others than were written.
    pub(crate) damaged: Mutex<BTreeSet<RecordId>>,
    /// What was removed, in its order.
    pub(crate) removed: Mutex<Vec<RecordId>>,
    /// How long a write of something new takes.
    slow: Mutex<Option<(Env, Duration)>>,
    /// How long a read takes.
    slow_reads: Mutex<Option<(Env, Duration)>>,
}

impl Shop {
    pub(crate) fn new(inner: Arc<dyn RecordStore>) -> Self {
        let (full, rotten, stuck, reads) = Default::default();
        let (unreadable, damaged, removed, slow, slow_reads) = Default::default();
        Self { inner, full, rotten, stuck, reads, unreadable, damaged, removed, slow, slow_reads }
    }

    /// From now on each write of something new takes so long.
    pub(crate) fn slow(&self, env: &Env, takes: Duration) {
        *self.slow.lock().unwrap() = Some((env.clone(), takes));
    }

    /// From now on each read takes so long.
    pub(crate) fn slow_reads(&self, env: &Env, takes: Duration) {
        *self.slow_reads.lock().unwrap() = Some((env.clone(), takes));
    }

    pub(crate) fn holds(&self, id: &RecordId) -> bool {
        self.inner.contains(id)
    }

    pub(crate) fn stats_records(&self) -> u64 {
        self.inner.stats().records
    }
}

#[async_trait]
impl RecordStore for Shop {
    async fn put(&self, records: Vec<Record>) -> Result<Vec<bool>, StoreError> {
        if self.full.load(Ordering::SeqCst) {
            return Err(StoreError::Full);
        }
        let slow = self.slow.lock().unwrap().clone();
        let is_new = |record: &Record| !self.inner.contains(&record.id);
        if let Some((env, takes)) = slow.filter(|_| records.iter().any(is_new)) {
            env.clock.sleep(takes).await;
        }
        let stored = self.inner.put(records).await;
        pause_once().await;
        stored
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let slow = self.slow_reads.lock().unwrap().clone();
        if let Some((env, takes)) = slow {
            env.clock.sleep(takes).await;
        }
        if self.unreadable.lock().unwrap().contains(id) {
            let (action, file) = ("read", "segment-7".to_owned());
            let source = std::io::Error::other("a bad sector");
            return Err(StoreError::Io { action, file, source });
        }
        let damaged =
            self.rotten.load(Ordering::SeqCst) || self.damaged.lock().unwrap().contains(id);
        if damaged && self.inner.contains(id) {
            let file = "segment-7".to_owned();
            return Err(StoreError::Damaged { id: *id, file, offset: 1 });
        }
        self.inner.get(id).await
    }

    fn each_of(
        &self,
        kinds: &[Kind],
        each: &mut dyn FnMut(Part<'_>),
    ) -> Result<Vec<RecordId>, StoreError> {
        self.inner.each_of(kinds, each)
    }

    fn contains(&self, id: &RecordId) -> bool {
        self.inner.contains(id)
    }

    async fn remove(&self, ids: Vec<RecordId>) -> Result<(), StoreError> {
        if self.stuck.load(Ordering::SeqCst) {
            return Err(StoreError::Full);
        }
        pause_once().await;
        self.removed.lock().unwrap().extend(&ids);
        self.inner.remove(ids).await
    }

    fn ids(&self, from: &RecordId, limit: usize) -> Vec<RecordId> {
        self.inner.ids(from, limit)
    }

    fn stats(&self) -> Stats {
        let stats = self.inner.stats();
        let full = self.full.load(Ordering::SeqCst);
        Stats { free_bytes: if full { 0 } else { stats.free_bytes }, ..stats }
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

/// Pends once: between a write and its answer there is time in which a caller may go away.
async fn pause_once() {
    let mut paused = false;
    std::future::poll_fn(|context| {
        if paused {
            return Poll::Ready(());
        }
        paused = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
