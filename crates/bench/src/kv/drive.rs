//! Many clients of one side on one thread: each asks so many requests at once, waits for all answers, and
//! asks again.
//!
//! An event loop over sockets, which keeps nothing of an answer: what it costs must be little beside what is
//! measured, since both share the cores. A request's latency is from the moment when its batch was handed to the system
//! until its answer was read.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::resp::{self, Reply};
use crate::error::BenchError;
use crate::percentiles::Latencies;
use crate::stop::Stop;

/// Clients at most.
pub(super) const CLIENTS_MAX: usize = 1024;
/// How long no answer at all may come.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the loop looks whether it is stopped.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Room for answers of one client at first, and at most, in bytes.
const INPUT_BYTES: usize = 64 << 10;
const INPUT_BYTES_MAX: usize = 64 << 20;

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// A GET; else a SET.
    pub(super) read: bool,
    /// The key's number.
    pub(super) key: u64,
}

/// What the clients ask.
pub(super) trait Asking {
    /// Appends the next request to what is sent; none where nothing more is to be asked.
    fn ask(&mut self, out: &mut Vec<u8>) -> Option<Asked>;

    /// Whether to go on at this moment. It is asked once a batch.
    fn goes_on(&self, now: Instant) -> bool;

    /// Looks at an answer.
    fn check(&self, asked: Asked, reply: Reply<'_>) -> Result<(), BenchError>;
}

/// How it went.
#[derive(Debug, Default)]
pub(super) struct Driven {
    pub(super) reads: Latencies,
    pub(super) updates: Latencies,
    pub(super) wall: Duration,
}

impl Driven {
    /// Requests that were answered.
    pub(super) fn answered(&self) -> usize {
        self.reads.calls() + self.updates.calls()
    }
}

struct Client {
    stream: TcpStream,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    /// What of `input` is filled, and what of that was read already.
    filled: usize,
    taken: usize,
    asked: VecDeque<Asked>,
    since: Instant,
}

/// Asks by so many clients, each `depth` requests at once, until there is nothing more to ask and all is answered.
///
/// # Errors
/// [`BenchError::Wrong`] where an answer is not what was asked for, [`BenchError::Late`] where none comes.
pub(super) fn drive(
    address: SocketAddr,
    (clients, depth): (usize, usize),
    asking: &mut dyn Asking,
    stop: &Stop,
) -> Result<Driven, BenchError> {
    let failed = BenchError::io("wait for", "connections");
    let (mut poll, mut events) = match Poll::new() {
        Ok(poll) => (poll, Events::with_capacity(CLIENTS_MAX)),
        Err(error) => return Err(failed(error)),
    };
    let mut all = Vec::with_capacity(clients);
    for number in 0..clients {
        all.push(Client::connect(address, &poll, number)?);
    }
    let mut driven = Driven::default();
    let started = Instant::now();
    let mut open = 0;
    for client in &mut all {
        open += usize::from(client.next(depth, asking, started)?);
    }
    let mut heard = started;
    while open > 0 {
        stop.check()?;
        match poll.poll(&mut events, Some(LOOK_EVERY)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(BenchError::io("wait for", "connections")(error));
            }
            _ => {}
        }
        for event in &events {
            let Some(client) = all.get_mut(event.token().0) else { continue };
            client.write()?;
            while client.answers(asking, &mut driven)? && client.asked.is_empty() {
                heard = Instant::now();
                if !client.next(depth, asking, heard)? {
                    open -= 1;
                    break;
                }
            }
        }
        if heard.elapsed() > PATIENCE {
            return Err(BenchError::Late { what: "no answer came", limit: PATIENCE });
        }
    }
    driven.wall = started.elapsed();
    Ok(driven)
}

impl Client {
    fn connect(address: SocketAddr, poll: &Poll, number: usize) -> Result<Self, BenchError> {
        let connect = || -> io::Result<TcpStream> {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(number), both)?;
            Ok(stream)
        };
        let stream = connect().map_err(BenchError::io("connect to", address.to_string()))?;
        Ok(Self {
            stream,
            out: Vec::new(),
            sent: 0,
            input: vec![0; INPUT_BYTES],
            filled: 0,
            taken: 0,
            asked: VecDeque::new(),
            since: Instant::now(),
        })
    }

    /// Sends the next batch; `false` where there is none.
    fn next(
        &mut self,
        depth: usize,
        asking: &mut dyn Asking,
        now: Instant,
    ) -> Result<bool, BenchError> {
        self.out.clear();
        self.sent = 0;
        if !asking.goes_on(now) {
            return Ok(false);
        }
        while self.asked.len() < depth {
            let Some(asked) = asking.ask(&mut self.out) else { break };
            self.asked.push_back(asked);
        }
        self.since = now;
        self.write()?;
        Ok(!self.asked.is_empty())
    }

    fn write(&mut self) -> Result<(), BenchError> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BenchError::io("write to", "a connection")(error)),
            }
        }
        Ok(())
    }

    /// Reads what came, once; whether the last of the batch's answers was among it.
    fn answers(&mut self, asking: &dyn Asking, driven: &mut Driven) -> Result<bool, BenchError> {
        loop {
            let room = self.room()?;
            let read = match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(BenchError::Wrong("a connection was closed")),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(BenchError::io("read from", "a connection")(error)),
            };
            self.filled += read;
            self.take(asking, driven)?;
            if self.asked.is_empty() {
                return Ok(true);
            }
            // Less than there was room for: the next event comes with the rest.
            if read < room {
                return Ok(false);
            }
        }
    }

    /// Makes room for more, and says how much.
    fn room(&mut self) -> Result<usize, BenchError> {
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
        } else if self.filled == self.input.len() {
            self.input.copy_within(self.taken..self.filled, 0);
            (self.filled, self.taken) = (self.filled - self.taken, 0);
            if self.filled > self.input.len() / 2 {
                if self.input.len() >= INPUT_BYTES_MAX {
                    return Err(BenchError::Wrong(
                        "an answer is longer than any that was asked for",
                    ));
                }
                self.input.resize(self.input.len() * 2, 0);
            }
        }
        Ok(self.input.len() - self.filled)
    }

    fn take(&mut self, asking: &dyn Asking, driven: &mut Driven) -> Result<(), BenchError> {
        let took = self.since.elapsed();
        while let Some((reply, length)) = resp::next(&self.input[self.taken..self.filled])? {
            let Some(asked) = self.asked.pop_front() else {
                return Err(BenchError::Wrong("an answer came that nothing was asked for"));
            };
            asking.check(asked, reply)?;
            let latencies = if asked.read { &mut driven.reads } else { &mut driven.updates };
            latencies.add(took);
            self.taken += length;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::TcpListener;

    use super::*;

    /// Asks for so many keys, one after the other.
    struct Counting {
        next: u64,
        end: u64,
        length: usize,
    }

    impl Asking for Counting {
        fn ask(&mut self, out: &mut Vec<u8>) -> Option<Asked> {
            let key = self.next;
            if key == self.end {
                return None;
            }
            self.next += 1;
            resp::request(&[b"G", &key.to_be_bytes()], out);
            Some(Asked { read: key.is_multiple_of(2), key })
        }

        fn goes_on(&self, _: Instant) -> bool {
            self.next < self.end
        }

        fn check(&self, asked: Asked, reply: Reply<'_>) -> Result<(), BenchError> {
            let mut value = vec![0; self.length];
            value[..8].copy_from_slice(&asked.key.to_be_bytes());
            match reply == Reply::Bytes(Some(&value)) {
                true => Ok(()),
                false => Err(BenchError::Wrong("a value")),
            }
        }
    }

    /// Answers each request with its key and zeros, a few bytes at a time where told so.
    fn answering(clients: usize, length: usize, slowly: bool) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for _ in 0..clients {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_nodelay(true).unwrap();
                std::thread::spawn(move || {
                    let mut request = [0; 25];
                    while stream.read_exact(&mut request).is_ok() {
                        let mut reply = format!("${length}\r\n").into_bytes();
                        reply.extend_from_slice(&request[15..23]);
                        reply.resize(reply.len() + length - 8, 0);
                        reply.extend_from_slice(b"\r\n");
                        let step = if slowly { 7 } else { reply.len() };
                        for part in reply.chunks(step) {
                            let _ = stream.write_all(part);
                        }
                    }
                });
            }
        });
        address
    }

    #[test]
    fn everything_that_is_asked_is_answered_once() {
        for (clients, depth, slowly) in [(1, 1, true), (3, 4, true), (8, 16, false)] {
            let length = if slowly { 20 } else { 100_000 };
            let address = answering(clients, length, slowly);
            let mut asking = Counting { next: 0, end: 300, length };
            let driven = drive(address, (clients, depth), &mut asking, &Stop::default()).unwrap();
            assert_eq!((driven.reads.calls(), driven.updates.calls()), (150, 150));
            assert!(driven.wall > Duration::ZERO && driven.answered() == 300);
        }
    }

    #[test]
    fn a_wrong_answer_and_a_closed_connection_end_it() {
        let address = answering(1, 16, false);
        let mut asking = Counting { next: 0, end: 10, length: 17 };
        let wrong = drive(address, (1, 2), &mut asking, &Stop::default());
        assert!(matches!(wrong, Err(BenchError::Wrong("a value"))), "{wrong:?}");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || drop(listener.accept()));
        let mut asking = Counting { next: 0, end: 10, length: 17 };
        let closed = drive(address, (1, 2), &mut asking, &Stop::default());
        assert!(matches!(closed, Err(BenchError::Wrong(_) | BenchError::Io { .. })), "{closed:?}");
    }

    #[test]
    fn it_ends_when_it_is_stopped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Stop::default();
        stop.stop();
        let mut asking = Counting { next: 0, end: 10, length: 17 };
        let stopped = drive(address, (1, 2), &mut asking, &stop);
        assert!(matches!(stopped, Err(BenchError::Interrupted)), "{stopped:?}");
    }
}
