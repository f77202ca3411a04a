//! Whether readers find what is full while peers restart, leave for good and join: every read, not only the last.
//!
//! Never so many are away at once that a record's last copy or a stripe's last k fragments are. A peer that came back a
//! moment ago still counts as away: a reader may have asked it just before, and asks nobody twice for one record.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use author::PutOptions;
use crypto::PeerState;
use futures::FutureExt;

use crate::chance::Chance;
use crate::check::bytes;
use crate::check::holdings::Kept;
use crate::plan::Plan;
use crate::wires::Weather;
use crate::world::World;

/// How long peers come and go.
const CHURN: Duration = Duration::from_secs(90);
const SETTLE: Duration = Duration::from_secs(5);
/// How long after its return a peer still counts as away.
const BACK_FOR: Duration = Duration::from_secs(2);
/// Peers that join while others read.
const NEWCOMERS: usize = 3;
/// Peers that leave for good: nothing makes their fragments anew.
const LEAVE_MAX: usize = 2;
const SIZES: [usize; 5] = [1_000, 16_385, 40_000, 300_000, 3 << 20];
const CONTENTS: usize = 4;

/// The network of this seed, the newcomers counted.
pub(super) fn plan(seed: u64) -> Plan {
    let mut chance = Chance::new(seed, "network of churn");
    let peers = chance.one(&[9, 10, 11, 13, 18]);
    Plan::quiet(peers + NEWCOMERS, 3, 3)
}

/// Who is away, and since when each that came back is there again.
#[derive(Default)]
struct Away {
    gone: BTreeSet<usize>,
    back: BTreeMap<usize, Duration>,
    left: BTreeSet<usize>,
    joined: usize,
}

pub(super) async fn run(world: Arc<World>) {
    let mut chance = Chance::new(world.seed, "churn");
    let peers = world.plan.peers - NEWCOMERS;
    for number in 0..peers {
        world.start_peer(number).await;
    }
    world.env.clock.sleep(SETTLE).await;
    let mut kept = Vec::new();
    for number in 0..CONTENTS {
        let len = chance.one(&SIZES);
        let put = world.put_kept(0, len, PutOptions::default(), &[1, 2], &mut chance).await;
        put.iter().for_each(|put| world.check_calm(put, peers));
        match put {
            Some(put) if put.report.full => kept.extend(put.kept),
            _ => {
                world.history.find("Q2", format!("content {number} is not full in a calm network"))
            }
        }
    }
    let weather = Weather { delay_ms_max: 60, late_permille: 300, ..Weather::CALM };
    world.wires.set_weather(weather);
    let readers: Vec<_> = (0..world.plan.authors)
        .map(|number| world.env.tasks.spawn(reads(Arc::clone(&world), number).boxed()))
        .collect();
    let mut away = Away::default();
    while world.env.clock.elapsed() < SETTLE + CHURN {
        world.env.clock.sleep(Duration::from_millis(100 + chance.below(2_000))).await;
        let number = chance.index(peers + away.joined);
        change(&world, &mut away, number, &kept, &mut chance).await;
    }
    world.history.event("the churn ends");
    for reader in readers {
        reader.join().await;
    }
}

/// One peer goes, or comes back, or a new one joins.
async fn change(
    world: &Arc<World>,
    away: &mut Away,
    number: usize,
    kept: &[Kept],
    chance: &mut Chance,
) {
    let now = world.env.clock.elapsed();
    if chance.permille(120) && away.joined < NEWCOMERS {
        let newcomer = world.plan.peers - NEWCOMERS + away.joined;
        away.joined += 1;
        world.history.event(format!("peer {newcomer} joins"));
        world.history.tally("event: a peer joins");
        return world.start_peer(newcomer).await;
    }
    if away.gone.contains(&number) {
        if !away.left.contains(&number) {
            world.start_peer(number).await;
            away.gone.remove(&number);
            away.back.insert(number, now);
        }
        return;
    }
    away.back.retain(|_, since| now.saturating_sub(*since) < BACK_FOR);
    let mut without: BTreeSet<usize> = away.gone.iter().chain(away.back.keys()).copied().collect();
    without.insert(number);
    if !kept.iter().all(|one| one.is_there_without(&without)) {
        world.history.tally("churn: as many away as may be");
        return;
    }
    away.gone.insert(number);
    match chance.below(5) {
        0 if away.left.len() < LEAVE_MAX => {
            away.left.insert(number);
            world.history.tally("event: a peer leaves");
            world.leave(number);
        }
        1 | 2 => {
            world.history.tally("event: stop");
            world.stop_peer(number).await;
        }
        _ => {
            world.history.tally("event: kill");
            world.kill_peer(number);
        }
    }
}

/// One reader: the last of them starts anew now and then.
async fn reads(world: Arc<World>, number: usize) {
    let mut chance = Chance::new(world.seed, &format!("reader {number}"));
    while world.env.clock.elapsed() < SETTLE + CHURN {
        world.env.clock.sleep(Duration::from_millis(chance.below(1_500))).await;
        if number == 2 && chance.permille(200) {
            world.leave_author(number);
        }
        if read_one(&world, number, &mut chance).await.is_break() {
            return;
        }
    }
}

async fn read_one(world: &World, number: usize, chance: &mut Chance) -> ControlFlow<()> {
    let running = world.author(number).await;
    let all = world.readable(number);
    let Some((at, address)) = all.get(chance.index(all.len())).copied() else {
        return ControlFlow::Break(());
    };
    let len = world.history.lock().contents[at].bytes.len() as u64;
    let range = chance.permille(500).then(|| {
        let start = chance.below(len);
        start..start + chance.below(len - start + 1)
    });
    if let Some(Err(error)) = world.read(number, &running, at, address, range.clone()).await {
        bytes::check_error(&world.history, "get", &error);
        let text = bytes::text(&error);
        let what = format!("{range:?} of full content {at} cannot be read: {text}");
        world.history.find("Q2", what);
    }
    ControlFlow::Continue(())
}

impl World {
    /// A peer says that it leaves for good, and goes.
    fn leave(&self, number: usize) {
        let now = self.env.clock.unix_ms();
        let word = self.community.announce(number, PeerState::Left, now);
        for (other, peer) in self.peers().iter().enumerate() {
            if let Some(running) = peer.running.as_ref().filter(|_| other != number) {
                let learnt = running.librarian.directory().learn(&word);
                self.history.event(format!("peer {other} hears that {number} left: {learnt:?}"));
            }
        }
        self.kill_peer(number);
    }
}
