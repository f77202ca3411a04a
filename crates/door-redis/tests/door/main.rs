//! The door over sockets, an engine in memory behind it, or the real one.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod client;
mod memory;

mod bounds;
mod engine;
mod foreign;
mod hashes;
mod keys;
mod large;
mod logs;
mod model;
mod sorted_sets;
mod strings;
mod talk;
mod turns;
mod versions;
