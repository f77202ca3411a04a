//! The directory of peers and their health, and storing and finding records at their holders.
//!
//! Librarians (`Put`, `Get`, repair) and authors both walk; this is the one place that knows how. [`Directory`] learns
//! signed announcements and remembers how calls to each peer went. [`Walker`] takes the rank that `placement` computes
//! and stores to it, W of N acknowledged, or reads from it, every answer proven; [`StripeRecords`] and [`StripeShape`] are what it
//! takes of a stripe. It is not a transport (`env::calls::Calls` is)
//! and does not repair: it tells what it saw.
//!
//! All time, randomness and tasks come from `env`, so that the same code runs in a seeded simulation.
#![forbid(unsafe_code)]

mod background;
mod batch;
mod candidates;
mod core;
mod directory;
mod error;
mod finding;
mod gather;
mod health;
mod hedge;
mod holdings;
mod join;
mod latency;
mod line;
pub mod objects;
mod owing;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod proof;
mod race;
mod refresh;
mod storing;
mod stripe;
mod through;
mod walker;

pub use background::{BEHIND_BYTES_MAX, BEHIND_MAX, Reached, Rest};
pub use batch::Sought;
pub use candidates::{ASKED_MAX, NEAR_EXTRA};
pub use core::{
    BUSY_WAIT_MAX, CALL_LIMIT, LAST_RESORT_LIMIT, LocalStore, TRANSFER_BYTES_PER_S, WALK_LIMIT,
};
pub use directory::{
    CHANGES_MAX, Change, Departures, Directory, Learnt, LearntFrom, PEERS_KNOWN_MAX, PeerStatus,
    REFRESH_UNKNOWN_EVERY, Revoked, UNHEARD_PAUSE,
};
pub use error::{ERRORS_MAX, WalkError};
pub use finding::WIDTH_MAX;
pub use health::{AWAY_AFTER, BACKOFF_BASE, BACKOFF_MAX, Health, NO_WRITES_FOR};
pub use hedge::{HEDGE_BURST, HEDGE_PERCENT};
pub use holdings::{Held, Holding};
pub use join::{INTRODUCED_MAX, INTRODUCED_OF_ONE_MIN, JOIN_GRACE, PARALLEL_MAX, ROUNDS_MAX};
pub use refresh::REFRESH_EVERY;
pub use storing::EXTRA_MAX;
pub use stripe::{
    Fetched, FragmentAt, FragmentState, OnDurable, StoredStripe, StripeRecords, StripeShape,
};
pub use through::{ASKED_LAST_BASE, ASKED_LAST_MAX, FULL_WAIT, LIBRARIAN_LIMIT, SHOW_LIMIT};
pub use walker::{Found, Stored, WalkOptions, Walker};
