//! A content that was found: its envelope and entry opened, its pages or stripes to be fetched one by one.
//!
//! A content over 32,768 pages or stripes has their ids in list pages of 65,536 each. A list is fetched when its first one is
//! needed, and one list is held at a time, so a range read of a huge file fetches one list and what it names.

use std::sync::Arc;

use crypto::RecordId;
use document::entry::LIST_PAGE_KEYS_MAX;
use document::{
    CHUNK_AT, Chunk, Document, DocumentError, EntryContent, EntryOpener, Kind, Page, Record,
};
use env::Env;
use env::disk::Room;
use walk::Walker;

use crate::author::{Author, Opened};
use crate::error::{AuthorError, Part};
use crate::job::Job;
use crate::types::Details;

/// An opened content.
pub(crate) struct Content {
    pub(crate) opened: Opened,
    pub(crate) entry: Record,
    pub(crate) created_s: u32,
    pub(crate) opener: EntryOpener,
    /// Whether a holder failed or lied so far.
    pub(crate) degraded: bool,
    held: EntryContent,
}

/// Where the n-th page of a content, or its n-th stripe, is.
pub(crate) enum At {
    /// A page by itself.
    Page(PageAt),
    /// A stripe, by its header.
    Stripe(RecordId),
}

/// Where a page that goes by itself is.
pub(crate) enum PageAt {
    /// In the entry.
    Inline(Page),
    /// A record of its own.
    Record(RecordId),
}

impl At {
    fn record(id: RecordId) -> Self {
        Self::Page(PageAt::Record(id))
    }
}

/// A page that was fetched and opened.
pub(crate) struct OpenedPage {
    pub(crate) page: Page,
    pub(crate) chunk: Chunk,
    /// Bytes of its record; 0 where it lay in the entry.
    pub(crate) bytes: u64,
    pub(crate) degraded: bool,
}

impl Author {
    /// Finds and opens what an address names.
    pub(crate) async fn content(&self, address: RecordId) -> Result<Content, AuthorError> {
        let opened = self.open(address).await?;
        self.content_of(opened).await
    }

    /// Finds and opens the entry that an envelope names.
    pub(crate) async fn content_of(&self, opened: Opened) -> Result<Content, AuthorError> {
        let found = self.fetch(Part::Entry, opened.envelope.entry).await?;
        let corrupt = |source| AuthorError::Corrupt { part: Part::Entry, source };
        let entry = match Document::decode(&found.record.bytes).map_err(corrupt)? {
            Document::Entry(entry) => entry,
            _ => return Err(corrupt(DocumentError::Kind)),
        };
        let opener = EntryOpener::new(self.suite(), &entry, opened.eek.clone()).map_err(corrupt)?;
        Ok(Content {
            degraded: opened.degraded || found.degraded,
            opened,
            entry: found.record,
            created_s: entry.created_time,
            opener,
            held: entry.content,
        })
    }
}

impl Content {
    /// What is sealed with it.
    pub(crate) fn details(&self) -> Details {
        let metadata = self.opener.metadata();
        let info = &metadata.info;
        Details {
            size: metadata.uncompressed_size,
            media_type: info.media_type.clone(),
            name: Some(info.filepath.clone()).filter(|name| !name.is_empty()),
            properties: info.properties.clone(),
            schema: info.schema.clone(),
            data_dictionary: info.data_dictionary.clone(),
        }
    }

    /// Bytes of the content.
    pub(crate) fn size(&self) -> u64 {
        self.opener.metadata().uncompressed_size
    }

    /// The list pages' ids.
    pub(crate) fn lists(&self) -> &[RecordId] {
        match &self.held {
            EntryContent::Lists(lists) | EntryContent::ListedStripes { lists, .. } => lists,
            EntryContent::Inline(_) | EntryContent::Pages(_) | EntryContent::Stripes { .. } => &[],
        }
    }

    /// Pages a stripe (k); `None` where the content is not in stripes.
    pub(crate) fn stripe_pages(&self) -> Option<u32> {
        self.held.stripe_pages()
    }

    /// What it is in, from the `first` on: its pages, or its stripes.
    pub(crate) fn parts(&self, first: u64) -> Parts<'_> {
        Parts { content: self, next: first, list: None, degraded: false }
    }
}

/// Goes through a content's pages or stripes.
pub(crate) struct Parts<'a> {
    content: &'a Content,
    next: u64,
    /// The list that was fetched last: its number and its ids.
    list: Option<(u64, Vec<RecordId>)>,
    pub(crate) degraded: bool,
}

impl Parts<'_> {
    /// Pages a stripe (k); `None` where the content is not in stripes.
    pub(crate) fn stripe_pages(&self) -> Option<u32> {
        self.content.stripe_pages()
    }

    /// The next one's number and where it is; `None` after the last.
    ///
    /// # Errors
    /// Where a list page cannot be fetched or does not open.
    pub(crate) async fn next(&mut self, author: &Author) -> Result<Option<(u32, At)>, AuthorError> {
        let at = match &self.content.held {
            EntryContent::Inline(page) => {
                (self.next == 0).then(|| At::Page(PageAt::Inline(page.clone())))
            }
            EntryContent::Pages(ids) => id_at(ids, self.next).map(At::record),
            EntryContent::Stripes { ids, .. } => id_at(ids, self.next).map(At::Stripe),
            EntryContent::Lists(lists) => self.listed(author, lists).await?.map(At::record),
            EntryContent::ListedStripes { lists, .. } => {
                self.listed(author, lists).await?.map(At::Stripe)
            }
        };
        let Some(at) = at else { return Ok(None) };
        let number = u32::try_from(self.next).map_err(|_| AuthorError::Corrupt {
            part: Part::Entry,
            source: DocumentError::TooMuchContent,
        })?;
        self.next += 1;
        Ok(Some((number, at)))
    }

    /// The next id of those in list pages.
    async fn listed(
        &mut self,
        author: &Author,
        lists: &[RecordId],
    ) -> Result<Option<RecordId>, AuthorError> {
        let per_list = LIST_PAGE_KEYS_MAX as u64;
        let (number, within) = (self.next / per_list, self.next % per_list);
        let Some(list) = id_at(lists, number) else { return Ok(None) };
        Ok(id_at(self.list(author, number, list).await?, within))
    }

    /// The ids in a list page.
    async fn list(
        &mut self,
        author: &Author,
        number: u64,
        id: RecordId,
    ) -> Result<&[RecordId], AuthorError> {
        if self.list.as_ref().is_none_or(|(held, _)| *held != number) {
            self.list = None;
            let number32 = u32::try_from(number).unwrap_or(u32::MAX);
            let part = Part::List(number32);
            let found = author.fetch(part, id).await?;
            self.degraded |= found.degraded;
            let opener = self.content.opener.clone();
            let open = move || {
                let page = page_of(&found.record)?;
                opener.open_list(number32, &page)
            };
            let ids = author.cpu(open).await?;
            let ids = ids.map_err(|source| AuthorError::Corrupt { part, source })?;
            self.list = Some((number, ids));
        }
        Ok(self.list.as_ref().map_or(&[], |(_, ids)| ids))
    }
}

/// Fetches a page, proves it and opens it, in a task of its own.
pub(crate) fn open_page(
    env: &Env,
    walker: &Arc<Walker>,
    opener: &EntryOpener,
    index: u32,
    at: PageAt,
) -> Job<Result<OpenedPage, AuthorError>> {
    let (walker, opener, within) = (Arc::clone(walker), opener.clone(), env.clone());
    Job::task(env, async move {
        let part = Part::Page(index);
        let (page, bytes, degraded) = match at {
            PageAt::Inline(page) => (page, 0, false),
            PageAt::Record(id) => {
                let found = walker.find(Some(Kind::Page), id, id.into()).await;
                let found = found.map_err(|source| AuthorError::Fetch { part, source })?;
                let page = page_of(&found.record);
                let page = page.map_err(|source| AuthorError::Corrupt { part, source })?;
                (page, found.record.bytes.len() as u64, found.degraded)
            }
        };
        opened(&within, &opener, index, page, bytes, degraded).await.ok_or(AuthorError::Stopped)?
    })
}

/// Opens a page that is at hand, on a CPU thread.
pub(crate) fn opened(
    env: &Env,
    opener: &EntryOpener,
    index: u32,
    page: Page,
    bytes: u64,
    degraded: bool,
) -> Job<Result<OpenedPage, AuthorError>> {
    let opener = opener.clone();
    Job::cpu(env, move || {
        // Where a file is written out of it directly.
        let chunk = opener.open_chunk(index, &page, |len| Room::new(len, CHUNK_AT));
        let chunk =
            chunk.map_err(|source| AuthorError::Corrupt { part: Part::Page(index), source })?;
        Ok(OpenedPage { page, chunk, bytes, degraded })
    })
}

/// The page in a record.
pub(crate) fn page_of(record: &Record) -> Result<Page, DocumentError> {
    match Document::decode(&record.bytes)? {
        Document::Page(page) => Ok(page),
        _ => Err(DocumentError::OtherKind { id: record.id, wanted: Kind::Page }),
    }
}

fn id_at(ids: &[RecordId], at: u64) -> Option<RecordId> {
    ids.get(usize::try_from(at).ok()?).copied()
}
