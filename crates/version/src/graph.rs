//! Walks through an object's history: the closest common ancestor of two versions, and the versions before one.
//!
//! A walk holds no versions and fetches none: it says which one it needs ([`Step::Need`]) and is given what that one
//! says of its bases ([`Links`]). So one implementation serves a peer that reads its disk and asks others for what it lacks, and
//! the tests; [`common_ancestor`] and [`previous`] drive it over whatever yields links at once.
//!
//! What is common to two versions is found deepest first. A base is less deep than what was made of it, so when a
//! version's turn comes all that leads to it has been seen: the first that both sides lead to is the deepest common
//! ancestor, none of the others is made of it, and only the border between seen and unseen is in memory.
//!
//! Invariants, checked as links are given, since a version's hash does not prove them: all versions are of one object;
//! a version is exactly one deeper than its deepest base. Limits: so many versions a walk as its maker says.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crypto::RecordId;

use crate::{Bases, ObjectKey, VersionError, View};

/// The most versions that a walk to a common ancestor should look at, where its caller has no reason for another bound.
pub const ANCESTORS_MAX: usize = 100_000;
/// The most predecessors that are asked for at once.
pub const PREVIOUS_MAX: usize = 4_096;

/// What a walk needs to know of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// Of which object it is.
    pub object: ObjectKey,
    /// Its depth.
    pub l: u64,
    /// What it was made of.
    pub bases: Bases,
}

impl From<&View<'_>> for Links {
    fn from(view: &View<'_>) -> Self {
        Self { object: view.object, l: view.l, bases: view.bases }
    }
}

/// What a walk says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// It goes on when it is given the links of this version.
    Need(RecordId),
    /// It is done.
    Done(T),
}

/// Whatever yields the links of versions at once.
pub trait Graph {
    /// Why it could not.
    type Error: From<VersionError>;
    /// The links of a version, `None` where it is not here.
    ///
    /// # Errors
    /// Its own.
    fn links(&self, h: &RecordId) -> Result<Option<Links>, Self::Error>;
}

/// The closest common ancestor of two versions: of all versions that both are, or were made of, the deepest; of
/// several as deep, the one with the least h. `None` where they have none.
///
/// # Errors
/// Those of the graph; [`VersionError::Missing`], [`VersionError::TooFar`] after `limit` versions,
/// [`VersionError::History`].
pub fn common_ancestor<G: Graph>(
    graph: &G,
    a: &RecordId,
    b: &RecordId,
    limit: usize,
) -> Result<Option<RecordId>, G::Error> {
    let mut walk = CommonAncestor::new(*a, *b, limit);
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

/// Up to `m` predecessors of a version, nearest first: see [`Previous`].
///
/// # Errors
/// Those of the graph; [`VersionError::Missing`], [`VersionError::History`].
pub fn previous<G: Graph>(graph: &G, h: &RecordId, m: usize) -> Result<Vec<RecordId>, G::Error> {
    let mut walk = Previous::new(*h, m);
    loop {
        match walk.step() {
            Step::Done(found) => return Ok(found),
            Step::Need(h) => {
                let links = graph.links(&h)?.ok_or(VersionError::Missing(h))?;
                walk.give(&h, &links)?;
            }
        }
    }
}

/// One side, the other, or both lead to a version.
type Sides = u8;
const FIRST: Sides = 0b01;
const SECOND: Sides = 0b10;
const BOTH: Sides = FIRST | SECOND;

/// The walk to the closest common ancestor of two versions.
#[derive(Clone, Debug)]
pub struct CommonAncestor {
    /// Seen, and its bases not looked at: by depth, the least h last.
    border: BTreeMap<(u64, Reverse<RecordId>), (Sides, Bases)>,
    /// How many of the border each side leads to: where one leads to none, nothing more can be common.
    leads: [usize; 2],
    /// What is needed, and which sides lead to it.
    needed: Vec<(RecordId, Sides)>,
    /// Whose bases are needed, its depth, and the deepest of those that were given.
    child: Option<(RecordId, u64, Option<u64>)>,
    object: Option<ObjectKey>,
    left: usize,
    limit: usize,
}

impl CommonAncestor {
    /// A walk from these two, which gives up after so many versions.
    pub fn new(a: RecordId, b: RecordId, limit: usize) -> Self {
        let needed = if a == b { vec![(a, BOTH)] } else { vec![(a, FIRST), (b, SECOND)] };
        Self {
            border: BTreeMap::new(),
            leads: [0; 2],
            needed,
            child: None,
            object: None,
            left: limit,
            limit,
        }
    }

    /// What it needs, or the answer. Asking again changes nothing.
    ///
    /// # Errors
    /// [`VersionError::TooFar`], [`VersionError::History`].
    pub fn step(&mut self) -> Result<Step<Option<RecordId>>, VersionError> {
        loop {
            if let Some((h, _)) = self.needed.last() {
                return Ok(Step::Need(*h));
            }
            if let Some((child, l, deepest)) = self.child.take()
                && deepest.is_some_and(|deepest| deepest.checked_add(1) != Some(l))
            {
                return Err(VersionError::History(child));
            }
            if self.leads.contains(&0) {
                return Ok(Step::Done(None));
            }
            let Some(deepest) = self.border.last_entry() else { return Ok(Step::Done(None)) };
            let ((l, Reverse(h)), (sides, bases)) = (*deepest.key(), *deepest.get());
            if sides == BOTH {
                return Ok(Step::Done(Some(h)));
            }
            deepest.remove();
            self.count(sides, false);
            self.child = Some((h, l, None));
            self.needed.extend(bases.iter().map(|base| (base, sides)));
        }
    }

    /// Gives the links of the version that [`CommonAncestor::step`] needs; of others they are passed over.
    ///
    /// # Errors
    /// [`VersionError::TooFar`], [`VersionError::History`] where it cannot be what it is said to be.
    pub fn give(&mut self, h: &RecordId, links: &Links) -> Result<(), VersionError> {
        let Some((_, sides)) = self.needed.pop_if(|(needed, _)| needed == h) else {
            return Ok(());
        };
        let left = self.left.checked_sub(1).ok_or(VersionError::TooFar { max: self.limit })?;
        self.left = left;
        if *self.object.get_or_insert(links.object) != links.object {
            return Err(VersionError::History(*h));
        }
        // Compared with its child's depth when all of that one's bases were given, before anything is made of them.
        if let Some((_, _, deepest)) = &mut self.child {
            *deepest = (*deepest).max(Some(links.l));
        }
        let place = self.border.entry((links.l, Reverse(*h)));
        let (known, _) = place.or_insert((0, links.bases));
        let new = sides & !*known;
        *known |= sides;
        self.count(new, true);
        Ok(())
    }

    const fn count(&mut self, sides: Sides, more: bool) {
        let [first, second] = &mut self.leads;
        if sides & FIRST != 0 {
            *first = if more { *first + 1 } else { *first - 1 };
        }
        if sides & SECOND != 0 {
            *second = if more { *second + 1 } else { *second - 1 };
        }
    }
}

/// The walk to the versions before one, nearest first.
///
/// It ends after a root, and after a merge, behind which there is no one line: of a version with two bases these two are the answer;
/// a predecessor with two is the last.
#[derive(Clone, Debug)]
pub struct Previous {
    needed: Option<RecordId>,
    /// What the version before must be: of this object, and so deep.
    below: Option<(RecordId, ObjectKey, u64)>,
    found: Vec<RecordId>,
    m: usize,
}

impl Previous {
    /// A walk from this version to `m` before it, at most [`PREVIOUS_MAX`].
    pub fn new(h: RecordId, m: usize) -> Self {
        let m = m.min(PREVIOUS_MAX);
        Self { needed: (m > 0).then_some(h), below: None, found: Vec::new(), m }
    }

    /// What it needs, or the answer. Asking again changes nothing.
    pub fn step(&self) -> Step<Vec<RecordId>> {
        match self.needed {
            Some(h) => Step::Need(h),
            None => Step::Done(self.found.clone()),
        }
    }

    /// Those found so far.
    pub fn found(&self) -> &[RecordId] {
        &self.found
    }

    /// Gives the links of the version that [`Previous::step`] needs; of others they are passed over.
    ///
    /// # Errors
    /// [`VersionError::History`] where it cannot be what it is said to be.
    pub fn give(&mut self, h: &RecordId, links: &Links) -> Result<(), VersionError> {
        if self.needed != Some(*h) {
            return Ok(());
        }
        self.needed = None;
        if let Some((child, object, l)) = self.below
            && (links.object != object || links.l.checked_add(1) != Some(l))
        {
            return Err(VersionError::History(child));
        }
        let is_start = self.below.is_none();
        if links.bases.is_merge() && !is_start {
            return Ok(());
        }
        self.found.extend(links.bases.iter().take(self.m - self.found.len()));
        if links.bases.len() == 1 && self.found.len() < self.m {
            self.needed = links.bases.first();
            self.below = Some((*h, links.object, links.l));
        }
        Ok(())
    }
}
