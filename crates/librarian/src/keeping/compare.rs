//! Comparing with one peer after the other: sums, and lists where they differ.
//!
//! How long a comparison takes is the other side's to say, so nothing waits for one: inventory and epoch are brought up to now beside them,
//! each ends by itself after [`COMPARED_MAX`], and whoever takes long is compared with in its turn alone, behind the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crypto::{PeerId, Place, RecordId};
use document::Kind;
use env::calls::CallError;
use env::calls::keep::{
    CLAIMS_MAX, COMPARE_BITS_MAX, Compare, CompareAnswer, HeldFragment, ITEMS_MAX, KeepAnswer,
    KeepRequest, Listed, RANGES_MAX, Range, SettledStripe,
};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use version::COPIES_MAX;
use walk::Health;

use super::ask::{SMALL_LIMIT, ask, strange};
use super::{Keeping, locked};
use crate::core::Core;

/// Calls of one comparison.
const CALLS_MAX: usize = 512;
/// How long one comparison may take; what is left of it is compared the next time.
const COMPARED_MAX: Duration = Duration::from_secs(30);
/// Whose comparison took so long comes behind the others: one call that nobody answers.
const SLOW_FROM: Duration = SMALL_LIMIT;
/// Comparisons at once.
const PARALLEL: usize = 4;
/// Of those, with peers whose last one took long.
const SLOW_AT_ONCE: usize = PARALLEL / 2;
/// How long it is waited where somebody asks to compare with all now.
const ASKED_PAUSE: Duration = Duration::from_secs(2);
/// Of those with which nothing was compared yet, how many are asked beside the one whose turn it is.
const UNKNOWN_MAX: usize = 3;

/// Brings inventory and epoch up to now until the peer stops, whatever comparisons are under way; after each time others are compared with.
pub(super) async fn refresh_all(core: Arc<Core>, keeping: Arc<Keeping>) {
    loop {
        let mut asked = false;
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = core.env.clock.sleep(core.jittered(keeping.options.compare)) => {}
            () = keeping.asked.notified() => asked = true,
        }
        if asked {
            // Not oftener than this, whoever asks.
            let pause = keeping.options.compare.min(ASKED_PAUSE);
            if !core.pause(pause).await {
                return;
            }
        }
        let refreshed = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            refreshed = keeping.refresh(&core) => refreshed,
        };
        match refreshed {
            Ok(Some(changed)) => {
                if changed || asked {
                    keeping.compare_all.store(true, Ordering::SeqCst);
                }
                keeping.compare.notify_one();
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "the store cannot be read, and nothing is compared");
            }
        }
    }
}

/// Compares until the peer stops.
pub(super) async fn compare_all(core: Arc<Core>, keeping: Arc<Keeping>) {
    let (core, keeping) = (&*core, &*keeping);
    let (mut turn, mut turns) = (Vec::new(), Turns::default());
    let mut under_way = FuturesUnordered::new();
    loop {
        while let Some(peer) = turns.begin() {
            under_way.push(compare(core, keeping, peer));
        }
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            Some((peer, took)) = under_way.next() => turns.ended(&peer, took),
            () = keeping.compare.notified() => {
                if keeping.compare_all.swap(false, Ordering::SeqCst) {
                    turns.all_wait(heard(core, keeping));
                } else {
                    let some = some(core, keeping, &mut turn, &turns);
                    some.into_iter().for_each(|peer| turns.waits(peer));
                }
            }
        }
    }
}

/// With whom is to be compared and with whom it is under way.
#[derive(Default)]
struct Turns {
    /// Each once.
    waiting: VecDeque<PeerId>,
    under_way: BTreeSet<PeerId>,
    /// Those whose last comparison took long.
    slow: BTreeSet<PeerId>,
}

impl Turns {
    /// Compares with a peer after those that wait.
    fn waits(&mut self, peer: PeerId) {
        if !self.waiting.contains(&peer) {
            self.waiting.push_back(peer);
        }
    }

    /// Compares with these and no others.
    fn all_wait(&mut self, peers: Vec<PeerId>) {
        let here: BTreeSet<PeerId> = peers.iter().copied().collect();
        self.slow.retain(|peer| here.contains(peer));
        self.waiting = peers.into();
    }

    /// The next to compare with now, if one may begin: whoever took long comes behind the others, and never has all places.
    fn begin(&mut self) -> Option<PeerId> {
        if self.under_way.len() >= PARALLEL {
            return None;
        }
        let is_free = |peer: &PeerId| !self.under_way.contains(peer);
        let quick = |peer: &PeerId| is_free(peer) && !self.slow.contains(peer);
        let room = self.under_way.intersection(&self.slow).count() < SLOW_AT_ONCE;
        let at = self.waiting.iter().position(quick);
        let at = at.or_else(|| self.waiting.iter().position(is_free).filter(|_| room))?;
        let peer = self.waiting.remove(at)?;
        self.under_way.insert(peer);
        Some(peer)
    }

    fn ended(&mut self, peer: &PeerId, took: Duration) {
        self.under_way.remove(peer);
        if took < SLOW_FROM {
            self.slow.remove(peer);
        } else {
            self.slow.insert(*peer);
        }
    }
}

/// Those whose words are asked for: also of who is done without and answers. Who did not hear it once would else never hear it, would
/// count other organisations than the rest, and would see other peers for good.
fn heard(core: &Core, keeping: &Keeping) -> Vec<PeerId> {
    let Some(epoch) = keeping.epoch() else { return Vec::new() };
    let asked =
        |peer: &PeerId| epoch.answers(peer) || core.directory.health(peer) == Health::Healthy;
    let all = epoch.view.candidates().iter().map(|candidate| candidate.peer);
    all.filter(|peer| *peer != core.own && asked(peer)).collect()
}

/// The other peers that answer.
pub(super) fn others(core: &Core, keeping: &Keeping) -> Vec<PeerId> {
    let Some(epoch) = keeping.epoch() else { return Vec::new() };
    let all = epoch.view.candidates().iter().map(|candidate| candidate.peer);
    all.filter(|peer| *peer != core.own && epoch.answers(peer)).collect()
}

/// The peer whose turn it is, and some with which nothing was compared since peers came or went: they saw other peers than
/// this one when they were asked, or did not answer. Whoever took long has its turn alone.
fn some(core: &Core, keeping: &Keeping, turn: &mut Vec<PeerId>, turns: &Turns) -> Vec<PeerId> {
    let mut peers = next(core, turn, || heard(core, keeping));
    let mut unknown = keeping.unknown(core);
    unknown.retain(|peer| !peers.contains(peer) && !turns.slow.contains(peer));
    for _ in 0..UNKNOWN_MAX {
        let Some(peer) = core.pick(&unknown) else { break };
        unknown.retain(|other| *other != peer);
        peers.push(peer);
    }
    peers
}

/// The peer whose turn it is: all in a random order, then all in another.
pub(super) fn next(
    core: &Core,
    turn: &mut Vec<PeerId>,
    all: impl FnOnce() -> Vec<PeerId>,
) -> Vec<PeerId> {
    if turn.is_empty() {
        let mut all = all();
        while let Some(peer) = core.pick(&all) {
            all.retain(|other| *other != peer);
            turn.push(peer);
        }
    }
    turn.pop().into_iter().collect()
}

/// Compares with one peer; which one, and how long it took.
async fn compare(core: &Core, keeping: &Keeping, peer: PeerId) -> (PeerId, Duration) {
    let since = core.env.clock.elapsed();
    match core.env.within(COMPARED_MAX, compared(core, keeping, &peer)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%peer, %error, "a comparison ended early"),
        Err(_) => {
            tracing::debug!(%peer, limit = ?COMPARED_MAX, "a comparison takes too long: the rest is compared the next time");
        }
    }
    (peer, core.env.clock.elapsed().saturating_sub(since))
}

/// By what the second of a comparison is multiplied for where it begins: two to the 64th by the golden ratio, whose multiples lie
/// evenly, so that whatever number of parts differ each is the first in its turn.
const TURN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Begins elsewhere each time: what stays different, as copies for which there is no room here, must not be all that is ever come to.
fn begin_elsewhere(differ: &mut [u8], now: Duration) {
    let turn = now.as_secs().wrapping_mul(TURN) >> u32::BITS;
    let first = (turn * differ.len() as u64) >> u32::BITS;
    differ.rotate_left(first as usize);
}

async fn compared(core: &Core, keeping: &Keeping, peer: &PeerId) -> Result<(), CallError> {
    let Some(epoch) = keeping.epoch() else { return Ok(()) };
    let mut calls = 0;
    let mut ranges = vec![Range::ALL];
    let mut lists: Vec<Listed> = Vec::new();
    while calls < CALLS_MAX {
        if let Some(range) = ranges.pop() {
            calls += 1;
            let Some(mut answer) = sums(core, keeping, peer, range).await? else { return Ok(()) };
            begin_elsewhere(&mut answer.differ, core.env.clock.elapsed());
            for number in answer.differ {
                let part = range.part(number);
                let Some(mine) = mine(keeping, peer, part) else { return Ok(()) };
                // Each is a look at a 256th of everything that is here.
                tokio::task::yield_now().await;
                if mine.more && part.bits <= COMPARE_BITS_MAX {
                    ranges.push(part);
                } else {
                    lists.push(mine);
                }
            }
        } else if lists.is_empty() {
            break;
        }
        if lists.is_empty() || (!ranges.is_empty() && lists.len() < RANGES_MAX) {
            continue;
        }
        calls += 1;
        let some = take_some(&mut lists);
        let theirs = exchange(core, peer, some.clone()).await?;
        for (mine, theirs) in some.iter().zip(&theirs) {
            let (twice, _) = learn(core, keeping, peer, theirs);
            tell_twice(core, keeping, peer, twice).await;
            if theirs.more && mine.range.bits <= COMPARE_BITS_MAX {
                ranges.push(mine.range);
            }
        }
    }
    if !(ranges.is_empty() && lists.is_empty()) {
        tracing::debug!(%peer, calls, "much differs: the rest is compared the next time");
        return Ok(());
    }
    core.metrics.keeping.compared.inc();
    *locked(&keeping.compared_last) = Some(*peer);
    // The view may have changed meanwhile; then what was compared counts for the one before, and says nothing now.
    if keeping.epoch().is_some_and(|now| now.hash == epoch.hash) {
        locked(&keeping.agreed).add(epoch.hash, *peer);
    }
    Ok(())
}

/// As many lists as fit into one call; one at least.
fn take_some(lists: &mut Vec<Listed>) -> Vec<Listed> {
    let (mut some, mut items) = (Vec::new(), 0);
    while let Some(list) = lists.last() {
        items += list.copies.len() + list.fragments.len();
        if some.len() == RANGES_MAX || (items > ITEMS_MAX && !some.is_empty()) {
            break;
        }
        some.extend(lists.pop());
    }
    some
}

/// Compares the sums of one range; `None` where the two see other peers.
pub(super) async fn sums(
    core: &Core,
    keeping: &Keeping,
    peer: &PeerId,
    range: Range,
) -> Result<Option<CompareAnswer>, CallError> {
    let words = keeping.own_words();
    let (sums, view) = {
        let inventory = locked(&keeping.inventory);
        let Some(inventory) = inventory.as_ref() else { return Ok(None) };
        (inventory.sums(peer, range), inventory.epoch().hash)
    };
    core.metrics.keeping.messages.inc();
    let mine = sums.clone();
    let request = KeepRequest::Compare(Compare { range, sums, view, words });
    let KeepAnswer::Compare(answer) = ask_again(core, peer, request).await? else {
        return Err(strange(peer));
    };
    let now = core.env.clock.elapsed();
    locked(&keeping.present).hear(*peer, answer.words.clone(), now);
    // Of who is done without nothing is learnt but its words.
    let answers = keeping.epoch().is_some_and(|epoch| epoch.answers(peer));
    if answer.view != view || !answers {
        return Ok(None);
    }
    if range == Range::ALL {
        locked(&keeping.audits).of(*peer).compared(view, &mine, &answer.differ, now);
    }
    Ok(Some(answer))
}

/// Asks, and once more where the other had enough of its organisation's comparisons for now: what it listed so far is learnt, so the
/// rest of a comparison is worth to be waited for.
async fn ask_again(
    core: &Core,
    peer: &PeerId,
    request: KeepRequest,
) -> Result<KeepAnswer, CallError> {
    match ask(core, peer, request.clone(), SMALL_LIMIT).await {
        Err(CallError::Busy { retry_after }) if retry_after < COMPARED_MAX => {
            core.env.clock.sleep(retry_after + core.jittered(retry_after / 4)).await;
            ask(core, peer, request, SMALL_LIMIT).await
        }
        answer => answer,
    }
}

fn mine(keeping: &Keeping, peer: &PeerId, range: Range) -> Option<Listed> {
    locked(&keeping.inventory).as_ref().map(|mine| mine.listed(peer, range, ITEMS_MAX))
}

async fn exchange(core: &Core, peer: &PeerId, mine: Vec<Listed>) -> Result<Vec<Listed>, CallError> {
    let ranges: Vec<Range> = mine.iter().map(|listed| listed.range).collect();
    core.metrics.keeping.messages.inc();
    let answer = ask_again(core, peer, KeepRequest::Lists(mine)).await?;
    let KeepAnswer::Lists(theirs) = answer else { return Err(strange(peer)) };
    if !theirs.iter().map(|listed| listed.range).eq(ranges) {
        return Err(strange(peer));
    }
    Ok(theirs)
}

/// Learns from what another says that it holds: what lacks here, and the maps.
/// Which fragments it has and another peer too, is told, and how long the look at what is here took.
pub(super) fn learn(
    core: &Core,
    keeping: &Keeping,
    peer: &PeerId,
    theirs: &Listed,
) -> (Vec<(HeldFragment, PeerId)>, Duration) {
    let nothing = (Vec::new(), Duration::ZERO);
    #[cfg(feature = "planted-bugs")]
    if crate::planted::is_blind(&core.own) {
        return nothing;
    }
    let now = core.env.clock.elapsed();
    let (mut lacking, mut twice) = (Vec::new(), Vec::new());
    let (elsewhere, took);
    let mut changed: Vec<RecordId> = Vec::new();
    {
        let mut inventory = locked(&keeping.inventory);
        let Some(inventory) = inventory.as_mut() else { return nothing };
        let since = core.env.clock.elapsed();
        let epoch = Arc::clone(inventory.epoch());
        let in_range = |(id, place): &&(RecordId, Place)| theirs.range.holds(id, place);
        for (id, place) in theirs.copies.iter().filter(in_range) {
            // Neither its kind nor its policy is told, so it is taken for one of which there are most; what was fetched says it.
            let is_duty = || epoch.first(place, COPIES_MAX as usize).contains(&core.own);
            if !inventory.has_copy(id, place) && is_duty() {
                lacking.push((*id, *place, epoch.missing(place, Kind::Entry)));
            }
        }
        let corrected = inventory.correct(peer, theirs);
        changed.extend(corrected.changed);
        elsewhere = corrected.twice;
        let is_mine = |fragment: &&HeldFragment| {
            let map = inventory.stripes.get(&fragment.stripe);
            map.is_some_and(|map| map.mine.contains(&fragment.index))
        };
        twice.extend(theirs.fragments.iter().filter(is_mine).copied());
        took = core.env.clock.elapsed().saturating_sub(since);
    }
    // Of a branch's heads those that were superseded and dropped do not lack.
    lacking.retain(|(id, place, _)| !core.objects.is_passed(id, place));
    {
        let mut work = locked(&keeping.work);
        for HeldFragment { stripe, index } in twice {
            work.is_twice(stripe, index, *peer);
        }
        for (id, place, missing) in lacking {
            work.lacks(id, place, missing, *peer, now);
        }
    }
    if !changed.is_empty() {
        keeping.look_at(core, &changed);
    }
    (elsewhere, took)
}

/// Tells those who hold a fragment that a better ranked peer has too. They make sure of it before they drop theirs.
async fn tell_twice(
    core: &Core,
    keeping: &Keeping,
    peer: &PeerId,
    twice: Vec<(HeldFragment, PeerId)>,
) {
    let mut told: BTreeMap<PeerId, Vec<SettledStripe>> = BTreeMap::new();
    {
        let inventory = locked(&keeping.inventory);
        let Some(inventory) = inventory.as_ref() else { return };
        for (HeldFragment { stripe, index }, other) in twice {
            let Some(map) = inventory.stripes.get(&stripe) else { continue };
            let possible = inventory.epoch().possible(&Place::from(stripe), map.n());
            let rank =
                |peer: &PeerId| possible.iter().position(|of| of == peer).unwrap_or(usize::MAX);
            let (keeps, drops) =
                if rank(peer) < rank(&other) { (*peer, other) } else { (other, *peer) };
            if drops != core.own {
                told.entry(drops)
                    .or_default()
                    .push(SettledStripe { stripe, moved: vec![(index, keeps)] });
            }
        }
    }
    for (drops, stripes) in told {
        for some in stripes.chunks(CLAIMS_MAX) {
            let _ = ask(core, &drops, KeepRequest::Settled(some.to_vec()), SMALL_LIMIT).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> PeerId {
        PeerId::new(crypto::SecretKey::from_bytes(&[n; 32]).expect("a scalar").public())
    }

    fn begun(turns: &mut Turns) -> Vec<PeerId> {
        std::iter::from_fn(|| turns.begin()).collect()
    }

    #[test]
    fn who_takes_long_to_compare_comes_behind_others_and_leaves_them_room() {
        let mut turns = Turns::default();
        turns.all_wait((1..=9).map(peer).collect());
        turns.waits(peer(9));
        let first: Vec<PeerId> = (1..=4).map(peer).collect();
        assert_eq!(begun(&mut turns), first);
        turns.waits(peer(4));
        // Three of them take all the time that there is.
        turns.ended(&peer(4), SLOW_FROM / 2);
        for slow in 1..=3 {
            turns.ended(&peer(slow), COMPARED_MAX);
            turns.waits(peer(slow));
        }
        let next: Vec<PeerId> = (5..=8).map(peer).collect();
        assert_eq!(begun(&mut turns), next);
        next.iter().for_each(|peer| turns.ended(peer, SLOW_FROM / 2));
        // The quick ones that wait, then two of the slow ones, and no more of them while there are others to come.
        assert_eq!(begun(&mut turns), [9, 4, 1, 2].map(peer));
        turns.ended(&peer(9), SLOW_FROM / 2);
        turns.ended(&peer(4), SLOW_FROM / 2);
        assert!(begun(&mut turns).is_empty());
        turns.waits(peer(5));
        assert_eq!(begun(&mut turns), [5].map(peer));
        // Nobody is compared with twice at once, and whoever is quick again is one of the others.
        turns.waits(peer(1));
        turns.ended(&peer(2), SLOW_FROM / 2);
        assert_eq!(begun(&mut turns), [3].map(peer));
        turns.waits(peer(2));
        assert_eq!(begun(&mut turns), [2].map(peer));
        turns.ended(&peer(3), COMPARED_MAX);
        assert!(begun(&mut turns).is_empty(), "it is under way still");
    }

    #[test]
    fn a_comparison_begins_with_each_of_what_differs_in_turn() {
        for count in 0..=u8::MAX {
            let all: Vec<u8> = (0..count).collect();
            // One every ten seconds, as peers compare.
            let firsts = (0..2_560).step_by(10).filter_map(|second| {
                let mut differ = all.clone();
                begin_elsewhere(&mut differ, Duration::from_secs(second));
                let first = differ.first().copied();
                differ.sort_unstable();
                assert_eq!(differ, all);
                first
            });
            let firsts: BTreeSet<u8> = firsts.collect();
            // Of all, and nowhere far from one another.
            assert!(firsts.len() * 5 >= all.len(), "{} of {count}", firsts.len());
        }
    }
}
