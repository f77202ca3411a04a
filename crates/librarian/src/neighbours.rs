//! Keeping in touch: joining, introducing itself, and looking after peers that were not heard from.
//!
//! All of it is the same call, `Introduce`, since it proves that a peer answers, tells who this peer
//! is, and brings what the other one knows. News tell of joins and departures within a second; this
//! is what finds the peers that the news did not reach.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crypto::{PeerId, PeerState};
use env::calls::{CallError, Endpoint, IntroduceRequest};
use futures::StreamExt;
use walk::Health;

use crate::core::Core;

/// A peer that answered so lately is not checked.
const FRESH: Duration = Duration::from_secs(30);
/// Peers checked in one round, the unwell ones included.
const CHECKS_MAX: usize = 32;
/// Well peers checked in one round. A dead one is found out by the first real call too, and every check
/// of a peer that is otherwise not called costs both a connection: with 64 peers at rest that was most of
/// what they did. So up to ten peers each is called every [`FRESH`], and of more all in turn: of 64 each once in ten
/// minutes by each, and every ten seconds by somebody.
const CHECKS_WELL: usize = 3;
/// Above so many well peers that are quiet, fewer are checked at a time, one at least.
const CHECKS_WELL_PEERS: usize = 32;
/// Checks at once.
const CHECKS_PARALLEL: usize = 8;
/// The deadline of a check.
const CHECK_LIMIT: Duration = Duration::from_secs(3);
/// Days before the certificate's end from which the log warns.
const EXPIRY_WARNING_S: u64 = 30 * 24 * 3600;
/// How often it warns.
const EXPIRY_REPEAT: Duration = Duration::from_secs(24 * 3600);
/// Peers that are told personally that this one stops.
const FAREWELLS_MAX: usize = 8;
/// The deadline of telling it.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// Joins as soon as somebody answers, and again whenever nobody known answers any more.
///
/// A first peer is alone and serves at once; it goes on asking its bootstrap addresses, at most every
/// [`crate::Rhythm::introduce`]. So it does, one at a time, with those where nobody answered since the start, though others
/// are in touch: whoever began while its link was down may be known to nobody whom they know.
pub(crate) async fn join_all(core: Arc<Core>) {
    let mut pause = core.rhythm.join;
    let mut unmet = given(&core);
    loop {
        if in_touch(&core) {
            pause = core.rhythm.introduce;
            ask_unmet(&core, &mut unmet).await;
        } else {
            let joined = tokio::select! {
                biased;
                () = core.stop.cancelled() => return,
                joined = core.walker.join(&core.bootstrap) => joined,
            };
            match joined {
                Ok(peers) => {
                    tracing::info!(peers, "joined");
                    pause = core.rhythm.introduce;
                }
                Err(error) => {
                    if !core.bootstrap.is_empty() {
                        tracing::warn!(%error, "nobody to join answered yet");
                    }
                    pause = (pause * 2).min(core.rhythm.introduce);
                    if error.is_refusal() {
                        ask_unvouched(&core).await;
                    }
                }
            }
        }
        if !core.pause(core.jittered(pause)).await {
            return;
        }
    }
}

/// Whether any other peer answered lately.
fn in_touch(core: &Core) -> bool {
    let peers = core.directory.peers();
    let mut others = peers.iter().filter(|status| status.peer != core.own);
    others.any(|status| status.health == Health::Healthy && status.last_good.is_some())
}

/// The bootstrap addresses, each once, without those where this peer itself answers.
fn given(core: &Core) -> VecDeque<String> {
    let own = core.announcer.announcement().certificate.addresses;
    let others = core.bootstrap.iter().filter(|&address| !own.contains(address));
    let others: BTreeSet<&String> = others.collect();
    others.into_iter().cloned().collect()
}

/// Introduces this peer at the next of the addresses where nobody answered yet; those where somebody did are taken out.
async fn ask_unmet(core: &Core, unmet: &mut VecDeque<String>) {
    // Who was heard by another way may be called there and answer elsewhere: what counts is an answer from there.
    let Some(address) = unmet.pop_front() else { return };
    let to = Endpoint::at(&address);
    let answer = tokio::select! {
        biased;
        () = core.stop.cancelled() => return,
        answer = core.walker.introduce(&to) => answer,
    };
    match answer {
        Ok(_) => tracing::info!(%address, "a peer answers at a bootstrap address"),
        Err(error) => {
            tracing::debug!(%address, %error, "nobody answers at a bootstrap address yet");
            unmet.push_back(address);
        }
    }
}

/// Introduces this peer to a random other one, again and again, and learns whom that one knows.
pub(crate) async fn introduce_all(core: Arc<Core>) {
    while core.pause(core.jittered(core.rhythm.introduce)).await {
        let well = others(&core, |health| health == Health::Healthy);
        // Where all are unwell, any may have recovered.
        let peers = if well.is_empty() { others(&core, |_| true) } else { well };
        let Some(to) = core.pick(&peers).and_then(|peer| core.directory.endpoint(&peer)) else {
            continue;
        };
        let answer = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            answer = core.walker.introduce(&to) => answer,
        };
        if let Err(error) = answer {
            tracing::debug!(address = %to.address, %error, "introduction failed");
            if matches!(error, CallError::Denied { .. }) {
                ask_unvouched(&core).await;
            }
        }
    }
}

/// Asks as a stranger who takes part: what vouches for this peer may count no more, and the news of that went past it, since
/// the others end their links to who left as soon as they know.
async fn ask_unvouched(core: &Core) {
    let Some(unvouched) = &core.unvouched else { return };
    let asked = async {
        // Where nobody is known to be well, those are asked that the peer was given.
        match unvouched.refresh().await {
            Err(CallError::NotFound) => {
                unvouched.join(&core.bootstrap).await.err().map(|error| error.to_string())
            }
            asked => asked.err().map(|error| error.to_string()),
        }
    };
    let failed = tokio::select! {
        biased;
        () = core.stop.cancelled() => return,
        failed = asked => failed,
    };
    if let Some(error) = failed {
        tracing::debug!(%error, "nothing new was learnt as a stranger either");
    }
}

fn others(core: &Core, with: impl Fn(Health) -> bool) -> Vec<PeerId> {
    let peers = core.directory.peers().into_iter();
    let left = |state| state == PeerState::Left;
    let others = peers.filter(|status| status.peer != core.own && !left(status.state));
    others.filter(|status| with(status.health)).map(|status| status.peer).collect()
}

/// A calendar that jumped by so much was set; by less it drifts or is steered, and sequences rise all the same.
const CALENDAR_SET_MS: u64 = 1_000;

/// Calls peers that were not heard from, again and again.
pub(crate) async fn check_all(core: Arc<Core>) {
    while core.pause(core.jittered(core.rhythm.health)).await {
        let quiet = quiet_peers(&core);
        let checks = quiet.into_iter().map(|to| check(&core, to));
        let mut checks = futures::stream::iter(checks).buffer_unordered(CHECKS_PARALLEL);
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = async { while checks.next().await.is_some() {} } => {}
        }
    }
}

/// Peers without a fresh good call: those that are unwell, a random part of them where there are too many, and some that
/// are well, those first that did not answer for the longest time. Of many that are well each has its turn so seldom that most
/// answered another call meanwhile: who did is not checked beside.
fn quiet_peers(core: &Core) -> Vec<Endpoint> {
    let fresh = FRESH.min(core.rhythm.health * 3);
    let quiet = core.directory.peers().into_iter().filter(|status| {
        let away = matches!(status.state, PeerState::Left | PeerState::Stopped);
        let heard = status.last_good.is_some_and(|ago| ago < fresh);
        status.peer != core.own && !away && !heard
    });
    let (mut well, mut unwell): (Vec<_>, Vec<_>) =
        quiet.partition(|status| status.health == Health::Healthy);
    if !unwell.is_empty() {
        let from = usize::from(u16::from_be_bytes(core.env.random())) % unwell.len();
        unwell.rotate_left(from);
    }
    well.sort_by_key(|status| std::cmp::Reverse(status.last_good.unwrap_or(Duration::MAX)));
    let few = (CHECKS_WELL_PEERS / well.len().max(1)).clamp(1, CHECKS_WELL);
    let turns = u32::try_from(well.len() / few).unwrap_or(u32::MAX);
    let due = core.rhythm.health.saturating_mul(turns);
    let well = well.iter().take(few);
    let well = well.filter(|status| status.last_good.is_none_or(|ago| ago >= due));
    let checked = unwell.iter().take(CHECKS_MAX - CHECKS_WELL).chain(well);
    checked.filter_map(|status| core.directory.endpoint(&status.peer)).collect()
}

/// A small call that shows whether a peer answers.
async fn check(core: &Core, to: Endpoint) {
    let Some(peer) = to.peer else { return };
    let request = IntroduceRequest::new(core.announcer.credential(), 0);
    let since = core.env.clock.elapsed();
    match core.calls.introduce(&to, request, CHECK_LIMIT).await {
        Ok(answer) => {
            // A peer that came back or changed says so here, if its news did not arrive.
            let _ = core.directory.learn(&answer.announcement);
            core.directory.told_calendar(&peer, answer.unix_ms);
            core.directory.good(&peer, core.env.clock.elapsed().saturating_sub(since));
        }
        Err(error) => core.directory.failed(&peer, &error),
    }
}

/// Announces this peer again when what it says is no longer so, when its calendar was set, and every hour.
///
/// Of two announcements the one with the higher sequence counts, which is the calendar's. A peer that was started while its
/// calendar was behind announced itself as older than what others know (perhaps that it stopped), and nobody took it.
pub(crate) async fn announce_all(core: Arc<Core>) {
    core.announce(core.state()).await;
    core.tell_revocation().await;
    let mut announced = core.env.clock.elapsed();
    let mut calendar = self::calendar(&core);
    let (mut warned, mut disowned) = (None, None);
    core.tell_disowned(&mut disowned);
    while core.pause(core.jittered(core.rhythm.state)).await {
        let now = core.env.clock.elapsed();
        warn_of_expiry(&core, &mut warned, now);
        core.tell_disowned(&mut disowned);
        let state = core.state();
        let due = now.saturating_sub(announced) >= core.rhythm.announce;
        let was_set = self::calendar(&core).abs_diff(calendar) >= CALENDAR_SET_MS;
        if due || was_set || !core.announcer.says(&core.overlay.addresses(), state) {
            core.announce(state).await;
            if due {
                core.tell_revocation().await;
            }
            announced = now;
            calendar = self::calendar(&core);
        }
    }
}

/// What the calendar said when the clock began, in Unix milliseconds: it stays the same until the calendar is set.
fn calendar(core: &Core) -> u64 {
    let elapsed = core.env.clock.elapsed().as_millis();
    core.env.clock.unix_ms().saturating_sub(u64::try_from(elapsed).unwrap_or(u64::MAX))
}

fn warn_of_expiry(core: &Core, warned: &mut Option<Duration>, now: Duration) {
    let until = core.announcer.announcement().certificate.until;
    let left_s = until.saturating_sub(core.env.clock.unix_s());
    let lately = warned.is_some_and(|at| now.saturating_sub(at) < EXPIRY_REPEAT);
    if left_s > EXPIRY_WARNING_S || lately {
        return;
    }
    *warned = Some(now);
    tracing::warn!(days = left_s / (24 * 3600), until, "the peer's certificate expires");
}

/// Tells some peers personally that this one stops: the mesh may go down before it has told.
pub(crate) async fn say_farewell(core: &Core) {
    let mut peers = others(core, |health| health == Health::Healthy);
    if !peers.is_empty() {
        let from = usize::from(u16::from_be_bytes(core.env.random())) % peers.len();
        peers.rotate_left(from);
        peers.truncate(FAREWELLS_MAX);
    }
    let calls =
        peers.iter().filter_map(|peer| core.directory.endpoint(peer)).map(|to| async move {
            let credential = core.announcer.credential();
            let request = IntroduceRequest::new(credential, 0);
            let call = core.calls.introduce(&to, request, FAREWELL_LIMIT);
            let _ = core.env.within(FAREWELL_LIMIT, call).await;
        });
    futures::future::join_all(calls).await;
}
