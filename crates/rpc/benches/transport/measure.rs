//! One row: the three ways by turns, their rates, medians, processor time and page faults a call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::bare::Bare;
use crate::ours::Ours;
use crate::raw::Raw;

/// Bytes of a large record.
pub(crate) const LARGE_BYTES: usize = 2 << 20;
/// Bytes of a small one.
pub(crate) const SMALL_BYTES: usize = 256;
/// Turns of each way in a row, and how long one is.
const TURNS: usize = 4;
const TURN: Duration = Duration::from_millis(700);

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    StoreLarge,
    FindLarge,
    StoreSmall,
    FindSmall,
}

impl Kind {
    /// Bytes up and bytes down that carry the record.
    pub(crate) fn bytes(self) -> (usize, usize) {
        match self {
            Self::StoreLarge => (LARGE_BYTES, 0),
            Self::FindLarge => (0, LARGE_BYTES),
            Self::StoreSmall => (SMALL_BYTES, 0),
            Self::FindSmall => (0, SMALL_BYTES),
        }
    }

    fn is_large(self) -> bool {
        matches!(self, Self::StoreLarge | Self::FindLarge)
    }
}

pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) in_flight: usize,
}

/// One way to do the work.
#[async_trait]
pub(crate) trait Way: Send + Sync + 'static {
    /// One call; `worker` of those in flight makes it.
    async fn call(&self, kind: Kind, worker: usize);
}

/// Processor time of this process in clock ticks of 10 ms, and its minor page faults: on a busy
/// machine they repeat where rates do not.
fn spent() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |at| after_name.split_whitespace().nth(at).and_then(|text| text.parse().ok());
    (field(11).unwrap_or(0) + field(12).unwrap_or(0u64), field(7).unwrap_or(0))
}

#[derive(Default)]
struct Sum {
    times: Vec<Duration>,
    elapsed: Duration,
    ticks: u64,
    faults: u64,
}

impl Sum {
    async fn turn(&mut self, way: &Arc<impl Way>, kind: Kind, in_flight: usize) {
        let (before, started) = (spent(), Instant::now());
        let workers: Vec<_> = (0..in_flight)
            .map(|worker| {
                let way = way.clone();
                tokio::spawn(async move {
                    let mut times = Vec::new();
                    while started.elapsed() < TURN {
                        let call = Instant::now();
                        way.call(kind, worker).await;
                        times.push(call.elapsed());
                    }
                    times
                })
            })
            .collect();
        for worker in workers {
            self.times.extend(worker.await.expect("the worker ends"));
        }
        let after = spent();
        self.elapsed += started.elapsed();
        self.ticks += after.0 - before.0;
        self.faults += after.1 - before.1;
    }

    /// Prints it; calls a second and processor seconds a call.
    fn print(&mut self, row: &Row, name: &str, floor: Option<(f64, f64)>) -> (f64, f64) {
        self.times.sort_unstable();
        let calls = self.times.len() as f64;
        let rate = calls / self.elapsed.as_secs_f64();
        let processor = self.ticks as f64 / 100.0 / calls;
        let shown = match row.kind.is_large() {
            true => format!("{:.0} MB/s", rate * LARGE_BYTES as f64 / 1e6),
            false => format!("{rate:.0}/s"),
        };
        let p50 = self.times[self.times.len() / 2].as_micros();
        let ratio = floor.map_or(String::new(), |(first_rate, first_processor)| {
            let (rate, processor) = (rate / first_rate, processor / first_processor);
            format!("{rate:.2} rate, {processor:.2} processor")
        });
        println!(
            "{:<27} {name:<6} {shown:>10} {p50:>7} us {:>9.1} us {:>8.1}   {ratio}",
            row.name,
            processor * 1e6,
            self.faults as f64 / calls,
        );
        (rate, processor)
    }
}

/// The names of the ways.
pub(crate) const WAYS: [&str; 3] = ["tls", "tonic", "ours"];

/// Measures and prints one row by those of [`WAYS`] that are wanted.
pub(crate) async fn row(
    row: &Row,
    wanted: [bool; 3],
    raw: &Arc<Raw>,
    bare: &Arc<Bare>,
    ours: &Arc<Ours>,
) {
    let mut sums: [Sum; 3] = Default::default();
    // The first turn of each warms it up.
    for turn in 0..=TURNS {
        let [tls, tonic, own] = &mut sums;
        if wanted[0] {
            tls.turn(raw, row.kind, row.in_flight).await;
        }
        if wanted[1] {
            tonic.turn(bare, row.kind, row.in_flight).await;
        }
        if wanted[2] {
            own.turn(ours, row.kind, row.in_flight).await;
        }
        if turn == 0 {
            sums = Default::default();
        }
    }
    let mut floor = None;
    for ((sum, name), wanted) in sums.iter_mut().zip(WAYS).zip(wanted) {
        if wanted {
            let figures = sum.print(row, name, floor);
            floor = floor.or(Some(figures));
        }
    }
}
