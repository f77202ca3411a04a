//! The places of subscribers: a bounded number, and none kept by one that stopped reading.
//!
//! A subscription is pulled: its stream reads the log when its reader wants the next event, so a
//! slow one costs its place and no memory. Its place is another's when it left an event unread for
//! longer than [`Limits::subscriber_stall_max`] and somebody else wants to sit; and where it comes
//! back itself after so long, it is told *busy* and resumes by its cursor.
//!
//! Where all are taken by those that read, the organisation that has most gives one to a comer of one that has fewer: no
//! organisation keeps the others out, however many passes it signs, and one that is alone may have them all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crypto::{OrgId, PublicKey};
use env::calls::CallError;
use tokio_util::sync::CancellationToken;

use crate::options::Limits;
use crate::standing::Standing;

/// When to try again where all places are taken.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// The places there are.
pub(crate) struct Seats {
    limits: Limits,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    by_id: BTreeMap<u64, Sitting>,
    next: u64,
}

struct Sitting {
    key: PublicKey,
    /// Whose peer or client it is; strangers are nobody's.
    organisation: Option<OrgId>,
    /// Since when an event waits to be read.
    unread_since: Option<Duration>,
    ended: CancellationToken,
}

/// One place; given back when dropped.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    id: u64,
    /// Cancelled when the place was given to somebody else.
    pub(crate) ended: CancellationToken,
}

impl Taken {
    /// Takes a place from the organisation that has most, where that leaves it as many as this one has then; of its keys from the one
    /// that has most, the last that came.
    fn share(&mut self, with: Option<&OrgId>) -> Option<()> {
        let mut by: BTreeMap<Option<OrgId>, BTreeMap<PublicKey, (usize, u64)>> = BTreeMap::new();
        for (id, sitting) in &self.by_id {
            let of = by.entry(sitting.organisation).or_default().entry(sitting.key).or_default();
            *of = (of.0 + 1, *id);
        }
        let sum = |keys: &BTreeMap<PublicKey, (usize, u64)>| -> usize {
            keys.values().map(|(count, _)| count).sum()
        };
        let own = by.get(&with.copied()).map_or(0, sum);
        let (_, keys) = by.iter().max_by_key(|(_, keys)| sum(keys))?;
        if sum(keys) <= own + 1 {
            return None;
        }
        let (_, last) = keys.values().max()?;
        self.by_id.remove(last)?.ended.cancel();
        Some(())
    }
}

impl Seats {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, taken: Mutex::default() })
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.lock().by_id.len()
    }

    /// Takes a place for a key; `now` is the clock's `elapsed`.
    ///
    /// # Errors
    /// `Busy` where all of this key's places are taken by subscribers that read, or all that there are and no organisation has
    /// more of them than this one would.
    pub(crate) fn take(
        self: &Arc<Self>,
        key: &PublicKey,
        standing: &Standing,
        now: Duration,
    ) -> Result<Seat, CallError> {
        let organisation = match standing {
            Standing::Peer(_, organisation) | Standing::Client { organisation, .. } => {
                Some(*organisation)
            }
            Standing::Stranger => None,
        };
        let mut taken = self.lock();
        let own = taken.by_id.values().filter(|sitting| sitting.key == *key).count();
        if own >= self.limits.subscribers_key_max {
            self.evict(&mut taken, now, |sitting| sitting.key == *key)?;
        }
        if taken.by_id.len() >= self.limits.subscribers_max {
            let evicted = self.evict(&mut taken, now, |_| true);
            evicted.or_else(|busy| taken.share(organisation.as_ref()).ok_or(busy))?;
        }
        let id = taken.next;
        taken.next += 1;
        let ended = CancellationToken::new();
        let sitting = Sitting { key: *key, organisation, unread_since: None, ended: ended.clone() };
        taken.by_id.insert(id, sitting);
        Ok(Seat { seats: Arc::clone(self), id, ended })
    }

    /// Ends all of a key.
    pub(crate) fn end(&self, key: &PublicKey) {
        self.lock().by_id.retain(|_, sitting| {
            if sitting.key == *key {
                sitting.ended.cancel();
            }
            sitting.key != *key
        });
    }

    /// Ends the one that has not read for the longest time, of those that have not for long enough.
    fn evict(
        &self,
        taken: &mut Taken,
        now: Duration,
        of: impl Fn(&Sitting) -> bool,
    ) -> Result<(), CallError> {
        let stalled = taken.by_id.iter().filter(|(_, sitting)| of(sitting));
        let stalled = stalled.filter_map(|(id, sitting)| Some((sitting.unread_since?, *id)));
        match stalled.min() {
            Some((since, id)) if self.is_stalled(since, now) => {
                if let Some(sitting) = taken.by_id.remove(&id) {
                    sitting.ended.cancel();
                }
                Ok(())
            }
            _ => Err(CallError::Busy { retry_after: RETRY_AFTER }),
        }
    }

    fn is_stalled(&self, since: Duration, now: Duration) -> bool {
        now.saturating_sub(since) > self.limits.subscriber_stall_max
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// An event is handed over at `now`.
    pub(crate) fn handed_over(&self, now: Duration) {
        if let Some(sitting) = self.seats.lock().by_id.get_mut(&self.id) {
            sitting.unread_since = Some(now);
        }
    }

    /// The next event is wanted at `now`; `false` where that took too long, or the place is gone.
    pub(crate) fn wanted(&self, now: Duration) -> bool {
        let mut taken = self.seats.lock();
        let Some(sitting) = taken.by_id.get_mut(&self.id) else { return false };
        let since = sitting.unread_since.take();
        since.is_none_or(|since| !self.seats.is_stalled(since, now))
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seat({})", self.id)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> PublicKey {
        crypto::SecretKey::from_bytes(&[n; 32]).expect("a scalar").public()
    }

    fn seats() -> Arc<Seats> {
        Seats::new(Limits { subscribers_max: 3, subscribers_key_max: 2, ..Limits::default() })
    }

    const LATER: Duration = Duration::from_secs(61);

    #[test]
    fn places_are_bounded_in_all_and_for_one_key_and_come_back() {
        let seats = seats();
        let first = seats.take(&key(1), &Standing::Stranger, Duration::ZERO).expect("room");
        let _second = seats.take(&key(1), &Standing::Stranger, Duration::ZERO).expect("room");
        assert!(
            seats.take(&key(1), &Standing::Stranger, LATER).is_err(),
            "two of one key, waiting for news"
        );
        let _third = seats.take(&key(2), &Standing::Stranger, Duration::ZERO).expect("room");
        assert!(seats.take(&key(3), &Standing::Stranger, LATER).is_err(), "three in all");
        drop(first);
        assert!(seats.take(&key(3), &Standing::Stranger, LATER).is_ok());
    }

    #[test]
    fn one_that_stopped_reading_loses_its_place_to_one_that_comes() {
        let seats = seats();
        let slow = seats.take(&key(1), &Standing::Stranger, Duration::ZERO).expect("room");
        let quick = seats.take(&key(2), &Standing::Stranger, Duration::ZERO).expect("room");
        let _idle = seats.take(&key(2), &Standing::Stranger, Duration::ZERO).expect("room");
        slow.handed_over(Duration::ZERO);
        quick.handed_over(Duration::ZERO);
        assert!(quick.wanted(Duration::from_secs(1)));
        assert!(
            seats.take(&key(3), &Standing::Stranger, Duration::from_secs(59)).is_err(),
            "not long enough"
        );
        let new = seats.take(&key(3), &Standing::Stranger, LATER).expect("the slow one's place");
        assert!(slow.ended.is_cancelled() && !slow.wanted(LATER));
        drop(slow);
        assert_eq!(seats.taken(), 3);
        assert!(new.wanted(LATER));
    }

    #[test]
    fn a_key_that_is_revoked_loses_its_places_at_once() {
        let seats = seats();
        let revoked = seats.take(&key(1), &Standing::Stranger, Duration::ZERO).expect("room");
        let other = seats.take(&key(2), &Standing::Stranger, Duration::ZERO).expect("room");
        seats.end(&key(1));
        assert!(revoked.ended.is_cancelled() && !revoked.wanted(Duration::ZERO));
        assert!(!other.ended.is_cancelled() && other.wanted(Duration::ZERO));
        assert_eq!(seats.taken(), 1);
    }

    #[test]
    fn one_that_comes_back_too_late_is_told_so() {
        let seats = seats();
        let slow = seats.take(&key(1), &Standing::Stranger, Duration::ZERO).expect("room");
        slow.handed_over(Duration::ZERO);
        assert!(!slow.wanted(LATER));
    }

    #[test]
    fn no_organisation_keeps_the_others_out_and_one_alone_may_have_all() {
        let limits = Limits { subscribers_max: 9, subscribers_key_max: 3, ..Limits::default() };
        let seats = Seats::new(limits);
        let of = |number: u8| {
            let organisation = OrgId::new(key(100 + number));
            Standing::Client { organisation, tier: crypto::Tier::Known, until: 0, quota: 0 }
        };
        let take = |n: u8, organisation: u8| seats.take(&key(n), &of(organisation), LATER);
        // One with three of one key, and six keys with one each.
        let mut all: Vec<Seat> = (0..3).map(|_| take(1, 1).expect("room")).collect();
        all.extend((2..8).map(|n| take(n, 1).expect("room")));
        assert!(take(8, 1).is_err(), "its own it does not end");
        let other: Vec<Seat> = (10..14).map(|n| take(n, 2).expect("the first one's")).collect();
        let ended = |seat: &Seat| seat.ended.is_cancelled();
        assert!(!ended(&all[0]) && ended(&all[1]) && ended(&all[2]), "who has most gives first");
        assert_eq!(all.iter().filter(|seat| ended(seat)).count(), 4);
        assert!(!other.iter().any(ended));
        assert!(take(14, 2).is_err(), "five and four");
        let peer = Standing::Peer(crypto::PeerId::new(key(20)), OrgId::new(key(103)));
        let third = seats.take(&key(20), &peer, LATER).expect("one of five");
        assert!(seats.take(&key(21), &Standing::Stranger, LATER).is_ok(), "of all one");
        assert!(!ended(&third));
    }
}
