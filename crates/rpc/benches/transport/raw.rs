//! tokio-rustls alone: a head of two lengths, so many bytes up, so many bytes down.
//!
//! Each worker has a connection of its own: a request and an answer by turns on each.

use std::sync::Arc;

use async_trait::async_trait;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::measure::{Kind, LARGE_BYTES, Way};

const CONNECTIONS: usize = 64;

/// Takes any certificate: who is who is not measured here.
#[derive(Debug)]
pub(crate) struct Anybody(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone".into()))
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.supported_schemes()
    }
}

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone".into()))
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Both sides' configuration, with the ciphers that our connections agree on.
pub(crate) fn tls(protocol: &[u8]) -> (TlsAcceptor, TlsConnector) {
    let provider =
        Arc::new(CryptoProvider { cipher_suites: rpc::cipher_suites(), ..default_provider() });
    let anybody = Arc::new(Anybody(provider.signature_verification_algorithms));
    let made = rcgen::generate_simple_self_signed(["holdfast".to_owned()]).expect("a certificate");
    let chain = vec![made.cert.der().clone()];
    let key = || PrivateKeyDer::Pkcs8(made.key_pair.serialize_der().into());
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .with_client_cert_verifier(anybody.clone())
        .with_single_cert(chain.clone(), key())
        .expect("a server's configuration");
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(anybody)
        .with_client_auth_cert(chain, key())
        .expect("a client's configuration");
    server.alpn_protocols = vec![protocol.to_vec()];
    client.alpn_protocols = vec![protocol.to_vec()];
    (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)))
}

struct Line {
    tls: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

pub(crate) struct Raw {
    lines: Vec<Mutex<Line>>,
}

impl Raw {
    pub(crate) async fn start() -> Arc<Self> {
        let (acceptor, connector) = tls(b"raw");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    tcp.set_nodelay(true).expect("an option");
                    let tls = acceptor.accept(tcp).await.expect("a handshake");
                    serve(tls).await;
                });
            }
        });
        let mut lines = Vec::new();
        for _ in 0..CONNECTIONS {
            let tcp = TcpStream::connect(address).await.expect("a connection");
            tcp.set_nodelay(true).expect("an option");
            let name = ServerName::try_from("holdfast").expect("a name");
            let tls = connector.connect(name, tcp).await.expect("a handshake");
            lines.push(Mutex::new(Line { tls, buffer: Vec::new() }));
        }
        Arc::new(Self { lines })
    }
}

/// Reads so many bytes up, answers so many down, until the end.
async fn serve(mut tls: tokio_rustls::server::TlsStream<TcpStream>) {
    let mut buffer = vec![0; LARGE_BYTES + 8];
    loop {
        let mut head = [0; 8];
        if tls.read_exact(&mut head).await.is_err() {
            return;
        }
        let len = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let (up, down) = (len(0) as usize, len(4) as usize);
        tls.read_exact(&mut buffer[..up]).await.expect("what was said to come");
        tls.write_all(&buffer[..down + 8]).await.expect("an answer");
        tls.flush().await.expect("an answer");
    }
}

#[async_trait]
impl Way for Raw {
    async fn call(&self, kind: Kind, worker: usize) {
        let (up, down) = kind.bytes();
        let mut line = self.lines[worker].lock().await;
        let Line { tls, buffer } = &mut *line;
        buffer.resize(LARGE_BYTES + 8, 7);
        let len = |bytes| u32::try_from(bytes).expect("small").to_be_bytes();
        buffer[..4].copy_from_slice(&len(up));
        buffer[4..8].copy_from_slice(&len(down));
        tls.write_all(&buffer[..up + 8]).await.expect("a request");
        tls.flush().await.expect("a request");
        tls.read_exact(&mut buffer[..down + 8]).await.expect("an answer");
    }
}
