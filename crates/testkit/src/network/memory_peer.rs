//! The smallest honest librarian: proves records, keeps them in memory, tells its peers.
//!
//! It has no disk, no limits, no health and no publication log (`Subscribe` is refused); `Put` and `Get` stay on itself. For
//! tests of what calls librarians.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::{Announcement, Genesis, PeerId, Place, RecordId, Rosters, Suite};
use document::{Document, DocumentError, Record};
use env::Env;
use env::calls::{
    BATCH_MAX, CallError, Caller, Credential, Events, FindRequest, FindResponse, IntroduceRequest,
    IntroduceResponse, KnownPeer, PutResponse, ROSTERS_TOLD_BYTES_MAX, ROSTERS_TOLD_MAX, Service,
    StoreOutcome, SubscribeRequest, VerifyRequest, VerifyResponse,
};
use placement::{Candidate, View};

/// Closer peers told where a record is not here.
const CLOSEST_MAX: usize = 20;

/// An honest peer whose store is memory.
pub struct MemoryPeer {
    suite: Suite,
    env: Env,
    inner: Mutex<Inner>,
}

struct Inner {
    announcement: Bytes,
    records: BTreeMap<RecordId, Record>,
    known: BTreeMap<PeerId, (Announcement, Bytes)>,
    rosters: Rosters,
}

impl MemoryPeer {
    /// A peer that announces itself so.
    pub fn new(genesis: Arc<Genesis>, announcement: Bytes, env: &Env) -> Arc<Self> {
        let suite = genesis.suite;
        let inner = Inner {
            announcement,
            records: BTreeMap::new(),
            known: BTreeMap::new(),
            rosters: Rosters::new(genesis),
        };
        Arc::new(Self { suite, env: env.clone(), inner: Mutex::new(inner) })
    }

    /// Tells it of a peer; one that does not count, or is older than what it knows, is ignored.
    pub fn learn(&self, announcement: &Bytes) {
        let now = self.env.clock.unix_s();
        let mut inner = self.inner();
        let roster = inner.rosters.current().clone();
        let Ok(verified) = Announcement::verify(announcement, &roster, now) else { return };
        let peer = verified.certificate.peer;
        let known = inner.known.get(&peer).map(|(known, _)| known.sequence);
        if known.is_none_or(|known| known < verified.sequence) {
            inner.known.insert(peer, (verified, announcement.clone()));
        }
    }

    /// Tells it of a roster, which it tells on; it goes on knowing whom it knows.
    ///
    /// # Panics
    /// Where the roster does not count.
    pub fn learn_roster(&self, roster: &Bytes) {
        self.inner().rosters.learn(roster).expect("a roster that counts");
    }

    /// Makes it announce itself so from now on.
    pub fn announce(&self, announcement: Bytes) {
        self.inner().announcement = announcement;
    }

    /// Whether it holds a record.
    pub fn holds(&self, id: &RecordId) -> bool {
        self.inner().records.contains_key(id)
    }

    /// How many records it holds.
    pub fn records(&self) -> usize {
        self.inner().records.len()
    }

    /// All records it holds.
    pub fn all(&self) -> Vec<Record> {
        self.inner().records.values().cloned().collect()
    }

    /// Makes it hold a record that nobody sent it.
    pub fn keep(&self, record: Record) {
        self.inner().records.insert(record.id, record);
    }

    /// Loses a record; whether it had it.
    pub fn lose(&self, id: &RecordId) -> bool {
        self.inner().records.remove(id).is_some()
    }

    /// Loses everything.
    pub fn lose_all(&self) {
        self.inner().records.clear();
    }

    /// Changes the bytes of a record it holds behind its back, as a rotten disk would; whether it had it.
    pub fn rot(&self, id: &RecordId) -> bool {
        let mut inner = self.inner();
        let Some(record) = inner.records.get_mut(id) else { return false };
        record.bytes = super::flipped(&record.bytes);
        true
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closest(&self, place: &Place) -> Vec<Bytes> {
        let inner = self.inner();
        let candidates = inner.known.values().map(|(known, _)| Candidate {
            peer: known.certificate.peer,
            organisation: known.certificate.organisation,
            weight: known.certificate.capacity,
        });
        let rank = View::new(0, candidates.collect()).rank(place);
        let closest = rank.iter().take(CLOSEST_MAX).filter_map(|peer| inner.known.get(peer));
        closest.map(|(_, bytes)| bytes.clone()).collect()
    }

    fn take(&self, record: Record) -> Result<StoreOutcome, CallError> {
        let invalid = |error: DocumentError| CallError::Invalid { reason: error.to_string() };
        let document = document::prove(self.suite, &record).map_err(invalid)?;
        if record.place != Place::from(record.id) {
            // A fragment: only beside the header that lists it.
            let header = RecordId::new(*record.place.as_bytes());
            let bytes = self.inner().records.get(&header).map(|header| header.bytes.clone());
            let listed = match bytes.map(|bytes| Document::decode(&bytes)) {
                Some(Ok(Document::Stripe(stripe))) => stripe.prove(&header, &record, &document),
                _ => Err(DocumentError::Place(record.id)),
            };
            listed.map_err(invalid)?;
        }
        match self.inner().records.insert(record.id, record) {
            Some(_) => Ok(StoreOutcome::Present),
            None => Ok(StoreOutcome::Stored),
        }
    }

    fn look(&self, request: &FindRequest) -> FindResponse {
        let record = self.inner().records.get(&request.id).cloned();
        match record.filter(|record| record.place == request.place) {
            Some(record) => FindResponse::Found(record),
            None => FindResponse::Closest(self.closest(&request.place)),
        }
    }

    fn show(&self, request: &VerifyRequest) -> VerifyResponse {
        match self.look(&FindRequest { id: request.id, place: request.place }) {
            FindResponse::Found(record) => {
                VerifyResponse::Mac(self.suite.mac(&request.mac_key, &record.bytes))
            }
            FindResponse::Closest(closest) => VerifyResponse::Closest(closest),
        }
    }
}

fn bounded(count: usize) -> Result<(), CallError> {
    let reason = || format!("a batch has at most {BATCH_MAX} members");
    if count > BATCH_MAX { Err(CallError::Invalid { reason: reason() }) } else { Ok(()) }
}

#[async_trait]
impl Service for MemoryPeer {
    async fn introduce(
        &self,
        _caller: Caller,
        request: IntroduceRequest,
    ) -> Result<IntroduceResponse, CallError> {
        if let Credential::Peer(announcement) = &request.credential {
            self.learn(announcement);
        }
        let inner = self.inner();
        let others = inner.known.values().filter(|(_, bytes)| *bytes != inner.announcement);
        let others = others
            .take(request.peers_max as usize)
            .map(|(_, bytes)| KnownPeer { announcement: bytes.clone(), last_good_ms: None });
        Ok(IntroduceResponse {
            announcement: inner.announcement.clone(),
            peers: others.collect(),
            roster: inner.rosters.current().number(),
            unix_ms: self.env.clock.unix_ms(),
            records: inner.records.len() as u64,
            bytes: inner.records.values().map(|record| record.bytes.len() as u64).sum(),
            rosters: request.known.map_or(Vec::new(), |known| {
                let (number, hash) = (known.roster, &known.roster_hash);
                inner.rosters.lacking(number, hash, ROSTERS_TOLD_MAX, ROSTERS_TOLD_BYTES_MAX)
            }),
            revocations: Vec::new(),
            member: None,
        })
    }

    async fn find(&self, _caller: Caller, request: FindRequest) -> Result<FindResponse, CallError> {
        Ok(self.look(&request))
    }

    async fn find_batch(
        &self,
        _caller: Caller,
        requests: Vec<FindRequest>,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        bounded(requests.len())?;
        Ok(requests.iter().map(|request| Ok(self.look(request))).collect())
    }

    async fn verify(
        &self,
        _caller: Caller,
        request: VerifyRequest,
    ) -> Result<VerifyResponse, CallError> {
        Ok(self.show(&request))
    }

    async fn verify_batch(
        &self,
        _caller: Caller,
        requests: Vec<VerifyRequest>,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        bounded(requests.len())?;
        Ok(requests.iter().map(|request| Ok(self.show(request))).collect())
    }

    async fn store(&self, _caller: Caller, record: Record) -> Result<StoreOutcome, CallError> {
        self.take(record)
    }

    async fn store_batch(
        &self,
        _caller: Caller,
        records: Vec<Record>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        bounded(records.len())?;
        Ok(records.into_iter().map(|record| self.take(record)).collect())
    }

    async fn put(
        &self,
        _caller: Caller,
        record: Record,
        _wait: Duration,
    ) -> Result<PutResponse, CallError> {
        self.take(record).map(|_| PutResponse { acked: 1, wanted: 1 })
    }

    async fn get(&self, _caller: Caller, request: FindRequest) -> Result<Record, CallError> {
        match self.look(&request) {
            FindResponse::Found(record) => Ok(record),
            FindResponse::Closest(_) => Err(CallError::NotFound),
        }
    }

    async fn subscribe(
        &self,
        _caller: Caller,
        _request: SubscribeRequest,
    ) -> Result<Events, CallError> {
        Err(CallError::Invalid { reason: "this peer keeps no publications".to_owned() })
    }
}
