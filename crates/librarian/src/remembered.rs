//! Which publications were logged, as far as memory goes: what keeps the log free of doubles.
//!
//! News comes several times by nature (five holders tell of one envelope, and the mesh repeats), and
//! looking each up on disk would cost more than the news itself. So the keys of the newest
//! [`REMEMBERED_MAX`] publications are kept, 16 bytes of each: about 12 MiB when full, nothing at first.
//!
//! Limit: what is older than the oldest one remembered is not logged again by catching up (see
//! [`Remembered::floor_ms`]); a double of it that comes as news would be.

use std::collections::{HashSet, VecDeque};

use crypto::RecordId;
use env::calls::KNOWN_KEY_BYTES;

/// Publications remembered at most.
pub(crate) const REMEMBERED_MAX: usize = 1 << 18;

/// Half of a key: whoever wants two publications to collide makes 2^64 of them.
pub(crate) type Half = [u8; KNOWN_KEY_BYTES];

/// The newest publications of the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered {
    keys: HashSet<Half>,
    order: VecDeque<(Half, u64)>,
    floor_ms: u64,
}

fn half(key: &RecordId) -> Half {
    let mut half = [0; 16];
    half.copy_from_slice(&key.as_bytes()[..KNOWN_KEY_BYTES]);
    half
}

impl Remembered {
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
        self.order.push_back((half, logged_ms));
        if self.order.len() > REMEMBERED_MAX
            && let Some((oldest, oldest_ms)) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
            self.floor_ms = oldest_ms;
        }
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

    /// Publications logged up to then, Unix milliseconds, may have been forgotten; 0 where none was.
    pub(crate) fn floor_ms(&self) -> u64 {
        self.floor_ms
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
        assert_eq!(remembered.floor_ms(), 2);
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
