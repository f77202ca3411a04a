//! Calls to several peers at once, and the moments at which one of them becomes late.
//!
//! A call has two alarms before its deadline: it is *late* when it takes longer than is usual (another peer may be asked
//! as well, if the hedging budget allows), and *overdue* at half its deadline (another peer is asked in any case: that is a retry,
//! not a hedge). The call itself goes on until its deadline; the first good answer counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crypto::PeerId;
use futures::StreamExt;
use futures::future::{BoxFuture, Either, select};
use futures::stream::FuturesUnordered;

use crate::core::Core;
use crate::latency::Size;

/// When a call that many records share is late.
pub(crate) const SHARED_LATE: Duration = Duration::from_secs(1);

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

#[derive(Clone, Copy)]
struct Running {
    since: Duration,
    late_at: Option<Duration>,
    overdue_at: Option<Duration>,
    /// Another call was started in its stead.
    replaced: bool,
}

/// Calls that run at once, at most one to a peer.
pub(crate) struct Race<T> {
    core: Arc<Core>,
    size: Size,
    calls: FuturesUnordered<BoxFuture<'static, (PeerId, T)>>,
    running: BTreeMap<PeerId, Running>,
}

impl<T: 'static> Race<T> {
    pub(crate) fn new(core: Arc<Core>, size: Size) -> Self {
        Self { core, size, calls: FuturesUnordered::new(), running: BTreeMap::new() }
    }

    /// Starts a call whose deadline is `limit` from now; it runs while [`Race::next`] is awaited.
    pub(crate) fn start(
        &mut self,
        peer: PeerId,
        limit: Duration,
        call: impl Future<Output = T> + Send + 'static,
    ) {
        let late = self.core.directory.late(&peer, self.size);
        self.start_late_after(late, peer, limit, call);
    }

    /// Starts a call that is late after so much time.
    pub(crate) fn start_late_after(
        &mut self,
        late: Duration,
        peer: PeerId,
        limit: Duration,
        call: impl Future<Output = T> + Send + 'static,
    ) {
        let since = self.core.env.clock.elapsed();
        let late_at = since + late;
        let running = Running {
            since,
            late_at: Some(late_at),
            overdue_at: Some(since + limit / 2),
            replaced: false,
        };
        self.running.insert(peer, running);
        self.calls.push(Box::pin(async move { (peer, call.await) }));
        self.core.budget.earn();
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

    /// Waits for the next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> Event<T> {
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
            Either::Right(_) => self.ring(peer),
        }
    }

    fn done(&mut self, done: Option<(PeerId, T)>) -> Event<T> {
        let Some((peer, result)) = done else { return Event::Idle };
        self.running.remove(&peer);
        Event::Done(peer, result)
    }

    fn ring(&mut self, peer: PeerId) -> Event<T> {
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
            if running.late_at.is_none() {
                self.core.directory.lagged(&peer, self.size, now.saturating_sub(running.since));
            }
        }
        self.calls.clear();
    }
}
