//! How many connections of one source are under way at once, and how many strangers are taken from it.
//!
//! What is under way has proven nothing yet, and all of it together is bounded. So whoever opened connections and said nothing would
//! keep everybody else out: a source has no more under way than it leaves free, half of all for the first, then a quarter.
//!
//! What a stranger may do on one connection it could do again on the next, with another key. So of a source so many are taken at once
//! and a second, and none for a while where one did what it may not. Members are taken all the same: many may stand behind one address,
//! with strangers among them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use libp2p::core::Endpoint;
use libp2p::core::multiaddr::Protocol;
use libp2p::core::transport::PortUse;
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm, dummy,
};
use libp2p::{Multiaddr, PeerId};

/// Strangers' connections that are taken of one source at once: an organisation's newcomers may come together.
const STRANGERS_BURST: u32 = 128;
/// Further ones a second.
const STRANGERS_A_SECOND: u32 = 16;
/// Sources that strangers are taken from within a second or so; beyond that none of a further one is.
const TAKEN_MAX: usize = 4_096;
/// Sources that are refused at one time, at most; beyond that the one that would be taken again first is.
const REFUSED_MAX: usize = 1_024;

/// Why a connection is not taken.
#[derive(Debug, thiserror::Error)]
#[error("one source has as many connections under way as it may have")]
struct TooMany;

/// Why another is not.
#[derive(Debug, thiserror::Error)]
#[error("no further stranger is taken from this source for a while")]
struct IsRefused;

/// Who counts as a member now.
pub(super) type IsMember = Box<dyn Fn(&PeerId) -> bool + Send + Sync>;

/// Counts connections that others opened and that are not proven yet, by where they come from.
pub(super) struct Sources {
    max: usize,
    pending: HashMap<ConnectionId, IpAddr>,
    by_source: HashMap<IpAddr, usize>,
    /// Strangers that were taken of late.
    taken: HashMap<IpAddr, u32>,
    /// From where no stranger is taken, and until when.
    refused: HashMap<IpAddr, Duration>,
    is_member: IsMember,
}

impl Sources {
    /// For so many at once.
    pub(super) fn new(max: u32, is_member: IsMember) -> Self {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let (pending, by_source, taken, refused) = Default::default();
        Self { max, pending, by_source, taken, refused, is_member }
    }

    /// Takes no stranger's connection from this source until then.
    pub(super) fn refuse(&mut self, source: IpAddr, until: Duration) {
        if self.refused.len() >= REFUSED_MAX && !self.refused.contains_key(&source) {
            let first = self.refused.iter().min_by_key(|(source, until)| (**until, **source));
            if let Some(first) = first.map(|(source, _)| *source) {
                self.refused.remove(&first);
            }
        }
        self.refused.insert(source, until);
    }

    /// A second has passed: more strangers are taken, and again some from sources whose time is over.
    pub(super) fn review(&mut self, now: Duration) {
        self.refused.retain(|_, until| *until > now);
        self.taken.retain(|_, taken| {
            *taken = taken.saturating_sub(STRANGERS_A_SECOND);
            *taken > 0
        });
    }

    /// Whether one more stranger is taken from this source; it is counted.
    fn takes_stranger(&mut self, source: IpAddr) -> bool {
        let is_full = self.taken.len() >= TAKEN_MAX && !self.taken.contains_key(&source);
        if is_full || self.refused.contains_key(&source) {
            return false;
        }
        let taken = self.taken.entry(source).or_default();
        let takes = *taken < STRANGERS_BURST;
        *taken += u32::from(takes);
        takes
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
        peer: PeerId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.ended(&connection);
        if let Some(source) = source(remote)
            && !(self.is_member)(&peer)
            && !self.takes_stranger(source)
        {
            return Err(ConnectionDenied::new(IsRefused));
        }
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
        let mut sources = Sources::new(32, Box::new(|_| false));
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

    /// Whether the peer's connection from there is taken.
    fn takes(sources: &mut Sources, peer: PeerId, from: &str) -> bool {
        let (here, from) = ("/ip4/192.0.2.1/tcp/1".parse().unwrap(), from.parse().unwrap());
        let connection = ConnectionId::new_unchecked(1);
        sources.handle_established_inbound_connection(connection, peer, &here, &from).is_ok()
    }

    #[test]
    fn strangers_of_one_source_are_taken_at_a_pace() {
        let member = PeerId::random();
        let mut sources = Sources::new(32, Box::new(move |peer| *peer == member));
        let one = "/ip4/198.51.100.7/tcp/4000";
        let strangers = |sources: &mut Sources| {
            (0..1_000).filter(|_| takes(sources, PeerId::random(), one)).count()
        };
        assert_eq!(strangers(&mut sources), 128);
        sources.review(Duration::ZERO);
        assert_eq!(strangers(&mut sources), 16);
        assert!(takes(&mut sources, member, one));
        assert!(takes(&mut sources, PeerId::random(), "/ip4/198.51.100.8/tcp/4000"));
        (0..8).for_each(|_| sources.review(Duration::ZERO));
        assert!(sources.taken.is_empty());
    }

    #[test]
    fn a_source_that_is_refused_has_members_connections_alone_for_a_while() {
        const UNTIL: Duration = Duration::from_secs(60);
        let (member, stranger) = (PeerId::random(), PeerId::random());
        let mut sources = Sources::new(32, Box::new(move |peer| *peer == member));
        let bad = "/ip4/198.51.100.7/tcp/4000";
        sources.refuse([198, 51, 100, 7].into(), UNTIL);
        assert!(!takes(&mut sources, stranger, bad) && takes(&mut sources, member, bad));
        assert!(takes(&mut sources, stranger, "/ip4/198.51.100.8/tcp/4000"));
        sources.review(UNTIL - Duration::from_millis(1));
        assert!(!takes(&mut sources, stranger, bad));
        sources.review(UNTIL);
        assert!(takes(&mut sources, stranger, bad));
    }

    #[test]
    fn sources_that_are_refused_are_bounded() {
        let mut sources = Sources::new(32, Box::new(|_| false));
        let source = |n: usize| IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
        for n in 0..REFUSED_MAX + 2 {
            sources.refuse(source(n), Duration::from_secs(n as u64));
        }
        assert_eq!(sources.refused.len(), REFUSED_MAX);
        let refused = |n| sources.refused.contains_key(&source(n));
        assert!(!refused(0) && !refused(1) && refused(2) && refused(REFUSED_MAX + 1));
    }
}
