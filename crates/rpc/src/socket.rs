//! The bytes under TLS: the system's TCP sockets, read in large strides ([`Strided`]), or what a simulation puts in their place.
//!
//! A connection over loopback is not paced: there is nothing to be gentle to, and where the system's congestion control
//! is BBR its timers cost 7 % of a put ([`unpaced`]).
//!
//! All that is above (TLS, HTTP/2, pool, gate, limits) runs unchanged over [`Dial`] and [`Listen`]; a connection of the system is
//! still a plain [`TcpStream`], with no call through a table.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, lookup_host};

use crate::strides::Strided;

/// Bytes that TLS encrypts before it writes them out.
pub(crate) const TLS_WRITE_BYTES: usize = 256 << 10;

/// Congestion control that every Linux has and that paces nothing.
const UNPACED: &str = "reno";

/// Lets a socket send without pacing where `address`, a listener's own or the far side's, is a loopback address. Before it
/// connects or accepts: what paces keeps its timers afterwards. So what a listener on all addresses accepts is paced
/// as the system wills. A system that refuses is none the worse for it.
pub fn unpaced(socket: impl AsFd, address: SocketAddr) {
    if address.ip().to_canonical().is_loopback() {
        let _ = rustix::net::sockopt::set_tcp_congestion(socket, UNPACED);
    }
}

/// A connection's bytes, both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Opens connections in the place of the system's sockets.
#[async_trait]
pub trait Dial: Send + Sync {
    /// Connects to `HOST:PORT`. The caller bounds the time; a dropped call opens nothing.
    ///
    /// # Errors
    /// Where nobody answers there.
    async fn dial(&self, address: &str) -> io::Result<Box<dyn Duplex>>;
}

/// Takes connections in the place of a socket of the system. Dropping it closes the listener.
#[async_trait]
pub trait Listen: Send + Sync {
    /// The next connection and where it comes from. A dropped call loses no connection.
    ///
    /// # Errors
    /// Where this one failed; the next may not.
    async fn accept(&self) -> io::Result<(Box<dyn Duplex>, SocketAddr)>;
    /// Where it listens.
    fn address(&self) -> SocketAddr;
}

/// A connection that is read in large strides and written at once.
pub(crate) type Tcp = Strided<Wire>;

/// What is under a connection's buffer.
pub(crate) enum Wire {
    System(TcpStream),
    Other(Box<dyn Duplex>),
}

impl Wire {
    /// Small answers go out without delay.
    pub(crate) fn buffered(self) -> io::Result<Tcp> {
        if let Self::System(stream) = &self {
            stream.set_nodelay(true)?;
        }
        Ok(Strided::new(self))
    }

    /// Connects through `dial`, or a socket of the system.
    pub(crate) async fn dial(dial: Option<&dyn Dial>, address: &str) -> io::Result<Tcp> {
        let wire = match dial {
            None => Self::System(connect(address).await?),
            Some(dial) => Self::Other(dial.dial(address).await?),
        };
        wire.buffered()
    }
}

/// A socket of the system to the first address of `HOST:PORT` that takes it.
async fn connect(address: &str) -> io::Result<TcpStream> {
    connect_first(lookup_host(address).await?).await
}

/// How long an address of a name is tried before the next one is tried beside it (RFC 8305, section 8).
pub(crate) const BESIDE_AFTER: Duration = Duration::from_millis(250);
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;

/// To the first that takes it, each tried a little after the one before or once that failed: what is sent to an address of a name may
/// get no answer at all, and a call has a few seconds for all of them. The error is the last one's.
async fn connect_first(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut left: VecDeque<SocketAddr> = addresses.take(ADDRESSES_MAX).collect();
    let (mut tries, mut failed) = (FuturesUnordered::new(), None);
    loop {
        if let Some(address) = left.pop_front() {
            tries.push(connect_to(address));
        } else if tries.is_empty() {
            let nothing = || io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
            return Err(failed.unwrap_or_else(nothing));
        }
        tokio::select! {
            biased;
            Some(tried) = tries.next() => match tried {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = Some(error),
            },
            () = tokio::time::sleep(BESIDE_AFTER), if !left.is_empty() => {}
        }
    }
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    unpaced(&socket, address);
    socket.connect(address).await
}

/// Where connections are taken from.
pub(crate) enum Listener {
    System(tokio::net::TcpListener),
    Other(Box<dyn Listen>),
}

impl Listener {
    pub(crate) async fn accept(&self) -> io::Result<(Wire, SocketAddr)> {
        match self {
            Self::System(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok((Wire::System(stream), from))
            }
            Self::Other(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok((Wire::Other(stream), from))
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Other(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Other(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
            Self::Other(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::System(stream) => stream.is_write_vectored(),
            Self::Other(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_flush(cx),
            Self::Other(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Other(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use rustix::net::sockopt::tcp_congestion;

    use super::*;
    use crate::server::{Listening, listen_on};

    #[tokio::test]
    async fn nothing_paces_a_loopback_connection_at_either_end() {
        let (listening, address) = listen_on("127.0.0.1:0").unwrap();
        let Listening::System(listener) = listening else { panic!("a socket of the system") };
        let listener = Listener::System(tokio::net::TcpListener::from_std(listener).unwrap());
        let text = address.to_string();
        let (dialled, accepted) = tokio::join!(connect(&text), listener.accept());
        let (Wire::System(accepted), _) = accepted.unwrap() else {
            panic!("a socket of the system")
        };
        assert_eq!(tcp_congestion(dialled.unwrap()).unwrap(), UNPACED);
        assert_eq!(tcp_congestion(accepted).unwrap(), UNPACED);
        let elsewhere = TcpSocket::new_v4().unwrap();
        let before = tcp_congestion(&elsewhere).unwrap();
        unpaced(&elsewhere, "192.0.2.1:80".parse().unwrap());
        assert_eq!(tcp_congestion(&elsewhere).unwrap(), before);
    }

    #[tokio::test]
    async fn a_refusal_keeps_its_kind() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let refused = connect(&free.to_string()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn a_name_is_reached_at_its_first_address_that_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let reached = connect_first([free, address].into_iter()).await.unwrap();
        assert_eq!(reached.peer_addr().unwrap(), address);
        // To this one nothing comes back, or the system says at once that there is no way.
        let silent = "192.0.2.1:9".parse().unwrap();
        let beside = connect_first([silent, silent, address].into_iter());
        let reached = tokio::time::timeout(Duration::from_secs(20), beside).await.unwrap();
        assert_eq!(reached.unwrap().peer_addr().unwrap(), address);
        let nowhere = connect_first(std::iter::empty()).await.unwrap_err();
        assert_eq!(nowhere.kind(), io::ErrorKind::InvalidInput);
    }
}
