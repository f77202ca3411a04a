//! What a seed decides: a small generator, apart for each purpose, so that a new draw in one part does not change the others.

use crypto::Suite;

/// A generator (splitmix64: passes the usual tests, one multiplication a draw, the same everywhere).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The generator of this seed for this purpose.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let hash = Suite::Holdfast1.hash(format!("{seed} {purpose}").as_bytes());
        let mut state = [0; 8];
        state.copy_from_slice(&hash[..8]);
        Self(u64::from_be_bytes(state))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 for 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end.max(1)
    }

    /// An index of a slice that is so long.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True so many times in a thousand.
    pub fn permille(&mut self, times: u64) -> bool {
        self.below(1000) < times
    }

    /// One of these.
    ///
    /// # Panics
    /// For none.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }
}

/// Bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; len];
    for eight in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let drawn = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes();
        eight.copy_from_slice(&drawn[..eight.len()]);
    }
    bytes
}
