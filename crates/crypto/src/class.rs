//! The class of an error: what a caller can do about it, the same for every crate and door.

/// What kind of failure an error is. Doors map each class to their protocol's errors, the command
/// line to its exit code; nothing else about an error is needed to decide what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// The request itself is wrong; sending it again cannot help.
    Invalid,
    /// What was asked for does not exist, as far as could be learnt.
    NotFound,
    /// The caller may not do this, or holds the wrong key.
    Denied,
    /// Another change came first.
    Conflict,
    /// A limit was reached; try again after a while.
    Busy,
    /// Bytes were not what their id, MAC or signature says.
    Corrupt,
    /// Not enough of the network could be reached in time.
    Unavailable,
    /// A defect of this program or its surroundings.
    Bug,
}

impl Class {
    /// The class's name as it stands in JSON and in `grpc-status-details`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not-found",
            Self::Denied => "denied",
            Self::Conflict => "conflict",
            Self::Busy => "busy",
            Self::Corrupt => "corrupt",
            Self::Unavailable => "unavailable",
            Self::Bug => "bug",
        }
    }
}

/// An error that knows its class. Every crate's error enum implements it.
pub trait Classified: std::error::Error {
    /// The class of this error.
    fn class(&self) -> Class;
}
