//! One encoding for one meaning: protobuf whose bytes are covered by a hash or a signature.
//!
//! Protobuf lets one message be written in many ways (fields in any order, repeated, with defaults,
//! with unknown fields, with padded varints). A record's id is the hash of its bytes, so only one
//! way may count: fields ascending, nothing unknown, defaults not written. [`decode`] decodes,
//! encodes again and compares, without a second copy of the bytes ([`compared`]).

mod compared;

use bytes::Bytes;
use prost::Message;

/// Bytes that are no canonical encoding of the message they should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// Not protobuf of this message at all.
    #[error("not a valid message")]
    Malformed(#[source] prost::DecodeError),
    /// The same meaning has another, the canonical, encoding.
    #[error("not in canonical form (fields ascending, none unknown, no defaults written)")]
    NotCanonical,
}

/// The message that these bytes are the canonical encoding of. `bytes` fields share `bytes`.
///
/// # Errors
/// [`CanonicalError`].
pub fn decode<M: Message + Default>(bytes: &Bytes) -> Result<M, CanonicalError> {
    let message = M::decode(bytes.clone()).map_err(CanonicalError::Malformed)?;
    if !compared::encodes_to(&message, bytes) {
        return Err(CanonicalError::NotCanonical);
    }
    Ok(message)
}
