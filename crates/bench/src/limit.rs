//! The limit of a work on this machine: what no program could pass that stores so safely.
//!
//! ```text
//! limit = 1 / max(sum of processor seconds a byte of every stage / cores, disk seconds a byte)
//! ```
//! A rate means nothing on a machine one does not know. So every stage that cannot be left out is
//! timed alone, in the same run, and the ratio of a measured rate to the limit is what is promised.
//! What needs processors alone runs on all cores at once, for one whose neighbours rest is faster
//! than it ever is in a transfer, and files are as long as a transfer's. A stage's cost is processor
//! time, which others on the machine hardly change; the disk's is the clock's. Each is the middle of
//! [`TRIES`] (of files, fewer), as transfers are: a stage takes tens of milliseconds, and the least of such is a moment's
//! luck on a shared machine, which a transfer of several seconds never has throughout.

mod files;
mod stages;
mod tls;

use placement::Profile;
use serde::Serialize;

use crate::chart::Chart;
use crate::error::BenchError;
use crate::report::{Report, cores};
use crate::{Bench, size};
use stages::Stages;

/// Tries of each stage; the middle one counts.
const TRIES: usize = 9;
/// `hold bench limit`.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// What files are kept as.
    pub profile: Profile,
}

/// One stage of a work.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    /// Who does it.
    pub(crate) party: Party,
    /// Processor seconds a byte, once.
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
    /// What files are kept as.
    pub(crate) profile: String,
    pub(crate) cores: usize,
    pub(crate) stages: Vec<Stage>,
    /// Processor seconds a byte of all stages.
    pub(crate) cpu_seconds_a_byte: f64,
    pub(crate) disk_seconds_a_byte: f64,
    /// The limit.
    pub(crate) bytes_a_second: f64,
}

impl Bound {
    fn new(work: &'static str, profile: Profile, stages: Vec<Stage>, disk: f64) -> Self {
        let profile = profile.to_string();
        let cores = cores();
        let cpu: f64 = stages.iter().map(|stage| stage.seconds_a_byte * stage.times).sum();
        let bytes_a_second = 1.0 / (cpu / cores as f64).max(disk);
        let (cpu_seconds_a_byte, disk_seconds_a_byte) = (cpu, disk);
        Self {
            work,
            profile,
            cores,
            stages,
            cpu_seconds_a_byte,
            disk_seconds_a_byte,
            bytes_a_second,
        }
    }

    /// Processor seconds a byte of one party.
    pub(crate) fn of(&self, party: Party) -> f64 {
        let stages = self.stages.iter().filter(|stage| stage.party == party);
        stages.map(|stage| stage.seconds_a_byte * stage.times).sum()
    }

    /// As a table.
    pub(crate) fn table(&self) -> String {
        let mut out = format!("{} of {} on {} cores\n", self.work, self.profile, self.cores);
        out += "  stage                        who      ns/KiB  times   ns/KiB in all\n";
        for stage in &self.stages {
            let once = stage.seconds_a_byte * 1024.0 * 1e9;
            out += &format!(
                "  {:<28} {:<8} {once:>6.0} {:>6.2} {:>10.0}\n",
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

/// The stages of this machine, measured once for what files are kept as.
pub(crate) struct Measured {
    stages: Stages,
    profile: Profile,
}

impl Measured {
    pub(crate) fn new(bench: &Bench, profile: Profile) -> Result<Self, BenchError> {
        let tries = if bench.quick { 1 } else { TRIES };
        let stages = Stages::measure(bench, tries, profile)?;
        Ok(Self { stages, profile })
    }

    /// What a put cannot pass, of content that does not compress.
    pub(crate) fn put(&self) -> Bound {
        let (s, n) = (&self.stages, redundancy(self.profile));
        // Of copies one record is hashed, of a stripe each fragment.
        let hashed = if s.code.is_some() { n } else { 1.0 };
        let mut stages = vec![
            stage("read the file", Party::Author, s.files.read, 1.0),
            stage("try to compress", Party::Author, s.compress_random, 1.0),
            stage("seal", Party::Author, s.seal, 1.0),
            stage("tag of the chunk", Party::Author, s.tag, 1.0),
            stage("hash the ids", Party::Author, s.hash, hashed),
            stage("TLS and TCP, sending", Party::Author, s.tls_send, n),
            stage("TLS and TCP, receiving", Party::Peers, s.tls_receive, n),
            stage("hash the ids", Party::Peers, s.hash, n),
            stage("write and fsync", Party::Peers, s.files.write, n),
        ];
        if let Some(code) = s.code {
            stages.insert(4, stage("code the parity", Party::Author, code, 1.0));
        }
        Bound::new("put", self.profile, stages, s.files.disk * n)
    }

    /// What a get into a file cannot pass, with all holders well: the pages are read and no parity. The file is left to the
    /// system, or written as it comes: what is faster here.
    pub(crate) fn get(&self) -> Bound {
        let s = &self.stages;
        let left = self.got(
            stage("leave to the system", Party::Author, s.files.leave, 1.0),
            s.files.disk_read,
        );
        // Large records go past the system's cache (`env::disk::Bulk`), so a get reads them from the disk, while it
        // writes the file.
        let written = self
            .got(stage("write and fsync", Party::Author, s.files.write, 1.0), s.files.disk_both);
        if left.bytes_a_second > written.bytes_a_second { left } else { written }
    }

    fn got(&self, file: Stage, disk: f64) -> Bound {
        let s = &self.stages;
        let stages = vec![
            stage("read the record", Party::Peers, s.files.read, 1.0),
            stage("TLS and TCP, sending", Party::Peers, s.tls_send, 1.0),
            stage("TLS and TCP, receiving", Party::Author, s.tls_receive, 1.0),
            stage("hash the ids", Party::Author, s.hash, 1.0),
            stage("tag of the chunk", Party::Author, s.tag, 1.0),
            stage("open", Party::Author, s.open, 1.0),
            file,
        ];
        Bound::new("get", self.profile, stages, disk)
    }
}

/// Bytes stored for each byte of content.
pub(crate) fn redundancy(profile: Profile) -> f64 {
    match profile {
        Profile::Copies(copies) => f64::from(copies),
        Profile::Stripe { k, n } => f64::from(n) / f64::from(k),
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
        let measured = Measured::new(bench, self.profile)?;
        let mut report = Report::new("limit", bench.quick);
        let text = measured.stages.compress_text;
        bench.tell(format!(
            "stages timed over {}; text compresses at {:.0} MB/s a core, random bytes at {:.0}\n",
            size::text(measured.stages.bytes as u64),
            1e-6 / text,
            1e-6 / measured.stages.compress_random
        ));
        for bound in [measured.put(), measured.get()] {
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
    let rate = bound.bytes_a_second / 1e6;
    let title = format!("{} of {}: limit {rate:.0} MB/s", bound.work, bound.profile);
    Chart::bars(&title, "ns/KiB of one core", names)
        .with("all of them", points(|stage| stage.times))
        .with("once", points(|_| 1.0))
}

/// A stage's first word, for below a bar.
fn short(stage: &Stage) -> String {
    stage.name.split([' ', ',']).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::files::Files;
    use super::*;

    fn measured(profile: Profile, code: Option<f64>) -> Measured {
        let stages = Stages {
            bytes: 1,
            compress_random: 2.0,
            compress_text: 1000.0,
            seal: 4.0,
            open: 8.0,
            tag: 16.0,
            hash: 32.0,
            tls_send: 64.0,
            tls_receive: 128.0,
            files: Files {
                read: 1.0,
                write: 256.0,
                leave: 512.0,
                disk: 100_000.0,
                disk_read: 75_000.0,
                disk_both: 150_000.0,
            },
            code,
        };
        Measured { stages, profile }
    }

    #[test]
    fn the_sum_has_every_stage_as_often_as_it_is_met() {
        let three = measured(Profile::Copies(3), None);
        let put = three.put();
        let author = 1.0 + 2.0 + 4.0 + 16.0 + 32.0 + 3.0 * 64.0;
        let peers = 3.0 * (128.0 + 32.0 + 256.0);
        assert_eq!((put.of(Party::Author), put.of(Party::Peers)), (author, peers));
        assert_eq!(put.cpu_seconds_a_byte, author + peers);
        assert_eq!(put.disk_seconds_a_byte, 300_000.0);
        assert_eq!(put.bytes_a_second, 1.0 / 300_000.0, "here the disk is the narrow place");
        let get = three.get();
        assert_eq!(get.disk_seconds_a_byte, 75_000.0, "it reads, and writing can wait");
        assert_eq!(get.of(Party::Peers), 1.0 + 64.0);
        assert_eq!(get.of(Party::Author), 128.0 + 32.0 + 16.0 + 8.0 + 512.0);
        let mut fast = three;
        fast.stages.files.leave = 1e6;
        let get = fast.get();
        assert_eq!(get.disk_seconds_a_byte, 150_000.0, "it reads and writes");
        assert_eq!(get.of(Party::Author), 128.0 + 32.0 + 16.0 + 8.0 + 256.0);
    }

    #[test]
    fn a_stripe_is_coded_once_and_moved_as_often_as_it_has_fragments_a_page() {
        let put = measured(Profile::Stripe { k: 4, n: 8 }, Some(512.0)).put();
        let author = 1.0 + 2.0 + 4.0 + 16.0 + 512.0 + 2.0 * 32.0 + 2.0 * 64.0;
        let peers = 2.0 * (128.0 + 32.0 + 256.0);
        assert_eq!((put.of(Party::Author), put.of(Party::Peers)), (author, peers));
        assert_eq!((put.disk_seconds_a_byte, put.profile.as_str()), (200_000.0, "4/8"));
        assert_eq!(redundancy(Profile::Stripe { k: 10, n: 16 }), 1.6);
    }

    #[test]
    fn where_the_disk_is_fast_the_cores_divide_the_work() {
        let mut fast = measured(Profile::Copies(1), None);
        (fast.stages.files.disk, fast.stages.files.disk_both) = (0.0, 0.0);
        let put = fast.put();
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
        let mut measured = Measured::new(&bench, Profile::Stripe { k: 4, n: 8 }).unwrap();
        let two = measured.put();
        assert!(two.stages.iter().all(|stage| stage.seconds_a_byte > 0.0), "{two:?}");
        assert!(two.stages.iter().any(|stage| stage.name == "code the parity"));
        measured.profile = Profile::Stripe { k: 4, n: 16 };
        assert!(measured.put().bytes_a_second < two.bytes_a_second);
        let report = Limit { profile: Profile::Copies(3) }.run(&bench).unwrap();
        assert!(report.is_met() && report.bars.is_empty(), "it promises nothing");
        assert_eq!(report.charts.len(), 2);
    }
}
