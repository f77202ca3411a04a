//! What two peers compare: a hash of each item that both should have, so that sums of equal sets are equal.
//!
//! An item's hash does not depend on where it stands in a set, and sums modulo 2^128 (`wrapping_add`, and
//! `wrapping_sub` to take one out) not on the order; so a sum is kept while items come and go. Exclusive or would
//! let an item that is there twice vanish.
//!
//! ```text
//!   copy    BLAKE3("holdfast agreement v1" || id)                   53 bytes
//!   stripe  BLAKE3("holdfast agreement v1" || id || lower || upper) 55 bytes
//! ```
//! and of the hash the first 16 bytes, little-endian. The lengths differ, so no copy is a stripe; and both fit
//! one block of the hash. Peers of different releases compare sums: a change is a change of format.

use crypto::RecordId;

const DOMAIN: &[u8; 21] = b"holdfast agreement v1";
const ID_BYTES: usize = 32;

/// The hash of a copy in a sum.
pub fn copy_item(id: &RecordId) -> u128 {
    let mut input = [0; DOMAIN.len() + ID_BYTES];
    begin(&mut input, id);
    first(&input)
}

/// The hash of a stripe in the sum of two peers: `lower` is the number of the fragment that the peer with
/// the lower key holds, `upper` of the other's.
pub fn stripe_item(id: &RecordId, lower: u8, upper: u8) -> u128 {
    let mut input = [0; DOMAIN.len() + ID_BYTES + 2];
    begin(&mut input, id);
    input[DOMAIN.len() + ID_BYTES] = lower;
    input[DOMAIN.len() + ID_BYTES + 1] = upper;
    first(&input)
}

fn begin(input: &mut [u8], id: &RecordId) {
    input[..DOMAIN.len()].copy_from_slice(DOMAIN);
    input[DOMAIN.len()..DOMAIN.len() + ID_BYTES].copy_from_slice(id.as_bytes());
}

fn first(input: &[u8]) -> u128 {
    let hash = blake3::hash(input);
    let mut first = [0; 16];
    first.copy_from_slice(&hash.as_bytes()[..16]);
    u128::from_le_bytes(first)
}
