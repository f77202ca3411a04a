//! A peer's count of the bytes each client with a quota has stored, kept over restarts.
//!
//! `D/quotas` has a line `<client's key in hex> <bytes>` each. It is written at most every second
//! and when the peer stops; after kill -9 the last second's writes are not counted.

use std::path::Path;
use std::sync::Arc;

use crypto::ClientKey;
use librarian::Librarian;
use tokio_util::sync::CancellationToken;

use crate::client::blocking;
use crate::error::HoldError;
use crate::files::{self, Access};
use crate::out::one_line;

/// The file's name in the peer's directory.
pub(crate) const FILE: &str = "quotas";
/// The most lines that are written: what a small file holds. Those with the most bytes stay.
const LINES_MAX: usize = 11_000;

/// What is readable of the file.
pub(crate) fn read(path: &Path) -> Vec<(ClientKey, u64)> {
    let Ok(bytes) = files::read_small(path) else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    let line = |line: &str| {
        let (client, bytes) = line.split_once(' ')?;
        Some((client.parse().ok()?, bytes.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Writes the counts; their number of changes.
///
/// # Errors
/// Where the file cannot be written.
pub(crate) async fn write(librarian: &Librarian, path: &Arc<Path>) -> Result<u64, HoldError> {
    use std::fmt::Write;
    let (mut counts, changes) = librarian.stored_bytes();
    let path = Arc::clone(path);
    // It is sorted, and waits for the disk.
    blocking(move || {
        counts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let mut text = String::new();
        for (client, bytes) in counts.into_iter().take(LINES_MAX) {
            // Writing into a String does not fail.
            let _ = writeln!(text, "{client} {bytes}");
        }
        files::replace(&path, text.as_bytes(), Access::Public)?;
        Ok(changes)
    })
    .await
}

/// Writes the counts whenever they changed, until `stop`.
pub(crate) async fn write_all(librarian: Arc<Librarian>, path: Arc<Path>, stop: CancellationToken) {
    let mut written = 0;
    loop {
        tokio::select! {
            () = env::beat(env::BEAT) => {}
            () = stop.cancelled() => return,
        }
        if librarian.stored_bytes().1 == written {
            continue;
        }
        match write(&librarian, &path).await {
            Ok(changes) => written = changes,
            Err(error) => {
                tracing::warn!(error = %one_line(&error), "the clients' quotas could not be written")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_is_readable_of_a_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        assert_eq!(read(&path), []);
        let client = ClientKey::new(files::fresh_key().public());
        std::fs::write(&path, format!("{client} 17\nnonsense\n{client}\n")).unwrap();
        assert_eq!(read(&path), [(client, 17)]);
    }
}
