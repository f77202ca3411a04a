//! A thin client's way: one librarian does the walking.
//!
//! ```text
//!   record --> first librarian of the list that is well --> stored, found       every other peer is reached by it alone
//!                  | fails, is late, says "not here", or sends bytes that do not prove themselves
//!                  v
//!              the next one, each once
//! ```
//! It is for who can reach one address only, or has a line too short to send each copy. It is another way of
//! [`crate::Walker`] and not of its callers: what they store, prove and note is the same.
//!
//! Invariants: what comes back is proven against the id that was asked for; no peer is called that is not in the list; no
//! call is made to a listener that has not shown a certificate of the network.
//!
//! Limits: how many copies there are is the librarian's word. One that took a record and forgot it cannot be told from
//! one that stored it; a later get through another librarian would.

mod librarian;
mod stripe;

use std::sync::Arc;
use std::time::Duration;

use crypto::PeerId;
use crypto::lease::Shown;
use document::Record;
use env::calls::{CallError, Endpoint, PutResponse};

pub use librarian::{ASKED_LAST_BASE, ASKED_LAST_MAX};

use crate::background::{Reached, Rest};
use crate::core::{BUSY_WAIT_MAX, CALL_LIMIT, Core, WALK_LIMIT, Wanted};
use crate::error::{ERRORS_MAX, WalkError, alike, could_not_ask};
use crate::finding::FoundAt;
use crate::latency::{LARGE_BYTES, Size};
use crate::line::{Load, Moved};
use crate::proof::Proven;
use crate::race::Ended;
use crate::walker::{Stored, Walker};
use librarian::Librarian;

/// What a librarian has for one record, beside the time of the transfer, where there is another one to ask.
pub const LIBRARIAN_LIMIT: Duration = Duration::from_secs(15);
/// How long it may take to show its certificate, where there is another one to ask.
pub const SHOW_LIMIT: Duration = Duration::from_secs(5);
/// How long an answered put waits for all copies, at the librarian.
pub const FULL_WAIT: Duration = Duration::from_secs(5);
/// How long *busy* of one librarian is waited out, for one record.
const BUSY_TOTAL_MAX: Duration = Duration::from_secs(60);

/// One that waited in vain for a slow holder says nothing of this line.
impl Ended for Reached {
    fn moved(&self) -> Moved {
        if self.is_full() { Moved::Yes } else { Moved::Nothing }
    }
}

impl Ended for Proven {
    fn moved(&self) -> Moved {
        if self.record.bytes.len() >= LARGE_BYTES { Moved::Yes } else { Moved::Nothing }
    }
}

/// The librarians of a thin client, as its user ordered them.
#[derive(Debug)]
pub(crate) struct Through(Vec<Arc<Librarian>>);

/// A librarian's failure: who it proved to be, if it did, and where.
struct Failed {
    peer: Option<PeerId>,
    address: String,
    error: CallError,
}

impl Through {
    pub(crate) fn new(addresses: &[String]) -> Option<Self> {
        let librarians: Vec<_> = addresses.iter().map(|at| Arc::new(Librarian::new(at))).collect();
        (!librarians.is_empty()).then_some(Self(librarians))
    }

    /// All of them, whom to ask first first.
    fn order(&self, now: Duration) -> Vec<Arc<Librarian>> {
        let first = self.0.iter().position(|librarian| librarian.claim(now));
        let others = self.0.iter().enumerate().filter(|(at, _)| Some(*at) != first);
        let mut others: Vec<_> = others.map(|(_, librarian)| librarian.clone()).collect();
        others.sort_by_key(|librarian| librarian.is_last(now));
        first.map(|at| self.0[at].clone()).into_iter().chain(others).collect()
    }
}

impl Walker {
    /// Whether librarians walk for this program.
    pub fn is_thin(&self) -> bool {
        self.core.through.is_some()
    }

    /// The librarian to ask for what is no record of a place, where librarians walk for this program.
    ///
    /// # Errors
    /// [`WalkError::NoPeers`] where none answers.
    pub async fn librarian(&self) -> Result<Endpoint, WalkError> {
        self.core.librarian().await
    }

    /// What was asked of a librarian that [`Walker::librarian`] named failed: another one is named next.
    pub fn librarian_failed(&self, peer: &PeerId, error: &CallError) {
        let now = self.core.env.clock.elapsed();
        let librarians = self.core.through.as_ref().map_or(&[][..], |through| &through.0);
        let failed = librarians.iter().filter(|librarian| librarian.peer() == Some(*peer));
        failed.for_each(|librarian| librarian.failed(error, now, now));
    }
}

impl Core {
    /// See [`Walker::librarian`].
    pub(crate) async fn librarian(&self) -> Result<Endpoint, WalkError> {
        let now = self.env.clock.elapsed();
        let mut tried = Vec::new();
        let order = self.through.as_ref().map_or_else(Vec::new, |through| through.order(now));
        let mut left = order.len();
        for librarian in order {
            left -= 1;
            let limit = if left > 0 { SHOW_LIMIT } else { CALL_LIMIT };
            match self.shown(&librarian, limit).await {
                Ok(peer) => return Ok(endpoint(&librarian, peer)),
                Err(error) => tried.push((librarian.address.clone(), error)),
            }
        }
        tried.truncate(ERRORS_MAX);
        Err(WalkError::NoPeers { tried })
    }

    /// Lets a librarian store a record.
    pub(crate) async fn store_through(
        &self,
        through: &Through,
        record: Record,
        leases: Vec<Shown>,
    ) -> Result<Stored, WalkError> {
        let load = Load::sent(record.bytes.len());
        let put = |to: Endpoint, limit: Duration| {
            let (record, leases) = (record.clone(), leases.clone());
            async move {
                let limit_all = limit + FULL_WAIT;
                let call = self.calls.put_leased(&to, record, leases, FULL_WAIT, limit_all);
                let PutResponse { acked, wanted } =
                    self.bounded(&to, limit + FULL_WAIT, call).await?;
                if acked == 0 || wanted == 0 {
                    let reason = "it says that no copy was stored".to_owned();
                    return Err(CallError::Corrupt { address: to.address, reason });
                }
                Ok(Reached { acked, wanted, holders: Vec::new(), done: true })
            }
        };
        match self.ask(through, load, put).await {
            Ok((reached, ..)) => {
                let Reached { acked, wanted, .. } = reached;
                let rest = Rest::ended(self.env.clone(), reached);
                // It does not tell whether they were new.
                Ok(Stored { acked, wanted, new: true, holders: Vec::new(), rest })
            }
            Err(failed) => Err(verdict_of_put(failed)),
        }
    }

    /// Lets a librarian find a record, and proves what it sends.
    pub(crate) async fn find_through(
        &self,
        through: &Through,
        wanted: Wanted,
    ) -> Result<FoundAt, WalkError> {
        let load = match wanted.size() {
            Size::Small => Load::little(),
            Size::Large => wanted.bytes.map_or_else(|| self.line.some_record(), Load::taken),
        };
        let get = |to: Endpoint, limit: Duration| async move {
            let call = self.calls.get(&to, wanted.request, limit);
            let record = self.bounded(&to, limit, call).await?;
            let peer = to.peer.ok_or(CallError::NotFound)?;
            let proven = self.prove_wanted(&peer, &wanted, record).await?;
            proven.ok_or(CallError::NotFound)
        };
        match self.ask(through, load, get).await {
            Ok((proven, from, degraded)) => {
                if wanted.size() == Size::Large && wanted.bytes.is_none() {
                    self.line.learn_bytes(proven.record.bytes.len());
                }
                Ok(FoundAt { proven, from, degraded })
            }
            Err(failed) => Err(verdict_of_get(&wanted, failed)),
        }
    }

    /// Asks librarians until one answers: the answer, whose it is, and whether another one failed before.
    async fn ask<T, F>(
        &self,
        through: &Through,
        load: Load,
        call: impl Fn(Endpoint, Duration) -> F,
    ) -> Result<(T, PeerId, bool), Vec<Failed>>
    where
        T: Ended,
        F: Future<Output = Result<T, CallError>> + Send,
    {
        let clock = &self.env.clock;
        let order = through.order(clock.elapsed());
        let (mut failed, mut left) = (Vec::new(), order.len());
        for librarian in order {
            left -= 1;
            let (show, limit) = match left {
                0 => (CALL_LIMIT, WALK_LIMIT),
                _ => (SHOW_LIMIT, LIBRARIAN_LIMIT),
            };
            let error = match self.shown(&librarian, show).await {
                Err(error) => error,
                Ok(peer) => {
                    let to = endpoint(&librarian, peer);
                    let turn = self.line.turn(load).await;
                    // What the bytes take comes on top of what the librarian has for its walk.
                    let limit = limit + turn.sure_limit().saturating_sub(CALL_LIMIT);
                    let since = clock.elapsed();
                    match self.patiently(|| call(to.clone(), limit)).await {
                        Ok(answer) => {
                            self.moved(&turn, &peer, &answer);
                            librarian.good();
                            return Ok((answer, peer, !failed.is_empty()));
                        }
                        Err(error) => {
                            self.moved(&turn, &peer, &error);
                            librarian.failed(&error, since, clock.elapsed());
                            error
                        }
                    }
                }
            };
            tracing::debug!(address = librarian.address, %error, "a librarian did not serve");
            let (peer, address) = (librarian.peer(), librarian.address.clone());
            failed.push(Failed { peer, address, error });
        }
        Err(failed)
    }

    /// Waits as a busy librarian says: a thin client has nowhere else to go with all that it has to send.
    async fn patiently<T, F>(&self, call: impl Fn() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>> + Send,
    {
        let clock = &self.env.clock;
        let until = clock.elapsed() + BUSY_TOTAL_MAX;
        loop {
            match call().await {
                Err(CallError::Busy { retry_after }) if clock.elapsed() < until => {
                    // A millisecond at least: a peer that names none is not asked in a tight loop.
                    let wait = retry_after.clamp(Duration::from_millis(1), BUSY_WAIT_MAX);
                    clock.sleep(wait).await;
                }
                answer => return answer,
            }
        }
    }

    /// Who a librarian is, by the certificate that it showed now or before.
    async fn shown(&self, librarian: &Librarian, limit: Duration) -> Result<PeerId, CallError> {
        if let Some(peer) = librarian.peer() {
            return Ok(peer);
        }
        let since = self.env.clock.elapsed();
        let to = Endpoint::at(&librarian.address);
        // Who lets a librarian walk needs to know nobody else.
        let shown = self.introduce_asking(&to, 0, limit).await;
        match shown {
            Ok((_, peer)) => {
                librarian.proved(peer);
                Ok(peer)
            }
            Err(error) => {
                librarian.failed(&error, since, self.env.clock.elapsed());
                Err(error)
            }
        }
    }
}

fn endpoint(librarian: &Librarian, peer: PeerId) -> Endpoint {
    Endpoint::of(peer, librarian.address.clone())
}

/// The errors of those who proved who they are; where none did, nothing is known.
fn by_peer(failed: Vec<Failed>) -> Result<Vec<(PeerId, CallError)>, WalkError> {
    let peers: Vec<_> = failed
        .iter()
        .filter_map(|failed| Some((failed.peer?, failed.error.clone())))
        .take(ERRORS_MAX)
        .collect();
    if !peers.is_empty() {
        return Ok(peers);
    }
    let tried = failed.into_iter().map(|failed| (failed.address, failed.error));
    Err(WalkError::NoPeers { tried: tried.take(ERRORS_MAX).collect() })
}

fn verdict_of_put(failed: Vec<Failed>) -> WalkError {
    let errors = match by_peer(failed) {
        Ok(errors) => errors,
        Err(nobody) => return nobody,
    };
    let reached = errors.iter().filter_map(|(_, error)| match error {
        CallError::TooFewPeers { reached, wanted } => Some((*reached, *wanted)),
        _ => None,
    });
    let (acked, wanted) = reached.max().unwrap_or((0, 1));
    WalkError::of_write(acked, wanted, errors)
}

fn verdict_of_get(wanted: &Wanted, failed: Vec<Failed>) -> WalkError {
    let all = failed.len();
    let errors = match by_peer(failed) {
        Ok(errors) => errors,
        Err(nobody) => return nobody,
    };
    let id = wanted.request.id;
    let count = |test: fn(&CallError) -> bool| {
        let found = errors.iter().filter(|(_, error)| test(error)).map(|(peer, _)| *peer);
        found.collect::<Vec<PeerId>>()
    };
    let from = count(|error| matches!(error, CallError::Corrupt { .. }));
    // Where others could not be asked, one that lies is no proof that it cannot be had.
    if !from.is_empty() && !could_not_ask(&errors) {
        return WalkError::Corrupt { id, from };
    }
    let asked = count(|error| matches!(error, CallError::NotFound)).len();
    if asked == all {
        return WalkError::NotFound { id, asked: asked as u32 };
    }
    if let Some(alike) = alike(&errors).filter(|_| errors.len() == all) {
        return alike;
    }
    let errors = errors.into_iter().filter(|(_, error)| *error != CallError::NotFound).collect();
    WalkError::Unavailable { id, asked: asked as u32, unreachable: (all - asked) as u32, errors }
}
