//! What every call passes before its handler: the stop, the number of calls, the bytes of its
//! messages, its deadline, and the net under a handler that panics.
//!
//! One layer over all services. A unary call is bounded as a whole, its body included, so a caller
//! who sends slowly does not hold a handler. A streaming call is bounded until it begins to answer,
//! then message by message in `streams`. The health service passes even while the server stops, or is full: that is when
//! somebody asks it; so many at a time ([`PAST_MAX`]) have a place of their own.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use crypto::PublicKey;
use env::Env;
use env::calls::CallError;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body::Body as _;
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};

use super::connection::{Houses, Peer};
use super::handlers::Handlers;
use super::metered::{Budget, Metered};
use super::share::{Answers, Reserving, Room, Taken};
use super::signed::Checker;
use super::unary;
use super::unread::{Answer, Unread};
use crate::limits::{
    BATCH_MESSAGE_BYTES_MAX, RECORD_MESSAGE_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX, ServerLimits,
};
use crate::status::to_status;

/// The paths of our own service; others are health and reflection.
pub(super) const LIBRARIAN: &str = "/holdfast.v1.Librarian/";

/// Those of the service that says whether this one is well.
const HEALTH: &str = "/grpc.health.v1.Health/";
/// Its call without an end.
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
/// Such calls at a time; whoever makes them has no more than it leaves free.
const HEALTH_WATCHES_MAX: usize = 256;
const WATCH_AGAIN: Duration = Duration::from_secs(5);
/// Calls of the health service at a time that a full or stopping server takes; whoever makes them has no more than it leaves free.
const PAST_MAX: usize = 64;
const PAST_AGAIN: Duration = Duration::from_millis(500);
/// How long a call of any other service takes at most, but for those watches: there are health and reflection.
const OTHERS_FOR: Duration = Duration::from_secs(10);
/// And how long its messages are.
const OTHERS_MESSAGE_BYTES_MAX: usize = 4 << 10;

/// All callers that nobody vouched for have one part in so many of the calls and the bytes that members have, besides.
const STRANGERS_PART: usize = 4;
/// Bytes of each of their calls with one message that count for nothing: an introduction is shorter, so nobody is kept
/// from becoming known by others' requests. All calls have 8 MiB of it.
const STRANGERS_FREE_BYTES: u32 = 8 << 10;
/// Answers below it take no bytes.
const SMALL_ANSWER_BYTES: usize = 16 << 10;
/// With fewer calls of its own in work, and fewer of all, a caller's answers of one record take their bytes when they are made; with
/// more before, as those of a batch always do: what waits for its bytes is in memory too.
const UNRESERVED_CALLS: usize = 32;
const UNRESERVED_CALLS_OF_ALL: usize = 256;

/// Request bytes of all callers that nobody vouched for: one message of the largest at least.
fn strangers_bytes(limits: &ServerLimits) -> usize {
    let bytes = limits.request_bytes_in_flight;
    bytes.div_ceil(STRANGERS_PART).max(BATCH_MESSAGE_BYTES_MAX.min(bytes))
}

/// What the layer knows of the whole server.
pub(super) struct Gate {
    env: Env,
    limits: ServerLimits,
    /// Cancelled when no new calls are taken.
    stop: CancellationToken,
    /// Of callers that somebody vouched for: their connections, or their requests where each proves its own key.
    known: Pool,
    /// Of the others: what they hold, members need not wait for.
    strangers: Pool,
    unread: Arc<Unread>,
    ended: Notify,
    /// On the listener for signed requests.
    signed: Option<Arc<Checker>>,
    /// What its members hold, by their keys; those of connections that prove theirs come with them.
    houses: Houses<PublicKey>,
    /// Where calls of one message end; the others end in the services behind the gate.
    handlers: Arc<Handlers>,
    /// Watches of the peer's health: they end with their connections alone, and are no calls in work.
    watches: Arc<Room>,
    /// Calls of the health service that found no place.
    past: Arc<Room>,
}

/// What some callers share.
struct Pool {
    calls: AtomicUsize,
    calls_max: usize,
    /// Request messages in work.
    requests: Arc<Room>,
    /// Answers that are not read yet.
    answers: Arc<Room>,
}

impl Pool {
    fn new(calls_max: usize, requests: usize, answers: usize) -> Self {
        let [requests, answers] = [requests, answers].map(Room::new);
        Self { calls: AtomicUsize::new(0), calls_max, requests, answers }
    }
}

impl Gate {
    pub(super) fn new(
        env: Env,
        limits: ServerLimits,
        stop: CancellationToken,
        signed: Option<Arc<Checker>>,
        handlers: Arc<Handlers>,
    ) -> Arc<Self> {
        let (bytes, answers) = (limits.request_bytes_in_flight, limits.answer_bytes_in_flight);
        let part = |all: usize| all.div_ceil(STRANGERS_PART);
        Arc::new(Self {
            env,
            limits,
            stop,
            known: Pool::new(limits.calls, bytes, answers),
            strangers: Pool::new(part(limits.calls), strangers_bytes(&limits), part(answers)),
            unread: Arc::default(),
            ended: Notify::new(),
            signed,
            houses: Houses::default(),
            handlers,
            watches: Room::new(HEALTH_WATCHES_MAX),
            past: Room::new(PAST_MAX),
        })
    }

    /// Done when no call is in work.
    pub(super) async fn idle(&self) {
        loop {
            let ended = self.ended.notified();
            futures::pin_mut!(ended);
            // Registered before the count is read: an end between the two is not missed.
            ended.as_mut().enable();
            if self.in_work() == 0 {
                return;
            }
            ended.await;
        }
    }

    fn in_work(&self) -> usize {
        [&self.known, &self.strangers].map(|pool| pool.calls.load(Ordering::SeqCst)).iter().sum()
    }

    /// Ends connections whose answers are not read, for as long as it is polled.
    pub(super) async fn end_unread(self: Arc<Self>) {
        self.unread.clone().look(self.env.clone(), self.limits.unread).await;
    }

    fn pool(&self, peer: &Peer) -> &Pool {
        if peer.stranger { &self.strangers } else { &self.known }
    }

    /// A call's place, and whether few calls were in work before it.
    fn enter(self: &Arc<Self>, peer: &Peer) -> Result<(InWork, bool), CallError> {
        let pool = self.pool(peer);
        let in_work = InWork { gate: self.clone(), peer: peer.clone() };
        let before = pool.calls.fetch_add(1, Ordering::SeqCst);
        let own = peer.house.share.calls.fetch_add(1, Ordering::SeqCst);
        if self.stop.is_cancelled() {
            let reason = "the peer is stopping".to_owned();
            return Err(CallError::Unreachable { address: String::new(), reason });
        }
        // No more than it leaves free: see `share`.
        let free = pool.calls_max.saturating_sub(before);
        if free <= own {
            return Err(CallError::Busy { retry_after: Duration::from_millis(500) });
        }
        Ok((in_work, own < UNRESERVED_CALLS && before < UNRESERVED_CALLS_OF_ALL))
    }
}

/// One call in work, until dropped.
struct InWork {
    gate: Arc<Gate>,
    peer: Peer,
}

impl Drop for InWork {
    fn drop(&mut self) {
        let pool = self.gate.pool(&self.peer);
        self.peer.house.share.calls.fetch_sub(1, Ordering::SeqCst);
        if pool.calls.fetch_sub(1, Ordering::SeqCst) == 1 && self.gate.in_work() == 0 {
            self.gate.ended.notify_waiters();
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
        "" => OTHERS_MESSAGE_BYTES_MAX,
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
    // Whether the peer is well can be asked of one that is full.
    let passes = request.uri().path().starts_with(HEALTH);
    let allowed = allowed(request.uri().path());
    let Some(mut peer) = request.extensions().get::<Peer>().cloned() else {
        let reason = "a call without a connection".to_owned();
        return Ok(refused(&CallError::Internal { reason }));
    };
    if let Some(checker) = &gate.signed {
        // A connection says nothing of its callers here. Whoever says what a member said is counted as one until its token
        // is looked at, which is at once; what needs no token is nobody's.
        match checker.known(request.headers()).filter(|_| ours) {
            Some(key) => (peer.stranger, peer.house) = (false, gate.houses.of(key)),
            None => peer.stranger = true,
        }
    } else if let Some(caller) = peer.caller.filter(|_| !peer.stranger) {
        // It was vouched for when the connection began.
        if !gate.handlers.members.are(caller) {
            (peer.stranger, peer.house) = (true, peer.source.clone());
        }
    }
    let (in_work, past, few) = match gate.enter(&peer) {
        Ok((in_work, few)) => (Some(in_work), None, few),
        Err(error) if !passes => return Ok(refused(&error)),
        Err(_) => match gate.past.at_once(&peer.house.share.past, 1) {
            Some(past) => (None, Some(past), true),
            None => return Ok(refused(&CallError::Busy { retry_after: PAST_AGAIN })),
        },
    };
    // They never end by themselves, and do not hold up a stop.
    let watch = match request.uri().path() == HEALTH_WATCH {
        false => None,
        true => match gate.watches.at_once(&peer.house.share.watches, 1) {
            Some(watch) => Some(watch),
            None => return Ok(refused(&CallError::Busy { retry_after: WATCH_AGAIN })),
        },
    };
    // What else is not ours is a question or some, and no more of a call than ours are.
    let until = (!ours && watch.is_none()).then(|| gate.env.clock.sleep(OTHERS_FOR));
    let asked = request.headers().get("grpc-timeout").and_then(|text| deadline_of(text.as_bytes()));
    // A streaming call is bounded here until it begins to answer.
    let asked = asked.filter(|_| allowed.unary).unwrap_or(Duration::MAX);
    let limit = asked.min(gate.limits.call).min(if ours { Duration::MAX } else { OTHERS_FOR });

    let budget = Budget {
        room: gate.pool(&peer).requests.clone(),
        of: peer.house.share.requests.clone(),
        free: if peer.stranger && allowed.unary { STRANGERS_FREE_BYTES } else { 0 },
        wait: gate.limits.admission_wait,
        stall: gate.limits.stall,
        kept: ours,
    };
    let (mut parts, body) = request.into_parts();
    let (bytes_max, pauses) = (allowed.message_bytes_max, !allowed.unary);
    let (body, messages) = Metered::new(body, gate.env.clone(), budget, bytes_max, pauses);
    let answers = Answers {
        room: gate.pool(&peer).answers.clone(),
        of: peer.house.share.answers.clone(),
        env: gate.env.clone(),
        wait: gate.limits.admission_wait,
    };
    parts.extensions.insert(messages.clone());
    parts.extensions.insert(answers.clone());
    let request = Request::from_parts(parts, Body::new(body));

    let unary = unary::method(&request).filter(|_| allowed.unary);
    let reserving = Reserving::new(answers.clone());
    let mut answer = async |request| match unary {
        Some(method) => {
            let bytes_max = allowed.message_bytes_max;
            let reserving = (&reserving, method.reserves(few));
            Ok(unary::answer(&gate.handlers, method, request, bytes_max, reserving).await)
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
    let (in_work, past) = match watch {
        None => (in_work, past),
        Some(_) => (None, None),
    };
    // The bytes of an answer of known length are taken whole, those of a stream part by part.
    let exact = response.body().size_hint().exact();
    let bytes = match exact.and_then(large) {
        None => None,
        Some(bytes) => match reserving.exactly(bytes).await {
            Ok(taken) => Some(taken),
            Err(error) => return Ok(refused(&error)),
        },
    };
    let answer = gate.unread.answer(&gate.env, gate.limits.unread, peer.ends);
    let held = Arc::new(Held { _bytes: bytes, _in_work: in_work, _past: past, _watch: watch });
    let parts = exact.is_none().then_some(answers);
    let counted = |body| Counted { body, answer, held, parts, frame: None, taking: None, until };
    Ok(response.map(|body| Body::new(counted(body))))
}

/// Bytes that count: small ones are bounded by the calls in work.
fn large(bytes: u64) -> Option<usize> {
    usize::try_from(bytes).ok().filter(|bytes| *bytes >= SMALL_ANSWER_BYTES)
}

/// What an answer holds: its call, and its bytes where they are many.
struct Held {
    _bytes: Option<Taken>,
    _in_work: Option<InWork>,
    _past: Option<Taken>,
    _watch: Option<Taken>,
}

/// A response's body, which keeps its call in work until it was sent or dropped.
struct Counted {
    body: Body,
    answer: Answer,
    held: Arc<Held>,
    /// Of a stream: what its parts are taken of.
    parts: Option<Answers>,
    /// A part that waits for its bytes.
    frame: Option<Frame<Bytes>>,
    taking: Option<BoxFuture<'static, Result<Taken, CallError>>>,
    /// When it ends at the latest.
    until: Option<BoxFuture<'static, ()>>,
}

impl Counted {
    /// What the part at hand must hold before it is handed over.
    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Taken>, Status>> {
        if self.taking.is_none() {
            let bytes = self.frame.as_ref().and_then(|frame| frame.data_ref()).map(Bytes::len);
            let bytes = bytes.and_then(|bytes| large(bytes as u64));
            let (Some(parts), Some(bytes)) = (&self.parts, bytes) else {
                return Poll::Ready(Ok(None));
            };
            let parts = parts.clone();
            self.taking = Some(async move { parts.take(bytes).await }.boxed());
        }
        let Some(taking) = &mut self.taking else { return Poll::Ready(Ok(None)) };
        let taken = ready!(taking.as_mut().poll(cx));
        self.taking = None;
        Poll::Ready(taken.map(Some).map_err(|error| to_status(&error)))
    }
}

/// Bytes that were handed over to be sent. Whoever sends takes all that a body has before the connection takes any of it: what
/// the answer holds is held until the last of them is written.
struct Part {
    bytes: Bytes,
    _answer: Answer,
    _held: Arc<Held>,
    _taken: Option<Taken>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if let Some(until) = &mut this.until
            && until.as_mut().poll(cx).is_ready()
        {
            (this.until, this.body) = (None, Body::empty());
            let error = CallError::TimedOut { address: String::new(), limit: OTHERS_FOR };
            let mut trailers = HeaderMap::new();
            let told = to_status(&error).add_header(&mut trailers);
            return Poll::Ready(Some(told.map(|()| Frame::trailers(trailers))));
        }
        this.answer.moves();
        if this.frame.is_none() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => this.frame = Some(frame),
                end => return Poll::Ready(end),
            }
        }
        let taken = match ready!(this.poll_taken(cx)) {
            Ok(taken) => taken,
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        let counted = |bytes: Bytes| {
            let (answer, held) = (this.answer.part(), this.held.clone());
            Bytes::from_owner(Part { bytes, _answer: answer, _held: held, _taken: taken })
        };
        Poll::Ready(this.frame.take().map(|frame| Ok(frame.map_data(counted))))
    }

    fn is_end_stream(&self) -> bool {
        self.frame.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
