//! An entry: what a document is made of. Its page or the ids of its pages, and sealed metadata.

use bytes::Bytes;
use crypto::{AuthorKey, Mac, RecordId};

use crate::fields;
use crate::metadata::{METADATA_BYTES_MAX, METADATA_INLINE_BYTES_MAX};
use crate::page::Page;
use crate::{DocumentError, wire};

/// The most page ids in an entry; above, they are in list pages.
pub const PAGE_KEYS_MAX: usize = 32_768;
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
        let content = match (wire.page, wire.page_keys.len(), wire.list_keys.len()) {
            (Some(page), 0, 0) => {
                let page = Page::from_wire(page)?;
                if page.index != 0 || page.author != author {
                    return Err(DocumentError::Field("inline page"));
                }
                EntryContent::Inline(page)
            }
            (None, 1..=PAGE_KEYS_MAX, 0) => {
                EntryContent::Pages(fields::ids(&wire.page_keys, "page key")?)
            }
            (None, 0, 1..=LIST_KEYS_MAX) => {
                EntryContent::Lists(fields::ids(&wire.list_keys, "list key")?)
            }
            _ => return Err(DocumentError::Field("content")),
        };
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
        match &self.content {
            EntryContent::Inline(inline) => page = Some(inline.to_wire()),
            EntryContent::Pages(ids) => page_keys = bytes(ids),
            EntryContent::Lists(ids) => list_keys = bytes(ids),
        }
        wire::Entry {
            author: Bytes::copy_from_slice(self.author.as_bytes()),
            page,
            page_keys,
            created_time: self.created_time,
            metadata_ciphertext: self.metadata_ciphertext.clone(),
            metadata_ciphertext_mac: Bytes::copy_from_slice(&self.metadata_ciphertext_mac),
            list_keys,
        }
    }
}
