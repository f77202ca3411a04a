//! `redis-benchmark` at the door and at a Redis, in turns: the tool that everybody has.
//!
//! Both keep what they are told with one fsync a second; the door keeps every version and attests them by batch.
//! Values of 1 KiB under 100,000 keys, 50 callers, one request after the other and 16 at once.
//!
//! What the machine has for a measurement changes from second to second, so each of the door is held against the one of Redis beside
//! it, who is first changes from turn to turn, and the median of these ratios counts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::median;
use super::side::{self, Keeping, Side};
use crate::Bench;
use crate::chart::Chart;
use crate::error::BenchError;
use crate::report::{Bar, Report};

const VALUE_BYTES: usize = 1024;
const CALLERS: usize = 50;
const KEYS: usize = 100_000;
/// Requests that wait at once: plain, and pipelined.
const DEPTHS: [usize; 2] = [1, 16];
/// How many times as many requests a pipeline of 16 is measured with: it is that much faster, or nearly.
const MORE: usize = 6;
/// The door to Redis, at least.
const RATIO_MIN: f64 = 1.0;
const ROUNDS_MAX: usize = 20;
const REQUESTS_MAX: usize = 100_000_000;
const REQUESTS_QUICK: usize = 2_000;
/// Turns of a round: each side has a third of the requests in each, over a second long, as there is an fsync a second.
const TURNS: usize = 3;

/// `hold bench kv redis`.
#[derive(Clone, Copy, Debug)]
pub struct KvRedis {
    /// Requests of a round, one after the other; in a pipeline six times as many.
    pub requests: usize,
    /// How often each side has its turns; the median of what is measured side by side counts.
    pub rounds: usize,
}

/// One measurement.
#[derive(Clone, Debug, Serialize, PartialEq)]
struct Point {
    side: &'static str,
    command: &'static str,
    pipeline: usize,
    /// Which of its kind, counted through all rounds.
    turn: usize,
    requests_a_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl KvRedis {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Missing`] where there is no Redis.
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        let (requests, rounds) = self.checked(bench)?;
        let version = side::version(bench)?;
        let redis = Side::redis(bench, Keeping::EverySecond)?;
        let door = Side::door(bench, &["--durability", "everysec"])?;
        let mut points = Vec::new();
        for round in 0..rounds {
            for depth in DEPTHS {
                let requests = if depth == 1 { requests } else { requests * MORE };
                let kinds = ["SET", "GET"].into_iter();
                let turns = kinds.flat_map(|command| (0..TURNS).map(move |at| (command, at)));
                for (command, at) in turns {
                    let turn = round * TURNS + at;
                    let sides =
                        if turn.is_multiple_of(2) { [&door, &redis] } else { [&redis, &door] };
                    for side in sides {
                        let requests = (requests / TURNS).max(CALLERS);
                        let point = measured(bench, side, (command, depth), requests)?;
                        let point = Point { turn, ..point };
                        bench.tell(point.line());
                        points.push(point);
                    }
                }
            }
        }
        let mut report = Report::new("kv-redis", bench.quick);
        report.run(&serde_json::json!({ "redis": version, "value_bytes": VALUE_BYTES,
            "callers": CALLERS, "keys": KEYS }))?;
        points.iter().try_for_each(|point| report.run(point))?;
        conclude(&mut report, &points);
        Ok(report)
    }

    fn checked(&self, bench: &Bench) -> Result<(usize, usize), BenchError> {
        let wrong = |name, reason| Err(BenchError::Argument { name, reason });
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            return wrong("--rounds", "from 1 to 20");
        }
        if !(CALLERS..=REQUESTS_MAX).contains(&self.requests) {
            return wrong("--requests", "from 50 to 100000000");
        }
        Ok(match bench.quick {
            true => (self.requests.min(REQUESTS_QUICK), 1),
            false => (self.requests, self.rounds),
        })
    }
}

impl Point {
    fn line(&self) -> String {
        format!(
            "{:<16} {} {:<12} {:>9.0} requests/s, p50 {:.2}, p99 {:.2} ms",
            self.side,
            self.command,
            told(self.pipeline),
            self.requests_a_second,
            self.p50_ms,
            self.p99_ms
        )
    }
}

fn told(depth: usize) -> String {
    if depth == 1 { "one by one".to_owned() } else { format!("{depth} at once") }
}

fn measured(
    bench: &Bench,
    side: &Side,
    (command, pipeline): (&'static str, usize),
    requests: usize,
) -> Result<Point, BenchError> {
    let number = |number: usize| number.to_string();
    let pairs = [
        ("-p", number(side.address.port().into())),
        ("-t", command.to_lowercase()),
        ("-P", number(pipeline)),
        ("-n", number(requests)),
        ("-d", number(VALUE_BYTES)),
        ("-c", number(CALLERS)),
        ("-r", number(KEYS)),
    ];
    let pairs = pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    let args: Vec<String> = pairs.chain(["--csv".to_owned()]).collect();
    let text = side::benchmark(&args, requests, bench)?;
    let [requests_a_second, p50_ms, p99_ms] =
        row(&text, command).ok_or(BenchError::Answer { verb: "redis-benchmark".into() })?;
    Ok(Point { side: side.name, command, pipeline, turn: 0, requests_a_second, p50_ms, p99_ms })
}

/// Requests a second and latencies of one command of the tool's table.
fn row(text: &str, command: &str) -> Option<[f64; 3]> {
    let fields = |line: &str| -> Vec<String> {
        line.split(',').map(|field| field.trim().trim_matches('"').to_owned()).collect()
    };
    let lines: Vec<Vec<String>> = text.lines().map(fields).collect();
    let head = lines.iter().find(|line| line.first().is_some_and(|first| first == "test"))?;
    let row = lines.iter().find(|line| line.first().is_some_and(|first| first == command))?;
    let mut found = [0.0; 3];
    for (name, found) in ["rps", "p50_latency_ms", "p99_latency_ms"].iter().zip(&mut found) {
        let at = head.iter().position(|field| field == name)?;
        *found = row.get(at)?.parse().ok()?;
    }
    Some(found)
}

fn conclude(report: &mut Report, points: &[Point]) {
    let all = |door: bool, command: &str, pipeline: usize| -> BTreeMap<usize, f64> {
        let fits = |point: &&Point| {
            (point.side == "door") == door && point.command == command && point.pipeline == pipeline
        };
        points.iter().filter(fits).map(|point| (point.turn, point.requests_a_second)).collect()
    };
    let (mut names, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for depth in DEPTHS {
        for command in ["SET", "GET"] {
            let (door, redis) = (all(true, command, depth), all(false, command, depth));
            let beside = |(turn, rate): (&usize, &f64)| Some(rate / redis.get(turn)?);
            let ratio = median(door.iter().filter_map(beside).collect());
            let name = format!("{command}, {}", told(depth));
            report.ratio(format!("door_{}_{depth}_to_redis", command.to_lowercase()), ratio);
            let title = format!("redis-benchmark's requests a second, {name}: the door to Redis");
            report.bars.push(Bar::at_least(title, ratio, RATIO_MIN));
            ours.push((names.len() as f64, median(door.into_values().collect())));
            theirs.push((names.len() as f64, median(redis.into_values().collect())));
            names.push(name);
        }
    }
    let title = format!("redis-benchmark, {VALUE_BYTES} B, {CALLERS} callers, an fsync a second");
    report
        .charts
        .push(Chart::bars(&title, "requests/s", names).with("door", ours).beside("Redis", theirs));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const TABLE: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                         \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                         \"SET\",\"81000.50\",\"0.3\",\"0.1\",\"0.25\",\"0.4\",\"0.9\",\"2.0\"\n";

    #[test]
    fn the_tools_table_is_read_by_its_head() {
        assert_eq!(row(TABLE, "SET"), Some([81000.5, 0.25, 0.9]));
        assert_eq!(row(TABLE, "GET"), None);
        assert_eq!(row("\"SET\",\"81000.50\"\n", "SET"), None, "no head");
        assert_eq!(row(&TABLE.replace("81000.50", "many"), "SET"), None);
    }

    #[test]
    fn the_median_of_what_was_measured_side_by_side_counts() {
        // The machine was three times as fast in the second turn; the medians of all rates would say 0.73.
        let rates = [("door", [110.0, 330.0, 220.0]), ("redis, everysec", [100.0, 300.0, 330.0])];
        let mut points = Vec::new();
        for (side, rates) in rates {
            for (turn, rate) in rates.into_iter().enumerate() {
                for (command, pipeline) in [("SET", 1), ("GET", 1), ("SET", 16), ("GET", 16)] {
                    let times = if command == "GET" && side == "door" { 0.5 } else { 1.0 };
                    let requests_a_second = rate * times;
                    points.push(Point {
                        side,
                        command,
                        pipeline,
                        turn,
                        requests_a_second,
                        p50_ms: 1.0,
                        p99_ms: 1.0,
                    });
                }
            }
        }
        let mut report = Report::new("kv-redis", true);
        conclude(&mut report, &points);
        let found: Vec<_> = report.bars.iter().map(|bar| (bar.value.unwrap(), bar.ok)).collect();
        assert_eq!(found, [(1.1, true), (0.55, false), (1.1, true), (0.55, false)]);
        assert!(report.charts.iter().all(|chart| !chart.is_empty()));
        let mut empty = Report::new("kv-redis", true);
        conclude(&mut empty, &[]);
        assert!(!empty.is_met(), "what was not measured is missed");
    }
}
