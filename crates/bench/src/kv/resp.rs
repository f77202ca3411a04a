//! What is said to Redis's protocol, RESP2: requests as arrays of bytes, and replies read where they lie.
//!
//! [`next`] copies nothing and keeps nothing: a caller with many connections must be light, or it
//! measures itself. An array's head is a reply of its own, and its elements follow.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::BenchError;

/// The longest line of a reply, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The longest string of a reply, in bytes.
const STRING_BYTES_MAX: usize = 64 << 20;
/// The most elements of a reply.
const ELEMENTS_MAX: usize = 1 << 20;
/// Room for what is read at once, in bytes.
const READ_BYTES: usize = 256 << 10;
/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A reply, or the head of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    Line(&'a [u8]),
    Error(&'a [u8]),
    Number(i64),
    /// A string; none where there is nothing.
    Bytes(Option<&'a [u8]>),
    /// So many replies follow; none where there is nothing.
    Array(Option<usize>),
}

/// Bytes that are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoReply;

impl From<NoReply> for BenchError {
    fn from(NoReply: NoReply) -> Self {
        Self::Wrong("a reply is none of Redis's protocol")
    }
}

/// Appends a request.
pub(super) fn request(parts: &[&[u8]], out: &mut Vec<u8>) {
    head(b'*', parts.len(), out);
    for part in parts {
        head(b'$', part.len(), out);
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

fn head(kind: u8, number: usize, out: &mut Vec<u8>) {
    out.push(kind);
    digits(number as u64, 1, out);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number with at least so many digits.
pub(super) fn digits(mut number: u64, least: usize, out: &mut Vec<u8>) {
    let start = out.len();
    while number > 0 || out.len() < start + least {
        out.push(b'0' + (number % 10) as u8);
        number /= 10;
    }
    out[start..].reverse();
}

/// The first reply and its length; none where it is not whole yet.
pub(super) fn next(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, NoReply> {
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
    let within = &rest[..rest.len().min(LINE_BYTES_MAX)];
    let Some(end) = within.iter().position(|byte| *byte == b'\r') else {
        return if within.len() == LINE_BYTES_MAX { Err(NoReply) } else { Ok(None) };
    };
    let Some(newline) = rest.get(end + 1) else { return Ok(None) };
    if *newline != b'\n' {
        return Err(NoReply);
    }
    let (line, after) = (&rest[..end], end + 3);
    let reply = match kind {
        b'+' => Reply::Line(line),
        b'-' => Reply::Error(line),
        b':' => Reply::Number(number(line)?),
        b'$' => match length(line, STRING_BYTES_MAX)? {
            None => Reply::Bytes(None),
            Some(length) => {
                let whole = after + length + 2;
                let Some(found) = bytes.get(after..whole) else { return Ok(None) };
                let (value, end) = found.split_at(length);
                let reply = Reply::Bytes(Some(value));
                return if end == b"\r\n" { Ok(Some((reply, whole))) } else { Err(NoReply) };
            }
        },
        b'*' => Reply::Array(length(line, ELEMENTS_MAX)?),
        _ => return Err(NoReply),
    };
    Ok(Some((reply, after)))
}

fn number(line: &[u8]) -> Result<i64, NoReply> {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).ok_or(NoReply)
}

fn length(line: &[u8], max: usize) -> Result<Option<usize>, NoReply> {
    match number(line)? {
        -1 => Ok(None),
        length => {
            let length = usize::try_from(length).map_err(|_| NoReply)?;
            if length <= max { Ok(Some(length)) } else { Err(NoReply) }
        }
    }
}

/// A whole reply, kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Line(Vec<u8>),
    Number(i64),
    Bytes(Option<Vec<u8>>),
    Array(Vec<Answer>),
}

/// One connection that asks and waits.
pub(super) struct Caller {
    stream: TcpStream,
    /// Read and not taken yet.
    bytes: Vec<u8>,
    at: usize,
    out: Vec<u8>,
}

impl Caller {
    pub(super) fn connect(address: SocketAddr) -> Result<Self, BenchError> {
        let failed = |error| BenchError::io("connect to", address.to_string())(error);
        let stream = TcpStream::connect(address).map_err(failed)?;
        let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
        set.map_err(failed)?;
        Ok(Self { stream, bytes: Vec::new(), at: 0, out: Vec::new() })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] where it is an error.
    pub(super) fn ask(&mut self, parts: &[&[u8]]) -> Result<Answer, BenchError> {
        self.say(parts);
        self.flush()?;
        self.answer()
    }

    /// Adds a request that [`Caller::flush`] sends.
    pub(super) fn say(&mut self, parts: &[&[u8]]) {
        request(parts, &mut self.out);
    }

    pub(super) fn flush(&mut self) -> Result<(), BenchError> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(BenchError::io("write to", "a connection"))
    }

    /// The next answer.
    pub(super) fn answer(&mut self) -> Result<Answer, BenchError> {
        loop {
            let found = next(&self.bytes[self.at..])?.map(|(reply, length)| {
                let answer = match reply {
                    Reply::Line(line) => Ok((Answer::Line(line.to_vec()), 0)),
                    Reply::Error(_) => Err(BenchError::Wrong("a request was answered an error")),
                    Reply::Number(number) => Ok((Answer::Number(number), 0)),
                    Reply::Bytes(bytes) => Ok((Answer::Bytes(bytes.map(<[u8]>::to_vec)), 0)),
                    Reply::Array(count) => Ok((Answer::Array(Vec::new()), count.unwrap_or(0))),
                };
                (answer, length)
            });
            let Some((answer, length)) = found else {
                self.more()?;
                continue;
            };
            self.at += length;
            let (answer, count) = answer?;
            let Answer::Array(mut all) = answer else { return Ok(answer) };
            for _ in 0..count {
                all.push(self.answer()?);
            }
            return Ok(Answer::Array(all));
        }
    }

    fn more(&mut self) -> Result<(), BenchError> {
        self.bytes.drain(..self.at);
        self.at = 0;
        let filled = self.bytes.len();
        self.bytes.resize(filled + READ_BYTES, 0);
        let read = self.stream.read(&mut self.bytes[filled..]);
        let read = read.map_err(BenchError::io("read from", "a connection"))?;
        self.bytes.truncate(filled + read);
        if read == 0 { Err(BenchError::Wrong("a connection was closed")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::TcpListener;

    use super::*;

    const ALL: &[u8] = b"+OK\r\n-ERR no\r\n:-7\r\n$5\r\na\r\nbc\r\n$-1\r\n*2\r\n$0\r\n\r\n*-1\r\n";

    fn read_all(bytes: &[u8]) -> Vec<Reply<'_>> {
        let (mut at, mut found) = (0, Vec::new());
        while let Some((reply, length)) = next(&bytes[at..]).unwrap() {
            found.push(reply);
            at += length;
        }
        assert_eq!(at, bytes.len());
        found
    }

    #[test]
    fn replies_are_read_one_after_the_other() {
        let wanted = [
            Reply::Line(b"OK"),
            Reply::Error(b"ERR no"),
            Reply::Number(-7),
            Reply::Bytes(Some(b"a\r\nbc")),
            Reply::Bytes(None),
            Reply::Array(Some(2)),
            Reply::Bytes(Some(b"")),
            Reply::Array(None),
        ];
        assert_eq!(read_all(ALL), wanted);
    }

    #[test]
    fn a_part_of_a_reply_is_waited_for() {
        let mut at = 0;
        while at < ALL.len() {
            let length = next(&ALL[at..]).unwrap().unwrap().1;
            for part in 0..length {
                assert_eq!(next(&ALL[at..at + part]), Ok(None), "{at} {part}");
            }
            at += length;
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bad in
            ["?\r\n", "$x\r\n", "$-2\r\n", "$3\r\nabcd\r\n", ":\r\n", "+a\rb", "*9999999\r\n"]
        {
            assert_eq!(next(bad.as_bytes()), Err(NoReply), "{bad:?}");
        }
        assert_eq!(next(&[&b"+"[..], &[b'a'; LINE_BYTES_MAX]].concat()), Err(NoReply));
        assert_eq!(next(b"$67108865\r\n"), Err(NoReply), "before anything of it is waited for");
    }

    #[test]
    fn requests_are_arrays_of_bytes() {
        let mut out = Vec::new();
        request(&[b"SET", b"a\r\n", b""], &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$3\r\na\r\n\r\n$0\r\n\r\n");
        out.clear();
        digits(120, 6, &mut out);
        digits(0, 1, &mut out);
        digits(7, 0, &mut out);
        assert_eq!(out, b"00012007");
    }

    #[test]
    fn a_caller_reads_answers_within_answers_however_they_come() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut caller = Caller::connect(listener.local_addr().unwrap()).unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 14];
            stream.read_exact(&mut asked).unwrap();
            for part in [&b"*2\r\n*1\r\n:1"[..], b"\r\n$2\r\nab", b"\r\n-ERR no\r\n"] {
                stream.write_all(part).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            asked
        });
        let answer = caller.ask(&[b"PING"]).unwrap();
        let bytes = Answer::Bytes(Some(b"ab".to_vec()));
        assert_eq!(answer, Answer::Array(vec![Answer::Array(vec![Answer::Number(1)]), bytes]));
        assert!(matches!(caller.answer(), Err(BenchError::Wrong(_))), "an error");
        assert_eq!(&serving.join().unwrap(), b"*1\r\n$4\r\nPING\r\n");
        assert!(matches!(caller.answer(), Err(BenchError::Wrong(_))), "closed");
    }
}
