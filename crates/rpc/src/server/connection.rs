//! One accepted connection: its bytes, the key it proved, and what it may take.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crypto::PublicKey;
use env::calls::Caller;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::accept::Seat;
use crate::socket::Tcp;

/// What a call learns of its connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The key it proved; none where each request proves its own.
    pub(super) caller: Option<Caller>,
    /// Its share of the request bytes in flight.
    pub(super) bytes: Arc<Semaphore>,
    /// Whether its windows are those of a caller that nobody vouched for.
    pub(super) narrow: bool,
    /// Ends it.
    pub(super) ends: CancellationToken,
}

/// TLS, or plain TCP on a loopback address.
pub(super) type Socket = Either<TlsStream<Tcp>, Tcp>;

/// A connection whose key is proven. It ends when the server is closed.
pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) peer: Peer,
    pub(super) closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Its seat among those with wide windows.
    pub(super) wide: Option<Seat<PublicKey>>,
    pub(super) _seat: Seat<IpAddr>,
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.closed.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut this.socket).poll_read(cx, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

/// Where a connection comes from, as it is counted: an IPv6 /64 is one household.
pub(super) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_ipv4_addresses_and_ipv6_households() {
        let of = |text: &str| source(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
