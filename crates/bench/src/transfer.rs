//! A large file in and out, as a user would: `hold put` and `hold get` against peer processes, and
//! how near that comes to what the machine can do at all.
//!
//! Storj's experiment, our side: a file whole, and cut by hand into chunks that several runs put at
//! once. The rate is what the verb tells, in which opening the keyring has no part. Processor time of
//! the author and of the peers is set beside the limit's share of each, which tells where the rest
//! goes; what other programs took of the machine meanwhile is told too.

mod beside;
mod content;
mod degraded;
mod held;
mod split;
mod spread;
mod tree;
mod waiting;

use std::path::Path;
use std::time::{Duration, Instant};

use placement::Profile;
use serde::Serialize;

use crate::chart::Chart;
use crate::community::{Community, Home, Kind};
use crate::error::BenchError;
use crate::folder::Folder;
use crate::full::is_full;
use crate::limit::{Bound, Measured, Party, redundancy};
use crate::percentiles::middle;
use crate::process::{self, Share};
use crate::program::Run;
use crate::report::{Bar, Report};
use crate::{Bench, size};
use beside::{Content, Ours, Rivals};
use degraded::Stored;
use split::Cut;

pub use beside::{Beside, BoxError, Theirs, Work};
pub use content::same;
pub use tree::same_tree;
pub(crate) use tree::write as write_tree;

/// Put and get must reach this part of the limit, of copies and of stripes.
const BAR_COPIES: f64 = 0.5;
const BAR_STRIPES: f64 = 0.6;
/// Tries at most.
const TRIES_MAX: usize = 20;
/// How often the bytes moved are looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// The longest one transfer may take.
const TRANSFER_LIMIT: Duration = Duration::from_secs(3600);
/// How long the peers may go on with late copies after a put was told.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
/// Stored bytes, with what came out, that another program may need for each of the content.
const THEIR_REDUNDANCY_MAX: u64 = 6;
const SIZE_QUICK: u64 = 8 << 20;
const FILES_QUICK: usize = 50;
const SIZE_MAX: u64 = 1 << 40;

/// `hold bench transfer`.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Bytes of the file.
    pub size: u64,
    /// What files are kept as.
    pub profile: Profile,
    /// Peer processes.
    pub peers: usize,
    /// Also cut by hand into chunks of so many bytes.
    pub chunks: Option<u64>,
    /// How many runs at once put the chunks, one measurement each.
    pub transfers: Vec<usize>,
    /// Also a folder of so many files of 4 KiB.
    pub files: usize,
    /// Also so many bytes by an author held to one core.
    pub one_core: Option<u64>,
    /// Also gets after so many peers were killed.
    pub lost: usize,
    /// How often; the median counts.
    pub tries: usize,
}

/// One transfer, as it was.
#[derive(Clone, Debug, Serialize)]
struct Moved {
    work: &'static str,
    bytes: u64,
    seconds: f64,
    mb_s: f64,
    /// Of the limit of the same run.
    ratio: f64,
    /// Processor seconds of the author without opening the keyring, and of all peers.
    author_cpu_s: f64,
    peers_cpu_s: f64,
    /// Cores that other programs kept busy.
    others_cores: Option<f64>,
    /// Bytes of records that a put left at the peers.
    stored_bytes: Option<u64>,
    /// Seconds since the start, and MB/s in the moment before.
    rates: Vec<(f64, f64)>,
}

impl Transfer {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Wrong`] where what came out is not what went in.
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        self.run_beside(bench, &mut [])
    }

    /// As [`Transfer::run`], each try followed by a turn of other programs with the same file.
    ///
    /// # Errors
    /// As [`Transfer::run`]. A program that fails is no error: its bars were not measured.
    pub fn run_beside(
        &self,
        bench: &Bench,
        programs: &mut [Box<dyn Beside>],
    ) -> Result<Report, BenchError> {
        let this = self.checked(bench)?;
        let tries = if bench.quick { 1 } else { this.tries };
        let cut = this.cut().map_or(0, |cut| cut.bytes_of_all());
        // What is cut has a network of its own, when that of the tries is gone.
        let bytes = this.size.saturating_mul(tries as u64).max(cut);
        let copies = (bytes as f64 * redundancy(this.profile)) as u64;
        let theirs = if programs.is_empty() { 0 } else { this.size * THEIR_REDUNDANCY_MAX };
        Folder::check_room(bench.dir.as_deref(), copies + this.size * 4 + theirs)?;
        let mut rivals = Rivals::new(programs, this.size, size::text(this.size));
        let profile = Some(this.profile);
        let kind = Kind { peers: this.peers, suite: "holdfast-1", profile };
        let mut community = Community::start(bench, kind)?;
        let home = community.home("author")?;
        let file = community.path().join("content");
        content::write(&file, this.size, &bench.stop)?;
        let keyring = keyring(bench, &community, &home)?;
        let (mut puts, mut gets, mut address) = (Tries::default(), Tries::default(), String::new());
        let mut report = Report::new("transfer", bench.quick);
        for _ in 0..tries {
            // What a shared machine gives changes within minutes: each try is held against the limit of the same moment.
            let measured = Measured::new(bench, this.profile)?;
            let (put_bound, get_bound) = (measured.put(), measured.get());
            rustix::fs::sync();
            settle(bench, &community)?;
            let before = community.stored()?;
            rivals.rest(bench)?;
            let (mut put, at) = put(bench, &community, &home, &file, &put_bound, keyring)?;
            address = at;
            settle(bench, &community)?;
            put.stored_bytes = Some(community.stored()?.saturating_sub(before));
            let out = community.path().join("out");
            rivals.rest(bench)?;
            let get = get(bench, &community, &home, &address, &out, &get_bound, keyring)?;
            content::same(&file, &out, &bench.stop)?;
            std::fs::remove_file(&out).map_err(BenchError::io("remove", &out))?;
            community.check()?;
            for moved in [&put, &get] {
                let Moved { work, mb_s, ratio, .. } = moved;
                bench.tell(format!("{work}: {mb_s:.0} MB/s, {:.0} % of the limit", ratio * 100.0));
                report.run(moved)?;
            }
            puts.0.push((put, put_bound));
            gets.0.push((get, get_bound));
            rivals.turn(bench, Content::File(&file), community.path())?;
        }
        this.conclude(bench, &mut report, &[&puts, &gets]);
        let medians = (Ours::from(puts.median_rate()), Ours::from(gets.median_rate()));
        rivals.conclude(&mut report, Content::File(&file), medians)?;
        spread::told(&community, &mut report)?;
        if this.files > 0 {
            let many = (this.files, tries);
            tree::run(bench, &mut community, &home, many, programs, &mut report)?;
        }
        if let Some(bytes) = this.one_core {
            held::run(bench, &community, &home, (bytes, tries), &mut report)?;
        }
        report.charts.push(rates(&puts, &gets));
        if this.lost > 0 {
            let stored = Stored { file: &file, address: &address, profile: this.profile };
            let (lost, reading) = ((this.lost, tries), (&gets.median().1, keyring));
            degraded::run(bench, &mut community, &home, stored, lost, reading, &mut report)?;
        }
        drop(community);
        if let Some(cut) = this.cut() {
            cut.run(bench, kind, &mut report)?;
        }
        Ok(report)
    }

    fn checked(&self, bench: &Bench) -> Result<Self, BenchError> {
        let size = if bench.quick { self.size.min(SIZE_QUICK) } else { self.size };
        let wrong = |name, reason| Err(BenchError::Argument { name, reason });
        if !(1..=SIZE_MAX).contains(&size) {
            return wrong("--size", "from 1 byte to 1 TiB");
        }
        // Of fewer peers there would be fewer copies, and the limit is of as many as are asked for.
        if (redundancy(self.profile) as usize).max(self.profile.peers_min()) > self.peers {
            return wrong("--profile", "a peer for each copy or fragment");
        }
        if !(1..=TRIES_MAX).contains(&self.tries) {
            return wrong("--tries", "from 1 to 20");
        }
        if self.files > tree::FILES_MAX {
            return wrong("--files", "at most 100000");
        }
        if self.lost > losable(self.profile) || self.lost >= self.peers {
            return wrong("--lost", "at most as many peers as the profile may lose");
        }
        if !self.one_core.is_none_or(|bytes| (1..=SIZE_MAX).contains(&bytes)) {
            return wrong("--one-core", "from 1 byte to 1 TiB");
        }
        let files = if bench.quick { self.files.min(FILES_QUICK) } else { self.files };
        let held =
            self.one_core.map(|bytes| if bench.quick { bytes.min(SIZE_QUICK) } else { bytes });
        let this = Self { size, files, one_core: held, ..self.clone() };
        this.cut().map_or(Ok(()), |cut| cut.check())?;
        Ok(this)
    }

    fn cut(&self) -> Option<Cut<'_>> {
        let (bytes, at_once) = (self.size, self.transfers.as_slice());
        self.chunks.map(|part| Cut { bytes, part, at_once })
    }

    fn conclude(&self, bench: &Bench, report: &mut Report, works: &[&Tries]) {
        for tries in works {
            let (median, bound) = tries.median();
            let work = bound.work;
            bench.tell(format!("\n{}", bound.table()));
            bench.tell(whence(median, bound));
            report.ratio(format!("{work}_to_limit"), median.ratio);
            if let Some(others) = median.others_cores {
                let free = (bound.cores as f64 - others).max(0.1) / bound.cores as f64;
                report.ratio(format!("{work}_to_limit_of_free_cores"), median.ratio / free);
            }
            let cpu = median.author_cpu_s + median.peers_cpu_s;
            let least = bound.cpu_seconds_a_byte * median.bytes as f64;
            report.ratio(format!("{work}_processor_to_limit"), cpu / least);
            let (size, profile) = (size::text(median.bytes), self.profile);
            let name = format!("{work} {size} of {profile}, part of the limit");
            report.bars.push(Bar::at_least(name, median.ratio, bar(profile)));
            report.charts.push(beside(median, bound));
        }
    }
}

impl From<&Moved> for Ours {
    fn from(moved: &Moved) -> Self {
        Self { seconds: moved.seconds, stored_bytes: moved.stored_bytes }
    }
}

/// The part of the limit that is promised.
fn bar(profile: Profile) -> f64 {
    match profile {
        Profile::Stripe { .. } => BAR_STRIPES,
        Profile::Copies(_) => BAR_COPIES,
    }
}

/// How many holders of a stripe, or of a page's copies, may be lost.
fn losable(profile: Profile) -> usize {
    let lost = match profile {
        Profile::Stripe { k, n } => n - k,
        Profile::Copies(copies) => copies.saturating_sub(1),
    };
    lost as usize
}

/// Tries of one work, each with the limit that was measured right before it.
#[derive(Default)]
struct Tries(Vec<(Moved, Bound)>);

impl Tries {
    /// The one in the middle by its part of the limit.
    ///
    /// # Panics
    /// Where there are none.
    fn median(&self) -> &(Moved, Bound) {
        self.by(|moved| moved.ratio)
    }

    /// The one in the middle by rate, which others are compared with.
    fn median_rate(&self) -> &Moved {
        &self.by(|moved| moved.mb_s).0
    }

    fn by(&self, key: fn(&Moved) -> f64) -> &(Moved, Bound) {
        middle(&self.0, |(moved, _)| key(moved))
    }
}

/// Where the time goes: the limit's share of each party beside what it used.
fn whence(moved: &Moved, bound: &Bound) -> String {
    let bytes = moved.bytes as f64;
    let mut out = String::from("  processor        limit's share    measured\n");
    let parties =
        [("author", Party::Author, moved.author_cpu_s), ("peers", Party::Peers, moved.peers_cpu_s)];
    for (name, party, measured) in parties {
        let share = bound.of(party) * bytes;
        out +=
            &format!("  {name:<14} {share:>13.2} s {measured:>9.2} s  x{:.1}\n", measured / share);
    }
    let wall = moved.seconds * bound.cores as f64;
    let others = moved.others_cores.unwrap_or(0.0) * moved.seconds;
    let ours = moved.author_cpu_s + moved.peers_cpu_s;
    out + &format!(
        "  of {wall:.1} core-seconds: ours {ours:.1}, other programs {others:.1}, idle {:.1}\n\
         \x20 {:.0} MB/s is {:.0} % of the limit",
        (wall - ours - others).max(0.0),
        moved.mb_s,
        moved.ratio * 100.0
    )
}

/// A transfer that runs: the process, and what is seen of it from outside.
struct Watched {
    seconds: f64,
    cpu: Duration,
    peers: Duration,
    others: Option<f64>,
    rates: Vec<(f64, f64)>,
    object: serde_json::Value,
}

/// Runs a transfer to its end. `bytes` tells from a process's counters which are the content's.
fn watch(
    bench: &Bench,
    community: &Community,
    mut run: Run,
    bytes: fn((u64, u64)) -> u64,
) -> Result<Watched, BenchError> {
    let (pid, started) = (run.pid(), Instant::now());
    let peers_before = community.cpu();
    let share = Share::since(process::own_cpu() + peers_before);
    let (mut cpu, mut rates) = (Duration::ZERO, Vec::new());
    let (mut last, mut sampled) = (0, Duration::ZERO);
    bench.stop.until("a transfer did not end", TRANSFER_LIMIT, || {
        cpu = process::cpu(pid).filter(|now| *now >= cpu).unwrap_or(cpu);
        let at = started.elapsed();
        if at >= sampled + SAMPLE_EVERY
            && let Some(now) = process::moved(pid).map(bytes)
        {
            let rate = now.saturating_sub(last) as f64 / 1e6 / (at - sampled).as_secs_f64();
            rates.push((at.as_secs_f64(), rate));
            (last, sampled) = (now, at);
        }
        run.ended()
    })?;
    let peers = community.cpu().saturating_sub(peers_before);
    let others = share.others(process::own_cpu() + community.cpu() + cpu);
    let object = run.finish(TRANSFER_LIMIT, &bench.stop)?.object()?;
    let seconds = object["seconds"].as_f64().unwrap_or(f64::NAN);
    Ok(Watched { seconds, cpu, peers, others, rates, object })
}

impl Watched {
    fn moved(self, work: &'static str, bound: &Bound, keyring: Duration) -> Moved {
        let bytes = self.object["bytes"].as_u64().unwrap_or(0);
        let rate = bytes as f64 / self.seconds;
        Moved {
            work,
            bytes,
            seconds: self.seconds,
            mb_s: rate / 1e6,
            ratio: rate / bound.bytes_a_second,
            author_cpu_s: self.cpu.saturating_sub(keyring).as_secs_f64(),
            peers_cpu_s: self.peers.as_secs_f64(),
            others_cores: self.others,
            stored_bytes: None,
            rates: self.rates,
        }
    }
}

/// What a run uses before and beside its content: a put of next to nothing.
fn keyring(bench: &Bench, community: &Community, home: &Home) -> Result<Duration, BenchError> {
    let file = community.path().join("nothing");
    std::fs::write(&file, b"n").map_err(BenchError::io("write", &file))?;
    let mut command = home.command(&community.program, ["put", "--json"]);
    let run = Run::start(command.arg(&file))?;
    Ok(watch(bench, community, run, |(read, _)| read)?.cpu)
}

fn put(
    bench: &Bench,
    community: &Community,
    home: &Home,
    file: &Path,
    bound: &Bound,
    keyring: Duration,
) -> Result<(Moved, String), BenchError> {
    let mut command = home.command(&community.program, ["put", "--json"]);
    let run = Run::start(command.arg(file))?;
    let watched = watch(bench, community, run, |(read, _)| read)?;
    is_full(&watched.object)?;
    let address = watched.object["address"].as_str().unwrap_or_default().to_owned();
    Ok((watched.moved("put", bound, keyring), address))
}

fn get(
    bench: &Bench,
    community: &Community,
    home: &Home,
    address: &str,
    out: &Path,
    bound: &Bound,
    keyring: Duration,
) -> Result<Moved, BenchError> {
    let mut command = home.command(&community.program, ["get", "--json", address, "-o"]);
    let run = Run::start(command.arg(out))?;
    let watched = watch(bench, community, run, |(_, written)| written)?;
    Ok(watched.moved("get", bound, keyring))
}

/// Waits until the peers are at rest, so that one transfer's end is not another's beginning.
pub(crate) fn settle(bench: &Bench, community: &Community) -> Result<(), BenchError> {
    let look = Duration::from_millis(250);
    let started = Instant::now();
    let mut before = community.cpu();
    while started.elapsed() < SETTLE_LIMIT {
        bench.stop.sleep(look)?;
        let now = community.cpu();
        if now.saturating_sub(before) < look / 10 {
            break;
        }
        before = now;
    }
    Ok(())
}

fn rates(puts: &Tries, gets: &Tries) -> Chart {
    let chart = Chart::lines("Rates over time, opening the keyring first", "seconds", "MB/s");
    [&puts.0, &gets.0].into_iter().flatten().enumerate().fold(
        chart,
        |chart, (number, (moved, _))| {
            let half = puts.0.len().max(1);
            chart.with(&format!("{} {}", moved.work, number % half + 1), moved.rates.clone())
        },
    )
}

/// Processor time of each party: the limit's share beside what it used.
fn beside(moved: &Moved, bound: &Bound) -> Chart {
    let per_gib = (1u64 << 30) as f64;
    let measured = |seconds: f64| seconds / moved.bytes as f64 * per_gib;
    let names = ["author", "peers"].map(str::to_owned).to_vec();
    let title = format!(
        "{}: {:.0} MB/s, {:.0} % of the limit",
        moved.work,
        moved.mb_s,
        moved.ratio * 100.0
    );
    let ours = vec![(0.0, measured(moved.author_cpu_s)), (1.0, measured(moved.peers_cpu_s))];
    let least = [Party::Author, Party::Peers].map(|party| bound.of(party) * per_gib);
    Chart::bars(&title, "processor seconds a GiB", names)
        .with("measured", ours)
        .beside("limit's share", vec![(0.0, least[0]), (1.0, least[1])])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn moved(mb_s: f64) -> Moved {
        Moved {
            work: "put",
            bytes: 1 << 30,
            seconds: 2.0,
            mb_s,
            ratio: 0.4,
            author_cpu_s: 1.0,
            peers_cpu_s: 2.0,
            others_cores: Some(0.5),
            stored_bytes: None,
            rates: vec![(0.1, 100.0)],
        }
    }

    fn tries(of: &[(f64, f64)]) -> Tries {
        let bound = Bound {
            work: "put",
            profile: String::new(),
            cores: 2,
            stages: Vec::new(),
            cpu_seconds_a_byte: 1.0,
            disk_seconds_a_byte: 1.0,
            bytes_a_second: 1.0,
        };
        let one =
            |(mb_s, ratio): &(f64, f64)| (Moved { ratio: *ratio, ..moved(*mb_s) }, bound.clone());
        Tries(of.iter().map(one).collect())
    }

    #[test]
    fn the_middle_one_counts() {
        let three = tries(&[(3.0, 0.5), (1.0, 0.6), (2.0, 0.7)]);
        assert_eq!(three.median_rate().mb_s, 2.0);
        assert_eq!(three.median().0.mb_s, 1.0, "by its part of the limit");
        assert_eq!(tries(&[(5.0, 0.1)]).median_rate().mb_s, 5.0);
        assert_eq!(tries(&[(5.0, 0.1), (4.0, 0.2)]).median_rate().mb_s, 4.0, "the slower of two");
    }

    #[test]
    fn sizes_and_numbers_have_bounds() {
        let bench = Bench {
            program: "hold".into(),
            dir: None,
            quick: false,
            stop: crate::Stop::default(),
            tell: Box::new(|_| ()),
        };
        let good = Transfer {
            size: 1,
            profile: Profile::Copies(3),
            peers: 3,
            chunks: None,
            transfers: vec![1],
            files: 0,
            one_core: None,
            lost: 0,
            tries: 1,
        };
        assert!(good.checked(&bench).is_ok());
        let bad = [
            Transfer { size: 0, ..good.clone() },
            Transfer { peers: 2, ..good.clone() },
            Transfer { profile: Profile::Stripe { k: 2, n: 4 }, ..good.clone() },
            Transfer { chunks: Some(1), transfers: vec![33], ..good.clone() },
            Transfer { tries: 0, ..good.clone() },
            Transfer { lost: 3, ..good.clone() },
            Transfer { one_core: Some(0), ..good.clone() },
            Transfer { files: 100_001, ..good.clone() },
            Transfer { chunks: Some(0), ..good },
        ];
        for transfer in bad {
            let refused = transfer.run(&bench);
            assert!(matches!(refused, Err(BenchError::Argument { .. })), "{transfer:?}");
        }
    }
}
