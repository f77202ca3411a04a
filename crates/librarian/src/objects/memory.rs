//! Memory that is shared by all whose words are kept in it: heads, lists of devices, policies.
//!
//! Keys cost nothing, and anybody of the network may carry words of anybody's here; so it is shared by organisations, as the calls
//! of a listener are by callers: whoever brings something has no more than it leaves free (the dynamic threshold of shared
//! buffers: Choudhury and Hahne, 1998). What this peer fetched to keep the network whole is one of those that share; what was
//! here at its start is nobody's, and counts for all.

use std::collections::HashMap;

use crypto::OrgId;

/// Who brought what is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bringer {
    /// It was here at the start.
    Start,
    /// It was fetched here, whoever brought it to the network.
    Repair,
    /// A client or a peer of this organisation.
    Organisation(OrgId),
}

/// Bytes in memory, about, and who brought them.
#[derive(Debug)]
pub(super) struct Memory {
    max: usize,
    held: usize,
    /// None is 0.
    by: HashMap<Bringer, usize>,
}

impl Memory {
    pub(super) fn new(max: usize) -> Self {
        Self { max, held: 0, by: HashMap::new() }
    }

    #[cfg(test)]
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    fn of(&self, bringer: Bringer) -> usize {
        self.by.get(&bringer).copied().unwrap_or_default()
    }

    /// Whether one of those that share may bring so many more.
    pub(super) fn has_room(&self, bringer: Bringer, more: usize) -> bool {
        let free = self.max.saturating_sub(self.held);
        let own = if bringer == Bringer::Start { 0 } else { self.of(bringer) };
        more <= free && (own == 0 || own + more <= free)
    }

    pub(super) fn add(&mut self, bringer: Bringer, bytes: usize) {
        if bytes > 0 {
            self.held += bytes;
            *self.by.entry(bringer).or_default() += bytes;
        }
    }

    pub(super) fn give_back(&mut self, bringer: Bringer, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
        if let Some(own) = self.by.get_mut(&bringer) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                self.by.remove(&bringer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn organisation(n: u8) -> Bringer {
        let key = crypto::SecretKey::from_bytes(&[n; 32]).expect("a scalar").public();
        Bringer::Organisation(OrgId::new(key))
    }

    #[test]
    fn whoever_brings_much_leaves_as_much_for_others() {
        let mut memory = Memory::new(128);
        let mut fill = |bringer| {
            let before = memory.held();
            while memory.has_room(bringer, 2) {
                memory.add(bringer, 2);
            }
            memory.held() - before
        };
        let [one, two] = [1, 2].map(organisation);
        assert_eq!([fill(one), fill(two), fill(Bringer::Repair)], [64, 32, 16]);
        assert_eq!(fill(Bringer::Start), 16, "what is here is here");
        memory.give_back(one, 64);
        memory.give_back(two, 30);
        assert!(memory.has_room(two, 40) && !memory.has_room(two, 96));
        assert!(
            memory.has_room(one, 94) && !memory.has_room(one, 95),
            "the first may be as large as all"
        );
        memory.give_back(two, 2);
        assert_eq!((memory.held(), memory.by.len()), (32, 2));
    }
}
