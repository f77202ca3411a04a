//! One program's turn: runs of its client, one after the other, each timed.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bench::{Bench, Stop};

use crate::error::RivalError;
use crate::process::{self, Ran};

/// Next to nothing, and yet enough that no program keeps it in its name.
const TINY_BYTES: usize = 1024;

/// Where clients run, and how long each may.
pub(crate) struct Turn<'a> {
    stop: &'a Stop,
    folder: &'a Path,
    limit: Duration,
    runs: Cell<u32>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(bench: &'a Bench, folder: &'a Path, limit: Duration) -> Self {
        Self { stop: &bench.stop, folder, limit, runs: Cell::new(0) }
    }

    /// Runs a client to its end.
    ///
    /// # Errors
    /// As [`process::run`].
    pub(crate) fn run(&self, command: Command) -> Result<Ran, RivalError> {
        let number = self.runs.replace(self.runs.get() + 1);
        let log = self.folder.join(format!("client{number}.log"));
        process::run(command, &log, self.limit, self.stop)
    }
}

/// A file of next to nothing: what it takes a client to start is timed with it.
pub(crate) fn tiny(folder: &Path) -> Result<PathBuf, RivalError> {
    let path = folder.join("tiny");
    std::fs::write(&path, [b'n'; TINY_BYTES]).map_err(RivalError::io("write", &path))?;
    Ok(path)
}
