//! Full segments on their way to the disk, while writing goes on in the next one.
//!
//! The fsync of a segment takes as long as writing the next does, and where its rows were not kept (`index_file::Rows`)
//! reading it again for its index file half of that. Where nobody waits for an fsync (`everysec`, `memory`), both are done
//! beside the writes. Whoever does wait syncs what is here first, so a later record is never acknowledged as durable before an earlier one is.
//!
//! Invariants:
//! 1. A segment is here until it is synced and its index file written; at most [`SEALED_MAX`] are.
//! 2. One thread at a time works on them, oldest first. What it holds meanwhile nobody needs who reads.
//!
//! A power cut before that leaves a segment without an index file: opening reads its payloads, and serves none that was lost.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::segment::Segment;
use super::{Shared, index_file};
use crate::StoreError;

/// Segments that wait at most: the disk is slower than the writers then, and they wait for it.
const SEALED_MAX: usize = 2;

/// Segments that wait.
#[derive(Default)]
pub(super) struct Sealed {
    waiting: Mutex<VecDeque<Segment>>,
    working: Mutex<()>,
}

impl Sealed {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Segment>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Takes a full segment, to be finished beside the writes; gives it back where too many wait.
    pub(super) fn seal(shared: &Arc<Self>, segment: Segment) -> Option<Segment> {
        {
            let mut waiting = shared.sealed.waiting();
            if waiting.len() >= SEALED_MAX {
                return Some(segment);
            }
            waiting.push_back(segment);
        }
        let finishing = shared.clone();
        shared.env.tasks.blocking(Box::new(move || drop(finishing.finish_sealed())));
        None
    }

    /// Syncs what waits and writes its index files. Blocks; also until whoever else does it is done.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] where an fsync fails, or failed.
    pub(super) fn finish_sealed(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.sealed.working.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(segment) = self.sealed.waiting().front().cloned() else { return Ok(()) };
            self.sync_file(&*segment.file)?;
            self.write_index(&segment);
            self.sealed.waiting().pop_front();
        }
    }

    /// Writes the index file of a segment that is synced. Opening makes it again where that failed.
    pub(super) fn write_index(&self, segment: &Segment) {
        if segment.suspect {
            return;
        }
        match index_file::write(&*self.disk, segment, self.suite_number()) {
            Ok(len) => {
                let more = len.saturating_sub(segment.index_bytes);
                self.file_bytes.fetch_add(more, Ordering::SeqCst);
            }
            Err(error) => tracing::warn!(%error, "cannot write a segment's index"),
        }
    }
}
