//! What nobody pays for any more is dropped: at the end of a lease's time, or when its client ends it.
//!
//! Of a place that is a copy's its record; of a stripe's its header, and the fragments of it that are kept there. A fragment that
//! another lease pays for as a copy stays.
//!
//! Order: records and what was kept of the lease go in one removal, so that a crash leaves both or neither; were it to
//! leave the lease, the next sweep does it again.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crypto::{LeaseId, Place, RecordId};
use document::{Document, Kind};
use store::{PUT_RECORDS_MAX, StoreError};

use super::Leases;
use super::table::Ended;

/// Leases that one round of a sweep ends.
const ROUND_MAX: usize = 256;

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// Leases that ended.
    pub(crate) leases: u64,
    /// Records dropped.
    pub(crate) records: u64,
    /// What each client paid for that was dropped.
    pub(crate) freed: Vec<(crypto::ClientKey, u64)>,
}

impl Leases {
    /// Drops what no lease pays for any more, a round of it; whether there is more.
    ///
    /// # Errors
    /// The store's; what was not dropped is so by the next sweep.
    pub(crate) async fn sweep(&self, done: &mut Swept) -> Result<bool, StoreError> {
        let now = self.env.clock.unix_s();
        let (due, superfluous) = {
            let mut table = self.table();
            let mut due = table.due(now, ROUND_MAX);
            if due.len() < ROUND_MAX {
                due.extend(table.unfinished());
            }
            (due, table.unbury(now))
        };
        if !superfluous.is_empty() {
            self.remove(superfluous).await?;
        }
        let more = due.len() >= ROUND_MAX;
        let ended = self.end_all(&due, done).await?;
        // Where nothing could be ended, another round would do no better.
        Ok(more && ended > 0)
    }

    /// Ends these leases and drops what they alone paid for; how many ended.
    pub(super) async fn end_all(
        &self,
        leases: &[LeaseId],
        done: &mut Swept,
    ) -> Result<u64, StoreError> {
        let mut count = 0;
        for lease in leases {
            let Some(ended) = self.table().end(lease) else { continue };
            self.note_dropped(ended.places.iter().map(|(place, _)| *place));
            let guard = Dropping { leases: self, ended: &ended };
            let records = self.drop_records(&ended).await?;
            drop(guard);
            count += 1;
            done.leases += 1;
            done.records += records;
            let bytes = ended.places.iter().map(|(_, bytes)| bytes).sum();
            done.freed.extend(ended.client.map(|client| (client, bytes)));
        }
        Ok(count)
    }

    async fn drop_records(&self, ended: &Ended) -> Result<u64, StoreError> {
        let mut ids = Vec::new();
        for (place, _) in &ended.places {
            ids.extend(self.records_at(place).await?.into_iter().map(|(id, _)| id));
        }
        let records = ids.len() as u64;
        ids.extend(&ended.frames);
        for some in ids.chunks(PUT_RECORDS_MAX) {
            self.store.remove(some.to_vec()).await?;
        }
        self.recount(&ended.frames);
        if records > 0 {
            let mut erasing = self.erasing.lock().unwrap_or_else(PoisonError::into_inner);
            erasing.get_or_insert(self.env.clock.elapsed());
        }
        Ok(records)
    }

    /// The records that live at a place, with their bytes. Those that are damaged are among them.
    pub(super) async fn records_at(
        &self,
        place: &Place,
    ) -> Result<Vec<(RecordId, u64)>, StoreError> {
        let id = RecordId::new(*place.as_bytes());
        let mut found = Vec::new();
        let record = match self.store.get(&id).await {
            Err(StoreError::Damaged { .. }) => {
                // What a damaged header listed is not known; scrub mends it, or it is gone.
                found.push((id, 0));
                return Ok(found);
            }
            other => other?,
        };
        let own = |record: &document::Record| record.place == *place && record.kind.is_document();
        let Some(record) = record.filter(own) else { return Ok(found) };
        found.push((id, record.bytes.len() as u64));
        if record.kind == Kind::Stripe
            && let Ok(Document::Stripe(stripe)) = Document::decode(&record.bytes)
        {
            for fragment in stripe.fragments() {
                if !self.store.contains(fragment) || self.covers(&Place::from(*fragment)) {
                    continue;
                }
                match self.store.get(fragment).await {
                    Ok(Some(record)) if record.place == *place => {
                        found.push((*fragment, record.bytes.len() as u64));
                    }
                    Ok(_) => {}
                    Err(StoreError::Damaged { .. }) => found.push((*fragment, 0)),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(found)
    }

    /// Removes records of kind `lease`.
    pub(super) async fn remove(&self, frames: Vec<RecordId>) -> Result<(), StoreError> {
        for some in frames.chunks(PUT_RECORDS_MAX) {
            self.store.remove(some.to_vec()).await?;
        }
        self.recount(&frames);
        Ok(())
    }

    fn recount(&self, frames: &[RecordId]) {
        self.count_own(|own| frames.iter().for_each(|frame| own.remove(frame)));
    }

    /// Since when bytes that were dropped may be in the files.
    pub(crate) fn erasing_since(&self) -> Option<Duration> {
        *self.erasing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that was dropped until `begun` has left the files.
    pub(crate) fn erased(&self, begun: Duration) {
        let mut erasing = self.erasing.lock().unwrap_or_else(PoisonError::into_inner);
        if erasing.is_some_and(|since| since <= begun) {
            *erasing = None;
        }
    }
}

/// Lets a place take leases again when its records are gone, and also where that failed: they are dropped at the next start.
struct Dropping<'a> {
    leases: &'a Leases,
    ended: &'a Ended,
}

impl Drop for Dropping<'_> {
    fn drop(&mut self) {
        self.leases.table().dropped(self.ended);
    }
}

/// Ends leases until there is nothing to end.
pub(crate) async fn sweep_whole(leases: &Arc<Leases>) -> Result<Swept, StoreError> {
    let mut done = Swept::default();
    while leases.sweep(&mut done).await? {}
    Ok(done)
}
