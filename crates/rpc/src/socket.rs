//! The bytes under TLS: the system's TCP sockets, read in large strides, or what a simulation puts in their place.
//!
//! rustls asks its socket for 4 KiB at a time (`DeframerVecBuffer`), so a record of 2 MiB took over
//! 500 system calls to read. A buffer between the two makes it one for each of its fillings, at the
//! price of one more copy in the processor's cache; `docs/adr/` has the measurement.
//!
//! All that is above (TLS, HTTP/2, pool, gate, limits) runs unchanged over [`Dial`] and [`Listen`]; a connection of the system is
//! still a plain [`TcpStream`], with no call through a table.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;

/// Bytes read ahead of TLS, for each connection.
const READ_BYTES: usize = 64 << 10;
/// Bytes that TLS encrypts before it writes them out.
pub(crate) const TLS_WRITE_BYTES: usize = 256 << 10;

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
pub(crate) type Tcp = BufReader<Wire>;

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
        Ok(BufReader::with_capacity(READ_BYTES, self))
    }

    /// Connects through `dial`, or a socket of the system.
    pub(crate) async fn dial(dial: Option<&dyn Dial>, address: &str) -> io::Result<Tcp> {
        let wire = match dial {
            None => Self::System(TcpStream::connect(address).await?),
            Some(dial) => Self::Other(dial.dial(address).await?),
        };
        wire.buffered()
    }
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
