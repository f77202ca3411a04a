//! How much memory: a long stream through an author and its peers, and a whole network at rest.
//!
//! ```text
//! hold put -   <- so many bytes that do not compress        peak resident size of the author,
//! hold get -o - -> read and compared on the way             and of every peer
//! 64 peers, settled, left alone for a minute                proportional size, processor time
//! ```
//! Peak is the process's largest resident size ever (VmHWM), and an idle peer of a few is taken by its resident size. Of a network the
//! proportional size counts, of its largest peer too: 64 processes share the program's own pages, which would else be counted 64 times.

mod rest;
mod stream;

use crate::community::{Community, Kind, PEERS_MAX};
use crate::error::BenchError;
use crate::folder::Folder;
use crate::percentiles::largest;
use crate::process;
use crate::report::{Bar, Report};
use crate::{Bench, size};
use rest::Rest;
use stream::Streamed;

const MIB: f64 = (1 << 20) as f64;
const PEAK_MAX_MIB: f64 = 256.0;
const IDLE_MAX_MIB: f64 = 40.0;
const NETWORK_MAX_MIB: f64 = 4096.0;
/// Cores that a whole network may keep busy at rest.
const IDLE_CORES_MAX: f64 = 0.1;
const SIZE_QUICK: u64 = 24 << 20;
const SIZE_MAX: u64 = 1 << 40;

/// `hold bench memory`.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes of the stream.
    pub size: u64,
    /// Peers it goes through, and of the network at rest.
    pub peers: usize,
    /// Peers of the network at rest.
    pub network: usize,
}

impl Memory {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Wrong`] where what came out is not what went in.
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        let size = if bench.quick { self.size.min(SIZE_QUICK) } else { self.size };
        if !(1..=SIZE_MAX).contains(&size) {
            return Err(BenchError::Argument { name: "--size", reason: "from 1 byte to 1 TiB" });
        }
        if !(1..=PEERS_MAX).contains(&self.network) {
            return Err(BenchError::Argument { name: "--network", reason: "from 1 to 64" });
        }
        let network = if bench.quick { self.network.min(4) } else { self.network };
        // A page has three copies where nothing else is said.
        Folder::check_room(bench.dir.as_deref(), size.saturating_mul(3) + (1 << 30))?;
        let mut report = Report::new("memory", bench.quick);
        self.stream(bench, size, &mut report)?;
        at_rest(bench, network, &mut report)?;
        Ok(report)
    }

    fn stream(&self, bench: &Bench, bytes: u64, report: &mut Report) -> Result<(), BenchError> {
        let kind = Kind { peers: self.peers, suite: "holdfast-1", profile: None };
        let mut community = Community::start(bench, kind)?;
        let mib = |bytes: Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64 / MIB);
        let idle = largest(community.pids().map(|pid| mib(process::resident(pid))));
        let home = community.home("author")?;
        let (put, address) = stream::put(bench, &community, &home, bytes)?;
        let get = stream::get(bench, &community, &home, &address, bytes)?;
        community.check()?;
        let peers = largest(community.pids().map(|pid| mib(process::peak_memory(pid))));
        let through = size::text(bytes);
        let bars = [
            (format!("author putting {through}, peak MiB"), mib(put.author_peak), PEAK_MAX_MIB),
            (format!("author getting {through}, peak MiB"), mib(get.author_peak), PEAK_MAX_MIB),
            (format!("peer that stored and sent {through}, peak MiB"), peers, PEAK_MAX_MIB),
            (format!("idle peer of {}, resident MiB", self.peers), idle, IDLE_MAX_MIB),
        ];
        for (name, value, bar) in bars {
            bench.tell(format!("{name}: {value:.0} (at most {bar:.0})"));
            report.bars.push(Bar::at_most(name, value, bar));
        }
        let names = vec!["put".to_owned(), "get".to_owned()];
        let points = vec![(0.0, mib(put.author_peak)), (1.0, mib(get.author_peak))];
        let at = (0..2).map(|at| (f64::from(at), PEAK_MAX_MIB)).collect();
        report.charts.push(
            crate::chart::Chart::bars(&format!("{through} through a pipe"), "peak MiB", names)
                .with("author", points)
                .with("peer", vec![(0.0, mib(put.peer_peak)), (1.0, mib(get.peer_peak))])
                .beside("bar", at),
        );
        [put, get].iter().try_for_each(|streamed: &Streamed| report.run(streamed))
    }
}

/// A network left alone.
fn at_rest(bench: &Bench, peers: usize, report: &mut Report) -> Result<(), BenchError> {
    let rest: Rest = rest::measure(bench, peers)?;
    let total = format!("network of {peers}, proportional MiB in all");
    let largest = format!("largest idle peer of {peers}, proportional MiB");
    bench.tell(format!(
        "{peers} peers at rest: {:.0} MiB in all, the largest {:.0} MiB ({:.0} resident), {:.1} % of one core, {} threads a peer",
        rest.proportional_mib,
        rest.largest_mib,
        rest.largest_resident_mib,
        rest.cores * 100.0,
        rest.threads_a_peer
    ));
    report.bars.push(Bar::at_most(total, rest.proportional_mib, NETWORK_MAX_MIB));
    report.bars.push(Bar::at_most(largest, rest.largest_mib, IDLE_MAX_MIB));
    let cores = format!("network of {peers} at rest, cores busy");
    report.bars.push(Bar::at_most(cores, rest.cores, IDLE_CORES_MAX));
    report.charts.push(rest.chart());
    report.run(&rest)
}
