//! What versions came with (attestations, their object's record, its policy) is not counted by itself when peers compare what
//! they hold. Where it was lost, its versions are fetched again from their other holders, who send it with them.
//!
//! ```text
//! a start that found records gone, or a damaged one of these --> one version of each place, once
//!     --> versions without an attestation --> again, later each time, up to LOOKS_MAX looks
//! ```
//! Few are fetched at a time, so that what else is damaged waits for none of it.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crypto::RecordId;
use store::Placed;

use crate::core::Core;
use crate::keeping;

/// The time from one look to the next at first; it doubles each time that something lacks still.
const EVERY: Duration = Duration::from_secs(5);
/// Between two rounds of one look.
const SOON: Duration = Duration::from_secs(1);
/// Looks for versions without an attestation. What nobody gave by then is let be.
const LOOKS_MAX: u32 = 6;
/// Versions that one look finds, 65 bytes each in memory.
const LOOK_MAX: usize = 1 << 17;
/// Versions fetched in one round.
const ROUND_MAX: usize = 64;
/// Damaged records remembered for which places were looked at.
const KNOWN_MAX: usize = 4096;

/// What is still to be looked for.
pub(super) struct Bereft {
    wanted: bool,
    /// How many places were looked at, while an object's record or policy may be what was lost.
    places: Option<usize>,
    found: VecDeque<Placed>,
    /// Not before this time.
    next: Duration,
    looks: u32,
    known: BTreeSet<RecordId>,
}

impl Bereft {
    pub(super) fn at_start(core: &Core) -> Self {
        let wanted = core.shelf.upkeep().is_some_and(store::Upkeep::lost_records);
        let (found, known) = (VecDeque::new(), BTreeSet::new());
        let places = wanted.then_some(0);
        let bereft = Self { wanted, places, found, next: Duration::ZERO, looks: 0, known };
        bereft.tell(core);
        bereft
    }

    /// The time until the next round; `None` where none is to be.
    pub(super) fn pause(&self, core: &Core) -> Option<Duration> {
        let left = self.next.saturating_sub(core.env.clock.elapsed());
        self.wanted.then_some(if self.found.is_empty() { left.max(SOON) } else { SOON })
    }

    /// Something that came with versions is known to be damaged.
    pub(super) fn is_damaged(&mut self, id: RecordId) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        if self.known.insert(id) {
            (self.wanted, self.places, self.looks) = (true, Some(0), 0);
            (self.next, self.found) = (Duration::ZERO, VecDeque::new());
        }
    }

    /// Looks where it is time to, and fetches some of what was found.
    pub(super) async fn look(&mut self, core: &Core) {
        let Some(keeping) = core.keeping.as_ref().filter(|keeping| keeping.is_comparing()) else {
            return;
        };
        if !self.wanted {
            return;
        }
        if self.found.is_empty() {
            self.find(core).await;
        }
        let before = core.shelf.stats().damaged;
        for _ in 0..ROUND_MAX {
            let Some(version) = self.found.pop_front() else { break };
            keeping.wait(core).await;
            keeping::again(core, version.id, version.place).await;
        }
        let left = core.shelf.stats().damaged;
        core.metrics.upkeep.mended.inc_by(before.saturating_sub(left));
        self.tell(core);
    }

    async fn find(&mut self, core: &Core) {
        let now = core.env.clock.elapsed();
        if now < self.next {
            return;
        }
        let found = match core.objects.bereft(self.places, LOOK_MAX).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "versions without what they came with cannot be looked for");
                self.next = now + EVERY;
                return;
            }
        };
        if !found.is_empty() {
            let versions = found.len();
            tracing::info!(versions, "versions are fetched again for what came with them");
        }
        match &mut self.places {
            Some(behind) if found.len() == LOOK_MAX => *behind += LOOK_MAX,
            Some(_) => self.places = None,
            None => {
                self.next = now + EVERY.saturating_mul(1 << self.looks.min(16));
                self.looks += 1;
                self.wanted = !found.is_empty() && self.looks < LOOKS_MAX;
            }
        }
        self.found = found.into();
    }

    fn tell(&self, core: &Core) {
        if let Some(keeping) = &core.keeping {
            keeping.set_bereft(self.wanted);
        }
    }
}
