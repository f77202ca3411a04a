//! What is being written: from before it is looked whether leases hold a place until the write has ended, nothing is dropped
//! there, and what comes without a lease meets none half-way.

use crypto::Place;

use super::{At, PENDING, Refusal, Table};

/// What is being written at a place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writing {
    /// Calls.
    pub(super) all: u32,
    /// Of those, without a lease where none holds it.
    pub(super) bare: u32,
}

/// A place where a call writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Where.
    pub(crate) place: Place,
    /// Whether a lease comes along for it.
    pub(crate) paid: bool,
    /// Whether it is refused where a lease alone holds what is there: who stores it reckons with its staying.
    pub(crate) stays: bool,
}

impl Table {
    /// Lets a call write at these places, all or none, until [`Table::written`].
    ///
    /// # Errors
    /// [`Refusal::Busy`] where one is being dropped, [`Refusal::Alone`] where what is there would not stay.
    pub(crate) fn begin(&mut self, wanted: &[Wanted]) -> Result<Vec<(Place, bool)>, Refusal> {
        for Wanted { place, paid, stays } in wanted {
            if self.dropping.contains(place) || self.off.contains(place) {
                return Err(Refusal::Busy(*place));
            }
            if !paid && *stays && self.places.get(place).is_some_and(|at| !at.unleased) {
                return Err(Refusal::Alone(*place));
            }
        }
        let begin = |wanted: &Wanted| {
            let bare = !wanted.paid && !self.places.contains_key(&wanted.place);
            let writing = self.writing.entry(wanted.place).or_default();
            writing.all += 1;
            writing.bare += u32::from(bare);
            (wanted.place, bare)
        };
        Ok(wanted.iter().map(begin).collect())
    }

    /// Keeps writes and leases off places whose records are about to be dropped since others hold them, until [`Table::let_on`]:
    /// those of them at which nothing is being written.
    pub(crate) fn keep_off(&mut self, places: &[Place]) -> Vec<Place> {
        let mut kept = Vec::with_capacity(places.len());
        for place in places {
            let pending = |at: &At| at.holds.iter().any(|hold| hold.frame == PENDING);
            let written = self.writing.contains_key(place)
                || self.dropping.contains(place)
                || self.places.get(place).is_some_and(pending);
            if !written && self.off.insert(*place) {
                kept.push(*place);
            }
        }
        kept
    }

    /// Lets writes at these places again.
    pub(crate) fn let_on(&mut self, places: &[Place]) {
        self.off.retain(|place| !places.contains(place));
    }

    /// What was begun is there, or failed.
    pub(crate) fn written(&mut self, begun: &[(Place, bool)]) {
        for (place, bare) in begun {
            let Some(writing) = self.writing.get_mut(place) else { continue };
            writing.all = writing.all.saturating_sub(1);
            writing.bare = writing.bare.saturating_sub(u32::from(*bare));
            if writing.all == 0 {
                self.writing.remove(place);
            }
        }
    }
}
