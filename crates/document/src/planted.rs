//! A defect on purpose, so that a simulation can show that it would find it: an index is sealed twice.
//!
//! It is compiled for development alone (feature `planted-bugs`) and does nothing until [`seal_twice`] is called on the
//! thread that seals: no environment variable, flag or message switches it on.

use std::cell::Cell;

thread_local! {
    static SEAL_TWICE: Cell<bool> = const { Cell::new(false) };
}

/// Seals every page of this thread at index 0, or no longer does.
pub fn seal_twice(on: bool) {
    SEAL_TWICE.set(on);
}

pub(crate) fn is_on() -> bool {
    SEAL_TWICE.get()
}
