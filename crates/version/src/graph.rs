//! Walks through an object's history: the closest common ancestors of two versions, and the versions before one.
//!
//! A walk holds no versions and fetches none: it says which one it needs ([`Step::Need`]) and is given what that one
//! says of its bases ([`Links`]). So one implementation serves a peer that reads its disk and asks others for what it lacks, and
//! the tests; [`common_ancestor`] and [`previous`] drive it over whatever yields links at once.
//!
//! What is common to two versions is found deepest first. A base is less deep than what was made of it, so when a
//! version's turn comes all that leads to it has been seen: one that both sides lead to, and nothing common does, is a
//! closest common ancestor. What that leads to is common as well and not closest: it is *covered*. There may be several
//! closest ones (a criss-cross), so the walk goes on until one side leads to nothing that is not covered: to another one
//! both sides would still lead. Only the border between seen and unseen is in memory, and those found.
//!
//! Invariants, checked as links are given, since a version's hash does not prove them: all versions are of one object;
//! a version is exactly one deeper than its deepest base. Limits: so many versions a walk as its maker says.

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

/// A closest common ancestor of two versions: of all versions that both are, or were made of, the deepest; of several
/// as deep, the one with the greatest h. `None` where they have none. Where there are several it says not all that
/// both have in common: what merges two versions takes [`crate::merge::ancestor()`].
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
            Step::Done(found) => return Ok(found.first().copied()),
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

/// What leads to a version: one side, the other, or both; and whether something common does.
type Marks = u8;
const FIRST: Marks = 0b001;
const SECOND: Marks = 0b010;
const BOTH: Marks = FIRST | SECOND;
const COVERED: Marks = 0b100;

/// The walk to the closest common ancestors of two versions: all that both are, or were made of, and that nothing else of
/// that kind was made of. Greatest depth first, of the same depth the greatest h: the order of tips.
#[derive(Clone, Debug)]
pub struct CommonAncestor {
    /// Seen, and its bases not looked at.
    border: BTreeMap<(u64, RecordId), (Marks, Bases)>,
    /// How many of the border, without the covered ones, each side leads to: where one leads to none, no more can be found.
    leads: [usize; 2],
    /// What is needed, and what leads to it.
    needed: Vec<(RecordId, Marks)>,
    /// Whose bases are needed, its depth, and the deepest of those that were given.
    child: Option<(RecordId, u64, Option<u64>)>,
    found: Vec<RecordId>,
    object: Option<ObjectKey>,
    left: usize,
    limit: usize,
}

impl CommonAncestor {
    /// A walk from these two, which gives up after so many versions.
    pub fn new(a: RecordId, b: RecordId, limit: usize) -> Self {
        Self::between(&[a], &[b], (limit, limit))
    }

    /// A walk from what would be made of all of `first` and from what would be made of all of `second`. It gives up after
    /// so many versions; the `limit` is what it then says.
    pub(crate) fn between(
        first: &[RecordId],
        second: &[RecordId],
        (left, limit): (usize, usize),
    ) -> Self {
        let first = first.iter().map(|h| (*h, FIRST));
        let second = second.iter().map(|h| (*h, SECOND));
        Self {
            border: BTreeMap::new(),
            leads: [0; 2],
            needed: first.chain(second).collect(),
            child: None,
            found: Vec::new(),
            object: None,
            left,
            limit,
        }
    }

    /// At how many versions it would still look.
    pub(crate) const fn left(&self) -> usize {
        self.left
    }

    /// What it needs, or the answer. Asking again changes nothing.
    ///
    /// # Errors
    /// [`VersionError::TooFar`], [`VersionError::History`].
    pub fn step(&mut self) -> Result<Step<Vec<RecordId>>, VersionError> {
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
                return Ok(Step::Done(self.found.clone()));
            }
            let Some(deepest) = self.border.last_entry() else {
                return Ok(Step::Done(self.found.clone()));
            };
            let ((l, h), (mut marks, bases)) = (*deepest.key(), *deepest.get());
            deepest.remove();
            self.recount(marks, 0);
            if marks == BOTH {
                self.found.push(h);
                marks |= COVERED;
                // Nearly always it is the only one: then its bases need not be had.
                if self.leads.contains(&0) {
                    continue;
                }
            }
            self.child = Some((h, l, None));
            self.needed.extend(bases.iter().map(|base| (base, marks)));
        }
    }

    /// Gives the links of the version that [`CommonAncestor::step`] needs; of others they are passed over.
    ///
    /// # Errors
    /// [`VersionError::TooFar`], [`VersionError::History`] where it cannot be what it is said to be.
    pub fn give(&mut self, h: &RecordId, links: &Links) -> Result<(), VersionError> {
        let Some((_, marks)) = self.needed.pop_if(|(needed, _)| needed == h) else {
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
        let (known, _) = self.border.entry((links.l, *h)).or_insert((0, links.bases));
        let was = *known;
        *known |= marks;
        let is = *known;
        self.recount(was, is);
        Ok(())
    }

    /// Something in the border is marked otherwise: 0 is what is not in it.
    fn recount(&mut self, was: Marks, is: Marks) {
        let leads = |marks: Marks, side: Marks| marks & COVERED == 0 && marks & side != 0;
        for (side, count) in [FIRST, SECOND].into_iter().zip(&mut self.leads) {
            *count += usize::from(leads(is, side));
            *count -= usize::from(leads(was, side));
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
