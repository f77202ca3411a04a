//! Why a door does not open, and what an engine refuses.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use crypto::{Class, Classified};

/// Why the door could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoorError {
    /// Other machines could reach the door, and it asks for no password.
    #[error("{0} can be reached from other machines: set a password, or listen on 127.0.0.1")]
    Exposed(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: is another program there?")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no event queue or no thread.
    #[error("the system gives the door no event queue or no thread")]
    System(#[source] io::Error),
    /// The keys could not be loaded.
    #[error("the door's keys could not be loaded")]
    Load(#[source] Refusal),
}

impl Classified for DoorError {
    fn class(&self) -> Class {
        match self {
            Self::Exposed(_) => Class::Invalid,
            Self::Listen { .. } | Self::System(_) => Class::Unavailable,
            Self::Load(refusal) => refusal.class(),
        }
    }
}

/// What the engine under a door answered in the stead of doing what it was asked.
#[derive(Debug)]
pub struct Refusal {
    class: Class,
    source: Box<dyn Error + Send + Sync>,
}

impl Refusal {
    /// Of an engine's own error.
    pub fn new(error: impl Classified + Send + Sync + 'static) -> Self {
        Self { class: error.class(), source: Box::new(error) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

impl Classified for Refusal {
    fn class(&self) -> Class {
        self.class
    }
}
