//! A peer that leaves hands over what it holds before it goes.
//!
//! To the others it counts as absent at once, so copies become the duty of the next in rank, who fetch them; its fragments it moves by
//! itself. It has left when everybody whose duty one of its copies is has it, and each of its fragments is at another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crypto::{PeerId, PeerState, RecordId};
use env::calls::keep::{HAVE_MAX, KeepAnswer, KeepRequest};

use super::ask::{SMALL_LIMIT, ask};
use super::{Keeping, locked};
use crate::core::Core;

/// How often it is looked what is not handed over yet.
const EVERY: Duration = Duration::from_secs(5);
/// Records asked about at a time.
const STEP: usize = 4096;

/// Waits for the wish to leave, and hands over until nothing is left.
pub(super) async fn leave_all(core: Arc<Core>, keeping: Arc<Keeping>) {
    loop {
        if keeping.is_leaving() {
            break;
        }
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = keeping.leaves.notified() => {}
        }
    }
    tracing::info!("this peer leaves: it hands over what it holds");
    core.announce(PeerState::Leaving).await;
    while core.pause(EVERY).await {
        let left = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            left = to_hand_over(&core, &keeping) => left,
        };
        let Some(left) = left else { continue };
        core.metrics.keeping.to_hand_over.set(i64::try_from(left).unwrap_or(i64::MAX));
        if left == 0 {
            break;
        }
    }
    if core.stop.is_cancelled() {
        return;
    }
    tracing::info!("all is handed over, and this peer has left");
    core.announce(PeerState::Left).await;
    keeping.left.store(true, Ordering::SeqCst);
}

/// How many copies and fragments are here that are not where they should be; `None` where nobody can say.
async fn to_hand_over(core: &Core, keeping: &Keeping) -> Option<usize> {
    let epoch = keeping.epoch()?;
    if !epoch.leaving.contains(&core.own) {
        return None;
    }
    let (mut left, mut part) = (0, 0);
    loop {
        let (copies, next) = {
            let inventory = locked(&keeping.inventory);
            let inventory = inventory.as_ref()?;
            let (copies, next) = inventory.copies_from(part, STEP);
            let due: Vec<(RecordId, Vec<PeerId>)> =
                copies.iter().map(|held| (held.placed.id, inventory.duty(held))).collect();
            (due, next)
        };
        let mut asked: BTreeMap<PeerId, Vec<RecordId>> = BTreeMap::new();
        for (id, duty) in copies {
            for peer in duty {
                asked.entry(peer).or_default().push(id);
            }
        }
        for (peer, ids) in asked {
            for some in ids.chunks(HAVE_MAX) {
                let answer = ask(core, &peer, KeepRequest::Have(some.to_vec()), SMALL_LIMIT).await;
                left += match answer {
                    Ok(KeepAnswer::Have(have)) if have.len() == some.len() => {
                        have.iter().filter(|have| !**have).count()
                    }
                    _ => some.len(),
                };
            }
        }
        match next {
            Some(next) => part = next,
            None => break,
        }
    }
    let inventory = locked(&keeping.inventory);
    let inventory = inventory.as_ref()?;
    let own = inventory.names.known(&core.own);
    let stays = |map: &&super::map::StripeMap| {
        map.mine.iter().any(|index| map.holder(*index).is_none_or(|of| Some(of) == own))
    };
    Some(left + inventory.stripes.values().filter(stays).count())
}

impl Keeping {
    /// Whether this peer leaves.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    /// Whether it has handed over everything.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    /// Begins to leave.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.leaves.notify_one();
    }
}
