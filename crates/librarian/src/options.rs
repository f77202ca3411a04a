//! What a librarian is told at its start: who it is, whom it may ask first, and its limits.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{ClientKey, Genesis, SecretKey};

use crate::keeping::KeepingOptions;
use crate::leases::LeaseSettings;
use crate::rates::TierRates;
use crate::upkeep::UpkeepOptions;

/// Everything a librarian needs besides its surroundings (store, overlay, calls).
#[derive(Clone)]
pub struct LibrarianOptions {
    /// The peer's key.
    pub secret: SecretKey,
    /// The network it belongs to.
    pub genesis: Arc<Genesis>,
    /// Its organisation's signed certificate for that key.
    pub certificate: Bytes,
    /// Addresses (`HOST:PORT`) where any peer of the network may answer.
    pub bootstrap: Vec<String>,
    /// Announcements of other peers kept from the last run, so that a lost bootstrap does no harm.
    pub known_peers: Vec<Bytes>,
    /// Signed rosters from number 1 on, kept from the last run or given by an operator.
    pub rosters: Vec<Bytes>,
    /// Signed revocations of organisations, kept from the last run or given by an operator.
    pub revocations: Vec<Bytes>,
    /// Bytes that each client with a quota has stored, as [`crate::Librarian::stored_bytes`] told
    /// them at the last look.
    pub stored_bytes: Vec<(ClientKey, u64)>,
    /// Until when words that ended leases were heard, as [`crate::Librarian::words_heard_ms`] told it at the last look; `None`: until
    /// the last announcement among `known_peers`.
    pub words_heard_ms: Option<u64>,
    /// Where the store is, for what an operator is told of its disk.
    pub store_path: Option<PathBuf>,
    /// Serve reads alone.
    pub read_only: bool,
    /// What callers may do at once, and how far buffers go.
    pub limits: Limits,
    /// How often the peer looks after itself and its neighbours.
    pub rhythm: Rhythm,
    /// How the store is looked after while it serves; not at all unless it is said.
    pub upkeep: Option<UpkeepOptions>,
    /// How versioned objects are kept.
    pub objects: ObjectsSettings,
    /// How the peer keeps the network whole; not at all unless it is said.
    pub keeping: Option<KeepingOptions>,
    /// What is asked of leases.
    pub leases: LeaseSettings,
}

impl LibrarianOptions {
    /// Options with the defaults for all but who the peer is.
    pub fn new(secret: SecretKey, genesis: Arc<Genesis>, certificate: Bytes) -> Self {
        Self {
            secret,
            genesis,
            certificate,
            bootstrap: Vec::new(),
            known_peers: Vec::new(),
            rosters: Vec::new(),
            revocations: Vec::new(),
            stored_bytes: Vec::new(),
            words_heard_ms: None,
            store_path: None,
            read_only: false,
            limits: Limits::default(),
            rhythm: Rhythm::default(),
            upkeep: None,
            objects: ObjectsSettings::default(),
            keeping: None,
            leases: LeaseSettings::default(),
        }
    }
}

impl fmt::Debug for LibrarianOptions {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LibrarianOptions")
            .field("network", &self.genesis.network())
            .field("bootstrap", &self.bootstrap)
            .field("known_peers", &self.known_peers.len())
            .field("read_only", &self.read_only)
            .field("limits", &self.limits)
            .field("rhythm", &self.rhythm)
            .field("upkeep", &self.upkeep)
            .field("objects", &self.objects)
            .field("keeping", &self.keeping)
            .field("leases", &self.leases)
            .finish_non_exhaustive()
    }
}

/// How a peer keeps versioned objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectsSettings {
    /// Versions kept in memory, in bytes.
    pub cache_bytes_max: u64,
    /// Bytes of an object's versions that are kept at one of its places, where its policy does not say: a writer
    /// goes on at the object's next place then.
    pub region_bytes: u64,
}

impl Default for ObjectsSettings {
    fn default() -> Self {
        Self { cache_bytes_max: 64 << 20, region_bytes: 1 << 30 }
    }
}

/// Bounds of what is served at once. Over one of them a call answers
/// [`Busy`](env::calls::CallError::Busy), and nothing is half done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls being answered.
    pub calls_max: usize,
    /// Calls being answered for one peer.
    pub calls_peer_max: usize,
    /// Calls being answered for one client.
    pub calls_client_max: usize,
    /// Calls being answered for one stranger.
    pub calls_stranger_max: usize,
    /// Calls being answered for all strangers, and of those as many again by which they introduce themselves.
    pub calls_strangers_max: usize,
    /// Record bytes of writes being answered.
    pub write_bytes_max: usize,
    /// Subscriptions that are open.
    pub subscribers_max: usize,
    /// Subscriptions that are open for one key.
    pub subscribers_key_max: usize,
    /// How long a subscriber may leave an event unread before its place is another's.
    pub subscriber_stall_max: Duration,
    /// Callers whose introduction is remembered.
    pub standings_max: usize,
    /// News of one peer taken a second, and as many at once after a pause of it; each envelope that it gives this peer to
    /// tell is one.
    pub news_per_second: u32,
    /// Whether clients of other organisations may let this peer store and find for them
    /// (`Put` and `Get`, which fan out).
    pub open_fan_out: bool,
    /// How often each kind of caller may ask.
    pub rates: TierRates,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls_max: 2048,
            calls_peer_max: 512,
            calls_client_max: 512,
            calls_stranger_max: 8,
            calls_strangers_max: 256,
            write_bytes_max: 192 << 20,
            subscribers_max: 1024,
            subscribers_key_max: 32,
            subscriber_stall_max: Duration::from_secs(60),
            standings_max: 65_536,
            news_per_second: 2_000,
            open_fan_out: false,
            rates: TierRates::default(),
        }
    }
}

/// How often background work is done. Each pause is drawn from 0.75 to 1.25 of these, so that
/// peers started together do not act together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// Introducing itself to a random peer and learning whom that one knows.
    pub introduce: Duration,
    /// Calling peers that were not heard from.
    pub health: Duration,
    /// Looking whether the own announcement must change.
    pub state: Duration,
    /// Announcing itself again though nothing changed.
    pub announce: Duration,
    /// Comparing the publication log with another peer's.
    pub catch_up: Duration,
    /// The first pause after a failed join; it doubles up to `introduce`.
    pub join: Duration,
    /// Telling a subscriber that nothing new is there.
    pub heartbeat: Duration,
    /// The longest wait for calls in progress when the peer stops.
    pub drain: Duration,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            introduce: Duration::from_secs(30),
            health: Duration::from_secs(10),
            state: Duration::from_secs(5),
            announce: Duration::from_secs(3600),
            catch_up: Duration::from_secs(60),
            join: Duration::from_millis(500),
            heartbeat: Duration::from_secs(20),
            drain: Duration::from_secs(10),
        }
    }
}
