//! What it costs to wait for more copies: W = 1, 2 and 3 of N = 3, at four peers.
//!
//! One writer, a process of the program, makes one history an object: `hold object put --lines`, fed with lines of random
//! text. Its versions are signed and go over mutual TLS to the holders, each of which checks them and writes them to its log.
//! *Alone*: a line is fed when the one before was answered; its time is what a single put costs. *Together*: all lines are there,
//! and the writer sends what has come as one batch, under one signature.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::median;
use crate::Bench;
use crate::chart::Chart;
use crate::community::{Community, Home, Kind};
use crate::error::BenchError;
use crate::percentiles::{Latencies, Percentiles};
use crate::program::Run;
use crate::report::Report;
use crate::seeded::Seeded;

/// Peers: one more than there are copies, as in the paper.
const PEERS: usize = 4;
/// Copies of each version.
const COPIES: usize = 3;
const VERSIONS_MAX: usize = 1_000_000;
const VALUE_BYTES_MAX: u64 = 1 << 20;
const ROUNDS_MAX: usize = 20;
/// Versions of a quick run: alone, together.
const QUICK: (usize, usize) = (10, 50);
/// How long a run may take.
const RUN_LIMIT: Duration = Duration::from_secs(1800);

/// `hold bench kv copies`.
#[derive(Clone, Copy, Debug)]
pub struct KvCopies {
    /// The size of a value, in bytes; it is text.
    pub value: u64,
    /// Versions that are put one after the other.
    pub alone: usize,
    /// Versions that are put together.
    pub together: usize,
    /// How often each number of copies has its turn; the median counts.
    pub rounds: usize,
}

/// One turn of one number of copies.
#[derive(Clone, Copy, Debug, Serialize)]
struct Point {
    waited_for: usize,
    of: usize,
    round: usize,
    /// A put alone.
    alone: Percentiles,
    /// Versions a second, together.
    together_s: f64,
}

impl KvCopies {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Wrong`] where a version was not answered.
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        let this = self.checked(bench)?;
        let kind = Kind { peers: PEERS, suite: "holdfast-1", profile: None };
        let mut community = Community::start(bench, kind)?;
        let home = community.home("writer")?;
        let mut points: Vec<Point> = Vec::new();
        for round in 0..this.rounds {
            for waited_for in 1..=COPIES {
                let point = this.turn(bench, (&community, &home), round, waited_for)?;
                community.check()?;
                bench.tell(format!(
                    "W = {waited_for} of {COPIES}: alone p50 {:.2} ms, p99 {:.2}; together {:.0} a second",
                    point.alone.p50_ms, point.alone.p99_ms, point.together_s
                ));
                points.push(point);
            }
        }
        let mut report = Report::new("kv-copies", bench.quick);
        report.run(&serde_json::json!({ "value_bytes": this.value, "peers": PEERS }))?;
        points.iter().try_for_each(|point| report.run(point))?;
        conclude(&mut report, &points);
        Ok(report)
    }

    fn checked(&self, bench: &Bench) -> Result<Self, BenchError> {
        let wrong = |name, reason| Err(BenchError::Argument { name, reason });
        if !(1..=VALUE_BYTES_MAX).contains(&self.value) {
            return wrong("--value", "from 1 byte to 1 MiB");
        }
        if !(1..=VERSIONS_MAX).contains(&self.alone) || !(1..=VERSIONS_MAX).contains(&self.together)
        {
            return wrong("--alone and --together", "from 1 to 1000000");
        }
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            return wrong("--rounds", "from 1 to 20");
        }
        Ok(match bench.quick {
            true => Self {
                alone: self.alone.min(QUICK.0),
                together: self.together.min(QUICK.1),
                rounds: 1,
                ..*self
            },
            false => *self,
        })
    }

    fn turn(
        &self,
        bench: &Bench,
        (community, home): (&Community, &Home),
        round: usize,
        waited_for: usize,
    ) -> Result<Point, BenchError> {
        let name = format!("copies-{waited_for}-{round}");
        let copies = format!("{COPIES}/{waited_for}");
        let create = ["object", "create", &name, "--open", "--json", "--copies", &copies];
        let mut create = home.command(&community.program, create);
        Run::start(&mut create)?.finish(RUN_LIMIT, &bench.stop)?;
        let mut writer = Writer::start(community, home, &name)?;
        let mut seeded = Seeded::new(round as u64 + 1);
        // The first opens connections, and is not counted.
        writer.feed(&self.line(&mut seeded))?;
        writer.told()?;
        let mut alone = Latencies::default();
        for _ in 0..self.alone {
            bench.stop.check()?;
            let line = self.line(&mut seeded);
            let started = Instant::now();
            writer.feed(&line)?;
            writer.told()?;
            alone.add(started.elapsed());
        }
        writer.finish(bench)?;

        let path = community.path().join("lines");
        self.write(&path, &mut seeded)?;
        let mut put = put(community, home, &name);
        put.arg("--file").arg(&path);
        let (mut told, started) = (0, Instant::now());
        let mut took = Vec::new();
        let mut out = None;
        let run = Run::start_taking(&mut put, |child| out = child.stdout.take())?;
        let out = BufReader::new(out.ok_or(BenchError::Wrong("a writer has no output"))?);
        for line in out.lines() {
            line.map_err(BenchError::io("read", "a writer's output"))?;
            told += 1;
            took.push(started.elapsed());
        }
        run.finish(RUN_LIMIT, &bench.stop)?;
        std::fs::remove_file(&path).map_err(BenchError::io("remove", &path))?;
        // From the first answer on: opening the keyring is no part of it.
        let span = took.last().zip(took.first()).map(|(last, first)| *last - *first);
        if told != self.together {
            return Err(BenchError::Wrong("a version was not answered"));
        }
        let together_s = told as f64 / span.unwrap_or_default().as_secs_f64().max(1e-6);
        let alone = alone.percentiles();
        Ok(Point { waited_for, of: COPIES, round, alone, together_s })
    }

    /// Random text of the value's length, and its end of line.
    fn line(&self, seeded: &mut Seeded) -> Vec<u8> {
        let mut line = vec![0; self.value as usize];
        seeded.fill(&mut line);
        line.iter_mut().for_each(|byte| *byte = b'!' + *byte % 90);
        line.push(b'\n');
        line
    }

    fn write(&self, path: &Path, seeded: &mut Seeded) -> Result<(), BenchError> {
        let failed = || BenchError::io("write", path);
        let mut file = std::io::BufWriter::new(std::fs::File::create(path).map_err(failed())?);
        for _ in 0..self.together {
            file.write_all(&self.line(seeded)).map_err(failed())?;
        }
        file.flush().map_err(failed())
    }
}

fn put(community: &Community, home: &Home, name: &str) -> std::process::Command {
    let args = ["object", "put", name, "--lines", "--json", "--durability", "group"];
    home.command(&community.program, args)
}

/// A process that makes a version of each line that it is fed.
struct Writer {
    run: Run,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Writer {
    fn start(community: &Community, home: &Home, name: &str) -> Result<Self, BenchError> {
        let mut put = put(community, home, name);
        put.stdin(Stdio::piped());
        let mut pipes = None;
        let run = Run::start_taking(&mut put, |child| {
            pipes = child.stdin.take().zip(child.stdout.take());
        })?;
        let (input, output) = pipes.ok_or(BenchError::Wrong("a writer has no pipes"))?;
        Ok(Self { run, input, output: BufReader::new(output) })
    }

    fn feed(&mut self, line: &[u8]) -> Result<(), BenchError> {
        self.input.write_all(line).map_err(BenchError::io("feed", "a writer"))
    }

    fn told(&mut self) -> Result<(), BenchError> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        match read.map_err(BenchError::io("read", "a writer's output"))? {
            0 => Err(BenchError::Wrong("a version was not answered")),
            _ => Ok(()),
        }
    }

    fn finish(self, bench: &Bench) -> Result<(), BenchError> {
        drop(self.input);
        self.run.finish(RUN_LIMIT, &bench.stop).map(drop)
    }
}

fn conclude(report: &mut Report, points: &[Point]) {
    let middle = |w: usize, of: fn(&Point) -> f64| {
        let of = points.iter().filter(|point| point.waited_for == w).map(of);
        median(of.collect())
    };
    let row =
        |of: fn(&Point) -> f64| (1..=COPIES).map(|w| (w as f64, middle(w, of))).collect::<Vec<_>>();
    let (alone, together) = (row(|point| point.alone.p50_ms), row(|point| point.together_s));
    for (w, rate) in &together {
        report.ratio(format!("together_w{w}_to_w1"), rate / together[0].1);
    }
    for (w, ms) in &alone {
        report.ratio(format!("alone_w{w}_to_w1"), ms / alone[0].1);
    }
    report.charts.push(
        Chart::lines("A signed put alone, p50", "copies waited for, of 3", "ms")
            .with("ours", alone),
    );
    report.charts.push(
        Chart::lines("Versions together", "copies waited for, of 3", "versions a second")
            .with("ours", together),
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn more_copies_are_compared_with_one() {
        let point = |waited_for: usize, ms: f64, together_s: f64| Point {
            waited_for,
            of: COPIES,
            round: 0,
            alone: Percentiles { calls: 1, p50_ms: ms, p95_ms: ms, p99_ms: ms, max_ms: ms },
            together_s,
        };
        let points = [point(1, 2.0, 900.0), point(2, 3.0, 600.0), point(3, 4.0, 450.0)];
        let mut report = Report::new("kv-copies", true);
        conclude(&mut report, &points);
        assert!((report.ratios["together_w3_to_w1"] - 0.5).abs() < 1e-9);
        assert!((report.ratios["alone_w2_to_w1"] - 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_line_is_text_of_its_length() {
        let copies = KvCopies { value: 100, alone: 1, together: 1, rounds: 1 };
        let line = copies.line(&mut Seeded::new(1));
        assert_eq!((line.len(), line.iter().filter(|byte| **byte == b'\n').count()), (101, 1));
    }
}
