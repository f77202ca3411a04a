//! Versioned objects and signed heads, as their users see them, over peers that are well, down, full and lying.
#![allow(clippy::unwrap_used, reason = "tests")]

mod certified;
mod council;
mod heads;
mod keeper;
mod lies;
mod living;
mod places;
mod stage;
mod versions;
mod watches;
