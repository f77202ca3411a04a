//! Who gets past the handshake, in both directions.

use std::sync::atomic::{AtomicUsize, Ordering};

use crypto::RecordId;
use env::calls::*;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ServerConfig, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::memory::of;
use super::*;
use crate::verifier::PeerVerifier;

const ID: RecordId = RecordId::new([1; 32]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_key_than_expected_is_the_wrong_peer() {
    let peer = Running::start(ServerLimits::default());
    let other = PeerId::new(secret(9).public());
    let to = Endpoint::of(other, peer.address.to_string());
    let Err(CallError::WrongPeer { reason, .. }) = client().find(&to, of(ID), LIMIT).await else {
        panic!("it was not who was expected")
    };
    assert!(reason.contains(&other.to_string()) && reason.contains(&peer.key.to_string()));
    assert!(peer.service.asked.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_network_is_refused_by_both_sides() {
    let peer = Running::start(ServerLimits::default());
    // A caller of network 2 at a peer of network 1: the peer refuses.
    let stranger = Client::new(
        identity(2, 2),
        Arc::new(|| Credential::None),
        Env::real(),
        ClientLimits::default(),
    );
    let Err(CallError::WrongPeer { reason, .. }) =
        stranger.find(&peer.endpoint(), of(ID), LIMIT).await
    else {
        panic!("it is another network")
    };
    assert!(reason.contains("another network"), "{reason}");
    assert!(peer.service.asked.lock().unwrap().is_empty());

    // A peer that would take any network: the caller refuses.
    let mut lax = identity(1, 2).listening().unwrap();
    lax.alpn_protocols.clear();
    let address = tls_peer(lax).await;
    let refused = client().find(&endpoint(address), of(ID), LIMIT).await;
    assert!(matches!(refused, Err(CallError::WrongPeer { .. })), "{refused:?}");
}

/// A TLS listener that never says more; its address.
async fn tls_peer(config: ServerConfig) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(mut tls) = acceptor.accept(tcp).await {
                    let _ = tls.read_to_end(&mut Vec::new()).await;
                }
            });
        }
    });
    address
}

/// Whether the server takes a caller with this configuration: it then speaks HTTP/2 first.
async fn is_taken(peer: &Running, config: ClientConfig) -> bool {
    let tcp = TcpStream::connect(peer.address).await.unwrap();
    let name = ServerName::try_from("holdfast").unwrap();
    let Ok(mut tls) = TlsConnector::from(Arc::new(config)).connect(name, tcp).await else {
        return false;
    };
    // The client's half of HTTP/2: preface and empty settings.
    let _ = tls.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let mut first = [0; 9];
    tls.read_exact(&mut first).await.is_ok()
}

fn dialling() -> ClientConfig {
    identity(2, 1).dialling(PeerVerifier::new(None)).unwrap()
}

/// Both versions of TLS and the library's suites: which of two libraries is meant has to be said.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// A configuration with this certificate in place of a good one.
fn with_certificate(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(PeerVerifier::new(None))
        .with_client_auth_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![identity(2, 1).protocol()];
    config
}

/// A P-256 certificate whose extension says it is the peer with key 1, signed by key `signer`
/// over `over`'s P-256 key or its own.
fn lying(signer: u8, own: bool) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let pair = |byte: u8| {
        let secret = libp2p_identity::secp256k1::SecretKey::try_from_bytes([byte; 32]).unwrap();
        libp2p_identity::Keypair::from(libp2p_identity::secp256k1::Keypair::from(secret))
    };
    let mut message = b"libp2p-tls-handshake:".to_vec();
    message.extend(if own { key.public_key_der() } else { other.public_key_der() });
    let signature = pair(signer).sign(&message).unwrap();
    let claimed = pair(1).public().encode_protobuf();
    let octets =
        |bytes: &[u8]| [vec![4, u8::try_from(bytes.len()).unwrap()], bytes.to_vec()].concat();
    let inside = [octets(&claimed), octets(&signature)].concat();
    let content = [vec![0x30, u8::try_from(inside.len()).unwrap()], inside].concat();
    let oid = [1, 3, 6, 1, 4, 1, 53594, 1, 1];
    let mut params = rcgen::CertificateParams::default();
    params.custom_extensions.push(rcgen::CustomExtension::from_oid_content(&oid, content));
    let certificate = params.self_signed(&key).unwrap();
    (certificate.into(), PrivatePkcs8KeyDer::from(key.serialize_der()).into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_do_not_prove_a_key_are_refused_while_others_go_on() {
    let peer = Running::start(ServerLimits::default());
    let (going_on, done) = (AtomicUsize::new(0), CancellationToken::new());
    let legitimate = async {
        let client = client();
        while !done.is_cancelled() {
            client.find(&peer.endpoint(), of(ID), LIMIT).await.unwrap();
            going_on.fetch_add(1, Ordering::SeqCst);
        }
    };
    let refusals = async {
        assert!(is_taken(&peer, dialling()).await, "the test's own caller is good");

        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 300], &[0x16, 3, 1, 0xff, 0xff]] {
            let mut tcp = TcpStream::connect(peer.address).await.unwrap();
            tcp.write_all(garbage).await.unwrap();
            tcp.shutdown().await.unwrap();
            // At most an alert comes back, then the end.
            let mut answer = Vec::new();
            let _ = tcp.read_to_end(&mut answer).await;
            assert!(answer.len() < 64, "{answer:?}");
        }

        let mut none = dialling();
        none.client_auth_cert_resolver = Arc::new(NoCertificate);
        assert!(!is_taken(&peer, none).await, "no client certificate");

        let mut other = dialling();
        other.alpn_protocols = vec![b"h2".to_vec()];
        assert!(!is_taken(&peer, other).await, "another protocol");
        let mut nothing = dialling();
        nothing.alpn_protocols.clear();
        assert!(!is_taken(&peer, nothing).await, "no protocol");

        let mut tls12 = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(PeerVerifier::new(None))
            .with_no_client_auth();
        tls12.alpn_protocols = vec![identity(2, 1).protocol()];
        assert!(!is_taken(&peer, tls12).await, "TLS 1.2");

        let (good, key) = lying(1, true);
        assert!(is_taken(&peer, with_certificate(vec![good.clone()], key.clone_key())).await);
        let (_, another) = lying(1, true);
        let another = aws_lc_rs::sign::any_ecdsa_type(&another).unwrap();
        let mut stolen = dialling();
        stolen.client_auth_cert_resolver =
            Arc::new(SingleCertAndKey::from(CertifiedKey::new(vec![good.clone()], another)));
        assert!(!is_taken(&peer, stolen).await, "a certificate that is known, another's secret");
        let two = vec![good.clone(), good];
        assert!(!is_taken(&peer, with_certificate(two, key)).await, "two certificates");
        let (certificate, key) = lying(3, true);
        assert!(!is_taken(&peer, with_certificate(vec![certificate], key)).await, "wrong signer");
        let (certificate, key) = lying(1, false);
        assert!(!is_taken(&peer, with_certificate(vec![certificate], key)).await, "stolen proof");
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let bare = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        assert!(!is_taken(&peer, with_certificate(vec![bare.into()], key)).await, "no identity");
        done.cancel();
    };
    tokio::join!(legitimate, refusals);
    assert!(going_on.load(Ordering::SeqCst) > 0);
    let callers = peer.service.callers.lock().unwrap().clone();
    assert_eq!(callers.into_iter().collect::<Vec<_>>(), [secret(2).public()]);
}

/// A caller without a certificate.
#[derive(Debug)]
struct NoCertificate;

impl rustls::client::ResolvesClientCert for NoCertificate {
    fn resolve(
        &self,
        _: &[&[u8]],
        _: &[SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_that_do_not_prove_their_key_are_refused() {
    for (signer, own, what) in [(3, true, "wrong signer"), (1, false, "stolen proof")] {
        let (certificate, key) = lying(signer, own);
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        config.alpn_protocols = vec![identity(1, 1).protocol()];
        let address = tls_peer(config).await;
        let refused = client().find(&endpoint(address), of(ID), LIMIT).await;
        assert!(matches!(refused, Err(CallError::WrongPeer { .. })), "{what}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_is_resumed() {
    let peer = Running::start(ServerLimits::default());
    let mut config = dialling();
    config.resumption = rustls::client::Resumption::in_memory_sessions(8);
    let config = Arc::new(config);
    for _ in 0..2 {
        let tcp = TcpStream::connect(peer.address).await.unwrap();
        let name = ServerName::try_from("holdfast").unwrap();
        let mut tls = TlsConnector::from(config.clone()).connect(name, tcp).await.unwrap();
        tls.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut first = [0; 9];
        tls.read_exact(&mut first).await.unwrap();
        let session = tls.get_ref().1;
        assert_eq!(session.tls13_tickets_received(), 0);
        assert_eq!(session.handshake_kind(), Some(rustls::HandshakeKind::Full));
        let suite = session.negotiated_cipher_suite().unwrap().suite();
        assert_eq!(suite, rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_handshakes_end_and_one_source_has_a_bound() {
    let limits = ServerLimits {
        handshake: Duration::from_secs(2),
        connections_per_source: 4,
        ..ServerLimits::default()
    };
    let peer = Running::start(limits);
    let mut stalled = Vec::new();
    for _ in 0..4 {
        stalled.push(TcpStream::connect(peer.address).await.unwrap());
    }
    for tcp in &mut stalled {
        assert_eq!(tcp.read(&mut [0; 1]).await.unwrap_or(0), 0, "it ends without a word");
    }
    // Four that hold their seats; a fifth is refused.
    let good: Vec<_> = futures::future::join_all((0..4).map(|_| async {
        let mut config = dialling();
        config.enable_sni = false;
        let config = Arc::new(config);
        loop {
            // The seats of the stalled are free a moment after their ends.
            let tcp = TcpStream::connect(peer.address).await.unwrap();
            let name = ServerName::try_from("holdfast").unwrap();
            if let Ok(tls) = TlsConnector::from(config.clone()).connect(name, tcp).await {
                break tls;
            }
        }
    }))
    .await;
    assert!(!is_taken(&peer, dialling()).await);
    drop(good);
}

/// A connection from another address of this machine.
async fn from(address: &str, to: std::net::SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_all_seats_makes_room_for_another_source() {
    let limits = ServerLimits {
        connections: 8,
        handshake: Duration::from_secs(60),
        ..ServerLimits::default()
    };
    let peer = Running::start(limits);
    let mut stalled = Vec::new();
    for _ in 0..8 {
        stalled.push(TcpStream::connect(peer.address).await.unwrap());
    }
    let config = Arc::new(dialling());
    let dial = async |tcp| {
        let name = ServerName::try_from("holdfast").unwrap();
        TlsConnector::from(config.clone()).connect(name, tcp).await
    };
    let one = dial(from("127.0.0.21", peer.address).await).await.unwrap();
    let two = dial(from("127.0.0.22", peer.address).await).await.unwrap();
    let mut ended = 0;
    for tcp in &mut stalled {
        let mut byte = [0; 1];
        let read = tcp.read(&mut byte);
        let read = tokio::time::timeout(Duration::from_millis(50), read).await;
        ended += usize::from(read.is_ok());
    }
    assert_eq!(ended, 2, "one for each that came");
    drop((one, two));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_of_some_sources_do_not_hold_up_those_of_others() {
    let limits =
        ServerLimits { handshakes: 16, handshake: Duration::from_secs(60), ..Default::default() };
    let peer = Running::start(limits);
    let mut stalled = Vec::new();
    for source in ["127.0.0.7", "127.0.0.8", "127.0.0.9"] {
        for _ in 0..20 {
            stalled.push(from(source, peer.address).await);
        }
    }
    tokio::time::timeout(LIMIT, async { assert!(is_taken(&peer, dialling()).await) })
        .await
        .expect("others are taken");
    drop(stalled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_never_speaks_http2_ends() {
    let limits = ServerLimits { handshake: Duration::from_secs(1), ..ServerLimits::default() };
    let peer = Running::start(limits);
    // Nothing, and not all of what it begins with.
    for said in [&b""[..], b"PRI * HTTP/2.0\r\n\r\nSM"] {
        let tcp = TcpStream::connect(peer.address).await.unwrap();
        let name = ServerName::try_from("holdfast").unwrap();
        let connector = TlsConnector::from(Arc::new(dialling()));
        let mut tls = connector.connect(name, tcp).await.unwrap();
        tls.write_all(said).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(LIMIT, tls.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "after {} bytes", said.len());
    }
}

/// Frames that mean work and carry nothing, as fast as they go: a third of a microsecond of processor each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_carry_nothing_are_read_at_a_pace_while_others_are_served() {
    let peer = Running::start(ServerLimits::default());
    let tcp = TcpStream::connect(peer.address).await.unwrap();
    let name = ServerName::try_from("holdfast").unwrap();
    let mut tls = TlsConnector::from(Arc::new(dialling())).connect(name, tcp).await.unwrap();
    tls.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    // 40 MiB of updates of the connection's window. Read as fast as they come they are gone in two seconds; at their pace, with all that
    // sockets hold, in more than a minute.
    let updates = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1].repeat(1 << 16);
    let flood = async {
        for _ in 0..50 {
            tls.write_all(&updates).await.unwrap();
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(4), flood).await.is_err());
    let found = client().find(&peer.endpoint(), of(ID), LIMIT).await;
    assert!(found.is_ok(), "{found:?}");
}
