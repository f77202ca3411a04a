//! Calls to several peers at once, and the moments at which one of them becomes late.
//!
//! A call has two alarms before its deadline: it is *late* when it takes longer than is usual (another peer may be asked
//! as well, if the hedging budget allows, and no other record waits to go out), and *overdue* at half its deadline (another peer is asked in any case: that is a retry,
//! not a hedge). The call itself goes on until its deadline; the first good answer counts. All of that begins with the call's
//! turn on the line ([`crate::line`]): while it waits for that it is not late.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crypto::PeerId;
use env::calls::{CallError, StoreOutcome};
use futures::future::{BoxFuture, Either, Shared, select};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use crate::core::Core;
use crate::latency::Size;
use crate::line::{Load, Moved, Turn};
use crate::owing::Owed;

/// When a call that many records share is late.
pub(crate) const SHARED_LATE: Duration = Duration::from_secs(1);

/// How soon a call may be late once more.
const LATE_AGAIN_MIN: Duration = Duration::from_millis(100);

/// Something that happened to a call.
pub(crate) enum Event<T> {
    /// It ended.
    Done(PeerId, T),
    /// It takes longer than is usual.
    Late(PeerId),
    /// Half its time is over.
    Overdue(PeerId),
    /// No call is running.
    Idle,
}

/// What came of a call.
pub(crate) trait Ended {
    /// What it tells of the line.
    fn moved(&self) -> Moved;
}

impl Ended for CallError {
    fn moved(&self) -> Moved {
        match self {
            Self::TimedOut { .. } => Moved::NotInTime,
            _ => Moved::Nothing,
        }
    }
}

impl Ended for Result<(), CallError> {
    fn moved(&self) -> Moved {
        self.as_ref().map_or_else(Ended::moved, |()| Moved::Yes)
    }
}

impl Ended for Result<StoreOutcome, CallError> {
    fn moved(&self) -> Moved {
        self.as_ref().map_or_else(Ended::moved, |_| Moved::Yes)
    }
}

/// A turn that several calls share.
pub(crate) type SharedTurn = Shared<BoxFuture<'static, Arc<Turn>>>;

impl Core {
    /// Notes what a call tells of the line, where it does.
    pub(crate) fn moved(&self, turn: &Turn, peer: &PeerId, ended: &impl Ended) {
        let how = ended.moved();
        if turn.counts() && how != Moved::Nothing {
            let peers = if self.through.is_some() { 1 } else { self.directory.view().len() };
            turn.ended(how, peer, peers);
        }
    }

    /// A turn that begins when the first of those that share it waits for it.
    pub(crate) fn shared_turn(self: &Arc<Self>, load: Load) -> SharedTurn {
        let core = self.clone();
        async move { Arc::new(core.line.turn(load).await) }.boxed().shared()
    }
}

/// A call that waits for its turn, or runs.
enum Step<T> {
    /// Its turn began; it is overdue after so long.
    Turn(Duration, BoxFuture<'static, T>),
    Ended(T),
}

struct Running {
    /// When its turn began; `None`: it waits.
    since: Option<Duration>,
    /// After how much of its time it is late.
    late: Duration,
    late_at: Option<Duration>,
    overdue_at: Option<Duration>,
    /// Another call was started in its stead.
    replaced: bool,
    /// For a large record.
    owed: Option<Owed>,
}

impl Running {
    fn begin(&mut self, since: Duration, overdue: Duration) {
        self.since = Some(since);
        (self.late_at, self.overdue_at) = (Some(since + self.late), Some(since + overdue));
    }
}

/// Calls that run at once, at most one to a peer.
pub(crate) struct Race<T> {
    core: Arc<Core>,
    size: Size,
    calls: FuturesUnordered<BoxFuture<'static, (PeerId, Step<T>)>>,
    running: BTreeMap<PeerId, Running>,
    /// How long any call waited for its turn, until now or until this moment, since when one does again.
    waited: Duration,
    waits_since: Option<Duration>,
}

impl<T: Send + 'static> Race<T> {
    pub(crate) fn new(core: Arc<Core>, size: Size) -> Self {
        let (calls, running) = (FuturesUnordered::new(), BTreeMap::new());
        Self { core, size, calls, running, waited: Duration::ZERO, waits_since: None }
    }

    /// Starts a call when its turn comes, with its deadline from then; it runs while [`Race::next`] is awaited.
    pub(crate) fn start<F>(
        &mut self,
        peer: PeerId,
        load: Load,
        call: impl FnOnce(Duration) -> F + Send + 'static,
    ) where
        T: Ended,
        F: Future<Output = T> + Send + 'static,
    {
        let late = self.core.directory.late(&peer, self.size);
        let core = self.core.clone();
        let run = move |turn: Turn| {
            let call = call(turn.limit());
            async move {
                let ended = call.await;
                core.moved(&turn, &peer, &ended);
                ended
            }
        };
        match self.core.line.turn_now(load) {
            Some(turn) => {
                let (since, overdue) = (turn.since(), turn.overdue());
                self.enter(peer, late).begin(since, overdue);
                let call = run(turn);
                self.calls.push(Box::pin(async move { (peer, Step::Ended(call.await)) }));
            }
            None => {
                self.enter(peer, late);
                let core = self.core.clone();
                self.calls.push(Box::pin(async move {
                    let turn = core.line.turn(load).await;
                    (peer, Step::Turn(turn.overdue(), run(turn).boxed()))
                }));
            }
        }
    }

    /// Starts a call that others share: its time begins with the turn of all, and it is late by no habit of this one's kind.
    pub(crate) fn start_shared(
        &mut self,
        peer: PeerId,
        turn: SharedTurn,
        call: impl Future<Output = T> + Send + 'static,
    ) {
        self.enter(peer, SHARED_LATE);
        self.calls.push(Box::pin(async move {
            let overdue = turn.await.overdue();
            (peer, Step::Turn(overdue, call.boxed()))
        }));
    }

    fn enter(&mut self, peer: PeerId, late: Duration) -> &mut Running {
        self.core.budget.earn();
        let now = self.core.env.clock.elapsed();
        self.waits_since.get_or_insert(now);
        let (since, late_at, overdue_at) = (None, None, None);
        let owed = (self.size == Size::Large).then(|| self.core.owing.begin(peer));
        let running = Running { since, late, late_at, overdue_at, replaced: false, owed };
        let entry = self.running.entry(peer);
        entry.insert_entry(running).into_mut()
    }

    /// Calls that run.
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// Calls that run and have not been replaced by another.
    pub(crate) fn counted(&self) -> usize {
        self.running.values().filter(|running| !running.replaced).count()
    }

    /// Whether a call to this peer runs and has not been replaced by another.
    pub(crate) fn is_counted(&self, peer: &PeerId) -> bool {
        self.running.get(peer).is_some_and(|running| !running.replaced)
    }

    /// Notes that another call is to be started in this one's stead; `false` where that was noted before.
    pub(crate) fn replace(&mut self, peer: &PeerId) -> bool {
        self.running
            .get_mut(peer)
            .is_some_and(|running| !std::mem::replace(&mut running.replaced, true))
    }

    /// Whether a record may go out to another peer as well because this call is late; if so it is paid for. Not while others wait
    /// for their turn, which it would take: there it is the line that is late and not the peer, and the call is late once more after
    /// as long.
    pub(crate) fn may_send_twice(&mut self, peer: &PeerId) -> bool {
        if !self.core.line.sends_wait() {
            return self.core.budget.spend();
        }
        let now = self.core.env.clock.elapsed();
        if let Some(running) = self.running.get_mut(peer) {
            running.late_at = Some(now + running.late.max(LATE_AGAIN_MIN));
        }
        false
    }

    /// Waits for the next event; `None` when the walk is over, at `until`, and so much later as calls waited for their turns.
    /// Cancel safe.
    pub(crate) async fn next(&mut self, until: Duration) -> Option<Event<T>> {
        loop {
            let step = if self.waits() {
                self.step().await
            } else {
                let env = self.core.env.clone();
                let left = (until + self.waited).saturating_sub(env.clock.elapsed());
                env.within(left, self.step()).await.ok()?
            };
            if step.is_some() {
                return step;
            }
        }
    }

    /// Whether a call waits for its turn; notes how long any did.
    fn waits(&mut self) -> bool {
        let waits = self.running.values().any(|running| running.since.is_none());
        if !waits && let Some(since) = self.waits_since.take() {
            self.waited += self.core.env.clock.elapsed().saturating_sub(since);
        }
        waits
    }

    /// One event; `None` where a turn began.
    async fn step(&mut self) -> Option<Event<T>> {
        let alarms = self.running.iter().filter_map(|(peer, running)| {
            let at = running.late_at.into_iter().chain(running.overdue_at).min()?;
            Some((at, *peer))
        });
        let Some((at, peer)) = alarms.min() else {
            let done = self.calls.next().await;
            return self.done(done);
        };
        let wait = at.saturating_sub(self.core.env.clock.elapsed());
        let alarm = self.core.env.clock.sleep(wait);
        // A call that ended at the same moment as the alarm went off is looked at first.
        match select(self.calls.next(), alarm).await {
            Either::Left((done, _)) => self.done(done),
            Either::Right(_) => Some(self.ring(peer)),
        }
    }

    fn done(&mut self, done: Option<(PeerId, Step<T>)>) -> Option<Event<T>> {
        match done {
            None => Some(Event::Idle),
            Some((peer, Step::Ended(result))) => {
                self.running.remove(&peer);
                Some(Event::Done(peer, result))
            }
            Some((peer, Step::Turn(overdue, call))) => {
                let now = self.core.env.clock.elapsed();
                if let Some(running) = self.running.get_mut(&peer) {
                    running.begin(now, overdue);
                }
                self.calls.push(Box::pin(async move { (peer, Step::Ended(call.await)) }));
                None
            }
        }
    }

    fn ring(&mut self, peer: PeerId) -> Event<T> {
        let running = self.running.get_mut(&peer);
        if let Some(owed) = running.and_then(|running| running.owed.as_mut()) {
            owed.late();
        }
        match self.running.get_mut(&peer) {
            Some(running) if running.late_at <= running.overdue_at && running.late_at.is_some() => {
                running.late_at = None;
                Event::Late(peer)
            }
            Some(running) => {
                (running.late_at, running.overdue_at) = (None, None);
                Event::Overdue(peer)
            }
            None => Event::Idle,
        }
    }

    /// Drops the calls that still run, since others answered; those that were late are remembered as slow.
    pub(crate) fn give_up(&mut self) {
        let now = self.core.env.clock.elapsed();
        for (peer, running) in std::mem::take(&mut self.running) {
            if let (Some(since), None) = (running.since, running.late_at) {
                self.core.directory.lagged(&peer, self.size, now.saturating_sub(since));
            }
        }
        self.calls.clear();
    }
}
