//! How many connections of one source are under way at once.
//!
//! What is under way has proven nothing yet, and all of it together is bounded. So whoever opened connections and said nothing would
//! keep everybody else out: a source has no more under way than it leaves free, half of all for the first, then a quarter.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::task::{Context, Poll};

use libp2p::core::Endpoint;
use libp2p::core::multiaddr::Protocol;
use libp2p::core::transport::PortUse;
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm, dummy,
};
use libp2p::{Multiaddr, PeerId};

/// Why a connection is not taken.
#[derive(Debug, thiserror::Error)]
#[error("one source has as many connections under way as it may have")]
struct TooMany;

/// Counts connections that others opened and that are not proven yet, by where they come from.
pub(super) struct Sources {
    max: usize,
    pending: HashMap<ConnectionId, IpAddr>,
    by_source: HashMap<IpAddr, usize>,
}

impl Sources {
    /// For so many at once.
    pub(super) fn new(max: u32) -> Self {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        Self { max, pending: HashMap::new(), by_source: HashMap::new() }
    }

    fn ended(&mut self, connection: &ConnectionId) {
        let Some(source) = self.pending.remove(connection) else { return };
        if let Some(count) = self.by_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.by_source.remove(&source);
            }
        }
    }
}

/// Where an address is, as it is counted: an IPv6 /64 is one household.
pub(super) fn source(address: &Multiaddr) -> Option<IpAddr> {
    address.iter().find_map(|part| match part {
        Protocol::Ip4(address) => Some(address.into()),
        Protocol::Ip6(address) => Some(match IpAddr::from(address).to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
            v4 => v4,
        }),
        _ => None,
    })
}

impl NetworkBehaviour for Sources {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        let Some(source) = source(remote) else { return Ok(()) };
        let count = self.by_source.get(&source).copied().unwrap_or(0);
        if count >= self.max.saturating_sub(self.pending.len()) {
            return Err(ConnectionDenied::new(TooMany));
        }
        self.pending.insert(connection, source);
        *self.by_source.entry(source).or_default() += 1;
        Ok(())
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.ended(&connection);
        Ok(dummy::ConnectionHandler)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(dummy::ConnectionHandler)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        if let FromSwarm::ListenFailure(failure) = event {
            self.ended(&failure.connection_id);
        }
    }

    fn on_connection_handler_event(
        &mut self,
        _: PeerId,
        _: ConnectionId,
        event: THandlerOutEvent<Self>,
    ) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn one_source_leaves_room_for_others_links() {
        let mut sources = Sources::new(32);
        let here: Multiaddr = "/ip4/192.0.2.1/tcp/1".parse().unwrap();
        let mut next = 0;
        let mut open = |sources: &mut Sources, from: &str| {
            next += 1;
            let connection = ConnectionId::new_unchecked(next);
            let from = from.parse().unwrap();
            let taken = sources.handle_pending_inbound_connection(connection, &here, &from);
            taken.is_ok().then_some(connection)
        };
        let first = "/ip4/198.51.100.7/tcp/4000";
        let mut held: Vec<ConnectionId> =
            (0..100).filter_map(|_| open(&mut sources, first)).collect();
        assert_eq!(held.len(), 16);
        // Households of IPv6 are one source each.
        let of = |n: usize| format!("/ip6/2001:db8::{n:x}/tcp/4000");
        assert_eq!((1..100).filter_map(|n| open(&mut sources, &of(n))).count(), 8);
        assert!(open(&mut sources, "/ip4/203.0.113.1/tcp/1").is_some());
        // What is proven is not under way any more.
        let peer = PeerId::random();
        for connection in held.drain(..) {
            let at = first.parse().unwrap();
            sources.handle_established_inbound_connection(connection, peer, &here, &at).unwrap();
        }
        assert!(open(&mut sources, first).is_some());
        assert_eq!(sources.by_source.values().sum::<usize>(), sources.pending.len());
    }
}
