//! A sorted set in memory: its members' scores and objects, and their order.

use std::collections::HashMap;

use bytes::Bytes;

use crate::ranked::Order;
use version::{ObjectKey, VersionId};

/// A member: an object of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Its score.
    pub score: f64,
    /// Its object.
    pub object: ObjectKey,
    /// The version that has the score.
    pub tip: VersionId,
}

/// A sorted set.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    /// Which of the sets that this key was.
    pub generation: u64,
    members: HashMap<Bytes, Member>,
    order: Order,
}

impl Sorted {
    pub(crate) fn new(generation: u64) -> Self {
        Self { generation, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn get(&self, member: &[u8]) -> Option<&Member> {
        self.members.get(member)
    }

    /// Sets or removes a member; gives what it was.
    pub(crate) fn set(&mut self, member: &Bytes, new: Option<Member>) -> Option<Member> {
        let old = match new {
            Some(new) => self.members.insert(member.clone(), new),
            None => self.members.remove(member),
        };
        let (before, after) = (old.map(|old| old.score), new.map(|new| new.score));
        if before.map(f64::to_bits) != after.map(f64::to_bits) {
            if let Some(before) = before {
                self.order.remove(before, member);
            }
            if let Some(after) = after {
                self.order.insert(after, member.clone());
            }
        }
        old
    }

    pub(crate) fn order(&self) -> &Order {
        &self.order
    }
}
