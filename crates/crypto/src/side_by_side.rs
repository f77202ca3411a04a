//! BLAKE3 of several short messages at once.
//!
//! Below its chunk of 1 KiB BLAKE3 takes one block after the other, each waiting for the one before; vectors help only
//! where there are several chunks. Of several messages the chunks can be the vector's lanes. With AVX-512 sixteen versions of
//! 1.1 KiB take 0.3 us each so, one by one 1.2 (`cargo bench -p version`).
//!
//! What `blake3` has for it (`platform`) its authors call unstable. So `Cargo.toml` names one version, which the tests
//! compare with `blake3::hash` on each set of instructions that the machine has.

use blake3::IncrementCounter;
use blake3::platform::{
    Platform, le_bytes_from_words_32, words_from_le_bytes_32 as words_from_le_bytes,
};

/// Bytes of a block, and of a chunk.
const BLOCK: usize = 64;
const CHUNK: usize = 1024;
/// The longest message that is hashed here: two chunks. Longer ones fill vectors by themselves.
const MESSAGE_BYTES_MAX: usize = 2 * CHUNK;
/// Messages that are taken at once: as many as the widest vector has lanes.
const LANES: usize = 16;

/// Lanes of the narrowest vector.
const NARROWEST: usize = 4;

/// The flags of section 2.2 of the BLAKE3 paper.
const CHUNK_START: u8 = 1;
const CHUNK_END: u8 = 2;
const PARENT: u8 = 4;
const ROOT: u8 = 8;
/// The initial chaining value: SHA-256's (section 2.2).
const IV: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Puts the hash of each message at its place in `out`, which is as long.
pub(crate) fn hash_each(messages: &[&[u8]], out: &mut [[u8; 32]]) {
    hash_each_on(Platform::detect(), messages, out);
}

fn hash_each_on(platform: Platform, messages: &[&[u8]], out: &mut [[u8; 32]]) {
    for (messages, out) in messages.chunks(LANES).zip(out.chunks_mut(LANES)) {
        hash_some(platform, messages, out);
    }
}

/// Of at most [`LANES`] messages.
fn hash_some(platform: Platform, messages: &[&[u8]], out: &mut [[u8; 32]]) {
    let is_long = |message: &[u8]| message.len() > CHUNK;
    let is_here = |message: &[u8]| message.len() <= MESSAGE_BYTES_MAX;
    // Whole first chunks.
    let long = |at: &usize| is_long(messages[*at]) && is_here(messages[*at]);
    let mut heads = [[0; 32]; LANES];
    many::<CHUNK>(platform, messages, &mut heads, long, 0, [0, CHUNK_START, CHUNK_END]);
    // What is behind them, or the only chunk: all of its blocks but the last.
    let mut tails = [&[][..]; LANES];
    for (tail, message) in tails.iter_mut().zip(messages) {
        *tail = if is_long(message) { &message[CHUNK..] } else { message };
    }
    let tails = &tails[..messages.len()];
    let blocks = |at: usize| tails[at].len().saturating_sub(1) / BLOCK;
    let mut states = [le_bytes_from_words_32(&IV); LANES];
    let mut done = [false; LANES];
    for first in 0..messages.len() {
        if done[first] || !is_here(messages[first]) {
            continue;
        }
        let shape = |at: usize| (blocks(at), is_long(messages[at]));
        let same = |at: &usize| is_here(messages[*at]) && shape(*at) == shape(first);
        let counter = u64::from(is_long(messages[first]));
        midstates(platform, blocks(first), tails, &mut states, same, counter);
        (first..messages.len()).filter(same).for_each(|at| done[at] = true);
    }
    for (at, message) in messages.iter().enumerate() {
        if !is_here(message) {
            out[at] = *blake3::hash(message).as_bytes();
            continue;
        }
        let last = &tails[at][blocks(at) * BLOCK..];
        let mut block = [0; BLOCK];
        block[..last.len()].copy_from_slice(last);
        let start = if blocks(at) == 0 { CHUNK_START } else { 0 };
        let root = if is_long(message) { 0 } else { ROOT };
        let mut state = words_from_le_bytes(&states[at]);
        let counter = u64::from(is_long(message));
        let flags = start | CHUNK_END | root;
        platform.compress_in_place(&mut state, &block, last.len() as u8, counter, flags);
        out[at] = le_bytes_from_words_32(&state);
    }
    // Above two chunks is their parent.
    let mut pairs = [[0; BLOCK]; LANES];
    for at in (0..messages.len()).filter(long) {
        pairs[at][..32].copy_from_slice(&heads[at]);
        pairs[at][32..].copy_from_slice(&out[at]);
    }
    let mut parents = [&[][..]; LANES];
    for (parent, pair) in parents.iter_mut().zip(&pairs) {
        *parent = pair;
    }
    many::<BLOCK>(platform, &parents[..messages.len()], out, long, 0, [PARENT | ROOT, 0, 0]);
}

/// The states behind the first `blocks` blocks of a chunk.
fn midstates(
    platform: Platform,
    blocks: usize,
    chunks: &[&[u8]],
    out: &mut [[u8; 32]],
    which: impl Fn(&usize) -> bool,
    counter: u64,
) {
    let flags = [0, CHUNK_START, 0];
    macro_rules! by_blocks {
        ($($blocks:literal)*) => {
            match blocks {
                $($blocks => {
                    many::<{ $blocks * BLOCK }>(platform, chunks, out, which, counter, flags);
                })*
                _ => {}
            }
        };
    }
    by_blocks!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
}

/// The chaining values of the first `N` bytes of each of `which`, flags at all blocks, at the first, at the last.
fn many<const N: usize>(
    platform: Platform,
    inputs: &[&[u8]],
    out: &mut [[u8; 32]],
    which: impl Fn(&usize) -> bool,
    counter: u64,
    [flags, start, end]: [u8; 3],
) {
    let mut lanes = [const { &[0; N] }; LANES];
    let mut places = [0; LANES];
    let mut count = 0;
    for at in (0..inputs.len()).filter(which) {
        if let Some(input) = inputs[at].first_chunk::<N>() {
            (lanes[count], places[count]) = (input, at);
            count += 1;
        }
    }
    if count == 0 {
        return;
    }
    let mut values = [0; 32 * LANES];
    let one = IncrementCounter::No;
    let lanes = &lanes[..filled(count, platform.simd_degree())];
    platform.hash_many(lanes, &IV, counter, one, flags, start, end, &mut values);
    for (place, value) in places[..count].iter().zip(values.as_chunks().0) {
        out[*place] = *value;
    }
}

/// How many lanes to hash for `count` of them with vectors of `degree`: what does not fill a vector is hashed in narrower ones and
/// the last one by one, and each of those takes as long as a whole vector. So the rest is filled up.
fn filled(count: usize, degree: usize) -> usize {
    let rest = count % degree;
    match rest {
        0 | 1 => count,
        _ => count - rest + rest.next_power_of_two().max(NARROWEST).min(degree),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(len: usize, seed: u8) -> Vec<u8> {
        (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
    }

    #[test]
    fn what_does_not_fill_a_vector_is_filled_up() {
        let counts = [1, 2, 4, 5, 7, 8, 9, 13, 16];
        for (degree, wanted) in [
            (1, [1, 2, 4, 5, 7, 8, 9, 13, 16]),
            (4, [1, 4, 4, 5, 8, 8, 9, 13, 16]),
            (8, [1, 4, 4, 8, 8, 8, 9, 16, 16]),
            (16, [1, 4, 4, 8, 8, 8, 16, 16, 16]),
        ] {
            assert_eq!(counts.map(|count| filled(count, degree)), wanted, "{degree}");
        }
    }

    fn check(lens: &[usize]) {
        let messages: Vec<Vec<u8>> =
            lens.iter().enumerate().map(|(seed, len)| message(*len, seed as u8)).collect();
        let slices: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        for platform in platforms() {
            let mut out = vec![[9; 32]; slices.len()];
            hash_each_on(platform, &slices, &mut out);
            for (message, hash) in slices.iter().zip(&out) {
                let wanted = blake3::hash(message);
                assert_eq!(
                    hash,
                    wanted.as_bytes(),
                    "{} of {lens:?} on {platform:?}",
                    message.len()
                );
            }
        }
    }

    /// What this machine could also be.
    fn platforms() -> Vec<Platform> {
        let mut all = vec![Platform::detect(), Platform::portable()];
        #[cfg(target_arch = "x86_64")]
        all.extend([Platform::sse2(), Platform::sse41(), Platform::avx2()].into_iter().flatten());
        all
    }

    #[test]
    fn every_length_alone_and_beside_its_like() {
        for len in (0..=2 * CHUNK + 70).chain([5000, 70_000]) {
            check(&[len]);
            check(&[len; 3]);
        }
        check(&[]);
        check(&[1133; 40]);
    }

    proptest! {
        #[test]
        fn lengths_in_any_mixture(lens in prop::collection::vec(0_usize..3000, 0..40)) {
            check(&lens);
        }

        #[test]
        fn lengths_that_share_blocks(lens in prop::collection::vec(1000_usize..1200, 0..40)) {
            check(&lens);
        }
    }
}
