//! A peer that leaves hands over what it holds before it goes.
//!
//! To the others it counts as absent at once, so copies become the duty of the next in rank, who fetch them; its fragments it moves by
//! itself. It has left when everybody whose duty one of its copies is has it, and each of its fragments is at another: what another
//! took and lost meanwhile, with its disk or for good, is this peer's to move again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crypto::{PeerId, PeerState, RecordId};
use env::calls::keep::{HAVE_MAX, KeepAnswer, KeepRequest};

use super::ask::{SMALL_LIMIT, ask};
use super::epoch::Epoch;
use super::map::StripeMap;
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

/// A fragment that another took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) stripe: RecordId,
    pub(crate) index: u8,
    /// Who.
    pub(crate) to: PeerId,
}

/// Takes back what others took and do not have any more; how many. With `asked` each is asked, else those alone count that are absent.
async fn take_back(core: &Core, keeping: &Keeping, epoch: &Epoch, asked: bool) -> usize {
    let mut by: BTreeMap<PeerId, Vec<RecordId>> = BTreeMap::new();
    for (id, given) in &*locked(&keeping.given) {
        by.entry(given.to).or_default().push(*id);
    }
    let mut gone: Vec<RecordId> = Vec::new();
    let mut unknown = 0;
    for (to, ids) in by {
        if !epoch.answers(&to) {
            gone.extend(ids);
            continue;
        }
        let chunks = ids.chunks(HAVE_MAX).filter(|_| asked);
        for some in chunks {
            match ask(core, &to, KeepRequest::Have(some.to_vec()), SMALL_LIMIT).await {
                Ok(KeepAnswer::Have(have)) if have.len() == some.len() => {
                    let lost = some.iter().zip(have).filter(|(_, have)| !have);
                    gone.extend(lost.map(|(id, _)| *id));
                }
                _ => unknown += some.len(),
            }
        }
    }
    let mut stripes = Vec::with_capacity(gone.len());
    for id in &gone {
        let Some(Given { stripe, index, .. }) = locked(&keeping.given).get(id).copied() else {
            continue;
        };
        match core.shelf.stripe(&stripe).await {
            Ok(Some(header)) if core.shelf.holds(id) => {
                let mut inventory = locked(&keeping.inventory);
                // While it is counted anew, or the store does not answer, it stays to be taken back.
                let Some(inventory) = inventory.as_mut() else {
                    unknown += 1;
                    continue;
                };
                inventory.add_fragment(*id, stripe, index, |epoch, names| {
                    StripeMap::by_rank(&stripe, &header, epoch, names)
                });
                stripes.push(stripe);
            }
            // What the author forgot meanwhile, or the disk lost, is nobody's to move.
            Ok(_) => {}
            Err(_) => {
                unknown += 1;
                continue;
            }
        }
        locked(&keeping.given).remove(id);
    }
    keeping.look_at(core, &stripes);
    unknown + stripes.len()
}

/// How many copies and fragments are here that are not where they should be; `None` where nobody can say.
async fn to_hand_over(core: &Core, keeping: &Keeping) -> Option<usize> {
    let epoch = keeping.epoch()?;
    if !epoch.leaving.contains(&core.own) {
        return None;
    }
    // Where nobody is heard nobody has it: as long as there are others that stay, each copy is to be at one of them.
    let stays = |peer: &PeerId| *peer != core.own && !epoch.leaving.contains(peer);
    let others = epoch.view.candidates().iter().any(|candidate| stays(&candidate.peer));
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
            left += usize::from(others && duty.is_empty());
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
    let staying = {
        let inventory = locked(&keeping.inventory);
        let inventory = inventory.as_ref()?;
        let own = inventory.names.known(&core.own);
        let stays = |map: &&StripeMap| {
            map.mine.iter().any(|index| map.holder(*index).is_none_or(|of| Some(of) == own))
        };
        inventory.stripes.values().filter(stays).count()
    };
    let left = left + staying;
    Some(left + take_back(core, keeping, &epoch, left == 0).await)
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
