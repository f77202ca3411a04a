//! The one task that owns the swarm: events in, dials and news out.
//!
//! Nothing here waits for a peer: dialling, looking up names and sending are begun and their ends
//! arrive as events. Once a second it reviews the links, dials what is missing, and sends what
//! could not be sent for lack of links; while news waits for its signer, five times a second.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::OrgId;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use libp2p::gossipsub::{self, IdentTopic, MessageAcceptance, PublishError};
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{ConnectionError, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm, identify, kad, ping};
use tokio::sync::{mpsc, oneshot};

use super::behaviour::{Behaviour, BehaviourEvent, Names};
use super::closing;
use super::directory::{Directory, FULL_MESH_MAX, LINKS_WANTED};
use super::intake::{Arrival, FLOODS_FOR, Intake, Trust, Verdict};
use super::links::Links;
use super::sources::source;
use super::{Shared, identity};
use crate::told::Told;
use crate::{News, OverlayError};

/// News that waits for a first link, at most; beyond that the oldest is given up.
const UNSENT_MAX: usize = 64;
/// How long it waits.
const UNSENT_FOR: Duration = Duration::from_secs(60);
/// Names that are looked up at one time.
const LOOKUPS_MAX: usize = 8;
const LOOKUP_FOR: Duration = Duration::from_secs(5);
const REVIEW_EVERY: Duration = Duration::from_secs(1);
const WAITING_REVIEW_EVERY: Duration = Duration::from_millis(200);
/// How often others are asked for peers while links are missing and nobody is left to dial.
const ASK_EVERY: Duration = Duration::from_secs(20);
/// How long news that was published just before `close` may still travel.
const FLUSH_FOR: Duration = Duration::from_millis(250);

/// What the owner asks of the task.
pub(super) enum Command {
    Publish(Vec<News>, oneshot::Sender<Result<usize, OverlayError>>),
    Close,
}

pub(super) struct Engine {
    pub(super) swarm: Swarm<Behaviour>,
    pub(super) names: Names,
    pub(super) shared: Arc<Shared>,
    pub(super) directory: Directory,
    pub(super) links: Links,
    pub(super) intake: Intake,
    pub(super) unsent: VecDeque<(Duration, Vec<u8>)>,
    pub(super) dialling: HashSet<PeerId>,
    pub(super) lookups: FuturesUnordered<BoxFuture<'static, (PeerId, Vec<Multiaddr>)>>,
    pub(super) asked: Duration,
}

impl Engine {
    /// Runs until the owner closes it or is gone.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        self.review();
        let mut beat = self.shared.env.clock.beat(REVIEW_EVERY);
        loop {
            tokio::select! {
                event = self.swarm.select_next_some() => self.event(event),
                command = commands.recv() => match command {
                    Some(Command::Publish(news, reply)) => {
                        let _ = reply.send(self.publish(news));
                    }
                    Some(Command::Close) | None => break,
                },
                () = self.shared.changed.notified() => self.take_learnt(),
                Some((peer, found)) = self.lookups.next() => self.dial_at(peer, found),
                () = &mut beat => {
                    self.review();
                    beat = self.shared.env.clock.beat(REVIEW_EVERY);
                }
                () = tokio::time::sleep(WAITING_REVIEW_EVERY), if self.intake.is_waiting() => {
                    self.review_waiting();
                }
            }
        }
        self.close().await;
    }

    /// Lets what was published last leave, then closes every connection.
    async fn close(mut self) {
        let flushed = tokio::time::sleep(FLUSH_FOR);
        tokio::pin!(flushed);
        loop {
            tokio::select! {
                _ = self.swarm.select_next_some() => {}
                () = &mut flushed => break,
            }
        }
        self.shared.set_links(0);
        self.shared.inboxes.close();
    }

    fn now(&self) -> Duration {
        self.shared.env.clock.elapsed()
    }

    fn is_member(&self, peer: &PeerId) -> bool {
        self.shared.organisation_at(peer).is_some()
    }

    // Links.

    fn event(&mut self, event: SwarmEvent<super::behaviour::BehaviourEvent>) {
        match event {
            SwarmEvent::Behaviour(event) => self.protocol_event(event),
            SwarmEvent::ConnectionEstablished { peer_id, endpoint, .. } => {
                self.opened(peer_id, source(endpoint.get_remote_address()));
            }
            SwarmEvent::ConnectionClosed { peer_id, endpoint, num_established, cause, .. } => {
                if cause.as_ref().is_some_and(closing::opened_too_many) {
                    self.refuse(peer_id, source(endpoint.get_remote_address()));
                }
                if num_established == 0 {
                    self.closed(peer_id, cause.as_ref());
                }
            }
            SwarmEvent::OutgoingConnectionError { peer_id: Some(peer), error, .. } => {
                tracing::debug!(%peer, %error, "overlay dial failed");
                self.dialling.remove(&peer);
                self.back_off(&peer);
            }
            SwarmEvent::NewListenAddr { address, .. } => self.shared.listens(address),
            SwarmEvent::ExpiredListenAddr { address, .. } => self.shared.expired(&address),
            SwarmEvent::ListenerClosed { reason: Err(error), .. }
            | SwarmEvent::ListenerError { error, .. } => {
                tracing::warn!(%error, "overlay listener");
            }
            _ => {}
        }
    }

    fn opened(&mut self, peer: PeerId, source: Option<IpAddr>) {
        self.dialling.remove(&peer);
        self.directory.linked(&peer);
        let now = self.now();
        let known = self.shared.id_of(&peer);
        let wanted = known.is_some_and(|known| !self.shared.is_forgotten(&known))
            && !self.intake.is_flooding(&peer, now);
        let organisation = self.shared.organisation_at(&peer);
        let close = match wanted {
            true => self.links.opened(peer, source, organisation, now),
            false => Some(peer),
        };
        if let Some(close) = close {
            let _ = self.swarm.disconnect_peer_id(close);
        }
        self.shared.set_links(self.links.len());
    }

    /// The peer opened more streams than it may: a member is not taken for a while, and no stranger from where a stranger was.
    fn refuse(&mut self, peer: PeerId, source: Option<IpAddr>) {
        tracing::debug!(%peer, ?source, "an overlay link opened more streams than it may");
        let now = self.now();
        if self.is_member(&peer) {
            self.intake.floods(peer, now);
        } else if let Some(source) = source {
            self.swarm.behaviour_mut().sources.refuse(source, now + FLOODS_FOR);
        }
        let _ = self.swarm.disconnect_peer_id(peer);
    }

    fn closed(&mut self, peer: PeerId, cause: Option<&ConnectionError>) {
        tracing::debug!(%peer, ?cause, "overlay link closed");
        self.links.closed(&peer);
        self.intake.link_closed(&peer, self.now());
        self.back_off(&peer);
        self.shared.set_links(self.links.len());
    }

    fn back_off(&mut self, peer: &PeerId) {
        let [jitter] = self.shared.env.random();
        let now = self.now();
        self.directory.failed(peer, now, jitter);
    }

    fn take_learnt(&mut self) {
        let changes = self.shared.take_changes();
        for peer in changes.forgotten {
            self.directory.remove(&peer);
            self.swarm.behaviour_mut().kad.remove_peer(&peer);
            let _ = self.swarm.disconnect_peer_id(peer);
        }
        for (peer, addresses) in changes.learnt {
            self.note(peer, addresses, true);
        }
        self.dial_missing();
    }

    /// Takes a peer's addresses into the directory and the routing table.
    fn note(&mut self, peer: PeerId, addresses: Vec<Multiaddr>, announced: bool) {
        if peer == *self.swarm.local_peer_id() || !self.directory.note(peer, addresses, announced) {
            return;
        }
        let kad = &mut self.swarm.behaviour_mut().kad;
        kad.remove_peer(&peer);
        for address in self.directory.addresses(&peer) {
            kad.add_address(&peer, address);
        }
    }

    fn review(&mut self) {
        let now = self.now();
        let topic = IdentTopic::new(self.names.topic.clone()).hash();
        let mesh = self.swarm.behaviour().gossipsub.mesh_peers(&topic);
        let mesh: HashSet<_> = mesh.copied().collect();
        let shared = self.shared.clone();
        let member = |peer: &PeerId| shared.organisation_at(peer);
        for peer in self.links.review(now, member, |peer| !mesh.contains(peer)) {
            let _ = self.swarm.disconnect_peer_id(peer);
        }
        self.shared.set_links(self.links.len());
        self.swarm.behaviour_mut().sources.review(now);
        self.review_waiting();
        self.resend();
        self.dial_missing();
        self.ask(now);
    }

    fn dial_missing(&mut self) {
        let now = self.now();
        let salt = u64::from_be_bytes(self.shared.env.random());
        let counts = |peer: &PeerId| {
            self.shared.id_of(peer).is_some_and(|peer| !self.shared.is_forgotten(&peer))
        };
        let linked = |peer: &PeerId| self.links.has(peer) || self.dialling.contains(peer);
        for peer in self.directory.to_dial(now, salt, counts, linked) {
            let addresses = self.directory.addresses(&peer);
            let names: Vec<_> = addresses.iter().filter_map(identity::name_and_port).collect();
            if names.is_empty() {
                self.dial_at(peer, addresses);
            } else if self.lookups.len() < LOOKUPS_MAX {
                self.dialling.insert(peer);
                let env = self.shared.env.clone();
                self.lookups.push(Box::pin(look_up(env, peer, addresses)));
            }
        }
    }

    fn dial_at(&mut self, peer: PeerId, addresses: Vec<Multiaddr>) {
        self.dialling.insert(peer);
        let dial = DialOpts::peer_id(peer)
            .condition(PeerCondition::DisconnectedAndNotDialing)
            .addresses(addresses)
            .build();
        if let Err(error) = self.swarm.dial(dial) {
            tracing::debug!(%peer, %error, "overlay dial not begun");
            self.dialling.remove(&peer);
            self.back_off(&peer);
        }
    }

    /// Asks the linked peers for the neighbourhood of a random point, where links are missing.
    fn ask(&mut self, now: Duration) {
        let few = self.links.len() < LINKS_WANTED.min(FULL_MESH_MAX);
        if few && self.links.len() > 0 && now.saturating_sub(self.asked) >= ASK_EVERY {
            self.asked = now;
            let point: [u8; 32] = self.shared.env.random();
            self.swarm.behaviour_mut().kad.get_closest_peers(point.to_vec());
        }
    }

    // News.

    fn publish(&mut self, mut news: Vec<News>) -> Result<usize, OverlayError> {
        let now = self.now();
        news.retain(|one| !self.intake.knows(one, now));
        if news.is_empty() {
            return Ok(0);
        }
        let bytes = Told::encode(&self.shared.secret, &self.shared.network, &news)?;
        // Noted only once it is on its way: who was told `Busy` tries again.
        self.send(bytes, now + UNSENT_FOR)?;
        news.iter().for_each(|one| self.intake.published(one, now));
        Ok(news.len())
    }

    fn send(&mut self, bytes: Vec<u8>, until: Duration) -> Result<(), OverlayError> {
        let topic = IdentTopic::new(self.names.topic.clone());
        match self.swarm.behaviour_mut().gossipsub.publish(topic, bytes.clone()) {
            Ok(_) | Err(PublishError::Duplicate) => Ok(()),
            Err(PublishError::NoPeersSubscribedToTopic) => {
                if self.unsent.len() >= UNSENT_MAX {
                    self.unsent.pop_front();
                }
                self.unsent.push_back((until, bytes));
                Ok(())
            }
            Err(PublishError::MessageTooLarge) => Err(OverlayError::TooLarge(bytes.len())),
            Err(_) => Err(OverlayError::Busy),
        }
    }

    fn resend(&mut self) {
        let now = self.now();
        for (until, bytes) in std::mem::take(&mut self.unsent) {
            if until > now
                && let Err(error) = self.send(bytes, until)
            {
                tracing::debug!(%error, "overlay news given up");
            }
        }
    }

    fn arrived(&mut self, id: gossipsub::MessageId, link: PeerId, message: gossipsub::Message) {
        let now = self.now();
        let bytes = Bytes::from(message.data);
        let linked = self.links.has(&link);
        let by = self.shared.organisation_at(&link);
        let by_member = by.is_some();
        if !linked || !self.intake.affordable(link, by_member, bytes.len(), now) {
            self.report(&id, &link, MessageAcceptance::Ignore);
            // Of what it sends, gossipsub notes at least that it came: a member's link is worth that for a while, a stranger's is not.
            if !by_member || self.intake.is_flooding(&link, now) {
                tracing::debug!(peer = %link, "an overlay link brings more than it may: it is closed");
                let _ = self.swarm.disconnect_peer_id(link);
            }
            return;
        }
        let Ok(told) = Told::decode(&bytes) else {
            return self.report(&id, &link, MessageAcceptance::Reject);
        };
        if self.is_worth_checking(&told, &link, by_member, now) {
            self.check(id, link, by, told, bytes.len());
        } else {
            self.report(&id, &link, MessageAcceptance::Ignore);
        }
    }

    /// Whether the message is worth checking its signature, which costs more than all before it: what others told
    /// already needs none, and what would only be dropped then either.
    fn is_worth_checking(
        &mut self,
        told: &Told,
        link: &PeerId,
        by_member: bool,
        now: Duration,
    ) -> bool {
        !self.shared.is_forgotten(&told.from)
            && !told.news.iter().all(|one| self.intake.is_old(one, by_member, now))
            && (self.shared.is_member(&told.from) || self.intake.has_room(link))
    }

    /// Checks the message's signature and takes what it tells; a link of the organisation `by` brought it, `None` of a stranger.
    fn check(
        &mut self,
        id: gossipsub::MessageId,
        link: PeerId,
        by: Option<OrgId>,
        mut told: Told,
        bytes: usize,
    ) {
        if !told.verify(&self.shared.network) {
            return self.report(&id, &link, MessageAcceptance::Reject);
        }
        let now = self.now();
        let organisation = self.shared.organisation_of(&told.from);
        if organisation.is_some_and(|one| !self.intake.may_tell(one, by, bytes, now)) {
            return self.report(&id, &link, MessageAcceptance::Ignore);
        }
        let trust = Trust { signer: organisation.is_some(), link: by.is_some() };
        let news = std::mem::take(&mut told.news);
        let arrival = Arrival { id, link, from: told.from, news };
        let (verdict, heard) = self.intake.arrived(arrival, trust, now);
        heard.iter().for_each(|heard| self.shared.inboxes.put(heard));
        if let Some(verdict) = verdict {
            self.apply(verdict);
        }
    }

    fn review_waiting(&mut self) {
        let now = self.now();
        let shared = self.shared.clone();
        let member = |peer: &crypto::PeerId| shared.is_member(peer);
        let linked = |link: &PeerId| shared.organisation_at(link).is_some();
        let trust = |from: &_, link: &_| Trust { signer: member(from), link: linked(link) };
        for verdict in self.intake.review(now, trust) {
            self.apply(verdict);
        }
    }

    fn apply(&mut self, verdict: Verdict) {
        verdict.heard.iter().for_each(|heard| self.shared.inboxes.put(heard));
        self.report(&verdict.id, &verdict.link, verdict.acceptance);
    }

    fn report(&mut self, id: &gossipsub::MessageId, link: &PeerId, acceptance: MessageAcceptance) {
        let mesh = &mut self.swarm.behaviour_mut().gossipsub;
        mesh.report_message_validation_result(id, link, acceptance);
    }

    // Protocols.

    fn protocol_event(&mut self, event: BehaviourEvent) {
        match event {
            BehaviourEvent::Gossipsub(gossipsub::Event::Message {
                propagation_source,
                message_id,
                message,
            }) => self.arrived(message_id, propagation_source, message),
            BehaviourEvent::Gossipsub(gossipsub::Event::Subscribed { .. }) => self.resend(),
            BehaviourEvent::Gossipsub(gossipsub::Event::GossipsubNotSupported { peer_id }) => {
                let _ = self.swarm.disconnect_peer_id(peer_id);
            }
            BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. }) => {
                self.identified(peer_id, info);
            }
            BehaviourEvent::Ping(ping::Event { connection, result: Err(failure), .. })
                if !matches!(failure, ping::Failure::Unsupported) =>
            {
                self.swarm.close_connection(connection);
            }
            BehaviourEvent::Kad(kad::Event::OutboundQueryProgressed {
                result: kad::QueryResult::GetClosestPeers(Ok(found)),
                ..
            }) => found.peers.into_iter().for_each(|found| self.found(found.peer_id, found.addrs)),
            _ => {}
        }
    }

    fn identified(&mut self, peer: PeerId, info: identify::Info) {
        if info.protocol_version != self.names.identify {
            let version = info.protocol_version;
            tracing::debug!(%peer, version, "not an overlay of this network");
            let _ = self.swarm.disconnect_peer_id(peer);
            return;
        }
        self.found(peer, info.listen_addrs);
        self.dial_missing();
    }

    /// Takes addresses that were found by asking; of members alone.
    fn found(&mut self, peer: PeerId, addresses: Vec<Multiaddr>) {
        if self.is_member(&peer) {
            let texts = addresses.iter().map(Multiaddr::to_string);
            let good = texts.filter_map(|text| identity::dialable(&text, &peer)).collect();
            self.note(peer, good, false);
        }
    }
}

/// The addresses with names replaced by what they stand for.
async fn look_up(
    env: env::Env,
    peer: PeerId,
    addresses: Vec<Multiaddr>,
) -> (PeerId, Vec<Multiaddr>) {
    let mut found = Vec::new();
    for address in addresses {
        let Some((name, port)) = identity::name_and_port(&address) else {
            found.push(address);
            continue;
        };
        match env.within(LOOKUP_FOR, tokio::net::lookup_host((name, port))).await {
            Ok(Ok(sockets)) => found.extend(sockets.map(identity::of_socket)),
            Ok(Err(error)) => tracing::debug!(%peer, %error, "overlay name lookup"),
            Err(error) => tracing::debug!(%peer, %error, "overlay name lookup"),
        }
    }
    found.truncate(super::directory::ADDRESSES_MAX);
    (peer, found)
}
