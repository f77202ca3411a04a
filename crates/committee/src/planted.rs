//! Defects and lies on purpose, so that a simulation can show that it would find the ones and survive the others, and what it sees.
//!
//! They are compiled for development alone (feature `planted-bugs`) and do nothing until something here is called on the thread that
//! the members run on: no environment variable, flag or message switches them on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::engine::MemberId;
use crate::{Header, Outcome, UpdateDigest};

/// A defect of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A head moves wherever it was.
    SkipCompareAndSet,
    /// A peer's receipt counts as often as it is there.
    CountTwice,
    /// A member whose votes are gone votes again.
    VoteAfterAmnesia,
}

/// How a member, by the name of its files, behaves toward the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conduct {
    /// As it should.
    #[default]
    Honest,
    /// It proposes and votes, but gives no block and no update to anybody.
    Withholds,
    /// Blocks, updates, and what others lack are changed on their way out.
    Forges,
}

/// What a member did, as it did it.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A block became final at the member of this name; what became of each of its updates.
    Final(String, Box<Header>, Vec<(UpdateDigest, Outcome)>),
    /// The member of this name cut another off.
    CutOff(String, MemberId),
}

thread_local! {
    static BUG: Cell<Option<PlantedBug>> = const { Cell::new(None) };
    static CONDUCTS: RefCell<BTreeMap<String, Conduct>> = const { RefCell::new(BTreeMap::new()) };
    static SEEN: RefCell<Option<Vec<Seen>>> = const { RefCell::new(None) };
}

/// Plants a defect in all members of this thread, or takes it out again.
pub fn plant(bug: Option<PlantedBug>) {
    BUG.set(bug);
}

pub(crate) fn is_on(bug: PlantedBug) -> bool {
    BUG.get() == Some(bug)
}

/// Makes the member with this name behave so; without names all are honest again.
pub fn behave(name: &str, conduct: Conduct) {
    CONDUCTS.with_borrow_mut(|all| all.insert(String::from(name), conduct));
}

/// All are honest again, and nobody watches.
pub fn forget() {
    CONDUCTS.with_borrow_mut(BTreeMap::clear);
    SEEN.set(None);
}

pub(crate) fn conduct(name: &str) -> Conduct {
    CONDUCTS.with_borrow(|all| all.get(name).copied().unwrap_or_default())
}

/// Watches the members of this thread from here on.
pub fn watch() {
    SEEN.set(Some(Vec::new()));
}

/// What was seen since it was last asked.
pub fn seen() -> Vec<Seen> {
    SEEN.with_borrow_mut(|seen| seen.as_mut().map(std::mem::take).unwrap_or_default())
}

pub(crate) fn see(what: impl FnOnce() -> Seen) {
    SEEN.with_borrow_mut(|seen| {
        if let Some(seen) = seen {
            seen.push(what());
        }
    });
}
