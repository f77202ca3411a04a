//! Three times what the peers can do, and what is left afterwards.
//!
//! ```text
//! saturation? -> 0.8x (before) -> 3x for two minutes -> 0.8x (after) -> every acknowledged record
//!                 p99              refusals in time      p99 again         read back
//! ```
//! The saturation is a rate that holds for as long as the load before: what holds for eight seconds may be over what holds for
//! thirty, and 0.8 of it then too. p99 is that of answered requests, so it says something only where nearly all are answered, which is
//! asked of the load before and of every window that counts as recovered; and the overload must have been one. Documents are small, so that it is requests that overload and not this machine's disk. A refused
//! upload is not tried again: its clients would, after the delay they were told.

use std::sync::Arc;

use placement::Profile;
use serde::Serialize;

use crate::Bench;
use crate::chart::Chart;
use crate::community::{Community, Kind, PEERS_MAX};
use crate::error::BenchError;
use crate::libri;
use crate::load::clients::Clients;
use crate::load::documents::Sizes;
use crate::load::{self, Load, Outcome, REQUESTS};
use crate::percentiles::Percentiles;
use crate::report::{Bar, Report};

/// The load before and after, and the overload, in parts of the saturation.
const CALM: f64 = 0.8;
const OVER: f64 = 3.0;
/// By how much p99 may be above what it was, and how soon it must be.
const P99_RATIO_MAX: f64 = 1.2;
const RECOVERY_MAX_S: f64 = 60.0;
/// How long the load after it is watched.
const AFTER_S: f64 = 75.0;
/// Windows in which p99 is looked at.
const WINDOW_S: f64 = 5.0;
/// The part of what arrives that is answered meanwhile: in the load before, and in a window that counts as recovered.
const ANSWERED_MIN: f64 = 0.95;
/// The part of what arrives that is not, in an overload that is one.
const OVERLOADED_MIN: f64 = 0.1;
/// Uploads of each load at least: where the machine holds next to nothing, there is something to answer and to read back all the same.
const UPLOADS_MIN: f64 = 8.0;
/// Requests a second that hold: any, so that there is a saturation.
const REQUESTS_MIN: f64 = 1.0;
/// The part of the windows behind a recovery that may miss its bar, where of the load before no more did; one may in any case.
const RELAPSED_MAX: f64 = 0.25;
const SIZES: Sizes = Sizes { shape: 1.5, scale: 4e3 };

/// `hold bench overload`.
#[derive(Clone, Copy, Debug)]
pub struct Overload {
    /// Peer processes.
    pub peers: usize,
    /// Seconds of overload.
    pub seconds: f64,
    /// Of arrivals, sizes and entry peers.
    pub seed: u64,
}

/// One of the three loads.
#[derive(Clone, Debug, Serialize)]
struct Phase {
    phase: &'static str,
    seconds: f64,
    offered_requests_a_second: f64,
    answered_requests_a_second: f64,
    /// Of those that arrived, which is what the draws gave of what was offered.
    answered_part: f64,
    all: Percentiles,
    put: Percentiles,
    get: Percentiles,
    refused: usize,
    retry_after_max_ms: f64,
    failed: usize,
    failure: Option<String>,
    shed: usize,
    acknowledged: usize,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
struct Recovery {
    saturation_requests_a_second: f64,
    /// Whether that held for as long as the load before.
    saturation_held: bool,
    p99_before_ms: f64,
    /// The part of its own windows that missed the bar for those after.
    windows_missed_before: f64,
    /// Seconds after the overload until a window was back to which no relapse followed; null where none was.
    recovered_after_s: f64,
    acknowledged: usize,
    missing: usize,
}

impl Overload {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Wrong`] where a get answered other bytes than were put.
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        if !(1..=PEERS_MAX).contains(&self.peers) {
            return Err(BenchError::Argument { name: "--peers", reason: "from 1 to 64" });
        }
        if !(0.5..=3600.0).contains(&self.seconds) {
            return Err(BenchError::Argument { name: "--seconds", reason: "from 0.5 to an hour" });
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(BenchError::io("start", "a runtime"))?;
        let kind = Kind { peers: self.peers, suite: "libri-1", profile: Some(Profile::Copies(3)) };
        let mut community = Community::start(bench, kind)?;
        let report = runtime.block_on(self.measure(bench, &community))?;
        community.check()?;
        Ok(report)
    }

    async fn measure(&self, bench: &Bench, community: &Community) -> Result<Report, BenchError> {
        let clients = Clients::new(community, &bench.stop).await?;
        libri::warm(bench, &clients, self.peers, self.seed).await?;
        let step = if bench.quick { 1.0 } else { 8.0 };
        let search =
            libri::Search { start: 40.0, seconds: step, sizes: SIZES, cpu: &|| community.cpu() };
        let saturation = libri::saturation(bench, &clients, search).await?.max(REQUESTS);
        let over = if bench.quick { self.seconds.min(2.0) } else { self.seconds };
        let (before, after) = if bench.quick { (2.0, 6.0) } else { (over.min(30.0), AFTER_S) };
        let search = libri::Search { start: saturation / REQUESTS, seconds: before, ..search };
        let (saturation, held) = libri::sustained(bench, &clients, search).await?;
        let without = if held { "" } else { ", which did not hold" };
        bench.tell(format!("saturation: {saturation:.0} requests/s{without}"));
        let phases = [("before", CALM, before), ("overload", OVER, over), ("after", CALM, after)];
        let mut report = Report::new("overload", bench.quick);
        let mut outcomes = Vec::new();
        for (number, (name, part, seconds)) in phases.into_iter().enumerate() {
            let load = Load {
                uploads_a_second: uploads_a_second(saturation * part, seconds),
                seconds,
                sizes: SIZES,
                seed: self.seed.wrapping_add(number as u64),
            };
            let outcome = load::run(&clients, load, &bench.stop).await?;
            let phase = Phase::new(name, load, &outcome);
            bench.tell(phase.line());
            report.run(&phase)?;
            outcomes.push((outcome, seconds));
        }
        let saturation = (saturation, held);
        self.conclude(bench, &clients, saturation, &outcomes, &mut report).await?;
        Ok(report)
    }

    async fn conclude(
        &self,
        bench: &Bench,
        clients: &Arc<Clients>,
        (saturation, held): (f64, bool),
        outcomes: &[(Outcome, f64)],
        report: &mut Report,
    ) -> Result<(), BenchError> {
        let [(before, before_s), (over, over_s), (after, after_s)] = outcomes else {
            return Ok(());
        };
        let p99_before_ms = before.between(0, u32::MAX, |_| true).percentiles().p99_ms;
        let acknowledged: Vec<_> =
            outcomes.iter().flat_map(|(outcome, _)| outcome.acknowledged.iter().copied()).collect();
        bench.tell(format!("reading back {} acknowledged records", acknowledged.len()));
        let missing = clients.missing(&acknowledged, &bench.stop).await?;
        let bar = p99_before_ms * P99_RATIO_MAX;
        let missed_before = missed(before, bar, *before_s);
        let recovered_after_s = recovered(after, bar, *after_s, missed_before);
        report.run(&Recovery {
            saturation_requests_a_second: saturation,
            saturation_held: held,
            p99_before_ms,
            windows_missed_before: missed_before,
            recovered_after_s,
            acknowledged: acknowledged.len(),
            missing,
        })?;
        report.bars.extend(loads((saturation, held), (before, *before_s), (over, *over_s)));
        let name = format!("seconds until p99 is within {P99_RATIO_MAX} of before");
        report.bars.push(Bar::at_most(name, recovered_after_s, RECOVERY_MAX_S));
        let name = format!("of {} acknowledged records, missing", acknowledged.len());
        report.bars.push(Bar::at_most(name, missing as f64, 0.0));
        report.charts.push(chart(outcomes, p99_before_ms));
        Ok(())
    }
}

impl Phase {
    fn new(phase: &'static str, load: Load, outcome: &Outcome) -> Self {
        Self {
            phase,
            seconds: load.seconds,
            offered_requests_a_second: load.uploads_a_second * REQUESTS,
            answered_requests_a_second: outcome.answered_a_second(load.seconds),
            answered_part: outcome.answered_part(0, ms(load.seconds)),
            all: outcome.between(0, u32::MAX, |_| true).percentiles(),
            put: outcome.latencies(true).percentiles(),
            get: outcome.latencies(false).percentiles(),
            refused: outcome.busy,
            retry_after_max_ms: outcome.retry_after_max.as_secs_f64() * 1e3,
            failed: outcome.failed,
            failure: outcome.failure.as_ref().map(ToString::to_string),
            shed: outcome.shed,
            acknowledged: outcome.acknowledged.len(),
        }
    }

    fn line(&self) -> String {
        format!(
            "{:>8}: {:.0} requests/s offered, {:.0} answered, p50 {:.1} ms, p99 {:.1} ms; \
             {} refused with a delay (at most {:.0} ms), {} failed{}, {} not started",
            self.phase,
            self.offered_requests_a_second,
            self.answered_requests_a_second,
            self.all.p50_ms,
            self.all.p99_ms,
            self.refused,
            self.retry_after_max_ms,
            self.failed,
            self.failure.as_ref().map(|failure| format!(" ({failure})")).unwrap_or_default(),
            self.shed
        )
    }
}

/// The uploads a second of a load of so many requests a second, which lasts so many.
fn uploads_a_second(requests_a_second: f64, seconds: f64) -> f64 {
    (requests_a_second / REQUESTS).max(UPLOADS_MIN / seconds)
}

/// That the loads were what they are taken for: a rate that holds, one that is answered, and one that cannot be.
fn loads(
    (saturation, held): (f64, bool),
    (before, before_s): (&Outcome, f64),
    (over, over_s): (&Outcome, f64),
) -> [Bar; 3] {
    let saturation = if held { saturation } else { f64::NAN };
    let name = format!("requests/s that hold for {before_s:.0} s");
    let (answered, unanswered) =
        (before.answered_part(0, ms(before_s)), 1.0 - over.answered_part(0, ms(over_s)));
    [
        Bar::at_least(name, saturation, REQUESTS_MIN),
        Bar::at_least(
            "part of the requests before that was answered in time",
            answered,
            ANSWERED_MIN,
        ),
        Bar::at_least("part of the overload's that was not", unanswered, OVERLOADED_MIN),
    ]
}

fn ms(seconds: f64) -> u32 {
    (seconds * 1000.0) as u32
}

/// Where the windows of a load of so many seconds begin: the first, and each `step` behind the one before.
fn windows(first: f64, step: f64, seconds: f64) -> impl Iterator<Item = f64> {
    let window = window(seconds);
    let from = (0_u32..).map(move |number| first + f64::from(number) * step);
    from.take_while(move |from| from + window <= seconds + 1e-9)
}

/// The seconds in which p99 is looked at, of a load of so many.
fn window(seconds: f64) -> f64 {
    WINDOW_S.min(seconds / 4.0)
}

/// Whether the window that begins there is as the load before was.
fn is_back(outcome: &Outcome, bar: f64, from: f64, window: f64) -> bool {
    let (from, to) = (ms(from), ms(from + window));
    let p99 = outcome.between(from, to, |_| true).percentiles().p99_ms;
    p99 <= bar && outcome.answered_part(from, to) >= ANSWERED_MIN
}

/// The part of a load's windows, one behind the other, that are not as the load before was.
fn missed(outcome: &Outcome, bar: f64, seconds: f64) -> f64 {
    let window = window(seconds);
    let each = || windows(0.0, window, seconds);
    let missed = each().filter(|from| !is_back(outcome, bar, *from, window)).count();
    missed as f64 / each().count().max(1) as f64
}

/// The end of the first window that is back, and behind which at most [`RELAPSED_MAX`] of the windows are not, or as many as of
/// the load before its own bar, or one; not a number where there is none. One window of five seconds may be another program's, and p99 of some
/// hundred requests is that of a few, so that some windows miss 1.2 of what all together have though nothing is wrong; but peers
/// that are well for a moment and not afterwards have not recovered.
fn recovered(after: &Outcome, bar: f64, seconds: f64, missed_before: f64) -> f64 {
    let window = window(seconds);
    let back = |from: f64| is_back(after, bar, from, window);
    let may_miss = RELAPSED_MAX.max(missed_before);
    let stays = |from: f64| {
        let behind: Vec<bool> = windows(from, window, seconds).map(back).collect();
        let missed = behind.iter().filter(|back| !**back).count();
        missed <= ((behind.len() as f64 * may_miss) as usize).max(1)
    };
    let mut ends =
        windows(0.0, window / 5.0, seconds).filter(|from| back(*from)).map(|from| from + window);
    ends.find(|end| stays(*end)).unwrap_or(f64::NAN)
}

/// p99 over time, the three loads one after the other.
fn chart(outcomes: &[(Outcome, f64)], before: f64) -> Chart {
    let (mut points, mut answered, mut offset) = (Vec::new(), Vec::new(), 0.0);
    for (outcome, seconds) in outcomes {
        let step = (seconds / 20.0).clamp(0.25, WINDOW_S);
        let mut from = 0.0;
        while from + step <= *seconds + 1e-9 {
            let window = outcome.between(ms(from), ms(from + step), |_| true).percentiles();
            points.push((offset + from + step, window.p99_ms));
            answered.push((offset + from + step, window.calls as f64 / step));
            from += step;
        }
        offset += seconds;
    }
    let bar = vec![(0.0, before * P99_RATIO_MAX), (offset, before * P99_RATIO_MAX)];
    Chart::lines("Overload: 0.8x, 3x, 0.8x of the saturation", "seconds", "ms, requests/s")
        .log(false, true)
        .with("p99, ms", points)
        .with("answered, requests/s", answered)
        .beside("1.2 of before", bar)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Ten uploads a second: of each second's, how long each answer took, and how many of its eight requests were answered.
    fn outcome(seconds: u32, of: impl Fn(u32) -> (u32, usize)) -> Outcome {
        let mut outcome = Outcome::default();
        for at_ms in (0..seconds * 1000).step_by(100) {
            let (took, answered) = of(at_ms / 1000);
            outcome.arrive(at_ms);
            (0..answered).for_each(|_| outcome.answer(true, at_ms, took));
        }
        outcome
    }

    #[test]
    fn recovery_is_the_end_of_the_first_good_window() {
        let slow_at_first = outcome(20, |second| (if second < 7 { 500 } else { 10 }, 8));
        let after = recovered(&slow_at_first, 12.0, 20.0, 0.0);
        assert!((11.0..=13.0).contains(&after), "{after}");
        assert!(recovered(&slow_at_first, 1.0, 20.0, 0.0).is_nan());
        assert!(
            recovered(&Outcome::default(), 1.0, 20.0, 0.0).is_nan(),
            "no answers are no recovery"
        );
        assert!(!chart(&[(slow_at_first, 20.0)], 10.0).is_empty());
    }

    #[test]
    fn fast_answers_to_few_are_no_recovery() {
        assert!(recovered(&outcome(75, |_| (1, 1)), 12.0, 75.0, 0.0).is_nan());
        let refused_at_first = outcome(75, |second| (1, if second < 20 { 1 } else { 8 }));
        let after = recovered(&refused_at_first, 12.0, 75.0, 0.0);
        assert!((24.0..=26.0).contains(&after), "{after}");
    }

    #[test]
    fn one_bad_window_behind_it_is_none_and_more_are_a_relapse() {
        let bad = |from: u32, to: u32| {
            outcome(75, move |second| (if (from..to).contains(&second) { 500 } else { 10 }, 8))
        };
        let after = |outcome: &Outcome| recovered(outcome, 12.0, 75.0, 0.0);
        assert_eq!(after(&bad(30, 35)), 5.0, "one of fourteen");
        assert_eq!(after(&bad(60, 75)), 5.0, "three of fourteen");
        assert_eq!(after(&bad(70, 75)), 5.0);
        // From 5 s to 70 all are bad: what is good before them is no recovery, and the last window is one.
        assert_eq!(after(&bad(5, 70)), 75.0);
        let half = after(&bad(20, 50));
        assert!((54.0..=56.0).contains(&half), "{half}");
        assert!(after(&bad(5, 75)).is_nan());
        // Where half of the load before missed its own bar, half may of the one after.
        let before = bad(0, 15);
        let half_before = missed(&before, 12.0, 30.0);
        assert_eq!(half_before, 0.5);
        assert_eq!(recovered(&bad(20, 50), 12.0, 75.0, half_before), 5.0);
        assert!(recovered(&bad(5, 75), 12.0, 75.0, half_before).is_nan());
        assert_eq!(missed(&bad(0, 0), 12.0, 75.0), 0.0);
    }

    #[test]
    fn loads_that_are_not_what_they_are_taken_for_miss_a_bar() {
        let (well, half) = (outcome(10, |_| (1, 8)), outcome(10, |_| (1, 4)));
        let met = |held, before: &Outcome, over: &Outcome| {
            loads((800.0, held), (before, 10.0), (over, 10.0)).map(|bar| bar.ok)
        };
        assert_eq!(met(true, &well, &half), [true, true, true]);
        assert_eq!(met(false, &well, &half), [false, true, true], "no rate held");
        assert_eq!(met(true, &half, &half), [true, false, true], "half was refused before");
        assert_eq!(met(true, &well, &well), [true, true, false], "it was no overload");
        let nothing = Outcome::default();
        assert_eq!(met(true, &nothing, &nothing), [true, false, false], "nothing arrived");
    }

    #[test]
    fn a_load_has_uploads_though_the_machine_holds_next_to_nothing() {
        assert_eq!(uploads_a_second(800.0, 30.0), 100.0);
        for seed in 1..=6 {
            let slow = uploads_a_second(0.0, 1.0);
            assert_eq!(slow, UPLOADS_MIN);
            let first = crate::seeded::Seeded::new(seed).wait(slow);
            assert!(first.as_secs_f64() < 1.0, "{seed}: {first:?}");
        }
    }

    #[test]
    fn numbers_have_bounds() {
        let bench = Bench {
            program: "hold".into(),
            dir: None,
            quick: true,
            stop: crate::Stop::default(),
            tell: Box::new(|_| ()),
        };
        for (peers, seconds) in [(0, 1.0), (65, 1.0), (3, 0.0)] {
            let refused = Overload { peers, seconds, seed: 1 }.run(&bench);
            assert!(matches!(refused, Err(BenchError::Argument { .. })));
        }
    }
}
