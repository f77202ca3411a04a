//! Storing one record: at the first N peers of its rank that are well, answered when W copies are durable.
//!
//! ```text
//!            start N calls           W are durable             N are durable, or nobody is left
//!   rank ----------------> storing ----------------> stored  -------------------------> done
//!                           |    ^       (the caller goes on; the rest is finished behind)
//!              error, late  v    |
//!                       the next in rank
//! ```
//! Never are more than N + [`EXTRA_MAX`] calls in flight. A refusal by one peer is the next peer's chance; a peer that
//! failed a moment ago or is away is asked only while fewer than W copies could be reached without it.

use std::sync::Arc;
use std::time::Duration;

use crypto::PeerId;
use crypto::lease::Shown;
use document::Record;
use env::calls::{CallError, StoreOutcome};
use placement::{Redundancy, View};

use crate::candidates::Candidates;
use crate::core::{Core, WALK_LIMIT};
use crate::directory::Standing;
use crate::error::WalkError;
use crate::latency::Size;
use crate::race::{Event, Race, SharedTurn};

/// Calls in flight for one record beyond its copies.
pub const EXTRA_MAX: usize = 4;

/// A record on its way to its holders.
pub(crate) struct Storing {
    core: Arc<Core>,
    pub(crate) record: Record,
    /// What pays for it.
    pub(crate) leases: Arc<Vec<Shown>>,
    pub(crate) redundancy: Redundancy,
    candidates: Candidates,
    race: Race<Result<StoreOutcome, CallError>>,
    pub(crate) holders: Vec<PeerId>,
    /// Whether it was new to any of them.
    pub(crate) new: bool,
    errors: Vec<(PeerId, CallError)>,
    until: Duration,
}

impl Storing {
    pub(crate) fn new(
        core: Arc<Core>,
        view: &View,
        record: Record,
        leases: Vec<Shown>,
        redundancy: Redundancy,
    ) -> Self {
        let leases = Arc::new(leases);
        let size = Size::of(record.bytes.len());
        let candidates = Candidates::to_write(view, &record.place, size);
        let race = Race::new(core.clone(), size);
        let until = core.env.clock.elapsed() + WALK_LIMIT;
        let (holders, errors) = (Vec::new(), Vec::new());
        Self {
            core,
            record,
            leases,
            redundancy,
            candidates,
            race,
            holders,
            new: false,
            errors,
            until,
        }
    }

    /// Copies that are durable.
    pub(crate) fn acked(&self) -> u32 {
        u32::try_from(self.holders.len()).unwrap_or(u32::MAX)
    }

    /// The peers to start at now, so that N copies are stored or on their way if all goes well.
    pub(crate) fn choose(&mut self) -> Vec<PeerId> {
        let (copies, needed) = (self.redundancy.copies, self.redundancy.acknowledged);
        let (copies, needed) = (copies as usize, needed as usize);
        let mut chosen = Vec::new();
        loop {
            let expected = self.holders.len() + self.race.counted() + chosen.len();
            if expected >= copies || self.race.len() + chosen.len() >= copies + EXTRA_MAX {
                return chosen;
            }
            let worst = if expected < needed { Standing::Away } else { Standing::Ready };
            match self.candidates.next(&self.core, worst) {
                Some((peer, _)) => chosen.push(peer),
                None => return chosen,
            }
        }
    }

    /// Starts a call to `peer` that other records share: it is not late by what is usual for one record.
    pub(crate) fn start_shared(
        &mut self,
        peer: PeerId,
        turn: SharedTurn,
        call: impl Future<Output = Result<StoreOutcome, CallError>> + Send + 'static,
    ) {
        self.race.start_shared(peer, turn, call);
    }

    fn fill(&mut self) {
        for peer in self.choose() {
            let (core, record) = (self.core.clone(), self.record.clone());
            let leases = self.leases.clone();
            let load = core.load_to(&peer, record.bytes.len());
            self.race.start(peer, load, move |limit| async move {
                core.store_at(peer, record, leases, limit).await
            });
        }
    }

    /// Goes on until W copies are durable.
    ///
    /// # Errors
    /// [`WalkError`] where nobody is left to ask, or [`WALK_LIMIT`] has passed.
    pub(crate) async fn acknowledged(&mut self) -> Result<(), WalkError> {
        while self.acked() < self.needed() {
            if !self.step().await {
                let mut errors = std::mem::take(&mut self.errors);
                // Whoever was known to take no writes was not asked: it is a reason like a refusal.
                let silent = self.candidates.read_only(&self.core).into_iter();
                let reason = || "it said so before".to_owned();
                errors.extend(silent.map(|peer| (peer, CallError::ReadOnly { reason: reason() })));
                return Err(WalkError::of_write(
                    self.acked(),
                    self.redundancy.acknowledged,
                    errors,
                ));
            }
        }
        Ok(())
    }

    /// Copies that a writer's answer waits for.
    fn needed(&self) -> u32 {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_on(crate::planted::PlantedBug::AcknowledgeEarly) {
            return self.redundancy.acknowledged.saturating_sub(1);
        }
        self.redundancy.acknowledged
    }

    /// Goes on until N copies are durable or nothing more can be done; `on_holder` is told after each copy. Cancel safe.
    pub(crate) async fn complete(&mut self, mut on_holder: impl FnMut(&[PeerId]) + Send) {
        let mut known = self.holders.len();
        while self.acked() < self.redundancy.copies && self.step().await {
            if self.holders.len() > known {
                known = self.holders.len();
                on_holder(&self.holders);
            }
        }
        self.race.give_up();
        on_holder(&self.holders);
    }

    /// Starts what there is to start and waits for one event; `false` when nothing runs any more.
    async fn step(&mut self) -> bool {
        self.fill();
        match self.race.next(self.until).await {
            Some(Event::Done(peer, Ok(outcome))) => {
                self.holders.push(peer);
                self.new |= outcome == StoreOutcome::Stored;
            }
            Some(Event::Done(peer, Err(error))) => self.errors.push((peer, error)),
            Some(Event::Late(peer)) => {
                // Behind an answered put nobody waits: there only a peer that is overdue is replaced.
                if self.acked() < self.redundancy.acknowledged && self.race.may_send_twice(&peer) {
                    self.race.replace(&peer);
                }
            }
            Some(Event::Overdue(peer)) => {
                self.race.replace(&peer);
            }
            Some(Event::Idle) | None => return false,
        }
        true
    }
}
