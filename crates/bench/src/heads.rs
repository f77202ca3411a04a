//! `hold bench heads`: heads certified by a committee of member processes, beside OceanStore's numbers and an etcd.
//!
//! ```text
//! 4, 7, 10 members; at each    a lone update at rest, rest itself,
//!                              60 synchronous clients and so many that the members are never idle, each with a key of its own,
//!                              bundles of 250
//! three etcd, if it is there   `etcdctl check perf`: writes that trust every member, of which it asks for 15,000 a second
//! --kills N                    all members killed with -9 again and again while clients work (`kills`)
//! ```
//! Each update moves a head, carries the receipts of two peers, which sign for 64 versions at once as they do under load, and is
//! signed by its client. A bundle's versions were put in one call, so it carries each peer's receipt once. Members and
//! clients share the machine. Answers are checked: the certificate's signature once a block, the rest of each. OceanStore's prototype (Pond, FAST 2003) had members on machines of their own, and its updates carried their data, which
//! here goes to peers beforehand.

mod client;
mod etcd;
mod kills;
mod member;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

pub use etcd::Etcd;

use crate::Bench;
use crate::chart::Chart;
use crate::error::BenchError;
use crate::percentiles::Percentiles;
use crate::process;
use crate::report::{Bar, Report};
use client::{Client, Shared, all};
use member::Members;

const SINGLES_MIN: f64 = 5_000.0;
const BUNDLED_MIN: f64 = 20_000.0;
const LONE_MAX_MS: f64 = 25.0;
const REST_MAX_PERCENT: f64 = 2.0;
const REST_MAX_MIB: f64 = 120.0;
/// The committee that the bars are of.
const BARRED: usize = 4;
/// Updates of a bundle.
const BUNDLE: usize = 250;
/// Synchronous clients, as Pond's experiment had.
const SYNCHRONOUS: u32 = 60;
/// Clients with one update each under way: so many that the members are never idle.
const MANY: u32 = 2_000;
/// Clients with a bundle each under way: several blocks of them.
const BUNDLERS: u32 = 32;
const LONE: usize = 200;
const LONE_QUICK: usize = 20;
/// Between two lone updates.
const LONE_EVERY: Duration = Duration::from_millis(50);

/// Pond's published numbers (FAST 2003), printed beside ours.
const POND: &str = "Pond, with four members on machines of their own: 99 ms an update of 4 kB, \
    13 updates/s one by one and 76 in batches, 5 MB/s of large ones, 74 ms for one threshold share";

/// `hold bench heads`.
#[derive(Clone, Debug)]
pub struct Heads {
    /// How many members, a committee each.
    pub members: Vec<usize>,
    /// For how long each load lasts.
    pub seconds: u64,
    /// What is measured beside.
    pub etcd: Option<Etcd>,
    /// How often all members of one committee are killed under load, in the place of the loads; 0 for the loads.
    pub kills: u32,
}

#[derive(Clone, Debug, Serialize)]
struct Loaded {
    what: &'static str,
    members: usize,
    clients: u32,
    bundle: usize,
    updates: u64,
    updates_a_second: f64,
    member_cpu_us: f64,
    others_cores: Option<f64>,
    turns: Percentiles,
}

#[derive(Clone, Debug, Serialize)]
struct Rest {
    what: &'static str,
    members: usize,
    cpu_percent_a_member: f64,
    resident_mib_max: f64,
    lone: Percentiles,
}

impl Heads {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`].
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        if self.members.iter().any(|count| !(4..=32).contains(count)) || self.members.is_empty() {
            return Err(BenchError::Argument { name: "--members", reason: "from 4 to 32 each" });
        }
        let seconds = if bench.quick { 1 } else { self.seconds.clamp(1, 600) };
        let mut report = Report::new("heads", bench.quick);
        if self.kills > 0 {
            let count = self.members.first().copied().unwrap_or(BARRED);
            let killed = kills::run(bench, count, self.kills)?;
            report.run(&killed)?;
            return Ok(report);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(BenchError::io("run", "clients"))?;
        bench.tell(POND);
        let (mut singles, mut bundled) = (Vec::new(), Vec::new());
        for count in &self.members {
            let work = self.committee(bench, *count, seconds, &mut report);
            let (one, many) = runtime.block_on(bench.stop.unless(work))?;
            singles.push((*count as f64, one));
            bundled.push((*count as f64, many));
        }
        let most = singles.first().map_or(f64::NAN, |(_, rate)| *rate);
        let chart = Chart::lines("Certified updates", "members", "updates a second");
        report.charts.push(chart.with("one by one", singles).with("in bundles of 250", bundled));
        match &self.etcd {
            Some(etcd) => {
                let (writes, asked) = (etcd.measure(bench)?, Etcd::asked(bench));
                bench.tell(format!(
                    "etcd, three members: {writes:.0} writes/s; its tool asks for {asked} at most"
                ));
                report.run(&serde_json::json!({ "what": "etcd", "members": 3,
                    "writes_a_second": writes, "asked_a_second": asked }))?;
                report.ratio("certified updates one by one to etcd's writes", most / writes);
            }
            None => bench
                .tell("etcd is not on the PATH (Debian: etcd-server, etcd-client): not measured"),
        }
        Ok(report)
    }

    /// All of one committee: the rates one by one and in bundles.
    async fn committee(
        &self,
        bench: &Bench,
        count: usize,
        seconds: u64,
        report: &mut Report,
    ) -> Result<(f64, f64), BenchError> {
        let members = Members::start(bench, count)?;
        let shared = Shared::new(&members.charter, client::TRIES)?;
        let run = Turn { bench, members: &members, shared: &shared, seconds };
        let rest = run.rest().await?;
        bench.tell(format!(
            "{count} members: a lone update p50 {:.1} ms, p99 {:.1}; at rest {:.2} % of a core \
             and {:.0} MiB a member",
            rest.lone.p50_ms, rest.lone.p99_ms, rest.cpu_percent_a_member, rest.resident_mib_max
        ));
        report.run(&rest)?;
        let synchronous = run.load(SYNCHRONOUS, 1, 1).await?;
        let singles = run.load(MANY, 1, 2).await?;
        let bundles = run.load(BUNDLERS, BUNDLE, 3).await?;
        for one in [&synchronous, &singles, &bundles] {
            bench.tell(format!(
                "{count} members, {} clients, {} a submission: {:.0} updates/s, {:.0} us of a member's \
                 processor each, p50 {:.0} ms",
                one.clients, one.bundle, one.updates_a_second, one.member_cpu_us, one.turns.p50_ms
            ));
            report.run(one)?;
        }
        if count == BARRED {
            report.bars.extend([
                Bar::at_least(
                    "updates/s, each signed by its own client",
                    singles.updates_a_second,
                    SINGLES_MIN,
                ),
                Bar::at_least("updates/s in signed bundles", bundles.updates_a_second, BUNDLED_MIN),
                Bar::at_most("a lone update, p50 ms", rest.lone.p50_ms, LONE_MAX_MS),
                Bar::at_most(
                    "a member at rest, % of a core",
                    rest.cpu_percent_a_member,
                    REST_MAX_PERCENT,
                ),
                Bar::at_most("a member at rest, MiB", rest.resident_mib_max, REST_MAX_MIB),
            ]);
        }
        Ok((singles.updates_a_second, bundles.updates_a_second))
    }

    /// Runs a member of the experiment until it is killed: what this program does when the experiment starts it.
    ///
    /// # Errors
    /// [`BenchError`].
    pub fn serve(file: &Path) -> Result<(), BenchError> {
        member::serve(file)
    }
}

/// One committee at work.
struct Turn<'a> {
    bench: &'a Bench,
    members: &'a Members,
    shared: &'a Arc<Shared>,
    seconds: u64,
}

impl Turn<'_> {
    /// Lone updates, and then nothing.
    async fn rest(&self) -> Result<Rest, BenchError> {
        let lines = self.members.lines().await?;
        let mut clients = Vec::new();
        for (which, line) in lines.iter().enumerate() {
            let mut client = Client::new(self.shared, line, which as u32, 1)?;
            client.begin().await?;
            client.turn().await?;
            clients.push(client);
        }
        let mut took = Vec::new();
        let count = clients.len();
        for number in 0..if self.bench.quick { LONE_QUICK } else { LONE } {
            self.bench.stop.check()?;
            if let Some(client) = clients.get_mut(number % count) {
                took.push(client.turn().await?);
            }
            tokio::time::sleep(LONE_EVERY).await;
        }
        let (before, at) = (self.members.cpu(), Instant::now());
        tokio::time::sleep(Duration::from_secs(self.seconds.max(2))).await;
        let used = self.members.cpu().saturating_sub(before).as_secs_f64();
        let part = used / at.elapsed().as_secs_f64() / count as f64;
        let resident = self.members.pids().filter_map(process::resident).max();
        let resident_mib_max = resident.map_or(f64::NAN, |bytes| bytes as f64 / f64::from(1 << 20));
        let (what, cpu_percent_a_member) = ("rest", part * 100.0);
        let lone = all(took).percentiles();
        Ok(Rest { what, members: count, cpu_percent_a_member, resident_mib_max, lone })
    }

    /// So many clients at once, each with so many branches.
    async fn load(&self, clients: u32, bundle: usize, number: u32) -> Result<Loaded, BenchError> {
        let clients = if self.bench.quick { clients.min(60) } else { clients };
        let lines = self.members.lines().await?;
        let mut ready = Vec::new();
        for which in 0..clients {
            let line = lines.get(which as usize % lines.len().max(1));
            let line = line.ok_or(BenchError::Wrong("no members"))?;
            ready.push(Client::new(self.shared, line, (number << 24) + which, bundle)?);
        }
        let begins = ready.into_iter().map(|mut client| async move {
            client.begin().await?;
            client.turn().await?;
            Ok::<_, BenchError>(client)
        });
        let ready = futures::future::try_join_all(begins).await?;
        self.bench.stop.check()?;
        let (cpu, at) = (self.members.cpu(), Instant::now());
        let share = process::Share::since(cpu + process::own_cpu());
        let until = at + Duration::from_secs(self.seconds);
        let work: Vec<_> = ready.into_iter().map(|one| tokio::spawn(one.work(until))).collect();
        let (mut updates, mut took) = (0, Vec::new());
        for one in work {
            let end = one.await.map_err(|_| BenchError::Wrong("a client that fell"))?;
            let (done, turns) = end?;
            updates += done;
            took.extend(turns);
        }
        let (wall, used) = (at.elapsed().as_secs_f64(), self.members.cpu());
        let each = used.saturating_sub(cpu).as_secs_f64() / (updates as f64).max(1.0);
        Ok(Loaded {
            what: if bundle == 1 { "one by one" } else { "bundles" },
            members: self.members.pids().count(),
            clients,
            bundle,
            updates,
            updates_a_second: updates as f64 / wall,
            member_cpu_us: each * 1e6 / self.members.pids().count() as f64,
            others_cores: share.others(used + process::own_cpu()),
            turns: all(took).percentiles(),
        })
    }
}
