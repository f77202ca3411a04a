//! A version's predecessors: in one request of the door, and key after key of a Redis.
//!
//! Redis keeps no versions, so there, as in the paper, each is a key of its own and begins with the name of
//! the key before: whoever wants m predecessors asks m times, and must have each answer before the next question. The door
//! is asked `HOLD.PREV key version m VALUES` once. The values are the same, and all answers are checked.

use std::time::Instant;

use serde::Serialize;

use super::median;
use super::resp::{Answer, Caller, digits};
use super::side::{self, Keeping, Side};
use crate::Bench;
use crate::chart::Chart;
use crate::error::BenchError;
use crate::percentiles::{Latencies, Percentiles};
use crate::report::{Bar, Report};
use crate::seeded::Seeded;

/// How many predecessors are asked for.
const SCANS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// At how many the promise is.
const PROMISED: usize = 32;
/// The door's time to Redis's, at most.
const PART_MAX: f64 = 0.1;
/// Versions of a key: the tip, and as many before it as are ever asked for.
const VERSIONS: usize = SCANS[SCANS.len() - 1] + 1;
/// Bytes of a value that name the version before.
const NAME_BYTES: usize = 24;
const VALUE_BYTES_MAX: u64 = 1 << 20;
const KEYS_MAX: usize = 100_000;
const GETS_MAX: usize = 10_000_000;
const ROUNDS_MAX: usize = 20;
const QUICK: (usize, usize) = (3, 5);
/// The paper's milliseconds for 32 predecessors, figure 7: UStore without RDMA and with it, and Redis (over 3).
const PAPER_USTORE_MS: f64 = 0.4;
const PAPER_RDMA_MS: f64 = 0.07;
const PAPER_REDIS_MS: f64 = 3.0;

/// `hold bench kv scan`.
#[derive(Clone, Copy, Debug)]
pub struct KvScan {
    /// Keys with 65 versions each.
    pub keys: usize,
    /// The size of a value, in bytes.
    pub value: u64,
    /// Scans of each length in a turn.
    pub scans: usize,
    /// How often each side has its turn; the median counts.
    pub rounds: usize,
}

/// One side's turn.
#[derive(Clone, Copy, Debug, Serialize)]
struct Point {
    side: &'static str,
    predecessors: usize,
    round: usize,
    took: Percentiles,
}

/// The name of a key's version; of the one before the first too.
fn name(key: usize, version: Option<usize>) -> Vec<u8> {
    let mut name = b"scan:".to_vec();
    digits(key as u64, 8, &mut name);
    name.push(b':');
    match version {
        Some(version) => digits(version as u64, 8, &mut name),
        None => name.extend_from_slice(b"none"),
    }
    name.resize(NAME_BYTES, b' ');
    name
}

impl KvScan {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Missing`] where there is no Redis, [`BenchError::Wrong`] where a predecessor is another.
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        let this = self.checked(bench)?;
        let version = side::version(bench)?;
        let redis = Side::redis(bench, Keeping::EverySecond)?;
        let door = Side::door(bench, &["--durability", "everysec"])?;
        let mut ours = Ours { caller: Caller::connect(door.address)?, tips: Vec::new() };
        let mut theirs = Theirs { caller: Caller::connect(redis.address)? };
        this.fill(bench, &mut ours, &mut theirs)?;
        let mut points = Vec::new();
        for round in 0..this.rounds {
            for predecessors in SCANS {
                let turn = (round, predecessors);
                for point in [
                    this.turn(bench, turn, (door.name, &mut ours))?,
                    this.turn(bench, turn, ("redis", &mut theirs))?,
                ] {
                    bench.tell(point.line());
                    points.push(point);
                }
            }
        }
        let mut report = Report::new("kv-scan", bench.quick);
        report.run(&serde_json::json!({ "redis": version, "value_bytes": this.value,
            "keys": this.keys, "paper_ms_of_32": { "ustore": PAPER_USTORE_MS,
                "ustore_rdma": PAPER_RDMA_MS, "redis_over": PAPER_REDIS_MS } }))?;
        points.iter().try_for_each(|point| report.run(point))?;
        conclude(&mut report, &points);
        Ok(report)
    }

    fn checked(&self, bench: &Bench) -> Result<Self, BenchError> {
        let wrong = |name, reason| Err(BenchError::Argument { name, reason });
        if !(1..=KEYS_MAX).contains(&self.keys) {
            return wrong("--keys", "from 1 to 100000");
        }
        if !(NAME_BYTES as u64..=VALUE_BYTES_MAX).contains(&self.value) {
            return wrong("--value", "from 24 bytes to 1 MiB");
        }
        if !(1..=GETS_MAX).contains(&self.scans) {
            return wrong("--scans", "from 1 to 10000000");
        }
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            return wrong("--rounds", "from 1 to 20");
        }
        Ok(match bench.quick {
            true => {
                let (keys, scans) = (self.keys.min(QUICK.0), self.scans.min(QUICK.1));
                Self { keys, scans, rounds: 1, ..*self }
            }
            false => *self,
        })
    }

    /// Sets all versions on both sides, and asks the door for its tips.
    fn fill(&self, bench: &Bench, ours: &mut Ours, theirs: &mut Theirs) -> Result<(), BenchError> {
        let mut seeded = Seeded::new(1);
        let mut value = vec![0; self.value as usize];
        for version in 0..VERSIONS {
            bench.stop.check()?;
            for key in 0..self.keys {
                seeded.fill(&mut value);
                let before = version.checked_sub(1);
                value[..NAME_BYTES].copy_from_slice(&name(key, before));
                ours.caller.ask(&[b"SET", &name(key, None), &value])?;
                theirs.caller.ask(&[b"SET", &name(key, Some(version)), &value])?;
            }
        }
        for key in 0..self.keys {
            let tips = ours.caller.ask(&[b"HOLD.TIPS", &name(key, None)])?;
            let tip = match tips {
                Answer::Array(tips) => match tips.into_iter().next() {
                    Some(Answer::Bytes(Some(tip))) => tip,
                    _ => return Err(BenchError::Wrong("a key has no tip")),
                },
                _ => return Err(BenchError::Wrong("a key has no tips")),
            };
            ours.tips.push(tip);
        }
        Ok(())
    }

    fn turn(
        &self,
        bench: &Bench,
        (round, predecessors): (usize, usize),
        (side, scanning): (&'static str, &mut dyn Scanning),
    ) -> Result<Point, BenchError> {
        let mut seeded = Seeded::new(round as u64 + 1);
        let mut latencies = Latencies::default();
        for _ in 0..self.scans {
            bench.stop.check()?;
            let key = seeded.below(self.keys);
            let started = Instant::now();
            let values = scanning.scan(key, predecessors)?;
            latencies.add(started.elapsed());
            check(key, predecessors, self.value, &values)?;
        }
        Ok(Point { side, predecessors, round, took: latencies.percentiles() })
    }
}

/// The values of a key's m predecessors, nearest first: each begins with the name of the version before it.
fn check(key: usize, m: usize, bytes: u64, values: &[Vec<u8>]) -> Result<(), BenchError> {
    let right = |(at, value): (usize, &Vec<u8>)| {
        // The nearest predecessor is the last but one.
        let before = (VERSIONS - 2).checked_sub(at).and_then(|version| version.checked_sub(1));
        value.len() as u64 == bytes && value.starts_with(&name(key, before))
    };
    if values.len() == m && values.iter().enumerate().all(right) {
        return Ok(());
    }
    Err(BenchError::Wrong("a predecessor is not the version before"))
}

/// One side's way to the predecessors of a key's newest version.
trait Scanning {
    fn scan(&mut self, key: usize, m: usize) -> Result<Vec<Vec<u8>>, BenchError>;
}

struct Ours {
    caller: Caller,
    tips: Vec<Vec<u8>>,
}

impl Scanning for Ours {
    fn scan(&mut self, key: usize, m: usize) -> Result<Vec<Vec<u8>>, BenchError> {
        let tip = self.tips.get(key).cloned().unwrap_or_default();
        let mut number = Vec::new();
        digits(m as u64, 1, &mut number);
        let asked: [&[u8]; 5] = [b"HOLD.PREV", &name(key, None), &tip, &number, b"VALUES"];
        let Answer::Array(all) = self.caller.ask(&asked)? else {
            return Err(BenchError::Wrong("predecessors are no array"));
        };
        let value = |pair| match pair {
            Answer::Array(mut pair) => match pair.pop() {
                Some(Answer::Bytes(Some(value))) => Ok(value),
                _ => Err(BenchError::Wrong("a predecessor has no value")),
            },
            _ => Err(BenchError::Wrong("a predecessor is no pair")),
        };
        all.into_iter().map(value).collect()
    }
}

struct Theirs {
    caller: Caller,
}

impl Scanning for Theirs {
    fn scan(&mut self, key: usize, m: usize) -> Result<Vec<Vec<u8>>, BenchError> {
        // The newest version is at hand, and it names the one before.
        let mut next = name(key, Some(VERSIONS - 2));
        let mut values = Vec::with_capacity(m);
        for _ in 0..m {
            let Answer::Bytes(Some(value)) = self.caller.ask(&[b"GET", &next])? else {
                return Err(BenchError::Wrong("a version's key is not there"));
            };
            next.clear();
            next.extend_from_slice(&value[..NAME_BYTES.min(value.len())]);
            values.push(value);
        }
        Ok(values)
    }
}

impl Point {
    fn line(&self) -> String {
        let Self { side, predecessors, took, .. } = self;
        let (p50, p99) = (took.p50_ms, took.p99_ms);
        format!("{side:<6} {predecessors:>2} predecessors: p50 {p50:.3}, p99 {p99:.3} ms")
    }
}

fn conclude(report: &mut Report, points: &[Point]) {
    let row = |side: &str| -> Vec<(f64, f64)> {
        let middle = |m: usize| {
            let of = points.iter().filter(|point| point.side == side && point.predecessors == m);
            (m as f64, median(of.map(|point| point.took.p50_ms).collect()))
        };
        SCANS.into_iter().map(middle).collect()
    };
    let (door, redis) = (row("door"), row("redis"));
    for (door, redis) in door.iter().zip(&redis) {
        report.ratio(format!("door_to_redis_{}_predecessors", door.0), door.1 / redis.1);
    }
    let at = |row: &[(f64, f64)]| {
        row.iter().find(|(m, _)| *m == PROMISED as f64).map_or(f64::NAN, |(_, ms)| *ms)
    };
    let part = at(&door) / at(&redis);
    let title = format!("{PROMISED} predecessors in one request, part of {PROMISED} Redis GETs");
    report.bars.push(Bar::at_most(title, part, PART_MAX));
    report.ratio("paper_ustore_of_32_to_ours", PAPER_USTORE_MS / at(&door));
    let paper = |ms: f64| vec![(PROMISED as f64, ms)];
    report.charts.push(
        Chart::lines("Scans of predecessors, p50", "predecessors", "ms")
            .log(true, true)
            .with("door, one request", door)
            .beside("Redis, GET after GET", redis)
            .beside("paper's UStore", paper(PAPER_USTORE_MS))
            .beside("paper's, RDMA", paper(PAPER_RDMA_MS))
            .beside("paper's Redis, over", paper(PAPER_REDIS_MS)),
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn point(side: &'static str, predecessors: usize, p50_ms: f64) -> Point {
        let took = Percentiles { calls: 1, p50_ms, p95_ms: p50_ms, p99_ms: p50_ms, max_ms: p50_ms };
        Point { side, predecessors, round: 0, took }
    }

    #[test]
    fn the_bar_is_at_32_predecessors() {
        let points: Vec<Point> = SCANS
            .into_iter()
            .flat_map(|m| {
                let redis = 0.03 * m as f64;
                let door = if m == 32 { redis * 0.09 } else { redis };
                [point("door", m, door), point("redis", m, redis)]
            })
            .collect();
        let mut report = Report::new("kv-scan", true);
        conclude(&mut report, &points);
        assert!(report.is_met() && report.bars.len() == 1, "{:?}", report.bars);
        assert!((report.ratios["door_to_redis_1_predecessors"] - 1.0).abs() < 1e-9);
        let mut missing = Report::new("kv-scan", true);
        conclude(&mut missing, &points[..4]);
        assert!(!missing.is_met());
    }

    #[test]
    fn predecessors_are_those_before_the_tip_in_order() {
        let value = |version: usize| {
            let mut value = name(3, version.checked_sub(1));
            value.resize(40, 7);
            value
        };
        let values: Vec<Vec<u8>> = (0..VERSIONS - 1).rev().map(value).collect();
        assert_eq!(values.len(), 64);
        check(3, 64, 40, &values).unwrap();
        check(3, 2, 40, &values[..2]).unwrap();
        assert!(check(4, 2, 40, &values[..2]).is_err(), "another key's");
        assert!(check(3, 2, 41, &values[..2]).is_err(), "shorter");
        assert!(check(3, 3, 40, &values[..2]).is_err(), "too few");
        assert!(check(3, 2, 40, &values[1..3]).is_err(), "one further");
    }
}
