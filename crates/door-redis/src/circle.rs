//! The loop: one thread, all connections.
//!
//! ```text
//! wait for sockets -> serve each that has something (read once, execute) -> delete what has ended
//!      ^                                                                        |
//!      '---- send to each with one call <- tell watchers <- commit with one write
//! ```
//! Of a large turn parts are written before its end, while the rest is executed where there is a processor for it, and those
//! whose answers are decided are sent them then, so that they have something to do too.
//!
//! Where callers come back at once the loop waits for them awake, for a moment: then they need not wake it.
//!
//! A connection that has more than one turn's share to do stands in the list for the next turn, so
//! none is kept from its turn by a neighbour's pipeline. One that does not read its answers is not
//! read from, and is cut off when it took nothing for long.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use bytes::Bytes;
use env::Clock;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use crate::ahead::Sets;
use crate::connection::{Connection, State};
use crate::counters::Metrics;
use crate::door::Door;
use crate::options::Limits;
use crate::parse::ProtocolError;
use crate::session::{Client, Session};

const LISTENER: Token = Token(0);
/// What wakes the loop from outside.
pub(crate) const WAKER: Token = Token(1);
const FIRST: usize = 2;

/// Events of one wait.
const EVENTS: usize = 1_024;
/// Bytes of one read.
const READ_BYTES: usize = 128 << 10;
/// Connections that are read together, unless there is much to read: what their SETs make is hashed side by side.
const GROUP: usize = 16;
/// Bytes after which no other is read beside: they are to be in the processor's cache when they are executed.
const GROUP_BYTES: usize = 32 << 10;
/// Connections accepted in one turn.
const ACCEPTS_MAX: usize = 256;
/// How often keys that have ended are deleted, and connections that do not read are looked for.
const TICK: Duration = Duration::from_millis(100);
/// What follows what was answered within this time is waited for awake: a thread that sleeps is woken by its callers, and that takes
/// them longer than a request does.
const AWAKE: Duration = Duration::from_micros(50);
/// How often it looks in that time at most.
const LOOKS_MAX: usize = 200;
/// Bytes of answers that wait for who has not given the password: those are errors.
const STRANGER_OUTPUT_BYTES: usize = 64 << 10;
/// The part of `input_bytes` that those who have not given the password may hold together.
const STRANGERS_PART: usize = 8;
/// A watcher that is told so many bytes is sent them at once where the answers of all are many.
const TOLD_BYTES: usize = 64 << 10;
/// After a connection that could not be accepted no other is tried for so long, in ms.
const ACCEPT_PAUSE_MS: u64 = 1_000;
/// At its end the door waits so long for answers to be read.
const DRAIN_MS: u64 = 5_000;

/// The loop and all it serves.
pub(crate) struct Circle {
    pub door: Door,
    pub poll: Poll,
    pub listener: Option<TcpListener>,
    pub clock: Arc<dyn Clock>,
    pub stop: Arc<AtomicBool>,
    pub metrics: Arc<Metrics>,
    /// Those that wait until writes have ended.
    endings: Receiver<SyncSender<()>>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    by_id: HashMap<u64, usize>,
    /// Those that have not given the password, by their numbers: the first has had the longest time to.
    strangers: BTreeSet<u64>,
    /// Connections with something to do in this turn.
    ready: Vec<usize>,
    /// Connections with something to send.
    sending: Vec<usize>,
    /// The memory of both lists of the turn before.
    was_ready: Vec<usize>,
    was_sending: Vec<usize>,
    /// What connections read into that are served one after the other.
    shared: [Vec<u8>; GROUP],
    /// What is read from a connection that is closed and heard by nobody: others' requests may wait in the buffers above.
    deaf: Vec<u8>,
    next_id: u64,
    /// Bytes that all connections hold: of requests, of answers.
    input_bytes: usize,
    output_bytes: usize,
    /// Of the requests' bytes those that strangers hold.
    strangers_bytes: usize,
    accepting: bool,
    /// When the next may be accepted, after one that could not.
    accepts_from: u64,
    swept: u64,
    /// Whether the last wait was short, so that the next may be.
    brisk: bool,
    /// Whether there is a processor to be awake on beside the callers'.
    may_wait_awake: bool,
}

/// The events there are, after `wait` at most. A signal ends the wait.
fn polled(poll: &mut Poll, events: &mut Events, wait: Duration) -> io::Result<()> {
    match poll.poll(events, Some(wait)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        done => done,
    }
}

/// Whether those whose answers wait get no more before they have read them: half of the room is for the others, of whom none is
/// then refused an answer for what one asked many times and did not read.
fn is_crowded(output_bytes: usize, limits: &Limits) -> bool {
    output_bytes > limits.outputs_bytes / 2
}

/// Bytes of answers that may wait for a connection before it is not read from.
fn output_max(connection: &Connection, limits: &Limits) -> usize {
    match connection.session.authenticated {
        true => limits.output_bytes,
        false => limits.output_bytes.min(STRANGER_OUTPUT_BYTES),
    }
}

impl Circle {
    pub(crate) fn new(
        door: Door,
        poll: Poll,
        listener: TcpListener,
        clock: Arc<dyn Clock>,
        endings: Receiver<SyncSender<()>>,
    ) -> Self {
        Self {
            door,
            poll,
            listener: Some(listener),
            clock,
            stop: Arc::default(),
            metrics: Arc::default(),
            endings,
            connections: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            strangers: BTreeSet::new(),
            ready: Vec::new(),
            sending: Vec::new(),
            was_ready: Vec::new(),
            was_sending: Vec::new(),
            shared: std::array::from_fn(|_| Vec::with_capacity(READ_BYTES)),
            deaf: Vec::with_capacity(READ_BYTES),
            next_id: 1,
            input_bytes: 0,
            output_bytes: 0,
            strangers_bytes: 0,
            accepting: false,
            accepts_from: 0,
            swept: 0,
            brisk: false,
            may_wait_awake: std::thread::available_parallelism().is_ok_and(|all| all.get() > 1),
        }
    }

    /// Registers the listener. Call once, before [`Circle::run`].
    ///
    /// # Errors
    /// Of the system.
    pub(crate) fn listen(&mut self) -> io::Result<()> {
        match &mut self.listener {
            Some(listener) => self.poll.registry().register(listener, LISTENER, Interest::READABLE),
            None => Ok(()),
        }
    }

    /// Serves until it is told to stop; then what came is answered and the connections end.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut busy = true;
        let mut stopping: Option<u64> = None;
        loop {
            if let Err(error) = self.wait(&mut events, busy) {
                tracing::error!(%error, "the door's event queue failed; the door is closed");
                break;
            }
            self.door.now = self.clock.unix_ms();
            let now = self.elapsed();
            self.end_writes();
            self.sort(&events);
            self.serve(now);
            let more = self.door.upkeep();
            // Writes that come while the thread sleeps share a commit.
            self.brisk &= !self.door.has_writes();
            self.door.commit();
            self.tell(now);
            let unsent = self.send(now);
            self.tick(now);
            busy = self.accept(now) | more | unsent | !self.ready.is_empty();
            self.publish();
            if stopping.is_none() && self.stop.load(Ordering::Acquire) {
                self.listener = None;
                stopping = Some(now + DRAIN_MS);
                // What had come before is read in one more turn.
                busy = true;
                self.list_all();
            } else if stopping.is_some_and(|end| self.is_drained() || now >= end) {
                break;
            }
        }
        for index in 0..self.connections.len() {
            self.close(index);
        }
        self.door.commit();
        self.publish();
    }

    /// Waits for sockets, for a moment awake where callers are brisk; not at all where the door is busy.
    fn wait(&mut self, events: &mut Events, busy: bool) -> io::Result<()> {
        if busy {
            return polled(&mut self.poll, events, Duration::ZERO);
        }
        let begin = self.clock.elapsed();
        let waited = |circle: &Self| circle.clock.elapsed().saturating_sub(begin);
        for _ in 0..LOOKS_MAX {
            if !self.brisk || !self.may_wait_awake {
                break;
            }
            polled(&mut self.poll, events, Duration::ZERO)?;
            if !events.is_empty() {
                return Ok(());
            }
            self.brisk = waited(self) < AWAKE;
        }
        let patience = self.patience();
        polled(&mut self.poll, events, patience)?;
        self.brisk = waited(self) < AWAKE;
        Ok(())
    }

    /// Ends writes where that is asked for: all that was answered was committed in the turns before.
    fn end_writes(&mut self) {
        while let Ok(ended) = self.endings.try_recv() {
            self.door.end_writes();
            // Who asked may have gone.
            let _ = ended.send(());
        }
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// How long to wait for sockets: at rest long, and not beyond the next key's end.
    fn patience(&self) -> Duration {
        let rest = if self.sending.is_empty() { TICK * 10 } else { TICK };
        match self.door.slots.next_end() {
            Some(end) => Duration::from_millis(end.saturating_sub(self.door.now)).clamp(TICK, rest),
            None => rest,
        }
    }

    fn sort(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                LISTENER => self.accepting = true,
                WAKER => {}
                Token(token) => {
                    let index = token - FIRST;
                    let Some(Some(connection)) = self.connections.get_mut(index) else { continue };
                    if event.is_readable() || event.is_read_closed() || event.is_error() {
                        connection.readable = true;
                        connection.ended |= event.is_read_closed() || event.is_error();
                    }
                    if event.is_writable() && !connection.writable {
                        connection.writable = true;
                        self.sending.push(index);
                    }
                    if !connection.listed {
                        connection.listed = true;
                        self.ready.push(index);
                    }
                }
            }
        }
    }

    fn list_all(&mut self) {
        for (index, connection) in self.connections.iter_mut().enumerate() {
            if let Some(connection) = connection.as_mut().filter(|connection| !connection.listed) {
                connection.listed = true;
                connection.readable = true;
                self.ready.push(index);
            }
        }
    }

    fn serve(&mut self, now: u64) {
        self.door.counters.turns += 1;
        self.door.take_over();
        let mut listed = std::mem::replace(&mut self.ready, std::mem::take(&mut self.was_ready));
        let mut ready = listed.drain(..);
        let mut landings = self.door.landings;
        loop {
            let mut group = [0; GROUP];
            let count = self.read_some(&mut ready, &mut group, now);
            if count == 0 {
                break;
            }
            for (at, index) in group[..count].iter().enumerate() {
                if landings != self.door.landings {
                    landings = self.door.landings;
                    self.send_decided(now);
                }
                self.serve_one(*index, at);
            }
        }
        drop(ready);
        self.was_ready = listed;
    }

    /// Reads from the next connections, each into a buffer, and has made ahead what they will write; how many they are.
    fn read_some(
        &mut self,
        ready: &mut impl Iterator<Item = usize>,
        group: &mut [usize; GROUP],
        now: u64,
    ) -> usize {
        let limits = self.door.options.limits;
        let (mut count, mut bytes) = (0, 0);
        while count < GROUP
            && bytes < GROUP_BYTES
            && let Some(index) = ready.next()
        {
            let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            let crowded = is_crowded(self.output_bytes, &limits);
            let waiting = connection.output.waiting();
            connection.paused =
                waiting > output_max(connection, &limits) || (crowded && waiting > 0);
            if connection.paused {
                connection.listed = false;
                continue;
            }
            if waiting == 0 {
                connection.moved = now;
            }
            bytes += connection.fill(&mut self.shared[count]);
            group[count] = index;
            count += 1;
        }
        let mut sets = Sets::default();
        for (index, shared) in group[..count].iter().zip(&self.shared) {
            if let Some(connection) = self.connections.get_mut(*index).and_then(Option::as_mut) {
                connection.look(&self.door, shared, &mut sets);
            }
        }
        self.door.make_ahead(&sets);
        count
    }

    /// Executes what a connection of the group has.
    fn serve_one(&mut self, index: usize, at: usize) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        // Not before: it would be listed again by what is sent meanwhile, and read into a second buffer.
        connection.listed = false;
        let (input, output) = (connection.held(), connection.output.held());
        self.door.outputs_bytes = self.output_bytes - output;
        let strangers = self.strangers_bytes - connection.held_as_stranger();
        let state = connection.serve(&mut self.door, &mut self.shared[at]);
        let input_max = self.door.options.limits.input_bytes;
        let is_over = self.input_bytes - input + connection.held() > input_max
            || strangers + connection.held_as_stranger() > input_max / STRANGERS_PART;
        if is_over && connection.held() > input {
            // At once, or others in this turn would be cut off for what it held.
            connection.fail(&mut self.door, ProtocolError::Crowded);
            connection.forget();
        }
        self.input_bytes = self.input_bytes - input + connection.held();
        self.output_bytes = self.output_bytes - output + connection.output.held();
        self.strangers_bytes = strangers + connection.held_as_stranger();
        match connection.session.authenticated {
            true => self.strangers.remove(&connection.session.id),
            false => self.strangers.insert(connection.session.id),
        };
        match state {
            State::Ready => {
                connection.listed = true;
                self.ready.push(index);
                self.sending.push(index);
            }
            State::Idle => self.sending.push(index),
            State::Over => {
                // Its answers are not wanted any more, unless only its sending side is closed.
                connection.session.closing = true;
                self.sending.push(index);
            }
        }
    }

    /// Tells watchers of what is in the log now: a connection once of each, however many of its prefixes it begins with. One
    /// command may be tens of thousands of events, so what is told is sent as soon as it is much, and who is cut off is told no
    /// more.
    fn tell(&mut self, now: u64) {
        let told = std::mem::take(&mut self.door.told);
        if told.is_empty() {
            return;
        }
        let watchers = std::mem::take(&mut self.door.watchers);
        let mut over = BTreeSet::new();
        let mut telling = BTreeSet::new();
        let limits = self.door.options.limits;
        for event in &told {
            telling.clear();
            for watcher in &watchers {
                if !event.key.starts_with(&watcher.prefix) {
                    continue;
                }
                let Some(index) = self.by_id.get(&watcher.client).copied() else { continue };
                if over.contains(&index) || !telling.insert(index) {
                    continue;
                }
                let Some(Some(connection)) = self.connections.get_mut(index) else { continue };
                let held = connection.output.held();
                // What was answered in this turn comes first.
                connection.settle(&self.door.failures);
                let out = &mut connection.output;
                out.push(4);
                out.bulk(b"hold.version");
                out.bulk(&event.key);
                out.bulk(event.id.to_string().as_bytes());
                match &event.member {
                    Some(member) => out.bulk(member),
                    None => out.null(),
                }
                let many = self.output_bytes > limits.outputs_bytes / 2
                    && out.waiting() > TOLD_BYTES
                    || out.waiting() > limits.output_bytes;
                let goes_on = !many || connection.send(&mut self.door, now);
                let waiting = connection.output.waiting();
                self.output_bytes = self.output_bytes - held + connection.output.held();
                // Whose socket takes nothing has not read what it was sent before.
                let crowded = self.output_bytes > limits.outputs_bytes
                    && waiting > TOLD_BYTES
                    && !connection.writable;
                if !goes_on || waiting > limits.output_bytes || crowded {
                    over.insert(index);
                }
            }
            self.sending.extend(&telling);
            if self.sending.len() > 2 * self.connections.len() {
                self.sending.sort_unstable();
                self.sending.dedup();
            }
        }
        self.door.watchers = watchers;
        for index in over {
            self.cut_off(index);
        }
    }

    /// Sends to the first of those with something to send, as long as their answers are decided.
    fn send_decided(&mut self, now: u64) {
        let is_decided = |index: &&usize| {
            let connection = self.connections.get(**index).and_then(Option::as_ref);
            connection.is_none_or(|connection| connection.is_decided(&self.door))
        };
        let decided = self.sending.iter().take_while(is_decided).count();
        let later = self.sending.split_off(decided);
        self.send_all(now);
        self.sending.extend(later);
    }

    /// Whether there is more that the other sides take now.
    fn send(&mut self, now: u64) -> bool {
        let more = self.send_all(now);
        // Each once: what waits is looked at in every turn.
        self.sending.sort_unstable();
        self.sending.dedup();
        self.door.failures.clear();
        more
    }

    /// Sends to each, some at a time; whether there is more that one of them takes.
    fn send_all(&mut self, now: u64) -> bool {
        let mut more = false;
        let next = std::mem::take(&mut self.was_sending);
        let mut sending = std::mem::replace(&mut self.sending, next);
        let limits = self.door.options.limits;
        for index in sending.drain(..) {
            let Some(Some(connection)) = self.connections.get_mut(index) else { continue };
            let held = connection.output.held();
            connection.settle(&self.door.failures);
            let goes_on = connection.send(&mut self.door, now);
            let left = connection.output.waiting();
            self.output_bytes = self.output_bytes - held + connection.output.held();
            if !goes_on {
                self.close(index);
                continue;
            }
            if left > 0 {
                // The system tells once that a socket takes bytes again, and nothing where it never took none.
                more |= connection.writable;
                self.sending.push(index);
            }
            let crowded = left > 0 && is_crowded(self.output_bytes, &limits);
            if connection.paused && left <= output_max(connection, &limits) && !crowded {
                connection.paused = false;
                if !connection.listed {
                    connection.listed = true;
                    self.ready.push(index);
                }
            }
        }
        // Telling watchers may have listed one twice.
        sending.shrink_to(2 * self.connections.len());
        self.was_sending = sending;
        more
    }

    /// Cuts off who takes nothing.
    fn tick(&mut self, now: u64) {
        if now < self.swept + TICK.as_millis() as u64 {
            return;
        }
        self.swept = now;
        let stall = u64::try_from(self.door.options.limits.stall.as_millis()).unwrap_or(u64::MAX);
        for index in self.sending.clone() {
            let Some(Some(connection)) = self.connections.get(index) else { continue };
            if connection.output.waiting() > 0 && now.saturating_sub(connection.moved) >= stall {
                self.cut_off(index);
            }
        }
    }

    fn cut_off(&mut self, index: usize) {
        let Some(Some(connection)) = self.connections.get(index) else { return };
        let client = self.door.clients.get(&connection.session.id);
        let address = client.map(|client| client.address);
        tracing::debug!(?address, "a connection that does not read is cut off");
        self.door.counters.cut_off += 1;
        self.close(index);
    }

    /// Takes new connections; whether more wait.
    fn accept(&mut self, now: u64) -> bool {
        if now < self.accepts_from {
            return false;
        }
        for _ in 0..ACCEPTS_MAX {
            let listener = self.listener.as_ref().filter(|_| self.accepting);
            let Some(listener) = listener else { return false };
            match listener.accept() {
                Ok((socket, address)) => {
                    self.door.counters.accepted += 1;
                    if self.by_id.len() >= self.door.options.limits.clients && !self.make_room() {
                        self.door.counters.refused += 1;
                        let mut socket = socket;
                        let text = b"-ERR max number of clients reached\r\n";
                        let _ = io::Write::write(&mut socket, text);
                        continue;
                    }
                    if let Err(error) = self.take(socket, address, now) {
                        tracing::warn!(%error, %address, "a connection cannot be served");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.accepting = false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // No descriptors left, mostly. The system tells once that somebody waits, so it is tried again by the clock.
                    tracing::warn!(%error, "a connection cannot be accepted: again in a second");
                    self.accepts_from = now + ACCEPT_PAUSE_MS;
                    return false;
                }
            }
        }
        true
    }

    /// Closes the connection that has had the longest time to give the password and has not: whoever holds all places for
    /// nothing would keep out those who know it. Whether there was one.
    fn make_room(&mut self) -> bool {
        let first = self.strangers.first().and_then(|id| self.by_id.get(id).copied());
        if let Some(index) = first {
            self.door.counters.cut_off += 1;
            self.close(index);
        }
        first.is_some()
    }

    fn take(
        &mut self,
        mut socket: mio::net::TcpStream,
        address: std::net::SocketAddr,
        now: u64,
    ) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let index = self.free.pop().unwrap_or(self.connections.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) =
            self.poll.registry().register(&mut socket, Token(index + FIRST), interest)
        {
            self.free.push(index);
            return Err(error);
        }
        let id = self.next_id;
        self.next_id += 1;
        let session = Session::new(id, self.door.password.is_none());
        if !session.authenticated {
            self.strangers.insert(id);
        }
        let connection = Connection::new(socket, session, now);
        if index == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[index] = Some(connection);
        self.by_id.insert(id, index);
        let client = Client {
            address,
            name: Bytes::new(),
            library: Bytes::new(),
            library_version: Bytes::new(),
            protocol: 2,
            since: self.door.now,
        };
        self.door.clients.insert(id, client);
        Ok(())
    }

    fn close(&mut self, index: usize) {
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        if connection.listed {
            // Whoever comes in its place would be listed twice, and what the first read of it gave be lost.
            self.ready.retain(|each| *each != index);
        }
        connection.drain(&mut self.deaf);
        let _ = self.poll.registry().deregister(&mut connection.socket);
        self.input_bytes = self.input_bytes.saturating_sub(connection.held());
        self.output_bytes = self.output_bytes.saturating_sub(connection.output.held());
        self.strangers_bytes = self.strangers_bytes.saturating_sub(connection.held_as_stranger());
        let id = connection.session.id;
        self.strangers.remove(&id);
        self.by_id.remove(&id);
        self.door.clients.remove(&id);
        if connection.session.watching > 0 {
            self.door.watchers.retain(|watcher| watcher.client != id);
        }
        self.free.push(index);
    }

    /// Whether all answers were sent.
    fn is_drained(&self) -> bool {
        self.ready.is_empty() && self.sending.is_empty()
    }

    fn publish(&mut self) {
        self.door.evict();
        let counters = &mut self.door.counters;
        counters.clients = self.by_id.len() as u64;
        counters.keys = self.door.slots.live() as u64;
        counters.cached_bytes = self.door.slots.cached() as u64;
        self.metrics.publish(counters);
    }
}
