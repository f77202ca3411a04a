//! Catching up: what another peer logged and this one did not hear.
//!
//! News are spread best effort. A peer that was down, cut off or overloaded misses some, and the
//! design asks that with very high probability every log holds every event. So each peer reads, now
//! and then, what a random other peer logged since it last asked *that* peer, and logs what is new to
//! it. After every pair has met, nothing is missing; with one meeting a minute and one missed event
//! held by all the others, the next meeting already brings it.
//!
//! A publication from a log is a claim; it counts only with its envelope, from the own store or found
//! at its holders, whose hash proves it.
//!
//! Limits: [`ROUND_MAX`] publications and [`ROUND_TIME`] a round; what is left is the next round's.
//! An envelope that nobody answers for is tried in [`TRIES_MAX`] rounds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{PeerId, RecordId};
use document::{Kind, Publication, Record};
use env::calls::{CallError, Cursor, Events, SubscribeEvent, SubscribeRequest};
use futures::StreamExt;
use walk::{Health, Sought, WalkError};

use crate::core::Core;
use crate::metrics::Source;

/// Publications read from another log in one round.
const ROUND_MAX: usize = 20_000;
/// The longest round.
const ROUND_TIME: Duration = Duration::from_secs(60);
/// The longest wait for the other peer's next event.
const EVENT_LIMIT: Duration = Duration::from_secs(10);
/// Publications proven and logged at once.
const BATCH_MAX: usize = 256;
/// Rounds in which an envelope is looked for whose holders did not answer.
const TRIES_MAX: u32 = 3;
/// How far before the own log's last publication the first round begins, in milliseconds.
const OVERLAP_MS: u64 = 600_000;
/// Successful rounds that come quickly after the start, each with another peer.
const QUICK_ROUNDS: usize = 3;

/// Where this peer is in the others' logs.
struct Progress {
    cursors: HashMap<PeerId, (Cursor, u32)>,
    /// For peers not asked yet.
    first: Cursor,
}

/// How a round ended.
enum Round {
    /// At the end of the other log, or at a bound.
    Done(Cursor),
    /// Some envelopes' holders did not answer: begin there again.
    Retry,
}

/// Compares logs until the peer stops.
pub(crate) async fn catch_up_all(core: Arc<Core>) {
    let mut progress = Progress { cursors: HashMap::new(), first: first_cursor(&core) };
    let mut quick = QUICK_ROUNDS;
    loop {
        let pause = if quick > 0 { core.rhythm.join } else { core.rhythm.catch_up };
        if !core.pause(core.jittered(pause)).await {
            return;
        }
        if let Some(unix_ms) = core.publications.take_again() {
            // Entries of the own log were found damaged: others' logs have them from then on.
            progress = Progress { cursors: HashMap::new(), first: before(unix_ms) };
            quick = QUICK_ROUNDS;
        }
        // The first rounds go to different peers.
        let Some(peer) = choose(&core, &progress, quick > 0) else {
            // Alone, or all were met: the quick rounds are over where somebody was.
            if !progress.cursors.is_empty() {
                quick = 0;
            }
            continue;
        };
        let round = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            round = meet(&core, &mut progress, peer) => round,
        };
        match round {
            Ok(()) => quick = quick.saturating_sub(1),
            Err(error) => tracing::debug!(%peer, %error, "catching up failed"),
        }
    }
}

/// Where to begin in logs not read yet: some way before this peer's own last publication.
fn first_cursor(core: &Core) -> Cursor {
    before(core.publications.last_ms())
}

/// A place in a log that is not read yet.
fn before(unix_ms: u64) -> Cursor {
    Cursor { peer: None, offset: 0, unix_ms: unix_ms.saturating_sub(OVERLAP_MS) }
}

fn choose(core: &Core, progress: &Progress, new_only: bool) -> Option<PeerId> {
    let peers = core.directory.peers();
    let well = peers.iter().filter(|status| status.health == Health::Healthy);
    let others = well.map(|status| status.peer).filter(|peer| *peer != core.own);
    let others: Vec<PeerId> =
        others.filter(|peer| !new_only || !progress.cursors.contains_key(peer)).collect();
    core.pick(&others)
}

/// One round with one peer.
async fn meet(core: &Core, progress: &mut Progress, peer: PeerId) -> Result<(), CallError> {
    // Peers that left are forgotten here, so that the map is no larger than the directory.
    progress.cursors.retain(|known, _| core.directory.is_member(known));
    let Some(to) = core.directory.endpoint(&peer) else { return Ok(()) };
    let (from, tries) = progress.cursors.get(&peer).copied().unwrap_or((progress.first, 0));
    let known = known(core, &from).await;
    let request = SubscribeRequest { from, known, ..SubscribeRequest::default() };
    let events = core.calls.subscribe(&to, request, EVENT_LIMIT).await;
    if let Err(error) = &events {
        core.directory.failed(&peer, error);
    }
    let last_try = tries + 1 >= TRIES_MAX;
    match take(core, events?, from, last_try).await? {
        Round::Done(cursor) => progress.cursors.insert(peer, (cursor, 0)),
        Round::Retry => progress.cursors.insert(peer, (from, tries + 1)),
    };
    Ok(())
}

/// What this peer has of that part of the other log. Where the clocks differ by more than the overlap, some of it is
/// sent all the same.
async fn known(core: &Core, from: &Cursor) -> Option<Bytes> {
    let since_ms = from.unix_ms.saturating_sub(OVERLAP_MS);
    let publications = Arc::clone(&core.publications);
    // Random: what this filter lets pass wrongly, the next does not.
    let seed = u64::from_be_bytes(core.env.random());
    let bloom = core.env.cpu(move || publications.known_since(since_ms, seed)).await;
    bloom.map(|bloom| bloom.encode())
}

/// Reads the other log and logs what is new.
async fn take(
    core: &Core,
    mut events: Events,
    from: Cursor,
    last_try: bool,
) -> Result<Round, CallError> {
    let until = core.env.clock.elapsed() + ROUND_TIME;
    let floor_ms = core.publications.floor_ms();
    let (mut at, mut read, mut complete) = (from, 0, true);
    let mut batch: Vec<Bytes> = Vec::new();
    loop {
        let late = core.env.clock.elapsed() >= until;
        let event = if read >= ROUND_MAX || late {
            None
        } else {
            core.env.within(EVENT_LIMIT, events.next()).await.unwrap_or(None).transpose()?
        };
        match &event {
            Some(SubscribeEvent::Publication { publication, received_ms, cursor }) => {
                read += 1;
                at = *cursor;
                let old = *received_ms < floor_ms;
                if !old && !core.publications.knows(publication) {
                    batch.push(publication.clone());
                }
            }
            Some(SubscribeEvent::Gap { cursor } | SubscribeEvent::CaughtUp { cursor }) => {
                at = *cursor;
            }
            None => {}
        }
        let over = matches!(event, None | Some(SubscribeEvent::CaughtUp { .. }));
        if over || batch.len() >= BATCH_MAX {
            complete &= log(core, std::mem::take(&mut batch)).await?;
        }
        if over {
            let done = complete || last_try;
            return Ok(if done { Round::Done(at) } else { Round::Retry });
        }
    }
}

/// Proves and logs publications; `false` where some could not be proven or disproven now.
async fn log(core: &Core, batch: Vec<Bytes>) -> Result<bool, CallError> {
    core.strain.calm(&core.env).await;
    let envelope = |claimed: Bytes| Publication::envelope_of(&claimed).ok().map(|id| (claimed, id));
    let claims: Vec<(Bytes, RecordId)> = batch.into_iter().filter_map(envelope).collect();
    let (mut proven, mut missing) = (Vec::new(), Vec::new());
    for (claimed, id) in claims {
        match core.shelf.get(&id).await.unwrap_or_default() {
            Some(record) => proven.extend(proves(core, &record, &claimed).then_some(claimed)),
            None => missing.push((claimed, id)),
        }
    }
    let sought = missing.iter().map(|(_, id)| Sought {
        kind: Some(Kind::Envelope),
        id: *id,
        place: (*id).into(),
    });
    // Those of one holder in one call: after an overload there are thousands, while callers wait too.
    let found = core.walker.find_batch(sought.collect()).await;
    let mut complete = true;
    for ((claimed, _), found) in missing.into_iter().zip(found) {
        match found {
            Ok(found) => proven.extend(proves(core, &found.record, &claimed).then_some(claimed)),
            Err(WalkError::NotFound { .. } | WalkError::Corrupt { .. }) => {}
            Err(_) => complete = false,
        }
    }
    let heard = |publication| core.publications.heard(publication, Source::CatchUp);
    core.publications.log(proven.into_iter().filter_map(heard).collect()).await?;
    Ok(complete)
}

/// Whether an envelope is what its publication says.
fn proves(core: &Core, envelope: &Record, claimed: &Bytes) -> bool {
    let told = Publication::told_by(core.genesis.suite, &envelope.bytes);
    told.is_ok_and(|(_, publication)| publication == *claimed)
}
