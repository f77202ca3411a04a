//! Discovering peers and spreading news, behind a small trait.
//!
//! libp2p finds and tells, gRPC moves: measured on one machine, libp2p's streams carry a third of
//! the bytes and half of the calls of the gRPC connections, but its mesh is hardened by networks
//! far larger than ours. So no record ever travels here, only news of at most [`NEWS_BYTES_MAX`]: a
//! peer's announcement, the envelope of a publication, a revocation, or a roster. It never ranks holders (`placement` does)
//! and keeps no directory of certificates (`walk` does).
//!
//! [`Libp2p`] is the real one, [`MemoryMesh`] the one for tests and simulation; `testkit` has one
//! conformance suite over both. `docs/formats/news.md` has the protocols and bytes.

mod inbox;
mod memory;
mod p2p;
mod seen;
mod told;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::canonical::CanonicalError;
use crypto::{Class, Classified, OrgId, PeerId};
use futures::stream::BoxStream;

/// The largest piece of news, in bytes.
pub const NEWS_BYTES_MAX: usize = 32 * 1024;

pub use inbox::{INBOX_BYTES_MAX, INBOX_NEWS_MAX};
pub use memory::{MemoryMesh, MemoryOverlay};
pub use p2p::{
    ADDRESSES_MAX, BACK_OFF_MAX, FLOODS_FOR, FORGOTTEN_MAX, FULL_MESH_MAX, KNOWN_MAX,
    LINK_BYTES_A_SECOND, LINK_BYTES_BURST, LINKS_MAX, LINKS_WANTED, Libp2p, Libp2pOptions,
    PUBLISH_QUEUE_MAX, SETTLE_FOR, STRANGER_FOR, STRANGERS_MAX, WAIT_FOR, WAITING_MAX,
    WAITING_OF_LINK_MAX,
};
pub use seen::{SEEN_FOR, SEEN_MAX};
pub use told::{TOLD_BYTES_MAX, TOLD_NEWS_MAX};
pub use wire::NEWS_OVERHEAD_BYTES_MAX;

/// Who counts as a peer of the network right now, and of which organisation: links are shared between them. It is asked often:
/// it must be quick and not block.
pub type Members = Arc<dyn Fn(&PeerId) -> Option<OrgId> + Send + Sync>;

/// Everybody, each of an organisation by itself.
pub fn everybody() -> Members {
    Arc::new(|peer| Some(OrgId::new(*peer.key())))
}

/// What is spread to every peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum News {
    /// A signed announcement of a peer (see `crypto::Announcement`).
    Announcement(Bytes),
    /// The encoded envelope document of a publication: its hash is the envelope's key, so it proves
    /// the publication's fields.
    Envelope(Bytes),
    /// A signed revocation of an organisation (see `crypto::Revocation`).
    Revocation(Bytes),
    /// A signed roster (see `crypto::SignedRoster`); one that is too large for news is learnt otherwise.
    Roster(Bytes),
}

/// News as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The peer that published it first, proven by its signature.
    pub from: PeerId,
    /// What it is. Receivers check it before they believe it.
    pub news: News,
}

/// Why the overlay could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OverlayError {
    /// Over [`NEWS_BYTES_MAX`].
    #[error("news of {0} bytes is too large")]
    TooLarge(usize),
    /// There is nothing in it.
    #[error("news without content")]
    Empty,
    /// Not the wire form of any news.
    #[error("not a piece of news")]
    Malformed(#[from] CanonicalError),
    /// A signer that is no key.
    #[error("news signed by no key")]
    Signer,
    /// Too much is waiting to be sent.
    #[error("the overlay's queue is full")]
    Busy,
    /// libp2p refused settings of ours: a defect.
    #[error("libp2p does not take the settings of its {0}")]
    Settings(&'static str),
    /// The listener could not be opened.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        reason: String,
        /// Whether another program has the port.
        in_use: bool,
    },
    /// It was shut down.
    #[error("the overlay is closed")]
    Closed,
}

impl Classified for OverlayError {
    fn class(&self) -> Class {
        match self {
            Self::TooLarge(_) | Self::Empty | Self::Malformed(_) | Self::Signer => Class::Invalid,
            Self::Busy | Self::Listen { in_use: true, .. } => Class::Busy,
            Self::Settings(_) => Class::Bug,
            Self::Listen { .. } | Self::Closed => Class::Unavailable,
        }
    }
}

/// Finds peers and tells news; it never moves records and never ranks holders.
#[async_trait]
pub trait Overlay: Send + Sync + 'static {
    /// Where others reach this peer's overlay (multiaddresses with the peer's id); announced to the
    /// network.
    fn addresses(&self) -> Vec<String>;
    /// Tells where a peer's overlay is; the overlay dials it when it wants more links. Bounded;
    /// repeated calls are cheap.
    fn learn(&self, peer: PeerId, addresses: &[String]);
    /// Forgets a peer that left the network; its links are closed and its news are dropped.
    fn forget(&self, peer: PeerId);
    /// Spreads news to every peer. At most once each for the same bytes within two minutes.
    async fn publish(&self, news: News) -> Result<(), OverlayError>;
    /// Spreads what others did not tell within the last two minutes; how much of it that was. It may travel together,
    /// which costs everybody less.
    async fn publish_all(&self, news: Vec<News>) -> Result<usize, OverlayError> {
        let count = news.len();
        for one in news {
            self.publish(one).await?;
        }
        Ok(count)
    }
    /// News from others, from now on. A receiver that lags by more than 4,096 loses the oldest.
    fn news(&self) -> BoxStream<'static, Heard>;
    /// Peers linked right now.
    fn links(&self) -> usize;
    /// Closes all links and the listener.
    async fn close(&self);
}
