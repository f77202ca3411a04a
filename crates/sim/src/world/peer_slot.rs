//! One peer: its disks and its clock, which outlive its programs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use crypto::PeerId;
use env::Env;
use env::disk::Disk;
use librarian::{Librarian, LibrarianOptions};
use store::{Journal, JournalOptions, LogOptions, LogStore, RecordStore, StoreError};
use testkit::disk::FaultyDisk;
use testkit::network::Fault;

use super::World;
use crate::bugs::PlantedBug;
use crate::chance::Chance;
use crate::process::Process;
use crate::skew::SkewedClock;

/// A segment's length: small, so that runs have several.
const SEGMENT_BYTES: u64 = 1 << 20;
/// What a store leaves free.
const RESERVE_BYTES: u64 = 64 << 10;

/// One peer.
pub struct PeerSlot {
    /// Its records.
    pub store_disk: FaultyDisk,
    /// Its publication log.
    pub news_disk: FaultyDisk,
    /// Its clock.
    pub clock: SkewedClock,
    /// Its program, where one runs.
    pub running: Option<Running>,
    /// What is wrong with what it says.
    pub(crate) lie: Fault,
    known: Vec<Bytes>,
}

/// One run of a peer's program.
#[derive(Clone)]
pub struct Running {
    /// The librarian.
    pub librarian: Arc<Librarian>,
    /// Its store.
    pub store: Arc<LogStore>,
    pub(crate) process: Arc<Process>,
}

impl PeerSlot {
    pub(super) fn new(_number: usize, env: &Env, chance: &mut Chance) -> Self {
        Self {
            store_disk: FaultyDisk::new(chance.bits()),
            news_disk: FaultyDisk::new(chance.bits()),
            clock: SkewedClock::new(env.clock.clone()),
            running: None,
            lie: Fault::None,
            known: Vec::new(),
        }
    }

    pub(super) fn disks(&self) -> [&FaultyDisk; 2] {
        [&self.store_disk, &self.news_disk]
    }

    /// New, empty disks.
    pub(super) fn replace_disks(&mut self, chance: &mut Chance) {
        self.store_disk = FaultyDisk::new(chance.bits());
        self.news_disk = FaultyDisk::new(chance.bits());
        self.known.clear();
    }

    /// The power is off: what is left on the disks.
    pub(super) fn crash_disks(&mut self) {
        self.store_disk = self.store_disk.crash();
        self.news_disk = self.news_disk.crash();
    }
}

impl World {
    /// Starts a peer, where it does not run.
    pub async fn start_peer(&self, number: usize) {
        let (store_disk, news_disk, clock, known) = {
            let peers = self.peers();
            let peer = &peers[number];
            if peer.running.is_some() {
                return;
            }
            let known = peer.known.clone();
            (peer.store_disk.clone(), peer.news_disk.clone(), peer.clock.clone(), known)
        };
        let process = Arc::new(Process::default());
        let env = self.env_of(&process, &clock);
        let opened = self.open_store(Arc::new(store_disk), env.clone()).and_then(|store| {
            let options = JournalOptions::default();
            let journal = Journal::open(Arc::new(news_disk), env.clone(), "news", options)?;
            Ok((store, journal))
        });
        let (store, journal) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.history.event(format!("peer {number} cannot open its store: {error}"));
                if self.plan.victim != Some(number) && self.calm.load(Ordering::SeqCst) {
                    let what = format!("the store of peer {number} does not open: {error}");
                    self.history.find("Q2", what);
                }
                return;
            }
        };
        self.check_kept(number, &store);
        let started = self.start_librarian(number, &env, &process, known, store.clone(), journal);
        let librarian = match started.await {
            Ok(librarian) => librarian,
            Err(error) => {
                self.history.find("Q6", format!("peer {number} does not start: {error}"));
                return;
            }
        };
        let member = &self.community.members[number];
        self.direct.serve(&member.address, member.peer, librarian.service());
        self.wires.serve(number, &member.address, process.clone());
        let lie = self.peers()[number].lie.clone();
        self.direct.set(&member.peer, lie);
        self.history.event(format!("peer {number} runs with {} records", store.stats().records));
        self.peers()[number].running = Some(Running { librarian, store, process });
        self.link(number, true);
    }

    fn open_store(&self, disk: Arc<dyn Disk>, env: Env) -> Result<Arc<LogStore>, StoreError> {
        let options = LogOptions {
            segment_bytes_max: SEGMENT_BYTES,
            reserve_free_bytes: RESERVE_BYTES,
            ..LogOptions::default()
        };
        match self.bug {
            Some(PlantedBug::AcknowledgeBeforeSync) => {
                let bug = store::PlantedBug::AcknowledgeBeforeSync;
                LogStore::open_with_bug(disk, env, options, bug)
            }
            _ => LogStore::open(disk, env, options),
        }
    }

    async fn start_librarian(
        &self,
        number: usize,
        env: &Env,
        process: &Arc<Process>,
        known: Vec<Bytes>,
        store: Arc<LogStore>,
        journal: Arc<Journal>,
    ) -> Result<Arc<Librarian>, librarian::LibrarianError> {
        let members = &self.community.members;
        let member = &members[number];
        let genesis = self.community.genesis.clone();
        let mut options =
            LibrarianOptions::new(member.key.clone(), genesis, member.certificate.clone());
        options.known_peers = known;
        let others = members.iter().filter(|other| other.peer != member.peer);
        options.bootstrap = others.map(|other| other.address.clone()).take(2).collect();
        let prepared = Librarian::prepare(options, env.clone())?;
        let inner = self.direct.calls(member.key.public());
        let calls = self.wires.line(number, inner, prepared.credential());
        let overlay = self.mesh.join(member.peer);
        let starting = prepared.start(store, journal, overlay, calls);
        match process.gate(starting).await {
            Some(started) => started,
            None => Err(librarian::LibrarianError::from(StoreError::Closed)),
        }
    }

    /// What the peer acknowledged is on its disk (Q2), unless it is the one that may lose data.
    fn check_kept(&self, number: usize, store: &LogStore) {
        if self.plan.victim == Some(number) {
            return;
        }
        let kept = self.history.lock().acknowledged.get(&number).cloned().unwrap_or_default();
        let missing = kept.iter().filter(|id| !store.contains(id));
        for id in missing.take(3) {
            let what = format!("peer {number} acknowledged {id} and does not have it");
            self.history.find("Q2", what);
        }
    }

    /// Takes the links of a peer up or down where news travel.
    pub(super) fn link(&self, number: usize, up: bool) {
        let own = self.community.peer(number);
        let others: Vec<PeerId> = {
            let peers = self.peers();
            let running = |other: &usize| *other != number && peers[*other].running.is_some();
            (0..peers.len()).filter(running).map(|other| self.community.peer(other)).collect()
        };
        for other in others {
            if up { self.mesh.heal(own, other) } else { self.mesh.cut(own, other) }
        }
    }

    /// Ends a peer's program at once.
    pub fn kill_peer(&self, number: usize) {
        let Some(running) = self.peers()[number].running.take() else { return };
        // What it would have written to its file of known peers a moment ago.
        let known = running.librarian.known_peers();
        self.peers()[number].known = known;
        running.process.kill();
        self.direct.remove(&self.community.members[number].address);
        self.link(number, false);
        self.history.event(format!("peer {number} is gone"));
    }

    /// Ends a peer's program well.
    pub async fn stop_peer(&self, number: usize) {
        let Some(running) = self.peers()[number].running.clone() else { return };
        let stopped = running.process.gate(running.librarian.stop()).await;
        let said = match stopped {
            None => "died while it stopped".to_owned(),
            Some(Ok(())) => "stopped".to_owned(),
            Some(Err(error)) => error.to_string(),
        };
        self.history.event(format!("peer {number} {said}"));
        let same = |now: &Running| Arc::ptr_eq(&now.process, &running.process);
        let is_same = self.peers()[number].running.as_ref().is_some_and(same);
        if is_same {
            self.kill_peer(number);
        }
    }
}
