//! One peer: its disks and its clock, which outlive its programs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use crypto::{PeerId, Place, RecordId};
use env::Env;
use env::disk::Disk;
use librarian::{Librarian, LibrarianOptions, UpkeepOptions};
use store::{
    CompactionOptions, Journal, JournalOptions, LogOptions, LogStore, RecordStore, Recovery,
    StoreError,
};
use testkit::disk::FaultyDisk;
use testkit::network::Fault;

use super::World;
use crate::bugs::PlantedBug;
use crate::chance::Chance;
use crate::plan::Keeping;
use crate::process::{Process, Slowness};
use crate::skew::SkewedClock;

/// A segment's length: small, so that runs have several.
const SEGMENT_BYTES: u64 = 1 << 20;
/// What a store leaves free.
const RESERVE_BYTES: u64 = 64 << 10;

/// Upkeep at a run's pace: a store is read within seconds, and again after some.
const UPKEEP: UpkeepOptions = UpkeepOptions {
    scrub_bytes_s: 4 << 20,
    scrub_rest: Duration::from_secs(30),
    // Nothing is removed in a run: what is dead are damaged records that were written again.
    compaction: CompactionOptions { dead_percent: 0, bytes_per_s: 4 << 20 },
    compaction_every: Duration::from_secs(30),
};

/// A disk that takes its time takes less than so many milliseconds for whatever is asked of it.
const DISK_MS: u64 = 3;
/// Others that have a record of which there are copies when a peer dropped it: those whose it is, by the smallest row of the table.
const COPIES_MIN: usize = placement::PAGE_COPIES as usize;

/// What a peer's disks are like when nothing is wrong with them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DiskKind {
    /// Large writes go past the system's cache.
    pub(super) directly: bool,
    /// They take some milliseconds, so that requests gather.
    pub(super) takes_time: bool,
}

impl DiskKind {
    fn disk(self, seed: u64) -> FaultyDisk {
        let disk = FaultyDisk::new(seed);
        if self.directly {
            disk.write_directly();
        }
        disk
    }
}

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
    /// It was told to stop, and runs still.
    is_stopping: bool,
    /// What is wrong with what it says.
    pub(crate) lie: Fault,
    /// How slow its disks are.
    pub(crate) slowness: Slowness,
    kind: DiskKind,
    known: Vec<Bytes>,
    /// What it had acknowledged, and had, when its last program ended.
    had: BTreeSet<(RecordId, Place)>,
    /// What its disks held when it was told to remember.
    remembered: Option<[FaultyDisk; 2]>,
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

impl Running {
    /// Whether its power is on and nobody killed it.
    pub(crate) fn is_alive(&self) -> bool {
        !self.process.is_dead()
    }
}

impl PeerSlot {
    pub(super) fn new(kind: DiskKind, env: &Env, chance: &mut Chance) -> Self {
        Self {
            store_disk: kind.disk(chance.bits()),
            news_disk: kind.disk(chance.bits()),
            clock: SkewedClock::new(env.clock.clone()),
            running: None,
            is_stopping: false,
            lie: Fault::None,
            slowness: Slowness::usually(if kind.takes_time { DISK_MS } else { 0 }),
            kind,
            known: Vec::new(),
            had: BTreeSet::new(),
            remembered: None,
        }
    }

    pub(super) fn disks(&self) -> [&FaultyDisk; 2] {
        [&self.store_disk, &self.news_disk]
    }

    /// New, empty disks.
    pub(crate) fn replace_disks(&mut self, chance: &mut Chance) {
        self.store_disk = self.kind.disk(chance.bits());
        self.news_disk = self.kind.disk(chance.bits());
        self.known.clear();
        self.had.clear();
    }

    /// Keeps what the disks hold now.
    pub(super) fn remember(&mut self) {
        self.remembered = Some([self.store_disk.copy(), self.news_disk.copy()]);
    }

    /// The disks are what was remembered last; whether anything was.
    pub(super) fn set_back(&mut self) -> bool {
        let Some([store, news]) = self.remembered.take() else { return false };
        (self.store_disk, self.news_disk) = (store, news);
        self.had.clear();
        true
    }

    /// The power is off: what is left on the disks.
    pub(crate) fn crash_disks(&mut self) {
        self.store_disk = self.store_disk.crash();
        self.news_disk = self.news_disk.crash();
    }
}

impl World {
    /// Starts a peer, where it does not run. One that was told to stop and has not yet (it may be paused) is killed
    /// first, as service managers do.
    pub async fn start_peer(&self, number: usize) {
        let is_stopping = self.peers()[number].is_stopping;
        if is_stopping {
            self.kill_peer(number);
        }
        let (store_disk, news_disk, known, process, env) = {
            let peers = self.peers();
            let peer = &peers[number];
            if peer.running.is_some() {
                return;
            }
            let process = Arc::new(Process::default());
            let env = self.env_of(&process, &peer.clock, &peer.slowness);
            let disks = (peer.store_disk.clone(), peer.news_disk.clone());
            (disks.0, disks.1, peer.known.clone(), process, env)
        };
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
        self.found_at_start(&store.recovery());
        self.check_kept(number, &store);
        let started = self.start_librarian(number, &env, &process, known, store.clone(), journal);
        let librarian = match started.await {
            Ok(librarian) => librarian,
            Err(error) => {
                let what = format!("peer {number} does not start: {error}");
                if self.peers()[number].disks().iter().all(|disk| disk.is_powered()) {
                    self.history.find("Q6", what);
                } else {
                    self.history.event(what);
                }
                return;
            }
        };
        let member = &self.community.members[number];
        let service = self.liars.before(number, librarian.service());
        self.direct.serve(&member.address, member.peer, service);
        self.wires.serve(number, &member.address, process.clone());
        let lie = self.peers()[number].lie.clone();
        self.direct.set(&member.peer, lie);
        self.history.event(format!("peer {number} runs with {} records", store.stats().records));
        self.peers()[number].running = Some(Running { librarian, store, process });
        self.link(number, true);
    }

    /// Counts what a store had to mend when it was opened.
    fn found_at_start(&self, recovery: &Recovery) {
        let found = [
            ("recovery: a torn end was cut", recovery.cut_bytes),
            ("recovery: a part of a segment is no record", recovery.gaps),
            ("recovery: a damaged frame", recovery.damaged_frames),
            ("recovery: an index was made anew", recovery.rebuilt_indexes),
        ];
        for (what, _) in found.iter().filter(|(_, count)| *count > 0) {
            self.history.tally(what);
        }
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
        options.upkeep = Some(UPKEEP);
        if let Some(Keeping { options: keeping, leases }) = &self.plan.keeping {
            (options.keeping, options.leases) = (Some(*keeping), leases.clone());
        }
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

    /// What the peer acknowledged is on its disk (Q2), unless it is the one that may lose data. Where peers keep the network
    /// whole they drop what is too much, or nobody pays for: there it is what the peer also had when it went.
    fn check_kept(&self, number: usize, store: &LogStore) {
        if self.plan.victim == Some(number) {
            return;
        }
        let keeps = self.plan.keeping.is_some();
        let kept: Vec<(RecordId, Place)> = if keeps {
            self.peers()[number].had.iter().copied().collect()
        } else {
            let history = self.history.lock();
            let kept = history.acknowledged.get(&number).into_iter().flatten();
            kept.map(|(id, place)| (*id, *place)).collect()
        };
        let missing = kept.iter().filter(|(id, _)| !store.contains(id));
        let missing = missing.filter(|(id, place)| !keeps || !self.may_drop(number, id, place));
        for (id, _) in missing.take(3) {
            let what = format!("peer {number} acknowledged {id} and does not have it");
            self.history.find("Q2", what);
        }
    }

    /// Whether a peer may have been about to drop a record when it went: what it asked of its disk last may be done, and the
    /// peer not know it. Nobody pays for it any more, or others have what there should be of it.
    fn may_drop(&self, number: usize, id: &RecordId, place: &Place) -> bool {
        if self.history.is_over(id, place, self.env.clock.unix_s()) {
            return true;
        }
        let peers = self.peers();
        let others = peers.iter().enumerate().filter(|(other, _)| *other != number);
        let stores = others.filter_map(|(_, peer)| peer.running.as_ref().map(|one| &one.store));
        let have = stores.filter(|store| store.contains(id)).count();
        let is_fragment = *place != Place::from(*id);
        have >= if is_fragment { 1 } else { COPIES_MIN }
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
        let running = {
            let mut peers = self.peers();
            peers[number].is_stopping = false;
            peers[number].running.take()
        };
        let Some(running) = running else { return };
        // What it would have written to its file of known peers a moment ago.
        let known = running.librarian.known_peers();
        let had: BTreeSet<(RecordId, Place)> = {
            let history = self.history.lock();
            let kept = history.acknowledged.get(&number).into_iter().flatten();
            let had = kept.filter(|(id, _)| running.store.contains(id));
            had.map(|(id, place)| (*id, *place)).collect()
        };
        {
            let mut peers = self.peers();
            (peers[number].known, peers[number].had) = (known, had);
        }
        running.process.kill();
        self.direct.remove(&self.community.members[number].address);
        self.link(number, false);
        self.history.event(format!("peer {number} is gone"));
    }

    /// Ends a peer's program well.
    pub async fn stop_peer(&self, number: usize) {
        let Some(running) = self.peers()[number].running.clone() else { return };
        self.peers()[number].is_stopping = true;
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
