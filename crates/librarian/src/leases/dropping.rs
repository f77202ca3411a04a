//! What nobody pays for any more is dropped: at the end of a lease's time, or when its client ends it.
//!
//! Of a place that is a copy's its record; of a stripe's its header, and the fragments of it that are kept there. A fragment that
//! another lease pays for as a copy stays.
//!
//! Order: records and what was kept of the lease go in one removal, fragments before their header and the lease last; were a crash to
//! leave the lease, the next sweep does it again. Where a removal fails its place takes neither lease nor record until a sweep has
//! done it. All of it is done by tasks that nobody's going away ends.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use crypto::{LeaseId, Place, RecordId};
use document::{Document, Kind};
use store::{PUT_RECORDS_MAX, StoreError};

use super::table::{Charge, Ended, LetGo};
use super::{Leases, owned};
use crate::{fragments, listing};

/// Leases that one round of a sweep ends.
const ROUND_MAX: usize = 256;

/// Places at which nothing is written until it is dropped.
pub(crate) struct KeptOff<'a> {
    leases: &'a Leases,
    pub(crate) places: Vec<Place>,
}

impl Drop for KeptOff<'_> {
    fn drop(&mut self) {
        self.leases.table().let_on(&self.places);
    }
}

/// What lives at a place.
#[derive(Debug, Default)]
pub(super) struct Here {
    /// With its bytes, a stripe's header first.
    pub(super) records: Vec<(RecordId, u64)>,
    /// Whether it cannot be read for damage: then its own bytes are not known, nor is what it lists.
    damaged: bool,
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// Leases that ended.
    pub(crate) leases: u64,
    /// Records dropped.
    pub(crate) records: u64,
    /// What each client was charged for that was dropped.
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
        let (mut count, mut failed) = (0, None);
        for lease in leases {
            let Some(ended) = self.table().end(lease) else { continue };
            self.note_dropped(ended.places.iter().map(|(place, _)| *place));
            count += 1;
            done.leases += 1;
            // One that cannot be dropped now keeps no other.
            failed = failed.or(self.finish(ended, done).await.err());
        }
        failed.map_or(Ok(count), Err)
    }

    /// Drops what could not be dropped before.
    pub(super) async fn finish_undone(&self, done: &mut Swept) -> Result<(), StoreError> {
        let mut failed = None;
        let mut left = self.undone().len();
        // Each stays in the list until its turn; what fails goes to the end, for the next time.
        while left > 0 {
            left -= 1;
            let next = {
                let mut undone = self.undone();
                if undone.is_empty() { None } else { Some(undone.remove(0)) }
            };
            let Some(ended) = next else { break };
            failed = failed.or(self.finish(ended, done).await.err());
        }
        failed.map_or(Ok(()), Err)
    }

    fn undone(&self) -> MutexGuard<'_, Vec<Ended>> {
        self.undone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what one of these leases paid for is still to be dropped.
    pub(super) fn is_undone(&self, leases: &[LeaseId]) -> bool {
        let undone = self.undone();
        undone.iter().any(|ended| ended.lease.is_some_and(|lease| leases.contains(&lease)))
    }

    async fn finish(&self, ended: Ended, done: &mut Swept) -> Result<(), StoreError> {
        match self.drop_records(&ended, done).await {
            Ok(()) => {
                self.table().dropped(&ended);
                Ok(())
            }
            Err(error) => {
                self.undone().push(ended);
                Err(error)
            }
        }
    }

    async fn drop_records(&self, ended: &Ended, done: &mut Swept) -> Result<(), StoreError> {
        let (mut ids, mut freed, mut damaged) = (Vec::new(), Vec::new(), Vec::new());
        for (place, charge) in &ended.places {
            let Here { records, damaged: is_damaged } =
                self.records_at(place, charge.is_some()).await?;
            if let Some(Charge { client, bytes }) = charge {
                let there = records.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
                // Of what is damaged nobody can say how much it was.
                freed.push((*client, if is_damaged { *bytes } else { there.min(*bytes) }));
            }
            damaged.extend(is_damaged.then_some(*place));
            // The header behind its fragments: of a removal that a power cut tore no fragment stays that nothing names.
            ids.extend(records.into_iter().rev().map(|(id, _)| id));
        }
        let fragments = self.fragments_of(damaged).await?;
        ids.splice(0..0, fragments);
        let records = ids.len() as u64;
        ids.extend(&ended.frames);
        for some in ids.chunks(PUT_RECORDS_MAX) {
            self.store.remove(some.to_vec()).await?;
        }
        self.recount(&ended.frames);
        done.records += records;
        done.freed.extend(freed);
        if records > 0 {
            let mut erasing = self.erasing.lock().unwrap_or_else(PoisonError::into_inner);
            erasing.get_or_insert(self.env.clock.elapsed());
        }
        Ok(())
    }

    /// The records that live at a place, with their bytes, those of fragments where `sized` asks for them: they must be read for
    /// that. Those that are damaged are among them.
    pub(super) async fn records_at(&self, place: &Place, sized: bool) -> Result<Here, StoreError> {
        let id = RecordId::new(*place.as_bytes());
        let mut found = Vec::new();
        let record = match self.store.get(&id).await {
            Err(StoreError::Damaged { .. }) => {
                return Ok(Here { records: vec![(id, 0)], damaged: true });
            }
            other => other?,
        };
        let own = |record: &document::Record| record.place == *place && record.kind.is_document();
        let Some(record) = record.filter(own) else { return Ok(Here::default()) };
        found.push((id, record.bytes.len() as u64));
        if record.kind == Kind::Stripe
            && let Ok(Document::Stripe(stripe)) = Document::decode(&record.bytes)
        {
            for fragment in stripe.fragments() {
                if !self.store.contains(fragment) || self.covers(&Place::from(*fragment)) {
                    continue;
                }
                if !sized {
                    let listed = self.store.list(fragment, 1).await?;
                    if let Some(listed) = listed.first().filter(|placed| placed.id == *fragment) {
                        found.extend((listed.place == *place).then_some((*fragment, 0)));
                        continue;
                    }
                    // Its place was lost with it, or cannot be read now: then it may be kept for another stripe.
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
        Ok(Here { records: found, damaged: false })
    }

    /// The fragments that live at these places, where what is damaged is the header that lists them: all that is here is gone through
    /// for it, once.
    async fn fragments_of(&self, damaged: Vec<Place>) -> Result<Vec<RecordId>, StoreError> {
        let mut headers = BTreeSet::new();
        for place in damaged {
            let id = RecordId::new(*place.as_bytes());
            let listed = self.store.list(&id, 1).await?;
            // What is so damaged that nobody can say what it was, may be one.
            let kind = listed.first().filter(|listed| listed.id == id).map(|listed| listed.kind);
            if kind.is_none_or(|kind| kind == Kind::Stripe) {
                headers.insert(place);
            }
        }
        let (mut found, mut from) = (Vec::new(), Some(RecordId::new([0; 32])));
        if headers.is_empty() {
            return Ok(found);
        }
        while let Some(first) = from {
            let (listed, next) = listing::part(&*self.store, &first).await?;
            from = next;
            let fragments = listed.iter().filter(|one| {
                headers.contains(&one.place) && fragments::is_one(one.kind, &one.id, &one.place)
            });
            let alone = fragments.filter(|one| !self.covers(&Place::from(one.id)));
            found.extend(alone.map(|one| one.id));
        }
        Ok(found)
    }

    /// Records were dropped here since others hold them: who paid for them pays no more here, and whose quota was charged for them
    /// is told, with how much. Their leaves may stay in frames that other places need; a start passes over leaves without a record.
    pub(crate) async fn let_go(&self, places: &[Place]) -> (Vec<Charge>, Result<(), StoreError>) {
        let LetGo { frames, passes, charges } = self.table().let_go(places);
        let removed = if frames.is_empty() { Ok(()) } else { self.remove(frames).await };
        self.table().gone(&passes);
        (charges, removed)
    }

    /// Keeps writes and leases off places whose records are about to be dropped since others hold them: those of them at which nothing
    /// is being written. A lease that came in between would be taken off a record that is there.
    pub(crate) fn keep_off(&self, places: &[Place]) -> KeptOff<'_> {
        let places = self.table().keep_off(places);
        KeptOff { leases: self, places }
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

    /// Begins to let what was dropped until now leave the files: what is dropped from here on is noted anew.
    pub(crate) fn begin_erasing(&self) {
        *self.erasing.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Some of it is in the files still: it is tried again as if it had been dropped then.
    pub(crate) fn erase_again(&self, since: Duration) {
        let mut erasing = self.erasing.lock().unwrap_or_else(PoisonError::into_inner);
        *erasing = Some(erasing.map_or(since, |other| other.min(since)));
    }
}

/// Ends leases until there is nothing to end, also where whoever waits for it goes away: what was dropped, and why not all was.
pub(crate) async fn sweep_whole(leases: &Arc<Leases>) -> (Swept, Option<StoreError>) {
    let all = Arc::clone(leases);
    let work = async move {
        let mut done = Swept::default();
        // What cannot be dropped, as a sector that cannot be read, keeps nothing else.
        let mut failed = all.finish_undone(&mut done).await.err();
        loop {
            match all.sweep(&mut done).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    let one = matches!(error, StoreError::Io { .. } | StoreError::Damaged { .. });
                    failed = failed.or(Some(error));
                    if !one {
                        break;
                    }
                }
            }
        }
        (done, failed)
    };
    owned(&leases.env, work).await.unwrap_or((Swept::default(), Some(StoreError::Closed)))
}
