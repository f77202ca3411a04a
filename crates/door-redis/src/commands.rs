//! The commands, one file a group. Each reads its arguments, calls the door, and answers.
//!
//! A command that fails returns its error; what it had written and answered until then is taken
//! back by whoever called it.

pub(crate) mod about;
pub(crate) mod client;
pub(crate) mod counters;
pub(crate) mod expiry;
pub(crate) mod hashes;
pub(crate) mod hellos;
pub(crate) mod keys;
pub(crate) mod ranges;
pub(crate) mod scan;
pub(crate) mod sorted_sets;
pub(crate) mod strings;
pub(crate) mod transactions;
pub(crate) mod versions;

use crate::fail::{Fail, NOT_INTEGER};
use crate::number;
use crate::session::Call;

impl Call<'_> {
    /// An argument that is an integer.
    fn integer(&self, index: usize) -> Result<i64, Fail> {
        number::integer(self.arg(index)).ok_or(NOT_INTEGER)
    }

    /// An argument that is how many of something.
    fn count(&self, index: usize) -> Result<usize, Fail> {
        let count = self.integer(index)?;
        usize::try_from(count).map_err(|_| NOT_INTEGER)
    }
}

/// First and last index of a range that may count from the end, within `length`.
fn range(start: i64, end: i64, length: usize) -> Option<(usize, usize)> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let from_end = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
    let (start, end) = (from_end(start).max(0), from_end(end).min(length - 1));
    (start <= end && start < length).then_some((start as usize, end as usize))
}
