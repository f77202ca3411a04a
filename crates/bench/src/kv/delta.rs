//! Versions kept small: their rate and what they take on the disk, by what forms are made against.
//!
//! The paper wrote 1,600,000 records of 1 KB in long chains, each a tenth of its bytes different from the one before, with no
//! compression, against the nearest ancestor that is kept whole, and against one drawn at random. Here a tenth is always
//! the same one, or the next one each time; and beside them are values that share nothing.
//!
//! The promise is held against the plain form in the same run: rates in turns, bytes with everything that the store
//! keeps beside versions.

mod workload;
mod writing;

use self::workload::Workload;
use self::writing::{Ancestor, Kept, kept};
use super::median;
use crate::Bench;
use crate::chart::Chart;
use crate::error::BenchError;
use crate::folder::Folder;
use crate::report::{Bar, Report};

/// Forms against plain versions: bytes at most, rate at least.
const BYTES_MAX: f64 = 0.3;
const RATE_MIN: f64 = 0.6;
/// What a version takes beside its value, at most.
const BESIDE_BYTES: u64 = 400;
const VALUE_BYTES: std::ops::RangeInclusive<u64> = 10..=1 << 20;
const VERSIONS_MAX: u64 = 100_000_000;
const CHAIN_MAX: u64 = 1_000_000;
const ROUNDS_MAX: usize = 20;
const QUICK_VERSIONS: u64 = 8_000;

/// `hold bench kv delta`.
#[derive(Clone, Copy, Debug)]
pub struct KvDelta {
    /// Versions, in chains.
    pub versions: u64,
    /// Versions of an object.
    pub chain: u64,
    /// The size of a value, in bytes.
    pub value: u64,
    /// How often plain ones and forms have their turn; the median counts. The other choices have one.
    pub rounds: usize,
    /// Of the values.
    pub seed: u64,
}

impl KvDelta {
    /// Runs it.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Wrong`] where a version is read back with another value.
    pub fn run(&self, bench: &Bench) -> Result<Report, BenchError> {
        let this = self.checked(bench)?;
        let versions = this.objects() * this.chain;
        Folder::check_room(bench.dir.as_deref(), versions * (this.value + BESIDE_BYTES))?;
        let mut all = Vec::new();
        for workload in Workload::ALL {
            for round in 0..this.rounds {
                for ancestor in Ancestor::ALL {
                    let promised = workload == Workload::SameTenth && ancestor != Ancestor::Random;
                    if round > 0 && !promised {
                        continue;
                    }
                    let one = Kept { round, ..kept(bench, &this, workload, ancestor)? };
                    bench.tell(line(&one));
                    all.push(one);
                }
            }
        }
        let mut report = Report::new("kv-delta", bench.quick);
        all.iter().try_for_each(|one| report.run(one))?;
        this.conclude(&mut report, &all);
        Ok(report)
    }

    /// How many objects.
    fn objects(&self) -> u64 {
        self.versions.div_ceil(self.chain)
    }

    fn checked(&self, bench: &Bench) -> Result<Self, BenchError> {
        let wrong = |name, reason| Err(BenchError::Argument { name, reason });
        if !(1..=VERSIONS_MAX).contains(&self.versions) {
            return wrong("--versions", "from 1 to 100000000");
        }
        if !(1..=CHAIN_MAX).contains(&self.chain) {
            return wrong("--chain", "from 1 to 1000000");
        }
        if !VALUE_BYTES.contains(&self.value) {
            return wrong("--value", "from 10 bytes to 1 MiB");
        }
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            return wrong("--rounds", "from 1 to 20");
        }
        Ok(match bench.quick {
            true => {
                let versions = self.versions.min(QUICK_VERSIONS);
                Self { versions, chain: self.chain.min(versions / 200).max(1), rounds: 1, ..*self }
            }
            false => *self,
        })
    }

    fn conclude(&self, report: &mut Report, all: &[Kept]) {
        let of = |workload: Workload, ancestor: Ancestor, what: fn(&Kept) -> f64| {
            let fits = |one: &&Kept| one.workload == workload && one.ancestor == ancestor;
            median(all.iter().filter(fits).map(what).collect())
        };
        let bytes: fn(&Kept) -> f64 = |one| one.disk_bytes as f64 / one.versions as f64;
        let rate: fn(&Kept) -> f64 = |one| one.versions_a_second;
        for workload in Workload::ALL {
            for ancestor in [Ancestor::Nearest, Ancestor::Random] {
                let name = format!("{}_{}", workload.name(), ancestor.name()).replace(' ', "_");
                for (what, of_what) in [("bytes", bytes), ("rate", rate)] {
                    let plain = of(workload, Ancestor::None, of_what);
                    let ratio = of(workload, ancestor, of_what) / plain;
                    report.ratio(format!("{name}_{what}_to_plain"), ratio);
                    if (workload, ancestor) == (Workload::SameTenth, Ancestor::Nearest) {
                        report.bars.push(self.bar(what, ratio));
                    }
                }
            }
        }
        let names = || Workload::ALL.iter().map(|workload| workload.name().to_owned()).collect();
        for (title, up, what) in [
            ("What a version takes on the disk, everything counted", "bytes", bytes),
            ("Rate of versions", "versions/s", rate),
        ] {
            let chart = Chart::bars(title, up, names());
            report.charts.push(Ancestor::ALL.into_iter().fold(chart, |chart, ancestor| {
                let points = Workload::ALL.iter().enumerate();
                let points =
                    points.map(|(at, workload)| (at as f64, of(*workload, ancestor, what)));
                chart.with(ancestor.name(), points.collect())
            }));
        }
    }

    fn bar(&self, what: &str, ratio: f64) -> Bar {
        let versions = self.objects() * self.chain;
        let of = format!("{versions} versions of {} B, the same tenth changed", self.value);
        match what {
            "bytes" => Bar::at_most(format!("{of}: bytes on disk to plain"), ratio, BYTES_MAX),
            _ => Bar::at_least(format!("{of}: rate to plain"), ratio, RATE_MIN),
        }
    }
}

fn line(one: &Kept) -> String {
    format!(
        "{:<12} {:<16} {:>8.0} versions/s, {:>6.0} B a version on disk, {:.1} s to close, cores: \
         {:.2}, others {:.2}",
        one.workload.name(),
        one.ancestor.name(),
        one.versions_a_second,
        one.disk_bytes as f64 / one.versions as f64,
        one.closing_seconds,
        one.cores,
        one.others_cores.unwrap_or(f64::NAN)
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const DELTA: KvDelta =
        KvDelta { versions: 1_600_000, chain: 1000, value: 1000, rounds: 3, seed: 1 };

    fn kept(ancestor: Ancestor, round: usize, disk_bytes: u64, versions_a_second: f64) -> Kept {
        Kept {
            workload: Workload::SameTenth,
            ancestor,
            round,
            versions: 10,
            versions_a_second,
            disk_bytes,
            closing_seconds: 0.0,
            cores: 1.0,
            others_cores: None,
        }
    }

    #[test]
    fn the_bars_are_bytes_and_rate_of_the_same_tenth() {
        let mut all = Vec::new();
        for (round, rate) in [100.0, 900.0, 200.0].into_iter().enumerate() {
            all.push(kept(Ancestor::None, round, 10_000, rate));
            all.push(kept(Ancestor::Nearest, round, 2_900, rate * 0.65));
        }
        let mut report = Report::new("kv-delta", true);
        DELTA.conclude(&mut report, &all);
        assert_eq!(report.bars.len(), 2);
        assert!(report.is_met(), "{:?}", report.bars);
        assert!(report.bars[0].name.contains("1600000 versions of 1000 B"));
        assert!((report.ratios["same_tenth_nearest_ancestor_bytes_to_plain"] - 0.29).abs() < 1e-9);
        assert!((report.ratios["same_tenth_nearest_ancestor_rate_to_plain"] - 0.65).abs() < 1e-9);
        assert_eq!(report.ratios.len(), 2, "nothing of what was not measured");
        let mut missed = Report::new("kv-delta", true);
        all.iter_mut().for_each(|one| one.disk_bytes = 10_000);
        DELTA.conclude(&mut missed, &all);
        assert!(!missed.is_met());
    }

    #[test]
    fn numbers_have_bounds() {
        let bench = Bench {
            program: "hold".into(),
            dir: None,
            quick: true,
            stop: crate::Stop::default(),
            tell: Box::new(|_| ()),
        };
        let checked = DELTA.checked(&bench).unwrap();
        assert_eq!((checked.versions, checked.chain, checked.rounds), (8000, 40, 1));
        for bad in [
            KvDelta { versions: 0, ..DELTA },
            KvDelta { chain: 0, ..DELTA },
            KvDelta { value: 9, ..DELTA },
            KvDelta { rounds: 21, ..DELTA },
        ] {
            assert!(matches!(bad.run(&bench), Err(BenchError::Argument { .. })), "{bad:?}");
        }
    }
}
