//! What a peer may answer: anything, and the caller gets an error within its limit.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use crypto::{Announcement, OrgId, PeerCertificate, PeerState, RecordId, Suite};
use env::calls::*;
use http_body::Frame;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};

use super::memory::{Memory, of, record};
use super::*;
use crate::{SignedDial, SignedOptions, SignedServer, SignedTransport, proto};

const ID: RecordId = RecordId::new([1; 32]);
const SHORT: Duration = Duration::from_millis(300);

/// How a raw peer behaves.
#[derive(Clone, Copy)]
enum Behaviour {
    /// Takes the connection, says nothing.
    Silent,
    /// The TLS handshake is right, then nothing.
    SilentInside,
    /// Bytes that are not TLS.
    Noise,
    /// The TLS handshake is right, then bytes that are not HTTP/2.
    NoiseInside,
    /// Ends at once.
    Ends,
}

async fn raw_peer(behaviour: Behaviour) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = TlsAcceptor::from(Arc::new(identity(1, 1).listening().unwrap()));
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                match behaviour {
                    Behaviour::Ends => return,
                    Behaviour::Silent => {}
                    Behaviour::Noise => tcp.write_all(&[0x5a; 4096]).await.unwrap(),
                    Behaviour::SilentInside | Behaviour::NoiseInside => {
                        let Ok(mut inside) = tls.accept(tcp).await else { return };
                        if matches!(behaviour, Behaviour::NoiseInside) {
                            let _ = inside.write_all(&[0x5a; 4096]).await;
                        }
                        let _ = inside.read_to_end(&mut Vec::new()).await;
                        return;
                    }
                }
                let _ = tcp.read_to_end(&mut Vec::new()).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_never_answers_costs_the_limit_and_no_more() {
    let answering = Running::start(ServerLimits::default());
    let places = [
        (raw_peer(Behaviour::Silent).await, ID),
        (raw_peer(Behaviour::SilentInside).await, ID),
        (answering.address, memory::HANGS),
    ];
    for (address, id) in places {
        let started = Instant::now();
        let late = client().find(&endpoint(address), of(id), SHORT).await;
        let timed_out = CallError::TimedOut { address: address.to_string(), limit: SHORT };
        assert_eq!(late, Err(timed_out));
        assert!(started.elapsed() < SHORT * 10, "{:?}", started.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noise_is_no_answer() {
    for behaviour in [Behaviour::Noise, Behaviour::NoiseInside, Behaviour::Ends] {
        let to = endpoint(raw_peer(behaviour).await);
        let failed = client().find(&to, of(ID), LIMIT).await.unwrap_err();
        assert!(
            matches!(failed, CallError::Unreachable { .. } | CallError::WrongPeer { .. }),
            "{failed:?}"
        );
    }
}

/// A peer whose TLS is right and who answers each call with this.
pub(crate) async fn answering(
    answer: impl Fn() -> Response<Body> + Clone + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = TlsAcceptor::from(Arc::new(identity(1, 1).listening().unwrap()));
    let incoming = futures::stream::unfold((listener, tls), |(listener, tls)| async {
        let (tcp, _) = listener.accept().await.ok()?;
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let accepting = tls.accept(tcp);
        tokio::spawn(async move {
            if let (Ok(mut inside), mut ours) = (accepting.await, ours) {
                let _ = tokio::io::copy_bidirectional(&mut inside, &mut ours).await;
            }
        });
        Some((Ok::<_, std::io::Error>(theirs), (listener, tls)))
    });
    let service = tower::service_fn(move |_: Request<Body>| {
        let answer = answer.clone();
        async move { Ok::<_, Infallible>(answer()) }
    });
    let server = tonic::transport::Server::builder();
    tokio::spawn(async move {
        server.serve_with_incoming(service, Box::pin(incoming)).await.unwrap();
    });
    address
}

/// A response with one message that says it has `len` bytes, and a good end.
pub(crate) fn message(len: usize, bytes: &[u8]) -> Response<Body> {
    let prefix = u32::try_from(len).unwrap().to_be_bytes();
    let whole = [&[0][..], &prefix, bytes].concat();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = vec![Frame::data(whole.into()), Frame::trailers(trailers)];
    Response::builder()
        .header("content-type", "application/grpc")
        .body(Body::new(Frames(frames.into())))
        .unwrap()
}

struct Frames(VecDeque<Frame<Bytes>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

async fn asked(answer: impl Fn() -> Response<Body> + Clone + Send + 'static) -> CallError {
    let to = endpoint(answering(answer).await);
    client().get(&to, of(ID), LIMIT).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_not_what_was_asked_for_are_corrupt() {
    let other: proto::Record = record("another record").into();
    let of_record = |record: Option<proto::Record>| {
        let bytes = proto::GetResponse { record }.encode_to_vec();
        move || message(bytes.len(), &bytes)
    };
    let mut short = other.clone();
    short.id = Bytes::from_static(b"short");
    let cases = [
        ("another record", asked(of_record(Some(other))).await),
        ("a field of the wrong length", asked(of_record(Some(short))).await),
        ("nothing in it", asked(of_record(None)).await),
        ("not protobuf", asked(|| message(40, &[0xff; 40])).await),
        ("over every limit", asked(|| message(100 << 20, &[0; 64])).await),
    ];
    for (what, error) in cases {
        assert!(matches!(error, CallError::Corrupt { .. }), "{what}: {error:?}");
    }
    let cut = asked(|| message(1000, &[0; 10])).await;
    assert!(matches!(cut, CallError::Corrupt { .. }), "cut: {cut:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_one_answer_of_a_batch_says_nothing_of_the_others() {
    let good = record("asked for");
    let found = |record: &document::Record| -> proto::FindAnswer {
        let response = FindResponse::Found(record.clone());
        Ok(response).into()
    };
    let answers = vec![found(&record("another")), found(&good), proto::FindAnswer::default()];
    let bytes = proto::FindBatchResponse { answers }.encode_to_vec();
    let to = endpoint(answering(move || message(bytes.len(), &bytes)).await);
    let answers = client().find_batch(&to, vec![of(good.id); 3], LIMIT).await.unwrap();
    assert!(matches!(answers[0], Err(CallError::Corrupt { .. })), "{:?}", answers[0]);
    assert_eq!(answers[1], Ok(FindResponse::Found(good)));
    assert!(matches!(answers[2], Err(CallError::Corrupt { .. })), "{:?}", answers[2]);
}

/// What a peer of this key announced, which anybody may have.
fn announced(byte: u8) -> Bytes {
    let certificate = PeerCertificate {
        peer: PeerId::new(secret(byte).public()),
        organisation: OrgId::new(secret(8).public()),
        addresses: vec!["127.0.0.1:1".to_owned()],
        capacity: 1,
        from: 0,
        until: 10_000_000_000,
    };
    let announcement = Announcement {
        certificate_bytes: certificate.sign(&secret(8), &network(1)),
        certificate,
        sequence: 1,
        p2p_addresses: Vec::new(),
        state: PeerState::Serving,
    };
    announcement.sign(&secret(byte), &network(1))
}

/// Whoever sits at an address that was dialled by itself has a key, and not that of the peer whose announcement it tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_announcement_of_another_than_who_answers_is_the_wrong_peer() {
    let peer = Running::start(ServerLimits::default());
    let signed_service = Arc::new(Memory::default());
    let tls = SignedTransport::Tls(identity(1, 1));
    let key = PeerId::new(peer.key);
    let options = SignedOptions::new(network(1), key, Suite::Holdfast1, tls);
    let signed = SignedServer::bind("127.0.0.1:0", options, ServerLimits::default()).unwrap();
    let signed_address = signed.address();
    let stop = CancellationToken::new();
    tokio::spawn(signed.serve(signed_service.clone(), Env::real(), stop.clone()));
    let nothing: crate::CredentialSource = Arc::new(|| Credential::None);
    let (secret, limits) = (secret(2), ClientLimits::default());
    let signing = Client::signed(secret, network(1), SignedDial::Tls, nothing, Env::real(), limits);
    let places =
        [(client(), peer.address, peer.service.clone()), (signing, signed_address, signed_service)];
    for (client, address, service) in places {
        let to = Endpoint::at(&address.to_string());
        let introduce = || client.introduce(&to, IntroduceRequest::default(), LIMIT);
        *service.announcement.lock().unwrap() = Some(announced(1));
        assert_eq!(introduce().await.unwrap().announcement, announced(1));
        *service.announcement.lock().unwrap() = Some(announced(3));
        let replayed = introduce().await;
        assert!(matches!(replayed, Err(CallError::WrongPeer { .. })), "{replayed:?}");
    }
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_panics_the_library_is_an_error() {
    let error = asked(|| {
        Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "5")
            .header("grpc-status-details-bin", "!!! not base64 !!!")
            .body(Body::empty())
            .unwrap()
    })
    .await;
    assert!(matches!(error, CallError::Corrupt { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_answers_are_errors() {
    let web = asked(|| Response::builder().status(404).body(Body::empty()).unwrap()).await;
    assert!(matches!(web, CallError::Invalid { .. } | CallError::Internal { .. }), "{web:?}");
    let unknown = asked(|| {
        Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "12")
            .body(Body::empty())
            .unwrap()
    })
    .await;
    assert!(matches!(unknown, CallError::Invalid { .. }), "{unknown:?}");
}

/// A peer that sends what carries nothing as fast as it is read, down a connection that somebody else dialled: a third of a microsecond
/// of processor each frame.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_carry_nothing_are_read_at_a_pace_by_who_dialled_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let flooding = endpoint(listener.local_addr().unwrap());
    let tls = TlsAcceptor::from(Arc::new(identity(1, 1).listening().unwrap()));
    // 40 MiB of updates of the connection's window. Read as fast as they come they are gone in two seconds; at their pace, with all
    // that sockets hold, in more than a minute.
    let flood = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut tls = tls.accept(tcp).await.unwrap();
        tls.write_all(b"\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let updates = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1].repeat(1 << 16);
        let began = Instant::now();
        for _ in 0..50 {
            if tls.write_all(&updates).await.is_err() {
                return None;
            }
        }
        Some(began.elapsed())
    });
    let peer = Running::start(ServerLimits::default());
    let client = client();
    let late = client.find(&flooding, of(ID), Duration::from_secs(4)).await;
    assert!(late.is_err(), "{late:?}");
    let found = client.find(&peer.endpoint(), of(ID), LIMIT).await;
    assert!(found.is_ok(), "{found:?}");
    assert!(!flood.is_finished(), "{:?}", flood.await);
}
