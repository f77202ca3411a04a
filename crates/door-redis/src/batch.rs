//! The writes of a turn, and how they are taken back.
//!
//! Commands change the slots at once, so that the next command of the same turn sees what they did,
//! and answer into buffers that are not sent. Only then are the versions committed, with one write.
//! Where that fails, what the slots were is put back from the newest change to the oldest. A single
//! command that fails half way is taken back in the same manner, up to its own begin.
//!
//! A large turn is written in parts, each while the commands behind it are executed where the engine
//! can ([`Keyspace::begin`](crate::Keyspace::begin)). What those change stands on a part that may yet fail: then both are taken back.
//!
//! Invariants: nothing is sent before its batch is committed; after a failed commit each slot is
//! what it was after the last one that did not fail.

use std::collections::HashMap;

use bytes::Bytes;

use crate::door::{Door, NAME_BYTES_MAX};
use crate::error::Refusal;
use crate::fail::{self, Fail, TOO_MANY_WRITES};
use crate::keyspace::BATCH_BYTES;
use crate::run::WRITE_ARGUMENTS_MAX;
use crate::slots::State;
use crate::sorted::Member;
use version::{ObjectKey, VersionId};

/// Versions of a batch after which it is committed within the turn.
const BATCH_PUTS: usize = 4_096;
/// Records that one command or transaction writes: a version is one, and the first of an object comes with the object's own.
const RECORDS_MAX: usize = 57_344;
/// Bytes of these records.
const RECORD_BYTES_MAX: usize = 48 << 20;
/// What a record has beside a value or a name, at most.
const RECORD_HEAD_BYTES: usize = 256;
// The store takes in one write what waited before a command, and all that one command makes.
const _: () = assert!(2 * BATCH_PUTS + RECORDS_MAX <= store::PUT_RECORDS_MAX);
const WAITING_BYTES_MAX: usize =
    BATCH_BYTES + BATCH_PUTS * (NAME_BYTES_MAX + 2 * RECORD_HEAD_BYTES);
const _: () = assert!(WAITING_BYTES_MAX + RECORD_BYTES_MAX <= store::PUT_BYTES_MAX);
// Two arguments are a key or member that is new, and its first version; a sorted set may be new too.
const _: () = assert!(WRITE_ARGUMENTS_MAX + 2 <= RECORDS_MAX);

/// What a change is undone with.
#[derive(Debug)]
pub(crate) enum Undo {
    /// The slot was this.
    Slot { index: u32, state: State },
    /// All but the content was this.
    Head { index: u32, tip: Option<VersionId>, expires: u64, stamp: u64 },
    /// The member was this; `removed` is its tombstone that was pending where another was made.
    Member {
        index: u32,
        member: Bytes,
        old: Option<Member>,
        stamp: u64,
        removed: Option<Box<VersionId>>,
    },
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

/// What is written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    records: usize,
    bytes: usize,
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
    /// All of it.
    load: Load,
    /// What of it was there before the command.
    before: Load,
    /// Whether a write was refused as the command has too many.
    pub overrun: bool,
    /// Counts the batches.
    pub number: u32,
}

impl Batch {
    /// Counts a version that is to be written, with its object's name where that is written too.
    ///
    /// # Errors
    /// Where it is more than one command writes.
    pub(crate) fn count(&mut self, name: Option<usize>, value: usize) -> Result<(), Fail> {
        let Load { mut records, mut bytes } = self.load;
        records += 1 + usize::from(name.is_some());
        bytes += value + RECORD_HEAD_BYTES + name.map_or(0, |name| name + RECORD_HEAD_BYTES);
        let before = self.before;
        if records > before.records + RECORDS_MAX || bytes > before.bytes + RECORD_BYTES_MAX {
            self.overrun = true;
            return Err(TOO_MANY_WRITES);
        }
        self.load = Load { records, bytes };
        Ok(())
    }
}

/// A batch that is being written.
#[derive(Debug)]
pub(crate) struct Flight {
    pub number: u32,
    /// The number of the last write before it.
    pub start: u64,
    undo: Vec<Undo>,
    events: Vec<Event>,
}

/// A place in the batch to go back to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Save {
    undo: usize,
    puts: usize,
    events: usize,
    bytes: usize,
    load: Load,
    /// Of the batch.
    number: u32,
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
            load: self.batch.load,
            number: self.batch.number,
        }
    }

    /// A command begins: it may write so much of its own.
    pub(crate) fn begin_command(&mut self) {
        self.batch.before = self.batch.load;
        self.batch.overrun = false;
    }

    /// Takes back what was done since, as far as it is not committed or on its way to be.
    pub(crate) fn back_to(&mut self, save: Save) {
        let number = self.batch.number;
        let save = if save.number == number { save } else { Save { number, ..Save::default() } };
        if self.keyspace.pending() > save.puts {
            self.keyspace.abandon(save.puts);
        }
        self.undo_to(save.undo);
        self.batch.events.truncate(save.events);
        self.batch.bytes = save.bytes;
        self.batch.load = save.load;
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
                Some(Undo::Member { index, member, old, stamp, removed }) => {
                    let sorted = self.slots.sorted_mut(index);
                    let undone = sorted.and_then(|sorted| sorted.set(&member, old));
                    // Another change than a removal left a tombstone that is pending where it was.
                    if let (None, Some(old)) = (undone, old) {
                        match removed {
                            Some(id) => self.batch.removed.insert(old.object, *id),
                            None => self.batch.removed.remove(&old.object),
                        };
                    }
                    self.slots.stamp(index, stamp);
                }
                None => break,
            }
        }
    }

    /// Notes that the command read or wrote a slot that was last written as this number.
    pub(crate) fn lean_on(&mut self, stamp: u64) {
        self.touched |= stamp > self.batch.start;
        self.leans |= self.flight.as_ref().is_some_and(|flight| stamp > flight.start);
    }

    /// Notes that the command's answer is about all keys.
    pub(crate) fn lean_on_all(&mut self) {
        self.touched |= self.has_writes();
        self.leans |= self.flight.is_some();
    }

    /// The batch, not yet written, that the answer of the last command depends on.
    pub(crate) fn depends(&self) -> Option<u32> {
        match (self.touched, &self.flight) {
            (true, _) => Some(self.batch.number),
            (false, Some(flight)) if self.leans => Some(flight.number),
            _ => None,
        }
    }

    /// Whether something waits to be committed.
    pub(crate) fn has_writes(&self) -> bool {
        !self.batch.undo.is_empty() || self.keyspace.pending() > 0
    }

    /// Begins to write a batch that is large enough on its own.
    pub(crate) fn commit_large(&mut self) {
        let large = self.keyspace.pending() >= BATCH_PUTS
            || self.batch.bytes >= self.keyspace.batch_bytes().min(BATCH_BYTES);
        if large && self.land() {
            self.begin();
        }
    }

    fn begin(&mut self) {
        self.counters.commits += 1;
        let begun = self.keyspace.begin();
        let (undo, events) =
            (std::mem::take(&mut self.batch.undo), std::mem::take(&mut self.batch.events));
        let (number, start) = (self.batch.number, self.batch.start);
        let flight = Flight { number, start, undo, events };
        match begun {
            Ok(true) => self.flight = Some(flight),
            Ok(false) => self.kept(flight),
            Err(refusal) => self.lost(flight, &refusal),
        }
        self.next_batch();
    }

    /// Waits for what is being written; whether that worked. Where not, it and what came behind it are
    /// taken back.
    pub(crate) fn land(&mut self) -> bool {
        let Some(flight) = self.flight.take() else { return true };
        match self.keyspace.land() {
            Ok(()) => {
                self.kept(flight);
                true
            }
            Err(refusal) => {
                self.keyspace.abandon(0);
                self.undo_to(0);
                self.batch.events.clear();
                let text = fail::failed(&refusal);
                self.failures.push(Failure { number: self.batch.number, text });
                self.lost(flight, &refusal);
                self.next_batch();
                false
            }
        }
    }

    fn kept(&mut self, mut flight: Flight) {
        self.told.append(&mut flight.events);
        self.failed_at = None;
        self.landings += 1;
    }

    /// A batch was not written, and all that came behind it was taken back already.
    fn lost(&mut self, flight: Flight, refusal: &Refusal) {
        tracing::error!(error = %refusal, "the door's writes were not kept");
        self.counters.failed_commits += 1;
        self.failed_at = Some(self.now);
        self.batch.undo = flight.undo;
        self.undo_to(0);
        let text = fail::failed(refusal);
        self.failures.push(Failure { number: flight.number, text });
        self.landings += 1;
    }

    fn next_batch(&mut self) {
        self.batch.start = self.stamp;
        self.batch.number = self.batch.number.wrapping_add(1);
        self.batch.bytes = 0;
        (self.batch.load, self.batch.before) = (Load::default(), Load::default());
    }

    /// Whether a batch is neither written nor lost.
    pub(crate) fn is_open(&self, number: u32) -> bool {
        number == self.batch.number
            || self.flight.as_ref().is_some_and(|flight| flight.number == number)
    }

    /// Commits all writes since the last commit; whether that worked. Where not, the slots are what
    /// they were, and `failures` says what to answer.
    pub(crate) fn commit(&mut self) -> bool {
        let mut good = self.land();
        if self.has_writes() {
            self.counters.commits += 1;
            match self.keyspace.commit() {
                Ok(()) => {
                    self.batch.undo.clear();
                    self.told.append(&mut self.batch.events);
                    self.failed_at = None;
                }
                Err(refusal) => {
                    self.batch.events.clear();
                    let undo = std::mem::take(&mut self.batch.undo);
                    let (number, start) = (self.batch.number, self.batch.start);
                    self.lost(Flight { number, start, undo, events: Vec::new() }, &refusal);
                    good = false;
                }
            }
        }
        // Only now: a slot whose key is on its way out may be looked up until then.
        while let Some(index) = self.batch.absent.pop() {
            self.slots.forget(index);
        }
        self.batch.removed.clear();
        self.next_batch();
        good
    }
}
