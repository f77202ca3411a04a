//! Bytes on their way into a file: what comes next is fetched while this is written.
//!
//! A file that is to be on the disk is written past the system's cache where it can do that
//! ([`env::disk::Bulk`]): the last fsync finds little to do, and a write through the cache costs several
//! times the processor. Such a write is waited for, by one thread, which then writes all that came meanwhile at once: a
//! file that grows takes one direct write at a time (ext4 holds its lock until the disk is done), and with four under way
//! 1.75 of them waited for that lock, each for as long as a busy processor takes to wake it.
//!
//! A file that is left to the system begins in its cache ([`CACHED_FIRST`], and no more in all than stays there without being
//! written): a short one waits for no disk. It goes on there as long as that costs little ([`Usual::is_little`], after each
//! write). When it costs much it is written past it, for the memory costs more than the disk then; and after a while the
//! cache is tried again, since what memory is at hand changes within a file: on a virtual machine that gives free memory back to its
//! host a write of 2 MiB costs 200 ns a KiB, or 2,400 where that memory was given back, and one follows the other.
//!
//! Bytes are taken as they are; memory is so many spans of a content. A write that fails is told at
//! one of the next writes or the flush, and at every one after it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use env::Env;
use env::disk::{Bulk, unwritten_room};
use futures::channel::oneshot;

use crate::sink::Sink;

/// Parts that are being written or wait for it, at most: 16 MiB of chunks.
const PARTS_MAX: usize = 8;

/// Bytes of a file that are left in the system's cache whatever that costs.
const CACHED_FIRST: u64 = 8 << 20;
/// Bytes that go past the cache after writes there cost much, before it is tried again; twice as many after each try that
/// cost much again, up to [`PAST_MAX`], so that a try of 2 MiB that costs 5 ms is met seven times in a GiB.
const PAST_FIRST: u64 = 16 << 20;
/// The most of them.
const PAST_MAX: u64 = 256 << 20;
/// What a KiB in the cache may usually cost of a processor, ns. Where the system has memory at hand it is 200 to 250; where a virtual
/// machine's host has to find it, 1,300 to 2,400, and with all of a GiB in the cache a get of it took 1.9 times as long. A direct write
/// is 100 to 140, and 700 of a disk that is read from meanwhile, which is what a get waits for (ADR 5). So one part in four may be of the
/// dear kind.
const LITTLE_PROCESSOR_NS: u64 = 900;
/// What it may take, ns: whoever writes more than the system takes is made to wait.
const LITTLE_TIME_NS: u64 = 2_000;
/// The next write is one part of so many in what is usual.
const USUAL_PART: u64 = 4;

/// What writes into the cache cost.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    bytes: u64,
    processor: Duration,
    took: Duration,
}

impl Cost {
    /// Of a write into the cache.
    fn of(bytes: u64, write: impl FnOnce() -> io::Result<()>) -> io::Result<Self> {
        let (processor, began) = (processor_time(), Instant::now());
        write()?;
        let processor = processor_time().saturating_sub(processor);
        Ok(Self { bytes, processor, took: began.elapsed() })
    }

    /// Of a KiB, in ns: of a processor, and of time.
    fn a_kib(&self) -> Usual {
        let ns = |time: Duration| {
            let ns = time.as_nanos() * 1024 / u128::from(self.bytes.max(1));
            u64::try_from(ns).unwrap_or(u64::MAX).min(u64::MAX / USUAL_PART)
        };
        Usual { processor: ns(self.processor), took: ns(self.took) }
    }
}

/// What writes into the cache usually cost lately, in ns a KiB.
#[derive(Clone, Copy, Debug)]
struct Usual {
    processor: u64,
    took: u64,
}

impl Usual {
    /// With the next one.
    fn with(self, next: Self) -> Self {
        let mean = |usual: u64, next: u64| ((USUAL_PART - 1) * usual + next) / USUAL_PART;
        Self { processor: mean(self.processor, next.processor), took: mean(self.took, next.took) }
    }

    fn is_little(self) -> bool {
        self.processor <= LITTLE_PROCESSOR_NS && self.took <= LITTLE_TIME_NS
    }
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// What of a file is left in the system's cache.
#[derive(Debug)]
struct Cached {
    /// Bytes that may still be.
    room: u64,
    /// Bytes that are whatever it costs.
    first: u64,
    /// Bytes that go past it before it is tried again.
    past: u64,
    /// How many these are after the next that cost much.
    past_next: u64,
    /// What the writes cost since it was tried last.
    usual: Option<Usual>,
}

impl Cached {
    fn new(room: u64) -> Self {
        Self { room, first: CACHED_FIRST, past: 0, past_next: PAST_FIRST, usual: None }
    }

    /// Whether so many bytes that come next go there.
    fn takes(&mut self, bytes: u64) -> bool {
        if self.past > 0 {
            self.past = self.past.saturating_sub(bytes);
            return false;
        }
        let Some(room) = self.room.checked_sub(bytes) else {
            // What comes behind stays behind it.
            self.room = 0;
            return false;
        };
        self.room = room;
        true
    }

    /// What a write there cost is known.
    fn cost(&mut self, cost: Cost) {
        let next = cost.a_kib();
        let usual = self.usual.map_or(next, |usual| usual.with(next));
        self.usual = Some(usual);
        self.first = self.first.saturating_sub(cost.bytes);
        if self.first > 0 {
            return;
        }
        if usual.is_little() {
            self.past_next = PAST_FIRST;
        } else {
            self.past = self.past_next;
            self.past_next = (2 * self.past_next).min(PAST_MAX);
            self.usual = None;
        }
    }
}

/// What comes of a part that is written: what it cost, where it went into the cache.
type Written = io::Result<Option<Cost>>;

/// Part of a file, to be written.
struct Part {
    at: u64,
    bytes: Bytes,
    /// Into the system's cache.
    caching: bool,
    done: oneshot::Sender<Written>,
}

/// A file, and what is to be written to it.
struct Target {
    file: File,
    bulk: Bulk,
    waiting: Mutex<Waiting>,
}

/// In order, the oldest first.
#[derive(Default)]
struct Waiting {
    parts: VecDeque<Part>,
    /// Whether a thread writes them.
    writing: bool,
}

impl Target {
    /// Takes a part; whether somebody has to write it ([`Writer`]).
    fn push(&self, part: Part) -> bool {
        let mut waiting = self.waiting();
        waiting.parts.push_back(part);
        !std::mem::replace(&mut waiting.writing, true)
    }

    /// What is written at once next: one part for the cache, or all parts for the disk up to one for the cache. After none
    /// nobody writes any more.
    fn next(&self) -> Vec<Part> {
        let mut waiting = self.waiting();
        let to_disk = waiting.parts.iter().take_while(|part| !part.caching).count();
        let count = waiting.parts.len().min(to_disk.max(1));
        waiting.writing = count > 0;
        waiting.parts.drain(..count).collect()
    }

    fn write(&self, parts: Vec<Part>) {
        let mut written = match &parts[..] {
            [Part { caching: true, bytes, at, .. }] => {
                Cost::of(bytes.len() as u64, || self.file.write_all_at(bytes, *at)).map(Some)
            }
            parts => {
                // One lies behind the other.
                let at = parts.first().map_or(0, |part| part.at);
                let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(&part.bytes)).collect();
                self.bulk.write_at(&self.file, at, &slices).map(|()| None)
            }
        };
        for Part { done, bytes, .. } in parts {
            drop(bytes);
            // The first is told what the system said, the others of which kind that was.
            let next = match &written {
                Ok(cost) => Ok(*cost),
                Err(error) => Err(error.kind().into()),
            };
            // Nobody waits where the get was dropped.
            let _ = done.send(std::mem::replace(&mut written, next));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who writes what waits, until nothing does. Dropped before, it lets go of all parts: nobody would write them.
struct Writer(Option<Arc<Target>>);

impl Writer {
    fn run(mut self) {
        let Some(file) = &self.0 else { return };
        loop {
            let parts = file.next();
            if parts.is_empty() {
                break;
            }
            file.write(parts);
        }
        self.0 = None;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            let mut waiting = file.waiting();
            waiting.writing = false;
            let parts = std::mem::take(&mut waiting.parts);
            drop(waiting);
            drop(parts);
        }
    }
}

/// A file that a get writes to, from its beginning. What was not flushed may not be in the file.
pub struct FileSink {
    env: Env,
    to: Arc<Target>,
    /// Where the next bytes go.
    at: u64,
    cached: Cached,
    /// Whether the last write goes there.
    caching: bool,
    /// The oldest first.
    writing: VecDeque<oneshot::Receiver<Written>>,
    failed: Option<io::ErrorKind>,
}

impl FileSink {
    /// A sink into a file that will be synced, whatever the file's own position is.
    pub fn new(env: &Env, file: File) -> Self {
        Self::with(env, file, 0)
    }

    /// A sink into a file that the system may write when it likes.
    pub fn left_to_the_system(env: &Env, file: File) -> Self {
        Self::with(env, file, unwritten_room())
    }

    /// With so many bytes in the system's cache at most.
    fn with(env: &Env, file: File, room: u64) -> Self {
        let to = Arc::new(Target { file, bulk: Bulk::default(), waiting: Mutex::default() });
        let (env, cached, writing) = (env.clone(), Cached::new(room), VecDeque::new());
        Self { env, to, at: 0, cached, caching: false, writing, failed: None }
    }

    /// Waits until no more than so many parts are to be written. After one that failed it waits for all.
    async fn written(&mut self, left: usize) -> io::Result<()> {
        let mut error = None;
        while self.writing.len() > if self.failed.is_some() { 0 } else { left } {
            let Some(part) = self.writing.front_mut() else { break };
            // A pool that is gone writes nothing any more.
            let done = part.await.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()));
            self.writing.pop_front();
            match done {
                Ok(cost) => cost.into_iter().for_each(|cost| self.cached.cost(cost)),
                Err(failed) => {
                    self.failed.get_or_insert(failed.kind());
                    error.get_or_insert(failed);
                }
            }
        }
        match (error, self.failed) {
            (Some(error), _) => Err(error),
            (None, Some(kind)) => Err(kind.into()),
            (None, None) => Ok(()),
        }
    }
}

impl Sink for FileSink {
    async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        let len = bytes.len() as u64;
        if self.caching {
            // What it cost says where this goes.
            self.written(0).await?;
        }
        let caching = self.cached.takes(len);
        // The system takes one at a time of a file into its cache.
        self.written(if caching { 0 } else { PARTS_MAX - 1 }).await?;
        self.caching = caching;
        let (done, written) = oneshot::channel();
        self.writing.push_back(written);
        if self.to.push(Part { at: self.at, bytes, caching, done }) {
            let writer = Writer(Some(Arc::clone(&self.to)));
            self.env.tasks.blocking(Box::new(move || writer.run()));
        }
        self.at += len;
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.written(0).await
    }
}

impl Sink for &mut FileSink {
    async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        Sink::write(&mut **self, bytes).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        Sink::flush(&mut **self).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::{Read, Seek};

    use super::*;

    #[tokio::test]
    async fn every_byte_is_in_the_file_after_a_flush() {
        // Past the cache; into it; and from one to the other, at a place that is no multiple of anything.
        for cached in [0, u64::MAX, 3_000_006] {
            check(cached).await;
        }
    }

    async fn check(cached: u64) {
        let mut file = tempfile::tempfile().unwrap();
        let mut sink = FileSink::with(&Env::real(), file.try_clone().unwrap(), cached);
        let mut model: Vec<u8> = Vec::new();
        for (round, len) in [1, 0, 3_000_005, 1 << 20, 7].into_iter().enumerate() {
            let part: Vec<u8> = (0..len).map(|i| (i * 7 + round) as u8).collect();
            model.extend(&part);
            sink.write(part.into()).await.unwrap();
            if round % 2 == 0 {
                sink.flush().await.unwrap();
                assert_eq!(file.metadata().unwrap().len(), model.len() as u64);
            }
        }
        sink.flush().await.unwrap();
        let mut back = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut back).unwrap();
        assert!(back == model);
    }

    const MIB: u64 = 1 << 20;

    /// The cost of a MiB in the cache, a KiB, in ns of a processor and of time.
    fn cost(processor: u64, took: u64) -> Cost {
        let time = |ns: u64| Duration::from_nanos(1024 * ns);
        Cost { bytes: MIB, processor: time(processor), took: time(took) }
    }

    /// Which MiB of so many go into the cache, where the n-th to go there costs as told.
    fn cached(room: u64, bytes: u64, costs: impl Fn(u64) -> Cost) -> Vec<u64> {
        let (mut cached, mut into) = (Cached::new(room), Vec::new());
        for at in 0..bytes / MIB {
            if cached.takes(MIB) {
                cached.cost(costs(at));
                into.push(at);
            }
        }
        into
    }

    #[test]
    fn a_file_stays_in_the_cache_as_long_as_that_costs_little() {
        let first = CACHED_FIRST / MIB;
        let all = |from, to| (from..to).collect::<Vec<u64>>();
        assert_eq!(cached(100 * MIB, 90 * MIB, |_| cost(220, 300)), all(0, 90));
        assert_eq!(cached(100 * MIB + 5, 200 * MIB, |_| cost(220, 300)), all(0, 100), "its room");
        assert_eq!(cached(7 * MIB, 90 * MIB, |_| cost(9_000, 9_000)), all(0, 7));
        // A short one is there whatever it costs.
        for much in [cost(2_300, 2_300), cost(220, 9_000)] {
            assert_eq!(cached(u64::MAX, 20 * MIB, |_| much), all(0, first));
        }
        // One part that is dear is met anywhere, two in a row are too much.
        let now_and_then = |at: u64| cost(if at % 6 == 3 { 2_400 } else { 200 }, 2_000);
        assert_eq!(cached(u64::MAX, 200 * MIB, now_and_then), all(0, 200));
        let two = cached(u64::MAX, 60 * MIB, |at| match at {
            30 | 31 => cost(2_400, 2_400),
            _ => cost(200, 200),
        });
        assert_eq!(two, [all(0, 32), all(32 + PAST_FIRST / MIB, 60)].concat());
    }

    #[test]
    fn the_cache_is_tried_again_and_ever_more_seldom() {
        let much = cached(u64::MAX, 1 << 30, |_| cost(2_300, 2_300));
        let first = CACHED_FIRST / MIB;
        let mut expected: Vec<u64> = (0..first).collect();
        let mut at = first - 1;
        for past in [16, 32, 64, 128, 256, 256, 256] {
            at += past + 1;
            expected.push(at);
        }
        expected.retain(|at| *at < 1024);
        assert_eq!(much, expected);
        // Where memory came to be at hand it is stayed with, and what costs much then is the first such again.
        let then = cached(u64::MAX, 1 << 30, |at| match at {
            100..500 => cost(240, 240),
            _ => cost(2_300, 2_300),
        });
        let began = then.iter().position(|at| (100..500).contains(at)).unwrap();
        let from = then[began];
        let in_a_row = (from..=501).collect::<Vec<u64>>();
        assert_eq!(then[began..began + in_a_row.len()], in_a_row);
        assert_eq!(then[began + in_a_row.len()], 501 + PAST_FIRST / MIB + 1);
    }

    #[tokio::test]
    async fn what_a_write_into_the_cache_costs_is_known() {
        let cost = Cost::of(4 << 20, || {
            std::hint::black_box(vec![1_u8; 4 << 20]);
            Ok(())
        });
        let cost = cost.unwrap();
        assert_eq!(cost.bytes, 4 << 20);
        assert!(cost.processor > Duration::ZERO && cost.took > Duration::ZERO, "{cost:?}");
        let file = tempfile::tempfile().unwrap();
        let mut sink = FileSink::with(&Env::real(), file, u64::MAX);
        for _ in 0..4 {
            sink.write(vec![1; 4 << 20].into()).await.unwrap();
        }
        sink.flush().await.unwrap();
        assert_eq!(sink.cached.first, 0, "each was told");
    }

    #[tokio::test]
    async fn a_write_that_failed_is_told_and_told_again() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut sink = FileSink::new(&Env::real(), full);
        let large = Bytes::from(vec![1; 3_000_000]);
        for _ in 0..PARTS_MAX {
            sink.write(large.clone()).await.unwrap();
        }
        let error = sink.write(large.clone()).await.unwrap_err();
        assert!(sink.writing.is_empty(), "none runs on after an error");
        for _ in 0..2 {
            assert_eq!(sink.flush().await.unwrap_err().kind(), error.kind());
            assert!(sink.write(large.clone()).await.is_err());
        }
    }
}
