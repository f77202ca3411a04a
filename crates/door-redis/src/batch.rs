//! The writes of a turn, and how they are taken back.
//!
//! Commands change the slots at once, so that the next command of the same turn sees what they did,
//! and answer into buffers that are not sent. Only then are the versions committed, with one write.
//! Where that fails, what the slots were is put back from the newest change to the oldest. A single
//! command that fails half way is taken back in the same manner, up to its own begin.
//!
//! Invariants: nothing is sent before its batch is committed; after a failed commit each slot is
//! what it was after the last one that did not fail.

use std::collections::HashMap;

use bytes::Bytes;

use crate::door::Door;
use crate::fail;
use crate::slots::State;
use crate::sorted::Member;
use version::{ObjectKey, VersionId};

/// Versions of a batch after which it is committed within the turn. The engine takes 65,536 records
/// at once; one command may make the rest.
const BATCH_PUTS: usize = 8_192;

/// What a change is undone with.
#[derive(Debug)]
pub(crate) enum Undo {
    /// The slot was this.
    Slot { index: u32, state: State },
    /// All but the content was this.
    Head { index: u32, tip: Option<VersionId>, expires: u64, stamp: u64 },
    /// The member was this.
    Member { index: u32, member: Bytes, old: Option<Member>, stamp: u64 },
}

/// A version that watchers are told of.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The key.
    pub key: Bytes,
    /// The member, where the version is one's.
    pub member: Option<Bytes>,
    /// The version.
    pub id: VersionId,
}

/// Writes since the last commit.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub undo: Vec<Undo>,
    /// The number of the last write before this batch.
    pub start: u64,
    /// Slots that may be absent now.
    pub absent: Vec<u32>,
    /// Tombstones of members that the engine does not know yet.
    pub removed: HashMap<ObjectKey, VersionId>,
    pub events: Vec<Event>,
    pub bytes: usize,
    /// Counts the batches.
    pub number: u32,
}

/// A place in the batch to go back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Save {
    undo: usize,
    puts: usize,
    events: usize,
    bytes: usize,
}

/// A batch that was not committed, and what its commands are answered.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The batch.
    pub number: u32,
    /// The error.
    pub text: String,
}

impl Door {
    /// Where the batch is now.
    pub(crate) fn save(&self) -> Save {
        Save {
            undo: self.batch.undo.len(),
            puts: self.keyspace.pending(),
            events: self.batch.events.len(),
            bytes: self.batch.bytes,
        }
    }

    /// Takes back what was done since. Where the batch was committed meanwhile there is less to
    /// take back.
    pub(crate) fn back_to(&mut self, save: Save) {
        if self.keyspace.pending() > save.puts {
            self.keyspace.abandon(save.puts);
        }
        self.undo_to(save.undo);
        self.batch.events.truncate(save.events);
        self.batch.bytes = self.batch.bytes.min(save.bytes);
    }

    fn undo_to(&mut self, to: usize) {
        while self.batch.undo.len() > to {
            match self.batch.undo.pop() {
                Some(Undo::Slot { index, state }) => {
                    self.slots.replace(index, state);
                }
                Some(Undo::Head { index, tip, expires, stamp }) => {
                    self.slots.retouch(index, tip, expires, stamp);
                }
                Some(Undo::Member { index, member, old, stamp }) => {
                    if let Some(old) = old {
                        self.batch.removed.remove(&old.object);
                    }
                    if let Some(sorted) = self.slots.sorted_mut(index) {
                        sorted.set(&member, old);
                    }
                    self.slots.stamp(index, stamp);
                }
                None => break,
            }
        }
    }

    /// Whether something waits to be committed.
    pub(crate) fn has_writes(&self) -> bool {
        !self.batch.undo.is_empty() || self.keyspace.pending() > 0
    }

    /// Commits a batch that is large enough on its own.
    pub(crate) fn commit_large(&mut self) {
        if self.keyspace.pending() >= BATCH_PUTS || self.batch.bytes >= self.keyspace.batch_bytes()
        {
            self.commit();
        }
    }

    /// Commits all writes since the last commit; whether that worked. Where not, the slots are what
    /// they were, and `failures` says what to answer.
    pub(crate) fn commit(&mut self) -> bool {
        let mut good = true;
        if self.has_writes() {
            self.counters.commits += 1;
            match self.keyspace.commit() {
                Ok(()) => {
                    self.batch.undo.clear();
                    self.told.append(&mut self.batch.events);
                }
                Err(refusal) => {
                    tracing::error!(error = %refusal, "the door's writes were not kept");
                    self.counters.failed_commits += 1;
                    self.failed_at = Some(self.now);
                    self.undo_to(0);
                    self.batch.events.clear();
                    let text = fail::failed(&refusal);
                    self.failures.push(Failure { number: self.batch.number, text });
                    good = false;
                }
            }
            self.failed_at = self.failed_at.filter(|_| !good);
        }
        while let Some(index) = self.batch.absent.pop() {
            self.slots.forget(index);
        }
        self.batch.removed.clear();
        self.batch.start = self.stamp;
        self.batch.number = self.batch.number.wrapping_add(1);
        self.batch.bytes = 0;
        good
    }
}
