//! The checkers, one promise a file.

pub mod answers;
pub mod bytes;
pub mod durability;
pub(crate) mod holdings;
pub mod liveness;
pub mod secrecy;
