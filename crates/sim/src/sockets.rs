//! A network over real connections: the production transport (pool, TLS, HTTP/2, gate, limits) on turmoil's simulated sockets, and
//! on it production librarians and authors, while links break and hosts crash.
//!
//! It is beside the runs of [`crate::run`], not in their place: those have many more faults and run ten times as fast, and what
//! they cannot see is how the transport itself takes a partition, a connection that hangs, a peer that is gone.
//!
//! ```text
//! author ----+                                   turmoil: hosts, links, latency, partitions, one clock
//! author --- Client ~~TLS, HTTP/2~~ Dial ...... Listen ~~TLS, HTTP/2~~ Server --- librarian --- store on a faulty disk
//! ```
//! **What repeats.** The seed decides who there is, what is done when, what goes wrong, all keys, and every random byte that production
//! code draws by `env`. It does not decide TLS's own randomness (the lengths of what is sent do not depend on it) nor in which order tokio's `select!`
//! looks at its branches, which the libraries under us use and which can be seeded only in a build of tokio of its own. So a
//! finding comes with its seed, and comes again with it nearly always; the hash of events is told and not promised.
//!
//! Limits: up to [`PEERS_MAX`] peers, since turmoil ticks each pair of hosts; news travel over the overlay in memory (libp2p has its own
//! sockets), along links that are up; segments are lost by partitions alone, since its TCP sends nothing again.

mod net;
mod plan;
mod programs;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use env::Clock;
use overlay::MemoryMesh;
use testkit::disk::FaultyDisk;
use testkit::network::community;

pub use self::plan::Trouble;
use self::programs::{Phase, Shared};
use crate::chance::Chance;
use crate::history::{Finding, History};
use crate::search::Needle;

/// The most peers of a run.
pub const PEERS_MAX: usize = 64;
/// Peers that acknowledged contents survive the loss of: W is 2 at least.
const LOST: usize = 1;
/// A run takes no longer than this, in its own time.
const RUN_MAX: Duration = Duration::from_secs(3600);

/// How a run is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Peers, up to [`PEERS_MAX`].
    pub peers: usize,
    /// Organisations.
    pub organisations: usize,
    /// Authors.
    pub authors: usize,
    /// How long things go wrong.
    pub trouble: Duration,
    /// How finely time passes: hosts run in turn for so long. Also the shortest latency.
    pub tick: Duration,
}

impl Size {
    /// A small network, fine ticks.
    pub const SMALL: Self = Self {
        peers: 5,
        organisations: 3,
        authors: 2,
        trouble: Duration::from_secs(40),
        tick: Duration::from_millis(2),
    };
    /// The largest.
    pub const FULL: Self = Self {
        peers: PEERS_MAX,
        organisations: 4,
        authors: 3,
        trouble: Duration::from_secs(60),
        tick: Duration::from_millis(10),
    };
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct SocketsReport {
    /// Promises that did not hold.
    pub findings: Vec<Finding>,
    /// The hash of all events in order.
    pub hash: [u8; 32],
    /// The events.
    pub lines: Vec<String>,
    /// How often things happened.
    pub tallies: Vec<(&'static str, u64)>,
}

/// Runs one seed on this thread.
///
/// # Panics
/// Where a program ends with an error that is not a finding, or the run takes longer than an hour of its own time.
pub fn run(seed: u64, size: Size) -> SocketsReport {
    let clock: Arc<dyn Clock> = net::env_of(seed).clock;
    let history = History::new(clock.clone(), Needle::new(seed), true);
    let mesh = MemoryMesh::with(clock, overlay::everybody());
    let peers = size.peers.min(PEERS_MAX);
    let community = community(size.organisations, peers);
    let homes = tempfile::tempdir().expect("a folder for homes");
    let shared = Shared::new(seed, peers, history.clone(), community, mesh, homes);
    let mut world = Sim::new(seed, Size { peers, ..size }, &shared);
    world.run();
    drop(world);
    for slot in shared.slots().iter_mut() {
        slot.librarian = None;
    }
    let inner = history.lock();
    SocketsReport {
        findings: inner.findings.clone(),
        hash: inner.hash_of(),
        lines: inner.lines(),
        tallies: inner.tallies.iter().map(|(what, count)| (*what, *count)).collect(),
    }
}

/// The command that runs one seed again and tells all its events.
pub fn command(seed: u64) -> String {
    format!("HOLD_SIM_SEED={seed} cargo test -p sim --test sockets -- --nocapture")
}

/// The hosts, and what befalls them.
struct Sim {
    turmoil: turmoil::Sim<'static>,
    shared: Arc<Shared>,
    size: Size,
    seed: u64,
    /// Parties on the one side of what separates them now.
    side: BTreeSet<usize>,
}

impl Sim {
    fn new(seed: u64, size: Size, shared: &Arc<Shared>) -> Self {
        let mut turmoil = turmoil::Builder::new()
            .rng_seed(seed)
            .tick_duration(size.tick)
            .min_message_latency(size.tick)
            .max_message_latency(size.tick * 3)
            .simulation_duration(RUN_MAX)
            // Segments of a connection that its reader has not taken yet.
            .tcp_capacity(4096)
            .enable_random_order()
            .build();
        for number in 0..size.peers {
            let shared = Arc::clone(shared);
            turmoil.host(peer_name(number), move || {
                let shared = Arc::clone(&shared);
                async move {
                    let program = Box::pin(programs::peer(Arc::clone(&shared), number));
                    let ended = program.await;
                    if let Err(error) = ended {
                        shared.ended(number, &format!("peer {number} ended: {error}"));
                    }
                    Ok(())
                }
            });
        }
        for number in 0..size.authors {
            turmoil.client(author_name(number), programs::author(Arc::clone(shared), number));
        }
        turmoil.client("watcher", programs::watch(Arc::clone(shared)));
        Self { turmoil, shared: Arc::clone(shared), size, seed, side: BTreeSet::new() }
    }

    /// To the end of all authors' work.
    fn run(&mut self) {
        let from = Duration::from_secs(5);
        let until = from + self.size.trouble;
        let (peers, authors) = (self.size.peers, self.size.authors);
        let mut events = plan::plan(self.seed, peers, authors, from, until).into_iter().peekable();
        loop {
            let ended = self.turmoil.step().unwrap_or_else(|error| panic!("{error}"));
            if ended {
                return self.count_met();
            }
            self.end_unpowered();
            let now = self.turmoil.elapsed();
            while let Some((_, event)) = events.next_if(|(at, _)| *at <= now) {
                self.happens(&event);
            }
            match self.shared.phase() {
                Phase::Trouble if now >= until => self.mend(),
                Phase::Whole if self.shared.arrived() == authors => self.lose(),
                _ => {}
            }
        }
    }

    fn happens(&mut self, event: &Trouble) {
        let at = self.turmoil.elapsed().as_millis();
        self.shared.history.event(format!("at {at}: {event:?}"));
        match event {
            Trouble::CutOff(side) => self.separate(side, |sim, a, b| sim.partition(a, b)),
            Trouble::Mute(side) => self.separate(side, |sim, a, b| sim.partition_oneway(a, b)),
            Trouble::Together => self.join(|sim, a, b| sim.repair(a, b)),
            Trouble::Hold(side) => self.separate(side, |sim, a, b| sim.hold(a, b)),
            Trouble::Release(_) => self.join(|sim, a, b| sim.release(a, b)),
            Trouble::Latency(ms) => {
                let longest = Duration::from_millis(*ms).max(self.size.tick);
                self.turmoil.set_max_message_latency(longest);
            }
            Trouble::Kill(peer) => self.crash(*peer, false),
            Trouble::PowerFails(peer, operations) => {
                let slots = self.shared.slots();
                slots[*peer].disks.iter().for_each(|disk| disk.crash_after(*operations));
            }
            Trouble::PowerCut(peer) => self.crash(*peer, true),
            Trouble::Start(peer) => self.start(*peer),
        }
        self.shared.history.tally(match event {
            Trouble::CutOff(_) => "partition",
            Trouble::Mute(_) => "partition one way",
            Trouble::Hold(_) => "hold",
            Trouble::Kill(_) => "kill",
            Trouble::PowerFails(..) => "power cut",
            Trouble::Latency(_) => "latency",
            Trouble::Together | Trouble::Release(_) | Trouble::PowerCut(_) | Trouble::Start(_) => {
                "ends"
            }
        });
    }

    fn party(&self, number: usize) -> String {
        let peers = self.size.peers;
        if number < peers { peer_name(number) } else { author_name(number - peers) }
    }

    /// Does something to every link between a side and the others, and takes the links of news between them down.
    fn separate(
        &mut self,
        side: &BTreeSet<usize>,
        link: impl Fn(&turmoil::Sim<'static>, String, String),
    ) {
        self.side.clone_from(side);
        self.each_link(|sim, a, b| {
            link(&sim.turmoil, sim.party(a), sim.party(b));
            if a.max(b) < sim.size.peers {
                let community = &sim.shared.community;
                sim.shared.mesh.cut(community.peer(a), community.peer(b));
            }
        });
    }

    fn join(&mut self, link: impl Fn(&turmoil::Sim<'static>, String, String)) {
        self.each_link(|sim, a, b| {
            link(&sim.turmoil, sim.party(a), sim.party(b));
            if a.max(b) < sim.size.peers {
                let community = &sim.shared.community;
                sim.shared.mesh.heal(community.peer(a), community.peer(b));
            }
        });
        self.side.clear();
    }

    fn each_link(&self, link: impl Fn(&Self, usize, usize)) {
        let parties = self.size.peers + self.size.authors;
        for a in self.side.iter() {
            for b in (0..parties).filter(|b| !self.side.contains(b)) {
                link(self, *a, b);
            }
        }
    }

    fn crash(&mut self, peer: usize, power: bool) {
        // What the program holds goes with it.
        self.shared.slots()[peer].librarian = None;
        if self.turmoil.is_host_running(peer_name(peer)) {
            self.turmoil.crash(peer_name(peer));
        }
        if power {
            let mut slots = self.shared.slots();
            let slot = &mut slots[peer];
            slot.disks = [slot.disks[0].crash(), slot.disks[1].crash()];
        }
    }

    /// Ends the programs of peers whose power went during the last tick: in what was left of it they could read and write nothing.
    fn end_unpowered(&mut self) {
        let unpowered =
            |peer: &usize| self.shared.slots()[*peer].disks.iter().any(|disk| !disk.is_powered());
        let dark: Vec<usize> = (0..self.size.peers).filter(unpowered).collect();
        dark.into_iter().for_each(|peer| self.crash(peer, true));
    }

    /// Counts the faults that the disks really met.
    fn count_met(&self) {
        let slots = self.shared.slots();
        let met = slots.iter().flat_map(|slot| &slot.disks).flat_map(FaultyDisk::take_met);
        met.for_each(|(what, count)| self.shared.history.tally_many(what, count));
    }

    fn start(&mut self, peer: usize) {
        if !self.turmoil.is_host_running(peer_name(peer)) {
            self.turmoil.bounce(peer_name(peer));
        }
    }

    /// Ends all trouble. What was lost on the way stays lost: connections over it hang until they are noticed.
    fn mend(&mut self) {
        self.join(|sim, a, b| {
            sim.release(a.as_str(), b.as_str());
            sim.repair(a.as_str(), b.as_str());
        });
        self.turmoil.set_max_message_latency(self.size.tick * 3);
        (0..self.size.peers).for_each(|peer| self.start(peer));
        self.shared.enter(Phase::Calm);
    }

    /// Takes a peer away for good.
    fn lose(&mut self) {
        let mut chance = Chance::new(self.seed, "lost");
        for _ in 0..LOST {
            let lost = chance.index(self.size.peers);
            self.crash(lost, false);
            self.shared.history.event(format!("peer {lost} is lost"));
        }
        self.shared.enter(Phase::Lost);
    }
}

/// The host in the certificates that `testkit::network` makes.
fn peer_name(number: usize) -> String {
    format!("peer-{number}.test")
}

fn author_name(number: usize) -> String {
    format!("author-{number}.test")
}
