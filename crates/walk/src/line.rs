//! Turns on this program's line to the network: how many bytes may be on their way at once.
//!
//! A call has a deadline, and on a slow line it is the bytes beside its own that take the time: 48 MiB sent at once over
//! 10 Mbit/s take 40 s, so every call of them is late, is sent to another peer as well, and is given up in the end, though the
//! line moved bytes all the while. So calls with records take turns: bytes of one direction are on their way up to a *window*,
//! as many as the line moves in about [`TURN`], and a call's time begins with its turn.
//!
//! ```text
//!   call --> waits, first come first served --> its turn: deadline, alarms, bytes --> ended: how long it took
//!                       ^                                                               |
//!                       +--------------- window: x2, x4 while quick, to TURN where not <+
//! ```
//! The window is judged once half of it was turned over (all of it where it is to be smaller), by the middle one of the peers that
//! answered: two at least say that the line is quick and three that it is not, where there are as many. So a slow peer or two
//! say nothing of it. Calls that got no answer within their deadline say nothing either, where others did; where none did, a line
//! of which nothing was known is not slow (its peers hang: a line that slow serves nobody), and one that was known is unknown again. And bytes count as on their way only so long as the line may
//! have them: a call that takes [`PATIENCE`] times what is usual is at a peer that is slow, and others need not wait for it.
//! The window begins at [`SENT_FIRST_BYTES`] and [`TAKEN_FIRST_BYTES`]; on a fast network it is past 64 MiB when three windows'
//! calls have ended.
//!
//! Invariants: whoever waits gets a turn as those before it end, each of which has a deadline; with nothing on its way
//! anything may go, however large; where nothing ends for [`STANDSTILL`], the first goes all the same (a program may hold calls
//! that it does not look after while it waits for another one). Memory: an entry for each call that waits, which its caller bounds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crypto::PeerId;
use env::Env;
use tokio::sync::oneshot;

use crate::core::limit;
use crate::latency::LARGE_BYTES;

/// How long the bytes that are on their way at once should take.
pub(crate) const TURN: Duration = Duration::from_secs(2);
/// What goes out at once on a line of which nothing is known: two pages of 2 MiB, with what is around them.
pub(crate) const SENT_FIRST_BYTES: usize = (4 << 20) + (128 << 10);
/// What comes in at once on such a line.
pub(crate) const TAKEN_FIRST_BYTES: usize = 4 << 20;
/// Where the window stops to grow: no line is that wide.
const WINDOW_BYTES_MAX: usize = 1 << 40;
/// Where it stops to shrink. One call has its turn in any case.
const WINDOW_BYTES_MIN: usize = 256 << 10;
/// Calls by which a line is called anything else than quick, at least: that it is quick one says.
const SAMPLES_SLOW_MIN: usize = 4;
/// Peers by which it is called quick, at least, where there are as many.
const PEERS_QUICK_MIN: usize = 2;
/// Peers by which it is called anything else, or unknown again.
const PEERS_SLOW_MIN: usize = 3;
/// The slowest line that is allowed for while nothing is known, in bytes a second.
const SLOWEST_BYTES_PER_S: u64 = 90_000;
/// The longest deadline of a call: a little less than a peer allows (`rpc`'s `ServerLimits::call`).
const LIMIT_MAX: Duration = Duration::from_secs(55);
/// The first in the queue goes when no call ended for this long: whoever has the turns may be waiting for it.
const STANDSTILL: Duration = Duration::from_secs(15);
/// The same on a line of which nothing is known: a peer that hangs is not to hold up all others.
const STANDSTILL_UNKNOWN: Duration = Duration::from_secs(10);
/// How many times what its line usually takes a call is given.
const PATIENCE: u32 = 4;
/// What a large record whose size is not known counts as at first.
const UNKNOWN_BYTES: usize = 1 << 20;
/// How long bytes count as on their way, at least.
const LAPSE_MIN: Duration = Duration::from_millis(100);

/// Where the bytes of a call go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Sent,
    Taken,
}

/// What a call puts on the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// `None`: next to nothing, which waits for no turn.
    way: Option<Way>,
    bytes: usize,
    at_most: Option<Duration>,
}

impl Load {
    /// Next to nothing.
    pub(crate) fn little() -> Self {
        Self { way: None, bytes: 0, at_most: None }
    }

    /// Records of so many bytes go out.
    pub(crate) fn sent(bytes: usize) -> Self {
        Self { way: Some(Way::Sent), bytes, at_most: None }.or_little()
    }

    /// Records of about so many bytes come in.
    pub(crate) fn taken(bytes: usize) -> Self {
        Self { way: Some(Way::Taken), bytes, at_most: None }.or_little()
    }

    /// A question whose answer may have so many bytes, and mostly has next to none: it has the time and waits for no turn.
    pub(crate) fn question(bytes: usize) -> Self {
        Self { way: None, bytes, at_most: None }
    }

    /// A deadline that is not passed whatever the line does.
    pub(crate) fn at_most(self, limit: Duration) -> Self {
        Self { at_most: Some(limit), ..self }
    }

    fn or_little(self) -> Self {
        Self { way: self.way.filter(|_| self.bytes >= LARGE_BYTES), ..self }
    }
}

/// The line, each direction for itself.
pub(crate) struct Line {
    env: Env,
    sent: Arc<Lane>,
    taken: Arc<Lane>,
    /// How many bytes records have of which only their kind was known, about.
    usual_bytes: AtomicUsize,
}

impl Line {
    /// A line of which nothing is known but what may go at first.
    pub(crate) fn new(env: Env, sent_bytes: usize, taken_bytes: usize) -> Self {
        let lane = |bytes: usize| Arc::new(Lane(Mutex::new(State::new(bytes))));
        let usual_bytes = AtomicUsize::new(UNKNOWN_BYTES);
        Self { env, sent: lane(sent_bytes), taken: lane(taken_bytes), usual_bytes }
    }

    /// A record of which only the kind is known comes in.
    pub(crate) fn some_record(&self) -> Load {
        // Behind many short ones a long one may come. It takes a turn in any case: what waits for none has no more time than a
        // short one needs, and eight long ones at once are late on a slow line for all their holders.
        Load::taken(self.usual_bytes.load(Ordering::Relaxed).max(LARGE_BYTES))
    }

    /// It had so many bytes.
    pub(crate) fn learn_bytes(&self, bytes: usize) {
        // Two at a time may lose one of them: it is a guess.
        let usual = self.usual_bytes.load(Ordering::Relaxed);
        self.usual_bytes.store((usual * 7 + bytes) / 8, Ordering::Relaxed);
    }

    /// A turn, if there is one at once.
    pub(crate) fn turn_now(&self, load: Load) -> Option<Turn> {
        let Some(lane) = self.lane(&load) else { return Some(self.begun(load, None)) };
        let ticket = lane.lock().admit(load.bytes, self.env.clock.elapsed())?;
        Some(self.begun(load, Some((lane.clone(), ticket))))
    }

    /// Waits for a turn. Cancel safe.
    pub(crate) async fn turn(&self, load: Load) -> Turn {
        let Some(lane) = self.lane(&load) else { return self.begun(load, None) };
        let asked = lane.lock().ask(load.bytes, self.env.clock.elapsed());
        let ticket = match asked {
            Ok(ticket) => ticket,
            Err((ticket, mut turn)) => {
                // Whoever is dropped here leaves the queue, or gives back the turn that came in that moment.
                let mut leaving = Leaving { line: self, lane, ticket: Some(ticket) };
                loop {
                    let wait = lane.lock().look_again_after();
                    if self.env.within(wait, &mut turn).await.is_ok() {
                        break;
                    }
                    lane.lock().look_again(self.env.clock.elapsed());
                }
                leaving.ticket = None;
                ticket
            }
        };
        self.begun(load, Some((lane.clone(), ticket)))
    }

    /// How long a call that sends records may take beside the time of its own bytes; nothing on a line that is quick.
    pub(crate) fn patience(&self) -> Duration {
        let quick = self.sent.lock().quick.filter(|quick| *quick > TURN / 2);
        quick.map_or(Duration::ZERO, |quick| (quick * PATIENCE).min(LIMIT_MAX))
    }

    /// Whether nothing is known yet of how fast records come in.
    pub(crate) fn takes_unknown(&self) -> bool {
        self.taken.lock().quick.is_none()
    }

    /// Whether records wait for a turn to go out.
    pub(crate) fn sends_wait(&self) -> bool {
        !self.sent.lock().waiting.is_empty()
    }

    fn lane(&self, load: &Load) -> Option<&Arc<Lane>> {
        match load.way? {
            Way::Sent => Some(&self.sent),
            Way::Taken => Some(&self.taken),
        }
    }

    fn begun(&self, load: Load, lane: Option<(Arc<Lane>, u64)>) -> Turn {
        let since = self.env.clock.elapsed();
        let own = limit(load.bytes);
        let quick = lane.as_ref().map(|(lane, _)| lane.lock().usual(load.bytes));
        let (beside, known) = quick.unwrap_or((Duration::ZERO, true));
        let quick_alone = lane.as_ref().map_or(Duration::ZERO, |(lane, _)| lane.lock().alone());
        let by_line = own.saturating_add(beside).min(own.max(LIMIT_MAX));
        let limit = load.at_most.map_or(by_line, |most| by_line.min(most));
        let sure = if known { limit.min(own + quick_alone) } else { limit.min(own) };
        Turn { env: self.env.clone(), lane, bytes: load.bytes, since, limit, sure }
    }
}

/// What a call that ended tells of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moved {
    /// It was refused, or had nothing to move.
    Nothing,
    /// There was no answer within the deadline.
    NotInTime,
    /// Its bytes went over it.
    Yes,
}

/// Bytes that are on their way, until it is dropped.
pub(crate) struct Turn {
    env: Env,
    lane: Option<(Arc<Lane>, u64)>,
    bytes: usize,
    since: Duration,
    limit: Duration,
    sure: Duration,
}

impl Turn {
    /// The deadline of the call whose turn it is.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// The same without what the line may need if it is slow, where nothing is known of it yet: whoever has somebody else to ask
    /// asks as early as on a quick line.
    pub(crate) fn sure_limit(&self) -> Duration {
        self.sure
    }

    /// After how much time another peer is asked in any case.
    pub(crate) fn overdue(&self) -> Duration {
        self.sure / 2
    }

    /// Whether anything is learnt from it.
    pub(crate) fn counts(&self) -> bool {
        self.lane.is_some()
    }

    /// When it began.
    pub(crate) fn since(&self) -> Duration {
        self.since
    }

    /// The bytes were moved from or to one of so many `peers`, or did not come through within the deadline: what the line is
    /// judged by.
    pub(crate) fn ended(&self, how: Moved, peer: &PeerId, peers: usize) {
        let Some((lane, _)) = &self.lane else { return };
        let now = self.env.clock.elapsed();
        let took = now.saturating_sub(self.since);
        match how {
            Moved::Yes => lane.lock().moved(self.bytes, self.since, now, (*peer, peers)),
            // A dial that took too long ends before: it had nothing on its way.
            Moved::NotInTime if took >= self.limit * 3 / 4 => {
                lane.lock().missed(self.since, now, (*peer, peers));
            }
            Moved::NotInTime | Moved::Nothing => {}
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((lane, ticket)) = &self.lane {
            let now = self.env.clock.elapsed();
            lane.lock().release(*ticket, now);
        }
    }
}

/// One direction.
struct Lane(Mutex<State>);

impl Lane {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue that is given up.
struct Leaving<'a> {
    line: &'a Line,
    lane: &'a Lane,
    ticket: Option<u64>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let now = self.line.env.clock.elapsed();
            self.lane.lock().release(ticket, now);
        }
    }
}

/// One of the peers may be slow or away, or this program.
fn others(peers: usize) -> usize {
    peers.saturating_sub(1).max(1)
}

/// Peers by which a line is called slow.
fn slow_min(peers: usize) -> usize {
    PEERS_SLOW_MIN.min(others(peers))
}

struct Waiting {
    ticket: u64,
    bytes: usize,
    turn: oneshot::Sender<()>,
}

#[derive(Clone, Copy)]
struct OnWay {
    ticket: u64,
    bytes: usize,
    since: Duration,
}

struct State {
    window: usize,
    /// Whose bytes count, those that began first in front.
    on_way: VecDeque<OnWay>,
    /// Their bytes.
    bytes: usize,
    waiting: VecDeque<Waiting>,
    next_ticket: u64,
    /// When a call last ended, or one was let go without room.
    ended: Duration,
    /// When the window last changed: calls that began before say nothing of it.
    changed: Duration,
    /// Of the calls since it was last judged: the quickest of each peer, how many there were, and their bytes.
    took: BTreeMap<PeerId, Duration>,
    /// Who gave no answer in time since.
    missed: BTreeSet<PeerId>,
    /// When bytes were last moved.
    answered: Option<Duration>,
    samples: usize,
    moved: usize,
    /// The most bytes that were on their way since.
    peak: usize,
    /// Whether any had to wait since.
    limited: bool,
    /// What the middle one took when it was last judged.
    quick: Option<Duration>,
    /// The most bytes that were on their way when that was.
    load: usize,
    /// The window of a line of which nothing is known.
    first: usize,
}

impl State {
    fn new(window: usize) -> Self {
        Self {
            window,
            on_way: VecDeque::new(),
            bytes: 0,
            waiting: VecDeque::new(),
            next_ticket: 0,
            ended: Duration::ZERO,
            changed: Duration::ZERO,
            took: BTreeMap::new(),
            missed: BTreeSet::new(),
            answered: None,
            samples: 0,
            moved: 0,
            peak: 0,
            limited: false,
            quick: None,
            load: 0,
            first: window,
        }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= self.window
    }

    fn begin(&mut self, ticket: u64, bytes: usize, since: Duration) {
        self.on_way.push_back(OnWay { ticket, bytes, since });
        self.bytes += bytes;
        self.peak = self.peak.max(self.bytes);
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn admit(&mut self, bytes: usize, now: Duration) -> Option<u64> {
        self.lapse(now);
        if !self.waiting.is_empty() || !self.fits(bytes) {
            return None;
        }
        let ticket = self.ticket();
        self.begin(ticket, bytes, now);
        Some(ticket)
    }

    /// A turn, or a place in the queue and what tells of its turn.
    fn ask(&mut self, bytes: usize, now: Duration) -> Result<u64, (u64, oneshot::Receiver<()>)> {
        if let Some(ticket) = self.admit(bytes, now) {
            return Ok(ticket);
        }
        let (turn, came) = oneshot::channel();
        let ticket = self.ticket();
        self.limited = true;
        self.waiting.push_back(Waiting { ticket, bytes, turn });
        Err((ticket, came))
    }

    /// It ended, or whoever has the ticket does not want its turn any more.
    fn release(&mut self, ticket: u64, now: Duration) {
        if let Some(at) = self.on_way.iter().position(|one| one.ticket == ticket) {
            self.bytes -= self.on_way.remove(at).map_or(0, |one| one.bytes);
            self.ended = now;
        } else {
            self.waiting.retain(|waiting| waiting.ticket != ticket);
        }
        self.wake(now);
    }

    /// What cannot be on the line any more counts no longer.
    fn lapse(&mut self, now: Duration) {
        let Some(age) = self.lapse_after() else { return };
        while self.on_way.front().is_some_and(|first| first.since + age <= now) {
            self.bytes -= self.on_way.pop_front().map_or(0, |first| first.bytes);
        }
    }

    fn lapse_after(&self) -> Option<Duration> {
        // Nothing was measured where all hang.
        let least = if self.load == 0 { TURN } else { LAPSE_MIN };
        self.quick.map(|quick| self.of_window(quick).max(least))
    }

    /// After how long somebody who waits looks whether there is room, though nothing ended.
    fn look_again_after(&self) -> Duration {
        self.lapse_after().unwrap_or(STANDSTILL_UNKNOWN).min(STANDSTILL)
    }

    /// Somebody waits and nothing ended for a while.
    fn look_again(&mut self, now: Duration) {
        self.lapse(now);
        self.wake(now);
        let standstill = if self.quick.is_some() { STANDSTILL } else { STANDSTILL_UNKNOWN };
        if now.saturating_sub(self.ended) >= standstill {
            self.ended = now;
            self.let_go(now);
        }
    }

    /// Gives turns to those for whom there is room now, in order.
    fn wake(&mut self, now: Duration) {
        self.lapse(now);
        while self.waiting.front().is_some_and(|first| self.fits(first.bytes)) {
            self.let_go(now);
        }
    }

    /// Gives the first in the queue its turn.
    fn let_go(&mut self, now: Duration) {
        if let Some(Waiting { ticket, bytes, turn }) = self.waiting.pop_front() {
            self.begin(ticket, bytes, now);
            // One that is about to leave gives it back.
            let _ = turn.send(());
        }
    }

    /// What so many bytes take, with patience, as there were when the line was last judged.
    fn alone(&self) -> Duration {
        self.quick.map_or(Duration::ZERO, |quick| quick * PATIENCE)
    }

    /// What the whole window takes, with patience, by what a part of it took.
    fn of_window(&self, quick: Duration) -> Duration {
        let least = quick * PATIENCE;
        let parts = self.window as f64 / self.load.max(1) as f64;
        match self.load {
            0 => least,
            _ => least.mul_f64(parts.clamp(1.0, 1_000.0)).min(STANDSTILL).max(least),
        }
    }

    /// What is given to a call beside the time of its own bytes, and whether that is known.
    fn usual(&self, bytes: usize) -> (Duration, bool) {
        let unknown = || {
            let all = self.window.max(bytes) as u64;
            (Duration::from_micros(all * 1_000_000 / SLOWEST_BYTES_PER_S), false)
        };
        self.quick.map_or_else(unknown, |quick| (self.of_window(quick), true))
    }

    fn moved(&mut self, bytes: usize, since: Duration, now: Duration, of: (PeerId, usize)) {
        let before = self.answered.replace(now);
        self.missed.clear();
        if since < self.changed {
            return;
        }
        if before.is_some_and(|before| now.saturating_sub(before) >= STANDSTILL * 4) {
            // What was then says nothing of now.
            self.took.clear();
            (self.samples, self.moved) = (0, 0);
        }
        let (peer, peers) = of;
        let took = now.saturating_sub(since);
        let quickest = self.took.entry(peer).or_insert(took);
        *quickest = took.min(*quickest);
        self.samples += 1;
        self.moved = self.moved.saturating_add(bytes);
        if self.moved < self.peak / 2 {
            return;
        }
        let mut took: Vec<Duration> = self.took.values().copied().collect();
        took.sort_unstable();
        let quick = took[(took.len() - 1) / 2];
        let enough = if quick < TURN / 2 {
            took.len() >= PEERS_QUICK_MIN.min(others(peers))
        } else {
            let by_all = self.moved >= self.peak && self.samples >= SAMPLES_SLOW_MIN;
            by_all && took.len() >= slow_min(peers)
        };
        if enough {
            self.judge(quick, now);
        }
    }

    fn missed(&mut self, since: Duration, now: Duration, (peer, peers): (PeerId, usize)) {
        if since < self.changed || self.answered.is_some_and(|answered| answered >= since) {
            return;
        }
        self.missed.insert(peer);
        if self.quick.is_none() {
            (self.quick, self.load) = (Some(Duration::ZERO), 0);
        } else if self.missed.len() >= slow_min(peers) {
            (self.quick, self.window) = (None, self.first);
        } else {
            return;
        }
        self.begin_anew(now);
    }

    fn judge(&mut self, quick: Duration, now: Duration) {
        if quick > TURN {
            let share = TURN.as_secs_f64() / quick.as_secs_f64();
            let fitting = (self.window.min(self.peak) as f64 * share) as usize;
            self.window = fitting.max(WINDOW_BYTES_MIN);
        } else if quick < TURN / 2 && self.limited {
            let times = if quick < TURN / 16 { 4 } else { 2 };
            self.window = self.window.saturating_mul(times).min(WINDOW_BYTES_MAX);
        }
        (self.quick, self.load) = (Some(quick), self.peak);
        tracing::debug!(took = ?quick, of = self.peak, window = self.window, "the line was judged");
        self.begin_anew(now);
    }

    /// What was learnt is in the window: calls that began before say no more.
    fn begin_anew(&mut self, now: Duration) {
        self.changed = now;
        self.took.clear();
        self.missed.clear();
        (self.samples, self.moved) = (0, 0);
        (self.peak, self.limited) = (self.bytes, !self.waiting.is_empty());
        self.wake(now);
    }
}

#[cfg(test)]
mod tests;
