//! One connection: its socket, what came and is not whole, and what is to be sent.
//!
//! Bytes are read into a buffer that all connections share, and requests are executed from there.
//! Only what is not a whole request is kept by the connection, so that ten thousand that are silent
//! hold next to nothing. A large argument is read straight into its own buffer.

use std::io;
use std::ops::Range;
use std::time::Duration;

use mio::net::TcpStream;
use rustix::buffer::spare_capacity;

use crate::ahead::Sets;
use crate::batch::Failure;
use crate::door::Door;
use crate::parse::{Bounds, Parsed, Parser, ProtocolError};
use crate::reply::{Output, Place};
use crate::session::Session;

/// Answers of one connection in one turn, in bytes: then the others have their turn.
const TURN_BYTES: usize = 4 << 20;
/// Requests of one connection in one turn.
const TURN_REQUESTS: usize = 4_096;
/// How long one connection's requests may take in one turn; a request that is begun is done. What a field of a long hash or KEYS
/// costs depends on what there is, so their number says little.
const TURN_TIME: Duration = Duration::from_millis(20);
/// What is kept up to this length is copied to what is read next.
const KEPT_BYTES: usize = 32 << 10;
/// Answers of one turn for which there is room in the next too.
const MARKS_KEPT: usize = 1_024;
/// Writes of one connection in one turn: one, unless the first took only a part.
const WRITES_MAX: usize = 16;
/// What a connection that is cut off may still send and is not heard.
const DEAF_READS: usize = 16;

/// Where an answer begins, and whether it depends on a batch.
#[derive(Clone, Copy, Debug)]
struct Mark {
    place: Place,
    batch: Option<u32>,
}

/// What a connection is after it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It waits for more.
    Idle,
    /// It has more to do in the next turn.
    Ready,
    /// The other side has closed, or is to be cut off.
    Over,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub socket: TcpStream,
    pub session: Session,
    pub output: Output,
    /// Whether it waits in the list of those that have something to do.
    pub listed: bool,
    /// Whether the socket takes bytes, as far as is known.
    pub writable: bool,
    /// Whether there may be more to read.
    pub readable: bool,
    /// Whether the other side sends no more, as the system told it, once: then it is read on until that is what a read
    /// finds, however little came before it.
    pub ended: bool,
    /// Whether it is not served until it has read its answers.
    pub paused: bool,
    /// When it last took bytes, or had none to take; ms of the loop's clock.
    pub moved: u64,
    input: Vec<u8>,
    /// Whether `input` may have whole requests.
    whole: bool,
    parser: Parser,
    marks: Vec<Mark>,
    /// What [`Connection::fill`] read and nobody executed yet.
    filled: Option<Filled>,
}

/// One read into a shared buffer.
#[derive(Debug)]
struct Filled {
    /// Bytes read and the room that there was.
    read: io::Result<Option<usize>>,
    room: usize,
    /// Up to where the buffer was looked at for SETs.
    ahead: usize,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, session: Session, now: u64) -> Self {
        Self {
            socket,
            session,
            output: Output::new(),
            listed: false,
            writable: true,
            readable: true,
            ended: false,
            paused: false,
            moved: now,
            input: Vec::new(),
            whole: false,
            parser: Parser::default(),
            marks: Vec::new(),
            filled: None,
        }
    }

    /// Bytes held for what is not a whole request, or waits for EXEC.
    pub(crate) fn held(&self) -> usize {
        self.input.capacity() + self.parser.held() + self.session.held()
    }

    /// The same, where the password was not given.
    pub(crate) fn held_as_stranger(&self) -> usize {
        if self.session.authenticated { 0 } else { self.held() }
    }

    /// Reads once, where what comes is executed from a shared buffer; how many bytes. Until [`Connection::serve`] is called
    /// with that buffer nobody else uses it.
    pub(crate) fn fill(&mut self, shared: &mut Vec<u8>) -> usize {
        shared.clear();
        let has_own = self.parser.has_large() || self.input.len() > KEPT_BYTES;
        if self.session.closing || self.whole || !self.readable || has_own {
            return 0;
        }
        self.read_into(shared);
        shared.len()
    }

    fn read_into(&mut self, shared: &mut Vec<u8>) {
        shared.clear();
        shared.extend_from_slice(&self.input);
        let room = shared.capacity() - shared.len();
        let read = received(&self.socket, shared);
        self.filled = Some(Filled { read, room, ahead: 0 });
    }

    /// Adds the SETs that the buffer begins with which [`Connection::fill`] read into.
    pub(crate) fn look<'a>(&mut self, door: &Door, shared: &'a [u8], sets: &mut Sets<'a>) {
        if let Some(filled) = self.filled.as_mut().filter(|_| self.session.authenticated) {
            filled.ahead = door.look(shared, sets);
        }
    }

    /// Executes what is here, then reads once and executes that.
    pub(crate) fn serve(&mut self, door: &mut Door, shared: &mut Vec<u8>) -> State {
        if self.session.closing {
            return State::Idle;
        }
        if self.whole {
            self.execute_kept(door);
            if self.whole {
                return State::Ready;
            }
        }
        if !self.readable || self.session.closing {
            return State::Idle;
        }
        match self.read(door, shared) {
            Ok(()) if self.whole || self.readable => State::Ready,
            Ok(()) => State::Idle,
            Err(_) => State::Over,
        }
    }

    /// Reads once and executes what that made whole.
    fn read(&mut self, door: &mut Door, shared: &mut Vec<u8>) -> io::Result<()> {
        let (read, room) = if let Some(large) = self.parser.large() {
            let room = large.capacity() - large.len();
            let read = received(&self.socket, large)?;
            let beyond = self.parser.beyond();
            self.input.extend_from_slice(&beyond);
            if self.parser.large().is_none() {
                self.execute_kept(door);
            }
            (read, room)
        } else if self.filled.is_none() && self.input.len() > KEPT_BYTES {
            // Much is kept: it is not moved for each read.
            self.input.reserve(self.input.len().max(KEPT_BYTES));
            let room = self.input.capacity() - self.input.len();
            let read = received(&self.socket, &mut self.input)?;
            self.execute_kept(door);
            (read, room)
        } else {
            if self.filled.is_none() {
                self.read_into(shared);
            }
            let Some(Filled { read, room, ahead }) = self.filled.take() else { return Ok(()) };
            let read = read?;
            if read.is_some() {
                self.input = Vec::new();
                let rest = self.execute(door, shared, ahead);
                self.input.extend_from_slice(&shared[rest]);
            }
            (read, room)
        };
        door.counters.received_bytes += read.unwrap_or(0) as u64;
        self.readable = read == Some(room) || self.ended;
        Ok(())
    }

    /// Executes what is kept.
    fn execute_kept(&mut self, door: &mut Door) {
        let mut input = std::mem::take(&mut self.input);
        let rest = self.execute(door, &input, 0);
        input.truncate(rest.end);
        input.drain(..rest.start);
        if input.len() <= KEPT_BYTES && input.capacity() > KEPT_BYTES {
            input.shrink_to_fit();
        }
        self.input = input;
    }

    /// Executes the whole requests of `data`, of which some were looked at for SETs; gives what is to be kept of it.
    fn execute(&mut self, door: &mut Door, data: &[u8], mut ahead: usize) -> Range<usize> {
        let limits = &door.options.limits;
        let mut bounds = Bounds {
            arguments: limits.arguments,
            argument_bytes: limits.argument_bytes,
            command_bytes: limits.command_bytes,
            stranger: !self.session.authenticated,
        };
        let (mut at, mut requests) = (0, 0);
        let before = self.output.waiting();
        let began = coarse_time();
        self.whole = false;
        while !self.session.closing {
            let is_over = || coarse_time().saturating_sub(began) >= TURN_TIME;
            if requests >= TURN_REQUESTS
                || self.output.waiting() > before + TURN_BYTES
                || requests > 0 && is_over()
            {
                self.whole = at < data.len();
                break;
            }
            if at >= ahead && self.session.authenticated {
                ahead = at + door.look_ahead(&data[at..]);
            }
            match self.parser.parse(&data[at..], &bounds) {
                Ok(Parsed::Request { end }) => {
                    self.one(door, &data[at..]);
                    self.parser.next();
                    bounds.stranger = !self.session.authenticated;
                    at += end;
                    requests += 1;
                }
                Ok(Parsed::More) => break,
                Ok(Parsed::Large { keep }) => return at..at + keep,
                Err(error) => self.fail(door, error),
            }
        }
        if self.session.closing { 0..0 } else { at..data.len() }
    }

    fn one(&mut self, door: &mut Door, data: &[u8]) {
        let args = self.parser.arguments(data);
        if args.len() == 0 {
            return;
        }
        let place = self.output.place();
        let batch = door.execute(&mut self.session, args, &mut self.output);
        self.marks.push(Mark { place, batch });
        door.commit_large();
    }

    /// Answers what is wrong with the stream; the connection ends after it.
    pub(crate) fn fail(&mut self, door: &mut Door, error: ProtocolError) {
        door.counters.cut_off += 1;
        let address = door.clients.get(&self.session.id).map(|client| client.address);
        // Anybody can make as many as it likes, without the password too: operators have the counter.
        tracing::debug!(?address, error = error.text(), "a connection is cut off");
        self.output.error(&format!("ERR {}", error.text()));
        self.session.closing = true;
    }

    /// Frees what is held of requests that will not be executed.
    pub(crate) fn forget(&mut self) {
        self.input = Vec::new();
        self.whole = false;
        self.parser = Parser::default();
        self.session.transaction = None;
        self.session.watched.clear();
    }

    /// Whether all is decided that its answers depend on.
    pub(crate) fn is_decided(&self, door: &Door) -> bool {
        let open = |mark: &Mark| mark.batch.is_some_and(|batch| door.is_open(batch));
        !self.marks.iter().rev().any(open)
    }

    /// Replaces the answers that depend on batches that were not kept, and forgets where answers
    /// are: all of those batches are written or lost.
    pub(crate) fn settle(&mut self, failures: &[Failure]) {
        let failure = |mark: &Mark| {
            mark.batch.and_then(|batch| failures.iter().find(|failure| failure.number == batch))
        };
        let first = self.marks.iter().position(|mark| failure(mark).is_some());
        if let Some(first) = first {
            let marks = &self.marks[first..];
            let ends: Vec<usize> = marks
                .iter()
                .skip(1)
                .map(|mark| mark.place)
                .chain([self.output.place()])
                .map(|place| self.output.distance(marks[0].place, place))
                .collect();
            let answers = self.output.take_back(marks[0].place);
            let mut begin = 0;
            for (mark, end) in marks.iter().zip(ends) {
                match failure(mark) {
                    Some(failure) => self.output.error(&failure.text),
                    None => self.output.put_back(&answers[begin..end]),
                }
                begin = end;
            }
        }
        self.marks.clear();
        if self.marks.capacity() > MARKS_KEPT {
            self.marks = Vec::new();
        }
    }

    /// Sends, mostly with one call; whether the connection goes on.
    pub(crate) fn send(&mut self, door: &mut Door, now: u64) -> bool {
        for _ in 0..WRITES_MAX {
            if self.output.waiting() == 0 {
                self.moved = now;
                return !self.session.closing;
            }
            if !self.writable {
                break;
            }
            match self.output.send(&mut self.socket) {
                Ok(sent) => {
                    door.counters.sent_bytes += sent as u64;
                    self.moved = now;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Before a socket is closed what came is read and dropped: else the system would tell the
    /// other side of bytes that nobody read, and it might lose the last answer.
    pub(crate) fn drain(&mut self, deaf: &mut Vec<u8>) {
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        for _ in 0..DEAF_READS {
            deaf.clear();
            match rustix::io::read(&self.socket, spare_capacity(deaf)) {
                Ok(read) if read > 0 => {}
                _ => break,
            }
        }
    }
}

/// Time that is some milliseconds off and costs some nanoseconds to ask for.
fn coarse_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Reads once into the room that there is; bytes read, none where there are none now. The end of the stream is an error.
fn received(socket: &TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<usize>> {
    loop {
        match rustix::io::read(socket, spare_capacity(buffer)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => return Ok(Some(read)),
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
