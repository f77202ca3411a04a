//! Content becomes an entry: each chunk a page, the pages' ids and the metadata an entry.
//!
//! ```text
//!  chunk 0 -- ticket 0 .seal -> page 0 --+            (any thread, any order)
//!  chunk 1 -- ticket 1 .seal -> page 1 --+-- ids in order --> finish -> entry (+ list pages)
//!  their MACs in order -------------------- ContentMacs -----^
//! ```
//!
//! Invariants:
//! 1. No index is sealed twice under one EEK. An [`EntrySealer`] takes the EEK, hands out each index once
//!    as a [`PageTicket`] that is neither `Clone` nor `Copy`, and sealing consumes the ticket.
//! 2. An entry names exactly the pages whose tickets were handed out, and its MACs cover exactly these:
//!    asserted in [`EntrySealer::finish`].
//!
//! What it costs to seal an incompressible 2 MiB chunk in `holdfast-1`: zstd's attempt, one copy of the
//! chunk into the record's own buffer, the chunk's tag (a GMAC), the cipher in place, and the id over the
//! record. The buffer starts with room for the longest head, so nothing is
//! moved afterwards. A chunk that was read into memory with that room is sealed where it lies ([`PageTicket::seal_in_place`]), without the copy.

use std::sync::Arc;

use bytes::Bytes;
use crypto::{
    AuthorKey, ChunkTag, Eek, HASHED_BYTES, HashState, Mac, RecordId, SealError, Suite, WholeKeys,
};
use zeroize::Zeroizing;

use crate::entry::{
    Entry, EntryContent, LIST_INDEX_BASE, LIST_KEYS_MAX, LIST_PAGE_KEYS_MAX, PAGE_KEYS_MAX,
};
use crate::layout::Layout;
use crate::macs::ContentMacs;
use crate::metadata::{
    CompressionCodec, ContentInfo, EntryMetadata, METADATA_INLINE_BYTES_MAX, WholeMacs,
};
use crate::page::{self, HEAD_BYTES_MAX, Page, TAIL_BYTES};
use crate::record::CHUNK_BYTES_MAX;
use crate::{Document, DocumentError, Kind, Record, chunk};

/// Content of up to this many bytes lies in its entry (`holdfast-1`).
pub const INLINE_BYTES_MAX: u64 = 16 << 10;
/// Room before a chunk that is sealed where it lies: for the page's head and the byte that names the chunk's codec.
pub const CHUNK_PREFIX_BYTES: usize = HEAD_BYTES_MAX + chunk::CHUNK_AT;
/// Room behind it: for the cipher's tag and the page's MAC. Where there is less the chunk is moved.
pub const CHUNK_SUFFIX_BYTES: usize = page::CIPHERTEXT_BYTES_MIN + TAIL_BYTES;
/// What `libri-1`, which knows no entry without a media type, says where none is given.
const MEDIA_TYPE_UNKNOWN: &str = "application/octet-stream";

/// What sealing and opening pages of one entry takes.
pub(crate) struct PageKeys {
    pub(crate) suite: Suite,
    pub(crate) eek: Eek,
    /// What the MACs of pages and over the whole are of.
    pub(crate) form: WholeMacs,
    /// Of the MACs of ciphertexts.
    pub(crate) mac_key: Zeroizing<[u8; 32]>,
    /// Of those of tags.
    pub(crate) whole: WholeKeys,
}

impl PageKeys {
    pub(crate) fn new(suite: Suite, eek: Eek, form: WholeMacs) -> Self {
        let mac_key = eek.mac_key(suite);
        let whole = eek.whole_keys();
        Self { suite, eek, form, mac_key, whole }
    }

    /// Whether this is the MAC of a page by its ciphertext, compared in constant time.
    pub(crate) fn is_mac(&self, ciphertext: &[u8], mac: &Mac) -> Result<bool, SealError> {
        match self.form {
            WholeMacs::Bytes => Ok(self.suite.verify_mac(&self.mac_key, ciphertext, mac)),
            WholeMacs::Tags => self.whole.is_page_mac(ciphertext, mac),
        }
    }
}

/// From how many ids on they move to list pages, and how many go into one. Tests lower them.
#[derive(Clone, Copy)]
pub(crate) struct Thresholds {
    pub(crate) entry_keys: usize,
    pub(crate) list_keys: usize,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { entry_keys: PAGE_KEYS_MAX, list_keys: LIST_PAGE_KEYS_MAX }
    }
}

/// Seals one content under one EEK.
pub struct EntrySealer {
    keys: Arc<PageKeys>,
    author: AuthorKey,
    next: u32,
    thresholds: Thresholds,
}

/// The right to seal one chunk at one index, once.
pub struct PageTicket {
    keys: Arc<PageKeys>,
    author: AuthorKey,
    index: u32,
    /// The tag of the chunk it is for, where that is known.
    tag: Option<ChunkTag>,
}

/// A chunk's length in bytes, and its tag.
struct Of {
    bytes: usize,
    tag: ChunkTag,
}

/// A sealed chunk.
#[derive(Clone, Debug)]
pub struct SealedPage {
    /// The page; its ciphertext shares the record's bytes.
    pub page: Page,
    /// Its record.
    pub record: Record,
    /// The chunk's length, in bytes, before it was sealed.
    pub chunk_bytes: usize,
    /// The chunk's tag.
    pub chunk_tag: ChunkTag,
}

/// A content's sealed pages, for the entry.
pub enum SealedContent {
    /// The only page. It goes into the entry where it may, else it comes back in [`Finished::page`].
    Single(Box<SealedPage>),
    /// The ids of all pages, in order. Their records are the caller's to store.
    Pages(Vec<RecordId>),
    /// Stripes of `k` pages each, in order (`holdfast-1`). The pages are the chunks of
    /// [`crate::Layout::new`]`(k)`, k tickets a stripe; the stripes' records are the caller's to store.
    Stripes {
        /// Pages a stripe, 1 to 255.
        k: u32,
        /// The stripes' ids.
        ids: Vec<RecordId>,
    },
}

/// An entry and what else has to be stored for it.
#[derive(Debug)]
pub struct Finished {
    /// The entry.
    pub entry: Record,
    /// The single page, where it did not go into the entry.
    pub page: Option<Record>,
    /// The list pages.
    pub lists: Vec<Record>,
    /// What was sealed as the metadata.
    pub metadata: EntryMetadata,
}

impl EntrySealer {
    /// A sealer for one content. `eek` is fresh random bytes and is used for nothing else; `author` is the
    /// key that seals the envelopes.
    pub fn new(suite: Suite, eek: Eek, author: AuthorKey) -> Self {
        let keys = Arc::new(PageKeys::new(suite, eek, WholeMacs::of(suite)));
        Self { keys, author, next: 0, thresholds: Thresholds::default() }
    }

    /// The right to seal the next chunk.
    ///
    /// # Errors
    /// [`DocumentError::TooMuchContent`] past 2^31 chunks.
    pub fn ticket(&mut self) -> Result<PageTicket, DocumentError> {
        if self.next >= LIST_INDEX_BASE {
            return Err(DocumentError::TooMuchContent);
        }
        let index = self.next;
        self.next += 1;
        #[cfg(feature = "planted-bugs")]
        let index = match crate::planted::is_on(crate::planted::PlantedBug::SealTwice) {
            true => 0,
            false => index,
        };
        Ok(PageTicket { keys: Arc::clone(&self.keys), author: self.author, index, tag: None })
    }

    /// The MACs of this content, nothing fed yet.
    pub fn macs(&self) -> ContentMacs {
        ContentMacs::new(&self.keys)
    }

    /// Makes the entry. `created_time` is Unix seconds.
    ///
    /// # Errors
    /// [`DocumentError`]: empty content in `libri-1`, metadata that is too long, a created time of 0.
    ///
    /// # Panics
    /// Where the pages are not as many as the tickets handed out and the pages fed to `macs`, or stripes
    /// not as many as the content's size calls for.
    pub fn finish(
        self,
        macs: ContentMacs,
        content: SealedContent,
        info: ContentInfo,
        created_time: u32,
    ) -> Result<Finished, DocumentError> {
        let pages = match &content {
            SealedContent::Single(_) => 1,
            SealedContent::Pages(ids) => ids.len() as u64,
            SealedContent::Stripes { .. } if self.keys.suite == Suite::Libri1 => {
                return Err(DocumentError::Suite("an entry of stripes"));
            }
            SealedContent::Stripes { k, ids } => {
                let called_for = Layout::new(*k).chunk_count(macs.plaintext_bytes());
                let pages = ids.len() as u64 * u64::from(*k);
                assert_eq!(pages, called_for, "stripes are cut as the layout says");
                pages
            }
        };
        assert_eq!(pages, u64::from(self.next), "an entry names every page that was sealed");
        assert_eq!(pages, macs.pages(), "the MACs cover every page of the entry");
        let metadata = self.metadata(macs, info)?;
        let encoded = metadata.encode()?;
        let mut lists = Vec::new();
        let (content, page) = match content {
            SealedContent::Single(sealed) => self.place_single(*sealed, &metadata, encoded.len()),
            SealedContent::Pages(ids) if ids.len() > self.thresholds.entry_keys => {
                lists = self.seal_lists(&ids)?;
                (EntryContent::Lists(lists.iter().map(|list| list.id).collect()), None)
            }
            SealedContent::Pages(ids) => (EntryContent::Pages(ids), None),
            SealedContent::Stripes { k, ids } if ids.len() > self.thresholds.entry_keys => {
                lists = self.seal_lists(&ids)?;
                let lists = lists.iter().map(|list| list.id).collect();
                (EntryContent::ListedStripes { k, lists }, None)
            }
            SealedContent::Stripes { k, ids } => (EntryContent::Stripes { k, ids }, None),
        };
        let suite = self.keys.suite;
        let (sealed, metadata_ciphertext_mac) = self.keys.eek.seal_metadata(suite, encoded)?;
        let entry = Document::Entry(Entry {
            author: self.author,
            content,
            created_time,
            metadata_ciphertext: sealed.into(),
            metadata_ciphertext_mac,
        });
        // What nobody could decode must not be written: the same checks, once an entry.
        let (entry, _) = Record::from_bytes(suite, entry.encode())?;
        Ok(Finished { entry, page, lists, metadata })
    }

    fn metadata(
        &self,
        macs: ContentMacs,
        mut info: ContentInfo,
    ) -> Result<EntryMetadata, DocumentError> {
        let (uncompressed_size, ciphertext_size) =
            (macs.plaintext_bytes(), macs.ciphertext_bytes());
        let codec = match self.keys.suite {
            Suite::Holdfast1 => CompressionCodec::ZstdChunks,
            Suite::Libri1 if uncompressed_size == 0 => return Err(DocumentError::Empty),
            Suite::Libri1 => {
                if info.media_type.is_empty() {
                    info.media_type = MEDIA_TYPE_UNKNOWN.to_owned();
                }
                CompressionCodec::Gzip
            }
        };
        let whole_macs = macs.form();
        let (uncompressed_mac, ciphertext_mac) = macs.finish();
        Ok(EntryMetadata {
            info,
            codec,
            ciphertext_size,
            ciphertext_mac,
            uncompressed_size,
            uncompressed_mac,
            whole_macs,
        })
    }

    /// In the entry where it is small (any single page in `libri-1`) and so is the metadata; else a record
    /// of its own.
    fn place_single(
        &self,
        sealed: SealedPage,
        metadata: &EntryMetadata,
        metadata_bytes: usize,
    ) -> (EntryContent, Option<Record>) {
        let small = match self.keys.suite {
            Suite::Holdfast1 => metadata.uncompressed_size <= INLINE_BYTES_MAX,
            Suite::Libri1 => true,
        };
        if small && metadata_bytes <= METADATA_INLINE_BYTES_MAX {
            return (EntryContent::Inline(sealed.page), None);
        }
        (EntryContent::Pages(vec![sealed.record.id]), Some(sealed.record))
    }

    fn seal_lists(&self, ids: &[RecordId]) -> Result<Vec<Record>, DocumentError> {
        let lists = ids.chunks(self.thresholds.list_keys);
        if lists.len() > LIST_KEYS_MAX {
            return Err(DocumentError::TooMuchContent);
        }
        let sealed = lists.zip(LIST_INDEX_BASE..).map(|(ids, index)| {
            let keys: Vec<u8> = ids.iter().flat_map(|id| *id.as_bytes()).collect();
            let ticket =
                PageTicket { keys: Arc::clone(&self.keys), author: self.author, index, tag: None };
            // A list's tag goes nowhere.
            let of = Of { bytes: keys.len(), tag: ChunkTag::default() };
            ticket.seal_with(of, |out| Ok([out, keys].concat())).map(|list| list.record)
        });
        sealed.collect()
    }
}

impl PageTicket {
    /// The index it is for.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// The tag of the chunk that this ticket is to seal, by which a chunk is known before it is sealed. Sealing another one then is the
    /// caller's defect, and makes an entry that nobody can read whole.
    ///
    /// # Errors
    /// [`DocumentError::Seal`]: no chunk is too long.
    pub fn tag(&mut self, chunk: &[u8]) -> Result<ChunkTag, DocumentError> {
        let tag = self.keys.whole.chunk_tag(self.index, chunk)?;
        self.tag = Some(tag);
        Ok(tag)
    }

    /// Seals a chunk: compresses it (`holdfast-1`), encrypts it, and makes the record. CPU work of about a
    /// millisecond for 2 MiB.
    ///
    /// # Errors
    /// [`DocumentError::Chunk`] above [`CHUNK_BYTES_MAX`].
    pub fn seal(self, chunk: &[u8]) -> Result<SealedPage, DocumentError> {
        if chunk.len() > CHUNK_BYTES_MAX {
            return Err(DocumentError::Chunk { wanted: CHUNK_BYTES_MAX });
        }
        let suite = self.keys.suite;
        let of = self.of(chunk)?;
        self.seal_with(of, |mut out| match suite {
            Suite::Holdfast1 => chunk::encode(chunk, out),
            Suite::Libri1 => {
                out.extend_from_slice(chunk);
                Ok(out)
            }
        })
    }

    /// Seals the chunk that lies in `memory` behind [`CHUNK_PREFIX_BYTES`], whatever these are: where it lies, if it does not shrink.
    /// The page is that of [`PageTicket::seal`].
    ///
    /// # Errors
    /// As [`PageTicket::seal`].
    ///
    /// # Panics
    /// Where `memory` is shorter than the room before the chunk.
    pub fn seal_in_place(self, mut memory: Vec<u8>) -> Result<SealedPage, DocumentError> {
        let chunk = &memory[CHUNK_PREFIX_BYTES..];
        let bytes = chunk.len();
        if self.keys.suite == Suite::Libri1 || bytes > CHUNK_BYTES_MAX {
            return self.seal(chunk);
        }
        let room = CHUNK_PREFIX_BYTES + bytes + CHUNK_SUFFIX_BYTES;
        let of = self.of(chunk)?;
        match chunk::compressed(chunk, HEAD_BYTES_MAX, room)? {
            Some(buffer) => self.seal_buffer(buffer, of),
            None => {
                memory[HEAD_BYTES_MAX] = chunk::RAW;
                self.seal_buffer(memory, of)
            }
        }
    }

    /// What is known of a chunk before it is sealed where it lies.
    fn of(&self, chunk: &[u8]) -> Result<Of, DocumentError> {
        let made = || self.keys.whole.chunk_tag(self.index, chunk);
        let tag = self.tag.map_or_else(made, Ok)?;
        debug_assert_eq!(made(), Ok(tag), "the chunk that the ticket was shown is sealed");
        Ok(Of { bytes: chunk.len(), tag })
    }

    /// Seals what `write` appends to the buffer it is given.
    fn seal_with(
        self,
        of: Of,
        write: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, DocumentError>,
    ) -> Result<SealedPage, DocumentError> {
        let mut buffer = Vec::with_capacity(CHUNK_PREFIX_BYTES + of.bytes + CHUNK_SUFFIX_BYTES);
        buffer.resize(HEAD_BYTES_MAX, 0);
        self.seal_buffer(write(buffer)?, of)
    }

    /// Seals what lies in `buffer` behind the room for the head.
    fn seal_buffer(self, mut buffer: Vec<u8>, of: Of) -> Result<SealedPage, DocumentError> {
        let PageKeys { suite, eek, form, mac_key, whole } = &*self.keys;
        let tag = eek.seal_page_in_place(*suite, self.index, &mut buffer[HEAD_BYTES_MAX..])?;
        buffer.extend_from_slice(&tag);
        let end = buffer.len();
        let head = page::head(&self.author, self.index, end - HEAD_BYTES_MAX);
        let start = HEAD_BYTES_MAX - head.len();
        buffer[start..HEAD_BYTES_MAX].copy_from_slice(&head);
        let ciphertext = &buffer[HEAD_BYTES_MAX..];
        let (mac, mut id) = match form {
            WholeMacs::Tags => {
                let mut id = suite.hash_state();
                id.update(&buffer[start..]);
                (whole.page_mac(ciphertext)?, id)
            }
            WholeMacs::Bytes => mac_and_id(*suite, mac_key, ciphertext, &buffer[start..]),
        };
        let tail = page::tail(&mac);
        id.update(&tail);
        let id = RecordId::new(id.finish());
        buffer.extend_from_slice(&tail);
        let buffer = Bytes::from(buffer);
        let ciphertext = buffer.slice(HEAD_BYTES_MAX..end);
        let page = Page { author: self.author, index: self.index, ciphertext, mac };
        let record = Record::of_hashed(id, Kind::Page, buffer.slice(start..));
        Ok(SealedPage { page, record, chunk_bytes: of.bytes, chunk_tag: of.tag })
    }
}

/// The MAC of a ciphertext, and the hash of the record up to its end, in one pass of the memory.
fn mac_and_id(suite: Suite, key: &[u8; 32], ciphertext: &[u8], record: &[u8]) -> (Mac, HashState) {
    let (mut mac, mut id) = (suite.mac_state(key), suite.hash_state());
    let mut ciphertext = ciphertext.chunks(HASHED_BYTES);
    // The ciphertext has no more parts than head and ciphertext have.
    for part in record.chunks(HASHED_BYTES) {
        id.update(part);
        if let Some(part) = ciphertext.next() {
            mac.update(part);
        }
    }
    (mac.finish(), id)
}

impl std::fmt::Debug for EntrySealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EntrySealer({} pages)", self.next)
    }
}

impl std::fmt::Debug for PageTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageTicket({})", self.index)
    }
}

#[cfg(test)]
mod tests;
