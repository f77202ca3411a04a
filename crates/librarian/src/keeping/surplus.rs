//! What is here and no longer this peer's to hold is dropped, once those whose it is proved that they have it.
//!
//! After peers came back there are more copies than there should be, and second whole fragments. They cost space alone, so
//! nothing is dropped in a hurry: not before the same peers were there for a while, and not before every one of those whose
//! duty it is answered with the MAC of the bytes under a fresh key, and keeps it for all who pay for it here. Versions and what belongs to them stay; so do pages that live at their ids
//! where files are kept in stripes, since lists of pages have as many copies as entries and nobody can tell them apart.
//!
//! Whoever is asked for a proof may let one wait. So a round is bounded in number and time, who let it wait is asked nothing more in it, and
//! what others lack is offered beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crypto::{PeerId, Place, RecordId};
use document::{Kind, Record, Stripe};
use env::calls::keep::{HAVE_MAX, KeepAnswer, KeepRequest, Listed, RANGES_MAX, Range};
use env::calls::leases::{LeaseAnswer, LeaseRequest};
use env::calls::{CallError, VerifyRequest, VerifyResponse};
use placement::Profile;
use store::Placed;

use super::ask::{SMALL_LIMIT, ask};
use super::epoch::Epoch;
use super::inventory::{Held, Walk};
use super::{Keeping, locked, mend};
use crate::core::Core;
use crate::leases::{Charge, Payers};

/// Records looked at in one round.
const ROUND_MAX: usize = 256;
/// Fragments that are at two peers looked at in one round.
const TWICE_MAX: usize = 4096;
/// How long one round looks at them; the rest is looked at in the next.
const TWICE_FOR: Duration = Duration::from_secs(60);
/// Who took so long to prove one record is not asked for another in the same round.
const PROVEN_WITHIN: Duration = Duration::from_secs(2);
/// Of the 256 parts of all places, those whose strays are offered in one round; where they have more than one call asks about, fewer.
const OFFERED_PARTS: u8 = 4;
const _: () = assert!(OFFERED_PARTS as usize <= RANGES_MAX, "one call offers them");

/// Offers others what is theirs to hold until the peer stops.
pub(super) async fn offer_all(core: Arc<Core>, keeping: Arc<Keeping>) {
    let mut offered = Walk::default();
    while core.pause(core.jittered(keeping.options.compare)).await {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = offer(&core, &keeping, &mut offered) => {}
        }
    }
}

/// Looks for what is too much until the peer stops.
pub(super) async fn drop_all(core: Arc<Core>, keeping: Arc<Keeping>) {
    let (mut looked, mut twice) = (Walk::default(), None);
    let mut steady = None::<(Arc<Epoch>, Duration)>;
    while core.pause(core.jittered(keeping.options.compare)).await {
        let Some(epoch) = keeping.epoch() else { continue };
        let now = core.env.clock.elapsed();
        let since = match &steady {
            Some((known, since)) if Arc::ptr_eq(known, &epoch) => *since,
            _ => {
                steady = Some((epoch, now));
                continue;
            }
        };
        if now.saturating_sub(since) < keeping.options.surplus_after || core.shelf.is_left_alone() {
            continue;
        }
        let round = async {
            copies(&core, &keeping, &epoch, &mut looked).await;
            fragments(&core, &keeping, &epoch, &mut twice).await;
        };
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = round => {}
        }
    }
}

/// Tells each of those whose duty a copy is of copies here that it does not have: after a partition healed, or a put by somebody who saw
/// other peers, a record may be at none of those that compare it with each other; and those beyond the network's number of copies,
/// whose duty it is since more are paid for, compare it with nobody. They fetch it as whatever else they lack.
/// That another of them has it is that one's word alone, and keeps nobody from being told.
async fn offer(core: &Core, keeping: &Keeping, walk: &mut Walk) {
    let mut asked: BTreeMap<PeerId, Vec<usize>> = BTreeMap::new();
    let strays: Vec<Placed> = {
        let inventory = locked(&keeping.inventory);
        let Some(inventory) = inventory.as_ref() else { return };
        let strays = inventory.offers(walk, OFFERED_PARTS, HAVE_MAX);
        for (at, held) in strays.iter().enumerate() {
            for peer in inventory.duty(held).into_iter().filter(|peer| *peer != core.own) {
                asked.entry(peer).or_default().push(at);
            }
        }
        strays.into_iter().map(|held| held.placed).collect()
    };
    for (peer, items) in asked {
        let ids: Vec<RecordId> =
            items.iter().filter_map(|at| Some(strays.get(*at)?.id)).take(HAVE_MAX).collect();
        let have = ask(core, &peer, KeepRequest::Have(ids), SMALL_LIMIT).await;
        let Ok(KeepAnswer::Have(have)) = have else { continue };
        let mut lists: BTreeMap<u8, Listed> = BTreeMap::new();
        let lacking = items.iter().zip(&have).filter(|(_, have)| !**have);
        for placed in lacking.filter_map(|(at, _)| strays.get(*at)) {
            let [part, ..] = *placed.place.as_bytes();
            // The list is not all that is here, so it says nothing of what is not on it.
            let (range, more) = (Range::ALL.part(part), true);
            let empty = || Listed { range, copies: Vec::new(), fragments: Vec::new(), more };
            lists.entry(part).or_insert_with(empty).copies.push((placed.id, placed.place));
        }
        if !lists.is_empty() {
            let request = KeepRequest::Lists(lists.into_values().collect());
            let _ = ask(core, &peer, request, SMALL_LIMIT).await;
        }
    }
}

/// Drops copies of one part of all places, some at a time.
async fn copies(core: &Core, keeping: &Keeping, epoch: &Epoch, walk: &mut Walk) {
    let striped = Profile::has_stripes(&core.genesis, epoch.view.len());
    let may_go = |placed: &Placed| match placed.kind {
        Kind::Envelope | Kind::Entry => true,
        Kind::Page => !striped,
        _ => false,
    };
    let strays = {
        let inventory = locked(&keeping.inventory);
        inventory.as_ref().map_or_else(Vec::new, |all| all.strays(walk, 1, ROUND_MAX))
    };
    let (mut gone, mut slow) = (Vec::new(), BTreeSet::new());
    for Held { placed, copies } in strays.into_iter().filter(|held| may_go(&held.placed)) {
        // What is paid for may be more than was counted a moment ago: they were asked for, stored and acknowledged.
        let wanted = epoch.wanted(placed.kind, core.leases.copies(&placed.place).max(copies));
        let duty = epoch.first(&placed.place, wanted);
        if duty.contains(&core.own) || duty.iter().any(|peer| slow.contains(peer)) {
            continue;
        }
        let Ok(Some(record)) = core.shelf.get(&placed.id).await else { continue };
        let payers = core.leases.payers(&placed.place);
        let mut proven = duty.len() >= wanted.min(epoch.view.len() - epoch.absent.len());
        for peer in &duty {
            if !proven {
                break;
            }
            let since = core.env.clock.elapsed();
            proven = has(core, peer, &record).await
                && keeps_all(core, peer, &placed.place, &payers).await;
            if core.env.clock.elapsed().saturating_sub(since) > PROVEN_WITHIN {
                slow.insert(*peer);
            }
        }
        if proven {
            gone.push((placed, payers));
        }
    }
    let ids = gone.iter().map(|(placed, _)| placed.id).collect();
    drop_records(core, ids, |id| {
        // Nor where somebody else began to pay while it was being proven.
        let at = gone.iter().find(|(placed, _)| placed.id == *id);
        at.is_some_and(|(placed, payers)| core.leases.payers(&placed.place) == *payers)
    })
    .await;
}

/// Drops fragments that another holder, which ranks higher, has too: some at a time, from the one behind the last on.
///
/// What others say of who has what is believed only while this peer has the stripe to itself, and only as far as a lie costs
/// no more than this one fragment: the stripe is claimed, so that no two holders drop at once, and then all must be asked.
async fn fragments(core: &Core, keeping: &Keeping, epoch: &Epoch, last: &mut Option<RecordId>) {
    let since = core.env.clock.elapsed();
    let mut silent: BTreeSet<PeerId> = BTreeSet::new();
    for _ in 0..TWICE_MAX {
        if core.env.clock.elapsed().saturating_sub(since) >= TWICE_FOR {
            return;
        }
        let Some((id, index, other)) = locked(&keeping.work).next_twice(*last) else {
            *last = None;
            return;
        };
        *last = Some(id);
        // Nothing goes where one of those who may hold some of it does not answer.
        if may_hold(keeping, epoch, &id).iter().any(|peer| silent.contains(peer)) {
            continue;
        }
        locked(&keeping.work).twice.remove(&id);
        if other == core.own || !epoch.is_present(&other) {
            continue;
        }
        // Before anybody is asked: who asks meanwhile is told that it is not here.
        *locked(&keeping.dropping) = Some((id, index));
        let surveyed = mend::survey(core, keeping, &id).await;
        if let Some(surveyed) = &surveyed {
            silent.extend(surveyed.silent());
            if surveyed.may_go(index, &other, &core.own) {
                drop_fragment(core, keeping, &id, index, &other).await;
            }
        }
        *locked(&keeping.dropping) = None;
        if let Some(surveyed) = surveyed {
            mend::unclaim(core, keeping, surveyed).await;
        }
    }
}

/// Who may hold something of a stripe.
fn may_hold(keeping: &Keeping, epoch: &Epoch, id: &RecordId) -> Vec<PeerId> {
    let n = {
        let inventory = locked(&keeping.inventory);
        inventory.as_ref().and_then(|all| Some(all.stripes.get(id)?.n()))
    };
    n.map_or_else(Vec::new, |n| epoch.possible(&Place::from(*id), n))
}

/// Drops a fragment once the other proved that it has it.
async fn drop_fragment(core: &Core, keeping: &Keeping, id: &RecordId, index: u8, other: &PeerId) {
    let Ok(Some(stripe)) = core.shelf.stripe(id).await else { return };
    let Some(fragment) = stripe.fragments().get(usize::from(index)) else { return };
    let Ok(Some(record)) = core.shelf.get(fragment).await else { return };
    let payers = core.leases.payers(&Place::from(*id));
    if !has(core, other, &record).await || !is_kept_for_all(core, other, id, &payers).await {
        return;
    }
    let gone = drop_fragments(core, id, &stripe, vec![record.id], &payers).await;
    if gone.is_empty() {
        return;
    }
    let of = {
        let mut inventory = locked(&keeping.inventory);
        let Some(inventory) = inventory.as_mut() else { return };
        let of = inventory.drop_fragment(&record.id);
        inventory.with_map(id, |map, names| map.set(index, Some(names.of(other))));
        of
    };
    // Another stripe that names it lacks it now.
    keeping.look_at(core, &of);
}

/// Whether a fragment is here as one of this stripe alone: a page may be named by several, and is here once, for one of them; and
/// it may be paid for as a copy. Where the store cannot say, it is not.
async fn is_kept_for(core: &Core, fragment: &RecordId, stripe: &RecordId) -> bool {
    let listed = core.store.list(fragment, 1).await;
    let listed = listed.unwrap_or_default();
    let placed = listed.first().filter(|placed| placed.id == *fragment);
    placed.is_some_and(|placed| placed.place == Place::from(*stripe))
        && !core.leases.covers(&Place::from(*fragment))
}

/// Drops fragments of a stripe that others keep for all of its `payers`, and its header with the last of them; those that went.
/// What is kept for another stripe stays; where somebody writes to this one, or others pay for it by now, all of it does.
pub(super) async fn drop_fragments(
    core: &Core,
    id: &RecordId,
    stripe: &Stripe,
    fragments: Vec<RecordId>,
    payers: &Payers,
) -> Vec<RecordId> {
    let place = Place::from(*id);
    let places: Vec<Place> =
        fragments.iter().map(|fragment| Place::from(*fragment)).chain([place]).collect();
    // Each lives at the stripe's place, and may be about to be written as a copy at its own.
    let off = core.leases.keep_off(&places);
    if !off.places.contains(&place) || core.leases.payers(&place) != *payers {
        return Vec::new();
    }
    let mut gone = Vec::with_capacity(fragments.len());
    for fragment in fragments {
        if off.places.contains(&Place::from(fragment)) && is_kept_for(core, &fragment, id).await {
            gone.push(fragment);
        }
    }
    let stays = |fragment: &RecordId| !gone.contains(fragment) && core.store.contains(fragment);
    let mut ids = gone.clone();
    if !gone.is_empty() && !stripe.fragments().iter().any(stays) {
        // Behind its fragments: of a removal that a power cut tore no fragment stays without its header.
        ids.push(*id);
    }
    if remove(core, ids).await { gone } else { Vec::new() }
}

/// Whether a peer has the bytes of a record, by the MAC of a fresh key.
pub(super) async fn has(core: &Core, peer: &PeerId, record: &Record) -> bool {
    let Some(to) = core.directory.endpoint(peer) else { return false };
    let mac_key = core.env.random();
    let request = VerifyRequest { id: record.id, place: record.place, mac_key };
    let call = core.calls.verify(&to, request, SMALL_LIMIT);
    let Ok(Ok(VerifyResponse::Mac(mac))) = core.env.within(SMALL_LIMIT, call).await else {
        return false;
    };
    let (suite, bytes) = (core.genesis.suite, record.bytes.clone());
    core.env.cpu(move || suite.verify_mac(&mac_key, &bytes, &mac)).await
}

/// Whether a peer keeps what lives at a place for all who pay for it here. Who does not say is not taken to.
async fn keeps_all(core: &Core, peer: &PeerId, place: &Place, payers: &Payers) -> bool {
    let Some(to) = core.directory.endpoint(peer) else { return false };
    let call = core.calls.lease(&to, LeaseRequest::Of(vec![*place]), SMALL_LIMIT);
    match core.env.within(SMALL_LIMIT, call).await {
        Ok(Ok(LeaseAnswer::Of(mut said))) if said.len() == 1 => {
            let said = said.pop().unwrap_or_default();
            core.leases.keeps_all(payers, place, said).await
        }
        // Of a release that knows no leases: what is there stays.
        Ok(Err(CallError::Invalid { .. })) => true,
        _ => false,
    }
}

/// Whether a peer keeps what it has of a stripe for all who pay for the stripe here.
pub(super) async fn is_kept_for_all(
    core: &Core,
    peer: &PeerId,
    stripe: &RecordId,
    payers: &Payers,
) -> bool {
    keeps_all(core, peer, &Place::from(*stripe), payers).await
}

/// Drops copies for which nothing is being written, of those that are still to go once nothing can be.
async fn drop_records(core: &Core, mut ids: Vec<RecordId>, still_goes: impl Fn(&RecordId) -> bool) {
    let places: Vec<Place> = ids.iter().map(|id| Place::from(*id)).collect();
    let off = core.leases.keep_off(&places);
    ids.retain(|id| off.places.contains(&Place::from(*id)) && still_goes(id));
    remove(core, ids).await;
}

/// Removes records that writes are kept off from, with what is kept of who pays for them; whether they went.
async fn remove(core: &Core, ids: Vec<RecordId>) -> bool {
    if ids.is_empty() {
        return true;
    }
    let count = ids.len() as u64;
    let places: Vec<Place> = ids.iter().map(|id| Place::from(*id)).collect();
    if let Err(error) = core.store.remove(ids).await {
        tracing::warn!(%error, "surplus records could not be dropped");
        return false;
    }
    core.metrics.keeping.dropped.inc_by(count);
    tracing::info!(count, "records that others hold were dropped");
    let (charges, removed) = core.leases.let_go(&places).await;
    for Charge { client, bytes } in charges {
        core.quotas.give_back(client.key(), u64::MAX, bytes);
    }
    if let Err(error) = removed {
        tracing::warn!(%error, "leases of what was dropped could not be");
    }
    true
}
