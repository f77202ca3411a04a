//! Counters, and least or greatest of all that was seen.
//!
//! A value is one decimal integer from -2^63 to 2^63 - 1 in ASCII, in its shortest form: what Redis counts in, too. Sums of
//! floating-point numbers depend on their order, so two peers could make two values of the same merge; there are none.

use super::{Merge, Merged, Value, all_bytes, yielded};

/// How two integers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// What both added to v0, which counts as 0 where there is none; a conflict beyond 64 bits.
    Sum,
    /// The lesser of the two.
    Min,
    /// The greater of the two.
    Max,
}

impl Merge for Aggregate {
    fn merge(&self, v0: Option<Value<'_>>, v1: Value<'_>, v2: Value<'_>) -> Merged {
        if let Some(value) = yielded(v0, v1, v2) {
            return Merged::of(value);
        }
        let [v0, v1, v2] = match all_bytes(v0, v1, v2, b"0") {
            Ok(all) => all.map(integer),
            Err(conflict) => return conflict,
        };
        let (Some(v0), Some(v1), Some(v2)) = (v0, v1, v2) else {
            return Merged::conflict("a value is no decimal integer of 64 bits");
        };
        let made = match self {
            Self::Min => Some(v1.min(v2)),
            Self::Max => Some(v1.max(v2)),
            // Of 128 bits, three of 64 never run over.
            Self::Sum => i64::try_from(i128::from(v1) + i128::from(v2) - i128::from(v0)).ok(),
        };
        match made {
            Some(made) => Merged::bytes(made.to_string()),
            None => Merged::conflict("the sum has more than 64 bits"),
        }
    }
}

/// The integer in its shortest form: no plus, no leading zeros, no minus before 0.
fn integer(bytes: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == bytes).then_some(number)
}
