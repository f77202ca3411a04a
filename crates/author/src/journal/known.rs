//! What a journal's rows say together: which pages were sealed, of what, and how far each came.

use crypto::{ChunkTag, RecordId};

use super::row::Row;

/// A page that was sealed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownPage {
    /// Of the chunk.
    pub(crate) tag: ChunkTag,
    pub(crate) id: RecordId,
    /// Copies acknowledged and wanted, where it has all it will get.
    pub(crate) reached: Option<(u32, u32)>,
}

/// All that a journal knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) pages: Vec<KnownPage>,
    /// How many pages there are, where the metadata may have been sealed.
    pub(crate) end: Option<u32>,
}

impl Known {
    /// What these rows say; `None` where they contradict each other.
    pub(crate) fn of(rows: &[Row]) -> Option<Self> {
        let mut known = Self::default();
        for row in rows {
            match *row {
                Row::Page { index, tag, id } => {
                    if known.end.is_some() || index as usize != known.pages.len() {
                        return None;
                    }
                    known.pages.push(KnownPage { tag, id, reached: None });
                }
                Row::Reached { index, acked, wanted } => {
                    known.pages.get_mut(index as usize)?.reached = Some((acked, wanted));
                }
                Row::End { pages } => {
                    if known.end.is_some_and(|end| end != pages)
                        || pages as usize != known.pages.len()
                    {
                        return None;
                    }
                    known.end = Some(pages);
                }
            }
        }
        Some(known)
    }

    /// The fewest rows that say the same.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let pages = self.pages.iter().zip(0..);
        let sealed = pages.clone().map(|(page, index)| {
            let KnownPage { tag, id, .. } = *page;
            Row::Page { index, tag, id }
        });
        let reached = pages.filter_map(|(page, index)| {
            page.reached.map(|(acked, wanted)| Row::Reached { index, acked, wanted })
        });
        let end = self.end.map(|pages| Row::End { pages });
        sealed.chain(reached).chain(end).collect()
    }
}
