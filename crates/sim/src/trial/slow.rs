//! Q8: one holder answers a hundred times slower than the others, and readers take no longer.
//!
//! The same network is run twice, once with the slow holder and once without, and the same reads are timed in virtual time by
//! one reader that starts with no idea of who is slow: copies and stripes, whole and in part. Compared is the 99th percentile of each.

use author::PutOptions;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use placement::Profile;
use testkit::network::Fault;

use crate::chance::Chance;
use crate::check::bytes;
use crate::plan::Plan;
use crate::run::{Report, RunOptions, in_world};
use crate::wires::Weather;
use crate::world::World;

/// How much slower the one holder is.
const TIMES_SLOWER: u32 = 100;
/// By how much the 99th percentile may grow, in percent.
const GROWTH_PERCENT_MAX: u32 = 20;
/// Reads of each kind that are timed.
const READS: usize = 400;
/// Contents of each size, so that the slow peer holds something of most kinds.
const CONTENTS: usize = 3;
/// Sizes and profiles: in the entry, as copies, as stripes of small and of large fragments.
const KEPT: [(usize, Option<Profile>); 4] = [
    (1_000, None),
    (40_000, Some(Profile::Copies(3))),
    (40_000, Some(Profile::Stripe { k: 4, n: 8 })),
    (300_000, Some(Profile::Stripe { k: 4, n: 8 })),
];
const SETTLE: Duration = Duration::from_secs(5);

/// What one kind of reads took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Which reads.
    pub what: &'static str,
    /// The 99th percentile without a slow holder.
    pub usual: Duration,
    /// The same with it.
    pub slowed: Duration,
}

impl Compared {
    /// Whether it grew by less than the promise allows.
    pub fn is_kept(&self) -> bool {
        self.slowed * 100 < self.usual * (100 + GROWTH_PERCENT_MAX)
    }
}

type Times = Arc<Mutex<BTreeMap<&'static str, Vec<Duration>>>>;

/// Runs the network of this seed without and with a slow holder: both reports, and the reads compared.
pub fn slow(seed: u64, options: RunOptions) -> ([Report; 2], Vec<Compared>) {
    let mut chance = Chance::new(seed, "network of slow holders");
    let peers = chance.one(&[9, 10, 12, 14]);
    // What is compared is the holder, so nothing else differs.
    let plan = Plan { instant_disks: true, ..Plan::quiet(peers, 3, 1) };
    let timed = [false, true].map(|is_slow| {
        let times = Times::default();
        let taken = Arc::clone(&times);
        let report = in_world(seed, options, plan.clone(), async move |world| {
            run(&world, is_slow, &taken).await;
        });
        (report, std::mem::take(&mut *times.lock().unwrap_or_else(PoisonError::into_inner)))
    });
    let [(usual_report, usual), (slow_report, slowed)] = timed;
    let compared = usual.into_iter().map(|(what, usual)| Compared {
        what,
        usual: p99(usual),
        slowed: slowed.get(what).cloned().map_or(Duration::MAX, p99),
    });
    ([usual_report, slow_report], compared.collect())
}

/// The 99th percentile.
fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() * 99 / 100).copied().unwrap_or(Duration::MAX)
}

async fn run(world: &Arc<World>, is_slow: bool, times: &Times) {
    let mut chance = Chance::new(world.seed, "slow holder");
    for number in 0..world.plan.peers {
        world.start_peer(number).await;
    }
    world.env.clock.sleep(SETTLE).await;
    let mut contents = Vec::new();
    for (len, profile) in KEPT.into_iter().cycle().take(KEPT.len() * CONTENTS) {
        let options = PutOptions { profile, ..PutOptions::default() };
        let Some(put) = world.put_kept(0, len, options, &[], &mut chance).await else { return };
        world.check_calm(&put, world.plan.peers);
        contents.push((put.at, matches!(profile, Some(Profile::Stripe { .. }))));
    }
    // A page's holder: of the last stripe that was put, so of others' too.
    let slow = {
        let history = world.history.lock();
        let holders = history.contents.last().map(|last| last.promise.holders.clone());
        holders.and_then(|holders| holders.first().copied()).unwrap_or_default()
    };
    // As in one building, or as in one country.
    let delay_ms_max = chance.one(&[2, 20, 60]);
    let weather = Weather { delay_ms_max, late_permille: 1000, ..Weather::CALM };
    world.wires.set_weather(weather);
    if is_slow {
        let there_and_back = Duration::from_micros(400 + delay_ms_max * 1000);
        let fault = Fault::Delay(there_and_back * TIMES_SLOWER);
        world.history.event(format!("peer {slow}: {fault:?}"));
        world.direct.set(&world.community.peer(slow), fault);
    }
    world.kill_author(0);
    let running = world.author(0).await;
    for read in 0..READS * 4 {
        let (is_part, is_striped) = (read % 2 == 1, read % 4 >= 2);
        let of_kind: Vec<usize> = contents
            .iter()
            .filter(|(_, striped)| *striped == is_striped)
            .map(|one| one.0)
            .collect();
        let at = of_kind[chance.index(of_kind.len())];
        let (address, len) = {
            let content = &world.history.lock().contents[at];
            (content.address, content.bytes.len() as u64)
        };
        let start = chance.below(len);
        let range = is_part.then(|| start..(start + 1 + chance.below(500)).min(len));
        let since = world.env.clock.elapsed();
        if let Some(Err(error)) = world.read(0, &running, at, address, range).await {
            let what = format!("a read failed beside a slow holder: {}", bytes::text(&error));
            world.history.find("Q8", what);
        }
        let took = world.env.clock.elapsed() - since;
        let what = match (is_striped, is_part) {
            (false, false) => "copies, whole",
            (false, true) => "copies, a range",
            (true, false) => "stripes, whole",
            (true, true) => "stripes, a range",
        };
        times.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default().push(took);
    }
}
