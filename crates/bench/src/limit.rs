//! The limit of a work on this machine: what no program could pass that stores so safely.
//!
//! ```text
//! limit = 1 / max(sum of single-core seconds a byte of every stage / cores, disk seconds a byte)
//! ```
//! A rate means nothing on a machine one does not know. So every stage that cannot be left out is
//! timed alone, in the same run, and the ratio of a measured rate to the limit is what is promised.
//! A stage's cost is processor time, which others on the machine hardly change; the disk's is the
//! clock's. Each is the least of [`TRIES`], so the limit is high and our ratio to it low.

mod stages;
mod tls;

use serde::Serialize;

use crate::chart::Chart;
use crate::error::BenchError;
use crate::report::{Report, cores};
use crate::{Bench, size};
use stages::Stages;

/// Tries of each stage; the least counts.
const TRIES: usize = 5;
/// Copies at most, as in a genesis.
const COPIES_MAX: u32 = 64;

/// `hold bench limit`.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Copies of each record.
    pub copies: u32,
}

/// One stage of a work.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    /// Who does it.
    pub(crate) party: Party,
    /// Single-core seconds a byte, once.
    pub(crate) seconds_a_byte: f64,
    /// How often a byte of content meets it.
    pub(crate) times: f64,
}

/// Who does a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Party {
    Author,
    /// All of them together.
    Peers,
}

/// What a work cannot pass.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bound {
    pub(crate) work: &'static str,
    pub(crate) copies: u32,
    pub(crate) cores: usize,
    pub(crate) stages: Vec<Stage>,
    /// Single-core seconds a byte of all stages.
    pub(crate) cpu_seconds_a_byte: f64,
    pub(crate) disk_seconds_a_byte: f64,
    /// The limit.
    pub(crate) bytes_a_second: f64,
}

impl Bound {
    fn new(work: &'static str, copies: u32, stages: Vec<Stage>, disk: f64) -> Self {
        let cores = cores();
        let cpu: f64 = stages.iter().map(|stage| stage.seconds_a_byte * stage.times).sum();
        let bytes_a_second = 1.0 / (cpu / cores as f64).max(disk);
        let (cpu_seconds_a_byte, disk_seconds_a_byte) = (cpu, disk);
        Self {
            work,
            copies,
            cores,
            stages,
            cpu_seconds_a_byte,
            disk_seconds_a_byte,
            bytes_a_second,
        }
    }

    /// Single-core seconds a byte of one party.
    pub(crate) fn of(&self, party: Party) -> f64 {
        let stages = self.stages.iter().filter(|stage| stage.party == party);
        stages.map(|stage| stage.seconds_a_byte * stage.times).sum()
    }

    /// As a table.
    pub(crate) fn table(&self) -> String {
        let mut out =
            format!("{} with {} copies on {} cores\n", self.work, self.copies, self.cores);
        out += "  stage                        who      ns/KiB  times   ns/KiB in all\n";
        for stage in &self.stages {
            let once = stage.seconds_a_byte * 1024.0 * 1e9;
            out += &format!(
                "  {:<28} {:<8} {once:>6.0} {:>6} {:>10.0}\n",
                stage.name,
                format!("{:?}", stage.party).to_lowercase(),
                stage.times,
                once * stage.times
            );
        }
        let per_kib = |seconds: f64| seconds * 1024.0 * 1e9;
        out + &format!(
            "  processor {:.0} ns/KiB over {} cores, disk {:.0} ns/KiB: limit {:.0} MB/s",
            per_kib(self.cpu_seconds_a_byte),
            self.cores,
            per_kib(self.disk_seconds_a_byte),
            self.bytes_a_second / 1e6
        )
    }
}

/// The stages of this machine, measured once and good for any number of copies.
pub(crate) struct Measured(Stages);

impl Measured {
    pub(crate) fn new(bench: &Bench) -> Result<Self, BenchError> {
        let tries = if bench.quick { 1 } else { TRIES };
        Stages::measure(bench, tries).map(Self)
    }

    /// What a put of so many copies cannot pass, of content that does not compress.
    pub(crate) fn put(&self, copies: u32) -> Bound {
        let (s, n) = (&self.0, f64::from(copies));
        let stages = vec![
            stage("read the file", Party::Author, s.read, 1.0),
            stage("try to compress", Party::Author, s.compress_random, 1.0),
            stage("seal", Party::Author, s.seal, 1.0),
            stage("MACs of page and whole", Party::Author, s.mac, 3.0),
            stage("hash the id", Party::Author, s.hash, 1.0),
            stage("TLS and TCP, sending", Party::Author, s.tls_send, n),
            stage("TLS and TCP, receiving", Party::Peers, s.tls_receive, n),
            stage("hash the id", Party::Peers, s.hash, n),
            stage("write and fsync", Party::Peers, s.write, n),
        ];
        Bound::new("put", copies, stages, s.disk * n)
    }

    /// What a get into a file cannot pass.
    pub(crate) fn get(&self, copies: u32) -> Bound {
        let s = &self.0;
        let stages = vec![
            stage("read the record", Party::Peers, s.read, 1.0),
            stage("TLS and TCP, sending", Party::Peers, s.tls_send, 1.0),
            stage("TLS and TCP, receiving", Party::Author, s.tls_receive, 1.0),
            stage("hash the id", Party::Author, s.hash, 1.0),
            stage("MACs of page and whole", Party::Author, s.mac, 3.0),
            stage("open", Party::Author, s.open, 1.0),
            stage("write and fsync", Party::Author, s.write, 1.0),
        ];
        Bound::new("get", copies, stages, s.disk)
    }
}

fn stage(name: &'static str, party: Party, seconds_a_byte: f64, times: f64) -> Stage {
    Stage { name, party, seconds_a_byte, times }
}

impl Limit {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError::Argument`], [`BenchError::Io`], [`BenchError::Interrupted`].
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        if !(1..=COPIES_MAX).contains(&self.copies) {
            return Err(BenchError::Argument { name: "--copies", reason: "from 1 to 64" });
        }
        let measured = Measured::new(bench)?;
        let mut report = Report::new("limit", bench.quick);
        let text = measured.0.compress_text;
        bench.tell(format!(
            "stages timed over {}; text compresses at {:.0} MB/s a core, random bytes at {:.0}\n",
            size::text(measured.0.bytes as u64),
            1e-6 / text,
            1e-6 / measured.0.compress_random
        ));
        for bound in [measured.put(self.copies), measured.get(self.copies)] {
            bench.tell(bound.table() + "\n");
            report.ratio(format!("{}_limit_mb_s", bound.work), bound.bytes_a_second / 1e6);
            report.run(&bound)?;
            report.charts.push(chart(&bound));
        }
        report.run(&serde_json::json!({ "stage": "compress text", "seconds_a_byte": text }))?;
        Ok(report)
    }
}

/// The stages of a work as bars.
fn chart(bound: &Bound) -> Chart {
    let names = bound.stages.iter().map(short).collect();
    let points = |times: fn(&Stage) -> f64| {
        let heights = bound.stages.iter().enumerate();
        heights
            .map(|(at, stage)| (at as f64, stage.seconds_a_byte * times(stage) * 1024e9))
            .collect()
    };
    let title = format!(
        "{} of {} copies: limit {:.0} MB/s",
        bound.work,
        bound.copies,
        bound.bytes_a_second / 1e6
    );
    Chart::bars(&title, "ns/KiB of one core", names)
        .with("all copies", points(|stage| stage.times))
        .with("once", points(|_| 1.0))
}

/// A stage's first word, for below a bar.
fn short(stage: &Stage) -> String {
    stage.name.split([' ', ',']).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn measured() -> Measured {
        let stages = Stages {
            bytes: 1,
            read: 1.0,
            compress_random: 2.0,
            compress_text: 1000.0,
            seal: 4.0,
            open: 8.0,
            mac: 16.0,
            hash: 32.0,
            tls_send: 64.0,
            tls_receive: 128.0,
            write: 256.0,
            disk: 100_000.0,
        };
        Measured(stages)
    }

    #[test]
    fn the_sum_has_every_stage_as_often_as_it_is_met() {
        let put = measured().put(3);
        let author = 1.0 + 2.0 + 4.0 + 3.0 * 16.0 + 32.0 + 3.0 * 64.0;
        let peers = 3.0 * (128.0 + 32.0 + 256.0);
        assert_eq!((put.of(Party::Author), put.of(Party::Peers)), (author, peers));
        assert_eq!(put.cpu_seconds_a_byte, author + peers);
        assert_eq!(put.disk_seconds_a_byte, 300_000.0);
        assert_eq!(put.bytes_a_second, 1.0 / 300_000.0, "here the disk is the narrow place");
        let get = measured().get(3);
        assert_eq!(get.of(Party::Peers), 1.0 + 64.0);
        assert_eq!(get.of(Party::Author), 128.0 + 32.0 + 48.0 + 8.0 + 256.0);
    }

    #[test]
    fn where_the_disk_is_fast_the_cores_divide_the_work() {
        let mut fast = measured();
        fast.0.disk = 0.0;
        let put = fast.put(1);
        let expected = put.cores as f64 / put.cpu_seconds_a_byte;
        assert!((put.bytes_a_second - expected).abs() < 1e-12);
        assert!(put.table().contains("TLS and TCP, sending"));
        assert!(!chart(&put).is_empty());
    }

    #[test]
    fn real_stages_cost_something_and_more_copies_more() {
        let bench = Bench {
            program: "hold".into(),
            dir: None,
            quick: true,
            stop: crate::Stop::default(),
            tell: Box::new(|_| ()),
        };
        let measured = Measured::new(&bench).unwrap();
        let (one, three) = (measured.put(1), measured.put(3));
        assert!(one.stages.iter().all(|stage| stage.seconds_a_byte > 0.0), "{one:?}");
        assert!(three.bytes_a_second < one.bytes_a_second);
        let report = Limit { copies: 3 }.run(&bench).unwrap();
        assert!(report.is_met() && report.bars.is_empty(), "it promises nothing");
        assert_eq!(report.charts.len(), 2);
        let none = Limit { copies: 0 }.run(&bench);
        assert!(matches!(none, Err(BenchError::Argument { .. })));
    }
}
