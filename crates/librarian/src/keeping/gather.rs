//! Enough fragments of a stripe to make the others, from those of its holders that give theirs soonest.

use std::collections::BTreeMap;
use std::time::Duration;

use crypto::{PeerId, Place};
use document::{Record, Stripe};
use env::calls::{CallError, FindRequest, FindResponse};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::ask::{LARGE_LIMIT, strange};
use super::make::checked;
use super::mend::{ASKED_AT_ONCE, Job, Unmended, own};
use super::paces::late;
use super::{Keeping, locked};
use crate::core::Core;
use crate::shelf::one_line;

/// After so many times what is late nothing more is waited for, the first time that a stripe is tried.
const LATE_TIMES: u32 = 2;

/// Any k fragments of a stripe: those here, and the others from their holders.
///
/// As many are asked as are needed, those that gave theirs readily first. Where none comes for as long as all that are asked for take at
/// most ([`late`]), one more is asked beside them, so that a holder which keeps others waiting costs that long once, and comes behind the
/// others from then on. They may share a slow line, so the first of them has the time of all.
pub(super) async fn gather(
    core: &Core,
    keeping: &Keeping,
    job: &Job,
    stripe: &Stripe,
) -> Result<Vec<(u8, Record)>, Unmended> {
    let mut given: Vec<(u8, Record)> = Vec::with_capacity(job.k);
    for index in job.mine.iter().take(job.k) {
        if let Some(record) = own(core, job, stripe, *index).await {
            given.push((*index, record));
        }
    }
    let bytes = stripe.fragment_bytes();
    let mut others = holders(core, keeping, job).into_iter();
    let mut asked = FuturesUnordered::new();
    // Those that are not known to be late, with when they were asked.
    let mut in_time: BTreeMap<(u8, PeerId), Duration> = BTreeMap::new();
    let (mut besides, mut since) = (0, core.env.clock.elapsed());
    while given.len() < job.k {
        let most = (job.k - given.len()).min(ASKED_AT_ONCE) + besides;
        while asked.len() < most {
            let Some((index, peer)) = others.next() else { break };
            in_time.insert((index, peer), core.env.clock.elapsed());
            asked.push(given_by(core, keeping, job, stripe, (index, peer)));
        }
        if asked.is_empty() {
            break;
        }
        let patience = late(bytes.saturating_mul(asked.len()));
        let next = core.env.within(patience, asked.next()).await;
        let now = core.env.clock.elapsed();
        if next.is_err() {
            let mut paces = locked(&keeping.paces);
            in_time.retain(|(_, peer), asked_at| {
                let waited = now.saturating_sub(*asked_at);
                let is_late = waited >= patience;
                if is_late {
                    paces.kept_waiting(*peer, bytes, waited, now);
                }
                !is_late
            });
        }
        match next {
            Ok(Some((index, peer, found))) => {
                in_time.remove(&(index, peer));
                since = now;
                let is_new = |_: &Record| !given.iter().any(|(known, _)| *known == index);
                let found = found.filter(is_new);
                given.extend(found.map(|record| (index, record)));
            }
            Ok(None) => break,
            Err(_) if others.len() > 0 => (besides, since) = (besides + 1, now),
            Err(_) if !job.again && now >= since + patience * LATE_TIMES => break,
            Err(_) => {}
        }
    }
    match given.len() < job.k {
        true => Err(Unmended::TooFew { have: given.len(), k: job.k }),
        false => Ok(given),
    }
}

/// Who has a fragment that is not here: the well ones first, and of these those that gave theirs readily.
fn holders(core: &Core, keeping: &Keeping, job: &Job) -> Vec<(u8, PeerId)> {
    let mut all: Vec<(u8, PeerId)> = [&job.whole[..], &job.besides].concat();
    all.retain(|(index, peer)| *peer != core.own && !job.mine.contains(index));
    let paces = locked(&keeping.paces).slow_to_give(core.env.clock.elapsed());
    all.sort_by_cached_key(|(_, peer)| {
        (core.directory.health(peer), paces.get(peer).copied().unwrap_or(0))
    });
    all
}

/// A fragment from its holder, or none; how readily it came is noted.
async fn given_by(
    core: &Core,
    keeping: &Keeping,
    job: &Job,
    stripe: &Stripe,
    (index, peer): (u8, PeerId),
) -> (u8, PeerId, Option<Record>) {
    let since = core.env.clock.elapsed();
    let found = fetch(core, keeping, &peer, job, stripe, index).await;
    let now = core.env.clock.elapsed();
    let mut paces = locked(&keeping.paces);
    match &found {
        Ok(_) => paces.gave(peer, stripe.fragment_bytes(), now.saturating_sub(since), now),
        Err(error) => {
            paces.gave_none(peer, now);
            tracing::debug!(stripe = %job.id, %peer, %error, "a fragment was not had");
        }
    }
    drop(paces);
    (index, peer, found.ok())
}

/// A fragment from its holder, proven.
async fn fetch(
    core: &Core,
    keeping: &Keeping,
    peer: &PeerId,
    job: &Job,
    stripe: &Stripe,
    index: u8,
) -> Result<Record, CallError> {
    let unreachable = || CallError::Unreachable {
        address: peer.to_string(),
        reason: "it announced no address".to_owned(),
    };
    let to = core.directory.endpoint(peer).ok_or_else(unreachable)?;
    let id = *stripe.fragments().get(usize::from(index)).ok_or(CallError::NotFound)?;
    let request = FindRequest { id, place: Place::from(job.id) };
    let call = core.calls.find(&to, request, LARGE_LIMIT);
    let answer = core.env.within(LARGE_LIMIT, call).await;
    let answer = answer
        .unwrap_or(Err(CallError::TimedOut { address: to.address.clone(), limit: LARGE_LIMIT }));
    if let Err(error) = &answer {
        core.directory.failed(peer, error);
    }
    let FindResponse::Found(record) = answer? else { return Err(CallError::NotFound) };
    let bytes = record.bytes.len() as u64;
    keeping.budget.pay(&core.env, bytes);
    core.metrics.keeping.fetched_bytes.inc_by(bytes);
    if record.id != id {
        return Err(strange(peer));
    }
    let (suite, stripe, stripe_id) = (core.genesis.suite, stripe.clone(), job.id);
    let check = move || checked(suite, &stripe, &stripe_id, index, record);
    core.env
        .cpu(check)
        .await
        .map_err(|error| CallError::Corrupt { address: to.address, reason: one_line(&error) })
}
