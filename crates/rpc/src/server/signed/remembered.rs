//! The request ids that were used, until their tokens end: a request counts once.
//!
//! Two parts, so that strangers, who can make keys and sign at will, fill only theirs: callers with a
//! pass have three quarters, of which one key has at most a quarter. Full is *busy*, never forgotten
//! early.
//!
//! Invariant: an id is forgotten only with the end of its token, and a token that ends no later than
//! one that was forgotten is refused: a clock that is set back opens nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use crypto::PublicKey;

/// One used request id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    /// The random id.
    pub(super) id: [u8; 32],
    /// Who signed.
    pub(super) key: PublicKey,
    /// When its token ends, Unix seconds.
    pub(super) expires: u64,
    /// Whether the caller's pass counts.
    pub(super) vouched: bool,
}

/// Why an id is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It was used before.
    Replayed,
    /// Its token ended as far as is known here, whatever the clock says now.
    Ended,
    /// No room: again after so many seconds.
    Full(u64),
}

/// The ids of one kind of callers.
struct Part {
    max: usize,
    of_key_max: usize,
    ids: HashSet<[u8; 32]>,
    /// Ids by the end of their tokens, with the hash of their key.
    by_end: BTreeMap<u64, Vec<([u8; 32], u64)>>,
    by_key: HashMap<u64, usize>,
}

impl Part {
    fn new(max: usize, of_key_max: usize) -> Self {
        let (ids, by_end, by_key) = Default::default();
        Self { max: max.max(1), of_key_max: of_key_max.max(1), ids, by_end, by_key }
    }

    /// Forgets what has ended by `now`; the latest end among it.
    fn forget(&mut self, now: u64) -> Option<u64> {
        let later = self.by_end.split_off(&now.saturating_add(1));
        let ended = std::mem::replace(&mut self.by_end, later);
        let latest = ended.last_key_value().map(|(end, _)| *end);
        for (id, key) in ended.into_values().flatten() {
            self.ids.remove(&id);
            if let Some(of_key) = self.by_key.get_mut(&key) {
                *of_key -= 1;
                if *of_key == 0 {
                    self.by_key.remove(&key);
                }
            }
        }
        latest
    }

    fn room(&self, key: u64) -> bool {
        self.ids.len() < self.max && self.by_key.get(&key).copied().unwrap_or(0) < self.of_key_max
    }

    fn keep(&mut self, id: [u8; 32], key: u64, expires: u64) {
        self.ids.insert(id);
        self.by_end.entry(expires).or_default().push((id, key));
        *self.by_key.entry(key).or_default() += 1;
    }
}

struct Parts {
    vouched: Part,
    strangers: Part,
    /// The latest end of a token whose id was forgotten.
    forgotten_until: u64,
}

/// The memory of one listener.
pub(super) struct Remembered {
    parts: Mutex<Parts>,
    /// Keys are counted by a hash that nobody outside can aim at.
    hasher: std::hash::RandomState,
}

impl Remembered {
    pub(super) fn new(max: usize) -> Self {
        let (vouched, strangers) = (max - max / 4, max / 4);
        let parts = Parts {
            vouched: Part::new(vouched, vouched / 4),
            strangers: Part::new(strangers, strangers),
            forgotten_until: 0,
        };
        Self { parts: Mutex::new(parts), hasher: Default::default() }
    }

    /// Takes an id, once.
    pub(super) fn take(&self, used: Used, now: u64) -> Result<(), Refused> {
        let key = self.hasher.hash_one(used.key);
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = [parts.vouched.forget(now), parts.strangers.forget(now)];
        parts.forgotten_until =
            ended.into_iter().flatten().fold(parts.forgotten_until, |latest, end| latest.max(end));
        if used.expires <= parts.forgotten_until {
            return Err(Refused::Ended);
        }
        if parts.vouched.ids.contains(&used.id) || parts.strangers.ids.contains(&used.id) {
            return Err(Refused::Replayed);
        }
        let part = if used.vouched { &mut parts.vouched } else { &mut parts.strangers };
        if !part.room(key) {
            let first = part.by_end.first_key_value().map_or(now, |(end, _)| *end);
            return Err(Refused::Full(first.saturating_sub(now).max(1)));
        }
        part.keep(used.id, key, used.expires);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::SecretKey;

    fn used(id: u8, key: u8, expires: u64, vouched: bool) -> Used {
        let key = SecretKey::from_bytes(&[key; 32]).expect("a small scalar is a key").public();
        Used { id: [id; 32], key, expires, vouched }
    }

    #[test]
    fn an_id_counts_once_until_its_token_ends() {
        let ids = Remembered::new(64);
        assert_eq!(ids.take(used(1, 1, 160, true), 100), Ok(()));
        for (now, vouched) in [(100, true), (159, false)] {
            let again = ids.take(used(1, 2, 190, vouched), now);
            assert_eq!(again, Err(Refused::Replayed), "whoever sends it");
        }
        assert_eq!(ids.take(used(1, 1, 220, true), 160), Ok(()), "it has ended");
    }

    #[test]
    fn a_clock_that_is_set_back_opens_nothing() {
        let ids = Remembered::new(64);
        assert_eq!(ids.take(used(1, 1, 160, true), 100), Ok(()));
        assert_eq!(ids.take(used(2, 1, 230, true), 170), Ok(()));
        assert_eq!(ids.take(used(1, 1, 160, true), 120), Err(Refused::Ended));
        assert_eq!(ids.take(used(3, 1, 161, true), 120), Ok(()));
    }

    #[test]
    fn strangers_fill_their_own_part_and_one_key_a_quarter() {
        let ids = Remembered::new(32);
        for id in 0..8 {
            assert_eq!(ids.take(used(id, 1 + id, 160, false), 100), Ok(()));
        }
        assert_eq!(ids.take(used(50, 50, 170, false), 130), Err(Refused::Full(30)));
        for id in 100..106 {
            assert_eq!(ids.take(used(id, 60, 160, true), 100), Ok(()));
        }
        assert_eq!(ids.take(used(106, 60, 160, true), 100), Err(Refused::Full(60)));
        for id in 107..125 {
            assert_eq!(ids.take(used(id, id, 160, true), 100), Ok(()));
        }
        assert_eq!(ids.take(used(125, 125, 160, true), 100), Err(Refused::Full(60)));
        // All of it comes back.
        assert_eq!(ids.take(used(126, 126, 260, true), 200), Ok(()));
        let parts = ids.parts.lock().expect("no panic");
        assert_eq!((parts.vouched.ids.len(), parts.strangers.ids.len()), (1, 0));
        assert_eq!((parts.vouched.by_key.len(), parts.strangers.by_key.len()), (1, 0));
    }
}
