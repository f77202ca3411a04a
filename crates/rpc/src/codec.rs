//! How the messages of streams become bytes: protobuf, with a decode failure that can be told from
//! the peer's own errors. (Calls of one message are in `framing`.)
//!
//! tonic's codec answers a malformed message with `INTERNAL`, on both sides. A request that does not
//! decode is the caller's fault (`INVALID_ARGUMENT`), and an answer that does not decode is
//! `CallError::Corrupt`, so the status here carries [`Malformed`] as its source, which never
//! travels.

use std::marker::PhantomData;
use std::sync::Arc;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

/// Bytes that are not the message they should be. Only ever a status's source, made on this side.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    /// Not protobuf.
    #[error("malformed message: {0}")]
    Message(#[source] prost::DecodeError),
    /// Its flag says that it is compressed; nobody asked for that.
    #[error("a compressed message: none is taken")]
    Compressed,
    /// Longer than what is taken.
    #[error("a message of {len} bytes: at most {max} are taken")]
    TooLong {
        /// What its prefix says.
        len: usize,
        /// What is taken.
        max: usize,
    },
    /// Lists of more than any message has, or groups.
    #[error("a message of over {} parts, or with groups", crate::framing::PARTS_MAX)]
    Parts,
    /// It ended early.
    #[error("the stream ended in a message")]
    Short,
    /// A call of one message that has none.
    #[error("a request without a message")]
    NoRequest,
    /// An answer without a message.
    #[error("a good end without an answer")]
    Nothing,
    /// An answer without a status after it.
    #[error("an answer without a status")]
    NoStatus,
    /// Something came after the one message of a call.
    #[error("more than one message")]
    More,
}

/// The status of a message that is not what it should be, which is what the far side hears.
pub(crate) fn malformed(error: Malformed) -> Status {
    let text = match &error {
        Malformed::Message(_) => "malformed message".to_owned(),
        other => other.to_string(),
    };
    let mut status = Status::invalid_argument(text);
    status.set_source(Arc::new(error));
    status
}

/// The codec of every method.
pub(crate) struct Protobuf<T, U>(PhantomData<fn() -> (T, U)>);

impl<T, U> Default for Protobuf<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// The decoding half.
pub(crate) struct ProtobufDecoder<U>(PhantomData<fn() -> U>);

impl<T, U> Codec for Protobuf<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProtobufDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::default())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProtobufDecoder(PhantomData)
    }
}

impl<U: Message + Default> Decoder for ProtobufDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        U::decode(bytes).map(Some).map_err(|error| malformed(Malformed::Message(error)))
    }
}
