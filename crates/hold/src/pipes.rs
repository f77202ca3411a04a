//! Standard input and output as files, for content.
//!
//! Not through the standard library's handles: those read 8 KiB at a time, and write line by line.

use std::os::fd::AsFd;

use tokio::fs::File;

use crate::error::HoldError;

/// Standard input.
///
/// # Errors
/// Where the process has none.
pub(crate) fn stdin() -> Result<File, HoldError> {
    of(&std::io::stdin(), "standard input")
}

/// Standard output.
///
/// # Errors
/// Where the process has none.
pub(crate) fn stdout() -> Result<File, HoldError> {
    of(&std::io::stdout(), "standard output")
}

fn of(handle: &impl AsFd, name: &'static str) -> Result<File, HoldError> {
    let file = handle.as_fd().try_clone_to_owned().map_err(HoldError::io("open", name))?;
    Ok(File::from_std(std::fs::File::from(file)))
}
