//! Why a walk did not reach what it was sent for.

use std::time::Duration;

use crypto::{Class, Classified, PeerId, RecordId};
use env::calls::CallError;

/// The most peers whose last errors an error carries.
pub const ERRORS_MAX: usize = 16;

/// Why a record was not stored or not found.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// No peer of the network answered, so nothing is known about it; or all did, and denied it.
    #[error("no peer of the network {}{}", if all_denied(tried) { "lets it in" } else { "answered" }, first_reason(tried))]
    NoPeers {
        /// The addresses tried, and what each one said; at most [`ERRORS_MAX`].
        tried: Vec<(String, CallError)>,
    },
    /// Fewer holders than must acknowledge took the record.
    #[error(
        "{acked} of the {wanted} copies or fragments needed were stored{}",
        first_error(errors)
    )]
    TooFew {
        /// Copies that are durable; they stay where they are.
        acked: u32,
        /// Copies that must be durable before a writer is told so (W).
        wanted: u32,
        /// The last error of each peer tried; at most [`ERRORS_MAX`].
        errors: Vec<(PeerId, CallError)>,
    },
    /// The holders answered, and none has the record.
    #[error("record {id} was not found: {asked} peers were asked")]
    NotFound {
        /// The record.
        id: RecordId,
        /// Peers that answered that they do not have it.
        asked: u32,
    },
    /// Too many of the holders did not answer to say whether the record exists.
    #[error(
        "record {id} was not found at {asked} peers, and {unreachable} others could not be asked{}",
        first_error(errors)
    )]
    Unavailable {
        /// The record.
        id: RecordId,
        /// Peers that answered that they do not have it.
        asked: u32,
        /// Peers that gave no answer.
        unreachable: u32,
        /// The last error of each of those; at most [`ERRORS_MAX`].
        errors: Vec<(PeerId, CallError)>,
    },
    /// Fewer fragments of a stripe could be had than bring its pages back.
    #[error(
        "stripe {id}: {found} of the {needed} fragments needed were found{}",
        others(*class, errors)
    )]
    TooFewFragments {
        /// The stripe.
        id: RecordId,
        /// Fragments that were had.
        found: u32,
        /// Fragments that are enough (k).
        needed: u32,
        /// What is known of the others: [`Class::NotFound`] where everybody asked answered that they have no more,
        /// [`Class::Corrupt`] where everybody answered and some lied, else [`Class::Unavailable`].
        class: Class,
        /// The last error of each peer that gave none; at most [`ERRORS_MAX`].
        errors: Vec<(PeerId, CallError)>,
    },
    /// A stripe cannot be stored where a librarian walks for this program.
    #[error("a librarian stores records for a thin client, not stripes: put by copies")]
    StripeThrough,
    /// Versions where a librarian walks for this program.
    #[error(
        "a librarian that walks for this program keeps no versioned objects for it: connect to the peers themselves"
    )]
    ObjectsThrough,
    /// Somebody answered with the record, but never with bytes that prove themselves.
    #[error("record {id} was answered with wrong bytes only, by {} peers", from.len())]
    Corrupt {
        /// The record.
        id: RecordId,
        /// Who answered so; at most [`ERRORS_MAX`].
        from: Vec<PeerId>,
    },
    /// Every peer that answered refused the caller.
    #[error("denied by every peer asked: {reason}")]
    Denied {
        /// What one of them said.
        reason: String,
    },
    /// Every peer that answered was over a limit.
    #[error("every peer asked is busy, try again in {retry_after:?}")]
    Busy {
        /// The shortest time one of them named.
        retry_after: Duration,
    },
    /// Every peer that answered has a full disk or takes no writes.
    #[error(
        "{acked} of the {wanted} copies or fragments needed were stored: the other peers are full or read-only"
    )]
    Full {
        /// Copies that are durable.
        acked: u32,
        /// Copies that must be durable (W).
        wanted: u32,
    },
    /// Every peer that answered found the request malformed: sending it again cannot help.
    #[error("refused by every peer asked: {reason}")]
    Refused {
        /// What one of them said.
        reason: String,
    },
}

/// Whether all that were tried answered, and denied the caller: trying again helps nobody then.
fn all_denied(tried: &[(String, CallError)]) -> bool {
    !tried.is_empty() && tried.iter().all(|(_, error)| error.class() == Class::Denied)
}

impl Classified for WalkError {
    fn class(&self) -> Class {
        match self {
            Self::NoPeers { tried } if all_denied(tried) => Class::Denied,
            Self::NoPeers { .. } | Self::TooFew { .. } | Self::Unavailable { .. } => {
                Class::Unavailable
            }
            Self::TooFewFragments { class, .. } => *class,
            Self::NotFound { .. } => Class::NotFound,
            Self::Corrupt { .. } => Class::Corrupt,
            Self::Denied { .. } => Class::Denied,
            Self::Busy { .. } | Self::Full { .. } => Class::Busy,
            Self::Refused { .. } | Self::StripeThrough | Self::ObjectsThrough => Class::Invalid,
        }
    }
}

impl WalkError {
    /// Whether nobody could be joined and somebody who answered refused: what vouches for this program may count no more.
    pub fn is_refusal(&self) -> bool {
        let Self::NoPeers { tried } = self else { return false };
        tried.iter().any(|(_, error)| error.class() == Class::Denied)
    }

    /// What became of a write that `acked` of the `wanted` holders took, from what the others said.
    ///
    /// Where all errors are of one sort it is told as that sort, since that is what the caller can act on.
    pub(crate) fn of_write(acked: u32, wanted: u32, mut errors: Vec<(PeerId, CallError)>) -> Self {
        // Of a write that some took, the count tells more.
        if let Some(alike) = alike(&errors).filter(|_| acked == 0) {
            return alike;
        }
        let full =
            |error: &CallError| matches!(error, CallError::Full | CallError::ReadOnly { .. });
        if !errors.is_empty() && errors.iter().all(|(_, error)| full(error)) {
            return Self::Full { acked, wanted };
        }
        errors.truncate(ERRORS_MAX);
        Self::TooFew { acked, wanted, errors }
    }
}

/// Whether some of these said nothing of what they were asked for, whyever (not reached, busy, somebody else at their address, a
/// broken disk), and may answer another time.
pub(crate) fn could_not_ask(errors: &[(PeerId, CallError)]) -> bool {
    let said = |class| matches!(class, Class::NotFound | Class::Corrupt | Class::Invalid);
    errors.iter().any(|(_, error)| !said(error.class()))
}

/// What is known of something that too little was had of, by what those said that did not give it: that there is no more, that there are
/// lies, or nothing, where some of them said neither and may have it.
pub(crate) fn class_of_lack(said: impl IntoIterator<Item = Class>) -> Class {
    said.into_iter().fold(Class::NotFound, |class, said| match (class, said) {
        (class, Class::NotFound) => class,
        (Class::NotFound | Class::Corrupt, Class::Corrupt) => Class::Corrupt,
        _ => Class::Unavailable,
    })
}

/// The error that all of these are, where they are all denials, all refusals or all *busy*.
pub(crate) fn alike(errors: &[(PeerId, CallError)]) -> Option<WalkError> {
    let (_, first) = errors.first()?;
    let same = |(_, error): &(PeerId, CallError)| {
        std::mem::discriminant(error) == std::mem::discriminant(first)
    };
    if !errors.iter().all(same) {
        return None;
    }
    match first {
        CallError::Denied { reason } => Some(WalkError::Denied { reason: reason.clone() }),
        CallError::Invalid { reason } => Some(WalkError::Refused { reason: reason.clone() }),
        CallError::Busy { .. } => {
            let waits = errors.iter().filter_map(|(_, error)| match error {
                CallError::Busy { retry_after } => Some(*retry_after),
                _ => None,
            });
            Some(WalkError::Busy { retry_after: waits.min().unwrap_or_default() })
        }
        _ => None,
    }
}

fn first_reason(tried: &[(String, CallError)]) -> String {
    tried.first().map_or_else(String::new, |(_, error)| format!(": {error}"))
}

fn others(class: Class, errors: &[(PeerId, CallError)]) -> String {
    match class {
        Class::NotFound => ", and everybody asked answered: there are no more".to_owned(),
        _ => first_error(errors),
    }
}

fn first_error(errors: &[(PeerId, CallError)]) -> String {
    errors.first().map_or_else(String::new, |(_, error)| format!("; one said: {error}"))
}
