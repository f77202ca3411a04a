//! The words that ended leases: kept, told on in the order in which they were heard, and forgotten when their time is over.

use std::ops::Bound;

use bytes::Bytes;
use crypto::{LeaseId, RecordId};

use super::{TOMBSTONES_MAX, Table, Tombstone};

impl Table {
    /// Keeps the word that ended a lease; what it makes superfluous.
    pub(crate) fn bury(
        &mut self,
        lease: LeaseId,
        bytes: Bytes,
        heard_ms: u64,
        until: u64,
        frame: RecordId,
    ) -> Vec<RecordId> {
        let mut superfluous = Vec::new();
        if let Some(old) = self.tombstones.remove(&lease) {
            self.heard.remove(&(old.heard_ms, lease));
            superfluous.extend((old.frame != frame).then_some(old.frame));
        }
        if self.tombstones.len() >= TOMBSTONES_MAX
            && let Some((_, oldest)) = self.heard.pop_first()
        {
            superfluous.extend(self.tombstones.remove(&oldest).map(|old| old.frame));
        }
        self.heard.insert((heard_ms, lease));
        self.tombstones.insert(lease, Tombstone { bytes, heard_ms, until, frame });
        superfluous
    }

    /// Whether the lease was ended, as far as is known.
    pub(crate) fn is_buried(&self, lease: &LeaseId) -> bool {
        self.tombstones.contains_key(lease)
    }

    /// Forgets words whose time is over at `now`, Unix seconds; where they are kept.
    pub(crate) fn unbury(&mut self, now: u64) -> Vec<RecordId> {
        let over: Vec<LeaseId> = self
            .tombstones
            .iter()
            .filter(|(_, tombstone)| tombstone.until <= now)
            .map(|(lease, _)| *lease)
            .collect();
        let mut frames = Vec::new();
        for lease in over {
            if let Some(tombstone) = self.tombstones.remove(&lease) {
                self.heard.remove(&(tombstone.heard_ms, lease));
                frames.push(tombstone.frame);
            }
        }
        frames
    }

    /// Words heard since then, Unix milliseconds, oldest first, of one moment those behind a lease; and where to go on, where
    /// there are more.
    pub(crate) fn tombstones_since(
        &self,
        since_ms: u64,
        after: Option<LeaseId>,
        max: usize,
    ) -> (Vec<Bytes>, Option<(u64, LeaseId)>) {
        let from = match after {
            Some(lease) => Bound::Excluded((since_ms, lease)),
            None => Bound::Included((since_ms, LeaseId::new([0; 32]))),
        };
        let mut heard = self.heard.range((from, Bound::Unbounded));
        let some: Vec<&(u64, LeaseId)> = heard.by_ref().take(max).collect();
        let last = some.last().map(|last| **last);
        let word = |(_, lease): &&(u64, LeaseId)| Some(self.tombstones.get(lease)?.bytes.clone());
        let words = some.iter().filter_map(word).collect();
        (words, last.filter(|_| heard.next().is_some()))
    }

    /// Leases that are held though a word ended them: a crash came between.
    pub(crate) fn unfinished(&self) -> Vec<LeaseId> {
        self.leases.keys().filter(|lease| self.tombstones.contains_key(lease)).copied().collect()
    }
}
