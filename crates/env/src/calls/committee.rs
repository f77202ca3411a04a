//! What is asked of a librarian that hosts a member of a committee: updates of certified heads, reads of them, how far and how it is.
//!
//! What travels here is in the committee's own formats (`docs/formats/heads.md`) and proves itself with the committee's group key;
//! nothing else of an answer is believed. The meaning of each request is in ADR 10.

use bytes::Bytes;
use version::ObjectKey;

/// Bytes of a submission at most.
pub const SUBMISSION_BYTES_MAX: usize = 1 << 20;
/// Updates in a submission, and so answers to it, at most.
pub const ANSWERS_MAX: usize = 1_024;
/// Bytes of one answer, of a read, of a position, and of a charter at most.
pub const ANSWER_BYTES_MAX: usize = 96 << 10;
/// Bytes of a branch's name at most.
pub const BRANCH_BYTES_MAX: usize = 128;
/// Members of a committee at most.
pub const MEMBERS_MAX: usize = 32;
/// Bytes of a member's card at most.
pub const CARD_BYTES_MAX: usize = 512;
/// Bytes of a group key.
pub const GROUP_KEY_BYTES: usize = 96;

/// A request about a committee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitteeRequest {
    /// The id of the group key of the committee that is meant; `None`: whichever has a member here.
    pub group: Option<[u8; 32]>,
    /// What is asked.
    pub ask: CommitteeAsk,
}

/// What is asked of a committee's member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitteeAsk {
    /// What becomes of these updates: an encoded submission.
    Update(Bytes),
    /// Where a head is.
    Read {
        /// The object.
        object: ObjectKey,
        /// The branch.
        branch: Bytes,
        /// Not before this epoch and view are final.
        at: Option<(u64, u64)>,
    },
    /// How far the member is, signed together with this.
    HowFar([u8; 32]),
    /// How the member is, and where the others are.
    Status,
    /// What every member keeps of the founding.
    Charter,
}

/// The answer of the request's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitteeAnswer {
    /// An encoded answer to each update, in order.
    Update(Vec<Bytes>),
    /// An encoded read.
    Read(Bytes),
    /// An encoded position.
    HowFar(Bytes),
    /// How it is.
    Status(Box<CommitteeStatus>),
    /// An encoded charter.
    Charter(Bytes),
}

/// How a member is, as its librarian tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitteeStatus {
    /// The group key.
    pub group: Bytes,
    /// The height of the final tip.
    pub height: u64,
    /// Its time, Unix milliseconds.
    pub time_ms: u64,
    /// The epoch.
    pub epoch: u64,
    /// The view in which the tip became final.
    pub view: u64,
    /// How many members must agree.
    pub needed: u32,
    /// How many of them are heard, this one among them.
    pub heard: u32,
    /// Whether this one votes; else it follows.
    pub votes: bool,
    /// Submissions that wait.
    pub waiting: u64,
    /// Entries of the state.
    pub entries: u64,
    /// Bytes of them.
    pub state_bytes: u64,
    /// This member's key.
    pub member: [u8; 32],
    /// The members' keys, in order.
    pub members: Vec<[u8; 32]>,
    /// Signed cards of members, this one's among them, as far as they are known here.
    pub cards: Vec<Bytes>,
}
