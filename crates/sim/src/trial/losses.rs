//! Whether a put survives every loss that it promises to survive: all that can be taken away at its answer is.
//!
//! ```text
//!   some peers take nothing, some lie, the power of some goes --> puts, the writer dies with the last answer
//!   --> every peer that is not needed for the last k fragments and the last copy, in a random order: gone, emptied, or lying
//!   --> a reader that knew the network before, and one that starts anew, read all
//! ```
//! What is needed goes by what was acknowledged, so it is the promise to the letter and more: of a stripe of which more than s
//! fragments were acknowledged all but k are taken, of copies all but one. Peers that lied from the start are losses from the start.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use author::PutOptions;
use env::calls::CallError;
use placement::Profile;
use testkit::network::Fault;

use super::Answered;
use crate::chance::Chance;
use crate::check::bytes;
use crate::check::holdings::Kept;
use crate::liar::{LIES, Lie};
use crate::plan::{Event, Plan};
use crate::wires::Weather;
use crate::world::World;

/// Whatever can be read is read within this: a walk of a minute, and some calls to peers that say nothing.
const READ_WITHIN: Duration = Duration::from_secs(120);
/// How long the peers have to learn of each other.
const SETTLE: Duration = Duration::from_secs(5);
/// Sizes of contents: from the smallest that is a stripe, to more than one.
const SIZES: [usize; 8] = [1_000, 16_385, 16_385, 20_000, 40_000, 100_000, 300_000, 5 << 20];
/// Profiles that are asked for, besides the network's own.
const PROFILES: [(u32, u32); 7] = [(1, 3), (2, 4), (3, 6), (2, 7), (4, 8), (5, 9), (6, 9)];
/// Peers that lie from the start: as many as every put here survives at its answer.
const LIARS_MAX: u64 = 2;
/// Peers whose power goes, or whose disks fail a sync, while puts run: few, so that most puts are answered all the same.
const STRUCK_MAX: u64 = 3;
/// Operations of a disk before the power goes, at most: about as many as one put takes.
const OPERATIONS_MAX: u64 = 8;

/// The network of this seed.
pub(super) fn plan(seed: u64) -> Plan {
    let mut chance = Chance::new(seed, "network of losses");
    let peers = chance.one(&[9, 9, 10, 10, 11, 12, 14, 18]);
    let organisations = chance.one(&[1, 2, 3, 3, 4]);
    Plan::quiet(peers, organisations, 2)
}

/// What becomes of a peer that is lost.
#[derive(Clone, Debug)]
enum Fate {
    /// It never answers again.
    Gone,
    /// It comes back with nothing.
    Emptied,
    /// It is there and something is wrong with it.
    Faulty(Fault),
    /// It lies with what it knows.
    Misleads(Lie),
}

pub(super) async fn run(world: Arc<World>) {
    let mut chance = Chance::new(world.seed, "losses of stripes");
    for number in 0..world.plan.peers {
        world.start_peer(number).await;
    }
    world.env.clock.sleep(SETTLE).await;
    let (writer, reader) = (0, 1);
    world.author(reader).await;
    world.author(writer).await;
    let mut order: Vec<usize> = (0..world.plan.peers).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, chance.index(at + 1));
    }
    let liars = trouble(&world, &order, &mut chance).await;
    let struck = strike(&world, &liars, &mut chance).await;
    let mut answered = Vec::new();
    for _ in 0..1 + chance.below(2) {
        let (k, n) = chance.one(&PROFILES);
        let profile = chance.permille(600).then_some(Profile::Stripe { k, n });
        let options = PutOptions { profile, ..PutOptions::default() };
        let len = chance.one(&SIZES);
        let readers: &[usize] = if chance.permille(600) { &[reader] } else { &[] };
        answered.extend(world.put_kept(writer, len, options, readers, &mut chance).await);
    }
    let kept: Vec<Kept> = answered.iter().flat_map(|one| one.kept.iter().cloned()).collect();
    world.count_displaced(writer, &kept);
    world.kill_author(writer);
    world.wires.set_weather(Weather::CALM);
    for event in &struck {
        world.happens(event).await;
    }
    let lost = lose(&world, liars, &order, &kept, &mut chance).await;
    count(&world, &answered, &lost);
    read_all(&world, &answered, &mut chance).await;
}

/// What is wrong while the puts run: peers that take nothing, and messages that are late. Answers who lies.
async fn trouble(world: &World, order: &[usize], chance: &mut Chance) -> BTreeSet<usize> {
    let liars: BTreeSet<usize> =
        order.iter().take(chance.below(LIARS_MAX + 1) as usize).copied().collect();
    for liar in &liars {
        match chance.below(2) {
            0 => world.liars.set(*liar, Some(Lie::KeepsNothing)),
            _ => world.direct.set(&world.community.peer(*liar), Fault::Forget),
        }
    }
    // So many that a stripe of nine peers is answered at its threshold, or just not any more.
    let broken = chance.below(1 + world.plan.peers as u64 / 3) as usize;
    for number in order.iter().skip(liars.len()).take(broken) {
        let fault = match chance.below(5) {
            0 => Fault::Hang,
            1 => Fault::Writes(CallError::Full),
            2 => Fault::Delay(Duration::from_millis(200 + chance.below(9_000))),
            3 => Fault::Down,
            _ => {
                world.kill_peer(*number);
                continue;
            }
        };
        world.history.event(format!("peer {number}: {fault:?}"));
        world.direct.set(&world.community.peer(*number), fault);
    }
    if chance.permille(400) {
        let lost_permille = chance.one(&[0, 20, 60]);
        let weather =
            Weather { lost_permille, delay_ms_max: 900, late_permille: 200, ..Weather::CALM };
        world.wires.set_weather(weather);
    }
    liars
}

/// The power of some peers goes in the midst of the puts, and syncs of some fail: what they acknowledged they have when they are
/// started anew. Answers what must happen before that.
async fn strike(world: &Arc<World>, liars: &BTreeSet<usize>, chance: &mut Chance) -> Vec<Event> {
    let honest: Vec<usize> = (0..world.plan.peers).filter(|one| !liars.contains(one)).collect();
    let mut ends = Vec::new();
    for _ in 0..chance.below(STRUCK_MAX + 1) {
        let peer = honest[chance.index(honest.len())];
        let (begins, end) = match chance.below(3) {
            0 => (Event::FailSyncs(peer, 1), Event::Kill(peer)),
            // Where its disks are not used so much, the power goes when all is put.
            _ => {
                let operations = chance.below(OPERATIONS_MAX);
                (Event::PowerFails(peer, operations), Event::PowerOff(peer))
            }
        };
        world.happens(&begins).await;
        ends.extend([end, Event::Start(peer)]);
    }
    ends
}

/// Takes away whatever is not needed.
async fn lose(
    world: &Arc<World>,
    liars: BTreeSet<usize>,
    order: &[usize],
    kept: &[Kept],
    chance: &mut Chance,
) -> BTreeSet<usize> {
    let mut lost = liars;
    for number in order.iter().rev() {
        let mut more = lost.clone();
        more.insert(*number);
        if kept.iter().all(|one| one.is_there_without(&more)) {
            lost = more;
        }
    }
    // The others are well again, and what they lack the lost ones do not have either.
    let cut = chance.permille(300);
    for number in (0..world.plan.peers).filter(|number| !lost.contains(number)) {
        if cut {
            world.kill_peer(number);
            world.peers()[number].crash_disks();
            world.history.tally("event: power cut");
        }
        world.start_peer(number).await;
        world.direct.set(&world.community.peer(number), Fault::None);
    }
    let common = chance.permille(500).then(|| fate(chance));
    for number in &lost {
        let fate = common.clone().unwrap_or_else(|| fate(chance));
        world.history.event(format!("peer {number} is lost: {fate:?}"));
        befalls(world, *number, fate).await;
    }
    lost
}

fn fate(chance: &mut Chance) -> Fate {
    let faults = [Fault::Deny, Fault::Flip, Fault::Garbage, Fault::Hang];
    match chance.below(10) {
        0 | 1 => Fate::Gone,
        2 => Fate::Emptied,
        3..=5 => Fate::Faulty(faults[chance.index(faults.len())].clone()),
        _ => Fate::Misleads(chance.one(&LIES)),
    }
}

async fn befalls(world: &Arc<World>, number: usize, fate: Fate) {
    match fate {
        Fate::Gone => world.kill_peer(number),
        Fate::Emptied => {
            world.kill_peer(number);
            world.count_met(number);
            let mut chance = Chance::new(world.seed, "new disks");
            world.peers()[number].replace_disks(&mut chance);
            world.history.lock().acknowledged.remove(&number);
            world.history.tally("event: disk lost");
            world.start_peer(number).await;
            world.direct.set(&world.community.peer(number), Fault::None);
            world.liars.set(number, None);
        }
        Fate::Faulty(fault) => {
            world.start_peer(number).await;
            world.direct.set(&world.community.peer(number), fault);
        }
        Fate::Misleads(lie) => {
            world.start_peer(number).await;
            world.direct.set(&world.community.peer(number), Fault::None);
            world.liars.set(number, Some(lie));
        }
    }
}

/// Whether it was as hard as it can be.
fn count(world: &World, answered: &[Answered], lost: &BTreeSet<usize>) {
    for Answered { report, kept, .. } in answered {
        for one in kept {
            let taken = match one {
                Kept::Copies { holders, .. } => holders.intersection(lost).count(),
                Kept::Stripe { holders, .. } => {
                    holders.iter().filter(|one| !one.is_empty() && one.is_subset(lost)).count()
                }
            };
            let what = match (one, report.full) {
                (Kept::Stripe { k, .. }, full) if taken == one.acked() - k => {
                    if full {
                        "losses: n-k of a full stripe"
                    } else {
                        "losses: all but k of a stripe"
                    }
                }
                (Kept::Copies { .. }, true) if taken + 1 == one.acked() => "losses: N-1 copies",
                (Kept::Copies { .. }, false) if taken + 1 == one.acked() => {
                    "losses: all copies but one"
                }
                _ => continue,
            };
            world.history.tally(what);
        }
    }
}

async fn read_all(world: &World, answered: &[Answered], chance: &mut Chance) {
    for number in 0..world.plan.authors {
        let running = world.author(number).await;
        for (at, address) in world.readable(number) {
            if !answered.iter().any(|one| one.at == at) {
                continue;
            }
            let len = world.history.lock().contents[at].bytes.len() as u64;
            let start = chance.below(len);
            for range in [None, Some(start..start + chance.below(len - start + 1))] {
                let since = world.env.clock.elapsed();
                let said = world.read(number, &running, at, address, range.clone()).await;
                if let Some(Err(error)) = said {
                    bytes::check_error(&world.history, "get", &error);
                    let text = bytes::text(&error);
                    let what = format!("{range:?} of content {at} is lost with peers: {text}");
                    world.history.find("Q2", what);
                }
                let took = world.env.clock.elapsed() - since;
                world.history.event(format!("it took {took:?}"));
                if took > READ_WITHIN {
                    world.history.find("Q6", format!("a read took {took:?}"));
                }
            }
        }
    }
}
