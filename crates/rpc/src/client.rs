//! The asking side: `env::calls::Calls` over pooled connections.
//!
//! A call goes: a connection of the pool (dialled, proven and introduced where there is none) ->
//! its message framed (`unary`; the generated client where answers stream) -> the far side's answer opened and checked, all within the caller's limit.
//! It is tried again in two cases only, once each: the connection had been open before and broke
//! (a restarted peer), and the far side answered *denied* (it forgot who we are) to a connection
//! that introduced itself some time ago, or *busy* long after that: what is open to all it tells nobody that it is a stranger, but
//! takes fewer of its calls. Every call may be repeated: records are immutable.
//!
//! Cancel safety: a dropped call resets its stream; a dial it waited for goes on for others.

mod calls;
pub(crate) mod connection;
mod following;
mod pool;
mod reached;
mod unary;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crypto::{NetworkId, SecretKey};
use env::Env;
use env::calls::{CallError, Credential, Endpoint, IntroduceRequest};
use futures::FutureExt;
use tonic::{Response, Status};

use self::connection::{Connection, millis};
use self::pool::{Dialler, Lease, Pool};
use self::reached::Reached;
use self::unary::Asks;
use crate::Identity;
use crate::convert::{Open, Wrong};
use crate::limits::{BATCH_MESSAGE_BYTES_MAX, ClientLimits, RECONNECT_HEADER};
use crate::paced::Pacing;
use crate::proto;
use crate::proto::librarian_client::LibrarianClient;
use crate::signing::{Line, Signer};
use crate::socket::Dial;
use crate::status::{Origin, from_status};

/// The longest pause between two looks for idle connections.
const SWEEP_EVERY_MAX: Duration = Duration::from_secs(5);

/// How far timers of one deadline may differ.
const TIMER_SLACK: Duration = Duration::from_millis(20);

/// Gives the credential of the moment: passes expire and announcements are renewed.
pub type CredentialSource = Arc<dyn Fn() -> Credential + Send + Sync>;

/// What lies between this side and a listener for signed requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedDial {
    /// TLS, in which the peer proves its key.
    Tls,
    /// Plain TCP, to a peer or a proxy on the same machine. Calls must name the peer they are for.
    Plain,
}

/// Asks librarians of one network, as one key.
pub struct Client {
    pool: Arc<Pool>,
    introducer: Arc<Introducer>,
    env: Env,
    limits: ClientLimits,
}

/// Says what vouches for this side.
struct Introducer {
    credential: CredentialSource,
    env: Env,
}

/// What a call is tried with.
struct Attempt {
    line: Line,
    /// What is left of the limit.
    left: Duration,
}

impl Attempt {
    /// One message there, one back.
    fn ask<M: Asks>(
        self,
        message: M,
    ) -> impl Future<Output = Result<Response<M::Answer>, Status>> + Send + use<M> {
        unary::ask(self.line, message, self.left)
    }

    /// The generated client, for what streams.
    fn generated(self) -> LibrarianClient<Line> {
        librarian(self.line)
    }
}

impl Client {
    /// A client that connects when it is first asked to.
    ///
    /// On each new connection it introduces itself by `credential` before any other call goes out,
    /// unless that is [`Credential::None`].
    pub fn new(
        identity: Arc<Identity>,
        credential: CredentialSource,
        env: Env,
        limits: ClientLimits,
    ) -> Arc<Self> {
        Self::introduced(identity, credential, env, limits, None)
    }

    /// As [`Client::new`], with connections that `through` opens in the place of the system.
    pub fn through(
        through: Arc<dyn Dial>,
        identity: Arc<Identity>,
        credential: CredentialSource,
        env: Env,
        limits: ClientLimits,
    ) -> Arc<Self> {
        Self::introduced(identity, credential, env, limits, Some(through))
    }

    fn introduced(
        identity: Arc<Identity>,
        credential: CredentialSource,
        env: Env,
        limits: ClientLimits,
        through: Option<Arc<dyn Dial>>,
    ) -> Arc<Self> {
        let introducer = Arc::new(Introducer { credential, env: env.clone() });
        let dialler = {
            let (introducer, pacing) = (introducer.clone(), Pacing::new(env.clone()));
            let dialling =
                Arc::new(Dialling { identity, through, pacing, reached: Reached::default() });
            move |to, limit| dial(dialling.clone(), introducer.clone(), limit, to).boxed()
        };
        Self::with(Box::new(dialler), introducer, env, limits)
    }

    /// A client that shows no certificate and signs each request with `secret` instead, for peers'
    /// second listeners ([`crate::SignedServer`]).
    ///
    /// `pass` is asked at each request; of a [`Credential`] only [`Credential::Client`] is shown.
    pub fn signed(
        secret: SecretKey,
        network: NetworkId,
        through: SignedDial,
        pass: CredentialSource,
        env: Env,
        limits: ClientLimits,
    ) -> Arc<Self> {
        let signer = Signer::new(secret, network, pass, env.clone());
        // What vouches for the key goes with each request: connections are not introduced.
        let nothing = Arc::new(|| Credential::None);
        let introducer = Arc::new(Introducer { credential: nothing, env: env.clone() });
        let dialler = {
            let (env, pacing) = (env.clone(), Pacing::new(env.clone()));
            move |to, limit| {
                let (signer, pacing) = (signer.clone(), pacing.clone());
                dial_signed(signer, through, pacing, env.clone(), limit, to).boxed()
            }
        };
        Self::with(Box::new(dialler), introducer, env, limits)
    }

    fn with(
        dialler: Box<Dialler>,
        introducer: Arc<Introducer>,
        env: Env,
        limits: ClientLimits,
    ) -> Arc<Self> {
        let pool = Pool::new(dialler, env.clone(), limits);
        let sweeping = sweep(Arc::downgrade(&pool), env.clone(), limits.idle);
        env.tasks.spawn(sweeping.boxed()).detach();
        Arc::new(Self { pool, introducer, env, limits })
    }

    /// Ends all connections. Calls in flight fail, later ones too.
    pub fn close(&self) {
        self.pool.close();
    }

    /// How many connections are open now.
    pub fn open_connections(&self) -> usize {
        self.pool.open_connections()
    }

    /// One call, tried as the module says, within `limit`.
    async fn call<T, F>(
        &self,
        to: &Endpoint,
        records: bool,
        limit: Duration,
        ask: impl Fn(Attempt) -> F + Send + Sync,
    ) -> Result<(T, Lease), CallError>
    where
        T: Send,
        F: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let end = self.env.clock.elapsed().saturating_add(limit);
        let tried = async {
            let mut lease = self.pool.lease(to, records, limit).await?;
            let (mut again, mut reintroduced) = (!lease.fresh, false);
            loop {
                let left = end.saturating_sub(self.env.clock.elapsed());
                let error = match attempt(&lease, to, left, &ask).await {
                    Ok(answer) => return Ok((answer, lease)),
                    Err((error, origin)) => {
                        if origin == Origin::Connection {
                            lease.connection.close();
                        }
                        error
                    }
                };
                match error {
                    CallError::Unreachable { .. } if again && !lease.connection.is_alive() => {
                        again = false;
                        lease = self.pool.lease(to, records, left).await?;
                    }
                    CallError::Denied { .. } if !reintroduced && self.forgotten(&lease) => {
                        reintroduced = true;
                        self.introducer.introduce(&lease.connection, to, left).await?;
                    }
                    busy @ CallError::Busy { .. } if !reintroduced && self.is_due(&lease) => {
                        reintroduced = true;
                        let known = self.introducer.introduce(&lease.connection, to, left).await;
                        known.map_err(|_| busy)?;
                    }
                    error => return Err(error),
                }
            }
        };
        let late = || CallError::TimedOut { address: to.address.clone(), limit };
        match self.env.within(limit, tried).await {
            // Both sides and tonic keep the same deadline: whoever notices first, it is ours.
            Ok(Err(CallError::TimedOut { .. }))
                if self.env.clock.elapsed().saturating_add(TIMER_SLACK) >= end =>
            {
                Err(late())
            }
            Ok(outcome) => outcome,
            Err(_) => Err(late()),
        }
    }

    /// Whether the far side may have forgotten what vouches for this connection.
    fn forgotten(&self, lease: &Lease) -> bool {
        let since = millis(self.env.clock.elapsed())
            .saturating_sub(lease.connection.introduced_ms.load(Ordering::Relaxed));
        !lease.fresh && since >= millis(self.limits.reintroduce_after)
    }
}

impl Client {
    /// Whether a peer that is busy is to be told again who calls: of the calls on a connection one does it.
    fn is_due(&self, lease: &Lease) -> bool {
        let (now, introduced) = (millis(self.env.clock.elapsed()), &lease.connection.introduced_ms);
        let last = introduced.load(Ordering::Relaxed);
        let due = now.saturating_sub(last) >= millis(self.limits.reintroduce_busy_after);
        let order = Ordering::Relaxed;
        !lease.fresh && due && introduced.compare_exchange(last, now, order, order).is_ok()
    }
}

impl Drop for Client {
    /// A subscription outlives its client.
    fn drop(&mut self) {
        self.pool.retire();
    }
}

/// What connections are dialled with.
struct Dialling {
    identity: Arc<Identity>,
    through: Option<Arc<dyn Dial>>,
    pacing: Pacing,
    reached: Reached,
}

impl Dialling {
    /// A connection that is proven, to the first of a peer's addresses that leads to it. The caller bounds the time.
    async fn dial(&self, to: &Endpoint) -> Result<Connection, CallError> {
        let proven = |tcp, at| async move {
            Connection::proven(&self.identity, &self.pacing, tcp, &at).await
        };
        self.reached.dial(self.through.as_deref(), to, proven).await
    }
}

/// A connection that is proven and introduced.
async fn dial(
    dialling: Arc<Dialling>,
    introducer: Arc<Introducer>,
    limit: Duration,
    to: Endpoint,
) -> Result<Arc<Connection>, CallError> {
    let dialled = Box::pin(async {
        let mut connection = dialling.dial(&to).await?;
        if introducer.introduce(&connection, &to, limit).await? {
            // It knows us from now on: a new connection has windows for records.
            connection = dialling.dial(&to).await?;
            introducer.introduce(&connection, &to, limit).await?;
        }
        Ok(Arc::new(connection))
    });
    let late = CallError::TimedOut { address: to.address.clone(), limit };
    introducer.env.within(limit, dialled).await.unwrap_or(Err(late))
}

/// A connection on which each request will be signed.
async fn dial_signed(
    signer: Arc<Signer>,
    through: SignedDial,
    pacing: Pacing,
    env: Env,
    limit: Duration,
    to: Endpoint,
) -> Result<Arc<Connection>, CallError> {
    let dialled = Connection::dial_signed(&signer, through, &pacing, &to);
    let dialled = dialled.map(|dialled| dialled.map(Arc::new));
    let late = CallError::TimedOut { address: to.address.clone(), limit };
    env.within(limit, Box::pin(dialled)).await.unwrap_or(Err(late))
}

async fn sweep(pool: Weak<Pool>, env: Env, idle: Duration) {
    loop {
        env.clock.sleep((idle / 2).clamp(Duration::from_millis(10), SWEEP_EVERY_MAX)).await;
        match pool.upgrade() {
            Some(pool) => pool.sweep(),
            None => return,
        }
    }
}

/// One try on one connection.
async fn attempt<T, F>(
    lease: &Lease,
    to: &Endpoint,
    left: Duration,
    ask: &(impl Fn(Attempt) -> F + Send + Sync),
) -> Result<T, (CallError, Origin)>
where
    F: Future<Output = Result<Response<T>, Status>> + Send,
{
    let attempt = Attempt { line: lease.connection.line.clone(), left };
    caught(ask(attempt), to, left).await.map(Response::into_inner)
}

fn librarian(line: Line) -> LibrarianClient<Line> {
    LibrarianClient::new(line)
        .max_decoding_message_size(BATCH_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(BATCH_MESSAGE_BYTES_MAX)
}

/// The outcome of a call on the wire.
///
/// tonic panics on a trailer `grpc-status-details-bin` that is not base64, which any peer may send;
/// such an answer is corrupt and no more.
async fn caught<T>(
    call: impl Future<Output = Result<T, Status>> + Send,
    to: &Endpoint,
    limit: Duration,
) -> Result<T, (CallError, Origin)> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(outcome) => outcome.map_err(|status| from_status(&status, &to.address, limit)),
        Err(_) => Err((malformed(to), Origin::Connection)),
    }
}

fn malformed(to: &Endpoint) -> CallError {
    let reason = "its status is malformed".to_owned();
    CallError::Corrupt { address: to.address.clone(), reason }
}

/// An answer that is not what the protocol allows.
fn corrupt(to: &Endpoint, reason: &str) -> CallError {
    CallError::Corrupt { address: to.address.clone(), reason: reason.to_owned() }
}

/// Opens an answer.
fn opened<T>(to: &Endpoint, answer: impl Open<T>) -> Result<T, CallError> {
    answer.open().map_err(|Wrong(what)| corrupt(to, what))
}

impl Introducer {
    /// Says what vouches for this side; asks for no peers. Whether a new connection would be wider.
    async fn introduce(
        &self,
        connection: &Connection,
        to: &Endpoint,
        limit: Duration,
    ) -> Result<bool, CallError> {
        let credential = (self.credential)();
        if credential == Credential::None {
            return Ok(false);
        }
        let message: proto::IntroduceRequest = IntroduceRequest::new(credential, 0).into();
        let asked = unary::ask(connection.line.clone(), message, limit);
        let response = caught(asked, to, limit).await.map_err(|(error, _)| error)?;
        let now = millis(self.env.clock.elapsed());
        connection.introduced_ms.store(now, Ordering::Relaxed);
        Ok(response.metadata().contains_key(RECONNECT_HEADER))
    }
}

/// The generated client on a connection of its own, for tests of what the typed one would not send.
#[cfg(test)]
pub(crate) async fn wire(
    identity: &Identity,
    to: &Endpoint,
) -> Result<LibrarianClient<Line>, CallError> {
    // Leaked into the process of the test: dropping it would end the connection.
    let pacing = Pacing::new(Env::real());
    let connection = Connection::dial(identity, None, &pacing, to).await?;
    let connection = Box::leak(Box::new(connection));
    Ok(librarian(connection.line.clone()))
}
