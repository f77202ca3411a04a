//! Versioned objects at librarians: what is taken, what is served, and to whom.

mod forged;
mod heads;
pub(crate) mod pen;
mod puts;
mod reads;
mod watch;
