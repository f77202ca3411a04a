//! Connections that end in time, whatever the other side does.
//!
//! Closing a connection first writes what waits, and whoever reads nothing lets it wait for ever: the connection would
//! count as long as that, and enough of them would leave no room for any other. So after [`CLOSE_WITHIN`] it is dropped.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use libp2p::core::muxing::{StreamMuxer, StreamMuxerEvent};
use tokio::time::Sleep;

/// How long the other side may take to let a connection be closed.
pub(super) const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// A multiplexed connection whose closing has a deadline.
pub(super) struct Closing<M> {
    inner: M,
    /// From when closing began.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<M> Closing<M> {
    pub(super) fn new(inner: M) -> Self {
        Self { inner, deadline: None }
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
        Pin::new(&mut self.inner).poll_inbound(context).map_err(io::Error::other)
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
