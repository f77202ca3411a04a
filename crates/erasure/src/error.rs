//! What can be wrong with a call.

use crypto::{Class, Classified};

/// Why nothing was coded. All is checked before the first byte is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErasureError {
    /// No code has this shape.
    #[error("no code of {data} of {fragments}: it takes 1 <= data <= fragments <= 256")]
    Shape {
        /// Data fragments (k).
        data: usize,
        /// Fragments in all (n).
        fragments: usize,
    },
    /// Another number of fragments than the code has.
    #[error("{found} fragments where the code takes {wanted}")]
    Count {
        /// Fragments called for.
        wanted: usize,
        /// Fragments given.
        found: usize,
    },
    /// Fewer than k different fragments.
    #[error("{found} fragments bring nothing back: it takes any {wanted}")]
    TooFew {
        /// Fragments needed (k).
        wanted: usize,
        /// Fragments given.
        found: usize,
    },
    /// A fragment the code does not have, or has elsewhere.
    #[error("there is no such fragment here: {0}")]
    Index(usize),
    /// The same fragment given, or wanted, twice.
    #[error("fragment {0} is there twice")]
    Twice(usize),
    /// A parity fragment that is not as long as the stripe's fragments are, or a longer data fragment.
    #[error("fragment {index} has {found} bytes where the fragments of this stripe have {wanted}")]
    Length {
        /// Which.
        index: usize,
        /// The stripe's length of a fragment, in bytes.
        wanted: usize,
        /// The length found, in bytes.
        found: usize,
    },
}

impl Classified for ErasureError {
    fn class(&self) -> Class {
        match self {
            Self::TooFew { .. } => Class::Unavailable,
            Self::Shape { .. }
            | Self::Count { .. }
            | Self::Index(_)
            | Self::Twice(_)
            | Self::Length { .. } => Class::Invalid,
        }
    }
}
