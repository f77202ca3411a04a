//! What goes wrong when: made from the seed before the run, so that a run can be read before it is watched.
//!
//! What destroys data (rot, a disk that is lost, a disk that lies about syncs, a lying peer) befalls at most one peer a run, the
//! *victim*: the promise is to survive W-1 losses, and the smallest W is 2. Everything else befalls anybody, all at once
//! too, and may lose nothing that was acknowledged.

use std::collections::BTreeSet;
use std::time::Duration;

use librarian::{KeepingOptions, LeaseSettings};
use testkit::network::Fault;

use crate::chance::Chance;
use crate::liar::{LIES, Lie};
use crate::wires::Weather;

/// How long things go wrong.
pub const TROUBLE: Duration = Duration::from_secs(90);

/// One thing that goes wrong, or ends. Peers and authors by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// How messages fare from now on.
    Weather(Weather),
    /// These parties are cut off from the others; none for an empty set.
    CutOff(BTreeSet<usize>),
    /// What these parties send arrives at none of the others, which they hear all the same; none for an empty set.
    Mute(BTreeSet<usize>),
    /// A peer stands still.
    Pause(usize),
    /// It goes on.
    Resume(usize),
    /// The power of a peer goes after so many more operations of its disks, in the middle of the next one.
    PowerFails(usize, u64),
    /// The peer has no power: it is gone, and its disks keep what was synced and any part of the rest.
    PowerOff(usize),
    /// The peer is killed; the system keeps what it wrote.
    Kill(usize),
    /// The peer is told to stop, and does so well.
    Stop(usize),
    /// The peer starts, where it does not run.
    Start(usize),
    /// A peer's disks take no more than so many bytes on top of what is there, and say so, or do not: as under a quota.
    Full(usize, u64, bool),
    /// They take everything again.
    Roomy(usize),
    /// Whatever a peer asks of its disks takes up to so many milliseconds, and what it asks at once may be done in any
    /// order.
    Slow(usize, u64),
    /// Reads of a peer's disks fail, or no longer do.
    FailReads(usize, bool),
    /// The next writes of a peer's disks fail half-way.
    FailWrites(usize, u32),
    /// The next syncs of a peer's disks fail. The store takes no writes until a restart.
    FailSyncs(usize, u32),
    /// A peer's calendar is so many milliseconds ahead.
    Skew(usize, i64),
    /// An author's program is killed.
    KillAuthor(usize),
    /// The victim's disks lose so many of a hundred syncs.
    LoseSyncs(usize, u64),
    /// Bytes of the victim's disks change.
    Rot(usize, u32),
    /// The victim is killed and its disks are gone.
    Destroy(usize),
    /// What the victim's disks hold now is kept.
    Remember(usize),
    /// The victim is killed, and its disks are what they were when they were remembered: a machine set back.
    SetBack(usize),
    /// The victim lies, or (with none) is honest again.
    Lie(usize, Fault),
    /// The victim lies with what it knows of others, or (with none) is honest again.
    Mislead(usize, Option<Lie>),
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Peers.
    pub peers: usize,
    /// Organisations.
    pub organisations: usize,
    /// Authors.
    pub authors: usize,
    /// Who may lose data.
    pub victim: Option<usize>,
    /// What happens, in order.
    pub events: Vec<(Duration, Event)>,
    /// Whether somebody may lie with what it knows of others.
    pub liars: bool,
    /// Of the peers, so many (the last ones) that the first organisation has beyond its part.
    pub crowd: usize,
    /// How peers keep the network whole, and authors pay; they do neither where it is not said.
    pub keeping: Option<Keeping>,
    /// Whether disks take no time where nothing is wrong with them; of others, those of every second peer take a little.
    pub instant_disks: bool,
}

/// How peers keep the network whole, and what they ask of leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// Comparing, mending, audits.
    pub options: KeepingOptions,
    /// Leases.
    pub leases: LeaseSettings,
}

impl Plan {
    /// The plan of this seed.
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed, "plan");
        let peers = chance.one(&[3, 4, 5, 5, 6, 7, 9, 9, 10]);
        let organisations = chance.one(&[1, 2, 3, 3, 3]).min(peers);
        let authors = 2 + chance.index(2);
        let victim = chance.permille(600).then(|| chance.index(peers));
        let mut plan = Self { victim, liars: false, ..Self::quiet(peers, organisations, authors) };
        for _ in 0..(3 + chance.below(10)) {
            plan.add_trouble(&mut chance);
        }
        if let Some(victim) = victim {
            for _ in 0..(1 + chance.below(2)) {
                plan.add_loss(&mut chance, victim);
            }
        }
        plan.events.sort_by_key(|(at, _)| *at);
        plan.liars = plan.events.iter().any(|(_, event)| matches!(event, Event::Mislead(..)));
        plan
    }

    /// A network to which nothing happens by itself.
    pub fn quiet(peers: usize, organisations: usize, authors: usize) -> Self {
        Self {
            peers,
            organisations,
            authors,
            victim: None,
            events: Vec::new(),
            liars: true,
            crowd: 0,
            keeping: None,
            instant_disks: false,
        }
    }

    /// What befalls anybody.
    fn add_trouble(&mut self, chance: &mut Chance) {
        let at = ms(2000 + chance.below(TROUBLE.as_millis() as u64 - 10_000));
        let for_ms = [500, 3_000, 15_000, 40_000];
        let until = at + ms(chance.one(&for_ms) + chance.below(1000));
        let peer = chance.index(self.peers);
        match chance.below(14) {
            0 => {
                let weather = Weather {
                    lost_permille: chance.one(&[0, 5, 20, 100]),
                    delay_ms_max: chance.one(&[50, 500, 5_000]),
                    late_permille: chance.one(&[10, 100, 500]),
                    twice_permille: chance.one(&[0, 50, 300]),
                };
                self.events.push((at, Event::Weather(weather)));
                self.events.push((until, Event::Weather(Weather::CALM)));
            }
            1 => {
                let parties = self.peers + self.authors;
                let side = (0..parties).filter(|_| chance.permille(400)).collect();
                self.events.push((at, Event::CutOff(side)));
                self.events.push((until, Event::CutOff(BTreeSet::new())));
            }
            2 => {
                self.events.push((at, Event::Pause(peer)));
                self.events.push((until, Event::Resume(peer)));
            }
            3 | 4 => self.add_power_cut(chance, at, until, peer),
            5 => {
                // All of them, each in another moment of its work.
                for peer in 0..self.peers {
                    self.add_power_cut(chance, at, until, peer);
                }
            }
            6 => {
                let end = if chance.permille(500) { Event::Kill(peer) } else { Event::Stop(peer) };
                self.events.push((at, end));
                self.events.push((until, Event::Start(peer)));
            }
            7 => {
                let more = chance.one(&[100 << 10, 400 << 10, 3 << 20]);
                self.events.push((at, Event::Full(peer, chance.below(more), chance.permille(500))));
                self.events.push((until, Event::Roomy(peer)));
            }
            8 => self.events.push((at, Event::FailWrites(peer, 1 + chance.below(3) as u32))),
            9 => {
                self.events.push((at, Event::FailSyncs(peer, 1 + chance.below(2) as u32)));
                self.events.push((until, Event::Kill(peer)));
                self.events.push((until + ms(100), Event::Start(peer)));
            }
            10 => {
                let parties = self.peers + self.authors;
                let mute = (0..parties).filter(|_| chance.permille(250)).collect();
                self.events.push((at, Event::Mute(mute)));
                self.events.push((until, Event::Mute(BTreeSet::new())));
            }
            11 => {
                self.events.push((at, Event::Slow(peer, chance.one(&[20, 300, 3_000]))));
                self.events.push((until, Event::Slow(peer, 0)));
            }
            12 => {
                self.events.push((at, Event::FailReads(peer, true)));
                self.events.push((until, Event::FailReads(peer, false)));
            }
            _ if chance.permille(500) => {
                let ahead_ms = chance.below(600_000) as i64 - 300_000;
                self.events.push((at, Event::Skew(peer, ahead_ms)));
            }
            _ => self.events.push((at, Event::KillAuthor(chance.index(self.authors)))),
        }
    }

    fn add_power_cut(&mut self, chance: &mut Chance, at: Duration, until: Duration, peer: usize) {
        let operations = chance.one(&[4, 24, 100]);
        let operations = chance.below(operations);
        self.events.push((at, Event::PowerFails(peer, operations)));
        // Where the peer does not use its disks so much, the power goes in between.
        let off = at + ms(chance.one(&[400, 20_000]));
        self.events.push((off, Event::PowerOff(peer)));
        self.events.push((until.max(off) + ms(1), Event::Start(peer)));
    }

    /// What befalls the victim alone.
    fn add_loss(&mut self, chance: &mut Chance, victim: usize) {
        let at = ms(2000 + chance.below(TROUBLE.as_millis() as u64 - 10_000));
        let later = at + ms(1000 + chance.below(30_000));
        match chance.below(9) {
            0 => {
                self.events.push((at, Event::Rot(victim, 1 + chance.below(40) as u32)));
                if chance.permille(500) {
                    self.events.push((later, Event::Kill(victim)));
                    self.events.push((later + ms(500), Event::Start(victim)));
                }
            }
            1 => {
                self.events.push((at, Event::LoseSyncs(victim, chance.one(&[20, 100]))));
                self.events.push((later, Event::PowerOff(victim)));
                self.events.push((later + ms(500), Event::Start(victim)));
            }
            2 => {
                self.events.push((at, Event::Destroy(victim)));
                self.events.push((later, Event::Start(victim)));
            }
            3 => {
                self.events.push((at, Event::Remember(victim)));
                self.events.push((later, Event::SetBack(victim)));
                self.events.push((later + ms(500), Event::Start(victim)));
            }
            4 | 5 => {
                self.events.push((at, Event::Mislead(victim, Some(chance.one(&LIES)))));
                if chance.permille(500) {
                    self.events.push((later, Event::Mislead(victim, None)));
                }
            }
            _ => {
                let delay = Fault::Delay(ms(chance.one(&[100, 2_000, 9_000])));
                let lie =
                    [Fault::Flip, Fault::Garbage, Fault::Deny, Fault::Forget, Fault::Hang, delay];
                let lie = lie[chance.index(lie.len())].clone();
                self.events.push((at, Event::Lie(victim, lie)));
                if chance.permille(500) {
                    self.events.push((later, Event::Lie(victim, Fault::None)));
                }
            }
        }
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_plan_and_seeds_differ() {
        assert_eq!(Plan::new(5), Plan::new(5));
        assert_ne!(Plan::new(5).events, Plan::new(6).events);
    }

    #[test]
    fn only_the_victim_loses_data() {
        for seed in 0..500 {
            let plan = Plan::new(seed);
            for (_, event) in &plan.events {
                if let Event::LoseSyncs(peer, _)
                | Event::Rot(peer, _)
                | Event::Destroy(peer)
                | Event::Remember(peer)
                | Event::SetBack(peer)
                | Event::Lie(peer, _)
                | Event::Mislead(peer, _) = event
                {
                    assert_eq!(Some(*peer), plan.victim);
                }
            }
        }
    }
}
