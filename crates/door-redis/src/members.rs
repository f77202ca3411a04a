//! Members of sorted sets, each an object of its own, that are here before their set is known.
//!
//! When a door opens, members are loaded beside keys and wait until somebody asks for the key. Later they come from other doors,
//! or from a peer that hands over what it has, in any order: a member may be here turns before the version of its key that made
//! its set. It is kept aside until that comes; a set that began without it would lose it, and be deleted with its last visible member.
//!
//! Which set a member is of its generation says: the l of the key's version that made the set. So of a key whose tip is as deep
//! no set of that generation begins any more, and what comes for one is an old set's.
//!
//! Limits: [`ASIDE_MAX`] members are kept aside. Behind that, and where a set comes that is older than its key's newest version, members
//! are looked for among all objects, for all such sets of a turn at once.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use crate::door::{Door, KEYS, MEMBERS, key_name};
use crate::error::Refusal;
use crate::fail::{Fail, NOT_KEPT};
use crate::keyspace::Tip;
use crate::slots::{Content, Slots, State};
use crate::sorted::{Member, Sorted};
use crate::value::{self, NEVER};
use version::{ObjectKey, ValueKind};

/// Members that wait for their set at most, some 300 bytes each.
const ASIDE_MAX: usize = 1 << 16;

/// A member that is in no set.
#[derive(Clone, Debug)]
struct Waiting {
    generation: u64,
    member: Bytes,
    object: ObjectKey,
}

/// Members by their key.
type ByKey = HashMap<Box<[u8]>, Vec<Waiting>>;

/// All members that are in no set.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Those of keys that were loaded and not read yet.
    loaded: ByKey,
    /// Those whose set is still to come.
    aside: ByKey,
    aside_len: usize,
    /// Whether some did not fit there.
    lost: bool,
    /// Keys whose sets may lack members that are here.
    wanting: HashSet<Box<[u8]>>,
}

impl Members {
    /// Whether keys that are not read yet may have some.
    pub(crate) fn are_loaded(&self) -> bool {
        !self.loaded.is_empty()
    }

    fn set_aside(&mut self, key: &[u8], one: Waiting) {
        let of_key = self.aside.get(key).into_iter().flatten();
        if of_key.into_iter().any(|other| other.object == one.object) {
            return;
        }
        if self.aside_len >= ASIDE_MAX {
            self.lost = true;
            return;
        }
        self.aside_len += 1;
        self.aside.entry(key.into()).or_default().push(one);
    }

    /// Those of a set.
    fn of(&self, key: &[u8], generation: u64) -> Vec<Waiting> {
        let both = [&self.loaded, &self.aside];
        let all = both.into_iter().filter_map(|members| members.get(key)).flatten();
        all.filter(|one| one.generation == generation).cloned().collect()
    }

    /// A key was read, whose tip is `l` deep: what is of that set or of older ones waits no more.
    fn read(&mut self, key: &[u8], l: u64) {
        if let Some(aside) = self.aside.get_mut(key) {
            let before = aside.len();
            aside.retain(|one| one.generation > l);
            self.aside_len -= before - aside.len();
            if aside.is_empty() {
                self.aside.remove(key);
            }
        }
        for one in self.loaded.remove(key).into_iter().flatten() {
            if one.generation > l {
                self.set_aside(key, one);
            }
        }
    }
}

impl Door {
    /// Loads all keys and their members.
    ///
    /// # Errors
    /// Of the engine.
    pub(crate) fn load(&mut self) -> Result<(), Refusal> {
        let (slots, loaded) = (&mut self.slots, &mut self.members.loaded);
        self.keyspace.load(&mut |name, object, tip| load(slots, loaded, name, object, tip))?;
        let is_known = |key: &[u8]| self.slots.find(self.slots.hash(key), key).is_some();
        let loaded = self.members.loaded.keys();
        let keys: Vec<_> = loaded.filter(|key| !is_known(key)).cloned().collect();
        for key in keys {
            let members = self.members.loaded.remove(&key).unwrap_or_default();
            // Where that cannot be told they are kept.
            let l = self.depth(&key).unwrap_or_default();
            for one in members.into_iter().filter(|one| l.is_none_or(|l| one.generation > l)) {
                self.members.set_aside(&key, one);
            }
        }
        Ok(())
    }

    /// How deep the tip is of a key that has no slot.
    pub(crate) fn depth(&mut self, key: &[u8]) -> Result<Option<u64>, Refusal> {
        key_name(&mut self.name, key);
        let (_, tip) = self.keyspace.open(&self.name)?;
        Ok(tip.map(|tip| tip.id.l))
    }

    /// A set of a key, with the members that are here of it already.
    pub(crate) fn set_with_members(&mut self, index: u32, generation: u64) -> Result<Sorted, Fail> {
        let mut sorted = Sorted::new(generation);
        for one in self.members.of(&self.slots.slot(index).key, generation) {
            if let Some(member) = self.member_of(&one)? {
                sorted.set(&one.member, Some(member));
            }
        }
        Ok(sorted)
    }

    /// What a member is now, unless it was removed.
    fn member_of(&mut self, one: &Waiting) -> Result<Option<Member>, Fail> {
        // It may be one that is being written.
        if !self.land() {
            return Err(NOT_KEPT);
        }
        let Some(tip) = self.keyspace.tips(&one.object)?.first().copied() else { return Ok(None) };
        let stored = self.keyspace.get(&one.object, &tip.h)?;
        let score = stored.and_then(|stored| value::score(stored.kind, &stored.value));
        Ok(score.map(|score| Member { score, object: one.object, tip }))
    }

    /// A key was read: what is of its set or of older ones waits no more.
    pub(crate) fn members_read(&mut self, index: u32) {
        let slot = self.slots.slot(index);
        if let Some(tip) = slot.state.tip {
            self.members.read(&slot.key, tip.l);
        }
    }

    /// A set came: where it may lack members that are here, they are looked for at the turn's begin. One that was loaded had
    /// those that were here then.
    pub(crate) fn set_came(&mut self, index: u32, was_loaded: bool) {
        let slot = self.slots.slot(index);
        if let (Content::Sorted(sorted), Some(tip)) = (&slot.state.content, slot.state.tip)
            && (self.members.lost || (!was_loaded && tip.l > sorted.generation))
        {
            self.members.wanting.insert(slot.key.clone());
        }
    }

    /// A member that another made.
    pub(crate) fn take_member(
        &mut self,
        name: &[u8],
        object: ObjectKey,
        tip: Tip,
    ) -> Result<(), Fail> {
        let Some((key, generation, member)) = split(name) else { return Ok(()) };
        let one = Waiting { generation, member: Bytes::copy_from_slice(member), object };
        let Some(index) = self.slots.find(self.slots.hash(key), key) else {
            let is_gone = tip.kind == Some(ValueKind::Tombstone);
            if !is_gone && self.depth(key)?.is_none_or(|l| generation > l) {
                self.members.set_aside(key, one);
            }
            return Ok(());
        };
        self.known(index)?;
        let Some(sorted) = self.set_of(index).filter(|sorted| sorted.generation == generation)
        else {
            let tip = self.slots.slot(index).state.tip;
            if tip.is_none_or(|tip| generation > tip.l) {
                self.members.set_aside(key, one);
            }
            return Ok(());
        };
        let is_known = match sorted.get(&one.member) {
            Some(known) => known.tip == tip.id,
            None => tip.kind == Some(ValueKind::Tombstone),
        };
        if is_known {
            return Ok(());
        }
        let new = self.member_of(&one)?;
        self.stamp += 1;
        self.slots.stamp(index, self.stamp);
        if let Some(sorted) = self.slots.sorted_mut(index) {
            sorted.set(&one.member, new);
        }
        Ok(())
    }

    /// Looks among all objects for the members of sets that may lack some.
    pub(crate) fn complete_sets(&mut self) -> Result<(), Fail> {
        if self.members.wanting.is_empty() || !self.may_retry() {
            return Ok(());
        }
        let wanting = std::mem::take(&mut self.members.wanting);
        let done = self.complete(&wanting);
        if done.is_err() {
            // Tried again: a set that lacks members would show too few, and end with the last of them.
            self.members.wanting.extend(wanting);
        }
        done
    }

    fn complete(&mut self, wanting: &HashSet<Box<[u8]>>) -> Result<(), Fail> {
        let mut found: Vec<(u32, Waiting)> = Vec::new();
        let slots = &self.slots;
        self.keyspace.load(&mut |name, object, tip| {
            let Some((key, generation, member)) = name.strip_prefix(MEMBERS).and_then(split) else {
                return;
            };
            if tip.kind == Some(ValueKind::Tombstone) || !wanting.contains(key) {
                return;
            }
            if let Some(index) = slots.find(slots.hash(key), key) {
                let member = Bytes::copy_from_slice(member);
                found.push((index, Waiting { generation, member, object }));
            }
        })?;
        for (index, one) in found {
            if self.set_of(index).is_none_or(|sorted| sorted.generation != one.generation) {
                continue;
            }
            let member = self.member_of(&one)?;
            if let Some(sorted) = self.slots.sorted_mut(index) {
                sorted.set(&one.member, member);
            }
        }
        Ok(())
    }
}

/// One loaded object.
fn load(slots: &mut Slots, members: &mut ByKey, name: &[u8], object: ObjectKey, tip: Tip) {
    if tip.kind == Some(ValueKind::Tombstone) {
        return;
    }
    if let Some(key) = name.strip_prefix(KEYS) {
        let state =
            State { content: Content::Unknown, tip: Some(tip.id), expires: NEVER, stamp: 0 };
        slots.insert(slots.hash(key), key, object, state);
    } else if let Some((key, generation, member)) = name.strip_prefix(MEMBERS).and_then(split) {
        let member = Bytes::copy_from_slice(member);
        members.entry(key.into()).or_default().push(Waiting { generation, member, object });
    }
}

/// Key, generation and member of a member's name.
fn split(name: &[u8]) -> Option<(&[u8], u64, &[u8])> {
    let (length, rest) = name.split_first_chunk()?;
    let (key, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (generation, member) = rest.split_first_chunk()?;
    Some((key, u64::from_be_bytes(*generation), member))
}
