//! Whether a message's encoding is what it was decoded from, found without writing it anywhere.
//!
//! Of a record nearly all is one `bytes` field, which a decoded message shares with what it was decoded from: there the
//! comparison is of two addresses. A second copy would cost a buffer of the record's size for each record that is looked at
//! (up to 2 MiB, new pages of memory each time) and a reading of both.
#![allow(unsafe_code, reason = "the trait that messages encode into is an unsafe one")]

use bytes::buf::UninitSlice;
use bytes::{Buf, BufMut};
use prost::Message;

/// Bytes at a time for those who want a buffer to write into; prost never does.
const SCRATCH_BYTES: usize = 16;

/// Whether `message` is encoded as exactly `bytes`.
pub(super) fn encodes_to<M: Message>(message: &M, bytes: &[u8]) -> bool {
    let mut compared = Compared::with(bytes);
    message.encoded_len() == bytes.len()
        && message.encode(&mut compared).is_ok()
        && compared.same
        && compared.left.is_empty()
}

/// Takes what is encoded, keeps nothing of it and compares it with what is expected.
struct Compared<'a> {
    /// What is expected from here on, which is all that there is room for.
    left: &'a [u8],
    /// Whether all so far was as expected.
    same: bool,
    scratch: [u8; SCRATCH_BYTES],
}

impl<'a> Compared<'a> {
    fn with(expected: &'a [u8]) -> Self {
        Self { left: expected, same: true, scratch: [0; SCRATCH_BYTES] }
    }

    /// Compares the next bytes. What differs once differs, and the rest is only counted.
    fn compare(&mut self, next: &[u8]) {
        let room = self.left.len();
        let Some((expected, left)) = self.left.split_at_checked(next.len()) else {
            panic!("{} bytes are encoded where there is room for {room}", next.len());
        };
        let shared = std::ptr::eq(next.as_ptr(), expected.as_ptr());
        self.same = self.same && (shared || next == expected);
        self.left = left;
    }
}

// SAFETY: `chunk_mut` gives out initialised memory of its own, never more than there is room for, and `advance_mut` reads no
// further than that; nothing here trusts what was written there to be anything in particular.
unsafe impl BufMut for Compared<'_> {
    fn remaining_mut(&self) -> usize {
        self.left.len()
    }

    unsafe fn advance_mut(&mut self, written: usize) {
        let scratch = self.scratch;
        let Some(next) = scratch.get(..written) else {
            panic!("{written} bytes were written where {SCRATCH_BYTES} are given out");
        };
        self.compare(next);
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        let room = self.left.len().min(SCRATCH_BYTES);
        UninitSlice::new(self.scratch.get_mut(..room).unwrap_or_default())
    }

    fn put<T: Buf>(&mut self, mut source: T) {
        while source.has_remaining() {
            let chunk = source.chunk();
            let length = chunk.len();
            self.compare(chunk);
            source.advance(length);
        }
    }

    fn put_slice(&mut self, source: &[u8]) {
        self.compare(source);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Inner {
        #[prost(bytes = "bytes", tag = "1")]
        content: Bytes,
        #[prost(fixed32, repeated, tag = "2")]
        numbers: Vec<u32>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Outer {
        #[prost(bytes = "vec", tag = "1")]
        own: Vec<u8>,
        #[prost(message, repeated, tag = "2")]
        inner: Vec<Inner>,
        #[prost(string, tag = "3")]
        text: String,
        #[prost(sint64, tag = "4")]
        number: i64,
        #[prost(double, optional, tag = "5")]
        part: Option<f64>,
    }

    fn inner() -> impl Strategy<Value = Inner> {
        (prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(any::<u32>(), 0..5))
            .prop_map(|(content, numbers)| Inner { content: content.into(), numbers })
    }

    fn outer() -> impl Strategy<Value = Outer> {
        let own = prop::collection::vec(any::<u8>(), 0..40);
        let inner = prop::collection::vec(inner(), 0..4);
        (own, inner, ".{0,20}", any::<i64>(), any::<Option<u16>>()).prop_map(
            |(own, inner, text, number, part)| {
                let part = part.map(f64::from);
                Outer { own, inner, text, number, part }
            },
        )
    }

    proptest! {
        /// As writing it down and comparing says it: for its own bytes, for those that share nothing with it, and for what
        /// differs in a bit, is longer or is shorter.
        #[test]
        fn it_says_what_a_copy_would(
            message in outer(),
            at in any::<prop::sample::Index>(),
            bit in 0..8,
        ) {
            let bytes = Bytes::from(message.encode_to_vec());
            let decoded = Outer::decode(bytes.clone()).unwrap();
            prop_assert!(encodes_to(&decoded, &bytes));
            prop_assert!(encodes_to(&message, &bytes));
            let mut longer = bytes.to_vec();
            longer.push(0);
            prop_assert!(!encodes_to(&decoded, &longer));
            if !bytes.is_empty() {
                prop_assert!(!encodes_to(&decoded, &bytes[..bytes.len() - 1]));
                let mut other = bytes.to_vec();
                other[at.index(bytes.len())] ^= 1_u8 << bit;
                prop_assert!(!encodes_to(&decoded, &other));
            }
        }

        /// Whichever way bytes are put, they are compared.
        #[test]
        fn every_way_in_is_compared(
            bytes in prop::collection::vec(any::<u8>(), 1..100),
            at in any::<prop::sample::Index>(),
            wrong in any::<bool>(),
        ) {
            let mut expected = bytes.clone();
            expected[at.index(bytes.len())] ^= u8::from(wrong);
            let (head, tail) = bytes.split_at(bytes.len() / 2);
            let mut whole = Compared::with(&expected);
            whole.put(head.chain(tail));
            let mut parts = Compared::with(&expected);
            parts.put_slice(head);
            for byte in tail {
                parts.put_u8(*byte);
            }
            let mut buffers = Compared::with(&expected);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let chunk = buffers.chunk_mut();
                let length = chunk.len().min(rest.len());
                chunk[..length].copy_from_slice(&rest[..length]);
                // SAFETY: so many were written.
                unsafe { buffers.advance_mut(length) };
                rest = &rest[length..];
            }
            for one in [whole, parts, buffers] {
                prop_assert_eq!((one.same, one.remaining_mut()), (!wrong, 0));
            }
        }
    }
}
