//! Three times what the peers can do, and what is left afterwards.
//!
//! ```text
//! saturation? -> 0.8x (before) -> 3x for two minutes -> 0.8x (after) -> every acknowledged record
//!                 p99              refusals in time      p99 again         read back
//! ```
//! The saturation is a rate that holds for as long as the load before: what holds for eight seconds may be over what holds for
//! thirty, and 0.8 of it then too. Documents are small, so that it is requests that overload and not this machine's disk. A refused
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
    p99_before_ms: f64,
    /// Seconds after the overload until a window's p99 was back; null where it never was.
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
        let saturation = libri::sustained(bench, &clients, search).await?;
        bench.tell(format!("saturation: {saturation:.0} requests/s"));
        let phases = [("before", CALM, before), ("overload", OVER, over), ("after", CALM, after)];
        let mut report = Report::new("overload", bench.quick);
        let mut outcomes = Vec::new();
        for (number, (name, part, seconds)) in phases.into_iter().enumerate() {
            let load = Load {
                uploads_a_second: saturation * part / REQUESTS,
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
        self.conclude(bench, &clients, saturation, &outcomes, &mut report).await?;
        Ok(report)
    }

    async fn conclude(
        &self,
        bench: &Bench,
        clients: &Arc<Clients>,
        saturation: f64,
        outcomes: &[(Outcome, f64)],
        report: &mut Report,
    ) -> Result<(), BenchError> {
        let [(before, _), _, (after, after_s)] = outcomes else { return Ok(()) };
        let p99_before_ms = before.between(0, u32::MAX, |_| true).percentiles().p99_ms;
        let acknowledged: Vec<_> =
            outcomes.iter().flat_map(|(outcome, _)| outcome.acknowledged.iter().copied()).collect();
        bench.tell(format!("reading back {} acknowledged records", acknowledged.len()));
        let missing = clients.missing(&acknowledged, &bench.stop).await?;
        let recovered_after_s = recovered(after, p99_before_ms * P99_RATIO_MAX, *after_s);
        report.run(&Recovery {
            saturation_requests_a_second: saturation,
            p99_before_ms,
            recovered_after_s,
            acknowledged: acknowledged.len(),
            missing,
        })?;
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

/// The end of the first window whose p99 is at most `bar`; not a number where there is none.
fn recovered(after: &Outcome, bar: f64, seconds: f64) -> f64 {
    let window = WINDOW_S.min(seconds / 4.0);
    let mut from = 0.0;
    while from + window <= seconds {
        let ms = |seconds: f64| (seconds * 1000.0) as u32;
        let p99 = after.between(ms(from), ms(from + window), |_| true).percentiles().p99_ms;
        if p99 <= bar {
            return from + window;
        }
        from += window / 5.0;
    }
    f64::NAN
}

/// p99 over time, the three loads one after the other.
fn chart(outcomes: &[(Outcome, f64)], before: f64) -> Chart {
    let (mut points, mut answered, mut offset) = (Vec::new(), Vec::new(), 0.0);
    for (outcome, seconds) in outcomes {
        let step = (seconds / 20.0).clamp(0.25, WINDOW_S);
        let mut from = 0.0;
        while from + step <= *seconds + 1e-9 {
            let ms = |seconds: f64| (seconds * 1000.0) as u32;
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

    #[test]
    fn recovery_is_the_end_of_the_first_good_window() {
        let mut outcome = Outcome::default();
        for at_ms in (0..20_000).step_by(100) {
            let ms = if at_ms < 7_000 { 500 } else { 10 };
            outcome.answer(true, at_ms, ms);
        }
        let after = recovered(&outcome, 12.0, 20.0);
        assert!((11.0..=13.0).contains(&after), "{after}");
        assert!(recovered(&outcome, 1.0, 20.0).is_nan());
        assert!(recovered(&Outcome::default(), 1.0, 20.0).is_nan(), "no answers are no recovery");
        assert!(!chart(&[(outcome, 20.0)], 10.0).is_empty());
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
