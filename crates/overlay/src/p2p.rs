//! The overlay on libp2p: TCP, Noise, yamux; identify and Kademlia to find peers, gossipsub to tell
//! news.
//!
//! ```text
//!   learn, forget ──► Shared ──notify──► Engine (one task, owns the swarm)
//!   publish ────────► queue ───────────►   directory: whom to dial     links: who counts
//!   news ◄── Inboxes ◄─────────────────   intake: what to believe      behaviour: protocols
//! ```
//! Who is linked to whom: `directory` and `links`. What is believed: `intake`. A peer needs one
//! address of one other peer: from there identify and Kademlia tell it the rest, and it keeps their
//! addresses, so that the first one may go.
//!
//! Invariants: (1) nothing that arrives is passed on before it was believed (`intake`); (2) nobody
//! is dialled who was neither learnt nor, having been found, is a member (`Engine::found`); (3)
//! what `forget` named has no link and is not heard (`Shared::is_forgotten` is asked at both
//! places).

mod behaviour;
mod closing;
mod directory;
mod engine;
mod gate;
mod identity;
mod intake;
mod links;
mod sources;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use crypto::{NetworkId, OrgId, SecretKey};
use env::{Env, Task};
use futures::StreamExt;
use futures::stream::BoxStream;
use libp2p::core::multiaddr::Protocol;
use libp2p::core::transport::TransportError;
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, PeerId, Swarm};
use tokio::sync::{Notify, mpsc, oneshot};

use self::behaviour::{Behaviour, Names};
use self::engine::{Command, Engine};
use crate::inbox::{Inboxes, lock};
use crate::{Heard, Members, News, Overlay, OverlayError, told};

pub use self::directory::{ADDRESSES_MAX, BACK_OFF_MAX, FULL_MESH_MAX, KNOWN_MAX, LINKS_WANTED};
pub use self::intake::{
    FLOODS_FOR, LINK_BYTES_A_SECOND, LINK_BYTES_BURST, WAIT_FOR, WAITING_MAX, WAITING_OF_LINK_MAX,
};
pub use self::links::{LINKS_MAX, SETTLE_FOR, STRANGER_FOR, STRANGERS_MAX};

/// News that waits for the overlay's task, at most.
pub const PUBLISH_QUEUE_MAX: usize = 256;
/// Peers that `forget` named and that are remembered as such, at most; beyond that the oldest is
/// not.
pub const FORGOTTEN_MAX: usize = 1_024;

const LISTEN_FOR: Duration = Duration::from_secs(10);
const CLOSE_FOR: Duration = Duration::from_secs(5);

/// How a [`Libp2p`] overlay is set up.
pub struct Libp2pOptions {
    /// The peer's key: its identity here too.
    pub secret: SecretKey,
    /// The network; overlays of two networks cannot connect.
    pub network: NetworkId,
    /// Where to listen: `HOST:PORT`, an IP address or a name of this machine; port 0 for any free
    /// one.
    pub listen: String,
    /// Hosts (IP addresses or names) that others reach this peer at; none: the addresses it listens
    /// on.
    pub announce: Option<Vec<String>>,
    /// Who counts as a peer of the network, and of which organisation.
    pub members: Members,
    /// Time, randomness, tasks. libp2p's own timers and sockets are tokio's in any case.
    pub env: Env,
}

/// The overlay on libp2p. Dropping it ends its task at once; [`Overlay::close`] lets it finish.
pub struct Libp2p {
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    task: Mutex<Option<Task>>,
}

/// What the owner and the task both see.
struct Shared {
    env: Env,
    own: PeerId,
    members: Members,
    inboxes: Inboxes,
    links: AtomicUsize,
    announce: Option<Vec<String>>,
    listening: Mutex<Vec<Multiaddr>>,
    changes: Mutex<Changes>,
    changed: Notify,
    forgotten: Mutex<VecDeque<crypto::PeerId>>,
    secret: SecretKey,
    network: NetworkId,
    /// Our ids of libp2p's, as far as asked for: finding one decompresses a point twice, and every
    /// link is looked at every second.
    ids: Mutex<HashMap<PeerId, Option<crypto::PeerId>>>,
}

/// What `learn` and `forget` said since the task last looked; a later word replaces an earlier one.
#[derive(Default)]
struct Changes {
    learnt: HashMap<PeerId, Vec<Multiaddr>>,
    forgotten: Vec<PeerId>,
}

impl Libp2p {
    /// Listens and starts. Returns once the listening address is known.
    ///
    /// # Errors
    /// [`OverlayError::Listen`] where `listen` is no address or cannot be listened on.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(options: Libp2pOptions) -> Result<Arc<Self>, OverlayError> {
        let names = Names::of(&options.network);
        let shared = Arc::new(Shared {
            env: options.env,
            own: identity::to_libp2p(&crypto::PeerId::new(options.secret.public())),
            members: options.members,
            inboxes: Inboxes::default(),
            links: AtomicUsize::new(0),
            announce: options.announce,
            listening: Mutex::default(),
            changes: Mutex::default(),
            changed: Notify::new(),
            forgotten: Mutex::default(),
            secret: options.secret,
            network: options.network,
            ids: Mutex::default(),
        });
        let known = shared.clone();
        let is_member = move |peer: &PeerId| known.organisation_at(peer).is_some();
        let mut swarm = behaviour::swarm(&shared.secret, &names, Box::new(is_member))?;
        listen(&mut swarm, &shared, &options.listen).await?;
        for address in shared.announced() {
            swarm.add_external_address(address);
        }
        let (commands, receiver) = mpsc::channel(PUBLISH_QUEUE_MAX);
        let engine = Engine {
            swarm,
            names,
            shared: shared.clone(),
            directory: Default::default(),
            links: Default::default(),
            intake: Default::default(),
            unsent: Default::default(),
            dialling: Default::default(),
            lookups: Default::default(),
            asked: Duration::ZERO,
        };
        let task = shared.env.tasks.spawn(Box::pin(engine.run(receiver)));
        Ok(Arc::new(Self { shared, commands, task: Mutex::new(Some(task)) }))
    }
}

impl Libp2p {
    /// Spreads what goes into one message.
    async fn publish_part(&self, news: Vec<News>) -> Result<usize, OverlayError> {
        let (reply, answer) = oneshot::channel();
        self.commands.try_send(Command::Publish(news, reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => OverlayError::Busy,
            mpsc::error::TrySendError::Closed(_) => OverlayError::Closed,
        })?;
        answer.await.unwrap_or(Err(OverlayError::Closed))
    }
}

/// Listens at the first address of `HOST:PORT` that can be listened on, and waits until it is
/// known.
async fn listen(
    swarm: &mut Swarm<Behaviour>,
    shared: &Shared,
    at: &str,
) -> Result<(), OverlayError> {
    let said = |reason: String, in_use| {
        let address = at.to_owned();
        OverlayError::Listen { address, reason, in_use }
    };
    let refused = |reason: String| said(reason, false);
    let sockets = tokio::net::lookup_host(at).await.map_err(|error| refused(error.to_string()))?;
    let (mut reason, mut in_use) = ("the name has no address".to_owned(), false);
    for socket in sockets {
        // libp2p shares its ports (SO_REUSEPORT) to dial from them, so two peers could listen on
        // one and each get half of the links. A plain listener does not share: it finds out first.
        if let Err(error) = std::net::TcpListener::bind(socket) {
            (reason, in_use) = (error.to_string(), error.kind() == std::io::ErrorKind::AddrInUse);
            continue;
        }
        match swarm.listen_on(identity::of_socket(socket)) {
            Ok(_) => {
                let begun = async {
                    loop {
                        match swarm.select_next_some().await {
                            SwarmEvent::NewListenAddr { address, .. } => break Ok(address),
                            SwarmEvent::ListenerClosed { reason: Err(error), .. }
                            | SwarmEvent::ListenerError { error, .. } => break Err(error),
                            _ => {}
                        }
                    }
                };
                let begun = shared.env.within(LISTEN_FOR, begun).await;
                let begun = begun.map_err(|error| refused(error.to_string()))?;
                shared.listens(begun.map_err(|error| refused(error.to_string()))?);
                return Ok(());
            }
            Err(TransportError::Other(error)) => reason = error.to_string(),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(said(reason, in_use))
}

impl Shared {
    fn is_forgotten(&self, peer: &crypto::PeerId) -> bool {
        lock(&self.forgotten).contains(peer)
    }

    fn is_member(&self, peer: &crypto::PeerId) -> bool {
        self.organisation_of(peer).is_some()
    }

    /// The organisation of a member that was not forgotten.
    fn organisation_of(&self, peer: &crypto::PeerId) -> Option<OrgId> {
        (self.members)(peer).filter(|_| !self.is_forgotten(peer))
    }

    /// [`Self::organisation_of`] of a libp2p peer.
    fn organisation_at(&self, peer: &PeerId) -> Option<OrgId> {
        self.id_of(peer).and_then(|peer| self.organisation_of(&peer))
    }

    /// Our id of a libp2p peer; `None` where its key is of another kind.
    fn id_of(&self, peer: &PeerId) -> Option<crypto::PeerId> {
        let mut ids = lock(&self.ids);
        if ids.len() >= KNOWN_MAX && !ids.contains_key(peer) {
            ids.clear();
        }
        *ids.entry(*peer).or_insert_with(|| identity::from_libp2p(peer))
    }

    fn set_links(&self, links: usize) {
        self.links.store(links, Ordering::Relaxed);
    }

    fn listens(&self, address: Multiaddr) {
        let mut listening = lock(&self.listening);
        if listening.len() < ADDRESSES_MAX && !listening.contains(&address) {
            listening.push(address);
            // Stable: addresses that others can use stand first.
            listening.sort_by_key(identity::is_loopback);
        }
    }

    fn expired(&self, address: &Multiaddr) {
        lock(&self.listening).retain(|listening| listening != address);
    }

    fn take_changes(&self) -> Changes {
        std::mem::take(&mut *lock(&self.changes))
    }

    /// The addresses that others use, without the peer's id.
    fn announced(&self) -> Vec<Multiaddr> {
        let listening = lock(&self.listening).clone();
        let port = listening.iter().find_map(identity::port_of);
        match (&self.announce, port) {
            (Some(hosts), Some(port)) => {
                let hosts = hosts.iter().take(ADDRESSES_MAX);
                hosts.map(|host| identity::of_host(host, port)).collect()
            }
            _ => listening,
        }
    }
}

#[async_trait]
impl Overlay for Libp2p {
    fn addresses(&self) -> Vec<String> {
        let with_id = |address: Multiaddr| address.with(Protocol::P2p(self.shared.own)).to_string();
        self.shared.announced().into_iter().map(with_id).collect()
    }

    fn learn(&self, peer: crypto::PeerId, addresses: &[String]) {
        let id = identity::to_libp2p(&peer);
        let good = addresses.iter().take(ADDRESSES_MAX);
        let good: Vec<_> = good.filter_map(|text| identity::dialable(text, &id)).collect();
        lock(&self.shared.forgotten).retain(|forgotten| *forgotten != peer);
        if good.is_empty() || id == self.shared.own {
            return;
        }
        let mut changes = lock(&self.shared.changes);
        if changes.learnt.len() < KNOWN_MAX || changes.learnt.contains_key(&id) {
            changes.forgotten.retain(|forgotten| *forgotten != id);
            changes.learnt.insert(id, good);
        }
        drop(changes);
        self.shared.changed.notify_one();
    }

    fn forget(&self, peer: crypto::PeerId) {
        let id = identity::to_libp2p(&peer);
        let mut forgotten = lock(&self.shared.forgotten);
        if !forgotten.contains(&peer) {
            if forgotten.len() >= FORGOTTEN_MAX {
                forgotten.pop_front();
            }
            forgotten.push_back(peer);
        }
        drop(forgotten);
        let mut changes = lock(&self.shared.changes);
        changes.learnt.remove(&id);
        if !changes.forgotten.contains(&id) && changes.forgotten.len() < KNOWN_MAX {
            changes.forgotten.push(id);
        }
        drop(changes);
        self.shared.changed.notify_one();
    }

    async fn publish(&self, news: News) -> Result<(), OverlayError> {
        self.publish_all(vec![news]).await.map(drop)
    }

    async fn publish_all(&self, news: Vec<News>) -> Result<usize, OverlayError> {
        // Refused here already, so that what is too large never waits in the queue.
        news.iter().try_for_each(|one| one.encode().map(drop))?;
        let mut told = 0;
        for part in told::parts(news) {
            told += self.publish_part(part).await?;
        }
        Ok(told)
    }

    fn news(&self) -> BoxStream<'static, Heard> {
        self.shared.inboxes.stream()
    }

    fn links(&self) -> usize {
        self.shared.links.load(Ordering::Relaxed)
    }

    async fn close(&self) {
        let task = lock(&self.task).take();
        let Some(task) = task else { return };
        let _ = self.commands.send(Command::Close).await;
        if self.shared.env.within(CLOSE_FOR, task.join()).await.is_err() {
            tracing::warn!("the overlay's task did not end in time and was stopped");
        }
        self.shared.set_links(0);
        self.shared.inboxes.close();
    }
}
