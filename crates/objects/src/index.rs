//! Each object's tips, in parts that do not wait for each other.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crypto::RecordId;
use foldhash::fast::RandomState;
use version::{ObjectKey, ValueKind, VersionId};

const PARTS: usize = 64;

/// A version without a successor on this peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tip {
    pub id: VersionId,
    /// What its value is.
    pub kind: ValueKind,
    /// What forms of its successors are made against: itself where it is kept plain, else what its own form is made
    /// against.
    pub anchor: RecordId,
}

/// One object. Nearly all have one tip, which is kept without an allocation.
#[derive(Debug, Default)]
struct Object {
    tip: Option<Tip>,
    more: Vec<Tip>,
}

impl Object {
    fn tips(&self) -> impl Iterator<Item = &Tip> {
        self.tip.iter().chain(&self.more)
    }

    /// Takes a tip away; whether it was one.
    fn take(&mut self, h: &RecordId) -> bool {
        if self.tip.is_some_and(|tip| tip.id.h == *h) {
            self.tip = self.more.pop();
            return true;
        }
        let at = self.more.iter().position(|tip| tip.id.h == *h);
        at.map(|at| self.more.swap_remove(at)).is_some()
    }

    fn push(&mut self, tip: Tip) {
        if self.tips().any(|other| other.id.h == tip.id.h) {
            return;
        }
        match self.tip {
            None => self.tip = Some(tip),
            Some(_) => self.more.push(tip),
        }
    }
}

type Part = HashMap<ObjectKey, Object, RandomState>;

/// All objects that have a version here.
pub(crate) struct Index {
    parts: Vec<Mutex<Part>>,
    hash: RandomState,
}

impl Index {
    pub(crate) fn new() -> Self {
        let hash = RandomState::default();
        let part = || Mutex::new(HashMap::with_hasher(RandomState::default()));
        Self { parts: std::iter::repeat_with(part).take(PARTS).collect(), hash }
    }

    /// Nothing that can panic half-way through a change runs under the lock.
    fn part(&self, object: &ObjectKey) -> MutexGuard<'_, Part> {
        use std::hash::BuildHasher;
        let at = self.hash.hash_one(object) as usize % PARTS;
        self.parts[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tip with this h.
    pub(crate) fn tip(&self, object: &ObjectKey, h: &RecordId) -> Option<Tip> {
        self.part(object).get(object)?.tips().find(|tip| tip.id.h == *h).copied()
    }

    pub(crate) fn tips(&self, object: &ObjectKey) -> Vec<Tip> {
        self.part(object).get(object).map(|o| o.tips().copied().collect()).unwrap_or_default()
    }

    /// A version is in the store: it takes the place of its bases.
    pub(crate) fn succeed(&self, object: &ObjectKey, bases: &[RecordId], tip: Tip) {
        let mut part = self.part(object);
        let object = part.entry(*object).or_default();
        for base in bases {
            object.take(base);
        }
        object.push(tip);
    }

    pub(crate) fn objects(&self) -> u64 {
        let len = |part: &Mutex<Part>| part.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.parts.iter().map(|part| len(part) as u64).sum()
    }
}

/// The tips being made from a log. Compaction writes frames again behind others, so a version may be met before its
/// base: what was a base is remembered until the end.
pub(crate) struct Rebuild {
    pub index: Index,
    /// Bases met before themselves, or more than once.
    bases: HashSet<RecordId, RandomState>,
}

impl Rebuild {
    pub(crate) fn new() -> Self {
        Self { index: Index::new(), bases: HashSet::default() }
    }

    pub(crate) fn meet(&mut self, object: &ObjectKey, bases: &[RecordId], tip: Tip) {
        let mut part = self.index.part(object);
        let state = part.entry(*object).or_default();
        for base in bases {
            if !state.take(base) {
                self.bases.insert(*base);
            }
        }
        if !self.bases.contains(&tip.id.h) {
            state.push(tip);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use version::Hint;

    use super::*;

    fn tip(number: u8) -> Tip {
        let h = RecordId::new([number; 32]);
        let id = VersionId { h, l: u64::from(number), n: Hint::default() };
        Tip { id, kind: ValueKind::Bytes, anchor: h }
    }

    proptest! {
        /// In whatever order the versions of a graph are met, its tips are those that are nobody's base.
        #[test]
        fn tips_do_not_depend_on_the_order(
            parents in prop::collection::vec((any::<u8>(), prop::option::of(any::<u8>())), 1..40),
            order in any::<prop::sample::Index>(),
            seed in prop::collection::vec(any::<u16>(), 40),
        ) {
            let object = ObjectKey::new([7; 32]);
            let mut graph: Vec<(u8, Vec<RecordId>)> = Vec::new();
            for (number, (first, second)) in parents.iter().enumerate() {
                let of = |pick: u8| RecordId::new([pick % (number.max(1) as u8); 32]);
                let mut bases = Vec::new();
                if number > 0 {
                    bases.push(of(*first));
                    bases.extend(second.map(of).filter(|second| !bases.contains(second)));
                }
                graph.push((number as u8, bases));
            }
            let wanted: BTreeSet<_> = graph
                .iter()
                .filter(|(number, _)| {
                    let h = RecordId::new([*number; 32]);
                    !graph.iter().any(|(_, bases)| bases.contains(&h))
                })
                .map(|(number, _)| RecordId::new([*number; 32]))
                .collect();
            graph.sort_by_key(|(number, _)| seed[usize::from(*number)]);
            let turn = order.index(graph.len());
            graph.rotate_left(turn);
            let mut rebuild = Rebuild::new();
            for (number, bases) in &graph {
                rebuild.meet(&object, bases, tip(*number));
            }
            let found: BTreeSet<_> =
                rebuild.index.tips(&object).iter().map(|tip| tip.id.h).collect();
            prop_assert_eq!(found, wanted);
        }
    }
}
