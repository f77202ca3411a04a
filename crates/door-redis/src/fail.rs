//! Errors as a caller reads them: Redis's words where Redis has some.

use std::borrow::Cow;

use crypto::{Class, Classified};

use crate::error::Refusal;

/// Why a command did nothing.
#[derive(Debug)]
pub(crate) enum Fail {
    /// Said as it stands.
    Say(&'static str),
    /// Said with what it is about.
    Long(String),
    /// What the engine said.
    Refused(Refusal),
}

/// What a command gives: its answer is already in the output.
pub(crate) type Done = Result<(), Fail>;

pub(crate) const SYNTAX: Fail = Fail::Say("ERR syntax error");
pub(crate) const WRONG_TYPE: Fail =
    Fail::Say("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(crate) const NOT_INTEGER: Fail = Fail::Say("ERR value is not an integer or out of range");
pub(crate) const NOT_FLOAT: Fail = Fail::Say("ERR value is not a valid float");
pub(crate) const OVERFLOW: Fail = Fail::Say("ERR increment or decrement would overflow");
pub(crate) const NO_SUCH_KEY: Fail = Fail::Say("ERR no such key");
pub(crate) const TOO_LONG: Fail = Fail::Say(
    "ERR string exceeds maximum allowed size: a value has at most 2 MiB here, larger ones belong \
     in a volume",
);
pub(crate) const KEY_TOO_LONG: Fail = Fail::Say(
    "ERR key is too long: at most 1017 bytes, and a sorted set's key and member at most 1005 \
     together",
);
/// What a command is answered that would write more than fits one commit beside what others write.
pub(crate) const TOO_MANY_WRITES: Fail = Fail::Say(
    "ERR the command would write too much at once: at most 57344 records (a version is one, a new \
     key or member another) and 48 MiB; nothing of it is done, make several",
);
/// The same of a transaction.
pub(crate) const LARGE_TRANSACTION: Fail = Fail::Say(
    "ERR the transaction would write too much at once: at most 57344 records (a version is one, a \
     new key or member another) and 48 MiB; nothing of it is done, make several",
);
pub(crate) const TOO_MANY_KEYS: Fail =
    Fail::Say("OOM command not allowed: there are too many keys");

/// What a command that would write is answered once writes have ended.
pub(crate) const WRITES_ENDED: Fail = Fail::Say(
    "READONLY This door takes no writes any more: its peer leaves the network. Reads are served until \
     it has left",
);

impl Fail {
    /// Whether there is a key, of a type that the command is not for.
    pub(crate) fn is_wrong_type(&self) -> bool {
        matches!(self, Self::Say(text) if text.starts_with("WRONGTYPE"))
    }

    /// The error's text, without the minus.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Say(text) => Cow::Borrowed(text),
            Self::Long(text) => Cow::Borrowed(text),
            Self::Refused(refusal) => match refusal.class() {
                Class::Busy | Class::Unavailable => Cow::Owned(failed(refusal)),
                Class::Bug => Cow::Owned(format!("ERR a defect of this door: {refusal}")),
                _ => Cow::Owned(format!("ERR {refusal}")),
            },
        }
    }
}

impl From<Refusal> for Fail {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// What a command is answered that first needed the writes before it, which failed.
pub(crate) const NOT_KEPT: Fail = Fail::Say("MISCONF the writes before this command were not kept");

/// What the commands of a batch are answered whose commit failed.
pub(crate) fn failed(refusal: &Refusal) -> String {
    format!(
        "MISCONF Nothing of this command is kept, the key is what it was: {refusal}. Commands \
         that do not write are served; mend the cause, then try again"
    )
}
