//! Where a content goes: whatever can be written to, or a file, which takes bytes without a copy.

use std::future::Future;
use std::io;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Takes the bytes of a content, in order.
pub trait Sink: Send {
    /// Takes what comes next. It may return before the bytes are where they go.
    ///
    /// # Errors
    /// The sink's, also about bytes taken before.
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = io::Result<()>> + Send;

    /// Waits until all that was taken is where it goes.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

impl<W: AsyncWrite + Send + Unpin> Sink for W {
    async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        self.write_all(&bytes).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        AsyncWriteExt::flush(self).await
    }
}
