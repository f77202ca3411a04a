//! Asking those who should hold a content to look at it now.
//!
//! Peers mend by themselves; this spares the wait for their next comparison. Each peer that may hold some of a content is told its
//! places, looks at its maps of them, compares with all others at once, and begins what is due without waiting for more to be
//! missed. Who has a pass may ask; a peer does it every few seconds at most, however many ask.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crypto::{PeerId, Place, RecordId};
use env::calls::CallError;
use env::calls::keep::{KeepAnswer, KeepRequest, LOOK_MAX};
use futures::StreamExt;
use placement::SPARES;

use crate::author::Author;
use crate::error::AuthorError;

/// Peers asked at once.
const PEERS_ASKED: usize = 16;
/// The deadline of one question.
const LIMIT: Duration = Duration::from_secs(30);

/// Who was asked to look, and what they say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Records and stripes that were asked about; 0 where it was everything.
    pub places: u64,
    /// Peers that look, and how many of the places were in work there when they were asked: the same place counts at each.
    pub looking: BTreeMap<PeerId, u64>,
    /// Peers that did not answer.
    pub unreached: BTreeSet<PeerId>,
    /// What a peer said that refused: one that is set to mend nothing, or that does not know this client.
    pub refused: Option<CallError>,
}

impl Asked {
    /// Whether everybody who was asked looks.
    pub fn is_whole(&self) -> bool {
        self.unreached.is_empty() && self.refused.is_none()
    }
}

impl Author {
    /// Asks all who may hold some of a content to look now what of it lacks, and to mend that.
    ///
    /// # Errors
    /// As [`Author::get`] for its entry; [`AuthorError::ThinSurvey`] where a librarian walks for this user.
    pub async fn ask_repair(&self, address: RecordId) -> Result<Asked, AuthorError> {
        if self.walker().is_thin() {
            return Err(AuthorError::ThinSurvey);
        }
        let content = self.content(address).await?;
        let mut asked = Asked::default();
        let mut parts = content.parts(0);
        let mut places: Vec<Place> = self.head_places(&content);
        loop {
            let next = self.next_part(&mut parts).await?;
            let done = next.is_empty();
            places.extend(next);
            if done || places.len() >= LOOK_MAX {
                for some in places.chunks(LOOK_MAX) {
                    self.ask_about(some, &mut asked).await;
                }
                places.clear();
            }
            if done {
                return Ok(asked);
            }
        }
    }

    /// Asks every peer to look now at all that it holds.
    ///
    /// # Errors
    /// [`AuthorError::ThinSurvey`] where a librarian walks for this user.
    pub async fn ask_repair_of_all(&self) -> Result<Asked, AuthorError> {
        if self.walker().is_thin() {
            return Err(AuthorError::ThinSurvey);
        }
        let view = self.walker().directory().view();
        let all = view.candidates().iter().map(|candidate| (candidate.peer, Vec::new()));
        let mut asked = Asked::default();
        self.ask_each(all.collect(), &mut asked).await;
        Ok(asked)
    }

    async fn ask_about(&self, places: &[Place], asked: &mut Asked) {
        asked.places += places.len() as u64;
        let view = self.walker().directory().view();
        let most = crypto::genesis::FRAGMENTS_MAX as usize + SPARES;
        let mut by_peer: BTreeMap<PeerId, Vec<Place>> = BTreeMap::new();
        for place in places {
            for peer in view.holders(place, most) {
                by_peer.entry(peer).or_default().push(*place);
            }
        }
        self.ask_each(by_peer, asked).await;
    }

    async fn ask_each(&self, by_peer: BTreeMap<PeerId, Vec<Place>>, asked: &mut Asked) {
        let asks = by_peer
            .into_iter()
            .map(|(peer, places)| async move { (peer, self.ask_look(&peer, places).await) });
        let mut asks = futures::stream::iter(asks).buffer_unordered(PEERS_ASKED);
        while let Some((peer, answer)) = asks.next().await {
            match answer {
                Ok(found) => *asked.looking.entry(peer).or_default() += found,
                Err(error @ (CallError::Denied { .. } | CallError::Invalid { .. })) => {
                    asked.refused = Some(error);
                }
                Err(_) => drop(asked.unreached.insert(peer)),
            }
        }
    }

    async fn ask_look(&self, peer: &PeerId, places: Vec<Place>) -> Result<u64, CallError> {
        let to = self.walker().directory().endpoint(peer).ok_or(CallError::NotFound)?;
        let call = self.walker().calls().keep(&to, KeepRequest::Look(places), LIMIT);
        match self.env().within(LIMIT, call).await {
            Ok(Ok(KeepAnswer::Look(found))) => Ok(found.into()),
            Ok(Ok(_)) => Err(CallError::NotFound),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(CallError::TimedOut { address: to.address, limit: LIMIT }),
        }
    }
}
