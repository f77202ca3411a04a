//! One table between `CallError` and what travels: a gRPC status code, and a typed [`proto::Failure`]
//! in the trailer `holdfast-error-bin`.
//!
//! The code is for foreign clients and middle boxes; our own side reads the failure, so that the
//! same variant arrives with all its parts. Where there is no failure (a foreign server, tonic
//! itself), the code alone is mapped. Texts from the far side are cut and stripped of control
//! characters before anything shows them.

use std::time::Duration;

use env::calls::CallError;
use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::codec::Malformed;
use crate::proto::{Failure, FailureCode};

/// The trailer with the encoded failure.
pub(crate) const FAILURE_TRAILER: &str = "holdfast-error-bin";
/// The longest reason that travels, in bytes.
const REASON_BYTES_MAX: usize = 512;
/// The longest address that travels, in bytes.
const ADDRESS_BYTES_MAX: usize = 256;
/// When to try again where the far side did not say.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// Where an error of a call came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The far side answered with it.
    Far,
    /// The connection broke, or what came over it was not an answer.
    Connection,
}

/// Shortens a text to `max` bytes at a character's border and drops control characters.
fn tidy(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    for character in text.chars().filter(|character| !character.is_control()) {
        if out.len() + character.len_utf8() > max {
            break;
        }
        out.push(character);
    }
    out
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The gRPC code of an error.
pub(crate) fn code(error: &CallError) -> Code {
    match error {
        CallError::Unreachable { .. } | CallError::TooFewPeers { .. } => Code::Unavailable,
        CallError::WrongPeer { .. } => Code::Unauthenticated,
        CallError::TimedOut { .. } => Code::DeadlineExceeded,
        CallError::Invalid { .. } => Code::InvalidArgument,
        CallError::Denied { .. } => Code::PermissionDenied,
        CallError::Busy { .. } | CallError::Full => Code::ResourceExhausted,
        CallError::ReadOnly { .. } => Code::FailedPrecondition,
        CallError::NotFound => Code::NotFound,
        CallError::Corrupt { .. } => Code::DataLoss,
        _ => Code::Internal,
    }
}

/// The error as a message, for trailers and items of batches.
pub(crate) fn to_failure(error: &CallError) -> Failure {
    let mut failure = Failure::default();
    let (code, reason, address) = match error {
        CallError::Unreachable { address, reason } => {
            (FailureCode::Unreachable, reason.as_str(), address.as_str())
        }
        CallError::WrongPeer { address, reason } => {
            (FailureCode::WrongPeer, reason.as_str(), address.as_str())
        }
        CallError::TimedOut { address, limit } => {
            failure.duration_ms = millis(*limit);
            (FailureCode::TimedOut, "", address.as_str())
        }
        CallError::Invalid { reason } => (FailureCode::Invalid, reason.as_str(), ""),
        CallError::Denied { reason } => (FailureCode::Denied, reason.as_str(), ""),
        CallError::Busy { retry_after } => {
            failure.duration_ms = millis(*retry_after);
            (FailureCode::Busy, "", "")
        }
        CallError::Full => (FailureCode::Full, "", ""),
        CallError::ReadOnly { reason } => (FailureCode::ReadOnly, reason.as_str(), ""),
        CallError::NotFound => (FailureCode::NotFound, "", ""),
        CallError::TooFewPeers { reached, wanted } => {
            (failure.reached, failure.wanted) = (*reached, *wanted);
            (FailureCode::TooFewPeers, "", "")
        }
        CallError::Corrupt { address, reason } => {
            (FailureCode::Corrupt, reason.as_str(), address.as_str())
        }
        CallError::Internal { reason } => (FailureCode::Internal, reason.as_str(), ""),
        _ => (FailureCode::Internal, "an error this release cannot name", ""),
    };
    failure.set_code(code);
    failure.reason = tidy(reason, REASON_BYTES_MAX);
    failure.address = tidy(address, ADDRESS_BYTES_MAX);
    failure
}

/// The error in a message from `address`; `None` where it names none that is known.
pub(crate) fn from_failure(failure: &Failure, address: &str) -> Option<CallError> {
    let reason = tidy(&failure.reason, REASON_BYTES_MAX);
    let about = tidy(&failure.address, ADDRESS_BYTES_MAX);
    let address = if about.is_empty() { address.to_owned() } else { about };
    let duration = Duration::from_millis(failure.duration_ms);
    Some(match FailureCode::try_from(failure.code).ok()? {
        FailureCode::Unspecified => return None,
        FailureCode::Unreachable => CallError::Unreachable { address, reason },
        FailureCode::WrongPeer => CallError::WrongPeer { address, reason },
        FailureCode::TimedOut => CallError::TimedOut { address, limit: duration },
        FailureCode::Invalid => CallError::Invalid { reason },
        FailureCode::Denied => CallError::Denied { reason },
        FailureCode::Busy => CallError::Busy { retry_after: duration },
        FailureCode::Full => CallError::Full,
        FailureCode::ReadOnly => CallError::ReadOnly { reason },
        FailureCode::NotFound => CallError::NotFound,
        FailureCode::TooFewPeers => {
            CallError::TooFewPeers { reached: failure.reached, wanted: failure.wanted }
        }
        FailureCode::Corrupt => CallError::Corrupt { address, reason },
        FailureCode::Internal => CallError::Internal { reason },
    })
}

/// The status that carries an error.
pub(crate) fn to_status(error: &CallError) -> Status {
    let failure = to_failure(error).encode_to_vec();
    let mut trailers = MetadataMap::new();
    trailers.insert_bin(FAILURE_TRAILER, MetadataValue::from_bytes(&failure));
    Status::with_metadata(code(error), tidy(&error.to_string(), REASON_BYTES_MAX), trailers)
}

/// The error a status from `address` carries; `limit` was the call's deadline.
pub(crate) fn from_status(status: &Status, address: &str, limit: Duration) -> (CallError, Origin) {
    let reason = tidy(status.message(), REASON_BYTES_MAX);
    let address = address.to_owned();
    if let Some(source) = std::error::Error::source(status) {
        if let Some(malformed) = find::<Malformed>(source) {
            let reason = malformed.to_string();
            return (CallError::Corrupt { address, reason }, Origin::Connection);
        }
        // tonic's own timer on this side: the connection is as good as before.
        if find::<tonic::TimeoutExpired>(source).is_some() {
            return (CallError::TimedOut { address, limit }, Origin::Far);
        }
        let reason = tidy(&causes(source), REASON_BYTES_MAX);
        return (CallError::Unreachable { address, reason }, Origin::Connection);
    }
    let typed = status
        .metadata()
        .get_bin(FAILURE_TRAILER)
        .and_then(|value| value.to_bytes().ok())
        .and_then(|bytes| Failure::decode(bytes).ok())
        .and_then(|failure| from_failure(&failure, &address));
    if let Some(error) = typed {
        return (error, Origin::Far);
    }
    let error = match status.code() {
        Code::DeadlineExceeded => CallError::TimedOut { address, limit },
        Code::Cancelled | Code::Unavailable => CallError::Unreachable { address, reason },
        Code::InvalidArgument | Code::Unimplemented | Code::FailedPrecondition => {
            CallError::Invalid { reason }
        }
        Code::PermissionDenied | Code::Unauthenticated => CallError::Denied { reason },
        Code::ResourceExhausted => CallError::Busy { retry_after: RETRY_AFTER_DEFAULT },
        Code::NotFound => CallError::NotFound,
        // Our own side finds an answer over its limit: requests over theirs are not sent.
        Code::DataLoss | Code::OutOfRange => CallError::Corrupt { address, reason },
        _ => CallError::Internal { reason },
    };
    (error, Origin::Far)
}

/// The error of this type among an error and its causes.
fn find<'a, E: std::error::Error + 'static>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a E> {
    std::iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref::<E>())
}

/// An error and what caused it, as one line.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
pub(crate) mod tests;
