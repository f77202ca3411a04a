//! What versions came with (attestations, their object's record, its policy) is not counted by itself when peers compare what
//! they hold. Where it was lost, its versions are fetched again from their other holders, who send it with them.
//!
//! ```text
//! a start that found records gone, or a damaged one of these --> one version of each place, once
//!     --> versions without an attestation, and those that nobody gave --> again, later each time, at last once an hour
//! ```
//! Few are fetched at a time, so that what else is damaged waits for none of it. What becomes known meanwhile is looked for behind it, or a
//! disk that fails minute by minute would keep the look at its first places.

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
/// The longest: who has it may be away for days.
const EVERY_MAX: Duration = Duration::from_secs(3600);
/// Looks after which the peer counts as settled all the same, and a version is let be of which it is not known what it lacks.
const LOOKS_MAX: u32 = 6;
/// How long one round takes at most; what is left of it is the next one's.
const ROUND: Duration = Duration::from_secs(10);
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
    /// Of what the look at places found, what nobody gave.
    left: VecDeque<Placed>,
    /// Something became known to be damaged since the look began.
    more: bool,
    /// Not before this time.
    next: Duration,
    looks: u32,
    known: BTreeSet<RecordId>,
}

impl Bereft {
    pub(super) fn at_start(core: &Core) -> Self {
        let wanted = core.shelf.upkeep().is_some_and(store::Upkeep::lost_records);
        let bereft = Self {
            wanted,
            places: wanted.then_some(0),
            found: VecDeque::new(),
            left: VecDeque::new(),
            more: false,
            next: Duration::ZERO,
            looks: 0,
            known: BTreeSet::new(),
        };
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
            self.more = true;
            if !self.wanted || self.places.is_none() {
                self.begin();
            }
        }
    }

    /// Begins to look anew.
    fn begin(&mut self) {
        (self.wanted, self.places, self.looks, self.more) = (true, Some(0), 0, false);
        self.next = Duration::ZERO;
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
        let end = core.env.clock.elapsed() + ROUND;
        for _ in 0..ROUND_MAX {
            let Some(version) = self.found.pop_front() else { break };
            keeping.wait(core).await;
            let came = keeping::again(core, version.id, version.place).await;
            let given_up = self.places.is_none() && self.looks >= LOOKS_MAX;
            if !came && !given_up && self.left.len() < LOOK_MAX {
                self.left.push_back(version);
            }
            if core.env.clock.elapsed() >= end {
                break;
            }
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
        let mut found = match core.objects.bereft(self.places, LOOK_MAX).await {
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
            Some(_) if self.more => self.begin(),
            Some(_) => self.places = None,
            None => {
                let pause = EVERY.saturating_mul(1 << self.looks.min(16));
                self.next = now + pause.min(EVERY_MAX);
                self.looks = self.looks.saturating_add(1);
                let lacking: BTreeSet<RecordId> = found.iter().map(|one| one.id).collect();
                self.left.retain(|one| !lacking.contains(&one.id));
                found.extend(self.left.drain(..));
                self.wanted = !found.is_empty();
            }
        }
        self.found = found.into();
    }

    fn tell(&self, core: &Core) {
        if let Some(keeping) = &core.keeping {
            keeping.set_bereft(self.wanted && self.looks < LOOKS_MAX);
        }
    }
}
