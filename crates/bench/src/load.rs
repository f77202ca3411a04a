//! Open-loop load on librarians: uploads that start when they arrive, whether or not earlier ones
//! ended.
//!
//! ```text
//! sealing thread -> [prepared uploads, bounded] -> arrivals (Poisson) -> an upload each: a task
//!                                                                        4 Puts, then 4 Gets
//! ```
//! A loop that waits for its answers would slow down with what it measures. So arrivals are drawn
//! beforehand, and only a bound on uploads under way (which counts as a refusal) protects this
//! process. Documents are sealed by a thread of its own, ahead of the arrivals as far as
//! [`AHEAD_BYTES`] go, so that sealing is rarely part of what is timed.
//!
//! Each request goes to an entry peer drawn evenly, as a thin client's would; or authors that walk by themselves put and get
//! whole contents ([`authors`]).

pub(crate) mod authors;
pub(crate) mod clients;
pub(crate) mod documents;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::{Class, Classified, RecordId};
use document::Record;
use env::calls::CallError;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::BenchError;
use crate::percentiles::Latencies;
use crate::seeded::Seeded;
use crate::stop::Stop;
use documents::{Sealing, Sizes, Upload};

/// Uploads under way at most; one that arrives beyond is counted as refused.
pub(crate) const UNDER_WAY_MAX: usize = 4096;
/// Bytes of documents that are sealed ahead.
const AHEAD_BYTES: f64 = 512e6;
/// Uploads sealed ahead at most.
const AHEAD_MAX: usize = 100_000;
/// How long uploads under way may take after the last arrival.
const DRAIN: Duration = Duration::from_secs(30);
/// A get of so many bytes takes longer for them.
pub(crate) const LARGE_BYTES: usize = 16 << 10;
/// Requests of an upload.
pub(crate) const REQUESTS: f64 = 8.0;

/// What arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) uploads_a_second: f64,
    pub(crate) seconds: f64,
    pub(crate) sizes: Sizes,
    pub(crate) seed: u64,
}

/// What a request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A put.
    Put,
    /// A get that the peer which was asked answered from what it holds.
    Held,
    /// A get of less than [`LARGE_BYTES`] that it had to ask another for.
    Small,
    /// Another such get.
    Large,
}

/// A request that was answered well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) what: What,
    /// When it was answered, in ms since the load began.
    pub(crate) at_ms: u32,
    micros: u32,
}

/// What came of a load.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) samples: Vec<Sample>,
    /// Requests refused with a delay, by the largest delay told.
    pub(crate) busy: usize,
    pub(crate) retry_after_max: Duration,
    /// Requests that failed in another way, and one of these failures.
    pub(crate) failed: usize,
    pub(crate) failure: Option<CallError>,
    /// Uploads that found too many under way.
    pub(crate) shed: usize,
    pub(crate) arrived: usize,
    /// When each upload was to begin, in ms since the load began.
    arrivals_ms: Vec<u32>,
    pub(crate) put_bytes: u64,
    /// How far the arrivals ever were behind their times.
    pub(crate) lag: Duration,
    /// Records that were acknowledged.
    pub(crate) acknowledged: Vec<RecordId>,
    /// Whether an answer was not what had been stored.
    wrong: bool,
}

impl Outcome {
    /// The latencies of puts or gets.
    pub(crate) fn latencies(&self, put: bool) -> Latencies {
        self.between(0, u32::MAX, |sample| (sample.what == What::Put) == put)
    }

    /// The latencies of such requests.
    pub(crate) fn latencies_of(&self, what: What) -> Latencies {
        self.between(0, u32::MAX, |sample| sample.what == what)
    }

    /// The latencies of those answered from `from` to before `to`, in ms.
    pub(crate) fn between(&self, from: u32, to: u32, which: impl Fn(&Sample) -> bool) -> Latencies {
        let mut latencies = Latencies::default();
        for sample in self.samples.iter().filter(|sample| (from..to).contains(&sample.at_ms)) {
            if which(sample) {
                latencies.add(Duration::from_micros(u64::from(sample.micros)));
            }
        }
        latencies
    }

    /// Requests answered well before the last arrival's time, a second.
    pub(crate) fn answered_a_second(&self, seconds: f64) -> f64 {
        let until = (seconds * 1000.0) as u32;
        self.samples.iter().filter(|sample| sample.at_ms < until).count() as f64 / seconds
    }

    /// The part of the requests that arrived from `from` to before `to`, in ms, which is as many as were answered well meanwhile. Those
    /// under way at either end make it a little less or more; not a number where none arrived.
    pub(crate) fn answered_part(&self, from: u32, to: u32) -> f64 {
        let within = |at_ms: u32| (from..to).contains(&at_ms);
        let arrived = self.arrivals_ms.iter().filter(|at_ms| within(**at_ms)).count();
        let answered = self.samples.iter().filter(|sample| within(sample.at_ms)).count();
        match arrived {
            0 => f64::NAN,
            _ => answered as f64 / (arrived as f64 * REQUESTS),
        }
    }

    /// The part of what arrived that was refused, shed or failed.
    pub(crate) fn lost_part(&self) -> f64 {
        let lost = self.busy + self.failed + self.shed;
        lost as f64 / (self.arrived.max(1)) as f64
    }

    /// An answer, for tests of what is made of them.
    #[cfg(test)]
    pub(crate) fn answer(&mut self, put: bool, at_ms: u32, ms: u32) {
        let what = if put { What::Put } else { What::Held };
        self.samples.push(Sample { what, at_ms, micros: ms * 1000 });
    }

    /// An upload, for the same.
    #[cfg(test)]
    pub(crate) fn arrive(&mut self, at_ms: u32) {
        self.arrived += 1;
        self.arrivals_ms.push(at_ms);
    }

    fn count(&mut self, error: CallError) {
        match error {
            CallError::Busy { retry_after } => {
                self.busy += 1;
                self.retry_after_max = self.retry_after_max.max(retry_after);
            }
            error if error.class() == Class::Busy => self.busy += 1,
            error => {
                self.failed += 1;
                self.failure = Some(error);
            }
        }
    }
}

/// What the tasks of a load share: by whom it is done, and what came of it.
struct Running<T> {
    by: T,
    outcome: Mutex<Outcome>,
    started: Instant,
}

impl<T> Running<T> {
    fn new(by: T) -> Self {
        Self { by, outcome: Mutex::default(), started: Instant::now() }
    }

    fn with<R>(&self, change: impl FnOnce(&mut Outcome) -> R) -> R {
        change(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn sample(&self, what: What, since: Instant) {
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let micros = u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX);
        let at_ms = millis(self.started.elapsed());
        self.with(|outcome| outcome.samples.push(Sample { what, at_ms, micros }));
    }
}

/// A record that a peer answered.
pub(crate) struct Got {
    pub(crate) bytes: Bytes,
    /// Whether that peer is one of its holders, and had nobody to ask.
    pub(crate) held: bool,
}

/// What records are put at and got from, by an entry peer that the seed draws.
pub(crate) trait Entries: Send + Sync + 'static {
    /// What seals the documents that are put here.
    fn sealing(&self) -> Sealing;

    /// Stores a record.
    fn put(
        &self,
        seeded: &mut Seeded,
        record: Record,
    ) -> impl Future<Output = Result<(), CallError>> + Send;

    /// A record again.
    fn get(
        &self,
        seeded: &mut Seeded,
        id: RecordId,
    ) -> impl Future<Output = Result<Got, CallError>> + Send;
}

impl<E: Entries> Running<Arc<E>> {
    /// One upload to its end, or to its first request that is not answered well.
    async fn upload(self: Arc<Self>, upload: Upload, mut seeded: Seeded) {
        let Upload { entry, envelopes } = upload;
        for record in std::iter::once(&entry).chain(&envelopes) {
            if !self.put(record, &mut seeded).await {
                return;
            }
        }
        // Two readers: each finds its envelope and then the entry.
        for envelope in envelopes.iter().skip(1) {
            for record in [envelope, &entry] {
                if !self.get(record, &mut seeded).await {
                    return;
                }
            }
        }
    }

    async fn put(&self, record: &Record, seeded: &mut Seeded) -> bool {
        let since = Instant::now();
        match self.by.put(seeded, record.clone()).await {
            Ok(()) => {
                self.sample(What::Put, since);
                self.with(|outcome| {
                    outcome.put_bytes += record.bytes.len() as u64;
                    outcome.acknowledged.push(record.id);
                });
                true
            }
            Err(error) => {
                self.with(|outcome| outcome.count(error));
                false
            }
        }
    }

    async fn get(&self, record: &Record, seeded: &mut Seeded) -> bool {
        let since = Instant::now();
        match self.by.get(seeded, record.id).await {
            Ok(found) => {
                let what = match found.held {
                    true => What::Held,
                    false if record.bytes.len() < LARGE_BYTES => What::Small,
                    false => What::Large,
                };
                self.sample(what, since);
                let same = found.bytes == record.bytes;
                self.with(|outcome| outcome.wrong |= !same);
                same
            }
            Err(error) => {
                self.with(|outcome| outcome.count(error));
                false
            }
        }
    }
}

/// Runs a load to its end.
///
/// # Errors
/// [`BenchError::Interrupted`], and [`BenchError::Wrong`] where a get answered other bytes.
pub(crate) async fn run<E: Entries>(
    entries: &Arc<E>,
    load: Load,
    stop: &Stop,
) -> Result<Outcome, BenchError> {
    let expected = load.uploads_a_second * load.seconds;
    let mut prepared = prepare(entries.sealing(), load, expected, stop).await?;
    let running = Arc::new(Running::new(entries.clone()));
    let upload = async |draws| match prepared.recv().await {
        Some(upload) => Ok(Some(running.clone().upload(upload?, draws))),
        None => Ok(None),
    };
    arrivals(&running, load, stop, upload).await
}

/// Starts an upload for each arrival until the time is over, and waits for their ends. No upload: it is over.
///
/// # Errors
/// [`BenchError::Interrupted`], [`BenchError::Wrong`] where a get answered other bytes, and what `upload` fails with.
async fn arrivals<T, F>(
    running: &Arc<Running<T>>,
    load: Load,
    stop: &Stop,
    mut upload: impl AsyncFnMut(Seeded) -> Result<Option<F>, BenchError>,
) -> Result<Outcome, BenchError>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (mut seeded, mut tasks) = (Seeded::new(load.seed), JoinSet::new());
    let end = running.started + Duration::from_secs_f64(load.seconds);
    let mut at = running.started;
    loop {
        at += seeded.wait(load.uploads_a_second);
        if at >= end {
            break;
        }
        stop.check()?;
        tokio::time::sleep_until(at.into()).await;
        while tasks.try_join_next().is_some() {}
        let shed = tasks.len() >= UNDER_WAY_MAX;
        let at_ms = (at - running.started).as_millis();
        running.with(|outcome| {
            outcome.arrived += 1;
            outcome.arrivals_ms.push(u32::try_from(at_ms).unwrap_or(u32::MAX));
            outcome.shed += usize::from(shed);
            outcome.lag = outcome.lag.max(at.elapsed());
        });
        if shed {
            continue;
        }
        let Some(upload) = upload(Seeded::new(seeded.next())).await? else { break };
        tasks.spawn(upload);
    }
    let drained = async { while tasks.join_next().await.is_some() {} };
    let late = tokio::time::timeout(DRAIN, drained).await.is_err();
    stop.check()?;
    let left = tasks.len();
    tasks.shutdown().await;
    let mut outcome = running.with(std::mem::take);
    if late {
        outcome.failed += left;
    }
    if outcome.wrong {
        return Err(BenchError::Wrong("a get answered other bytes than were put"));
    }
    Ok(outcome)
}

/// Starts the sealing thread, and waits until it is as far ahead as it may be.
async fn prepare(
    sealing: Sealing,
    load: Load,
    expected: f64,
    stop: &Stop,
) -> Result<mpsc::Receiver<Result<Upload, BenchError>>, BenchError> {
    let ahead = (AHEAD_BYTES / load.sizes.mean()).min(expected * 1.2 + 16.0) as usize;
    let ahead = ahead.clamp(16, AHEAD_MAX);
    let (send, receive) = mpsc::channel(ahead);
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    std::thread::spawn(move || {
        let mut seeded = Seeded::new(load.seed ^ 0x5ea1);
        loop {
            let upload = sealing.upload(load.sizes.draw(&mut seeded), &mut seeded);
            if send.blocking_send(upload).is_err() {
                return;
            }
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    while made.load(Ordering::Relaxed) < ahead {
        stop.check()?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(receive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_from_failures() {
        let mut outcome = Outcome::default();
        outcome.count(CallError::Busy { retry_after: Duration::from_millis(70) });
        outcome.count(CallError::Full);
        outcome.count(CallError::NotFound);
        assert_eq!((outcome.busy, outcome.failed), (2, 1));
        assert_eq!(outcome.retry_after_max, Duration::from_millis(70));
        assert_eq!(outcome.failure, Some(CallError::NotFound));
        outcome.arrived = 30;
        outcome.shed = 3;
        assert!((outcome.lost_part() - 0.2).abs() < 1e-9);
    }

    #[test]
    fn samples_are_told_by_kind_and_time() {
        let sample = |what, at_ms, micros| Sample { what, at_ms, micros };
        let samples = vec![
            sample(What::Put, 0, 1000),
            sample(What::Small, 999, 2000),
            sample(What::Put, 1000, 9000),
        ];
        let outcome = Outcome { samples, ..Outcome::default() };
        assert_eq!(outcome.latencies(true).percentiles().calls, 2);
        assert_eq!(outcome.latencies(false).percentiles().p50_ms, 2.0);
        assert_eq!(outcome.latencies_of(What::Small).calls(), 1);
        assert_eq!(outcome.latencies_of(What::Large).calls(), 0);
        assert_eq!(outcome.between(0, 1000, |_| true).percentiles().max_ms, 2.0);
        assert_eq!(outcome.answered_a_second(1.0), 2.0);
    }

    #[test]
    fn what_is_answered_is_a_part_of_what_arrived_meanwhile() {
        let mut outcome = Outcome::default();
        outcome.arrive(500);
        outcome.arrive(1500);
        (0..6).for_each(|_| outcome.answer(true, 600, 10));
        assert_eq!(outcome.answered_part(0, 1000), 0.75);
        assert_eq!(outcome.answered_part(0, 2000), 0.375);
        assert_eq!(outcome.answered_part(1000, 2000), 0.0);
        assert!(outcome.answered_part(2000, 3000).is_nan(), "nothing arrived");
    }
}
