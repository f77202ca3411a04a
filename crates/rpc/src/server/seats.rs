//! Seats of connections: of those with wide windows, by who vouches for their keys, and of all, by where they come from.
//!
//! Whoever a seat was given to keeps it only while others have no fewer: where all are taken, one that comes from a source with
//! fewer takes the seat of the newest connection of the source that has most (max-min fairness, Bertsekas and Gallager 1992,
//! section 6.5.2); of those with wide windows an organisation is what a source is here. So who opens as many connections as it
//! can keeps nobody out. Connections with wide windows count for no address, and are asked for theirs by nobody there.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Counted seats, in all and by what they are counted by.
pub(super) struct Seats<K> {
    all: usize,
    by: HashMap<K, usize>,
}

impl<K> Default for Seats<K> {
    fn default() -> Self {
        Self { all: 0, by: HashMap::new() }
    }
}

/// One connection's seat, until dropped.
pub(super) struct Seat<K: Copy + Eq + Hash> {
    seats: Arc<Mutex<Seats<K>>>,
    by: K,
}

impl<K: Copy + Eq + Hash> Seat<K> {
    pub(super) fn take(
        seats: &Arc<Mutex<Seats<K>>>,
        by: K,
        all_max: usize,
        by_max: usize,
    ) -> Option<Self> {
        let mut counted = seats.lock().unwrap_or_else(PoisonError::into_inner);
        let same = counted.by.get(&by).copied().unwrap_or(0);
        if counted.all >= all_max || same >= by_max {
            return None;
        }
        counted.all += 1;
        counted.by.insert(by, same + 1);
        Some(Self { seats: seats.clone(), by })
    }
}

impl<K: Copy + Eq + Hash> Drop for Seat<K> {
    fn drop(&mut self) {
        let mut counted = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        counted.all -= 1;
        if let Some(same) = counted.by.get_mut(&self.by) {
            *same -= 1;
            if *same == 0 {
                counted.by.remove(&self.by);
            }
        }
    }
}

/// The seats of all connections of a listener, or of those with wide windows, by their sources.
pub(super) struct Hall<K> {
    all_max: usize,
    of_source_max: usize,
    seated: Mutex<Seated<K>>,
}

struct Seated<K> {
    next: u64,
    members: usize,
    strangers: usize,
    /// By source, in the order in which they came: what ends each.
    by: HashMap<K, Vec<(u64, CancellationToken)>>,
}

impl<K> Default for Seated<K> {
    fn default() -> Self {
        Self { next: 0, members: 0, strangers: 0, by: HashMap::new() }
    }
}

/// A connection's seat in the hall, until dropped.
pub(super) struct HallSeat<K: Copy + Eq + Hash> {
    hall: Arc<Hall<K>>,
    pub(super) source: K,
    number: u64,
    member: bool,
}

impl<K: Copy + Eq + Hash> Hall<K> {
    pub(super) fn new(all_max: usize, of_source_max: usize) -> Arc<Self> {
        Arc::new(Self { all_max, of_source_max, seated: Mutex::default() })
    }

    fn seated(&self) -> MutexGuard<'_, Seated<K>> {
        self.seated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a connection of a source that `ends` ends: a free one, or that of a source with more of them.
    pub(super) fn seat(
        self: &Arc<Self>,
        source: K,
        ends: &CancellationToken,
    ) -> Option<HallSeat<K>> {
        let mut seated = self.seated();
        let same = seated.by.get(&source).map_or(0, Vec::len);
        if same >= self.of_source_max {
            return None;
        }
        if seated.members + seated.strangers >= self.all_max {
            let most = seated.by.values_mut().max_by_key(|of| of.len())?;
            if most.len() <= same + 1 {
                return None;
            }
            let (_, ended) = most.pop()?;
            ended.cancel();
            seated.strangers -= 1;
        }
        let number = seated.next;
        seated.next += 1;
        seated.strangers += 1;
        seated.by.entry(source).or_default().push((number, ends.clone()));
        Some(HallSeat { hall: Arc::clone(self), source, number, member: false })
    }
}

impl<K: Copy + Eq + Hash> Seated<K> {
    /// Counts a connection for its source no more; whether it was.
    fn leave(&mut self, source: &K, number: u64) -> bool {
        let Some(of) = self.by.get_mut(source) else { return false };
        let Some(at) = of.iter().position(|(other, _)| *other == number) else { return false };
        of.remove(at);
        if of.is_empty() {
            self.by.remove(source);
        }
        self.strangers -= 1;
        true
    }
}

impl<K: Copy + Eq + Hash> HallSeat<K> {
    /// It is that of a key that was vouched for.
    pub(super) fn is_a_members(&mut self) {
        let mut seated = self.hall.seated();
        if seated.leave(&self.source, self.number) {
            seated.members += 1;
            self.member = true;
        }
    }
}

impl<K: Copy + Eq + Hash> Drop for HallSeat<K> {
    fn drop(&mut self) {
        let mut seated = self.hall.seated();
        if self.member {
            seated.members -= 1;
        } else {
            // Where another took it, it was counted no more.
            seated.leave(&self.source, self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn source(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn fill(
        hall: &Arc<Hall<IpAddr>>,
        number: u8,
        count: usize,
    ) -> Vec<(HallSeat<IpAddr>, CancellationToken)> {
        let mut places = Vec::new();
        for _ in 0..count {
            let ends = CancellationToken::new();
            places.extend(hall.seat(source(number), &ends).map(|place| (place, ends)));
        }
        places
    }

    fn ended(places: &[(HallSeat<IpAddr>, CancellationToken)]) -> usize {
        places.iter().filter(|(_, ends)| ends.is_cancelled()).count()
    }

    #[test]
    fn who_has_most_makes_room_for_who_has_fewer() {
        let hall = Hall::new(16, 8);
        let [one, two] = [1, 2].map(|number| fill(&hall, number, 100));
        assert_eq!([one.len(), two.len()], [8, 8], "no source has more");
        let three = fill(&hall, 3, 100);
        assert_eq!(three.len(), 5);
        assert_eq!(ended(&one) + ended(&two), 5);
        let first_ended = one.iter().chain(&two).position(|(_, ends)| ends.is_cancelled());
        assert!(first_ended.is_some_and(|at| at > 0), "the newest go");
        assert!(fill(&hall, 1, 1).is_empty(), "it has as many as the others");
        let seated = hall.seated();
        assert_eq!((seated.strangers, seated.members), (16, 0));
    }

    #[test]
    fn members_seats_are_nobody_elses() {
        let hall = Hall::new(4, 4);
        let mut one = fill(&hall, 1, 4);
        one.iter_mut().for_each(|(place, _)| place.is_a_members());
        assert!(fill(&hall, 2, 1).is_empty());
        assert_eq!(ended(&one), 0);
        one.truncate(3);
        let two = fill(&hall, 2, 2);
        assert_eq!(two.len(), 1);
        drop(one);
        assert_eq!(fill(&hall, 1, 9).len(), 3, "one is the other's");
    }

    #[test]
    fn what_was_taken_counts_once() {
        let hall = Hall::new(2, 2);
        let one = fill(&hall, 1, 2);
        let two = fill(&hall, 2, 1);
        assert_eq!((ended(&one), two.len()), (1, 1));
        drop(one);
        drop(two);
        let seated = hall.seated();
        assert_eq!((seated.strangers, seated.members, seated.by.len()), (0, 0, 0));
    }
}
