//! Authenticated, encrypted connections between members.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use commonware_cryptography::ChaCha20Poly1305;
use commonware_p2p::authenticated::lookup::{Config, Network, Oracle, Receiver, Sender};
use commonware_p2p::utils::mux::{MuxHandle, Muxer, SubReceiver, SubSender};
use commonware_p2p::{Address, AddressableManager as _};
use commonware_runtime::Quota;
use commonware_stream::SakeCups;
use commonware_stream::cups::{self, Cups};
use commonware_stream::sake::{self, Sake};
use commonware_utils::ordered::Map;
use commonware_utils::{NZU32, NZUsize};
use crypto::NetworkId;

use super::charter::{MemberId, MemberSecret};
use super::{Key, Runtime};
use crate::CommitteeError;
use crate::header::BLOCK_BYTES_MAX;

/// The most members of a committee.
pub const MEMBERS_MAX: usize = 32;
/// The longest message between members, in bytes: a block and what stands beside it.
pub(crate) const MESSAGE_BYTES_MAX: usize = BLOCK_BYTES_MAX + (1 << 20);

/// What the connections are made under, before the network's id.
const NAMESPACE: &[u8] = b"holdfast committee links v1";
/// Messages a second of one channel and one peer. Mailboxes for so many are allocated ahead, about 1.2 KiB each.
/// That is why so few at once, and why there is room for about twice the members alone ([`Open::peers_max`]).
const RATE: Quota = Quota::per_second(NZU32!(512)).allow_burst(NZU32!(256));
/// The fewest peers that there is room for: members, those before them, those that are wanted.
const PEERS_MIN: usize = 12;
const MAILBOX: NonZeroUsize = NZUsize!(512);

/// Where the members are.
#[derive(Clone, Debug)]
pub struct Links {
    /// This member's key.
    pub secret: MemberSecret,
    /// Where it listens.
    pub listen: SocketAddr,
    /// All members and where they are reached, this one among them.
    pub members: Vec<(MemberId, SocketAddr)>,
}

type Upgrader = SakeCups<commonware_cryptography::ed25519::PrivateKey, ChaCha20Poly1305>;

/// A channel to all members.
pub(crate) type Channel<E> = (Sender<Key, E>, Receiver<Key>);

/// The connections, not started yet.
pub(crate) struct Open<E: Runtime> {
    network: Network<E, Upgrader>,
    /// Who keeps out a member that breaks the protocol.
    pub(crate) oracle: Oracle<Key>,
    /// How many there is room for.
    pub(crate) peers_max: usize,
}

/// The engine's channels, each divided by epochs.
pub(crate) struct Lines<E: Runtime>([MuxHandle<Sender<Key, E>>; 3]);

/// One of them, of one epoch.
pub(crate) type Line<E> = (SubSender<Sender<Key, E>>, SubReceiver<Key>);

impl<E: Runtime> Lines<E> {
    /// Divides the channels of votes, certificates and what is fetched.
    pub(crate) fn new(context: &E, channels: [Channel<E>; 3]) -> Self {
        Self(channels.map(|(sender, receiver)| {
            let (mux, handle) = Muxer::new(context.child("epochs"), sender, receiver);
            drop(mux.start());
            handle
        }))
    }

    /// Those of an epoch, each once.
    pub(crate) async fn of(&mut self, epoch: u64) -> Result<[Line<E>; 3], CommitteeError> {
        let [votes, certificates, resolver] = &mut self.0;
        let mut lines = Vec::with_capacity(3);
        for one in [votes, certificates, resolver] {
            lines.push(one.register(epoch).await.map_err(|_| CommitteeError::Stopped)?);
        }
        lines.try_into().map_err(|_| CommitteeError::Stopped)
    }
}

impl Links {
    /// Opens so many channels, with room for twice the members: those of the settings, or as many as the state says.
    pub(crate) fn open<E: Runtime>(
        &self,
        context: &E,
        network: &NetworkId,
        purpose: &[u8],
        known: usize,
    ) -> Result<Open<E>, CommitteeError> {
        let count = self.members.len().max(known);
        let max = 2 * MEMBERS_MAX;
        if count > max {
            return Err(CommitteeError::TooLarge { what: "members", found: count, max });
        }
        let handshake = Cups::new(
            Sake {
                signer: self.secret.0.clone(),
                synchrony_bound: Duration::from_secs(30),
                max_handshake_age: Duration::from_secs(60),
                version: sake::Version::V1,
            },
            cups::Version::V1,
        );
        let namespace = [NAMESPACE, network.as_bytes(), purpose].concat();
        let peers_max = (2 * count).max(PEERS_MIN).min(max);
        let most = NonZeroUsize::new(peers_max).unwrap_or(NZUsize!(1));
        let max = MESSAGE_BYTES_MAX as u32;
        // Members know each other's keys: what strangers may try is bounded by the handshakes alone.
        let mut config = Config::local(handshake, &namespace, self.listen, most, max, MAILBOX);
        config.bypass_ip_check = true;
        config.tracked_peer_sets = NZUsize!(1);
        config.peer_connection_cooldown = Duration::from_millis(250);
        // Two that dial each other in step would turn each other away for ever.
        let spread = context.child("dial").next_u64() % 200;
        config.dial_frequency = Duration::from_millis(200 + spread);
        config.allowed_handshake_rate_per_ip = Quota::per_second(NZU32!(64));
        // One address holds 192 of them at most, all of an IPv4 /24 or an IPv6 /48 together 384.
        config.handshake_timeout = Duration::from_secs(3);
        config.max_concurrent_handshakes = NZU32!(4_096);
        config.block_duration = Duration::from_secs(60);
        let (network, mut oracle) = Network::new(context.child("links"), config);
        let _ = oracle.track(0, addresses(&self.members));
        Ok(Open { network, oracle, peers_max })
    }
}

/// Where members are, as the connections take it; what is no key is left out.
pub(super) fn addresses(members: &[(MemberId, SocketAddr)]) -> Map<Key, Address> {
    let one = |(member, address): &(MemberId, SocketAddr)| {
        Some((member.key().ok()?, Address::from(*address)))
    };
    Map::from_iter_dedup(members.iter().filter_map(one))
}

impl<E: Runtime> Open<E> {
    /// Opens a channel.
    pub(crate) fn channel(&mut self, number: u64) -> Channel<E> {
        self.network.register(number, RATE)
    }

    /// Connects.
    pub(crate) fn start(self) {
        drop(self.network.start());
    }
}
