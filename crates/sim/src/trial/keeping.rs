//! Whether the network mends itself, and forgets, whatever befalls it and whoever cheats.
//!
//! ```text
//!   6 to 9 peers of 3 or 4 organisations, one of them (or one author) is cast as somebody bad
//!   --> for four minutes: puts of copies and stripes, leases that end, forgets; kills, power cuts, lost disks, whole organisations,
//!       a disk set back, a peer that leaves, peers that never return
//!   --> all of it stops but the cheating, and nobody does anything: within a time all that is paid for is at full redundancy,
//!       and nothing else is there --> a while later it still is --> all is read, accounts are compared with disks, and more is put
//! ```
//! Destroying what the network has not mended yet would only show that what is gone is gone: so whatever destroys data waits until all that
//! was acknowledged is there without it (`trouble`). A network that mends nothing is found at the end, by what lacks.

mod cast;
mod trouble;
mod work;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use librarian::{KeepingOptions, LeaseSettings};

use crate::chance::Chance;
use crate::check::redundancy::Parties;
use crate::check::{bytes, charged, gone, liveness, poisoned, redundancy};
use crate::ledger::{Entry, Ledger};
use crate::plan::{Keeping, Plan};
use crate::world::World;
use cast::Cast;
pub use cast::{CASTS, GEPPETTO, HONEST, POISONER, REVENANT};

/// How long things go wrong.
const TROUBLE: Duration = Duration::from_secs(240);
const SETTLE: Duration = Duration::from_secs(5);
/// How long after that the network may take to be whole: a peer counts as absent after two minutes, one that cheats after some rounds
/// of audits, claims that nobody honours are minded for minutes.
const WHOLE_WITHIN: Duration = Duration::from_secs(1500);
/// How often it is looked whether it is.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long it must stay so, while surplus goes.
const STAYS: Duration = Duration::from_secs(60);

/// The network of this seed.
pub(super) fn plan(seed: u64) -> Plan {
    let mut chance = Chance::new(seed, "network that keeps itself");
    let cast = Cast::of(seed);
    let (peers, organisations) = match cast {
        Cast::Crowd | Cast::Geppetto => (6, 3),
        _ => (chance.one(&[6, 6, 7, 7, 8, 9]), chance.one(&[3, 3, 4])),
    };
    let mut plan = Plan::quiet(peers, organisations, 2);
    if matches!(cast, Cast::Crowd | Cast::Geppetto) {
        (plan.crowd, plan.peers) = (2, peers + 2);
    }
    let options = KeepingOptions {
        compare: Duration::from_secs(3),
        absent_after: Duration::from_secs(30),
        settle: Duration::from_secs(3),
        surplus_after: Duration::from_secs(30),
        audit: Duration::from_secs(3),
        ..KeepingOptions::default()
    };
    let leases = LeaseSettings {
        sweep: Duration::from_secs(10),
        erase_within: Duration::from_secs(60),
        ask: Duration::from_secs(10),
        ..LeaseSettings::default()
    };
    plan.keeping = Some(Keeping { options, leases });
    plan
}

/// Everything of one run.
struct Town {
    world: Arc<World>,
    cast: Cast,
    /// Peers that cheat.
    rogues: BTreeSet<usize>,
    ledger: Ledger,
    /// Peers of an organisation that takes part no more, and how many entries the ledger had when it was dismissed.
    dismissed: Mutex<Option<(BTreeSet<usize>, usize)>>,
    /// Peers that lost their disks, or were set back.
    wiped: Mutex<BTreeSet<usize>>,
}

pub(super) async fn run(world: Arc<World>) {
    let cast = Cast::of(world.seed);
    let rogues = cast.rogues(&world);
    world.history.event(format!("{cast:?}: {rogues:?}"));
    world.history.tally(cast.name());
    let town = Arc::new(Town {
        world,
        cast,
        rogues,
        ledger: Ledger::default(),
        dismissed: Mutex::default(),
        wiped: Mutex::default(),
    });
    let world = &town.world;
    for number in 0..world.plan.peers {
        world.start_peer(number).await;
    }
    world.env.clock.sleep(SETTLE).await;
    town.begin().await;
    let authors: Vec<_> = (0..world.plan.authors)
        .map(|number| world.env.tasks.spawn(Arc::clone(&town).works(number).boxed()))
        .collect();
    let cheating = world.env.tasks.spawn(Arc::clone(&town).cheats().boxed());
    let gone = town.befalls().await;
    for author in authors {
        author.join().await;
    }
    town.gives_up();
    let but = gone.union(&town.rogues).copied().collect();
    world.mend_all_but(&but).await;
    town.becomes_whole("after all trouble").await;
    world.env.clock.sleep(STAYS).await;
    town.stays_gone();
    town.becomes_whole("while surplus goes").await;
    drop(cheating);
    charged::check(world, &town.rogues);
    poisoned::check(world);
    town.is_read().await;
    town.takes_writes().await;
}

impl Town {
    fn now_s(&self) -> u64 {
        self.world.env.clock.unix_s()
    }

    fn kept(&self) -> Vec<Entry> {
        let now = self.now_s();
        self.ledger.entries(|entry| entry.is_kept(now))
    }

    /// What keeps the network from being whole.
    fn lacks(&self) -> Vec<String> {
        let (world, now) = (&self.world, self.now_s());
        let over = self.ledger.entries(|entry| entry.is_gone(now));
        let believed = if self.cast.is_believed() { self.rogues.clone() } else { BTreeSet::new() };
        let parties = Parties { rogues: &self.rogues, believed: &believed };
        let mut lacks = gone::remains(world, &over, &self.rogues);
        lacks.extend(redundancy::lacks(world, &self.kept(), &parties));
        lacks.extend(self.not_found());
        lacks
    }

    /// A peer that holds nothing, or another thing than it should, is done without.
    fn not_found(&self) -> Option<String> {
        let cheat = self.rogues.first().filter(|_| self.cast.is_to_be_found())?;
        let key = self.world.community.peer(*cheat).to_string();
        let running = crate::ledger::running(&self.world, &self.rogues);
        let blind = running.iter().find(|(_, one)| !redundancy::absent(one).contains(&key))?;
        Some(format!("peer {} does not do without peer {cheat}, which cheats", blind.0))
    }

    /// Waits until everything is whole; what lacks after its time is a finding.
    async fn becomes_whole(&self, when: &str) {
        let world = &self.world;
        let began = world.env.clock.elapsed();
        loop {
            let lacks = self.lacks();
            let took = world.env.clock.elapsed() - began;
            if lacks.is_empty() {
                world.history.event(format!("whole {when} after {took:?}"));
                return;
            }
            if took > WHOLE_WITHIN {
                for (number, peer) in crate::ledger::running(world, &BTreeSet::new()) {
                    let status = peer.librarian.repair();
                    world.history.event(format!("peer {number} knows {status:?}"));
                }
                for what in lacks.into_iter().take(4) {
                    world.history.find("Q3", format!("{when}: {what}"));
                }
                return;
            }
            world.env.clock.sleep(LOOK_EVERY).await;
        }
    }

    /// What was over does not come back.
    fn stays_gone(&self) {
        let now = self.now_s() - STAYS.as_secs();
        let over = self.ledger.entries(|entry| entry.is_gone(now));
        if !over.is_empty() {
            self.world.history.tally("over: something stays gone");
        }
        for what in gone::remains(&self.world, &over, &self.rogues).into_iter().take(2) {
            self.world.history.find("Q3", format!("it came back: {what}"));
        }
    }

    /// All peers that do not cheat take writes, and what is put now gets all its copies.
    async fn takes_writes(&self) {
        let world = &self.world;
        let lacks: Vec<String> = crate::ledger::running(world, &self.rogues)
            .iter()
            .filter_map(|(number, one)| liveness::refuses(*number, &one.librarian))
            .collect();
        lacks.into_iter().take(4).for_each(|what| world.history.find("Q6", what));
        for number in 0..world.plan.authors {
            liveness::put_in_full(world, number).await;
        }
    }

    /// Authors that know nothing of the network read all that is paid for.
    async fn is_read(&self) {
        let world = &self.world;
        for number in 0..world.plan.authors {
            world.leave_author(number);
            let running = world.author(number).await;
            let own: BTreeSet<_> = self
                .kept()
                .into_iter()
                .filter_map(|entry| entry.content)
                .filter(|(author, _)| *author == number)
                .map(|(_, address)| address)
                .collect();
            for (at, address) in world.readable(number) {
                if !own.contains(&address) {
                    continue;
                }
                if let Some(Err(error)) = world.read(number, &running, at, address, None).await {
                    let what = format!("content {at} is lost: {}", bytes::text(&error));
                    world.history.find("Q2", what);
                }
            }
        }
    }
}
