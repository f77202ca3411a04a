//! The kernel of all vector paths: a few outputs summed in registers over all inputs, written once.
//!
//! A block is `R` outputs by `U` vectors of columns. Each input vector is loaded once a block and
//! multiplied for every output; the multiplier of a pair is loaded once for the `U` vectors. What a
//! vector is and how one is multiplied is a [`Lane`]'s.
//!
//! Everything here is `inline(always)`: it becomes part of one function a path that has the path's
//! instructions enabled (`x86.rs`), and must not be called from elsewhere.
#![allow(unsafe_code, reason = "vector loads and stores through pointers into checked slices")]

use super::{Start, Work, strips};

/// Vectors of one kind, and their multiplication by constants.
///
/// # Safety
/// An implementation's functions need the processor to have its instructions, and load and store only
/// the `BYTES` (or the first `bytes`) bytes at the pointer they are given.
pub(super) unsafe trait Lane {
    /// A vector.
    type Vector: Copy;
    /// A vector made ready to be multiplied.
    type Ready: Copy;
    /// A constant made ready to multiply.
    type Multiplier: Copy;
    /// Bytes of a vector.
    const BYTES: usize;
    /// The most outputs of a block.
    const ROWS_MAX: usize;

    fn multiplier(coefficient: u8) -> Self::Multiplier;
    unsafe fn zero() -> Self::Vector;
    unsafe fn load(from: *const u8) -> Self::Vector;
    unsafe fn store(to: *mut u8, vector: Self::Vector);
    /// The first `bytes` of a vector, which are fewer than `BYTES`; zeros follow.
    unsafe fn load_some(from: *const u8, bytes: usize) -> Self::Vector;
    unsafe fn store_some(to: *mut u8, vector: Self::Vector, bytes: usize);
    unsafe fn ready(vector: Self::Vector) -> Self::Ready;
    /// `sum` + `ready` * `multiplier`.
    unsafe fn add_product(
        sum: Self::Vector,
        ready: Self::Ready,
        multiplier: &Self::Multiplier,
    ) -> Self::Vector;
    /// The blocks of `rows` outputs, which are 1 to `ROWS_MAX`, over `block`'s columns.
    ///
    /// # Safety
    /// As [`columns`].
    unsafe fn group(rows: usize, group: &Group<'_, Self::Multiplier>);
}

/// A few outputs of one strip.
pub(super) struct Group<'a, M> {
    /// Input by input, a multiplier for each output.
    multipliers: &'a [M],
    /// Where each input's strip begins.
    inputs: &'a [*const u8],
    /// Where each output's strip begins.
    outputs: &'a [*mut u8],
    /// Bytes of the strip.
    bytes: usize,
    start: Start,
}

/// Does the work: strip by strip, group of outputs by group.
///
/// # Safety
/// The processor must have the lane's instructions.
#[inline(always)]
pub(super) unsafe fn run<L: Lane>(work: Work<'_, '_, '_>) {
    let Work { matrix, inputs, outputs, columns, start } = work;
    // What makes every pointer below valid for a whole strip.
    assert!(inputs.iter().all(|input| input.len() >= columns.end));
    assert!(outputs.iter().all(|output| output.len() >= columns.end));
    assert_eq!(matrix.len(), inputs.len() * outputs.len());
    // Groups as even as can be: ten outputs are five and five, not eight and two.
    let groups = outputs.len().div_ceil(L::ROWS_MAX);
    let rows_max = outputs.len().div_ceil(groups);
    let multipliers = multipliers::<L>(matrix, inputs.len(), rows_max);
    let mut from: Vec<*const u8> = Vec::with_capacity(inputs.len());
    let mut to: Vec<*mut u8> = Vec::with_capacity(outputs.len());
    for strip in strips(columns, inputs.len()) {
        from.clear();
        from.extend(inputs.iter().map(|input| input[strip.clone()].as_ptr()));
        to.clear();
        to.extend(outputs.iter_mut().map(|output| output[strip.clone()].as_mut_ptr()));
        let multipliers = multipliers.chunks(rows_max * inputs.len());
        for (outputs, multipliers) in to.chunks(rows_max).zip(multipliers) {
            let group = Group { multipliers, inputs: &from, outputs, bytes: strip.len(), start };
            // SAFETY: the slices above have `strip.len()` bytes at every pointer, inputs are shared
            // and outputs are exclusive borrows; the caller has the instructions.
            unsafe { L::group(outputs.len(), &group) };
        }
    }
}

/// The matrix in the order in which groups read it: group, input, output.
#[inline(always)]
fn multipliers<L: Lane>(matrix: &[u8], inputs: usize, rows_max: usize) -> Vec<L::Multiplier> {
    let mut multipliers = Vec::with_capacity(matrix.len());
    for rows in matrix.chunks(rows_max * inputs) {
        for column in 0..inputs {
            let rows = rows.chunks_exact(inputs);
            multipliers.extend(rows.map(|row| L::multiplier(row[column])));
        }
    }
    multipliers
}

/// All blocks of a group of `R` outputs, `U` vectors wide, then what is left.
///
/// # Safety
/// The processor must have the lane's instructions; `group` has `R` outputs, `R` multipliers an input,
/// and its pointers are valid for its bytes, the outputs' to write and different from all others.
#[inline(always)]
pub(super) unsafe fn columns<L: Lane, const R: usize, const U: usize>(
    group: &Group<'_, L::Multiplier>,
) {
    debug_assert_eq!(group.outputs.len(), R);
    debug_assert_eq!(group.multipliers.len(), R * group.inputs.len());
    let mut at = 0;
    // SAFETY: `at` and what a block takes stay within the group's bytes.
    unsafe {
        while at + U * L::BYTES <= group.bytes {
            block::<L, R, U>(group, at, L::BYTES);
            at += U * L::BYTES;
        }
        while at + L::BYTES <= group.bytes {
            block::<L, R, 1>(group, at, L::BYTES);
            at += L::BYTES;
        }
        if at < group.bytes {
            block::<L, R, 1>(group, at, group.bytes - at);
        }
    }
}

/// One block at `at`. `bytes` is a vector's, or fewer where the last vector is not full (`U` is 1).
///
/// # Safety
/// As [`columns`], for the bytes from `at`.
#[inline(always)]
unsafe fn block<L: Lane, const R: usize, const U: usize>(
    group: &Group<'_, L::Multiplier>,
    at: usize,
    bytes: usize,
) {
    // SAFETY: `at` and what follows is within all fragments; R multipliers an input.
    unsafe {
        let mut sums = [[L::zero(); U]; R];
        if group.start == Start::Keep {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (u, sum) in sums.iter_mut().enumerate() {
                    let from = group.outputs.get_unchecked(r).add(at + u * L::BYTES);
                    *sum = load::<L>(from.cast_const(), bytes);
                }
            }
        }
        let mut multiplier = group.multipliers.as_ptr();
        for &input in group.inputs {
            let mut ready = [L::ready(L::zero()); U];
            for (u, ready) in ready.iter_mut().enumerate() {
                *ready = L::ready(load::<L>(input.add(at + u * L::BYTES), bytes));
            }
            for sums in &mut sums {
                for (sum, ready) in sums.iter_mut().zip(ready) {
                    *sum = L::add_product(*sum, ready, &*multiplier);
                }
                multiplier = multiplier.add(1);
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (u, sum) in sums.into_iter().enumerate() {
                let to = group.outputs.get_unchecked(r).add(at + u * L::BYTES);
                if bytes == L::BYTES { L::store(to, sum) } else { L::store_some(to, sum, bytes) }
            }
        }
    }
}

/// A vector of `bytes` bytes, which are all or fewer.
///
/// # Safety
/// `from` is valid for `bytes`; the processor has the instructions.
#[inline(always)]
unsafe fn load<L: Lane>(from: *const u8, bytes: usize) -> L::Vector {
    // SAFETY: as the caller's.
    unsafe { if bytes == L::BYTES { L::load(from) } else { L::load_some(from, bytes) } }
}
