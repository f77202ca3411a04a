//! Heads of a branch that are not here any more and are superseded for good.
//!
//! What is dropped is forgotten with all that it named; were it forgotten whole, it would be a tip again when it comes once more:
//! from a peer that was away and has it still, or from anybody who kept an old head of somebody's. So its id is remembered, and
//! those of the heads that it named and that never came here.
//!
//! Limits: the last [`PASSED_MAX`] of a branch, in memory alone. It is shared by who brought the heads, apart from the memory of those that
//! are here, so that what is gone keeps nobody's next head out; what finds no room is not remembered.

use std::collections::{BTreeSet, VecDeque};

use crypto::RecordId;

use crate::objects::memory::{Bringer, Memory};

/// How many are remembered of one branch.
pub(super) const PASSED_MAX: usize = 4_096;
/// What one takes in memory, about: its id twice, and what is around it.
pub(super) const PASSED_BYTES: usize = 160;

/// The memory of heads, and of those that are gone.
pub(super) struct Memories {
    pub(super) heads: Memory,
    pub(super) passed: Memory,
}

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

    /// Notes one, where there is room; the one that was noted first makes it.
    pub(super) fn note(&mut self, id: RecordId, by: Bringer, memory: &mut Memory) {
        let is_full = self.order.len() >= PASSED_MAX;
        if !(is_full || memory.has_room(by, PASSED_BYTES)) || !self.ids.insert(id) {
            return;
        }
        if is_full && let Some((first, by)) = self.order.pop_front() {
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
