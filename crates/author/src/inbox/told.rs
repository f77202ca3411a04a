//! Telling each envelope once.

use std::collections::{BTreeSet, VecDeque};

use crypto::RecordId;

/// Envelopes that are remembered as told. Librarians' logs differ by minutes, not by so many publications to one user.
pub const TOLD_MAX: usize = 1 << 16;

/// The envelopes told last.
pub(super) struct TellOnce {
    told: BTreeSet<RecordId>,
    order: VecDeque<RecordId>,
    max: usize,
}

impl TellOnce {
    pub(super) fn new(max: usize) -> Self {
        Self { told: BTreeSet::new(), order: VecDeque::new(), max }
    }

    pub(super) fn knows(&self, id: &RecordId) -> bool {
        self.told.contains(id)
    }

    /// Whether it was not told yet; from now on it was.
    pub(super) fn is_new(&mut self, id: RecordId) -> bool {
        if !self.told.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.told.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let id = |n: u8| RecordId::new([n; 32]);
        let mut told = TellOnce::new(2);
        assert!(told.is_new(id(1)) && told.is_new(id(2)) && !told.is_new(id(1)));
        assert!(told.is_new(id(3)));
        assert!(!told.knows(&id(1)) && told.knows(&id(2)) && told.knows(&id(3)));
        assert_eq!(told.told.len(), 2);
    }
}
