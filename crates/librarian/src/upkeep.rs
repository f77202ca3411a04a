//! Looking after the store while it serves: its bytes read again at a trickle, what is damaged mended
//! from other peers' copies or fragments, dead space given back.
//!
//! ```text
//! scrub:   a step of at most 1 MiB -> pause for its pace -> ... -> whole pass -> a day's rest
//!             `-- something damaged --> mend: found at its holders, or made again from its stripe? put again
//! compact: every ten minutes, where a segment is dead enough
//! ```
//! After the records comes the publication log. What is damaged in it is forgotten, so that catching up
//! brings it again from other peers' logs.
//!
//! A pass begins at a random segment and comes round to it, so that a peer that is restarted every day
//! still reads all of a store for which a pass takes a month. What is damaged and what nobody else
//! answers for stays damaged, is counted, and is looked for again.
//!
//! Limits: one step, one record being mended and one compaction at a time; at rest nothing runs but
//! three timers, the shortest of a minute. An operator's read-only mode, and a disk whose fsync
//! failed, end mending and compaction; a full disk does not.

mod bereft;
mod mending;
mod rebuilding;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use store::{Compaction, CompactionOptions, ScrubStep, StoreError};
use tokio::sync::Notify;

use crate::core::Core;
use crate::shelf;

/// Bytes that a step of scrub reads at most, unless one record is longer.
const STEP_BYTES_MAX: u64 = 1 << 20;
/// The pause after a step that the disk did not answer.
const AFTER_ERROR: Duration = Duration::from_secs(600);
/// A peer that just started has other things to do, in its first time.
const AFTER_START: Duration = Duration::from_secs(5);

/// What an operator is to read in the log.
const DAMAGE: &str = "scrub found damage: the disk may be failing";
/// The same of what opening the store found.
const DAMAGE_AT_START: &str = "the store was opened with damage in it: the disk may be failing";

/// How a store is looked after while it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpkeepOptions {
    /// Bytes a second that scrub reads; 0 for no scrub.
    pub scrub_bytes_s: u64,
    /// The time from the end of a whole pass to the next one.
    pub scrub_rest: Duration,
    /// When and how fast segments are compacted; at 0 bytes a second, not at all.
    pub compaction: CompactionOptions,
    /// How often it is looked whether one is to be.
    pub compaction_every: Duration,
}

impl Default for UpkeepOptions {
    fn default() -> Self {
        Self {
            scrub_bytes_s: 1 << 20,
            scrub_rest: Duration::from_secs(24 * 3600),
            compaction: CompactionOptions::default(),
            compaction_every: Duration::from_secs(600),
        }
    }
}

/// The background work of a store that needs some.
pub(crate) fn start(core: &Arc<Core>, options: UpkeepOptions) -> Vec<BoxFuture<'static, ()>> {
    if core.shelf.upkeep().is_none() {
        return Vec::new();
    }
    note_start(core);
    let found = Arc::new(Notify::new());
    let mut work = vec![mending::mend_all(Arc::clone(core), Arc::clone(&found)).boxed()];
    if options.scrub_bytes_s > 0 {
        work.push(scrub_all(Arc::clone(core), options, found).boxed());
    }
    if options.compaction.bytes_per_s > 0 {
        work.push(compact_all(Arc::clone(core), options).boxed());
    }
    work
}

/// Scrubs until the peer stops.
async fn scrub_all(core: Arc<Core>, options: UpkeepOptions, found: Arc<Notify>) {
    let mut rest = AFTER_START;
    while core.pause(core.jittered(rest)).await {
        match pass(&core, options.scrub_bytes_s, &found).await {
            Ok(Some(ranges)) => {
                let counts = &core.metrics.upkeep;
                counts.passes.inc();
                let before = counts.ranges.set(i64::try_from(ranges).unwrap_or(i64::MAX));
                if u64::try_from(before).is_ok_and(|before| ranges > before) {
                    tracing::error!(ranges, "{DAMAGE}");
                }
                let now = core.env.clock.unix_s();
                counts.last_pass.set(i64::try_from(now).unwrap_or(i64::MAX));
                let damaged = core.shelf.stats().damaged;
                tracing::info!(damaged, "scrub read the whole store");
                rest = options.scrub_rest;
                if !check_log(&core, options.scrub_bytes_s).await {
                    return;
                }
            }
            Ok(None) | Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::error!(error = %shelf::one_line(&error), "scrub could not read the store");
                rest = AFTER_ERROR;
            }
        }
    }
}

/// Reads the publication log after the records, at the same pace; `false` where the peer stops.
async fn check_log(core: &Core, bytes_s: u64) -> bool {
    let pause = |bytes: usize| core.pause(Duration::from_secs_f64(bytes as f64 / bytes_s as f64));
    match core.publications.check(pause).await {
        Ok(None) => return false,
        Ok(Some(0)) => {}
        Ok(Some(publications)) => {
            core.metrics.upkeep.log_damaged.inc_by(publications as u64);
            tracing::error!(
                publications,
                "the publication log is damaged: they are caught up again"
            );
        }
        Err(error) => {
            let error = shelf::one_line(&error);
            tracing::warn!(error, "the publication log could not be read");
        }
    }
    true
}

/// One pass from a random place round to it, and how many damaged ranges without a live record it
/// met; `None` where the peer stops before its end.
async fn pass(core: &Core, bytes_s: u64, found: &Notify) -> Result<Option<u64>, StoreError> {
    let Some(upkeep) = core.shelf.upkeep() else { return Ok(None) };
    let start = upkeep.scrub_start(u64::from_be_bytes(core.env.random()));
    let step_bytes = STEP_BYTES_MAX.min(bytes_s);
    let mut from = start;
    let (mut round, mut ranges) = (false, 0);
    loop {
        let step = upkeep.scrub_step(from, step_bytes).await?;
        note(core, &step, found);
        ranges += step.damaged_ranges;
        let pause = Duration::from_secs_f64(step.bytes as f64 / bytes_s as f64);
        if !core.pause(pause).await {
            return Ok(None);
        }
        from = match step.cursor {
            Some(next) => next,
            None if round => return Ok(Some(ranges)),
            None => {
                round = true;
                upkeep.scrub_start(0)
            }
        };
        if round && from >= start {
            return Ok(Some(ranges));
        }
    }
}

/// Counts what opening the store found: scrub finds it known already, and counts it no more. Who has it again is looked for soon after
/// the start (`mending`).
fn note_start(core: &Core) {
    let records = core.shelf.stats().damaged;
    core.metrics.upkeep.damaged.inc_by(records);
    if core.shelf.upkeep().is_some_and(store::Upkeep::lost_records) {
        tracing::error!(
            records,
            "{DAMAGE_AT_START}, and records are lost of which nothing is known: they are looked for at other peers"
        );
    } else if records > 0 {
        tracing::error!(records, "{DAMAGE_AT_START}");
    }
}

/// Counts what a step met. A record counts once, though each pass meets it until it is mended.
fn note(core: &Core, step: &ScrubStep, found: &Notify) {
    let counts = &core.metrics.upkeep;
    counts.scrubbed.inc_by(step.bytes);
    let records = (step.damaged.len() as u64).saturating_sub(step.known);
    if records > 0 {
        counts.damaged.inc_by(records);
        tracing::error!(records, "{DAMAGE}");
        found.notify_one();
    }
}

/// Compacts until the peer stops.
async fn compact_all(core: Arc<Core>, options: UpkeepOptions) {
    while core.pause(core.jittered(options.compaction_every)).await {
        if core.shelf.is_left_alone() {
            continue;
        }
        let Some(upkeep) = core.shelf.upkeep() else { return };
        let mut done = Compaction::default();
        let ended = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            ended = upkeep.compact(options.compaction, &mut done) => ended,
        };
        let counts = &core.metrics.upkeep;
        counts.freed.inc_by(done.freed_bytes);
        counts.moved.inc_by(done.moved_bytes);
        if done.segments > 0 {
            let (freed, moved) = (done.freed_bytes, done.moved_bytes);
            tracing::info!(segments = done.segments, freed, moved, "compacted");
        }
        if done.blocked > 0 {
            let segments = done.blocked;
            tracing::warn!(segments, "not compacted: damaged records are in them");
        }
        match ended {
            Ok(()) => {}
            Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::warn!(error = %shelf::one_line(&error), "compaction ended early");
            }
        }
    }
}
