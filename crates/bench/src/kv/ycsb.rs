//! Half reads, half updates of YCSB's zipfian keys, at the door and at a Redis with and without persistence.
//!
//! ```text
//! a size of values: three sides, all keys set in each
//!   rounds * (one by one, 16 at once) * clients: the door, Redis, Redis with everysec, so many seconds each
//! ```
//! Clients are connections. The paper's are machines with 64 threads each, so its one client stands at 64 here.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::draws::Zipfian;
use super::drive::{Asked, Asking, CLIENTS_MAX, Driven, drive};
use super::median;
use super::resp::{self, Reply};
use super::side::{self, Keeping, Side};
use crate::Bench;
use crate::chart::Chart;
use crate::error::BenchError;
use crate::folder::Folder;
use crate::percentiles::Percentiles;
use crate::process::{Share, own_cpu};
use crate::report::Report;
use crate::seeded::Seeded;
use crate::size;

/// Requests of a client that wait at once: plain, and pipelined.
const DEPTHS: [usize; 2] = [1, 16];
/// What a value has of its own: the key's number.
const TAG_BYTES: usize = 8;
/// Values are windows into so many bytes that do not compress.
const POOL_BYTES: usize = 1 << 20;
const VALUE_BYTES_MAX: u64 = 512 << 10;
const KEYS_MAX: u64 = 10_000_000;
/// All values of one size together have at most so many bytes, so that all sides hold them in memory.
const LOADED_BYTES_MAX: u64 = 256 << 20;
/// What a side may write in a second, for the room that is asked for: updates, what is kept beside a value, and all bytes.
const UPDATES_A_SECOND: f64 = 200e3;
const BESIDE_BYTES: f64 = 300.0;
const WRITTEN_A_SECOND: f64 = 300e6;
const ROUNDS_MAX: usize = 20;
const QUICK_CLIENTS_MAX: usize = 4;
const QUICK_VALUES_MAX: u64 = 1024;
const QUICK_SECONDS: f64 = 0.2;
const QUICK_KEYS: u64 = 1000;
/// Threads of one client of the paper.
const PAPER_THREADS: f64 = 64.0;
/// The paper's requests a second by its clients, figure 6: UStore (without RDMA), and Redis 3.2.5.
const PAPER_USTORE: [(f64, f64); 1] = [(1.0, 60e3)];
const PAPER_REDIS: [(f64, f64); 2] = [(1.0, 86e3), (4.0, 110e3)];

/// `hold bench kv ycsb`.
#[derive(Clone, Debug)]
pub struct KvYcsb {
    /// Numbers of connections.
    pub clients: Vec<usize>,
    /// Sizes of values, in bytes.
    pub values: Vec<u64>,
    /// Different keys; fewer where their values are large.
    pub keys: u64,
    /// Seconds a point and side.
    pub seconds: f64,
    /// How often each side has its turn; the median counts.
    pub rounds: usize,
    /// Of keys and of which requests are reads.
    pub seed: u64,
}

/// One side's turn.
#[derive(Clone, Debug, Serialize)]
struct Point {
    side: &'static str,
    value_bytes: u64,
    pipeline: usize,
    clients: usize,
    round: usize,
    requests_a_second: f64,
    read: Percentiles,
    update: Percentiles,
    /// Processor time of the side, in cores.
    side_cores: f64,
    clients_cores: f64,
    others_cores: Option<f64>,
}

/// Reads and updates, or the first SET of each key.
struct Work<'a> {
    zipfian: Zipfian,
    seeded: Seeded,
    pool: &'a [u8],
    value_bytes: usize,
    until: Option<Instant>,
    /// Keys that are still to be set; none while reading and updating.
    loading: std::ops::Range<u64>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Work<'a> {
    fn new(pool: &'a [u8], value_bytes: u64, keys: u64, seed: u64) -> Self {
        Self {
            zipfian: Zipfian::new(keys),
            seeded: Seeded::new(seed),
            pool,
            value_bytes: value_bytes as usize,
            until: None,
            loading: 0..0,
            key: Vec::new(),
            value: Vec::new(),
        }
    }
}

impl Asking for Work<'_> {
    fn ask(&mut self, out: &mut Vec<u8>) -> Option<Asked> {
        let asked = match self.until {
            None => Asked { read: false, key: self.loading.next()? },
            Some(_) => {
                let read = self.seeded.next() & 1 == 0;
                Asked { read, key: self.zipfian.draw(&mut self.seeded) }
            }
        };
        self.key.clear();
        self.key.extend_from_slice(b"user");
        resp::digits(asked.key, 12, &mut self.key);
        if asked.read {
            resp::request(&[b"GET", &self.key], out);
        } else {
            let from = self.seeded.below(self.pool.len() - self.value_bytes);
            self.value.clear();
            self.value.extend_from_slice(&asked.key.to_be_bytes());
            self.value.extend_from_slice(&self.pool[from..from + self.value_bytes - TAG_BYTES]);
            resp::request(&[b"SET", &self.key, &self.value], out);
        }
        Some(asked)
    }

    fn goes_on(&self, now: Instant) -> bool {
        self.until.map_or(!self.loading.is_empty(), |until| now < until)
    }

    fn check(&self, asked: Asked, reply: Reply<'_>) -> Result<(), BenchError> {
        let right = match reply {
            Reply::Bytes(Some(value)) if asked.read => {
                value.len() == self.value_bytes && value.starts_with(&asked.key.to_be_bytes())
            }
            Reply::Line(b"OK") => !asked.read,
            _ => false,
        };
        if right { Ok(()) } else { Err(BenchError::Wrong("a key's value is not one that was set")) }
    }
}

impl KvYcsb {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Missing`] where there is no Redis, [`BenchError::Wrong`] where a read answers
    /// anything but a value that was set.
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        let this = self.checked(bench)?;
        let version = side::version(bench)?;
        let turns = (this.clients.len() * DEPTHS.len() * this.rounds) as f64;
        // Each size's folders are gone before the next one's are made, and two of three sides write.
        let largest = this.values.iter().max().map_or(0.0, |value| *value as f64 + BESIDE_BYTES);
        let written = (largest * UPDATES_A_SECOND).min(WRITTEN_A_SECOND) * 2.0;
        Folder::check_room(bench.dir.as_deref(), (turns * this.seconds * written) as u64)?;
        let mut pool = vec![0; POOL_BYTES];
        Seeded::new(this.seed).fill(&mut pool);
        let mut points = Vec::new();
        for value_bytes in &this.values {
            points.extend(this.size(bench, *value_bytes, &pool)?);
        }
        let mut report = Report::new("kv-ycsb", bench.quick);
        report.run(&serde_json::json!({ "redis": version, "seconds": this.seconds,
            "seed": this.seed, "paper_clients_of_64_threads": {
                "ustore": PAPER_USTORE, "redis": PAPER_REDIS } }))?;
        points.iter().try_for_each(|point| report.run(point))?;
        conclude(&mut report, &points);
        Ok(report)
    }

    fn checked(&self, bench: &Bench) -> Result<Self, BenchError> {
        let mut this = self.clone();
        if bench.quick {
            this.clients.retain(|clients| *clients <= QUICK_CLIENTS_MAX);
            this.values.retain(|value| *value <= QUICK_VALUES_MAX);
            this.seconds = this.seconds.min(QUICK_SECONDS);
            this.keys = this.keys.min(QUICK_KEYS);
            this.rounds = this.rounds.min(1);
        }
        let wrong = |name, reason| Err(BenchError::Argument { name, reason });
        let clients = |clients: &usize| (1..=CLIENTS_MAX).contains(clients);
        if this.clients.is_empty() || !this.clients.iter().all(clients) {
            return wrong("--clients", "from 1 to 1024; with --quick to 4");
        }
        let value = |value: &u64| (TAG_BYTES as u64..=VALUE_BYTES_MAX).contains(value);
        if this.values.is_empty() || !this.values.iter().all(value) {
            return wrong("--values", "from 8 bytes to 512 KiB; with --quick to 1 KiB");
        }
        if !(1..=KEYS_MAX).contains(&this.keys) {
            return wrong("--keys", "from 1 to 10000000");
        }
        if !(0.05..=3600.0).contains(&this.seconds) {
            return wrong("--seconds", "from 0.05 to an hour");
        }
        if !(1..=ROUNDS_MAX).contains(&this.rounds) {
            return wrong("--rounds", "from 1 to 20");
        }
        Ok(this)
    }

    /// All points of one size of values.
    fn size(&self, bench: &Bench, value_bytes: u64, pool: &[u8]) -> Result<Vec<Point>, BenchError> {
        let sides = [
            Side::door(bench, &["--durability", "everysec"])?,
            Side::redis(bench, Keeping::Memory)?,
            Side::redis(bench, Keeping::EverySecond)?,
        ];
        let keys = self.keys.min(LOADED_BYTES_MAX / value_bytes).max(1);
        for side in &sides {
            let mut load = Work::new(pool, value_bytes, keys, self.seed);
            load.loading = 0..keys;
            drive(side.address, (4, DEPTHS[1]), &mut load, &bench.stop)?;
        }
        let mut points = Vec::new();
        for round in 0..self.rounds {
            for pipeline in DEPTHS {
                for clients in &self.clients {
                    for side in &sides {
                        let seed = self.seed.wrapping_add(round as u64 + 1);
                        let mut work = Work::new(pool, value_bytes, keys, seed);
                        let seconds = Duration::from_secs_f64(self.seconds);
                        let (load, share) = (side.cpu() + own_cpu(), (side.cpu(), own_cpu()));
                        let others = Share::since(load);
                        work.until = Some(Instant::now() + seconds);
                        let driven =
                            drive(side.address, (*clients, pipeline), &mut work, &bench.stop)?;
                        let ours = (side.cpu() - share.0, own_cpu() - share.1);
                        let mut point = Point::of(&driven, ours);
                        point.others_cores = others.others(side.cpu() + own_cpu());
                        (point.side, point.value_bytes) = (side.name, value_bytes);
                        (point.pipeline, point.clients) = (pipeline, *clients);
                        point.round = round;
                        bench.tell(point.line());
                        points.push(point);
                    }
                }
            }
        }
        Ok(points)
    }
}

impl Point {
    /// What a turn came to; whose it was is not known yet.
    fn of(driven: &Driven, (side, clients): (Duration, Duration)) -> Self {
        let wall = driven.wall.as_secs_f64().max(1e-9);
        Self {
            side: "",
            value_bytes: 0,
            pipeline: 0,
            clients: 0,
            round: 0,
            requests_a_second: driven.answered() as f64 / wall,
            read: driven.reads.percentiles(),
            update: driven.updates.percentiles(),
            side_cores: side.as_secs_f64() / wall,
            clients_cores: clients.as_secs_f64() / wall,
            others_cores: None,
        }
    }

    fn line(&self) -> String {
        format!(
            "{:<15} {:>7}, {:>2} clients, {:>2} at once: {:>8.0} requests/s, read {:.2} / {:.2}, \
             update {:.2} / {:.2} ms (p50 / p99), cores: {:.2}, clients {:.2}, others {:.2}",
            self.side,
            size::text(self.value_bytes),
            self.clients,
            self.pipeline,
            self.requests_a_second,
            self.read.p50_ms,
            self.read.p99_ms,
            self.update.p50_ms,
            self.update.p99_ms,
            self.side_cores,
            self.clients_cores,
            self.others_cores.unwrap_or(f64::NAN)
        )
    }
}

/// What a chart shows of one kind of point.
struct Row<'a> {
    points: &'a [Point],
    value_bytes: u64,
    pipeline: usize,
}

impl Row<'_> {
    /// A side's medians over the rounds, by number of clients.
    fn of(&self, side: &str, what: fn(&Point) -> f64) -> Vec<(f64, f64)> {
        let fits = |point: &&Point| {
            point.side == side
                && point.value_bytes == self.value_bytes
                && point.pipeline == self.pipeline
        };
        let fitting: Vec<&Point> = self.points.iter().filter(fits).collect();
        let mut clients: Vec<usize> = fitting.iter().map(|point| point.clients).collect();
        clients.sort_unstable();
        clients.dedup();
        let middle = |clients: usize| {
            let of = fitting.iter().filter(|point| point.clients == clients);
            (clients as f64, median(of.map(|point| what(point)).collect()))
        };
        clients.into_iter().map(middle).collect()
    }
}

/// The sides, by their names and as the charts call them.
const SIDES: [&str; 3] = ["door", "redis", "redis, everysec"];

fn conclude(report: &mut Report, points: &[Point]) {
    let mut values: Vec<u64> = points.iter().map(|point| point.value_bytes).collect();
    values.sort_unstable();
    values.dedup();
    for value_bytes in values {
        for pipeline in DEPTHS {
            let row = Row { points, value_bytes, pipeline };
            let rates = SIDES.map(|side| row.of(side, |point| point.requests_a_second));
            for (beside, name) in [(1, "redis"), (2, "redis_everysec")] {
                for (door, redis) in rates[0].iter().zip(&rates[beside]) {
                    let (clients, at) = (door.0, format!("{value_bytes}_b_{pipeline}_at_once"));
                    let name = format!("door_to_{name}_{at}_{clients}_clients");
                    report.ratio(name, door.1 / redis.1);
                }
            }
            let told = if pipeline == 1 { "one by one" } else { "16 at once" };
            let what = format!("{}, half reads, {told}", size::text(value_bytes));
            let chart = Chart::lines(&what, "clients", "requests/s").log(true, false);
            let [door, redis, everysec] = rates;
            let mut chart = chart
                .with("door, everysec", door)
                .beside("Redis", redis)
                .beside("Redis, everysec", everysec);
            if pipeline == 1 && value_bytes == 1024 {
                let threads = |(clients, rate): (f64, f64)| (clients * PAPER_THREADS, rate);
                chart = chart
                    .beside("paper's UStore", PAPER_USTORE.map(threads).to_vec())
                    .beside("paper's Redis", PAPER_REDIS.map(threads).to_vec());
            }
            report.charts.push(chart);
            report.charts.push(latencies(&row, &what));
        }
    }
}

/// Figure 13: latencies of reads and of updates.
fn latencies(row: &Row<'_>, what: &str) -> Chart {
    let chart = Chart::lines(&format!("Latency, {what}"), "clients", "ms").log(true, true);
    chart
        .with("door, read p50", row.of("door", |point| point.read.p50_ms))
        .with("door, update p50", row.of("door", |point| point.update.p50_ms))
        .with("door, update p99", row.of("door", |point| point.update.p99_ms))
        .beside("everysec, read p50", row.of("redis, everysec", |point| point.read.p50_ms))
        .beside("everysec, update p50", row.of("redis, everysec", |point| point.update.p50_ms))
        .beside("everysec, update p99", row.of("redis, everysec", |point| point.update.p99_ms))
}

#[cfg(test)]
mod tests;
