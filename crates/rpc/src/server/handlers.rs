//! The methods of `holdfast.v1.Librarian`: open the message, ask the service, close the answer.

use std::sync::Arc;
use std::time::Duration;

use crypto::lease::Shown;
use document::Record;
use env::Env;
use env::calls::{
    BATCH_BYTES_MAX, CallError, Caller, Credential, FindResponse, IntroduceRequest, PUT_WAIT_MAX,
    Service,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status, Streaming};

use super::connection::Peer;
use super::members::Members;
use super::streams;
use crate::convert::leases::open_shown;
use crate::convert::{Open, Wrong, committee, keep, objects};
use crate::limits::{RECONNECT_HEADER, RECORD_MESSAGE_BYTES_MAX};
use crate::proto;
use crate::proto::librarian_server::Librarian;
use crate::status::to_status;

/// Answers from a service.
pub(super) struct Handlers {
    pub(super) service: Arc<dyn Service>,
    pub(super) env: Env,
    /// The bound of one message's handling in a stream.
    pub(super) call: Duration,
    /// Cancelled when streams must end.
    pub(super) stop: CancellationToken,
    /// Who was vouched for.
    pub(super) members: Arc<Members>,
}

/// What a stream of answers is.
type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// What is wrong with a message, as its sender hears it.
pub(super) fn invalid(wrong: Wrong) -> CallError {
    CallError::Invalid { reason: wrong.0.to_owned() }
}

/// Who called, by the key of the connection or of the signed request.
pub(super) fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    request.extensions().get::<Peer>().and_then(|peer| peer.caller).ok_or_else(|| {
        to_status(&CallError::Internal { reason: "a call without a proven key".into() })
    })
}

/// Caller and opened message.
fn opened<M: Open<T>, T>(request: Request<M>) -> Result<(Caller, T), Status> {
    let caller = caller(&request)?;
    let message = request.into_inner().open().map_err(|wrong| to_status(&invalid(wrong)))?;
    Ok((caller, message))
}

fn closed<T, M: From<T>>(outcome: Result<T, CallError>) -> Result<Response<M>, Status> {
    match outcome {
        Ok(answer) => Ok(Response::new(answer.into())),
        Err(error) => Err(to_status(&error)),
    }
}

/// One answer a request, or the service has a defect.
fn paired<T>(asked: usize, answers: Vec<T>) -> Result<Vec<T>, Status> {
    if answers.len() == asked {
        return Ok(answers);
    }
    let reason = format!("{} answers to {asked} requests", answers.len());
    Err(to_status(&CallError::Internal { reason }))
}

/// The bytes of records and announcements in an answer.
fn answer_bytes(answer: &Result<FindResponse, CallError>) -> usize {
    match answer {
        Ok(FindResponse::Found(record)) => record.bytes.len(),
        Ok(FindResponse::Closest(peers)) => peers.iter().map(|bytes| bytes.len() + 8).sum(),
        Err(_) => 0,
    }
}

#[tonic::async_trait]
impl Librarian for Handlers {
    async fn introduce(
        &self,
        request: Request<proto::IntroduceRequest>,
    ) -> Result<Response<proto::IntroduceResponse>, Status> {
        let stranger = request.extensions().get::<Peer>().is_some_and(|peer| peer.stranger);
        let (caller, request): (_, IntroduceRequest) = opened(request)?;
        let vouched = request.credential != Credential::None;
        let mut response = closed(self.service.introduce(caller, request).await)?;
        if vouched {
            let now = self.env.clock.elapsed();
            self.members.note(caller, now);
            if stranger && self.members.voucher(caller, now).is_some() {
                let yes = MetadataValue::from_static("1");
                response.metadata_mut().insert(RECONNECT_HEADER, yes);
            }
        }
        Ok(response)
    }

    async fn find(
        &self,
        request: Request<proto::FindRequest>,
    ) -> Result<Response<proto::FindResponse>, Status> {
        let (caller, request) = opened(request)?;
        closed(self.service.find(caller, request).await)
    }

    async fn verify(
        &self,
        request: Request<proto::VerifyRequest>,
    ) -> Result<Response<proto::VerifyResponse>, Status> {
        let (caller, request) = opened(request)?;
        closed(self.service.verify(caller, request).await)
    }

    async fn store(
        &self,
        request: Request<proto::StoreRequest>,
    ) -> Result<Response<proto::StoreResponse>, Status> {
        let (caller, record) = opened(request.map(|request| request.record))?;
        closed(self.service.store(caller, record).await)
    }

    async fn get(
        &self,
        request: Request<proto::GetRequest>,
    ) -> Result<Response<proto::GetResponse>, Status> {
        let (caller, request) = opened(request)?;
        let record = self.service.get(caller, request).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(proto::GetResponse { record: Some(record.into()) }))
    }

    async fn put(
        &self,
        request: Request<proto::PutRequest>,
    ) -> Result<Response<proto::PutResponse>, Status> {
        let wait = Duration::from_millis(request.get_ref().wait_ms.into());
        let wait = wait.min(PUT_WAIT_MAX);
        let invalid = |wrong| to_status(&invalid(wrong));
        let leases = open_shown(&request.get_ref().leases).map_err(invalid)?;
        let (caller, record) = opened(request.map(|request| request.record))?;
        if leases.is_empty() {
            return closed(self.service.put(caller, record, wait).await);
        }
        closed(self.service.put_leased(caller, record, leases, wait).await)
    }

    async fn tell(
        &self,
        request: Request<proto::TellRequest>,
    ) -> Result<Response<proto::TellResponse>, Status> {
        let (caller, envelopes) = opened(request)?;
        self.service.tell(caller, envelopes).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(proto::TellResponse {}))
    }

    type SubscribeStream = Answers<proto::SubscribeEvent>;

    async fn subscribe(
        &self,
        request: Request<proto::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let (caller, request) = opened(request)?;
        let events =
            self.service.subscribe(caller, request).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(streams::events(events, self.stop.clone()).boxed()))
    }

    async fn objects(
        &self,
        request: Request<proto::ObjectsRequest>,
    ) -> Result<Response<proto::ObjectsResponse>, Status> {
        let (caller, request) = opened(request)?;
        let asked = objects::Asked::of(&request);
        let answer = self.service.objects(caller, request).await;
        let answer = answer.and_then(|answer| asked.fit(answer));
        closed(answer)
    }

    async fn keep(
        &self,
        request: Request<proto::KeepRequest>,
    ) -> Result<Response<proto::KeepResponse>, Status> {
        self.service.may_keep(&caller(&request)?).map_err(|error| to_status(&error))?;
        let (caller, request) = opened(request)?;
        let asked = keep::Asked::of(&request);
        let answer = self.service.keep(caller, request).await;
        let answer = answer.and_then(|answer| asked.fit(answer));
        closed(answer)
    }

    async fn lease(
        &self,
        request: Request<proto::LeaseRequest>,
    ) -> Result<Response<proto::LeaseResponse>, Status> {
        let (caller, request) = opened(request)?;
        closed(self.service.lease(caller, request).await)
    }

    async fn committee(
        &self,
        request: Request<proto::CommitteeRequest>,
    ) -> Result<Response<proto::CommitteeResponse>, Status> {
        let (caller, request) = opened(request)?;
        let answer = self.service.committee(caller, request).await;
        closed(answer.and_then(|answer| committee::fits(&answer).map(|()| answer).map_err(invalid)))
    }

    type WatchStream = Answers<proto::WatchEvent>;

    async fn watch(
        &self,
        request: Request<proto::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (caller, request) = opened(request)?;
        let events =
            self.service.watch(caller, request).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(streams::events(events, self.stop.clone()).boxed()))
    }

    async fn find_batch(
        &self,
        request: Request<proto::FindBatchRequest>,
    ) -> Result<Response<proto::FindBatchResponse>, Status> {
        let (caller, requests) = opened(request)?;
        let asked = requests.len();
        let answers = self.service.find_batch(caller, requests).await;
        let answers = paired(asked, answers.map_err(|error| to_status(&error))?)?;
        let mut left = BATCH_BYTES_MAX;
        let bounded =
            answers.into_iter().map(|answer| match left.checked_sub(answer_bytes(&answer)) {
                Some(rest) => {
                    left = rest;
                    answer.into()
                }
                None => Err(CallError::Busy { retry_after: Duration::ZERO }).into(),
            });
        Ok(Response::new(proto::FindBatchResponse { answers: bounded.collect() }))
    }

    async fn verify_batch(
        &self,
        request: Request<proto::VerifyBatchRequest>,
    ) -> Result<Response<proto::VerifyBatchResponse>, Status> {
        let (caller, requests) = opened(request)?;
        let asked = requests.len();
        let answers = self.service.verify_batch(caller, requests).await;
        let answers = paired(asked, answers.map_err(|error| to_status(&error))?)?;
        let answers = answers.into_iter().map(Into::into).collect();
        Ok(Response::new(proto::VerifyBatchResponse { answers }))
    }

    async fn store_batch(
        &self,
        request: Request<proto::StoreBatchRequest>,
    ) -> Result<Response<proto::StoreBatchResponse>, Status> {
        let (caller, (records, leases)): (_, (Vec<Record>, Vec<Shown>)) = opened(request)?;
        let asked = records.len();
        let outcomes = match leases.is_empty() {
            true => self.service.store_batch(caller, records).await,
            false => self.service.store_leased(caller, records, leases).await,
        };
        let outcomes = paired(asked, outcomes.map_err(|error| to_status(&error))?)?;
        let answers = outcomes.into_iter().map(Into::into).collect();
        Ok(Response::new(proto::StoreBatchResponse { answers }))
    }

    type FindStreamStream = Answers<proto::FindAnswer>;

    async fn find_stream(
        &self,
        request: Request<Streaming<proto::FindRequest>>,
    ) -> Result<Response<Self::FindStreamStream>, Status> {
        let service = self.service.clone();
        self.answered(
            request,
            RECORD_MESSAGE_BYTES_MAX,
            move |caller, message: proto::FindRequest| {
                let service = service.clone();
                async move { service.find(caller, message.open().map_err(invalid)?).await }
            },
        )
    }

    type VerifyStreamStream = Answers<proto::VerifyAnswer>;

    async fn verify_stream(
        &self,
        request: Request<Streaming<proto::VerifyRequest>>,
    ) -> Result<Response<Self::VerifyStreamStream>, Status> {
        let service = self.service.clone();
        self.answered(request, 0, move |caller, message: proto::VerifyRequest| {
            let service = service.clone();
            async move { service.verify(caller, message.open().map_err(invalid)?).await }
        })
    }

    type StoreStreamStream = Answers<proto::StoreAnswer>;

    async fn store_stream(
        &self,
        request: Request<Streaming<proto::StoreRequest>>,
    ) -> Result<Response<Self::StoreStreamStream>, Status> {
        let service = self.service.clone();
        self.answered(request, 0, move |caller, message: proto::StoreRequest| {
            let service = service.clone();
            async move { service.store(caller, message.record.open().map_err(invalid)?).await }
        })
    }
}
