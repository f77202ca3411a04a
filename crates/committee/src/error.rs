//! What goes wrong with certified heads.

use crypto::{CertificateError, Class, Classified, KeyError, NetworkId};
use version::{VersionError, VersionId};

/// Why bytes are none of the formats of this crate, do not count, or were not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitteeError {
    /// The bytes begin otherwise than those of this format.
    #[error("not a {0}: the bytes begin otherwise")]
    Prefix(&'static str),
    /// The bytes end too soon, or go on behind their end.
    #[error("a {0} that is cut short, or goes on behind its end")]
    Length(&'static str),
    /// A field holds what it cannot.
    #[error("the {0} is not valid")]
    Field(&'static str),
    /// Over a bound.
    #[error("{found} {what}; at most {max} are allowed")]
    TooLarge {
        /// What it is, in its unit.
        what: &'static str,
        /// How much of it was found.
        found: usize,
        /// How much is allowed.
        max: usize,
    },
    /// A key or a signature of a client or peer.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A policy, a receipt or an object's record.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// A peer's certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Made for another network.
    #[error("made for network {0}, not for this one")]
    Network(NetworkId),
    /// Made for, or certified by, another committee.
    #[error("of another committee: its group key is not the one that was asked for")]
    Group,
    /// The certificate's signature does not fit what it stands under.
    #[error("the committee did not sign this: a field or the signature was changed")]
    Signature,
    /// The signature is the committee's, and of another kind.
    #[error("this is a notarisation, which proves nothing: only a finalisation certifies")]
    Notarisation,
    /// A result or an entry that does not belong to the certificate beside it.
    #[error("the {0} does not lead to what was certified: it was changed, or is another's")]
    Path(&'static str),
    /// A header that does not follow the one before it.
    #[error("the certified headers do not follow each other")]
    Chain,
    /// A block that no honest leader proposes.
    #[error("the block does not follow from the one before it: its {0} is another")]
    Block(&'static str),
    /// Refused: the author may not write the object.
    #[error("refused: the author is neither the object's owner nor one of its writers")]
    NotAWriter,
    /// Refused: another update came first.
    #[error("refused: the head has moved on{}", current_text(.current))]
    MovedOn {
        /// Where the head is now, and since which height; `None` where there is none.
        current: Option<(VersionId, u64)>,
    },
    /// Refused: too few peers said that they keep the new version.
    #[error("refused: {found} of {wanted} receipts of the network's peers for the new version")]
    NotStored {
        /// Receipts wanted.
        wanted: u8,
        /// Receipts that count.
        found: u8,
    },
    /// Refused: it came too late.
    #[error("refused: the update was valid up to an earlier height")]
    Expired,
    /// Refused: nobody has told the committee of the object.
    #[error("refused: the committee does not know the object; its owner sends its policy first")]
    NoObject,
    /// Refused: a later policy or certificate is known.
    #[error("refused: number {newest} is known, and this is no later one")]
    RolledBack {
        /// The newest number.
        newest: u64,
    },
    /// Refused: no room.
    #[error("refused: the committee has no room for more of these")]
    Full,
    /// Refused: what it carries does not hold.
    #[error("refused: the policy or certificate in the update does not hold")]
    NotValid,
    /// Too much is waiting.
    #[error("the committee is busy; try again in {retry_ms} ms")]
    Busy {
        /// After how many milliseconds.
        retry_ms: u64,
    },
    /// No quorum.
    #[error(
        "not enough members: {needed} of them must agree, and {heard} are heard; what was asked \
         for may still be done when they are back"
    )]
    NotEnoughMembers {
        /// Members needed.
        needed: u32,
        /// Members heard, this one among them.
        heard: u32,
    },
    /// The member was stopped, or fell.
    #[error("the member does not run")]
    Stopped,
    /// Files of the member that do not fit together.
    #[error("the member's files: {0}")]
    Files(&'static str),
    /// The disk.
    #[error("the member's disk")]
    Disk(#[source] std::io::Error),
    /// The engine's own storage.
    #[error("the engine's storage")]
    Storage(#[source] commonware_runtime::Error),
    /// Members that cannot be changed so.
    #[error("the members cannot be changed so: {0}")]
    Members(&'static str),
    /// The founding did not come about.
    #[error("the committee was not founded: {0}; nothing was kept, found again under a new number")]
    Founding(&'static str),
}

fn current_text(current: &Option<(VersionId, u64)>) -> String {
    match current {
        Some((version, height)) => format!(" to {version}, at height {height}"),
        None => String::from(": there is none"),
    }
}

impl Classified for CommitteeError {
    fn class(&self) -> Class {
        match self {
            Self::Key(source) => source.class(),
            Self::Version(source) => source.class(),
            Self::Certificate(source) => source.class(),
            Self::Signature | Self::Notarisation | Self::Path(_) | Self::Chain => Class::Corrupt,
            Self::Network(_) | Self::Group | Self::NotAWriter => Class::Denied,
            Self::MovedOn { .. } | Self::RolledBack { .. } | Self::Expired => Class::Conflict,
            Self::NoObject => Class::NotFound,
            Self::Busy { .. } | Self::Full => Class::Busy,
            Self::NotEnoughMembers { .. } | Self::Stopped | Self::Founding(_) => Class::Unavailable,
            Self::Files(_) => Class::Corrupt,
            Self::Disk(_) | Self::Storage(_) => Class::Bug,
            _ => Class::Invalid,
        }
    }
}
