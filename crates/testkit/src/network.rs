//! A network without wires: calls go straight to services in the same process, with faults set for each peer.
//!
//! ```
//! use testkit::network::{Fault, community};
//!
//! testkit::time::run(1, |env| async move {
//!     let community = community(3, 9);
//!     let (network, peers) = community.network(&env);
//!     network.set(&community.peer(4), Fault::Hang);
//!     let calls = network.calls(testkit::network::key("client", 0).public());
//!     // A walker or an author over `calls` meets nine peers, one of which hangs.
//!     assert_eq!(peers.len(), 9);
//!     # drop(calls);
//! });
//! ```
//! Everything goes by the clock of the `env` it was made with: under [`crate::time::run`] a hanging peer costs no time.

mod community;
mod direct;
mod fault;
mod line;
mod memory_peer;
mod records;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crypto::{PeerId, PublicKey};
use env::Env;
use env::calls::leases::{LeaseAnswer, LeaseRequest};
use env::calls::{CallError, Calls, Service};

pub use community::{Community, CommunityOptions, Member, community, key};
pub use direct::DirectCalls;
use fault::flipped;
pub use fault::{Counts, Fault};
use line::Lines;
pub use memory_peer::MemoryPeer;
pub use records::{envelope, noise, page, stripe, stripe_of};

/// Services by their addresses, and what is wrong with each.
pub struct DirectNetwork {
    env: Env,
    hosts: Mutex<BTreeMap<String, Host>>,
    lines: Mutex<Lines>,
}

/// What a peer answers about leases instead of the honest answer. It is asked before the request is served, with no answer:
/// where it says something the peer does nothing; and then with the honest answer. `None`: as it is.
pub type LeaseLie = Arc<
    dyn Fn(&LeaseRequest, Option<&LeaseAnswer>) -> Option<Result<LeaseAnswer, CallError>>
        + Send
        + Sync,
>;

#[derive(Clone)]
struct Host {
    peer: PeerId,
    service: Arc<dyn Service>,
    fault: Fault,
    lie: Option<LeaseLie>,
    counts: Counts,
}

impl DirectNetwork {
    /// A network of nobody.
    pub fn new(env: Env) -> Arc<Self> {
        Arc::new(Self { env, hosts: Mutex::default(), lines: Mutex::default() })
    }

    /// Lets a peer answer at an address, in place of who did before.
    pub fn serve(&self, address: &str, peer: PeerId, service: Arc<dyn Service>) {
        let (fault, counts) = (Fault::None, Counts::default());
        let host = Host { peer, service, fault, lie: None, counts };
        self.hosts().insert(address.to_owned(), host);
    }

    /// Takes whoever answers at an address off the network: calls to it are refused.
    pub fn remove(&self, address: &str) {
        self.hosts().remove(address);
    }

    /// The network as the holder of this key calls into it.
    pub fn calls(self: &Arc<Self>, caller: PublicKey) -> Arc<dyn Calls> {
        Arc::new(DirectCalls::new(self.clone(), caller))
    }

    /// Sets what is wrong with a peer from its next call on, at all its addresses.
    pub fn set(&self, peer: &PeerId, fault: Fault) {
        for host in self.hosts().values_mut().filter(|host| host.peer == *peer) {
            host.fault = fault.clone();
        }
    }

    /// Lets a peer answer otherwise about leases, at all its addresses.
    pub fn lie_of_leases(&self, peer: &PeerId, lie: LeaseLie) {
        for host in self.hosts().values_mut().filter(|host| host.peer == *peer) {
            host.lie = Some(Arc::clone(&lie));
        }
    }

    /// Makes every peer well.
    pub fn heal(&self) {
        for host in self.hosts().values_mut() {
            (host.fault, host.lie) = (Fault::None, None);
        }
    }

    /// Waits where a peer with this fault sends records late.
    async fn late(&self, fault: &Fault) {
        if let Fault::LateRecords(late) = fault {
            self.env.clock.sleep(*late).await;
        }
    }

    fn lie_at(&self, address: &str) -> Option<LeaseLie> {
        self.hosts().get(address).and_then(|host| host.lie.clone())
    }

    /// The calls that reached a peer, at its first address.
    pub fn counts(&self, peer: &PeerId) -> Counts {
        let hosts = self.hosts();
        let host = hosts.values().find(|host| host.peer == *peer);
        host.map(|host| host.counts).unwrap_or_default()
    }

    /// Calls that reached anybody.
    pub fn total(&self) -> u64 {
        self.hosts().values().map(|host| host.counts.total()).sum()
    }

    fn hosts(&self) -> MutexGuard<'_, BTreeMap<String, Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
