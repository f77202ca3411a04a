//! How messages become bytes: protobuf, with a decode failure that can be told from the peer's own
//! errors.
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
#[error("malformed message: {0}")]
pub(crate) struct Malformed(prost::DecodeError);

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
        U::decode(bytes).map(Some).map_err(|error| {
            let mut status = Status::invalid_argument("malformed message");
            status.set_source(Arc::new(Malformed(error)));
            status
        })
    }
}
