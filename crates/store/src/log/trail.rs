//! How much of what was written lately stays in the system's cache.
//!
//! A log that is written fast would fill the system's memory with bytes that are mostly not asked for again: others' files
//! are pushed out, and each page that the system has to find first costs a multiple of writing into one that has just come
//! free (measured on a virtual machine that gives unused memory back to its host: 4.3 us of the system's time for a
//! record of 1.2 KiB, and 1.3 where pages come free as fast as they are needed). So the cache has the newest
//! [`CACHED_BYTES`] and not much more, and what is read again of the rest the system keeps as it does of any file.
//!
//! Each part of [`PART_BYTES`] is passed twice, as a page that is not on the disk yet is not let go: the first time the
//! system begins to write what no fsync has written, the second time it lets go of it. Both are hints; no byte and no
//! fsync depends on them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::Shared;

/// What is passed at once.
const PART_BYTES: u64 = 16 << 20;
/// Written behind a part when it is passed for the first time: objects' scans and documents just stored are read from there.
const CACHED_BYTES: u64 = 96 << 20;
/// And for the second.
const GONE_BYTES: u64 = CACHED_BYTES + (64 << 20);

/// The parts of the log that the system's cache may have, oldest first.
#[derive(Default)]
pub(super) struct Trail {
    parts: VecDeque<Part>,
    /// The first of them that was not passed yet.
    fresh: usize,
    /// Bytes of all of them, and of those that were not passed yet.
    bytes: u64,
    fresh_bytes: u64,
}

/// A range of a segment.
struct Part {
    segment: u32,
    range: Range<u64>,
}

impl Part {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl Trail {
    /// Takes in that `range` of a segment was written; what is to be passed now.
    pub(super) fn wrote(&mut self, segment: u32, range: Range<u64>) -> Vec<(u32, Range<u64>)> {
        let len = range.end.saturating_sub(range.start);
        (self.bytes, self.fresh_bytes) = (self.bytes + len, self.fresh_bytes + len);
        match self.parts.back_mut() {
            Some(last)
                if (last.segment, last.range.end) == (segment, range.start)
                    && last.len() < PART_BYTES =>
            {
                last.range.end = range.end;
            }
            _ => self.parts.push_back(Part { segment, range }),
        }
        let mut passed = Vec::new();
        while let Some(part) = self.parts.get(self.fresh)
            && self.fresh_bytes - part.len() >= CACHED_BYTES
        {
            passed.push((part.segment, part.range.clone()));
            self.fresh_bytes -= part.len();
            self.fresh += 1;
        }
        while let Some(part) = self.parts.front()
            && self.fresh > 0
            && self.bytes - part.len() >= GONE_BYTES
        {
            passed.push((part.segment, part.range.clone()));
            self.bytes -= part.len();
            self.parts.pop_front();
            self.fresh -= 1;
        }
        passed
    }
}

impl Shared {
    /// Tells the system, beside the writes, that it need not keep these.
    pub(super) fn pass(shared: &Arc<Self>, parts: Vec<(u32, Range<u64>)>) {
        if parts.is_empty() {
            return;
        }
        let passing = shared.clone();
        shared.env.tasks.blocking(Box::new(move || {
            for (segment, range) in parts {
                // A segment that was removed since takes its pages with it.
                if let Ok(file) = passing.files.get(segment) {
                    file.uncache(range);
                }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is written, each byte is passed twice and in order, once all that is to stay is behind it.
        #[test]
        fn each_byte_is_passed_twice_and_the_newest_never(
            writes in prop::collection::vec((1_u64..(40 << 20), prop::bool::weighted(0.1)), 1..200)
        ) {
            let mut trail = Trail::default();
            let (mut segment, mut at) = (0, 0);
            let mut written: Vec<(u32, Range<u64>)> = Vec::new();
            let mut passed: Vec<(u32, Range<u64>)> = Vec::new();
            for (len, next) in writes {
                if next {
                    (segment, at) = (segment + 1, 0);
                }
                written.push((segment, at..at + len));
                passed.extend(trail.wrote(segment, at..at + len));
                at += len;
                let behind = |range: &(u32, Range<u64>)| -> u64 {
                    let after = |other: &&(u32, Range<u64>)| {
                        (other.0, other.1.start) >= (range.0, range.1.end)
                    };
                    written.iter().filter(after).map(|(_, range)| range.end - range.start).sum()
                };
                let total: u64 = written.iter().map(|(_, range)| range.end - range.start).sum();
                for range in &passed {
                    let times = passed.iter().filter(|other| *other == range).count();
                    let least = if times == 2 { GONE_BYTES } else { CACHED_BYTES };
                    prop_assert!(times <= 2 && behind(range) >= least);
                }
                let sum: u64 = passed.iter().map(|(_, range)| range.end - range.start).sum();
                // The longest part is one write more than its share.
                let slack = PART_BYTES + (40 << 20);
                let due = total.saturating_sub(CACHED_BYTES) + total.saturating_sub(GONE_BYTES);
                prop_assert!(sum + 2 * slack >= due);
                prop_assert!(trail.parts.len() <= 200);
            }
        }
    }
}
