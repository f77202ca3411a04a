//! Bytes on their way into a file: what comes next is fetched while this is written.
//!
//! A file that is to be on the disk is written past the system's cache where it can do that
//! ([`env::disk::Bulk`]): the last fsync finds little to do, and a write through the cache costs several
//! times the processor. Such a write is waited for, so some run at a time ([`WRITES_MAX`]): the disk
//! has the next one when it is done with the last.
//!
//! A file that is left to the system begins in its cache ([`CACHED_FIRST`], and no more than stays there
//! without being written): a short one waits for no disk. It goes on there as long as that costs little
//! ([`Cost::is_little`], looked at each [`CACHED_STEP`]). From the first that cost much on it is written past it:
//! the memory for it costs more than the disk then.
//!
//! Bytes are taken as they are; memory is so many spans of a content. A write that fails is told at
//! one of the next writes or the flush, and at every one after it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use env::Env;
use env::disk::{Bulk, unwritten_room};

use crate::job::Job;
use crate::sink::Sink;

/// Writes that run at a time at most. With one a get was idle for a quarter of its time.
const WRITES_MAX: usize = 4;

/// Bytes of a file that are left in the system's cache whatever that costs.
const CACHED_FIRST: u64 = 32 << 20;
/// Bytes that are left there further, where those before cost little.
const CACHED_STEP: u64 = 32 << 20;
/// What a KiB in the cache may cost of a processor, ns. Where the system has memory at hand it is 200 to 250; where a virtual machine's
/// host has to find it, 1,300 to 1,900, and with all of a GiB in the cache a get of it took 1.9 times as long. A direct write is 100, and
/// the disk's time (ADR 5).
const LITTLE_PROCESSOR_NS: u128 = 500;
/// What it may take, ns: whoever writes more than the system takes is made to wait.
const LITTLE_TIME_NS: u128 = 2_000;

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

    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.processor += other.processor;
        self.took += other.took;
    }

    fn is_little(&self) -> bool {
        let within = |time: Duration, ns_a_kib: u128| {
            time.as_nanos() * 1024 <= u128::from(self.bytes) * ns_a_kib
        };
        within(self.processor, LITTLE_PROCESSOR_NS) && within(self.took, LITTLE_TIME_NS)
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
    left: u64,
    /// Bytes that may be besides, as long as it costs little.
    room: u64,
    /// What those did cost that came since this was looked at.
    cost: Cost,
}

impl Cached {
    fn new(room: u64) -> Self {
        let left = room.min(CACHED_FIRST);
        Self { left, room: room - left, cost: Cost::default() }
    }

    /// All that may be is there, and what it cost is known: whether more may be.
    fn look(&mut self) {
        if !self.cost.is_little() {
            self.room = 0;
        }
        let more = self.room.min(CACHED_STEP);
        (self.left, self.room) = (self.left + more, self.room - more);
        self.cost = Cost::default();
    }
}

/// A file that a get writes to, from its beginning. What was not flushed may not be in the file.
pub struct FileSink {
    env: Env,
    to: Arc<(File, Bulk)>,
    /// Where the next bytes go.
    at: u64,
    cached: Cached,
    /// The oldest first.
    writing: VecDeque<Job<io::Result<Cost>>>,
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
        let (to, cached) = (Arc::new((file, Bulk::default())), Cached::new(room));
        Self { env: env.clone(), to, at: 0, cached, writing: VecDeque::new(), failed: None }
    }

    /// Waits until no more than so many writes run. After one that failed it waits for all.
    async fn written(&mut self, running: usize) -> io::Result<()> {
        let mut error = None;
        while self.writing.len() > if self.failed.is_some() { 0 } else { running } {
            let Some(job) = self.writing.front_mut() else { break };
            // A pool that is gone writes nothing any more.
            let done = job.await.unwrap_or_else(|| Err(io::ErrorKind::Interrupted.into()));
            self.writing.pop_front();
            match done {
                Ok(cost) => self.cached.cost.add(cost),
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
        let (to, at, len) = (self.to.clone(), self.at, bytes.len() as u64);
        if self.cached.left < len && self.cached.room > 0 {
            self.written(0).await?;
            self.cached.look();
        }
        let left = self.cached.left.checked_sub(len);
        if left.is_none() {
            // What comes behind it stays behind it.
            self.cached.room = 0;
        }
        // The system takes one at a time of a file into its cache.
        self.written(if left.is_some() { 0 } else { WRITES_MAX - 1 }).await?;
        self.cached.left = left.unwrap_or(0);
        self.at += len;
        let write = move || match left {
            Some(_) => Cost::of(len, || to.0.write_all_at(&bytes, at)),
            None => to.1.write_at(&to.0, at, &[IoSlice::new(&bytes)]).map(|()| Cost::default()),
        };
        self.writing.push_back(Job::blocking(&self.env, write));
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

    #[test]
    fn a_file_stays_in_the_cache_as_long_as_that_costs_little() {
        let cost = |bytes: u64, processor_ns: u64, took_ns: u64| Cost {
            bytes,
            processor: Duration::from_nanos(bytes / 1024 * processor_ns),
            took: Duration::from_nanos(bytes / 1024 * took_ns),
        };
        let room = CACHED_FIRST + 3 * CACHED_STEP + 5;
        let written = |costs: &[(u64, u64)]| {
            let (mut cached, mut written) = (Cached::new(room), 0);
            for (processor, took) in costs {
                written += cached.left;
                cached.cost.add(cost(cached.left, *processor, *took));
                cached.left = 0;
                cached.look();
            }
            written + cached.left
        };
        assert_eq!(written(&[]), CACHED_FIRST);
        assert_eq!(written(&[(220, 300); 3]), CACHED_FIRST + 3 * CACHED_STEP);
        assert_eq!(written(&[(220, 300); 9]), room, "no more than stays there unwritten");
        for much in [(1_300, 1_300), (220, 9_000)] {
            assert_eq!(written(&[much, (220, 300)]), CACHED_FIRST, "{much:?}");
            assert_eq!(written(&[(220, 300), much, (220, 300)]), CACHED_FIRST + CACHED_STEP);
        }
        let little = Cached::new(7);
        assert_eq!((little.left, little.room), (7, 0));
    }

    #[tokio::test]
    async fn what_a_write_into_the_cache_costs_is_known() {
        let file = tempfile::tempfile().unwrap();
        let mut sink = FileSink::with(&Env::real(), file, u64::MAX);
        sink.write(vec![1; 4 << 20].into()).await.unwrap();
        sink.flush().await.unwrap();
        let cost = sink.cached.cost;
        assert_eq!(cost.bytes, 4 << 20);
        assert!(cost.processor > Duration::ZERO && cost.took > Duration::ZERO, "{cost:?}");
        // What is written past the cache costs nothing there.
        sink.cached = Cached::new(0);
        sink.write(vec![1; 4 << 20].into()).await.unwrap();
        sink.flush().await.unwrap();
        assert_eq!(sink.cached.cost.bytes, 0);
    }

    #[tokio::test]
    async fn a_write_that_failed_is_told_and_told_again() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut sink = FileSink::new(&Env::real(), full);
        let large = Bytes::from(vec![1; 3_000_000]);
        for _ in 0..WRITES_MAX {
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
