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
mod memory_peer;
mod records;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crypto::{PeerId, PublicKey};
use env::Env;
use env::calls::{Calls, Service};

pub use community::{Community, CommunityOptions, Member, community, key};
pub use direct::DirectCalls;
use fault::flipped;
pub use fault::{Counts, Fault};
pub use memory_peer::MemoryPeer;
pub use records::{envelope, noise, page, stripe};

/// Services by their addresses, and what is wrong with each.
pub struct DirectNetwork {
    env: Env,
    hosts: Mutex<BTreeMap<String, Host>>,
}

#[derive(Clone)]
struct Host {
    peer: PeerId,
    service: Arc<dyn Service>,
    fault: Fault,
    counts: Counts,
}

impl DirectNetwork {
    /// A network of nobody.
    pub fn new(env: Env) -> Arc<Self> {
        Arc::new(Self { env, hosts: Mutex::default() })
    }

    /// Lets a peer answer at an address, in place of who did before.
    pub fn serve(&self, address: &str, peer: PeerId, service: Arc<dyn Service>) {
        let host = Host { peer, service, fault: Fault::None, counts: Counts::default() };
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

    /// Makes every peer well.
    pub fn heal(&self) {
        self.hosts().values_mut().for_each(|host| host.fault = Fault::None);
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
