//! Damaged records are looked for at the other holders, and written again where one has them.
//!
//! A put of a record that is marked damaged appends a new frame, so mending needs nothing else. It is the
//! least of repair: it mends what this peer has lost of its own and knows of. Redundancy that was lost
//! with whole peers is not its matter.

use std::sync::Arc;
use std::time::Duration;

use crypto::RecordId;
use store::Damaged;
use tokio::sync::Notify;

use crate::core::Core;

/// Damaged records are looked for this often, besides when scrub finds one: reads find them too, and
/// a holder that was away comes back.
const EVERY: Duration = Duration::from_secs(60);
/// Records looked for in one round. With a disk full of damage that is one a second or so, and the
/// other peers are not flooded.
const ROUND_MAX: usize = 64;
/// The first of all ids.
const FIRST: RecordId = RecordId::new([0; 32]);

/// Mends until the peer stops.
pub(super) async fn mend_all(core: Arc<Core>, found: Arc<Notify>) {
    // Rounds go on where the last one ended, so that what nobody has does not stand before the rest.
    let mut from = FIRST;
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = found.notified() => {}
            () = core.env.clock.sleep(core.jittered(EVERY)) => {}
        }
        if core.shelf.stats().damaged == 0 || core.shelf.is_left_alone() {
            continue;
        }
        let round = async { from = mend_some(&core, from).await };
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = round => {}
        }
    }
}

/// One round from `from` on; where the next one begins.
async fn mend_some(core: &Core, from: RecordId) -> RecordId {
    let Some(upkeep) = core.shelf.upkeep() else { return FIRST };
    let damaged = match upkeep.damaged(&from, ROUND_MAX).await {
        Ok(damaged) => damaged,
        Err(error) => {
            tracing::warn!(%error, "the damaged records cannot be listed");
            return FIRST;
        }
    };
    let next = match damaged.last() {
        Some(last) if damaged.len() == ROUND_MAX => last.id,
        _ => FIRST,
    };
    let mut mended = 0;
    for record in &damaged {
        mended += u64::from(mend(core, record).await);
    }
    if mended > 0 {
        core.metrics.upkeep.mended.inc_by(mended);
        let left = core.shelf.stats().damaged;
        tracing::info!(mended, left, "damaged records were fetched again and written");
    }
    next
}

/// Whether a record was found elsewhere and written again.
async fn mend(core: &Core, damaged: &Damaged) -> bool {
    let id = damaged.id;
    let Some(place) = damaged.place else {
        tracing::error!(record = %id, "a damaged record's place was lost with it");
        return false;
    };
    match core.walker.find_elsewhere(id, place).await {
        Ok(found) => match core.shelf.mend(found.record).await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(record = %id, %error, "a damaged record cannot be written again");
                false
            }
        },
        Err(error) => {
            tracing::warn!(record = %id, %error, "nobody answers for a damaged record");
            false
        }
    }
}
