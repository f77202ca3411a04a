//! Each object's tips, in parts with a lock each. Who has much to do takes all of them for a moment.
//!
//! Nothing here takes longer than the logarithm of how many tips an object has, but to list them all.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crypto::{Place, RecordId, Suite};
use foldhash::fast::RandomState;
use version::{Hint, ObjectKey, ValueKind, VersionId};

use crate::arrivals::Base;
use crate::tips::Tips;

/// Few enough that who has much to do takes the locks of all.
const PARTS: usize = 8;

/// A version without a successor on this peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tip {
    pub id: VersionId,
    /// What its value is.
    pub kind: ValueKind,
    /// What forms of its successors are made against: itself where it is kept plain, else what its own form is made
    /// against.
    pub anchor: RecordId,
    /// Where it lives, as its hint says: a hash that its successors, which live there too, need not make again.
    pub place: Place,
}

/// One object. Nearly all have one tip and live at one place, which is kept without an allocation.
#[derive(Debug, Default)]
struct Object {
    tip: Option<Tip>,
    /// Bytes of its versions at its first place, as far as they are counted: see [`Index::reserve`].
    bytes: u64,
    more: Option<Box<More>>,
}

/// What few objects have.
#[derive(Debug, Default)]
struct More {
    /// Tips beside the first.
    tips: Tips,
    /// Bytes of versions at overflows.
    overflows: Vec<(Hint, u64)>,
}

impl Object {
    fn get(&self, h: &RecordId) -> Option<&Tip> {
        match &self.tip {
            Some(tip) if tip.id.h == *h => Some(tip),
            _ => self.more.as_ref()?.tips.get(h),
        }
    }

    fn count(&self) -> usize {
        usize::from(self.tip.is_some()) + self.more.as_ref().map_or(0, |more| more.tips.len())
    }

    /// The first `most` tips in the order in which they count, and few others; in no order.
    fn leading(&self, most: usize) -> impl Iterator<Item = &Tip> {
        let others = self.more.iter().flat_map(move |more| more.tips.leading(most));
        self.tip.iter().chain(others)
    }

    /// Takes a tip away; whether it was one.
    fn take(&mut self, h: &RecordId) -> bool {
        let more = self.more.as_mut().map(|more| &mut more.tips);
        if self.tip.is_some_and(|tip| tip.id.h == *h) {
            self.tip = more.and_then(Tips::pop);
            return true;
        }
        more.is_some_and(|more| more.take(h))
    }

    fn push(&mut self, tip: Tip) {
        if self.get(&tip.id.h).is_some() {
            return;
        }
        match self.tip {
            None => self.tip = Some(tip),
            Some(_) => self.more.get_or_insert_default().tips.push(tip),
        }
    }

    /// Bytes of its versions with this hint.
    fn bytes_at(&mut self, n: &Hint) -> &mut u64 {
        if *n == Hint::FIRST {
            return &mut self.bytes;
        }
        let overflows = &mut self.more.get_or_insert_default().overflows;
        let at = overflows.iter().position(|(hint, _)| hint == n).unwrap_or_else(|| {
            overflows.push((*n, 0));
            overflows.len() - 1
        });
        &mut overflows[at].1
    }
}

type Part = HashMap<ObjectKey, Object, RandomState>;

/// All objects that have a version here.
pub(crate) struct Index {
    parts: [Mutex<Part>; PARTS],
    hash: RandomState,
}

/// All objects, while nobody else has any: for some at once. They are in no cache of the processor mostly, and with a lock for each it
/// would wait for one before it asks for the next.
pub(crate) struct All<'a> {
    index: &'a Index,
    parts: [MutexGuard<'a, Part>; PARTS],
}

impl All<'_> {
    /// Asks for objects that are then to be looked at, so that they are waited for together.
    pub(crate) fn warm<'a>(&self, objects: impl Iterator<Item = &'a ObjectKey>) {
        let last = |object| {
            let tip = self.parts[self.index.at(object)].get(object)?.tip.as_ref()?;
            tip.place.as_bytes().last()
        };
        std::hint::black_box(objects.filter_map(last).fold(0, |all, byte| all ^ byte));
    }

    /// As [`Index::tip`].
    pub(crate) fn tip(&self, object: &ObjectKey, h: &RecordId) -> Option<Tip> {
        tip(&self.parts[self.index.at(object)], object, h)
    }

    /// A version is in the store: it takes the place of its bases.
    /// Without a tip it was succeeded itself meanwhile.
    pub(crate) fn succeed(
        &mut self,
        object: &ObjectKey,
        bases: impl Iterator<Item = RecordId>,
        tip: Option<Tip>,
    ) {
        let object = self.parts[self.index.at(object)].entry(*object).or_default();
        for base in bases {
            object.take(&base);
        }
        if let Some(tip) = tip {
            object.push(tip);
        }
    }
}

fn tip(part: &Part, object: &ObjectKey, h: &RecordId) -> Option<Tip> {
    part.get(object)?.get(h).copied()
}

impl Index {
    pub(crate) fn new() -> Self {
        let part = |_| Mutex::new(HashMap::with_hasher(RandomState::default()));
        Self { parts: std::array::from_fn(part), hash: RandomState::default() }
    }

    fn at(&self, object: &ObjectKey) -> usize {
        self.hash.hash_one(object) as usize % PARTS
    }

    /// Nothing that can panic half-way through a change runs under the lock. Who has one asks for no other.
    fn part(&self, object: &ObjectKey) -> MutexGuard<'_, Part> {
        self.parts[self.at(object)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All parts. They are locked in their order, so two who ask do not wait for each other.
    pub(crate) fn all(&self) -> All<'_> {
        let lock = |at: usize| self.parts[at].lock().unwrap_or_else(PoisonError::into_inner);
        All { index: self, parts: std::array::from_fn(lock) }
    }

    /// The tip with this h.
    pub(crate) fn tip(&self, object: &ObjectKey, h: &RecordId) -> Option<Tip> {
        tip(&self.part(object), object, h)
    }

    /// The first `most` tips, the one that counts first, and how many there are.
    pub(crate) fn first(&self, object: &ObjectKey, most: usize) -> (Vec<VersionId>, usize) {
        let part = self.part(object);
        let Some(object) = part.get(object) else { return (Vec::new(), 0) };
        let mut found: Vec<VersionId> = object.leading(most).map(|tip| tip.id).collect();
        let count = object.count();
        drop(part);
        // Of many all but one are in order: a stable sort takes them as they are.
        found.sort_by_key(|id| Reverse((id.l, id.h)));
        found.truncate(most);
        (found, count)
    }

    /// The tip that counts.
    pub(crate) fn newest(&self, object: &ObjectKey) -> Option<Tip> {
        let part = self.part(object);
        part.get(object)?.leading(1).max_by_key(|tip| (tip.id.l, tip.id.h)).copied()
    }

    /// How many tips an object has.
    pub(crate) fn count(&self, object: &ObjectKey) -> usize {
        self.part(object).get(object).map_or(0, Object::count)
    }

    /// A version came from elsewhere and is in the store: it takes the place of those of its bases that are tips, and is one
    /// itself unless something here stands on it. Which of the bases were tips.
    pub(crate) fn arrive(
        &self,
        object: &ObjectKey,
        bases: impl Iterator<Item = RecordId>,
        tip: Option<Tip>,
    ) -> Vec<bool> {
        let mut part = self.part(object);
        let object = part.entry(*object).or_default();
        let were = bases.map(|base| object.take(&base)).collect();
        if let Some(tip) = tip {
            object.push(tip);
        }
        were
    }

    /// Counts bytes of an object at a place where they fit below `limit`; whether they do.
    pub(crate) fn reserve(&self, object: &ObjectKey, n: &Hint, bytes: u64, limit: u64) -> bool {
        let mut part = self.part(object);
        let counted = part.entry(*object).or_default().bytes_at(n);
        let after = counted.saturating_add(bytes);
        let fits = after <= limit;
        if fits {
            *counted = after;
        }
        fits
    }

    /// Takes back what was counted for versions that were not stored.
    pub(crate) fn give_back(&self, object: &ObjectKey, n: &Hint, bytes: u64) {
        let mut part = self.part(object);
        if let Some(object) = part.get_mut(object) {
            let counted = object.bytes_at(n);
            *counted = counted.saturating_sub(bytes);
        }
    }

    /// The places of an object that have bytes, and how many; the first place always.
    pub(crate) fn regions(&self, object: &ObjectKey) -> Vec<(Hint, u64)> {
        let part = self.part(object);
        let Some(object) = part.get(object) else { return Vec::new() };
        let overflows = object.more.iter().flat_map(|more| more.overflows.iter().copied());
        [(Hint::FIRST, object.bytes)].into_iter().chain(overflows).collect()
    }

    pub(crate) fn objects(&self) -> u64 {
        let len = |part: &Mutex<Part>| part.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.parts.iter().map(|part| len(part) as u64).sum()
    }
}

/// The tips being made from a log. Compaction writes frames again behind others, so a version may be met before its
/// base: what was a base is remembered until the end, of the object whose version stands on it alone.
pub(crate) struct Rebuild {
    pub index: Index,
    /// Bases met before themselves, or more than once.
    bases: HashSet<(ObjectKey, RecordId), RandomState>,
}

impl Rebuild {
    pub(crate) fn new() -> Self {
        Self { index: Index::new(), bases: HashSet::default() }
    }

    /// Meets the next version, whose record has so many bytes.
    pub(crate) fn meet(&mut self, object: &ObjectKey, bases: &[RecordId], tip: Tip, bytes: u64) {
        let mut part = self.index.part(object);
        let state = part.entry(*object).or_default();
        *state.bytes_at(&tip.id.n) += bytes;
        for base in bases {
            if !state.take(base) {
                self.bases.insert((*object, *base));
            }
        }
        if !self.bases.contains(&(*object, tip.id.h)) {
            state.push(tip);
        }
    }

    /// The index, and the versions that are bases of others here and are not here themselves.
    pub(crate) fn done(
        self,
        suite: Suite,
        is_here: impl Fn(&RecordId) -> bool,
    ) -> (Index, HashSet<Base, RandomState>) {
        let awaited = self.bases.into_iter().filter(|(_, base)| !is_here(base));
        let awaited = awaited.map(|(object, base)| Base::new(suite, &object, &base)).collect();
        (self.index, awaited)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    fn tip(number: u8) -> Tip {
        let h = RecordId::new([number; 32]);
        let id = VersionId { h, l: u64::from(number), n: Hint::default() };
        Tip { id, kind: ValueKind::Bytes, anchor: h, place: Place::from(h) }
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
                rebuild.meet(&object, bases, tip(*number), 10);
            }
            let found: BTreeSet<_> =
                rebuild.index.first(&object, usize::MAX).0.iter().map(|id| id.h).collect();
            prop_assert_eq!(rebuild.index.count(&object), wanted.len());
            prop_assert_eq!(found, wanted);
        }
    }
}
