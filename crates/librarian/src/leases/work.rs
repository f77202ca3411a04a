//! The background work of leases: what ended is dropped, its bytes leave the files, and words of others are heard.
//!
//! ```text
//! sweep    every ten minutes: leases that ended, words whose time is over; not by a calendar that is doubted
//! erase    beside it: once something was dropped, and half of its time is over, every segment with dead bytes is compacted
//! hear     all peers after the start, then one a minute, in turn: which leases were ended since it was asked last
//! ```
//! A peer that is read-only, or leaves, does all three: what it keeps of a lease that ended would be served, or live on at who takes it
//! over, and keep who leaves for ever.
//! A peer that did not run for [`AWAY_MAX_S`] may have missed words that nobody keeps any more, and says so: its operator lets it begin
//! empty. One that ran and heard no peer of some organisation for so long says that instead: its own bytes are no worse for it, and to
//! wipe it would take acknowledged copies away, at every peer alike.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{LeaseId, OrgId, PeerId, PeerState};
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
/// Turns in a row in which a peer does not tell all its words, from which on it is not waited for any more: those that it takes to tell as
/// many as a peer keeps, and a few. One of an older release knows no leases, and one that lies always has more to tell.
const UNTOLD_MAX: u32 = 20;
/// Pace of erasing, in bytes of segments that are written again in a second.
const ERASE_BYTES_S: u64 = 16 << 20;

/// Drops what ended, until the peer stops.
pub(crate) async fn sweep_all(core: Arc<Core>) {
    let mut doubted = None;
    while core.pause(core.jittered(core.leases.settings.sweep)).await {
        if core.shelf.ends_nothing() {
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
        if !core.shelf.ends_nothing() {
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
        tracing::error!(error = %shelf::one_line(&error), "bytes that were dropped are still in the files");
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
/// ([`super::Leases::heard_ms`]): that it ran does not say that it heard, and that it heard nobody does not say that it was away. A
/// word is known to those alone that held its lease, so that is until when the one was heard whose turn is the longest ago.
pub(crate) async fn hear_all(core: Arc<Core>, last_run_ms: u64) {
    let mut first = core.leases.heard_ms().saturating_sub(BEFORE_START_MS);
    let away = days_missed(last_run_ms, core.env.clock.unix_ms());
    if let Some(days) = away.filter(|_| core.leases.counts().0 > 0) {
        tracing::error!(
            days,
            "this peer was away for longer than words that ended leases are kept: it may hold what was forgotten; \
             let it begin empty"
        );
    }
    let mut told_s = None;
    let mut turns: HashMap<PeerId, Turn> = HashMap::new();
    let mut pause = core.rhythm.join;
    while core.pause(core.jittered(pause)).await {
        pause = core.leases.settings.ask;
        begin_again_where_set_back(&core, &mut turns, &mut first);
        if core.leases.counts().0 == 0 || core.shelf.ends_nothing() {
            // Nothing here could be ended; when something is, questions begin where they would have.
            continue;
        }
        let peers = core.directory.peers();
        let well = peers.iter().filter(|one| one.peer != core.own && one.health != Health::Away);
        let well: Vec<PeerId> = well.map(|one| one.peer).collect();
        turns.retain(|peer, _| peers.iter().any(|one| one.peer == *peer));
        // Those that were not asked yet go first, one after the other and quickly.
        let new: Vec<PeerId> =
            well.iter().filter(|peer| !turns.contains_key(*peer)).copied().collect();
        let next = core.pick(&new).or_else(|| core.pick(&longest_ago(&turns, &well)));
        let Some(peer) = next else { continue };
        if new.len() > 1 {
            pause = core.rhythm.join;
        }
        let now = core.env.clock.elapsed();
        let now_s = now.as_secs();
        if new.is_empty() && told_s.is_none_or(|told| now_s >= told + SILENT_EVERY_S) {
            told_s = Some(now_s);
            tell_silent(&core, &turns);
        }
        let begun = core.env.clock.unix_ms();
        let from = Heard { since_ms: first, after: None };
        let mut turn = turns.get(&peer).copied().unwrap_or(Turn { from, ..Turn::default() });
        turn.asked = now;
        let told = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            told = hear(&core, peer, &mut turn.from) => told,
        };
        match told {
            Ok(Told::All) => {
                turn.from = Heard { since_ms: begun.saturating_sub(OVERLAP_MS), after: None };
                (turn.until_ms, turn.untold) = (begun, 0);
            }
            // It is asked for in the peer's next turn, from where this one came to.
            Ok(Told::Part) => turn.untold = turn.untold.saturating_add(1),
            // The fault is not the peer's.
            Ok(Told::Unkept) => {}
            // An older peer knows no leases; another one is asked again in its turn.
            Err(error) => {
                turn.untold = turn.untold.saturating_add(1);
                tracing::debug!(%peer, %error, "words that ended leases could not be heard");
            }
        }
        turns.insert(peer, turn);
        note_heard(&core, &turns);
    }
}

/// Where words were noted as heard until a moment that is yet to come the calendar was ahead, and nobody can say what was heard: all is
/// asked for again from `first` on, which is 0 where it is such a moment itself.
fn begin_again_where_set_back(core: &Core, turns: &mut HashMap<PeerId, Turn>, first: &mut u64) {
    let now_ms = core.env.clock.unix_ms();
    let noted = turns.values().map(|turn| turn.until_ms).chain([core.leases.heard_ms()]);
    if noted.max() <= Some(now_ms) {
        return;
    }
    if *first > now_ms {
        *first = 0;
    }
    turns.clear();
    core.leases.set_heard_ms(*first);
}

/// What came of asking a peer for its words in this run.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Where its next questions begin.
    from: Heard,
    /// When it was asked last, by the clock's `elapsed`.
    asked: Duration,
    /// Until when it told all its words, Unix milliseconds; 0: not yet.
    until_ms: u64,
    /// Turns since then in which it did not.
    untold: u32,
}

/// Of these peers, those whose turn is the longest ago.
fn longest_ago(turns: &HashMap<PeerId, Turn>, of: &[PeerId]) -> Vec<PeerId> {
    let asked = |peer: &PeerId| turns.get(peer).map(|turn| turn.asked);
    let first = of.iter().map(asked).min();
    of.iter().filter(|&peer| first == Some(asked(peer))).copied().collect()
}

/// Until when the words of an organisation were heard in this run, Unix milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct OfOrganisation {
    /// By the peer that told last; 0: none did.
    last_ms: u64,
    /// By the peer whose turn is the longest ago of those that are waited for, 0 where it had none; `None`: there is none.
    all_ms: Option<u64>,
}

/// Until when the words of every other organisation were heard in this run. Of its peers those are waited for that are not away (one
/// that never ran is, within minutes) and that did not leave [`UNTOLD_MAX`] questions unanswered.
fn heard_of_each(core: &Core, turns: &HashMap<PeerId, Turn>) -> HashMap<OrgId, OfOrganisation> {
    let mut heard: HashMap<OrgId, OfOrganisation> = HashMap::new();
    let others = core.directory.peers().into_iter();
    for other in others.filter(|one| one.peer != core.own && one.state != PeerState::Left) {
        let turn = turns.get(&other.peer).copied().unwrap_or_default();
        let of = heard.entry(other.organisation).or_default();
        of.last_ms = of.last_ms.max(turn.until_ms);
        if other.health != Health::Away && turn.untold < UNTOLD_MAX {
            of.all_ms = Some(of.all_ms.map_or(turn.until_ms, |all| all.min(turn.until_ms)));
        }
    }
    heard
}

/// Notes until when the words of all organisations were heard. One of which no peer tells holds it where it is: the words that its
/// peers heard may be known to nobody else. What is asked for again at the next start is bounded all the same, by what peers keep.
fn note_heard(core: &Core, turns: &HashMap<PeerId, Turn>) {
    let heard = heard_of_each(core, turns);
    let all = heard.into_values().map(|of| of.all_ms.unwrap_or(0)).min();
    let all = all.filter(|all| *all > core.leases.heard_ms());
    all.into_iter().for_each(|all| core.leases.set_heard_ms(all));
}

/// Tells which organisations may not have been heard for longer than words are kept. Since when each was is not kept over restarts:
/// at the longest, since all were.
fn tell_silent(core: &Core, turns: &HashMap<PeerId, Turn>) {
    let (all_ms, now_ms) = (core.leases.heard_ms(), core.env.clock.unix_ms());
    for (organisation, of) in heard_of_each(core, turns) {
        if let Some(days_max) = days_missed(of.last_ms.max(all_ms), now_ms) {
            tracing::warn!(
                %organisation,
                days_max,
                "no peer of this organisation says which leases were ended: what its clients forgot may be here still"
            );
        }
    }
}

/// Until where a peer's words were heard: a moment, and of those of that moment a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Heard {
    since_ms: u64,
    after: Option<LeaseId>,
}

/// What a peer told when it was asked for its words.
enum Told {
    /// All that it has.
    All,
    /// There are more.
    Part,
    /// One that could not be kept here, and perhaps more.
    Unkept,
}

/// Hears a peer's words, in one round at most so many. `from` goes on with each answer.
///
/// # Errors
/// Where the peer does not tell them.
async fn hear(core: &Arc<Core>, peer: PeerId, from: &mut Heard) -> Result<Told, CallError> {
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
                Ok(outcomes) if outcomes.contains(&Forgotten::NotHere) => {
                    core.leases.note_elsewhere(word);
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
                    return Ok(Told::Unkept);
                }
            }
        }
        let Some((since_ms, lease)) = next else { return Ok(Told::All) };
        let next = Heard { since_ms, after: Some(lease) };
        if next <= *from {
            return Err(strange());
        }
        *from = next;
    }
    Ok(Told::Part)
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
