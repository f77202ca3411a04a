//! What can be asked of a librarian about versioned objects: one call with a request that says what, and a stream.
//!
//! All that is sent and answered are records, which prove themselves: a version its value and its history, an attestation
//! who wrote it, a policy and a head whose word they are. What no record proves is said where it stands. The meaning of
//! each request is in ADR 7, section *Wire*.

use bytes::Bytes;
use crypto::{PeerId, PublicKey, RecordId};
use document::Record;
use futures::stream::BoxStream;
use version::{Durability, Hint, ObjectKey};

use super::CallError;

/// Objects whose tips are asked for at once, and objects of one watch, at most.
pub const OBJECTS_MAX: usize = 256;
/// Tips of one object in an answer at most.
pub const TIPS_MAX: usize = 64;
/// Predecessors in one answer at most.
pub const PREVIOUS_MAX: usize = 1024;
/// Redirects of one peer for one object at most: one a place.
pub const REDIRECTS_MAX: usize = version::OVERFLOWS_MAX as usize + 1;
/// Names in one list at most.
pub const NAMES_MAX: usize = 1024;
/// Bytes of the records of one answer that may have more than one: the last is left out that would take it over this.
pub const ANSWER_BYTES_MAX: usize = super::BATCH_BYTES_MAX;

/// A version, and where it is likely to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionAt {
    /// Its object.
    pub object: ObjectKey,
    /// Which version.
    pub h: RecordId,
    /// The hint of its id.
    pub n: Hint,
}

/// Put records of objects: objects, policies, attestations, versions, devices, heads.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PutObjects {
    /// 1 to 1,024, together at most 8 MiB; taken in this order. An attestation may stand behind the versions that it names.
    pub records: Vec<Record>,
    /// Open versions may be kept as forms against an ancestor.
    pub compress: bool,
    /// What must have happened before the answer; `None` for the peer's own setting.
    pub durability: Option<Durability>,
    /// Whether a receipt for the versions is wanted.
    pub receipt: bool,
}

/// What became of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// It was new and is as durable as asked for.
    Stored,
    /// It was here already, as durable.
    Present,
    /// A version that was not taken: the region of its place is full. The peer's signed [`version::Redirect`].
    Redirect(Bytes),
    /// A version that was not taken: the peer does not know its object. Send its record, and its policy, with it.
    NoObject,
}

/// What became of the records.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PutObjectsAnswer {
    /// One a record, in their order.
    pub outcomes: Vec<Result<PutOutcome, CallError>>,
    /// The encoded [`version::Receipt`] over those versions that were stored or present, in their order.
    pub receipt: Option<Bytes>,
}

/// Ask for versions.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GetVersions {
    /// 1 to 1,024.
    pub versions: Vec<VersionAt>,
    /// Whether attestations are wanted too.
    pub attested: bool,
    /// Who reads: an encoded [`version::ReaderClaim`]; `None` for the key of the connection.
    pub reader: Option<Bytes>,
}

/// A version as a peer has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundVersion {
    /// The version.
    pub record: Record,
    /// A record that attests it, in either form, where one was asked for and is here.
    pub attestation: Option<Bytes>,
}

/// Ask for predecessors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetPrevious {
    /// Of which version.
    pub version: VersionAt,
    /// How many at most, 1 to [`PREVIOUS_MAX`]; the version itself does not count.
    pub most: u32,
    /// As in [`GetVersions`].
    pub reader: Option<Bytes>,
}

/// A history, nearest first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PreviousAnswer {
    /// The version itself, then its predecessors: one after the other, or the two of a merge, which end it. Empty where the version
    /// is not here.
    pub records: Vec<Record>,
    /// Why it ends where neither number, root nor merge tells: the predecessor that was not found, or did not fit.
    pub missing: Option<RecordId>,
}

/// Ask for what an object is at.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GetTips {
    /// 1 to [`OBJECTS_MAX`].
    pub objects: Vec<ObjectKey>,
    /// As in [`GetVersions`].
    pub reader: Option<Bytes>,
}

/// What a peer knows of one object. That it is all, nothing proves.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ObjectTips {
    /// The object's record.
    pub object: Option<Record>,
    /// The policy that counts here; `None` for the implied one.
    pub policy: Option<Record>,
    /// Versions without a successor here, the one that counts first.
    pub tips: Vec<FoundVersion>,
    /// Whether there are more than were sent.
    pub more: bool,
    /// The peer's redirects for this object, at most [`REDIRECTS_MAX`].
    pub redirects: Vec<Bytes>,
}

/// Ask for a branch's signed heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetHeads {
    /// The owner of the object.
    pub owner: PublicKey,
    /// Of which object.
    pub object: ObjectKey,
    /// The branch's name.
    pub branch: Bytes,
    /// As in [`GetVersions`].
    pub reader: Option<Bytes>,
}

/// A branch as a peer knows it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HeadsAnswer {
    /// Heads, tips first; those that they supersede as far as the peer keeps them. At most [`version::head::RECORDS_MAX`].
    pub heads: Vec<Record>,
    /// The owner's newest list of devices.
    pub devices: Option<Record>,
}

/// Ask for an owner's objects at this peer, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListObjects {
    /// Whose.
    pub owner: PublicKey,
    /// Names that begin so.
    pub prefix: Bytes,
    /// Names behind this one.
    pub after: Bytes,
    /// 1 to [`NAMES_MAX`].
    pub most: u32,
    /// As in [`GetVersions`].
    pub reader: Option<Bytes>,
}

/// What is asked about objects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectsRequest {
    /// Put records.
    Put(PutObjects),
    /// Versions.
    Get(GetVersions),
    /// Predecessors.
    Previous(GetPrevious),
    /// What objects are at.
    Tips(GetTips),
    /// What a branch is at.
    Heads(GetHeads),
    /// Which objects there are.
    List(ListObjects),
}

/// The answer to a request of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectsAnswer {
    /// See [`PutObjects`].
    Put(PutObjectsAnswer),
    /// One a version, in order; `None`: not here. One that would take the answer over [`ANSWER_BYTES_MAX`] is *busy*.
    Get(Vec<Result<Option<FoundVersion>, CallError>>),
    /// See [`GetPrevious`].
    Previous(PreviousAnswer),
    /// One an object, in order.
    Tips(Vec<Result<ObjectTips, CallError>>),
    /// See [`GetHeads`].
    Heads(HeadsAnswer),
    /// Objects' records, in the order of their names.
    List(Vec<Record>),
}

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Versions of these: 1 to [`OBJECTS_MAX`].
    Objects(Vec<ObjectKey>),
    /// Versions of an owner's objects whose names begin so.
    Family(PublicKey, Bytes),
    /// Heads of a branch, and lists of devices: owner, object, name.
    Branch(PublicKey, ObjectKey, Bytes),
}

/// Where in a peer's events a watcher is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchCursor {
    /// Whose events.
    pub peer: PeerId,
    /// Which run of that peer: numbers begin anew with each.
    pub run: u64,
    /// The next event to be told.
    pub next: u64,
}

/// Watch objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// What.
    pub what: Watched,
    /// From where; `None`: what there is, and then what is new.
    pub from: Option<WatchCursor>,
    /// As in [`GetVersions`].
    pub reader: Option<Bytes>,
}

/// What a watcher is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A version, head or list of devices that is new here, or one of those that there were at the start.
    Record {
        /// It, and for a version who wrote it.
        found: FoundVersion,
        /// Where to resume after it; `None` among those that there were at the start.
        cursor: Option<WatchCursor>,
    },
    /// Events may be missing before this: the peer does not go back to the cursor asked for, or the watcher was too slow. All
    /// tips follow.
    Gap,
    /// All that there was at the start, or after a gap, was told; and the heartbeat.
    CaughtUp(WatchCursor),
}

/// A watch's events.
pub type WatchEvents = BoxStream<'static, Result<WatchEvent, CallError>>;
