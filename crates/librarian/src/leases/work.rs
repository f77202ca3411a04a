//! The background work of leases: what ended is dropped, its bytes leave the files, and words of others are heard.
//!
//! ```text
//! sweep    every ten minutes: leases that ended, words whose time is over; not by a calendar that is doubted
//! erase    beside it: once something was dropped, and half of its time is over, every segment with dead bytes is compacted
//! hear     all peers after the start, then one a minute: which leases were ended since it was asked last
//! ```
//! A peer that did not run for [`AWAY_MAX_S`] may have missed words that nobody keeps any more, and says so: its operator lets it begin
//! empty. One that ran and heard no peer of some organisation for so long says that instead: its own bytes are no worse for it, and to
//! wipe it would take acknowledged copies away, at every peer alike.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{LeaseId, OrgId, PeerId};
use env::calls::CallError;
use env::calls::leases::{FORGETS_MAX, Forgotten, LeaseAnswer, LeaseRequest};
use store::{Compaction, CompactionOptions, StoreError};
use walk::Health;

use super::calendar::Doubt;
use super::{Swept, owned, sweep_whole};
use crate::core::Core;
use crate::shelf;

/// The deadline of one question to a peer.
const ASK_LIMIT: Duration = Duration::from_secs(10);
/// How much earlier than the last question the next one begins: clocks differ.
const OVERLAP_MS: u64 = 600_000;
/// How long before it last heard all others a peer's first questions begin.
const BEFORE_START_MS: u64 = 3_600_000;
/// How long a peer may be away before it may have missed words, in seconds: they are kept for 90 days.
const AWAY_MAX_S: u64 = 80 * 24 * 3600;
/// How often organisations that are not heard are told of, in seconds.
const SILENT_EVERY_S: u64 = 24 * 3600;
/// How often it is told that the calendar is doubted.
const DOUBTED_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Answers of one peer in one round, at most.
const ROUND_MAX: u32 = 64;
/// Pace of erasing, in bytes of segments that are written again in a second.
const ERASE_BYTES_S: u64 = 16 << 20;

/// Drops what ended, until the peer stops.
pub(crate) async fn sweep_all(core: Arc<Core>) {
    let mut doubted = None;
    while core.pause(core.jittered(core.leases.settings.sweep)).await {
        // Who leaves takes nothing any more; what is over would keep it for ever, since nobody takes that over.
        let leaving = core.keeping.as_ref().is_some_and(|keeping| keeping.is_leaving());
        if core.shelf.is_left_alone() && !leaving {
            continue;
        }
        let doubt = core.leases.doubt(!core.bootstrap.is_empty());
        tell_doubt(&core, doubt, &mut doubted);
        if doubt.is_some() {
            continue;
        }
        let swept = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            swept = sweep_whole(&core.leases) => swept,
        };
        let (swept, failed) = swept;
        note(&core, &swept);
        match failed {
            None => {}
            Some(StoreError::Closed) => return,
            Some(error) => tracing::warn!(%error, "ended leases could not all be dropped"),
        }
    }
}

/// Tells why leases do not end, at first and once a day.
fn tell_doubt(core: &Core, doubt: Option<Doubt>, doubted: &mut Option<Duration>) {
    let now = core.env.clock.elapsed();
    match doubt {
        None => {
            if doubted.take().is_some() {
                tracing::info!("the calendar is not doubted any more: leases end by it");
            }
            return;
        }
        // It is so at every start.
        Some(Doubt::Unheard) => return,
        Some(_) if doubted.is_some_and(|at| now < at + DOUBTED_EVERY) => return,
        Some(_) => *doubted = Some(now),
    }
    match doubt {
        Some(Doubt::Ahead { organisations, of }) => tracing::error!(
            organisations,
            of,
            "the calendar is ahead of what most other organisations say: no lease ends by it; set the clock, say by NTP"
        ),
        _ => tracing::error!(
            "the calendar was set ahead and nobody says that it is right: no lease ends by it for a day; \
             set the clock, say by NTP"
        ),
    }
}

/// Lets what was dropped leave the files, until the peer stops. It takes hours where much was dropped, so it has a task of its own:
/// leases that end meanwhile are dropped in time.
pub(crate) async fn erase_all(core: Arc<Core>) {
    while core.pause(core.jittered(core.leases.settings.sweep)).await {
        if !core.shelf.is_left_alone() {
            erase(&core).await;
        }
    }
}

/// Counts what was dropped, and gives clients their quota back.
pub(crate) fn note(core: &Core, swept: &Swept) {
    let counts = &core.metrics.leases;
    counts.ended.inc_by(swept.leases);
    counts.dropped.inc_by(swept.records);
    for (client, bytes) in &swept.freed {
        core.quotas.give_back(client.key(), u64::MAX, *bytes);
    }
    if swept.leases > 0 {
        tracing::info!(leases = swept.leases, records = swept.records, "leases ended");
    }
}

/// Lets bytes that were dropped leave the files, where half of the time for that is over.
async fn erase(core: &Core) {
    let Some(since) = core.leases.erasing_since() else { return };
    let now = core.env.clock.elapsed();
    if now.saturating_sub(since) < core.leases.settings.erase_within / 2 {
        return;
    }
    core.leases.begin_erasing();
    let Some(upkeep) = core.shelf.upkeep() else { return };
    let options = CompactionOptions { dead_percent: 0, bytes_per_s: ERASE_BYTES_S };
    let mut done = Compaction::default();
    let ended = tokio::select! {
        biased;
        () = core.stop.cancelled() => return,
        ended = upkeep.erase(options, &mut done) => ended,
    };
    let counts = &core.metrics.upkeep;
    counts.freed.inc_by(done.freed_bytes);
    counts.moved.inc_by(done.moved_bytes);
    if let Err(error) = ended {
        core.leases.erase_again(since);
        tracing::error!(%error, "bytes that were dropped are still in the files");
        return;
    }
    let took = core.env.clock.elapsed().saturating_sub(since);
    if done.blocked > 0 {
        // Repair makes the damaged records good; then they can be written again elsewhere.
        core.leases.erase_again(core.env.clock.elapsed());
        let segments = done.blocked;
        tracing::error!(segments, "dropped bytes stay in segments with damaged records");
    } else if took > core.leases.settings.erase_within {
        let seconds = took.as_secs();
        tracing::error!(
            seconds,
            "erasing took longer than [leases] erase_within_s: choose a longer one, or smaller peers"
        );
    }
}

/// Whole days of which a peer may have missed words that nobody keeps any more, between two moments; `None` where they are fewer.
fn days_missed(from_ms: u64, now_ms: u64) -> Option<u64> {
    let seconds = now_ms.saturating_sub(from_ms) / 1000;
    (from_ms > 0 && seconds > AWAY_MAX_S).then_some(seconds / (24 * 3600))
}

/// Asks others for words that ended leases, until the peer stops. Until when it heard all of them is kept for the next start
/// ([`super::Leases::heard_ms`]): that it ran does not say that it heard, and that it heard nobody does not say that it was away.
pub(crate) async fn hear_all(core: Arc<Core>, last_run_ms: u64) {
    let first = core.leases.heard_ms().saturating_sub(BEFORE_START_MS);
    let away = days_missed(last_run_ms, core.env.clock.unix_ms());
    if let Some(days) = away.filter(|_| core.leases.counts().0 > 0) {
        tracing::error!(
            days,
            "this peer was away for longer than words that ended leases are kept: it may hold what was forgotten; \
             let it begin empty"
        );
    }
    let mut told_s = None;
    let mut asked: HashMap<PeerId, Heard> = HashMap::new();
    let mut until: HashMap<PeerId, u64> = HashMap::new();
    let mut pause = core.rhythm.join;
    while core.pause(core.jittered(pause)).await {
        pause = core.leases.settings.ask;
        if core.leases.counts().0 == 0 || core.shelf.is_left_alone() {
            // Nothing here could be ended; when something is, questions begin where they would have.
            continue;
        }
        let peers = core.directory.peers();
        let well = peers.iter().filter(|one| one.peer != core.own && one.health != Health::Away);
        let well: Vec<PeerId> = well.map(|one| one.peer).collect();
        asked.retain(|peer, _| peers.iter().any(|one| one.peer == *peer));
        // Those that were not asked yet go first, one after the other and quickly.
        let new: Vec<PeerId> =
            well.iter().filter(|peer| !asked.contains_key(*peer)).copied().collect();
        let Some(peer) = core.pick(&new).or_else(|| core.pick(&well)) else { continue };
        if new.len() > 1 {
            pause = core.rhythm.join;
        }
        let now_s = core.env.clock.elapsed().as_secs();
        if new.is_empty() && told_s.is_none_or(|told| now_s >= told + SILENT_EVERY_S) {
            told_s = Some(now_s);
            tell_silent(&core, &until);
        }
        let begun = core.env.clock.unix_ms();
        let mut from = asked.get(&peer).copied().unwrap_or(Heard { since_ms: first, after: None });
        let heard = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            heard = hear(&core, peer, &mut from) => heard,
        };
        match heard {
            Ok(true) => {
                from = Heard { since_ms: begun.saturating_sub(OVERLAP_MS), after: None };
                until.insert(peer, begun);
                note_heard(&core, &until);
            }
            // There is more: it is asked for in the peer's next turn, from where this one came to.
            Ok(false) => {}
            // An older peer knows no leases; another one is asked again in its turn.
            Err(error) => {
                tracing::debug!(%peer, %error, "words that ended leases could not be heard");
            }
        }
        asked.insert(peer, from);
    }
}

/// Until when the words of every other organisation were heard in this run, of each by the peer that was asked last; 0: not yet.
fn heard_of_each(core: &Core, until: &HashMap<PeerId, u64>) -> HashMap<OrgId, u64> {
    let view = core.directory.view();
    let mut heard: HashMap<OrgId, u64> = HashMap::new();
    for candidate in view.candidates().iter().filter(|one| one.peer != core.own) {
        let last = heard.entry(candidate.organisation).or_default();
        *last = (*last).max(until.get(&candidate.peer).copied().unwrap_or(0));
    }
    heard
}

/// Notes until when the words of all organisations were heard. One that is not reached holds it where it is: the words that its
/// peers heard may be known to nobody else.
fn note_heard(core: &Core, until: &HashMap<PeerId, u64>) {
    let heard = heard_of_each(core, until);
    let all = heard.into_values().min().filter(|all| *all > core.leases.heard_ms());
    all.into_iter().for_each(|all| core.leases.set_heard_ms(all));
}

/// Tells which organisations may not have been heard for longer than words are kept. Since when each was is not kept over restarts:
/// at the longest, since all were.
fn tell_silent(core: &Core, until: &HashMap<PeerId, u64>) {
    let (all_ms, now_ms) = (core.leases.heard_ms(), core.env.clock.unix_ms());
    for (organisation, heard_ms) in heard_of_each(core, until) {
        if let Some(days_max) = days_missed(heard_ms.max(all_ms), now_ms) {
            tracing::warn!(
                %organisation,
                days_max,
                "no peer of this organisation says which leases were ended: what its clients forgot may be here still"
            );
        }
    }
}

/// Until where a peer's words were heard: a moment, and of those of that moment a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Heard {
    since_ms: u64,
    after: Option<LeaseId>,
}

/// Hears a peer's words, in one round at most so many; whether that is all. `from` goes on with each answer.
async fn hear(core: &Arc<Core>, peer: PeerId, from: &mut Heard) -> Result<bool, CallError> {
    let Some(to) = core.directory.endpoint(&peer) else { return Err(CallError::NotFound) };
    for _ in 0..ROUND_MAX {
        let Heard { since_ms, after } = *from;
        let request = LeaseRequest::Tombstones { since_ms, after };
        let answer = core.env.within(ASK_LIMIT, core.calls.lease(&to, request, ASK_LIMIT)).await;
        let silent = CallError::TimedOut { address: to.address.clone(), limit: ASK_LIMIT };
        let strange = || {
            let reason = "it answered something else than it was asked".to_owned();
            CallError::Corrupt { address: to.address.clone(), reason }
        };
        let LeaseAnswer::Tombstones { forgets, next } = answer.map_err(|_| silent)?? else {
            return Err(strange());
        };
        for word in forgets.into_iter().take(FORGETS_MAX) {
            match forget(core, vec![word.clone()]).await {
                Ok(outcomes) if outcomes.contains(&Forgotten::Ended) => {
                    tracing::info!(%peer, "a lease was ended while this peer was away");
                }
                Ok(_) => {}
                // One that does not count is left out: the peer may be lying.
                Err(CallError::Invalid { .. } | CallError::Denied { .. }) => {}
                // What it ended is dropped by a sweep.
                Err(_) if core.leases.keeps_word(&word) => {}
                Err(error) => {
                    // Nobody would ask for it again, were it passed over.
                    tracing::warn!(
                        %error,
                        "a word that ended a lease could not be kept: it is asked for again, and what was forgotten \
                         stays until then"
                    );
                    return Err(error);
                }
            }
        }
        let Some((since_ms, lease)) = next else { return Ok(true) };
        let next = Heard { since_ms, after: Some(lease) };
        if next <= *from {
            return Err(strange());
        }
        *from = next;
    }
    Ok(false)
}

/// Ends leases by signed words, also where whoever waits for it goes away.
///
/// # Errors
/// As [`super::Leases::forget`].
pub(crate) async fn forget(
    core: &Arc<Core>,
    words: Vec<Bytes>,
) -> Result<Vec<Forgotten>, CallError> {
    let all = Arc::clone(core);
    let work = async move {
        let mut swept = Swept::default();
        let outcomes = all.leases.forget(words, &mut swept).await;
        note(&all, &swept);
        outcomes
    };
    owned(&core.env, work).await.unwrap_or_else(|| Err(shelf::closed()))
}
