//! Bytes on their way into a file: one buffer is filled while another is written.
//!
//! Writes go past the system's cache where it can do that ([`env::disk::Bulk`]): a content of
//! gigabytes must not push out all that the user had there, and the last fsync finds little to do.
//! Memory is two buffers of [`BUFFER_BYTES`]. A write that fails is told at the next write or flush,
//! and at every one after it.

use std::fs::File;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use env::Env;
use env::disk::Bulk;
use futures::FutureExt;
use tokio::io::AsyncWrite;

use crate::job::Job;

/// Bytes of a buffer: one write.
const BUFFER_BYTES: usize = 2 << 20;

/// A file that a get writes to, from its beginning. What was not flushed may not be in the file.
pub struct FileSink {
    env: Env,
    to: Arc<(File, Bulk)>,
    /// Where the next buffer goes.
    at: u64,
    filling: Vec<u8>,
    spare: Vec<u8>,
    writing: Option<Job<(Vec<u8>, io::Result<()>)>>,
    failed: Option<io::ErrorKind>,
}

impl FileSink {
    /// A sink into `file`, whatever the file's own position is.
    pub fn new(env: &Env, file: File) -> Self {
        Self {
            env: env.clone(),
            to: Arc::new((file, Bulk::default())),
            at: 0,
            filling: Vec::new(),
            spare: Vec::new(),
            writing: None,
            failed: None,
        }
    }

    /// Waits for the write that runs.
    fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(job) = &mut self.writing {
            let done = ready!(job.poll_unpin(context));
            self.writing = None;
            // A pool that is gone writes nothing any more.
            let (buffer, result) =
                done.unwrap_or_else(|| (Vec::new(), Err(io::ErrorKind::Interrupted.into())));
            self.spare = buffer;
            if let Err(error) = result {
                self.failed = Some(error.kind());
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(self.failed.map_or(Ok(()), |kind| Err(kind.into())))
    }

    /// Begins to write what was filled, once the write before it is done.
    fn poll_begin(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_written(context))?;
        if !self.filling.is_empty() {
            let mut buffer = std::mem::replace(&mut self.filling, std::mem::take(&mut self.spare));
            let (to, at) = (self.to.clone(), self.at);
            self.at += buffer.len() as u64;
            self.writing = Some(Job::blocking(&self.env, move || {
                let (file, bulk) = &*to;
                let result = bulk.write_at(file, at, &[IoSlice::new(&buffer)]);
                buffer.clear();
                (buffer, result)
            }));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FileSink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.filling.len() == BUFFER_BYTES || self.failed.is_some() {
            ready!(self.poll_begin(context))?;
        }
        let taken = bytes.len().min(BUFFER_BYTES - self.filling.len());
        self.filling.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_begin(context))?;
        self.poll_written(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::{Read, Seek};

    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn every_byte_is_in_the_file_after_a_flush() {
        let mut file = tempfile::tempfile().unwrap();
        let mut sink = FileSink::new(&Env::real(), file.try_clone().unwrap());
        let mut model = Vec::new();
        for (round, len) in [1, 0, 3 * BUFFER_BYTES + 5, BUFFER_BYTES, 7].into_iter().enumerate() {
            let part: Vec<u8> = (0..len).map(|i| (i * 7 + round) as u8).collect();
            sink.write_all(&part).await.unwrap();
            model.extend(part);
            if round % 2 == 0 {
                sink.flush().await.unwrap();
                assert_eq!(file.metadata().unwrap().len(), model.len() as u64);
            }
        }
        sink.shutdown().await.unwrap();
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
        let large = vec![1; 3 * BUFFER_BYTES];
        let error = sink.write_all(&large).await.unwrap_err();
        for _ in 0..2 {
            assert_eq!(sink.flush().await.unwrap_err().kind(), error.kind());
            assert!(sink.write_all(&large).await.is_err());
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }
}
