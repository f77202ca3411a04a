//! The stage of a put that makes rows durable before their pages are sent.
//!
//! Rows of pages that wait together share one fsync: while it runs, the pages behind it are sealed and gather.

use std::sync::Arc;

use document::SealedContent;
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};

use super::{Passing, Sealed};
use crate::author::Author;
use crate::error::AuthorError;
use crate::job::Job;
use crate::journal::{Journal, Noted};

/// Pages whose rows share an fsync, at most. The window bounds them as well.
const TOGETHER_MAX: usize = 16;

impl Author {
    /// Notes pages as they come and hands them on. Without a journal it hands them on.
    pub(super) async fn note(
        &self,
        journal: Option<&Arc<Journal>>,
        mut pages: mpsc::Receiver<Passing>,
        mut noted: mpsc::Sender<Passing>,
    ) -> Result<(), AuthorError> {
        while let Some(first) = pages.next().await {
            let mut together = vec![first];
            while together.len() < TOGETHER_MAX
                && let Ok(page) = pages.try_recv()
            {
                together.push(page);
            }
            let rows: Vec<Noted> = together.iter().filter_map(|page| page.noted).collect();
            self.note_rows(journal, rows).await?;
            for page in together {
                if noted.send(page).await.is_err() {
                    return Err(AuthorError::Stopped);
                }
            }
        }
        Ok(())
    }

    /// Notes that the content has ended, and its only page where it has one: before its metadata is sealed.
    pub(super) async fn note_end(
        &self,
        journal: Option<&Arc<Journal>>,
        sealed: &Sealed,
    ) -> Result<(), AuthorError> {
        let Some(journal) = journal else { return Ok(()) };
        self.note_rows(Some(journal), sealed.unnoted.into_iter().collect()).await?;
        let pages = match &sealed.content {
            SealedContent::Single(_) => 1,
            SealedContent::Pages(ids) => ids.len(),
            SealedContent::Stripes { k, ids } => ids.len() * *k as usize,
        };
        let pages = u32::try_from(pages).map_err(|_| AuthorError::Stopped)?;
        let journal = Arc::clone(journal);
        Job::blocking(self.env(), move || journal.end(pages)).await.ok_or(AuthorError::Stopped)?
    }

    async fn note_rows(
        &self,
        journal: Option<&Arc<Journal>>,
        rows: Vec<Noted>,
    ) -> Result<(), AuthorError> {
        let Some(journal) = journal.filter(|_| rows.iter().any(Noted::is_new)) else {
            return Ok(());
        };
        let journal = Arc::clone(journal);
        Job::blocking(self.env(), move || journal.note(&rows)).await.ok_or(AuthorError::Stopped)?
    }
}
