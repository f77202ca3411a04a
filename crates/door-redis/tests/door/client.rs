//! A caller of the door: sends requests, reads answers of both protocols.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use door_redis::{Handle, Options};

use crate::memory::{Calendar, Memory};

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Double(String),
    Array(Vec<Answer>),
    Map(Vec<Answer>),
    Set(Vec<Answer>),
    Push(Vec<Answer>),
    Verbatim(Vec<u8>),
}

impl Answer {
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) | Self::Error(text) | Self::Double(text) => text.clone(),
            Self::Bulk(bytes) | Self::Verbatim(bytes) => String::from_utf8_lossy(bytes).into(),
            Self::Integer(value) => value.to_string(),
            Self::Null => "nil".into(),
            Self::Array(all) | Self::Map(all) | Self::Set(all) | Self::Push(all) => {
                let all: Vec<String> = all.iter().map(Self::text).collect();
                format!("[{}]", all.join(" "))
            }
        }
    }

    pub fn list(&self) -> Vec<Answer> {
        match self {
            Self::Array(all) | Self::Map(all) | Self::Set(all) | Self::Push(all) => all.clone(),
            other => panic!("no list: {other:?}"),
        }
    }
}

/// One connection.
pub struct Caller {
    pub socket: TcpStream,
    reader: BufReader<TcpStream>,
}

pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Caller {
    pub fn to(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let reader = BufReader::new(socket.try_clone().unwrap());
        Self { socket, reader }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// One command of words without spaces.
    pub fn ask(&mut self, line: &str) -> Answer {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.call(&words)
    }

    /// The same, as text.
    pub fn say(&mut self, line: &str) -> String {
        self.ask(line).text()
    }

    pub fn call(&mut self, words: &[&[u8]]) -> Answer {
        self.send(&request(words));
        self.answer()
    }

    /// Many lines in one write; their answers as text.
    pub fn pipeline(&mut self, lines: &[&str]) -> Vec<String> {
        let all: Vec<u8> = lines
            .iter()
            .flat_map(|line| request(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()))
            .collect();
        self.send(&all);
        lines.iter().map(|_| self.answer().text()).collect()
    }

    pub fn answer(&mut self) -> Answer {
        self.read().expect("an answer")
    }

    /// Whether the door has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = [0];
        match self.reader.read(&mut rest) {
            Ok(read) => read == 0,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the door neither answers nor closes")
            }
            Err(_) => true,
        }
    }

    fn read(&mut self) -> Option<Answer> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).ok()?;
        let line = line.strip_suffix(b"\r\n")?;
        let (kind, rest) = line.split_first()?;
        let text = String::from_utf8_lossy(rest).into_owned();
        let number = || text.parse::<i64>().expect("a number");
        Some(match kind {
            b'+' => Answer::Simple(text),
            b'-' => Answer::Error(text),
            b':' => Answer::Integer(number()),
            b',' => Answer::Double(text),
            b'_' => Answer::Null,
            b'$' | b'=' => {
                let Ok(length) = usize::try_from(number()) else { return Some(Answer::Null) };
                let mut bytes = vec![0; length + 2];
                self.reader.read_exact(&mut bytes).ok()?;
                bytes.truncate(length);
                if *kind == b'=' {
                    return Some(Answer::Verbatim(bytes.split_off(4)));
                }
                Answer::Bulk(bytes)
            }
            b'*' | b'%' | b'~' | b'>' => {
                let Ok(length) = usize::try_from(number()) else { return Some(Answer::Null) };
                let count = if *kind == b'%' { length * 2 } else { length };
                let mut all = Vec::new();
                for _ in 0..count {
                    all.push(self.read()?);
                }
                match kind {
                    b'*' => Answer::Array(all),
                    b'%' => Answer::Map(all),
                    b'~' => Answer::Set(all),
                    _ => Answer::Push(all),
                }
            }
            other => panic!("no answer begins with {other}"),
        })
    }
}

/// An open door over an engine in memory.
pub struct Opened {
    pub memory: Memory,
    pub calendar: Arc<Calendar>,
    pub handle: Handle,
}

pub fn options() -> Options {
    Options { listen: ([127, 0, 0, 1], 0).into(), flush: true, ..Options::default() }
}

impl Opened {
    pub fn new() -> Self {
        Self::with(options())
    }

    pub fn with(options: Options) -> Self {
        Self::over(options, Memory::default(), Calendar::new())
    }

    pub fn over(options: Options, memory: Memory, calendar: Arc<Calendar>) -> Self {
        let keyspace = Box::new(memory.clone());
        let handle = door_redis::open(options, keyspace, calendar.clone()).unwrap();
        Self { memory, calendar, handle }
    }

    pub fn caller(&self) -> Caller {
        Caller::to(self.handle.address())
    }

    /// The same keys after the door was closed.
    pub fn again(self) -> Self {
        self.handle.close();
        Self::over(options(), self.memory, self.calendar)
    }

    pub fn metric(&self, name: &str) -> u64 {
        let all = self.handle.metrics().all();
        all.iter().find(|(each, _)| *each == name).expect("a counter").1
    }
}
