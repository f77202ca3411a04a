//! Randomness that repeats: the draws of an experiment come from one seed.
//!
//! Not for keys: those come from the system. This decides when uploads arrive, how large documents
//! are, which peer is asked, and what incompressible content they have.

use std::time::Duration;

/// A generator (SplitMix64): a good spread of 64 bits a step, and any seed will do.
#[derive(Clone, Debug)]
pub(crate) struct Seeded(u64);

impl Seeded {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number above 0 and at most 1.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// One of `count` things, each as likely.
    ///
    /// # Panics
    /// Where there are none.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "one of nothing");
        // The bias of some 2^-50 does not matter here.
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }

    /// The wait for the next arrival of a Poisson process of so many a second.
    pub(crate) fn wait(&mut self, a_second: f64) -> Duration {
        Duration::from_secs_f64((-self.unit().ln() / a_second).min(1e9))
    }

    /// A standard normal draw (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (radius, angle) = ((-2.0 * self.unit().ln()).sqrt(), self.unit());
        radius * (std::f64::consts::TAU * angle).cos()
    }

    /// A draw of the gamma distribution of this shape, at least 1, and scale (Marsaglia and Tsang,
    /// 2000).
    ///
    /// # Panics
    /// Where the shape is below 1.
    pub(crate) fn gamma(&mut self, shape: f64, scale: f64) -> f64 {
        assert!(shape >= 1.0, "the method is for shapes of 1 and more");
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * scale;
            }
        }
    }

    /// Fills with bytes that do not compress.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn mean(draws: impl Fn(&mut Seeded) -> f64) -> f64 {
        let mut seeded = Seeded::new(1);
        (0..DRAWS).map(|_| draws(&mut seeded)).sum::<f64>() / DRAWS as f64
    }

    #[test]
    fn document_sizes_are_the_papers() {
        let mut seeded = Seeded::new(2);
        let mut sizes: Vec<f64> = (0..DRAWS).map(|_| seeded.gamma(1.5, 170.0)).collect();
        let mean = sizes.iter().sum::<f64>() / DRAWS as f64;
        assert!((mean - 255.0).abs() < 3.0, "the mean is 256 KB, and here {mean}");
        sizes.sort_by(f64::total_cmp);
        // 95 % in 18 to 794 KB.
        let (low, high) = (sizes[DRAWS / 40], sizes[DRAWS - DRAWS / 40]);
        assert!((low - 18.0).abs() < 1.0 && (high - 794.0).abs() < 15.0, "{low} to {high}");
    }

    #[test]
    fn arrivals_come_at_their_rate() {
        let mean = mean(|seeded| seeded.wait(40.0).as_secs_f64());
        assert!((mean - 0.025).abs() < 0.0005, "{mean}");
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let draw = |seed| {
            let mut bytes = [0; 33];
            Seeded::new(seed).fill(&mut bytes);
            bytes
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn each_is_as_likely() {
        let mut counts = [0u32; 7];
        let mut seeded = Seeded::new(3);
        (0..70_000).for_each(|_| counts[seeded.below(7)] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
