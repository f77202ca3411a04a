//! A get into a file: all of it under its final name, or nothing.
//!
//! The bytes go to a temporary file beside the final name (so that the rename stays within one file system). It gets the
//! name after the MACs over the whole hold and an fsync. On an error and when the get is dropped, at whatever stage, the
//! temporary file is removed; only a killed process leaves one (`.NAME.RANDOM.part`). To that end the file and the guard
//! that removes it are always owned together, also by a thread that is still creating it.

mod sink;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crypto::RecordId;

use crate::author::Author;
use crate::error::AuthorError;
use crate::job::Job;
use crate::progress::Progress;
use crate::types::GetReport;
pub use sink::FileSink;

/// Bytes of a file's name (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;

/// Removes the file it names when dropped, unless it was kept.
struct Temporary(Option<PathBuf>);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // What cannot be removed (its folder is gone, say) is nothing that could be helped here.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Author {
    /// Writes the content at an address, or a range of its bytes, to a file, over one that is there.
    ///
    /// Cancel safe: dropping it leaves the file of that name as it was, and no other; once all was fetched and checked it may
    /// still get its name, whole.
    ///
    /// # Errors
    /// As [`Author::get`], and [`AuthorError::Io`] about the file: that it can be written is seen before anything is
    /// fetched.
    pub async fn get_file(
        &self,
        address: RecordId,
        path: &Path,
        range: Option<Range<u64>>,
        progress: Arc<dyn Progress>,
    ) -> Result<GetReport, AuthorError> {
        let name = self.temporary_name(path).map_err(|source| failed("write", path, source))?;
        // Made by one job together with its guard: where nobody waits for the result any more, it is dropped with it.
        let create = move || {
            let mut options = std::fs::OpenOptions::new();
            let created = options.write(true).create_new(true).open(&name);
            created
                .map_err(|source| failed("create", &name, source))
                .map(|file| (file, Temporary(Some(name))))
        };
        let (file, temporary) =
            Job::blocking(self.env(), create).await.ok_or(AuthorError::Stopped)??;
        let written = file.try_clone().map_err(|source| failed("write", path, source))?;
        let sink = FileSink::new(self.env(), written);
        let report = self.get(address, sink, range, progress).await?;
        let path = path.to_owned();
        let keep = move || keep(&file, temporary, &path);
        Job::blocking(self.env(), keep).await.ok_or(AuthorError::Stopped)??;
        Ok(report)
    }

    /// A name beside `path` that nobody uses.
    fn temporary_name(&self, path: &Path) -> io::Result<PathBuf> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let random = u64::from_be_bytes(self.env().random());
        // With what is put around it no longer than a name may be.
        let some = name.as_bytes();
        let some = &some[..some.len().min(NAME_BYTES_MAX - 23)];
        let mut temporary = OsString::from(".");
        temporary.push(OsStr::from_bytes(some));
        temporary.push(format!(".{random:016x}.part"));
        Ok(path.with_file_name(temporary))
    }
}

/// Makes a file that is whole durable and gives it its name.
fn keep(file: &File, mut temporary: Temporary, path: &Path) -> Result<(), AuthorError> {
    let write = |source| failed("write", path, source);
    file.sync_all().map_err(write)?;
    if let Some(name) = &temporary.0 {
        std::fs::rename(name, path).map_err(|source| failed("rename to", path, source))?;
    }
    temporary.0 = None;
    File::open(parent(path)).and_then(|dir| dir.sync_all()).map_err(write)
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> AuthorError {
    AuthorError::Io { action, path: path.to_owned(), source }
}
