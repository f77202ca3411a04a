//! What a put reads from: a stream, or a file, which is read into a chunk's memory where it stays.
//!
//! tokio reads a file into a buffer of its own and copies out of it, which was a seventieth of a put's processor time.

use std::fs::File;
use std::future::Future;
use std::io;
use std::sync::Arc;

use env::Env;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::job::Job;

/// Bytes in order, to their end.
pub(crate) trait Fill: Send {
    /// Appends up to so many bytes to `into`, tells `read` of them as they come, and gives `into` back: with less only where the
    /// source has ended.
    ///
    /// # Errors
    /// Of reading.
    fn fill(
        &mut self,
        into: Vec<u8>,
        bytes: usize,
        read: impl FnMut(u64) + Send,
    ) -> impl Future<Output = io::Result<Vec<u8>>> + Send;
}

/// What comes when it comes.
pub(crate) struct Stream<S>(pub(crate) S);

impl<S: AsyncRead + Send + Unpin> Fill for Stream<S> {
    async fn fill(
        &mut self,
        mut into: Vec<u8>,
        bytes: usize,
        mut read: impl FnMut(u64) + Send,
    ) -> io::Result<Vec<u8>> {
        let wanted = into.len() + bytes;
        let mut limited = (&mut self.0).take(bytes as u64);
        while into.len() < wanted {
            let now = limited.read_buf(&mut into).await?;
            if now == 0 {
                break;
            }
            read(now as u64);
        }
        Ok(into)
    }
}

/// A regular file, from its beginning.
///
/// A read whose put was given up goes on for a while. So the place in the file is this reader's own and not the system's,
/// which a later reader of the same file would share with it.
pub(crate) struct Opened<'a> {
    env: &'a Env,
    file: Arc<File>,
    /// Where the next bytes are.
    at: u64,
}

impl<'a> Opened<'a> {
    pub(crate) fn new(env: &'a Env, file: &Arc<File>) -> Self {
        Self { env, file: Arc::clone(file), at: 0 }
    }
}

impl Fill for Opened<'_> {
    async fn fill(
        &mut self,
        into: Vec<u8>,
        bytes: usize,
        mut read: impl FnMut(u64) + Send,
    ) -> io::Result<Vec<u8>> {
        let (file, at, before) = (Arc::clone(&self.file), self.at, into.len());
        let reading = Job::blocking(self.env, move || read_from(&file, at, into, bytes));
        // A pool that is gone reads nothing any more.
        let into = reading.await.unwrap_or_else(|| Err(io::ErrorKind::Interrupted.into()))?;
        let more = (into.len() - before) as u64;
        self.at += more;
        read(more);
        Ok(into)
    }
}

/// Appends so many bytes from a place in a file, or what there is of them.
fn read_from(file: &File, at: u64, mut into: Vec<u8>, bytes: usize) -> io::Result<Vec<u8>> {
    let (before, end) = (into.len(), into.len() + bytes);
    into.reserve(bytes);
    while into.len() < end {
        let at = at + (into.len() - before) as u64;
        match pread(file, spare_capacity(&mut into), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // There may have been room for more.
    into.truncate(end);
    Ok(into)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::Write;

    use super::*;

    /// Parts of all kinds of lengths, to the end and beyond it.
    async fn parts(mut source: impl Fill, len: usize) -> (Vec<u8>, u64) {
        let (mut all, mut told) = (Vec::new(), 0);
        for bytes in [1, 0, 4095, 100_000, len, len].into_iter() {
            let before = vec![9; 3];
            let room = Vec::with_capacity(before.len() + bytes + 10);
            let into = [room, before].concat();
            let into = source.fill(into, bytes, |read| told += read).await.unwrap();
            assert_eq!(into[..3], [9; 3]);
            assert_eq!(into.len() - 3, bytes.min(len - all.len()));
            all.extend_from_slice(&into[3..]);
        }
        (all, told)
    }

    #[tokio::test]
    async fn a_file_and_a_stream_give_the_same() {
        let bytes: Vec<u8> = (0..300_001).map(|i| (i % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let env = Env::real();
        let file = Arc::new(file);
        let mut other = Opened::new(&env, &file);
        assert_eq!(other.fill(Vec::new(), 7, |_| {}).await.unwrap(), bytes[..7]);
        let opened = Opened::new(&env, &file);
        for (read, told) in
            [parts(opened, bytes.len()).await, parts(Stream(&bytes[..]), bytes.len()).await]
        {
            assert!(read == bytes && told == bytes.len() as u64);
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_an_error() {
        let env = Env::real();
        let folder = tempfile::tempdir().unwrap();
        let file = Arc::new(File::open(folder.path()).unwrap());
        Opened::new(&env, &file).fill(Vec::new(), 10, |_| {}).await.unwrap_err();
    }
}
