//! What programs that were killed left in the home, and nobody comes back for.
//!
//! A journal is gone on with by the next put of its file; where none comes, whoever puts or renews anything next removes it when it
//! is older than [`JOURNAL_AGE_MAX`], and drafts of the home's files that are as old. What a program that runs has is locked
//! (`journal::folder`), or is a draft for moments.

use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use crate::author::Author;
use crate::journal::JOURNAL_AGE_MAX;
use crate::put_file;

impl Author {
    /// Removes them, at the first call. What cannot be removed is left.
    pub(crate) async fn remove_leftovers(&self) {
        if self.tidied().swap(true, Ordering::Relaxed) {
            return;
        }
        let now = UNIX_EPOCH + Duration::from_millis(self.env().clock.unix_ms());
        let removed = self.at_home(move |home| {
            put_file::journals(home).remove_old(now);
            if let Some(before) = now.checked_sub(JOURNAL_AGE_MAX) {
                home.remove_drafts(before);
            }
            Ok(())
        });
        if let Err(error) = removed.await {
            tracing::debug!(%error, "what was left in the home stays");
        }
    }
}
