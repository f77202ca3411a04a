//! The checkers, one promise a file.

pub mod answers;
pub mod bytes;
pub(crate) mod charged;
pub mod durability;
pub(crate) mod forged;
pub(crate) mod gone;
pub(crate) mod holdings;
pub mod liveness;
pub(crate) mod poisoned;
pub(crate) mod redundancy;
pub mod secrecy;
