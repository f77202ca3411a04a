//! A stream of any length runs within the window, also where the network is slow.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use author::{AuthorOptions, NoProgress, PutOptions, WINDOW_BYTES_MIN};
use crypto::Suite;
use testkit::network::Fault;
use testkit::time;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::network::{Net, noise};

/// A source of so many bytes that do not compress; it gives as few or as many as it likes.
struct Synthetic {
    block: Vec<u8>,
    given: usize,
    length: usize,
}

impl Synthetic {
    fn new(length: usize) -> Self {
        Self { block: noise(1, 1 << 20), given: 0, length }
    }
}

impl AsyncRead for Synthetic {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let at = self.given % self.block.len();
        let most = (self.length - self.given).min(self.block.len() - at).min(into.remaining());
        let most = most.min(100_001);
        into.put_slice(&self.block[at..at + most]);
        self.given += most;
        Poll::Ready(Ok(()))
    }
}

/// A sink that compares what it gets with what [`Synthetic`] gave, and keeps nothing.
struct Comparing(Synthetic);

impl AsyncWrite for Comparing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let at = self.0.given % self.0.block.len();
        let most = bytes.len().min(self.0.block.len() - at);
        assert!(self.0.block[at..at + most] == bytes[..most]);
        self.0.given += most;
        Poll::Ready(Ok(most))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn a_long_stream_stays_within_the_window_on_a_slow_network() {
    const LENGTH: usize = 200 << 20;
    const WINDOW: usize = 24 << 20;
    time::run(1, |env| async move {
        let net = Net::with(&env, 3, 3, Suite::Holdfast1, Some(1));
        for (number, peer) in net.peers.iter().enumerate() {
            net.network
                .set(&peer.id, Fault::Delay(Duration::from_millis(50 + 400 * number as u64)));
        }
        let author = net.user_with("ada", &AuthorOptions { window_bytes: WINDOW });
        let options = PutOptions::default();
        let report = author.put(Synthetic::new(LENGTH), options, Arc::new(NoProgress)).await;
        let report = report.unwrap();
        assert_eq!(report.bytes, LENGTH as u64);
        let (held, peak) = author.window_bytes();
        assert_eq!(held, 0);
        assert!(peak <= WINDOW, "{peak} bytes in flight");
        assert!(peak > WINDOW / 2, "the window is used: {peak}");

        let sink = Comparing(Synthetic::new(LENGTH));
        let got = author.get(report.address, sink, None, Arc::new(NoProgress)).await.unwrap();
        assert_eq!(got.bytes, LENGTH as u64);
        let (held, peak) = author.window_bytes();
        assert!(held == 0 && peak <= WINDOW, "{peak} bytes in flight");
    });
}

#[test]
fn many_puts_and_gets_share_the_smallest_window_and_all_end() {
    for suite in Suite::ALL {
        time::run(2, |env| async move {
            let net = Net::new(&env, 3, 9, suite);
            let author = net.user_with("ada", &AuthorOptions { window_bytes: 0 });
            let length = (6 << 20) + 1;
            let work = (0..6).map(|_| {
                let author = Arc::clone(&author);
                async move {
                    let source = Synthetic::new(length);
                    let put = author.put(source, PutOptions::default(), Arc::new(NoProgress)).await;
                    let sink = Comparing(Synthetic::new(length));
                    let address = put.unwrap().address;
                    author.get(address, sink, None, Arc::new(NoProgress)).await.unwrap().bytes
                }
            });
            let bytes = futures::future::join_all(work).await;
            assert_eq!(bytes, [length as u64; 6]);
            let (held, peak) = author.window_bytes();
            assert_eq!(held, 0);
            assert!(peak <= WINDOW_BYTES_MIN);
        });
    }
}

#[test]
fn a_source_or_sink_that_fails_ends_it_and_gives_everything_back() {
    struct Failing(Synthetic);
    impl AsyncRead for Failing {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.0.given == self.0.length {
                return Poll::Ready(Err(io::ErrorKind::PermissionDenied.into()));
            }
            Pin::new(&mut self.0).poll_read(context, into)
        }
    }
    for suite in Suite::ALL {
        time::run(3, |env| async move {
            let net = Net::new(&env, 3, 9, suite);
            let author = net.user("ada");
            for length in [0, 5, 5 << 20] {
                let source = Failing(Synthetic::new(length));
                let options = PutOptions::default();
                let error = author.put(source, options, Arc::new(NoProgress)).await.unwrap_err();
                assert!(matches!(error, author::AuthorError::Read(_)), "{error:?}");
                assert!(net.shared.log.borrow().is_empty());
                assert_eq!(author.window_bytes().0, 0);
            }
            let source = Synthetic::new(5 << 20);
            let put =
                author.put(source, PutOptions::default(), Arc::new(NoProgress)).await.unwrap();
            let full = tokio::io::BufWriter::with_capacity(1, FullDisk);
            let error =
                author.get(put.address, full, None, Arc::new(NoProgress)).await.unwrap_err();
            assert!(matches!(error, author::AuthorError::Write(_)));
            assert_eq!(crypto::Classified::class(&error), crypto::Class::Busy);
            assert_eq!(author.window_bytes().0, 0);
        });
    }
}

struct FullDisk;

impl AsyncWrite for FullDisk {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        _bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::StorageFull.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
