//! TLS over loopback TCP, each end on a thread of its own: processor time a byte at either end.
//!
//! The suites are those of our connections (TLS 1.3, first AES-128-GCM), with 256 KiB read
//! and written at a time, and nothing paces them, as between our peers on one machine. Smaller
//! strides cost more system calls and are not unavoidable.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, Stream,
};

use super::stages::{timed, usual};
use crate::error::BenchError;

const READ_BYTES: usize = 256 << 10;
const WRITE_BYTES: usize = 256 << 10;
const NAME: &str = "peer";

/// A socket with a buffer before its reads.
struct Socket(BufReader<TcpStream>);

impl Socket {
    fn new(stream: TcpStream) -> Self {
        Self(BufReader::with_capacity(READ_BYTES, stream))
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.get_mut().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.0.get_mut().flush()
    }
}

/// The usual processor time of the sender and of the receiver, for so many bytes.
pub(super) fn measure(bytes: usize, tries: usize) -> Result<(Duration, Duration), BenchError> {
    let (server, client) = configurations()?;
    let (mut send, mut receive) = (Vec::new(), Vec::new());
    for _ in 0..tries {
        let (sent, received) = once(&server, &client, bytes)?;
        send.push(sent);
        receive.push(received);
    }
    Ok((usual(&send), usual(&receive)))
}

fn configurations() -> Result<(Arc<ServerConfig>, Arc<ClientConfig>), BenchError> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.key_pair.serialize_der().into());
    let provider = Arc::new(CryptoProvider {
        cipher_suites: rpc::cipher_suites(),
        ..aws_lc_rs::default_provider()
    });
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((Arc::new(server), Arc::new(client)))
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let (tcp, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(AddressFamily::INET, tcp, flags, None)?;
    rpc::unpaced(&socket, address);
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

/// One connection: the client sends, the server receives.
fn once(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    bytes: usize,
) -> Result<(Duration, Duration), BenchError> {
    let failed = || BenchError::io("use a connection of", "127.0.0.1");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed())?;
    let address = listener.local_addr().map_err(failed())?;
    rpc::unpaced(&listener, address);
    let mut receiving = ServerConnection::new(server.clone())?;
    let receiver = std::thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        let mut socket = Socket::new(stream);
        let mut stream = Stream::new(&mut receiving, &mut socket);
        let mut buffer = vec![0; WRITE_BYTES];
        // The first byte comes after the handshake.
        stream.read_exact(&mut buffer[..1])?;
        let (took, read) = timed(|| {
            let mut left = bytes;
            while left > 0 {
                match stream.read(&mut buffer)? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    read => left = left.saturating_sub(read),
                }
            }
            Ok::<(), std::io::Error>(())
        });
        read?;
        // The sender's time must not have the end of the connection in it.
        stream.write_all(&[0])?;
        stream.flush()?;
        Ok::<_, std::io::Error>(took)
    });
    let name = ServerName::try_from(NAME).map_err(|_| rustls::Error::General(NAME.to_owned()))?;
    let mut sending = ClientConnection::new(client.clone(), name)?;
    sending.set_buffer_limit(Some(WRITE_BYTES * 2));
    let mut socket = Socket::new(connect(address).map_err(failed())?);
    let mut stream = Stream::new(&mut sending, &mut socket);
    stream.write_all(&[0]).and_then(|()| stream.flush()).map_err(failed())?;
    let block = vec![0x5a; WRITE_BYTES];
    let (sent, written) = timed(|| {
        let mut left = bytes;
        while left > 0 {
            let part = left.min(block.len());
            stream.write_all(&block[..part])?;
            left -= part;
        }
        stream.flush()
    });
    written.map_err(failed())?;
    stream.read_exact(&mut [0]).map_err(failed())?;
    let received = receiver.join().map_err(|_| BenchError::Wrong("the receiver's thread ended"))?;
    Ok((sent, received.map_err(failed())?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn both_ends_take_time() {
        let (send, receive) = measure(4 << 20, 1).unwrap();
        assert!(send > Duration::ZERO && receive > Duration::ZERO);
    }
}
