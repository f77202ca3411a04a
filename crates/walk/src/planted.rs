//! Defects on purpose, so that a simulation can show that it would find them.
//!
//! They are compiled for development alone (feature `planted-bugs`) and do nothing until [`plant`] is called on the
//! thread that walks: no environment variable, flag or message switches them on.

use std::cell::Cell;

/// A defect of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A writer is answered one copy too early.
    AcknowledgeEarly,
    /// What a peer sends is believed without hashing it.
    SkipProof,
    /// A writer is answered one fragment of a stripe too early.
    AcknowledgeStripeEarly,
    /// A record that proves itself is taken for whichever was asked for.
    TakeOther,
}

thread_local! {
    static BUG: Cell<Option<PlantedBug>> = const { Cell::new(None) };
}

/// Plants a defect in all walks of this thread, or takes it out again.
pub fn plant(bug: Option<PlantedBug>) {
    BUG.set(bug);
}

pub(crate) fn is_on(bug: PlantedBug) -> bool {
    BUG.get() == Some(bug)
}
