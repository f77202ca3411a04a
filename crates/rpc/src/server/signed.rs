//! The second listener: for callers that cannot show a certificate, each request is signed.
//!
//! ```text
//! TCP -> seat -> TLS (this side alone) -> HTTP/2 -> gate -> checker -> handler -> Service
//! ```
//! The service is the same, the caller is the key that signed the request, and the pass of the
//! caller comes with each request. A signature a request costs 20 us here and a hash of the whole
//! message: where TLS can prove the key, [`crate::Server`] is the listener. The bytes are in
//! `docs/formats/wire.md`, "Signed requests".
//!
//! Limits: a message is hashed before it is handled, so it is read whole; forms in which the caller
//! streams are not served (one token would have to cover what is not yet written). Those of
//! [`ServerLimits`] hold as they do for the first listener, but count apart from it.

mod checker;
mod introduced;
mod remembered;

use std::net::SocketAddr;
use std::sync::Arc;

use crypto::{NetworkId, PeerId, Suite};
use env::Env;
use env::calls::Service;
use tokio_util::sync::CancellationToken;

pub(crate) use self::checker::Checker;
use super::{Listening, Serving, accept, listen_on};
use crate::limits::ServerLimits;
use crate::{Identity, RpcError};

/// Request ids kept at once by default: three quarters are for callers with a pass. About 40 MB
/// when full, 4,000 requests a second with tokens of a minute.
pub const REMEMBERED_IDS_MAX: usize = 1 << 18;

/// What lies between a caller of signed requests and the peer.
#[derive(Clone, Debug)]
pub enum SignedTransport {
    /// TLS 1.3: the peer proves its key by the same certificate as on the first listener, the caller
    /// shows none. ALPN is `h2`.
    Tls(Arc<Identity>),
    /// HTTP/2 over plain TCP, on loopback addresses alone: for a TLS proxy on the same machine.
    Plain,
}

/// Whose the listener is.
#[derive(Clone, Debug)]
pub struct SignedOptions {
    /// The network that tokens must name.
    pub network: NetworkId,
    /// The peer itself: the audience that tokens must name.
    pub peer: PeerId,
    /// The network's suite: in `libri-1` the original's bare tokens are taken too.
    pub suite: Suite,
    /// What requests come through.
    pub transport: SignedTransport,
    /// Request ids kept at once, see [`REMEMBERED_IDS_MAX`]; beyond it callers are told *busy*.
    pub remembered_ids_max: usize,
}

impl SignedOptions {
    /// Options with the default bound.
    pub fn new(network: NetworkId, peer: PeerId, suite: Suite, transport: SignedTransport) -> Self {
        Self { network, peer, suite, transport, remembered_ids_max: REMEMBERED_IDS_MAX }
    }
}

/// A listener for signed requests that is open and not served yet.
#[derive(Debug)]
pub struct SignedServer {
    listener: Listening,
    address: SocketAddr,
    options: SignedOptions,
    limits: ServerLimits,
}

impl SignedServer {
    /// Opens the listener on `HOST:PORT`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`RpcError::Listen`]; [`RpcError::NotLoopback`] for plain TCP on another address.
    pub fn bind(
        listen: &str,
        options: SignedOptions,
        limits: ServerLimits,
    ) -> Result<Self, RpcError> {
        let (listener, address) = listen_on(listen)?;
        if matches!(options.transport, SignedTransport::Plain) && !address.ip().is_loopback() {
            return Err(RpcError::NotLoopback { address: listen.to_owned() });
        }
        Ok(Self { listener, address, options, limits })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers with `service` until `stop`, as [`crate::Server::serve`] does. Tokens issued before
    /// this was called do not count.
    ///
    /// # Errors
    /// As [`crate::Server::serve`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn serve(
        self,
        service: Arc<dyn Service>,
        env: Env,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(), RpcError>> + Send + 'static {
        let Self { listener, address, options, limits } = self;
        let proof = match &options.transport {
            SignedTransport::Tls(identity) => accept::Proof::Alone(identity.clone()),
            SignedTransport::Plain => accept::Proof::Nothing,
        };
        let signed = Some(Arc::new(Checker::new(options, service.clone(), env.clone())));
        Serving { listener, address, proof, limits, signed }.run(service, env, stop)
    }
}
