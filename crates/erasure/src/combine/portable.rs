//! Multiplying without vector instructions of our own: the eight products x * 2^j of an input are made
//! once, and each output takes the xor of those whose bit is set in its coefficient.
//!
//! Written over arrays of fixed length and without branches on data, so that the compiler uses what
//! vectors the target has by default (SSE2, NEON). Tables of 256 products are slower: one byte a load.

use super::{Start, Work};

/// Bytes worked at once: eight products of them lie in the first-level cache.
const BLOCK_BYTES: usize = 512;

type Block = [u8; BLOCK_BYTES];

pub(super) fn run(work: Work<'_, '_, '_>) {
    let Work { matrix, inputs, outputs, columns, start } = work;
    let mut powers = [[0; BLOCK_BYTES]; 8];
    let mut sums = vec![[0; BLOCK_BYTES]; outputs.len()];
    for from in columns.clone().step_by(BLOCK_BYTES) {
        let part = from..columns.end.min(from + BLOCK_BYTES);
        for (sum, output) in sums.iter_mut().zip(outputs.iter()) {
            match start {
                Start::Zero => sum.fill(0),
                Start::Keep => sum[..part.len()].copy_from_slice(&output[part.clone()]),
            }
        }
        for (column, input) in inputs.iter().enumerate() {
            powers[0][..part.len()].copy_from_slice(&input[part.clone()]);
            fill_powers(&mut powers);
            let rows = matrix.chunks_exact(inputs.len());
            for (sum, row) in sums.iter_mut().zip(rows) {
                add_product(sum, &powers, row[column]);
            }
        }
        for (sum, output) in sums.iter().zip(outputs.iter_mut()) {
            output[part.clone()].copy_from_slice(&sum[..part.len()]);
        }
    }
}

/// From x in the first block: x * 2^j in block j.
fn fill_powers(powers: &mut [Block; 8]) {
    for j in 1..8 {
        let (made, next) = powers.split_at_mut(j);
        for (next, x) in next[0].iter_mut().zip(&made[j - 1]) {
            // All ones where the top bit is set: the product overflows and is reduced by 0x11D.
            let overflow = ((*x as i8) >> 7) as u8;
            *next = (x << 1) ^ (overflow & 0x1d);
        }
    }
}

fn add_product(sum: &mut Block, powers: &[Block; 8], coefficient: u8) {
    let mask = |j: u32| if coefficient >> j & 1 == 1 { 0xff } else { 0 };
    let masks: [u8; 8] = std::array::from_fn(|j| mask(j as u32));
    for (i, sum) in sum.iter_mut().enumerate() {
        let mut product = 0;
        for j in 0..8 {
            product ^= powers[j][i] & masks[j];
        }
        *sum ^= product;
    }
}
