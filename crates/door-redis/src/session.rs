//! One caller: what it told about itself, and what waits for its EXEC.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::parse::{Arguments, Kept};
use crate::reply::Output;
use crate::table::Command;

/// Bytes of commands that wait for one EXEC, in the log's manner of counting.
pub(crate) const QUEUED_BYTES_MAX: usize = 32 << 20;
/// Commands that wait for one EXEC.
pub(crate) const QUEUED_MAX: usize = 65_536;
/// Keys watched by one connection.
pub(crate) const WATCHED_MAX: usize = 1_024;
/// Wrong passwords of one connection; then it is cut off.
pub(crate) const WRONG_PASSWORDS_MAX: u32 = 16;

/// What others may be told of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub address: SocketAddr,
    pub name: Bytes,
    pub library: Bytes,
    pub library_version: Bytes,
    pub protocol: u8,
    /// When it came, Unix ms.
    pub since: u64,
}

/// Who is told of versions.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    /// The connection.
    pub client: u64,
    /// What keys begin with.
    pub prefix: Bytes,
}

/// Commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub commands: Vec<(&'static Command, Kept)>,
    pub bytes: usize,
    /// A command could not be queued.
    pub broken: bool,
}

/// What tells whether a key was written since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It is there, and this is the number of its last write.
    There(u64),
    /// It is not, and its next version is so deep, once what has ended is deleted.
    Absent(u64),
}

/// Keys that WATCH was told.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    keys: Vec<(Bytes, Mark)>,
    bytes: usize,
}

impl Watched {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn push(&mut self, key: &[u8], mark: Mark) {
        self.bytes += key.len() + size_of::<(Bytes, Mark)>();
        self.keys.push((Bytes::copy_from_slice(key), mark));
    }

    /// The keys, and what each was then.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, Mark)> {
        self.keys.iter().map(|(key, mark)| (key, *mark))
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// One connection, as commands see it.
#[derive(Debug)]
pub(crate) struct Session {
    pub id: u64,
    pub authenticated: bool,
    pub wrong_passwords: u32,
    pub transaction: Option<Transaction>,
    /// Keys that EXEC asks after.
    pub watched: Watched,
    /// Prefixes it is told of.
    pub watching: usize,
    /// Its answers are sent, then it ends.
    pub closing: bool,
}

impl Session {
    pub(crate) fn new(id: u64, authenticated: bool) -> Self {
        Self {
            id,
            authenticated,
            wrong_passwords: 0,
            transaction: None,
            watched: Watched::default(),
            watching: 0,
            closing: false,
        }
    }

    /// Bytes it holds beside its buffers.
    pub(crate) fn held(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, |transaction| transaction.bytes);
        queued + self.watched.bytes
    }
}

/// One command being executed.
pub(crate) struct Call<'a> {
    pub args: Arguments<'a>,
    pub out: &'a mut Output,
    pub session: &'a mut Session,
}

impl<'a> Call<'a> {
    pub(crate) fn len(&self) -> usize {
        self.args.len()
    }

    pub(crate) fn arg(&self, index: usize) -> &'a [u8] {
        self.args.get(index)
    }

    /// Whether an argument is this word, in any case.
    pub(crate) fn is(&self, index: usize, word: &str) -> bool {
        self.arg(index).eq_ignore_ascii_case(word.as_bytes())
    }
}
