//! A call with one message each way: the request built, sent, and its answer read, by `framing`.
//!
//! The generated client is not used for these because its codec copies each record into a buffer of
//! its own; what travels is the same.

use std::fmt::Write;
use std::time::Duration;

use tonic::body::Body;
use tonic::codegen::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{Method, Request, StatusCode, Uri};
use tonic::metadata::MetadataMap;
use tonic::{Code, Response, Status};

use crate::codec::{Malformed, malformed};
use crate::framing::{self, Framed, Incoming, Outgoing};
use crate::limits::BATCH_MESSAGE_BYTES_MAX;
use crate::proto;
use crate::signing::Line;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// A message that asks for one answer.
pub(super) trait Asks: Outgoing + Send + 'static {
    /// The method's path.
    const PATH: &'static str;
    /// What it is answered with.
    type Answer: Incoming + Send;
}

macro_rules! asks {
    ($($method:literal: $request:ident -> $answer:ident),* $(,)?) => { $(
        impl Asks for proto::$request {
            const PATH: &'static str = concat!("/holdfast.v1.Librarian/", $method);
            type Answer = proto::$answer;
        }
    )* };
}

asks! {
    "Introduce": IntroduceRequest -> IntroduceResponse,
    "Find": FindRequest -> FindResponse,
    "Verify": VerifyRequest -> VerifyResponse,
    "Store": StoreRequest -> StoreResponse,
    "Get": GetRequest -> GetResponse,
    "Put": PutRequest -> PutResponse,
    "Tell": TellRequest -> TellResponse,
    "FindBatch": FindBatchRequest -> FindBatchResponse,
    "VerifyBatch": VerifyBatchRequest -> VerifyBatchResponse,
    "StoreBatch": StoreBatchRequest -> StoreBatchResponse,
    "Objects": ObjectsRequest -> ObjectsResponse,
    "Keep": KeepRequest -> KeepResponse,
    "Lease": LeaseRequest -> LeaseResponse,
    "Committee": CommitteeRequest -> CommitteeResponse,
}

/// The deadline as its header: up to eight digits and a unit.
fn timeout(left: Duration) -> HeaderValue {
    let (count, unit) = match left.as_micros() {
        micros @ 0..=99_999_999 => (micros, 'u'),
        _ if left.as_millis() <= 99_999_999 => (left.as_millis(), 'm'),
        _ => (u128::from(left.as_secs()).min(99_999_999), 'S'),
    };
    let mut text = String::with_capacity(9);
    let _ = write!(text, "{count}{unit}");
    // Digits and a letter are always a header's value.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("0u"))
}

/// Sends `message` and reads its answer.
///
/// # Errors
/// The status it was answered with; one with a source where there was no answer.
pub(super) async fn ask<M: Asks>(
    mut line: Line,
    message: M,
    left: Duration,
) -> Result<Response<M::Answer>, Status> {
    use tower::Service;
    let path = PathAndQuery::from_static(M::PATH);
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_TIMEOUT, timeout(left));
    let mut request = Request::new(Body::new(Framed::request(message)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from(path);
    *request.headers_mut() = headers;

    let broken = |error: crate::signing::LineError| Status::from_error(Box::new(error));
    std::future::poll_fn(|cx| line.poll_ready(cx)).await.map_err(broken)?;
    let (parts, mut body) = line.call(request).await.map_err(broken)?.into_parts();
    // An answer without a message has its status here.
    let early = Status::from_header_map(&parts.headers);
    if let Some(status) = early.filter(|status| status.code() != Code::Ok) {
        return Err(status);
    }
    if parts.status != StatusCode::OK {
        return Err(foreign(parts.status));
    }
    let (answer, trailers) = framing::read(&mut body, BATCH_MESSAGE_BYTES_MAX).await?;
    match trailers.as_ref().and_then(Status::from_header_map) {
        Some(status) if status.code() == Code::Ok => {}
        Some(status) => return Err(status),
        None => return Err(malformed(Malformed::NoStatus)),
    }
    let answer = answer.ok_or_else(|| malformed(Malformed::Nothing))?;
    Ok(Response::from_parts(MetadataMap::from_headers(parts.headers), answer, parts.extensions))
}

/// What an HTTP status means where somebody who does not speak gRPC answered.
fn foreign(status: StatusCode) -> Status {
    let code = match status {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Internal,
    };
    Status::new(code, format!("HTTP status {status} instead of an answer"))
}
