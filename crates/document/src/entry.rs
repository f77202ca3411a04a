//! An entry: what a document is made of. Its page, or the ids of its pages or stripes, and sealed metadata.

use bytes::Bytes;
use crypto::{AuthorKey, Mac, RecordId};

use crate::fields;
use crate::layout::K_MAX;
use crate::metadata::{METADATA_BYTES_MAX, METADATA_INLINE_BYTES_MAX};
use crate::page::Page;
use crate::{DocumentError, wire};

/// The most page ids in an entry; above, they are in list pages.
pub const PAGE_KEYS_MAX: usize = 32_768;
/// The most stripes' ids in an entry; above, they are in list pages.
pub const STRIPE_KEYS_MAX: usize = PAGE_KEYS_MAX;
/// The most list pages of an entry: with 65,536 ids each they name every index below 2^31.
pub const LIST_KEYS_MAX: usize = 32_768;
/// The most ids in one list page.
pub const LIST_PAGE_KEYS_MAX: usize = 65_536;
/// The index of the first list page.
pub const LIST_INDEX_BASE: u32 = 1 << 31;

/// What holds the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryContent {
    /// The one page itself, with index 0.
    Inline(Page),
    /// The ids of the pages, in order.
    Pages(Vec<RecordId>),
    /// The ids of the list pages, in order, which hold the pages' ids.
    Lists(Vec<RecordId>),
    /// The ids of the stripes, in order. Page i of the content is page i mod k of stripe i / k.
    Stripes {
        /// Pages a stripe, 1 to [`K_MAX`]. A header with another k is not of this entry.
        k: u32,
        /// The stripes.
        ids: Vec<RecordId>,
    },
    /// The ids of the list pages, in order, which hold the stripes' ids.
    ListedStripes {
        /// Pages a stripe, 1 to [`K_MAX`].
        k: u32,
        /// The list pages.
        lists: Vec<RecordId>,
    },
}

impl EntryContent {
    /// Pages a stripe (k); `None` where the content is not in stripes.
    pub const fn stripe_pages(&self) -> Option<u32> {
        match self {
            Self::Stripes { k, .. } | Self::ListedStripes { k, .. } => Some(*k),
            Self::Inline(_) | Self::Pages(_) | Self::Lists(_) => None,
        }
    }
}

/// What a document is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Who sealed it.
    pub author: AuthorKey,
    /// Its content.
    pub content: EntryContent,
    /// When it was made, Unix seconds; not 0.
    pub created_time: u32,
    /// The sealed [`crate::EntryMetadata`].
    pub metadata_ciphertext: Bytes,
    /// The MAC of `metadata_ciphertext`.
    pub metadata_ciphertext_mac: Mac,
}

impl Entry {
    pub(crate) fn from_wire(wire: wire::Entry) -> Result<Self, DocumentError> {
        let author = AuthorKey::from_slice(&wire.author)?;
        let content = content_of(&wire, &author)?;
        if wire.created_time == 0 {
            return Err(DocumentError::Field("created time"));
        }
        let metadata_max = match content {
            EntryContent::Inline(_) => METADATA_INLINE_BYTES_MAX,
            _ => METADATA_BYTES_MAX,
        };
        let tag = crypto::seal::TAG_BYTES;
        if !(tag..=metadata_max + tag).contains(&wire.metadata_ciphertext.len()) {
            return Err(DocumentError::Field("metadata ciphertext"));
        }
        Ok(Self {
            author,
            content,
            created_time: wire.created_time,
            metadata_ciphertext: wire.metadata_ciphertext,
            metadata_ciphertext_mac: fields::fixed(&wire.metadata_ciphertext_mac, "metadata MAC")?,
        })
    }

    pub(crate) fn to_wire(&self) -> wire::Entry {
        let bytes = |ids: &[RecordId]| -> Vec<Bytes> {
            ids.iter().map(|id| Bytes::copy_from_slice(id.as_bytes())).collect()
        };
        let (mut page, mut page_keys, mut list_keys) = (None, Vec::new(), Vec::new());
        let mut stripes = Vec::new();
        match &self.content {
            EntryContent::Inline(inline) => page = Some(inline.to_wire()),
            EntryContent::Pages(ids) => page_keys = bytes(ids),
            EntryContent::Lists(ids) => list_keys = bytes(ids),
            EntryContent::Stripes { ids, .. } => stripes = bytes(ids),
            EntryContent::ListedStripes { lists, .. } => list_keys = bytes(lists),
        }
        wire::Entry {
            author: Bytes::copy_from_slice(self.author.as_bytes()),
            page,
            page_keys,
            created_time: self.created_time,
            metadata_ciphertext: self.metadata_ciphertext.clone(),
            metadata_ciphertext_mac: Bytes::copy_from_slice(&self.metadata_ciphertext_mac),
            stripes,
            list_keys,
            stripe_pages: self.content.stripe_pages().unwrap_or(0),
        }
    }
}

/// The one content of the five that an entry can have.
fn content_of(wire: &wire::Entry, author: &AuthorKey) -> Result<EntryContent, DocumentError> {
    let keys = (wire.page_keys.len(), wire.list_keys.len(), wire.stripes.len());
    match (&wire.page, keys, wire.stripe_pages) {
        (Some(page), (0, 0, 0), 0) => {
            let page = Page::from_wire(page.clone())?;
            if page.index != 0 || page.author != *author {
                return Err(DocumentError::Field("inline page"));
            }
            Ok(EntryContent::Inline(page))
        }
        (None, (1..=PAGE_KEYS_MAX, 0, 0), 0) => {
            Ok(EntryContent::Pages(fields::ids(&wire.page_keys, "page key")?))
        }
        (None, (0, 1..=LIST_KEYS_MAX, 0), 0) => {
            Ok(EntryContent::Lists(fields::ids(&wire.list_keys, "list key")?))
        }
        (None, (0, 0, 1..=STRIPE_KEYS_MAX), k @ 1..=K_MAX) => {
            Ok(EntryContent::Stripes { k, ids: fields::ids(&wire.stripes, "stripe's key")? })
        }
        (None, (0, 1..=LIST_KEYS_MAX, 0), k @ 1..=K_MAX) => {
            let lists = fields::ids(&wire.list_keys, "list key")?;
            Ok(EntryContent::ListedStripes { k, lists })
        }
        _ => Err(DocumentError::Field("content")),
    }
}
