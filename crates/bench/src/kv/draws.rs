//! Which key comes next: YCSB's zipfian keys.
//!
//! A few keys are asked for most of the time, and which these are is spread over all keys by a hash
//! (`ScrambledZipfianGenerator` of YCSB: an item of ten thousand million, by the method of Gray et al.,
//! 1994, "Quickly generating billion-record synthetic databases"; then FNV-1a of its number, modulo the number of keys).

use crate::seeded::Seeded;

/// YCSB's exponent.
const THETA: f64 = 0.99;
/// YCSB's number of items before the hash.
const ITEMS: f64 = 1e10;
/// The sum of 1/i^0.99 for i from 1 to [`ITEMS`]; adding it up would take a minute.
const ZETA: f64 = 26.469_028_201_783_02;

/// The distribution over so many keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipfian {
    keys: u64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// Over this many keys, at least one.
    pub(super) fn new(keys: u64) -> Self {
        let zeta_of_two = 1.0 + 0.5f64.powf(THETA);
        let eta = (1.0 - (2.0 / ITEMS).powf(1.0 - THETA)) / (1.0 - zeta_of_two / ZETA);
        Self { keys: keys.max(1), alpha: 1.0 / (1.0 - THETA), eta }
    }

    /// An item before the hash: 0 is the most frequent.
    fn item(&self, unit: f64) -> u64 {
        let at = unit * ZETA;
        if at < 1.0 {
            return 0;
        }
        if at < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        (ITEMS * (self.eta * unit - self.eta + 1.0).powf(self.alpha)) as u64
    }

    /// The next key's number.
    pub(super) fn draw(&self, seeded: &mut Seeded) -> u64 {
        scrambled(self.item(seeded.unit())) % self.keys
    }
}

/// FNV-1a of the number's 8 bytes, lowest first, without its sign as YCSB takes it.
fn scrambled(number: u64) -> u64 {
    let hash = number.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 400_000;

    fn counts(keys: u64, seed: u64) -> Vec<u32> {
        let (zipfian, mut seeded) = (Zipfian::new(keys), Seeded::new(seed));
        let mut counts = vec![0; keys as usize];
        (0..DRAWS).for_each(|_| counts[zipfian.draw(&mut seeded) as usize] += 1);
        counts
    }

    #[test]
    fn the_most_frequent_keys_are_as_frequent_as_the_law_says() {
        let counts = counts(1_000_000, 1);
        for rank in 0..2u64 {
            let key = (scrambled(rank) % 1_000_000) as usize;
            let wanted = 1.0 / ((rank + 1) as f64).powf(THETA) / ZETA;
            let found = f64::from(counts[key]) / DRAWS as f64;
            assert!((found / wanted - 1.0).abs() < 0.05, "{rank}: {found} for {wanted}");
        }
        let hottest = counts.iter().max().copied().unwrap_or_default();
        assert_eq!(counts[(scrambled(0) % 1_000_000) as usize], hottest);
    }

    #[test]
    fn the_items_follow_the_law_to_their_end() {
        let (zipfian, mut seeded) = (Zipfian::new(7), Seeded::new(2));
        let mut items: Vec<u64> = (0..DRAWS).map(|_| zipfian.item(seeded.unit())).collect();
        items.sort_unstable();
        assert!(items.last().is_some_and(|last| *last < ITEMS as u64));
        // Of the law's mass, this part lies below item n.
        let below = |n: f64| (n.powf(1.0 - THETA) - 1.0) / (1.0 - THETA) + 0.577;
        for part in [0.5, 0.9] {
            let item = items[(part * DRAWS as f64) as usize] as f64;
            let mass = below(item) / below(ITEMS);
            assert!((mass - part).abs() < 0.02, "{part}: {item} has {mass}");
        }
    }

    #[test]
    fn every_key_is_asked_for_and_no_other() {
        assert!(counts(100, 3).iter().all(|count| *count > 100));
        assert_eq!(Zipfian::new(1).draw(&mut Seeded::new(4)), 0);
        assert_eq!(Zipfian::new(0).draw(&mut Seeded::new(4)), 0, "none is one");
    }

    #[test]
    fn the_same_seed_draws_the_same_keys() {
        assert_eq!(counts(50, 5), counts(50, 5));
        assert_ne!(counts(50, 5), counts(50, 6));
    }

    #[test]
    fn numbers_are_scrambled_as_ycsb_scrambles_them() {
        // FNV-1a of eight zero bytes is the prime's powers times the offset.
        let zeros = (0..8)
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash: u64, _| hash.wrapping_mul(1_099_511_628_211));
        assert_eq!(scrambled(0), (zeros as i64).unsigned_abs());
        assert_eq!(zeros, 0xa8c7_f832_281a_39c5, "a published value of FNV-1a");
    }
}
