//! A get: envelope, entry, then the pages, fetched ahead in parallel and written in order.
//!
//! ```text
//!  holders --> [fetch, prove, MAC, decrypt, decompress: several pages at once] --> whole MACs, in order --> write --> sink
//!                 ^                                                                                           |
//!          lease of the window  <--------------------- given back when the bytes are written -----------------+
//! ```
//! Nothing of a page reaches the sink before its id, its MAC and its tag hold. The MACs over the whole are checked at the
//! end, so a stream may have got bytes when they fail; a file gets its name only afterwards ([`Author::get_file`]).
//!
//! Of a content in stripes a stripe is fetched at once, or those of its pages that a range touches (see `stripes`).
//!
//! In `libri-1` the content is one compressed stream. It is decompressed in order and in small parts, so that a page that
//! decompresses to gigabytes takes some megabytes. A range is read by dropping what comes before it.

pub(crate) mod stripes;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use crypto::{RecordId, Suite};
use document::{CHUNK_BYTES_MAX, Chunk, DocumentError, EntryOpener};
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};

use crate::author::Author;
use crate::content::{At, Content, OpenedPage, open_page};
use crate::error::AuthorError;
use crate::job::Job;
use crate::progress::Progress;
use crate::sink::Sink;
use crate::types::{Details, GetReport, checked_range};
use crate::window::Lease;

/// Pages or stripes being fetched ahead, at most; the window bounds them as well.
const AHEAD_MAX: usize = 16;
/// What a page may take of memory at one time: itself, its ciphertext opened and its chunk.
const PAGE_COST: usize = 3 * CHUNK_BYTES_MAX;
/// Spans of the content that wait to be written.
const SPANS_MAX: usize = 4;
/// Bytes of a compressed stream that are decompressed at once: to a thousand times as many, at most.
const STREAM_PART_BYTES: usize = 8 << 10;

/// A page being opened.
type Opening = Job<Result<OpenedPage, AuthorError>>;

/// A page or a stripe on its way, and the part of the window it holds.
struct Ahead {
    fetching: Fetching,
    lease: Arc<Lease>,
}

/// What is on its way.
enum Fetching {
    Page(Opening),
    /// The wanted pages of a stripe, in order.
    Stripe(Job<Result<VecDeque<Opening>, AuthorError>>),
}

/// What was fetched ahead, page by page.
struct Pages {
    ahead: mpsc::Receiver<Ahead>,
    /// Those of the last one that are to come, and its part of the window.
    opening: VecDeque<Opening>,
    lease: Option<Arc<Lease>>,
}

impl Pages {
    fn new(ahead: mpsc::Receiver<Ahead>) -> Self {
        Self { ahead, opening: VecDeque::new(), lease: None }
    }

    /// The next page in order, and the part of the window it holds with others; `None` after the last.
    async fn next(&mut self) -> Result<Option<(OpenedPage, Arc<Lease>)>, AuthorError> {
        loop {
            if let Some((opening, lease)) = self.opening.pop_front().zip(self.lease.clone()) {
                let opened = opening.await.ok_or(AuthorError::Stopped)??;
                return Ok(Some((opened, lease)));
            }
            self.lease = None;
            let Some(Ahead { fetching, lease }) = self.ahead.next().await else { return Ok(None) };
            self.opening = match fetching {
                Fetching::Page(opening) => [opening].into(),
                Fetching::Stripe(job) => job.await.ok_or(AuthorError::Stopped)??,
            };
            self.lease = Some(lease);
        }
    }
}

/// Bytes on their way into a sink, which gives the lease back when it lets go of them.
struct Leased {
    bytes: Bytes,
    _lease: Arc<Lease>,
}

impl AsRef<[u8]> for Leased {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes of the content in order, and the part of the window they hold.
struct Span {
    bytes: Bytes,
    lease: Arc<Lease>,
}

impl Author {
    /// Writes the content at an address, or a range of its bytes, to `sink`.
    ///
    /// A range is checked against the content's size: one that starts or ends beyond it is refused. It has the checks of
    /// every page and not those of the whole.
    ///
    /// Cancel safe in that dropping it stops everything; the sink may have got some bytes.
    ///
    /// # Errors
    /// [`AuthorError::NotForUs`], [`AuthorError::Fetch`], [`AuthorError::Corrupt`] and [`AuthorError::Content`] (never
    /// wrong bytes before them), [`AuthorError::Range`], [`AuthorError::Write`].
    pub async fn get(
        &self,
        address: RecordId,
        sink: impl Sink,
        range: Option<Range<u64>>,
        progress: Arc<dyn Progress>,
    ) -> Result<GetReport, AuthorError> {
        let content = self.content(address).await?;
        self.write(&content, sink, range, progress).await
    }

    /// What is sealed with the content at an address, without the content.
    ///
    /// # Errors
    /// As [`Author::get`] before it writes anything.
    pub async fn details(&self, address: RecordId) -> Result<Details, AuthorError> {
        Ok(self.content(address).await?.details())
    }

    /// Writes an opened content.
    pub(crate) async fn write(
        &self,
        content: &Content,
        mut sink: impl Sink,
        range: Option<Range<u64>>,
        progress: Arc<dyn Progress>,
    ) -> Result<GetReport, AuthorError> {
        let size = content.size();
        let whole = range.is_none();
        let range = checked_range(range, size)
            .map_err(|Range { start, end }| AuthorError::Range { start, end, size })?;
        progress.total(range.end - range.start);
        let (fetched, to_open) = mpsc::channel(AHEAD_MAX);
        let (spans, to_write) = mpsc::channel(SPANS_MAX);
        let fetch = self.fetch_ahead(content, &range, whole, fetched);
        let ranged = !whole && self.suite() == Suite::Holdfast1;
        let pages = Pages::new(to_open);
        let open = async {
            if ranged {
                pass_on(pages, spans, &progress).await
            } else {
                self.assemble(content, whole, pages, spans, &progress).await
            }
        };
        let offset = offset(content, &range, whole);
        let write = write_range(&mut sink, offset, &range, whole, to_write, &progress);
        let (listed, opened, bytes) = futures::try_join!(fetch, open, write)?;
        if bytes != range.end - range.start {
            // The whole has its MACs; of a range in `libri-1` the pages that are named may end before what is stated.
            return Err(AuthorError::Content(DocumentError::Size("plaintext")));
        }
        sink.flush().await.map_err(AuthorError::Write)?;
        let degraded = content.degraded || listed || opened;
        Ok(GetReport { bytes, degraded, details: content.details() })
    }

    /// Starts fetching the pages that the range touches, in order, as the window has room. Answers whether a holder of a
    /// list page failed or lied.
    async fn fetch_ahead(
        &self,
        content: &Content,
        range: &Range<u64>,
        whole: bool,
        fetched: mpsc::Sender<Ahead>,
    ) -> Result<bool, AuthorError> {
        let wanted = match content.opener.layout() {
            Some(layout) if !whole => layout.chunks_of_range(range.clone(), content.size()),
            // Empty ranges of a stream need nothing of it.
            None if !whole && range.is_empty() => 0..0,
            _ => 0..content.opener.page_count().unwrap_or(u64::MAX),
        };
        let opener = match whole {
            true => content.opener.clone(),
            false => content.opener.without_tags(),
        };
        match content.stripe_pages() {
            Some(k) => self.fetch_stripes(content, (k, opener), wanted, fetched).await,
            None => self.fetch_pages(content, opener, wanted, fetched).await,
        }
    }

    async fn fetch_pages(
        &self,
        content: &Content,
        opener: EntryOpener,
        wanted: Range<u64>,
        mut fetched: mpsc::Sender<Ahead>,
    ) -> Result<bool, AuthorError> {
        let mut pages = content.parts(wanted.start);
        let mut left = wanted.end - wanted.start;
        while left > 0 {
            left -= 1;
            let Some((index, At::Page(at))) = pages.next(self).await? else { break };
            let lease = Arc::new(self.window().lease(PAGE_COST.min(self.window().bytes())).await);
            let opening = open_page(self.env(), self.walker(), &opener, index, at);
            if fetched.send(Ahead { fetching: Fetching::Page(opening), lease }).await.is_err() {
                // Nobody needs more: the end of the range was reached, or an error is on its way.
                break;
            }
        }
        Ok(pages.degraded)
    }

    /// Puts the whole content together, with the MACs over it. Answers whether a holder failed or lied.
    async fn assemble(
        &self,
        content: &Content,
        whole: bool,
        mut pages: Pages,
        mut spans: mpsc::Sender<Span>,
        progress: &Arc<dyn Progress>,
    ) -> Result<bool, AuthorError> {
        let mut assembler = content.opener.assembler();
        let mut degraded = false;
        while let Some((opened, lease)) = pages.next().await? {
            let OpenedPage { page, chunk, bytes, degraded: with } = opened;
            degraded |= with;
            progress.sealed(bytes);
            let mut page = Some(page);
            let Chunk { bytes, tag } = chunk;
            for part in self.parts(&bytes) {
                // With the first part.
                let page = page.take();
                let push = move || {
                    let mut out = Vec::new();
                    let pushed = page.map_or(Ok(()), |page| assembler.push_page(&page));
                    let pushed = pushed.and_then(|()| {
                        assembler.push_chunk(&part, tag.as_ref(), &mut |bytes| {
                            out.push(bytes);
                            Ok(())
                        })
                    });
                    (assembler, pushed.map(|()| out))
                };
                let (next, out) = self.cpu(push).await?;
                assembler = next;
                for bytes in out.map_err(AuthorError::Content)? {
                    let span = Span { bytes, lease: Arc::clone(&lease) };
                    if spans.send(span).await.is_err() {
                        return Ok(degraded);
                    }
                }
            }
        }
        if whole {
            self.cpu(move || assembler.finish()).await?.map_err(AuthorError::Content)?;
        }
        Ok(degraded)
    }

    /// A chunk, in the parts in which it may be decompressed.
    fn parts(&self, chunk: &Bytes) -> Vec<Bytes> {
        match self.suite() {
            Suite::Holdfast1 => vec![chunk.clone()],
            Suite::Libri1 => {
                // One at least, as the page goes with the first.
                let starts = (0..chunk.len().max(1)).step_by(STREAM_PART_BYTES);
                starts.map(|at| chunk.slice(at..chunk.len().min(at + STREAM_PART_BYTES))).collect()
            }
        }
    }
}

/// Where in the content the first byte is that is opened for this range.
fn offset(content: &Content, range: &Range<u64>, whole: bool) -> u64 {
    match content.opener.layout() {
        Some(layout) if !whole => {
            let chunks = layout.chunks_of_range(range.clone(), content.size());
            layout.chunk_range(chunks.start, content.size()).start
        }
        _ => 0,
    }
}

/// Hands on the chunks that a range touches, in order. Answers whether a holder failed or lied.
async fn pass_on(
    mut pages: Pages,
    mut spans: mpsc::Sender<Span>,
    progress: &Arc<dyn Progress>,
) -> Result<bool, AuthorError> {
    let mut degraded = false;
    while let Some((opened, lease)) = pages.next().await? {
        degraded |= opened.degraded;
        progress.sealed(opened.bytes);
        if spans.send(Span { bytes: opened.chunk.bytes, lease }).await.is_err() {
            break;
        }
    }
    Ok(degraded)
}

/// Writes those bytes of the spans that are in the range; the first span starts at `offset` of the content. Ends where
/// the range does. Answers how many bytes were written.
async fn write_range(
    sink: &mut impl Sink,
    mut offset: u64,
    range: &Range<u64>,
    whole: bool,
    mut spans: mpsc::Receiver<Span>,
    progress: &Arc<dyn Progress>,
) -> Result<u64, AuthorError> {
    let mut written = 0;
    while let Some(Span { bytes, lease }) = spans.next().await {
        let end = offset + bytes.len() as u64;
        let from = (range.start.clamp(offset, end) - offset) as usize;
        let to = (range.end.clamp(offset, end) - offset) as usize;
        if from < to {
            let bytes = Bytes::from_owner(Leased { bytes: bytes.slice(from..to), _lease: lease });
            sink.write(bytes).await.map_err(AuthorError::Write)?;
            written += (to - from) as u64;
            progress.content((to - from) as u64);
        }
        offset = end;
        // The whole is read to its end, where its MACs are checked.
        if !whole && offset >= range.end {
            break;
        }
    }
    Ok(written)
}
