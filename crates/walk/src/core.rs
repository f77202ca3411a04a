//! What all walks share, and one call to one peer: deadline, one patient retry where it is busy, proof, health.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crypto::lease::Shown;
use crypto::{PeerId, RecordId};
use document::{Kind, Record};
use env::Env;
use env::calls::{CallError, Calls, Credential, Endpoint, FindRequest, FindResponse, StoreOutcome};

use crate::directory::Directory;
use crate::hedge::Budget;
use crate::latency::{LARGE_BYTES, Size};
use crate::line::{Line, Load, Moved};
use crate::owing::Owing;
use crate::proof::{self, Proven};
use crate::race::Ended;
use crate::stripe::StripeShape;
use crate::through::Through;

/// The deadline of a call that moves next to nothing.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);
/// The slowest transfer that is waited for, in bytes a second.
pub const TRANSFER_BYTES_PER_S: u64 = 1_000_000;
/// The deadline of a call to a peer that failed a moment ago, when nobody else is left to ask.
pub const LAST_RESORT_LIMIT: Duration = Duration::from_secs(2);
/// The longest wait for a busy peer, once a call.
pub const BUSY_WAIT_MAX: Duration = Duration::from_secs(2);
/// The longest one walk takes, beside its waiting for turns on the line; what is not reached by then counts as unreachable.
pub const WALK_LIMIT: Duration = Duration::from_secs(60);
/// How much longer than its deadline a call may take to say that it missed it.
const LIMIT_GRACE: Duration = Duration::from_millis(500);
/// Announcements of closer peers taken from one answer.
const CLOSER_MAX: usize = 16;

/// This program's own store, where it is a holder itself.
#[async_trait]
pub trait LocalStore: Send + Sync + 'static {
    /// Stores a record durably; whether it was new.
    async fn store(&self, record: Record) -> Result<StoreOutcome, CallError>;
    /// As [`LocalStore::store`], with the leases that the record is paid by.
    async fn store_leased(
        &self,
        record: Record,
        leases: Vec<Shown>,
    ) -> Result<StoreOutcome, CallError> {
        let _ = leases;
        self.store(record).await
    }
    /// The record, if it is there.
    async fn find(&self, id: &RecordId) -> Result<Option<Record>, CallError>;
}

/// What every walk needs.
pub(crate) struct Core {
    pub(crate) env: Env,
    pub(crate) calls: Arc<dyn Calls>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) budget: Budget,
    /// Turns of calls with records.
    pub(crate) line: Arc<Line>,
    /// Who is being asked for large records.
    pub(crate) owing: Arc<Owing>,
    pub(crate) own: Option<(PeerId, Arc<dyn LocalStore>)>,
    pub(crate) credential: Mutex<Credential>,
    /// Librarians that walk for this program; then no other peer is called.
    pub(crate) through: Option<Through>,
}

/// A record that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) kind: Option<Kind>,
    pub(crate) request: FindRequest,
    /// How many bytes it has, about, where that is known.
    pub(crate) bytes: Option<usize>,
}

impl Wanted {
    /// A record of which no more is known.
    pub(crate) fn new(kind: Option<Kind>, request: FindRequest) -> Self {
        Self { kind, request, bytes: None }
    }

    /// A fragment of a stripe.
    pub(crate) fn fragment(shape: &StripeShape, index: usize) -> Self {
        let request = FindRequest { id: shape.fragments[index], place: shape.place() };
        Self { kind: Some(shape.kind(index)), request, bytes: Some(shape.fragment_bytes) }
    }

    /// How large an answer will be, as far as its bytes or its kind tell.
    pub(crate) fn size(&self) -> Size {
        if let Some(bytes) = self.bytes {
            return Size::of(bytes);
        }
        match self.kind {
            Some(
                Kind::Envelope
                | Kind::Entry
                | Kind::Stripe
                | Kind::Object
                | Kind::Policy
                | Kind::Head
                | Kind::Devices
                | Kind::Lease,
            ) => Size::Small,
            Some(Kind::Page | Kind::Parity | Kind::Version | Kind::Attestation) | None => {
                Size::Large
            }
        }
    }
}

/// What a peer said about a record.
pub(crate) enum Answer {
    /// Here it is, proven.
    Found(Box<Proven>),
    /// It is not here.
    NotHere,
    /// No answer that counts.
    Failed(CallError),
}

impl From<Result<Option<Proven>, CallError>> for Answer {
    fn from(answer: Result<Option<Proven>, CallError>) -> Self {
        match answer {
            Ok(Some(proven)) => Self::Found(Box::new(proven)),
            Ok(None) => Self::NotHere,
            Err(error) => Self::Failed(error),
        }
    }
}

impl Ended for Answer {
    fn moved(&self) -> Moved {
        match self {
            Self::Found(proven) => proven.moved(),
            Self::NotHere => Moved::Nothing,
            Self::Failed(error) => error.moved(),
        }
    }
}

/// The deadline of a call that moves so many bytes, where the line has nothing else to move.
pub(crate) fn limit(bytes: usize) -> Duration {
    CALL_LIMIT + Duration::from_micros(bytes as u64 * 1_000_000 / TRANSFER_BYTES_PER_S)
}

impl Core {
    /// The own store, if `peer` is this program.
    pub(crate) fn local(&self, peer: &PeerId) -> Option<&Arc<dyn LocalStore>> {
        self.own.as_ref().filter(|(own, _)| own == peer).map(|(_, store)| store)
    }

    pub(crate) fn credential(&self) -> Credential {
        self.credential.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where to call the peer.
    pub(crate) fn endpoint(&self, peer: &PeerId) -> Result<Endpoint, CallError> {
        let endpoint = self.directory.endpoint(peer);
        endpoint.ok_or_else(|| CallError::Unreachable {
            address: peer.to_string(),
            reason: "it announced no address".to_owned(),
        })
    }

    /// Runs a call that promises to end by `limit`, and ends it where it does not.
    pub(crate) async fn bounded<T>(
        &self,
        to: &Endpoint,
        limit: Duration,
        call: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        match self.env.within(limit + LIMIT_GRACE, call).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::TimedOut { address: to.address.clone(), limit }),
        }
    }

    /// Tells the directory how a call went that began at `since`.
    pub(crate) fn note<T>(
        &self,
        peer: &PeerId,
        size: Size,
        since: Duration,
        result: &Result<T, CallError>,
    ) {
        match result {
            Ok(_) => {
                let took = self.env.clock.elapsed().saturating_sub(since);
                self.directory.answered(peer, size, took);
            }
            Err(error) => self.directory.failed(peer, error),
        }
    }

    /// What a call to `peer` that sends so many bytes puts on the line: nothing where that is this program.
    pub(crate) fn load_to(&self, peer: &PeerId, bytes: usize) -> Load {
        if self.local(peer).is_some() { Load::little() } else { Load::sent(bytes) }
    }

    /// Stores a record at one peer; a busy one is waited for once.
    pub(crate) async fn store_at(
        &self,
        peer: PeerId,
        record: Record,
        leases: Arc<Vec<Shown>>,
        limit: Duration,
    ) -> Result<StoreOutcome, CallError> {
        if let Some(own) = self.local(&peer) {
            return own.store_leased(record, leases.to_vec()).await;
        }
        match self.store_once(&peer, record.clone(), &leases, limit).await {
            Err(CallError::Busy { retry_after }) => {
                self.env.clock.sleep(retry_after.min(BUSY_WAIT_MAX)).await;
                self.store_once(&peer, record, &leases, limit).await
            }
            answer => answer,
        }
    }

    async fn store_once(
        &self,
        peer: &PeerId,
        record: Record,
        leases: &[Shown],
        limit: Duration,
    ) -> Result<StoreOutcome, CallError> {
        let to = self.endpoint(peer)?;
        let size = Size::of(record.bytes.len());
        let since = self.env.clock.elapsed();
        if leases.is_empty() {
            let answer = self.bounded(&to, limit, self.calls.store(&to, record, limit)).await;
            self.note(peer, size, since, &answer);
            return answer;
        }
        let call = self.calls.store_leased(&to, vec![record], leases.to_vec(), limit);
        let answer = self.bounded(&to, limit, call).await.and_then(|mut outcomes| {
            match (outcomes.pop(), outcomes.is_empty()) {
                (Some(outcome), true) => outcome,
                _ => Err(CallError::Corrupt {
                    address: to.address.clone(),
                    reason: "it did not answer for one record".to_owned(),
                }),
            }
        });
        self.note(peer, size, since, &answer);
        answer
    }

    /// Asks one peer for a record and proves its answer.
    pub(crate) async fn find_at(&self, peer: PeerId, wanted: Wanted, limit: Duration) -> Answer {
        let to = match self.endpoint(&peer) {
            Ok(to) => to,
            Err(error) => return Answer::Failed(error),
        };
        let since = self.env.clock.elapsed();
        let call = self.calls.find(&to, wanted.request, limit);
        let answer = self.bounded(&to, limit, call).await;
        let answer = self.judge(&peer, &wanted, answer).await;
        // By the size that was expected: that is what the next such question will be compared with.
        let size = if let Ok(Some(_)) = &answer { wanted.size() } else { Size::Small };
        self.note(&peer, size, since, &answer);
        Answer::from(answer)
    }

    /// Proves what a peer answered; `None` where it says that it does not have the record.
    pub(crate) async fn judge(
        &self,
        peer: &PeerId,
        wanted: &Wanted,
        answer: Result<FindResponse, CallError>,
    ) -> Result<Option<Proven>, CallError> {
        match answer {
            Ok(FindResponse::Found(record)) => self.prove_wanted(peer, wanted, record).await,
            Ok(FindResponse::Closest(closer)) => {
                self.learn_closer(&closer);
                Ok(None)
            }
            // A peer without the record may say so in either way.
            Err(CallError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Core::prove`]; `None` where the record is of another kind than the one looked for. Its id says so, and whoever has it
    /// does not lie: it was named wrongly (by a made-up publication, say), and one of that kind is nowhere.
    pub(crate) async fn prove_wanted(
        &self,
        peer: &PeerId,
        wanted: &Wanted,
        record: Record,
    ) -> Result<Option<Proven>, CallError> {
        // The kinds of a stripe's fragments are its header's word, and looked after there.
        let other = wanted.bytes.is_none() && wanted.kind.is_some_and(|kind| kind != record.kind);
        let asked = if other { Wanted { kind: None, ..*wanted } } else { *wanted };
        let proven = self.prove(peer, &asked, record).await?;
        Ok((!other).then_some(proven))
    }

    /// Checks that a record is what was asked for and proves itself. A page is hashed on a CPU thread.
    pub(crate) async fn prove(
        &self,
        peer: &PeerId,
        wanted: &Wanted,
        record: Record,
    ) -> Result<Proven, CallError> {
        let (suite, wanted) = (self.directory.genesis().suite, *wanted);
        let proven = if record.bytes.len() < LARGE_BYTES {
            proof::prove(suite, &wanted, record)
        } else {
            self.env.cpu(move || proof::prove(suite, &wanted, record)).await
        };
        proven.map_err(|reason| CallError::Corrupt {
            address: self.directory.endpoint(peer).map(|at| at.address).unwrap_or_default(),
            reason,
        })
    }

    fn learn_closer(&self, closer: &[bytes::Bytes]) {
        for announcement in closer.iter().take(CLOSER_MAX) {
            // What does not count is left out: the peer may be lying, or have an older clock.
            let _ = self.directory.learn(announcement);
        }
    }
}
