//! What a door is opened with.

use std::net::SocketAddr;
use std::time::Duration;

use zeroize::Zeroizing;

/// How a door is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen. Other than loopback only with a password.
    pub listen: SocketAddr,
    /// What callers have to give with AUTH.
    pub password: Option<Zeroizing<String>>,
    /// Whether FLUSHALL and FLUSHDB delete all keys.
    pub flush: bool,
    /// What is kept as a difference to an ancestor.
    pub compress: Compress,
    /// Bytes of values kept in memory; the others are read again from the engine.
    pub cache_bytes: usize,
    /// Bounds.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 6379)),
            password: None,
            flush: false,
            compress: Compress::default(),
            cache_bytes: 1 << 30,
            limits: Limits::default(),
        }
    }
}

/// Which versions the engine is asked to keep small. It costs time at each write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compress {
    /// Those of `HOLD.PUT ... COMPRESS`.
    Never,
    /// Those of hashes too, of which a command changes a part.
    #[default]
    Hashes,
    /// Those of strings too.
    All,
}

/// Bounds of a door. Over them a caller gets an error, or is cut off.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once.
    pub clients: usize,
    /// Arguments of a command.
    pub arguments: usize,
    /// Bytes of an argument. A value has at most 2 MiB; longer arguments are read and refused.
    pub argument_bytes: usize,
    /// Bytes of all arguments of a command.
    pub command_bytes: usize,
    /// Bytes of commands that are not whole, and of those that wait for EXEC and the keys that they
    /// watch, all connections together.
    pub input_bytes: usize,
    /// Bytes of answers that wait for one connection to read them; until it has, its commands are
    /// not read. A command whose answer alone is longer is answered with an error.
    pub output_bytes: usize,
    /// The same, all connections together. From half of it on a connection whose answers wait is not
    /// read from; a command whose answer does not fit what is left is answered with an error.
    pub outputs_bytes: usize,
    /// A connection that takes nothing of its answers for so long is cut off.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 10_000,
            arguments: 131_072,
            argument_bytes: 8 << 20,
            command_bytes: 32 << 20,
            input_bytes: 512 << 20,
            output_bytes: 128 << 20,
            outputs_bytes: 1 << 30,
            stall: Duration::from_secs(60),
        }
    }
}
