//! The calls of one party: each is carried over the wires, looked at, and noted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::lease::Shown;
use document::{Kind, Record};
use env::calls::keep::{KeepAnswer, KeepRequest};
use env::calls::leases::{LeaseAnswer, LeaseRequest};
use env::calls::objects::{ObjectsAnswer, ObjectsRequest, WatchEvents, WatchRequest};
use env::calls::{
    CallError, Calls, Credential, Endpoint, Events, FindRequest, FindResponse, IntroduceRequest,
    IntroduceResponse, PutResponse, StoreOutcome, SubscribeRequest, VerifyRequest, VerifyResponse,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use super::seen::Carries;
use super::{Fate, Wires};
use crate::history::History;
use crate::process::Process;

/// The calls of one run of one program.
pub(super) struct Line {
    pub(super) wires: Arc<Wires>,
    pub(super) party: usize,
    pub(super) run: u64,
    pub(super) inner: Arc<dyn Calls>,
    pub(super) credential: Arc<dyn Fn() -> Credential + Send + Sync>,
}

fn unreachable(to: &Endpoint, reason: &str) -> CallError {
    CallError::Unreachable { address: to.address.clone(), reason: reason.to_owned() }
}

/// What a program is told that asks for what its peer does not ask: a sign of life, and nothing more.
fn busy() -> CallError {
    CallError::Busy { retry_after: Duration::from_secs(1) }
}

impl Line {
    /// Carries one call and its answer. `answered` is told what the callee said, whether or not it arrives; `again` is
    /// what arrives where the request does so twice.
    async fn carry<T: Send>(
        &self,
        to: &Endpoint,
        limit: Duration,
        what: &'static str,
        call: impl Future<Output = Result<T, CallError>> + Send,
        again: Option<BoxFuture<'static, ()>>,
        answered: impl FnOnce(usize, &T) + Send,
    ) -> Result<T, CallError> {
        let wires = &self.wires;
        let env = &wires.env;
        let fate = wires.fate();
        let Fate { before, after, request_lost, answer_lost, .. } = fate;
        let mut callee = None;
        let work = async {
            env.clock.sleep(before).await;
            let (party, process) =
                wires.process_at(&to.address).ok_or_else(|| unreachable(to, "nobody is there"))?;
            callee = Some(party);
            if request_lost || !wires.reaches(self.party, party) {
                wires.history.tally("wire: a request lost");
                return futures::future::pending().await;
            }
            wires.arrives(self.party, party, fate.number);
            let work = async {
                if what != "introduce" {
                    self.greet(to, limit).await?;
                }
                let answer = call.await?;
                answered(party, &answer);
                Ok(answer)
            };
            if let (Some(later), Some(again)) = (fate.again, again) {
                self.wires.repeat(&process, later, again);
            }
            let answer = process.gate(work).await;
            env.clock.sleep(after).await;
            if answer_lost || !wires.reaches(party, self.party) {
                wires.history.tally("wire: an answer lost");
                return futures::future::pending().await;
            }
            answer.unwrap_or_else(|| {
                wires.history.tally("wire: reset by a dead peer");
                Err(unreachable(to, "connection reset"))
            })
        };
        let late = CallError::TimedOut { address: to.address.clone(), limit };
        let answer = env.within(limit, work.boxed()).await.unwrap_or(Err(late));
        let said = match &answer {
            Ok(_) => "ok".to_owned(),
            Err(error) => {
                self.seen(what, error);
                error.to_string()
            }
        };
        wires.history.event(format!("{} {what} {callee:?} {said}", self.party));
        answer
    }

    /// Introduces the caller on a new connection.
    async fn greet(&self, to: &Endpoint, limit: Duration) -> Result<(), CallError> {
        let connection = {
            let state = self.wires.lock();
            let run = state.runs.get(&to.address).copied().unwrap_or(0);
            let connection = (self.run, to.address.clone(), run);
            if state.introduced.contains(&connection) {
                return Ok(());
            }
            connection
        };
        let request = IntroduceRequest::new((self.credential)(), 0);
        self.seen("introduce", &request);
        let answer = self.inner.introduce(to, request, limit).await?;
        self.seen("introduced", &answer);
        self.wires.lock().introduced.insert(connection);
        Ok(())
    }

    /// A stream of events, until the run of the callee that opened it dies or an event does not reach the caller. Each that does is
    /// looked at.
    fn following<T: Carries + Send + 'static>(
        &self,
        to: &Endpoint,
        opened_by: Option<(usize, Arc<Process>)>,
        events: BoxStream<'static, Result<T, CallError>>,
        what: &'static str,
    ) -> Result<BoxStream<'static, Result<T, CallError>>, CallError> {
        let Some((callee, process)) = opened_by else {
            return Err(unreachable(to, "nobody is there"));
        };
        let (wires, party, to) = (Arc::clone(&self.wires), self.party, to.clone());
        // `None` once the stream broke: it then ends.
        let state = Some((events, wires, process));
        let stream = futures::stream::unfold(state, move |state| {
            let to = to.clone();
            async move {
                let (mut events, wires, process) = state?;
                match process.gate(events.next()).await {
                    None => Some((Err(unreachable(&to, "connection reset")), None)),
                    Some(None) => None,
                    Some(Some(_)) if !wires.reaches(callee, party) => {
                        Some((Err(unreachable(&to, "connection lost")), None))
                    }
                    Some(Some(event)) => {
                        search(&wires.history, what, &event);
                        Some((event, Some((events, wires, process))))
                    }
                }
            }
        });
        Ok(stream.boxed())
    }

    /// A call as it arrives the second time.
    fn again<M: Send + 'static>(
        &self,
        to: &Endpoint,
        limit: Duration,
        message: M,
        call: fn(Arc<dyn Calls>, Endpoint, Duration, M) -> BoxFuture<'static, ()>,
    ) -> Option<BoxFuture<'static, ()>> {
        Some(call(Arc::clone(&self.inner), to.clone(), limit, message))
    }

    fn seen(&self, what: &str, message: &impl Carries) {
        search(&self.wires.history, what, message);
    }

    fn sent(&self, record: &Record) {
        self.seen("store", record);
        self.wires.history.page_sent(record);
    }

    /// Records go to a holder. From now on they are of the put that sends them, even where it is answered long before this call.
    fn storing(&self, records: &[Record]) {
        records.iter().for_each(|record| self.sent(record));
        let mut history = self.wires.history.lock();
        let received = history.received.entry(self.party).or_default();
        for record in records {
            received.entry(record.id).or_insert((record.kind, BTreeSet::new()));
        }
    }

    fn found(&self, answer: &FindResponse) {
        self.seen("found", answer);
        if matches!(answer, FindResponse::Found(record) if record.kind == Kind::Parity) {
            self.wires.history.tally("path: parity is fetched");
        }
    }

    /// A peer said that it has these records durably.
    fn stored(&self, peer: usize, records: &[Record], outcomes: &[bool]) {
        let mut history = self.wires.history.lock();
        let stored = records.iter().zip(outcomes).filter(|(_, stored)| **stored);
        let stored = stored.map(|(record, _)| (record.id, record.place));
        history.acknowledged.entry(peer).or_default().extend(stored);
    }

    /// The caller was told so.
    fn told(&self, to: &Endpoint, records: &[Record], outcomes: &[bool]) {
        let Some((peer, _)) = self.wires.process_at(&to.address) else { return };
        let mut history = self.wires.history.lock();
        let received = history.received.entry(self.party).or_default();
        for (record, _) in records.iter().zip(outcomes).filter(|(_, stored)| **stored) {
            received.entry(record.id).or_insert((record.kind, BTreeSet::new())).1.insert(peer);
        }
    }
}

/// Searches what arrives somewhere.
fn search(history: &History, what: &str, message: &impl Carries) {
    message.each(&mut |bytes| history.on_wire(what, bytes));
}

#[async_trait]
impl Calls for Line {
    async fn introduce(
        &self,
        to: &Endpoint,
        request: IntroduceRequest,
        limit: Duration,
    ) -> Result<IntroduceResponse, CallError> {
        let again = self.again(to, limit, request.clone(), |inner, to, limit, request| {
            async move { drop(inner.introduce(&to, request, limit).await) }.boxed()
        });
        self.seen("introduce", &request);
        let call = self.inner.introduce(to, request, limit);
        let answered = |_, answer: &IntroduceResponse| self.seen("introduced", answer);
        self.carry(to, limit, "introduce", call, again, answered).await
    }

    async fn find(
        &self,
        to: &Endpoint,
        request: FindRequest,
        limit: Duration,
    ) -> Result<FindResponse, CallError> {
        let call = self.inner.find(to, request, limit);
        let answered = |_, answer: &FindResponse| {
            self.found(answer);
            if let FindResponse::Found(_) = answer {
                self.wires.history.fetched(self.party, self.run, request.place);
            }
        };
        self.carry(to, limit, "find", call, None, answered).await
    }

    async fn find_batch(
        &self,
        to: &Endpoint,
        requests: Vec<FindRequest>,
        limit: Duration,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        let call = self.inner.find_batch(to, requests, limit);
        let answered = |_, answers: &Vec<Result<FindResponse, CallError>>| {
            answers.iter().flatten().for_each(|answer| self.found(answer));
            if answers.iter().flatten().any(|one| matches!(one, FindResponse::Found(_))) {
                self.wires.history.tally("path: an open question finds something");
            }
        };
        self.carry(to, limit, "find_batch", call, None, answered).await
    }

    async fn verify(
        &self,
        to: &Endpoint,
        request: VerifyRequest,
        limit: Duration,
    ) -> Result<VerifyResponse, CallError> {
        let call = self.inner.verify(to, request, limit);
        let answered = |_, answer: &VerifyResponse| self.seen("verified", answer);
        self.carry(to, limit, "verify", call, None, answered).await
    }

    async fn verify_batch(
        &self,
        to: &Endpoint,
        requests: Vec<VerifyRequest>,
        limit: Duration,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        let call = self.inner.verify_batch(to, requests, limit);
        let answered = |_, answers: &Vec<Result<VerifyResponse, CallError>>| {
            self.seen("verified", answers);
        };
        self.carry(to, limit, "verify_batch", call, None, answered).await
    }

    async fn store(
        &self,
        to: &Endpoint,
        record: Record,
        limit: Duration,
    ) -> Result<StoreOutcome, CallError> {
        let records = [record.clone()];
        self.storing(&records);
        let again = self.again(to, limit, record.clone(), |inner, to, limit, record| {
            async move { drop(inner.store(&to, record, limit).await) }.boxed()
        });
        let call = self.inner.store(to, record, limit);
        let answered = |peer, _: &_| self.stored(peer, &records, &[true]);
        let answer = self.carry(to, limit, "store", call, again, answered).await;
        self.told(to, &records, &[answer.is_ok()]);
        answer
    }

    async fn store_batch(
        &self,
        to: &Endpoint,
        records: Vec<Record>,
        limit: Duration,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        self.storing(&records);
        let sent = records.clone();
        let again = self.again(to, limit, sent.clone(), |inner, to, limit, records| {
            async move { drop(inner.store_batch(&to, records, limit).await) }.boxed()
        });
        let call = self.inner.store_batch(to, records, limit);
        let are_ok = |answers: &Vec<Result<StoreOutcome, CallError>>| {
            answers.iter().map(Result::is_ok).collect::<Vec<bool>>()
        };
        let answered = |peer, answers: &_| self.stored(peer, &sent, &are_ok(answers));
        let answer = self.carry(to, limit, "store_batch", call, again, answered).await;
        let outcomes = answer.as_ref().map_or(vec![false; sent.len()], are_ok);
        self.told(to, &sent, &outcomes);
        answer
    }

    async fn store_leased(
        &self,
        to: &Endpoint,
        records: Vec<Record>,
        leases: Vec<Shown>,
        limit: Duration,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        self.storing(&records);
        self.seen("lease", &leases);
        self.wires.leased(&leases);
        let sent = records.clone();
        let message = (sent.clone(), leases.clone());
        let again = self.again(to, limit, message, |inner, to, limit, (records, leases)| {
            async move { drop(inner.store_leased(&to, records, leases, limit).await) }.boxed()
        });
        let call = self.inner.store_leased(to, records, leases, limit);
        let are_ok = |answers: &Vec<Result<StoreOutcome, CallError>>| {
            answers.iter().map(Result::is_ok).collect::<Vec<bool>>()
        };
        let answered = |peer, answers: &_| self.stored(peer, &sent, &are_ok(answers));
        let answer = self.carry(to, limit, "store_leased", call, again, answered).await;
        let outcomes = answer.as_ref().map_or(vec![false; sent.len()], are_ok);
        self.told(to, &sent, &outcomes);
        answer
    }

    async fn put_leased(
        &self,
        to: &Endpoint,
        record: Record,
        leases: Vec<Shown>,
        wait: Duration,
        limit: Duration,
    ) -> Result<PutResponse, CallError> {
        self.sent(&record);
        self.seen("lease", &leases);
        let call = self.inner.put_leased(to, record, leases, wait, limit);
        self.carry(to, limit, "put_leased", call, None, |_, _| {}).await
    }

    async fn lease(
        &self,
        to: &Endpoint,
        request: LeaseRequest,
        limit: Duration,
    ) -> Result<LeaseAnswer, CallError> {
        if matches!(request, LeaseRequest::Tombstones { .. }) && self.wires.is_deaf(self.party) {
            return Err(busy());
        }
        let again = self.again(to, limit, request.clone(), |inner, to, limit, request| {
            async move { drop(inner.lease(&to, request, limit).await) }.boxed()
        });
        self.seen("lease", &request);
        let call = self.inner.lease(to, request, limit);
        let answered = |_, answer: &LeaseAnswer| self.seen("leases", answer);
        self.carry(to, limit, "lease", call, again, answered).await
    }

    async fn put(
        &self,
        to: &Endpoint,
        record: Record,
        wait: Duration,
        limit: Duration,
    ) -> Result<PutResponse, CallError> {
        self.sent(&record);
        let call = self.inner.put(to, record, wait, limit);
        self.carry(to, limit, "put", call, None, |_, _| {}).await
    }

    async fn get(
        &self,
        to: &Endpoint,
        request: FindRequest,
        limit: Duration,
    ) -> Result<Record, CallError> {
        let call = self.inner.get(to, request, limit);
        let answered = |_, record: &Record| self.seen("got", record);
        self.carry(to, limit, "get", call, None, answered).await
    }

    async fn tell(
        &self,
        to: &Endpoint,
        envelopes: Vec<Bytes>,
        limit: Duration,
    ) -> Result<(), CallError> {
        self.seen("tell", &envelopes);
        let call = self.inner.tell(to, envelopes, limit);
        self.carry(to, limit, "tell", call, None, |_, ()| {}).await
    }

    async fn objects(
        &self,
        to: &Endpoint,
        request: ObjectsRequest,
        limit: Duration,
    ) -> Result<ObjectsAnswer, CallError> {
        let again = self.again(to, limit, request.clone(), |inner, to, limit, request| {
            async move { drop(inner.objects(&to, request, limit).await) }.boxed()
        });
        self.seen("objects", &request);
        let call = self.inner.objects(to, request, limit);
        let answered = |_, answer: &ObjectsAnswer| self.seen("objects", answer);
        self.carry(to, limit, "objects", call, again, answered).await
    }

    async fn keep(
        &self,
        to: &Endpoint,
        request: KeepRequest,
        limit: Duration,
    ) -> Result<KeepAnswer, CallError> {
        let request = self.wires.twisted(self.party, request).ok_or_else(busy)?;
        let again = self.again(to, limit, request.clone(), |inner, to, limit, request| {
            async move { drop(inner.keep(&to, request, limit).await) }.boxed()
        });
        let call = self.inner.keep(to, request, limit);
        let answered = |_, answer: &KeepAnswer| self.seen("kept", answer);
        self.carry(to, limit, "keep", call, again, answered).await
    }

    async fn subscribe(
        &self,
        to: &Endpoint,
        request: SubscribeRequest,
        limit: Duration,
    ) -> Result<Events, CallError> {
        self.seen("subscribe", &request);
        let call = self.inner.subscribe(to, request, limit);
        // Not asked for once the answer is here: the peer may have been started anew by then.
        let mut by = None;
        let opened = |_, _: &_| by = self.wires.process_at(&to.address);
        let events = self.carry(to, limit, "subscribe", call, None, opened).await?;
        self.following(to, by, events, "publication")
    }

    async fn watch(
        &self,
        to: &Endpoint,
        request: WatchRequest,
        limit: Duration,
    ) -> Result<WatchEvents, CallError> {
        self.seen("watch", &request);
        let call = self.inner.watch(to, request, limit);
        let mut by = None;
        let opened = |_, _: &_| by = self.wires.process_at(&to.address);
        let events = self.carry(to, limit, "watch", call, None, opened).await?;
        self.following(to, by, events, "watched")
    }
}

#[cfg(test)]
mod tests;
