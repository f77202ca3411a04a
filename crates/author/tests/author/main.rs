//! The author over a network in this process: what a user sees, with peers that are well, down, slow, lying and full.
#![allow(clippy::unwrap_used, reason = "tests")]

mod checks;
mod contents;
mod counters;
mod faults;
mod files;
mod flips;
mod inboxes;
mod journals;
mod listed;
mod memory;
mod network;
mod peer;
mod recoveries;
mod sharing;
mod stripes;
