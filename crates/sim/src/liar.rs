//! Lies that take knowledge: other fragments of the same stripe, fragments and headers of others, records cut short, and
//! the word that a record is there which was never kept.
//!
//! How a peer cheats those that keep the network whole with it is a [`Cheat`], in `liar/cheat.rs`.
//!
//! Every peer's service is behind a [`Liar`], which is honest until it is told a [`Lie`]. Liars know whatever was ever sent to any
//! peer, as if all of them worked together. Simpler lies are `testkit`'s `Fault`.

mod cheat;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::lease::Shown;
use crypto::{Place, RecordId};
use document::{Kind, Record};
use env::calls::keep::{KeepAnswer, KeepRequest};
use env::calls::leases::{LeaseAnswer, LeaseRequest};
use env::calls::objects::{ObjectsAnswer, ObjectsRequest, WatchEvents, WatchRequest};
use env::calls::{
    CallError, Caller, Events, FindRequest, FindResponse, IntroduceRequest, IntroduceResponse,
    PutResponse, Service, StoreOutcome, SubscribeRequest, VerifyRequest, VerifyResponse,
};

use crate::history::History;
pub use cheat::Cheat;
pub(crate) use cheat::{Knowing, invented};

/// What a peer says that is not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// For a fragment, another one of its stripe, valid in itself; by its own name and by the name asked for, in turn.
    OtherFragment,
    /// For a fragment, one of another stripe, likewise.
    OtherStripe,
    /// For a stripe's header, that of another stripe, likewise.
    OtherHeader,
    /// Every record ends early: half of it is missing, or its last byte, or all of it.
    CutShort,
    /// What is written is there already, it says, and keeps nothing.
    KeepsNothing,
}

/// All lies there are.
pub const LIES: [Lie; 5] =
    [Lie::OtherFragment, Lie::OtherStripe, Lie::OtherHeader, Lie::CutShort, Lie::KeepsNothing];

/// Records of one place that are remembered; a stripe has fewer.
const REMEMBERED_MAX: usize = 512;

/// What all liars of a run know, and who lies how.
pub(crate) struct Liars {
    history: History,
    state: Mutex<State>,
}

struct State {
    /// Whether anybody will ever lie: else nothing is remembered.
    remembers: bool,
    lies: BTreeMap<usize, Lie>,
    cheats: BTreeMap<usize, (Cheat, Knowing)>,
    /// Fragments and headers that were sent to anybody, by place.
    seen: BTreeMap<Place, BTreeMap<RecordId, Record>>,
    told: usize,
}

impl Liars {
    pub(crate) fn new(history: History, remembers: bool) -> Arc<Self> {
        let (lies, seen) = (BTreeMap::new(), BTreeMap::new());
        let state = State { remembers, lies, cheats: BTreeMap::new(), seen, told: 0 };
        Arc::new(Self { history, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a peer lie, or (with none) be honest again.
    pub(crate) fn set(&self, peer: usize, lie: Option<Lie>) {
        let mut state = self.lock();
        match lie {
            Some(lie) => state.lies.insert(peer, lie),
            None => state.lies.remove(&peer),
        };
    }

    /// How a peer lies now.
    fn lie(&self, peer: usize) -> Option<Lie> {
        self.lock().lies.get(&peer).copied()
    }

    /// A peer's service, behind its lies.
    pub(crate) fn before(
        self: &Arc<Self>,
        peer: usize,
        inner: Arc<dyn Service>,
    ) -> Arc<dyn Service> {
        Arc::new(Liar { peer, inner, liars: Arc::clone(self) })
    }

    fn remember(&self, records: &[Record]) {
        let mut state = self.lock();
        if !state.remembers {
            return;
        }
        let is_striped = |record: &&Record| {
            record.kind == Kind::Stripe || record.place != Place::from(record.id)
        };
        for record in records.iter().filter(is_striped) {
            let at = state.seen.entry(record.place).or_default();
            if at.len() < REMEMBERED_MAX {
                at.insert(record.id, record.clone());
            }
        }
    }

    /// What a peer that lies so sends instead of this record.
    fn instead(&self, lie: Lie, asked: &FindRequest, honest: Record) -> Record {
        let mut state = self.lock();
        state.told += 1;
        let turn = state.told;
        let is_fragment = honest.place != Place::from(honest.id);
        let other = |found: &&Record| match lie {
            Lie::OtherFragment => {
                is_fragment
                    && found.place == asked.place
                    && found.kind != Kind::Stripe
                    && found.id != asked.id
            }
            Lie::OtherStripe => {
                is_fragment && found.place != asked.place && found.kind == honest.kind
            }
            Lie::OtherHeader => {
                honest.kind == Kind::Stripe && found.kind == Kind::Stripe && found.id != asked.id
            }
            Lie::CutShort | Lie::KeepsNothing => false,
        };
        let others: Vec<&Record> =
            state.seen.values().flat_map(BTreeMap::values).filter(other).collect();
        let chosen = others.get(turn / 2 % others.len().max(1)).copied().cloned();
        drop(state);
        let what = match (lie, chosen) {
            (Lie::CutShort, _) => {
                let len = honest.bytes.len();
                let left = [len / 2, len.saturating_sub(1), 0][turn % 3];
                let bytes = honest.bytes.slice(..left);
                (name(lie), Record { bytes, ..honest })
            }
            (_, None) => return honest,
            (_, Some(other)) if turn.is_multiple_of(2) => (name(lie), other),
            // By the name that was asked for.
            (_, Some(Record { kind, bytes, .. })) => {
                (name(lie), Record { kind, id: asked.id, place: asked.place, bytes })
            }
        };
        self.history.tally(what.0);
        what.1
    }
}

/// What a tally calls it.
fn name(lie: Lie) -> &'static str {
    match lie {
        Lie::OtherFragment => "liar: another fragment of the stripe",
        Lie::OtherStripe => "liar: a fragment of another stripe",
        Lie::OtherHeader => "liar: the header of another stripe",
        Lie::CutShort => "liar: a record cut short",
        Lie::KeepsNothing => "liar: present, and not kept",
    }
}

/// The service of one peer, behind its lies.
struct Liar {
    peer: usize,
    inner: Arc<dyn Service>,
    liars: Arc<Liars>,
}

impl Liar {
    fn answer(&self, asked: &FindRequest, honest: FindResponse) -> FindResponse {
        match (self.liars.lie(self.peer), honest) {
            (Some(lie), FindResponse::Found(record)) => {
                FindResponse::Found(self.liars.instead(lie, asked, record))
            }
            (_, honest) => honest,
        }
    }

    /// Whether it says that it has what it is sent, and drops it.
    fn drops(&self, records: &[Record]) -> bool {
        self.liars.remember(records);
        let drops = self.liars.lie(self.peer) == Some(Lie::KeepsNothing);
        if drops {
            self.liars.history.tally(name(Lie::KeepsNothing));
        }
        drops
    }
}

#[async_trait]
impl Service for Liar {
    async fn introduce(
        &self,
        caller: Caller,
        request: IntroduceRequest,
    ) -> Result<IntroduceResponse, CallError> {
        self.inner.introduce(caller, request).await
    }

    async fn find(&self, caller: Caller, request: FindRequest) -> Result<FindResponse, CallError> {
        let answer = self.inner.find(caller, request).await?;
        Ok(self.answer(&request, answer))
    }

    async fn find_batch(
        &self,
        caller: Caller,
        requests: Vec<FindRequest>,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        let answers = self.inner.find_batch(caller, requests.clone()).await?;
        let answers = answers.into_iter().zip(&requests);
        Ok(answers.map(|(answer, asked)| answer.map(|one| self.answer(asked, one))).collect())
    }

    async fn verify(
        &self,
        caller: Caller,
        request: VerifyRequest,
    ) -> Result<VerifyResponse, CallError> {
        self.inner.verify(caller, request).await
    }

    async fn verify_batch(
        &self,
        caller: Caller,
        requests: Vec<VerifyRequest>,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        self.inner.verify_batch(caller, requests).await
    }

    async fn store(&self, caller: Caller, record: Record) -> Result<StoreOutcome, CallError> {
        if self.drops(std::slice::from_ref(&record)) {
            return Ok(StoreOutcome::Present);
        }
        self.inner.store(caller, record).await
    }

    async fn store_batch(
        &self,
        caller: Caller,
        records: Vec<Record>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        if self.drops(&records) {
            return Ok(records.iter().map(|_| Ok(StoreOutcome::Present)).collect());
        }
        self.inner.store_batch(caller, records).await
    }

    async fn store_leased(
        &self,
        caller: Caller,
        records: Vec<Record>,
        leases: Vec<Shown>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        if self.drops(&records) {
            return Ok(records.iter().map(|_| Ok(StoreOutcome::Present)).collect());
        }
        self.inner.store_leased(caller, records, leases).await
    }

    async fn put_leased(
        &self,
        caller: Caller,
        record: Record,
        leases: Vec<Shown>,
        wait: Duration,
    ) -> Result<PutResponse, CallError> {
        self.inner.put_leased(caller, record, leases, wait).await
    }

    async fn lease(&self, caller: Caller, request: LeaseRequest) -> Result<LeaseAnswer, CallError> {
        match self.liars.cheat(self.peer) {
            Some((Cheat::Deaf, _)) if cheat::is_word(&request) => Ok(cheat::unheard(&request)),
            _ => self.inner.lease(caller, request).await,
        }
    }

    async fn put(
        &self,
        caller: Caller,
        record: Record,
        wait: Duration,
    ) -> Result<PutResponse, CallError> {
        self.inner.put(caller, record, wait).await
    }

    async fn get(&self, caller: Caller, request: FindRequest) -> Result<Record, CallError> {
        let record = self.inner.get(caller, request).await?;
        match self.answer(&request, FindResponse::Found(record)) {
            FindResponse::Found(record) => Ok(record),
            FindResponse::Closest(_) => Err(CallError::NotFound),
        }
    }

    async fn tell(&self, caller: Caller, envelopes: Vec<Bytes>) -> Result<(), CallError> {
        self.inner.tell(caller, envelopes).await
    }

    async fn objects(
        &self,
        caller: Caller,
        request: ObjectsRequest,
    ) -> Result<ObjectsAnswer, CallError> {
        self.inner.objects(caller, request).await
    }

    async fn keep(&self, caller: Caller, request: KeepRequest) -> Result<KeepAnswer, CallError> {
        match self.liars.cheat(self.peer) {
            Some((cheat, knowing)) => self.cheated(cheat, &knowing, caller, request).await,
            None => self.inner.keep(caller, request).await,
        }
    }

    async fn watch(&self, caller: Caller, request: WatchRequest) -> Result<WatchEvents, CallError> {
        self.inner.watch(caller, request).await
    }

    async fn subscribe(
        &self,
        caller: Caller,
        request: SubscribeRequest,
    ) -> Result<Events, CallError> {
        self.inner.subscribe(caller, request).await
    }
}
