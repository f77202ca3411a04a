//! Heads of a branch that are not here any more and are superseded for good.
//!
//! What is dropped is forgotten with all that it named; were it forgotten whole, it would be a tip again when it comes once more:
//! from a peer that was away and has it still, or from anybody who kept an old head of somebody's. So its id is remembered, and
//! those of the heads that it named and that never came here.
//!
//! Limits: the last [`PASSED_MAX`] of a branch, in memory alone. The memory is that of whoever brought the heads, and less than they took.

use std::collections::{BTreeSet, VecDeque};

use crypto::RecordId;

use crate::objects::memory::{Bringer, Memory};

/// How many are remembered of one branch.
pub(super) const PASSED_MAX: usize = 4_096;
/// What one takes in memory, about: its id twice, and what is around it.
pub(super) const PASSED_BYTES: usize = 160;

/// The ids of those heads.
#[derive(Default)]
pub(super) struct Passed {
    ids: BTreeSet<RecordId>,
    /// The same, the one that was noted first in front, and whose memory each takes.
    order: VecDeque<(RecordId, Bringer)>,
}

impl Passed {
    pub(super) fn contains(&self, id: &RecordId) -> bool {
        self.ids.contains(id)
    }

    /// Notes one; the one that was noted first makes room.
    pub(super) fn note(&mut self, id: RecordId, by: Bringer, memory: &mut Memory) {
        if !self.ids.insert(id) {
            return;
        }
        if self.order.len() >= PASSED_MAX
            && let Some((first, by)) = self.order.pop_front()
        {
            self.ids.remove(&first);
            memory.give_back(by, PASSED_BYTES);
        }
        self.order.push_back((id, by));
        memory.add(by, PASSED_BYTES);
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self, memory: &mut Memory) {
        self.order.iter().for_each(|(_, by)| memory.give_back(*by, PASSED_BYTES));
        *self = Self::default();
    }

    #[cfg(test)]
    pub(super) fn ids(&self) -> &BTreeSet<RecordId> {
        &self.ids
    }
}
