//! Exit codes: the part of the command line that scripts read first.
//!
//! The codes are a contract (0 done, 1 failed, 2 invalid, 3 partly done, 10 to 16 by what went
//! wrong, 130 interrupted), so they live in one table, and an error's class decides its code.

use std::process::ExitCode;

use crypto::Class;

/// Makes the codes, their names and the table of the reference.
macro_rules! exits {
    ($(
        $(#[doc = $meaning:literal])*
        $variant:ident = $code:literal $name:literal, $help:literal;
    )*) => {
        /// How a run ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Exit {
            $($(#[doc = $meaning])* $variant = $code,)*
        }

        impl Exit {
            /// Every code.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name in the JSON form of an error.
            pub(crate) const fn class_name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What it means.
            pub(crate) const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($meaning),*),)*
                }
            }

            /// What a script or its user does about it.
            pub(crate) const fn help(self) -> &'static str {
                match self {
                    $(Self::$variant => $help,)*
                }
            }
        }
    };
}

exits! {
    /// All was done.
    Done = 0 "done", "Nothing.";
    /// A defect of this program or its surroundings: a disk that fails, an output that cannot be
    /// written, a demonstration or a check of `hold doctor` that did not hold.
    Failed = 1 "bug", "Read the causes; mend the surroundings, or report it.";
    /// Wrong arguments, settings or input. Nothing was begun.
    Invalid = 2 "invalid", "Change the command; `hold help VERB`.";
    /// Acknowledged and safe, but not everything that was asked for: fewer copies than wanted, some of several, a file that
    /// changed while it was read. The warnings say what.
    Partly = 3 "partly", "What a warning says; where copies lack nothing at once: `hold info ADDRESS` later.";
    /// What was asked for does not exist: a file, a keyring, a record.
    NotFound = 10 "not-found", "Check the name or the network.";
    /// A limit was reached, or somebody else has the lock or the port.
    Busy = 11 "busy", "Try again later.";
    /// The passphrase or none of the keys opens it.
    WrongKey = 12 "wrong-key", "Another passphrase or keyring; ask the author to share it.";
    /// The caller may not do this.
    Denied = 13 "denied", "A pass (`hold doctor`), or rights to the file.";
    /// It exists already, or another change came first.
    Conflict = 14 "conflict", "Another name, or look at what is there.";
    /// Not enough peers could be reached in time.
    Unavailable = 15 "unavailable", "`hold doctor`; try again.";
    /// Bytes were not what their id, MAC or signature says, and no good copy was found; or a file of this machine is damaged: a
    /// keyring, a snapshot.
    Corrupt = 16 "corrupt", "Take it from a good copy, a keyring from its 24 words; a damaged disk wants replacing.";
    /// Ctrl-C, SIGTERM or the end of the terminal, and what was half done is removed. A peer that is told to stop ends with 0.
    Interrupted = 130 "interrupted", "Run it again.";
}

impl Exit {
    /// The number the shell sees.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

impl Exit {
    /// Of a run that did several things: 3 where some were done, or in part, and others not; where nothing was, why the first
    /// was not.
    pub(crate) fn of_all(exits: &[Self]) -> Self {
        let any = exits.iter().any(|exit| matches!(exit, Self::Done | Self::Partly));
        match exits.iter().find(|exit| **exit != Self::Done) {
            None => Self::Done,
            Some(_) if any => Self::Partly,
            Some(first) => *first,
        }
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
    fn that_nothing_was_done_is_no_partial_success() {
        use Exit::{Denied, Done, Partly, Unavailable};
        for (exits, all) in [
            (&[][..], Done),
            (&[Done, Done], Done),
            (&[Done, Denied], Partly),
            (&[Denied, Partly], Partly),
            (&[Denied, Unavailable], Denied),
        ] {
            assert_eq!(Exit::of_all(exits), all, "{exits:?}");
        }
    }

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
