//! Who should hold a record now: the rank without those who are absent.
//!
//! An absent peer keeps its rank, and its share goes to the next that is there. So what one absence
//! moves is what that peer held, and it moves back when the peer returns.
//!
//! Repair asks this of every record that a peer knows, a million times in a row. So there is a form that
//! speaks of peers by their index among the candidates and writes into a list of the caller's.
//!
//! Limits: an index has 16 bits ([`INDEXES_MAX`] peers). Peers beyond, the last by key, have none, and the form by
//! index goes past them as if they were absent; the one by key does not.

use crypto::{PeerId, Place};

use crate::view::View;

/// How many peers of a view have an index.
pub const INDEXES_MAX: usize = 1 << 16;

impl View {
    /// The first `n` of the rank that are not absent, in rank order; all such peers where there are fewer.
    pub fn on_duty(
        &self,
        place: &Place,
        n: usize,
        is_absent: impl Fn(&PeerId) -> bool,
    ) -> Vec<PeerId> {
        let absent: Vec<bool> =
            self.candidates().iter().map(|candidate| is_absent(&candidate.peer)).collect();
        let there = self.there(place, n, &absent);
        there.take(n).map(|index| self.candidates()[index].peer).collect()
    }

    /// As [`View::on_duty`], by index: replaces what is in `out`. `absent` says it of the peer with that
    /// index; whom it is too short for is not absent.
    pub fn on_duty_into(&self, place: &Place, n: usize, absent: &[bool], out: &mut Vec<u16>) {
        out.clear();
        let there = self.there(place, n, absent);
        out.extend(there.filter_map(|index| u16::try_from(index).ok()).take(n));
    }

    /// The index of a peer among [`View::candidates`]; none where the view does not have it, or it is
    /// beyond [`INDEXES_MAX`].
    pub fn index_of(&self, peer: &PeerId) -> Option<u16> {
        u16::try_from(self.position(peer)?).ok()
    }

    /// The peer with this index; none where there is none.
    pub fn peer(&self, index: u16) -> Option<&PeerId> {
        self.candidates().get(usize::from(index)).map(|candidate| &candidate.peer)
    }

    /// The indexes of the rank that are not absent: at least `n`, as far as there are so many.
    fn there<'a>(
        &self,
        place: &Place,
        n: usize,
        absent: &'a [bool],
    ) -> impl Iterator<Item = usize> + use<'a> {
        let beyond = self.len().saturating_sub(INDEXES_MAX);
        let passed = absent.iter().take(self.len()).filter(|absent| **absent).count();
        // No rank needs to be looked at further down.
        let first = self.first_indexes(place, n.saturating_add(passed).saturating_add(beyond));
        first.filter(|index| !absent.get(*index).copied().unwrap_or(false))
    }
}
