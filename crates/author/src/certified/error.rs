//! Why something about certified heads could not be done.

use std::path::PathBuf;
use std::time::Duration;

use committee::CommitteeError;
use crypto::{Class, Classified};
use env::calls::CallError;

use crate::error::AuthorError;
use crate::objects::ObjectsError;

/// Why something about certified heads could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertifiedError {
    /// What the committee said, or what is wrong with what its members answered.
    #[error(transparent)]
    Committee(#[from] CommitteeError),
    /// No peer that was asked hosts a member of it.
    #[error("no member of the committee was found: {asked} peers were asked{}", said(.last))]
    NoMembers {
        /// Peers that were asked.
        asked: usize,
        /// What one of them said last.
        last: Option<CallError>,
    },
    /// No member answered.
    #[error("no member of the committee answered: {asked} were asked")]
    Unanswered {
        /// Members that were asked.
        asked: usize,
        /// What one of them said.
        #[source]
        last: CallError,
    },
    /// It took too long in all.
    #[error("no answer of the committee within {} s: {asked} members are known", limit.as_secs())]
    TooLong {
        /// Members that are known.
        asked: usize,
        /// How long it was tried.
        limit: Duration,
    },
    /// All that answered are behind what this user saw before.
    #[error(
        "the members that answered are behind: the newest was certified at height {found}, and \
         height {known} was seen before"
    )]
    Behind {
        /// What was answered.
        found: u64,
        /// What is remembered.
        known: u64,
    },
    /// Whatever was answered to a fresh read was certified too long ago: by those who were members then, by members that
    /// certify nothing now, or the clock here is ahead.
    #[error(
        "what was answered was certified {} s ago: by former members, by members that certify nothing now, or this \
         machine's clock is ahead",
        age.as_secs()
    )]
    Stale {
        /// How long ago, by the clock here.
        age: Duration,
    },
    /// What this user saw before cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    Memory {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What this user saw before is remembered in a file that says nothing: it is empty, cut or not ours.
    #[error("{} is damaged: which height of the committee was seen cannot be known", .0.display())]
    Spoilt(PathBuf),
    /// The home in which it is remembered.
    #[error(transparent)]
    Home(AuthorError),
    /// The object, its policy or its versions.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
}

fn said(last: &Option<CallError>) -> String {
    last.as_ref().map_or_else(String::new, |error| format!("; one said: {error}"))
}

impl Classified for CertifiedError {
    fn class(&self) -> Class {
        match self {
            Self::Committee(source) => source.class(),
            Self::NoMembers { .. } | Self::Behind { .. } | Self::Stale { .. } => Class::Unavailable,
            Self::TooLong { .. } => Class::Unavailable,
            Self::Unanswered { last, .. } => match last.class() {
                class @ (Class::Busy | Class::Denied) => class,
                _ => Class::Unavailable,
            },
            Self::Memory { .. } => Class::Bug,
            Self::Spoilt(_) => Class::Corrupt,
            Self::Home(source) => source.class(),
            Self::Objects(source) => source.class(),
        }
    }
}
