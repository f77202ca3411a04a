//! One seed from its start to its verdict, and many seeds on all cores.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;

use crate::bugs::{Planted, PlantedBug};
use crate::check::secrecy::Logs;
use crate::check::{durability, forged, liveness, secrecy};
use crate::history::{Finding, History};
use crate::plan::Plan;
use crate::probe;
use crate::search::Needle;
use crate::world::World;

/// How a run is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// A defect to plant.
    pub bug: Option<PlantedBug>,
    /// Whether the events are kept as text.
    pub keep_events: bool,
}

/// What a run found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// The hash of all events in order.
    pub hash: [u8; 32],
    /// How many events there were.
    pub events: u64,
    /// Promises that did not hold.
    pub findings: Vec<Finding>,
    /// The events, where they were kept.
    pub lines: Vec<String>,
    /// How often things happened.
    pub tallies: Vec<(&'static str, u64)>,
}

/// Runs one seed on this thread.
pub fn run(seed: u64, options: RunOptions) -> Report {
    in_world(seed, options, Plan::new(seed), async |world| {
        for number in 0..world.plan.peers {
            world.start_peer(number).await;
        }
        let authors: Vec<_> = (0..world.plan.authors)
            .map(|number| world.env.tasks.spawn(Arc::clone(&world).work(number).boxed()))
            .collect();
        world.befall().await;
        world.mend().await;
        for author in authors {
            author.join().await;
        }
        liveness::check(&world).await;
        forged::check(&world).await;
        probe::metrics(&world);
        durability::check(&world).await;
    })
}

/// Lets something happen in a world of its own, with what is checked in each: secrecy, and what the wires and disks see.
pub(crate) fn in_world(
    seed: u64,
    options: RunOptions,
    plan: Plan,
    happens: impl AsyncFnOnce(Arc<World>),
) -> Report {
    let _planted = Planted::new(options.bug);
    testkit::time::run(seed, |env| async move {
        let history = History::new(env.clock.clone(), Needle::new(seed), options.keep_events);
        let logs = tracing::subscriber::set_default(Logs(history.clone()));
        let world = World::planned(env, seed, plan, history.clone(), options.bug);
        history.event(format!("seed {seed}, {} peers", world.plan.peers));
        happens(Arc::clone(&world)).await;
        secrecy::check(&world);
        for number in 0..world.plan.peers {
            world.count_met(number);
        }
        world.end();
        drop(logs);
        let inner = history.lock();
        Report {
            seed,
            hash: inner.hash_of(),
            events: inner.events,
            findings: inner.findings.clone(),
            lines: inner.lines(),
            tallies: inner.tallies.iter().map(|(what, count)| (*what, *count)).collect(),
        }
    })
}

/// The command that runs one seed again and tells all its events.
pub fn command(seed: u64) -> String {
    format!("HOLD_SIM_SEED={seed} cargo test -p sim --test seeds -- --nocapture")
}

/// Runs seeds on `threads` threads, each seed on one. Seeds that found something, or panicked, are told at once, with the command
/// that runs each again; how far it is, now and then.
pub fn run_many(seeds: std::ops::Range<u64>, threads: usize, options: RunOptions) -> Vec<Report> {
    run_all(seeds, threads, options.bug.is_none(), command, |seed| run(seed, options))
}

/// As [`run_many`], whatever one run is.
pub(crate) fn run_all(
    seeds: std::ops::Range<u64>,
    threads: usize,
    tells: bool,
    command: impl Fn(u64) -> String + Sync,
    run: impl Fn(u64) -> Report + Sync,
) -> Vec<Report> {
    let next = AtomicU64::new(seeds.start);
    let reports = Mutex::new(Vec::new());
    let progress = Mutex::new(Progress::new(seeds.clone()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= seeds.end {
                        return;
                    }
                    let report = run_caught(seed, &run);
                    if !report.findings.is_empty() && tells {
                        eprintln!("seed {seed} found {:#?}\n{}", report.findings, command(seed));
                    }
                    progress.lock().unwrap_or_else(PoisonError::into_inner).done(&report);
                    reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
                }
            });
        }
    });
    let mut reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    reports.sort_by_key(|report| report.seed);
    reports
}

/// How often [`run_many`] tells how far it is.
const TELL_EVERY: Duration = Duration::from_secs(15);

struct Progress {
    seeds: u64,
    done: u64,
    failed: u64,
    began: Instant,
    told: Instant,
}

impl Progress {
    fn new(seeds: std::ops::Range<u64>) -> Self {
        let began = Instant::now();
        Self {
            seeds: seeds.end.saturating_sub(seeds.start),
            done: 0,
            failed: 0,
            began,
            told: began,
        }
    }

    fn done(&mut self, report: &Report) {
        self.done += 1;
        self.failed += u64::from(!report.findings.is_empty());
        if self.told.elapsed() < TELL_EVERY {
            return;
        }
        self.told = Instant::now();
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = self.done as f64 / seconds;
        let left = (self.seeds - self.done) as f64 / rate;
        let Self { done, seeds, failed, .. } = self;
        eprintln!("{done} of {seeds} seeds, {failed} failed, {rate:.1} seeds/s, {left:.0} s left");
    }
}

/// One run; a panic is a finding.
fn run_caught(seed: u64, run: impl Fn(u64) -> Report) -> Report {
    catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned();
        let what = what.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let what = what.unwrap_or_default();
        Report {
            seed,
            hash: [0; 32],
            events: 0,
            findings: vec![Finding { promise: "no panic", what }],
            lines: Vec::new(),
            tallies: Vec::new(),
        }
    })
}
