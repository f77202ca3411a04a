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
//! What memory does not have may be new, or logged and forgotten (`remembered`): it is the one or the other that
//! decides whether a publication is lost, or logged once more, read by all others and perhaps logged once more
//! there. In order:
//!
//! 1. What the other logged before the time up to which memory reaches *and* before this peer last came to the end
//!    of several logs ([`WHOLE_MAX`]) was forgotten: it is skipped. After an absence or a flood no such end was
//!    reached, so nothing of it is skipped, however much was logged here since. Nor is anything of a peer whose log was not
//!    read to its end since that peer was last away. In a network that was cut in two each half comes to the ends
//!    of its own logs all the time, and they have nothing of the other half.
//! 2. Where something that is left is older than memory reaches, or much is not remembered ([`LOOK_UP_FROM`]), it is looked
//!    up in the own log, so that two peers never feed each other more than memory holds, round after round.
//! 3. Else it is logged, and now and then something twice: all remember it from then on, so it does not go round
//!    again.
//!
//! Who is away is looked at before each round: a peer counts as away after a minute without an answer, and memory is not
//! filled anew within some minutes. Of a half of the network that was cut off it is enough to have seen one peer away, which
//! brings what all of them logged.
//!
//! The other leaves out what this peer says to have, by a filter that takes some of what is new for known where it says much:
//! one in a hundred with 52,000 publications, four in ten with all that is remembered. That is another log's to bring. Where
//! few others are there ([`FEW_MAX`]), a peer whose log was not read to its end since it was away, or never, sends all instead.
//!
//! Nothing is read while the disk is full (`news`), and the cursors stay where they are. They are in memory; up to when enough
//! logs were read is marked beside the own one, and a start begins there. The mark waits for each log that was not read to
//! its end since its peer was away, but no longer than memory reaches: what is remembered nobody sends again after a start,
//! however long some peer stays away.
//!
//! Limits: [`ROUND_MAX`] publications that are not remembered, [`READ_MAX`] of all and [`ROUND_TIME`] a round; what is left is a later round's, every second of
//! which goes on with the same peer. An envelope that nobody answers for, or that is not found while a peer is away, is
//! tried in [`TRIES_MAX`] rounds. What peers logged that were away for longer than memory reaches does not come to a peer that
//! was started anew meanwhile, but from those that were not. Among more than a few peers the filter may hide a publication in
//! all logs: with ten peers of about two in ten thousand, with sixteen of one in a million, while it has all that is remembered.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crypto::{PeerId, PeerState, RecordId};
use document::{Kind, Publication, Record};
use env::Env;
use env::calls::{CallError, Cursor, Events, SubscribeEvent, SubscribeRequest};
use futures::StreamExt;
use walk::{Health, Sought, WalkError};

use crate::core::Core;
use crate::metrics::Source;
use crate::publications::Publications;
use crate::remembered::REMEMBERED_MAX;
use crate::shelf;

/// Publications read from another log in one round, of those that are not remembered.
const ROUND_MAX: usize = 20_000;
/// The same of all: a log that is sent whole has much that is known, and of each a hash is looked up.
const READ_MAX: usize = 1 << 20;
/// For how long a round reads, and then for how long it logs, at most.
const ROUND_TIME: Duration = Duration::from_secs(60);
/// Where memory lacks so many publications of a round, they are looked up in the log, which reads it all. Where fewer
/// come in each, memory reaches back an hour, and most others have met what came twice while it is remembered.
const LOOK_UP_FROM: usize = 4096;
/// How many logs' ends, of different peers, are to be reached until a peer has what was told before: of half of the
/// others, and no more than this. Peers that were away together have nothing to tell.
const WHOLE_MAX: usize = 8;
/// So many others are few: none of what one of them has may be left to the rest to bring.
const FEW_MAX: usize = 8;
/// Of so many publications a filter takes one in a million wrongly for known ([`document::Bloom::strict`]).
const KNOWN_STRICT_MAX: usize = 16_384;
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
    met: HashMap<PeerId, Met>,
    /// Of the others, those that were away.
    unmet_away: BTreeSet<PeerId>,
    /// For peers not asked yet.
    first: Cursor,
    /// Whose log a round left before its end.
    unfinished: Option<PeerId>,
    /// Whether the next round goes on there.
    goes_on: bool,
}

/// Where this peer is in one log.
#[derive(Clone, Copy)]
struct Met {
    cursor: Cursor,
    /// Rounds from this cursor on that are to be done again.
    tries: u32,
    /// When the last round began that came to the log's end, Unix milliseconds; 0 where none did.
    whole_ms: u64,
    /// The peer was away since then: what it logged meanwhile, nobody told here.
    apart: bool,
}

impl Met {
    /// Whether the log has what nobody here may have told.
    fn is_unread(&self) -> bool {
        self.apart || self.whole_ms == 0
    }
}

/// How a round ended.
enum Round {
    /// At the end of the other log.
    Whole(Cursor),
    /// At a bound.
    Part(Cursor),
    /// Some envelopes' holders did not answer: begin there again.
    Retry,
}

impl Progress {
    /// Nobody was met yet.
    fn starting_at(first: Cursor) -> Self {
        Self {
            met: HashMap::new(),
            unmet_away: BTreeSet::new(),
            first,
            unfinished: None,
            goes_on: false,
        }
    }

    /// Where to go on with a peer.
    fn with(&self, peer: &PeerId) -> Met {
        let apart = self.unmet_away.contains(peer);
        let new = Met { cursor: self.first, tries: 0, whole_ms: 0, apart };
        self.met.get(peer).copied().unwrap_or(new)
    }

    /// A round that began then is over.
    fn note(&mut self, peer: PeerId, began_ms: u64, round: &Round) {
        let met = self.with(&peer);
        let now = match round {
            Round::Whole(cursor) => {
                Met { cursor: *cursor, tries: 0, whole_ms: began_ms, apart: false }
            }
            Round::Part(cursor) => Met { cursor: *cursor, tries: 0, ..met },
            Round::Retry => Met { tries: met.tries + 1, ..met },
        };
        self.unmet_away.remove(&peer);
        self.met.insert(peer, now);
        let place = |cursor: &Cursor| (cursor.peer, cursor.offset);
        match round {
            Round::Retry => {}
            // Where it came no further, it is not gone on with.
            Round::Part(cursor) if place(cursor) != place(&met.cursor) => {
                self.unfinished.get_or_insert(peer);
            }
            _ => self.leave(&peer),
        }
    }

    /// Goes on with this peer no more than with others.
    fn leave(&mut self, peer: &PeerId) {
        self.unfinished = self.unfinished.filter(|unfinished| unfinished != peer);
    }

    /// These peers do not answer.
    fn away(&mut self, peers: impl IntoIterator<Item = PeerId>) {
        for peer in peers {
            match self.met.get_mut(&peer) {
                Some(met) => met.apart = true,
                None => drop(self.unmet_away.insert(peer)),
            }
        }
    }

    /// Others' logs are to be read again from this place on, but where less of them was read.
    fn again(&mut self, from: Cursor, members: impl IntoIterator<Item = PeerId>) {
        let places = members.into_iter().map(|peer| (peer, self.with(&peer)));
        let less = |met: &Met| met.is_unread() && met.cursor.unix_ms < from.unix_ms;
        let left = places.filter(|(_, met)| less(met));
        let met: HashMap<PeerId, Met> =
            left.map(|(peer, met)| (peer, Met { whole_ms: 0, ..met })).collect();
        let unmet_away = std::mem::take(&mut self.unmet_away);
        *self = Self { met, unmet_away, ..Self::starting_at(from) };
    }

    /// What this peer logged before then, Unix milliseconds, and is not remembered, was forgotten, where there are so many
    /// others and memory reaches back to `floor_ms`; 0 where that is not known of anything.
    fn old_ms(&self, peer: &PeerId, others: usize, floor_ms: u64, now: u64) -> u64 {
        match self.with(peer).apart {
            true => 0,
            false => floor_ms.min(self.had_ms(others, now)),
        }
    }

    /// Of how many publications at most a filter tells this peer that they are known, where there are so many members beside this
    /// one; of more it sends all.
    fn known_max(&self, peer: &PeerId, members: usize) -> usize {
        match self.with(peer).is_unread() && members <= FEW_MAX {
            true => KNOWN_STRICT_MAX,
            false => REMEMBERED_MAX,
        }
    }

    /// Until when others' logs need not be read again after a restart, Unix milliseconds, where these are the other members, so
    /// many of them well; `None` where no time is known.
    fn mark_ms(&self, members: &[PeerId], others: usize, floor_ms: u64, now: u64) -> Option<u64> {
        let had_ms = self.had_ms(others, now);
        let unread = members.iter().map(|peer| self.with(peer)).filter(Met::is_unread);
        let read_ms = unread.map(|met| met.cursor.unix_ms).min().unwrap_or(u64::MAX);
        (had_ms > 0).then(|| had_ms.min(read_ms.max(floor_ms)))
    }

    /// What was logged before then, Unix milliseconds, by peers that hear each other and this one was read, where there are so
    /// many others; 0 where that is not known of anything.
    fn had_ms(&self, others: usize, now: u64) -> u64 {
        // Times of a calendar that was ahead until it jumped back say nothing.
        let whole = self.met.values().map(|met| met.whole_ms).filter(|ms| *ms <= now);
        let mut whole: Vec<u64> = whole.collect();
        whole.sort_unstable_by_key(|ms| std::cmp::Reverse(*ms));
        let wanted = others.div_ceil(2).clamp(1, WHOLE_MAX);
        // Clocks differ.
        whole.get(wanted - 1).map_or(0, |ms| ms.saturating_sub(OVERLAP_MS))
    }
}

/// Compares logs until the peer stops.
pub(crate) async fn catch_up_all(core: Arc<Core>) {
    // What was marked may be long before the last publication: an absence that a restart fell into the catching up of.
    let begin_ms = core.publications.begin_ms();
    let begin_ms = core.journal.marked_ms().map_or(begin_ms, |ms| ms.min(begin_ms));
    let mut progress = Progress::starting_at(before(begin_ms));
    let mut quick = QUICK_ROUNDS;
    loop {
        let pause = if quick > 0 { core.rhythm.join } else { core.rhythm.catch_up };
        if !core.pause(core.jittered(pause)).await {
            return;
        }
        let members = members(&core);
        let away = members.iter().filter(|(_, health)| *health == Health::Away);
        progress.away(away.map(|(peer, _)| *peer));
        if core.shelf.is_full() {
            continue;
        }
        if let Some(unix_ms) = core.publications.take_again() {
            // Entries of the own log were found damaged: others' logs have them from then on.
            progress.again(before(unix_ms), members.iter().map(|(peer, _)| *peer));
            quick = QUICK_ROUNDS;
            let marked_ms = core.journal.marked_ms().unwrap_or(unix_ms);
            mark(&core, unix_ms.min(marked_ms)).await;
        }
        // The first rounds go to different peers.
        let Some(peer) = choose(&core, &mut progress, quick > 0) else {
            // Alone, or all were met: the quick rounds are over where somebody was.
            if !progress.met.is_empty() {
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
            Ok(()) => {
                quick = quick.saturating_sub(1);
                note_had(&core, &progress).await;
            }
            Err(error) => {
                tracing::debug!(%peer, %error, "catching up failed");
                progress.leave(&peer);
            }
        }
    }
}

/// Marks until when this peer has what others logged, where that moved on, so that a restart begins there and not at its own last
/// publication.
async fn note_had(core: &Core, progress: &Progress) {
    let now = core.env.clock.unix_ms();
    let members: Vec<PeerId> = members(core).into_iter().map(|(peer, _)| peer).collect();
    let floor_ms = past(core.publications.floor_ms(), now);
    let mark_ms = progress.mark_ms(&members, others(core).len(), floor_ms, now);
    // A mark in the time to come is one of a calendar that was ahead.
    let marked_ms = core.journal.marked_ms().filter(|marked| *marked <= now);
    let moved_on =
        |ms: &u64| marked_ms.is_none_or(|marked| *ms >= marked.saturating_add(OVERLAP_MS));
    if let Some(mark_ms) = mark_ms.filter(moved_on) {
        mark(core, mark_ms).await;
    }
}

async fn mark(core: &Core, unix_ms: u64) {
    if let Err(error) = core.journal.mark(unix_ms).await {
        tracing::debug!(%error, "how far this peer has caught up is not marked");
    }
}

/// A place in a log that is not read yet: some way before this time.
fn before(unix_ms: u64) -> Cursor {
    Cursor { peer: None, offset: 0, unix_ms: unix_ms.saturating_sub(OVERLAP_MS) }
}

/// A time, Unix milliseconds; 0 for one to come, which is of a calendar that was ahead and says nothing.
fn past(unix_ms: u64, now: u64) -> u64 {
    if unix_ms > now { 0 } else { unix_ms }
}

/// The other peers that have not left, and how well each is.
fn members(core: &Core) -> Vec<(PeerId, Health)> {
    let peers = core.directory.peers().into_iter();
    let others = peers.filter(|status| status.peer != core.own && status.state != PeerState::Left);
    others.map(|status| (status.peer, status.health)).collect()
}

/// The other peers that are well.
fn others(core: &Core) -> Vec<PeerId> {
    let well = members(core).into_iter().filter(|(_, health)| *health == Health::Healthy);
    well.map(|(peer, _)| peer).collect()
}

fn choose(core: &Core, progress: &mut Progress, new_only: bool) -> Option<PeerId> {
    let mut others = others(core);
    if new_only {
        others.retain(|peer| !progress.met.contains_key(peer));
        return core.pick(&others);
    }
    // One at a time gets on: of many logs that begin with the same, the beginning would be read again and again. Every
    // second round alone, so that a log without end does not keep this peer from the others.
    progress.unfinished = progress.unfinished.filter(|peer| others.contains(peer));
    progress.goes_on = !progress.goes_on;
    progress.unfinished.filter(|_| progress.goes_on).or_else(|| core.pick(&others))
}

/// One round with one peer.
async fn meet(core: &Core, progress: &mut Progress, peer: PeerId) -> Result<(), CallError> {
    // Peers that left are forgotten here, so that the map is no larger than the directory.
    progress.met.retain(|known, _| core.directory.is_member(known));
    progress.unmet_away.retain(|known| core.directory.is_member(known));
    let Some(to) = core.directory.endpoint(&peer) else { return Ok(()) };
    let (Met { cursor, tries, .. }, began_ms) = (progress.with(&peer), core.env.clock.unix_ms());
    // The other's calendar may be ahead, or this one's may have been.
    let from = Cursor { unix_ms: cursor.unix_ms.min(began_ms), ..cursor };
    let known = known(core, &from, progress.known_max(&peer, members(core).len())).await;
    let request = SubscribeRequest { from, known, ..SubscribeRequest::default() };
    let events = core.calls.subscribe(&to, request, EVENT_LIMIT).await;
    if let Err(error) = &events {
        core.directory.failed(&peer, error);
    }
    let floor_ms = past(core.publications.floor_ms(), began_ms);
    let old_ms = progress.old_ms(&peer, others(core).len(), floor_ms, began_ms);
    let read = read(&core.env, &core.publications, events?, from, old_ms).await?;
    let round = take(core, read, floor_ms, tries + 1 >= TRIES_MAX).await?;
    progress.note(peer, began_ms, &round);
    Ok(())
}

/// What this peer has of that part of the other log, where it is no more than so much. Where the clocks differ by more than
/// the overlap, some of it is sent all the same.
async fn known(core: &Core, from: &Cursor, known_max: usize) -> Option<Bytes> {
    let since_ms = from.unix_ms.saturating_sub(OVERLAP_MS);
    let publications = Arc::clone(&core.publications);
    // Random: what this filter hides wrongly, another peer's does not.
    let seed = u64::from_be_bytes(core.env.random());
    let bloom = core.env.cpu(move || publications.known_since(since_ms, seed, known_max)).await;
    bloom.map(|bloom| bloom.encode())
}

/// What a round read of another log.
struct Read {
    /// What is not remembered and not old, each with the place behind it.
    unknown: Vec<(Bytes, Cursor)>,
    /// The place behind all that was read.
    at: Cursor,
    /// Whether that is the log's end.
    whole: bool,
}

/// Reads another log up to its end, or to a bound, or to where it breaks off.
///
/// # Errors
/// Where it breaks off at once.
async fn read(
    env: &Env,
    publications: &Publications,
    mut events: Events,
    from: Cursor,
    old_ms: u64,
) -> Result<Read, CallError> {
    let until = env.clock.elapsed() + ROUND_TIME;
    let mut read = Read { unknown: Vec::new(), at: from, whole: false };
    for count in 0..READ_MAX {
        if read.unknown.len() >= ROUND_MAX || env.clock.elapsed() >= until {
            break;
        }
        match env.within(EVENT_LIMIT, events.next()).await {
            Ok(Some(Ok(SubscribeEvent::Publication { publication, received_ms, cursor }))) => {
                read.at = cursor;
                let old = received_ms < old_ms;
                let is_one = Publication::envelope_of(&publication).is_ok();
                if is_one && !old && !publications.knows(&publication) {
                    read.unknown.push((publication, cursor));
                }
            }
            Ok(Some(Ok(SubscribeEvent::Gap { cursor }))) => read.at = cursor,
            Ok(Some(Ok(SubscribeEvent::CaughtUp { cursor }))) => {
                return Ok(Read { at: cursor, whole: true, ..read });
            }
            Ok(Some(Err(error))) if count == 0 => return Err(error),
            Ok(Some(Err(_)) | None) | Err(_) => break,
        }
    }
    Ok(read)
}

/// Logs what is new of what was read, where memory reaches back to `floor_ms`.
async fn take(core: &Core, read: Read, floor_ms: u64, last_try: bool) -> Result<Round, CallError> {
    let Read { unknown, at, whole } = read;
    let unknown = new_of(&core.publications, unknown, floor_ms, LOOK_UP_FROM).await?;
    let until = core.env.clock.elapsed() + ROUND_TIME;
    let (mut complete, mut end) = (true, None);
    let mut batches = unknown.chunks(BATCH_MAX).peekable();
    while let Some(batch) = batches.next() {
        // The cursor stays where it was: what has no room now is read again.
        if core.shelf.is_full() {
            return Err(CallError::Full);
        }
        let claims = batch.iter().map(|(publication, _)| publication.clone()).collect();
        complete &= log(core, claims).await?;
        if batches.peek().is_some() && core.env.clock.elapsed() >= until {
            end = batch.last().map(|(_, cursor)| *cursor);
            break;
        }
    }
    Ok(match end {
        _ if !complete && !last_try => Round::Retry,
        Some(cursor) => Round::Part(cursor),
        None if whole => Round::Whole(at),
        None => Round::Part(at),
    })
}

/// Of what is not remembered, where it is so much or some of it may have been forgotten, what is not in the log either.
async fn new_of(
    publications: &Publications,
    mut unknown: Vec<(Bytes, Cursor)>,
    floor_ms: u64,
    look_up_from: usize,
) -> Result<Vec<(Bytes, Cursor)>, CallError> {
    let forgotten = unknown.iter().any(|(_, behind)| behind.unix_ms < floor_ms);
    if forgotten || unknown.len() >= look_up_from {
        let all: Vec<Bytes> = unknown.iter().map(|(publication, _)| publication.clone()).collect();
        let new = publications.not_logged(&all).await.map_err(|error| shelf::refusal(&error))?;
        unknown.retain(|(publication, _)| new.contains(publication));
    }
    Ok(unknown)
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
    let away = others(core).len() + 1 < core.directory.view().len();
    let mut complete = true;
    for ((claimed, _), found) in missing.into_iter().zip(found) {
        match found {
            Ok(found) => proven.extend(proves(core, &found.record, &claimed).then_some(claimed)),
            // Who is away may have it: what a peer that lost its disk had is only there.
            Err(WalkError::NotFound { .. }) => complete &= !away,
            // Nor do lies alone disprove it: one holder that answers so would keep it out of this log.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use testkit::network::key;
    use testkit::time::run;

    use super::*;
    use crate::publications::tests::{journal, learn, log_of};

    const HOUR: u64 = 3_600_000;
    /// Publications of a round here.
    const ROWS: usize = 12;

    /// One in form, of any envelope.
    fn publication(number: u64) -> Bytes {
        let mut bytes = Vec::new();
        for (tag, length) in [(0x0a, 32), (0x12, 32), (0x1a, 33), (0x22, 33)] {
            bytes.extend([tag, length]);
            bytes.extend(number.to_be_bytes());
            bytes.resize(bytes.len() + usize::from(length) - 8, 7);
        }
        bytes.into()
    }

    /// A log that tells what is none has nothing of it kept.
    #[test]
    fn what_has_not_the_form_of_a_publication_is_not_kept() {
        run(1, |env| async move {
            let (own, _own) = log_of(&env, journal(&env), 16).await;
            let (there, _there) = log_of(&env, journal(&env), 16).await;
            let good = publication(1);
            learn(&there, [Bytes::from_static(b"none"), good.clone(), vec![0; 9_000].into()]).await;
            let events = events(&there, 0, peer(1)).await;
            let read = read(&env, &own, events, Cursor::default(), 0).await.unwrap();
            let kept: Vec<Bytes> = read.unknown.into_iter().map(|(bytes, _)| bytes).collect();
            assert_eq!(kept, [good]);
        });
    }

    #[test]
    fn what_is_known_of_a_log_that_is_sent_whole_does_not_end_a_round() {
        run(1, |env| async move {
            let (own, _own) = log_of(&env, journal(&env), 16).await;
            learn(&own, [publication(1)]).await;
            let event = |number: u64, offset: usize| SubscribeEvent::Publication {
                publication: publication(number),
                received_ms: HOUR,
                cursor: Cursor { peer: Some(peer(1)), offset: offset as u64, unix_ms: HOUR },
            };
            let last = Cursor { peer: Some(peer(1)), offset: ROUND_MAX as u64, unix_ms: HOUR };
            let known = (0..=ROUND_MAX).map(|at| event(1, at));
            let all = known.chain([event(2, ROUND_MAX + 1)]);
            let all = all.chain([SubscribeEvent::CaughtUp { cursor: last }]).map(Ok);
            let events = futures::stream::iter(all.collect::<Vec<_>>()).boxed();
            let read = read(&env, &own, events, Cursor::default(), 0).await.unwrap();
            assert!(read.whole && read.unknown.len() == 1);
            let new = (0..=ROUND_MAX).map(|at| event(2 + at as u64, at)).map(Ok);
            let events = futures::stream::iter(new.collect::<Vec<_>>()).boxed();
            let read = super::read(&env, &own, events, Cursor::default(), 0).await.unwrap();
            assert!(!read.whole && read.unknown.len() == ROUND_MAX);
        });
    }

    fn peer(number: usize) -> PeerId {
        PeerId::new(key("peer", number).public())
    }

    /// What a log tells in one round.
    async fn events(log: &Publications, from: u64, peer: PeerId) -> Events {
        let rows = log.journal().read(from, ROWS).await.unwrap();
        let end = rows.len() < ROWS;
        let place = |offset, unix_ms| Cursor { peer: Some(peer), offset, unix_ms };
        let mut events = Vec::new();
        let mut at = place(from, 0);
        for (offset, received_ms, publication) in rows {
            at = place(offset + 1, received_ms);
            events.push(Ok(SubscribeEvent::Publication { publication, received_ms, cursor: at }));
        }
        events.extend(end.then_some(Ok(SubscribeEvent::CaughtUp { cursor: at })));
        futures::stream::iter(events).boxed()
    }

    /// One round of one log with another, which is of this peer, and a minute.
    async fn round(
        env: &Env,
        (own, progress): (&Publications, &mut Progress),
        (other, peer): (&Publications, PeerId),
        look_up_from: usize,
    ) {
        let (cursor, now) = (progress.with(&peer).cursor, env.clock.unix_ms());
        let events = events(other, cursor.offset, peer).await;
        let floor_ms = past(own.floor_ms(), now);
        let old_ms = progress.old_ms(&peer, 1, floor_ms, now);
        let read = read(env, own, events, cursor, old_ms).await.unwrap();
        let new = new_of(own, read.unknown, floor_ms, look_up_from).await.unwrap();
        learn(own, new.into_iter().map(|(publication, _)| publication)).await;
        let round = if read.whole { Round::Whole(read.at) } else { Round::Part(read.at) };
        progress.note(peer, now, &round);
        env.clock.sleep(Duration::from_secs(60)).await;
    }

    /// Two peers that remember 16 publications, one of which was away while the other logged 192.
    #[test]
    fn after_a_long_absence_nothing_is_lost_and_two_peers_do_not_feed_each_other() {
        // Where all that is unknown is looked up, nothing comes twice; else little, and once.
        for (look_up_from, twice) in [(1, 0), (8, 4)] {
            run(1, |env| async move {
                let (away, _away) = log_of(&env, journal(&env), 16).await;
                let (there, _there) = log_of(&env, journal(&env), 16).await;
                learn(&away, (0..8).map(publication)).await;
                learn(&there, (0..8).map(publication)).await;
                env.clock.sleep(Duration::from_secs(3600)).await;
                learn(&there, (8..200).map(publication)).await;
                env.clock.sleep(Duration::from_secs(3600)).await;
                let mut back = Progress::starting_at(Cursor::default());
                for _ in 0..30 {
                    round(&env, (&away, &mut back), (&there, peer(1)), look_up_from).await;
                }
                let rows = away.journal().read(0, 1000).await.unwrap();
                let rows: Vec<Bytes> = rows.into_iter().map(|(.., bytes)| bytes).collect();
                assert_eq!(rows, (0..200).map(publication).collect::<Vec<_>>());
                // To the other they come with new times, and most are forgotten there.
                let mut other = Progress::starting_at(Cursor::default());
                for _ in 0..100 {
                    round(&env, (&there, &mut other), (&away, peer(0)), look_up_from).await;
                    round(&env, (&away, &mut back), (&there, peer(1)), look_up_from).await;
                }
                let ends = (there.journal().end(), away.journal().end());
                assert_eq!(ends, (200 + twice, 200 + twice));
            });
        }
    }

    /// A round of each of these logs with each other that it hears.
    async fn rounds(
        env: &Env,
        logs: &[Arc<Publications>],
        progress: &mut [Progress],
        look_up_from: usize,
        hears: impl Fn(usize, usize) -> bool,
    ) {
        for (own, progress) in progress.iter_mut().enumerate() {
            for other in (0..logs.len()).filter(|other| *other != own && hears(own, *other)) {
                let there = (&*logs[other], peer(other));
                round(env, (&*logs[own], &mut *progress), there, look_up_from).await;
            }
        }
    }

    fn same_half(own: usize, other: usize) -> bool {
        own / 2 == other / 2
    }

    /// Two halves of two peers that remember 16 publications, of which each logs 100 while it hears its own half alone.
    #[test]
    fn halves_that_were_apart_for_longer_than_memory_reaches_hear_of_all_and_feed_nobody_twice() {
        // Where all that is unknown is looked up, nothing comes twice; else little, and once.
        for (look_up_from, rows_max) in [(1, 208), (8, 232)] {
            run(1, |env| async move {
                let (mut logs, mut progress) = (Vec::new(), Vec::new());
                for _ in 0..4 {
                    let (log, _) = log_of(&env, journal(&env), 16).await;
                    learn(&log, (0..8).map(publication)).await;
                    logs.push(log);
                    progress.push(Progress::starting_at(Cursor::default()));
                }
                rounds(&env, &logs, &mut progress, look_up_from, |_, _| true).await;
                env.clock.sleep(Duration::from_secs(3600)).await;
                for batch in 0..10 {
                    learn(&logs[0], (0..10).map(|n| publication(1000 + 10 * batch + n))).await;
                    learn(&logs[2], (0..10).map(|n| publication(3000 + 10 * batch + n))).await;
                    rounds(&env, &logs, &mut progress, look_up_from, same_half).await;
                    for (own, progress) in progress.iter_mut().enumerate() {
                        let away = (0..4).filter(|other| !same_half(own, *other));
                        progress.away(away.map(peer));
                    }
                    env.clock.sleep(Duration::from_secs(600)).await;
                }
                env.clock.sleep(Duration::from_secs(3600)).await;
                for _ in 0..30 {
                    rounds(&env, &logs, &mut progress, look_up_from, |_, _| true).await;
                }
                let ends: Vec<u64> = logs.iter().map(|log| log.journal().end()).collect();
                let all = (0..8).chain(1000..1100).chain(3000..3100).map(publication);
                let all: Vec<Bytes> = all.collect();
                for log in &logs {
                    let rows = log.journal().read(0, 1000).await.unwrap();
                    assert!(rows.len() <= rows_max, "{} rows", rows.len());
                    let mut told: Vec<Bytes> = rows.into_iter().map(|(.., bytes)| bytes).collect();
                    told.sort();
                    told.dedup();
                    assert_eq!(told, all);
                }
                for _ in 0..30 {
                    rounds(&env, &logs, &mut progress, look_up_from, |_, _| true).await;
                }
                let after: Vec<u64> = logs.iter().map(|log| log.journal().end()).collect();
                assert_eq!(after, ends, "nothing goes round");
            });
        }
    }

    #[test]
    fn nothing_is_old_before_the_ends_of_half_of_the_logs_were_reached() {
        let mut progress = Progress::starting_at(Cursor::default());
        let (floor, now) = (8 * HOUR, 10 * HOUR);
        let old = |progress: &Progress, others, floor_ms| {
            progress.old_ms(&peer(0), others, past(floor_ms, now), now)
        };
        for number in 0..3 {
            assert_eq!(old(&progress, 5, floor), 0, "{number} of 5");
            let began_ms = (2 + number as u64) * HOUR;
            progress.note(peer(number), began_ms, &Round::Whole(Cursor::default()));
        }
        assert_eq!(old(&progress, 5, floor), 2 * HOUR - OVERLAP_MS);
        assert_eq!(old(&progress, 3, floor), 3 * HOUR - OVERLAP_MS);
        progress.note(peer(0), 9 * HOUR, &Round::Part(Cursor::default()));
        assert_eq!(old(&progress, 1, floor), 4 * HOUR - OVERLAP_MS, "no end");
        assert_eq!(old(&progress, 1, HOUR), HOUR, "memory reaches back further");
        assert_eq!(old(&progress, 1, 0), 0, "nothing was forgotten");
        progress.note(peer(4), 11 * HOUR, &Round::Whole(Cursor::default()));
        assert_eq!(old(&progress, 1, floor), 4 * HOUR - OVERLAP_MS, "of a wrong calendar");
        assert_eq!(old(&progress, 1, 11 * HOUR), 0, "of a wrong calendar too");
    }

    #[test]
    fn nothing_is_old_of_a_peer_whose_log_was_not_read_to_its_end_since_it_was_away() {
        let mut progress = Progress::starting_at(Cursor::default());
        let (floor, now) = (8 * HOUR, 10 * HOUR);
        let old = |progress: &Progress, number| progress.old_ms(&peer(number), 2, floor, now);
        for number in 0..2 {
            progress.note(peer(number), 9 * HOUR, &Round::Whole(Cursor::default()));
        }
        assert_eq!([0, 1, 2].map(|number| old(&progress, number)), [floor; 3]);
        progress.away([peer(1), peer(2)]);
        assert_eq!([0, 1, 2].map(|number| old(&progress, number)), [floor, 0, 0]);
        for round in [Round::Part(Cursor::default()), Round::Retry] {
            progress.note(peer(1), 9 * HOUR, &round);
            assert_eq!(old(&progress, 1), 0, "not to its end");
        }
        progress.note(peer(1), 9 * HOUR, &Round::Whole(Cursor::default()));
        assert_eq!(old(&progress, 1), floor);
    }

    #[test]
    fn among_few_peers_no_filter_hides_what_a_peer_logged_while_it_was_away() {
        let mut progress = Progress::starting_at(Cursor::default());
        assert_eq!(progress.known_max(&peer(0), FEW_MAX), KNOWN_STRICT_MAX, "never read");
        assert_eq!(progress.known_max(&peer(0), FEW_MAX + 1), REMEMBERED_MAX, "others bring it");
        progress.note(peer(0), HOUR, &Round::Whole(Cursor::default()));
        assert_eq!(progress.known_max(&peer(0), FEW_MAX), REMEMBERED_MAX);
        progress.away([peer(0)]);
        assert_eq!(progress.known_max(&peer(0), FEW_MAX), KNOWN_STRICT_MAX);
    }

    fn at_time(unix_ms: u64) -> Cursor {
        Cursor { unix_ms, ..Cursor::default() }
    }

    #[test]
    fn a_mark_waits_for_the_logs_of_peers_that_are_away_as_long_as_memory_reaches() {
        let members = [peer(0), peer(1)];
        let mark = |progress: &Progress, floor| progress.mark_ms(&members, 1, floor, 10 * HOUR);
        let had = Some(9 * HOUR - OVERLAP_MS);
        let mut progress = Progress::starting_at(at_time(HOUR));
        assert_eq!(mark(&progress, 0), None, "no end was reached");
        progress.note(peer(0), 9 * HOUR, &Round::Whole(at_time(8 * HOUR)));
        assert_eq!(mark(&progress, 0), Some(HOUR), "one was never read");
        progress.note(peer(1), 3 * HOUR, &Round::Whole(at_time(2 * HOUR)));
        assert_eq!(mark(&progress, 0), had);
        progress.away([peer(1)]);
        assert_eq!(mark(&progress, 0), Some(2 * HOUR));
        assert_eq!(mark(&progress, 5 * HOUR), Some(5 * HOUR));
        assert_eq!(mark(&progress, 10 * HOUR), had);
        progress.note(peer(1), 9 * HOUR, &Round::Part(at_time(4 * HOUR)));
        assert_eq!(mark(&progress, 0), Some(4 * HOUR), "it goes on with what was read");
        progress.note(peer(1), 9 * HOUR, &Round::Whole(at_time(8 * HOUR)));
        assert_eq!(mark(&progress, 0), had);
    }

    #[test]
    fn what_is_read_again_begins_no_later_than_where_the_log_of_an_away_peer_was_left() {
        let mut progress = Progress::starting_at(at_time(HOUR));
        for (number, read_ms) in [(0, 8 * HOUR), (1, 2 * HOUR), (2, 8 * HOUR)] {
            progress.note(peer(number), read_ms, &Round::Whole(at_time(read_ms)));
        }
        progress.away([peer(1), peer(2)]);
        progress.again(at_time(5 * HOUR), (0..4).map(peer));
        let places = [0, 1, 2, 3].map(|number| progress.with(&peer(number)).cursor.unix_ms);
        assert_eq!(places, [5 * HOUR, 2 * HOUR, 5 * HOUR, HOUR]);
        let old = |number| progress.old_ms(&peer(number), 1, 8 * HOUR, 10 * HOUR);
        assert_eq!([0, 1, 2, 3].map(old), [0; 4]);
    }

    #[test]
    fn a_log_that_was_left_before_its_end_is_gone_on_with_while_that_leads_on() {
        let at = |offset| Cursor { peer: Some(peer(1)), offset, unix_ms: HOUR };
        let mut progress = Progress::starting_at(Cursor::default());
        progress.note(peer(1), HOUR, &Round::Part(at(5)));
        progress.note(peer(2), HOUR, &Round::Part(at(7)));
        assert_eq!(progress.unfinished, Some(peer(1)));
        progress.note(peer(1), HOUR, &Round::Retry);
        assert_eq!((progress.unfinished, progress.with(&peer(1)).tries), (Some(peer(1)), 1));
        progress.note(peer(1), HOUR, &Round::Part(at(5)));
        assert_eq!((progress.unfinished, progress.with(&peer(1)).tries), (None, 0));
        progress.note(peer(1), HOUR, &Round::Part(at(9)));
        progress.note(peer(1), HOUR, &Round::Whole(at(11)));
        assert_eq!(progress.unfinished, None);
        assert_eq!(progress.with(&peer(1)).cursor, at(11));
    }
}
