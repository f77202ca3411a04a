//! Stripes that lack fragments are mended by one of their holders, which claims them first.
//!
//! ```text
//!   due -> claim and survey (all who may hold a fragment) -> plan -> fetch k less what is here
//!       -> make what lacks -> hand out, each with the header -> settled
//! ```
//! Who is first in rank among the holders begins at once, the others wait for their turn, so that one begins, and another
//! where that one dies.
//!
//! A fragment moves, too, where its holder's organisation has more of the stripe than may be lost ([`View::plan`]): that is the last that
//! is done, and who hands one over drops its own once the other proved that it has it.
//!
//! Stripes that nobody can mend, or could, are tried beside the others and hold up none of them ([`Lane`]): anybody can make thousands
//! of those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crypto::{OrgId, PeerId, Place, RecordId};
use document::{Record, Stripe};
use env::calls::CallError;
use env::calls::keep::{
    CLAIMS_MAX, ClaimAnswer, KeepAnswer, KeepRequest, MOVED_MAX, SettledStripe,
};
use futures::StreamExt;
use placement::{Mend, StripeNow, View};

use super::ask::{SMALL_LIMIT, ask, strange};
use super::epoch::Epoch;
use super::gather::gather;
use super::hand_out::hand_out;
use super::inventory::Inventory;
use super::leave::Given;
use super::make;
use super::map::StripeMap;
use super::surplus::has;
use super::work::{Due, Lack};
use super::{Keeping, locked};
use crate::core::Core;

/// How often it is looked for something to mend.
const EVERY: Duration = Duration::from_secs(1);
/// Stripes claimed at a time, at most.
const CLAIMED_MAX: usize = 64;
/// How long mending what is claimed at a time may take, by the bytes: claims end by themselves after a minute.
const CLAIMED_S: u64 = 10;
const _: () = assert!(CLAIMED_MAX <= CLAIMS_MAX, "one call claims them");
/// Stripes mended at once: each has its fragments in memory, some 16 MiB and as much again.
const MENDED_AT_ONCE: usize = 2;
/// How long the holders of a stripe that was mended wait until they are told, for others that were claimed with it.
const SETTLED_AFTER: Duration = Duration::from_secs(5);
/// Of those that are stuck: as many more.
const STUCK_AT_ONCE: usize = 1;
/// Stuck ones claimed at a time that cost more than the claim.
const STUCK_READABLE_MAX: usize = 2;
/// Peers asked at once.
pub(super) const ASKED_AT_ONCE: usize = 16;
/// How long a try that failed is put off; as often again with each further one.
const LATER: Duration = Duration::from_secs(10);

/// What a stripe lacks by its map; `None` where nothing is to be done about it here.
pub(super) fn lacks(inventory: &Inventory, id: &RecordId, own: &PeerId) -> Option<Lack> {
    let epoch = inventory.epoch();
    let map = inventory.stripes.get(id)?;
    let possible = epoch.possible(&Place::from(*id), map.n());
    let whole = whole(inventory, map);
    let (k, n, leaving) = (map.k(), map.n(), &epoch.leaving);
    let now = StripeNow { k, n, whole: &whole, possible: &possible, leaving };
    let plan = planned(&epoch.view, &now);
    let mut there: Vec<u8> = whole.iter().map(|(index, _)| *index).collect();
    there.sort_unstable();
    there.dedup();
    let missing = n - there.len().min(n);
    let moves = plan.moves.iter().any(|moved| moved.from == *own);
    // Who may hold nothing of it any more is told little of it, and has its own fragment to move.
    let made = possible.contains(own) && !plan.make.is_empty();
    // Without a free peer for it nothing can be done: fewer peers than fragments are no work.
    let unreadable = possible.contains(own) && plan.spare < 0 && missing > 0;
    let (spare, mendable) = (plan.spare, made || moves);
    (mendable || unreadable).then_some(Lack { missing, spare, mendable })
}

/// Who is believed to hold which fragment of a stripe and answers, and what is here: that counts also where another has it too.
fn whole(inventory: &Inventory, map: &StripeMap) -> Vec<(u8, PeerId)> {
    let (epoch, own) = (inventory.epoch(), inventory.own());
    let here = map.mine.iter().map(|index| (*index, own));
    let all = map.whole(&inventory.names).chain(here);
    let mut whole: Vec<(u8, PeerId)> = all.filter(|(_, peer)| epoch.answers(peer)).collect();
    whole.sort_unstable();
    whole.dedup();
    whole
}

/// What mends a stripe.
fn planned(view: &View, now: &StripeNow<'_>) -> Mend {
    #[cfg(feature = "planted-bugs")]
    if counts_twice() {
        let mut plan = view.plan(now);
        // What one peer refuses goes to another, so that two fragments at one holder would not last.
        if 2 * now.whole.len() >= now.n {
            plan.make.clear();
        }
        plan.moves.clear();
        return plan;
    }
    view.plan(now)
}

#[cfg(feature = "planted-bugs")]
fn counts_twice() -> bool {
    crate::planted::is_on(crate::planted::PlantedBug::CountHolderTwice)
}

/// Which stripes are claimed and mended together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Those that can be mended as far as is known.
    Main,
    /// Those that are stuck ([`Due::is_stuck`]).
    Stuck,
}

/// Mends until the peer stops.
pub(super) async fn mend_all(core: Arc<Core>, keeping: Arc<Keeping>) {
    let main = async {
        loop {
            tokio::select! {
                biased;
                () = keeping.wake.notified() => {}
                () = core.env.clock.beat(EVERY) => {}
            }
            while mend_some(&core, &keeping, Lane::Main).await {
                look_again(&core, &keeping).await;
            }
            look_again(&core, &keeping).await;
        }
    };
    let stuck = async {
        loop {
            core.env.clock.beat(EVERY).await;
            mend_some(&core, &keeping, Lane::Stuck).await;
        }
    };
    let both = async { futures::join!(main, stuck) };
    tokio::select! {
        biased;
        () = core.stop.cancelled() => {}
        ((), ()) = both => {}
    }
}

/// Looks for stripes that found no room among those that are to be mended, once there is some.
async fn look_again(core: &Core, keeping: &Keeping) {
    let again = locked(&keeping.work).looks_again(core.env.clock.elapsed());
    if again {
        keeping.look_at_all(core).await;
        locked(&keeping.work).looked();
    }
}

/// A stripe that is to be mended, and what is known of it.
pub(super) struct Job {
    pub(super) id: RecordId,
    pub(super) k: usize,
    n: usize,
    /// Who may hold a fragment, in rank.
    possible: Vec<PeerId>,
    /// Who holds which fragment.
    pub(super) whole: Vec<(u8, PeerId)>,
    pub(super) mine: Vec<u8>,
    epoch: Arc<Epoch>,
    /// What holders say they have besides one fragment each. Nobody else is made to do without it on their word: no sum counts it and no
    /// audit asks for it. What is fetched proves itself.
    pub(super) besides: Vec<(u8, PeerId)>,
    /// Whether it was tried before.
    pub(super) again: bool,
    /// Who did not answer the claim: nothing is made for them.
    silent: BTreeSet<PeerId>,
}

impl Job {
    fn plan(&self) -> Mend {
        self.plan_without(&[], &BTreeSet::new())
    }

    /// The plan now that these have another holder, with nothing for those who take nothing.
    fn plan_without(&self, moved: &[(u8, PeerId)], takes_nothing: &BTreeSet<PeerId>) -> Mend {
        let mut whole = [&self.whole[..], moved].concat();
        whole.sort_unstable();
        let plan = self.planned(&whole, takes_nothing);
        if plan.spare >= 0 || self.besides.is_empty() {
            return plan;
        }
        // It cannot be read without what they have besides.
        whole.extend(&self.besides);
        whole.sort_unstable();
        self.planned(&whole, takes_nothing)
    }

    fn planned(&self, whole: &[(u8, PeerId)], takes_nothing: &BTreeSet<PeerId>) -> Mend {
        let leaving = &self.epoch.leaving;
        // A silent peer keeps what it is believed to have, and gets nothing.
        let holds = |peer: &PeerId| whole.iter().any(|(_, holder)| holder == peer);
        let gets = |peer: &PeerId| !self.silent.contains(peer) && !takes_nothing.contains(peer);
        let answers = |peer: &&PeerId| gets(peer) || holds(peer);
        let possible: Vec<PeerId> = self.possible.iter().filter(answers).copied().collect();
        let (k, n) = (self.k, self.n);
        planned(&self.epoch.view, &StripeNow { k, n, whole, possible: &possible, leaving })
    }

    /// Who holds what now, of those that said so: what moved, and the rest, or else each holder that believes otherwise asks
    /// everybody itself. Of several that have one, who is to keep it: all are to believe the same.
    fn said(&self, moved: &[(u8, PeerId)]) -> Moved {
        let mut said = self.whole.clone();
        let surplus = self.plan().surplus;
        let is_moved = |index| moved.iter().any(|(of, _)| *of == index);
        said.retain(|(index, peer)| {
            let stays = !surplus.contains(&(*index, *peer));
            stays && !self.silent.contains(peer) && !is_moved(*index)
        });
        said.extend(moved);
        said
    }

    /// What of that plan is this peer's to do: it makes nothing where it may hold nothing, and moves its own alone.
    fn part(&self, own: &PeerId, moved: &[(u8, PeerId)], takes_nothing: &BTreeSet<PeerId>) -> Mend {
        let mut plan = self.plan_without(moved, takes_nothing);
        if !self.possible.contains(own) {
            plan.make.clear();
        }
        plan.moves.retain(|moved| moved.from == *own);
        plan
    }

    /// The same among those who take fragments readily, or who take any where those are too few; of neither one that refused just now.
    pub(super) fn part_now(
        &self,
        core: &Core,
        keeping: &Keeping,
        moved: &[(u8, PeerId)],
        refused: &BTreeSet<PeerId>,
    ) -> Mend {
        let (mut without, slow) = {
            let (paces, now) = (locked(&keeping.paces), core.env.clock.elapsed());
            (paces.closed(now), paces.slow_to_take(now))
        };
        without.extend(refused);
        let all = self.part(&core.own, moved, &without);
        if slow.is_empty() {
            return all;
        }
        without.extend(slow);
        let quick = self.part(&core.own, moved, &without);
        let as_many = quick.make.len() == all.make.len() && quick.moves.len() == all.moves.len();
        if as_many { quick } else { all }
    }

    /// Whether so many fragments are left that it can be read.
    fn is_readable(&self) -> bool {
        self.is_readable_without(&BTreeSet::new())
    }

    /// The same, where these give nothing.
    fn is_readable_without(&self, gives_nothing: &BTreeSet<PeerId>) -> bool {
        let whole = self.whole.iter().filter(|(_, peer)| !gives_nothing.contains(peer));
        whole.map(|(index, _)| *index).collect::<BTreeSet<u8>>().len() >= self.k
    }

    /// Everybody else who may have something of it.
    fn asked(&self, own: &PeerId) -> BTreeSet<PeerId> {
        let holders = self.whole.iter().map(|(_, peer)| *peer);
        holders.chain(self.possible.iter().copied()).filter(|peer| peer != own).collect()
    }
}

/// Mends those of a lane whose turn it is; whether there were any.
async fn mend_some(core: &Core, keeping: &Keeping, lane: Lane) -> bool {
    // Who leaves takes nothing, and hands out what it has.
    if core.shelf.is_left_alone() && !keeping.is_leaving() {
        return false;
    }
    if due_now(core, keeping, lane).is_empty() {
        return false;
    }
    let calm = core.strain.calm(&core.env).await;
    let mut jobs = due_now(core, keeping, lane);
    if !calm {
        jobs.truncate(1);
    }
    let jobs = few(core, keeping, jobs).await;
    let begun: Vec<RecordId> = jobs.iter().map(|job| job.id).collect();
    locked(&keeping.work).begin(&begun);
    let jobs = claim(core, keeping, jobs).await;
    let mended = jobs.into_iter().map(|job| async move {
        keeping.budget.wait(&core.env).await;
        locked(&keeping.work).mending += 1;
        let moved = mend(core, keeping, &job).await;
        locked(&keeping.work).mending -= 1;
        (job, moved)
    });
    let at_once = if lane == Lane::Main { MENDED_AT_ONCE } else { STUCK_AT_ONCE };
    let mut mended = futures::stream::iter(mended).buffer_unordered(at_once);
    let (mut ended, mut since) = (Vec::new(), core.env.clock.elapsed());
    loop {
        // One that takes long keeps the others' holders waiting no longer than this.
        let next = core.env.within(SETTLED_AFTER, mended.next()).await;
        let is_last = matches!(next, Ok(None));
        ended.extend(next.ok().flatten());
        let now = core.env.clock.elapsed();
        if is_last || now >= since + SETTLED_AFTER {
            settle(core, keeping, std::mem::take(&mut ended)).await;
            since = now;
        }
        if is_last {
            break;
        }
    }
    locked(&keeping.work).end(&begun);
    true
}

/// The stripes of a lane whose turn it is: the most urgent first, of those that are stuck the ones that were tried least.
fn due_now(core: &Core, keeping: &Keeping, lane: Lane) -> Vec<Job> {
    let now = core.env.clock.elapsed();
    let settle = keeping.options.settle;
    let ready = ready(core, keeping, lane, now);
    let give_nothing = locked(&keeping.paces).give_nothing(now);
    let (mut jobs, mut readable, mut doubtful) = (Vec::new(), 0, Vec::new());
    {
        let inventory = locked(&keeping.inventory);
        let Some(inventory) = inventory.as_ref() else { return jobs };
        for Ready { id, begins, again, lacks, .. } in ready {
            if jobs.len() == CLAIMED_MAX {
                break;
            }
            let Some(mut job) = job_of(inventory, &id) else { continue };
            // Also where what is here counts as another's, who has it too.
            let holds = |peer: &&PeerId| {
                **peer == core.own || job.whole.iter().any(|(_, holder)| holder == *peer)
            };
            let turn = job.possible.iter().filter(holds).position(|peer| *peer == core.own);
            // One that is not possible, or leaves, has its own fragment to move, and need not wait.
            let turn = u32::try_from(turn.unwrap_or(0)).unwrap_or(u32::MAX);
            if now < begins.saturating_add(settle.saturating_mul(turn)) {
                continue;
            }
            if lane == Lane::Stuck && job.is_readable() {
                readable += 1;
                if readable > STUCK_READABLE_MAX {
                    continue;
                }
            }
            // Who leaves has its own to move, whoever gives theirs.
            let counts = lane == Lane::Main && lacks && !keeping.is_leaving();
            if counts && job.is_readable() && !job.is_readable_without(&give_nothing) {
                doubtful.push(id);
                continue;
            }
            job.again = again;
            jobs.push(job);
        }
    }
    if !doubtful.is_empty() {
        let mut work = locked(&keeping.work);
        doubtful.iter().for_each(|id| work.doubt(id));
    }
    jobs
}

/// A stripe whose turn it may be, by its order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ready {
    order: (i64, Duration),
    id: RecordId,
    /// When the first of its holders begins.
    begins: Duration,
    /// Whether it was tried before.
    again: bool,
    /// Whether fragments of it are to be made.
    lacks: bool,
}

/// The stripes of a lane that may be tried now, in order.
fn ready(core: &Core, keeping: &Keeping, lane: Lane, now: Duration) -> Vec<Ready> {
    let settle = keeping.options.settle;
    let work = locked(&keeping.work);
    let ready = work.due.iter().filter(|(_, due)| due.is_stuck() == (lane == Lane::Stuck));
    let ready = ready.filter(|(id, due)| now >= due.not_before && !work.is_at_work(id));
    let begins = |due: &Due| if due.hurried { due.since } else { due.since.saturating_add(settle) };
    let ready = ready.filter(|(_, due)| now >= begins(due));
    // What nobody pays for any more is about to be dropped.
    let ready = ready.filter(|(id, _)| !core.leases.is_over(&Place::from(**id)));
    let order = |due: &Due| match lane {
        Lane::Main => (i64::from(due.lack.spare), Duration::ZERO),
        Lane::Stuck => (i64::from(due.tries), due.not_before),
    };
    let ready = ready.map(|(id, due)| Ready {
        order: order(due),
        id: *id,
        begins: begins(due),
        again: due.tries > 0,
        lacks: due.lack.missing > 0,
    });
    let mut ready: Vec<Ready> = ready.collect();
    ready.sort_unstable();
    ready
}

/// Of these, the first that can be mended in [`CLAIMED_S`], one at least: what is claimed and waits is surveyed too early, and
/// its claim ends before it is mended.
async fn few(core: &Core, keeping: &Keeping, mut jobs: Vec<Job>) -> Vec<Job> {
    let (most, mut bytes, mut count) = (keeping.budget.bytes_s().saturating_mul(CLAIMED_S), 0, 0);
    for job in &jobs {
        let header = core.shelf.stripe(&job.id).await.ok().flatten();
        // All that is fetched and all that is sent, as if it lacked as much as it can. Of what nobody can read nothing is made.
        let fragments = if job.is_readable() { job.n } else { job.mine.len() };
        bytes += header.map_or(0, |stripe| (stripe.fragment_bytes() * fragments) as u64);
        if bytes > most && count > 0 {
            break;
        }
        count += 1;
    }
    jobs.truncate(count);
    jobs
}

/// Claims stripes at all who may hold something of them, and learns who holds what. Those that others claimed are left out.
async fn claim(core: &Core, keeping: &Keeping, mut jobs: Vec<Job>) -> Vec<Job> {
    let now = core.env.clock.elapsed();
    jobs.retain(|job| {
        let other = locked(&keeping.claims).claim(job.id, core.own, now);
        if other.is_some() {
            locked(&keeping.work).later(&job.id, now, LATER);
        }
        other.is_none()
    });
    let mut asked: BTreeMap<PeerId, Vec<RecordId>> = BTreeMap::new();
    for job in &jobs {
        for peer in job.asked(&core.own) {
            asked.entry(peer).or_default().push(job.id);
        }
    }
    let answers = asked.into_iter().map(|(peer, stripes)| async move {
        let answers = claimed_at(core, &peer, &stripes).await;
        (peer, stripes, answers)
    });
    let mut answers = futures::stream::iter(answers).buffer_unordered(ASKED_AT_ONCE);
    let (mut claimed, mut silent) = (Vec::new(), BTreeSet::new());
    let mut said: BTreeMap<RecordId, Vec<(PeerId, Vec<u8>)>> = BTreeMap::new();
    while let Some((peer, stripes, answers)) = answers.next().await {
        // Who does not answer is believed to hold what it did, as long as it does not count as absent.
        let Ok(answers) = answers else {
            silent.insert(peer);
            continue;
        };
        for (stripe, answer) in stripes.into_iter().zip(answers) {
            let by = answer.claimed_by.filter(|by| *by != core.own);
            claimed.extend(by.map(|by| Word { stripe, said_by: peer, by }));
            said.entry(stripe).or_default().push((peer, answer.held));
        }
    }
    drop(answers);
    for job in &mut jobs {
        let said = said.remove(&job.id).unwrap_or_default();
        let believed = job.whole.clone();
        job.whole.retain(|(_, holder)| !said.iter().any(|(peer, _)| peer == holder));
        for (peer, mut held) in said {
            held.retain(|index| usize::from(*index) < job.n);
            // Of several the one that was believed, as all others do.
            let first = held.iter().position(|index| believed.contains(&(*index, peer)));
            let first = first.unwrap_or(0);
            let all = held.into_iter().enumerate();
            let (one, besides): (Vec<_>, Vec<_>) = all.partition(|(at, _)| *at == first);
            job.whole.extend(one.into_iter().map(|(_, index)| (index, peer)));
            job.besides.extend(besides.into_iter().map(|(_, index)| (index, peer)));
        }
        job.whole.retain(|(index, _)| usize::from(*index) < job.n);
        job.whole.sort_unstable();
        job.silent.clone_from(&silent);
        believe(core, keeping, job);
    }
    let now = core.env.clock.elapsed();
    let is_free = |job: &Job| {
        !is_blocked(&job.epoch, &job.id, &claimed) || !locked(&keeping.work).is_blocked(&job.id)
    };
    let (free, taken): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(is_free);
    for job in &taken {
        locked(&keeping.work).later(&job.id, now, LATER);
    }
    let ended = taken.into_iter().map(|job| (job, Ok(Vec::new()))).collect();
    settle(core, keeping, ended).await;
    free
}

/// A stripe that this peer has to itself for a while, and what all others said of it.
pub(super) struct Surveyed {
    job: Job,
}

impl Surveyed {
    /// Who did not answer.
    pub(super) fn silent(&self) -> &BTreeSet<PeerId> {
        &self.job.silent
    }

    /// Whether a fragment that is here may go: every fragment is at a peer of its own without it, and this one is the plan's
    /// surplus, whoever is lying about one of them.
    pub(super) fn may_go(&self, index: u8, other: &PeerId, own: &PeerId) -> bool {
        let job = &self.job;
        let stays = |(of, peer): &&(u8, PeerId)| (*of, peer) != (index, own);
        let mut holders: BTreeMap<u8, BTreeSet<PeerId>> = BTreeMap::new();
        for (of, peer) in job.whole.iter().filter(stays) {
            holders.entry(*of).or_default().insert(*peer);
        }
        let peers: BTreeSet<&PeerId> = holders.values().flatten().collect();
        let all = holders.len() == job.n && peers.len() >= job.n;
        let there = holders.get(&index).is_some_and(|peers| peers.contains(other));
        all && there && job.silent.is_empty() && job.plan().surplus.contains(&(index, *own))
    }
}

/// Claims a stripe that is here and asks everybody about it; `None` where somebody else has it, or where it is not known here.
pub(super) async fn survey(core: &Core, keeping: &Keeping, id: &RecordId) -> Option<Surveyed> {
    let mut job = {
        let inventory = locked(&keeping.inventory);
        job_of(inventory.as_ref()?, id)?
    };
    job.whole.extend(job.mine.iter().map(|index| (*index, core.own)));
    job.whole.sort_unstable();
    job.whole.dedup();
    claim(core, keeping, vec![job]).await.pop().map(|job| Surveyed { job })
}

/// Ends the claim of a survey.
pub(super) async fn unclaim(core: &Core, keeping: &Keeping, surveyed: Surveyed) {
    settle(core, keeping, vec![(surveyed.job, Ok(Vec::new()))]).await;
}

/// A stripe by what is known of it here.
fn job_of(inventory: &Inventory, id: &RecordId) -> Option<Job> {
    let (map, epoch) = (inventory.stripes.get(id)?, inventory.epoch());
    let whole = whole(inventory, map);
    let possible = epoch.possible(&Place::from(*id), map.n());
    let (k, n, mine) = (map.k(), map.n(), map.mine.clone());
    let (epoch, besides, silent) = (Arc::clone(epoch), Vec::new(), BTreeSet::new());
    Some(Job { id: *id, k, n, possible, whole, mine, epoch, besides, again: false, silent })
}

/// What one peer says of who claimed a stripe.
struct Word {
    stripe: RecordId,
    said_by: PeerId,
    by: PeerId,
}

/// Whether somebody else claimed a stripe: it says so itself, or peers of two organisations do. One peer's word of another
/// would let it keep everybody from every stripe.
fn is_blocked(epoch: &Epoch, stripe: &RecordId, words: &[Word]) -> bool {
    let of = |peer: &PeerId| {
        let candidate = epoch.view.candidates().get(usize::from(epoch.view.index_of(peer)?))?;
        Some(candidate.organisation)
    };
    let mut told: BTreeMap<PeerId, BTreeSet<OrgId>> = BTreeMap::new();
    for word in words.iter().filter(|word| word.stripe == *stripe) {
        if word.said_by == word.by {
            return true;
        }
        told.entry(word.by).or_default().extend(of(&word.said_by));
    }
    told.values().any(|organisations| organisations.len() > 1)
}

async fn claimed_at(
    core: &Core,
    peer: &PeerId,
    stripes: &[RecordId],
) -> Result<Vec<ClaimAnswer>, CallError> {
    let request = KeepRequest::Claim(stripes.to_vec());
    match ask(core, peer, request, SMALL_LIMIT).await? {
        KeepAnswer::Claim(answers) if answers.len() == stripes.len() => Ok(answers),
        _ => Err(strange(peer)),
    }
}

/// Makes the map of a stripe what its holders said: of several that have a fragment who keeps it by the plan. Of two fragments that are
/// here one stays, the other is where it is too.
fn believe(core: &Core, keeping: &Keeping, job: &Job) {
    let surplus = job.plan().surplus;
    let stays = |copy: &&(u8, PeerId)| !surplus.contains(copy);
    // Who leaves has handed over only what another proved.
    let goes = |index: u8| !keeping.is_leaving() && surplus.contains(&(index, core.own));
    let elsewhere = |index: u8| {
        let others = || job.whole.iter().filter(|(of, peer)| *of == index && *peer != core.own);
        others().find(stays).or_else(|| others().next()).map(|(_, peer)| *peer)
    };
    let mut twice = Vec::new();
    {
        let mut inventory = locked(&keeping.inventory);
        let Some(inventory) = inventory.as_mut() else { return };
        inventory.with_map(&job.id, |map, names| {
            let own = names.of(&core.own);
            for index in 0..=u8::MAX {
                match map.mine.contains(&index) {
                    false => map.set(index, None),
                    // Who leaves may have handed it over.
                    true if keeping.is_leaving() => {}
                    true => map.set(index, Some(own)),
                }
            }
            for (index, peer) in job.whole.iter().filter(stays).chain(&job.whole) {
                if map.holder(*index).is_none() {
                    map.set(*index, Some(names.of(peer)));
                }
            }
            let (mut mine, mut stay) = (map.mine.clone(), map.mine.len());
            mine.sort_unstable_by_key(|index| !goes(*index));
            for index in mine {
                if let Some(peer) = elsewhere(index).filter(|_| stay > 1 || goes(index)) {
                    map.set(index, Some(names.of(&peer)));
                    twice.push((index, peer));
                    stay -= 1;
                }
            }
        });
    }
    let mut work = locked(&keeping.work);
    for (index, peer) in twice {
        work.is_twice(job.id, index, peer);
    }
}

/// What has another holder now.
pub(super) type Moved = Vec<(u8, PeerId)>;

/// Why a stripe is not mended now.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unmended {
    /// Fewer than k fragments could be had.
    #[error("only {have} of the {k} fragments could be fetched")]
    TooFew { have: usize, k: usize },
    /// The header is not here any more, or damaged.
    #[error("its header cannot be read here")]
    NoHeader,
    /// Those who could take what it lacks do not.
    #[error("no peer that could hold a fragment of it takes one now")]
    NoTaker,
    /// What its author hashed is not what the code makes.
    #[error(transparent)]
    Author(#[from] make::Unmade),
}

/// Mends one stripe as its holders said it is; what has another holder now.
async fn mend(core: &Core, keeping: &Keeping, job: &Job) -> Result<Moved, Unmended> {
    let nobody = BTreeSet::new();
    let plan = job.part_now(core, keeping, &[], &nobody);
    // What a peer that leaves has and another too need not move.
    let twice: Vec<u8> = plan
        .surplus
        .iter()
        .filter(|(_, peer)| keeping.is_leaving() && *peer == core.own)
        .map(|(index, _)| *index)
        .collect();
    if plan.make.is_empty() && plan.moves.is_empty() && twice.is_empty() {
        if plan.spare < 0 {
            return Err(Unmended::TooFew {
                have: job.k.saturating_add_signed(plan.spare as isize),
                k: job.k,
            });
        }
        let wanted = job.part(&core.own, &[], &nobody);
        let is_whole = wanted.make.is_empty() && wanted.moves.is_empty();
        return if is_whole { Ok(Vec::new()) } else { Err(Unmended::NoTaker) };
    }
    let Ok(Some(header)) = core.shelf.get(&job.id).await else { return Err(Unmended::NoHeader) };
    let Ok(document::Document::Stripe(stripe)) = document::Document::decode(&header.bytes) else {
        return Err(Unmended::NoHeader);
    };
    let elsewhere = proven_elsewhere(core, job, &stripe, &twice).await;
    let mut here: BTreeMap<u8, Record> = BTreeMap::new();
    for moved in &plan.moves {
        if let Some(record) = own(core, job, &stripe, moved.index).await {
            here.insert(moved.index, record);
        }
    }
    let mut made = BTreeMap::new();
    if !plan.make.is_empty() {
        match make_again(core, keeping, job, &stripe, &plan).await {
            Ok(all) => made = all,
            // What is here moves all the same.
            Err(error) if here.is_empty() && elsewhere.is_empty() => return Err(error),
            Err(error) => tracing::debug!(stripe = %job.id, %error, "fragments could not be made"),
        }
    }
    match hand_out(core, keeping, job, plan, header, (here, made)).await {
        Err(_) if !elsewhere.is_empty() => Ok(elsewhere),
        moved => moved.map(|moved| moved.into_iter().chain(elsewhere).collect()),
    }
}

/// The fragments of a plan that nobody has.
async fn make_again(
    core: &Core,
    keeping: &Keeping,
    job: &Job,
    stripe: &Stripe,
    plan: &Mend,
) -> Result<BTreeMap<u8, Record>, Unmended> {
    let given = gather(core, keeping, job, stripe).await?;
    let wanted: Vec<u8> = plan.make.iter().map(|(index, _)| *index).collect();
    let (suite, id, stripe) = (core.genesis.suite, job.id, stripe.clone());
    let make = move || make::make(suite, &stripe, &id, &given, &wanted);
    Ok(core.env.cpu(make).await?.into_iter().collect())
}

/// Of these fragments, which are here, those of which another holder proved that it has them, with that holder.
async fn proven_elsewhere(core: &Core, job: &Job, stripe: &Stripe, indices: &[u8]) -> Moved {
    let mut proven = Moved::new();
    for index in indices {
        let mut others = job.whole.iter().filter(|(of, peer)| {
            of == index
                && *peer != core.own
                && job.possible.contains(peer)
                && !job.silent.contains(peer)
        });
        let (Some((_, other)), Some(record)) =
            (others.next(), own(core, job, stripe, *index).await)
        else {
            continue;
        };
        if has(core, other, &record).await {
            proven.push((*index, *other));
        }
    }
    proven
}

/// A fragment that is here, as one of this stripe: it may be kept here for another one that names it too.
pub(super) async fn own(core: &Core, job: &Job, stripe: &Stripe, index: u8) -> Option<Record> {
    let id = stripe.fragments().get(usize::from(index))?;
    let record = core.shelf.get(id).await.ok().flatten()?;
    Some(Record { place: Place::from(job.id), ..record })
}

/// Notes why a claimed stripe is not mended.
fn unmended(keeping: &Keeping, job: &Job, error: &Unmended, now: Duration) {
    let mut work = locked(&keeping.work);
    if let Unmended::Author(_) = error {
        work.give_up(job.id);
        tracing::error!(stripe = %job.id, %error, "a stripe is not what its header says, and is left");
        return;
    }
    // There may be thousands of them, which are tried again and again: each is told of once.
    let first = work.due.get(&job.id).is_some_and(|due| due.tries == 0);
    // That too few are left is no vain try: where it is back it is mended like any other.
    if job.plan().spare >= 0 {
        work.failed(&job.id);
    }
    work.later(&job.id, now, LATER);
    drop(work);
    match first {
        true => tracing::warn!(stripe = %job.id, %error, "a stripe is not mended yet"),
        false => tracing::debug!(stripe = %job.id, %error, "a stripe is not mended yet"),
    }
}

/// Notes what became of claimed stripes, and tells their holders.
async fn settle(core: &Core, keeping: &Keeping, ended: Vec<(Job, Result<Moved, Unmended>)>) {
    let now = core.env.clock.elapsed();
    let mut told: BTreeMap<PeerId, Vec<SettledStripe>> = BTreeMap::new();
    let mut looked = Vec::with_capacity(ended.len());
    for (job, moved) in ended {
        locked(&keeping.claims).end(&job.id, &core.own);
        let moved = match moved {
            Ok(moved) => moved,
            Err(error) => {
                unmended(keeping, &job, &error, now);
                Vec::new()
            }
        };
        let gave = Gave::of(core, &job, &moved).await;
        // First, or a look at what is left to hand over in between would see neither.
        if let Some(gave) = gave.as_ref().filter(|_| keeping.is_leaving()) {
            locked(&keeping.given).extend(gave.fragments.iter().copied());
        }
        keeping.settled(&job.id, &moved, true);
        gave_away(core, keeping, &job, gave).await;
        looked.push(job.id);
        let holders = job.said(&moved);
        for peer in job.asked(&core.own) {
            let settled = SettledStripe { stripe: job.id, moved: holders.clone() };
            told.entry(peer).or_default().push(settled);
        }
    }
    keeping.look_at(core, &looked);
    {
        // What still lacks is not tried again at once.
        let mut work = locked(&keeping.work);
        for id in &looked {
            if work.due.get(id).is_some_and(|due| due.not_before <= now) {
                work.later(id, now, LATER);
            }
        }
    }
    let told = told.into_iter().map(|(peer, stripes)| async move {
        for some in within(stripes) {
            let _ = ask(core, &peer, KeepRequest::Settled(some), SMALL_LIMIT).await;
        }
    });
    futures::stream::iter(told).buffer_unordered(ASKED_AT_ONCE).collect::<Vec<()>>().await;
}

/// Parts that one call takes.
fn within(stripes: Vec<SettledStripe>) -> Vec<Vec<SettledStripe>> {
    let (mut parts, mut moved) = (vec![Vec::new()], 0);
    for stripe in stripes {
        let more = moved + stripe.moved.len();
        match parts.last_mut().filter(|part| part.len() < CLAIMS_MAX && more <= MOVED_MAX) {
            Some(part) => {
                moved = more;
                part.push(stripe);
            }
            None => {
                moved = stripe.moved.len();
                parts.push(vec![stripe]);
            }
        }
    }
    parts
}

/// What this peer moved of a stripe.
struct Gave {
    stripe: Stripe,
    fragments: Vec<(RecordId, Given)>,
}

impl Gave {
    /// Of what moved what was here; `None` where that is nothing, or the header cannot be read.
    async fn of(core: &Core, job: &Job, moved: &[(u8, PeerId)]) -> Option<Self> {
        let moved: Vec<_> = moved.iter().filter(|(index, _)| job.mine.contains(index)).collect();
        if moved.is_empty() {
            return None;
        }
        let stripe = core.shelf.stripe(&job.id).await.ok().flatten()?;
        let given = |(index, to): &(u8, PeerId)| {
            let id = *stripe.fragments().get(usize::from(*index))?;
            Some((id, Given { stripe: job.id, index: *index, to: *to }))
        };
        let fragments = moved.into_iter().filter_map(given).collect();
        Some(Self { stripe, fragments })
    }
}

/// What this peer moved is another's to hold, who proved that it has it: it counts here no more. A peer that leaves serves it until it has
/// left.
async fn gave_away(core: &Core, keeping: &Keeping, job: &Job, gave: Option<Gave>) {
    let Some(Gave { stripe, fragments }) = gave else { return };
    let payers = core.leases.payers(&Place::from(job.id));
    let mut ids: Vec<RecordId> = Vec::with_capacity(fragments.len());
    for (id, Given { index, to, .. }) in fragments {
        // What another took and does not prove, or does not keep for all who pay for it, stays here beside that; who leaves takes nothing
        // along.
        if keeping.is_leaving()
            || (proves(core, &to, &id, &job.id).await
                && super::surplus::is_kept_for_all(core, &to, &job.id, &payers).await)
        {
            ids.push(id);
        } else {
            locked(&keeping.work).is_twice(job.id, index, to);
        }
    }
    if !keeping.is_leaving() {
        ids = super::surplus::drop_fragments(core, &job.id, &stripe, ids, &payers).await;
    }
    let of: Vec<RecordId> = {
        let mut inventory = locked(&keeping.inventory);
        let Some(inventory) = inventory.as_mut() else { return };
        ids.iter().flat_map(|id| inventory.drop_fragment(id)).collect()
    };
    // This stripe is settled by its job; another that names one of them lacks it now.
    let others: Vec<RecordId> = of.into_iter().filter(|stripe| *stripe != job.id).collect();
    keeping.look_at(core, &others);
}

/// Whether another proves that it has a fragment of this stripe that is here. Of one that cannot be read here nobody can tell.
async fn proves(core: &Core, peer: &PeerId, id: &RecordId, stripe: &RecordId) -> bool {
    match core.shelf.get(id).await {
        Ok(Some(record)) => {
            has(core, peer, &Record { place: Place::from(*stripe), ..record }).await
        }
        _ => false,
    }
}

impl Keeping {
    /// Takes what has another holder now. What somebody else says is a hint: where it is wrong, the next comparison says so.
    pub(super) fn settled(&self, stripe: &RecordId, moved: &[(u8, PeerId)], by_own: bool) {
        let mut inventory = locked(&self.inventory);
        let Some(inventory) = inventory.as_mut() else { return };
        let view = Arc::clone(&inventory.epoch().view);
        let own = inventory.own();
        inventory.with_map(stripe, |map, names| {
            // Numbers are for peers that there are: anybody may send any key.
            let known = moved.iter().filter(|(_, peer)| view.index_of(peer).is_some());
            let moved: Vec<(u8, u16)> =
                known.map(|(index, peer)| (*index, names.of(peer))).collect();
            #[cfg(feature = "planted-bugs")]
            if counts_twice() {
                moved.iter().for_each(|(index, holder)| map.set(*index, Some(*holder)));
                return;
            }
            let own = names.of(&own);
            // What is here, and what is not, nobody else need tell.
            let counts = |(index, holder): &&(u8, u16)| {
                by_own || (*holder != own && !map.mine.contains(index))
            };
            // Each of them holds what is told of it and nothing else, and what somebody else tells of it is one fragment.
            let mut named = BTreeSet::new();
            let one = |(_, holder): &&(u8, u16)| by_own || named.insert(*holder);
            let told: Vec<(u8, u16)> = moved.iter().filter(counts).filter(one).copied().collect();
            let others = told.iter().filter(|(_, holder)| *holder != own);
            others.for_each(|(_, holder)| map.forget(*holder));
            told.iter().for_each(|(index, holder)| map.set(*index, Some(*holder)));
        });
    }
}
