//! The keys behind the door: looked up, read, written as versions.
//!
//! All that commands do to keys goes through here. It knows nothing of connections.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::batch::{Batch, Event, Failure, Flight, Undo};
use crate::counters::Counters;
use crate::error::Refusal;
use crate::fail::{
    Fail, KEY_TOO_LONG, NOT_KEPT, TOO_LONG, TOO_MANY_KEYS, WRITES_ENDED, WRONG_TYPE,
};
use crate::keyspace::{Keyspace, Made, Put, Tip};
use crate::members::Members;
use crate::options::{Compress, Options};
use crate::session::{Client, Watcher};
use crate::slots::{Content, Slots, State};
use crate::sorted::{Member, Sorted};
use crate::table::Table;
use crate::value::{self, NEVER, TEXT_BYTES_MAX, VALUE_BYTES_MAX, Value};
use version::{ObjectKey, ValueKind, VersionId};

/// The family's names of keys begin with this.
pub(crate) const KEYS: &[u8] = b"redis/k";
/// The names of sorted sets' members.
pub(crate) const MEMBERS: &[u8] = b"redis/z";
/// The longest name of an object, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 1_024;
/// The longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = NAME_BYTES_MAX - KEYS.len();
/// Keys whose versions are read at a time while nobody asks for them.
const WARM_STEP: u32 = 64;
/// News that could not be read and are tried again, at most; what is beyond is found at the next start.
const UNREAD_MAX: usize = 65_536;
/// How long until they are.
const RETRY_PAUSE_MS: u64 = 1_000;
const VERSION_NOT_HERE: Fail =
    Fail::Say("ERR the key's version is not here; the peer's log tells why");
/// Keys that have ended and are deleted at a time.
const SWEEP_STEP: usize = 1_000;
/// Bytes of values beyond the cache that one turn may read before others are dropped.
const CACHE_SLACK_BYTES: usize = 8 << 20;
/// After a failed commit nothing is swept for so long, in ms.
const SWEEP_PAUSE_MS: u64 = 10_000;

/// What a key is to be.
#[derive(Debug)]
pub(crate) enum New<'a> {
    /// Deleted.
    Gone,
    /// A string.
    Text(&'a [u8]),
    /// A hash of these encoded fields.
    Hash(&'a [u8]),
    /// A sorted set without members.
    Sorted,
}

/// The keys, and what commands need beside them.
pub(crate) struct Door {
    pub(crate) keyspace: Box<dyn Keyspace>,
    pub(crate) slots: Slots,
    pub(crate) batch: Batch,
    pub(crate) options: Options,
    pub(crate) counters: Counters,
    pub(crate) table: Table,
    /// Unix ms of this turn.
    pub(crate) now: u64,
    /// The number of the last write.
    pub(crate) stamp: u64,
    /// Whether the command read or wrote what this batch has changed.
    pub(crate) touched: bool,
    /// Whether it read or wrote what the batch that is being written has changed.
    pub(crate) leans: bool,
    /// The batch that is being written.
    pub(crate) flight: Option<Flight>,
    /// How many such batches there were.
    pub(crate) landings: u64,
    /// Batches of this turn that were not kept.
    pub(crate) failures: Vec<Failure>,
    /// Whether no more versions are made.
    pub(crate) writes_ended: bool,
    /// Since when commits fail.
    pub(crate) failed_at: Option<u64>,
    /// What watchers are to be told: it is in the log.
    pub(crate) told: Vec<Event>,
    pub(crate) clients: BTreeMap<u64, Client>,
    pub(crate) watchers: Vec<Watcher>,
    pub(crate) password: Option<blake3::Hash>,
    pub(crate) started: u64,
    /// Bytes that the other connections hold of answers.
    pub(crate) outputs_bytes: usize,
    pub(crate) members: Members,
    pub(crate) name: Vec<u8>,
    /// What others wrote and could not be read yet.
    unread: Vec<(Box<[u8]>, ObjectKey, Tip)>,
    /// When that is tried again, Unix ms.
    retry_from: u64,
    warm: u32,
    /// Bytes in the cache from which on values are dropped within a turn.
    evict_from: usize,
}

impl Door {
    /// Loads all keys: their names, objects and tips. Values are read when they are asked for.
    ///
    /// # Errors
    /// Of the engine.
    pub(crate) fn open(
        options: Options,
        keyspace: Box<dyn Keyspace>,
        now: u64,
    ) -> Result<Self, Refusal> {
        let evict_from = options.cache_bytes.saturating_add(CACHE_SLACK_BYTES);
        let password = options.password.as_ref().map(|text| blake3::hash(text.as_bytes()));
        let mut door = Self {
            keyspace,
            slots: Slots::new(),
            batch: Batch::default(),
            options,
            counters: Counters::default(),
            table: Table::new(),
            now,
            stamp: 0,
            touched: false,
            leans: false,
            flight: None,
            landings: 0,
            failures: Vec::new(),
            writes_ended: false,
            failed_at: None,
            told: Vec::new(),
            clients: BTreeMap::new(),
            watchers: Vec::new(),
            password,
            started: now,
            outputs_bytes: 0,
            members: Members::default(),
            name: Vec::new(),
            unread: Vec::new(),
            retry_from: 0,
            warm: 0,
            evict_from,
        };
        door.load()?;
        Ok(door)
    }

    /// The slot of a key that is there.
    pub(crate) fn lookup(&mut self, key: &[u8]) -> Result<Option<u32>, Fail> {
        let found = self.slots.find(self.slots.hash(key), key);
        let seen = match found {
            Some(index) => self.see(index)?,
            None => None,
        };
        if seen.is_some() {
            self.counters.hits += 1;
        } else {
            self.counters.misses += 1;
        }
        Ok(seen)
    }

    /// The same slot, if its key is there now; what it is, is then known.
    pub(crate) fn see(&mut self, index: u32) -> Result<Option<u32>, Fail> {
        let state = &self.slots.slot(index).state;
        let is_unknown = matches!(state.content, Content::Unknown);
        self.lean_on(state.stamp);
        if is_unknown {
            self.resolve(index)?;
        }
        let state = &self.slots.slot(index).state;
        if matches!(state.content, Content::Absent) || state.expires <= self.now {
            return Ok(None);
        }
        self.slots.touch(index);
        Ok(Some(index))
    }

    /// The slot of a key that is there, also where it cannot be read: its tip is enough to put a version on.
    pub(crate) fn present(&mut self, key: &[u8]) -> Result<Option<u32>, Fail> {
        match self.slots.find(self.slots.hash(key), key) {
            Some(index) => Ok(self.is_present(index)?.then_some(index)),
            None => Ok(None),
        }
    }

    /// Whether a slot's key is there. One that cannot be read is: what has ended by a tombstone is not loaded.
    pub(crate) fn is_present(&mut self, index: u32) -> Result<bool, Fail> {
        let is_unknown = matches!(self.slots.slot(index).state.content, Content::Unknown);
        if is_unknown && !self.land() {
            return Err(NOT_KEPT);
        }
        Ok(self.see(index).map_or(true, |seen| seen.is_some()))
    }

    /// The slot of a string that is there, its bytes in the cache.
    pub(crate) fn text(&mut self, key: &[u8]) -> Result<Option<u32>, Fail> {
        let Some(index) = self.lookup(key)? else { return Ok(None) };
        match &self.slots.slot(index).state.content {
            Content::Text(Some(_)) => {}
            Content::Text(None) => self.read(index)?,
            _ => return Err(WRONG_TYPE),
        }
        Ok(Some(index))
    }

    /// The slot of a hash that is there, its fields in the cache.
    pub(crate) fn hash(&mut self, key: &[u8]) -> Result<Option<u32>, Fail> {
        let Some(index) = self.lookup(key)? else { return Ok(None) };
        match &self.slots.slot(index).state.content {
            Content::Hash(Some(_)) => {}
            Content::Hash(None) => self.read(index)?,
            _ => return Err(WRONG_TYPE),
        }
        Ok(Some(index))
    }

    /// The slot of a sorted set that is there.
    pub(crate) fn sorted(&mut self, key: &[u8]) -> Result<Option<u32>, Fail> {
        let Some(index) = self.lookup(key)? else { return Ok(None) };
        match &self.slots.slot(index).state.content {
            Content::Sorted(_) => Ok(Some(index)),
            _ => Err(WRONG_TYPE),
        }
    }

    /// The bytes of a string or the fields of a hash that are in the cache.
    pub(crate) fn bytes(&self, index: u32) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        match &self.slots.slot(index).state.content {
            Content::Text(Some(bytes)) | Content::Hash(Some(bytes)) => bytes,
            _ => &NONE,
        }
    }

    /// The sorted set of a slot that has one.
    pub(crate) fn set_of(&self, index: u32) -> Option<&Sorted> {
        match &self.slots.slot(index).state.content {
            Content::Sorted(sorted) => Some(sorted),
            _ => None,
        }
    }

    /// The slot of a key, there or not.
    pub(crate) fn slot_for(&mut self, key: &[u8]) -> Result<u32, Fail> {
        let hash = self.slots.hash(key);
        if let Some(index) = self.slots.find(hash, key) {
            let state = &self.slots.slot(index).state;
            let is_unknown = matches!(state.content, Content::Unknown);
            self.lean_on(state.stamp);
            if is_unknown && self.members.are_loaded() {
                // One that cannot be read can be written.
                self.is_present(index)?;
            }
            self.slots.touch(index);
            return Ok(index);
        }
        if key.len() > KEY_BYTES_MAX {
            return Err(KEY_TOO_LONG);
        }
        key_name(&mut self.name, key);
        let (object, tip) = self.keyspace.open(&self.name)?;
        let tip = tip.map(|tip| tip.id);
        let state = State { content: Content::Absent, tip, expires: NEVER, stamp: 0 };
        let index = self.slots.insert(hash, key, object, state).ok_or(TOO_MANY_KEYS)?;
        self.batch.absent.push(index);
        Ok(index)
    }

    /// Writes a key's next version.
    pub(crate) fn write(
        &mut self,
        index: u32,
        new: New<'_>,
        expires: u64,
    ) -> Result<VersionId, Fail> {
        let tip = self.slots.slot(index).state.tip;
        let (id, content) = match new {
            New::Gone => {
                let made = self.put(index, tip.as_slice(), ValueKind::Tombstone, &[], false)?;
                (made.id, Content::Absent)
            }
            New::Text(bytes) => {
                if bytes.len() > TEXT_BYTES_MAX {
                    return Err(TOO_LONG);
                }
                let compress = self.options.compress == Compress::All;
                let value = value::text(bytes, expires);
                let made = self.put(index, tip.as_slice(), ValueKind::Bytes, &value, compress)?;
                // The value is kept once: the string is its end.
                let text = made.value.slice(made.value.len() - bytes.len()..);
                (made.id, Content::Text(Some(text)))
            }
            New::Hash(fields) => {
                let value = value::hash(fields, expires);
                if value.len() > VALUE_BYTES_MAX {
                    return Err(Fail::Say("ERR a hash has at most 2 MiB here with all its fields"));
                }
                let compress = self.options.compress != Compress::Never;
                let made = self.put(index, tip.as_slice(), ValueKind::Bytes, &value, compress)?;
                let fields = made.value.slice(made.value.len() - fields.len()..);
                (made.id, Content::Hash(Some(fields)))
            }
            New::Sorted => {
                let generation = tip.map_or(0, |tip| tip.l + 1);
                let sorted = self.set_with_members(index, generation)?;
                let content = Content::Sorted(Box::new(sorted));
                let value = value::sorted(generation, expires);
                let made = self.put(index, tip.as_slice(), ValueKind::Bytes, &value, false)?;
                (made.id, content)
            }
        };
        if matches!(content, Content::Absent) {
            self.batch.absent.push(index);
        }
        let state = State { content, tip: Some(id), expires, stamp: self.stamp };
        let state = self.slots.replace(index, state);
        self.batch.undo.push(Undo::Slot { index, state });
        Ok(id)
    }

    /// Writes a key's value again with another end.
    pub(crate) fn renew(&mut self, index: u32, expires: u64) -> Result<(), Fail> {
        if matches!(self.slots.slot(index).state.content, Content::Text(None) | Content::Hash(None))
        {
            self.read(index)?;
        }
        let state = &self.slots.slot(index).state;
        let tip = state.tip;
        let value = match &state.content {
            Content::Text(Some(bytes)) => value::text(bytes, expires).into_owned(),
            Content::Hash(Some(fields)) => value::hash(fields, expires),
            Content::Sorted(sorted) => value::sorted(sorted.generation, expires),
            _ => return Err(WRONG_TYPE),
        };
        if value.len() > VALUE_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let compress = self.options.compress != Compress::Never;
        let id = self.put(index, tip.as_slice(), ValueKind::Bytes, &value, compress)?.id;
        let (tip, expires, stamp) = self.slots.retouch(index, Some(id), expires, self.stamp);
        self.batch.undo.push(Undo::Head { index, tip, expires, stamp });
        Ok(())
    }

    /// Puts a version of a key; what the slot is to be then is the caller's to say.
    pub(crate) fn put(
        &mut self,
        index: u32,
        bases: &[VersionId],
        kind: ValueKind,
        value: &[u8],
        compress: bool,
    ) -> Result<Made, Fail> {
        if self.writes_ended {
            return Err(WRITES_ENDED);
        }
        let slot = self.slots.slot(index);
        let name = bases.is_empty().then(|| {
            key_name(&mut self.name, &slot.key);
            &self.name[..]
        });
        self.batch.count(name.map(<[u8]>::len), value.len())?;
        self.batch.bytes += value.len();
        let put = Put { object: &slot.object, name, bases, kind, value, compress };
        let made = self.keyspace.put(put)?;
        self.touched = true;
        self.stamp += 1;
        self.counters.versions += 1;
        if !self.watchers.is_empty() {
            let key = Bytes::copy_from_slice(&slot.key);
            self.batch.events.push(Event { key, member: None, id: made.id });
        }
        Ok(made)
    }

    /// Gives a member a score, or removes it.
    pub(crate) fn set_member(
        &mut self,
        index: u32,
        member: &Bytes,
        score: Option<f64>,
    ) -> Result<(), Fail> {
        if self.writes_ended {
            return Err(WRITES_ENDED);
        }
        let slot = self.slots.slot(index);
        let Content::Sorted(sorted) = &slot.state.content else { return Err(WRONG_TYPE) };
        if !member_name(&mut self.name, &slot.key, sorted.generation, member) {
            return Err(KEY_TOO_LONG);
        }
        let (object, tip) = match sorted.get(member) {
            Some(known) => (known.object, Some(known.tip)),
            None => {
                let (object, tip) = self.keyspace.open(&self.name)?;
                let pending = self.batch.removed.get(&object).copied();
                (object, pending.or(tip.map(|tip| tip.id)))
            }
        };
        let (kind, value) = match score {
            Some(score) => (ValueKind::Bytes, &score.to_be_bytes()[..]),
            None => (ValueKind::Tombstone, &[][..]),
        };
        let name = tip.is_none().then_some(&self.name[..]);
        let bases = tip.as_slice();
        self.batch.count(name.map(<[u8]>::len), value.len())?;
        let put = Put { object: &object, name, bases, kind, value, compress: false };
        let id = self.keyspace.put(put)?.id;
        self.batch.bytes += 8;
        self.counters.versions += 1;
        self.touched = true;
        self.stamp += 1;
        if !self.watchers.is_empty() {
            let key = Bytes::copy_from_slice(&slot.key);
            self.batch.events.push(Event { key, member: Some(member.clone()), id });
        }
        let stamp = self.slots.stamp(index, self.stamp);
        let new = score.map(|score| Member { score, object, tip: id });
        let old = self.slots.sorted_mut(index).and_then(|sorted| sorted.set(member, new));
        let removed = match new {
            None => self.batch.removed.insert(object, id).map(Box::new),
            Some(_) => None,
        };
        self.batch.undo.push(Undo::Member { index, member: member.clone(), old, stamp, removed });
        Ok(())
    }

    /// Reads a value that is not in the cache.
    fn read(&mut self, index: u32) -> Result<(), Fail> {
        let (value, expires) = self.version_of(index)?;
        let content = match value {
            Value::Text(bytes) => Content::Text(Some(bytes)),
            Value::Hash(fields) => Content::Hash(Some(fields)),
            Value::Gone | Value::Sorted(_) | Value::Foreign => return Err(WRONG_TYPE),
        };
        debug_assert_eq!(expires, self.slots.slot(index).state.expires);
        self.make_room();
        self.slots.fill(index, content);
        Ok(())
    }

    fn version_of(&mut self, index: u32) -> Result<(Value, u64), Fail> {
        // It may be one that is being written.
        if !self.land() {
            return Err(NOT_KEPT);
        }
        let slot = self.slots.slot(index);
        let Some(tip) = slot.state.tip else { return Ok((Value::Gone, NEVER)) };
        self.counters.reads += 1;
        let stored = self.keyspace.get(&slot.object, &tip.h)?.ok_or(VERSION_NOT_HERE)?;
        Ok(value::decode(stored.kind, &stored.value))
    }

    /// Learns what a loaded key is, unless it is known.
    pub(crate) fn known(&mut self, index: u32) -> Result<(), Fail> {
        match self.slots.slot(index).state.content {
            Content::Unknown => self.resolve(index),
            _ => Ok(()),
        }
    }

    /// Learns what a loaded key is.
    fn resolve(&mut self, index: u32) -> Result<(), Fail> {
        let (value, expires) = self.version_of(index)?;
        let content = match value {
            Value::Gone => Content::Absent,
            Value::Text(bytes) => Content::Text(Some(bytes)),
            Value::Hash(fields) => Content::Hash(Some(fields)),
            Value::Sorted(generation) => {
                Content::Sorted(Box::new(self.set_with_members(index, generation)?))
            }
            Value::Foreign => Content::Foreign,
        };
        if matches!(content, Content::Absent) {
            self.batch.absent.push(index);
        }
        self.make_room();
        let state = &self.slots.slot(index).state;
        let (tip, stamp) = (state.tip, state.stamp);
        self.slots.replace(index, State { content, tip, expires, stamp });
        self.members_read(index);
        Ok(())
    }

    /// Before a value is cached that was read: drops others where one turn has read many.
    fn make_room(&mut self) {
        if self.slots.cached() < self.evict_from {
            return;
        }
        // What is pending cannot be read again before it is committed.
        self.slots.evict(self.options.cache_bytes, self.batch.start);
        let cached = self.slots.cached().max(self.options.cache_bytes);
        self.evict_from = cached.saturating_add(CACHE_SLACK_BYTES);
    }

    /// At a turn's end, when all is committed: drops values beyond the cache.
    pub(crate) fn evict(&mut self) {
        self.slots.evict(self.options.cache_bytes, u64::MAX);
        self.evict_from = self.options.cache_bytes.saturating_add(CACHE_SLACK_BYTES);
    }

    /// What is done when a turn's commands are done: keys that have ended are deleted, some that
    /// were loaded are learnt. Whether there is more of it.
    pub(crate) fn upkeep(&mut self) -> bool {
        let paused = self.failed_at.is_some_and(|at| self.now < at.saturating_add(SWEEP_PAUSE_MS));
        let calm = !paused && !self.writes_ended;
        let mut more = false;
        if calm && self.slots.next_end().is_some_and(|end| end <= self.now) {
            let ended = self.slots.ended(self.now, SWEEP_STEP);
            more |= ended.len() == SWEEP_STEP;
            for index in ended {
                let save = self.save();
                match self.write(index, New::Gone, NEVER) {
                    Ok(_) => self.counters.expired += 1,
                    Err(_) => {
                        self.back_to(save);
                        self.failed_at = Some(self.now);
                        break;
                    }
                }
            }
        }
        let end = self.slots.end().min(self.warm.saturating_add(WARM_STEP));
        while self.warm < end {
            if matches!(self.slots.slot(self.warm).state.content, Content::Unknown) {
                // One that cannot be read says so to whoever asks for it.
                let _ = self.resolve(self.warm);
            }
            self.warm += 1;
        }
        more || (self.warm < self.slots.end() && self.slots.end() > WARM_STEP)
    }

    /// Makes no more versions. A turn begins with it, while nothing waits to be committed.
    pub(crate) fn end_writes(&mut self) {
        if !std::mem::replace(&mut self.writes_ended, true) {
            tracing::info!("the Redis door takes no writes any more");
            self.keyspace.end_writes();
        }
    }

    /// Takes over the tips that others made: an object of ours may be written through other doors
    /// too. A turn begins with it, while nothing waits to be committed.
    pub(crate) fn take_over(&mut self) {
        let mut changed = match self.may_retry() {
            true => std::mem::take(&mut self.unread),
            false => Vec::new(),
        };
        let each = &mut |name: &[u8], object, tip| changed.push((name.into(), object, tip));
        if let Err(refusal) = self.keyspace.changed(each) {
            tracing::warn!(error = %refusal, "what others wrote cannot be learnt");
        }
        // Sets before their members.
        changed.sort_by_key(|(name, ..)| name.starts_with(MEMBERS));
        for (name, object, tip) in changed {
            let done = match (name.strip_prefix(KEYS), name.strip_prefix(MEMBERS)) {
                (Some(key), _) => self.take_key(key, object, tip),
                (_, Some(name)) => self.take_member(name, object, tip),
                _ => Ok(()),
            };
            if let Err(fail) = done {
                self.unreadable(name, object, tip, &fail);
            }
        }
        if let Err(fail) = self.complete_sets() {
            self.retry_from = self.now + RETRY_PAUSE_MS;
            tracing::warn!(error = %fail.text(), "members that others wrote cannot be read");
        }
        self.batch.start = self.stamp;
    }

    /// Whether what could not be read is tried again.
    pub(crate) fn may_retry(&self) -> bool {
        self.now >= self.retry_from
    }

    /// What another wrote cannot be read now: the key is asked of the engine again when somebody wants it, as a loaded one is, for its
    /// old value would be a lie and a write on it be hidden by what is there. Members are tried again.
    fn unreadable(&mut self, name: Box<[u8]>, object: ObjectKey, tip: Tip, fail: &Fail) {
        tracing::warn!(error = %fail.text(), "what others wrote cannot be read: it is tried again");
        let key = name.strip_prefix(KEYS);
        let found = key.and_then(|key| self.slots.find(self.slots.hash(key), key));
        if let Some(index) = found.filter(|index| self.set_of(*index).is_none()) {
            let content = Content::Unknown;
            let state = State { content, tip: Some(tip.id), expires: NEVER, stamp: self.stamp };
            self.slots.replace(index, state);
        } else if self.unread.len() < UNREAD_MAX {
            self.retry_from = self.now + RETRY_PAUSE_MS;
            self.unread.push((name, object, tip));
        }
    }

    fn take_key(&mut self, key: &[u8], object: ObjectKey, tip: Tip) -> Result<(), Fail> {
        let hash = self.slots.hash(key);
        let found = self.slots.find(hash, key);
        if found.is_some_and(|index| self.slots.slot(index).state.tip == Some(tip.id)) {
            return Ok(());
        }
        self.stamp += 1;
        let Some(index) = found else {
            if tip.kind == Some(ValueKind::Tombstone) {
                return Ok(());
            }
            let (content, tip) = (Content::Unknown, Some(tip.id));
            let state = State { content, tip, expires: NEVER, stamp: self.stamp };
            let index = self.slots.insert(hash, key, object, state).ok_or(TOO_MANY_KEYS)?;
            self.resolve(index)?;
            self.set_came(index, false);
            return Ok(());
        };
        if matches!(self.slots.slot(index).state.content, Content::Unknown) {
            self.slots.retouch(index, Some(tip.id), NEVER, self.stamp);
            self.resolve(index)?;
            self.set_came(index, true);
            return Ok(());
        }
        let stored = self.keyspace.get(&object, &tip.id.h)?.ok_or(VERSION_NOT_HERE)?;
        let (value, expires) = value::decode(stored.kind, &stored.value);
        let sorted = match (&value, self.set_of(index)) {
            (Value::Sorted(new), Some(old)) if old.generation == *new => None,
            (Value::Sorted(new), _) => Some(self.set_with_members(index, *new)?),
            _ => None,
        };
        self.adopt(index, tip.id, value, expires);
        if let Some(sorted) = sorted {
            self.slots.fill(index, Content::Sorted(Box::new(sorted)));
            self.set_came(index, false);
        }
        self.members_read(index);
        self.batch.absent.push(index);
        Ok(())
    }

    /// Makes a version that is there the one that counts; gives what the slot was, unless only its
    /// head changed.
    pub(crate) fn adopt(&mut self, index: u32, id: VersionId, value: Value, expires: u64) -> Undo {
        if let (Value::Sorted(generation), Some(sorted)) = (&value, self.set_of(index))
            && sorted.generation == *generation
        {
            let old = self.slots.retouch(index, Some(id), expires, self.stamp);
            let (tip, expires, stamp) = old;
            return Undo::Head { index, tip, expires, stamp };
        }
        let content = match value {
            Value::Gone => Content::Absent,
            Value::Text(bytes) => Content::Text(Some(bytes)),
            Value::Hash(fields) => Content::Hash(Some(fields)),
            Value::Sorted(generation) => Content::Sorted(Box::new(Sorted::new(generation))),
            Value::Foreign => Content::Foreign,
        };
        let state = State { content, tip: Some(id), expires, stamp: self.stamp };
        Undo::Slot { index, state: self.slots.replace(index, state) }
    }
}

pub(crate) fn key_name(into: &mut Vec<u8>, key: &[u8]) {
    into.clear();
    into.extend_from_slice(KEYS);
    into.extend_from_slice(key);
}

/// Whether the name is short enough to be one.
fn member_name(into: &mut Vec<u8>, key: &[u8], generation: u64, member: &[u8]) -> bool {
    into.clear();
    into.extend_from_slice(MEMBERS);
    into.extend_from_slice(&(key.len() as u32).to_be_bytes());
    into.extend_from_slice(key);
    into.extend_from_slice(&generation.to_be_bytes());
    into.extend_from_slice(member);
    into.len() <= NAME_BYTES_MAX
}
