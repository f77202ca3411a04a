//! What this user pays for, by the word of holders: for a home that has no notes of it.
//!
//! An envelope that is under a lease which this user's key signed was put, shared or renewed by this user. That proves itself
//! (`asking`), so whoever names an envelope may be a liar: one of somebody else's is not noted.
//!
//! Notes that are damaged are dropped when what was found is noted. What else they may have been of whoever recovers is told: what
//! logs do not have any more, and what could not be asked about.
//!
//! Limits: only the envelope's lease is looked at. A put, a share and a renewal pay for all of a content until one time.

use std::collections::BTreeMap;

use crypto::{Place, RecordId};

use super::TOGETHER;
use super::asking::Spot;
use crate::author::Author;
use crate::error::AuthorError;

/// What was found of envelopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Those that the home notes as paid for by this user.
    pub(crate) paid: u64,
    /// Those that it does not, and of which no holder could be asked.
    pub(crate) unasked: u64,
}

impl std::ops::AddAssign for Found {
    fn add_assign(&mut self, other: Self) {
        self.paid += other.paid;
        self.unasked += other.unasked;
    }
}

impl Author {
    /// Notes at home which of these envelopes this user pays for, and until when, where the home does not have it noted.
    ///
    /// # Errors
    /// What the home says. That nobody can be asked is no error: see [`Found::unasked`].
    pub(crate) async fn note_found(&self, envelopes: &[RecordId]) -> Result<Found, AuthorError> {
        let noted = self.paid().await?;
        let (known, unknown): (Vec<RecordId>, Vec<RecordId>) =
            envelopes.iter().partition(|envelope| noted.contains_key(envelope));
        let mut found = Found { paid: known.len() as u64, unasked: 0 };
        if self.payer().is_none() {
            // Whoever never pays has nothing to note.
            return Ok(found);
        }
        for some in unknown.chunks(TOGETHER) {
            found += self.note_some(some).await?;
        }
        Ok(found)
    }

    async fn note_some(&self, envelopes: &[RecordId]) -> Result<Found, AuthorError> {
        let spots = envelopes.iter().map(|id| Spot::copy(Place::from(*id), None)).collect();
        let part = match self.ask_part(spots).await {
            Err(AuthorError::ThinSurvey) => {
                return Ok(Found { paid: 0, unasked: envelopes.len() as u64 });
            }
            part => part?,
        };
        let mut ends: Vec<Option<u64>> = vec![None; envelopes.len()];
        let mut held = vec![false; envelopes.len()];
        for (spot, _, said) in part.said() {
            held[spot] |= said.held;
            ends[spot] = ends[spot].max(said.own().map(|lease| lease.terms.until).max());
        }
        let (mut by_end, mut found) = (BTreeMap::<u64, Vec<RecordId>>::new(), Found::default());
        for ((envelope, end), held) in envelopes.iter().zip(ends).zip(held) {
            match end {
                Some(end) => by_end.entry(end).or_default().push(*envelope),
                None => found.unasked += u64::from(!held),
            }
        }
        for (end, envelopes) in by_end {
            self.note_all_paid(&envelopes, end).await?;
            found.paid += envelopes.len() as u64;
        }
        Ok(found)
    }
}
