//! Why something about versioned objects could not be done, and what helps.

use std::fmt;

use crypto::{Class, Classified, PeerId, PublicKey, RecordId};
use document::DocumentError;
use env::calls::CallError;
use version::merge::Conflict;
use version::{ObjectKey, VersionError, VersionId};
use walk::WalkError;

use crate::error::AuthorError;

/// What was asked of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// A version.
    Version(VersionId),
    /// A version of which no more than the hash is known.
    Predecessor(RecordId),
    /// What an object is at, and what its owner says of it.
    Object(ObjectKey),
    /// A branch's heads.
    Heads(ObjectKey),
    /// Which objects there are.
    List,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(id) => write!(f, "version {id}"),
            Self::Predecessor(h) => write!(f, "version {h}"),
            Self::Object(key) => write!(f, "object {key}"),
            Self::Heads(key) => write!(f, "the heads of object {key}"),
            Self::List => f.write_str("the list of objects"),
        }
    }
}

/// Why something about versioned objects could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectsError {
    /// So many holders do not have it that it was not acknowledged before they were asked. It may be on its way.
    #[error("{subject} is not here yet: {asked} peers were asked; try again in a moment")]
    NotYet {
        /// What.
        subject: Subject,
        /// Peers that answered that they do not have it.
        asked: usize,
    },
    /// Too few holders answered to say whether it exists. Try again when more of them can be reached.
    #[error(
        "{subject} is unavailable: {asked} peers do not have it, {unreachable} others gave no answer{}",
        first(errors)
    )]
    Unavailable {
        /// What.
        subject: Subject,
        /// Peers that answered that they do not have it.
        asked: usize,
        /// Peers that gave no answer.
        unreachable: usize,
        /// The last error of each of those.
        errors: Vec<(PeerId, CallError)>,
    },
    /// Whoever answered with it did so with bytes that do not prove themselves. Those peers lie, or their disks do.
    #[error("{subject} was answered with what does not prove itself, by {}", peers(from))]
    Corrupt {
        /// What.
        subject: Subject,
        /// Who answered so.
        from: Vec<PeerId>,
    },
    /// Peers refuse: this key is neither its owner's nor listed, or there is no such thing, which they do not tell apart.
    #[error("{subject}: denied: {reason}")]
    Denied {
        /// What.
        subject: Subject,
        /// What one of them said.
        reason: String,
    },
    /// There is no such object: nobody created it.
    #[error("there is no object {0}: create it, or look at its owner and name")]
    NoObject(ObjectKey),
    /// There is such an object, and its policy says something else. [`super::Object::set_policy`] changes it.
    #[error("object {0} exists, and its policy says something else: change that instead")]
    Exists(ObjectKey),
    /// There is an open object of that name where a sealed one was to be made, or the other way round: one would hide the other from
    /// its owner.
    #[error("there is {} of this name already ({key}): one would hide the other", if *open { "an open object" } else { "a sealed object" })]
    ExistsOtherwise {
        /// The other one.
        key: ObjectKey,
        /// Whether that is the open one.
        open: bool,
    },
    /// Values would be put in the clear, and the owner did not say that they may be.
    #[error("object {0} is not open as far as peers know: its values have to be sealed")]
    NotOpen(ObjectKey),
    /// The object is open, and was addressed as a sealed one.
    #[error("object {0} is open: it has no sealed values")]
    NotSealed(ObjectKey),
    /// Only the owner's key can do this.
    #[error("only the owner of object {0} can do this")]
    NotOwner(ObjectKey),
    /// This key signs no heads of that owner: it is neither the owner's nor in the newest list of devices that is known.
    #[error("{0} is no device that may write these heads: its owner has to delegate it")]
    NotADevice(PublicKey),
    /// Versions, or other records of objects, were not stored at enough holders. Sending the same again makes the same versions.
    #[error("not stored at enough peers")]
    NotStored(#[source] WalkError),
    /// All 17 regions of the object are full. Raise `region_bytes` in its policy.
    #[error("all regions of object {0} are full: raise the bytes of a region in its policy")]
    Full(ObjectKey),
    /// A batch with no room for more: send it, and begin another.
    #[error("a batch holds at most {max} versions: send it and begin another")]
    BatchFull {
        /// The bound.
        max: usize,
    },
    /// Two versions do not merge by this function; both stay.
    #[error("the versions conflict: {}", .0.reason)]
    Conflict(Conflict),
    /// A version has another depth than its name says: it was named wrongly.
    #[error("version {h} has depth {depth}, and its name says {said}: name it {h}:{depth}:N")]
    Depth {
        /// Which version.
        h: RecordId,
        /// What the name says.
        said: u64,
        /// Its depth.
        depth: u64,
    },
    /// A value does not open under the object's content key: its writer has another one.
    #[error("the value of version {h} does not open under the content key of its object")]
    Sealed {
        /// Which version.
        h: RecordId,
        /// What is wrong.
        #[source]
        source: DocumentError,
    },
    /// A value cannot be sealed.
    #[error("this value cannot be sealed")]
    Unsealable(#[source] DocumentError),
    /// Bytes that are no access to an object.
    #[error("these bytes are no access to an object of this network")]
    Access,
    /// Bytes that are no point of a watch.
    #[error("these bytes are no point where a watch of objects ended")]
    WatchPoint,
    /// A record of an object that cannot be, or does not hold.
    #[error("this is no record of a versioned object")]
    Version(#[from] VersionError),
    /// No peer could be asked.
    #[error("the network cannot be asked about objects")]
    Walk(#[source] WalkError),
    /// The author's side.
    #[error(transparent)]
    Author(#[from] AuthorError),
}

impl Classified for ObjectsError {
    fn class(&self) -> Class {
        match self {
            Self::NotYet { .. } | Self::NoObject(_) => Class::NotFound,
            Self::Unavailable { .. } => Class::Unavailable,
            Self::Corrupt { .. } | Self::Sealed { .. } => Class::Corrupt,
            Self::Denied { .. } | Self::NotOwner(_) | Self::NotADevice(_) => Class::Denied,
            Self::Exists(_) | Self::ExistsOtherwise { .. } | Self::Conflict(_) => Class::Conflict,
            Self::NotOpen(_) | Self::NotSealed(_) | Self::BatchFull { .. } => Class::Invalid,
            Self::Unsealable(_) | Self::Access | Self::WatchPoint => Class::Invalid,
            Self::Depth { .. } => Class::Invalid,
            Self::Full(_) => Class::Busy,
            Self::NotStored(source) | Self::Walk(source) => source.class(),
            Self::Version(source) => source.class(),
            Self::Author(source) => source.class(),
        }
    }
}

fn first(errors: &[(PeerId, CallError)]) -> String {
    errors.first().map_or_else(String::new, |(_, error)| format!("; one said: {error}"))
}

fn peers(from: &[PeerId]) -> String {
    from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
