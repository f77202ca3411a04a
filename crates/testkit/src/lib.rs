//! What tests of several crates share: a network without wires, virtual time. A development crate: never shipped.

pub mod network;
pub mod time;
