//! What a store on a disk needs done to it while it serves: its bytes read again, dead ones given back.
//!
//! It is a trait of its own because not every store has it: memory does not rot, and a cloud looks
//! after its own disks. Whoever runs the store decides when and how fast.

use async_trait::async_trait;
use crypto::{Place, RecordId};
use document::Kind;

use crate::{
    Compaction, CompactionOptions, LogStore, RecordStore, ScrubCursor, ScrubStep, StoreError,
};

/// A damaged record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Which.
    pub id: RecordId,
    /// What it is.
    pub kind: Kind,
    /// Where in the network others have it; `None` where that was lost with it.
    pub place: Option<Place>,
}

/// A store that can be looked after while it serves.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Where a scrub may begin, a random part of the way into the store, so that one that is broken off
    /// again and again still reads everything in time.
    fn scrub_start(&self, random: u64) -> ScrubCursor;
    /// See [`LogStore::scrub_step`].
    async fn scrub_step(&self, from: ScrubCursor, bytes_max: u64) -> Result<ScrubStep, StoreError>;
    /// Up to `limit` damaged records in the order of their ids, from `from` on (inclusive).
    async fn damaged(&self, from: &RecordId, limit: usize) -> Result<Vec<Damaged>, StoreError>;
    /// Whether a record is here and known to be damaged, by the index alone.
    fn is_damaged(&self, id: &RecordId) -> bool;
    /// See [`LogStore::compact`]. What it did is added to `done` as it is done, so that it is known
    /// where the work fails or is dropped, too.
    async fn compact(
        &self,
        options: CompactionOptions,
        done: &mut Compaction,
    ) -> Result<(), StoreError>;
    /// See [`LogStore::erase`]. Counted as [`Upkeep::compact`] is.
    async fn erase(
        &self,
        options: CompactionOptions,
        done: &mut Compaction,
    ) -> Result<(), StoreError> {
        self.compact(options, done).await
    }
    /// Bytes of the files that no live record needs.
    fn dead_bytes(&self) -> u64;
    /// Whether opening found that records are gone of which nothing is known, not even their ids.
    fn lost_records(&self) -> bool;
}

#[async_trait]
impl Upkeep for LogStore {
    fn scrub_start(&self, random: u64) -> ScrubCursor {
        self.cursor_at(random)
    }

    async fn scrub_step(&self, from: ScrubCursor, bytes_max: u64) -> Result<ScrubStep, StoreError> {
        Self::scrub_step(self, from, bytes_max).await
    }

    async fn damaged(&self, from: &RecordId, limit: usize) -> Result<Vec<Damaged>, StoreError> {
        let ids = self.damaged_ids(from, limit);
        let shared = self.shared.clone();
        let with_places = move || {
            let damaged = ids.into_iter().filter_map(|id| {
                let location = shared.index().get(&id)?;
                let place = shared.place_of(&id, &location).ok().flatten();
                Some(Damaged { id, kind: location.kind, place })
            });
            damaged.collect()
        };
        Ok(self.shared.env.blocking(with_places).await)
    }

    fn is_damaged(&self, id: &RecordId) -> bool {
        self.shared.index().get(id).is_some_and(|location| location.damaged)
    }

    async fn compact(
        &self,
        options: CompactionOptions,
        done: &mut Compaction,
    ) -> Result<(), StoreError> {
        self.compact_counting(options, done).await
    }

    async fn erase(
        &self,
        options: CompactionOptions,
        done: &mut Compaction,
    ) -> Result<(), StoreError> {
        self.erase_counting(options, done).await
    }

    fn lost_records(&self) -> bool {
        let found = self.recovery();
        found.gaps > 0 || found.unreadable_segments > 0
    }

    fn dead_bytes(&self) -> u64 {
        let stats = self.stats();
        let live: u64 = self.shared.index().segments().map(|(_, extent)| extent.live).sum();
        stats.file_bytes.saturating_sub(live)
    }
}
