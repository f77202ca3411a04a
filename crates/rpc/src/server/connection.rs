//! One accepted connection: its bytes, the key it proved, and what it may take.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use env::calls::Caller;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::members::Wide;
use super::seats::HallSeat;
use super::share::Share;
use crate::paced::{Pace, Paced};
use crate::socket::Tcp;

/// What a call learns of its connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The key it proved; none where each request proves its own.
    pub(super) caller: Option<Caller>,
    /// What callers of its kind hold together: those of its key where it was vouched for, else those from where it comes.
    pub(super) house: Arc<House>,
    /// That of where it comes from.
    pub(super) source: Arc<House>,
    /// Whether nobody vouched for it when it began.
    pub(super) stranger: bool,
    /// Ends it.
    pub(super) ends: CancellationToken,
}

/// What connections of one source hold together, of what callers share that nobody vouched for; or those of one key that somebody
/// did.
#[derive(Debug)]
pub(super) struct House {
    /// Calls, bytes, and handshakes under way.
    pub(super) share: Share,
    /// Frames that carry nothing.
    pub(super) pace: Pace,
}

/// The houses of all that are connected.
pub(super) struct Houses<K> {
    by: Mutex<HashMap<K, Weak<House>>>,
}

impl<K> Default for Houses<K> {
    fn default() -> Self {
        Self { by: Mutex::default() }
    }
}

/// Houses without connections are forgotten once there are so many.
const HOUSES_KEPT: usize = 4_096;

impl<K: Eq + Hash> Houses<K> {
    pub(super) fn of(&self, source: K) -> Arc<House> {
        let mut by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(house) = by.get(&source).and_then(Weak::upgrade) {
            return house;
        }
        if by.len() >= HOUSES_KEPT {
            by.retain(|_, house| house.strong_count() > 0);
        }
        let house = Arc::new(House { share: Share::default(), pace: Pace::of_a_house() });
        by.insert(source, Arc::downgrade(&house));
        house
    }
}

/// Bytes that an HTTP/2 connection begins with (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// What a connection must begin with, and until when. Nothing else would end one that says nothing: HTTP/2 asks for signs of
/// life only behind it.
pub(super) struct Preface {
    left: usize,
    until: BoxFuture<'static, ()>,
}

impl Preface {
    pub(super) fn until(until: BoxFuture<'static, ()>) -> Self {
        Self { left: PREFACE_BYTES, until }
    }
}

/// TLS, or plain TCP on a loopback address.
pub(super) type Socket = Either<TlsStream<Tcp>, Tcp>;

/// A connection whose key is proven. It ends when the server is closed.
pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) peer: Peer,
    pub(super) closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Until it has come.
    pub(super) preface: Option<Preface>,
    pub(super) paced: Paced,
    /// Its seat among those with wide windows.
    pub(super) wide: Option<Wide>,
    pub(super) _place: HallSeat<IpAddr>,
}

impl Connection {
    /// An error where the connection is to end. Looked at in writes too: where the other side takes nothing, HTTP/2 waits for
    /// it and reads no more.
    fn goes_on(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.closed.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
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
        this.goes_on(cx)?;
        ready!(this.paced.poll_ready(cx));
        let Some(preface) = &mut this.preface else {
            let before = into.filled().len();
            let read = ready!(Pin::new(&mut this.socket).poll_read(cx, into));
            let new = into.filled().get(before..).unwrap_or_default();
            this.paced.read(new, &this.peer.house.pace);
            return Poll::Ready(read);
        };
        if preface.until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut this.socket).poll_read(cx, into));
        let new = into.filled().get(before..).unwrap_or_default();
        let of_preface = preface.left.min(new.len());
        preface.left -= of_preface;
        if preface.left == 0 {
            this.preface = None;
        }
        this.paced.read(&new[of_preface..], &this.peer.house.pace);
        Poll::Ready(read)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.goes_on(cx)?;
        let wrote = ready!(Pin::new(&mut this.socket).poll_write(cx, bytes));
        this.paced.wrote(*wrote.as_ref().unwrap_or(&0));
        Poll::Ready(wrote)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.goes_on(cx)?;
        let wrote = ready!(Pin::new(&mut this.socket).poll_write_vectored(cx, bytes));
        this.paced.wrote(*wrote.as_ref().unwrap_or(&0));
        Poll::Ready(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.goes_on(cx)?;
        Pin::new(&mut this.socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.goes_on(cx)?;
        Pin::new(&mut this.socket).poll_shutdown(cx)
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
