//! The calls: message out, answer opened and compared with what was asked.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crypto::Announcement;
use crypto::lease::Shown;
use document::Record;
use env::calls::committee::{CommitteeAnswer, CommitteeRequest};
use env::calls::keep::{KeepAnswer, KeepRequest};
use env::calls::leases::{LeaseAnswer, LeaseRequest};
use env::calls::objects::{ObjectsAnswer, ObjectsRequest, WatchEvents, WatchRequest};
use env::calls::{
    BATCH_BYTES_MAX, BATCH_MAX, CallError, Calls, Endpoint, Events, FindRequest, FindResponse,
    IntroduceRequest, IntroduceResponse, PutResponse, StoreOutcome, SubscribeRequest,
    VerifyRequest, VerifyResponse,
};
use tonic::Request;

use super::connection::Connection;
use super::{Client, corrupt, opened};
use crate::convert::leases::{check_answer as check_leases, close_shown};
use crate::convert::objects::{check_answer, check_request, check_watch};
use crate::convert::{Wrong, committee, keep};
use crate::limits::{RECORD_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX};
use crate::proto;

/// From here on a record goes over the connections for records.
const LARGE_BYTES: usize = 64 << 10;

/// What the far side would refuse is not sent.
fn check_record(record: &Record) -> Result<(), CallError> {
    match record.bytes.len() {
        0 => Err(CallError::Invalid { reason: "a record without bytes".into() }),
        1..=RECORD_BYTES_MAX => Ok(()),
        _ => Err(CallError::Invalid { reason: "a record over 2 MiB + 1 KiB".into() }),
    }
}

fn check_batch(len: usize) -> Result<(), CallError> {
    match len {
        1..=BATCH_MAX => Ok(()),
        _ => Err(CallError::Invalid { reason: "a batch is 1 to 1,024 requests".into() }),
    }
}

/// Anybody can answer with the announcement of another, which is public: it is that of whoever proved its key. Whether it counts
/// is for the caller to check, and where nobody proved anything who it is of.
fn check_announced(
    to: &Endpoint,
    connection: &Connection,
    announcement: &Bytes,
) -> Result<(), CallError> {
    match (connection.peer, Announcement::claims(announcement)) {
        (Some(proven), Some(claimed)) if proven != claimed => Err(CallError::WrongPeer {
            address: to.address.clone(),
            reason: format!("its key is {proven}, and it announced itself as {claimed}"),
        }),
        _ => Ok(()),
    }
}

/// What was found is what was asked for; that its bytes prove it is for the caller to check.
fn check_found(to: &Endpoint, asked: &FindRequest, found: &FindResponse) -> Result<(), CallError> {
    match found {
        FindResponse::Found(record) if record.id != asked.id => {
            Err(corrupt(to, "it answered with another record"))
        }
        _ => Ok(()),
    }
}

fn check_answers(to: &Endpoint, asked: usize, answered: usize) -> Result<(), CallError> {
    if asked == answered { Ok(()) } else { Err(corrupt(to, "not one answer a request")) }
}

/// A request that is not sent because the far side would refuse it.
fn refused(wrong: &Wrong) -> CallError {
    CallError::Invalid { reason: wrong.0.to_owned() }
}

/// Whether records go or come: they have connections of their own.
fn is_large(request: &ObjectsRequest) -> bool {
    match request {
        ObjectsRequest::Put(put) => {
            put.records.iter().map(|record| record.bytes.len()).sum::<usize>() >= LARGE_BYTES
        }
        _ => true,
    }
}

#[async_trait]
impl Calls for Client {
    async fn introduce(
        &self,
        to: &Endpoint,
        request: IntroduceRequest,
        limit: Duration,
    ) -> Result<IntroduceResponse, CallError> {
        let ask = |attempt: super::Attempt| {
            let message: proto::IntroduceRequest = request.clone().into();
            attempt.ask(message)
        };
        let (answer, lease) = self.call(to, false, limit, ask).await?;
        let answer: IntroduceResponse = opened(to, answer)?;
        check_announced(to, &lease.connection, &answer.announcement)?;
        Ok(answer)
    }

    async fn find(
        &self,
        to: &Endpoint,
        request: FindRequest,
        limit: Duration,
    ) -> Result<FindResponse, CallError> {
        let ask = |attempt: super::Attempt| {
            let message: proto::FindRequest = request.into();
            attempt.ask(message)
        };
        let found = opened(to, self.call(to, true, limit, ask).await?.0)?;
        check_found(to, &request, &found)?;
        Ok(found)
    }

    async fn find_batch(
        &self,
        to: &Endpoint,
        requests: Vec<FindRequest>,
        limit: Duration,
    ) -> Result<Vec<Result<FindResponse, CallError>>, CallError> {
        check_batch(requests.len())?;
        let ask = |attempt: super::Attempt| {
            let requests = requests.iter().map(|request| (*request).into()).collect();
            attempt.ask(proto::FindBatchRequest { requests })
        };
        let answers = self.call(to, true, limit, ask).await?.0.answers;
        check_answers(to, requests.len(), answers.len())?;
        // What is wrong with one says nothing of the others.
        let open = |(answer, asked): (proto::FindAnswer, &FindRequest)| {
            let found = answer.open(&to.address).map_err(|wrong| corrupt(to, wrong.0))??;
            check_found(to, asked, &found).map(|()| found)
        };
        Ok(answers.into_iter().zip(&requests).map(open).collect())
    }

    async fn verify(
        &self,
        to: &Endpoint,
        request: VerifyRequest,
        limit: Duration,
    ) -> Result<VerifyResponse, CallError> {
        let ask = |attempt: super::Attempt| {
            let message: proto::VerifyRequest = request.into();
            attempt.ask(message)
        };
        opened(to, self.call(to, false, limit, ask).await?.0)
    }

    async fn verify_batch(
        &self,
        to: &Endpoint,
        requests: Vec<VerifyRequest>,
        limit: Duration,
    ) -> Result<Vec<Result<VerifyResponse, CallError>>, CallError> {
        check_batch(requests.len())?;
        let ask = |attempt: super::Attempt| {
            let requests = requests.iter().map(|request| (*request).into()).collect();
            attempt.ask(proto::VerifyBatchRequest { requests })
        };
        let answers = self.call(to, false, limit, ask).await?.0.answers;
        check_answers(to, requests.len(), answers.len())?;
        let open = |answer: proto::VerifyAnswer| {
            answer.open(&to.address).map_err(|wrong| corrupt(to, wrong.0))
        };
        answers.into_iter().map(open).collect()
    }

    async fn store(
        &self,
        to: &Endpoint,
        record: Record,
        limit: Duration,
    ) -> Result<StoreOutcome, CallError> {
        check_record(&record)?;
        let ask = |attempt: super::Attempt| {
            let message = proto::StoreRequest { record: Some(record.clone().into()) };
            attempt.ask(message)
        };
        let large = record.bytes.len() >= LARGE_BYTES;
        opened(to, self.call(to, large, limit, ask).await?.0)
    }

    async fn store_batch(
        &self,
        to: &Endpoint,
        records: Vec<Record>,
        limit: Duration,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        self.store_leased(to, records, Vec::new(), limit).await
    }

    async fn store_leased(
        &self,
        to: &Endpoint,
        records: Vec<Record>,
        leases: Vec<Shown>,
        limit: Duration,
    ) -> Result<Vec<Result<StoreOutcome, CallError>>, CallError> {
        check_batch(records.len())?;
        records.iter().try_for_each(check_record)?;
        if records.iter().map(|record| record.bytes.len()).sum::<usize>() > BATCH_BYTES_MAX {
            let reason = "over 8 MiB of records in one batch".to_owned();
            return Err(CallError::Invalid { reason });
        }
        let leases = close_shown(&leases);
        let ask = |attempt: super::Attempt| {
            let records = records.iter().map(|record| record.clone().into()).collect();
            attempt.ask(proto::StoreBatchRequest { records, leases: leases.clone() })
        };
        let answers = self.call(to, true, limit, ask).await?.0.answers;
        check_answers(to, records.len(), answers.len())?;
        let open = |answer: proto::StoreAnswer| {
            answer.open(&to.address).map_err(|wrong| corrupt(to, wrong.0))
        };
        answers.into_iter().map(open).collect()
    }

    async fn put(
        &self,
        to: &Endpoint,
        record: Record,
        wait: Duration,
        limit: Duration,
    ) -> Result<PutResponse, CallError> {
        self.put_leased(to, record, Vec::new(), wait, limit).await
    }

    async fn put_leased(
        &self,
        to: &Endpoint,
        record: Record,
        leases: Vec<Shown>,
        wait: Duration,
        limit: Duration,
    ) -> Result<PutResponse, CallError> {
        check_record(&record)?;
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let leases = close_shown(&leases);
        let ask = |attempt: super::Attempt| {
            let (record, leases) = (Some(record.clone().into()), leases.clone());
            attempt.ask(proto::PutRequest { record, wait_ms, leases })
        };
        let large = record.bytes.len() >= LARGE_BYTES;
        opened(to, self.call(to, large, limit, ask).await?.0)
    }

    async fn get(
        &self,
        to: &Endpoint,
        request: FindRequest,
        limit: Duration,
    ) -> Result<Record, CallError> {
        let ask = |attempt: super::Attempt| {
            let message: proto::GetRequest = request.into();
            attempt.ask(message)
        };
        let record: Record = opened(to, self.call(to, true, limit, ask).await?.0.record)?;
        if record.id != request.id {
            return Err(corrupt(to, "it answered with another record"));
        }
        Ok(record)
    }

    async fn tell(
        &self,
        to: &Endpoint,
        envelopes: Vec<Bytes>,
        limit: Duration,
    ) -> Result<(), CallError> {
        let ask = |attempt: super::Attempt| {
            attempt.ask(proto::TellRequest { envelopes: envelopes.clone() })
        };
        self.call(to, false, limit, ask).await.map(drop)
    }

    async fn subscribe(
        &self,
        to: &Endpoint,
        request: SubscribeRequest,
        limit: Duration,
    ) -> Result<Events, CallError> {
        let ask = |attempt: super::Attempt| {
            let request = Request::new(request.clone().into());
            // What is read behind another is kept for a while, so it is small.
            let mut client = attempt.generated().max_decoding_message_size(SMALL_MESSAGE_BYTES_MAX);
            async move { client.subscribe(request).await }
        };
        self.follow(to, limit, ask).await
    }

    async fn objects(
        &self,
        to: &Endpoint,
        request: ObjectsRequest,
        limit: Duration,
    ) -> Result<ObjectsAnswer, CallError> {
        check_request(&request).map_err(|wrong| refused(&wrong))?;
        let ask = |attempt: super::Attempt| {
            let message: proto::ObjectsRequest = request.clone().into();
            attempt.ask(message)
        };
        let answer = self.call(to, is_large(&request), limit, ask).await?.0;
        let answer = answer.open(&to.address).map_err(|wrong| corrupt(to, wrong.0))?;
        check_answer(&request, &answer).map_err(|wrong| corrupt(to, wrong.0))?;
        Ok(answer)
    }

    async fn keep(
        &self,
        to: &Endpoint,
        request: KeepRequest,
        limit: Duration,
    ) -> Result<KeepAnswer, CallError> {
        keep::check_request(&request).map_err(|wrong| refused(&wrong))?;
        let asked = keep::Asked::of(&request);
        let ask = |attempt: super::Attempt| {
            let message: proto::KeepRequest = request.clone().into();
            attempt.ask(message)
        };
        // What is asked within a deadline does not wait behind records.
        let large = matches!(request, KeepRequest::Fetch(_));
        let answer: KeepAnswer = opened(to, self.call(to, large, limit, ask).await?.0)?;
        asked.check(&answer).map_err(|wrong| corrupt(to, wrong.0))?;
        Ok(answer)
    }

    async fn lease(
        &self,
        to: &Endpoint,
        request: LeaseRequest,
        limit: Duration,
    ) -> Result<LeaseAnswer, CallError> {
        let ask = |attempt: super::Attempt| {
            let message: proto::LeaseRequest = request.clone().into();
            attempt.ask(message)
        };
        let answer: LeaseAnswer = opened(to, self.call(to, false, limit, ask).await?.0)?;
        check_leases(&request, &answer).map_err(|wrong| corrupt(to, wrong.0))?;
        Ok(answer)
    }

    async fn committee(
        &self,
        to: &Endpoint,
        request: CommitteeRequest,
        limit: Duration,
    ) -> Result<CommitteeAnswer, CallError> {
        committee::check_request(&request).map_err(|wrong| refused(&wrong))?;
        let ask = |attempt: super::Attempt| {
            let message: proto::CommitteeRequest = request.clone().into();
            attempt.ask(message)
        };
        let answer: CommitteeAnswer = opened(to, self.call(to, false, limit, ask).await?.0)?;
        committee::check_answer(&request, &answer).map_err(|wrong| corrupt(to, wrong.0))?;
        Ok(answer)
    }

    async fn watch(
        &self,
        to: &Endpoint,
        request: WatchRequest,
        limit: Duration,
    ) -> Result<WatchEvents, CallError> {
        check_watch(&request).map_err(|wrong| refused(&wrong))?;
        let ask = |attempt: super::Attempt| {
            let request = Request::new(request.clone().into());
            let mut client = attempt.generated();
            async move { client.watch(request).await }
        };
        self.follow(to, limit, ask).await
    }
}
