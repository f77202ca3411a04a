//! The calling side of a network without wires.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::PublicKey;
use crypto::lease::Shown;
use document::Record;
use env::calls::committee::{CommitteeAnswer, CommitteeRequest};
use env::calls::keep::{KeepAnswer, KeepRequest};
use env::calls::leases::{LeaseAnswer, LeaseRequest};
use env::calls::objects::{ObjectsAnswer, ObjectsRequest, WatchEvents, WatchRequest};
use env::calls::{
    CallError, Caller, Calls, Endpoint, Events, FindRequest, FindResponse, IntroduceRequest,
    IntroduceResponse, PutResponse, Service, StoreOutcome, SubscribeRequest, VerifyRequest,
    VerifyResponse,
};

use super::{Counts, DirectNetwork, Fault};

/// Calls into a [`DirectNetwork`] by one caller.
pub struct DirectCalls {
    network: Arc<DirectNetwork>,
    caller: Caller,
}

fn sum(records: &[Record]) -> usize {
    records.iter().map(|record| record.bytes.len()).sum()
}

/// Counts a call while it runs, also where its caller drops it.
struct Counted {
    network: Arc<DirectNetwork>,
    address: String,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(host) = self.network.hosts().get_mut(&self.address) {
            host.counts.running = host.counts.running.saturating_sub(1);
        }
    }
}

impl DirectCalls {
    pub(super) fn new(network: Arc<DirectNetwork>, caller: PublicKey) -> Self {
        Self { network, caller: Caller { key: caller } }
    }

    /// Finds who answers at an address, counts the call, and applies the faults that are about reaching it at all.
    async fn reach<T, F>(
        &self,
        to: &Endpoint,
        limit: Duration,
        write: bool,
        count: fn(&mut Counts),
        work: impl FnOnce(Arc<dyn Service>, Fault) -> F + Send,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>> + Send,
    {
        let address = to.address.clone();
        let timed_out = CallError::TimedOut { address: address.clone(), limit };
        let refused = |reason: &str| CallError::Unreachable {
            address: to.address.clone(),
            reason: reason.to_owned(),
        };
        let (service, fault) = {
            let mut hosts = self.network.hosts();
            let host = hosts.get_mut(&address).ok_or_else(|| refused("nobody is there"))?;
            if to.peer.is_some_and(|expected| expected != host.peer) {
                return Err(CallError::WrongPeer { address, reason: host.peer.to_string() });
            }
            count(&mut host.counts);
            host.counts.running += 1;
            host.counts.running_max = host.counts.running_max.max(host.counts.running);
            (host.service.clone(), host.fault.clone())
        };
        let _counted = Counted { network: self.network.clone(), address };
        let env = self.network.env.clone();
        match &fault {
            Fault::Down => return Err(refused("connection refused")),
            Fault::Hang => {
                env.clock.sleep(limit).await;
                return Err(timed_out);
            }
            Fault::Error(error) => return Err(error.clone()),
            Fault::Writes(error) if write => return Err(error.clone()),
            _ => {}
        }
        let delay = if let Fault::Delay(delay) = fault { delay } else { Duration::ZERO };
        let work = async {
            if !delay.is_zero() {
                env.clock.sleep(delay).await;
            }
            work(service, fault).await
        };
        env.within(limit, work).await.unwrap_or(Err(timed_out))
    }
}

#[async_trait]
impl Calls for DirectCalls {
    async fn introduce(
        &self,
        to: &Endpoint,
        request: IntroduceRequest,
        limit: Duration,
    ) -> Result<IntroduceResponse, CallError> {
        let caller = self.caller;
        let count: fn(&mut Counts) = |counts| counts.introduce += 1;
        let work = |service: Arc<dyn Service>, fault| async move {
            let mut answer = service.introduce(caller, request).await?;
            if matches!(fault, Fault::Flip | Fault::Garbage) {
                answer.announcement = super::flipped(&answer.announcement);
            }
            Ok(answer)
        };
        self.reach(to, limit, false, count, work).await
    }

    async fn find(
        &self,
        to: &Endpoint,
        request: FindRequest,
        limit: Duration,
    ) -> Result<FindResponse, CallError> {
        let (caller, line) = (self.caller, self.network.clone());
        let count: fn(&mut Counts) = |counts| counts.find += 1;
        let work = |service: Arc<dyn Service>, fault: Fault| async move {
            line.late(&fault).await;
            let answer = service.find(caller, request).await?;
            line.take(&[&answer]).await;
            Ok(fault.find(&request, answer))
        };
        self.reach(to, limit, false, count, work).await
    }

    async fn find_batch(
        &self,
        to: &Endpoint,
        requests: Vec<FindRequest>,
        limit: Duration,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        let (caller, line) = (self.caller, self.network.clone());
        let count: fn(&mut Counts) = |counts| counts.find_batch += 1;
        let work = |service: Arc<dyn Service>, fault: Fault| async move {
            line.late(&fault).await;
            let answers = service.find_batch(caller, requests.clone()).await?;
            line.take(&answers.iter().flatten().collect::<Vec<_>>()).await;
            let answers = answers.into_iter().zip(&requests);
            Ok(answers.map(|(answer, asked)| Ok(fault.find(asked, answer?))).collect())
        };
        self.reach(to, limit, false, count, work).await
    }

    async fn verify(
        &self,
        to: &Endpoint,
        request: VerifyRequest,
        limit: Duration,
    ) -> Result<VerifyResponse, CallError> {
        let caller = self.caller;
        let count: fn(&mut Counts) = |counts| counts.verify += 1;
        let work = |service: Arc<dyn Service>, fault: Fault| async move {
            Ok(fault.verify(service.verify(caller, request).await?))
        };
        self.reach(to, limit, false, count, work).await
    }

    async fn verify_batch(
        &self,
        to: &Endpoint,
        requests: Vec<VerifyRequest>,
        limit: Duration,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        let caller = self.caller;
        let count: fn(&mut Counts) = |counts| counts.verify += 1;
        let work = |service: Arc<dyn Service>, fault: Fault| async move {
            let answers = service.verify_batch(caller, requests).await?;
            Ok(answers.into_iter().map(|answer| Ok(fault.verify(answer?))).collect())
        };
        self.reach(to, limit, false, count, work).await
    }

    async fn store(
        &self,
        to: &Endpoint,
        record: Record,
        limit: Duration,
    ) -> Result<StoreOutcome, CallError> {
        let (caller, line) = (self.caller, self.network.clone());
        let count: fn(&mut Counts) = |counts| counts.store += 1;
        let work = |service: Arc<dyn Service>, fault| async move {
            line.send(record.bytes.len()).await;
            match fault {
                Fault::Forget => Ok(StoreOutcome::Stored),
                _ => service.store(caller, record).await,
            }
        };
        self.reach(to, limit, true, count, work).await
    }

    async fn store_batch(
        &self,
        to: &Endpoint,
        records: Vec<Record>,
        limit: Duration,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        let (caller, line) = (self.caller, self.network.clone());
        let count: fn(&mut Counts) = |counts| counts.store_batch += 1;
        let work = |service: Arc<dyn Service>, fault| async move {
            line.send(sum(&records)).await;
            match fault {
                Fault::Forget => Ok(records.iter().map(|_| Ok(StoreOutcome::Stored)).collect()),
                _ => service.store_batch(caller, records).await,
            }
        };
        self.reach(to, limit, true, count, work).await
    }

    async fn store_leased(
        &self,
        to: &Endpoint,
        records: Vec<Record>,
        leases: Vec<Shown>,
        limit: Duration,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        let (caller, line) = (self.caller, self.network.clone());
        let count: fn(&mut Counts) = |counts| counts.store_batch += 1;
        let work = |service: Arc<dyn Service>, fault| async move {
            line.send(sum(&records)).await;
            match fault {
                Fault::Forget => Ok(records.iter().map(|_| Ok(StoreOutcome::Stored)).collect()),
                _ => service.store_leased(caller, records, leases).await,
            }
        };
        self.reach(to, limit, true, count, work).await
    }

    async fn put_leased(
        &self,
        to: &Endpoint,
        record: Record,
        leases: Vec<Shown>,
        wait: Duration,
        limit: Duration,
    ) -> Result<PutResponse, CallError> {
        let (caller, line) = (self.caller, self.network.clone());
        let count: fn(&mut Counts) = |counts| counts.put_get += 1;
        let work = |service: Arc<dyn Service>, _| async move {
            line.send(record.bytes.len()).await;
            service.put_leased(caller, record, leases, wait).await
        };
        self.reach(to, limit, true, count, work).await
    }

    async fn committee(
        &self,
        to: &Endpoint,
        request: CommitteeRequest,
        limit: Duration,
    ) -> Result<CommitteeAnswer, CallError> {
        let caller = self.caller;
        let count: fn(&mut Counts) = |counts| counts.committee += 1;
        let work =
            |service: Arc<dyn Service>, _| async move { service.committee(caller, request).await };
        self.reach(to, limit, true, count, work).await
    }

    async fn lease(
        &self,
        to: &Endpoint,
        request: LeaseRequest,
        limit: Duration,
    ) -> Result<LeaseAnswer, CallError> {
        let caller = self.caller;
        let count: fn(&mut Counts) = |counts| counts.lease += 1;
        let lie = self.network.lie_at(&to.address);
        let work = |service: Arc<dyn Service>, _| async move {
            let Some(lie) = lie else { return service.lease(caller, request).await };
            if let Some(instead) = lie(&request, None) {
                return instead;
            }
            let answer = service.lease(caller, request.clone()).await?;
            lie(&request, Some(&answer)).unwrap_or(Ok(answer))
        };
        self.reach(to, limit, false, count, work).await
    }

    async fn put(
        &self,
        to: &Endpoint,
        record: Record,
        wait: Duration,
        limit: Duration,
    ) -> Result<PutResponse, CallError> {
        let (caller, line) = (self.caller, self.network.clone());
        let count: fn(&mut Counts) = |counts| counts.put_get += 1;
        let work = |service: Arc<dyn Service>, _| async move {
            line.send(record.bytes.len()).await;
            service.put(caller, record, wait).await
        };
        self.reach(to, limit, true, count, work).await
    }

    async fn get(
        &self,
        to: &Endpoint,
        request: FindRequest,
        limit: Duration,
    ) -> Result<Record, CallError> {
        let (caller, line) = (self.caller, self.network.clone());
        let count: fn(&mut Counts) = |counts| counts.put_get += 1;
        let work = |service: Arc<dyn Service>, fault: Fault| async move {
            if let Fault::Refused(ids, error) = &fault
                && ids.contains(&request.id)
            {
                return Err(error.clone());
            }
            let record = service.get(caller, request).await?;
            let answer = FindResponse::Found(record);
            line.take(&[&answer]).await;
            match fault.find(&request, answer) {
                FindResponse::Found(record) => Ok(record),
                FindResponse::Closest(_) => Err(CallError::NotFound),
            }
        };
        self.reach(to, limit, false, count, work).await
    }

    async fn tell(
        &self,
        to: &Endpoint,
        envelopes: Vec<Bytes>,
        limit: Duration,
    ) -> Result<(), CallError> {
        let caller = self.caller;
        let count: fn(&mut Counts) = |_| {};
        let work =
            |service: Arc<dyn Service>, _| async move { service.tell(caller, envelopes).await };
        self.reach(to, limit, false, count, work).await
    }

    async fn objects(
        &self,
        to: &Endpoint,
        request: ObjectsRequest,
        limit: Duration,
    ) -> Result<ObjectsAnswer, CallError> {
        let caller = self.caller;
        let write = matches!(request, ObjectsRequest::Put(_));
        let count: fn(&mut Counts) = |counts| counts.objects += 1;
        let work =
            |service: Arc<dyn Service>, _| async move { service.objects(caller, request).await };
        self.reach(to, limit, write, count, work).await
    }

    async fn keep(
        &self,
        to: &Endpoint,
        request: KeepRequest,
        limit: Duration,
    ) -> Result<KeepAnswer, CallError> {
        let caller = self.caller;
        let count: fn(&mut Counts) = |counts| counts.keep += 1;
        let work =
            |service: Arc<dyn Service>, _| async move { service.keep(caller, request).await };
        self.reach(to, limit, false, count, work).await
    }

    async fn watch(
        &self,
        to: &Endpoint,
        request: WatchRequest,
        limit: Duration,
    ) -> Result<WatchEvents, CallError> {
        let caller = self.caller;
        let count: fn(&mut Counts) = |counts| counts.watch += 1;
        let work =
            |service: Arc<dyn Service>, _| async move { service.watch(caller, request).await };
        self.reach(to, limit, false, count, work).await
    }

    async fn subscribe(
        &self,
        to: &Endpoint,
        request: SubscribeRequest,
        limit: Duration,
    ) -> Result<Events, CallError> {
        let caller = self.caller;
        let count: fn(&mut Counts) = |counts| counts.subscribe += 1;
        let work =
            |service: Arc<dyn Service>, _| async move { service.subscribe(caller, request).await };
        self.reach(to, limit, false, count, work).await
    }
}
