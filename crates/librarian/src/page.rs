//! The operator's page: metrics, health and status over HTTP, on a loopback address alone.
//!
//! A browser on this machine shows pages of anybody, whose name may be made to lead here (DNS rebinding): so it answers whoever asks
//! for an address, or for a name of one label as this machine and its neighbours have, and nobody who asks for a name of the DNS.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

use crate::error::LibrarianError;
use crate::librarian::Librarian;

/// The content type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Connections at once; further ones wait in the system's queue.
const CONNECTIONS_MAX: usize = 32;
/// How long a connection may last, whatever it does.
const CONNECTION_FOR: Duration = Duration::from_secs(5);

/// A page that is bound to its address and not served yet.
#[derive(Debug)]
pub struct MetricsPage {
    listener: TcpListener,
    address: SocketAddr,
}

impl MetricsPage {
    /// Takes the address; port 0 takes a free one.
    ///
    /// # Errors
    /// [`LibrarianError::NotLoopback`], [`LibrarianError::Listen`].
    pub async fn bind(address: SocketAddr) -> Result<Self, LibrarianError> {
        if !address.ip().is_loopback() {
            return Err(LibrarianError::NotLoopback(address));
        }
        let failed = |source| LibrarianError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the page until `stop` is done. Run it past the librarian's own stop, so that
    /// `/healthz` can say that it drains.
    ///
    /// # Errors
    /// [`LibrarianError::Listen`] where the listener broke.
    pub async fn serve(
        self,
        librarian: Arc<Librarian>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), LibrarianError> {
        let pages = Router::new()
            .route("/metrics", get(metrics))
            .route("/status", get(status))
            .layer(axum::middleware::from_fn(by_address))
            // Whether it serves anybody may know.
            .route("/healthz", get(healthz))
            .with_state(librarian);
        let address = self.address;
        let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let bounded = BoundedListener { listener: self.listener, seats };
        let serving = axum::serve(bounded, pages).with_graceful_shutdown(stop);
        serving.await.map_err(|source| LibrarianError::Listen { address, source })
    }
}

/// Takes a connection when there is room for one more.
struct BoundedListener {
    listener: TcpListener,
    seats: Arc<Semaphore>,
}

impl Listener for BoundedListener {
    type Io = Bounded;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Bounded, SocketAddr) {
        let seat = self.seats.clone().acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (Bounded { stream, until: Box::pin(sleep(CONNECTION_FOR)), _seat: seat }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends [`CONNECTION_FOR`] after its start: one that asks for nothing, or never to the end, would hold its place
/// and the librarian's stop for ever.
struct Bounded {
    stream: TcpStream,
    until: Pin<Box<Sleep>>,
    _seat: Option<OwnedSemaphorePermit>,
}

impl Bounded {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.until.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Binds and serves the page until `stop` is done (see [`MetricsPage`]).
///
/// # Errors
/// [`LibrarianError::NotLoopback`], [`LibrarianError::Listen`].
pub async fn serve_metrics(
    listen: SocketAddr,
    librarian: Arc<Librarian>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), LibrarianError> {
    MetricsPage::bind(listen).await?.serve(librarian, stop).await
}

/// Refuses who asks for a name that anybody may have made to lead here.
async fn by_address(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or("."));
    match host.is_none_or(is_near) {
        true => next.run(request).await,
        false => {
            let text = "this page is asked for by its address or as localhost\n";
            (StatusCode::MISDIRECTED_REQUEST, text).into_response()
        }
    }
}

/// Whether a `Host`, with or without a port, is an address or a name of one label.
fn is_near(host: &str) -> bool {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let v6 = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    !name.contains('.')
        || name.parse::<Ipv4Addr>().is_ok()
        || v6.is_some_and(|name| name.parse::<Ipv6Addr>().is_ok())
}

async fn metrics(State(librarian): State<Arc<Librarian>>) -> Response {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], librarian.metrics()).into_response()
}

async fn healthz(State(librarian): State<Arc<Librarian>>) -> Response {
    if librarian.is_serving() {
        (StatusCode::OK, "serving\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response()
    }
}

async fn status(State(librarian): State<Arc<Librarian>>) -> Response {
    match serde_json::to_string(&librarian.status()) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json + "\n").into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_a_name_that_may_lead_anywhere_is_told_from_others() {
        let near =
            ["127.0.0.1", "127.0.0.1:9100", "localhost", "LocalHost:1", "peer:9100", "[::1]:9100"];
        for host in near.into_iter().chain(["", "[::ffff:127.0.0.1]", "10.0.0.7:80"]) {
            assert!(is_near(host), "{host}");
        }
        let names = [
            "evil.example",
            "evil.example:9100",
            "localhost.evil.example:1",
            "127.0.0.1.evil.example",
        ];
        for host in names.into_iter().chain([
            ".",
            "evil.",
            "user@127.0.0.1",
            "127.0.0.1:9100:1",
            "127.0.0.1:x",
        ]) {
            assert!(!is_near(host), "{host}");
        }
    }
}
