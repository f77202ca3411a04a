//! Large records that were written a moment ago, kept in memory: who is told of a new document asks for it now.
//!
//! A read of 170 KiB past the cache takes 0.24 ms of the disk (NVMe, virtual) and two ways to another thread; here it is a
//! look into a table. Bytes are what their id says; where a record lives is said by the write that stored it, so only what was
//! new is kept. Whether it is still to be had, and not damaged on the disk, the index says before.
//!
//! Limits: records of up to [`RECORD_BYTES_MAX`], so many bytes of them as the store was opened with, each for [`KEPT_FOR`].
//! They are copied, 10 us for 170 KiB: a record as it came holds all of the message that it came in.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crypto::RecordId;
use document::Record;

/// Pages of large files are not asked for at once by many: they would only push out what is.
const RECORD_BYTES_MAX: usize = 1 << 20;
/// How long a record is kept.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(10);

/// The records that were written last.
pub(crate) struct Recent {
    bytes_max: usize,
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    records: HashMap<RecordId, (u64, Record)>,
    /// When each came, with its number, the oldest first. What was let go of stays here until its turn.
    order: VecDeque<(Duration, u64, RecordId)>,
    bytes: usize,
    number: u64,
}

impl All {
    fn let_go(&mut self, id: &RecordId, number: Option<u64>) {
        let found = self.records.get(id).map(|(of, _)| *of);
        if found.is_some_and(|of| number.is_none_or(|number| number == of))
            && let Some((_, record)) = self.records.remove(id)
        {
            self.bytes -= record.bytes.len();
        }
    }

    /// Lets go of what came before `since`, and of the oldest until there are no more bytes than that.
    fn shrink(&mut self, since: Duration, bytes_max: usize) {
        while let Some((at, number, id)) = self.order.front().copied()
            && (at < since || self.bytes > bytes_max)
        {
            self.order.pop_front();
            self.let_go(&id, Some(number));
        }
    }
}

impl Recent {
    /// None yet, and so many bytes at most.
    pub(crate) fn up_to(bytes_max: usize) -> Self {
        Self { bytes_max, all: Mutex::default() }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a record of so many bytes is kept.
    pub(crate) fn keeps(&self, bytes: usize) -> bool {
        bytes <= RECORD_BYTES_MAX.min(self.bytes_max)
    }

    /// Keeps records that are written now; whether there were none.
    pub(crate) fn add(&self, records: Vec<Record>, now: Duration) -> bool {
        let mut all = self.all();
        let first = all.order.is_empty();
        for record in records.into_iter().filter(|record| self.keeps(record.bytes.len())) {
            all.let_go(&record.id, None);
            all.number += 1;
            let number = all.number;
            let record = Record { bytes: Bytes::copy_from_slice(&record.bytes), ..record };
            all.bytes += record.bytes.len();
            all.order.push_back((now, number, record.id));
            all.records.insert(record.id, (number, record));
            all.shrink(Duration::ZERO, self.bytes_max);
        }
        first && !all.order.is_empty()
    }

    /// A record that was written lately.
    pub(crate) fn get(&self, id: &RecordId) -> Option<Record> {
        self.all().records.get(id).map(|(_, record)| record.clone())
    }

    /// These are to be had no more.
    pub(crate) fn remove(&self, ids: &[RecordId]) {
        let mut all = self.all();
        ids.iter().for_each(|id| all.let_go(id, None));
    }

    /// Lets go of what was here for long enough; when to do so again, if anything is left.
    pub(crate) fn expire(&self, now: Duration) -> Option<Duration> {
        let mut all = self.all();
        all.shrink(now.saturating_sub(KEPT_FOR), self.bytes_max);
        if all.order.is_empty() {
            // What it had room for goes too.
            *all = All { number: all.number, ..All::default() };
        }
        all.order.front().map(|(at, ..)| (*at + KEPT_FOR).saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use crypto::Suite;
    use document::Kind;

    use super::*;

    fn record(number: u8, length: usize) -> Record {
        let id = Suite::Holdfast1.id(&[number]);
        Record { kind: Kind::Entry, id, place: id.into(), bytes: Bytes::from(vec![number; length]) }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_last_are_kept_up_to_their_bytes_and_for_their_time() {
        let recent = Recent::up_to(250);
        let here = |number: u8| recent.get(&record(number, 0).id).map(|found| found.bytes.len());
        assert!(recent.add(vec![record(1, 100)], at(100)), "the first");
        assert!(!recent.add(vec![record(2, 100), record(9, 251)], at(101)));
        assert_eq!((here(1), here(2), here(9)), (Some(100), Some(100), None));
        recent.add(vec![record(3, 100)], at(102));
        assert_eq!((here(1), here(2), here(3)), (None, Some(100), Some(100)), "the oldest goes");
        recent.add(vec![record(2, 90)], at(103));
        assert_eq!(here(2), Some(90), "written again");
        assert_eq!(recent.expire(at(102) + KEPT_FOR), Some(at(0)));
        assert_eq!(
            recent
                .expire(at(102) + KEPT_FOR + Duration::from_millis(1))
                .map(|left| left.as_millis()),
            Some(999)
        );
        assert_eq!((here(3), here(2)), (None, Some(90)));
        recent.remove(&[record(2, 0).id]);
        assert_eq!((here(2), recent.all().bytes), (None, 0));
        assert_eq!(recent.expire(at(200)), None);
        assert!(recent.add(vec![record(4, 10)], at(201)), "the first again");
        let none = Recent::up_to(0);
        assert!(!none.add(vec![record(1, 100)], at(1)) && none.get(&record(1, 0).id).is_none());
    }
}
