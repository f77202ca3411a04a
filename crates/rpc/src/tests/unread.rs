//! Callers that take nothing: of one answer, or of the whole connection.

use crypto::RecordId;
use prost::Message;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use bytes::Bytes;

use super::memory::record;
use super::*;
use crate::proto;
use crate::verifier::PeerVerifier;

/// Settings of HTTP/2 (RFC 9113, section 6.5.2).
const INITIAL_WINDOW: u16 = 4;
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// A frame of HTTP/2: its kind, flags and stream.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags, 0, 0, 0, stream]);
    frame.extend(payload);
    frame
}

/// The connection's first bytes, where each stream has such a window.
fn preface(window: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let setting = [&INITIAL_WINDOW.to_be_bytes()[..], &window.to_be_bytes()].concat();
    bytes.extend(frame(4, 0, 0, &setting));
    bytes
}

/// A call of this method on this stream begins.
fn headers(stream: u8, method: &str) -> Vec<u8> {
    let path = format!("/holdfast.v1.Librarian/{method}");
    let mut headers = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "https"),
        (":path", &path),
        (":authority", "holdfast"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        // A literal that no table remembers.
        headers.push(0);
        for text in [name, value] {
            headers.push(text.len() as u8);
            headers.extend(text.as_bytes());
        }
    }
    frame(1, 4, stream, &headers)
}

/// What stands before a message of so many bytes.
fn prefix(len: usize) -> Vec<u8> {
    [&[0][..], &(len as u32).to_be_bytes()].concat()
}

/// A call of `Find` on this stream.
fn find(stream: u8, id: RecordId) -> Vec<u8> {
    let id = Bytes::copy_from_slice(id.as_bytes());
    let message = proto::FindRequest { id, ..Default::default() }.encode_to_vec();
    let framed = [prefix(message.len()), message].concat();
    [headers(stream, "Find"), frame(0, 1, stream, &framed)].concat()
}

/// What a connection begins with that asks for one record.
pub(crate) fn begun_and_asked(id: RecordId) -> Vec<u8> {
    [preface(65_535), find(1, id)].concat()
}

/// What a connection begins with that says how long its record is, and no more.
pub(crate) fn begun_to_store(len: usize) -> Vec<u8> {
    [preface(65_535), headers(1, "Store"), frame(0, 0, 1, &prefix(len))].concat()
}

async fn connected(peer: &Running) -> TlsStream<TcpStream> {
    connected_from("127.0.0.1", peer).await
}

/// A connection from this address of the machine.
pub(crate) async fn connected_from(address: &str, peer: &Running) -> TlsStream<TcpStream> {
    let config = identity(3, 1).dialling(PeerVerifier::new(None)).unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    let tcp = socket.connect(peer.address).await.unwrap();
    let name = ServerName::try_from("holdfast").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
}

/// Reads until the connection ends; bytes.
async fn read_all(tls: &mut TlsStream<TcpStream>) -> usize {
    let (mut all, mut sink) = (0, vec![0; 64 << 10]);
    loop {
        match tls.read(&mut sink).await {
            Ok(read) if read > 0 => all += read,
            _ => return all,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_answers_are_not_read_ends() {
    let limits = ServerLimits { unread: Duration::from_secs(2), ..ServerLimits::default() };
    let peer = Running::start(limits);
    let id = RecordId::new([1; 32]);
    let asked = async |calls: usize| {
        while peer.service.asked.lock().unwrap().len() < calls {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // One that has room for its answer, and one that asks later and has none.
    let (mut takes, mut none) = (connected(&peer).await, connected(&peer).await);
    takes.write_all(&begun_and_asked(id)).await.unwrap();
    tokio::time::timeout(LIMIT, asked(1)).await.expect("it is asked");
    none.write_all(&[preface(0), find(1, id)].concat()).await.unwrap();
    tokio::time::timeout(LIMIT, read_all(&mut none)).await.expect("it ends");
    takes.write_all(&find(3, id)).await.unwrap();
    tokio::time::timeout(LIMIT, asked(3)).await.expect("the other has not ended");
}

/// Sixteen large answers of a stream whose caller takes a byte of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_of_a_stream_is_answered_than_there_is_room_for() {
    let limits = ServerLimits {
        answer_bytes_in_flight: 32 << 20,
        admission_wait: Duration::from_secs(60),
        ..ServerLimits::default()
    };
    let peer = Running::start(limits);
    let record = record(vec![7; ANSWER_BYTES]);
    peer.service.records.lock().unwrap().insert(record.id, record.clone());
    let id = Bytes::copy_from_slice(record.id.as_bytes());
    let message = proto::FindRequest { id, ..Default::default() }.encode_to_vec();
    let framed = [prefix(message.len()), message].concat().repeat(16);
    let mut tls = connected(&peer).await;
    let begun = [preface(1), headers(1, "FindStream"), frame(0, 0, 1, &framed)].concat();
    tls.write_all(&begun).await.unwrap();
    let asked = || peer.service.asked.lock().unwrap().len();
    while asked() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    // A quarter of the bytes is strangers', of which one has half: 4 MiB.
    assert!(asked() <= 3, "{} are answered", asked());
}

/// What waits for its bytes is in memory as what has them is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_calls_are_answered_than_there_is_room_for() {
    let limits = ServerLimits {
        answer_bytes_in_flight: 256 << 20,
        admission_wait: Duration::from_secs(60),
        ..ServerLimits::default()
    };
    let record = record(vec![7; ANSWER_BYTES]);
    let id = Bytes::copy_from_slice(record.id.as_bytes());
    let one = proto::FindRequest { id, ..Default::default() };
    let batch = proto::FindBatchRequest { requests: vec![one.clone()] }.encode_to_vec();
    // A quarter of the bytes is strangers', of which one has half: 32 MiB. A batch's answer may have 8 of them until it is made.
    for (method, message, most) in [("Find", one.encode_to_vec(), 33), ("FindBatch", batch, 16)] {
        let peer = Running::start(limits);
        peer.service.records.lock().unwrap().insert(record.id, record.clone());
        let framed = [prefix(message.len()), message].concat();
        let mut tls = connected(&peer).await;
        let mut bytes = preface(1);
        for call in 0..100 {
            bytes.extend(
                [headers(2 * call + 1, method), frame(0, 1, 2 * call + 1, &framed)].concat(),
            );
        }
        tls.write_all(&bytes).await.unwrap();
        let asked = || peer.service.asked.lock().unwrap().len();
        while asked() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(asked() <= most, "{} of {method} are answered", asked());
    }
}

/// What an answer may have is taken once its request is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_asked_for_slowly_keeps_no_other_from_its_answer() {
    let limits = ServerLimits { answer_bytes_in_flight: 64 << 20, ..ServerLimits::default() };
    let peer = Running::start(limits);
    let mut slow = Vec::new();
    for source in 31..40 {
        let mut tls = connected_from(&format!("127.0.0.{source}"), &peer).await;
        let begun = [preface(65_535), headers(1, "FindBatch"), frame(0, 0, 1, &prefix(40))];
        tls.write_all(&begun.concat()).await.unwrap();
        slow.push(tls);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let one = proto::FindRequest { id: vec![1; 32].into(), ..Default::default() };
    let message = proto::FindBatchRequest { requests: vec![one] }.encode_to_vec();
    let framed = [prefix(message.len()), message].concat();
    let mut tls = connected_from("127.0.0.41", &peer).await;
    let asks = [preface(65_535), headers(1, "FindBatch"), frame(0, 1, 1, &framed)].concat();
    tls.write_all(&asks).await.unwrap();
    let answered = async {
        while peer.service.asked.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, answered).await.expect("others held its bytes");
}

/// Answers that such a caller asks for: more than the system keeps for it on both sides.
const ANSWERS: u8 = 32;
const ANSWER_BYTES: usize = 2 << 20;

/// A caller with wide windows that asks for much, then takes no byte from its socket; until the peer has stopped sending.
async fn frozen(peer: &Running) -> TlsStream<TcpStream> {
    let record = record(vec![7; ANSWER_BYTES]);
    peer.service.records.lock().unwrap().insert(record.id, record.clone());
    let mut tls = connected(peer).await;
    let mut bytes = preface(WINDOW_MAX);
    bytes.extend(frame(8, 0, 0, &(WINDOW_MAX - 65_535).to_be_bytes()));
    for call in 0..ANSWERS {
        bytes.extend(find(2 * call + 1, record.id));
    }
    tls.write_all(&bytes).await.unwrap();
    while peer.service.asked.lock().unwrap().len() < usize::from(ANSWERS) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    // The peer owes an answer to it, has no room for that, and reads on only behind it.
    tls.write_all(&frame(6, 0, 0, &[0; 8])).await.unwrap();
    tls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_ends_whose_socket_is_not_read() {
    let unread = Duration::from_millis(400);
    let peer = Running::start(ServerLimits { unread, ..ServerLimits::default() });
    let mut tls = frozen(&peer).await;
    tokio::time::sleep(5 * unread).await;
    let read = tokio::time::timeout(LIMIT, read_all(&mut tls)).await.expect("it ends");
    let all = usize::from(ANSWERS) * ANSWER_BYTES;
    assert!(read < all, "{read} of {all} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_takes_nothing_does_not_hold_up_the_stop() {
    let drain = Duration::from_millis(100);
    let peer = Running::start(ServerLimits { drain, ..ServerLimits::default() });
    let _frozen = frozen(&peer).await;
    tokio::time::timeout(LIMIT, peer.stop()).await.expect("it stops");
}
