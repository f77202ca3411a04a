//! Who holds what: pure functions of a view of the network.
//!
//! Every peer and every author computes the holders of a record by itself, from the same
//! certificates, and must come to the same answer to the last bit; so this crate has integers only,
//! no clock, no randomness and no I/O. It is not a directory of peers (`walk` keeps that). It measures nobody's
//! health: from what peers say of each other [`absent`] makes one list of those who are done without, and they
//! keep their rank. What should be where now ([`View::on_duty`]), whether two peers agree about it
//! ([`copy_item`], [`stripe_item`]), and what mends a stripe ([`plan`]) follow from that.
//!
//! ```
//! use crypto::{OrgId, PeerId, Place, SecretKey};
//! use placement::{Candidate, View};
//!
//! let key = |n: u8| SecretKey::from_bytes(&[n; 32]).expect("a scalar").public();
//! let candidate = |n: u8, organisation: u8| Candidate {
//!     peer: PeerId::new(key(n)),
//!     organisation: OrgId::new(key(organisation)),
//!     weight: 1 << 40,
//! };
//! let view = View::new(0, vec![candidate(1, 101), candidate(2, 101), candidate(3, 102)]);
//! let holders = view.holders(&Place::new([9; 32]), 2);
//! // Two holders, and never both of the first organisation.
//! assert!(holders.contains(&PeerId::new(key(3))));
//! ```
#![forbid(unsafe_code)]

mod absence;
mod duty;
mod memo;
mod mend;
mod profile;
mod redundancy;
mod score;
mod stripe;
mod sums;
mod view;

pub use absence::absent;
pub use duty::INDEXES_MAX;
pub use mend::{Mend, Move, StripeNow, plan};
pub use profile::{Profile, ProfileError};
pub use redundancy::{PAGE_COPIES, Redundancy, redundancy};
pub use score::{LOG2_FRACTION_BITS, point};
pub use stripe::{SPARES, StripeHolders};
pub use sums::{copy_item, stripe_item};
pub use view::{Candidate, View};
