//! Versioned objects between an author and real librarians, all in this process: what both sides make of the same words.
#![allow(clippy::unwrap_used, reason = "tests")]

mod leases;
mod objects;
mod town;
