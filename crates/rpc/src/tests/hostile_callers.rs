//! What a proven caller may send: anything, and nothing breaks.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use crypto::RecordId;
use env::calls::*;
use http_body::{Body as _, Frame};
use tokio::io::AsyncWriteExt;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::memory::{PANICS, of, record};
use super::*;
use crate::client::connection::Connection;
use crate::limits::{BATCH_MESSAGE_BYTES_MAX, RECORD_MESSAGE_BYTES_MAX};
use crate::proto;

const METHODS: [&str; 19] = [
    "Introduce",
    "Find",
    "Verify",
    "Store",
    "Get",
    "Put",
    "Tell",
    "Subscribe",
    "Objects",
    "Keep",
    "Lease",
    "Committee",
    "Watch",
    "FindBatch",
    "VerifyBatch",
    "StoreBatch",
    "FindStream",
    "VerifyStream",
    "StoreStream",
];

/// A body of these frames; the last may never end.
struct Frames(Vec<Bytes>, bool);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.0.is_empty() {
            return if self.1 { Poll::Pending } else { Poll::Ready(None) };
        }
        Poll::Ready(Some(Ok(Frame::data(self.0.remove(0)))))
    }
}

/// A gRPC message that says it has `len` bytes and has these.
fn framed(len: usize, bytes: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(u32::try_from(len).unwrap());
    out.put_slice(bytes);
    out.freeze()
}

async fn send(channel: &Channel, method: &str, body: Frames) -> Response<Body> {
    use tower::ServiceExt;
    let request = Request::post(format!("http://holdfast/holdfast.v1.Librarian/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(body))
        .unwrap();
    channel.clone().oneshot(request).await.unwrap()
}

/// The status of a call: in the headers, or in the trailers after its messages.
pub(crate) async fn status(response: Response<Body>) -> Status {
    if let Some(status) = Status::from_header_map(response.headers()) {
        return status;
    }
    let mut body = response.into_body();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(trailers) = frame.unwrap().into_trailers() {
            return Status::from_header_map(&trailers).unwrap();
        }
    }
    panic!("no status")
}

async fn channel(peer: &Running) -> (Channel, Connection) {
    let connection =
        Connection::dial(&identity(2, 1), None, &pacing(), &peer.endpoint()).await.unwrap();
    (connection.line.channel.clone(), connection)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_answers_garbage_with_invalid_argument() {
    let peer = Running::start(ServerLimits::default());
    let (channel, _open) = channel(&peer).await;
    // Not protobuf; a field of the wrong type; a wrong length; a message in a message cut short.
    let garbage: [&[u8]; 4] =
        [&[0xff; 40], &[0x0a, 0x7f, 1, 2], &[0x0d, 1, 2, 3], &[0x1a, 0x05, 0x08]];
    for method in METHODS {
        for bytes in garbage {
            let body = Frames(vec![framed(bytes.len(), bytes)], false);
            let status = status(send(&channel, method, body).await).await;
            assert_eq!(status.code(), Code::InvalidArgument, "{method} {bytes:?} {status:?}");
        }
    }
    let lost = status(send(&channel, "Nothing", Frames(vec![framed(0, b"")], false)).await).await;
    assert_eq!(lost.code(), Code::Unimplemented);
    assert!(peer.service.records.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn well_formed_messages_with_wrong_fields_are_invalid() {
    let peer = Running::start(ServerLimits::default());
    let mut wire = crate::client::wire(&identity(2, 1), &peer.endpoint()).await.unwrap();
    let bytes = |len: usize| Bytes::from(vec![1; len]);
    let good: proto::Record = record("good").into();
    let stores = [
        None,
        Some(proto::Record { kind: 77, ..good.clone() }),
        Some(proto::Record { id: bytes(31), ..good.clone() }),
        Some(proto::Record { place: bytes(31), ..good.clone() }),
        Some(proto::Record { bytes: bytes(0), ..good.clone() }),
        Some(proto::Record { bytes: bytes(crate::RECORD_BYTES_MAX + 1), ..good.clone() }),
        Some(proto::Record { id: bytes(32), ..good.clone() }),
    ];
    let invalid = |status: Status| assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    for record in stores {
        invalid(wire.store(proto::StoreRequest { record: record.clone() }).await.unwrap_err());
        invalid(
            wire.put(proto::PutRequest { record, wait_ms: 0, leases: Vec::new() })
                .await
                .unwrap_err(),
        );
    }
    let find = |len, place| proto::FindRequest { id: bytes(len), place: bytes(place) };
    for (id, place) in [(0, 0), (31, 0), (33, 32), (32, 1)] {
        invalid(wire.find(find(id, place)).await.unwrap_err());
        let get = proto::GetRequest { id: bytes(id), place: bytes(place) };
        invalid(wire.get(get).await.unwrap_err());
    }
    let verify = proto::VerifyRequest { id: bytes(32), place: bytes(0), mac_key: bytes(16) };
    invalid(wire.verify(verify).await.unwrap_err());
    for count in [0, 1025] {
        let requests = vec![find(32, 0); count];
        invalid(wire.find_batch(proto::FindBatchRequest { requests }).await.unwrap_err());
        let records = vec![good.clone(); count];
        invalid(
            wire.store_batch(proto::StoreBatchRequest { records, leases: Vec::new() })
                .await
                .unwrap_err(),
        );
    }
    let credential = Some(proto::introduce_request::Credential::Peer(bytes(16 * 1024 + 1)));
    invalid(
        wire.introduce(proto::IntroduceRequest { credential, ..Default::default() })
            .await
            .unwrap_err(),
    );
    let cursor = Some(proto::Cursor { peer: Bytes::from(vec![0xff; 33]), offset: 0, unix_ms: 0 });
    let subscribe = proto::SubscribeRequest { from: cursor, ..Default::default() };
    invalid(wire.subscribe(subscribe).await.unwrap_err());
    let filter = proto::SubscribeRequest { authors: Some(bytes(66 << 10)), ..Default::default() };
    invalid(wire.subscribe(filter).await.unwrap_err());
    assert!(peer.service.records.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_and_oversized_messages_end_the_call_alone() {
    let limits = ServerLimits { stall: Duration::from_secs(2), ..ServerLimits::default() };
    let peer = Running::start(limits);
    let (channel, _open) = channel(&peer).await;
    // Over the limit of the method: refused by its prefix, before the bytes.
    for (method, len) in [
        ("Store", 3 << 20),
        ("StoreBatch", BATCH_MESSAGE_BYTES_MAX + 1),
        ("Objects", BATCH_MESSAGE_BYTES_MAX + 1),
        ("Find", 300 << 10),
        ("Keep", 300 << 10),
        ("Lease", BATCH_MESSAGE_BYTES_MAX + 1),
        ("Committee", RECORD_MESSAGE_BYTES_MAX + 1),
        ("Watch", 300 << 10),
    ] {
        let body = Frames(vec![framed(len, &[0; 64])], true);
        let status = status(send(&channel, method, body).await).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{method} {status:?}");
        assert!(status.message().contains("at most"), "{status:?}");
    }
    // Cut in the message: the end of the stream comes first.
    let body = Frames(vec![framed(1000, &[0; 10])], false);
    let cut = status(send(&channel, "Store", body).await).await;
    assert_eq!(cut.code(), Code::InvalidArgument, "{cut:?}");
    // Compressed, or so it says.
    let body = Frames(vec![Bytes::from_static(&[1, 0, 0, 0, 1, 7])], false);
    let compressed = status(send(&channel, "Store", body).await).await;
    assert_eq!(compressed.code(), Code::InvalidArgument, "{compressed:?}");
    // Stalled in the message, and in its prefix.
    for bytes in [framed(1000, &[0; 10]), Bytes::from_static(&[0, 0])] {
        let body = Frames(vec![bytes], true);
        let stalled = status(send(&channel, "Store", body).await).await;
        assert_eq!(stalled.code(), Code::DeadlineExceeded, "{stalled:?}");
    }
    assert!(client().find(&peer.endpoint(), of(RecordId::new([1; 32])), LIMIT).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_bytes_in_flight_are_bounded_and_beyond_it_is_busy() {
    let limits = ServerLimits {
        // Two messages of 2 MiB of one source, and another source's.
        request_bytes_in_flight: 7 << 20,
        admission_wait: Duration::from_millis(100),
        stall: Duration::from_secs(5),
        ..ServerLimits::default()
    };
    let peer = Running::start(limits);
    let (channel, _open) = channel(&peer).await;
    let two_mib = 2 << 20;
    let stalled = (0..2).map(|_| {
        let channel = channel.clone();
        tokio::spawn(async move {
            let body = Frames(vec![framed(two_mib, &[0; 10])], true);
            status(send(&channel, "Store", body).await).await.code()
        })
    });
    let stalled: Vec<_> = stalled.collect();
    let client = client();
    let record = record(vec![1; two_mib]);
    // The stalled ones have the bytes as soon as their prefixes arrived.
    let busy = loop {
        match client.store(&peer.endpoint(), record.clone(), LIMIT).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert!(matches!(busy, CallError::Busy { .. }), "{busy:?}");
    for task in stalled {
        assert_eq!(task.await.unwrap(), Code::DeadlineExceeded);
    }
    // The bytes came back.
    assert!(client.store(&peer.endpoint(), record, LIMIT).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_internal_and_ends_nothing_else() {
    let peer = Running::start(ServerLimits::default());
    let (client, to) = (client(), peer.endpoint());
    let slow = client.find(&to, of(memory::SLOW), LIMIT);
    let panics = async {
        let answer = client.find(&to, of(PANICS), LIMIT).await;
        peer.service.slow.cancel();
        answer
    };
    let (slow, panicked) = tokio::join!(slow, panics);
    assert!(slow.is_ok(), "{slow:?}");
    assert!(matches!(panicked, Err(CallError::Internal { .. })), "{panicked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beyond_the_bound_are_busy() {
    let peer = Running::start(ServerLimits { calls: 1, ..ServerLimits::default() });
    let (client, to) = (client(), peer.endpoint());
    let (slow, second) = tokio::join!(client.find(&to, of(memory::SLOW), LIMIT), async {
        while peer.service.asked.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let answer = client.find(&to, of(RecordId::new([1; 32])), LIMIT).await;
        peer.service.slow.cancel();
        answer
    });
    assert!(slow.is_ok());
    assert!(matches!(second, Err(CallError::Busy { .. })), "{second:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_keeps_its_own_deadline() {
    let limits = ServerLimits { call: Duration::from_millis(150), ..ServerLimits::default() };
    let peer = Running::start(limits);
    let late = client().find(&peer.endpoint(), of(memory::HANGS), LIMIT).await;
    let (address, limit) = (peer.address.to_string(), Duration::from_millis(150));
    assert_eq!(late, Err(CallError::TimedOut { address, limit }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_one_message_never_comes_ends() {
    let limits = ServerLimits { stall: Duration::from_millis(100), ..ServerLimits::default() };
    let peer = Running::start(limits);
    let (channel, _open) = channel(&peer).await;
    let silent = status(send(&channel, "Find", Frames(Vec::new(), true)).await).await;
    assert_eq!(silent.code(), Code::DeadlineExceeded, "{silent:?}");
    // A stream's caller may take its time.
    let streamed = tokio::spawn({
        let channel = channel.clone();
        async move { status(send(&channel, "FindStream", Frames(Vec::new(), true)).await).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!streamed.is_finished());
    streamed.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_strangers_take_no_room_from_those_who_are_vouched_for() {
    let peer = Running::start(ServerLimits { calls: 4, ..ServerLimits::default() });
    let to = peer.endpoint();
    let pass = || Credential::Client(Bytes::from_static(b"pass"));
    let member = Client::new(identity(5, 1), Arc::new(pass), Env::real(), ClientLimits::default());
    let other = of(RecordId::new([1; 32]));
    member.find(&to, other, LIMIT).await.unwrap();
    let before = peer.service.asked.lock().unwrap().len();
    // A quarter of four is one.
    let strangers = client();
    let hangs = tokio::spawn({
        let (strangers, to) = (strangers.clone(), to.clone());
        async move { strangers.find(&to, of(memory::HANGS), LIMIT).await }
    });
    while peer.service.asked.lock().unwrap().len() == before {
        assert!(!hangs.is_finished(), "it was not taken");
        tokio::task::yield_now().await;
    }
    let second = strangers.find(&to, other, LIMIT).await;
    assert!(matches!(second, Err(CallError::Busy { .. })), "{second:?}");
    member.find(&to, other, LIMIT).await.unwrap();
    hangs.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_of_few_sources_leave_room_for_those_of_others() {
    let peer = Running::start(ServerLimits { calls: 64, ..ServerLimits::default() });
    let asked = || peer.service.asked.lock().unwrap().len();
    let mut connections = Vec::new();
    let mut held = 0;
    // A quarter of 64 is strangers', of which each source has what it leaves free.
    for (source, room) in
        [("127.0.0.9", 8), ("127.0.0.10", 4), ("127.0.0.11", 2), ("127.0.0.12", 1)]
    {
        for call in 0..=room {
            let mut connection = super::unread::connected_from(source, &peer).await;
            let said = super::unread::begun_and_asked(memory::HANGS);
            connection.write_all(&said).await.unwrap();
            connections.push(connection);
            if call < room {
                held += 1;
                until(|| asked() == held).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(asked(), held, "{source}: one more than it leaves free");
    }
    let mut elsewhere = super::unread::connected_from("127.0.0.13", &peer).await;
    elsewhere.write_all(&super::unread::begun_and_asked(RecordId::new([1; 32]))).await.unwrap();
    until(|| asked() == held + 1).await;
}

/// Neither by bytes of messages that do not go on, nor by calls that say nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_member_leaves_room_for_the_others() {
    let limits = ServerLimits {
        request_bytes_in_flight: 32 << 20,
        calls: 64,
        admission_wait: Duration::from_millis(200),
        stall: Duration::from_secs(60),
        ..ServerLimits::default()
    };
    let peer = Running::start(limits);
    let to = peer.endpoint();
    let pass = || Credential::Client(Bytes::from_static(b"pass"));
    let member =
        |key| Client::new(identity(key, 1), Arc::new(pass), Env::real(), ClientLimits::default());
    let (one, other) = (member(5), member(6));
    for member in [&one, &other] {
        member.find(&to, of(RecordId::new([1; 32])), LIMIT).await.unwrap();
    }
    let (mut open, mut held) = (Vec::new(), Vec::new());
    let two_mib = 2 << 20;
    for _ in 0..4 {
        let connection = Connection::dial(&identity(5, 1), None, &pacing(), &to).await.unwrap();
        for _ in 0..8 {
            let channel = connection.line.channel.clone();
            held.push(tokio::spawn(async move {
                let body = Frames(vec![framed(two_mib, &[0; 10])], true);
                status(send(&channel, "Store", body).await).await.code()
            }));
        }
        open.push(connection);
    }
    // What it may have, 8 of 32, is held; the others were told so.
    until(|| held.iter().filter(|call| call.is_finished()).count() == 24).await;
    let store =
        async |of: &Arc<Client>, byte| of.store(&to, record(vec![byte; two_mib]), LIMIT).await;
    let busy = store(&one, 1).await;
    assert!(matches!(busy, Err(CallError::Busy { .. })), "{busy:?}");
    store(&other, 2).await.unwrap();
    held.iter().for_each(tokio::task::JoinHandle::abort);
    // As many calls as all may have.
    let mut silent = Vec::new();
    for call in 0..64 {
        let channel = open[call % open.len()].line.channel.clone();
        silent.push(tokio::spawn(async move {
            let begun = send(&channel, "FindStream", Frames(Vec::new(), true)).await;
            // A stream that was begun is held; one that was refused says so in its headers.
            if !begun.headers().contains_key("grpc-status") {
                std::future::pending::<()>().await;
            }
        }));
    }
    let refused = || silent.iter().filter(|call| call.is_finished()).count();
    tokio::time::timeout(LIMIT, until(|| refused() >= 24)).await.expect("one had them all");
    other.find(&to, of(RecordId::new([1; 32])), LIMIT).await.unwrap();
    silent.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Its connections were those of a member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_vouched_for_no_more_holds_what_a_stranger_may() {
    let stall = Duration::from_secs(60);
    let peer = Running::start(ServerLimits { calls: 64, stall, ..ServerLimits::default() });
    let to = peer.endpoint();
    let pass = || Credential::Client(Bytes::from_static(b"pass"));
    let member = Client::new(identity(5, 1), Arc::new(pass), Env::real(), ClientLimits::default());
    member.find(&to, of(RecordId::new([1; 32])), LIMIT).await.unwrap();
    let connection = Connection::dial(&identity(5, 1), None, &pacing(), &to).await.unwrap();
    for revoked in [false, true] {
        let mut silent = Vec::new();
        for _ in 0..64 {
            let channel = connection.line.channel.clone();
            silent.push(tokio::spawn(async move {
                let body = Frames(vec![framed(1_000, &[0; 10])], true);
                status(send(&channel, "Store", body).await).await.code()
            }));
        }
        // It holds half of all, or of a quarter of it; calls that come together may each be refused for the other.
        let refused = || silent.iter().filter(|call| call.is_finished()).count();
        let least = if revoked { 56 } else { 32 };
        tokio::time::timeout(LIMIT, until(|| refused() >= least)).await.expect("it holds more");
        assert!(revoked || refused() < 56, "{} of a member's calls were refused", refused());
        silent.iter().for_each(tokio::task::JoinHandle::abort);
        futures::future::join_all(silent).await;
        peer.service.revoked.lock().unwrap().insert(*identity(5, 1).key());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// All request bytes of strangers are held by messages that do not go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_request_of_a_stranger_waits_for_no_others_bytes() {
    let limits = ServerLimits { request_bytes_in_flight: 64 << 10, ..ServerLimits::default() };
    let peer = Running::start(limits);
    let mut begun = Vec::new();
    for source in ["127.0.0.9", "127.0.0.10"] {
        let mut connection = super::unread::connected_from(source, &peer).await;
        connection.write_all(&super::unread::begun_to_store(32 << 10)).await.unwrap();
        begun.push(connection);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut elsewhere = super::unread::connected_from("127.0.0.13", &peer).await;
    elsewhere.write_all(&super::unread::begun_and_asked(RecordId::new([1; 32]))).await.unwrap();
    let asked = || peer.service.asked.lock().unwrap().len();
    tokio::time::timeout(LIMIT, until(|| asked() == 1))
        .await
        .expect("it waited for the others' bytes");
}

async fn until(it_is: impl Fn() -> bool) {
    while !it_is() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
