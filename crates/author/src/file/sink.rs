//! Bytes on their way into a file: what comes next is fetched while this is written.
//!
//! A file that is to be on the disk is written past the system's cache where it can do that
//! ([`env::disk::Bulk`]): the last fsync finds little to do, and a write through the cache costs several
//! times the processor. Such a write is waited for, so some run at a time ([`WRITES_MAX`]): the disk
//! has the next one when it is done with the last.
//!
//! A file that is left to the system begins in its cache ([`CACHED_MAX`], and no more than stays there
//! without being written): a short one waits for no disk. The rest is written past it, as the memory
//! for it costs more than the disk does, and would push out all that the user had there.
//!
//! Bytes are taken as they are; memory is so many spans of a content. A write that fails is told at
//! one of the next writes or the flush, and at every one after it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use env::Env;
use env::disk::{Bulk, unwritten_room};

use crate::job::Job;
use crate::sink::Sink;

/// Writes that run at a time at most. With one a get was idle for a quarter of its time.
const WRITES_MAX: usize = 4;

/// Bytes of a file that are left in the system's cache. Memory that the system had to find anew for them
/// cost 1.3 to 1.9 s of a processor a GiB (a virtual machine whose host takes free memory back), a direct write
/// 0.1: with all of a GiB in the cache a get of it took 1.9 times as long (ADR 5).
const CACHED_MAX: u64 = 32 << 20;

/// A file that a get writes to, from its beginning. What was not flushed may not be in the file.
pub struct FileSink {
    env: Env,
    to: Arc<(File, Bulk)>,
    /// Where the next bytes go.
    at: u64,
    /// Bytes that may still be left in the system's cache.
    cached: u64,
    /// The oldest first.
    writing: VecDeque<Job<io::Result<()>>>,
    failed: Option<io::ErrorKind>,
}

impl FileSink {
    /// A sink into a file that will be synced, whatever the file's own position is.
    pub fn new(env: &Env, file: File) -> Self {
        Self::with(env, file, 0)
    }

    /// A sink into a file that the system may write when it likes.
    pub fn left_to_the_system(env: &Env, file: File) -> Self {
        Self::with(env, file, unwritten_room().min(CACHED_MAX))
    }

    fn with(env: &Env, file: File, cached: u64) -> Self {
        let to = Arc::new((file, Bulk::default()));
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
            if let Err(failed) = done {
                self.failed.get_or_insert(failed.kind());
                error.get_or_insert(failed);
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
        let left = self.cached.checked_sub(len);
        // The system takes one at a time of a file into its cache.
        self.written(if left.is_some() { 0 } else { WRITES_MAX - 1 }).await?;
        self.cached = left.unwrap_or(0);
        self.at += len;
        let write = move || match left {
            Some(_) => to.0.write_all_at(&bytes, at),
            None => to.1.write_at(&to.0, at, &[IoSlice::new(&bytes)]),
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

    #[tokio::test]
    async fn little_of_a_file_is_left_in_the_cache() {
        let sink = FileSink::left_to_the_system(&Env::real(), tempfile::tempfile().unwrap());
        assert!(sink.cached <= CACHED_MAX, "{} bytes", sink.cached);
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
