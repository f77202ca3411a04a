//! Accepts connections: counted by source and in all, TLS within a deadline, a proven key, the
//! network's protocol.
//!
//! What does not get that far is dropped without a word and costs at most one seat for
//! [`ServerLimits::handshake`]. A stalled or garbled handshake holds no other: each has a task of
//! its own, and a permit is taken before `accept`, so what is beyond waits in the kernel's queue.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use env::Env;
use env::calls::Caller;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Peer, source};
use crate::identity::PLAIN_PROTOCOL;
use crate::limits::{BATCH_MESSAGE_BYTES_MAX, ServerLimits};
use crate::socket::{self, Tcp};
use crate::{Identity, RpcError, verifier};

/// After a failed `accept` (no descriptors left) the next try is this much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The counted seats of all connections.
#[derive(Default)]
struct Seats {
    all: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// One connection's seat, until dropped.
pub(super) struct Seat {
    seats: Arc<Mutex<Seats>>,
    source: IpAddr,
}

impl Seat {
    fn take(seats: &Arc<Mutex<Seats>>, source: IpAddr, limits: &ServerLimits) -> Option<Self> {
        let mut counted = seats.lock().unwrap_or_else(PoisonError::into_inner);
        let of_source = counted.by_source.get(&source).copied().unwrap_or(0);
        if counted.all >= limits.connections || of_source >= limits.connections_per_source {
            return None;
        }
        counted.all += 1;
        counted.by_source.insert(source, of_source + 1);
        Some(Self { seats: seats.clone(), source })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counted = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        counted.all -= 1;
        if let Some(of_source) = counted.by_source.get_mut(&self.source) {
            *of_source -= 1;
            if *of_source == 0 {
                counted.by_source.remove(&self.source);
            }
        }
    }
}

/// What a connection proves before it is served.
pub(super) enum Proof {
    /// Both sides their keys, and the network.
    Mutual(Arc<Identity>),
    /// This side its key; each request proves the caller's.
    Alone(Arc<Identity>),
    /// Nothing: plain TCP.
    Nothing,
}

/// Turns TCP connections into proven ones.
pub(super) struct Acceptor {
    /// With the protocol that must be agreed on.
    tls: Option<(TlsAcceptor, Vec<u8>)>,
    /// Whether the caller proves a key here.
    mutual: bool,
    env: Env,
    limits: ServerLimits,
    seats: Arc<Mutex<Seats>>,
    handshakes: Arc<Semaphore>,
    /// Cancelled when all connections must end.
    closed: CancellationToken,
}

impl Acceptor {
    pub(super) fn new(
        proof: &Proof,
        env: Env,
        limits: ServerLimits,
        closed: CancellationToken,
    ) -> Result<Arc<Self>, RpcError> {
        let tls = match proof {
            Proof::Mutual(identity) => Some((identity.listening()?, identity.protocol())),
            Proof::Alone(identity) => Some((identity.listening_alone()?, PLAIN_PROTOCOL.to_vec())),
            Proof::Nothing => None,
        };
        let acceptor = |(config, protocol)| (TlsAcceptor::from(Arc::new(config)), protocol);
        Ok(Arc::new(Self {
            tls: tls.map(acceptor),
            mutual: matches!(proof, Proof::Mutual(_)),
            env,
            limits,
            seats: Arc::default(),
            handshakes: Arc::new(Semaphore::new(limits.handshakes)),
            closed,
        }))
    }

    /// Accepts until `stop`; then the listener is closed and handshakes under way are dropped.
    pub(super) async fn run(
        self: Arc<Self>,
        listener: TcpListener,
        ready: Sender<io::Result<Connection>>,
        stop: CancellationToken,
    ) {
        let mut under_way = JoinSet::new();
        loop {
            let next = tokio::select! {
                () = stop.cancelled() => break,
                next = self.next(&listener) => next,
            };
            while under_way.try_join_next().is_some() {}
            match next {
                Ok(Some((tcp, seat, permit))) => {
                    let (this, ready) = (self.clone(), ready.clone());
                    under_way.spawn(async move {
                        let proven = this.prove(tcp, seat).await;
                        drop(permit);
                        if let Some(connection) = proven {
                            // Only a server that is gone does not take it.
                            let _ = ready.send(Ok(connection)).await;
                        }
                    });
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    self.env.clock.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// The next connection that has a seat; `None` where it has none.
    async fn next(
        &self,
        listener: &TcpListener,
    ) -> io::Result<Option<(TcpStream, Seat, OwnedSemaphorePermit)>> {
        let Ok(permit) = self.handshakes.clone().acquire_owned().await else { return Ok(None) };
        let (tcp, address) = listener.accept().await?;
        let seat = Seat::take(&self.seats, source(address.ip()), &self.limits);
        if seat.is_none() {
            tracing::debug!(%address, "too many connections");
        }
        Ok(seat.map(|seat| (tcp, seat, permit)))
    }

    async fn prove(&self, tcp: TcpStream, seat: Seat) -> Option<Connection> {
        let tcp = socket::tcp(tcp).ok()?;
        let (socket, caller) = match &self.tls {
            None => (Either::Right(tcp), None),
            Some((acceptor, protocol)) => {
                let tls = self.handshake(acceptor, protocol, tcp).await?;
                let caller = if self.mutual { Some(caller(&tls)?) } else { None };
                (Either::Left(tls), caller)
            }
        };
        let share = (self.limits.request_bytes_in_flight / 4).max(BATCH_MESSAGE_BYTES_MAX);
        let peer = Peer { caller, bytes: Arc::new(Semaphore::new(share)) };
        let closed = Box::pin(self.closed.clone().cancelled_owned());
        Some(Connection { socket, peer, closed, _seat: seat })
    }

    async fn handshake(
        &self,
        acceptor: &TlsAcceptor,
        protocol: &[u8],
        tcp: Tcp,
    ) -> Option<TlsStream<Tcp>> {
        let handshake =
            acceptor.accept_with(tcp, |tls| tls.set_buffer_limit(Some(socket::TLS_WRITE_BYTES)));
        let tls = match self.env.within(self.limits.handshake, handshake).await {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a handshake failed");
                return None;
            }
            Err(_) => return None,
        };
        // A caller that offers no protocol at all passes the handshake; here it does not.
        if tls.get_ref().1.alpn_protocol() != Some(protocol) {
            return None;
        }
        Some(tls)
    }
}

/// The key that a caller proved in the handshake.
fn caller(tls: &TlsStream<Tcp>) -> Option<Caller> {
    let (certificate, others) = tls.get_ref().1.peer_certificates()?.split_first()?;
    Some(Caller { key: verifier::key_of(certificate, others).ok()? })
}
