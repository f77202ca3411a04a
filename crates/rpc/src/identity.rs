//! Who this side is on a connection: a certificate that carries its key, and the network it speaks.
//!
//! The certificate is libp2p-tls's form: a self-signed P-256 certificate made anew at each start,
//! with an extension in which the secp256k1 key signs the P-256 key. TLS libraries do not speak
//! secp256k1, so this is how a connection proves such a key without a protocol of our own.
//!
//! Invariants: TLS 1.3 alone; one ALPN protocol, which names the network; no key log, no tickets,
//! no resumption, no early data (a resumed session would not prove the key again). Asserted in
//! `tests/handshake.rs`.

use std::fmt;
use std::sync::Arc;

use crypto::seal::Library;
use crypto::{NetworkId, PublicKey, SecretKey};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig, SupportedCipherSuite};

use crate::RpcError;
use crate::verifier::{CallerVerifier, PeerVerifier};

/// What comes before the network id in the ALPN protocol.
pub(crate) const ALPN_PREFIX: &str = "h2+holdfast/1/";

/// TLS material of one key in one network, in memory only. It proves the key for as long as the
/// process lives; the secret key itself is not kept.
pub struct Identity {
    key: PublicKey,
    network: NetworkId,
    certificate: Arc<SingleCertAndKey>,
    provider: Arc<CryptoProvider>,
}

impl Identity {
    /// Makes a certificate for this key in this network.
    ///
    /// # Errors
    /// [`RpcError::Certificate`], [`RpcError::Key`] and [`RpcError::Tls`]: none is expected.
    pub fn new(secret: SecretKey, network: NetworkId) -> Result<Arc<Self>, RpcError> {
        let key = secret.public();
        let mut bytes = secret.to_bytes();
        // It wipes what it is given.
        let signer = libp2p_identity::secp256k1::SecretKey::try_from_bytes(&mut *bytes)?;
        let pair = libp2p_identity::secp256k1::Keypair::from(signer);
        let (certificate, private) = libp2p_tls::certificate::generate(&pair.into())?;
        let signing = aws_lc_rs::sign::any_ecdsa_type(&private)?;
        let certified = CertifiedKey::new(vec![certificate], signing);
        Ok(Arc::new(Self {
            key,
            network,
            certificate: Arc::new(SingleCertAndKey::from(certified)),
            provider: Arc::new(provider()),
        }))
    }

    /// The key it proves.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// The network it speaks.
    pub fn network(&self) -> &NetworkId {
        &self.network
    }

    /// The one ALPN protocol: HTTP/2 in this network.
    pub(crate) fn protocol(&self) -> Vec<u8> {
        format!("{ALPN_PREFIX}{}", self.network).into_bytes()
    }

    /// For one dial: `verifier` says who may answer, and learns who did.
    pub(crate) fn dialling(&self, verifier: Arc<PeerVerifier>) -> Result<ClientConfig, RpcError> {
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(self.certificate.clone());
        config.alpn_protocols = vec![self.protocol()];
        config.resumption = rustls::client::Resumption::disabled();
        config.enable_sni = false;
        config.enable_early_data = false;
        Ok(config)
    }

    /// For a listener: any key may call, but it must prove one.
    pub(crate) fn listening(&self) -> Result<ServerConfig, RpcError> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(CallerVerifier))
            .with_cert_resolver(self.certificate.clone());
        config.alpn_protocols = vec![self.protocol()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(config)
    }
}

/// The ALPN protocol of the second listener: any gRPC client offers it.
pub(crate) const PLAIN_PROTOCOL: &[u8] = b"h2";

impl Identity {
    /// For a listener whose callers prove no key by TLS: only this side shows its certificate.
    pub(crate) fn listening_alone(&self) -> Result<ServerConfig, RpcError> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(self.certificate.clone());
        config.alpn_protocols = vec![PLAIN_PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(config)
    }
}

/// For one dial of such a listener.
pub(crate) fn dialling_alone(verifier: Arc<PeerVerifier>) -> Result<ClientConfig, RpcError> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![PLAIN_PROTOCOL.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} in {})", self.key, self.network)
    }
}

/// The suites of our connections: AES-GCM, with the CPU's instructions the fastest by far, and of the library whose code for
/// it is faster on this one.
pub fn cipher_suites() -> Vec<SupportedCipherSuite> {
    use aws_lc_rs::cipher_suite as aws;
    use rustls::crypto::ring::cipher_suite as ring;
    match Library::fastest() {
        Library::AwsLc => vec![aws::TLS13_AES_128_GCM_SHA256, aws::TLS13_AES_256_GCM_SHA384],
        Library::Ring => vec![ring::TLS13_AES_128_GCM_SHA256, ring::TLS13_AES_256_GCM_SHA384],
    }
}

/// The key exchange is hybrid where both sides can, so that what is recorded today stays closed to a
/// quantum computer.
fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: cipher_suites(),
        kx_groups: vec![kx_group::X25519MLKEM768, kx_group::X25519],
        ..aws_lc_rs::default_provider()
    }
}
