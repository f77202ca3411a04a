//! Fragments of a stripe go to their holders, and what one of these does not take goes to the next.

use std::collections::{BTreeMap, BTreeSet};

use crypto::PeerId;
use crypto::lease::Shown;
use document::Record;
use env::calls::CallError;
use futures::StreamExt;
use placement::{Mend, SPARES};

use super::ask::{LARGE_LIMIT, strange};
use super::mend::{ASKED_AT_ONCE, Job, Moved, Unmended};
use super::{Keeping, locked};
use crate::core::Core;
use crate::leases::{Covered, nobody_pays};
use crate::shelf::refusal;

/// How often in one try what a peer refused is handed to another.
const HANDED_MAX: usize = 1 + SPARES;

/// Sends fragments, those that are here and those that were made, to the peers of the plan, and what one of these does not take to the
/// next: one that refuses keeps no stripe from being mended. What another has now.
pub(super) async fn hand_out(
    core: &Core,
    keeping: &Keeping,
    job: &Job,
    mut plan: Mend,
    header: Record,
    (here, made): (BTreeMap<u8, Record>, BTreeMap<u8, Record>),
) -> Result<Moved, Unmended> {
    let is_here: BTreeSet<u8> = here.keys().copied().collect();
    let mut left: BTreeMap<u8, Record> = here.into_iter().chain(made).collect();
    let any = !left.is_empty();
    let (mut moved, mut refused) = (Moved::new(), BTreeSet::new());
    for _ in 0..HANDED_MAX {
        let to = plan.moves.iter().map(|moved| (moved.index, moved.to));
        let to = plan.make.iter().copied().chain(to);
        let sent: Vec<_> = to
            .filter(|(_, to)| !refused.contains(to))
            .filter_map(|(index, to)| Some((index, to, left.get(&index)?.clone())))
            .map(|(index, to, record)| {
                let header = header.clone();
                async move { (index, to, send(core, keeping, &to, header, record).await) }
            })
            .collect();
        if sent.is_empty() {
            break;
        }
        let mut sent = futures::stream::iter(sent).buffer_unordered(ASKED_AT_ONCE);
        while let Some((index, to, outcome)) = sent.next().await {
            let counts = &core.metrics.keeping;
            match outcome {
                Ok(()) => {
                    let count = if is_here.contains(&index) { &counts.moved } else { &counts.made };
                    count.inc();
                    left.remove(&index);
                    moved.push((index, to));
                }
                Err(error) => {
                    tracing::debug!(stripe = %job.id, peer = %to, %error, "a fragment was not taken");
                    refused.insert(to);
                }
            }
        }
        if left.is_empty() {
            break;
        }
        plan = job.part_now(core, keeping, &moved, &refused);
    }
    if moved.is_empty() && any { Err(Unmended::NoTaker) } else { Ok(moved) }
}

/// Hands a fragment out, its header first, and notes how readily it is taken.
async fn send(
    core: &Core,
    keeping: &Keeping,
    peer: &PeerId,
    header: Record,
    fragment: Record,
) -> Result<(), CallError> {
    let place = header.place;
    let records = vec![header, fragment];
    let bytes: usize = records.iter().map(|record| record.bytes.len()).sum();
    let since = core.env.clock.elapsed();
    let taken = if *peer == core.own {
        let outcomes = core.shelf.put(records, Covered::default()).await;
        outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
    } else {
        // Who pays for the stripe pays for what is made again of it.
        let leases = core.leases.of(&place).await.map_err(|error| refusal(&error))?;
        // They may have ended since its header was read: who gets it without would keep it as what nobody need pay for.
        if leases.is_empty() && !core.leases.stays(&place) {
            return Err(nobody_pays(&place));
        }
        keeping.budget.pay(&core.env, bytes as u64);
        core.metrics.keeping.sent_bytes.inc_by(bytes as u64);
        taken_by(core, peer, records, leases).await
    };
    let now = core.env.clock.elapsed();
    let opened = {
        let mut paces = locked(&keeping.paces);
        match &taken {
            Ok(()) => paces.took(*peer, bytes, now.saturating_sub(since), now),
            Err(error) => {
                paces.refused(*peer, error, now);
                false
            }
        }
    };
    if opened {
        locked(&keeping.work).anew(now);
    }
    taken
}

/// Stores a header and its fragment at another peer.
async fn taken_by(
    core: &Core,
    peer: &PeerId,
    records: Vec<Record>,
    leases: Vec<Shown>,
) -> Result<(), CallError> {
    let to = core.directory.endpoint(peer).ok_or_else(|| CallError::Unreachable {
        address: peer.to_string(),
        reason: "it announced no address".to_owned(),
    })?;
    let call = async {
        match leases.is_empty() {
            true => core.calls.store_batch(&to, records, LARGE_LIMIT).await,
            false => core.calls.store_leased(&to, records, leases, LARGE_LIMIT).await,
        }
    };
    let outcomes = match core.env.within(LARGE_LIMIT, call).await {
        Ok(outcomes) => outcomes,
        Err(_) => Err(CallError::TimedOut { address: to.address, limit: LARGE_LIMIT }),
    };
    if let Err(error) = &outcomes {
        core.directory.failed(peer, error);
    }
    let outcomes = outcomes?;
    if outcomes.len() != 2 {
        return Err(strange(peer));
    }
    outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
}
