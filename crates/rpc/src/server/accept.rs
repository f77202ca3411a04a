//! Accepts connections: counted by source and in all, TLS within a deadline, a proven key, the
//! network's protocol.
//!
//! What does not get that far is dropped without a word and costs at most one seat for three times
//! [`ServerLimits::handshake`]: while it waits for its turn, in the handshake, and until HTTP/2 begins.
//! Where all seats are taken, who has most of them makes room ([`super::seats`]).
//! A stalled or garbled handshake holds no other: each has a task of its own. Of those under way a source has no more than it
//! leaves free ([`super::share`]); its others wait for them, and nobody else does.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use env::Env;
use env::calls::Caller;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Houses, Peer, Preface, source};
use super::members::Members;
use super::seats::{Hall, HallSeat};
use super::share::Room;
use crate::identity::PLAIN_PROTOCOL;
use crate::limits::ServerLimits;
use crate::paced::{Pace, Paced};
use crate::socket::{self, Listener, Tcp, Wire};
use crate::{Identity, RpcError, verifier};

/// After a failed `accept` (no descriptors left) the next try is this much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Failures are told this often at most: where one try fails, the next ones do too.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// Where proven connections go: by the width of their windows.
#[derive(Clone)]
pub(super) struct Ready {
    pub(super) narrow: Sender<io::Result<Connection>>,
    pub(super) wide: Sender<io::Result<Connection>>,
}

impl Ready {
    async fn send(&self, connection: Connection) {
        let to = if connection.wide.is_some() { &self.wide } else { &self.narrow };
        // Only a server that is gone does not take it.
        let _ = to.send(Ok(connection)).await;
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

/// A connection that was accepted and has a seat.
struct Seated {
    wire: Wire,
    place: HallSeat<IpAddr>,
    /// Ends it.
    ends: CancellationToken,
}

/// Turns TCP connections into proven ones.
pub(super) struct Acceptor {
    /// With the protocol that must be agreed on.
    tls: Option<(TlsAcceptor, Vec<u8>)>,
    /// Whether the caller proves a key here.
    mutual: bool,
    env: Env,
    limits: ServerLimits,
    hall: Arc<Hall<IpAddr>>,
    members: Arc<Members>,
    houses: Houses<IpAddr>,
    handshakes: Arc<Room>,
    /// What strangers send that carries nothing.
    strangers: Arc<Pace>,
    /// Cancelled when all connections must end.
    closed: CancellationToken,
}

impl Acceptor {
    pub(super) fn new(
        proof: &Proof,
        env: Env,
        limits: ServerLimits,
        members: Arc<Members>,
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
            hall: Hall::new(limits.connections, limits.connections_per_source),
            members,
            houses: Houses::default(),
            handshakes: Room::new(limits.handshakes),
            strangers: Arc::new(Pace::of_strangers()),
            closed,
        }))
    }

    /// Accepts until `stop`; then the listener is closed and handshakes under way are dropped.
    pub(super) async fn run(
        self: Arc<Self>,
        listener: Listener,
        ready: Ready,
        stop: CancellationToken,
    ) {
        let mut under_way = JoinSet::new();
        let mut told = Told::default();
        loop {
            let next = tokio::select! {
                () = stop.cancelled() => break,
                next = self.next(&listener) => next,
            };
            while under_way.try_join_next().is_some() {}
            match next {
                Ok(Some(seated)) => {
                    let (this, ready) = (self.clone(), ready.clone());
                    under_way.spawn(async move {
                        let ends = seated.ends.clone();
                        let proven = ends.run_until_cancelled(this.prove(seated)).await;
                        if let Some(connection) = proven.flatten() {
                            ready.send(connection).await;
                        }
                    });
                }
                Ok(None) => {}
                Err(error) => {
                    if told.is_due(self.env.clock.elapsed()) {
                        tracing::warn!(%error, "cannot accept a connection");
                    }
                    self.env.clock.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// The next connection that has a seat; `None` where it has none.
    async fn next(&self, listener: &Listener) -> io::Result<Option<Seated>> {
        let (wire, address) = listener.accept().await?;
        let ends = self.closed.child_token();
        let place = self.hall.seat(source(address.ip()), &ends);
        if place.is_none() {
            tracing::debug!(%address, "too many connections");
        }
        Ok(place.map(|place| Seated { wire, place, ends }))
    }

    async fn prove(&self, seated: Seated) -> Option<Connection> {
        let Seated { wire, mut place, ends } = seated;
        let tcp = wire.buffered().ok()?;
        let house = self.houses.of(place.source);
        let (of, env) = (house.share.handshakes.clone(), self.env.clone());
        let turn = self.handshakes.clone().within(of, 1, env, self.limits.handshake).await.ok()?;
        let (socket, caller) = match &self.tls {
            None => (Either::Right(tcp), None),
            Some((acceptor, protocol)) => {
                let tls = self.handshake(acceptor, protocol, tcp).await?;
                let caller = if self.mutual { Some(caller(&tls)?) } else { None };
                (Either::Left(tls), caller)
            }
        };
        drop(turn);
        let now = self.env.clock.elapsed();
        let member =
            caller.and_then(|caller| Some((caller.key, self.members.voucher(caller, now)?)));
        let wide = member.and_then(|(key, of)| self.members.wide(of, key, &ends));
        if wide.is_some() {
            place.is_a_members();
        }
        let source = house;
        let house = member.map_or_else(|| source.clone(), |(key, _)| self.members.house(key));
        let closed = Box::pin(ends.clone().cancelled_owned());
        let preface = Some(Preface::until(self.env.clock.sleep(self.limits.handshake)));
        let stranger = member.is_none();
        let paced = Paced::new(self.env.clone(), stranger.then(|| self.strangers.clone()));
        let peer = Peer { caller, house, source, stranger, ends };
        Some(Connection { socket, peer, closed, preface, paced, wide, _place: place })
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

/// When a failure was told last.
#[derive(Default)]
struct Told(Option<Duration>);

impl Told {
    /// Whether one is to be told now; it is taken for told then.
    fn is_due(&mut self, now: Duration) -> bool {
        let due = self.0.is_none_or(|last| now.saturating_sub(last) >= TOLD_EVERY);
        if due {
            self.0 = Some(now);
        }
        due
    }
}

/// The key that a caller proved in the handshake.
fn caller(tls: &TlsStream<Tcp>) -> Option<Caller> {
    let (certificate, others) = tls.get_ref().1.peer_certificates()?.split_first()?;
    Some(Caller { key: verifier::key_of(certificate, others).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_told_every_few_seconds() {
        let mut told = Told::default();
        let tries = (0..400).map(|number| ACCEPT_PAUSE * number);
        assert_eq!(tries.filter(|now| told.is_due(*now)).count(), 4, "in 20 s");
    }
}
