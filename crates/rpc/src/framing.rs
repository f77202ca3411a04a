//! One gRPC message to and from bytes, without copying the record in it.
//!
//! tonic's codec interface takes and gives one contiguous buffer, so a record of 2 MiB was copied
//! into it on one side and out of HTTP/2's frames on the other. Here a message goes out as two
//! chunks, what is before the (last) record's bytes and the bytes themselves, and comes in as the frames it
//! arrived in: protobuf reads over their borders, and a record that lies in one frame is a slice of it.
//! On the wire it is gRPC like any other.
//!
//! Invariants: at most one message a body; none compressed; nothing is kept for a message longer
//! than allowed. Small messages are copied once, into a buffer of their own size, so that 200 bytes
//! kept for a day do not keep a whole frame; short records of longer messages are copied where they are opened (`convert`), and of
//! messages whose records are kept ([`Incoming::KEPT`]) those too that are less than half of the frame they lie in. Parts of a
//! message are counted before it is decoded (`fields`).

mod fields;

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use prost::Message;
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};

pub(crate) use self::fields::PARTS_MAX;
use self::fields::{In, Lists};
use crate::codec::{Malformed, malformed};
use crate::proto;

/// What is before a message in a gRPC body: a flag byte and a big-endian u32.
pub(crate) const PREFIX_BYTES: usize = 5;
/// From here on a record's bytes travel as a chunk of their own.
const APART_BYTES: usize = 16 << 10;
/// Messages to this size are copied out of the frames they came in, and shorter records out of longer messages.
pub(crate) const COPIED_BYTES: usize = 64 << 10;

/// A message that goes out.
pub(crate) trait Outgoing: Message + Sized {
    /// The record that the message ends with, as its field 1, and the message without it.
    fn into_record(self) -> Result<(Self, proto::Record), Self> {
        Err(self)
    }
}

macro_rules! outgoing {
    ($($message:ident),*) => { $(impl Outgoing for proto::$message {})* };
    (record: $($message:ident),*) => { $(impl Outgoing for proto::$message {
        fn into_record(self) -> Result<(Self, proto::Record), Self> {
            self.record.map(|record| (Self { record: None }, record)).ok_or(Self { record: None })
        }
    })* };
}

outgoing!(record: StoreRequest, GetResponse);
outgoing!(IntroduceRequest, FindRequest, VerifyRequest, GetRequest, FindBatchRequest);
outgoing!(VerifyBatchRequest, TellRequest, ObjectsRequest, ObjectsResponse);
outgoing!(KeepRequest, KeepResponse);
outgoing!(LeaseRequest, LeaseResponse, CommitteeRequest, CommitteeResponse);
outgoing!(IntroduceResponse, VerifyResponse, StoreResponse, PutResponse, FindBatchResponse);
outgoing!(VerifyBatchResponse, StoreBatchResponse, TellResponse);

impl Outgoing for proto::StoreBatchRequest {
    /// A fragment behind its stripe's header travels like a record alone, and leases before both.
    fn into_record(mut self) -> Result<(Self, proto::Record), Self> {
        match self.records.pop() {
            Some(last) => Ok((self, last)),
            None => Err(self),
        }
    }
}

impl Outgoing for proto::PutRequest {
    fn into_record(self) -> Result<(Self, proto::Record), Self> {
        match self {
            Self { record: Some(record), wait_ms: 0, leases } if leases.is_empty() => {
                Ok((Self::default(), record))
            }
            other => Err(other),
        }
    }
}

impl Outgoing for proto::FindResponse {
    fn into_record(self) -> Result<(Self, proto::Record), Self> {
        match self.result {
            Some(proto::find_response::Result::Record(record)) => Ok((Self::default(), record)),
            result => Err(Self { result }),
        }
    }
}

/// A message that comes in.
pub(crate) trait Incoming: Message + Default {
    /// Which of its fields have lists in them.
    const LISTS: Lists = &[];
    /// Whether its records are kept in memory by their length: versions are.
    const KEPT: bool = false;
}

macro_rules! incoming {
    ($($message:ident $(: $($tag:literal)*)?),* $(,)?) => { $(impl Incoming for proto::$message {
        $(const LISTS: Lists = &[$(($tag, In(&[]))),*];)?
    })* };
}

incoming!(IntroduceRequest, FindRequest, VerifyRequest, StoreRequest, GetRequest, PutRequest);
incoming!(TellRequest, FindBatchRequest, VerifyBatchRequest, StoreBatchRequest);
incoming!(LeaseRequest: 1 2 3, CommitteeRequest, CommitteeResponse: 1 4);
incoming!(IntroduceResponse, StoreResponse, GetResponse, PutResponse, TellResponse);
incoming!(StoreBatchResponse, FindResponse: 2, VerifyResponse: 2);

/// Closest peers, in answers that are in a batch.
const ANSWERS: Lists = &[(1, In(&[(1, In(&[(2, In(&[]))]))]))];

impl Incoming for proto::FindBatchResponse {
    const LISTS: Lists = ANSWERS;
}

impl Incoming for proto::VerifyBatchResponse {
    const LISTS: Lists = ANSWERS;
}

impl Incoming for proto::LeaseResponse {
    const LISTS: Lists =
        &[(1, In(&[(1, In(&[]))])), (2, In(&[(1, In(&[]))])), (3, In(&[])), (4, In(&[]))];
}

impl Incoming for proto::ObjectsRequest {
    /// Records to put, versions, and keys of objects.
    const LISTS: Lists = &[(1, In(&[])), (2, In(&[])), (4, In(&[]))];
    const KEPT: bool = true;
}

impl Incoming for proto::ObjectsResponse {
    const KEPT: bool = true;
    /// Only tips have lists in the parts of their list.
    const LISTS: Lists = &[
        (1, In(&[])),
        (2, In(&[])),
        (3, In(&[])),
        (4, In(&[(1, In(&[(1, In(&[]))]))])),
        (5, In(&[])),
        (6, In(&[])),
    ];
}

/// Ranges, and what is in their lists.
const LISTED: In = In(&[(1, In(&[]))]);

impl Incoming for proto::KeepRequest {
    /// Lists, settled stripes and what moved of them, records to fetch, chunks to prove.
    const LISTS: Lists = &[(2, LISTED), (4, LISTED), (5, In(&[])), (7, In(&[]))];
}

impl Incoming for proto::KeepResponse {
    /// Lists, claims, companions of what was fetched, proofs.
    const LISTS: Lists =
        &[(2, LISTED), (3, In(&[])), (5, In(&[(1, In(&[(1, In(&[]))]))])), (7, In(&[]))];
    const KEPT: bool = true;
}

/// The length in the prefix: bounds are checked where messages are made and where they are read.
fn put_prefix(into: &mut BytesMut, len: usize) {
    into.put_u8(0);
    into.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
}

/// A message with its prefix, in chunks.
fn chunks<M: Outgoing>(message: M) -> (Bytes, Bytes) {
    use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
    let whole = |message: &dyn Fn(&mut BytesMut), len: usize| {
        let mut all = BytesMut::with_capacity(PREFIX_BYTES + len);
        put_prefix(&mut all, len);
        message(&mut all);
        (all.freeze(), Bytes::new())
    };
    let (before, mut record) = match message.into_record() {
        Ok(parts) => parts,
        Err(message) => {
            let encode = |all: &mut BytesMut| message.encode_raw(all);
            return whole(&encode, message.encoded_len());
        }
    };
    let record_len = record.encoded_len();
    let before_len = before.encoded_len();
    let len = before_len + key_len(1) + encoded_len_varint(record_len as u64) + record_len;
    if record.bytes.len() < APART_BYTES {
        let encode = |all: &mut BytesMut| {
            before.encode_raw(all);
            encode_key(1, WireType::LengthDelimited, all);
            encode_varint(record_len as u64, all);
            record.encode_raw(all);
        };
        return whole(&encode, len);
    }
    // The bytes are the record's last field: without them it encodes to what comes before.
    let bytes = std::mem::take(&mut record.bytes);
    let mut head = BytesMut::with_capacity(PREFIX_BYTES + len - bytes.len());
    put_prefix(&mut head, len);
    before.encode_raw(&mut head);
    encode_key(1, WireType::LengthDelimited, &mut head);
    encode_varint(record_len as u64, &mut head);
    record.encode_raw(&mut head);
    encode_key(4, WireType::LengthDelimited, &mut head);
    encode_varint(bytes.len() as u64, &mut head);
    (head.freeze(), bytes)
}

/// A body of one message, and trailers after it where it is an answer.
#[derive(Debug, Default)]
pub(crate) struct Framed {
    head: Bytes,
    bytes: Bytes,
    trailers: Option<HeaderMap>,
}

impl Framed {
    /// A request.
    pub(crate) fn request(message: impl Outgoing) -> Self {
        let (head, bytes) = chunks(message);
        Self { head, bytes, trailers: None }
    }

    /// A good answer.
    pub(crate) fn answer(message: impl Outgoing) -> Self {
        let (head, bytes) = chunks(message);
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(Status::GRPC_STATUS, const { http_zero() });
        Self { head, bytes, trailers: Some(trailers) }
    }
}

const fn http_zero() -> tonic::codegen::http::HeaderValue {
    tonic::codegen::http::HeaderValue::from_static("0")
}

impl http_body::Body for Framed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        for chunk in [&mut this.head, &mut this.bytes] {
            if !chunk.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(chunk)))));
            }
        }
        Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.head.is_empty() && self.bytes.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.head.len() + self.bytes.len()) as u64)
    }
}

/// Parts shorter than this that come one after the other are kept as one: each by itself holds more memory than it has bytes,
/// and it is the bytes that are counted.
const SMALL_PART_BYTES: usize = 4 << 10;
/// Such a part has so many bytes at most.
const JOINED_BYTES_MAX: usize = 64 << 10;

/// What is left of a part, and how many bytes it came with.
#[derive(Clone, Debug)]
struct Part {
    left: Bytes,
    came: usize,
}

impl Part {
    const fn new(bytes: Bytes) -> Self {
        Self { came: bytes.len(), left: bytes }
    }
}

/// Bytes in the parts they arrived in.
#[derive(Clone, Debug, Default)]
struct Parts {
    parts: VecDeque<Part>,
    /// Small parts after those, joined. [`Parts::whole`] makes a part of them, which is taken without a copy.
    joined: BytesMut,
    len: usize,
    /// Whether long slices are kept: one that is less than half of its part is copied then.
    kept: bool,
}

impl Parts {
    fn push(&mut self, part: Bytes) {
        if part.is_empty() {
            return;
        }
        self.len += part.len();
        let is_small = part.len() < SMALL_PART_BYTES;
        if self.joined.len() + part.len() > JOINED_BYTES_MAX || !is_small {
            self.whole();
        }
        if !self.joined.is_empty() {
            self.joined.extend_from_slice(&part);
        } else if let Some(last) =
            self.parts.pop_back_if(|last| is_small && last.left.len() < SMALL_PART_BYTES)
        {
            self.joined.extend_from_slice(&last.left);
            self.joined.extend_from_slice(&part);
        } else {
            self.parts.push_back(Part::new(part));
        }
    }

    /// Makes one part of what was joined.
    fn whole(&mut self) -> &mut Self {
        if !self.joined.is_empty() {
            self.parts.push_back(Part::new(self.joined.split().freeze()));
        }
        self
    }
}

impl Buf for Parts {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&self.joined, |part| &part.left)
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "no more is taken than there is");
        self.len -= count;
        while let Some(Part { left, .. }) = self.parts.front_mut() {
            if left.len() > count {
                left.advance(count);
                return;
            }
            count -= left.len();
            self.parts.pop_front();
        }
        self.joined.advance(count);
    }

    /// A slice where it lies in one part, and is much of it or short or not kept; else one copy.
    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        assert!(count <= self.len, "no more is taken than there is");
        let is_kept = self.kept && count >= COPIED_BYTES;
        match self.parts.front_mut() {
            Some(Part { left, came }) if left.len() >= count && !(is_kept && 2 * count < *came) => {
                self.len -= count;
                let bytes = left.split_to(count);
                if left.is_empty() {
                    self.parts.pop_front();
                }
                bytes
            }
            _ => {
                let mut copy = BytesMut::with_capacity(count);
                copy.put(self.take(count));
                copy.freeze()
            }
        }
    }
}

/// The one message of a body, and the trailers after it; `None` where the body has no message.
///
/// # Errors
/// What the body ends with, and [`Malformed`] for a message that is over `bytes_max`, compressed,
/// cut short, not protobuf, of too many parts, or not alone.
pub(crate) async fn read<M, B>(
    body: &mut B,
    bytes_max: usize,
) -> Result<(Option<M>, Option<HeaderMap>), Status>
where
    M: Incoming,
    B: http_body::Body<Data = Bytes, Error = Status> + Unpin,
{
    let mut parts = Parts::default();
    let mut trailers: Option<HeaderMap> = None;
    // The length of the message, once its prefix is here.
    let mut expected = None;
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
        let data = match frame?.into_data() {
            Ok(data) => data,
            Err(other) => {
                trailers = other.into_trailers().ok();
                continue;
            }
        };
        parts.push(data);
        if expected.is_none() && parts.len >= PREFIX_BYTES {
            parts.whole();
            let flag = parts.get_u8();
            let len = parts.get_u32() as usize;
            if flag != 0 {
                return Err(malformed(Malformed::Compressed));
            }
            if len > bytes_max {
                return Err(malformed(Malformed::TooLong { len, max: bytes_max }));
            }
            expected = Some(len);
        }
        if expected.is_some_and(|expected| parts.len > expected) {
            return Err(malformed(Malformed::More));
        }
    }
    match expected {
        None if parts.len == 0 => Ok((None, trailers)),
        Some(len) if len == parts.len => {
            parts.whole();
            // Parts share their bytes: a clone is a list of where they are.
            fields::check(&mut parts.clone(), M::LISTS).map_err(malformed)?;
            let decoded = if len <= COPIED_BYTES {
                M::decode(Bytes::copy_from_slice(&parts.copy_to_bytes(len)))
            } else {
                parts.kept = M::KEPT;
                M::decode(parts)
            };
            Ok((Some(decoded.map_err(|error| malformed(Malformed::Message(error)))?), trailers))
        }
        // What ended it, if it says so, tells more.
        _ => match trailers.as_ref().and_then(Status::from_header_map) {
            Some(status) if status.code() != Code::Ok => Err(status),
            _ => Err(malformed(Malformed::Short)),
        },
    }
}

#[cfg(test)]
mod tests;
