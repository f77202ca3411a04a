//! Defects on purpose, so that a simulation can show that it would find them.
//!
//! They are compiled for development alone (feature `planted-bugs`) and do nothing until [`plant`] is called on the
//! thread that seals and opens: no environment variable, flag or message switches them on.

use std::cell::Cell;

/// A defect of sealing or opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// Every page is sealed at index 0.
    SealTwice,
    /// A page is opened whatever its MAC is.
    SkipPageMac,
}

thread_local! {
    static BUG: Cell<Option<PlantedBug>> = const { Cell::new(None) };
}

/// Plants a defect in all that this thread seals and opens, or takes it out again.
pub fn plant(bug: Option<PlantedBug>) {
    BUG.set(bug);
}

pub(crate) fn is_on(bug: PlantedBug) -> bool {
    BUG.get() == Some(bug)
}
