//! Which publications were logged, as far as memory goes: what keeps the log free of doubles.
//!
//! News comes several times by nature (five holders tell of one envelope, and the mesh repeats), and
//! looking each up on disk would cost more than the news itself. So the keys of the newest
//! [`REMEMBERED_MAX`] publications are kept, 16 bytes of each: about 12 MiB when full, nothing at first.
//!
//! Limit: of what is older than the oldest one remembered memory does not tell whether it was logged. What
//! catching up makes of it: see [`Remembered::floor_ms`] and `catch_up`; a double of it that comes as news would be
//! logged again.

use std::collections::{HashSet, VecDeque};

use crypto::RecordId;
use env::calls::KNOWN_KEY_BYTES;

/// Publications remembered at most.
pub(crate) const REMEMBERED_MAX: usize = 1 << 18;

/// Half of a key: whoever wants two publications to collide makes 2^64 of them.
pub(crate) type Half = [u8; KNOWN_KEY_BYTES];

/// The newest publications of the log.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    max: usize,
    keys: HashSet<Half>,
    order: VecDeque<(Half, u64)>,
    floor_ms: u64,
}

impl Default for Remembered {
    fn default() -> Self {
        Self::up_to(REMEMBERED_MAX)
    }
}

fn half(key: &RecordId) -> Half {
    let mut half = [0; 16];
    half.copy_from_slice(&key.as_bytes()[..KNOWN_KEY_BYTES]);
    half
}

impl Remembered {
    /// Remembers none yet, and so many at most.
    pub(crate) fn up_to(max: usize) -> Self {
        Self { max, keys: HashSet::new(), order: VecDeque::new(), floor_ms: 0 }
    }

    /// How many are remembered.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether this publication is remembered.
    pub(crate) fn contains(&self, key: &RecordId) -> bool {
        self.keys.contains(&half(key))
    }

    /// Remembers it; the oldest one is forgotten for it where there are too many.
    pub(crate) fn insert(&mut self, key: &RecordId, logged_ms: u64) {
        let half = half(key);
        if !self.keys.insert(half) {
            return;
        }
        // The calendar may jump back; times here must not fall.
        let logged_ms = self.order.back().map_or(logged_ms, |(_, last)| logged_ms.max(*last));
        self.order.push_back((half, logged_ms));
        if self.order.len() > self.max
            && let Some((oldest, oldest_ms)) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
            self.floor_ms = oldest_ms;
        }
    }

    /// When a publication that is remembered was logged. It looks at all of them.
    pub(crate) fn time_of(&self, key: &RecordId) -> Option<u64> {
        let sought = half(key);
        let found = self.order.iter().find(|(half, _)| *half == sought);
        found.map(|(_, logged_ms)| *logged_ms)
    }

    /// Those logged from `since_ms` on.
    pub(crate) fn since(&self, since_ms: u64) -> Vec<Half> {
        // Times never fall.
        let first = self.order.partition_point(|(_, logged_ms)| *logged_ms < since_ms);
        self.order.range(first..).map(|(half, _)| *half).collect()
    }

    /// Those logged after `since_ms` that `found` does not have.
    pub(crate) fn missing(&self, found: &Self, since_ms: u64) -> Vec<(Half, u64)> {
        let late = self.order.iter().filter(|(_, logged_ms)| *logged_ms > since_ms);
        late.filter(|(half, _)| !found.keys.contains(half)).copied().collect()
    }

    /// Forgets some, so that they can be logged again.
    pub(crate) fn forget(&mut self, missing: &[(Half, u64)]) {
        for (half, _) in missing {
            self.keys.remove(half);
        }
        let keys = &self.keys;
        self.order.retain(|(half, _)| keys.contains(half));
    }

    /// What others logged up to then, Unix milliseconds, this peer may have logged and forgotten; 0 where nothing was forgotten.
    ///
    /// A quarter of what is remembered lies before it. Peers log one publication at somewhat different times: what was
    /// forgotten here a moment ago would else be younger than this time in the log of one that logged it a moment
    /// later, be logged again, and begin the same at the others, for ever.
    pub(crate) fn floor_ms(&self) -> u64 {
        if self.floor_ms == 0 {
            return 0;
        }
        self.order.get(self.order.len() / 4).map_or(self.floor_ms, |(_, logged_ms)| *logged_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> RecordId {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        RecordId::new(bytes)
    }

    #[test]
    fn the_oldest_is_forgotten_first_and_tells_how_far_memory_goes() {
        let mut remembered = Remembered::default();
        for n in 0..REMEMBERED_MAX + 3 {
            assert!(!remembered.contains(&key(n)));
            remembered.insert(&key(n), n as u64);
            remembered.insert(&key(n), 0);
        }
        assert!(!remembered.contains(&key(2)));
        assert!(remembered.contains(&key(3)));
        assert_eq!(remembered.floor_ms(), 3 + REMEMBERED_MAX as u64 / 4);
        let last = REMEMBERED_MAX as u64 + 2;
        assert_eq!(
            remembered.since(last - 1),
            [half(&key(last as usize - 1)), half(&key(last as usize))]
        );
        assert_eq!(remembered.since(0).len(), REMEMBERED_MAX);
        assert!(remembered.since(last + 1).is_empty());
        assert_eq!(remembered.order.len(), REMEMBERED_MAX);
    }

    #[test]
    fn times_do_not_fall_with_the_calendar() {
        let mut remembered = Remembered::up_to(4);
        for (n, at) in [(0, 5), (1, 9), (2, 7), (3, 8)] {
            remembered.insert(&key(n), at);
        }
        assert_eq!(remembered.floor_ms(), 0, "nothing was forgotten");
        assert_eq!(remembered.time_of(&key(2)), Some(9));
        assert_eq!((remembered.since(9).len(), remembered.len()), (3, 4));
        remembered.insert(&key(4), 10);
        assert_eq!((remembered.time_of(&key(0)), remembered.len()), (None, 4));
        assert_eq!(remembered.floor_ms(), 9);
    }

    #[test]
    fn what_is_not_found_again_is_forgotten_and_can_come_again() {
        let (mut remembered, mut found) = (Remembered::default(), Remembered::default());
        for n in 0..10 {
            remembered.insert(&key(n), n as u64);
            if n % 3 != 0 {
                found.insert(&key(n), n as u64);
            }
        }
        let missing = remembered.missing(&found, 3);
        assert_eq!(missing.iter().map(|(_, at)| *at).collect::<Vec<_>>(), [6, 9]);
        remembered.forget(&missing);
        assert!(remembered.contains(&key(3)) && !remembered.contains(&key(6)));
        remembered.insert(&key(6), 20);
        assert_eq!(remembered.order.len(), remembered.keys.len());
        assert!(remembered.missing(&found, 3).iter().all(|(_, at)| *at == 20));
    }
}
