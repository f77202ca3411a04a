//! Who is bad in a run, and what that one does all the time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crypto::{PeerId, Place, RecordId};
use env::calls::keep::{Compare, FetchAt, KeepRequest, ProveAt, Range, SUMS, SettledStripe, Words};
use env::calls::{Calls, Endpoint};
use store::RecordStore;
use testkit::network::Fault;

use super::work::junk;
use super::{TROUBLE, Town};
use crate::chance::Chance;
use crate::liar::{Cheat, Knowing, Lie};
use crate::world::World;

/// When whoever is bad begins to be.
const BEGINS: Duration = Duration::from_secs(20);
/// How long one floods: after that, nobody's limits are to be blamed for what is not whole.
const FLOODS_UNTIL: Duration = Duration::from_secs(260);
/// Calls of one wave, and how often a wave comes.
const WAVE: usize = 24;
const WAVE_EVERY: Duration = Duration::from_secs(6);
/// How often somebody claims everything.
const CLAIMS_EVERY: Duration = Duration::from_secs(25);
/// How long one claims.
const CLAIMS_UNTIL: Duration = Duration::from_secs(700);
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Somebody bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cast {
    /// Nobody.
    Honest,
    /// A peer that drops everything and says that it has it.
    Empty,
    /// The same, but it answers audits through others.
    Relay,
    /// A peer that changes what it serves and proves.
    Corrupter,
    /// A peer that asks and claims without end.
    Flooder,
    /// A peer that invents records, fragments, maps and words.
    Faker,
    /// A peer that claims all stripes again and again and mends none.
    Claimer,
    /// An author whose headers lie.
    Poisoner,
    /// A peer whose answers take seconds.
    Slow,
    /// A peer that returns with an old disk and hears nothing of what was ended meanwhile.
    Revenant,
    /// An operator with many peers of one organisation, all of which go at once.
    Geppetto,
    /// An organisation with many peers that all accuse everybody else.
    Crowd,
    /// An author whose records' ids all lie together.
    Grinder,
}

const ALL: [Cast; 13] = [
    Cast::Honest,
    Cast::Empty,
    Cast::Relay,
    Cast::Corrupter,
    Cast::Flooder,
    Cast::Faker,
    Cast::Claimer,
    Cast::Poisoner,
    Cast::Slow,
    Cast::Revenant,
    Cast::Geppetto,
    Cast::Crowd,
    Cast::Grinder,
];

/// How many casts there are: a seed's is its number modulo this.
pub const CASTS: u64 = ALL.len() as u64;
/// The number of a run in which nobody is bad.
pub const HONEST: u64 = 0;
/// The number of an author whose headers lie.
pub const POISONER: u64 = 7;
/// The number of a peer that returns with an old disk.
pub const REVENANT: u64 = 9;
/// The number of an operator whose peers go at once.
pub const GEPPETTO: u64 = 10;
const _: () = assert!(matches!(ALL[HONEST as usize], Cast::Honest));
const _: () = assert!(matches!(ALL[GEPPETTO as usize], Cast::Geppetto));
const _: () = assert!(matches!(ALL[POISONER as usize], Cast::Poisoner));
const _: () = assert!(matches!(ALL[REVENANT as usize], Cast::Revenant));

impl Cast {
    /// Who is bad in the run of this seed: each one in turn, so that few seeds meet all.
    pub(super) fn of(seed: u64) -> Self {
        ALL[(seed % CASTS) as usize]
    }

    /// What a tally calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Honest => "cast: nobody",
            Self::Empty => "cast: holds nothing",
            Self::Relay => "cast: proves through others",
            Self::Corrupter => "cast: corrupts",
            Self::Flooder => "cast: floods",
            Self::Faker => "cast: invents",
            Self::Claimer => "cast: claims and never mends",
            Self::Poisoner => "cast: headers that lie",
            Self::Slow => "cast: delays",
            Self::Revenant => "cast: returns with old data",
            Self::Geppetto => "cast: many go at once",
            Self::Crowd => "cast: an organisation of many accuses",
            Self::Grinder => "cast: grinds ids",
        }
    }

    /// Which peers are bad.
    pub(super) fn rogues(self, world: &World) -> BTreeSet<usize> {
        let mut chance = Chance::new(world.seed, "who is bad");
        match self {
            Self::Honest | Self::Poisoner | Self::Geppetto | Self::Grinder => BTreeSet::new(),
            Self::Crowd => crowd(world),
            _ => [chance.index(world.plan.peers)].into(),
        }
    }

    /// Whether the others must come to do without it.
    pub(super) fn is_to_be_found(self) -> bool {
        matches!(self, Self::Empty | Self::Corrupter)
    }

    /// Whether nobody can tell what it holds from what it says.
    pub(super) fn is_believed(self) -> bool {
        matches!(self, Self::Relay | Self::Faker)
    }

    /// Whether what is on its disk is lost as far as others are concerned.
    pub(super) fn is_lost(self) -> bool {
        self.is_to_be_found() || self.is_believed() || self == Self::Revenant
    }

    fn cheat(self) -> Option<Cheat> {
        match self {
            Self::Empty => Some(Cheat::HoldsNothing),
            Self::Relay => Some(Cheat::Relays),
            Self::Corrupter => Some(Cheat::Corrupts),
            Self::Faker => Some(Cheat::Fakes),
            Self::Crowd => Some(Cheat::Accuses),
            Self::Revenant => Some(Cheat::Deaf),
            _ => None,
        }
    }
}

/// The peers of the organisation that has more than its part.
pub(super) fn crowd(world: &World) -> BTreeSet<usize> {
    let organisation = world.community.members[0].organisation;
    let members = world.community.members.iter().enumerate();
    members.filter(|(_, one)| one.organisation == organisation).map(|(number, _)| number).collect()
}

impl Town {
    /// What whoever is bad does, until all is over.
    pub(super) async fn cheats(self: Arc<Self>) {
        self.world.env.clock.sleep(BEGINS).await;
        let mut chance = Chance::new(self.world.seed, "how it cheats");
        for rogue in &self.rogues {
            self.turns(*rogue).await;
        }
        let Some(rogue) = self.rogues.first().copied() else { return };
        match self.cast {
            Cast::Flooder => self.floods(rogue, &mut chance).await,
            Cast::Faker => self.fakes(rogue, &mut chance).await,
            Cast::Claimer => self.claims(rogue).await,
            _ => {}
        }
    }

    /// A peer becomes bad.
    async fn turns(&self, rogue: usize) {
        let world = &self.world;
        let peer = world.community.peer(rogue);
        if let Some(cheat) = self.cast.cheat() {
            let words = self.words_against(rogue);
            let calls = Some(world.direct.calls(world.community.members[rogue].key.public()));
            let hangs = Chance::new(world.seed, "whether it answers").permille(500);
            let (others, words) = (self.others(rogue), words);
            let wires = Some(Arc::clone(&world.wires));
            let knowing = Knowing { calls, wires, others, words: words.clone(), hangs };
            world.wires.set_cheat(rogue, Some(cheat), words);
            world.liars.set_cheat(rogue, Some((cheat, knowing)));
        }
        match self.cast {
            Cast::Empty | Cast::Relay => {
                world.liars.set(rogue, Some(Lie::KeepsNothing));
                let store = world.peers()[rogue].running.as_ref().map(|one| one.store.clone());
                let Some(store) = store else { return };
                let all = store.ids(&RecordId::new([0; 32]), usize::MAX);
                let dropped = all.len();
                let removed = store.remove(all).await.is_ok();
                world.history.event(format!("peer {rogue} dropped {dropped} records: {removed}"));
            }
            Cast::Corrupter => world.direct.set(&peer, Fault::Flip),
            Cast::Slow => {
                let mut chance = Chance::new(world.seed, "how slow");
                let late = Duration::from_millis(chance.one(&[700, 2_500, 5_000]));
                world.direct.set(&peer, Fault::Delay(late));
            }
            _ => {}
        }
    }

    fn words_against(&self, rogue: usize) -> Words {
        let members = &self.world.community.members;
        let own = members[rogue].organisation;
        let others = members.iter().filter(|one| one.organisation != own);
        let mut accused: Vec<PeerId> = others.map(|one| one.peer).collect();
        accused.sort_unstable();
        Words { absent: accused.clone(), faulty: accused }
    }

    fn others(&self, rogue: usize) -> Vec<Endpoint> {
        let members = self.world.community.members.iter().enumerate();
        let others = members.filter(|(number, _)| *number != rogue);
        others.map(|(_, one)| Endpoint::of(one.peer, one.address.clone())).collect()
    }

    /// Calls of a peer past its program, over its lines.
    fn line(&self, rogue: usize) -> Option<Arc<dyn Calls>> {
        let world = &self.world;
        let librarian = world.peers()[rogue].running.as_ref()?.librarian.clone();
        let inner = world.direct.calls(world.community.members[rogue].key.public());
        Some(world.wires.line(rogue, inner, Arc::new(move || librarian.credential())))
    }

    /// Sends everything that costs others most, as often as it can.
    async fn floods(&self, rogue: usize, chance: &mut Chance) {
        let world = &self.world;
        let Some(line) = self.line(rogue) else { return };
        while world.env.clock.elapsed() < FLOODS_UNTIL {
            world.env.clock.sleep(WAVE_EVERY).await;
            let stripes = self.world.liars.stripes();
            let calls = (0..WAVE).map(|_| {
                let others = self.others(rogue);
                let to = others[chance.index(others.len())].clone();
                let request = self.nuisance(&stripes, chance);
                let line = Arc::clone(&line);
                async move { line.keep(&to, request, CALL_LIMIT).await.is_ok() }
            });
            let calls: Vec<_> = calls.collect();
            let taken = futures::future::join_all(calls).await;
            let taken = taken.into_iter().filter(|taken| *taken).count();
            world.history.tally_many("cheat: a flood's calls", taken as u64);
        }
    }

    /// One call that costs the other side something.
    fn nuisance(&self, stripes: &[RecordId], chance: &mut Chance) -> KeepRequest {
        let id = |chance: &mut Chance| RecordId::new(junk(chance));
        match chance.below(6) {
            0 => {
                let sums = (0..SUMS).map(|_| u128::from(chance.bits())).collect();
                let view = [chance.bits() as u8; 16];
                let words = Words::default();
                KeepRequest::Compare(Compare { range: Range::ALL, sums, view, words })
            }
            1 => KeepRequest::Claim((0..200).map(|_| id(chance)).collect()),
            2 => KeepRequest::Claim(stripes.iter().copied().take(200).collect()),
            3 => KeepRequest::Look(Vec::new()),
            4 => {
                let ask = |_| ProveAt { id: id(chance), chunk: 0 };
                KeepRequest::Prove((0..32).map(ask).collect())
            }
            _ => {
                let ask = |_| {
                    let id = id(chance);
                    FetchAt { id, place: Place::from(id) }
                };
                KeepRequest::Fetch((0..64).map(ask).collect())
            }
        }
    }

    /// Tells others of records and holders that are not.
    async fn fakes(&self, rogue: usize, chance: &mut Chance) {
        let world = &self.world;
        let Some(line) = self.line(rogue) else { return };
        while world.env.clock.elapsed() < TROUBLE * 2 {
            world.env.clock.sleep(WAVE_EVERY).await;
            let stripes = world.liars.stripes();
            let peers: Vec<PeerId> = world.community.members.iter().map(|one| one.peer).collect();
            for to in self.others(rogue) {
                let of = |range| env::calls::keep::Listed {
                    range,
                    copies: Vec::new(),
                    fragments: Vec::new(),
                    more: false,
                };
                let ranges = (0..16).map(|_| Range::ALL.part(chance.bits() as u8));
                let ranges: BTreeSet<Range> = ranges.collect();
                let lists = ranges.into_iter().map(|range| crate::liar::invented(&of(range)));
                let lists = KeepRequest::Lists(lists.collect());
                let settled = stripes.iter().take(64).map(|stripe| {
                    let moved = (0..3).map(|index| (index, peers[chance.index(peers.len())]));
                    SettledStripe { stripe: *stripe, moved: moved.collect() }
                });
                let settled = KeepRequest::Settled(settled.collect());
                for request in [lists, settled] {
                    let taken = line.keep(&to, request, CALL_LIMIT).await.is_ok();
                    world.history.tally_many("cheat: fakes taken", u64::from(taken));
                }
            }
        }
    }

    /// Claims all stripes at everybody, and mends none.
    async fn claims(&self, rogue: usize) {
        let world = &self.world;
        let Some(line) = self.line(rogue) else { return };
        while world.env.clock.elapsed() < CLAIMS_UNTIL {
            let stripes = world.liars.stripes();
            for to in self.others(rogue) {
                for some in stripes.chunks(env::calls::keep::CLAIMS_MAX) {
                    let request = KeepRequest::Claim(some.to_vec());
                    let taken = line.keep(&to, request, CALL_LIMIT).await.is_ok();
                    world.history.tally_many("cheat: claims taken", u64::from(taken));
                }
            }
            world.env.clock.sleep(CLAIMS_EVERY).await;
        }
    }
}
