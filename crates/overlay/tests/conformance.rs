//! The suite of `testkit::overlay` over both overlays: in memory, and libp2p over real TCP.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use async_trait::async_trait;
use crypto::{NetworkId, PeerId, SecretKey};
use env::{Env, SystemClock};
use overlay::{Libp2p, Libp2pOptions, MemoryMesh, Overlay};
use testkit::overlay::{Harness, Network, Roll};

struct InMemory;
struct OverTcp;

impl Harness for InMemory {
    fn network(&self, roll: &Roll) -> Arc<dyn Network> {
        Arc::new(MemoryNetwork(MemoryMesh::with(Arc::new(SystemClock::new()), roll.members())))
    }
}

struct MemoryNetwork(MemoryMesh);

#[async_trait]
impl Network for MemoryNetwork {
    async fn start(&self, secret: SecretKey) -> Arc<dyn Overlay> {
        self.0.join(PeerId::new(secret.public()))
    }
}

impl Harness for OverTcp {
    fn network(&self, roll: &Roll) -> Arc<dyn Network> {
        Arc::new(TcpNetwork(roll.clone()))
    }
}

struct TcpNetwork(Roll);

#[async_trait]
impl Network for TcpNetwork {
    async fn start(&self, secret: SecretKey) -> Arc<dyn Overlay> {
        let options = Libp2pOptions {
            secret,
            network: NetworkId::new([5; 32]),
            listen: "127.0.0.1:0".to_owned(),
            announce: None,
            members: self.0.members(),
            env: Env::real(),
        };
        Libp2p::start(options).await.unwrap()
    }
}

macro_rules! suite {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                testkit::overlay::$name(&super::InMemory).await;
            })+
        }
        mod libp2p {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                testkit::overlay::$name(&super::OverTcp).await;
            })+
        }
    };
}

suite!(
    everybody_hears_news_once,
    duplicates_are_heard_once,
    a_strangers_envelopes_are_not_heard,
    a_newcomer_is_heard_once_it_is_known,
    a_late_peer_hears_through_one,
    the_first_peer_may_go,
    what_is_too_large_or_empty_is_refused,
    closing_ends_the_stream,
    a_receiver_that_lags_loses_the_oldest,
    a_forgotten_peer_is_not_heard,
);
