//! Peers are killed with -9 and started again, round after round, while files and versions are put and read all the time.
//!
//! ```text
//! round:  kill one or two of those that run -> a moment -> start them again -> the rest of the round
//!         now and then one stays down until the network does without it, and comes back with what it had
//! after:  all run; nobody helps; until everybody says that nothing lacks, and every copy and fragment was read and proven
//!         everything that was ever acknowledged is read and compared
//! ```
//! At most two are down at once, which is what stripes of nine peers and copies on three survive for readers; writers may be
//! refused meanwhile, and what was refused does not count. Which peers, when, and what is put comes from one seed; what
//! happens between processes does not repeat.

mod traffic;

use std::sync::Arc;
use std::time::{Duration, Instant};

use placement::Profile;
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::Bench;
use crate::chart::Chart;
use crate::community::{Community, Down, Kind, PEERS_MAX, Shape};
use crate::error::BenchError;
use crate::folder::Folder;
use crate::report::{Bar, Report};
use crate::seeded::Seeded;
use traffic::{Counts, READ_LIMIT, Traffic};

/// Peers down at once, at most.
const DOWN_MAX: usize = 2;
/// How long a round takes, unless peers start slowly.
const ROUND: Duration = Duration::from_millis(1_200);
/// How long those that were killed stay down in a round, at most.
const DOWN_FOR: Duration = Duration::from_millis(800);
/// One peer in so many rounds stays down for [`LONG_ROUNDS`], so that the network does without it.
const LONG_ONE_IN: usize = 25;
const LONG_ROUNDS: usize = 15;
/// What the peers are set to: faster than by themselves, so that all that repair does happens while peers are killed.
const ABSENT_AFTER_S: u64 = 8;
const SETTINGS: &str = "compare_s = 1\nsettle_s = 3\nsurplus_after_s = 20\naudit_s = 5\n";
/// How long the network may take afterwards until everything is at full redundancy.
const WHOLE_LIMIT: Duration = Duration::from_secs(900);
/// How long nobody may know of anything that lacks until it is looked at from outside: every pair compared.
const QUIET_LOOKS: usize = 20;
const LOOK_EVERY: Duration = Duration::from_secs(1);
const ROUNDS_MAX: usize = 100_000;
const QUICK_ROUNDS: usize = 10;
/// The largest file.
const LARGEST: usize = 3 << 20;
const LARGEST_QUICK: usize = 1 << 20;
/// Bytes of disk that a round takes at most.
const ROUND_BYTES: u64 = 6 << 20;
/// Points of the chart.
const POINTS: usize = 200;

/// `hold bench rounds`.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// Peer processes.
    pub peers: usize,
    /// Organisations that they belong to, in turn.
    pub organisations: usize,
    /// How often peers are killed.
    pub rounds: usize,
    /// Of who is killed and when, and of what is put.
    pub seed: u64,
}

/// What the rounds were.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Killed {
    seed: u64,
    rounds: usize,
    kills: usize,
    /// Of them, peers that stayed down until the network did without them.
    long: usize,
    seconds: f64,
}

/// What was there afterwards.
#[derive(Clone, Copy, Debug, Serialize)]
struct After {
    #[serde(flatten)]
    counts: Counts,
    /// Files of which a copy or a fragment lacked after all.
    lacking: usize,
    /// Files and versions that were not as they were put.
    lost: usize,
    whole_after_s: f64,
}

/// A row of the chart.
type Sample = (f64, Counts);

impl Rounds {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Program`] where a peer does not start again.
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        let this = self.checked(bench)?;
        Folder::check_room(bench.dir.as_deref(), (1 << 30) + this.rounds as u64 * ROUND_BYTES)?;
        let profile = Profile::by_peers(this.peers);
        let kind = Kind { peers: this.peers, suite: "holdfast-1", profile: Some(profile) };
        let settings = format!("\n[repair]\nabsent_after_s = {ABSENT_AFTER_S}\n{SETTINGS}");
        let shape = Shape { organisations: this.organisations, settings };
        let mut community = Community::shaped(bench, kind, shape)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(BenchError::io("start", "a runtime"))?;
        let largest = if bench.quick { LARGEST_QUICK } else { LARGEST };
        let traffic = runtime.block_on(Traffic::new(&community, largest, &bench.stop))?;
        bench.tell(format!("seed {}: {} rounds, {} peers", this.seed, this.rounds, this.peers));
        let mut tasks = {
            let _within = runtime.enter();
            traffic.start(this.seed)
        };
        let (killed, samples) = this.kill_all(bench, &mut community, &traffic)?;
        traffic.end();
        let since = Instant::now();
        runtime.block_on(async { while tasks.join_next().await.is_some() {} });
        let whole = this.whole(bench, &community, &traffic, &runtime, since)?;
        let lost = runtime.block_on(traffic.lost());
        let after = After {
            counts: traffic.counts(),
            lacking: whole.1,
            lost,
            whole_after_s: whole.0.as_secs_f64(),
        };
        traffic.told().iter().for_each(|line| bench.tell(line));
        community.check()?;
        let mut report = Report::new("rounds", bench.quick);
        report.run(&killed)?;
        report.run(&after)?;
        conclude(&mut report, &killed, &after, &samples);
        Ok(report)
    }

    fn checked(&self, bench: &Bench) -> Result<Self, BenchError> {
        let wrong = |name, reason| Err(BenchError::Argument { name, reason });
        if !(5..=PEERS_MAX).contains(&self.peers) {
            return wrong("--peers", "from 5 to 64: two are down at once");
        }
        if !(3..=self.peers).contains(&self.organisations) {
            return wrong("--organisations", "from 3 to the number of peers");
        }
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            return wrong("--rounds", "from 1 to 100000");
        }
        let rounds = if bench.quick { self.rounds.min(QUICK_ROUNDS) } else { self.rounds };
        Ok(Self { rounds, ..*self })
    }

    /// All rounds; afterwards all peers run.
    fn kill_all(
        &self,
        bench: &Bench,
        community: &mut Community,
        traffic: &Arc<Traffic>,
    ) -> Result<(Killed, Vec<Sample>), BenchError> {
        let mut draws = Seeded::new(self.seed);
        let mut killed = Killed { seed: self.seed, rounds: self.rounds, ..Killed::default() };
        // The one that stays down for long, and the round in which it comes back.
        let mut long: Option<(usize, Down)> = None;
        let (started, mut samples) = (Instant::now(), Vec::new());
        for round in 0..self.rounds {
            let began = Instant::now();
            let room = DOWN_MAX - usize::from(long.is_some());
            let mut down = Vec::new();
            for _ in 0..=draws.below(room) {
                down.push(community.kill(draws.below(community.peers.len())));
            }
            killed.kills += down.len();
            bench.stop.sleep(DOWN_FOR.mul_f64(draws.unit()))?;
            let stays = round == self.rounds / 4 || draws.below(LONG_ONE_IN) == 0;
            if long.is_none() && stays {
                long = down.pop().map(|one| (round + LONG_ROUNDS, one));
                killed.long += 1;
            }
            if let Some((_, back)) = long.take_if(|(until, _)| *until <= round) {
                down.push(back);
            }
            community.restart(down)?;
            bench.stop.sleep(ROUND.saturating_sub(began.elapsed()))?;
            if round % self.rounds.div_ceil(POINTS) == 0 {
                samples.push((started.elapsed().as_secs_f64(), traffic.counts()));
            }
            if (round + 1) % self.rounds.div_ceil(20) == 0 {
                let counts = traffic.counts();
                let Counts { files, versions, reads, late, wrong, .. } = counts;
                bench.tell(format!(
                    "round {:>5}: {} kills; {files} files and {versions} versions acknowledged, {reads} reads, {late} late, {wrong} wrong",
                    round + 1,
                    killed.kills
                ));
                community.check()?;
            }
        }
        community.restart(long.into_iter().map(|(_, down)| down).collect())?;
        samples.push((started.elapsed().as_secs_f64(), traffic.counts()));
        killed.seconds = started.elapsed().as_secs_f64();
        Ok((killed, samples))
    }

    /// Waits until nobody knows of anything that lacks and nothing does: how long that took from the last round on, and how
    /// many files lack something where it did not come to that in time.
    fn whole(
        &self,
        bench: &Bench,
        community: &Community,
        traffic: &Arc<Traffic>,
        runtime: &Runtime,
        since: Instant,
    ) -> Result<(Duration, usize), BenchError> {
        let (mut quiet, mut lacking) = (0, usize::MAX);
        while since.elapsed() < WHOLE_LIMIT {
            bench.stop.sleep(LOOK_EVERY)?;
            quiet = if self.is_quiet(community)? { quiet + 1 } else { 0 };
            if quiet < QUIET_LOOKS {
                continue;
            }
            // It was so when they had all been quiet for so long.
            let took = since.elapsed();
            lacking = runtime.block_on(traffic.lacking());
            let told = traffic.told();
            bench.tell(format!(
                "{:.0} s: all say that nothing lacks; of files, {lacking} do",
                took.as_secs_f64()
            ));
            if lacking == 0 {
                return Ok((took, 0));
            }
            told.iter().take(10).for_each(|line| bench.tell(line));
            quiet = 0;
        }
        Ok((since.elapsed(), lacking))
    }

    /// Whether every peer knows all others well, and of nothing that lacks.
    fn is_quiet(&self, community: &Community) -> Result<bool, BenchError> {
        for peer in &community.peers {
            let status = peer.status()?;
            let repair = &status["repair"];
            let nobody = |list: &str| repair[list].as_array().is_some_and(Vec::is_empty);
            let well = status["peers"]["healthy"].as_u64() == Some(self.peers as u64 - 1)
                && nobody("absent")
                && repair["settled"] == true
                && repair["mending"] == 0;
            if !well {
                return Ok(false);
            }
        }
        Ok(community.peers.len() == self.peers)
    }
}

fn conclude(report: &mut Report, killed: &Killed, after: &After, samples: &[Sample]) {
    let Counts { files, versions, reads, late, wrong, .. } = after.counts;
    let kept = format!(
        "of {files} files and {versions} versions acknowledged during {} kills, lost",
        killed.kills
    );
    let bars = [
        (kept, after.lost),
        (format!("of {reads} reads meanwhile, with a wrong byte"), wrong),
        (format!("of {reads} reads meanwhile, not answered in {} s", READ_LIMIT.as_secs()), late),
        ("files that lack a copy or a fragment afterwards".to_owned(), after.lacking),
    ];
    for (name, count) in bars {
        report.bars.push(Bar::at_most(name, count as f64, 0.0));
    }
    let seconds = "seconds from the last round to full redundancy, without help";
    report.bars.push(Bar::at_most(seconds, after.whole_after_s, WHOLE_LIMIT.as_secs_f64()));
    // Where nothing was written, or nothing read, nothing was shown.
    report.bars.push(Bar::at_least("files acknowledged", files as f64, 1.0));
    report.bars.push(Bar::at_least("versions acknowledged", versions as f64, 1.0));
    report.bars.push(Bar::at_least("reads while peers are killed", reads as f64, 1.0));
    let points = |of: fn(&Counts) -> usize| {
        samples.iter().map(|(at, counts)| (*at, of(counts) as f64)).collect::<Vec<_>>()
    };
    report.charts.push(
        Chart::lines("While peers are killed", "seconds", "so far")
            .with("files acknowledged", points(|counts| counts.files))
            .with("versions acknowledged", points(|counts| counts.versions))
            .with("reads", points(|counts| counts.reads))
            .with("reads tried again", points(|counts| counts.reads_again))
            .with("puts refused", points(|counts| counts.puts_refused)),
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn bench(quick: bool) -> Bench {
        let (stop, tell) = (crate::Stop::default(), Box::new(|_: &str| ()));
        Bench { program: "hold".into(), dir: None, quick, stop, tell }
    }

    #[test]
    fn numbers_have_bounds_and_a_quick_run_has_few_rounds() {
        let of = |peers, organisations, rounds| Rounds { peers, organisations, rounds, seed: 1 };
        assert_eq!(of(9, 3, 1_000).checked(&bench(true)).unwrap().rounds, QUICK_ROUNDS);
        assert_eq!(of(9, 3, 1_000).checked(&bench(false)).unwrap().rounds, 1_000);
        for bad in [of(4, 3, 1), of(65, 3, 1), of(9, 2, 1), of(9, 10, 1), of(9, 3, 0)] {
            let refused = bad.run(&bench(true));
            assert!(matches!(refused, Err(BenchError::Argument { .. })), "{bad:?}");
        }
    }

    #[test]
    fn whatever_is_lost_late_wrong_or_lacking_misses_a_bar() {
        let good = Counts { files: 5, versions: 5, reads: 9, ..Counts::default() };
        let met = |counts, lacking, lost| {
            let mut report = Report::new("rounds", true);
            let after = After { counts, lacking, lost, whole_after_s: 1.0 };
            conclude(&mut report, &Killed::default(), &after, &[]);
            report.is_met()
        };
        assert!(met(good, 0, 0));
        assert!(!met(good, 1, 0) && !met(good, 0, 1));
        assert!(!met(Counts { late: 1, ..good }, 0, 0) && !met(Counts { wrong: 1, ..good }, 0, 0));
        assert!(!met(Counts { versions: 0, ..good }, 0, 0), "nothing was written");
        assert!(!met(Counts { reads: 0, ..good }, 0, 0), "nothing was read");
    }
}
