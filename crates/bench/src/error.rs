//! Why an experiment gave no result.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crypto::{Class, Classified};

/// Why an experiment gave no result. A bar that was missed is none of these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// Somebody stopped it.
    #[error("stopped before it was done")]
    Interrupted,
    /// A size, rate or number that the experiment cannot have.
    #[error("{name}: {reason}")]
    Argument {
        /// The flag.
        name: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A file, folder, pipe or socket.
    #[error("cannot {action} {path}", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The disk has too little room for the work.
    #[error("{} has {free} free bytes, and the work needs {needed}: name another with --dir", path.display())]
    Room {
        /// Where.
        path: PathBuf,
        /// Bytes free there.
        free: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// A program that ours is compared with is not there.
    #[error("`{program}` is not on the PATH: install the Debian package `{package}`")]
    Missing {
        /// The program.
        program: &'static str,
        /// What has it.
        package: &'static str,
    },
    /// A run of the program, or of one that it is compared with, failed.
    #[error("`{verb}` ended with {code:?}: {told}")]
    Program {
        /// The program with its first arguments.
        verb: String,
        /// Its exit code; none where a signal ended it.
        code: Option<i32>,
        /// The end of what it wrote on stderr.
        told: String,
    },
    /// A run of the program said something that is not what its verb says.
    #[error("`{verb}` answered what cannot be read")]
    Answer {
        /// The program with its first arguments.
        verb: String,
    },
    /// Something did not happen in time.
    #[error("{what} within {limit:?}")]
    Late {
        /// What did not happen.
        what: &'static str,
        /// How long it was waited for.
        limit: Duration,
    },
    /// A timed put that left something to do.
    #[error(
        "a timed put stored {acked} of {wanted} copies or fragments of a record or stripe and leaves the others to repair: it is no measurement"
    )]
    Short {
        /// Acknowledged of the record or stripe that has the fewest.
        acked: u32,
        /// What it should have.
        wanted: u32,
    },
    /// What came out is not what went in.
    #[error("what was read back is not what was stored: {0}")]
    Wrong(&'static str),
    /// A call to a peer that must not fail did.
    #[error("a peer could not be asked")]
    Call(#[from] env::calls::CallError),
    /// A committee, or what it answered.
    #[error("a committee failed")]
    Committee(#[from] committee::CommitteeError),
    /// A document could not be sealed.
    #[error("a document could not be sealed")]
    Document(#[from] document::DocumentError),
    /// A stripe could not be coded.
    #[error("a stripe could not be coded")]
    Code(#[from] erasure::ErasureError),
    /// Versions could not be written or read.
    #[error("versions could not be written or read")]
    Objects(#[from] objects::ObjectsError),
    /// A store of versions could not be opened or closed.
    #[error("a store could not be opened or closed")]
    Store(#[from] store::StoreError),
    /// Objects could not be created in a network.
    #[error("objects could not be created")]
    Created(#[from] author::objects::ObjectsError),
    /// An author could not be set up.
    #[error("an author could not be set up")]
    Author(#[from] author::AuthorError),
    /// The transport could not be set up.
    #[error("the transport could not be set up")]
    Rpc(#[from] rpc::RpcError),
    /// TLS of the limit's own connection.
    #[error("TLS could not be set up")]
    Tls(#[from] rustls::Error),
    /// The certificate of the limit's own connection.
    #[error("a certificate could not be made")]
    Certificate(#[from] rcgen::Error),
    /// A report could not be written as JSON.
    #[error("the report could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

impl BenchError {
    /// For `map_err`: an I/O error with what was tried.
    pub(crate) fn io(
        action: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { action, path, source }
    }
}

impl Classified for BenchError {
    fn class(&self) -> Class {
        match self {
            Self::Argument { .. } => Class::Invalid,
            Self::Room { .. } => Class::Busy,
            Self::Late { .. } | Self::Short { .. } => Class::Unavailable,
            Self::Missing { .. } => Class::NotFound,
            Self::Wrong(_) => Class::Corrupt,
            Self::Call(error) => error.class(),
            Self::Committee(error) => error.class(),
            Self::Author(error) => error.class(),
            Self::Created(error) => error.class(),
            Self::Objects(error) => error.class(),
            Self::Store(error) => error.class(),
            Self::Rpc(_) | Self::Interrupted | Self::Io { .. } | Self::Program { .. } => Class::Bug,
            Self::Answer { .. } | Self::Document(_) | Self::Code(_) | Self::Tls(_) => Class::Bug,
            Self::Certificate(_) | Self::Json(_) => Class::Bug,
        }
    }
}
