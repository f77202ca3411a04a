//! The second listener over real sockets: what a signed request may do, and each way it is refused.

use std::sync::atomic::{AtomicI64, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use crypto::jwt::{self, claims};
use crypto::{Place, RecordId, Suite};
use env::calls::*;
use env::{Clock, SystemClock};
use futures::StreamExt;
use futures::future::BoxFuture;
use prost::Message;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::transport::Channel;

use super::hostile_callers::status;
use super::memory::{PRIVATE, of, record};
use super::*;
use crate::proto;
use crate::signing::Whole;
use crate::{SignedDial, SignedOptions, SignedServer, SignedTransport};

/// A peer that is asked by signed requests: key 1 in network 1.
struct Signed {
    address: SocketAddr,
    service: Arc<Memory>,
    _stop: tokio_util::sync::DropGuard,
}

impl Signed {
    fn start(transport: SignedTransport, suite: Suite, ids_max: usize) -> Self {
        Self::bounded(transport, suite, ids_max, ServerLimits::default())
    }

    fn bounded(
        transport: SignedTransport,
        suite: Suite,
        ids_max: usize,
        limits: ServerLimits,
    ) -> Self {
        Self::with(transport, suite, ids_max, limits, Env::real())
    }

    fn with(
        transport: SignedTransport,
        suite: Suite,
        ids_max: usize,
        limits: ServerLimits,
        env: Env,
    ) -> Self {
        let peer = PeerId::new(secret(1).public());
        let mut options = SignedOptions::new(network(1), peer, suite, transport);
        options.remembered_ids_max = ids_max;
        let server = SignedServer::bind("127.0.0.1:0", options, limits).unwrap();
        let (service, stop) = (Arc::new(Memory::default()), CancellationToken::new());
        let address = server.address();
        tokio::spawn(server.serve(service.clone(), env, stop.clone()));
        Self { address, service, _stop: stop.drop_guard() }
    }

    fn plain() -> Self {
        Self::start(SignedTransport::Plain, Suite::Holdfast1, 1000)
    }

    async fn channel(&self) -> Channel {
        let address = format!("http://{}", self.address);
        Channel::from_shared(address).unwrap().connect().await.unwrap()
    }
}

/// A client of this key and pass.
fn caller(byte: u8, through: SignedDial, pass: Option<&'static [u8]>) -> Arc<Client> {
    let pass = move || match pass {
        Some(pass) => Credential::Client(Bytes::from_static(pass)),
        None => Credential::None,
    };
    let (env, limits) = (Env::real(), ClientLimits::default());
    Client::signed(secret(byte), network(1), through, Arc::new(pass), env, limits)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_without_a_certificate_does_what_others_do() {
    let tls = Signed::start(SignedTransport::Tls(identity(1, 1)), Suite::Holdfast1, 1000);
    let plain = Signed::plain();
    for (peer, through) in [(&tls, SignedDial::Tls), (&plain, SignedDial::Plain)] {
        let (client, to) = (caller(5, through, None), endpoint(peer.address));
        let record = record(vec![7; 2 << 20]);
        let find = of(record.id);
        assert_eq!(client.store(&to, record.clone(), LIMIT).await, Ok(StoreOutcome::Stored));
        assert_eq!(client.store(&to, record.clone(), LIMIT).await, Ok(StoreOutcome::Present));
        let found = client.find(&to, find, LIMIT).await;
        assert_eq!(found, Ok(FindResponse::Found(record.clone())));
        assert_eq!(client.get(&to, find, LIMIT).await, Ok(record.clone()));
        let verify = VerifyRequest { id: find.id, place: find.place, mac_key: [3; 32] };
        let mac = Suite::Holdfast1.mac(&[3; 32], &record.bytes);
        assert_eq!(client.verify(&to, verify, LIMIT).await, Ok(VerifyResponse::Mac(mac)));
        let put = client.put(&to, super::memory::record(vec![8; 10]), Duration::ZERO, LIMIT).await;
        assert_eq!(put, Ok(PutResponse { acked: 1, wanted: 30 }));
        let batch = client.find_batch(&to, vec![find; 2], LIMIT).await.unwrap();
        assert_eq!(batch.len(), 2);
        let introduce = IntroduceRequest::new(Credential::None, 1);
        assert_eq!(client.introduce(&to, introduce, LIMIT).await.unwrap().roster, 7);
        let events = client.subscribe(&to, SubscribeRequest::default(), LIMIT).await.unwrap();
        assert_eq!(events.count().await, 3);
        for (request, answer) in super::objects::exchanges() {
            peer.service.objects.lock().unwrap().answer = Some(Ok(answer.clone()));
            assert_eq!(client.objects(&to, request, LIMIT).await, Ok(answer));
        }
        peer.service.objects.lock().unwrap().events =
            vec![Ok(env::calls::objects::WatchEvent::Gap); 2];
        let watched = client.watch(&to, super::watching::watches().remove(0), LIMIT).await.unwrap();
        assert_eq!(watched.count().await, 2);
        // A call that fails has its typed error.
        let absent = client.get(&to, of(RecordId::new([1; 32])), LIMIT).await;
        assert_eq!(absent, Err(CallError::NotFound));
        let callers = peer.service.callers.lock().unwrap().clone();
        assert_eq!(callers.into_iter().collect::<Vec<_>>(), [secret(5).public()]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_is_told_to_the_librarian_once_and_again_after_it_forgot() {
    let peer = Signed::plain();
    let to = endpoint(peer.address);
    let stranger = caller(6, SignedDial::Plain, None);
    let denied = stranger.find(&to, of(PRIVATE), LIMIT).await;
    assert!(matches!(denied, Err(CallError::Denied { .. })), "{denied:?}");
    let client = caller(5, SignedDial::Plain, Some(b"pass"));
    for _ in 0..3 {
        assert!(client.find(&to, of(PRIVATE), LIMIT).await.is_ok());
    }
    let pass = Credential::Client(Bytes::from_static(b"pass"));
    assert_eq!(peer.service.introductions.lock().unwrap().len(), 1);
    // The librarian forgets: one call is denied, the next is introduced again.
    peer.service.known.lock().unwrap().clear();
    let mut outcomes = Vec::new();
    for _ in 0..2 {
        outcomes.push(client.find(&to, of(PRIVATE), LIMIT).await.is_ok());
    }
    assert!(outcomes[1], "{outcomes:?}");
    assert_eq!(*peer.service.introductions.lock().unwrap(), [pass.clone(), pass]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_answers_is_checked_before_anything_is_sent() {
    let tls = Signed::start(SignedTransport::Tls(identity(1, 1)), Suite::Holdfast1, 1000);
    let other = PeerId::new(secret(9).public());
    let to = Endpoint::of(other, tls.address.to_string());
    let client = caller(5, SignedDial::Tls, None);
    let wrong = client.find(&to, of(PRIVATE), LIMIT).await;
    assert!(matches!(wrong, Err(CallError::WrongPeer { .. })), "{wrong:?}");
    // In the clear a peer must be named, and one that is not it refuses what is for another.
    let plain = Signed::plain();
    let client = caller(5, SignedDial::Plain, None);
    let nobody = Endpoint::at(&plain.address.to_string());
    let unnamed = client.find(&nobody, of(PRIVATE), LIMIT).await;
    assert!(matches!(unnamed, Err(CallError::Invalid { .. })), "{unnamed:?}");
    let another = Endpoint { peer: Some(other), ..nobody };
    let Err(CallError::Denied { reason }) = client.find(&another, of(PRIVATE), LIMIT).await else {
        panic!("it is for another peer")
    };
    assert!(reason.contains("another peer"), "{reason}");
}

#[tokio::test]
async fn plain_tcp_is_for_loopback_alone() {
    let peer = PeerId::new(secret(1).public());
    let options = SignedOptions::new(network(1), peer, Suite::Holdfast1, SignedTransport::Plain);
    let refused = SignedServer::bind("0.0.0.0:0", options, ServerLimits::default());
    assert!(matches!(refused, Err(RpcError::NotLoopback { .. })), "{refused:?}");
}

/// One request, built by hand: each part can be another than it should.
#[derive(Clone)]
struct Raw {
    method: &'static str,
    key: Option<Bytes>,
    id: Option<Bytes>,
    token: Option<String>,
    pass: Option<Bytes>,
    message: Bytes,
}

fn claims_of(message: &[u8], id: u8) -> claims::Claims {
    let issued = env::Clock::unix_s(&env::SystemClock::new());
    claims::Claims {
        hash: claims::message_hash(message),
        method: "/holdfast.v1.Librarian/Find".into(),
        audience: PeerId::new(secret(1).public()),
        network: network(1),
        issued,
        expires: issued + 60,
        id: [id; 32],
    }
}

impl Raw {
    /// A good `Find` by key 5, but for what `change` does to its claims.
    fn find(id: u8, change: impl FnOnce(&mut claims::Claims)) -> Self {
        let wanted = RecordId::new([4; 32]);
        let find = FindRequest { id: wanted, place: Place::from(wanted) };
        let message = Bytes::from(proto::FindRequest::from(find).encode_to_vec());
        let mut claims = claims_of(&message, id);
        change(&mut claims);
        Self {
            method: "Find",
            key: Some(Bytes::copy_from_slice(secret(5).public().as_bytes())),
            id: Some(Bytes::from(vec![id; 32])),
            token: Some(format!("Bearer {}", claims::sign_claims(&secret(5), &claims))),
            pass: None,
            message,
        }
    }

    async fn send(&self, channel: &Channel) -> (Code, String) {
        let mut body = BytesMut::new();
        body.put_u8(0);
        body.put_u32(u32::try_from(self.message.len()).unwrap());
        body.put_slice(&self.message);
        self.send_body(channel, body.freeze()).await
    }

    async fn send_body(&self, channel: &Channel, body: Bytes) -> (Code, String) {
        use base64::Engine;
        use tower::ServiceExt;
        let path = format!("http://holdfast/holdfast.v1.Librarian/{}", self.method);
        let mut request =
            Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
        let binary = [
            ("holdfast-request-id-bin", &self.id),
            ("holdfast-public-key-bin", &self.key),
            ("holdfast-pass-bin", &self.pass),
        ];
        for (name, value) in binary {
            if let Some(value) = value {
                let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(value);
                request = request.header(name, text);
            }
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", token);
        }
        let request = request.body(Body::new(Whole::new(body))).unwrap();
        let status = status(channel.clone().oneshot(request).await.unwrap()).await;
        (status.code(), status.message().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_wrong_token_is_refused_with_its_reason() {
    let peer = Signed::plain();
    let channel = peer.channel().await;
    assert_eq!(Raw::find(1, |_| {}).send(&channel).await.0, Code::Ok, "the test's own is good");
    let bare = jwt::sign(&secret(5), &Raw::find(0, |_| {}).message);
    let other_message =
        Bytes::from(vec![0x0a, 0x20].into_iter().chain([9; 32]).collect::<Vec<_>>());
    let good = |id| Raw::find(id, |_| {});
    let denied = Code::PermissionDenied;
    let cases = [
        ("another peer", denied, Raw::find(2, |c| c.audience = PeerId::new(secret(2).public()))),
        (
            "another method",
            denied,
            Raw::find(3, |c| c.method = "/holdfast.v1.Librarian/Get".into()),
        ),
        ("another method", denied, Raw { method: "Get", ..good(4) }),
        ("another network", denied, Raw::find(5, |c| c.network = network(2))),
        ("another message", denied, Raw { message: other_message, ..good(6) }),
        ("another request id", denied, Raw { id: Some(Bytes::from(vec![1; 32])), ..good(7) }),
        ("it is", denied, Raw::find(8, |c| (c.issued, c.expires) = (c.issued - 90, c.issued - 30))),
        ("it is", denied, Raw::find(9, |c| (c.issued, c.expires) = (c.issued + 90, c.issued + 99))),
        ("ends 1 to 60 s", denied, Raw::find(10, |c| c.expires = c.issued + 61)),
        (
            "before this peer",
            denied,
            Raw::find(11, |c| (c.issued, c.expires) = (c.issued - 20, c.expires - 20)),
        ),
        ("does not verify", denied, {
            let key = Some(Bytes::copy_from_slice(secret(6).public().as_bytes()));
            Raw { key, ..good(12) }
        }),
        ("libri-1", denied, Raw { token: Some(format!("Bearer {bare}")), ..good(13) }),
        ("signed", denied, Raw { token: None, ..good(14) }),
        ("signed", denied, Raw { key: None, ..good(15) }),
        ("signed", denied, Raw { id: None, ..good(16) }),
        ("signed", denied, Raw { token: Some("Basic eA==".into()), ..good(17) }),
        ("32 bytes", Code::InvalidArgument, Raw { id: Some(Bytes::from(vec![1; 31])), ..good(18) }),
        (
            "public key",
            Code::InvalidArgument,
            Raw { key: Some(Bytes::from(vec![1; 33])), ..good(19) },
        ),
        ("not a signed", Code::InvalidArgument, Raw { token: Some("Bearer a".into()), ..good(20) }),
        ("over 8 KiB", Code::InvalidArgument, Raw { pass: Some(vec![1; 8193].into()), ..good(21) }),
        ("", Code::Unimplemented, Raw { method: "FindStream", ..good(22) }),
        ("", Code::Unimplemented, Raw { method: "StoreStream", ..good(23) }),
        ("", Code::Unimplemented, Raw { method: "VerifyStream", ..good(24) }),
    ];
    let asked = peer.service.asked.lock().unwrap().len();
    for (reason, code, raw) in cases {
        let (answered, message) = raw.send(&channel).await;
        assert_eq!(answered, code, "{reason}: {message}");
        assert!(message.contains(reason), "{message} should say {reason}");
    }
    assert_eq!(peer.service.asked.lock().unwrap().len(), asked, "nothing got to the librarian");
    assert!(peer.service.introductions.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_is_refused_and_a_full_memory_is_busy() {
    let peer = Signed::start(SignedTransport::Plain, Suite::Holdfast1, 8);
    let channel = peer.channel().await;
    let first = Raw::find(1, |_| {});
    assert_eq!(first.send(&channel).await.0, Code::Ok);
    let (code, reason) = first.send(&peer.channel().await).await;
    assert!(code == Code::PermissionDenied && reason.contains("replay"), "{code} {reason}");
    // A message that was not the signed one has used the id up too.
    let tampered = Raw { message: Bytes::from_static(b"\x0a\x00"), ..Raw::find(2, |_| {}) };
    assert_eq!(tampered.send(&channel).await.0, Code::PermissionDenied);
    let (code, reason) = Raw::find(2, |_| {}).send(&channel).await;
    assert!(code == Code::PermissionDenied && reason.contains("replay"), "{code} {reason}");
    // Strangers have two of the eight; a caller with a pass goes on.
    assert_eq!(Raw::find(3, |_| {}).send(&channel).await.0, Code::ResourceExhausted);
    let pass = Some(Bytes::from_static(b"pass"));
    assert_eq!(Raw { pass, ..Raw::find(4, |_| {}) }.send(&channel).await.0, Code::Ok);
}

/// So a listener that begins later need only refuse what was made before it did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_from_a_clock_that_is_ahead_is_taken_at_its_time_and_by_no_later_listener() {
    let peer = Signed::plain();
    let now = || env::Clock::unix_s(&env::SystemClock::new());
    let ahead = Raw::find(1, |c| (c.issued, c.expires) = (c.issued + 2, c.issued + 40));
    let issued = now() + 1;
    let (code, reason) = ahead.send(&peer.channel().await).await;
    assert_eq!(code, Code::Ok, "{reason}");
    assert!(now() >= issued, "before its time");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let again = Signed::plain();
    let (code, reason) = ahead.send(&again.channel().await).await;
    assert_eq!(code, Code::PermissionDenied);
    assert!(reason.contains("before this peer began"), "{reason}");
}

/// A clock whose calendar is so many seconds off.
struct Off(SystemClock, Arc<AtomicI64>);

impl Clock for Off {
    fn unix_ms(&self) -> u64 {
        self.0.unix_ms().saturating_add_signed(self.1.load(Ordering::SeqCst) * 1000)
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }
}

/// It began an hour ahead of the time, and was set right since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_whose_calendar_was_ahead_at_its_start_takes_requests_once_that_is_right() {
    let off_s = Arc::new(AtomicI64::new(3600));
    let clock = Arc::new(Off(SystemClock::new(), off_s.clone()));
    let (transport, limits) = (SignedTransport::Plain, ServerLimits::default());
    let env = Env { clock, ..Env::real() };
    let peer = Signed::with(transport, Suite::Holdfast1, 8, limits, env);
    let channel = peer.channel().await;
    let (code, _) = Raw::find(1, |_| {}).send(&channel).await;
    assert_eq!(code, Code::PermissionDenied, "by its calendar the token has ended");
    // Set right a moment ago: what whoever listened before took is not taken again.
    off_s.store(0, Ordering::SeqCst);
    let (code, reason) = Raw::find(2, |_| {}).send(&channel).await;
    assert!(code == Code::PermissionDenied && reason.contains("began"), "{code} {reason}");
    // Set right longer ago than a token lives.
    let ago = i64::try_from(claims::TOKEN_SECONDS_MAX).unwrap() + 40;
    off_s.store(-ago, Ordering::SeqCst);
    assert_eq!(Raw::find(3, |_| {}).send(&channel).await.0, Code::PermissionDenied);
    off_s.store(0, Ordering::SeqCst);
    let (code, reason) = Raw::find(4, |_| {}).send(&channel).await;
    assert_eq!(code, Code::Ok, "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signed_request_has_one_message() {
    let peer = Signed::plain();
    let channel = peer.channel().await;
    let raw = |id| Raw::find(id, |_| {});
    let framed = {
        let message = raw(0).message;
        let mut body = BytesMut::from(&[0, 0, 0, 0][..]);
        body.put_u8(u8::try_from(message.len()).unwrap());
        body.put_slice(&message);
        body.freeze()
    };
    assert_eq!(raw(1).send_body(&channel, framed.clone()).await.0, Code::Ok);
    let twice = Bytes::from([&framed[..], &framed[..]].concat());
    for (id, body) in [(2, Bytes::new()), (3, framed.slice(..20)), (4, twice)] {
        let (code, reason) = raw(id).send_body(&channel, body).await;
        assert_eq!(code, Code::InvalidArgument, "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bare_form_counts_in_a_libri_1_network_for_its_message_alone() {
    let peer = Signed::start(SignedTransport::Plain, Suite::Libri1, 1000);
    let channel = peer.channel().await;
    let good = Raw::find(1, |_| {});
    let bare =
        |key: u8, message: &[u8]| Some(format!("Bearer {}", jwt::sign(&secret(key), message)));
    let taken = Raw { token: bare(5, &good.message), ..good.clone() };
    assert_eq!(taken.send(&channel).await.0, Code::Ok);
    for (key, message) in [(6, &good.message[..]), (5, b"another")] {
        let refused = Raw { token: bare(key, message), ..good.clone() };
        assert_eq!(refused.send(&channel).await.0, Code::PermissionDenied);
    }
    assert_eq!(good.send(&channel).await.0, Code::Ok, "the full form counts there too");
}

/// As a client in another language would do it: from `docs/formats/wire.md`, with a JSON text and a
/// signature of its own making.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_built_by_hand_from_the_page_is_served() {
    use base64::Engine;
    use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
    let sha256 = |bytes: &[u8]| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
        <[u8; 32]>::try_from(digest.as_ref()).unwrap()
    };
    let peer = Signed::plain();
    let good = Raw::find(77, |_| {});
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let claims = format!(
        r#"{{ "jti": "{}", "iat": {now}, "exp": {}, "net": "{}", "aud": "{}",
              "method": "/holdfast.v1.Librarian/Find", "hash": "{}" }}"#,
        "4d".repeat(32),
        now + 10,
        "01".repeat(32),
        secret(1).public(),
        URL_SAFE.encode(sha256(&good.message)),
    );
    let header = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"ES256K"}"#);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    let signature = secret(5).sign_digest(&sha256(signed.as_bytes()));
    let token = Some(format!("Bearer {signed}.{}", URL_SAFE_NO_PAD.encode(signature)));
    let (code, reason) = Raw { token, ..good }.send(&peer.channel().await).await;
    assert_eq!(code, Code::Ok, "{reason}");
    assert_eq!(*peer.service.callers.lock().unwrap(), [secret(5).public()].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signed_calls_of_strangers_take_no_room_from_those_with_a_pass() {
    let limits = ServerLimits { calls: 4, ..ServerLimits::default() };
    let peer = Signed::bounded(SignedTransport::Plain, Suite::Holdfast1, 1000, limits);
    let to = endpoint(peer.address);
    let member = caller(5, SignedDial::Plain, Some(b"pass"));
    let other = of(RecordId::new([1; 32]));
    member.find(&to, other, LIMIT).await.unwrap();
    let before = peer.service.asked.lock().unwrap().len();
    // A quarter of four is one.
    let stranger = caller(6, SignedDial::Plain, None);
    let hangs = tokio::spawn({
        let (stranger, to) = (stranger.clone(), to.clone());
        async move { stranger.find(&to, of(super::memory::HANGS), LIMIT).await }
    });
    while peer.service.asked.lock().unwrap().len() == before {
        tokio::task::yield_now().await;
    }
    let second = stranger.find(&to, other, LIMIT).await;
    assert!(matches!(second, Err(CallError::Busy { .. })), "{second:?}");
    member.find(&to, other, LIMIT).await.unwrap();
    hangs.abort();
}
