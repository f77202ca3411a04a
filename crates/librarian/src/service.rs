//! The endpoints: what each kind of caller may ask, and the answer.
//!
//! | caller | may call |
//! |---|---|
//! | stranger | `Introduce`, `Find`, reads of versioned objects (public ones), and all of `Committee` but updates |
//! | client | all but `Put`, `Get`, `Tell`, `Keep`, and words that ended leases |
//! | peer | all but `Put` and `Get` |
//! | client of the own organisation, with tier own | all but `Tell`, and of `Keep` to look alone |
//!
//! `Put` and `Get` fan out, so they spend this peer's network on somebody's behalf: they are for the
//! organisation's own clients unless [`crate::Limits::open_fan_out`] says otherwise.
//!
//! `Put` and `Get` also give way where the processors or the disk are behind (`strain`).
//!
//! A write is a task of its own, which ends with what was charged given back where it was not stored, also where its caller
//! goes away; but for `Put`, whose record may be elsewhere by then: what was charged for it stays so (`quota`). It keeps its
//! permit until then, so that nobody has more of them than calls by resetting these.
//!
//! Every call is counted, admitted (or told *busy*) before any work, and answered with a typed error
//! whatever its content is. How often a caller may ask goes by its tier (`rates`); an introduction is
//! counted by what it proves, so that strangers cannot crowd out those who show something.

mod leases;
mod objects;
mod read;
mod write;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::lease::Shown;
use crypto::{CertificateError, Class, Classified, OrgId, PeerId, PublicKey, Taught, Tier};
use document::Record;
use env::calls::committee::{CommitteeAnswer, CommitteeAsk, CommitteeRequest};
use env::calls::keep::{KeepAnswer, KeepRequest};
use env::calls::leases::{LeaseAnswer, LeaseRequest};
use env::calls::objects::{ObjectsAnswer, ObjectsRequest, WatchEvents, WatchRequest};
use env::calls::{
    CallError, Caller, Credential, Events, FindRequest, FindResponse, IntroduceRequest,
    IntroduceResponse, PEERS_MAX, PutResponse, Service, StoreOutcome, SubscribeRequest,
    VerifyRequest, VerifyResponse,
};
use overlay::News;
use walk::Learnt;

use crate::admission::Permit;
use crate::committee;
use crate::core::Core;
use crate::leases::owned;
use crate::limiter::Asked;
use crate::metrics::{Bound, Method};
use crate::news;
use crate::right::Right;
use crate::shelf::closed;
use crate::spread;
use crate::standing::{Standing, Vouched, refusal, vouch, vouched_before};
use crate::strain;
use crate::subscription::{self, Filter, Surroundings};

/// The bytes of a submission that count as one request.
const UPDATE_BYTES: usize = 256;

/// Answers callers for one librarian.
pub(crate) struct Endpoints(pub(crate) Arc<Core>);

impl Endpoints {
    /// Checks that a caller may make this call, and so often, and lets it in.
    fn enter(
        &self,
        method: Method,
        key: &PublicKey,
        load: Load,
    ) -> Result<(Permit, Option<strain::Asked>), CallError> {
        let core = &self.0;
        let standing = core.standing(key);
        allow(method, &standing, core)?;
        let asked = self.asked(method, &standing, load);
        let can_come_again = matches!(method, Method::Put | Method::Get);
        let asks = can_come_again.then(|| core.strain.ask(key)).transpose();
        let asks = asks.map_err(|retry_after| {
            core.metrics.refused(asked.tier, method, Bound::Strained);
            CallError::Busy { retry_after }
        })?;
        let permit = match method {
            Method::Introduce => core.admission.introduce(key, &standing),
            _ => core.admission.enter(key, &standing, load.bytes),
        };
        let permit = permit.inspect_err(|_| {
            core.metrics.refused(asked.tier, method, Bound::Crowded);
        })?;
        // An introduction is counted when it is known what it proves.
        if method != Method::Introduce {
            self.count(key, &asked)?;
        }
        Ok((permit, asks))
    }

    /// A request as the limiter counts it.
    fn asked(&self, method: Method, standing: &Standing, load: Load) -> Asked {
        let tier = standing.tier(&self.0.organisation());
        Asked { tier, method, requests: load.requests as u64, bytes: load.bytes as u64 }
    }

    /// Counts a request, or refuses it whole.
    fn count(&self, key: &PublicKey, asked: &Asked) -> Result<(), CallError> {
        let now = self.0.env.clock.elapsed();
        self.0.limiter.enter(key, asked, now).map_err(|over| {
            self.0.metrics.refused(asked.tier, asked.method, over.bound);
            over.error
        })
    }

    /// Runs a call: counted, admitted, answered.
    async fn answer<T>(
        &self,
        method: Method,
        caller: Caller,
        load: Load,
        work: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        let since = self.0.env.clock.elapsed();
        let result = match self.enter(method, &caller.key, load) {
            Ok(_permits) => work.await,
            Err(error) => Err(error),
        };
        self.answered(method, caller, since, &result);
        result
    }

    /// Runs a call that writes, as [`Endpoints::answer`], and to its end also where its caller goes away: its records stay in
    /// memory until then, so they are counted until then.
    async fn answer_owned<T: Send + 'static, W>(
        &self,
        method: Method,
        caller: Caller,
        load: Load,
        work: impl FnOnce(Self) -> W + Send,
    ) -> Result<T, CallError>
    where
        W: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        let since = self.0.env.clock.elapsed();
        let result = match self.enter(method, &caller.key, load) {
            Ok(permits) => {
                let work = Box::pin(work(Self(Arc::clone(&self.0))));
                let held = async move {
                    let _permits = permits;
                    work.await
                };
                owned(&self.0.env, held).await.unwrap_or_else(|| Err(closed()))
            }
            Err(error) => Err(error),
        };
        self.answered(method, caller, since, &result);
        result
    }

    fn answered<T>(
        &self,
        method: Method,
        caller: Caller,
        since: Duration,
        result: &Result<T, CallError>,
    ) {
        let took = self.0.env.clock.elapsed().saturating_sub(since);
        self.0.metrics.answered(method, took, result);
        if let Err(error) = result {
            tracing::debug!(?method, caller = %caller.key, %error, "a call was not served");
        }
    }
}

/// How much a call asks for.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Requests: of a batch, how many it holds.
    requests: usize,
    /// Record bytes that it brings.
    bytes: usize,
}

impl Load {
    /// Nothing: to ask how a caller stands.
    const NONE: Self = Self { requests: 0, bytes: 0 };
    /// One request that brings no record.
    const ONE: Self = Self { requests: 1, bytes: 0 };

    /// So many requests that bring no record.
    const fn requests(requests: usize) -> Self {
        Self { requests, bytes: 0 }
    }

    /// These records.
    fn records(records: &[Record]) -> Self {
        let bytes = records.iter().map(|record| record.bytes.len()).sum();
        Self { requests: records.len(), bytes }
    }

    /// These leases too, whose signatures are to be checked: what has a lease of its own counts as before, more do not.
    fn with(self, leases: &[Shown]) -> Self {
        Self { requests: self.requests.max(leases.len()), ..self }
    }
}

/// Whether a caller of this standing may make the call.
fn allow(method: Method, standing: &Standing, core: &Core) -> Result<(), CallError> {
    let denied = |reason: &str| Err(CallError::Denied { reason: reason.to_owned() });
    match (method, standing) {
        (Method::Introduce | Method::Find, _) => Ok(()),
        // Of these, what is public.
        (
            Method::ObjectsGet
            | Method::ObjectsPrevious
            | Method::ObjectsTips
            | Method::ObjectsHeads
            | Method::ObjectsList
            // Proven to anybody, and about nobody's secrets.
            | Method::CommitteeRead,
            _,
        ) => Ok(()),
        (_, Standing::Stranger) => denied(
            "introduce yourself first, with a valid pass or announcement; an organisation of the \
             network signs passes for its clients",
        ),
        (Method::Tell | Method::Keep, Standing::Peer(..)) => Ok(()),
        // They may ask that it be looked at, and nothing else of it.
        (Method::Keep, Standing::Client { .. }) => Ok(()),
        (Method::Tell, _) => denied("peers alone give others news to tell"),
        (Method::Put | Method::Get, Standing::Client { tier: Tier::Own, .. }) => Ok(()),
        (Method::Put | Method::Get, Standing::Client { .. }) if core.limits.open_fan_out => Ok(()),
        (Method::Put | Method::Get, _) => denied(
            "this peer stores and finds for clients of its own organisation alone; store to and \
             read from the holders, which Find tells",
        ),
        _ => Ok(()),
    }
}

/// A request that is over a bound or makes no sense.
fn invalid(reason: impl Into<String>) -> CallError {
    CallError::Invalid { reason: reason.into() }
}

#[async_trait]
impl Service for Endpoints {
    fn vouched_by(&self, caller: Caller) -> Option<OrgId> {
        match self.0.standing(&caller.key) {
            Standing::Peer(_, organisation) | Standing::Client { organisation, .. } => {
                Some(organisation)
            }
            Standing::Stranger => None,
        }
    }

    async fn introduce(
        &self,
        caller: Caller,
        request: IntroduceRequest,
    ) -> Result<IntroduceResponse, CallError> {
        self.answer(Method::Introduce, caller, Load::ONE, self.introduced(caller, request)).await
    }

    async fn find(&self, caller: Caller, request: FindRequest) -> Result<FindResponse, CallError> {
        self.answer(Method::Find, caller, Load::ONE, self.found(caller, request)).await
    }

    async fn find_batch(
        &self,
        caller: Caller,
        requests: Vec<FindRequest>,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        let load = Load::requests(requests.len());
        self.answer(Method::FindBatch, caller, load, self.found_all(caller, requests)).await
    }

    async fn verify(
        &self,
        caller: Caller,
        request: VerifyRequest,
    ) -> Result<VerifyResponse, CallError> {
        self.answer(Method::Verify, caller, Load::ONE, self.verified(caller, request)).await
    }

    async fn verify_batch(
        &self,
        caller: Caller,
        requests: Vec<VerifyRequest>,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        let load = Load::requests(requests.len());
        self.answer(Method::VerifyBatch, caller, load, self.verified_all(caller, requests)).await
    }

    async fn store(&self, caller: Caller, record: Record) -> Result<StoreOutcome, CallError> {
        let load = Load::records(std::slice::from_ref(&record));
        let work = |all: Self| async move { all.stored(caller, record).await };
        self.answer_owned(Method::Store, caller, load, work).await
    }

    async fn store_batch(
        &self,
        caller: Caller,
        records: Vec<Record>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        let load = Load::records(&records);
        let work =
            |all: Self| async move { all.store_all_leased(caller, records, Vec::new()).await };
        self.answer_owned(Method::StoreBatch, caller, load, work).await
    }

    async fn store_leased(
        &self,
        caller: Caller,
        records: Vec<Record>,
        leases: Vec<Shown>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        let load = Load::records(&records).with(&leases);
        let work = |all: Self| async move { all.store_all_leased(caller, records, leases).await };
        self.answer_owned(Method::StoreBatch, caller, load, work).await
    }

    async fn put_leased(
        &self,
        caller: Caller,
        record: Record,
        leases: Vec<Shown>,
        wait: Duration,
    ) -> Result<PutResponse, CallError> {
        let load = Load::records(std::slice::from_ref(&record)).with(&leases);
        let work = self.put_out_leased(caller, record, leases, wait);
        self.answer(Method::Put, caller, load, work).await
    }

    async fn lease(&self, caller: Caller, request: LeaseRequest) -> Result<LeaseAnswer, CallError> {
        if matches!(request, LeaseRequest::Tombstones { .. })
            && !matches!(self.0.standing(&caller.key), Standing::Peer(..))
        {
            let reason = "peers alone are told which leases were ended".to_owned();
            return Err(CallError::Denied { reason });
        }
        let load = leases::load(&request);
        if let LeaseRequest::Of(_) | LeaseRequest::Tombstones { .. } = request {
            return self
                .answer(Method::Lease, caller, load, self.lease_answer(caller, request))
                .await;
        }
        let work = |all: Self| async move { all.lease_answer(caller, request).await };
        self.answer_owned(Method::Lease, caller, load, work).await
    }

    async fn put(
        &self,
        caller: Caller,
        record: Record,
        wait: Duration,
    ) -> Result<PutResponse, CallError> {
        let load = Load::records(std::slice::from_ref(&record));
        let work = self.put_out_leased(caller, record, Vec::new(), wait);
        self.answer(Method::Put, caller, load, work).await
    }

    async fn get(&self, caller: Caller, request: FindRequest) -> Result<Record, CallError> {
        self.answer(Method::Get, caller, Load::ONE, self.got(caller, request)).await
    }

    async fn tell(&self, caller: Caller, envelopes: Vec<Bytes>) -> Result<(), CallError> {
        let load = Load::requests(envelopes.len().max(1));
        let work = async { spread::given(&self.0, PeerId::new(caller.key), &envelopes) };
        self.answer(Method::Tell, caller, load, work).await
    }

    async fn objects(
        &self,
        caller: Caller,
        request: ObjectsRequest,
    ) -> Result<ObjectsAnswer, CallError> {
        let (method, load) = objects::asks(&request);
        if method != Method::ObjectsPut {
            return self.answer(method, caller, load, self.objects_answer(caller, request)).await;
        }
        let work = |all: Self| async move { all.objects_answer(caller, request).await };
        self.answer_owned(method, caller, load, work).await
    }

    fn may_keep(&self, caller: &Caller) -> Result<(), CallError> {
        allow(Method::Keep, &self.0.standing(&caller.key), &self.0)
    }

    async fn keep(&self, caller: Caller, request: KeepRequest) -> Result<KeepAnswer, CallError> {
        let load = Load::requests(requests_of(&request));
        self.answer(Method::Keep, caller, load, self.kept(caller, request)).await
    }

    async fn committee(
        &self,
        caller: Caller,
        request: CommitteeRequest,
    ) -> Result<CommitteeAnswer, CallError> {
        let (method, load) = match &request.ask {
            // What is in it is decoded later; the shortest update is longer than this.
            CommitteeAsk::Update(bytes) => {
                (Method::CommitteeUpdate, Load::requests(1 + bytes.len() / UPDATE_BYTES))
            }
            _ => (Method::CommitteeRead, Load::ONE),
        };
        self.answer(method, caller, load, committee::answer(&self.0, request)).await
    }

    async fn watch(&self, caller: Caller, request: WatchRequest) -> Result<WatchEvents, CallError> {
        self.answer(Method::Watch, caller, Load::ONE, self.objects_watched(caller, request)).await
    }

    async fn subscribe(
        &self,
        caller: Caller,
        request: SubscribeRequest,
    ) -> Result<Events, CallError> {
        self.answer(Method::Subscribe, caller, Load::ONE, self.subscribed(caller, request)).await
    }
}

/// Places, records and stripes that count as one request: of each a few maps in memory are asked.
const LOOKED_AS_ONE: usize = 8;
/// Records of which it is asked whether they are here that count as one request: of each one map.
const HAD_AS_ONE: usize = 64;

/// How many requests one about what is kept counts as: those that read records, each record. What comparisons take is counted by the
/// time that they take (`keeping::taken`).
fn requests_of(request: &KeepRequest) -> usize {
    let looked = |count: usize| count.div_ceil(LOOKED_AS_ONE).max(1);
    match request {
        KeepRequest::Fetch(records) => records.len(),
        KeepRequest::Prove(asks) => asks.len(),
        KeepRequest::Look(places) => looked(places.len()),
        KeepRequest::Have(ids) => ids.len().div_ceil(HAD_AS_ONE).max(1),
        KeepRequest::Claim(stripes) => looked(stripes.len()),
        KeepRequest::Settled(stripes) => looked(stripes.len()),
        KeepRequest::Lists(listed) => listed.len().max(1),
        _ => 1,
    }
}

impl Endpoints {
    /// A peer asks about what both keep; a client with a pass may ask that it be looked at.
    async fn kept(&self, caller: Caller, request: KeepRequest) -> Result<KeepAnswer, CallError> {
        let core = &self.0;
        let Some(keeping) = &core.keeping else {
            return Err(CallError::Denied {
                reason: "this peer is set to compare and mend nothing".to_owned(),
            });
        };
        let organisation = match core.standing(&caller.key) {
            Standing::Peer(_, organisation) => Some(organisation),
            Standing::Client { organisation, .. } => {
                matches!(request, KeepRequest::Look(_)).then_some(organisation)
            }
            Standing::Stranger => None,
        };
        let Some(organisation) = organisation else {
            return Err(CallError::Denied {
                reason: "peers alone compare and mend what they keep".to_owned(),
            });
        };
        keeping.answer(core, PeerId::new(caller.key), organisation, request).await
    }

    async fn introduced(
        &self,
        caller: Caller,
        request: IntroduceRequest,
    ) -> Result<IntroduceResponse, CallError> {
        let core = &self.0;
        if request.known.is_some_and(|known| known.roster > core.directory.roster().number()) {
            core.behind.notify_one();
        }
        self.learn(caller, request.credential).await?;
        if let Some(roster) = request.offer {
            self.take_offer(roster).await?;
        }
        let known = request.known.map(|known| core.directory.lacking(&known));
        let (rosters, revocations) = known.unwrap_or_default();
        let mut peers_max = (request.peers_max as usize).min(PEERS_MAX);
        if core.standing(&caller.key) == Standing::Stranger {
            peers_max = news::told_to_stranger(core, peers_max);
        }
        let stats = core.shelf.stats();
        Ok(IntroduceResponse {
            announcement: core.announcer.bytes(),
            peers: core.directory.announcements(peers_max),
            roster: core.directory.roster().number(),
            unix_ms: core.env.clock.unix_ms(),
            records: stats.records,
            bytes: stats.bytes,
            rosters,
            revocations,
            member: core.member.card(),
        })
    }

    /// Takes a roster that a caller offers. Hundreds of signatures are checked away from the I/O threads.
    async fn take_offer(&self, roster: Bytes) -> Result<(), CallError> {
        let directory = Arc::clone(&self.0.directory);
        let taught = self.0.env.cpu(move || directory.learn_roster(&roster)).await;
        match taught {
            Ok(Taught::Newer | Taught::Known) => Ok(()),
            Ok(Taught::Behind) => {
                self.0.behind.notify_one();
                Err(invalid(
                    "this peer lacks rosters before the one offered: again in some seconds",
                ))
            }
            Err(error) => {
                let reason = error.to_string();
                Err(match Classified::class(&error) {
                    Class::Denied => CallError::Denied { reason },
                    _ => CallError::Invalid { reason },
                })
            }
        }
    }

    /// Checks what vouches for the caller, and remembers it.
    async fn learn(&self, caller: Caller, credential: Credential) -> Result<(), CallError> {
        let core = &self.0;
        let vouched = match vouched_before(&credential, &caller.key, &core.directory) {
            Some(vouched) => Ok(vouched),
            None => {
                let may = core.limiter.may_prove(&caller.key, core.env.clock.elapsed());
                may.map_err(|over| {
                    core.metrics.refused(Tier::Stranger, Method::Introduce, over.bound);
                    over.error
                })?;
                vouch(credential, &caller.key, &core.directory.roster(), core.env.clock.unix_s())
            }
        };
        let standing = match &vouched {
            Ok(Vouched::Nothing) => core.standing(&caller.key),
            Ok(Vouched::Peer(_, organisation)) => {
                Standing::Peer(PeerId::new(caller.key), *organisation)
            }
            Ok(Vouched::Client(pass)) => Standing::of(pass, &core.organisation()),
            Err(_) => Standing::Stranger,
        };
        self.count(&caller.key, &self.asked(Method::Introduce, &standing, Load::ONE))?;
        let revoked =
            |organisation: &OrgId| match core.directory.is_revoked(organisation, &caller.key) {
                true => Err(refusal(CertificateError::Revoked(*organisation))),
                false => Ok(()),
            };
        if let Ok(Vouched::Client(pass)) = &vouched {
            revoked(&pass.organisation)?;
        }
        match vouched? {
            Vouched::Nothing => {}
            Vouched::Peer(bytes, _) => {
                let learnt = core.directory.learn(&bytes).map_err(refusal)?;
                if matches!(learnt, Learnt::New | Learnt::Newer) {
                    // A newcomer has no links yet: who learns of it first tells the others.
                    let news = News::Announcement(bytes);
                    spread::publish_once(core.overlay.as_ref(), news).await;
                }
            }
            Vouched::Client(pass) => {
                core.standings.put(caller.key, standing);
                // A revocation that came between the two ended what was here before.
                revoked(&pass.organisation).inspect_err(|_| core.standings.remove(&caller.key))?;
            }
        }
        Ok(())
    }

    async fn subscribed(
        &self,
        caller: Caller,
        request: SubscribeRequest,
    ) -> Result<Events, CallError> {
        let core = &self.0;
        let filter = Filter::new(self.0.genesis.suite, &request)?;
        let seat =
            core.seats.take(&caller.key, &core.standing(&caller.key), core.env.clock.elapsed())?;
        let around = Surroundings {
            env: core.env.clone(),
            own: core.own,
            publications: Arc::clone(&core.publications),
            heartbeat: core.rhythm.heartbeat,
            stop: core.stop.clone(),
            right: Right::of(core, caller.key),
        };
        subscription::open(around, &request, filter, seat).await
    }
}
