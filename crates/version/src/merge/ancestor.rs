//! What v0 is: the closest common ancestor of two versions, or, where they have several, the merge of these.
//!
//! Two writers who merge each other's versions while both go on (a criss-cross) leave two versions with several closest
//! common ancestors, none made of another. Here m1 and m2 have a1 and b1 in common:
//!
//! ```text
//! a1 on o    m1 of a1 and b1
//! b1 on o    b2 on b1, m2 of a1 and b2
//! ```
//! No one of the two says what is new. By a1, what b1 added is new in m1 and new in m2, and counts twice; what b2 took back
//! of it is unchanged in m2 and new in m1, and comes again without a word.
//!
//! So v0 is what both have in common: what the function makes of a1 and b1, by their own closest common ancestors in turn,
//! as Git's recursive strategy has it. Of counters it is the exact sum of what both histories have in common.
//!
//! Of several the first is merged with the second, what comes of it with the third, and so on, in the order of
//! [`Ancestor::closest`]. It depends on the two versions alone and not on which is named first, so whoever merges
//! them makes the same. Where closest common ancestors do not merge, the two do not: the function has no v0 to go by.
//!
//! It is done in two steps, neither of which fetches: [`AncestorWalk`] needs links and says what is to be merged, [`Making`]
//! needs values and merges. Limits: one bound for all the walks together; [`MERGES_MAX`] merges, past which it is a conflict.
//! So many values are in memory at most, and three more.

use std::collections::BTreeMap;

use bytes::Bytes;
use crypto::RecordId;

use super::{Conflict, Merge, Merged, Value, merge};
use crate::{CommonAncestor, Graph, Links, Step, ValueKind, VersionError};

/// The most merges that are made for one v0.
pub const MERGES_MAX: usize = 32;

/// A value that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedValue {
    /// What it is.
    pub kind: ValueKind,
    /// All of it.
    pub bytes: Bytes,
}

impl OwnedValue {
    /// As a merge function sees it.
    pub fn as_value(&self) -> Value<'_> {
        Value { kind: self.kind, bytes: &self.bytes }
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        Self { kind: value.kind, bytes: Bytes::copy_from_slice(value.bytes) }
    }
}

/// What v0 is: a value, none where the two have nothing in common, or a conflict of what they have in common.
pub type V0 = Result<Option<OwnedValue>, Conflict>;

/// Where a value is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// It is a version's.
    Version(RecordId),
    /// It is what this merge makes.
    Merge(usize),
}

/// A merge for v0: only merges before it are its sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planned {
    v0: Option<Source>,
    v1: Source,
    v2: Source,
}

/// The closest common ancestors of two versions, and how v0 is made of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    closest: Vec<RecordId>,
    /// The last one makes v0, where there are several closest ones; `None` where more than [`MERGES_MAX`] were needed.
    merges: Option<Vec<Planned>>,
}

impl Ancestor {
    /// The closest common ancestors: none was made of another. Greatest depth first, of the same depth the greatest h, which
    /// is the order of tips.
    pub fn closest(&self) -> &[RecordId] {
        &self.closest
    }

    /// Whether it is this version: where that is one of the two, the other was made of it, and there is nothing to merge.
    pub fn is(&self, h: &RecordId) -> bool {
        self.closest == [*h]
    }
}

/// The closest common ancestors of two versions, and how v0 is made of them: see [`AncestorWalk`].
///
/// # Errors
/// Those of the graph; [`VersionError::Missing`], [`VersionError::TooFar`] after `limit` versions,
/// [`VersionError::History`].
pub fn ancestor<G: Graph>(
    graph: &G,
    a: &RecordId,
    b: &RecordId,
    limit: usize,
) -> Result<Ancestor, G::Error> {
    let mut walk = AncestorWalk::new(*a, *b, limit);
    loop {
        match walk.step()? {
            Step::Done(found) => return Ok(found),
            Step::Need(h) => {
                let links = graph.links(&h)?.ok_or(VersionError::Missing(h))?;
                walk.give(&h, &links)?;
            }
        }
    }
}

/// Versions none of which was made of another, in the order of tips. Its value is that of all of them merged.
type Set = Vec<RecordId>;

/// The walk to what v0 is made of.
#[derive(Clone, Debug)]
pub struct AncestorWalk {
    /// The walk that goes on: of the two versions; then of the last of a set and all before it, for the last pending set.
    walk: Option<CommonAncestor>,
    closest: Set,
    /// Sets whose value is needed for that of the one before.
    pending: Vec<Set>,
    /// The closest common ancestors of the last of a set and all before it.
    below: BTreeMap<Set, Set>,
    /// Which merge makes a set's value.
    made: BTreeMap<Set, usize>,
    merges: Vec<Planned>,
    left: usize,
    limit: usize,
}

impl AncestorWalk {
    /// A walk from these two, which gives up after so many versions.
    pub fn new(a: RecordId, b: RecordId, limit: usize) -> Self {
        Self {
            walk: Some(CommonAncestor::new(a, b, limit)),
            closest: Set::new(),
            pending: Vec::new(),
            below: BTreeMap::new(),
            made: BTreeMap::new(),
            merges: Vec::new(),
            left: limit,
            limit,
        }
    }

    /// What it needs, or the answer. Asking again changes nothing.
    ///
    /// # Errors
    /// [`VersionError::TooFar`], [`VersionError::History`].
    pub fn step(&mut self) -> Result<Step<Ancestor>, VersionError> {
        loop {
            if let Some(walk) = &mut self.walk {
                let found = match walk.step()? {
                    Step::Need(h) => return Ok(Step::Need(h)),
                    Step::Done(found) => found,
                };
                self.left = walk.left();
                self.walk = None;
                match self.pending.last() {
                    Some(set) => {
                        self.below.insert(set.clone(), found);
                    }
                    None => {
                        self.closest.clone_from(&found);
                        self.pending.push(found);
                    }
                }
            }
            let Some(set) = self.pending.last() else {
                return Ok(Step::Done(self.ancestor(Some(self.merges.clone()))));
            };
            let Some((last, before)) = set.split_last().filter(|_| !self.is_known(set)) else {
                self.pending.pop();
                continue;
            };
            // One for each set that is pending; for the last of them also those that make what is before its last.
            let for_last = if self.is_known(before) { 1 } else { before.len() };
            if self.merges.len() + self.pending.len() - 1 + for_last > MERGES_MAX {
                return Ok(Step::Done(self.ancestor(None)));
            }
            if !self.is_known(before) {
                let before = before.to_vec();
                self.pending.push(before);
                continue;
            }
            let Some(below) = self.below.get(set) else {
                let bounds = (self.left, self.limit);
                self.walk = Some(CommonAncestor::between(before, &[*last], bounds));
                continue;
            };
            if !self.is_known(below) {
                let below = below.clone();
                self.pending.push(below);
                continue;
            }
            let (v0, v1, v2) = (self.source(below), self.source(before), Source::Version(*last));
            // What is before the last of several is never empty.
            self.merges.extend(v1.map(|v1| Planned { v0, v1, v2 }));
            self.made.insert(set.clone(), self.merges.len().saturating_sub(1));
        }
    }

    /// Gives the links of the version that [`AncestorWalk::step`] needs; of others they are passed over.
    ///
    /// # Errors
    /// [`VersionError::TooFar`], [`VersionError::History`] where it cannot be what it is said to be.
    pub fn give(&mut self, h: &RecordId, links: &Links) -> Result<(), VersionError> {
        match &mut self.walk {
            Some(walk) => walk.give(h, links),
            None => Ok(()),
        }
    }

    /// Whether it is known where a set's value is from.
    fn is_known(&self, set: &[RecordId]) -> bool {
        set.len() < 2 || self.made.contains_key(set)
    }

    /// Where it is from, once that is known; `None` of no versions.
    fn source(&self, set: &[RecordId]) -> Option<Source> {
        match set {
            [] => None,
            [one] => Some(Source::Version(*one)),
            several => self.made.get(several).map(|merge| Source::Merge(*merge)),
        }
    }

    fn ancestor(&self, merges: Option<Vec<Planned>>) -> Ancestor {
        Ancestor { closest: self.closest.clone(), merges }
    }
}

/// The making of v0 by a merge function.
pub struct Making<'a> {
    ancestor: &'a Ancestor,
    function: &'a dyn Merge,
    /// What the first merges made.
    made: Vec<OwnedValue>,
    /// Values of versions, for the next.
    given: BTreeMap<RecordId, OwnedValue>,
}

impl<'a> Making<'a> {
    /// By this function, of the closest common ancestors that a walk found.
    pub const fn new(ancestor: &'a Ancestor, function: &'a dyn Merge) -> Self {
        Self { ancestor, function, made: Vec::new(), given: BTreeMap::new() }
    }

    /// The version whose value it needs, or v0. It costs a call of the function for each merge.
    ///
    /// # Errors
    /// As [`merge`].
    pub fn step(&mut self) -> Result<Step<V0>, VersionError> {
        let Some(merges) = &self.ancestor.merges else {
            let reason = "what both were made of takes too many merges";
            return Ok(Step::Done(Err(Conflict { reason: reason.into(), clashes: Vec::new() })));
        };
        while let Some(next) = merges.get(self.made.len()) {
            let merged = match self.values(next) {
                Ok((v0, v1, v2)) => merge(self.function, v0, v1, v2)?,
                Err(h) => return Ok(Step::Need(h)),
            };
            match merged {
                Merged::Value { kind, value } => {
                    self.made.push(OwnedValue { kind, bytes: value });
                    self.given.clear();
                }
                Merged::Conflict(conflict) => {
                    let reason =
                        format!("what both were made of does not merge: {}", conflict.reason);
                    // Where these clash says nothing of the two.
                    let conflict = Conflict { reason: reason.into(), clashes: Vec::new() };
                    return Ok(Step::Done(Err(conflict)));
                }
            }
        }
        Ok(match self.ancestor.closest() {
            [] => Step::Done(Ok(None)),
            [one] => match self.given.get(one) {
                Some(value) => Step::Done(Ok(Some(value.clone()))),
                None => Step::Need(*one),
            },
            _ => Step::Done(Ok(self.made.last().cloned())),
        })
    }

    /// Gives the value of the version that [`Making::step`] needs.
    pub fn give(&mut self, h: &RecordId, value: OwnedValue) {
        self.given.insert(*h, value);
    }

    /// What a merge is made of, or the version whose value it lacks.
    fn values(&self, next: &Planned) -> Result<Values<'_>, RecordId> {
        let v0 = next.v0.as_ref().map(|source| self.value(source)).transpose()?;
        Ok((v0, self.value(&next.v1)?, self.value(&next.v2)?))
    }

    fn value(&self, source: &Source) -> Result<Value<'_>, RecordId> {
        match source {
            Source::Version(h) => self.given.get(h).map(OwnedValue::as_value).ok_or(*h),
            Source::Merge(merge) => Ok(self.made[*merge].as_value()),
        }
    }
}

type Values<'a> = (Option<Value<'a>>, Value<'a>, Value<'a>);
