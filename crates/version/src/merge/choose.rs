//! One of the two as it is, for values of any kind.

use super::{Merge, Merged, Value, settled};
use crate::ValueKind;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choose {
    /// The one that changed. Where both did, the greater by its bytes, and any value before a deletion: whoever merges, in
    /// whichever order, chooses the same.
    One,
    /// The first that was named.
    First,
    /// The second that was named.
    Second,
}

impl Merge for Choose {
    fn merge(&self, v0: Option<Value<'_>>, v1: Value<'_>, v2: Value<'_>) -> Merged {
        let rank = |value: &Value<'_>| (value.kind != ValueKind::Tombstone, value.kind);
        Merged::of(match self {
            Self::First => v1,
            Self::Second => v2,
            Self::One => settled(v0, v1, v2).unwrap_or_else(|| {
                let first = (rank(&v1), v1.bytes) > (rank(&v2), v2.bytes);
                if first { v1 } else { v2 }
            }),
        })
    }
}
