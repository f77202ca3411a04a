//! An entry becomes content again: metadata first, then its pages in any order, then the whole's MACs.
//!
//! Nothing of a page goes anywhere before its id (`crate::prove`), its MAC and its tag hold. The index is
//! checked as well: an entry's list of pages is not signed, and pages of the right entry in the wrong
//! order would else give wrong bytes to a range read, which sees no whole.
//!
//! Decompression is bounded: a chunk opens to exactly the bytes its place calls for, a gzip stream to at
//! most the stated size, in small parts.

use std::sync::Arc;

use bytes::Bytes;
use crypto::seal::TAG_BYTES;
use crypto::{ChunkTag, Eek, RecordId, SealError, Suite};

use crate::chunk;
use crate::content::ContentAssembler;
use crate::entry::{Entry, EntryContent, LIST_INDEX_BASE};
use crate::layout::Layout;
use crate::macs::ContentMacs;
use crate::metadata::{CompressionCodec, EntryMetadata, WholeMacs};
use crate::page::Page;
use crate::seal::{PageKeys, Thresholds};
use crate::stripe::Stripe;
use crate::{DocumentError, fields};

/// A chunk that a page opened to.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Its bytes.
    pub bytes: Bytes,
    /// Its tag, where the MACs over the whole are made of such.
    pub tag: Option<ChunkTag>,
}

/// Opens one entry's pages. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct EntryOpener {
    keys: Arc<PageKeys>,
    metadata: Arc<EntryMetadata>,
    layout: Layout,
    stripe_pages: Option<u32>,
    thresholds: Thresholds,
    /// Whether chunks are opened with their tags.
    tags: bool,
}

impl EntryOpener {
    /// Opens the entry's metadata: checks its MAC and its tag, and that it fits the entry.
    ///
    /// # Errors
    /// [`DocumentError::Seal`] for another EEK or changed metadata, and what the metadata can be wrong in.
    pub fn new(suite: Suite, entry: &Entry, eek: Eek) -> Result<Self, DocumentError> {
        Self::with_thresholds(suite, entry, eek, Thresholds::default())
    }

    pub(crate) fn with_thresholds(
        suite: Suite,
        entry: &Entry,
        eek: Eek,
        thresholds: Thresholds,
    ) -> Result<Self, DocumentError> {
        let metadata =
            eek.open_metadata(suite, &entry.metadata_ciphertext, &entry.metadata_ciphertext_mac)?;
        let metadata = EntryMetadata::decode(&metadata)?;
        let fits = match suite {
            Suite::Holdfast1 => metadata.codec == CompressionCodec::ZstdChunks,
            Suite::Libri1 => metadata.codec != CompressionCodec::ZstdChunks,
        };
        if !fits {
            return Err(DocumentError::Field("compression codec"));
        }
        if suite == Suite::Libri1 && metadata.whole_macs != WholeMacs::Bytes {
            return Err(DocumentError::Field("what the MACs over the whole cover"));
        }
        if suite == Suite::Libri1 && entry.content.stripe_pages().is_some() {
            return Err(DocumentError::Suite("an entry of stripes"));
        }
        if suite == Suite::Libri1 && metadata.uncompressed_size == 0 {
            return Err(DocumentError::Empty);
        }
        let opener = Self {
            keys: Arc::new(PageKeys::new(suite, eek, metadata.whole_macs)),
            metadata: Arc::new(metadata),
            layout: entry.content.stripe_pages().map_or(Layout::copies(), Layout::new),
            stripe_pages: entry.content.stripe_pages(),
            thresholds,
            tags: true,
        };
        opener.check_count(entry)?;
        Ok(opener)
    }

    /// Whether the entry names as many pages, stripes or lists as its content's size calls for, and no more pages than
    /// there are indexes. In `libri-1` the size of the compressed stream alone counts, which the whole's MAC checks at
    /// the end.
    fn check_count(&self, entry: &Entry) -> Result<(), DocumentError> {
        if self.page_count().is_some_and(|pages| pages > u64::from(LIST_INDEX_BASE)) {
            return Err(DocumentError::TooMuchContent);
        }
        let Some(named) = self.named_count() else { return Ok(()) };
        let (wanted, found) = match &entry.content {
            EntryContent::Inline(_) => (named, 1),
            EntryContent::Pages(ids) | EntryContent::Stripes { ids, .. } => (named, ids.len()),
            EntryContent::Lists(lists) | EntryContent::ListedStripes { lists, .. } => {
                (named.div_ceil(self.thresholds.list_keys as u64), lists.len())
            }
        };
        let found = found as u64;
        if wanted == found { Ok(()) } else { Err(DocumentError::PageCount { wanted, found }) }
    }

    /// The suite it is sealed in.
    pub fn suite(&self) -> Suite {
        self.keys.suite
    }

    /// The content's metadata.
    pub fn metadata(&self) -> &EntryMetadata {
        &self.metadata
    }

    /// As it is, for whoever reads parts alone and puts nothing whole together: chunks have no tags, which takes a pass over each.
    #[must_use]
    pub fn without_tags(&self) -> Self {
        Self { tags: false, ..self.clone() }
    }

    /// How the content is cut; `None` in `libri-1`, where no part can be read alone.
    pub fn layout(&self) -> Option<Layout> {
        (self.keys.suite == Suite::Holdfast1).then_some(self.layout)
    }

    /// How many pages the content has; `None` in `libri-1`, where the entry's list says.
    pub fn page_count(&self) -> Option<u64> {
        self.layout().map(|layout| layout.chunk_count(self.metadata.uncompressed_size))
    }

    /// Pages a stripe (k); `None` where the content is not in stripes. Page i is page i mod k of stripe i / k.
    pub fn stripe_pages(&self) -> Option<u32> {
        self.stripe_pages
    }

    /// Whether a stripe's header is of as many pages as the entry says. Else its pages are not the ones that
    /// division finds.
    ///
    /// # Errors
    /// [`DocumentError::StripePages`].
    pub fn check_stripe(&self, id: RecordId, stripe: &Stripe) -> Result<(), DocumentError> {
        let (wanted, found) = (self.stripe_pages.unwrap_or(0), stripe.k());
        if wanted == found {
            return Ok(());
        }
        Err(DocumentError::StripePages { id, wanted, found })
    }

    /// How many ids the entry, or its list pages together, hold: of pages or of stripes.
    fn named_count(&self) -> Option<u64> {
        let pages = self.page_count()?;
        Some(self.stripe_pages.map_or(pages, |k| pages / u64::from(k)))
    }

    /// Opens list page `list` (from 0): the ids of its pages, or of its stripes, in order.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn open_list(&self, list: u32, page: &Page) -> Result<Vec<RecordId>, DocumentError> {
        let index = LIST_INDEX_BASE.checked_add(list).ok_or(DocumentError::TooMuchContent)?;
        let keys = self.open(index, page)?;
        let max = self.thresholds.list_keys;
        let (ids, rest) = keys.as_chunks::<32>();
        if !rest.is_empty() || !(1..=max).contains(&ids.len()) {
            return Err(DocumentError::Field("list page"));
        }
        if let Some(named) = self.named_count() {
            let wanted = named.saturating_sub(u64::from(list) * max as u64).min(max as u64);
            if wanted != ids.len() as u64 {
                return Err(DocumentError::PageCount { wanted, found: ids.len() as u64 });
            }
        }
        ids.iter().map(|id| fields::id(id, "key in a list page")).collect()
    }

    /// Opens page `index`: its chunk. In `holdfast-1` that is the content's bytes of
    /// `layout().chunk_range(index, size)`, in `libri-1` the next part of the compressed stream. CPU work of
    /// about half a millisecond for 2 MiB.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn open_page(&self, index: u32, page: &Page) -> Result<Bytes, DocumentError> {
        self.open_page_into(index, page, |len| vec![0; len])
    }

    /// As [`EntryOpener::open_page`], into memory of so many bytes as `room` is asked for, which the chunk stays in where it is kept
    /// as it is: from the byte [`CHUNK_AT`](crate::CHUNK_AT) on in `holdfast-1`.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn open_page_into<R: AsRef<[u8]> + AsMut<[u8]> + Send + 'static>(
        &self,
        index: u32,
        page: &Page,
        room: impl FnOnce(usize) -> R,
    ) -> Result<Bytes, DocumentError> {
        if index >= LIST_INDEX_BASE {
            return Err(DocumentError::TooMuchContent);
        }
        let (suite, eek) = (self.keys.suite, &self.keys.eek);
        self.check(index, page)?;
        let length = page.ciphertext.len().checked_sub(TAG_BYTES).ok_or(SealError::Length)?;
        let mut opened = room(length);
        eek.open_page_into(suite, index, &page.ciphertext, opened.as_mut())?;
        let bytes = Bytes::from_owner(opened);
        match suite {
            Suite::Holdfast1 => {
                let size = self.metadata.uncompressed_size;
                let range = self.layout.chunk_range(u64::from(index), size);
                chunk::decode(bytes, (range.end - range.start) as usize)
            }
            Suite::Libri1 => Ok(bytes),
        }
    }

    /// As [`EntryOpener::open_page_into`], with the chunk's tag where the MACs over the whole are made of such: for a
    /// [`ContentAssembler`].
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn open_chunk<R: AsRef<[u8]> + AsMut<[u8]> + Send + 'static>(
        &self,
        index: u32,
        page: &Page,
        room: impl FnOnce(usize) -> R,
    ) -> Result<Chunk, DocumentError> {
        let bytes = self.open_page_into(index, page, room)?;
        let tag = match self.keys.form {
            WholeMacs::Tags if self.tags => Some(self.keys.whole.chunk_tag(index, &bytes)?),
            WholeMacs::Tags | WholeMacs::Bytes => None,
        };
        Ok(Chunk { bytes, tag })
    }

    fn open(&self, index: u32, page: &Page) -> Result<Vec<u8>, DocumentError> {
        self.check(index, page)?;
        Ok(self.keys.eek.open_page(self.keys.suite, index, &page.ciphertext)?)
    }

    /// Whether a page is this one of this content, by its MAC.
    fn check(&self, index: u32, page: &Page) -> Result<(), DocumentError> {
        if page.index != index {
            return Err(DocumentError::PageIndex { wanted: index, found: page.index });
        }
        let is_mac = self.keys.is_mac(&page.ciphertext, &page.mac)?;
        #[cfg(feature = "planted-bugs")]
        let is_mac = is_mac || crate::planted::is_on(crate::planted::PlantedBug::SkipPageMac);
        if is_mac {
            return Ok(());
        }
        Err(DocumentError::Seal(SealError::Mac))
    }

    /// Puts the content together from its pages, fed in order.
    pub fn assembler(&self) -> ContentAssembler {
        ContentAssembler::new(self)
    }

    pub(crate) fn shared_metadata(&self) -> Arc<EntryMetadata> {
        Arc::clone(&self.metadata)
    }

    pub(crate) fn macs(&self) -> ContentMacs {
        ContentMacs::new(&self.keys)
    }
}

impl std::fmt::Debug for EntryOpener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EntryOpener({}, {:?})", self.keys.suite, self.metadata)
    }
}
