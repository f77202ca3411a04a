//! What tests of several crates share: a network without wires, virtual time. A development crate: never shipped.

pub mod crowd;
pub mod disk;
pub mod fuzz;
pub mod golden;
pub mod network;
pub mod overlay;
pub mod store;
pub mod time;
