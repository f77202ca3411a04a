//! The request ids that were used, until their tokens end: a request counts once.
//!
//! Two parts, so that strangers, who can make keys and sign at will, fill only theirs: callers with a
//! pass have three quarters, of which one key has at most a quarter. Of the strangers' part one
//! source has no more than it leaves free, where connections say where callers are. Full is *busy*,
//! never forgotten early.
//!
//! Invariant: an id is forgotten only with the end of its token, and a token that ends no later than
//! one that was forgotten is refused: a clock that is set back opens nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};

use crypto::PublicKey;

use crate::server::connection::House;

/// Strangers' sources that are counted each for itself; ids of further ones count as one source's.
const SOURCES_MAX: usize = 1_024;
/// What those are counted by: no house is there.
const FURTHER: u64 = 0;

/// One used request id.
#[derive(Clone, Debug)]
pub(super) struct Used {
    /// The random id.
    pub(super) id: [u8; 32],
    /// When its token ends, Unix seconds.
    pub(super) expires: u64,
    /// Whose it counts as.
    pub(super) whose: Whose,
}

/// Whose an id counts as.
#[derive(Clone, Debug)]
pub(super) enum Whose {
    /// That of a caller whose pass counts: the key that signed.
    Key(PublicKey),
    /// A stranger's: that of where it comes from, as far as that is known.
    Source(Option<Arc<House>>),
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

/// How many ids of a part one key or source may have.
enum Bound {
    /// So many.
    Fixed(usize),
    /// No more than it leaves free: see [`crate::server::share`].
    LeftFree,
}

/// What one key or source has.
struct Counted {
    ids: usize,
    /// Held, so that a source that comes again is known as the same.
    _house: Option<Arc<House>>,
}

/// The ids of one kind of callers.
struct Part {
    max: usize,
    of_one_max: Bound,
    ids: HashSet<[u8; 32]>,
    /// Ids by the end of their tokens, with what their key or source is counted by.
    by_end: BTreeMap<u64, Vec<([u8; 32], u64)>>,
    by_one: HashMap<u64, Counted>,
}

impl Part {
    fn new(max: usize, of_one_max: Bound) -> Self {
        let (ids, by_end, by_one) = Default::default();
        Self { max: max.max(1), of_one_max, ids, by_end, by_one }
    }

    /// Forgets what has ended by `now`; the latest end among it.
    fn forget(&mut self, now: u64) -> Option<u64> {
        let later = self.by_end.split_off(&now.saturating_add(1));
        let ended = std::mem::replace(&mut self.by_end, later);
        let latest = ended.last_key_value().map(|(end, _)| *end);
        for (id, one) in ended.into_values().flatten() {
            self.ids.remove(&id);
            if let Some(of_one) = self.by_one.get_mut(&one) {
                of_one.ids -= 1;
                if of_one.ids == 0 {
                    self.by_one.remove(&one);
                }
            }
        }
        latest
    }

    fn room(&self, one: u64) -> bool {
        let free = self.max.saturating_sub(self.ids.len());
        let own = self.by_one.get(&one).map_or(0, |of_one| of_one.ids);
        let most = match self.of_one_max {
            Bound::Fixed(most) => most,
            Bound::LeftFree => free,
        };
        // The first of each has room while there is any.
        free > 0 && (own == 0 || own < most)
    }

    fn keep(&mut self, id: [u8; 32], one: u64, house: Option<Arc<House>>, expires: u64) {
        self.ids.insert(id);
        self.by_end.entry(expires).or_default().push((id, one));
        let fresh = || Counted { ids: 0, _house: house };
        self.by_one.entry(one).or_insert_with(fresh).ids += 1;
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
    /// For so many ids; `sourced`: whether connections say where callers are. Through a proxy on this machine all come
    /// from there.
    pub(super) fn new(max: usize, sourced: bool) -> Self {
        let (vouched, strangers) = (max - max / 4, max / 4);
        let of_source_max = if sourced { Bound::LeftFree } else { Bound::Fixed(strangers) };
        let parts = Parts {
            vouched: Part::new(vouched, Bound::Fixed(vouched / 4)),
            strangers: Part::new(strangers, of_source_max),
            forgotten_until: 0,
        };
        Self { parts: Mutex::new(parts), hasher: Default::default() }
    }

    /// Takes an id, once.
    pub(super) fn take(&self, used: Used, now: u64) -> Result<(), Refused> {
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
        let (part, one, house) = match used.whose {
            Whose::Key(key) => (&mut parts.vouched, self.hasher.hash_one(key), None),
            Whose::Source(house) => {
                let part = &mut parts.strangers;
                let one =
                    house.as_ref().map_or(FURTHER, |house| Arc::as_ptr(house) as usize as u64);
                match part.by_one.len() < SOURCES_MAX || part.by_one.contains_key(&one) {
                    true => (part, one, house),
                    false => (part, FURTHER, None),
                }
            }
        };
        if !part.room(one) {
            let first = part.by_end.first_key_value().map_or(now, |(end, _)| *end);
            return Err(Refused::Full(first.saturating_sub(now).max(1)));
        }
        part.keep(used.id, one, house, used.expires);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::connection::Houses;
    use crypto::SecretKey;

    fn used(id: u8, key: u8, expires: u64, vouched: bool) -> Used {
        let key = SecretKey::from_bytes(&[key; 32]).expect("a small scalar is a key").public();
        let whose = if vouched { Whose::Key(key) } else { Whose::Source(None) };
        Used { id: [id; 32], expires, whose }
    }

    /// A stranger's at this source.
    fn strangers(id: u16, houses: &Houses<u16>, source: u16) -> Used {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&id.to_be_bytes());
        Used { id: bytes, expires: 160, whose: Whose::Source(Some(houses.of(source))) }
    }

    #[test]
    fn an_id_counts_once_until_its_token_ends() {
        let ids = Remembered::new(64, false);
        assert_eq!(ids.take(used(1, 1, 160, true), 100), Ok(()));
        for (now, vouched) in [(100, true), (159, false)] {
            let again = ids.take(used(1, 2, 190, vouched), now);
            assert_eq!(again, Err(Refused::Replayed), "whoever sends it");
        }
        assert_eq!(ids.take(used(1, 1, 220, true), 160), Ok(()), "it has ended");
    }

    #[test]
    fn a_clock_that_is_set_back_opens_nothing() {
        let ids = Remembered::new(64, false);
        assert_eq!(ids.take(used(1, 1, 160, true), 100), Ok(()));
        assert_eq!(ids.take(used(2, 1, 230, true), 170), Ok(()));
        assert_eq!(ids.take(used(1, 1, 160, true), 120), Err(Refused::Ended));
        assert_eq!(ids.take(used(3, 1, 161, true), 120), Ok(()));
    }

    #[test]
    fn strangers_fill_their_own_part_and_one_key_a_quarter() {
        let ids = Remembered::new(32, false);
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
        assert_eq!((parts.vouched.by_one.len(), parts.strangers.by_one.len()), (1, 0));
    }

    #[test]
    fn one_source_of_strangers_leaves_room_for_others() {
        let (ids, houses) = (Remembered::new(256, true), Houses::default());
        // None of their connections is held: each comes again for each request.
        let mut next = 0;
        let mut fill = |source| {
            let taken = (0..100).filter(|_| {
                next += 1;
                ids.take(strangers(next, &houses, source), 100).is_ok()
            });
            taken.count()
        };
        assert_eq!([fill(1), fill(2), fill(3), fill(1)], [32, 16, 8, 0]);
        assert_eq!(ids.take(strangers(999, &houses, 1), 100), Err(Refused::Full(60)));
        // It comes back, and the sources are forgotten.
        assert_eq!(ids.take(used(1, 1, 260, true), 200), Ok(()));
        assert!(ids.parts.lock().expect("no panic").strangers.by_one.is_empty());
    }

    #[test]
    fn sources_that_are_counted_are_bounded() {
        let (ids, houses) = (Remembered::new(1 << 16, true), Houses::default());
        let many = SOURCES_MAX as u16 + 100;
        for source in 0..many {
            assert_eq!(ids.take(strangers(source, &houses, source), 100), Ok(()));
        }
        let parts = ids.parts.lock().expect("no panic");
        assert_eq!(parts.strangers.by_one.len(), SOURCES_MAX + 1);
        assert_eq!(parts.strangers.by_one[&FURTHER].ids, 100);
    }
}
