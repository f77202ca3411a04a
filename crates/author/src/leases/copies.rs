//! How many copies of a content's records there should be.
//!
//! The network keeps so many by their kind, or as many as a lease pays for where that is more (`hold put --profile copies:N`). A holder
//! may hide leases, but makes none up: each is signed. Of a record that it keeps without a lease too none counts, as it counts none.

use crypto::genesis::COPIES_MAX;
use crypto::{Place, RecordId};
use document::Kind;

use super::asking::Spot;
use crate::author::Author;
use crate::content::{At, Content, PageAt};
use crate::error::AuthorError;

/// Copies that there should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopiesWanted {
    /// Of the envelope.
    pub(crate) envelope: u32,
    /// Of the entry.
    pub(crate) entry: u32,
    /// Of each list.
    pub(crate) lists: u32,
    /// Of each page that is in no stripe.
    pub(crate) pages: u32,
}

impl Author {
    /// How many copies there should be of a content's records: of the first list and the first page the leases say it for all.
    ///
    /// # Errors
    /// Where the first list cannot be had, as [`Author::get`].
    pub(crate) async fn copies_wanted(
        &self,
        content: &Content,
    ) -> Result<CopiesWanted, AuthorError> {
        let [envelope, entry] = [&content.opened.record, &content.entry];
        let list = content.lists().first().copied();
        let page = match content.parts(0).next(self).await? {
            Some((_, At::Page(PageAt::Record(id)))) => Some(id),
            _ => None,
        };
        let network = |kind: Kind| self.walker().redundancy(kind).copies;
        let mut wanted = CopiesWanted {
            envelope: network(envelope.kind),
            entry: network(entry.kind),
            lists: network(Kind::Page),
            pages: network(Kind::Page),
        };
        if self.walker().is_thin() {
            return Ok(wanted);
        }
        let at = |id: RecordId| Some(Place::from(id));
        let places =
            [Some(envelope.place), Some(entry.place), list.and_then(at), page.and_then(at)];
        let places: Vec<(usize, Place)> =
            places.into_iter().enumerate().filter_map(|(of, at)| Some((of, at?))).collect();
        let spots = places.iter().map(|(_, place)| Spot::copy(*place, None)).collect();
        let part = self.ask_part(spots).await?;
        let peers = u32::try_from(self.walker().directory().view().len().max(1));
        let most = COPIES_MAX.min(peers.unwrap_or(u32::MAX));
        let CopiesWanted { envelope, entry, lists, pages } = &mut wanted;
        let mut wanted_of = [envelope, entry, lists, pages];
        for (spot, _, said) in part.said().filter(|(.., said)| !said.unleased) {
            let paid = said.leases.iter().map(|lease| lease.checked.terms.redundancy).max();
            let of = places.get(spot).and_then(|(of, _)| wanted_of.get_mut(*of));
            if let (Some(paid), Some(of)) = (paid, of) {
                **of = paid.min(most).max(**of);
            }
        }
        Ok(wanted)
    }
}
