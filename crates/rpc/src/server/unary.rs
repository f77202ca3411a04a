//! Calls with one message each way, from their bodies to the handlers and back.
//!
//! They do not pass the generated service: its codec copies each record into a buffer of its own,
//! and its router is made for any number of services. What it does for streams, and for a method
//! or an encoding that is not known, it does still.

use tonic::body::Body;
use tonic::codegen::http::header::{CONTENT_TYPE, HeaderValue};
use tonic::codegen::http::{Request, Response};
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Status};

use super::gate::LIBRARIAN;
use super::handlers::Handlers;
use super::share::Reserving;
use crate::codec::{Malformed, malformed};
use crate::framing::{self, Framed, Incoming, Outgoing};
use crate::limits::{BATCH_MESSAGE_BYTES_MAX, RECORD_MESSAGE_BYTES_MAX};
use crate::proto::librarian_server::Librarian;
use crate::status::to_status;

/// A method with one message each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    Introduce,
    Find,
    Verify,
    Store,
    Get,
    Put,
    FindBatch,
    VerifyBatch,
    StoreBatch,
    Objects,
    Keep,
    Lease,
    Committee,
}

impl Unary {
    /// Bytes that an answer may have and takes before it is made; where `few` calls are in work, those of batches alone.
    pub(super) const fn reserves(self, few: bool) -> usize {
        match self {
            Self::FindBatch => BATCH_MESSAGE_BYTES_MAX,
            Self::Objects | Self::Keep | Self::Lease if !few => BATCH_MESSAGE_BYTES_MAX,
            Self::Find | Self::Get | Self::Committee if !few => RECORD_MESSAGE_BYTES_MAX,
            _ => 0,
        }
    }
}

/// The method of a request, where it has one message and no encoding but protobuf's own.
pub(super) fn method<B>(request: &Request<B>) -> Option<Unary> {
    let encoding = request.headers().get("grpc-encoding");
    if encoding.is_some_and(|encoding| encoding != "identity") {
        return None;
    }
    Some(match request.uri().path().strip_prefix(LIBRARIAN)? {
        "Introduce" => Unary::Introduce,
        "Find" => Unary::Find,
        "Verify" => Unary::Verify,
        "Store" => Unary::Store,
        "Get" => Unary::Get,
        "Put" => Unary::Put,
        "FindBatch" => Unary::FindBatch,
        "VerifyBatch" => Unary::VerifyBatch,
        "StoreBatch" => Unary::StoreBatch,
        "Objects" => Unary::Objects,
        "Keep" => Unary::Keep,
        "Lease" => Unary::Lease,
        "Committee" => Unary::Committee,
        _ => return None,
    })
}

/// Answers one call. What its answer takes before it is made, it takes once the whole request is there: who sends it slowly
/// holds none.
pub(super) async fn answer(
    handlers: &Handlers,
    method: Unary,
    request: Request<Body>,
    bytes_max: usize,
    (reserving, bytes): (&Reserving, usize),
) -> Response<Body> {
    macro_rules! by {
        ($handler:ident) => {
            match opened(request, bytes_max).await {
                Ok(request) => match reserving.reserve(bytes).await {
                    Ok(()) => closed(handlers.$handler(request).await),
                    Err(error) => to_status(&error).into_http(),
                },
                Err(status) => status.into_http(),
            }
        };
    }
    match method {
        Unary::Introduce => by!(introduce),
        Unary::Find => by!(find),
        Unary::Verify => by!(verify),
        Unary::Store => by!(store),
        Unary::Get => by!(get),
        Unary::Put => by!(put),
        Unary::FindBatch => by!(find_batch),
        Unary::VerifyBatch => by!(verify_batch),
        Unary::StoreBatch => by!(store_batch),
        Unary::Objects => by!(objects),
        Unary::Keep => by!(keep),
        Unary::Lease => by!(lease),
        Unary::Committee => by!(committee),
    }
}

/// The request with its message in place of its body.
async fn opened<M: Incoming>(
    request: Request<Body>,
    bytes_max: usize,
) -> Result<tonic::Request<M>, Status> {
    let (parts, mut body) = request.into_parts();
    let (message, _) = framing::read(&mut body, bytes_max).await?;
    let message = message.ok_or_else(|| malformed(Malformed::NoRequest))?;
    let (metadata, extensions): (_, Extensions) =
        (MetadataMap::from_headers(parts.headers), parts.extensions);
    Ok(tonic::Request::from_parts(metadata, extensions, message))
}

/// The handler's answer with its message in its body.
fn closed<M: Outgoing>(answer: Result<tonic::Response<M>, Status>) -> Response<Body> {
    match answer {
        Ok(answer) => {
            let (metadata, message, _) = answer.into_parts();
            let mut response = Response::new(Body::new(Framed::answer(message)));
            *response.headers_mut() = metadata.into_headers();
            let grpc = HeaderValue::from_static("application/grpc");
            response.headers_mut().insert(CONTENT_TYPE, grpc);
            response
        }
        Err(status) => status.into_http(),
    }
}
