//! One connection to a peer: dialled, proven, introduced, counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crypto::{PeerId, PublicKey};
use env::calls::{CallError, Endpoint};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::Channel;

use super::SignedDial;
use crate::limits::{
    CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, HEADER_LIST_BYTES_MAX, KEEP_ALIVE_EVERY,
    KEEP_ALIVE_WAIT, RESET_STREAMS_MAX, STREAM_WINDOW_BYTES,
};
use crate::paced::{Pace, Paced, Pacing};
use crate::signing::{Line, Signer};
use crate::socket::{self, Dial, Tcp, Wire};
use crate::status::causes;
use crate::verifier::PeerVerifier;
use crate::{Identity, identity};

/// What both the pool and the socket know of a connection.
#[derive(Debug, Default)]
struct Life {
    /// The socket ended.
    over: AtomicBool,
    /// Ends the socket.
    close: CancellationToken,
}

/// A proven connection.
pub(crate) struct Connection {
    /// Its calls go here; clones are cheap.
    pub(crate) line: Line,
    /// Who proved to be there; nobody where requests are signed for the peer instead.
    pub(crate) peer: Option<PeerId>,
    life: Arc<Life>,
    /// Calls in flight.
    pub(crate) in_flight: AtomicUsize,
    /// When it was last used, milliseconds of the clock's `elapsed`.
    pub(crate) used_ms: AtomicU64,
    /// When it last introduced itself, likewise.
    pub(crate) introduced_ms: AtomicU64,
}

impl Connection {
    /// Whether calls may go out on it.
    pub(crate) fn is_alive(&self) -> bool {
        !self.life.over.load(Ordering::Acquire) && !self.life.close.is_cancelled()
    }

    /// Ends it; calls in flight fail.
    pub(crate) fn close(&self) {
        self.life.close.cancel();
    }

    /// Dials one address, by a socket of the system where `through` is `None`, and checks who answers there.
    #[cfg(test)]
    pub(crate) async fn dial(
        identity: &Identity,
        through: Option<&dyn Dial>,
        pacing: &Pacing,
        to: &Endpoint,
    ) -> Result<Self, CallError> {
        let tcp = connect(through, to).await?;
        Self::proven(identity, pacing, tcp, to).await
    }

    /// Checks who answers on a socket and which network it speaks. The caller bounds the time.
    pub(super) async fn proven(
        identity: &Identity,
        pacing: &Pacing,
        tcp: Tcp,
        to: &Endpoint,
    ) -> Result<Self, CallError> {
        let unreachable = |error: &(dyn std::error::Error + 'static)| unreachable(to, error);
        let expected = to.peer.map(|peer| *peer.key());
        let verifier = PeerVerifier::new(expected);
        let config = identity.dialling(verifier.clone()).map_err(|error| unreachable(&error))?;
        let tls = handshake(config, &verifier, expected, tcp, to).await?;
        if tls.get_ref().1.alpn_protocol() != Some(&identity.protocol()[..]) {
            let reason = NO_PROTOCOL.to_owned();
            return Err(CallError::WrongPeer { address: to.address.clone(), reason });
        }
        let seen = verifier.seen().map(PeerId::new);
        Self::over(Either::Left(tls), None, seen, pacing, to).await
    }

    /// Dials a listener for signed requests. Without TLS the peer must be known beforehand: it is
    /// what the tokens are for.
    pub(crate) async fn dial_signed(
        signer: &Arc<Signer>,
        through: SignedDial,
        pacing: &Pacing,
        to: &Endpoint,
    ) -> Result<Self, CallError> {
        let tcp = connect(None, to).await?;
        let expected = to.peer.map(|peer| *peer.key());
        let (socket, seen) = match through {
            SignedDial::Plain => (Either::Right(tcp), None),
            SignedDial::Tls => {
                let verifier = PeerVerifier::new(expected);
                let config = identity::dialling_alone(verifier.clone())
                    .map_err(|error| unreachable(to, &error))?;
                let tls = handshake(config, &verifier, expected, tcp, to).await?;
                (Either::Left(tls), verifier.seen())
            }
        };
        let seen = seen.map(PeerId::new);
        let Some(peer) = seen.or(to.peer) else {
            let reason = "a request in the clear is signed for one peer: name it".to_owned();
            return Err(CallError::Invalid { reason });
        };
        Self::over(socket, Some((signer.clone(), peer)), seen, pacing, to).await
    }

    async fn over(
        stream: Stream,
        signing: Option<(Arc<Signer>, PeerId)>,
        peer: Option<PeerId>,
        pacing: &Pacing,
        to: &Endpoint,
    ) -> Result<Self, CallError> {
        let life = Arc::new(Life::default());
        let closed = Box::pin(life.close.clone().cancelled_owned());
        let (own, paced) = (Pace::of_a_house(), pacing.connection());
        let socket = Socket { stream, life: life.clone(), closed, own, paced };
        let channel = channel(socket).await.map_err(|error| unreachable(to, &error))?;
        let line = Line { channel, signing };
        let (in_flight, used_ms, introduced_ms) = Default::default();
        Ok(Self { line, peer, life, in_flight, used_ms, introduced_ms })
    }
}

fn unreachable(to: &Endpoint, error: &(dyn std::error::Error + 'static)) -> CallError {
    CallError::Unreachable { address: to.address.clone(), reason: causes(error) }
}

/// A socket to the endpoint's address.
pub(super) async fn connect(through: Option<&dyn Dial>, to: &Endpoint) -> Result<Tcp, CallError> {
    Wire::dial(through, &to.address).await.map_err(|error| unreachable(to, &error))
}

async fn handshake(
    config: rustls::ClientConfig,
    verifier: &PeerVerifier,
    expected: Option<PublicKey>,
    tcp: Tcp,
    to: &Endpoint,
) -> Result<TlsStream<Tcp>, CallError> {
    // No name is sent and none is checked: the key is the name.
    let name = ServerName::try_from("holdfast").map_err(|error| unreachable(to, &error))?;
    let connector = TlsConnector::from(Arc::new(config));
    let larger =
        |tls: &mut rustls::ClientConnection| tls.set_buffer_limit(Some(socket::TLS_WRITE_BYTES));
    connector.connect_with(name, tcp, larger).await.map_err(|error| {
        match mismatch(&error, expected, verifier.seen()) {
            Some(reason) => CallError::WrongPeer { address: to.address.clone(), reason },
            None => unreachable(to, &error),
        }
    })
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.life.close.cancel();
    }
}

const NO_PROTOCOL: &str = "it does not speak this network's protocol";

/// Why a failed handshake means that somebody else, or another network, is there.
fn mismatch(
    error: &io::Error,
    expected: Option<PublicKey>,
    seen: Option<PublicKey>,
) -> Option<String> {
    let tls = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    match tls {
        rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)
        | rustls::Error::NoApplicationProtocol => Some("it belongs to another network".to_owned()),
        rustls::Error::PeerIncompatible(_) => Some(NO_PROTOCOL.to_owned()),
        rustls::Error::InvalidCertificate(_) => Some(match (expected, seen) {
            (Some(expected), Some(seen)) if expected != seen => {
                format!("its key is {seen}, expected {expected}")
            }
            _ => format!("its certificate does not count: {tls}"),
        }),
        _ => None,
    }
}

/// HTTP/2 over a proven socket. The channel has this one socket: when it ends, so does the channel,
/// because a new connection must be proven and introduced before calls go out on it.
async fn channel(socket: Socket) -> Result<Channel, tonic::transport::Error> {
    let mut once = Some(TokioIo::new(socket));
    let connector = tower::service_fn(move |_| {
        std::future::ready(once.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
    });
    tonic::transport::Endpoint::from_static("http://holdfast")
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .http2_max_header_list_size(HEADER_LIST_BYTES_MAX)
        .http2_max_local_error_reset_streams(RESET_STREAMS_MAX)
        .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
        .keep_alive_timeout(KEEP_ALIVE_WAIT)
        // A connection without calls is silent: the server looks after it now and then, the pool
        // closes it soon, and a call that finds it dead has its own limit.
        .keep_alive_while_idle(false)
        .connect_with_connector(connector)
        .await
}

/// TLS, or plain TCP on the same machine.
type Stream = Either<TlsStream<Tcp>, Tcp>;

/// The stream of one connection, which notes its end.
struct Socket {
    stream: Stream,
    life: Arc<Life>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// What the peer may send that carries nothing.
    own: Pace,
    paced: Paced,
}

impl Socket {
    /// An error where the connection is to end, in writes too: where the peer takes nothing, HTTP/2 reads no more.
    fn goes_on(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let ended =
            self.closed.as_mut().poll(cx).map(|()| Err(io::ErrorKind::ConnectionAborted.into()));
        match self.noted(ended) {
            Poll::Ready(ended) => ended,
            Poll::Pending => Ok(()),
        }
    }

    fn noted<T>(&self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(outcome, Poll::Ready(Err(_))) {
            self.life.over.store(true, Ordering::Release);
        }
        outcome
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.life.over.store(true, Ordering::Release);
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.goes_on(cx)?;
        ready!(this.paced.poll_ready(cx));
        let before = into.filled().len();
        let outcome = Pin::new(&mut this.stream).poll_read(cx, into);
        if matches!(outcome, Poll::Ready(Ok(()))) && into.filled().len() == before {
            this.life.over.store(true, Ordering::Release);
        }
        this.paced.read(into.filled().get(before..).unwrap_or_default(), &this.own);
        this.noted(outcome)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.goes_on(cx)?;
        let outcome = Pin::new(&mut this.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(bytes)) = &outcome {
            this.paced.wrote(*bytes);
        }
        this.noted(outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.goes_on(cx)?;
        let outcome = Pin::new(&mut this.stream).poll_write_vectored(cx, bytes);
        if let Poll::Ready(Ok(bytes)) = &outcome {
            this.paced.wrote(*bytes);
        }
        this.noted(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.goes_on(cx)?;
        let outcome = Pin::new(&mut this.stream).poll_flush(cx);
        this.noted(outcome)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// Milliseconds of a duration, for the counters above.
pub(crate) fn millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
