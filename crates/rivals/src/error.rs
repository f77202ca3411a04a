//! Why a program could not be installed or driven.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::BenchError;

/// Why a program could not be installed or driven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RivalError {
    /// A file, a folder or a process.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A program ended that should not have, or not so.
    #[error("{program} ended with {code:?}: {told}")]
    Ended {
        /// Which.
        program: String,
        /// Its exit code; none where a signal ended it.
        code: Option<i32>,
        /// The end of what it said.
        told: String,
    },
    /// A program took too long.
    #[error("{program} was not done within {limit:?}: {told}")]
    Late {
        /// Which.
        program: String,
        /// How long it was waited for.
        limit: Duration,
        /// The end of what it said.
        told: String,
    },
    /// A program said something else than it used to.
    #[error("{program} said {said:?}, which is no {wanted}")]
    Answer {
        /// Which.
        program: &'static str,
        /// What it said.
        said: String,
        /// What was to be read there.
        wanted: &'static str,
    },
    /// A program could not be fetched or built.
    #[error("{package} could not be installed; it takes {needs}")]
    Install {
        /// What its registry calls it.
        package: &'static str,
        /// What must be on this machine.
        needs: &'static str,
        /// Why it failed.
        source: Box<RivalError>,
    },
    /// There is no folder to keep installed programs in.
    #[error("neither XDG_CACHE_HOME nor HOME says where programs may be installed")]
    NoCache,
    /// Stopped, or what came out is not what went in.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

impl RivalError {
    /// For `map_err`: an I/O error with what was tried.
    pub(crate) fn io(
        action: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { action, path, source }
    }
}
