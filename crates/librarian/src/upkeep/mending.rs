//! Damaged records are looked for at the other holders, and written again where one has them. Nobody else has
//! a fragment of a stripe: it is made again from the others (`rebuilding`). Records of objects may be private: peers give
//! them to each other as repair does, with what they need beside them.
//!
//! A put of a record that is marked damaged appends a new frame, so mending needs nothing else. It is the
//! least of repair: it mends what this peer has lost of its own and knows of. Redundancy that was lost
//! with whole peers is not its matter.
//!
//! An attestation, policy or object's record lives where versions do that came with it, so those are fetched again in its place
//! (`bereft`). The same is done after a start that found records gone: it is not known which.
//!
//! A fragment that the code does not make as its header says is its author's fault: it is left, since each try would
//! fetch a whole stripe. What was given up so is forgotten with the peer's next start, or after
//! [`GIVEN_UP_MAX`] of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crypto::{Place, RecordId};
use document::{Document, Kind};
use store::Damaged;
use tokio::sync::Notify;

use super::AFTER_START;
use super::bereft::Bereft;
use super::rebuilding::{self, Unmended};
use crate::core::Core;
use crate::keeping;
use crate::shelf::one_line;

/// Damaged records are looked for this often, besides when scrub finds one: reads find them too, and
/// a holder that was away comes back. After the start it is [`super::AFTER_START`] first, and each time twice as long: opening the store
/// may have found some, and who has them is met meanwhile.
const EVERY: Duration = Duration::from_secs(60);
/// Records looked for in one round. With a disk full of damage that is one a second or so, and the
/// other peers are not flooded.
const ROUND_MAX: usize = 64;
/// Fragments remembered that cannot be made again.
const GIVEN_UP_MAX: usize = 4096;
/// The first of all ids.
const FIRST: RecordId = RecordId::new([0; 32]);

/// Mends until the peer stops.
pub(super) async fn mend_all(core: Arc<Core>, found: Arc<Notify>) {
    // Rounds go on where the last one ended, so that what nobody has does not stand before the rest.
    let (mut from, mut given_up) = (FIRST, BTreeSet::new());
    let mut bereft = Bereft::at_start(&core);
    let mut every = AFTER_START;
    loop {
        let pause = bereft.pause(&core).unwrap_or(every).min(every);
        every = (every * 2).min(EVERY);
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = found.notified() => {}
            () = core.env.clock.sleep(core.jittered(pause)) => {}
        }
        let damaged = core.shelf.stats().damaged > 0;
        // Who leaves hands over what it has, and cannot what is damaged.
        let left_alone = core.shelf.is_left_alone() && !core.is_leaving();
        if !(damaged || bereft.pause(&core).is_some()) || left_alone {
            continue;
        }
        let round = async {
            if damaged {
                from = mend_some(&core, from, &mut given_up, &mut bereft).await;
            }
            bereft.look(&core).await;
        };
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = round => {}
        }
    }
}

/// One round from `from` on; where the next one begins.
async fn mend_some(
    core: &Core,
    from: RecordId,
    given_up: &mut BTreeSet<RecordId>,
    bereft: &mut Bereft,
) -> RecordId {
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
    for record in damaged.iter().filter(|record| comes_with_versions(record.kind)) {
        bereft.is_damaged(record.id);
    }
    let mut mended = 0;
    for record in damaged.iter().filter(|record| !given_up.contains(&record.id)).collect::<Vec<_>>()
    {
        mended += u64::from(mend(core, record, given_up).await);
    }
    if mended > 0 {
        core.metrics.upkeep.mended.inc_by(mended);
        let left = core.shelf.stats().damaged;
        tracing::info!(mended, left, "damaged records were fetched again and written");
    }
    next
}

/// Whether records of a kind are where versions are that came with them.
fn comes_with_versions(kind: Kind) -> bool {
    matches!(kind, Kind::Attestation | Kind::Object | Kind::Policy)
}

/// Whether a record was found elsewhere and written again.
async fn mend(core: &Core, damaged: &Damaged, given_up: &mut BTreeSet<RecordId>) -> bool {
    let Damaged { id, kind, place } = *damaged;
    let known = || core.keeping.as_ref().and_then(|keeping| keeping.place_of(&id));
    // What its frame says of its place may be lost with it. Most live where their ids say.
    let place = place.or_else(known).unwrap_or_else(|| Place::from(id));
    if kind == Kind::Lease {
        tracing::error!(record = %id, "a lease is damaged: what it paid for stays here after the next start");
        give_up(given_up, id);
        return false;
    }
    if !kind.is_document() {
        let came = keeping::again(core, id, place).await;
        if !came && !comes_with_versions(kind) {
            tracing::warn!(record = %id, "nobody gives a damaged record of an object");
        }
        return came;
    }
    let found = if place == Place::from(id) {
        core.walker
            .find_elsewhere(id, place)
            .await
            .map(|found| found.record)
            .map_err(Unmended::from)
    } else {
        rebuilding::again(core, id, place).await
    };
    match found {
        Ok(record) => match core.shelf.mend(record.clone(), &id).await {
            // It is being dropped, or was.
            Ok(false) => false,
            Ok(true) => {
                // Of fragments whose header could not be read at the start nobody here knows.
                if let (Some(keeping), Ok(Document::Stripe(header))) =
                    (&core.keeping, Document::decode(&record.bytes))
                {
                    keeping.header_is_back(core, &id, &header);
                }
                true
            }
            Err(error) => {
                tracing::error!(record = %id, %error, "a damaged record cannot be written again");
                false
            }
        },
        Err(error) => {
            if error.is_final() {
                tracing::error!(record = %id, stripe = %place, %error, "a damaged fragment is given up");
                give_up(given_up, id);
            } else {
                let cause = one_line(&error);
                tracing::warn!(record = %id, error = cause, "nobody answers for a damaged record");
            }
            false
        }
    }
}

/// Leaves a record as it is until the next start.
fn give_up(given_up: &mut BTreeSet<RecordId>, id: RecordId) {
    if given_up.len() >= GIVEN_UP_MAX {
        given_up.clear();
    }
    given_up.insert(id);
}
