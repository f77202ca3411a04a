//! What the versions of an object hold: a value of which a tenth changes each time, or all of it.
//!
//! Every value follows from the seed, the object and the version's number, so what is read back can be checked without keeping
//! what was written.

use serde::Serialize;

use crate::seeded::Seeded;

/// How a value differs from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Workload {
    /// The first tenth of its bytes is new.
    SameTenth,
    /// A tenth is new, the next tenth each time.
    MovingTenth,
    /// All of it is new.
    Random,
}

impl Workload {
    pub(super) const ALL: [Self; 3] = [Self::SameTenth, Self::MovingTenth, Self::Random];

    /// Its name, in tables and ratios.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SameTenth => "same tenth",
            Self::MovingTenth => "moving tenth",
            Self::Random => "random",
        }
    }

    /// Which tenth a version changes; none where it changes all.
    const fn tenth(self, version: u64) -> Option<u64> {
        match self {
            _ if version == 0 => None,
            Self::SameTenth => Some(0),
            Self::MovingTenth => Some(version % TENTHS),
            Self::Random => None,
        }
    }
}

const TENTHS: u64 = 10;

/// The values of one object, one version after the other.
#[derive(Clone, Debug)]
pub(super) struct Values {
    workload: Workload,
    seed: u64,
    next: u64,
    value: Vec<u8>,
}

impl Values {
    /// Those of an object, of so many bytes each.
    pub(super) fn new(workload: Workload, seed: u64, object: u64, bytes: usize) -> Self {
        let mut of = Seeded::new(seed ^ object.wrapping_mul(0xd134_2543_de82_ef95));
        Self { workload, seed: of.next(), next: 0, value: vec![0; bytes] }
    }

    /// The next version's value.
    pub(super) fn next(&mut self) -> &[u8] {
        let mut seeded = Seeded::new(self.seed.wrapping_add(self.next));
        let all = self.value.len();
        let changed = match self.workload.tenth(self.next) {
            Some(tenth) => {
                let at = |tenth: u64| (tenth * all as u64 / TENTHS) as usize;
                at(tenth)..at(tenth + 1)
            }
            None => 0..all,
        };
        seeded.fill(&mut self.value[changed]);
        self.next += 1;
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(workload: Workload, object: u64) -> Vec<Vec<u8>> {
        let mut values = Values::new(workload, 7, object, 1000);
        (0..30).map(|_| values.next().to_vec()).collect()
    }

    /// Bytes in which two values differ, by tenths.
    fn differing(a: &[u8], b: &[u8]) -> Vec<usize> {
        let tenths = a.chunks(100).zip(b.chunks(100));
        tenths.map(|(a, b)| a.iter().zip(b).filter(|(a, b)| a != b).count()).collect()
    }

    #[test]
    fn the_tenth_that_was_promised_changes() {
        for (workload, moving) in [(Workload::SameTenth, false), (Workload::MovingTenth, true)] {
            let values = values(workload, 1);
            for version in 1..values.len() {
                let changed = differing(&values[version - 1], &values[version]);
                let tenth = if moving { version % 10 } else { 0 };
                for (at, changed) in changed.iter().enumerate() {
                    assert_eq!(*changed > 90, at == tenth, "{workload:?} {version} {at}");
                    assert!(at == tenth || *changed == 0);
                }
            }
        }
        let random = values(Workload::Random, 1);
        assert!(differing(&random[0], &random[1]).iter().all(|changed| *changed > 90));
    }

    #[test]
    fn objects_differ_and_are_the_same_again() {
        assert_eq!(values(Workload::SameTenth, 1), values(Workload::SameTenth, 1));
        assert_ne!(values(Workload::SameTenth, 1)[0], values(Workload::SameTenth, 2)[0]);
    }
}
