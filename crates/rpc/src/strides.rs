//! Reading a socket in large strides.
//!
//! rustls asks its socket for 4 KiB at a time (`DeframerVecBuffer`), so a record of 2 MiB took over 500 system calls to read.
//! A buffer between the two makes it one for each of its fillings, at the price of one more copy in the processor's cache;
//! `docs/adr/` has the measurement.
//!
//! Memory: a connection has a buffer only while there is something in it that was not asked for yet, which is a part of one
//! poll mostly. [`KEPT_MAX`] of [`STRIDE_BYTES`] are kept for all connections of the process; at rest they have none.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::poll_proceed;

/// Bytes of one read. With 64 KiB a put's receivers took a thirtieth more of the processor.
pub(crate) const STRIDE_BYTES: usize = 256 << 10;
/// Buffers that are kept.
const KEPT_MAX: usize = 2;

/// Buffers with nothing in them.
static KEPT: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());

type Buffer = Box<[u8]>;

fn take() -> Buffer {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).pop();
    kept.unwrap_or_else(|| vec![0; STRIDE_BYTES].into())
}

fn give_back(buffer: Buffer) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() < KEPT_MAX {
        kept.push(buffer);
    }
}

/// A stream that is read in large strides and written at once.
pub(crate) struct Strided<S> {
    stream: S,
    /// What was read and not asked for yet.
    ahead: Option<(Buffer, Range<usize>)>,
}

impl<S> Strided<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, ahead: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strided<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // A socket counts what a task reads at once, so that others have their turn; what is here already counts as well: of it there is
        // 64 times as much as a read was.
        let mut spent = None;
        if this.ahead.is_some() {
            spent = Some(ready!(poll_proceed(cx)));
        }
        let (buffer, range) = match this.ahead.take() {
            Some(ahead) => ahead,
            None if into.remaining() >= STRIDE_BYTES => {
                return Pin::new(&mut this.stream).poll_read(cx, into);
            }
            None => {
                let mut buffer = take();
                let mut room = ReadBuf::new(&mut buffer);
                let read = Pin::new(&mut this.stream).poll_read(cx, &mut room);
                let len = room.filled().len();
                if len == 0 {
                    give_back(buffer);
                    return read;
                }
                ready!(read)?;
                (buffer, 0..len)
            }
        };
        let now = range.len().min(into.remaining());
        let (start, end) = (range.start, range.end);
        into.put_slice(&buffer[start..start + now]);
        if start + now == end {
            give_back(buffer);
        } else {
            this.ahead = Some((buffer, start + now..end));
        }
        if let Some(spent) = spent {
            spent.made_progress();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Strided<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn every_byte_comes_in_order_whatever_is_asked_for_and_none_is_held_at_rest() {
        let (near, mut far) = tokio::io::duplex(3 * STRIDE_BYTES);
        let mut near = Strided::new(near);
        let sent: Vec<u8> = (0..5 * STRIDE_BYTES + 77).map(|i| (i % 251) as u8).collect();
        let model = sent.clone();
        let writing = tokio::spawn(async move {
            for part in sent.chunks(100_003) {
                far.write_all(part).await.unwrap();
            }
            far
        });
        let mut back = Vec::new();
        for ask in [1, 4096, 7, 2 * STRIDE_BYTES, STRIDE_BYTES - 1, 16 << 10].into_iter().cycle() {
            let mut part = vec![0; ask];
            let read = near.read(&mut part).await.unwrap();
            assert!(read > 0);
            back.extend_from_slice(&part[..read]);
            if back.len() == model.len() {
                break;
            }
        }
        assert!(back == model);
        assert!(near.ahead.is_none(), "what is read to its end holds no buffer");
        // Nothing to read, and then the end.
        let far = writing.await.unwrap();
        let mut part = [0; 16];
        let pending = futures::poll!(std::pin::pin!(near.read(&mut part)));
        assert!(pending.is_pending() && near.ahead.is_none());
        drop(far);
        assert_eq!(near.read(&mut part).await.unwrap(), 0);
        assert!(near.ahead.is_none());
        near.write_all(b"nobody hears").await.unwrap_err();
        assert!(KEPT.lock().unwrap().len() <= KEPT_MAX);
    }
}
