//! Versioned objects over a peer's own store: which versions an object has, and how they are kept small.
//!
//! It is one peer's part: it makes versions, keeps them as records, finds their predecessors, and knows the tips. It is
//! not the network's: who may ask, how many copies there are and where they live is above.
//!
//! ```text
//! Batch::put    base known? -> l, bytes, h (one pass)  -> form against the nearest plain ancestor
//! Batch::commit one write of all  -> tips, cache, watchers
//! Batch::begin  the same by another thread, while the next batch is made
//! get           cache, else the store
//! Incoming      versions that somebody else made: checked against those of their bases that are here
//! ```
//!
//! Memory is a cache over the store. Of each object its tips are kept (about 200 bytes); they are made again from
//! the log when it is opened, in the log's order, which is a sequential read of the versions. Values are kept by a
//! budget of bytes.
//!
//! Invariants:
//! 1. A version that is told to anybody (an id, a tip, an event) is in the store, as durable as the store is set.
//! 2. Every base of a version that was made here is in the store, or was when it was written. One that came from elsewhere may
//!    stand on versions that are not here; they are remembered, and are no tips when they come.
//! 3. No two forms stand on each other: a form's base is plain.
#![forbid(unsafe_code)]

mod arrivals;
mod attesting;
mod batch;
mod buffers;
mod cache;
mod error;
mod flight;
mod history;
mod incoming;
mod index;
mod objects;
mod proven;
mod regions;
mod tips;

pub use attesting::Attesting;
pub use batch::{Batch, Likely, NewVersion, READY_MAX};
pub use error::ObjectsError;
pub use flight::Flight;
pub use history::Merged;
pub use incoming::{Incoming, Written};
pub use objects::{Event, Objects, ObjectsOptions, Stats, Stored};
