//! What counts as a certificate: exactly one, self-signed with P-256, carrying a secp256k1 key that
//! signed it.
//!
//! libp2p-tls parses and checks (self-signature, extension, validity; unknown critical extensions are
//! refused); its own verifiers are not used, because they accept every key type and know nothing of
//! who is expected. webpki cannot be used at all: it refuses the critical extension.

use std::sync::{Arc, LazyLock, OnceLock};

use crypto::PublicKey;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};

use crate::proven::Proven;

static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> =
    LazyLock::new(|| default_provider().signature_verification_algorithms);

/// The one signature of a handshake: P-256 with SHA-256.
const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
/// Why a certificate that parses does not count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// More than one.
    #[error("a chain of certificates: exactly one is allowed")]
    Chain,
    /// Its identity is of another type, or not on the curve.
    #[error("the identity is not a secp256k1 key")]
    NotSecp256k1,
}

pub(crate) fn refuse(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}

/// What a presented certificate proves, once the handshake's signature is checked too.
pub(crate) fn key_of(
    certificate: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
) -> Result<PublicKey, Error> {
    if !others.is_empty() {
        return Err(refuse(Refused::Chain));
    }
    Ok(Proven::of(certificate)?.key)
}

fn check_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    if signed.scheme != SCHEME {
        return Err(Error::InvalidCertificate(CertificateError::BadSignature));
    }
    let proven = Proven::of(certificate)?;
    verify_tls13_signature_with_raw_key(message, &proven.signs, signed, &ALGORITHMS)
}

/// The configurations allow TLS 1.3 alone; should one ever not, no signature counts.
fn refuse_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.2 is not spoken here".into()))
}

/// Checks who answers a dial, before our own certificate is shown.
#[derive(Debug)]
pub(crate) struct PeerVerifier {
    expected: Option<PublicKey>,
    seen: OnceLock<PublicKey>,
}

impl PeerVerifier {
    /// `None` takes any key.
    pub(crate) fn new(expected: Option<PublicKey>) -> Arc<Self> {
        Arc::new(Self { expected, seen: OnceLock::new() })
    }

    /// The key that the answering side's certificate carried, expected or not.
    pub(crate) fn seen(&self) -> Option<PublicKey> {
        self.seen.get().copied()
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let key = key_of(certificate, others)?;
        let key = *self.seen.get_or_init(|| key);
        if self.expected.is_some_and(|expected| expected != key) {
            return Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            ));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        check_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SCHEME]
    }
}

/// Checks that a caller proves some key; what the key may do is decided above.
#[derive(Debug)]
pub(crate) struct CallerVerifier;

impl ClientCertVerifier for CallerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        key_of(certificate, others)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        check_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SCHEME]
    }
}
