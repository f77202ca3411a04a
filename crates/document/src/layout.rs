//! Which bytes of a content are in which chunk: by division alone, so a byte range is found without any
//! table.
//!
//! Content is cut into segments of min(16 MiB, k * 2 MiB) bytes; each segment, the last and shorter one
//! too, into k equal chunks (of ceil(segment / k) bytes; the last ones of a short segment hold what is
//! left, down to nothing). Copies are the code "1 of N": k = 1, a segment is one chunk of at most 2 MiB.
//! Every content has at least one segment, so empty content is k empty chunks.

use std::ops::Range;

use crate::record::CHUNK_BYTES_MAX;

/// The longest segment, in bytes.
pub const SEGMENT_BYTES_MAX: u64 = 16 << 20;
/// The most chunks a segment is cut into.
pub const K_MAX: u32 = 255;

/// A way to cut content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    k: u64,
    segment: u64,
}

impl Layout {
    /// Copies: k = 1.
    pub const fn copies() -> Self {
        Self { k: 1, segment: CHUNK_BYTES_MAX as u64 }
    }

    /// Segments of `k` chunks.
    ///
    /// # Panics
    /// Where `k` is not 1 to [`K_MAX`].
    pub fn new(k: u32) -> Self {
        assert!((1..=K_MAX).contains(&k), "a segment is cut into 1 to 255 chunks");
        let k = u64::from(k);
        Self { k, segment: SEGMENT_BYTES_MAX.min(k * CHUNK_BYTES_MAX as u64) }
    }

    /// The longest segment in this layout, in bytes.
    pub const fn segment_bytes(&self) -> u64 {
        self.segment
    }

    /// How many chunks a content of `length` bytes has; at least one segment's.
    pub const fn chunk_count(&self, length: u64) -> u64 {
        let segments = length.div_ceil(self.segment);
        // One segment too where there is no content, written without `max`, which is not const.
        if segments == 0 { self.k } else { segments.saturating_mul(self.k) }
    }

    /// The bytes of chunk `index` in a content of `length` bytes; empty past its end.
    pub fn chunk_range(&self, index: u64, length: u64) -> Range<u64> {
        let (segment, chunk) = (index / self.k, index % self.k);
        let start = segment.saturating_mul(self.segment).min(length);
        let end = start.saturating_add(self.segment).min(length);
        let size = (end - start).div_ceil(self.k);
        let from = (start + chunk * size).min(end);
        from..(from + size).min(end)
    }

    /// The chunks that hold bytes of `range` in a content of `length` bytes; empty for an empty range.
    /// What of the range is past the end of the content is not counted.
    pub fn chunks_of_range(&self, range: Range<u64>, length: u64) -> Range<u64> {
        let end = range.end.min(length);
        if range.start >= end {
            return 0..0;
        }
        self.chunk_of(range.start, length)..self.chunk_of(end - 1, length) + 1
    }

    /// The chunk that holds the byte at `offset`, which is below `length`.
    fn chunk_of(&self, offset: u64, length: u64) -> u64 {
        let segment = offset / self.segment;
        let start = segment * self.segment;
        let size = (length - start).min(self.segment).div_ceil(self.k);
        segment * self.k + (offset - start) / size
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn copies_are_chunks_of_two_mebibytes() {
        let layout = Layout::copies();
        assert_eq!(layout, Layout::new(1));
        for (length, count) in [(0, 1), (1, 1), (2 * MIB, 1), (2 * MIB + 1, 2), (4 * MIB, 2)] {
            assert_eq!(layout.chunk_count(length), count, "{length}");
        }
        assert_eq!(layout.chunk_range(1, 5 * MIB), 2 * MIB..4 * MIB);
        assert_eq!(layout.chunk_range(2, 5 * MIB), 4 * MIB..5 * MIB);
        assert_eq!(layout.chunk_range(3, 5 * MIB), 5 * MIB..5 * MIB);
        assert_eq!(layout.chunks_of_range(0..u64::MAX, 5 * MIB), 0..3);
        assert_eq!(layout.chunks_of_range(5 * MIB..6 * MIB, 5 * MIB), 0..0);
    }

    #[test]
    fn stripes_cut_the_last_segment_too() {
        let layout = Layout::new(4);
        assert_eq!(layout.segment_bytes(), 8 * MIB);
        assert_eq!(Layout::new(16).segment_bytes(), 16 * MIB);
        assert_eq!(layout.chunk_count(8 * MIB + 10), 8);
        assert_eq!(layout.chunk_range(4, 8 * MIB + 10), 8 * MIB..8 * MIB + 3);
        assert_eq!(layout.chunk_range(7, 8 * MIB + 10), 8 * MIB + 9..8 * MIB + 10);
        assert_eq!(layout.chunk_range(3, 1), 1..1);
    }

    proptest! {
        #[test]
        fn chunks_tile_the_content_and_ranges_find_them(
            k in 1..=K_MAX,
            length in 0..100 * MIB,
            at in any::<(u64, u64)>(),
        ) {
            let layout = Layout::new(k);
            let mut end = 0;
            for index in 0..layout.chunk_count(length) {
                let range = layout.chunk_range(index, length);
                prop_assert_eq!(range.start, end);
                prop_assert!(range.end - range.start <= CHUNK_BYTES_MAX as u64);
                end = range.end;
            }
            prop_assert_eq!(end, length);
            if length > 0 {
                let (a, b) = (at.0 % length, at.1 % length);
                let wanted = a.min(b)..a.max(b) + 1;
                let found = layout.chunks_of_range(wanted.clone(), length);
                prop_assert!(layout.chunk_range(found.start, length).contains(&wanted.start));
                prop_assert!(layout.chunk_range(found.end - 1, length).contains(&(wanted.end - 1)));
            }
        }

        #[test]
        fn no_number_overflows(
            k in 1..=K_MAX,
            index in any::<u64>(),
            length in any::<u64>(),
            at in any::<(u64, u64)>(),
        ) {
            let layout = Layout::new(k);
            let range = layout.chunk_range(index, length);
            prop_assert!(range.start <= range.end && range.end <= length);
            let _ = layout.chunk_count(length);
            let _ = layout.chunks_of_range(at.0..at.1, length);
        }
    }
}
