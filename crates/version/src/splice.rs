//! The first delta that is tried: runs copied from the same offset of the base, and literals between them.
//!
//! ```text
//! repeated: copy, varint | count of literals, varint | literals         until the value is full
//! ```
//! A value that was edited in place differs from its base in few bytes, and finding them costs a comparison, at the
//! speed of memory: 32 bytes at a time where they are equal, 8 where they differ. An entropy coder, which looks for
//! what moved too, costs twenty times that; it has its turn where this leaves too much.
//!
//! A run of fewer than [`COPY_BYTES_MIN`] equal bytes between two literals is literal itself: naming it would cost as
//! much.

use crate::varint;

/// The shortest run that is worth to be named.
const COPY_BYTES_MIN: usize = 4;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Appends what makes `value` of `base` to `out`, at most `room` bytes of it. `false`, and `out` as it was, where that
/// is not enough.
pub fn compress(base: &[u8], value: &[u8], room: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut writer = Writer { value, done: 0, left: room, out };
    let fits = write(base, &mut writer);
    if !fits {
        out.truncate(start);
    }
    fits
}

fn write(base: &[u8], writer: &mut Writer<'_>) -> bool {
    let value = writer.value;
    let common = base.len().min(value.len());
    let (base, shared) = (&base[..common], &value[..common]);
    // The literals found last: they are written when it is known that no more follow at once.
    let (mut from, mut until) = (0, 0);
    let mut at = same_until(base, shared, 0);
    while at < common {
        if !writer.literals(from, until) {
            return false;
        }
        from = at;
        until = differ_until(base, shared, at, writer.left);
        at = same_until(base, shared, until);
    }
    if value.len() > common {
        if until < common || from == until {
            if !writer.literals(from, until) {
                return false;
            }
            from = common;
        }
        until = value.len();
    }
    writer.literals(from, until) && writer.last_copy()
}

struct Writer<'a> {
    value: &'a [u8],
    /// So much of the value is described.
    done: usize,
    /// So many bytes may be written.
    left: usize,
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    /// All from where it stands is equal up to `from`, and then literal up to `until`.
    fn literals(&mut self, from: usize, until: usize) -> bool {
        if from == until {
            return true;
        }
        let (copy, count) = (from - self.done, until - from);
        let bytes = varint::len(copy as u64) + varint::len(count as u64) + count;
        if bytes > self.left {
            return false;
        }
        varint::write(copy as u64, self.out);
        varint::write(count as u64, self.out);
        self.out.extend_from_slice(&self.value[from..until]);
        self.left -= bytes;
        self.done = until;
        true
    }

    /// All that is left is equal.
    fn last_copy(&mut self) -> bool {
        let copy = self.value.len() - self.done;
        if copy == 0 {
            return true;
        }
        let bytes = varint::len(copy as u64) + 1;
        if bytes > self.left {
            return false;
        }
        varint::write(copy as u64, self.out);
        self.out.push(0);
        self.done = self.value.len();
        true
    }
}

/// The first index from `at` on where the two differ, which are of one length; their length where none does.
fn same_until(a: &[u8], b: &[u8], mut at: usize) -> usize {
    let blocks = a[at..].as_chunks::<32>().0.iter().zip(b[at..].as_chunks::<32>().0);
    at += 32 * blocks.take_while(|(a, b)| a == b).count();
    let words = a[at..].as_chunks::<8>().0.iter().zip(b[at..].as_chunks::<8>().0);
    for (a, b) in words {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return at + differ.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(a, b)| a == b).count()
}

/// Where the literals end that begin at `at`: behind the last differing byte before the next
/// [`COPY_BYTES_MIN`] equal ones. Gives up early where there are more than `most` of them.
fn differ_until(a: &[u8], b: &[u8], at: usize, most: usize) -> usize {
    // All before it are literals.
    let mut end = at + 1;
    let mut word_at = end;
    let words = a[word_at..].as_chunks::<8>().0.iter().zip(b[word_at..].as_chunks::<8>().0);
    for (a, b) in words {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        let first = differ.trailing_zeros() as usize / 8;
        // Also where all are equal: 64 zeros are eight bytes.
        if word_at + first - end >= COPY_BYTES_MIN {
            return end;
        }
        // The high bit of each byte that is equal.
        let equal = !(((differ & !HIGH_BITS) + !HIGH_BITS) | differ) & HIGH_BITS;
        let four = equal & equal >> 8 & equal >> 16 & equal >> 24;
        if four != 0 {
            return word_at + four.trailing_zeros() as usize / 8;
        }
        end = word_at + 8 - differ.leading_zeros() as usize / 8;
        word_at += 8;
        if end - at > most {
            return end;
        }
    }
    for index in word_at..a.len() {
        if a[index] != b[index] {
            if index - end >= COPY_BYTES_MIN {
                return end;
            }
            end = index + 1;
        }
    }
    if a.len() - end < COPY_BYTES_MIN { a.len() } else { end }
}

/// Appends the value of `length` bytes that `delta` makes of `base` to `out`. `false`, and `out` as it was, where it makes
/// none of that length. Allocates for `length` at most.
pub fn expand(base: &[u8], delta: &[u8], length: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.reserve(length);
    let made = make(base, delta, length, out).is_some();
    if !made {
        out.truncate(start);
    }
    made
}

fn make(base: &[u8], mut delta: &[u8], length: usize, out: &mut Vec<u8>) -> Option<()> {
    let mut at = 0;
    while at < length {
        let copy = usize::try_from(varint::read(&mut delta)?).ok()?;
        let count = usize::try_from(varint::read(&mut delta)?).ok()?;
        if copy == 0 && count == 0 || copy > length - at || count > length - at - copy {
            return None;
        }
        out.extend_from_slice(base.get(at..)?.get(..copy)?);
        let (literals, rest) = delta.split_at_checked(count)?;
        out.extend_from_slice(literals);
        delta = rest;
        at += copy + count;
    }
    delta.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spliced(base: &[u8], value: &[u8]) -> Vec<u8> {
        let mut out = vec![9];
        assert!(compress(base, value, 3 * value.len() + 20, &mut out));
        assert_eq!(out.remove(0), 9, "what stood there stays");
        out
    }

    fn expanded(base: &[u8], delta: &[u8], length: usize) -> Option<Vec<u8>> {
        let mut out = vec![9];
        let made = expand(base, delta, length, &mut out);
        assert_eq!(out.remove(0), 9, "what stood there stays");
        assert!(made || out.is_empty());
        made.then_some(out)
    }

    #[test]
    fn a_tenth_edited_in_place_costs_a_tenth() {
        let base = vec![b'a'; 1000];
        let mut value = base.clone();
        value[300..400].fill(b'b');
        let delta = spliced(&base, &value);
        assert_eq!(delta.len(), 2 + 1 + 100 + 2 + 1);
        assert_eq!(delta[..3], [0xac, 2, 100]);
        assert_eq!(spliced(&base, &base), [0xe8, 7, 0]);
        assert_eq!(spliced(&base, b""), b"");
        assert_eq!(spliced(b"", b"new"), [0, 3, b'n', b'e', b'w']);
    }

    /// Every position of one edit beside every length, over the borders of blocks and words.
    #[test]
    fn edits_at_every_offset_come_back() {
        for length in 0..90 {
            let base: Vec<u8> = (0..length).collect();
            for at in 0..base.len() {
                for width in [1, 3, 9] {
                    let mut value = base.clone();
                    value[at..].iter_mut().take(width).for_each(|byte| *byte ^= 0xff);
                    let delta = spliced(&base, &value);
                    assert!(delta.len() <= width + 7, "{length} {at} {width}");
                    assert_eq!(expanded(&base, &delta, value.len()), Some(value));
                }
            }
        }
    }

    /// The plain way to find the literals: byte by byte.
    fn runs(a: &[u8], b: &[u8]) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in (0..a.len()).filter(|at| a[*at] != b[*at]) {
            match runs.last_mut() {
                Some((_, until)) if at - *until < COPY_BYTES_MIN => *until = at + 1,
                _ => runs.push((at, at + 1)),
            }
        }
        if let Some((_, until)) = runs.last_mut()
            && a.len() - *until < COPY_BYTES_MIN
        {
            *until = a.len();
        }
        runs
    }

    proptest! {
        #[test]
        fn words_find_the_runs_that_bytes_find(
            pairs in proptest::collection::vec((0..3_u8, 0..3_u8), 0..200),
        ) {
            let (a, b): (Vec<u8>, Vec<u8>) = pairs.into_iter().unzip();
            let mut found = Vec::new();
            let mut at = same_until(&a, &b, 0);
            while at < a.len() {
                let until = differ_until(&a, &b, at, usize::MAX);
                found.push((at, until));
                at = same_until(&a, &b, until);
            }
            prop_assert_eq!(found, runs(&a, &b));
        }

        #[test]
        fn it_is_never_longer_than_told(
            base in proptest::collection::vec(0..3_u8, 0..300),
            value in proptest::collection::vec(0..3_u8, 0..300),
            room in 0..400_usize,
        ) {
            let whole = spliced(&base, &value);
            prop_assert_eq!(expanded(&base, &whole, value.len()), Some(value.clone()));
            let mut out = vec![9];
            let fits = compress(&base, &value, room, &mut out);
            prop_assert_eq!(fits, whole.len() <= room);
            prop_assert_eq!(out.len() - 1, if fits { whole.len() } else { 0 });
        }

        #[test]
        fn hostile_deltas_make_the_length_or_nothing(
            base in proptest::collection::vec(any::<u8>(), 0..50),
            delta in proptest::collection::vec(0..80_u8, 0..40),
            length in 0..200_usize,
        ) {
            if let Some(value) = expanded(&base, &delta, length) {
                prop_assert_eq!(value.len(), length);
            }
        }
    }

    #[test]
    fn deltas_that_lie_are_refused() {
        let base = [7; 10];
        assert!(expanded(&base, &[10, 0], 10).is_some());
        for (delta, length, why) in [
            (&[11, 0][..], 11, "past the base"),
            (&[10, 0], 9, "past the value"),
            (&[10, 0], 11, "too short"),
            (&[9, 1], 10, "literals that are not there"),
            (&[9, 2, 1, 1], 10, "literals past the value"),
            (&[0, 0, 10, 0], 10, "nothing said"),
            (&[10, 0, 0], 10, "more behind"),
            (&[0x8a, 0, 0], 10, "a number in a longer form"),
            (&[0xff; 12], 10, "a number over 64 bits"),
            (&[], 10, "nothing"),
        ] {
            assert_eq!(expanded(&base, delta, length), None, "{why}");
        }
        let most = [&[0xff; 9][..], &[1, 0]].concat();
        assert_eq!(expanded(&base, &most, 10), None, "a run of 2^64 - 1 bytes");
    }
}
