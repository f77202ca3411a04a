//! The vector paths of x86-64: GFNI in vectors of 64 and 32 bytes, and AVX2's byte shuffles.
//!
//! Multiplying by a constant is linear over the bits of a byte. GFNI has the instruction for it: a
//! matrix of 8 x 8 bits times each byte of a vector. `pshufb` looks each half of a byte up in a table
//! of 16 products.
#![allow(unsafe_code, reason = "vector instructions, called only where the processor has them")]

use std::arch::x86_64::*;

use super::Work;
use super::registers::{self, Group, Lane};
use crate::field;

/// For each constant the bit matrix that multiplies by it, as `gf2p8affineqb` reads it: byte 7 - i
/// is the row of output bit i, whose bit j says whether input bit j counts.
static BIT_MATRICES: [u64; 256] = bit_matrices();
/// For each constant its products with 0 to 15, then with 0x00, 0x10, ... 0xf0.
static NIBBLE_PRODUCTS: [[u8; 32]; 256] = nibble_products();

const fn bit_matrices() -> [u64; 256] {
    let mut matrices = [0; 256];
    let mut constant = 0;
    while constant < 256 {
        let mut j = 0;
        while j < 8 {
            let product = field::multiply(constant as u8, 1 << j);
            let mut i = 0;
            while i < 8 {
                if product >> i & 1 == 1 {
                    matrices[constant] |= 1 << ((7 - i) * 8 + j);
                }
                i += 1;
            }
            j += 1;
        }
        constant += 1;
    }
    matrices
}

const fn nibble_products() -> [[u8; 32]; 256] {
    let mut products = [[0; 32]; 256];
    let mut constant = 0;
    while constant < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            products[constant][nibble] = field::multiply(constant as u8, nibble as u8);
            products[constant][16 + nibble] = field::multiply(constant as u8, (nibble << 4) as u8);
            nibble += 1;
        }
        constant += 1;
    }
    products
}

/// The work on a processor that has GFNI and AVX-512.
pub(super) fn gfni512(work: Work<'_, '_, '_>) {
    #[target_feature(enable = "gfni,avx512f,avx512bw")]
    fn enabled(work: Work<'_, '_, '_>) {
        // SAFETY: the instructions are enabled.
        unsafe { registers::run::<Gfni512>(work) }
    }
    // SAFETY: a `Path` of these instructions exists only where the processor has them.
    unsafe { enabled(work) }
}

/// The work on a processor that has GFNI and AVX2.
pub(super) fn gfni256(work: Work<'_, '_, '_>) {
    #[target_feature(enable = "gfni,avx2")]
    fn enabled(work: Work<'_, '_, '_>) {
        // SAFETY: the instructions are enabled.
        unsafe { registers::run::<Gfni256>(work) }
    }
    // SAFETY: a `Path` of these instructions exists only where the processor has them.
    unsafe { enabled(work) }
}

/// The work on a processor that has AVX2.
pub(super) fn avx2(work: Work<'_, '_, '_>) {
    #[target_feature(enable = "avx2")]
    fn enabled(work: Work<'_, '_, '_>) {
        // SAFETY: the instructions are enabled.
        unsafe { registers::run::<Avx2>(work) }
    }
    // SAFETY: a `Path` of these instructions exists only where the processor has them.
    unsafe { enabled(work) }
}

/// 64 bytes; 32 registers, so up to 24 sums, and vectors and multipliers beside them.
struct Gfni512;

// SAFETY: loads and stores of 64 bytes, or masked to fewer.
unsafe impl Lane for Gfni512 {
    type Vector = __m512i;
    type Ready = __m512i;
    type Multiplier = u64;
    const BYTES: usize = 64;
    const ROWS_MAX: usize = 8;

    #[inline(always)]
    fn multiplier(coefficient: u8) -> u64 {
        BIT_MATRICES[usize::from(coefficient)]
    }
    #[inline(always)]
    unsafe fn zero() -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, vector: __m512i) {
        unsafe { _mm512_storeu_si512(to.cast(), vector) }
    }
    #[inline(always)]
    unsafe fn load_some(from: *const u8, bytes: usize) -> __m512i {
        unsafe { _mm512_maskz_loadu_epi8((1 << bytes) - 1, from.cast()) }
    }
    #[inline(always)]
    unsafe fn store_some(to: *mut u8, vector: __m512i, bytes: usize) {
        unsafe { _mm512_mask_storeu_epi8(to.cast(), (1 << bytes) - 1, vector) }
    }
    #[inline(always)]
    unsafe fn ready(vector: __m512i) -> __m512i {
        vector
    }
    #[inline(always)]
    unsafe fn add_product(sum: __m512i, ready: __m512i, multiplier: &u64) -> __m512i {
        unsafe {
            let matrix = _mm512_set1_epi64(*multiplier as i64);
            _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8::<0>(ready, matrix))
        }
    }
    #[inline(always)]
    unsafe fn group(rows: usize, group: &Group<'_, u64>) {
        unsafe {
            match rows {
                1 => registers::columns::<Self, 1, 8>(group),
                2 => registers::columns::<Self, 2, 8>(group),
                3 => registers::columns::<Self, 3, 6>(group),
                4 => registers::columns::<Self, 4, 4>(group),
                5 => registers::columns::<Self, 5, 4>(group),
                6 => registers::columns::<Self, 6, 4>(group),
                7 => registers::columns::<Self, 7, 3>(group),
                8 => registers::columns::<Self, 8, 3>(group),
                _ => unreachable!("groups have 1 to 8 rows"),
            }
        }
    }
}

/// 32 bytes; 16 registers, so up to 12 sums.
struct Gfni256;

// SAFETY: loads and stores of 32 bytes, fewer through a buffer.
unsafe impl Lane for Gfni256 {
    type Vector = __m256i;
    type Ready = __m256i;
    type Multiplier = u64;
    const BYTES: usize = 32;
    const ROWS_MAX: usize = 6;

    #[inline(always)]
    fn multiplier(coefficient: u8) -> u64 {
        BIT_MATRICES[usize::from(coefficient)]
    }
    #[inline(always)]
    unsafe fn zero() -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, vector: __m256i) {
        unsafe { _mm256_storeu_si256(to.cast(), vector) }
    }
    #[inline(always)]
    unsafe fn load_some(from: *const u8, bytes: usize) -> __m256i {
        unsafe { load_some_256(from, bytes) }
    }
    #[inline(always)]
    unsafe fn store_some(to: *mut u8, vector: __m256i, bytes: usize) {
        unsafe { store_some_256(to, vector, bytes) }
    }
    #[inline(always)]
    unsafe fn ready(vector: __m256i) -> __m256i {
        vector
    }
    #[inline(always)]
    unsafe fn add_product(sum: __m256i, ready: __m256i, multiplier: &u64) -> __m256i {
        unsafe {
            let matrix = _mm256_set1_epi64x(*multiplier as i64);
            _mm256_xor_si256(sum, _mm256_gf2p8affine_epi64_epi8::<0>(ready, matrix))
        }
    }
    #[inline(always)]
    unsafe fn group(rows: usize, group: &Group<'_, u64>) {
        unsafe {
            match rows {
                1 => registers::columns::<Self, 1, 4>(group),
                2 => registers::columns::<Self, 2, 4>(group),
                3 => registers::columns::<Self, 3, 4>(group),
                4 => registers::columns::<Self, 4, 2>(group),
                5 => registers::columns::<Self, 5, 2>(group),
                6 => registers::columns::<Self, 6, 2>(group),
                _ => unreachable!("groups have 1 to 6 rows"),
            }
        }
    }
}

/// 32 bytes; a product takes two tables of 16 and a mask beside the sums.
struct Avx2;

// SAFETY: loads and stores of 32 bytes, fewer through a buffer.
unsafe impl Lane for Avx2 {
    type Vector = __m256i;
    /// The low and the high half of each byte.
    type Ready = (__m256i, __m256i);
    type Multiplier = &'static [u8; 32];
    const BYTES: usize = 32;
    const ROWS_MAX: usize = 4;

    #[inline(always)]
    fn multiplier(coefficient: u8) -> &'static [u8; 32] {
        &NIBBLE_PRODUCTS[usize::from(coefficient)]
    }
    #[inline(always)]
    unsafe fn zero() -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, vector: __m256i) {
        unsafe { _mm256_storeu_si256(to.cast(), vector) }
    }
    #[inline(always)]
    unsafe fn load_some(from: *const u8, bytes: usize) -> __m256i {
        unsafe { load_some_256(from, bytes) }
    }
    #[inline(always)]
    unsafe fn store_some(to: *mut u8, vector: __m256i, bytes: usize) {
        unsafe { store_some_256(to, vector, bytes) }
    }
    #[inline(always)]
    unsafe fn ready(vector: __m256i) -> (__m256i, __m256i) {
        unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            let high = _mm256_and_si256(_mm256_srli_epi64::<4>(vector), mask);
            (_mm256_and_si256(vector, mask), high)
        }
    }
    #[inline(always)]
    unsafe fn add_product(
        sum: __m256i,
        (low, high): (__m256i, __m256i),
        multiplier: &&'static [u8; 32],
    ) -> __m256i {
        unsafe {
            let tables = multiplier.as_ptr();
            let low_table = _mm256_broadcastsi128_si256(_mm_loadu_si128(tables.cast()));
            let high_table = _mm256_broadcastsi128_si256(_mm_loadu_si128(tables.add(16).cast()));
            let low = _mm256_shuffle_epi8(low_table, low);
            let high = _mm256_shuffle_epi8(high_table, high);
            _mm256_xor_si256(sum, _mm256_xor_si256(low, high))
        }
    }
    #[inline(always)]
    unsafe fn group(rows: usize, group: &Group<'_, &'static [u8; 32]>) {
        unsafe {
            match rows {
                1 => registers::columns::<Self, 1, 2>(group),
                2 => registers::columns::<Self, 2, 2>(group),
                3 => registers::columns::<Self, 3, 2>(group),
                4 => registers::columns::<Self, 4, 2>(group),
                _ => unreachable!("groups have 1 to 4 rows"),
            }
        }
    }
}

/// The first `bytes`, fewer than 32, and zeros.
#[inline(always)]
unsafe fn load_some_256(from: *const u8, bytes: usize) -> __m256i {
    let mut buffer = [0_u8; 32];
    unsafe {
        std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), bytes);
        _mm256_loadu_si256(buffer.as_ptr().cast())
    }
}

/// Writes the first `bytes`, fewer than 32.
#[inline(always)]
unsafe fn store_some_256(to: *mut u8, vector: __m256i, bytes: usize) {
    let mut buffer = [0_u8; 32];
    unsafe {
        _mm256_storeu_si256(buffer.as_mut_ptr().cast(), vector);
        std::ptr::copy_nonoverlapping(buffer.as_ptr(), to, bytes);
    }
}
