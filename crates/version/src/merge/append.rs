//! Logs, and whatever else only grows at its end.

use super::{Merge, Merged, Value, all_bytes, yielded};

/// v0, then what v1 added to it, then what v2 did. What both added alike is there twice: two writers who log the same line
/// logged it twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Append;

impl Merge for Append {
    fn merge(&self, v0: Option<Value<'_>>, v1: Value<'_>, v2: Value<'_>) -> Merged {
        if let Some(value) = yielded(v0, v1, v2) {
            return Merged::of(value);
        }
        let [v0, v1, v2] = match all_bytes(v0, v1, v2, b"") {
            Ok(all) => all,
            Err(conflict) => return conflict,
        };
        match (v1.starts_with(v0), v2.strip_prefix(v0)) {
            (true, Some(added)) => Merged::bytes([v1, added].concat()),
            _ => Merged::conflict("a side changed what was there, and not only added to it"),
        }
    }
}
