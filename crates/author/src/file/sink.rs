//! Bytes on their way into a file: what comes next is fetched while this is written.
//!
//! Writes go past the system's cache where it can do that ([`env::disk::Bulk`]): a content of
//! gigabytes must not push out all that the user had there, and the last fsync finds little to do.
//! Bytes are taken as they are, without a copy, and one write runs at a time, so memory is one span
//! of a content. A write that fails is told at the next write or flush, and at every one after it.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::Bytes;
use env::Env;
use env::disk::Bulk;

use crate::job::Job;
use crate::sink::Sink;

/// A file that a get writes to, from its beginning. What was not flushed may not be in the file.
pub struct FileSink {
    env: Env,
    to: Arc<(File, Bulk)>,
    /// Where the next bytes go.
    at: u64,
    writing: Option<Job<io::Result<()>>>,
    failed: Option<io::ErrorKind>,
}

impl FileSink {
    /// A sink into `file`, whatever the file's own position is.
    pub fn new(env: &Env, file: File) -> Self {
        let to = Arc::new((file, Bulk::behind()));
        Self { env: env.clone(), to, at: 0, writing: None, failed: None }
    }

    /// Waits for the write that runs.
    async fn written(&mut self) -> io::Result<()> {
        if let Some(job) = &mut self.writing {
            // A pool that is gone writes nothing any more.
            let done = job.await.unwrap_or_else(|| Err(io::ErrorKind::Interrupted.into()));
            self.writing = None;
            if let Err(error) = done {
                self.failed = Some(error.kind());
                return Err(error);
            }
        }
        self.failed.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl Sink for FileSink {
    async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        self.written().await?;
        let (to, at) = (self.to.clone(), self.at);
        self.at += bytes.len() as u64;
        let write = move || to.1.write_at(&to.0, at, &[IoSlice::new(&bytes)]);
        self.writing = Some(Job::blocking(&self.env, write));
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.written().await
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
        let mut file = tempfile::tempfile().unwrap();
        let mut sink = FileSink::new(&Env::real(), file.try_clone().unwrap());
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
    async fn a_write_that_failed_is_told_and_told_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("read only");
        std::fs::write(&path, b"").unwrap();
        let mut sink = FileSink::new(&Env::real(), File::open(&path).unwrap());
        let large = Bytes::from(vec![1; 3_000_000]);
        sink.write(large.clone()).await.unwrap();
        let error = sink.write(large.clone()).await.unwrap_err();
        for _ in 0..2 {
            assert_eq!(sink.flush().await.unwrap_err().kind(), error.kind());
            assert!(sink.write(large.clone()).await.is_err());
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }
}
