//! The keys in memory: a table from key to slot, and slots that stay where they are.
//!
//! A slot has what a command needs without asking the engine: the object, the tip that counts, when
//! the key ends, and its value while that is in the cache. A slot's index is the cursor of SCAN: as
//! it never moves, what is there all the time is passed exactly once, whatever comes and goes.
//!
//! Invariants: a key has at most one slot; `live` counts the slots that are not `Absent`; `cached`
//! is the sum of the cached values' lengths; `ends` has each slot that expires once.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use hashbrown::HashTable;

use crate::sorted::Sorted;
use crate::value::NEVER;
use version::{ObjectKey, VersionId};

/// Slots at most; an index has 32 bits.
const SLOTS_MAX: usize = u32::MAX as usize - 1;
/// Slots looked at to drop the value of the one longest unused.
const SAMPLES: usize = 8;
/// Samples without a value to drop until the end of a turn's eviction.
const TRIES_MAX: usize = 4096;

/// What a key is.
#[derive(Debug)]
pub(crate) enum Content {
    /// No key: never, deleted, or not yet.
    Absent,
    /// A key whose version was not read yet.
    Unknown,
    /// A string, and its bytes while they are cached.
    Text(Option<Bytes>),
    /// A hash, and its encoded fields while they are cached.
    Hash(Option<Bytes>),
    /// A sorted set.
    Sorted(Box<Sorted>),
    /// Another program's value.
    Foreign,
}

impl Content {
    /// Bytes in the cache.
    fn cached(&self) -> usize {
        match self {
            Self::Text(Some(bytes)) | Self::Hash(Some(bytes)) => bytes.len(),
            _ => 0,
        }
    }

    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

/// What of a slot changes with a write, and is put back where the write fails.
#[derive(Debug)]
pub(crate) struct State {
    /// What the key is.
    pub content: Content,
    /// Its newest version; a tombstone where it is absent.
    pub tip: Option<VersionId>,
    /// When it ends, Unix ms, or [`NEVER`].
    pub expires: u64,
    /// The number of the write that made it so.
    pub stamp: u64,
}

/// One key. What a search compares stands together.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slot {
    hash: u64,
    /// The key.
    pub key: Box<[u8]>,
    used: u32,
    /// Its object.
    pub object: ObjectKey,
    /// What changes.
    pub state: State,
}

/// All keys.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    table: HashTable<u32>,
    hasher: RandomState,
    ends: BTreeSet<(u64, u32)>,
    live: usize,
    cached: usize,
    clock: u32,
    random: u64,
}

impl Slots {
    pub(crate) fn new() -> Self {
        let hasher = RandomState::new();
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            random: hasher.hash_one(0_u8) | 1,
            hasher,
            ends: BTreeSet::new(),
            live: 0,
            cached: 0,
            clock: 0,
        }
    }

    /// Keys there are, those that have expired and were not met yet among them.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Bytes of values in memory.
    pub(crate) fn cached(&self) -> usize {
        self.cached
    }

    /// Indexes are below this.
    pub(crate) fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn slot(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    /// The value of a sorted set's slot, to change its members.
    pub(crate) fn sorted_mut(&mut self, index: u32) -> Option<&mut Sorted> {
        match &mut self.slots[index as usize].state.content {
            Content::Sorted(sorted) => Some(sorted),
            _ => None,
        }
    }

    /// Sets the number of the last write.
    pub(crate) fn stamp(&mut self, index: u32, stamp: u64) -> u64 {
        std::mem::replace(&mut self.slots[index as usize].state.stamp, stamp)
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let same = |index: &u32| {
            let slot = &self.slots[*index as usize];
            slot.hash == hash && *slot.key == *key
        };
        self.table.find(hash, same).copied()
    }

    /// The slot of a key with this hash, most likely of the one that is meant.
    pub(crate) fn likely(&self, hash: u64) -> Option<u32> {
        self.table.find(hash, |index| self.slots[*index as usize].hash == hash).copied()
    }

    /// Marks a slot as used just now.
    pub(crate) fn touch(&mut self, index: u32) {
        self.clock = self.clock.wrapping_add(1);
        self.slots[index as usize].used = self.clock;
    }

    /// A slot for a key that has none, or nothing where there are too many.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        key: &[u8],
        object: ObjectKey,
        state: State,
    ) -> Option<u32> {
        if self.slots.len() >= SLOTS_MAX && self.free.is_empty() {
            return None;
        }
        let empty = State { content: Content::Absent, tip: None, expires: NEVER, stamp: 0 };
        let slot = Slot { key: key.into(), object, state: empty, hash, used: self.clock };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        let slots = &self.slots;
        self.table.insert_unique(hash, index, |index| slots[*index as usize].hash);
        self.replace(index, state);
        Some(index)
    }

    /// Forgets a slot, if its key is absent.
    pub(crate) fn forget(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if !slot.state.content.is_absent() {
            return;
        }
        slot.key = Box::default();
        let found = self.table.find_entry(slot.hash, |each| *each == index);
        if let Ok(found) = found {
            found.remove();
            self.free.push(index);
        }
    }

    /// Changes a slot; gives what it was.
    pub(crate) fn replace(&mut self, index: u32, state: State) -> State {
        let slot = &mut self.slots[index as usize];
        let old = std::mem::replace(&mut slot.state, state);
        let new = &slot.state;
        self.live += usize::from(!new.content.is_absent());
        self.live -= usize::from(!old.content.is_absent());
        self.cached += new.content.cached();
        self.cached -= old.content.cached();
        if old.expires != new.expires {
            if old.expires != NEVER {
                self.ends.remove(&(old.expires, index));
            }
            if new.expires != NEVER {
                self.ends.insert((new.expires, index));
            }
        }
        old
    }

    /// Changes all but the content; gives what that was.
    pub(crate) fn retouch(
        &mut self,
        index: u32,
        tip: Option<VersionId>,
        expires: u64,
        stamp: u64,
    ) -> (Option<VersionId>, u64, u64) {
        let content = Content::Absent;
        let old = self.replace(index, State { content, tip, expires, stamp });
        let before = (old.tip, old.expires, old.stamp);
        self.fill(index, old.content);
        before
    }

    /// Sets the content alone: a value was read, or put back.
    pub(crate) fn fill(&mut self, index: u32, content: Content) {
        let state = &self.slots[index as usize].state;
        let (tip, expires, stamp) = (state.tip, state.expires, state.stamp);
        self.replace(index, State { content, tip, expires, stamp });
    }

    /// How many keys end.
    pub(crate) fn ending(&self) -> usize {
        self.ends.len()
    }

    /// When the next key ends.
    pub(crate) fn next_end(&self) -> Option<u64> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Up to `most` keys that have ended at `now`.
    pub(crate) fn ended(&self, now: u64, most: usize) -> Vec<u32> {
        let ended = self.ends.iter().take_while(|(at, _)| *at <= now);
        ended.take(most).map(|(_, index)| *index).collect()
    }

    /// Some index, evenly.
    pub(crate) fn any(&mut self) -> Option<u32> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let count = self.slots.len() as u64;
        (count > 0).then(|| (self.random % count) as u32)
    }

    /// Drops values that were not used for long until at most `budget` bytes are cached; none of the writes behind the one of
    /// this number.
    pub(crate) fn evict(&mut self, budget: usize, written: u64) {
        let mut tries = 0;
        while self.cached > budget && tries < TRIES_MAX {
            let mut oldest: Option<(u32, u32)> = None;
            for _ in 0..SAMPLES {
                let Some(index) = self.any() else { return };
                let slot = &self.slots[index as usize];
                let age = self.clock.wrapping_sub(slot.used);
                let may_go = slot.state.content.cached() > 0 && slot.state.stamp <= written;
                if may_go && oldest.is_none_or(|(most, _)| age > most) {
                    oldest = Some((age, index));
                }
            }
            tries += 1;
            let Some((_, index)) = oldest else { continue };
            tries = 0;
            let content = match self.slots[index as usize].state.content {
                Content::Text(_) => Content::Text(None),
                _ => Content::Hash(None),
            };
            self.fill(index, content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &'static [u8], expires: u64) -> State {
        let content = Content::Text(Some(Bytes::from_static(bytes)));
        State { content, tip: None, expires, stamp: 0 }
    }

    fn add(slots: &mut Slots, key: &[u8], state: State) -> u32 {
        let hash = slots.hash(key);
        slots.insert(hash, key, ObjectKey::new([0; 32]), state).expect("room")
    }

    fn find(slots: &Slots, key: &[u8]) -> Option<u32> {
        slots.find(slots.hash(key), key)
    }

    #[test]
    fn slots_stay_and_are_used_again() {
        let mut slots = Slots::new();
        let all: Vec<u32> =
            (0..100_u8).map(|key| add(&mut slots, &[key], text(b"v", NEVER))).collect();
        assert_eq!((slots.live(), slots.cached()), (100, 100));
        slots.fill(all[7], Content::Absent);
        assert_eq!(find(&slots, &[7]), Some(all[7]), "an absent key is kept until it is forgotten");
        slots.forget(all[7]);
        slots.forget(all[8]);
        assert_eq!((find(&slots, &[7]), find(&slots, &[8])), (None, Some(all[8])));
        assert_eq!((slots.live(), slots.cached()), (99, 99));
        assert_eq!(add(&mut slots, b"new", text(b"v", NEVER)), all[7]);
        assert_eq!(slots.end(), 100);
    }

    #[test]
    fn ends_follow_the_slots() {
        let mut slots = Slots::new();
        let a = add(&mut slots, b"a", text(b"v", 50));
        let b = add(&mut slots, b"b", text(b"v", 40));
        assert_eq!(slots.next_end(), Some(40));
        assert_eq!(slots.ended(45, 10), [b]);
        assert_eq!(slots.ended(50, 10), [b, a]);
        slots.retouch(b, None, 60, 1);
        assert_eq!(slots.next_end(), Some(50));
        assert!(matches!(slots.slot(b).state.content, Content::Text(Some(_))));
        slots.replace(a, text(b"w", NEVER));
        slots.replace(b, State { content: Content::Absent, ..text(b"", NEVER) });
        assert_eq!(slots.next_end(), None);
    }

    #[test]
    fn what_was_used_last_stays_in_the_cache() {
        let mut slots = Slots::new();
        slots.random = 1; // The samples of each run are the same.
        let all: Vec<u32> =
            (0..200_u8).map(|key| add(&mut slots, &[key], text(b"0123456789", NEVER))).collect();
        for index in &all[..20] {
            slots.touch(*index);
        }
        slots.evict(500, 0);
        assert!(slots.cached() <= 500);
        let cached =
            |index: &&u32| matches!(slots.slot(**index).state.content, Content::Text(Some(_)));
        let kept = all[..20].iter().filter(cached).count();
        assert!(kept >= 10, "{kept}");
        assert_eq!(slots.live(), 200);
        let written = all.iter().copied().find(|index| cached(&index)).expect("some are kept");
        slots.stamp(written, 1);
        slots.evict(0, 0);
        assert_eq!(slots.cached(), 10, "what is not committed cannot be read again");
        slots.evict(0, 1);
        assert_eq!(slots.cached(), 0);
    }
}
