//! Versioned objects at their holders: putting records at the first of a place's rank, and asking those for what they have.
//!
//! Beside [`crate::Walker::store`] and [`crate::Walker::find`], which move one record at a time that is its own place. A
//! version lives at its object's place, with what stands beside it (who wrote it, whose object it is), and a holder answers
//! for all of it at once. So a *parcel* is what belongs together at one place; those of one holder go in one request.
//!
//! What is in an answer is for the caller to prove ([`Judge`]): walks know holders, deadlines and health, and no policies.
//! Limits: where a librarian walks for this program, nothing of this is done ([`WalkError::ObjectsThrough`]).

mod asking;
mod call;
mod putting;

use std::sync::Arc;

use crypto::{PeerId, Place, RecordId, Suite};
use document::Record;
use env::calls::CallError;
use env::calls::objects::ObjectsAnswer;
use placement::Redundancy;
use version::merkle::Tree;
use version::{Durability, Receipt, Received, Redirect};

pub use asking::{Answers, HOLDERS_ASKED_MAX, Question, Unanswered};
pub(crate) use putting::Putting;

use crate::background::Rest;
use crate::error::WalkError;

/// Records in one parcel at most: whoever has more makes several.
pub const PARCEL_RECORDS_MAX: usize = 512;
/// Their bytes, but for a single version and what goes with it.
pub const PARCEL_BYTES_MAX: usize = 3 << 20;

/// Records of one object for the holders of one place.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// Where they live.
    pub place: Place,
    /// Copies wanted and waited for.
    pub redundancy: Redundancy,
    /// What is to be kept: it is done at a holder where each of these is stored or present.
    pub records: Vec<Record>,
    /// What goes before them each time, as attestations. One that several parcels of a request share is sent once.
    pub with: Vec<Record>,
    /// What goes first where a holder does not know the object: its record, its policy.
    pub object: Vec<Record>,
}

impl Parcel {
    pub(crate) fn bytes(&self) -> usize {
        let all = self.records.iter().chain(&self.with).chain(&self.object);
        all.map(|record| record.bytes.len()).sum()
    }

    pub(crate) fn count(&self) -> usize {
        self.records.len() + self.with.len() + self.object.len()
    }
}

/// How holders are asked to keep what they are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutTerms {
    /// Open versions may be kept as forms against an ancestor.
    pub compress: bool,
    /// What must have happened before the answer; `None` for the peer's own setting.
    pub durability: Option<Durability>,
    /// Whether receipts are wanted.
    pub receipt: bool,
}

/// A holder's signed word, which was checked, and the versions that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReceipt {
    /// What the peer signed.
    pub receipt: Receipt,
    /// The versions, in the order that it signed.
    pub hs: Vec<RecordId>,
}

impl PeerReceipt {
    /// The word for one of the versions, which counts by itself; `None` where it is not for that one.
    pub fn of(&self, suite: Suite, h: &RecordId) -> Option<Received> {
        let index = self.hs.iter().position(|one| one == h)?;
        self.receipt.of_one(&self.hs, &Tree::new(suite, &self.hs)?, index)
    }
}

/// What became of a parcel.
#[derive(Debug)]
pub enum Delivered {
    /// W holders keep it.
    Stored(DeliveredAt),
    /// The regions of W holders are full: the branch goes on at another place. Each is that holder's signed word, checked
    /// but for the object that it is about.
    Redirected(Vec<Redirect>),
}

/// Who keeps a parcel.
#[derive(Debug)]
pub struct DeliveredAt {
    /// Copies that are durable: at least W.
    pub acked: u32,
    /// Copies wanted: N.
    pub wanted: u32,
    /// Who has them.
    pub holders: Vec<PeerId>,
    /// The words of those of them that gave one.
    pub receipts: Vec<Arc<PeerReceipt>>,
    /// The other copies, on their way.
    pub rest: Rest,
}

/// What an answer is worth.
pub enum Judged<T> {
    /// It is what was asked for, proven.
    Here(T),
    /// The peer does not have it.
    NotHere,
    /// It refuses, or failed at, the one thing that was asked.
    Failed(CallError),
    /// It does not prove itself, for this reason.
    Lie(String),
}

/// Proves an answer. It runs on a CPU thread.
pub type Judge<T> = Arc<dyn Fn(&PeerId, ObjectsAnswer) -> Judged<T> + Send + Sync>;

/// What became of each parcel, in their order.
pub type Deliveries = Vec<Result<Delivered, WalkError>>;
