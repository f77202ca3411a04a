//! Raising the rate until it does not hold.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Bench;
use crate::error::BenchError;
use crate::load::documents::Sizes;
use crate::load::{self, Entries, Load, Outcome, REQUESTS};
use crate::process::own_cpu;

/// How far the rate goes up while it holds.
const STEP: f64 = 1.5;
/// Looks between the last rate that held and the first that did not.
const HALVINGS: usize = 2;
/// Steps at most: 1.5 to the 20th is 3,000 times the first.
const STEPS_MAX: usize = 20;
/// A rate holds while 99 of 100 requests are answered within this.
const P99_MAX_MS: f64 = 250.0;
/// The part of uploads that may be refused or fail.
const LOST_MAX: f64 = 0.001;
/// How far the arrivals may fall behind: then it is this process that does not hold.
const LAG_MAX: Duration = Duration::from_millis(500);

/// How the highest rate is searched.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    /// Uploads a second to begin with.
    pub(crate) start: f64,
    /// Seconds a rate.
    pub(crate) seconds: f64,
    pub(crate) sizes: Sizes,
    /// Processor time of the peers so far.
    pub(crate) cpu: &'a dyn Fn() -> Duration,
}

/// Requests answered a second at the highest rate that holds.
pub(crate) async fn saturation<E: Entries>(
    bench: &Bench,
    entries: &Arc<E>,
    search: Search<'_>,
) -> Result<f64, BenchError> {
    let Search { start, seconds, sizes, cpu } = search;
    let (mut held, mut broke, mut best) = (0.0, f64::INFINITY, 0.0f64);
    let mut rate = start;
    let mut halvings = 0;
    for step in 0..STEPS_MAX {
        let seed = 1000 + step as u64;
        let load = Load { uploads_a_second: rate, seconds, sizes, seed };
        let (holds, answered) = look(bench, entries, load, cpu).await?;
        if holds {
            held = rate;
            best = best.max(answered);
        } else {
            broke = rate;
        }
        rate = if broke.is_infinite() {
            rate * STEP
        } else if halvings < HALVINGS && broke > 0.05 * start {
            halvings += usize::from(held > 0.0);
            // Where nothing held yet, further down.
            if held > 0.0 { f64::midpoint(held, broke) } else { broke / 2.0 }
        } else {
            break;
        };
    }
    Ok(best)
}

/// The part of a rate that is tried next where it does not hold for long.
const STEP_BACK: f64 = 0.85;
/// Rates at most: the last is a quarter of the first.
const STEPS_BACK_MAX: usize = 10;

/// Requests a second, and whether they hold for so many seconds; at most those to begin with. What holds for some seconds leaves
/// copies to make and logs to sync: for minutes it may be too much. Where none holds it is the last that was tried.
pub(crate) async fn sustained<E: Entries>(
    bench: &Bench,
    entries: &Arc<E>,
    search: Search<'_>,
) -> Result<(f64, bool), BenchError> {
    let Search { start, seconds, sizes, cpu } = search;
    let (mut rate, mut holds) = (start * REQUESTS, false);
    for step in 0..STEPS_BACK_MAX {
        if step > 0 {
            rate *= STEP_BACK;
        }
        let seed = 2000 + step as u64;
        let load = Load { uploads_a_second: rate / REQUESTS, seconds, sizes, seed };
        holds = look(bench, entries, load, cpu).await?.0;
        if holds {
            break;
        }
    }
    Ok((rate, holds))
}

/// Offers a load; whether it holds, and requests answered a second.
async fn look<E: Entries>(
    bench: &Bench,
    entries: &Arc<E>,
    load: Load,
    cpu: &dyn Fn() -> Duration,
) -> Result<(bool, f64), BenchError> {
    let (before, own, at) = (cpu(), own_cpu(), Instant::now());
    let outcome = load::run(entries, load, &bench.stop).await?;
    let answered = outcome.answered_a_second(load.seconds);
    let holds = holds(&outcome, load);
    let p99 = |put| outcome.latencies(put).percentiles().p99_ms;
    let wall = at.elapsed().as_secs_f64();
    let cores = |after: Duration, before| after.saturating_sub(before).as_secs_f64() / wall;
    bench.tell(format!(
        "   {:>6.0} requests/s offered, {answered:>6.0} answered, p99 Put {:.0} ms, Get {:.0} ms, cores: peers {:.2}, \
         clients {:.2}: {}",
        load.uploads_a_second * REQUESTS,
        p99(true),
        p99(false),
        cores(cpu(), before),
        cores(own_cpu(), own),
        if holds { "holds" } else { "does not hold" }
    ));
    Ok((holds, answered))
}

/// Whether peers and this process kept up with a load.
fn holds(outcome: &Outcome, load: Load) -> bool {
    let p99 = |put| outcome.latencies(put).percentiles().p99_ms;
    // Uploads under way at the end are not answered within the time: some of a short load.
    let enough = outcome.answered_a_second(load.seconds)
        >= 0.9 * REQUESTS * outcome.arrived as f64 / load.seconds - REQUESTS * 4.0;
    outcome.lost_part() <= LOST_MAX
        && outcome.lag <= LAG_MAX
        && enough
        && p99(true) <= P99_MAX_MS
        && p99(false) <= P99_MAX_MS
}
