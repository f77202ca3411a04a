//! Versions in memory, by a budget of bytes.
//!
//! What is read goes in, what comes from elsewhere, and what is written plain so that the next versions may be forms of it; a door's
//! other versions do not: it has their values itself, and each would push out one that lies in no cache of the processor, an eighth of
//! the time of a write. Putting one in must cost next to nothing all the same: a version has one place, by its hash, and takes it from
//! whoever had it. What is read often comes back; what a scan brought in is gone with the next versions that fall on its places. A
//! policy that remembers more took a sixth of the time of a write.
//!
//! The budget is divided among groups of places. A group that is over its part empties its places, the oldest part of
//! them first, until it is within.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use crypto::RecordId;
use document::Record;

/// Groups of places, each with a lock.
/// Few enough that who has much to add takes the locks of all.
const GROUPS: usize = 8;
/// What a version is taken to cost beside its bytes.
const OVERHEAD_BYTES: u64 = 160;
/// The length of a version that the number of places is made for.
const USUAL_BYTES: u64 = 512;

/// Versions as records, with their own bytes whole.
pub(crate) struct Cache {
    groups: [Mutex<Group>; GROUPS],
    /// Bytes of one group at most.
    bytes_max: u64,
    /// Places of one group.
    places: usize,
}

#[derive(Default)]
struct Group {
    /// Made with the first version: a peer without any has no use for them.
    places: Vec<Option<Record>>,
    bytes: u64,
    /// The place that is emptied next.
    hand: usize,
}

impl Group {
    fn set(&mut self, at: usize, record: Option<Record>) {
        let weight = |record: &Option<Record>| {
            record.as_ref().map_or(0, |record| record.bytes.len() as u64 + OVERHEAD_BYTES)
        };
        let Some(place) = self.places.get_mut(at) else { return };
        self.bytes = self.bytes + weight(&record) - weight(place);
        *place = record;
    }

    fn add(&mut self, at: usize, record: Record, bytes_max: u64, places: usize) {
        if record.bytes.len() as u64 + OVERHEAD_BYTES > bytes_max {
            return;
        }
        if self.places.is_empty() {
            self.places.resize(places, None);
        }
        self.set(at, Some(record));
        while self.bytes > bytes_max {
            let hand = self.hand;
            self.hand = (hand + 1) % self.places.len();
            if hand != at {
                self.set(hand, None);
            }
        }
    }
}

impl Cache {
    /// At most so many bytes; versions longer than a group's part are not kept.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let bytes_max = bytes_max / GROUPS as u64;
        let places = usize::try_from(bytes_max / USUAL_BYTES).unwrap_or(usize::MAX).max(1);
        Self { groups: std::array::from_fn(|_| Mutex::default()), bytes_max, places }
    }

    /// The group of a version, and its place there. Ids are hashes: any of their bytes are as good as others.
    fn place(&self, id: &RecordId) -> (usize, usize) {
        let [first, bytes @ ..] = id.as_bytes();
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[..8]);
        (usize::from(*first) % GROUPS, (u64::from_be_bytes(word) % self.places as u64) as usize)
    }

    /// No code that can panic half-way through a change runs under the lock. Who has one asks for no other.
    fn group(&self, at: usize) -> MutexGuard<'_, Group> {
        self.groups[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &RecordId) -> Option<Record> {
        let (group, at) = self.place(id);
        self.group(group).places.get(at)?.as_ref().filter(|record| record.id == *id).cloned()
    }

    pub(crate) fn bytes_of(&self, id: &RecordId) -> Option<Bytes> {
        self.get(id).map(|record| record.bytes)
    }

    pub(crate) fn add(&self, record: Record) {
        let (group, at) = self.place(&record.id);
        self.group(group).add(at, record, self.bytes_max, self.places);
    }

    /// As [`Cache::add`], of some at once.
    ///
    /// Their places are in no cache of the processor mostly, so all of them are asked for before any is touched.
    pub(crate) fn add_all(&self, records: impl ExactSizeIterator<Item = Record>) {
        let records: Vec<Record> = records.collect();
        // In their order: two who ask do not wait for each other.
        let mut groups: [_; GROUPS] = std::array::from_fn(|at| self.group(at));
        let is_taken = |record: &&Record| {
            let (group, at) = self.place(&record.id);
            groups[group].places.get(at).is_some_and(Option::is_some)
        };
        std::hint::black_box(records.iter().filter(is_taken).count());
        for record in records {
            let (group, at) = self.place(&record.id);
            groups[group].add(at, record, self.bytes_max, self.places);
        }
    }

    /// Bytes in it now.
    pub(crate) fn weight(&self) -> u64 {
        let bytes =
            |group: &Mutex<Group>| group.lock().unwrap_or_else(PoisonError::into_inner).bytes;
        self.groups.iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use crypto::{Place, Suite};
    use document::Kind;

    use super::*;

    fn record(number: usize, len: usize) -> Record {
        let id = Suite::Holdfast1.id(&number.to_be_bytes());
        Record { kind: Kind::Version, id, place: Place::from(id), bytes: vec![0; len].into() }
    }

    #[test]
    fn together_they_are_added_as_one_by_one() {
        let (one, all) = (Cache::new(1 << 20), Cache::new(1 << 20));
        let records: Vec<Record> =
            (0..5_000).map(|number| record(number, 1 + number * 37 % 9000)).collect();
        records.iter().for_each(|record| one.add(record.clone()));
        for some in records.chunks(100) {
            all.add_all(some.iter().cloned());
        }
        assert_eq!(one.weight(), all.weight());
        assert!(records.iter().all(|record| one.get(&record.id) == all.get(&record.id)));
        assert!(records.iter().any(|record| all.get(&record.id).is_some()));
    }

    #[test]
    fn it_keeps_within_its_budget_and_gives_what_was_put_last() {
        let cache = Cache::new(1 << 20);
        for number in 0..20_000 {
            let record = record(number, 1 + number * 37 % 9000);
            cache.add(record.clone());
            assert_eq!(cache.get(&record.id), Some(record));
        }
        let weight = cache.weight();
        assert!(((1 << 19)..=(1 << 20)).contains(&weight), "{weight}");
        let held: u64 = (0..20_000)
            .filter_map(|number| cache.get(&record(number, 0).id))
            .map(|record| record.bytes.len() as u64 + OVERHEAD_BYTES)
            .sum();
        assert_eq!(held, weight, "what it counts is what it has");
        // One that would be all there is, is not kept; one of no budget neither.
        let long = record(1, 1 << 20);
        cache.add(long.clone());
        assert_ne!(cache.get(&long.id), Some(long.clone()));
        let none = Cache::new(0);
        none.add(record(2, 10));
        assert_eq!((none.get(&record(2, 10).id), none.weight()), (None, 0));
    }
}
