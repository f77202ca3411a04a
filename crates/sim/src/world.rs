//! A whole network in one thread: peers with their disks and clocks, authors with their homes, and what befalls them.
//!
//! Every program is the production code: a librarian over a log store and a journal on faulty disks and the overlay in memory, an
//! author over a walker and a home in a folder. What differs is below `env`'s traits: time, randomness, tasks, disk, calls.

mod author_slot;
mod peer_slot;
mod troubles;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use env::Env;
use overlay::MemoryMesh;
use testkit::network::{Community, DirectNetwork, community};
use testkit::time::SeededEntropy;

use crate::bugs::PlantedBug;
use crate::chance::Chance;
use crate::history::History;
use crate::liar::Liars;
use crate::plan::Plan;
use crate::process::{Process, ProcessTasks, Slowness};
use crate::skew::SkewedClock;
use crate::wires::Wires;
pub use author_slot::{AuthorSlot, RunningAuthor};
use peer_slot::DiskKind;
pub use peer_slot::{PeerSlot, Running};

/// Bytes that a peer of a crowd offers, as all others do.
const CAPACITY: u64 = 1 << 40;

/// Everything in one run.
pub struct World {
    /// True time, and what runs outside all programs.
    pub env: Env,
    /// The run's seed.
    pub seed: u64,
    /// What goes wrong when.
    pub plan: Plan,
    /// What happened.
    pub history: History,
    /// Keys and certificates.
    pub community: Community,
    /// The defect that is planted, if any.
    pub bug: Option<PlantedBug>,
    pub(crate) direct: Arc<DirectNetwork>,
    pub(crate) mesh: MemoryMesh,
    pub(crate) wires: Arc<Wires>,
    pub(crate) liars: Arc<Liars>,
    pub(crate) homes: tempfile::TempDir,
    peers: Mutex<Vec<PeerSlot>>,
    authors: Mutex<Vec<AuthorSlot>>,
    runs: Mutex<u64>,
    /// Whether all trouble has ended.
    calm: AtomicBool,
}

/// The peers of a plan, each with a certificate of its organisation.
fn crowded(plan: &Plan) -> Community {
    let mut all = community(plan.organisations, plan.peers - plan.crowd);
    for _ in 0..plan.crowd {
        all.admit(0, CAPACITY);
    }
    all
}

impl World {
    /// A world in which nobody runs yet. Homes are folders in memory where the system has such.
    ///
    /// # Panics
    /// Where no folder can be made.
    pub fn new(env: Env, seed: u64, history: History, bug: Option<PlantedBug>) -> Arc<Self> {
        Self::planned(env, seed, Plan::new(seed), history, bug)
    }

    /// The same with another plan than the seed's.
    ///
    /// # Panics
    /// Where no folder can be made.
    pub fn planned(
        env: Env,
        seed: u64,
        plan: Plan,
        history: History,
        bug: Option<PlantedBug>,
    ) -> Arc<Self> {
        let members = overlay::everybody();
        let shm = std::path::Path::new("/dev/shm");
        let mut homes = tempfile::Builder::new();
        let homes = homes.prefix("holdfast-sim-");
        let homes = if shm.is_dir() { homes.tempdir_in(shm) } else { homes.tempdir() };
        let mut chance = Chance::new(seed, "disks");
        let mut kinds = Chance::new(seed, "kinds of disks");
        let directly = kinds.permille(500);
        let peers = (0..plan.peers).map(|_| {
            let takes_time = kinds.permille(500) && !plan.instant_disks;
            PeerSlot::new(DiskKind { directly, takes_time }, &env, &mut chance)
        });
        let authors = (0..plan.authors).map(AuthorSlot::new);
        Arc::new(Self {
            seed,
            community: crowded(&plan),
            direct: DirectNetwork::new(env.clone()),
            mesh: MemoryMesh::with(env.clock.clone(), members),
            wires: Wires::new(env.clone(), seed, history.clone()),
            homes: homes.expect("a folder for homes"),
            peers: Mutex::new(peers.collect()),
            authors: Mutex::new(authors.collect()),
            runs: Mutex::new(0),
            calm: AtomicBool::new(false),
            liars: Liars::new(history.clone(), plan.liars),
            env,
            plan,
            history,
            bug,
        })
    }

    /// The peers. The lock is held for moments, never over an await.
    pub fn peers(&self) -> MutexGuard<'_, Vec<PeerSlot>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The authors.
    pub fn authors(&self) -> MutexGuard<'_, Vec<AuthorSlot>> {
        self.authors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of an author as a party on the wires.
    pub(crate) fn author_party(&self, author: usize) -> usize {
        self.plan.peers + author
    }

    /// Surroundings of a new run of a program.
    fn env_of(&self, process: &Arc<Process>, clock: &SkewedClock, slowness: &Slowness) -> Env {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        *runs += 1;
        let seed = Chance::new(self.seed, &format!("run {runs}")).bits();
        let tasks = ProcessTasks {
            process: Arc::clone(process),
            env: self.env.clone(),
            slowness: slowness.clone(),
            chance: Mutex::new(Chance::new(seed, "slow disks")),
            history: self.history.clone(),
        };
        Env {
            clock: Arc::new(clock.clone()),
            entropy: Arc::new(SeededEntropy::new(seed)),
            tasks: Arc::new(tasks),
        }
    }

    /// Ends everything, so that nothing holds itself alive.
    pub fn end(&self) {
        for number in 0..self.plan.peers {
            self.kill_peer(number);
        }
        for author in self.authors().iter_mut() {
            author.end();
        }
    }
}
