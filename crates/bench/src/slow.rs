//! One holder a hundred times slower than the others: what readers see of it.
//!
//! ```text
//! 9 peers, one of them behind a relay; a folder of files is put in stripes
//! well, slow, well, slow, ...     each a `hold get --list` of all files, several times over
//! ```
//! While it is slow, what the holder answers comes so much later that a get which waited for it in
//! each of its calls would take a hundred times as long as one usually does. Both phases go through
//! the relay, and each is a new process that knows nothing of the holders yet. Time is what each get
//! tells; the middle of the phases' 99th percentiles counts. In each slow phase some gets must say that they met a slow holder: an
//! experiment that none is asked in would show nothing.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use placement::Profile;
use serde::{Deserialize, Serialize};

use crate::Bench;
use crate::chart::Chart;
use crate::community::{Community, Home, Kind, PEERS_MAX};
use crate::error::BenchError;
use crate::folder::Folder;
use crate::full::are_full;
use crate::limit::redundancy;
use crate::percentiles::{Latencies, Percentiles, middle};
use crate::program::Run;
use crate::report::{Bar, Report};
use crate::transfer::{same_tree, settle, write_tree};

/// How many times slower the one holder is.
const TIMES: f64 = 100.0;
/// Calls of a get that wait for one another: its envelope, its entry, its pages.
const CALLS: f64 = 3.0;
/// By how much p99 may grow.
const GROWTH_MAX: f64 = 1.2;
/// Gets of each slow phase that say that a holder was down, slow or wrong: where none does, the slow one was never waited for.
const DEGRADED_MIN: f64 = 1.0;
/// Bytes of a file: each of its pages is so long that it counts as large.
const FILE_BYTES: usize = 512 << 10;
/// Different files.
const FILES: usize = 100;
const FILES_QUICK: usize = 4;
/// Gets of one phase at most.
const GETS_MAX: usize = 100_000;
const GETS_QUICK: usize = 16;
const ROUNDS_MAX: usize = 20;
const PHASE_LIMIT: Duration = Duration::from_secs(1800);

/// `hold bench slow`.
#[derive(Clone, Copy, Debug)]
pub struct Slow {
    /// Peer processes, the slow one among them.
    pub peers: usize,
    /// What files are kept as.
    pub profile: Profile,
    /// Gets of a phase.
    pub gets: usize,
    /// How often both phases are measured.
    pub rounds: usize,
}

/// What a run told of one get.
#[derive(Deserialize)]
struct Got {
    seconds: f64,
    degraded: bool,
}

/// One phase.
#[derive(Clone, Copy, Debug, Serialize)]
struct Phase {
    phase: &'static str,
    delay_ms: f64,
    get: Percentiles,
    /// Gets that said that a holder was down, slow or wrong.
    degraded: usize,
}

/// What all phases read.
struct Reading<'a> {
    bench: &'a Bench,
    community: &'a Community,
    home: Home,
    repeats: usize,
}

impl Slow {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Wrong`] where what came out is not what went in.
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        let (files, gets, rounds) = self.checked(bench)?;
        let repeats = gets.div_ceil(files);
        let copies =
            (files * FILE_BYTES) as f64 * (redundancy(self.profile) + repeats as f64 + 1.0);
        Folder::check_room(bench.dir.as_deref(), copies as u64)?;
        let kind = Kind { peers: self.peers, suite: "holdfast-1", profile: Some(self.profile) };
        let mut community = Community::behind_relay(bench, kind)?;
        write_tree(&community.path().join("tree"), (files, FILE_BYTES), bench)?;
        let home = community.home("reader")?;
        let reading = Reading { bench, community: &community, home, repeats };
        reading.put()?;
        // What the very first reads cost is nobody's.
        let first = reading.phase("first", Duration::ZERO)?;
        let mut phases = vec![first];
        for _ in 0..rounds {
            let well = reading.phase("well", Duration::ZERO)?;
            let delay = Duration::from_secs_f64(well.get.p50_ms / 1e3 / CALLS * TIMES);
            phases.extend([well, reading.phase("slow", delay)?]);
        }
        let mut report = Report::new("slow", bench.quick);
        self.conclude(&mut report, &phases)?;
        community.check()?;
        Ok(report)
    }

    /// Files, gets and rounds.
    fn checked(&self, bench: &Bench) -> Result<(usize, usize, usize), BenchError> {
        let wrong = |name, reason| Err(BenchError::Argument { name, reason });
        if !(2..=PEERS_MAX).contains(&self.peers) {
            return wrong("--peers", "from 2 to 64");
        }
        if (redundancy(self.profile) as usize).max(self.profile.peers_min()) > self.peers {
            return wrong("--profile", "a peer for each copy or fragment");
        }
        if !(1..=GETS_MAX).contains(&self.gets) {
            return wrong("--gets", "from 1 to 100000");
        }
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            return wrong("--rounds", "from 1 to 20");
        }
        Ok(if bench.quick {
            (FILES_QUICK, self.gets.min(GETS_QUICK), 1)
        } else {
            (FILES.min(self.gets), self.gets, self.rounds)
        })
    }

    fn conclude(&self, report: &mut Report, phases: &[Phase]) -> Result<(), BenchError> {
        let of = |name: &str, sign: f64| {
            let of = phases.iter().filter(|one| one.phase == name);
            let of: Vec<f64> = of.map(|one| one.get.p99_ms).collect();
            if of.is_empty() { f64::NAN } else { *middle(&of, |p99_ms| p99_ms * sign) }
        };
        // Of an even number the slower of the slow phases, and the faster of those that they are held against.
        let growth = of("slow", -1.0) / of("well", 1.0);
        report.ratio("get_p99_slow_to_well", growth);
        let name = format!(
            "p99 of gets of {}, one of {} holders {TIMES} times slower, to before",
            self.profile, self.peers
        );
        report.bars.push(Bar::at_most(name, growth, GROWTH_MAX));
        let slow = phases.iter().filter(|one| one.phase == "slow");
        let fewest = slow.map(|one| one.degraded).min().map_or(f64::NAN, |fewest| fewest as f64);
        let name = "degraded gets of the slow phase that has the fewest";
        report.bars.push(Bar::at_least(name, fewest, DEGRADED_MIN));
        let names = phases.iter().map(|one| one.phase.to_owned()).collect();
        let points = |of: fn(&Percentiles) -> f64| {
            phases.iter().enumerate().map(|(at, one)| (at as f64, of(&one.get))).collect()
        };
        report.charts.push(
            Chart::bars("Gets while one holder is slow, and while none is", "ms", names)
                .with("p50", points(|get| get.p50_ms))
                .with("p95", points(|get| get.p95_ms))
                .with("p99", points(|get| get.p99_ms)),
        );
        phases.iter().try_for_each(|phase| report.run(phase))
    }
}

impl Reading<'_> {
    /// Puts the files, and writes the list that has each of them several times.
    fn put(&self) -> Result<(), BenchError> {
        let path = self.community.path();
        let (once, list) = (path.join("once"), path.join("list"));
        let file = File::create(&once).map_err(BenchError::io("write", &once))?;
        let mut command = self.home.command(&self.community.program, ["put", "--json"]);
        Run::start(command.arg(path.join("tree")).stdout(file))?
            .finish(PHASE_LIMIT, &self.bench.stop)?;
        let text = fs::read_to_string(&once).map_err(BenchError::io("read", &once))?;
        // A holder that lacks its fragment is not asked for it, however slow it is.
        are_full(&text)?;
        let all = repeated(&text, self.repeats)?;
        fs::write(&list, all).map_err(BenchError::io("write", &list))?;
        settle(self.bench, self.community)
    }

    /// Gets all of the list while the holder's answers are so late.
    fn phase(&self, phase: &'static str, delay: Duration) -> Result<Phase, BenchError> {
        let path = self.community.path();
        let (out, told) = (path.join("out"), path.join("told"));
        self.community.delay(delay);
        let file = File::create(&told).map_err(BenchError::io("write", &told))?;
        let mut command = self.home.command(&self.community.program, ["get", "--json", "--list"]);
        command.arg(path.join("list")).arg("-o").arg(&out).stdout(file);
        Run::start(&mut command)?.finish(PHASE_LIMIT, &self.bench.stop)?;
        self.community.delay(Duration::ZERO);
        let text = fs::read_to_string(&told).map_err(BenchError::io("read", &told))?;
        let (get, degraded) = told_of(&text)?;
        for repeat in 0..self.repeats {
            same_tree(&path.join("tree"), &out.join(repeat.to_string()), self.bench)?;
        }
        fs::remove_dir_all(&out).map_err(BenchError::io("remove", &out))?;
        // What is still on its way comes, and nobody waits for it in the next phase.
        self.bench.stop.sleep(delay)?;
        settle(self.bench, self.community)?;
        let delay_ms = delay.as_secs_f64() * 1e3;
        self.bench.tell(format!(
            "{phase:<5} one holder's answers {delay_ms:>5.0} ms late: {} gets, p50 {:.1}, p95 {:.1}, \
             p99 {:.1}, worst {:.1} ms; {degraded} degraded",
            get.calls, get.p50_ms, get.p95_ms, get.p99_ms, get.max_ms
        ));
        Ok(Phase { phase, delay_ms, get, degraded })
    }
}

/// A list with every line so often, each time below a folder of its own.
fn repeated(list: &str, repeats: usize) -> Result<String, BenchError> {
    let mut all = String::new();
    for repeat in 0..repeats {
        for line in list.lines() {
            let mut put: serde_json::Value = serde_json::from_str(line)?;
            let name = put["name"].as_str().unwrap_or_default();
            put["name"] = Path::new(&repeat.to_string()).join(name).display().to_string().into();
            all += &format!("{put}\n");
        }
    }
    Ok(all)
}

/// The latencies of a run's gets, and how many were degraded.
fn told_of(text: &str) -> Result<(Percentiles, usize), BenchError> {
    let (mut latencies, mut degraded) = (Latencies::default(), 0);
    for line in text.lines() {
        let got: Got = serde_json::from_str(line)?;
        latencies.add(Duration::from_secs_f64(got.seconds.max(0.0)));
        degraded += usize::from(got.degraded);
    }
    Ok((latencies.percentiles(), degraded))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const SLOW: Slow =
        Slow { peers: 9, profile: Profile::Stripe { k: 4, n: 8 }, gets: 10, rounds: 2 };

    fn phase(phase: &'static str, p99_ms: f64) -> Phase {
        let get = Percentiles { calls: 10, p50_ms: 1.0, p95_ms: 1.0, p99_ms, max_ms: p99_ms };
        Phase { phase, delay_ms: 0.0, get, degraded: usize::from(phase == "slow") }
    }

    #[test]
    fn the_middle_of_each_kind_counts() {
        let mut report = Report::new("slow", true);
        let phases = [
            phase("first", 900.0),
            phase("well", 10.0),
            phase("slow", 50.0),
            phase("well", 11.0),
            phase("slow", 12.0),
            phase("well", 90.0),
            phase("slow", 1.0),
        ];
        SLOW.conclude(&mut report, &phases).unwrap();
        assert!((report.ratios["get_p99_slow_to_well"] - 12.0 / 11.0).abs() < 1e-9);
        assert!(report.is_met() && report.runs.len() == 7);
        let mut report = Report::new("slow", true);
        SLOW.conclude(&mut report, &phases[..5]).unwrap();
        assert_eq!(report.ratios["get_p99_slow_to_well"], 5.0, "50 to 10");
    }

    #[test]
    fn a_slow_holder_that_is_never_met_shows_nothing() {
        let met = |phases: &[Phase]| {
            let mut report = Report::new("slow", true);
            SLOW.conclude(&mut report, phases).unwrap();
            report.bars[1].ok
        };
        let (well, slow) = (phase("well", 10.0), phase("slow", 10.0));
        assert!(met(&[well, slow, well, slow]));
        assert!(!met(&[well, slow, well, Phase { degraded: 0, ..slow }]), "in each of them");
        assert!(!met(&[well]), "there was none");
    }

    #[test]
    fn a_list_is_repeated_below_folders() {
        let once = "{\"address\":\"a\",\"name\":\"d/f\"}\n{\"address\":\"b\",\"name\":\"g\"}\n";
        let all = repeated(once, 2).unwrap();
        let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let names: Vec<_> = all.lines().map(|at| line(at)["name"].clone()).collect();
        assert_eq!(names, ["0/d/f", "0/g", "1/d/f", "1/g"]);
    }

    #[test]
    fn what_gets_tell_is_counted() {
        let text = "{\"seconds\":0.002,\"degraded\":true}\n{\"seconds\":0.001,\"degraded\":false}";
        let (get, degraded) = told_of(text).unwrap();
        assert_eq!((get.calls, get.max_ms, degraded), (2, 2.0, 1));
        assert!(told_of("what").is_err());
    }
}
