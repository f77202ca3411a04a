//! Free ports of this machine.
//!
//! They lie below those that the system gives to outgoing connections: of thousands of these one
//! would else now and then take a port between its choice and its use.

use std::net::TcpListener;

use env::{Entropy, SystemEntropy};

use crate::error::BenchError;

/// Where they are taken from: below the system's own choice for outgoing connections.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// Free ports, each given once.
#[derive(Debug)]
pub struct Ports {
    next: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self::new()
    }
}

impl Ports {
    /// From somewhere, so that two experiments at once rarely meet.
    pub fn new() -> Self {
        let mut random = [0; 2];
        SystemEntropy.fill(&mut random);
        let span = PORTS.end - PORTS.start;
        Self { next: PORTS.start + u16::from_le_bytes(random) % span }
    }

    /// The next free one.
    ///
    /// # Errors
    /// [`BenchError::Io`] where none is.
    pub fn free(&mut self) -> Result<u16, BenchError> {
        let mut last = std::io::ErrorKind::AddrInUse.into();
        for _ in PORTS {
            let port = self.next;
            self.next = if port + 1 < PORTS.end { port + 1 } else { PORTS.start };
            match TcpListener::bind(("127.0.0.1", port)) {
                Ok(_) => return Ok(port),
                Err(error) => last = error,
            }
        }
        Err(BenchError::io("listen at", "127.0.0.1")(last))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn ports_are_free_and_given_once() {
        let mut ports = Ports::new();
        let given: Vec<u16> = (0..100).map(|_| ports.free().unwrap()).collect();
        let mut once = given.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), 100);
        let taken = TcpListener::bind(("127.0.0.1", ports.next)).unwrap();
        assert_ne!(ports.free().unwrap(), taken.local_addr().unwrap().port());
    }
}
