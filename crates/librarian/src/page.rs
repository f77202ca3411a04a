//! The operator's page: metrics, health and status over HTTP, on a loopback address alone.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
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
            .route("/healthz", get(healthz))
            .route("/status", get(status))
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
