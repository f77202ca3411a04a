//! Standard input and output, and named pipes, as files, for content.
//!
//! Not through the standard library's handles: those read 8 KiB at a time, and write line by line. And where they are pipes
//! these are widened: at the system's 64 KiB each GiB is 16,384 ways to a thread that waits for the other side, and back.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tokio::fs::File;

use crate::client::blocking;
use crate::error::HoldError;
use crate::{draft, platform};

/// Bytes that a pipe is widened to: what a user who is not root may (`/proc/sys/fs/pipe-max-size`), and half a page.
const PIPE_BYTES: usize = 1 << 20;

/// Standard input.
///
/// # Errors
/// Where the process has none.
pub(crate) fn stdin() -> Result<File, HoldError> {
    platform::stdin_is_open().map_err(HoldError::io("open", "standard input"))?;
    of(&std::io::stdin(), "standard input")
}

/// Standard output.
///
/// # Errors
/// Where the process has none.
pub(crate) fn stdout() -> Result<File, HoldError> {
    platform::stdout_is_open().map_err(HoldError::io("open", "standard output"))?;
    of(&std::io::stdout(), "standard output")
}

/// Where standard output is a file: waits until it is durable if that is asked for, or if its file system may tell a write's error at a
/// sync alone, so that a short one is not taken for whole.
///
/// # Errors
/// The system's.
pub(crate) async fn settle(stdout: File, sync: bool) -> Result<(), HoldError> {
    let failed = || HoldError::io("write", "standard output");
    let is_file = stdout.metadata().await.map_err(failed())?.is_file();
    if is_file && (sync || !draft::tells_errors_at_once(&stdout)) {
        stdout.sync_all().await.map_err(failed())?;
    }
    Ok(())
}

/// Whether content for this path is for standard output: `-`, and whatever else is the same file, as `/dev/stdout` is. Opened anew it
/// would be written from its beginning, or replaced, and what is told of the content would go into it.
pub(crate) fn is_stdout(path: &Path) -> bool {
    if path.as_os_str() == "-" {
        return true;
    }
    let stdout = rustix::fs::fstat(std::io::stdout());
    let there = std::fs::metadata(path);
    matches!((stdout, there), (Ok(stdout), Ok(there))
        if (stdout.st_dev, stdout.st_ino) == (there.dev(), there.ino()))
}

/// A named pipe or a device; a pipe waits for its reader here.
///
/// # Errors
/// The system's.
pub(crate) async fn named(path: &Path) -> Result<File, HoldError> {
    let path = path.to_owned();
    let file = blocking(move || {
        let file = std::fs::OpenOptions::new().write(true).open(&path);
        file.map_err(HoldError::io("write", &path))
    });
    of(&file.await?, "a pipe")
}

fn of(handle: &impl AsFd, name: &'static str) -> Result<File, HoldError> {
    let file = handle.as_fd().try_clone_to_owned().map_err(HoldError::io("open", name))?;
    // Of a file, of a terminal, or of a user who has many wide pipes already, it stays as it is.
    let _ = rustix::pipe::fcntl_setpipe_size(&file, PIPE_BYTES);
    Ok(File::from_std(std::fs::File::from(file)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_pipe_is_widened_and_a_file_is_taken_as_it_is() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        of(&reader, "a pipe").unwrap();
        assert_eq!(rustix::pipe::fcntl_getpipe_size(&writer).unwrap(), PIPE_BYTES);
        of(&tempfile::tempfile().unwrap(), "a file").unwrap();
    }
}
