//! What is here and no longer this peer's to hold is dropped, once those whose it is proved that they have it.
//!
//! After peers came back there are more copies than there should be, and second whole fragments. They cost space alone, so
//! nothing is dropped in a hurry: not before the same peers were there for a while, and not before every one of those whose
//! duty it is answered with the MAC of the bytes under a fresh key. Versions and what belongs to them stay; so do pages that live at their ids
//! where files are kept in stripes, since lists of pages have as many copies as entries and nobody can tell them apart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crypto::{PeerId, Place, RecordId};
use document::{Kind, Record};
use env::calls::{VerifyRequest, VerifyResponse};
use placement::{Profile, StripeNow};
use store::Placed;

use super::ask::SMALL_LIMIT;
use super::epoch::Epoch;
use super::{Keeping, locked};
use crate::core::Core;

/// Records looked at in one round.
const ROUND_MAX: usize = 256;

/// Looks for what is too much until the peer stops.
pub(super) async fn drop_all(core: Arc<Core>, keeping: Arc<Keeping>) {
    let (mut number, mut steady) = (0_u8, None::<(Arc<Epoch>, Duration)>);
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
            copies(&core, &keeping, &epoch, number).await;
            fragments(&core, &keeping, &epoch).await;
        };
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = round => {}
        }
        number = number.wrapping_add(1);
    }
}

/// Drops copies of one part of all places.
async fn copies(core: &Core, keeping: &Keeping, epoch: &Epoch, number: u8) {
    let striped = {
        let profile = Profile::of_network(&core.genesis, epoch.view.len());
        matches!(profile, Profile::Stripe { .. })
    };
    let may_go = |placed: &Placed| match placed.kind {
        Kind::Envelope | Kind::Entry => true,
        Kind::Page => !striped,
        _ => false,
    };
    let strays = {
        let inventory = locked(&keeping.inventory);
        inventory.as_ref().map_or_else(Vec::new, |all| all.strays(number, ROUND_MAX))
    };
    let mut gone = Vec::new();
    for placed in strays.into_iter().filter(may_go) {
        let Ok(Some(record)) = core.shelf.get(&placed.id).await else { continue };
        let duty = epoch.duty(&placed.place, placed.kind);
        let mut proven =
            duty.len() >= epoch.copies(placed.kind).min(epoch.view.len() - epoch.absent.len());
        for peer in &duty {
            proven = proven && has(core, peer, &record).await;
        }
        if proven {
            gone.push(placed.id);
        }
    }
    drop_records(core, gone).await;
}

/// Drops fragments that another holder, which ranks higher, has too.
async fn fragments(core: &Core, keeping: &Keeping, epoch: &Epoch) {
    let twice: BTreeMap<RecordId, (u8, PeerId)> = std::mem::take(&mut locked(&keeping.work).twice);
    for (id, (index, other)) in twice {
        let surplus = {
            let inventory = locked(&keeping.inventory);
            let Some(inventory) = inventory.as_ref() else { return };
            let Some(map) = inventory.stripes.get(&id) else { continue };
            let mut whole: Vec<(u8, PeerId)> =
                map.whole(&inventory.names).filter(|(_, peer)| epoch.answers(peer)).collect();
            whole.push((index, other));
            whole.push((index, core.own));
            whole.sort_unstable();
            whole.dedup();
            let possible = epoch.possible(&Place::from(id), map.n());
            let (k, n, leaving) = (map.k(), map.n(), &epoch.leaving);
            let now = StripeNow { k, n, whole: &whole, possible: &possible, leaving };
            placement::plan(&now).surplus.contains(&(index, core.own))
        };
        if !surplus {
            continue;
        }
        let Ok(Some(stripe)) = core.shelf.stripe(&id).await else { continue };
        let Some(fragment) = stripe.fragments().get(usize::from(index)) else { continue };
        let Ok(Some(record)) = core.shelf.get(fragment).await else { continue };
        let record = Record { place: Place::from(id), ..record };
        if has(core, &other, &record).await {
            // The header stays where another fragment of the stripe is.
            let alone = {
                let inventory = locked(&keeping.inventory);
                let map = inventory.as_ref().and_then(|all| all.stripes.get(&id));
                map.is_none_or(|map| map.mine.len() < 2)
            };
            let mut gone = vec![record.id];
            gone.extend(alone.then_some(id));
            drop_records(core, gone).await;
            let mut inventory = locked(&keeping.inventory);
            if let Some(inventory) = inventory.as_mut() {
                inventory.with_map(&id, |map, names| map.set(index, Some(names.of(&other))));
            }
        }
    }
}

/// Whether a peer has the bytes of a record, by the MAC of a fresh key.
async fn has(core: &Core, peer: &PeerId, record: &Record) -> bool {
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

pub(super) async fn drop_records(core: &Core, ids: Vec<RecordId>) {
    if ids.is_empty() {
        return;
    }
    let count = ids.len() as u64;
    match core.store.remove(ids).await {
        Ok(()) => {
            core.metrics.keeping.dropped.inc_by(count);
            tracing::info!(count, "records that others hold were dropped");
        }
        Err(error) => tracing::warn!(%error, "surplus records could not be dropped"),
    }
}
