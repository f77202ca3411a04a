//! Defects on purpose, so that a simulation can show that it would find them.
//!
//! They are compiled for development alone (feature `planted-bugs`) and do nothing until [`plant`] is called on the
//! thread that runs the peers: no environment variable, flag or message switches them on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use crypto::PeerId;

/// A defect of what keeps the network whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A peer that starts with records looks for nothing that it lacks.
    DropRepairOnRestart,
    /// A peer with two fragments of a stripe counts as two holders.
    CountHolderTwice,
    /// A record comes back under a lease that was ended here.
    ResurrectAfterTombstone,
    /// A fragment that was made is taken for what the header says.
    BelieveHeader,
}

thread_local! {
    static BUG: Cell<Option<PlantedBug>> = const { Cell::new(None) };
    static RESTARTED: RefCell<BTreeSet<PeerId>> = const { RefCell::new(BTreeSet::new()) };
}

/// Plants a defect in all peers of this thread, or takes it out again.
pub fn plant(bug: Option<PlantedBug>) {
    BUG.set(bug);
    RESTARTED.with_borrow_mut(BTreeSet::clear);
}

pub(crate) fn is_on(bug: PlantedBug) -> bool {
    BUG.get() == Some(bug)
}

/// A peer reads its store, which has so many records.
pub(crate) fn starts(own: PeerId, records: u64) {
    RESTARTED.with_borrow_mut(|all| if records > 0 { all.insert(own) } else { all.remove(&own) });
}

/// Whether a peer looks for nothing.
pub(crate) fn is_blind(own: &PeerId) -> bool {
    is_on(PlantedBug::DropRepairOnRestart) && RESTARTED.with_borrow(|all| all.contains(own))
}
