//! Answers on their way out: RESP2 or RESP3, with marks so that they can be taken back.
//!
//! Small answers are gathered in one buffer, large values are sent from where they are. Nothing is
//! sent before the turn's writes are in the log, so the answers of a command that failed, or of a
//! whole batch whose commit failed, can still be replaced.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use bytes::Bytes;

use crate::fail::Fail;
use crate::number;

/// A value from this length on is sent from where it is.
const SHARED_BYTES: usize = 16 << 10;
/// What a connection keeps of its buffer between turns.
const KEPT_BYTES: usize = 64 << 10;
/// Parts of one vectored write.
const SLICES_MAX: usize = 64;

/// A place between two answers of this turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    queue: usize,
    own: usize,
}

/// What one connection is to be sent.
#[derive(Debug)]
pub(crate) struct Output {
    /// Whole parts, before `own`.
    queue: VecDeque<Bytes>,
    queued: usize,
    own: Vec<u8>,
    /// Of the first part, what was sent.
    sent: usize,
    /// 2 or 3.
    protocol: u8,
    /// Bytes that one answer may have, and what waited before it.
    answer_bytes: usize,
    before: usize,
    /// Whether it may have no more since others' answers wait.
    crowded: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            queued: 0,
            own: Vec::new(),
            sent: 0,
            protocol: 2,
            answer_bytes: usize::MAX,
            before: 0,
            crowded: false,
        }
    }

    /// A command's answer begins, which may have so many bytes, and no more than there is room for.
    pub(crate) fn begin_answer(&mut self, bytes: usize, room: usize) {
        (self.answer_bytes, self.before) = (bytes.min(room), self.waiting());
        self.crowded = room < bytes;
    }

    /// Whether others' answers leave less room than one answer may have.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Whether the answer is still one that is sent. Asked between the parts of those that have many.
    ///
    /// # Errors
    /// Where it is too long.
    pub(crate) fn fits(&self) -> Result<(), Fail> {
        if self.waiting() - self.before <= self.answer_bytes {
            return Ok(());
        }
        if self.crowded {
            return Err(Fail::Say(
                "ERR there is no room for the answer while answers wait that others do not read: \
                 try again, or ask for less at once",
            ));
        }
        Err(Fail::Long(format!(
            "ERR the answer is longer than {} MiB: ask for less at once",
            self.answer_bytes >> 20
        )))
    }

    pub(crate) fn protocol(&self) -> u8 {
        self.protocol
    }

    pub(crate) fn speak(&mut self, protocol: u8) {
        self.protocol = protocol;
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queued + self.own.len() - self.sent
    }

    /// Bytes of memory for them.
    pub(crate) fn held(&self) -> usize {
        self.queued + self.own.capacity()
    }

    /// The place behind all answers so far.
    pub(crate) fn place(&self) -> Place {
        Place { queue: self.queue.len(), own: self.own.len() }
    }

    /// Takes back all that was answered since `place`, and gives it.
    pub(crate) fn take_back(&mut self, place: Place) -> Vec<u8> {
        if self.queue.len() == place.queue {
            return self.own.split_off(place.own.min(self.own.len()));
        }
        let parts: Vec<Bytes> = self.queue.drain(place.queue..).collect();
        self.queued -= parts.iter().map(Bytes::len).sum::<usize>();
        let mut taken = parts.concat();
        taken.append(&mut self.own);
        let back = taken.split_off(place.own);
        self.own = taken;
        back
    }

    /// Takes back all that was answered since `place`, which nobody wants.
    pub(crate) fn cut(&mut self, place: Place) {
        if let Some(first) = self.queue.get(place.queue) {
            // It was the end then, and has grown since.
            self.own = first.get(..place.own).unwrap_or_default().to_vec();
            self.queued -= self.queue.drain(place.queue..).map(|part| part.len()).sum::<usize>();
        }
        self.own.truncate(place.own);
    }

    /// Bytes between two places, `from` the earlier.
    pub(crate) fn distance(&self, from: Place, to: Place) -> usize {
        let parts = self.queue.iter().skip(from.queue).take(to.queue - from.queue);
        parts.map(Bytes::len).sum::<usize>() + to.own - from.own
    }

    /// Puts back answers that were taken.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.own.extend_from_slice(bytes);
    }

    pub(crate) fn ok(&mut self) {
        self.own.extend_from_slice(b"+OK\r\n");
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error; its line ends are made spaces.
    pub(crate) fn error(&mut self, text: &str) {
        self.own.push(b'-');
        let clean = |byte: u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
        self.own.extend(text.bytes().map(clean));
        self.own.extend_from_slice(b"\r\n");
    }

    pub(crate) fn integer(&mut self, value: i64) {
        match value {
            0 => self.own.extend_from_slice(b":0\r\n"),
            1 => self.own.extend_from_slice(b":1\r\n"),
            _ => self.header(b':', value),
        }
    }

    pub(crate) fn count(&mut self, value: usize) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.own.reserve(bytes.len() + 16);
        self.header(b'$', bytes.len() as i64);
        self.own.extend_from_slice(bytes);
        self.own.extend_from_slice(b"\r\n");
    }

    /// A bulk string that need not be copied.
    pub(crate) fn shared(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARED_BYTES {
            return self.bulk(bytes);
        }
        self.header(b'$', bytes.len() as i64);
        let own = std::mem::take(&mut self.own);
        self.queued += own.len() + bytes.len();
        self.queue.push_back(Bytes::from(own));
        self.queue.push_back(bytes.clone());
        self.own.extend_from_slice(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        self.own.extend_from_slice(if self.protocol == 3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    pub(crate) fn null_array(&mut self) {
        self.own.extend_from_slice(if self.protocol == 3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    pub(crate) fn array(&mut self, length: usize) {
        self.header(b'*', length as i64);
    }

    /// A map of `pairs`; in RESP2 an array of twice as many.
    pub(crate) fn map(&mut self, pairs: usize) {
        if self.protocol == 3 {
            self.header(b'%', pairs as i64);
        } else {
            self.array(pairs * 2);
        }
    }

    pub(crate) fn set(&mut self, length: usize) {
        self.header(if self.protocol == 3 { b'~' } else { b'*' }, length as i64);
    }

    /// Something nobody asked for just now; in RESP2 an array.
    pub(crate) fn push(&mut self, length: usize) {
        self.header(if self.protocol == 3 { b'>' } else { b'*' }, length as i64);
    }

    pub(crate) fn double(&mut self, value: f64) {
        let text = number::text(value);
        if self.protocol == 3 {
            self.line(b',', text.as_bytes());
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// Text for people.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if self.protocol == 3 {
            self.header(b'=', text.len() as i64 + 4);
            self.own.extend_from_slice(b"txt:");
            self.own.extend_from_slice(text.as_bytes());
            self.own.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text.as_bytes());
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.own.push(kind);
        self.own.extend_from_slice(text);
        self.own.extend_from_slice(b"\r\n");
    }

    fn header(&mut self, kind: u8, value: i64) {
        self.own.push(kind);
        number::push_integer(&mut self.own, value);
        self.own.extend_from_slice(b"\r\n");
    }

    /// Sends with one call what the other side takes now; gives the bytes sent.
    ///
    /// # Errors
    /// Of the write; `WouldBlock` where it takes nothing.
    pub(crate) fn send(&mut self, to: &mut impl Write) -> io::Result<usize> {
        let sent = if self.queue.is_empty() {
            to.write(&self.own[self.sent.min(self.own.len())..])?
        } else {
            let mut slices = Vec::with_capacity(SLICES_MAX);
            let mut skip = self.sent;
            let parts = self.queue.iter().map(|part| &part[..]).chain([&self.own[..]]);
            for part in parts.take(SLICES_MAX) {
                slices.push(IoSlice::new(&part[skip.min(part.len())..]));
                skip = 0;
            }
            to.write_vectored(&slices)?
        };
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.forget(sent);
        Ok(sent)
    }

    fn forget(&mut self, sent: usize) {
        self.sent += sent;
        while let Some(first) = self.queue.front().map(Bytes::len).filter(|n| *n <= self.sent) {
            self.sent -= first;
            self.queued -= first;
            self.queue.pop_front();
        }
        if self.queue.is_empty() && self.sent == self.own.len() {
            self.sent = 0;
            self.own.clear();
            if self.own.capacity() > KEPT_BYTES {
                self.own = Vec::new();
            }
        } else if self.queue.is_empty() && self.sent > KEPT_BYTES && self.sent > self.own.len() / 2
        {
            // More was sent than is moved. No place is remembered while something is sent.
            self.own.drain(..self.sent);
            self.sent = 0;
            self.own.shrink_to(2 * self.own.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes at most so many bytes a call.
    struct Narrow(Vec<u8>, usize);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn all(output: &mut Output, step: usize) -> Vec<u8> {
        let mut to = Narrow(Vec::new(), step);
        while output.waiting() > 0 {
            output.send(&mut to).expect("taken");
        }
        to.0
    }

    fn large() -> Bytes {
        Bytes::from(vec![b'v'; SHARED_BYTES])
    }

    #[test]
    fn what_is_sent_in_parts_is_whole() {
        for step in [1, 7, 1 << 20] {
            let mut output = Output::new();
            output.ok();
            output.shared(&large());
            output.integer(-12);
            output.shared(&large());
            let value = String::from_utf8(large().to_vec()).expect("text");
            let expected = format!("+OK\r\n$16384\r\n{value}\r\n:-12\r\n$16384\r\n{value}\r\n");
            assert_eq!(output.waiting(), expected.len());
            assert_eq!(all(&mut output, step), expected.as_bytes());
            assert_eq!(output.held(), output.own.capacity());
        }
    }

    /// Someone who reads, and never all.
    #[test]
    fn what_was_sent_is_not_kept_while_a_byte_waits() {
        let mut output = Output::new();
        let (mut to, mut said) = (Narrow(Vec::new(), 0), 0);
        for n in 0..10_000 {
            let place = output.place();
            output.bulk(format!("{n:01000}").as_bytes());
            said += output.distance(place, output.place());
            to.1 = output.waiting() - 1;
            output.send(&mut to).expect("taken");
            assert_eq!(output.waiting(), 1);
        }
        assert!(output.held() < 4 * KEPT_BYTES, "{}", output.held());
        to.0.append(&mut all(&mut output, 7));
        assert_eq!(to.0.len(), said);
        let last = format!("$1000\r\n{:01000}\r\n", 9_999);
        assert!(to.0.ends_with(last.as_bytes()));
    }

    #[test]
    fn answers_are_taken_back_to_a_place() {
        let mut output = Output::new();
        output.ok();
        let first = output.place();
        output.shared(&large());
        let second = output.place();
        output.integer(5);
        assert_eq!(output.distance(first, second), SHARED_BYTES + 10);
        let back = output.take_back(first);
        assert_eq!(back.len(), SHARED_BYTES + 10 + 4);
        output.put_back(b"+NO\r\n");
        assert_eq!(all(&mut output, 3), b"+OK\r\n+NO\r\n");
    }

    #[test]
    fn both_protocols_say_the_same() {
        let say = |protocol| {
            let mut output = Output::new();
            output.speak(protocol);
            output.map(1);
            output.double(1.5);
            output.null();
            output.set(0);
            output.push(0);
            output.verbatim("x");
            output.error("ERR a\r\nb");
            String::from_utf8(all(&mut output, 1 << 20)).expect("text")
        };
        assert_eq!(say(2), "*2\r\n$3\r\n1.5\r\n$-1\r\n*0\r\n*0\r\n$1\r\nx\r\n-ERR a  b\r\n");
        assert_eq!(say(3), "%1\r\n,1.5\r\n_\r\n~0\r\n>0\r\n=5\r\ntxt:x\r\n-ERR a  b\r\n");
    }
}
