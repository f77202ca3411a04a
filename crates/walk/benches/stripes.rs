//! What the walk itself costs for a stripe, beside the same calls without it: `cargo bench -p walk`.
//!
//! Peers are in this process, answer at once and hold fragments of some dozen bytes, so what is measured is choosing, racing,
//! proving and noting. Microseconds are the thread's own processor time for one stripe, the least of some rounds; the
//! *calls alone* are the calls that the walk cannot do without, made one after the other.
#![allow(clippy::unwrap_used, reason = "a program that stops at the first failure")]
#![allow(missing_docs, reason = "a program")]

use std::sync::Arc;
use std::time::Duration;

use crypto::PeerId;
use document::Striped;
use env::Env;
use env::calls::{Calls, Endpoint, FindRequest};
use rustix::time::{ClockId, clock_gettime};
use testkit::network::{Community, DirectNetwork, Fault, community, key, stripe};
use walk::{Directory, StripeRecords, StripeShape, WalkOptions, Walker};

const ROUNDS: usize = 5;
const STRIPES: usize = 20;
const LIMIT: Duration = Duration::from_secs(10);
/// Peers, k and n: the rows of the table of profiles.
const ROWS: [(usize, usize, usize); 3] = [(9, 4, 8), (32, 8, 24), (64, 16, 48)];

struct Bench {
    community: Community,
    network: Arc<DirectNetwork>,
    directory: Arc<Directory>,
    calls: Arc<dyn Calls>,
    walker: Arc<Walker>,
    stripes: Vec<Striped>,
}

impl Bench {
    fn new(env: &Env, (peers, k, n): (usize, usize, usize)) -> Self {
        let community = community(4, peers);
        let (network, _) = community.network(env);
        let directory = Directory::new(community.genesis.clone(), env.clone(), None);
        directory.learn_from(&community.known());
        let calls = network.calls(key("client", 0).public());
        let options = WalkOptions::default();
        let walker = Walker::new(env.clone(), calls.clone(), directory.clone(), options);
        let stripes = (0..STRIPES).map(|number| stripe(number, k, n, 18)).collect();
        Self { community, network, directory, calls, walker, stripes }
    }

    fn holders(&self, striped: &Striped) -> Vec<(PeerId, Endpoint)> {
        let view = self.directory.view();
        let holders = view.holders(&striped.header.place, striped.fragments.len());
        let at = |peer: &PeerId| self.directory.endpoint(peer).unwrap();
        holders.iter().map(|peer| (*peer, at(peer))).collect()
    }

    async fn store_alone(&self, striped: &Striped) {
        for (fragment, (_, to)) in striped.fragments.iter().zip(self.holders(striped)) {
            let both = vec![striped.header.clone(), fragment.clone()];
            self.calls.store_batch(&to, both, LIMIT).await.unwrap();
        }
    }

    async fn store(&self, striped: &Striped) {
        let Striped { header, fragments, .. } = striped.clone();
        let threshold = fragments.len() as u32;
        let records = StripeRecords { header, fragments, threshold };
        self.walker.store_stripe(records).await.unwrap();
    }

    async fn fetch_alone(&self, striped: &Striped) {
        let k = striped.stripe.k() as usize;
        for (fragment, (_, to)) in striped.fragments[..k].iter().zip(self.holders(striped)) {
            let request = FindRequest { id: fragment.id, place: fragment.place };
            self.calls.find(&to, request, LIMIT).await.unwrap();
        }
    }

    async fn fetch(&self, striped: &Striped) {
        let shape = StripeShape::new(striped.header.id, &striped.stripe);
        let fetched = self.walker.fetch_stripe(&shape, 0..shape.k).await.unwrap();
        assert_eq!(fetched.fragments.len(), shape.k);
    }
}

fn cpu_us() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

/// Microseconds a stripe, the least of the rounds.
macro_rules! timed {
    ($bench:expr, $method:ident) => {{
        let mut least = f64::MAX;
        for _ in 0..ROUNDS {
            let since = cpu_us();
            for striped in &$bench.stripes {
                $bench.$method(striped).await;
            }
            least = least.min((cpu_us() - since) / STRIPES as f64);
        }
        least
    }};
}

fn main() {
    println!("microseconds a stripe: the walk (the calls alone)");
    for row in ROWS {
        testkit::time::run(1, |env| async move {
            let bench = Bench::new(&env, row);
            let stores = (timed!(bench, store_alone), timed!(bench, store));
            let fetches = (timed!(bench, fetch_alone), timed!(bench, fetch));
            // Half of the parity's number of peers is gone, and known to be.
            let (peers, k, n) = row;
            for member in bench.community.members.iter().take((n - k) / 2) {
                bench.network.set(&member.peer, Fault::Down);
            }
            for striped in &bench.stripes {
                bench.fetch(striped).await;
            }
            let degraded = timed!(bench, fetch);
            println!(
                "{k}/{n} at {peers} peers: store {:.0} ({:.0}), fetch {:.0} ({:.0}), fetch around {} lost peers {:.0}",
                stores.1,
                stores.0,
                fetches.1,
                fetches.0,
                (n - k) / 2,
                degraded,
            );
        });
    }
}
