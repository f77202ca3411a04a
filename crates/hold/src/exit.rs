//! Exit codes: the part of the command line that scripts read first.
//!
//! The codes are a contract (0 done, 1 failed, 2 invalid, 3 partly done, 10 to 16 by what went
//! wrong, 130 interrupted), so they live in one table, and an error's class decides its code.

use std::process::ExitCode;

use crypto::Class;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All was done.
    Done = 0,
    /// A defect of this program or its surroundings.
    Failed = 1,
    /// Wrong arguments or input.
    Invalid = 2,
    /// Acknowledged, but not yet everything that was asked for.
    Partly = 3,
    /// What was asked for does not exist.
    NotFound = 10,
    /// A limit was reached, or somebody else holds the lock.
    Busy = 11,
    /// The key or passphrase does not open it.
    WrongKey = 12,
    /// The caller may not do this.
    Denied = 13,
    /// It exists already, or another change came first.
    Conflict = 14,
    /// Not enough peers could be reached in time.
    Unavailable = 15,
    /// Bytes were not what their id, MAC or signature says.
    Corrupt = 16,
    /// Ctrl-C or SIGTERM.
    Interrupted = 130,
}

impl Exit {
    /// The name in the JSON form of an error.
    pub(crate) const fn class_name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "bug",
            Self::Invalid => "invalid",
            Self::Partly => "partly",
            Self::NotFound => "not-found",
            Self::Busy => "busy",
            Self::WrongKey => "wrong-key",
            Self::Denied => "denied",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Corrupt => "corrupt",
            Self::Interrupted => "interrupted",
        }
    }

    /// The number the shell sees.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Class> for Exit {
    fn from(class: Class) -> Self {
        match class {
            Class::Invalid => Self::Invalid,
            Class::NotFound => Self::NotFound,
            Class::Denied => Self::Denied,
            Class::Conflict => Self::Conflict,
            Class::Busy => Self::Busy,
            Class::Corrupt => Self::Corrupt,
            Class::Unavailable => Self::Unavailable,
            Class::Bug => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_contract() {
        let classes = [
            (Class::Bug, 1),
            (Class::Invalid, 2),
            (Class::NotFound, 10),
            (Class::Busy, 11),
            (Class::Denied, 13),
            (Class::Conflict, 14),
            (Class::Unavailable, 15),
            (Class::Corrupt, 16),
        ];
        for (class, code) in classes {
            assert_eq!(Exit::from(class).code(), code);
            assert_eq!(Exit::from(class).class_name(), class.name());
        }
        assert_eq!(
            [Exit::Done, Exit::Partly, Exit::WrongKey, Exit::Interrupted].map(Exit::code),
            [0, 3, 12, 130]
        );
    }
}
