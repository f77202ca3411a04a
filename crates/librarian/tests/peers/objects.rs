//! Versioned objects at librarians: what is taken, what is served, and to whom.

mod forged;
mod heads;
mod pen;
mod puts;
mod reads;
mod watch;
