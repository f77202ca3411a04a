//! What every call passes before its handler: the stop, the number of calls, the bytes of its
//! messages, its deadline, and the net under a handler that panics.
//!
//! One layer over all services. A unary call is bounded as a whole, its body included, so a caller
//! who sends slowly does not hold a handler. A streaming call is bounded until it begins to answer,
//! then message by message in `streams`. The health and reflection services pass even while the server stops: that is when
//! somebody asks them.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use env::Env;
use env::calls::CallError;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body::{Frame, SizeHint};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};

use super::connection::Peer;
use super::handlers::Handlers;
use super::metered::{Budget, Metered};
use super::signed::Checker;
use super::unary;
use crate::limits::{
    BATCH_MESSAGE_BYTES_MAX, RECORD_MESSAGE_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX, ServerLimits,
};
use crate::status::to_status;

/// The paths of our own service; others are health and reflection.
pub(super) const LIBRARIAN: &str = "/holdfast.v1.Librarian/";

/// What the layer knows of the whole server.
pub(super) struct Gate {
    env: Env,
    limits: ServerLimits,
    /// Cancelled when no new calls are taken.
    stop: CancellationToken,
    bytes: Arc<Semaphore>,
    calls: AtomicUsize,
    ended: Notify,
    /// On the listener for signed requests.
    signed: Option<Arc<Checker>>,
    /// Where calls of one message end; the others end in the services behind the gate.
    handlers: Arc<Handlers>,
}

impl Gate {
    pub(super) fn new(
        env: Env,
        limits: ServerLimits,
        stop: CancellationToken,
        signed: Option<Arc<Checker>>,
        handlers: Arc<Handlers>,
    ) -> Arc<Self> {
        let bytes = Arc::new(Semaphore::new(limits.request_bytes_in_flight));
        Arc::new(Self {
            env,
            limits,
            stop,
            bytes,
            calls: AtomicUsize::new(0),
            ended: Notify::new(),
            signed,
            handlers,
        })
    }

    /// Done when no call is in work.
    pub(super) async fn idle(&self) {
        loop {
            let ended = self.ended.notified();
            futures::pin_mut!(ended);
            // Registered before the count is read: an end between the two is not missed.
            ended.as_mut().enable();
            if self.calls.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }

    fn enter(self: &Arc<Self>) -> Result<InWork, CallError> {
        let in_work = InWork(self.clone());
        let before = self.calls.fetch_add(1, Ordering::SeqCst);
        if self.stop.is_cancelled() {
            let reason = "the peer is stopping".to_owned();
            return Err(CallError::Unreachable { address: String::new(), reason });
        }
        if before >= self.limits.calls {
            return Err(CallError::Busy { retry_after: Duration::from_millis(500) });
        }
        Ok(in_work)
    }
}

/// One call in work, until dropped.
struct InWork(Arc<Gate>);

impl Drop for InWork {
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}

/// The layer.
#[derive(Clone)]
pub(super) struct GateLayer(pub(super) Arc<Gate>);

impl<S> tower::Layer<S> for GateLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { gate: self.0.clone(), inner }
    }
}

/// The services behind the gate.
#[derive(Clone)]
pub(super) struct Gated<S> {
    gate: Arc<Gate>,
    inner: S,
}

/// What is allowed of one method.
struct Allowed {
    message_bytes_max: usize,
    /// Whether one deadline bounds the whole call.
    unary: bool,
}

fn allowed(path: &str) -> Allowed {
    let method = path.strip_prefix(LIBRARIAN).unwrap_or_default();
    let message_bytes_max = match method {
        "Store" | "Put" | "StoreStream" | "Committee" => RECORD_MESSAGE_BYTES_MAX,
        "StoreBatch" | "Objects" | "Lease" => BATCH_MESSAGE_BYTES_MAX,
        _ => SMALL_MESSAGE_BYTES_MAX,
    };
    let streams = ["Subscribe", "Watch", "FindStream", "VerifyStream", "StoreStream"];
    Allowed { message_bytes_max, unary: path.starts_with(LIBRARIAN) && !streams.contains(&method) }
}

/// The caller's own deadline: `grpc-timeout` is up to eight digits and a unit.
pub(super) fn deadline_of(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

fn refused(error: &CallError) -> Response<Body> {
    to_status(error).into_http()
}

impl<S> tower::Service<Request<Body>> for Gated<S>
where
    S: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The clone takes the place of the one that was polled ready.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        pass(self.gate.clone(), inner, request).boxed()
    }
}

async fn pass<S>(
    gate: Arc<Gate>,
    mut inner: S,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible>
where
    S: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
    S::Future: Send,
{
    let ours = request.uri().path().starts_with(LIBRARIAN);
    let allowed = allowed(request.uri().path());
    let in_work = match gate.enter() {
        Ok(in_work) => Some(in_work),
        Err(error) if ours => return Ok(refused(&error)),
        Err(_) => None,
    };
    let Some(peer) = request.extensions().get::<Peer>().cloned() else {
        let reason = "a call without a connection".to_owned();
        return Ok(refused(&CallError::Internal { reason }));
    };
    let asked = request.headers().get("grpc-timeout").and_then(|text| deadline_of(text.as_bytes()));
    // A streaming call is bounded here until it begins to answer.
    let asked = asked.filter(|_| allowed.unary).unwrap_or(Duration::MAX);
    let limit = asked.min(gate.limits.call);

    let budget = Budget {
        connection: peer.bytes,
        server: gate.bytes.clone(),
        wait: gate.limits.admission_wait,
        stall: gate.limits.stall,
    };
    let (mut parts, body) = request.into_parts();
    let (body, messages) = Metered::new(body, gate.env.clone(), budget, allowed.message_bytes_max);
    parts.extensions.insert(messages.clone());
    let request = Request::from_parts(parts, Body::new(body));

    let unary = unary::method(&request).filter(|_| allowed.unary);
    let mut answer = async |request| match unary {
        Some(method) => {
            let bytes_max = allowed.message_bytes_max;
            Ok(unary::answer(&gate.handlers, method, request, bytes_max).await)
        }
        None => inner.call(request).await,
    };
    let handled = async {
        match gate.signed.as_deref().filter(|_| ours) {
            None => answer(request).await,
            Some(checker) => checker.handled(request, answer).await,
        }
    };
    let handled = AssertUnwindSafe(handled).catch_unwind();
    let Ok(handled) = gate.env.within(limit, handled).await else {
        return Ok(refused(&CallError::TimedOut { address: String::new(), limit }));
    };
    // A unary call's messages were held until here, by `messages`.
    let response = match handled {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(_) => {
            tracing::error!("a handler panicked; its caller was told INTERNAL");
            let reason = "a defect of the peer's program".to_owned();
            refused(&CallError::Internal { reason })
        }
    };
    // Watches of the health service never end by themselves: they do not hold up a stop.
    let in_work = in_work.filter(|_| ours);
    Ok(response.map(|body| Body::new(Counted { body, _in_work: in_work })))
}

/// A response's body, which keeps its call in work until it was sent or dropped.
struct Counted {
    body: Body,
    _in_work: Option<InWork>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
