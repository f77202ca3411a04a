//! The TCP socket under TLS, with large reads.
//!
//! rustls asks its socket for 4 KiB at a time (`DeframerVecBuffer`), so a record of 2 MiB took over
//! 500 system calls to read. A buffer between the two makes it one for each of its fillings, at the
//! price of one more copy in the processor's cache; `docs/adr/` has the measurement.

use std::io;

use tokio::io::BufReader;
use tokio::net::TcpStream;

/// Bytes read ahead of TLS, for each connection.
const READ_BYTES: usize = 64 << 10;
/// Bytes that TLS encrypts before it writes them out.
pub(crate) const TLS_WRITE_BYTES: usize = 256 << 10;

/// A TCP connection that is read in large strides and written at once.
pub(crate) type Tcp = BufReader<TcpStream>;

/// Small answers go out without delay.
pub(crate) fn tcp(stream: TcpStream) -> io::Result<Tcp> {
    stream.set_nodelay(true)?;
    Ok(BufReader::with_capacity(READ_BYTES, stream))
}
