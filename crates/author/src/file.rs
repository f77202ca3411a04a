//! A get into a file: all of it under its final name, or nothing.
//!
//! The bytes go to a temporary file beside the final name (so that the rename stays within one file system). It gets the
//! name after the MACs over the whole hold and an fsync. On an error and when the get is dropped, at whatever stage, the
//! temporary file is removed; only a killed process leaves one (`.NAME.RANDOM.part`).

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crypto::RecordId;

use crate::author::Author;
use crate::error::AuthorError;
use crate::progress::Progress;
use crate::types::GetReport;

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
    /// Cancel safe: dropping it leaves the file of that name as it was, and no other.
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
        let named = self.temporary_name(path);
        let name = named.map_err(|source| failed("write", path, source))?;
        let mut options = tokio::fs::OpenOptions::new();
        let opened = options.write(true).create_new(true).open(&name).await;
        let mut file = opened.map_err(|source| failed("create", &name, source))?;
        let mut temporary = Temporary(Some(name.clone()));

        let report = self.get(address, &mut file, range, progress).await?;
        file.sync_all().await.map_err(|source| failed("write", &name, source))?;
        let renamed = tokio::fs::rename(&name, path).await;
        renamed.map_err(|source| failed("rename to", path, source))?;
        temporary.0 = None;
        let dir = parent(path).to_owned();
        let synced = move || std::fs::File::open(dir)?.sync_all();
        let synced = crate::job::Job::blocking(self.env(), synced).await;
        synced.ok_or(AuthorError::Stopped)?.map_err(|source| failed("write", path, source))?;
        Ok(report)
    }

    /// A name beside `path` that nobody uses.
    fn temporary_name(&self, path: &Path) -> io::Result<PathBuf> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let random = u64::from_be_bytes(self.env().random());
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{random:016x}.part"));
        Ok(path.with_file_name(temporary))
    }
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
