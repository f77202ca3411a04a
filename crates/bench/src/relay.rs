//! A relay in front of one peer: it makes the peer slow without touching it.
//!
//! ```text
//! caller ---- bytes, at once ----> relay -> peer
//!        <--- bytes, each a delay later --- relay
//! ```
//! What comes back is late, and not less of it: as much is on its way as there is room for. The delay
//! may change at any time; bytes that wait keep theirs, so that nothing is overtaken.
//!
//! Limits: [`CONNECTIONS_MAX`] connections, [`WAITING_MAX`] reads of [`READ_BYTES`] that wait on each;
//! then it reads no more of that connection until some went on.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::error::BenchError;

/// Connections at once; one beyond is closed.
const CONNECTIONS_MAX: usize = 256;
const READ_BYTES: usize = 64 << 10;
/// Reads of one connection that wait for their time: 16 MiB.
const WAITING_MAX: usize = 256;
/// Threads carry bytes and nothing else.
const STACK_BYTES: usize = 256 << 10;

/// What the relay's threads share.
#[derive(Debug, Default)]
struct Shared {
    delay_micros: AtomicU64,
    connections: AtomicUsize,
    stopped: AtomicBool,
}

/// A relay that runs. Dropped, it takes no more connections; those that are there end with their ends.
#[derive(Debug)]
pub(crate) struct Relay {
    address: String,
    shared: Arc<Shared>,
}

impl Relay {
    /// Listens at a port of loopback and carries everything to `to` and back, without a delay.
    pub(crate) fn start(port: u16, to: &str) -> Result<Self, BenchError> {
        let address = format!("127.0.0.1:{port}");
        let listener =
            TcpListener::bind(&address).map_err(BenchError::io("listen at", &address))?;
        let shared = Arc::<Shared>::default();
        let (to, kept) = (to.to_owned(), shared.clone());
        thread(move || {
            for from in listener.incoming().map_while(Result::ok) {
                if kept.stopped.load(Ordering::Acquire) {
                    return;
                }
                if kept.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                    kept.connections.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (to, shared) = (to.clone(), kept.clone());
                thread(move || {
                    carry(&from, &to, &shared);
                    shared.connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Ok(Self { address, shared })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// From now on what comes back is so late.
    pub(crate) fn delay(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.shared.delay_micros.store(micros, Ordering::Release);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        // So that the thread that waits for connections sees it.
        let _ = TcpStream::connect(&self.address);
    }
}

/// A thread of its own. Where the system has none left, what it was to carry ends.
fn thread(work: impl FnOnce() + Send + 'static) {
    let named = std::thread::Builder::new().name("relay".to_owned());
    let _ = named.stack_size(STACK_BYTES).spawn(work);
}

/// Carries one connection until either end closes it.
fn carry(from: &TcpStream, to: &str, shared: &Arc<Shared>) {
    let Ok(there) = TcpStream::connect(to) else { return };
    let _ = (from.set_nodelay(true), there.set_nodelay(true));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pass(from, &there);
            close(from, &there);
        });
        pass_late(&there, from, shared);
        close(from, &there);
    });
}

fn close(from: &TcpStream, there: &TcpStream) {
    let _ = (from.shutdown(Shutdown::Both), there.shutdown(Shutdown::Both));
}

fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

fn pass_late(mut from: &TcpStream, mut to: &TcpStream, shared: &Shared) {
    let (send, receive) = mpsc::sync_channel::<(Instant, Vec<u8>)>(WAITING_MAX);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (due, bytes) in receive {
                let left = due.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    std::thread::sleep(left);
                }
                if to.write_all(&bytes).is_err() {
                    return;
                }
            }
        });
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let delay = Duration::from_micros(shared.delay_micros.load(Ordering::Acquire));
            if send.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
        drop(send);
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::ports::Ports;

    /// A peer that answers every byte by the next one.
    fn peer() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let mut byte = [0];
                    while let Ok(1) = stream.read(&mut byte) {
                        let _ = stream.write_all(&[byte[0].wrapping_add(1)]);
                    }
                });
            }
        });
        address
    }

    fn ask(stream: &mut TcpStream, byte: u8) -> (u8, Duration) {
        let started = Instant::now();
        stream.write_all(&[byte]).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        (answer[0], started.elapsed())
    }

    #[test]
    fn answers_are_late_by_the_delay_and_in_order() {
        let relay = Relay::start(Ports::new().free().unwrap(), &peer()).unwrap();
        let mut stream = TcpStream::connect(relay.address()).unwrap();
        assert_eq!(ask(&mut stream, 7).0, 8);
        let delay = Duration::from_millis(500);
        relay.delay(delay);
        let (answer, took) = ask(&mut stream, 9);
        assert!(answer == 10 && took >= delay, "{took:?}");
        // Several on their way at once are late once, and stay in their order.
        let started = Instant::now();
        let mut answers = [0; 20];
        for byte in 0..20 {
            stream.write_all(&[byte]).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        // One after the other they would be twenty delays late, however long it took to send them.
        let sent = started.elapsed();
        stream.read_exact(&mut answers).unwrap();
        assert!(answers.iter().copied().eq(1..=20), "{answers:?}");
        assert!(started.elapsed() < sent + delay * 15, "{:?}", started.elapsed());
        relay.delay(Duration::ZERO);
        assert_eq!(ask(&mut stream, 1).0, 2);
    }

    #[test]
    fn an_end_that_closes_ends_the_other() {
        let relay = Relay::start(Ports::new().free().unwrap(), &peer()).unwrap();
        let mut stream = TcpStream::connect(relay.address()).unwrap();
        assert_eq!(ask(&mut stream, 1).0, 2);
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        let address = relay.address().to_owned();
        drop(relay);
        let started = Instant::now();
        while TcpListener::bind(&address).is_err() {
            assert!(started.elapsed() < Duration::from_secs(30), "it still listens");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
