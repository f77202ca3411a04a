//! The checkers, one promise a file.

pub mod bytes;
pub mod durability;
pub mod liveness;
pub mod secrecy;
