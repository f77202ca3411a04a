//! The operator's page: metrics, health and status over HTTP, on a loopback address alone.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::error::LibrarianError;
use crate::librarian::Librarian;

/// The content type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

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
        let serving = axum::serve(self.listener, pages).with_graceful_shutdown(stop);
        serving.await.map_err(|source| LibrarianError::Listen { address, source })
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
