//! Real sockets on 127.0.0.1, real TLS, a small service over a map.
#![allow(clippy::unwrap_used, reason = "tests")]

mod flips;
mod golden;
mod golden_keeping;
mod handshake;
mod hostile_callers;
mod hostile_committee;
mod hostile_keepers;
mod hostile_objects;
mod hostile_peers;
mod keeping;
mod memory;
mod objects;
mod other_sockets;
mod pooling;
mod relay;
mod round_trips;
mod signed;
mod stopping;
mod unread;
mod watching;
mod windows;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crypto::{NetworkId, PeerId, PublicKey, SecretKey};
use env::Env;
use env::calls::{Credential, Endpoint};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::paced::Pacing;
use crate::{Client, ClientLimits, Identity, RpcError, Server, ServerLimits};
use memory::Memory;

/// Long enough for a loaded machine; no test waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn secret(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).unwrap()
}

pub(crate) fn network(byte: u8) -> NetworkId {
    NetworkId::new([byte; 32])
}

pub(crate) fn identity(byte: u8, of: u8) -> Arc<Identity> {
    Identity::new(secret(byte), network(of)).unwrap()
}

/// A served librarian.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) key: PublicKey,
    pub(crate) service: Arc<Memory>,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<Result<(), RpcError>>,
}

impl Running {
    /// Key 1 in network 1.
    pub(crate) fn start(limits: ServerLimits) -> Self {
        Self::at("127.0.0.1:0", limits)
    }

    pub(crate) fn at(listen: &str, limits: ServerLimits) -> Self {
        let server = Server::bind(listen, identity(1, 1), limits).unwrap();
        let (service, stop) = (Arc::new(Memory::default()), CancellationToken::new());
        let address = server.address();
        let task = tokio::spawn(server.serve(service.clone(), Env::real(), stop.clone()));
        Self { address, key: secret(1).public(), service, stop, task }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        endpoint(self.address)
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// Key 1 at this address.
pub(crate) fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint::of(PeerId::new(secret(1).public()), address.to_string())
}

/// Key 2 in network 1, without a credential.
pub(crate) fn client() -> Arc<Client> {
    client_with(ClientLimits::default())
}

pub(crate) fn pacing() -> Pacing {
    Pacing::new(Env::real())
}

pub(crate) fn client_with(limits: ClientLimits) -> Arc<Client> {
    Client::new(identity(2, 1), Arc::new(|| Credential::None), Env::real(), limits)
}

#[test]
fn secrets_do_not_print() {
    let text = format!("{:?}", identity(2, 1));
    assert!(!text.contains(&hex::encode([2; 32])), "{text}");
    assert!(text.contains(&secret(2).public().to_string()), "{text}");
}
