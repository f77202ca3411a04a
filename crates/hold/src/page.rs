//! The page of metrics of a peer on this machine, as the peer's directory tells where it is.
//!
//! A peer may take a free port for its page at each start, so it writes the address, and its key, to
//! `D/.metrics` (a name that snapshots leave out). After kill -9 the file stays, and another program may
//! have the port by then: whoever reads the page checks that the key is told there too.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::HoldError;
use crate::files::{self, Access};

/// The file, in a peer's directory.
const FILE: &str = ".metrics";
/// A page is at most this long, in bytes.
const PAGE_BYTES_MAX: u64 = 1 << 20;
/// A peer on this machine answers within this time, or something is wrong with it.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Where a peer's page is, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// Where the page is.
    pub(crate) address: SocketAddr,
    /// The peer's key, hex.
    pub(crate) peer: String,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.address, self.peer)
    }
}

impl Told {
    /// Tells it in the peer's directory.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), HoldError> {
        files::replace(&dir.join(FILE), self.to_string().as_bytes(), Access::Public)
    }

    /// Tells it no more.
    pub(crate) fn remove(dir: &Path) {
        // A file that stays does no harm: nobody answers there.
        let _ = std::fs::remove_file(dir.join(FILE));
    }

    /// What the directory tells.
    ///
    /// # Errors
    /// [`HoldError::Missing`] where no peer runs on it.
    pub(crate) fn read(dir: &Path) -> Result<Self, HoldError> {
        let path = dir.join(FILE);
        let text = files::read_needed(&path, "a peer that runs there", "hold peer run --dir D")?;
        let text = std::str::from_utf8(&text).unwrap_or_default();
        let told = text.trim_end().split_once(' ').and_then(|(address, peer)| {
            Some(Self { address: address.parse().ok()?, peer: peer.to_owned() })
        });
        told.ok_or(HoldError::NotA { what: "the address of a page of metrics", path })
    }

    /// The page's `/status`.
    ///
    /// # Errors
    /// [`HoldError::Page`] where nobody answers in time, or somebody else.
    pub(crate) async fn status(&self) -> Result<serde_json::Value, HoldError> {
        let wrong = |source| HoldError::Page { address: self.address, source };
        let text = tokio::time::timeout(ANSWER_WITHIN, get(self.address, "/status")).await;
        let text = text.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(wrong)?;
        let status: serde_json::Value = serde_json::from_str(&text)
            .map_err(|_| wrong(io::Error::other("what answers there is no peer")))?;
        if status.get("peer").and_then(|peer| peer.as_str()) != Some(&self.peer) {
            return Err(wrong(io::Error::other("another peer answers there")));
        }
        Ok(status)
    }
}

/// The body of an answer with code 200.
async fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(PAGE_BYTES_MAX).read_to_string(&mut answer).await?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(io::Error::other("what answers there is no page of metrics")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_is_told_is_read_and_what_is_not_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Told::read(folder.path());
        assert!(matches!(missing, Err(HoldError::Missing { .. })), "{missing:?}");
        let told = Told { address: "127.0.0.1:9".parse().unwrap(), peer: "02ab".to_owned() };
        told.write(folder.path()).unwrap();
        assert_eq!(Told::read(folder.path()).unwrap(), told);
        std::fs::write(folder.path().join(FILE), "junk").unwrap();
        assert!(matches!(Told::read(folder.path()), Err(HoldError::NotA { .. })));
        Told::remove(folder.path());
        assert!(Told::read(folder.path()).is_err());
    }

    #[tokio::test]
    async fn another_that_has_the_port_is_not_taken_for_the_peer() {
        for body in ["{\"peer\":\"03\"}", "hello", ""] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let told = Told { address: listener.local_addr().unwrap(), peer: "02".to_owned() };
            let answering = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await.unwrap();
                let answer = format!("HTTP/1.1 200 OK\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            });
            let asked = told.status().await;
            assert!(matches!(asked, Err(HoldError::Page { .. })), "{body}: {asked:?}");
            answering.await.unwrap();
        }
    }
}
