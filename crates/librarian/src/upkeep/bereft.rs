//! What versions came with (attestations, their object's record, its policy) is not counted by itself when peers compare what
//! they hold. Where it was lost, its versions are fetched again from their other holders, who send it with them.

use std::time::Duration;

use crate::core::Core;
use crate::keeping;

/// The time from one look to the next at first; it doubles each time that something lacks still.
const EVERY: Duration = Duration::from_secs(5);
const EVERY_MAX: Duration = Duration::from_secs(3600);
/// Looks for which this peer does not say that all is whole. What nobody gave by then is not waited for.
const LOOKS_MAX: u32 = 6;
/// Versions fetched again after one look, 65 bytes each in memory.
const LOOK_MAX: usize = 1 << 17;

/// What is still to be looked for.
pub(super) struct Bereft {
    wanted: bool,
    /// Whether an object's record or policy may be what was lost: one version of each place is fetched again.
    everywhere: bool,
    /// Not before this time.
    next: Duration,
    looks: u32,
}

impl Bereft {
    pub(super) fn at_start(core: &Core) -> Self {
        let lost = core.shelf.upkeep().is_some_and(store::Upkeep::lost_records);
        let bereft = Self { wanted: lost, everywhere: lost, next: Duration::ZERO, looks: 0 };
        bereft.tell(core);
        bereft
    }

    /// The time until the next look; `None` where none is to be.
    pub(super) fn pause(&self, core: &Core) -> Option<Duration> {
        let left = self.next.saturating_sub(core.env.clock.elapsed());
        self.wanted.then_some(left.max(Duration::from_secs(1)))
    }

    /// Something that came with versions is known to be damaged.
    pub(super) fn something_is_damaged(&mut self) {
        (self.wanted, self.everywhere) = (true, true);
    }

    /// Looks once where it is time to, and fetches what it finds, one version at a time.
    pub(super) async fn look(&mut self, core: &Core) {
        let now = core.env.clock.elapsed();
        let compares = core.keeping.as_ref().is_some_and(|keeping| keeping.is_comparing());
        if !self.wanted || !compares || now < self.next {
            return;
        }
        let found = match core.objects.bereft(self.everywhere, LOOK_MAX).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "versions without what they came with cannot be looked for");
                self.later(now);
                return;
            }
        };
        let before = core.shelf.stats().damaged;
        let mut came = 0;
        for version in &found {
            came += usize::from(keeping::again(core, version.id, version.place).await);
        }
        let left = core.shelf.stats().damaged;
        core.metrics.upkeep.mended.inc_by(before.saturating_sub(left));
        if !found.is_empty() {
            let versions = found.len();
            tracing::info!(versions, came, "versions were fetched again for what came with them");
        }
        // What came without what lacks is seen by the next look, which takes those alone that lack something.
        self.everywhere &= came < found.len();
        if found.is_empty() {
            self.wanted = false;
        }
        if found.is_empty() && left == 0 {
            (self.next, self.looks) = (Duration::ZERO, 0);
        } else {
            self.later(now);
        }
        self.tell(core);
    }

    fn later(&mut self, now: Duration) {
        self.next = now + EVERY.saturating_mul(1 << self.looks.min(20)).min(EVERY_MAX);
        self.looks = self.looks.saturating_add(1);
    }

    fn tell(&self, core: &Core) {
        if let Some(keeping) = &core.keeping {
            keeping.set_bereft(self.wanted && self.looks < LOOKS_MAX);
        }
    }
}
