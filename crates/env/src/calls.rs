//! Calls to peers: what can be asked of a librarian, as plain types that carry no transport.
//!
//! [`Calls`] is the asking side, [`Service`] the answering one. `rpc` joins them over gRPC with
//! mutual TLS; a simulated network joins them directly. Both sides see the same messages and the
//! same [`CallError`].

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::{Class, Classified, OrgId, PeerId, Place, PublicKey, RecordId};
use document::Record;
use futures::stream::BoxStream;

pub mod committee;
pub mod keep;
pub mod leases;
pub mod objects;

use committee::{CommitteeAnswer, CommitteeRequest};
use crypto::lease::Shown;
use keep::{KeepAnswer, KeepRequest};
use leases::{LeaseAnswer, LeaseRequest};
use objects::{ObjectsAnswer, ObjectsRequest, WatchEvents, WatchRequest};

/// Records, or requests, in one batch call at most.
pub const BATCH_MAX: usize = 1024;
/// Record bytes in one batch call at most.
pub const BATCH_BYTES_MAX: usize = 8 << 20;
/// How long a `Put` may wait for all copies, once enough are durable.
pub const PUT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Envelopes in one [`Calls::tell`].
pub const TELL_MAX: usize = 128;
/// Their bytes.
pub const TELL_BYTES_MAX: usize = 32 * 1024;
/// Peers in one answer at most.
pub const PEERS_MAX: usize = 1024;
/// Rosters in one answer at most.
pub const ROSTERS_TOLD_MAX: usize = 16;
/// Bytes of rosters in one answer at most.
pub const ROSTERS_TOLD_BYTES_MAX: usize = 1 << 20;
/// Bytes of revocations in one answer at most.
pub const REVOCATIONS_TOLD_BYTES_MAX: usize = 1 << 20;

/// Whom to call: an address, and who must answer there. Two are the same whose peer and address are.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The peer that must prove its key; `None` takes any peer of the network (a bootstrap
    /// address).
    pub peer: Option<PeerId>,
    /// `HOST:PORT` of its gRPC listener.
    pub address: String,
    /// Where else it says that it answers, best first: tried where `address` leads nowhere.
    pub further: Vec<String>,
}

impl Endpoint {
    /// Whoever of the network answers at an address that somebody gave. Certificates say at which addresses their peers answer, and
    /// any organisation can sign one that says this address: that names nobody.
    pub fn at(address: &str) -> Self {
        Self { peer: None, address: address.to_owned(), further: Vec::new() }
    }

    /// A peer at one address.
    pub fn of(peer: PeerId, address: impl Into<String>) -> Self {
        Self { peer: Some(peer), address: address.into(), further: Vec::new() }
    }

    fn named(&self) -> (Option<PeerId>, &str) {
        (self.peer, &self.address)
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        self.named() == other.named()
    }
}

impl Eq for Endpoint {}

impl Hash for Endpoint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.named().hash(state);
    }
}

impl PartialOrd for Endpoint {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Endpoint {
    fn cmp(&self, other: &Self) -> Ordering {
        self.named().cmp(&other.named())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

/// Why a call did not succeed. It is what travels: the far side's error arrives as the same
/// variant.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// No connection could be made, or it broke.
    #[error("cannot reach {address}: {reason}")]
    Unreachable {
        /// The address tried.
        address: String,
        /// What the system or TLS said.
        reason: String,
    },
    /// Another peer, or another network, answered at the address.
    #[error("{address} is not who was expected: {reason}")]
    WrongPeer {
        /// The address tried.
        address: String,
        /// What differed.
        reason: String,
    },
    /// No answer before the deadline.
    #[error("no answer from {address} within {limit:?}")]
    TimedOut {
        /// The address called.
        address: String,
        /// The deadline.
        limit: Duration,
    },
    /// The request is malformed or over a limit.
    #[error("the peer refused the request: {reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// The caller may not do this.
    #[error("denied: {reason}")]
    Denied {
        /// Why not.
        reason: String,
    },
    /// A limit was reached; nothing was done.
    #[error("busy, try again in {retry_after:?}")]
    Busy {
        /// When to try again.
        retry_after: Duration,
    },
    /// The peer's disk is full; nothing was stored.
    #[error("the peer's disk is full")]
    Full,
    /// The peer takes no writes (read-only mode, or its log is poisoned).
    #[error("the peer takes no writes: {reason}")]
    ReadOnly {
        /// Why not.
        reason: String,
    },
    /// Nobody the peer could ask has it.
    #[error("not found")]
    NotFound,
    /// Too few peers could be reached to answer (`Put` and `Get` only).
    #[error("not enough peers: {reached} of the {wanted} needed")]
    TooFewPeers {
        /// Reached.
        reached: u32,
        /// Needed.
        wanted: u32,
    },
    /// The answer is not what was asked for, or does not prove itself.
    #[error("{address} answered with bytes that do not prove themselves: {reason}")]
    Corrupt {
        /// The address called.
        address: String,
        /// What is wrong.
        reason: String,
    },
    /// The peer failed by a defect of its own.
    #[error("the peer failed: {reason}")]
    Internal {
        /// What it said.
        reason: String,
    },
}

impl Classified for CallError {
    fn class(&self) -> Class {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::TooFewPeers { .. } => {
                Class::Unavailable
            }
            Self::WrongPeer { .. } | Self::Denied { .. } => Class::Denied,
            Self::Invalid { .. } => Class::Invalid,
            Self::Busy { .. } | Self::Full | Self::ReadOnly { .. } => Class::Busy,
            Self::NotFound => Class::NotFound,
            Self::Corrupt { .. } => Class::Corrupt,
            Self::Internal { .. } => Class::Bug,
        }
    }
}

/// Who the caller says it is, beyond the key its connection proves.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Credential {
    /// Nothing: a stranger.
    #[default]
    None,
    /// A peer: its signed announcement.
    Peer(Bytes),
    /// A client: its signed pass.
    Client(Bytes),
}

/// What a caller knows of who takes part, so that it is told what it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The number of its newest roster.
    pub roster: u64,
    /// The hash of that roster.
    pub roster_hash: [u8; 32],
    /// BLAKE3 of its revocations one after the other, in the order of their organisations.
    pub revoked: [u8; 32],
}

/// Learn and be learnt.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct IntroduceRequest {
    /// What vouches for the caller on this connection from now on.
    pub credential: Credential,
    /// How many peers to tell at most.
    pub peers_max: u32,
    /// What it knows of who takes part; `None` where it does not want to be told.
    pub known: Option<Known>,
    /// A signed roster for the peer to take.
    pub offer: Option<Bytes>,
}

impl IntroduceRequest {
    /// An introduction that asks for so many peers and for nothing else.
    pub fn new(credential: Credential, peers_max: u32) -> Self {
        Self { credential, peers_max, known: None, offer: None }
    }
}

/// A peer as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPeer {
    /// Its signed announcement.
    pub announcement: Bytes,
    /// Milliseconds since the answering peer's last good call to it; `None` if there was none.
    pub last_good_ms: Option<u64>,
}

/// What a librarian tells about itself and the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntroduceResponse {
    /// Its own signed announcement.
    pub announcement: Bytes,
    /// Other peers: all where they fit, else a random sample.
    pub peers: Vec<KnownPeer>,
    /// The roster's number.
    pub roster: u64,
    /// The answering peer's clock, Unix milliseconds.
    pub unix_ms: u64,
    /// Records it holds.
    pub records: u64,
    /// Bytes it holds.
    pub bytes: u64,
    /// Signed rosters that the caller lacks, ascending: the first of them where it lacks more than fit.
    pub rosters: Vec<Bytes>,
    /// Signed revocations, where the caller does not know the same.
    pub revocations: Vec<Bytes>,
    /// The signed card of the committee's member that it hosts.
    pub member: Option<Bytes>,
}

/// Ask for a record at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindRequest {
    /// Which record.
    pub id: RecordId,
    /// Where it lives.
    pub place: Place,
}

/// The record, or who is closer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindResponse {
    /// The peer holds it. The caller proves it before use.
    Found(Record),
    /// The peer does not hold it; the closest peers it knows, as signed announcements, closest
    /// first.
    Closest(Vec<Bytes>),
}

/// Ask for proof of holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyRequest {
    /// Which record.
    pub id: RecordId,
    /// Where it lives.
    pub place: Place,
    /// A fresh key.
    pub mac_key: [u8; 32],
}

/// Proof of holding, or who is closer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyResponse {
    /// The suite's MAC of the record's bytes under the fresh key.
    Mac([u8; 32]),
    /// As in [`FindResponse::Closest`].
    Closest(Vec<Bytes>),
}

/// What storing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// It was new and is durable as the peer's setting says.
    Stored,
    /// It was there already.
    Present,
}

/// What a librarian's `Put` reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutResponse {
    /// Copies acknowledged.
    pub acked: u32,
    /// Copies wanted.
    pub wanted: u32,
}

/// Where in a peer's publication log a subscriber is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cursor {
    /// Whose log the offset belongs to; another peer resumes by time.
    pub peer: Option<PeerId>,
    /// The next offset to read.
    pub offset: u64,
    /// When the last one read was logged, Unix milliseconds.
    pub unix_ms: u64,
}

/// Which publications to send. An absent filter lets everything pass; both must match where both
/// are given.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SubscribeRequest {
    /// Bloom filter over author keys (encoded, see `document::bloom`).
    pub authors: Option<Bytes>,
    /// Bloom filter over reader keys.
    pub readers: Option<Bytes>,
    /// Where to start; the default is the start of the log.
    pub from: Cursor,
    /// Whether to go on with new ones after the end of the log.
    pub follow: bool,
    /// Bloom filter over the first [`KNOWN_KEY_BYTES`] bytes of the keys of publications that the caller has: what may
    /// be one of them is left out.
    pub known: Option<Bytes>,
}

/// Bytes of a publication's key in [`SubscribeRequest::known`]: whoever wants two to be taken for one makes 2^64.
pub const KNOWN_KEY_BYTES: usize = 16;

/// What a subscription sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscribeEvent {
    /// A publication that matches.
    Publication {
        /// The encoded `Publication`.
        publication: Bytes,
        /// When the peer logged it, Unix milliseconds.
        received_ms: u64,
        /// Where to resume after it.
        cursor: Cursor,
    },
    /// The log does not go back to the cursor: publications may be missing before this.
    Gap {
        /// Where the log starts.
        cursor: Cursor,
    },
    /// The end of what was logged when the call came; new ones follow if asked for.
    CaughtUp {
        /// Where to resume.
        cursor: Cursor,
    },
}

/// A subscription's events.
pub type Events = BoxStream<'static, Result<SubscribeEvent, CallError>>;

/// Asks librarians. Every call ends within its deadline with an answer or an error.
#[async_trait]
pub trait Calls: Send + Sync {
    /// Learn and be learnt. Implementations introduce themselves by their own credential on each
    /// new connection too.
    async fn introduce(
        &self,
        to: &Endpoint,
        request: IntroduceRequest,
        limit: Duration,
    ) -> Result<IntroduceResponse, CallError>;

    /// Ask for a record. What comes back is not yet proven.
    async fn find(
        &self,
        to: &Endpoint,
        request: FindRequest,
        limit: Duration,
    ) -> Result<FindResponse, CallError>;

    /// Ask for many small records: one answer a request, in order.
    async fn find_batch(
        &self,
        to: &Endpoint,
        requests: Vec<FindRequest>,
        limit: Duration,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError>;

    /// Ask for proof of holding.
    async fn verify(
        &self,
        to: &Endpoint,
        request: VerifyRequest,
        limit: Duration,
    ) -> Result<VerifyResponse, CallError>;

    /// Ask for proof of holding many: one answer a request, in order.
    async fn verify_batch(
        &self,
        to: &Endpoint,
        requests: Vec<VerifyRequest>,
        limit: Duration,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError>;

    /// Store a record.
    async fn store(
        &self,
        to: &Endpoint,
        record: Record,
        limit: Duration,
    ) -> Result<StoreOutcome, CallError>;

    /// Store many small records: one outcome a record, in order.
    async fn store_batch(
        &self,
        to: &Endpoint,
        records: Vec<Record>,
        limit: Duration,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError>;

    /// As [`Calls::store_batch`], with the leases that the records are paid by: each leaf for the place of one of them. Where
    /// leases are not known they are kept without.
    async fn store_leased(
        &self,
        to: &Endpoint,
        records: Vec<Record>,
        leases: Vec<Shown>,
        limit: Duration,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        let _ = leases;
        self.store_batch(to, records, limit).await
    }

    /// As [`Calls::put`], with the leases that the record is paid by.
    async fn put_leased(
        &self,
        to: &Endpoint,
        record: Record,
        leases: Vec<Shown>,
        wait: Duration,
        limit: Duration,
    ) -> Result<PutResponse, CallError> {
        let _ = leases;
        self.put(to, record, wait, limit).await
    }

    /// Ask about leases. The answer is of the request's name.
    async fn lease(
        &self,
        to: &Endpoint,
        request: LeaseRequest,
        limit: Duration,
    ) -> Result<LeaseAnswer, CallError> {
        let _ = (to, request, limit);
        Err(no_leases())
    }

    /// Let the librarian store a record at its holders. Once enough copies are durable for an
    /// answer it may wait so long for all of them, [`PUT_WAIT_MAX`] at most.
    async fn put(
        &self,
        to: &Endpoint,
        record: Record,
        wait: Duration,
        limit: Duration,
    ) -> Result<PutResponse, CallError>;

    /// Let the librarian find a record at its holders.
    async fn get(
        &self,
        to: &Endpoint,
        request: FindRequest,
        limit: Duration,
    ) -> Result<Record, CallError>;

    /// Give a peer envelopes to tell all others of, together with what other peers gave it; it has taken all or none.
    /// At most [`TELL_MAX`] of together [`TELL_BYTES_MAX`] bytes; for peers alone.
    async fn tell(
        &self,
        to: &Endpoint,
        envelopes: Vec<Bytes>,
        limit: Duration,
    ) -> Result<(), CallError> {
        let _ = (to, envelopes, limit);
        Err(CallError::Denied { reason: "nobody is told of envelopes here".to_owned() })
    }

    /// Ask about versioned objects. The answer is of the request's name, and what is in it is not yet proven.
    async fn objects(
        &self,
        to: &Endpoint,
        request: ObjectsRequest,
        limit: Duration,
    ) -> Result<ObjectsAnswer, CallError> {
        let _ = (to, request, limit);
        Err(no_objects())
    }

    /// Ask a peer what the network needs to stay whole. The answer is of the request's name, and what is in it is not yet
    /// proven.
    async fn keep(
        &self,
        to: &Endpoint,
        request: KeepRequest,
        limit: Duration,
    ) -> Result<KeepAnswer, CallError> {
        let _ = (to, request, limit);
        Err(no_keeping())
    }

    /// Ask the member of a committee that a librarian hosts. The answer is of the request's name, and what is in it is not yet
    /// proven.
    async fn committee(
        &self,
        to: &Endpoint,
        request: CommitteeRequest,
        limit: Duration,
    ) -> Result<CommitteeAnswer, CallError> {
        let _ = (to, request, limit);
        Err(no_member())
    }

    /// Watch versioned objects. `limit` and heartbeats as in [`Calls::subscribe`].
    async fn watch(
        &self,
        to: &Endpoint,
        request: WatchRequest,
        limit: Duration,
    ) -> Result<WatchEvents, CallError> {
        let _ = (to, request, limit);
        Err(no_objects())
    }

    /// Follow a librarian's publication log. `limit` bounds the first answer, not the stream; a
    /// stream of which nothing comes for a minute has ended with an error (librarians send
    /// [`SubscribeEvent::CaughtUp`] as heartbeat).
    async fn subscribe(
        &self,
        to: &Endpoint,
        request: SubscribeRequest,
        limit: Duration,
    ) -> Result<Events, CallError>;
}

fn no_leases() -> CallError {
    CallError::Invalid { reason: "there are no leases here".to_owned() }
}

fn no_keeping() -> CallError {
    CallError::Denied { reason: "nothing is compared or mended here".to_owned() }
}

fn no_member() -> CallError {
    CallError::NotFound
}

fn no_objects() -> CallError {
    CallError::Denied { reason: "there are no versioned objects here".to_owned() }
}

/// The caller as its connection proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The key that the connection proved.
    pub key: PublicKey,
}

/// Answers callers: a librarian. Each method may be called with anything and answers with a typed
/// error.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// The organisation that vouches for a caller that was vouched for once; none where nobody does any more: then it holds no
    /// more than a stranger.
    fn vouched_by(&self, caller: Caller) -> Option<OrgId> {
        Some(OrgId::new(caller.key))
    }
    /// See [`Calls::introduce`].
    async fn introduce(
        &self,
        caller: Caller,
        request: IntroduceRequest,
    ) -> Result<IntroduceResponse, CallError>;
    /// See [`Calls::find`].
    async fn find(&self, caller: Caller, request: FindRequest) -> Result<FindResponse, CallError>;
    /// See [`Calls::find_batch`].
    async fn find_batch(
        &self,
        caller: Caller,
        requests: Vec<FindRequest>,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError>;
    /// See [`Calls::verify`].
    async fn verify(
        &self,
        caller: Caller,
        request: VerifyRequest,
    ) -> Result<VerifyResponse, CallError>;
    /// See [`Calls::verify_batch`].
    async fn verify_batch(
        &self,
        caller: Caller,
        requests: Vec<VerifyRequest>,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError>;
    /// See [`Calls::store`].
    async fn store(&self, caller: Caller, record: Record) -> Result<StoreOutcome, CallError>;
    /// See [`Calls::store_batch`].
    async fn store_batch(
        &self,
        caller: Caller,
        records: Vec<Record>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError>;
    /// See [`Calls::store_leased`].
    async fn store_leased(
        &self,
        caller: Caller,
        records: Vec<Record>,
        leases: Vec<Shown>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        let _ = leases;
        self.store_batch(caller, records).await
    }
    /// See [`Calls::put_leased`].
    async fn put_leased(
        &self,
        caller: Caller,
        record: Record,
        leases: Vec<Shown>,
        wait: Duration,
    ) -> Result<PutResponse, CallError> {
        let _ = leases;
        self.put(caller, record, wait).await
    }
    /// Whether a caller may ask what [`Calls::keep`] asks at all: before thousands of keys of its request are decoded.
    ///
    /// # Errors
    /// `Denied`.
    fn may_keep(&self, caller: &Caller) -> Result<(), CallError> {
        let _ = caller;
        Ok(())
    }
    /// See [`Calls::lease`].
    async fn lease(&self, caller: Caller, request: LeaseRequest) -> Result<LeaseAnswer, CallError> {
        let _ = (caller, request);
        Err(no_leases())
    }
    /// See [`Calls::put`].
    async fn put(
        &self,
        caller: Caller,
        record: Record,
        wait: Duration,
    ) -> Result<PutResponse, CallError>;
    /// See [`Calls::get`].
    async fn get(&self, caller: Caller, request: FindRequest) -> Result<Record, CallError>;
    /// See [`Calls::tell`].
    async fn tell(&self, caller: Caller, envelopes: Vec<Bytes>) -> Result<(), CallError> {
        let _ = (caller, envelopes);
        Err(CallError::Denied { reason: "nobody is told of envelopes here".to_owned() })
    }
    /// See [`Calls::objects`].
    async fn objects(
        &self,
        caller: Caller,
        request: ObjectsRequest,
    ) -> Result<ObjectsAnswer, CallError> {
        let _ = (caller, request);
        Err(no_objects())
    }
    /// See [`Calls::keep`].
    async fn keep(&self, caller: Caller, request: KeepRequest) -> Result<KeepAnswer, CallError> {
        let _ = (caller, request);
        Err(no_keeping())
    }
    /// See [`Calls::committee`].
    async fn committee(
        &self,
        caller: Caller,
        request: CommitteeRequest,
    ) -> Result<CommitteeAnswer, CallError> {
        let _ = (caller, request);
        Err(no_member())
    }
    /// See [`Calls::watch`].
    async fn watch(&self, caller: Caller, request: WatchRequest) -> Result<WatchEvents, CallError> {
        let _ = (caller, request);
        Err(no_objects())
    }
    /// See [`Calls::subscribe`].
    async fn subscribe(
        &self,
        caller: Caller,
        request: SubscribeRequest,
    ) -> Result<Events, CallError>;
}
