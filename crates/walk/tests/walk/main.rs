//! Walks over a network without wires, in virtual time: each test is one seeded run.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(missing_docs, reason = "tests")]

mod batch;
mod directory;
mod find;
mod health;
mod join;
mod property;
mod reach;
mod rosters;
mod slow_line;
mod store;
mod stripe_fetch;
mod stripe_property;
mod stripe_store;
mod through;

use std::sync::Arc;
use std::time::Duration;

use crypto::{PeerId, PeerState, Place, Suite};
use document::Record;
use env::Env;
use placement::Redundancy;
use testkit::network::{Community, DirectNetwork, Fault, MemoryPeer, community, key, page};
use walk::{Directory, WalkOptions, Walker};

/// What a page has in a small network.
const PAGES: Redundancy = Redundancy { copies: 3, acknowledged: 2 };
/// Long enough for any walk to end.
const LONG: Duration = Duration::from_secs(120);

/// A community, all of it up, and a walker that knows everybody.
struct Stage {
    community: Community,
    network: Arc<DirectNetwork>,
    peers: Vec<Arc<MemoryPeer>>,
    directory: Arc<Directory>,
    walker: Arc<Walker>,
}

impl Stage {
    fn new(env: &Env, organisations: usize, peers: usize) -> Self {
        let community = community(organisations, peers);
        let (network, peers) = community.network(env);
        let directory = Directory::new(community.genesis.clone(), env.clone(), None);
        assert_eq!(directory.learn_from(&community.known()).new, peers.len());
        let calls = network.calls(key("client", 0).public());
        let walker = Walker::new(env.clone(), calls, directory.clone(), WalkOptions::default());
        Self { community, network, peers, directory, walker }
    }

    /// The peers of a place, best first, as numbers of the community.
    fn rank(&self, place: &Place) -> Vec<usize> {
        let rank = self.directory.view().rank(place);
        rank.iter().map(|peer| self.number(peer)).collect()
    }

    fn number(&self, peer: &PeerId) -> usize {
        self.community.members.iter().position(|member| member.peer == *peer).unwrap()
    }

    fn peer(&self, number: usize) -> PeerId {
        self.community.peer(number)
    }

    fn set(&self, number: usize, fault: Fault) {
        self.network.set(&self.peer(number), fault);
    }

    fn holders(&self, record: &Record) -> Vec<usize> {
        let numbers = 0..self.peers.len();
        numbers.filter(|number| self.peers[*number].holds(&record.id)).collect()
    }

    fn announce(&self, number: usize, state: PeerState, sequence: u64) {
        let announcement = self.community.announce(number, state, sequence);
        self.directory.learn(&announcement).unwrap();
    }
}

fn small(number: usize) -> Record {
    page(Suite::Holdfast1, number, 1_000)
}
