//! What befalls the peers, and what waits until it takes nothing with it.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crypto::{Change, Roster};

use super::cast::{Cast, crowd};
use super::{TROUBLE, Town};
use crate::chance::Chance;
use crate::check::holdings::Kept;
use crate::ledger::{self, Fate};
use crate::plan::Event;
use crate::wires::Weather;

/// The organisation that is dismissed: authors are of the first two.
const DISMISSED: usize = 2;
/// Steps of one run, besides what its cast brings.
const STEPS_MAX: u64 = 7;
/// How few peers may be left.
const PEERS_MIN: usize = 5;
/// How long a step that would take the last of something waits before it is left out.
const PATIENCE: Duration = Duration::from_secs(60);
/// Operations of a disk before the power goes, at most.
const OPERATIONS_MAX: u64 = 24;
/// Peers whose disks fail a sync at one time where nobody is bad: so many that what is put meanwhile meets one of them.
const FAIL_TOGETHER: usize = 3;
/// How long those run on before they are started anew.
const FAILED_FOR: Duration = Duration::from_secs(20);

/// Something that befalls peers.
#[derive(Clone, Debug)]
enum Step {
    /// It takes no data with it.
    Harmless(Event),
    /// Several peers are killed.
    Kill(BTreeSet<usize>),
    /// They run again.
    Start(BTreeSet<usize>),
    /// A peer's disks are empty, or what they were.
    Lose(Event),
    /// Peers are gone for good.
    Gone(BTreeSet<usize>),
    /// A peer hands over what it has and leaves.
    Leave(usize),
    /// An organisation is listed no more: one peer learns the roster that says so.
    Dismiss,
    /// Its machines go.
    DismissedGo,
}

/// What happens when.
type Steps = Vec<(Duration, Step)>;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The power of a peer goes in the midst of what its disks do; where they do not do so much, in between.
fn add_power_cut(
    steps: &mut Steps,
    chance: &mut Chance,
    (at, until): (Duration, Duration),
    peer: usize,
) {
    let fails = Event::PowerFails(peer, chance.below(OPERATIONS_MAX));
    let off = at + ms(chance.one(&[3_000, 20_000, 20_000]));
    steps.push((at, Step::Harmless(fails)));
    steps.push((off, Step::Harmless(Event::PowerOff(peer))));
    steps.push((until.max(off) + ms(1), Step::Start([peer].into())));
}

/// A peer's disks or its machine do not do what they should, and lose nothing.
fn add_fault(
    steps: &mut Steps,
    chance: &mut Chance,
    (at, until): (Duration, Duration),
    peer: usize,
) {
    let lasts = until.min(at + ms(40_000));
    let (begins, (ends_at, ends)) = match chance.below(6) {
        0 | 1 => {
            let run_on = ms(2_000 + chance.below(20_000));
            return add_failed_sync(steps, at, run_on, peer);
        }
        2 => {
            let count = 1 + chance.below(3) as u32;
            let fails = |count| Event::FailWrites(peer, count);
            (fails(count), (lasts, fails(0)))
        }
        3 => {
            // Not for long: who can prove nothing again and again is done without for an hour, and rightly.
            let soon = at + ms(2_000 + chance.below(4_000));
            (Event::FailReads(peer, true), (soon, Event::FailReads(peer, false)))
        }
        4 => {
            let more = chance.one(&[10 << 10, 100 << 10, 400 << 10]);
            let full = Event::Full(peer, chance.below(more), chance.permille(500));
            (full, (until, Event::Roomy(peer)))
        }
        _ if chance.permille(500) => {
            (Event::Slow(peer, chance.one(&[20, 300])), (lasts, Event::Slow(peer, 0)))
        }
        _ => (Event::Pause(peer), (lasts, Event::Resume(peer))),
    };
    steps.push((at, Step::Harmless(begins)));
    steps.push((ends_at, Step::Harmless(ends)));
}

/// A sync of a peer's disk fails: the peer takes no writes until it is started anew.
fn add_failed_sync(steps: &mut Steps, at: Duration, run_on: Duration, peer: usize) {
    steps.push((at, Step::Harmless(Event::FailSyncs(peer, 1))));
    steps.push((at + run_on, Step::Kill([peer].into())));
    steps.push((at + run_on + ms(100), Step::Start([peer].into())));
}

impl Town {
    /// All of it, in its time; who is gone for good.
    pub(super) async fn befalls(&self) -> BTreeSet<usize> {
        let world = &self.world;
        let steps = self.steps();
        let mut gone = BTreeSet::new();
        for (at, step) in steps {
            let left = at.saturating_sub(world.env.clock.elapsed());
            world.env.clock.sleep(left).await;
            self.happens(step, &mut gone).await;
        }
        let left = TROUBLE.saturating_sub(world.env.clock.elapsed());
        world.env.clock.sleep(left).await;
        for number in 0..world.plan.peers {
            let running = world.peers()[number].running.clone();
            if running.is_some_and(|one| one.librarian.has_left()) {
                world.history.tally("event: a peer has left");
                world.kill_peer(number);
                gone.insert(number);
            }
        }
        gone
    }

    fn steps(&self) -> Steps {
        let mut chance = Chance::new(self.world.seed, "steps");
        let mut steps = Vec::new();
        for _ in 0..1 + chance.below(STEPS_MAX) {
            self.add(&mut steps, &mut chance);
        }
        if self.cast == Cast::Honest {
            let at = ms(40_000 + chance.below(20_000));
            for _ in 0..FAIL_TOGETHER {
                let peer = self.victim(&mut chance);
                add_failed_sync(&mut steps, at, FAILED_FOR, peer);
            }
        }
        match (self.cast, self.rogues.first().copied()) {
            (Cast::Revenant, Some(peer)) => {
                steps.push((ms(40_000), Step::Harmless(Event::Remember(peer))));
                steps.push((ms(150_000), Step::Lose(Event::SetBack(peer))));
                steps.push((ms(215_000), Step::Start([peer].into())));
            }
            (Cast::Geppetto, _) => {
                steps.push((ms(60_000 + chance.below(60_000)), Step::Gone(crowd(&self.world))));
            }
            // Who takes part changes while some hear nothing of it.
            (Cast::Honest | Cast::Grinder, _) if self.world.plan.organisations > DISMISSED => {
                let at = 60_000 + chance.below(60_000);
                let parties = self.world.plan.peers + self.world.plan.authors;
                let side = (0..parties).filter(|_| chance.permille(300)).collect();
                steps.push((ms(at), Step::Harmless(Event::CutOff(side))));
                steps.push((ms(at + 2_000), Step::Dismiss));
                steps.push((ms(at + 62_000), Step::DismissedGo));
                let until = at + 10_000 + chance.below(50_000);
                steps.push((ms(until), Step::Harmless(Event::CutOff(BTreeSet::new()))));
            }
            // What lies must be met: something has to be made again.
            (Cast::Poisoner | Cast::Claimer, _) => {
                let peer = self.victim(&mut chance);
                steps.push((ms(30_000), Step::Lose(Event::Destroy(peer))));
                steps.push((ms(32_000), Step::Start([peer].into())));
            }
            _ => {}
        }
        steps.sort_by_key(|(at, _)| *at);
        steps
    }

    /// A peer that is not cast.
    fn victim(&self, chance: &mut Chance) -> usize {
        let honest: Vec<usize> =
            (0..self.world.plan.peers).filter(|number| !self.rogues.contains(number)).collect();
        honest[chance.index(honest.len())]
    }

    fn add(&self, steps: &mut Steps, chance: &mut Chance) {
        let at = ms(15_000 + chance.below(170_000));
        let until = at + ms(chance.one(&[3_000, 20_000, 100_000]) + chance.below(20_000));
        let peer = self.victim(chance);
        match chance.below(22) {
            0 | 1 => {
                steps.push((at, Step::Kill([peer].into())));
                steps.push((until, Step::Start([peer].into())));
            }
            2 => {
                steps.push((at, Step::Harmless(Event::Stop(peer))));
                steps.push((until, Step::Start([peer].into())));
            }
            3 | 4 => {
                steps.push((at, Step::Lose(Event::Destroy(peer))));
                steps.push((until, Step::Start([peer].into())));
            }
            5 => {
                steps.push((at, Step::Harmless(Event::Remember(peer))));
                steps.push((until, Step::Lose(Event::SetBack(peer))));
                steps.push((until + ms(1_000), Step::Start([peer].into())));
            }
            6 => {
                let members = &self.world.community.members;
                let same = |one: &usize| members[*one].organisation == members[peer].organisation;
                let all: BTreeSet<usize> = (0..members.len()).filter(same).collect();
                let all: BTreeSet<usize> = all.difference(&self.rogues).copied().collect();
                steps.push((at, Step::Kill(all.clone())));
                steps.push((until, Step::Start(all)));
            }
            7 => steps.push((at, Step::Gone([peer].into()))),
            8 => steps.push((at, Step::Leave(peer))),
            9..=11 => {
                let (begins, ends) = self.between(chance);
                steps.push((at, Step::Harmless(begins)));
                steps.push((until, Step::Harmless(ends)));
            }
            12..=14 => add_power_cut(steps, chance, (at, until), peer),
            15 => {
                // All of them, each in another moment of its work.
                let honest = (0..self.world.plan.peers).filter(|one| !self.rogues.contains(one));
                honest.for_each(|peer| add_power_cut(steps, chance, (at, until), peer));
            }
            _ => add_fault(steps, chance, (at, until), peer),
        }
    }

    /// What befalls the lines between all, and its end.
    fn between(&self, chance: &mut Chance) -> (Event, Event) {
        let parties = self.world.plan.peers + self.world.plan.authors;
        let kind = chance.below(3);
        if kind == 0 {
            let weather = Weather {
                lost_permille: chance.one(&[5, 20, 50]),
                delay_ms_max: 900,
                late_permille: 100,
                twice_permille: 50,
            };
            return (Event::Weather(weather), Event::Weather(Weather::CALM));
        }
        let side = (0..parties).filter(|_| chance.permille(300)).collect();
        match kind {
            1 => (Event::CutOff(side), Event::CutOff(BTreeSet::new())),
            _ => (Event::Mute(side), Event::Mute(BTreeSet::new())),
        }
    }

    async fn happens(&self, step: Step, gone: &mut BTreeSet<usize>) {
        let world = &self.world;
        match step {
            Step::Harmless(event) => world.happens(&event).await,
            Step::Kill(peers) => {
                world.history.tally(if peers.len() > 1 {
                    "event: an organisation is killed"
                } else {
                    "event: kill"
                });
                peers.iter().for_each(|peer| world.kill_peer(*peer));
            }
            Step::Start(peers) => {
                for peer in peers.difference(gone) {
                    world.start_peer(*peer).await;
                }
            }
            Step::Lose(event) => {
                let (Event::Destroy(peer) | Event::SetBack(peer)) = event else { return };
                if !gone.contains(&peer) && self.may_go(&[peer].into(), gone).await {
                    self.wiped(peer, gone);
                    world.happens(&event).await;
                }
            }
            Step::Gone(peers) => {
                let left = world.plan.peers - gone.union(&peers).count();
                let few = left < PEERS_MIN && self.cast != Cast::Geppetto;
                if few || !self.may_go(&peers, gone).await {
                    return;
                }
                world.history.tally(if peers.len() > 1 {
                    "event: many are gone for good"
                } else {
                    "event: a peer is gone for good"
                });
                peers.iter().for_each(|peer| world.kill_peer(*peer));
                gone.extend(peers);
            }
            Step::Dismiss => self.dismiss(gone).await,
            Step::DismissedGo => {
                let peers = self.dismissed().map(|(peers, _)| peers).unwrap_or_default();
                self.gives_up();
                let known = self.ledger.lock().len();
                if !peers.is_empty() {
                    let set = Some((peers.clone(), known));
                    *self.dismissed.lock().unwrap_or_else(PoisonError::into_inner) = set;
                }
                peers.iter().for_each(|peer| world.kill_peer(*peer));
                gone.extend(peers);
            }
            Step::Leave(peer) => {
                let running = world.peers()[peer].running.clone();
                let few = world.plan.peers - gone.len() <= PEERS_MIN;
                if let Some(running) = running.filter(|one| one.is_alive() && !few) {
                    world.history.tally("event: a peer leaves");
                    world.history.event(format!("peer {peer} is to leave"));
                    running.librarian.leave();
                }
            }
        }
    }

    /// Tells one peer that an organisation takes part no more; some may hear of it later. No author is of that organisation.
    async fn dismiss(&self, gone: &mut BTreeSet<usize>) {
        let (world, community) = (&self.world, &self.world.community);
        let dismissed = community.organisation(DISMISSED).key;
        let members = community.members.iter().enumerate();
        let peers: BTreeSet<usize> = members
            .filter(|(_, member)| member.organisation == dismissed)
            .map(|(number, _)| number)
            .collect();
        let few = world.plan.peers - gone.union(&peers).count() < PEERS_MIN;
        let known = self.ledger.lock().len();
        if few || !self.may_go(&peers, gone).await {
            return;
        }
        let told = world.peers().iter().enumerate().find_map(|(number, peer)| {
            let running = peer.running.as_ref().filter(|one| one.is_alive())?;
            (!peers.contains(&number)).then(|| Arc::clone(&running.librarian))
        });
        let Some(told) = told else { return };
        let others: Vec<usize> =
            (0..world.plan.organisations).filter(|number| *number != DISMISSED).collect();
        let first = Roster::first(&community.genesis);
        let roster = community.roster(&first, &Change::Remove(dismissed), &others);
        let taught = told.learn_roster(&roster);
        world.history.tally("event: an organisation is dismissed");
        world.history.event(format!("peers {peers:?} are of nobody any more: {taught:?}"));
        *self.dismissed.lock().unwrap_or_else(PoisonError::into_inner) = Some((peers, known));
    }

    /// A peer loses its disk, or is set back. A word that ended leases is lost with the last of those that heard it; whoever has an
    /// older disk then has what it ended until the time of its leases is over.
    fn wiped(&self, peer: usize, gone: &BTreeSet<usize>) {
        let mut wiped = self.wiped.lock().unwrap_or_else(PoisonError::into_inner);
        wiped.insert(peer);
        let has_word = |one: &usize| !wiped.contains(one) && !gone.contains(one);
        for entry in self.ledger.lock().iter_mut().filter(|one| one.fate == Fate::Forgotten) {
            // Each has a lease of its own.
            entry.kept.retain(|kept| kept.holders().iter().any(has_word));
        }
    }

    fn dismissed(&self) -> Option<(BTreeSet<usize>, usize)> {
        self.dismissed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was acknowledged since the roster by peers that are of nobody any more, and by nobody else, is lost to the network
    /// (`docs/operating/who-takes-part.md`): its author had not heard of the roster.
    pub(super) fn gives_up(&self) {
        let Some((peers, known)) = self.dismissed() else { return };
        let world = &self.world;
        let by = ledger::stores(&ledger::running(world, &BTreeSet::new()));
        let now = self.now_s();
        let mut entries = self.ledger.lock();
        for entry in entries.iter_mut().skip(known).filter(|entry| entry.is_kept(now)) {
            let alone = |one: &Kept| {
                !one.is_there_without(&peers)
                    && !ledger::held(world, one, &by).is_there_without(&peers)
            };
            if entry.kept.iter().any(alone) {
                entry.fate = Fate::Unsure;
                world.history.tally("event: the dismissed alone acknowledged it");
            }
        }
    }

    /// Waits until nothing that must be there goes with these peers; whether that came.
    async fn may_go(&self, peers: &BTreeSet<usize>, gone: &BTreeSet<usize>) -> bool {
        let world = &self.world;
        let since = world.env.clock.elapsed();
        loop {
            let mut without = gone.clone();
            without.extend(peers);
            without.extend(self.dismissed().into_iter().flat_map(|(peers, _)| peers));
            if self.cast.is_lost() {
                without.extend(&self.rogues);
            }
            // Who has left runs on and serves nobody.
            let has_left = |number: &usize| {
                world.peers()[*number].running.as_ref().is_some_and(|one| one.librarian.has_left())
            };
            without.extend((0..world.plan.peers).filter(has_left));
            // What is on the disks of those that are down is there, and does not count: nobody knows when they are up.
            let by = ledger::stores(&ledger::running(world, &BTreeSet::new()));
            let kept = self.kept();
            let mut all = kept.iter().flat_map(|entry| &entry.kept);
            if all.all(|one| ledger::held(world, one, &by).is_there_without(&without)) {
                return true;
            }
            if world.env.clock.elapsed() - since > PATIENCE {
                world.history.tally("event: held back, since something would be lost");
                return false;
            }
            world.env.clock.sleep(Duration::from_secs(5)).await;
        }
    }
}
