//! Connections kept open, by endpoint.
//!
//! An endpoint has lanes: the first for small calls, the others for records, so that a question does
//! not wait behind 2 MiB. A lane is opened when it is needed: calls one after the other share the
//! first, records in parallel spread over the others.
//!
//! ```text
//! Empty -> Dialling -> Up -> Empty (it ended, idled out, or made room)
//!              \-> Failed -> Empty (after the back-off)
//! ```
//! Who is asked for by an address alone and proved a key has that connection under both: it lies under its name.
//!
//! Invariants: one dial a lane at once, which all callers wait for; a dial is a task of its own, so a
//! caller that gives up does not end it for the others; `Up` and `Dialling` lanes together are at
//! most [`ClientLimits::connections`]. The lock is never held over an await.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use env::Env;
use env::calls::{CallError, Endpoint};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use super::connection::{Connection, millis};
use crate::limits::ClientLimits;

/// When a caller should come again for whom no connection is free.
const NO_ROOM_RETRY_AFTER: Duration = Duration::from_millis(100);
/// The part of a call's limit that its dial may take, where that is more than [`ClientLimits::dial`]: calls have long limits where the
/// line is slow, and there a handshake waits behind what is on its way.
const DIAL_SHARE: u32 = 4;

/// What a dial comes to.
type Dialled = Result<Arc<Connection>, CallError>;
/// A dial that many wait for.
type Dial = Shared<BoxFuture<'static, Dialled>>;
/// Makes a connection: dials and introduces.
pub(super) type Dialler = dyn Fn(Endpoint, Duration) -> BoxFuture<'static, Dialled> + Send + Sync;

enum Lane {
    Empty,
    Dialling(Dial),
    Up(Arc<Connection>),
    Failed(Duration, CallError),
}

impl Lane {
    fn alive(&self) -> Option<&Arc<Connection>> {
        match self {
            Self::Up(connection) if connection.is_alive() => Some(connection),
            _ => None,
        }
    }

    fn calls(&self) -> Option<usize> {
        self.alive().map(|connection| connection.in_flight.load(Ordering::Relaxed))
    }

    fn is_open(&self) -> bool {
        matches!(self, Self::Dialling(_)) || self.alive().is_some()
    }
}

#[derive(Default)]
struct Lanes {
    by_endpoint: HashMap<Endpoint, Vec<Lane>>,
    closed: bool,
}

impl Lanes {
    /// Those of an endpoint, at first without a connection.
    fn of(&mut self, to: &Endpoint, bulk: usize) -> &mut Vec<Lane> {
        let empty = || (0..=bulk).map(|_| Lane::Empty).collect();
        self.by_endpoint.entry(to.clone()).or_insert_with(empty)
    }

    /// Where anybody at an address is asked for and somebody is connected there: that peer.
    fn named(&self, to: &Endpoint) -> Option<Endpoint> {
        if to.peer.is_some() {
            return None;
        }
        let there = |(endpoint, of): &(&Endpoint, &Vec<Lane>)| {
            endpoint.address == to.address && of[0].alive().is_some()
        };
        self.by_endpoint.iter().find(there).map(|(endpoint, _)| endpoint.clone())
    }
}

/// The connections of a client.
pub(super) struct Pool {
    lanes: Mutex<Lanes>,
    dialler: Box<Dialler>,
    env: Env,
    limits: ClientLimits,
}

/// A connection for one call: it counts as in flight until dropped.
pub(super) struct Lease {
    pub(super) connection: Arc<Connection>,
    /// Whether it was dialled for this call.
    pub(super) fresh: bool,
    env: Env,
}

impl Lease {
    fn new(connection: Arc<Connection>, fresh: bool, env: Env) -> Self {
        connection.in_flight.fetch_add(1, Ordering::Relaxed);
        connection.used_ms.store(millis(env.clock.elapsed()), Ordering::Relaxed);
        Self { connection, fresh, env }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.connection.used_ms.store(millis(self.env.clock.elapsed()), Ordering::Relaxed);
        self.connection.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

fn closed(to: &Endpoint) -> CallError {
    let reason = "this side is closed".to_owned();
    CallError::Unreachable { address: to.address.clone(), reason }
}

impl Pool {
    pub(super) fn new(dialler: Box<Dialler>, env: Env, limits: ClientLimits) -> Arc<Self> {
        Arc::new(Self { lanes: Mutex::default(), dialler, env, limits })
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to `to`, dialled where there is none.
    pub(super) async fn lease(
        self: &Arc<Self>,
        to: &Endpoint,
        records: bool,
        limit: Duration,
    ) -> Result<Lease, CallError> {
        let limit = self.limits.dial.max(limit / DIAL_SHARE);
        let (dial, first) = {
            let mut lanes = self.lock();
            if lanes.closed {
                return Err(closed(to));
            }
            let named = lanes.named(to);
            let to = named.as_ref().unwrap_or(to);
            let of = lanes.of(to, self.limits.bulk_connections);
            let chosen = choose(of, records);
            let first = of[0].alive().cloned();
            match &of[chosen] {
                Lane::Dialling(dial) => (dial.clone(), first),
                Lane::Failed(until, error) if *until > self.env.clock.elapsed() => {
                    return match first {
                        Some(first) => Ok(Lease::new(first, false, self.env.clone())),
                        None => Err(error.clone()),
                    };
                }
                lane => match lane.alive() {
                    Some(connection) => {
                        return Ok(Lease::new(connection.clone(), false, self.env.clone()));
                    }
                    None => match (self.open(&mut lanes, (to, limit), chosen), first) {
                        (Ok(dial), first) => (dial, first),
                        // No room for a further connection: the first carries records too.
                        (Err(_), Some(connection)) => {
                            return Ok(Lease::new(connection, false, self.env.clone()));
                        }
                        (Err(error), None) => return Err(error),
                    },
                },
            }
        };
        match (dial.await, first) {
            (Ok(connection), _) => {
                // Ended meanwhile, to make room for another: dialled again, as one that was there before.
                let fresh = connection.is_alive();
                Ok(Lease::new(connection, fresh, self.env.clone()))
            }
            // A further one that is not to be had, as on a crowded line, takes nothing from the first.
            (Err(_), Some(first)) if first.is_alive() => {
                Ok(Lease::new(first, false, self.env.clone()))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Starts a dial in a lane that has none.
    fn open(
        self: &Arc<Self>,
        lanes: &mut Lanes,
        (to, limit): (&Endpoint, Duration),
        lane: usize,
    ) -> Result<Dial, CallError> {
        self.make_room(lanes)?;
        let (send, receive) = tokio::sync::oneshot::channel();
        let gone = closed(to);
        let dial: Dial = async move { receive.await.unwrap_or(Err(gone)) }.boxed().shared();
        let (pool, to, work) = (self.clone(), to.clone(), (self.dialler)(to.clone(), limit));
        if let Some(of) = lanes.by_endpoint.get_mut(&to) {
            of[lane] = Lane::Dialling(dial.clone());
        }
        // Bounded by the number of lanes and by the dial's own deadline.
        let work = async move {
            let dialled = work.await;
            pool.dialled(&to, lane, &dialled);
            let _ = send.send(dialled);
        };
        self.env.tasks.spawn(work.boxed()).detach();
        Ok(dial)
    }

    fn dialled(&self, to: &Endpoint, lane: usize, dialled: &Dialled) {
        let mut lanes = self.lock();
        let next = match dialled {
            Ok(connection) if lanes.closed => {
                connection.close();
                Lane::Empty
            }
            Ok(connection) => {
                // Not idle before its first call.
                let now = millis(self.env.clock.elapsed());
                connection.used_ms.store(now, Ordering::Relaxed);
                Lane::Up(connection.clone())
            }
            Err(error) => {
                let until = self.env.clock.elapsed() + self.limits.dial_back_off;
                Lane::Failed(until, error.clone())
            }
        };
        // One that was reached by its address alone is found by its name from now on.
        let name = match &next {
            Lane::Up(connection) if to.peer.is_none() && lane == 0 => connection.peer,
            _ => None,
        };
        if let Some(peer) = name {
            let named = Endpoint::of(peer, to.address.clone());
            let of = lanes.of(&named, self.limits.bulk_connections);
            if !of[0].is_open() {
                of[0] = next;
                if let Some(of) = lanes.by_endpoint.get_mut(to) {
                    of[0] = Lane::Empty;
                }
                return;
            }
        }
        if let Some(of) = lanes.by_endpoint.get_mut(to) {
            of[lane] = next;
        }
    }

    /// Makes sure that one more connection may be opened: ends the longest unused one.
    fn make_room(&self, lanes: &mut Lanes) -> Result<(), CallError> {
        let all = lanes.by_endpoint.values_mut().flatten();
        let mut open: Vec<&mut Lane> = all.filter(|lane| lane.is_open()).collect();
        if open.len() < self.limits.connections {
            return Ok(());
        }
        let unused = |lane: &&mut &mut Lane| lane.calls() == Some(0);
        let oldest = open.iter_mut().filter(unused).min_by_key(|lane| {
            lane.alive().map(|connection| connection.used_ms.load(Ordering::Relaxed))
        });
        let Some(oldest) = oldest else {
            return Err(CallError::Busy { retry_after: NO_ROOM_RETRY_AFTER });
        };
        end(oldest);
        Ok(())
    }

    /// Ends what was idle for too long, and forgets endpoints without connections.
    pub(super) fn sweep(&self) {
        let now = self.env.clock.elapsed();
        let idle = millis(self.limits.idle);
        self.lock().by_endpoint.retain(|_, of| {
            for lane in of.iter_mut() {
                let over = match &*lane {
                    Lane::Failed(until, _) => *until <= now,
                    Lane::Up(connection) if lane.calls() == Some(0) => {
                        let used = connection.used_ms.load(Ordering::Relaxed);
                        millis(now).saturating_sub(used) >= idle
                    }
                    Lane::Up(connection) => !connection.is_alive(),
                    Lane::Empty | Lane::Dialling(_) => false,
                };
                if over {
                    end(lane);
                }
            }
            of.iter().any(|lane| !matches!(lane, Lane::Empty))
        });
    }

    /// Ends all connections; calls in flight fail, new ones are refused.
    pub(super) fn close(&self) {
        let mut lanes = self.lock();
        lanes.closed = true;
        lanes.by_endpoint.values_mut().flatten().for_each(end);
        lanes.by_endpoint.clear();
    }

    /// Ends all connections but those with calls in flight, which end with them.
    pub(super) fn retire(&self) {
        let mut lanes = self.lock();
        lanes.closed = true;
        lanes.by_endpoint.clear();
    }

    /// How many connections are open.
    pub(super) fn open_connections(&self) -> usize {
        self.lock().by_endpoint.values().flatten().filter(|lane| lane.is_open()).count()
    }
}

fn end(lane: &mut Lane) {
    if let Lane::Up(connection) = std::mem::replace(lane, Lane::Empty) {
        connection.close();
    }
}

/// The lane for a call.
fn choose(of: &[Lane], records: bool) -> usize {
    if !records || of.len() == 1 {
        return 0;
    }
    let bulk = || of.iter().enumerate().skip(1);
    // One that is open and unused; the first lane too while there is no other.
    if let Some((lane, _)) = bulk().find(|(_, lane)| lane.calls() == Some(0)) {
        return lane;
    }
    if bulk().all(|(_, lane)| !lane.is_open()) && matches!(of[0].calls(), None | Some(0)) {
        return 0;
    }
    // A further one, unless one is on its way or has just failed.
    let waits = |lane: &Lane| matches!(lane, Lane::Dialling(_) | Lane::Failed(..));
    let fewest = bulk().filter(|(_, lane)| lane.alive().is_some()).min_by_key(|(_, l)| l.calls());
    match (bulk().find(|(_, lane)| !lane.is_open() && !waits(lane)), fewest) {
        (Some((lane, _)), _) | (None, Some((lane, _))) => lane,
        (None, None) => bulk().find(|(_, lane)| lane.is_open()).map_or(0, |(lane, _)| lane),
    }
}
