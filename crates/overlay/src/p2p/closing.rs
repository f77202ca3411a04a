//! Connections that end in time and open streams at a pace, whatever the other side does.
//!
//! Closing a connection first writes what waits, and whoever reads nothing lets it wait for ever: the connection would
//! count as long as that, and enough of them would leave no room for any other. So after [`CLOSE_WITHIN`] it is dropped.
//!
//! A stream that the other side opens costs it 24 bytes, opened and reset, and us a negotiation with a timer of its own. How many are open at
//! once says nothing of how many were: so they are counted as they come, and who opens more than [`STREAMS_BURST`] and one each
//! [`STREAM_EVERY`] has its connection ended.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use libp2p::core::muxing::{StreamMuxer, StreamMuxerEvent};
use libp2p::swarm::ConnectionError;
use tokio::time::{Instant, Sleep};

/// How long the other side may take to let a connection be closed.
pub(super) const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// Streams that the other side may open at once.
const STREAMS_BURST: u32 = 64;
/// Further ones on average: 16 a second. Of the protocols only Kademlia opens more than a few, one for each question. While who is known
/// changes all the time it asks everybody up to twelve times a second: two rounds, each for itself and for each bucket that is not empty.
const STREAM_EVERY: Duration = Duration::from_micros(62_500);

/// Why a connection is ended.
#[derive(Debug, thiserror::Error)]
#[error("the other side opened more streams than it may")]
struct TooManyStreams;

/// Whether a connection was closed because the other side opened more streams than it may.
pub(super) fn opened_too_many(cause: &ConnectionError) -> bool {
    let ConnectionError::IO(error) = cause else { return false };
    // libp2p wraps what a connection gives in errors of the same type.
    let mut error = Some(error);
    while let Some(wrapped) = error.and_then(io::Error::get_ref) {
        if wrapped.is::<TooManyStreams>() {
            return true;
        }
        error = wrapped.downcast_ref::<io::Error>();
    }
    false
}

/// A multiplexed connection whose closing has a deadline, and on which streams are opened at a pace.
pub(super) struct Closing<M> {
    inner: M,
    /// From when closing began.
    deadline: Option<Pin<Box<Sleep>>>,
    /// When the other side may open [`STREAMS_BURST`] streams again.
    rested: Instant,
}

impl<M> Closing<M> {
    pub(super) fn new(inner: M) -> Self {
        Self { inner, deadline: None, rested: Instant::now() }
    }

    /// Whether the other side may open one more stream now; it is counted.
    fn may_open(&mut self) -> bool {
        let now = Instant::now();
        let rested = self.rested.max(now) + STREAM_EVERY;
        let may = rested <= now + STREAM_EVERY * STREAMS_BURST;
        if may {
            self.rested = rested;
        }
        may
    }
}

impl<M> StreamMuxer for Closing<M>
where
    M: StreamMuxer + Unpin,
    M::Error: Send + Sync + 'static,
{
    type Substream = M::Substream;
    type Error = io::Error;

    fn poll_inbound(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::Substream, io::Error>> {
        let opened = ready!(Pin::new(&mut self.inner).poll_inbound(context));
        let stream = opened.map_err(io::Error::other)?;
        if !self.may_open() {
            return Poll::Ready(Err(io::Error::other(TooManyStreams)));
        }
        Poll::Ready(Ok(stream))
    }

    fn poll_outbound(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::Substream, io::Error>> {
        Pin::new(&mut self.inner).poll_outbound(context).map_err(io::Error::other)
    }

    fn poll_close(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), io::Error>> {
        if let Poll::Ready(closed) = Pin::new(&mut self.inner).poll_close(context) {
            return Poll::Ready(closed.map_err(io::Error::other));
        }
        let begun = || Box::pin(tokio::time::sleep(CLOSE_WITHIN));
        let deadline = self.deadline.get_or_insert_with(begun);
        deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<StreamMuxerEvent, io::Error>> {
        Pin::new(&mut self.inner).poll(context).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures::io::Cursor;

    use super::*;

    /// A connection whose other side reads nothing until this time has passed.
    struct Stuck(Pin<Box<Sleep>>);

    impl Stuck {
        fn for_(time: Duration) -> Closing<Self> {
            Closing::new(Self(Box::pin(tokio::time::sleep(time))))
        }
    }

    impl StreamMuxer for Stuck {
        type Substream = Cursor<Vec<u8>>;
        type Error = io::Error;

        fn poll_inbound(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<io::Result<Self::Substream>> {
            Poll::Pending
        }

        fn poll_outbound(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<io::Result<Self::Substream>> {
            Poll::Pending
        }

        fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.0.as_mut().poll(context).map(Ok)
        }

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<StreamMuxerEvent>> {
            Poll::Pending
        }
    }

    /// A connection whose other side always opens one more stream.
    struct Flooded;

    impl StreamMuxer for Flooded {
        type Substream = Cursor<Vec<u8>>;
        type Error = io::Error;

        fn poll_inbound(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<io::Result<Self::Substream>> {
            Poll::Ready(Ok(Cursor::default()))
        }

        fn poll_outbound(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<io::Result<Self::Substream>> {
            Poll::Pending
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<StreamMuxerEvent>> {
            Poll::Pending
        }
    }

    /// How many streams it takes before it ends, of so many; and that it says why, wrapped as libp2p does.
    async fn taken(connection: &mut Closing<Flooded>, of: u32) -> u32 {
        for taken in 0..of {
            let opened = poll_fn(|context| Pin::new(&mut *connection).poll_inbound(context)).await;
            if let Err(error) = opened {
                assert!(opened_too_many(&ConnectionError::IO(io::Error::other(error))));
                return taken;
            }
        }
        of
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_streams_are_opened_without_end_is_given_up() {
        let mut connection = Closing::new(Flooded);
        assert_eq!(taken(&mut connection, 10_000).await, STREAMS_BURST);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(taken(&mut connection, 10_000).await, 16);
        // Nothing is saved up beyond the burst.
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert_eq!(taken(&mut connection, 10_000).await, STREAMS_BURST);
        // At the pace it goes on.
        for _ in 0..100 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(taken(&mut connection, 16).await, 16);
        }
        assert!(!opened_too_many(&ConnectionError::IO(io::ErrorKind::BrokenPipe.into())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_cannot_be_closed_is_given_up() {
        let begun = tokio::time::Instant::now();
        for (stuck, ended) in [(CLOSE_WITHIN / 2, true), (CLOSE_WITHIN * 100, false)] {
            let mut connection = Stuck::for_(stuck);
            let closed = poll_fn(|context| Pin::new(&mut connection).poll_close(context)).await;
            assert_eq!(closed.is_ok(), ended, "{closed:?}");
        }
        assert_eq!(
            begun.elapsed().as_secs_f32().round(),
            (CLOSE_WITHIN * 3 / 2).as_secs_f32().round()
        );
    }
}
