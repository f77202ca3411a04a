//! Until when a peer heard of all organisations which leases were ended, kept over restarts.
//!
//! `D/words` is that moment, Unix milliseconds in decimal digits. A peer's first questions after a start begin there: that it ran
//! does not say that it heard. Without the file they begin at its last announcement.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use librarian::Librarian;
use tokio_util::sync::CancellationToken;

use crate::client::blocking;
use crate::error::HoldError;
use crate::files::{self, Access};
use crate::out::one_line;

/// The file's name in the peer's directory.
pub(crate) const FILE: &str = "words";
/// It is written when it changed by so much: questions begin an hour earlier anyway.
const CHANGED_MS: u64 = 60_000;
/// How often an error is told that lasts.
const TOLD_EVERY: Duration = Duration::from_secs(3600);

/// What the file says.
pub(crate) fn read(path: &Path) -> Option<u64> {
    let bytes = files::read_small(path).ok()?;
    std::str::from_utf8(&bytes).ok()?.trim_end().parse().ok()
}

/// Writes it; what was written.
///
/// # Errors
/// Where the file cannot be written.
pub(crate) async fn write(librarian: &Librarian, path: &Arc<Path>) -> Result<u64, HoldError> {
    let (heard, path) = (librarian.words_heard_ms(), Arc::clone(path));
    // It waits for the disk.
    blocking(move || {
        files::replace(&path, format!("{heard}\n").as_bytes(), Access::Public)?;
        Ok(heard)
    })
    .await
}

/// Writes it at once and whenever it changed, until `stop`.
pub(crate) async fn write_all(librarian: Arc<Librarian>, path: Arc<Path>, stop: CancellationToken) {
    let (mut written, mut failing) = (None, Failing::default());
    loop {
        let heard = librarian.words_heard_ms();
        if written.is_none_or(|before| is_worth_writing(before, heard)) {
            match write(&librarian, &path).await {
                Ok(heard) => {
                    written = Some(heard);
                    if failing.is_over() {
                        tracing::info!("how far words were heard can be written again");
                    }
                }
                Err(error) => {
                    let error = one_line(&error);
                    if failing.is_new(&error, Instant::now()) {
                        tracing::warn!(
                            error,
                            "how far words were heard cannot be written: it is tried again each second"
                        );
                    }
                }
            }
        }
        tokio::select! {
            () = env::beat(env::BEAT) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// An error that comes again and again: it is told when it begins or is another one, and each hour.
#[derive(Debug, Default)]
struct Failing(Option<(String, Instant)>);

impl Failing {
    fn is_new(&mut self, error: &str, now: Instant) -> bool {
        let told = self.0.as_ref().is_some_and(|(last, at)| {
            last == error && now.saturating_duration_since(*at) < TOLD_EVERY
        });
        if !told {
            self.0 = Some((error.to_owned(), now));
        }
        !told
    }

    fn is_over(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// Whether the file is behind; where a calendar was ahead it is set back at once, since what the file says is not heard again.
fn is_worth_writing(written: u64, heard: u64) -> bool {
    heard < written || heard - written >= CHANGED_MS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_was_heard_under_a_calendar_that_was_ahead_is_taken_back_at_once() {
        assert!(!is_worth_writing(1_000, 1_000));
        assert!(!is_worth_writing(1_000, 999 + CHANGED_MS));
        assert!(is_worth_writing(1_000, 1_000 + CHANGED_MS));
        assert!(is_worth_writing(1_000, 999));
    }

    #[test]
    fn an_error_that_lasts_is_told_once_an_hour() {
        let (mut failing, start) = (Failing::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!failing.is_over());
        assert!(failing.is_new("full", at(0)) && !failing.is_new("full", at(3599)));
        assert!(failing.is_new("full", at(3600)) && !failing.is_new("full", at(3601)));
        assert!(failing.is_new("read-only", at(3602)) && !failing.is_new("read-only", at(3603)));
        assert!(failing.is_over() && !failing.is_over());
        assert!(failing.is_new("read-only", at(3604)));
    }

    #[test]
    fn noise_in_the_file_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        assert_eq!(read(&path), None);
        for (text, said) in
            [("17\n", Some(17)), ("17", Some(17)), ("", None), ("-1\n", None), ("x", None)]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&path), said, "{text:?}");
        }
    }
}
