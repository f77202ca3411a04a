//! The libp2p protocols of an overlay and their settings.
//!
//! Every name holds the network's id, and so does the prologue of the Noise handshake: a peer of
//! another network cannot complete a connection, let alone speak. Buffers are small and timers
//! slow, since an idle peer must cost next to nothing: what is fast here is set by hand (the mesh's
//! first heartbeat).

use std::time::Duration;

use crypto::{NetworkId, SecretKey, Suite};
use libp2p::Transport;
use libp2p::connection_limits::{self, ConnectionLimits};
use libp2p::core::upgrade::Version;
use libp2p::gossipsub::{
    self, IdentTopic, MessageAuthenticity, MessageId, ValidationMode, WhitelistSubscriptionFilter,
};
use libp2p::identity::Keypair;
use libp2p::kad::store::{MemoryStore, MemoryStoreConfig};
use libp2p::swarm::NetworkBehaviour;
use libp2p::{PeerId, StreamProtocol, Swarm, SwarmBuilder, identify, kad, noise, ping, tcp, yamux};

use super::closing::Closing;
use super::gate::Gate;
use super::identity;
use super::sources::{IsMember, Sources};
use crate::OverlayError;
use crate::told::{TOLD_BYTES_MAX, TOLD_OVERHEAD_BYTES_MAX};

/// Room for a message's signer, number, topic and signature beside the news.
const ENVELOPE_BYTES_MAX: usize = 1024;
/// Messages that wait to be sent on one connection before further ones are dropped: at most 16 MiB.
const SEND_QUEUE_MAX: usize = 512;
/// Messages in one frame; gossipsub sends each in a frame of its own.
const MESSAGES_OF_FRAME_MAX: usize = 8;
/// Heartbeats for which a message can still be fetched, and a verdict on it be given.
const HISTORY_HEARTBEATS: usize = 7;
/// Links that a message is passed on by at once; the others are told that it exists. Each more is one
/// more copy of every message at every peer, and four already reach all.
const MESH: usize = 4;
/// Who gets a message of more bytes than this tells its links at once not to send it too. For what is short that costs more than the
/// second copy: a frame of its own to each link, and a wake-up of each.
const UNWANTED_BYTES_MIN: usize = 16 << 10;
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Connections, whether they count as links yet or not: all of `links`, two of each peer.
const CONNECTIONS_MAX: u32 = 256;
const CONNECTIONS_PENDING_MAX: u32 = 32;
/// Two peers that dial each other at the same moment have two connections.
const CONNECTIONS_OF_PEER_MAX: u32 = 2;
/// Both sides' together: one each way for news, ping and identify, the rest for Kademlia. Each may park 256 KiB.
const STREAMS_OF_CONNECTION_MAX: usize = 32;
/// Links are kept open by us, not by what the protocols think of them.
const IDLE_FOR: Duration = Duration::from_secs(24 * 3_600);
const PING_EVERY: Duration = Duration::from_secs(60);
/// What a message of a wrong form cost a link is forgiven, and a link that went away forgotten, after this.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);
/// A tenth of what it cost is nothing.
const FORGIVEN_BELOW: f64 = 0.1;
/// How often what links did is forgiven a little. Each second, gossipsub's default, would wake a peer at rest three times in it.
const FORGIVES_EVERY: Duration = Duration::from_secs(5);
const IDENTIFY_EVERY: Duration = Duration::from_secs(30 * 60);

/// Gossipsub that takes nothing in but what its gate lets in, and notes subscriptions to one topic alone.
type Mesh = gossipsub::Behaviour<Gate, WhitelistSubscriptionFilter>;

#[derive(NetworkBehaviour)]
pub(super) struct Behaviour {
    pub(super) limits: connection_limits::Behaviour,
    pub(super) sources: Sources,
    pub(super) ping: ping::Behaviour,
    pub(super) identify: identify::Behaviour,
    pub(super) kad: kad::Behaviour<MemoryStore>,
    pub(super) gossipsub: Mesh,
}

/// What the protocols of a network are called.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) prologue: Vec<u8>,
    pub(super) identify: String,
    pub(super) kad: String,
    pub(super) topic: String,
}

impl Names {
    pub(super) fn of(network: &NetworkId) -> Self {
        let whole = network.to_string();
        let short = whole.get(..16).unwrap_or(&whole);
        Self {
            prologue: format!("holdfast overlay v1 {whole}").into_bytes(),
            identify: format!("/holdfast/{short}/1"),
            kad: format!("/holdfast/{short}/kad/1"),
            topic: format!("holdfast/{whole}/news/2"),
        }
    }
}

/// A swarm that listens nowhere yet.
pub(super) fn swarm(
    secret: &SecretKey,
    names: &Names,
    is_member: IsMember,
) -> Result<Swarm<Behaviour>, OverlayError> {
    let prologue = names.prologue.clone();
    let transport = move |keypair: &Keypair| {
        let security = noise::Config::new(keypair)?.with_prologue(prologue);
        let mut multiplexer = yamux::Config::default();
        multiplexer.set_max_num_streams(STREAMS_OF_CONNECTION_MAX);
        let tcp = tcp::tokio::Transport::new(tcp::Config::new().nodelay(true));
        let secured = tcp.upgrade(Version::V1Lazy).authenticate(security).multiplex(multiplexer);
        Ok(secured.map(|(peer, connection), _| (peer, Closing::new(connection))))
    };
    let swarm = SwarmBuilder::with_existing_identity(identity::keypair(secret))
        .with_tokio()
        .with_other_transport(transport)
        .map_err(|_| OverlayError::Settings("connection security"))?
        .with_behaviour(|keypair| Ok(behaviour(keypair, names, is_member)?))
        .map_err(|_| OverlayError::Settings("protocols"))?
        .with_swarm_config(|config| config.with_idle_connection_timeout(IDLE_FOR))
        .build();
    Ok(swarm)
}

fn behaviour(
    keypair: &Keypair,
    names: &Names,
    is_member: IsMember,
) -> Result<Behaviour, OverlayError> {
    let limits = ConnectionLimits::default()
        .with_max_pending_incoming(Some(CONNECTIONS_PENDING_MAX))
        .with_max_pending_outgoing(Some(CONNECTIONS_PENDING_MAX))
        .with_max_established(Some(CONNECTIONS_MAX))
        .with_max_established_per_peer(Some(CONNECTIONS_OF_PEER_MAX));
    let identify = identify::Config::new(names.identify.clone(), keypair.public())
        .with_agent_version(concat!("holdfast/", env!("CARGO_PKG_VERSION")).to_owned())
        .with_interval(IDENTIFY_EVERY)
        .with_cache_size(0);
    Ok(Behaviour {
        limits: connection_limits::Behaviour::new(limits),
        sources: Sources::new(CONNECTIONS_PENDING_MAX, is_member),
        ping: ping::Behaviour::new(ping::Config::new().with_interval(PING_EVERY)),
        identify: identify::Behaviour::new(identify),
        kad: kademlia(keypair.public().to_peer_id(), names)?,
        gossipsub: mesh(names)?,
    })
}

/// A routing table alone: records are never kept for anybody.
fn kademlia(own: PeerId, names: &Names) -> Result<kad::Behaviour<MemoryStore>, OverlayError> {
    let protocol = StreamProtocol::try_from_owned(names.kad.clone())
        .map_err(|_| OverlayError::Settings("kad protocol"))?;
    let mut config = kad::Config::new(protocol);
    // Only members enter the table, and only by our hand. It looks around by itself while it knows
    // few (fewer than 20); later on `Engine::ask` does, where links are missing.
    config
        .set_kbucket_inserts(kad::BucketInserts::Manual)
        .set_record_filtering(kad::StoreInserts::FilterBoth)
        .set_replication_interval(None)
        .set_publication_interval(None)
        .set_provider_publication_interval(None)
        .set_periodic_bootstrap_interval(None);
    let nothing = MemoryStoreConfig {
        max_records: 0,
        max_value_bytes: 0,
        max_providers_per_key: 0,
        max_provided_keys: 0,
    };
    let mut kad = kad::Behaviour::with_config(own, MemoryStore::with_config(own, nothing), config);
    kad.set_mode(Some(kad::Mode::Server));
    Ok(kad)
}

fn mesh(names: &Names) -> Result<Mesh, OverlayError> {
    let config = gossipsub::ConfigBuilder::default()
        .validation_mode(ValidationMode::Anonymous)
        .validate_messages()
        .message_id_fn(message_id)
        .max_transmit_size(TOLD_BYTES_MAX + TOLD_OVERHEAD_BYTES_MAX + ENVELOPE_BYTES_MAX)
        .duplicate_cache_time(crate::SEEN_FOR)
        .heartbeat_initial_delay(HEARTBEAT / 10)
        .heartbeat_interval(HEARTBEAT)
        .history_length(HISTORY_HEARTBEATS)
        .history_gossip(3)
        .mesh_n(MESH)
        .mesh_n_low(MESH - 1)
        .mesh_n_high(MESH + 2)
        .mesh_outbound_min(2)
        .gossip_lazy(3)
        .flood_publish(false)
        .idontwant_message_size_threshold(UNWANTED_BYTES_MIN)
        .connection_handler_queue_len(SEND_QUEUE_MAX)
        .max_publish_messages(MESSAGES_OF_FRAME_MAX)
        .build()
        .map_err(|_| OverlayError::Settings("mesh"))?;
    // What is told is signed by ourselves: see `told`.
    let unsigned = MessageAuthenticity::Anonymous;
    let topic = IdentTopic::new(names.topic.clone());
    let gate = Gate::new(&topic);
    let subscriptions = gate.subscriptions();
    let mut mesh =
        Mesh::new_with_subscription_filter_and_transform(unsigned, config, subscriptions, gate)
            .map_err(|_| OverlayError::Settings("mesh"))?;
    let (parameters, thresholds) = scores(&topic);
    mesh.with_peer_score(parameters, thresholds).map_err(|_| OverlayError::Settings("scores"))?;
    mesh.subscribe(&topic).map_err(|_| OverlayError::Settings("topic"))?;
    Ok(mesh)
}

/// What costs a link its place in the mesh: messages of a wrong form (three within some minutes,
/// and nothing it sends is looked at), and asking for a place again and again. Silence is no fault,
/// for there may be no news; nor is a shared address, for an organisation's peers may stand behind
/// one.
fn scores(topic: &IdentTopic) -> (gossipsub::PeerScoreParams, gossipsub::PeerScoreThresholds) {
    let of_topic = gossipsub::TopicScoreParams {
        topic_weight: 1.0,
        time_in_mesh_weight: 0.0,
        first_message_deliveries_weight: 0.0,
        mesh_message_deliveries_weight: 0.0,
        mesh_failure_penalty_weight: 0.0,
        invalid_message_deliveries_weight: -10.0,
        invalid_message_deliveries_decay: gossipsub::score_parameter_decay_with_base(
            FORGIVEN_AFTER,
            FORGIVES_EVERY,
            FORGIVEN_BELOW,
        ),
        ..Default::default()
    };
    let parameters = gossipsub::PeerScoreParams {
        topics: [(topic.hash(), of_topic)].into(),
        ip_colocation_factor_weight: 0.0,
        behaviour_penalty_weight: -1.0,
        behaviour_penalty_threshold: 6.0,
        decay_interval: FORGIVES_EVERY,
        decay_to_zero: FORGIVEN_BELOW,
        retain_score: FORGIVEN_AFTER,
        ..Default::default()
    };
    (parameters, gossipsub::PeerScoreThresholds::default())
}

/// BLAKE3 of the data, in which signer and signature are; why not of the news alone is in `intake`.
fn message_id(message: &gossipsub::Message) -> MessageId {
    MessageId::new(&Suite::Holdfast1.hash(&message.data))
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use libp2p::swarm::SwarmEvent;

    use super::*;
    use crate::told::Told;

    #[test]
    fn names_hold_the_network() {
        let names = Names::of(&NetworkId::new([0xab; 32]));
        assert_eq!(names.identify, "/holdfast/abababababababab/1");
        assert_eq!(names.kad, "/holdfast/abababababababab/kad/1");
        assert_eq!(names.topic, format!("holdfast/{}/news/2", "ab".repeat(32)));
        let prologue = format!("holdfast overlay v1 {}", "ab".repeat(32));
        assert_eq!(names.prologue, prologue.as_bytes());
    }

    #[test]
    fn the_settings_are_accepted() {
        let secret = SecretKey::from_bytes(&[1; 32]).expect("a scalar");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let _context = runtime.enter();
        let names = Names::of(&NetworkId::NONE);
        swarm(&secret, &names, Box::new(|_| false)).expect("a swarm");
    }

    /// Gossipsub as libp2p has it, which takes and tells everything, on a connection of the network.
    fn rogue(names: &Names) -> Swarm<gossipsub::Behaviour> {
        let prologue = names.prologue.clone();
        let security = move |keypair: &Keypair| {
            noise::Config::new(keypair).map(|config| config.with_prologue(prologue.clone()))
        };
        let config = gossipsub::ConfigBuilder::default()
            .validation_mode(ValidationMode::Anonymous)
            .build()
            .expect("settings");
        let mesh = gossipsub::Behaviour::new(MessageAuthenticity::Anonymous, config);
        let secret = SecretKey::from_bytes(&[2; 32]).expect("a scalar");
        SwarmBuilder::with_existing_identity(identity::keypair(&secret))
            .with_tokio()
            .with_tcp(tcp::Config::new(), security, yamux::Config::default)
            .expect("a transport")
            .with_behaviour(|_| mesh.expect("a mesh"))
            .expect("a behaviour")
            .with_swarm_config(|config| config.with_idle_connection_timeout(IDLE_FOR))
            .build()
    }

    #[tokio::test]
    async fn subscriptions_to_other_topics_are_not_noted() {
        let secret = SecretKey::from_bytes(&[1; 32]).expect("a scalar");
        let names = Names::of(&NetworkId::NONE);
        let mut ours = swarm(&secret, &names, Box::new(|_| false)).expect("a swarm");
        ours.listen_on("/ip4/127.0.0.1/tcp/0".parse().expect("an address")).expect("a port");
        let mut rogue = rogue(&names);
        let mesh = rogue.behaviour_mut();
        for topic in ["a", "b", "c", &names.topic, "d"] {
            mesh.subscribe(&IdentTopic::new(topic)).expect("a topic");
        }
        let noted = async {
            loop {
                tokio::select! {
                    event = ours.select_next_some() => match event {
                        SwarmEvent::NewListenAddr { address, .. } => {
                            rogue.dial(address).expect("a dial");
                        }
                        SwarmEvent::Behaviour(BehaviourEvent::Gossipsub(
                            gossipsub::Event::Subscribed { topic, .. },
                        )) => break topic,
                        _ => {}
                    },
                    _ = rogue.select_next_some() => {}
                }
            }
        };
        let noted = tokio::time::timeout(Duration::from_secs(20), noted).await.expect("in time");
        let topic = IdentTopic::new(names.topic.clone()).hash();
        assert_eq!(noted, topic);
        let topics: Vec<_> =
            ours.behaviour().gossipsub.all_peers().flat_map(|(_, topics)| topics).collect();
        assert_eq!(topics, [&topic]);
    }

    #[test]
    fn a_message_is_named_by_its_signer_and_content() {
        let news = [crate::News::Envelope(bytes::Bytes::from_static(b"x"))];
        let told = |secret: u8, network: u8| {
            let secret = SecretKey::from_bytes(&[secret; 32]).expect("a scalar");
            let data = Told::encode(&secret, &NetworkId::new([network; 32]), &news).expect("small");
            let topic = IdentTopic::new("t").hash();
            message_id(&gossipsub::Message { source: None, data, sequence_number: None, topic })
        };
        assert_eq!(told(1, 1), told(1, 1));
        assert_ne!(told(1, 1), told(2, 1), "another signer");
        assert_ne!(told(1, 1), told(1, 2), "another signature");
    }
}
