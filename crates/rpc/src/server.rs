//! The answering side: a listener that proves callers, and the librarian's service behind it.
//!
//! ```text
//! TCP -> seat -> TLS within 5 s -> key, network -> HTTP/2 -> gate -> message -> handler -> Service
//!        accept.rs                 connection.rs            gate.rs  unary.rs   handlers.rs
//!                                                           metered.rs (bytes)  streams.rs
//! ```
//! Stopping: the listener closes, health says NOT_SERVING, new calls are refused, streams end,
//! calls in flight finish within [`ServerLimits::drain`]; then connections are closed.

mod accept;
mod connection;
mod gate;
mod handlers;
mod members;
mod metered;
mod seats;
mod share;
pub(crate) mod signed;
mod streams;
mod unary;
mod unread;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use env::Env;
use env::calls::Service;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;

use crate::limits::{
    BATCH_MESSAGE_BYTES_MAX, CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, HEADER_LIST_BYTES_MAX,
    KEEP_ALIVE_SERVER_EVERY, KEEP_ALIVE_WAIT, NARROW_CONNECTION_WINDOW_BYTES,
    NARROW_FRAME_BYTES_MAX, NARROW_STREAM_WINDOW_BYTES, RESET_STREAMS_MAX, STREAM_WINDOW_BYTES,
    STREAMS_MAX, ServerLimits,
};
use crate::proto::DESCRIPTORS;
use crate::proto::librarian_server::LibrarianServer;
use crate::socket::{Listen, Listener, unpaced};
use crate::{Identity, RpcError};

/// Connections that are proven and wait to be served.
const PROVEN_WAITING_MAX: usize = 64;
/// After the last call, connections get this long to close by themselves.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// The name under which health knows the service.
const SERVICE_NAME: &str = "holdfast.v1.Librarian";

/// A listener that is open and not served yet: callers wait in the kernel's queue.
#[derive(Debug)]
pub struct Server {
    listener: Listening,
    address: SocketAddr,
    identity: Arc<Identity>,
    limits: ServerLimits,
}

impl Server {
    /// Opens the listener on `HOST:PORT`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`RpcError::Listen`].
    pub fn bind(
        listen: &str,
        identity: Arc<Identity>,
        limits: ServerLimits,
    ) -> Result<Self, RpcError> {
        let (listener, address) = listen_on(listen)?;
        Ok(Self { listener, address, identity, limits })
    }

    /// Takes connections from this listener in the place of one of the system.
    pub fn over(listener: Box<dyn Listen>, identity: Arc<Identity>, limits: ServerLimits) -> Self {
        let address = listener.address();
        Self { listener: Listening::Other(listener), address, identity, limits }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers with `service` until `stop`, then lets calls in flight finish and returns.
    ///
    /// Dropping the future closes the listener and all connections at once.
    ///
    /// # Errors
    /// [`RpcError::Listen`], [`RpcError::Tls`], [`RpcError::Reflection`] at the start; a broken
    /// connection or a failed call never ends it.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn serve(
        self,
        service: Arc<dyn Service>,
        env: Env,
        stop: CancellationToken,
    ) -> Result<(), RpcError> {
        let Self { listener, address, identity, limits } = self;
        let proof = accept::Proof::Mutual(identity);
        let signed = None;
        Box::pin(Serving { listener, address, proof, limits, signed }.run(service, env, stop)).await
    }
}

/// A listener before anything is served on it, which may be outside a runtime.
pub(crate) enum Listening {
    System(std::net::TcpListener),
    Other(Box<dyn Listen>),
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listening")
    }
}

pub(crate) fn listen_on(listen: &str) -> Result<(Listening, SocketAddr), RpcError> {
    let failed = |source| RpcError::Listen { address: listen.to_owned(), source };
    let listener = std::net::TcpListener::bind(listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    // Connections that it takes begin with what it has.
    unpaced(&listener, address);
    Ok((Listening::System(listener), address))
}

/// A listener of either kind, and what it takes to serve it.
struct Serving {
    listener: Listening,
    address: SocketAddr,
    proof: accept::Proof,
    limits: ServerLimits,
    /// Where requests prove their callers.
    signed: Option<Arc<signed::Checker>>,
}

impl Serving {
    async fn run(
        self,
        service: Arc<dyn Service>,
        env: Env,
        stop: CancellationToken,
    ) -> Result<(), RpcError> {
        let listener = match self.listener {
            Listening::Other(listener) => Listener::Other(listener),
            Listening::System(listener) => {
                let address = self.address.to_string();
                let listener = tokio::net::TcpListener::from_std(listener)
                    .map_err(|source| RpcError::Listen { address, source })?;
                Listener::System(listener)
            }
        };
        let closed = CancellationToken::new();
        // Connections are tasks of their own: they end with this future, however it ends.
        let _close_on_drop = closed.clone().drop_guard();
        let members = members::Members::new(self.limits, service.clone());
        let acceptor = accept::Acceptor::new(
            &self.proof,
            env.clone(),
            self.limits,
            members.clone(),
            closed.clone(),
        )?;

        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status(SERVICE_NAME, ServingStatus::Serving).await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let handlers = Arc::new(handlers::Handlers {
            service,
            env: env.clone(),
            call: self.limits.call,
            stop: stop.clone(),
            members,
        });
        if let Some(checker) = &self.signed {
            checker.begun().await;
        }
        let (signed, stopping) = (self.signed, stop.clone());
        let gate = gate::Gate::new(env.clone(), self.limits, stopping, signed, handlers.clone());
        let librarian = LibrarianServer::from_arc(handlers)
            .max_decoding_message_size(BATCH_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(BATCH_MESSAGE_BYTES_MAX);
        let router = |wide| {
            http2(wide)
                .layer(gate::GateLayer(gate.clone()))
                .add_service(health_service.clone())
                .add_service(reflection.clone())
                .add_service(librarian.clone())
        };

        let (narrow, narrow_proven) = mpsc::channel(PROVEN_WAITING_MAX);
        let (wide, wide_proven) = mpsc::channel(PROVEN_WAITING_MAX);
        let ready = accept::Ready { narrow, wide };
        let accepting = acceptor.run(listener, ready.clone(), stop.clone());
        let (closing, served) = (CancellationToken::new(), CancellationToken::new());
        let serving = async {
            let serve = |wide, proven| {
                let shutdown = closing.cancelled();
                router(wide).serve_with_incoming_shutdown(ReceiverStream::new(proven), shutdown)
            };
            let both = futures::join!(serve(false, narrow_proven), serve(true, wide_proven));
            served.cancel();
            both.0.and(both.1)
        };
        let draining = async {
            stop.cancelled().await;
            for name in ["", SERVICE_NAME] {
                health.set_service_status(name, ServingStatus::NotServing).await;
            }
            if env.within(self.limits.drain, gate.idle()).await.is_err() {
                tracing::warn!("calls were still in flight at the end of the drain");
            }
            closing.cancel();
            // While this end of the channel lives, the server does not take its end for the stop.
            drop(ready);
            let _ = env.within(CLOSE_GRACE, served.cancelled()).await;
            closed.cancel();
        };
        let all = async { futures::join!(accepting, serving, draining).1 };
        let outcome = tokio::select! {
            biased;
            outcome = all => outcome,
            () = gate.clone().end_unread() => Ok(()),
        };
        outcome.map_err(RpcError::from)
    }
}

/// HTTP/2 as measured, and bounded; wide enough for records or not.
fn http2(wide: bool) -> tonic::transport::Server {
    let (stream, connection, frame) = match wide {
        true => (STREAM_WINDOW_BYTES, CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX),
        false => {
            (NARROW_STREAM_WINDOW_BYTES, NARROW_CONNECTION_WINDOW_BYTES, NARROW_FRAME_BYTES_MAX)
        }
    };
    tonic::transport::Server::builder()
        .initial_stream_window_size(stream)
        .initial_connection_window_size(connection)
        .max_frame_size(frame)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_max_header_list_size(HEADER_LIST_BYTES_MAX)
        .http2_max_pending_accept_reset_streams(Some(RESET_STREAMS_MAX))
        .http2_max_local_error_reset_streams(Some(RESET_STREAMS_MAX))
        .http2_keepalive_interval(Some(KEEP_ALIVE_SERVER_EVERY))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_WAIT))
}
