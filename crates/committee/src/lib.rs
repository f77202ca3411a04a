//! Heads certified by a committee: n members of different organisations agree on the latest version of each branch, and anyone
//! checks their word with one public key that stays the same though the members do not.
//!
//! A version is a fact; a head is an opinion. Where its owner's own signature is not enough, because two devices must never both
//! be right, a **committee** of n >= 4 members orders the updates: each is a compare-and-set, done or refused, and no
//! f = (n - 1) / 3 of the members can forge, fork or silently drop one.
//!
//! - [`Update`] is what a client asks for, signed singly or in a bundle ([`Submission`]).
//! - [`Block::execute`] is what a block of them does to the [`State`], the same at every member.
//! - [`Certificate`] is the committee's word for a block's [`Header`]; [`Answer`] and [`Read`] lead from it to what became of one
//!   update and to where one head is, and are checked offline with the [`GroupKey`] alone.
//!
//! It is not a way to hide anything: updates, heads and writers are public. The formats are in `docs/formats/heads.md`, the
//! reasons in `docs/adr/0010-certified-heads.md`.
#![forbid(unsafe_code)]

pub mod answer;
pub mod card;
pub mod certificate;
pub mod engine;
pub mod entry;
mod error;
mod group;
mod handle;
pub mod header;
pub mod map;
pub mod members;
pub mod outcome;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod position;
#[cfg(test)]
mod proving;
mod reader;
pub mod state;
pub mod update;

pub use answer::{Answer, CertifiedHead, Proofs, Read};
pub use card::Card;
pub use certificate::Certificate;
pub use error::CommitteeError;
pub use group::{GROUP_KEY_BYTES, GroupId, GroupKey};
pub use handle::{Changing, Committee, Handle, Member, Phase, Request, Status};
pub use header::{Block, Executed, Header, HeaderDigest};
pub use members::{Change, Members, Place, Wish};
pub use outcome::Outcome;
pub use position::Position;
pub use state::{Checked, Moment, Rules, State};
pub use update::{Operation, Submission, Update, UpdateDigest};
