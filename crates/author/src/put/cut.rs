//! The first stage of a put: reads the source, cuts it into chunks, and starts sealing each.
//!
//! In `holdfast-1` a chunk is 2 MiB of the source, and the next one is sealed while the last one is. Where the content is kept
//! in stripes, a whole segment is read and cut into k equal chunks, since how long these are is known when it is
//! whole. In `libri-1` the source is compressed as one stream, on one CPU thread at a time, and the compressed stream is cut.
//!
//! Whether a page is the only one must be known before it is handed on, since a small one goes into the entry. In `holdfast-1`
//! one byte more than the chunk is read; in `libri-1` one chunk is kept back, outside of the window (2 MiB a put).

use std::sync::Arc;

use bytes::Bytes;
use crypto::Suite;
use document::{
    CHUNK_BYTES_MAX, CHUNK_PREFIX_BYTES, CHUNK_SUFFIX_BYTES, ContentMacs, DocumentError,
    EntrySealer, Layout, LibriCompressor, PageTicket, SealedPage,
};
use futures::SinkExt;
use futures::channel::mpsc;

use super::Way;
use super::code::Shape;
use super::source::Fill;
use crate::author::Author;
use crate::error::AuthorError;
use crate::job::Job;
use crate::journal::Noted;
use crate::window::Lease;

/// Bytes that a page has beyond its chunk, rounded up.
pub(super) const PAGE_EXTRA: usize = 1 << 10;

/// A chunk being sealed, and the part of the window it holds.
pub(super) struct Taken {
    pub(super) job: Job<Result<(SealedPage, Option<Noted>), AuthorError>>,
    /// Whether it is the content's only one.
    pub(super) only: bool,
    pub(super) lease: Arc<Lease>,
}

/// A chunk of the content.
pub(crate) enum Chunk {
    /// Behind [`CHUNK_PREFIX_BYTES`] in memory of its own, where it is sealed.
    Alone(Vec<u8>),
    /// Part of more, which is copied to be sealed.
    Part(Bytes),
}

impl Chunk {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Alone(memory) => &memory[CHUNK_PREFIX_BYTES..],
            Self::Part(bytes) => bytes,
        }
    }

    /// Its page. CPU work.
    pub(crate) fn seal(self, ticket: PageTicket) -> Result<SealedPage, AuthorError> {
        let sealed = match self {
            Self::Alone(memory) => ticket.seal_in_place(memory),
            Self::Part(bytes) => ticket.seal(&bytes),
        };
        sealed.map_err(AuthorError::Unsealable)
    }
}

impl Author {
    /// Reads and cuts the source to its end, and starts sealing what it cuts; answers the MAC of its plaintext, where that is of
    /// bytes (`libri-1`): what is cut there is compressed.
    pub(super) async fn cut(
        &self,
        source: impl Fill,
        sealer: &mut EntrySealer,
        taken: mpsc::Sender<Taken>,
        way: &Way<'_>,
    ) -> Result<ContentMacs, AuthorError> {
        let macs = sealer.macs();
        let mut cutting = Cutting { author: self, sealer, taken, way, macs };
        match (self.suite(), way.shape) {
            (_, Some(shape)) => cutting.segments(source, shape).await,
            (Suite::Holdfast1, None) => cutting.chunks(source).await,
            (Suite::Libri1, None) => cutting.stream(source).await,
        }?;
        Ok(cutting.macs)
    }
}

impl Way<'_> {
    /// What a page of so many bytes takes of memory while its copies are sent: itself, and a buffer for each on its way.
    pub(super) fn sending_cost(&self, bytes: usize) -> usize {
        bytes * (1 + self.pages.copies as usize)
    }

    /// What a chunk may take at one time: being sealed (itself, and its page where it shrinks) or being sent.
    fn chunk_cost(&self) -> usize {
        self.sending_cost(CHUNK_BYTES_MAX + PAGE_EXTRA)
    }
}

struct Cutting<'a> {
    author: &'a Author,
    sealer: &'a mut EntrySealer,
    taken: mpsc::Sender<Taken>,
    way: &'a Way<'a>,
    /// The plaintext's, where it is of bytes.
    macs: ContentMacs,
}

impl Cutting<'_> {
    /// `holdfast-1`: each chunk of the source by itself.
    async fn chunks(&mut self, mut source: impl Fill) -> Result<(), AuthorError> {
        let mut ahead = None;
        let mut first = true;
        loop {
            let lease = self.author.window().lease(self.way.chunk_cost()).await;
            let chunk = self.read(&mut source, ahead.take(), CHUNK_BYTES_MAX).await?;
            if length(&chunk) == CHUNK_BYTES_MAX {
                ahead = self.one_byte(&mut source).await?;
            }
            let last = ahead.is_none();
            self.start(Chunk::Alone(chunk), first && last, Arc::new(lease)).await?;
            if last {
                return Ok(());
            }
            first = false;
        }
    }

    /// Stripes: each segment of the source whole, in k chunks of one length.
    async fn segments(&mut self, mut source: impl Fill, shape: Shape) -> Result<(), AuthorError> {
        let layout = Layout::new(shape.k);
        // At most 16 MiB.
        let whole = layout.segment_bytes() as usize;
        let mut ahead = None;
        let mut first = true;
        loop {
            let lease = Arc::new(self.segment_lease(shape.cost(whole), first).await);
            let read = self.read_segment(&mut source, ahead.take(), &layout, shape.k).await?;
            let length: usize = read.iter().map(|part| length(part)).sum();
            if length == whole {
                ahead = self.one_byte(&mut source).await?;
            }
            let last = ahead.is_none();
            lease.shrink(shape.cost(length));
            if first && last && shape.inline_bytes_max.is_some_and(|max| length <= max) {
                // Less than a chunk: the first one read has all of it.
                let all = read.into_iter().next().unwrap_or_default();
                return self.start(Chunk::Alone(all), true, lease).await;
            }
            let chunks = if length < whole { recut(read, &layout, shape.k, length) } else { read };
            for chunk in chunks {
                self.start(Chunk::Alone(chunk), false, Arc::clone(&lease)).await?;
            }
            if last {
                return Ok(());
            }
            first = false;
        }
    }

    /// Where many programs want the processors, a segment waits until the one before is all sent: two under way make none
    /// of them faster then, and each is memory that the system has to give and to clear. What asks for the whole window
    /// is given it when nothing else has any.
    async fn segment_lease(&self, bytes: usize, first: bool) -> Lease {
        let window = self.author.window();
        if first || !self.author.env().tasks.crowded() {
            return window.lease(bytes).await;
        }
        let lease = window.lease(window.bytes()).await;
        lease.shrink(bytes);
        lease
    }

    /// Reads a segment, each chunk of a full one into memory of its own: buffers of one size serve one another, and a
    /// segment's is as long as four, for which there is often no room between what is in use. Of a short one the last has
    /// less than its part.
    async fn read_segment(
        &self,
        source: &mut impl Fill,
        mut ahead: Option<u8>,
        layout: &Layout,
        k: u32,
    ) -> Result<Vec<Vec<u8>>, AuthorError> {
        let mut chunks = Vec::with_capacity(k as usize);
        for index in 0..u64::from(k) {
            let range = layout.chunk_range(index, layout.segment_bytes());
            let wanted = (range.end - range.start) as usize;
            let chunk = self.read(source, ahead.take(), wanted).await?;
            let short = length(&chunk) < wanted;
            chunks.push(chunk);
            if short {
                break;
            }
        }
        Ok(chunks)
    }

    /// `libri-1`: the source compressed as a whole, then cut.
    async fn stream(&mut self, mut source: impl Fill) -> Result<(), AuthorError> {
        let mut compressor = LibriCompressor::new();
        let (mut kept, mut first, mut empty) = (None, true, true);
        loop {
            let lease = Arc::new(self.author.window().lease(self.way.chunk_cost()).await);
            let part = self.read(&mut source, None, CHUNK_BYTES_MAX).await?;
            let ended = length(&part) < CHUNK_BYTES_MAX;
            empty = empty && length(&part) == 0;
            if empty {
                return Err(AuthorError::Empty);
            }
            let mut macs = self.macs.clone();
            let work = move || {
                let part = &part[CHUNK_PREFIX_BYTES..];
                macs.add_plaintext(part);
                (macs, compress(compressor, part, ended))
            };
            let (macs, compressed) = self.author.cpu(work).await?;
            self.macs = macs;
            let (rest, chunks) = compressed.map_err(AuthorError::Unsealable)?;
            for chunk in chunks {
                if let Some(before) = kept.replace(Bytes::from(chunk)) {
                    self.start(Chunk::Part(before), false, Arc::clone(&lease)).await?;
                    first = false;
                }
            }
            match rest {
                Some(rest) => compressor = rest,
                None => {
                    let last = kept.take().unwrap_or_default();
                    return self.start(Chunk::Part(last), first, lease).await;
                }
            }
        }
    }

    /// Reads a chunk, with room around it for the page made of it: so many bytes, unless the source ended.
    async fn read(
        &self,
        source: &mut impl Fill,
        ahead: Option<u8>,
        bytes: usize,
    ) -> Result<Vec<u8>, AuthorError> {
        // As much as what parity takes: the allocator then serves both with memory of one size. Chunks of 2 MiB
        // sharp and pages a little over that, which take 2.5, cut each other's memory up, and 4 to 8 MiB lay idle.
        let mut chunk = Vec::with_capacity(bytes + PAGE_EXTRA);
        chunk.resize(CHUNK_PREFIX_BYTES, 0);
        chunk.extend(ahead);
        let left = bytes - length(&chunk);
        let mut chunk = self.fill(source, chunk, left).await?;
        if length(&chunk) < bytes {
            // The lease of a short segment is about to shrink to what it has.
            chunk.shrink_to(chunk.len() + CHUNK_SUFFIX_BYTES);
        }
        Ok(chunk)
    }

    /// The next byte of a source; `None` where it has ended.
    async fn one_byte(&self, source: &mut impl Fill) -> Result<Option<u8>, AuthorError> {
        Ok(self.fill(source, Vec::new(), 1).await?.first().copied())
    }

    async fn fill(
        &self,
        source: &mut impl Fill,
        into: Vec<u8>,
        bytes: usize,
    ) -> Result<Vec<u8>, AuthorError> {
        let read = |bytes| self.way.progress.content(bytes);
        source.fill(into, bytes, read).await.map_err(AuthorError::Read)
    }

    /// Starts sealing a chunk and hands it on.
    async fn start(
        &mut self,
        chunk: Chunk,
        only: bool,
        lease: Arc<Lease>,
    ) -> Result<(), AuthorError> {
        let ticket = self.sealer.ticket().map_err(AuthorError::Unsealable)?;
        let check = self.way.journal.map(|journal| journal.check(ticket.index()));
        let job = Job::cpu(self.author.env(), move || match check {
            Some(check) => check.seal(ticket, chunk).map(|(page, noted)| (page, Some(noted))),
            None => chunk.seal(ticket).map(|page| (page, None)),
        });
        self.taken.send(Taken { job, only, lease }).await.map_err(|_| AuthorError::Stopped)
    }
}

/// Bytes of a chunk that was read.
fn length(chunk: &[u8]) -> usize {
    chunk.len() - CHUNK_PREFIX_BYTES
}

/// The k chunks of a segment that is shorter than others, each in memory of its own as a full one's: how long they are is known
/// only when the source has ended. What was read goes as it is used up, so the segment is never there twice.
fn recut(read: Vec<Vec<u8>>, layout: &Layout, k: u32, length: usize) -> Vec<Vec<u8>> {
    let mut read = read.into_iter();
    let (mut part, mut at) = (Vec::new(), 0);
    let chunk = |index| {
        let range = layout.chunk_range(index, length as u64);
        let mut left = (range.end - range.start) as usize;
        let mut chunk = Vec::with_capacity(CHUNK_PREFIX_BYTES + left + CHUNK_SUFFIX_BYTES);
        chunk.resize(CHUNK_PREFIX_BYTES, 0);
        while left > 0 {
            if at == part.len() {
                let Some(next) = read.next() else { break };
                (part, at) = (next, CHUNK_PREFIX_BYTES);
            }
            let now = left.min(part.len() - at);
            chunk.extend_from_slice(&part[at..at + now]);
            (at, left) = (at + now, left - now);
        }
        chunk
    };
    (0..u64::from(k)).map(chunk).collect()
}

/// A compressor that has more to take, or none at the end of the stream; and the chunks that are full.
type Compressed = (Option<LibriCompressor>, Vec<Vec<u8>>);

fn compress(
    mut compressor: LibriCompressor,
    part: &[u8],
    ended: bool,
) -> Result<Compressed, DocumentError> {
    compressor.push(part)?;
    let mut chunks: Vec<_> = std::iter::from_fn(|| compressor.next_chunk()).collect();
    if !ended {
        return Ok((Some(compressor), chunks));
    }
    chunks.extend(compressor.finish()?);
    Ok((None, chunks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_segment_is_cut_as_the_layout_says_from_however_it_was_read() {
        for (k, length) in [
            (1, 0),
            (4, 0),
            (4, 1),
            (4, 3),
            (3, 100_001),
            (4, 3 << 20),
            (4, (8 << 20) - 1),
            (16, 77),
        ] {
            let layout = Layout::new(k);
            let content: Vec<u8> =
                (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let whole = layout.segment_bytes() as usize / k as usize;
            let behind = |bytes: &[u8]| [&[0; CHUNK_PREFIX_BYTES], bytes].concat();
            let mut read: Vec<Vec<u8>> = content.chunks(whole).map(behind).collect();
            if content.len().is_multiple_of(whole) {
                read.push(behind(&[]));
            }
            let chunks = recut(read, &layout, k, length);
            assert_eq!(chunks.len(), k as usize);
            for (chunk, index) in chunks.iter().zip(0..) {
                let range = layout.chunk_range(index, length as u64);
                let range = range.start as usize..range.end as usize;
                assert!(chunk[CHUNK_PREFIX_BYTES..] == content[range], "{k} {length} {index}");
                let room = CHUNK_PREFIX_BYTES + self::length(chunk) + CHUNK_SUFFIX_BYTES;
                assert!(chunk.capacity() >= room, "it is sealed where it lies");
            }
        }
    }
}
