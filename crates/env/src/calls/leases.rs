//! What is asked about leases: shown for records that are held, looked up, ended, and the words that ended them told on.
//!
//! Leases that come along with records are no request of their own: see [`super::Calls::store_leased`]. The meaning of each
//! request is in ADR 9.

use bytes::Bytes;
use crypto::lease::Shown;
use crypto::{LeaseId, Place};

/// Leases shown in one call, at most; their leaves are bounded by [`crypto::lease::SHOWN_LEAVES_MAX`] together.
pub const SHOWN_MAX: usize = 256;
/// Places asked about at once, at most.
pub const PLACES_MAX: usize = 256;
/// Leases told of one place, at most.
pub const PLACE_LEASES_MAX: usize = 32;
/// Leases ended in one call, at most, and words told in one answer.
pub const FORGETS_MAX: usize = 1024;

/// A request about leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Take leases for records that are held: at most [`SHOWN_MAX`].
    Show(Vec<Shown>),
    /// Which leases there are at these places: at most [`PLACES_MAX`].
    Of(Vec<Place>),
    /// End leases, by signed words: at most [`FORGETS_MAX`].
    Forget(Vec<Bytes>),
    /// Words that were heard since then, Unix milliseconds: for peers.
    Tombstones {
        /// Since when.
        since_ms: u64,
        /// Of those heard in that very moment, the ones for leases behind this one: where an answer before ended.
        after: Option<LeaseId>,
    },
}

/// What is at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceLeases {
    /// Whether a record that lives there is held.
    pub held: bool,
    /// Whether it is kept without a lease too.
    pub unleased: bool,
    /// The leases that run, each with the leaf of this place.
    pub leases: Vec<Shown>,
}

/// What became of a lease that was to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// It has ended, and what it alone held is gone.
    Ended,
    /// It had been ended before.
    Known,
    /// No such lease is here.
    NotHere,
}

/// The answer of the request's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// Of each leaf of each lease, in order, whether a record at its place is held: only then it was taken.
    Show(Vec<Vec<bool>>),
    /// Of each place.
    Of(Vec<PlaceLeases>),
    /// Of each word.
    Forget(Vec<Forgotten>),
    /// The words, oldest first, and where to go on.
    Tombstones {
        /// Signed words.
        forgets: Vec<Bytes>,
        /// When the last of them was heard, and which lease it ended; `None` where there are no more.
        next: Option<(u64, LeaseId)>,
    },
}
