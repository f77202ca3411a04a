//! The endpoints: what each kind of caller may ask, and the answer.
//!
//! | caller | may call |
//! |---|---|
//! | stranger | `Introduce`, `Find` |
//! | peer, client | all but `Put` and `Get` |
//! | client of the own organisation, with tier own | all |
//!
//! `Put` and `Get` fan out, so they spend this peer's network on somebody's behalf: they are for the
//! organisation's own clients unless [`crate::Limits::open_fan_out`] says otherwise.
//!
//! Every call is counted, admitted (or told *busy*) before any work, and answered with a typed error
//! whatever its content is.

mod read;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use crypto::{PublicKey, Tier};
use document::Record;
use env::calls::{
    CallError, Caller, Credential, Events, FindRequest, FindResponse, IntroduceRequest,
    IntroduceResponse, PEERS_MAX, PutResponse, Service, StoreOutcome, SubscribeRequest,
    VerifyRequest, VerifyResponse,
};
use overlay::News;
use walk::Learnt;

use crate::admission::Permit;
use crate::core::Core;
use crate::metrics::Method;
use crate::spread;
use crate::standing::{Standing, Vouched, vouch};
use crate::subscription::{self, Filter, Surroundings};

/// Answers callers for one librarian.
pub(crate) struct Endpoints(pub(crate) Arc<Core>);

impl Endpoints {
    /// Checks that a caller may make this call and lets it in.
    fn enter(
        &self,
        method: Method,
        key: &PublicKey,
        write_bytes: usize,
    ) -> Result<Permit, CallError> {
        let standing = self.0.standing(key);
        allow(method, &standing, &self.0)?;
        self.0.admission.enter(key, &standing, write_bytes)
    }

    /// Runs a call: counted, admitted, answered.
    async fn answer<T>(
        &self,
        method: Method,
        caller: Caller,
        write_bytes: usize,
        work: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        let since = self.0.env.clock.elapsed();
        let result = match self.enter(method, &caller.key, write_bytes) {
            Ok(_permit) => work.await,
            Err(error) => Err(error),
        };
        let took = self.0.env.clock.elapsed().saturating_sub(since);
        self.0.metrics.answered(method, took, &result);
        if let Err(error) = &result {
            tracing::debug!(?method, caller = %caller.key, %error, "a call was not served");
        }
        result
    }
}

/// Whether a caller of this standing may make the call.
fn allow(method: Method, standing: &Standing, core: &Core) -> Result<(), CallError> {
    let denied = |reason: &str| Err(CallError::Denied { reason: reason.to_owned() });
    match (method, standing) {
        (Method::Introduce | Method::Find, _) => Ok(()),
        (_, Standing::Stranger) => denied(
            "introduce yourself first, with a valid pass or announcement; an organisation of the \
             network signs passes for its clients",
        ),
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
    async fn introduce(
        &self,
        caller: Caller,
        request: IntroduceRequest,
    ) -> Result<IntroduceResponse, CallError> {
        self.answer(Method::Introduce, caller, 0, self.introduced(caller, request)).await
    }

    async fn find(&self, caller: Caller, request: FindRequest) -> Result<FindResponse, CallError> {
        self.answer(Method::Find, caller, 0, self.found(request)).await
    }

    async fn find_batch(
        &self,
        caller: Caller,
        requests: Vec<FindRequest>,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        self.answer(Method::FindBatch, caller, 0, self.found_all(requests)).await
    }

    async fn verify(
        &self,
        caller: Caller,
        request: VerifyRequest,
    ) -> Result<VerifyResponse, CallError> {
        self.answer(Method::Verify, caller, 0, self.verified(request)).await
    }

    async fn verify_batch(
        &self,
        caller: Caller,
        requests: Vec<VerifyRequest>,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        self.answer(Method::VerifyBatch, caller, 0, self.verified_all(requests)).await
    }

    async fn store(&self, caller: Caller, record: Record) -> Result<StoreOutcome, CallError> {
        let bytes = record.bytes.len();
        self.answer(Method::Store, caller, bytes, self.stored(record)).await
    }

    async fn store_batch(
        &self,
        caller: Caller,
        records: Vec<Record>,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        let bytes = records.iter().map(|record| record.bytes.len()).sum();
        self.answer(Method::StoreBatch, caller, bytes, self.stored_all(records)).await
    }

    async fn put(&self, caller: Caller, record: Record) -> Result<PutResponse, CallError> {
        let bytes = record.bytes.len();
        self.answer(Method::Put, caller, bytes, self.put_out(record)).await
    }

    async fn get(&self, caller: Caller, request: FindRequest) -> Result<Record, CallError> {
        self.answer(Method::Get, caller, 0, self.got(request)).await
    }

    async fn subscribe(
        &self,
        caller: Caller,
        request: SubscribeRequest,
    ) -> Result<Events, CallError> {
        self.answer(Method::Subscribe, caller, 0, self.subscribed(caller, request)).await
    }
}

impl Endpoints {
    async fn introduced(
        &self,
        caller: Caller,
        request: IntroduceRequest,
    ) -> Result<IntroduceResponse, CallError> {
        let core = &self.0;
        self.learn(caller, request.credential).await?;
        let peers_max = (request.peers_max as usize).min(PEERS_MAX);
        let stats = core.shelf.stats();
        Ok(IntroduceResponse {
            announcement: core.announcer.bytes(),
            peers: core.directory.announcements(peers_max),
            roster: core.directory.view().roster(),
            unix_ms: core.env.clock.unix_ms(),
            records: stats.records,
            bytes: stats.bytes,
        })
    }

    /// Checks what vouches for the caller, and remembers it.
    async fn learn(&self, caller: Caller, credential: Credential) -> Result<(), CallError> {
        let core = &self.0;
        match vouch(credential, &caller.key, &core.genesis, core.env.clock.unix_s())? {
            Vouched::Nothing => {}
            Vouched::Peer(bytes) => {
                let learnt = core.directory.learn(&bytes).map_err(crate::standing::refusal)?;
                if matches!(learnt, Learnt::New | Learnt::Newer) {
                    // A newcomer has no links yet: who learns of it first tells the others.
                    let news = News::Announcement(bytes);
                    spread::publish_once(core.overlay.as_ref(), news).await;
                }
            }
            Vouched::Client(pass) => {
                let own = pass.organisation == core.organisation;
                let tier = if own { pass.tier } else { pass.tier.min(Tier::Known) };
                let standing = Standing::Client {
                    organisation: pass.organisation,
                    tier,
                    until: pass.until,
                    quota: pass.quota,
                };
                core.standings.put(caller.key, standing);
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
        let filter = Filter::new(&request)?;
        let seat = core.seats.take(&caller.key, core.env.clock.elapsed())?;
        let around = Surroundings {
            env: core.env.clone(),
            own: core.own,
            publications: Arc::clone(&core.publications),
            heartbeat: core.rhythm.heartbeat,
            stop: core.stop.clone(),
        };
        subscription::open(around, &request, filter, seat).await
    }
}
