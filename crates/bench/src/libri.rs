//! The experiment of Libri's paper: uploads and downloads of documents on clusters of peers.
//!
//! Clusters of 8 to 64 peer processes, 64K, 256K and 1024K uploads a day; sizes of documents from a
//! gamma distribution (shape 1.5, scale 170 KB), random content, 3 copies, one-page documents inline
//! in their entries. An upload is 4 Puts (entry, own envelope, two readers') and 4 Gets (two readers,
//! envelope and entry each), at entry peers drawn evenly. Then the rate is raised until it does not
//! hold: the saturation.
//!
//! With a profile the same documents arrive as contents of a `holdfast-1` network that are kept so, and authors that walk by
//! themselves put and get them ([`authors`]): a Put is then a whole upload, with stripe, entry and three envelopes, and a Get
//! a whole document. The paper's requests are smaller, so nothing is promised then, and no saturation is looked for.
//!
//! `bare` does the same load with peers that only pass bytes on ([`bare`]): what this machine leaves for it, and so what the bars
//! ask of ours.
//!
//! Differences: the paper gave each peer a processor of its own and the clients machines of theirs;
//! here all share this machine's cores, clients included. It ran an hour a point.

mod bare;
mod saturation;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use placement::Profile;
use serde::Serialize;

use crate::Bench;
use crate::chart::Chart;
use crate::community::{Community, Kind, PEERS_MAX};
use crate::error::BenchError;
use crate::load::authors::{self, Authors};
use crate::load::clients::Clients;
use crate::load::documents::Sizes;
use crate::load::{self, Entries, Load, Outcome, REQUESTS, What};
use crate::percentiles::Percentiles;
use crate::report::{Bar, Report};

use bare::Bare;
pub(crate) use saturation::{Search, saturation, sustained};

/// Requests a second of the paper's highest load.
pub(crate) const PAPER_REQUESTS: f64 = 92.2;
/// The paper's medians at it, in ms.
const PAPER_GET_MS: f64 = 6.0;
const PAPER_PUT_MS: f64 = 22.0;
/// The paper's limit of one peer, in requests a second.
const PAPER_PEER_REQUESTS: f64 = 50.0;
const GET_MAX_MS: f64 = 2.0;
const PUT_MAX_MS: f64 = 5.0;
const SATURATION_MIN: f64 = 20.0;
const GROWTH_MAX: f64 = 1.5;
/// The part of the requests at the judged load that may be refused or fail, and the part that must be answered in its time. Latencies are
/// those of answered requests: without these, peers that refuse most of them would look fast.
const LOST_MAX: f64 = 0.001;
const ANSWERED_MIN: f64 = 0.95;
const DAY_S: f64 = 86_400.0;
const QUICK_SECONDS: f64 = 5.0;
const QUICK_PEERS_MAX: usize = 8;
/// How often each pair of peers has stored before anything is timed: an hour's run knows no first call.
const WARM_STORES_A_PAIR: f64 = 3.0;
/// Uploads a second while warming.
const WARM_RATE: f64 = 40.0;
/// Copies of each document.
const COPIES: u32 = 3;

/// `hold bench libri`.
#[derive(Clone, Debug)]
pub struct Libri {
    /// Sizes of the clusters.
    pub peers: Vec<usize>,
    /// Uploads a day.
    pub rates: Vec<u64>,
    /// Seconds a point.
    pub seconds: f64,
    /// Of arrivals, sizes and entry peers.
    pub seed: u64,
    /// Whether the saturation is looked for; never with a profile.
    pub saturate: bool,
    /// What contents are kept as, in the stead of `libri-1`'s copies of each record.
    pub profile: Option<Profile>,
    /// With peers that only pass bytes on, in the stead of ours.
    pub bare: bool,
}

/// Who does a load.
enum By {
    Clients(Arc<Clients>),
    Authors(Arc<Authors>),
    Bare(Arc<Bare>),
}

impl By {
    async fn run(&self, load: Load, stop: &crate::Stop) -> Result<Outcome, BenchError> {
        match self {
            Self::Clients(clients) => load::run(clients, load, stop).await,
            Self::Authors(authors) => authors::run(authors, load, stop).await,
            Self::Bare(bare) => load::run(bare, load, stop).await,
        }
    }
}

/// One cluster at one rate.
#[derive(Clone, Debug, Serialize)]
struct Point {
    peers: usize,
    /// Whether these peers only pass bytes on.
    bare: bool,
    /// What whole contents are kept as; none of single records.
    profile: Option<String>,
    uploads_a_day: f64,
    seconds: f64,
    requests_a_second: f64,
    put_mbit_s: f64,
    put: Percentiles,
    get: Percentiles,
    /// Of these, those of what the peer that was asked holds, and the others, small and large.
    get_held: Percentiles,
    get_small: Percentiles,
    get_large: Percentiles,
    /// Uploads that arrived.
    arrived: usize,
    refused: usize,
    failed: usize,
    shed: usize,
    lag_ms: f64,
    /// Processor time of all peers, in cores.
    peers_cores: f64,
    clients_cores: f64,
    others_cores: Option<f64>,
}

/// What a cluster is measured by.
#[derive(Clone, Copy)]
struct Cluster<'a> {
    peers: usize,
    by: &'a By,
    /// Processor time of its peers so far.
    cpu: &'a dyn Fn() -> Duration,
}

/// The saturation of one cluster.
#[derive(Clone, Debug, Serialize)]
struct Saturation {
    peers: usize,
    saturation_requests_a_second: f64,
}

impl Libri {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Wrong`] where a get answered other bytes than were put.
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        let this = self.checked(bench)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(BenchError::io("start", "a runtime"))?;
        let mut report = Report::new("libri", bench.quick);
        let (mut points, mut clusters) = (Vec::new(), Vec::new());
        for peers in &this.peers {
            let measured = match this.bare {
                true => this.bare(bench, *peers, &runtime)?,
                false => this.peers(bench, *peers, &runtime)?,
            };
            for point in &measured.0 {
                report.run(point)?;
            }
            points.extend(measured.0);
            if let Some(found) = measured.1 {
                let cluster = Saturation { peers: *peers, saturation_requests_a_second: found };
                report.run(&cluster)?;
                clusters.push(cluster);
            }
        }
        match (this.profile, this.bare) {
            (Some(profile), _) => told(&mut report, &points, profile),
            (None, bare) => conclude(&mut report, &points, &clusters, bare),
        }
        Ok(report)
    }

    /// Runs the bare peer of such a file until it is killed.
    ///
    /// # Errors
    /// [`BenchError`].
    pub fn serve(file: &Path) -> Result<(), BenchError> {
        bare::serve(file)
    }

    fn checked(&self, bench: &Bench) -> Result<Self, BenchError> {
        let mut this = self.clone();
        this.peers.sort_unstable();
        this.peers.dedup();
        if bench.quick {
            this.peers.retain(|peers| *peers <= QUICK_PEERS_MAX);
            this.seconds = this.seconds.min(QUICK_SECONDS);
        }
        let wrong = |name, reason| Err(BenchError::Argument { name, reason });
        if this.bare && this.profile.is_some() {
            return wrong("--bare", "no --profile: these peers know copies alone");
        }
        let needed = this.profile.map_or(1, |profile| profile.peers_min());
        if this.peers.iter().any(|peers| *peers < needed) {
            return wrong("--profile", "a peer for each fragment in every cluster");
        }
        if this.peers.is_empty() || !this.peers.iter().all(|peers| (1..=PEERS_MAX).contains(peers))
        {
            return wrong("--peers", "from 1 to 64; with --quick to 8");
        }
        if this.rates.is_empty() || this.rates.contains(&0) {
            return wrong("--rates", "at least one upload a day");
        }
        if !(0.1..=86_400.0).contains(&this.seconds) {
            return wrong("--seconds", "from 0.1 to a day");
        }
        Ok(this)
    }

    /// A cluster of our peers: all rates, and its saturation.
    fn peers(
        &self,
        bench: &Bench,
        peers: usize,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<(Vec<Point>, Option<f64>), BenchError> {
        let (suite, profile) = match self.profile {
            Some(profile) => ("holdfast-1", profile),
            None => ("libri-1", Profile::Copies(COPIES)),
        };
        let mut community = Community::start(bench, Kind { peers, suite, profile: Some(profile) })?;
        let measured = runtime.block_on(async {
            let by = match self.profile {
                Some(profile) => By::Authors(Authors::new(&community, profile, &bench.stop).await?),
                None => By::Clients(Clients::new(&community, &bench.stop).await?),
            };
            self.cluster(bench, &Cluster { peers, by: &by, cpu: &|| community.cpu() }).await
        })?;
        community.check()?;
        Ok(measured)
    }

    /// The same of peers that only pass bytes on.
    fn bare(
        &self,
        bench: &Bench,
        peers: usize,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<(Vec<Point>, Option<f64>), BenchError> {
        runtime.block_on(async {
            let bare = Bare::start(bench, peers).await?;
            let by = By::Bare(bare.clone());
            self.cluster(bench, &Cluster { peers, by: &by, cpu: &|| bare.cpu() }).await
        })
    }

    /// All rates on one cluster, and its saturation.
    async fn cluster(
        &self,
        bench: &Bench,
        cluster: &Cluster<'_>,
    ) -> Result<(Vec<Point>, Option<f64>), BenchError> {
        let Cluster { peers, by, cpu } = *cluster;
        by.run(warming(bench, peers, self.seed), &bench.stop).await?;
        let mut points = Vec::new();
        for (number, uploads_a_day) in self.rates.iter().enumerate() {
            let load = Load {
                uploads_a_second: *uploads_a_day as f64 / DAY_S,
                seconds: self.seconds,
                sizes: Sizes::PAPER,
                seed: self.seed.wrapping_add(number as u64 + 1),
            };
            let point = self.point(bench, cluster, load).await?;
            bench.tell(point.line());
            points.push(point);
        }
        if !self.saturate {
            return Ok((points, None));
        }
        let seconds = if bench.quick { 1.0 } else { (self.seconds / 6.0).clamp(5.0, 20.0) };
        let search =
            Search { start: 4.0 * PAPER_REQUESTS / REQUESTS, seconds, sizes: Sizes::PAPER, cpu };
        let found = match by {
            By::Clients(clients) => saturation(bench, clients, search).await.map(Some),
            By::Bare(bare) => saturation(bench, bare, search).await.map(Some),
            By::Authors(_) => Ok(None),
        };
        Ok((points, found?))
    }
}

/// Stores until peers and clients have connections to each other, as an hour's run would have.
pub(crate) async fn warm(
    bench: &Bench,
    clients: &Arc<impl Entries>,
    peers: usize,
    seed: u64,
) -> Result<(), BenchError> {
    load::run(clients, warming(bench, peers, seed), &bench.stop).await.map(drop)
}

fn warming(bench: &Bench, peers: usize, seed: u64) -> Load {
    let pairs = (peers * peers) as f64;
    let uploads = pairs * WARM_STORES_A_PAIR / (4.0 * f64::from(COPIES));
    let most = if bench.quick { 1.0 } else { 60.0 };
    let seconds = (uploads / WARM_RATE).clamp(0.5, most);
    // Small documents: it is the connections that are wanted.
    let sizes = Sizes { shape: 1.5, scale: 20e3 };
    Load { uploads_a_second: WARM_RATE, seconds, sizes, seed }
}

impl Libri {
    /// One load, measured.
    async fn point(
        &self,
        bench: &Bench,
        cluster: &Cluster<'_>,
        load: Load,
    ) -> Result<Point, BenchError> {
        use crate::process::{Share, own_cpu};
        let Cluster { peers, by, cpu } = *cluster;
        let (peers_before, own_before) = (cpu(), own_cpu());
        let share = Share::since(peers_before + own_before);
        let started = std::time::Instant::now();
        let outcome = by.run(load, &bench.stop).await?;
        let wall = started.elapsed().as_secs_f64();
        let (peers_after, own_after) = (cpu(), own_cpu());
        let cores = |after: Duration, before| after.saturating_sub(before).as_secs_f64() / wall;
        let Outcome { arrived, busy, failed, shed, put_bytes, lag, .. } = &outcome;
        Ok(Point {
            peers,
            bare: self.bare,
            profile: self.profile.map(|profile| profile.to_string()),
            uploads_a_day: load.uploads_a_second * DAY_S,
            seconds: load.seconds,
            requests_a_second: outcome.answered_a_second(load.seconds),
            put_mbit_s: *put_bytes as f64 * 8.0 / 1e6 / load.seconds,
            put: outcome.latencies(true).percentiles(),
            get: outcome.latencies(false).percentiles(),
            get_held: outcome.latencies_of(What::Held).percentiles(),
            get_small: outcome.latencies_of(What::Small).percentiles(),
            get_large: outcome.latencies_of(What::Large).percentiles(),
            arrived: *arrived,
            refused: *busy,
            failed: *failed,
            shed: *shed,
            lag_ms: lag.as_secs_f64() * 1e3,
            peers_cores: cores(peers_after, peers_before),
            clients_cores: cores(own_after, own_before),
            others_cores: share.others(peers_after + own_after),
        })
    }
}

impl Point {
    /// The part of the requests that arrived which was refused, failed or not begun; not a number where none arrived.
    fn lost_part(&self) -> f64 {
        let lost = (self.refused + self.failed) as f64 + self.shed as f64 * REQUESTS;
        lost / (self.arrived as f64 * REQUESTS)
    }

    /// The part of them that was answered before the load's end; not a number where none arrived.
    fn answered_part(&self) -> f64 {
        self.requests_a_second * self.seconds / (self.arrived as f64 * REQUESTS)
    }

    fn line(&self) -> String {
        format!(
            "{:>2} peers, {:>5.0}K a day: {:>6.1} requests/s, Put {:.2} / {:.2} / {:.2} ms, \
             Get {:.2} / {:.2} / {:.2} ms (p50 / p95 / p99), {} not answered, cores: peers {:.2}, \
             clients {:.2}, others {:.2}; Get p50 of {:.2} held where asked {:.2} ms, of others {:.2} small, {:.2} large",
            self.peers,
            self.uploads_a_day / 1024.0,
            self.requests_a_second,
            self.put.p50_ms,
            self.put.p95_ms,
            self.put.p99_ms,
            self.get.p50_ms,
            self.get.p95_ms,
            self.get.p99_ms,
            self.refused + self.failed + self.shed,
            self.peers_cores,
            self.clients_cores,
            self.others_cores.unwrap_or(f64::NAN),
            self.get_held.calls as f64 / self.get.calls.max(1) as f64,
            self.get_held.p50_ms,
            self.get_small.p50_ms,
            self.get_large.p50_ms,
        )
    }
}

/// Bars, ratios and pictures.
fn conclude(report: &mut Report, points: &[Point], clusters: &[Saturation], bare: bool) {
    let highest = points.iter().map(|point| point.uploads_a_day).fold(0.0, f64::max);
    let at_highest: Vec<&Point> =
        points.iter().filter(|point| point.uploads_a_day >= highest).collect();
    let (first, last) = (at_highest.first(), at_highest.last());
    let mut bars = Vec::new();
    let nan = f64::NAN;
    let of = |point: Option<&&Point>, put: bool| {
        point.map_or(nan, |point| if put { point.put.p50_ms } else { point.get.p50_ms })
    };
    let (peers, load) = (last.map_or(0, |point| point.peers), highest / 1024.0);
    for (name, put, bar, paper) in
        [("Get", false, GET_MAX_MS, PAPER_GET_MS), ("Put", true, PUT_MAX_MS, PAPER_PUT_MS)]
    {
        let (small, large) = (of(first, put), of(last, put));
        let title = format!("{name} p50 ms, {peers} peers, {load:.0}K uploads a day");
        bars.push(Bar::at_most(title, large, bar));
        report.ratio(format!("paper_{name}_p50_to_ours"), paper / large);
        if at_highest.len() > 1 {
            let from = first.map_or(0, |point| point.peers);
            let title = format!("{name} p50, {peers} peers to {from}");
            report.ratio(format!("{name}_growth"), large / small);
            bars.push(Bar::at_most(title, large / small, GROWTH_MAX));
        }
    }
    bars.extend(answered(&at_highest, load));
    if let Some(cluster) = clusters.last() {
        let ratio = cluster.saturation_requests_a_second / PAPER_REQUESTS;
        let title = format!("saturation of {} peers to the paper's highest load", cluster.peers);
        report.ratio("saturation_to_paper", ratio);
        bars.push(Bar::at_least(title, ratio, SATURATION_MIN));
    }
    // Of the others nothing is promised.
    if !bare {
        report.bars.append(&mut bars);
    }
    for put in [false, true] {
        report.charts.push(latencies(points, put));
    }
    report.charts.push(saturations(clusters));
}

/// That the medians are those of what was asked: of each of these points, the worst counts.
fn answered(points: &[&Point], load: f64) -> [Bar; 2] {
    let worst = |of: fn(&Point) -> f64, worse: fn(f64, f64) -> f64| {
        let all = points.iter().map(|point| of(point));
        // `max` and `min` drop what is not a number, and nothing measured is no pass.
        all.reduce(|a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { worse(a, b) })
    };
    let lost = worst(Point::lost_part, f64::max).unwrap_or(f64::NAN);
    let answered = worst(Point::answered_part, f64::min).unwrap_or(f64::NAN);
    let of = format!("of the requests at {load:.0}K uploads a day, the worst cluster");
    [
        Bar::at_most(format!("part lost {of}"), lost, LOST_MAX),
        Bar::at_least(format!("part answered in time {of}"), answered, ANSWERED_MIN),
    ]
}

/// Of whole contents: the medians beside the paper's requests, and pictures.
fn told(report: &mut Report, points: &[Point], profile: Profile) {
    let highest = points.iter().map(|point| point.uploads_a_day).fold(0.0, f64::max);
    for point in points.iter().filter(|point| point.uploads_a_day >= highest) {
        let peers = point.peers;
        report.ratio(
            format!("put_{profile}_at_{peers}_to_paper_put"),
            point.put.p50_ms / PAPER_PUT_MS,
        );
        report.ratio(
            format!("get_{profile}_at_{peers}_to_paper_get"),
            point.get.p50_ms / PAPER_GET_MS,
        );
    }
    report.charts.extend([false, true].map(|put| latencies(points, put)));
}

/// Medians by cluster, a line a load, the paper's median beside.
fn latencies(points: &[Point], put: bool) -> Chart {
    let (name, paper) = if put { ("Put", PAPER_PUT_MS) } else { ("Get", PAPER_GET_MS) };
    let chart = Chart::lines(&format!("{name}, ms"), "peers", "ms").log(true, true);
    let mut loads: Vec<f64> = points.iter().map(|point| point.uploads_a_day).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let row = |load: f64, of: fn(&Percentiles) -> f64| {
        let points = points.iter().filter(move |point| point.uploads_a_day == load);
        points
            .map(|point| (point.peers as f64, of(if put { &point.put } else { &point.get })))
            .collect::<Vec<_>>()
    };
    let chart = loads.iter().fold(chart, |chart, load| {
        chart.with(&format!("p50, {:.0}K a day", load / 1024.0), row(*load, |p| p.p50_ms))
    });
    let highest = loads.last().copied().unwrap_or(0.0);
    let chart = chart
        .with(&format!("p95, {:.0}K", highest / 1024.0), row(highest, |p| p.p95_ms))
        .with(&format!("p99, {:.0}K", highest / 1024.0), row(highest, |p| p.p99_ms));
    let ends = row(highest, |_| 1.0).into_iter().map(|(peers, _)| (peers, paper)).collect();
    chart.beside("paper, p50 of 1024K", ends)
}

fn saturations(clusters: &[Saturation]) -> Chart {
    let row = |of: &dyn Fn(&Saturation) -> f64| {
        clusters.iter().map(|cluster| (cluster.peers as f64, of(cluster))).collect()
    };
    Chart::lines("Saturation", "peers", "requests/s")
        .log(true, true)
        .with("this machine's cores", row(&|cluster| cluster.saturation_requests_a_second))
        .beside(
            "paper, 50 a peer and core",
            row(&|cluster| PAPER_PEER_REQUESTS * cluster.peers as f64),
        )
        .beside("paper, highest load", row(&|_| PAPER_REQUESTS))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn point(peers: usize, uploads_a_day: f64, put: f64, get: f64) -> Point {
        let percentiles =
            |p50_ms| Percentiles { calls: 9, p50_ms, p95_ms: 9.0, p99_ms: 9.0, max_ms: 9.0 };
        Point {
            peers,
            bare: false,
            profile: None,
            uploads_a_day,
            seconds: 1.0,
            requests_a_second: 796.0,
            put_mbit_s: 1.0,
            put: percentiles(put),
            get: percentiles(get),
            get_held: percentiles(get),
            get_small: percentiles(get),
            get_large: percentiles(get),
            arrived: 100,
            refused: 0,
            failed: 0,
            shed: 0,
            lag_ms: 0.0,
            peers_cores: 0.0,
            clients_cores: 0.0,
            others_cores: None,
        }
    }

    #[test]
    fn the_bars_are_those_of_the_largest_cluster_at_the_highest_load() {
        let points = [
            point(8, 65_536.0, 50.0, 50.0),
            point(8, 1_048_576.0, 2.0, 1.0),
            point(64, 65_536.0, 50.0, 50.0),
            point(64, 1_048_576.0, 4.0, 1.4),
        ];
        let clusters = [Saturation { peers: 64, saturation_requests_a_second: 2000.0 }];
        let mut report = Report::new("libri", false);
        conclude(&mut report, &points, &clusters, false);
        let found: Vec<(f64, bool)> =
            report.bars.iter().map(|bar| (bar.value.unwrap(), bar.ok)).collect();
        assert_eq!(found[0], (1.4, true), "Get at 64");
        assert_eq!(found[1], (1.4, true), "its growth");
        assert_eq!(found[2], (4.0, true), "Put at 64");
        assert_eq!(found[3], (2.0, false), "its growth");
        assert_eq!(found[4], (0.0, true), "nothing was lost");
        assert_eq!(found[5], (0.995, true), "and all but what was under way at the end answered");
        assert!(found[6].1 && (found[6].0 - 21.7).abs() < 0.1, "saturation");
        assert_eq!(report.charts.len(), 3);
        assert!(report.charts.iter().all(|chart| !chart.is_empty()));
    }

    #[test]
    fn fast_answers_to_few_requests_meet_no_bar() {
        let good = point(64, 1_048_576.0, 4.0, 1.4);
        let met = |first: &Point, last: &Point| answered(&[first, last], 1024.0).map(|bar| bar.ok);
        assert_eq!(met(&good, &good), [true, true]);
        let refused = Point { refused: 95, requests_a_second: 40.0, ..good.clone() };
        assert_eq!(met(&good, &refused), [false, false]);
        assert_eq!(met(&refused, &good), [false, false], "growth is from the first cluster");
        let failed = Point { failed: 1, ..good.clone() };
        assert_eq!(met(&good, &failed), [false, true], "one of 800");
        let shed = Point { arrived: 1000, requests_a_second: 7992.0, shed: 1, ..good.clone() };
        assert_eq!(met(&good, &shed), [true, true], "one of 1,000 uploads");
        let hung = Point { requests_a_second: 700.0, ..good.clone() };
        assert_eq!(met(&good, &hung), [true, false], "neither answered nor failed");
        let nothing = Point { arrived: 0, requests_a_second: 0.0, ..good.clone() };
        assert_eq!(met(&nothing, &good), [false, false], "nothing arrived");
        assert_eq!(answered(&[], 1024.0).map(|bar| bar.ok), [false, false]);
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
        let good = Libri {
            peers: vec![8, 4, 64],
            rates: vec![1],
            seconds: 60.0,
            seed: 1,
            saturate: false,
            profile: None,
            bare: false,
        };
        let checked = good.checked(&bench).unwrap();
        assert_eq!((checked.peers, checked.seconds), (vec![4, 8], QUICK_SECONDS));
        let bad = [
            Libri { peers: vec![], ..good.clone() },
            Libri { peers: vec![64], ..good.clone() },
            Libri { peers: vec![0], ..good.clone() },
            Libri { rates: vec![0], ..good.clone() },
            Libri { profile: Some(Profile::LEAN), ..good.clone() },
            Libri { profile: Some(Profile::Copies(2)), bare: true, ..good.clone() },
            Libri { seconds: 0.0, ..good },
        ];
        for libri in bad {
            let refused = libri.run(&bench);
            assert!(matches!(refused, Err(BenchError::Argument { .. })), "{libri:?}");
        }
    }
}
