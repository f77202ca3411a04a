//! Runs decoders on their committed corpus, on mutations of it and on random bytes, with a stable compiler.
//!
//! The seed of the random part is printed by a failing test; `HOLD_FUZZ_SEED` repeats it, and `HOLD_FUZZ_CASES` asks for more
//! than the default.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::Target;
use crate::golden;

const CASES: u64 = 2_000;

/// The folder of the corpus and of the targets of `cargo fuzz`.
fn root() -> PathBuf {
    Path::new(crate::manifest!()).join("../../fuzz")
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = root().join("corpus").join(target.name);
    if golden::updating() {
        std::fs::create_dir_all(&folder).expect("readable");
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed).expect("readable");
        }
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("readable")
        .map(|file| file.expect("readable").path())
        .collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("readable")).collect()
}

fn mutated(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut data = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(3) {
        let at = random.below(data.len() + 1);
        match random.below(6) {
            0 => data.truncate(at),
            1 => data.insert(at, random.next() as u8),
            2 if at < data.len() => {
                data.remove(at);
            }
            3 if at < data.len() => data[at] = random.next() as u8,
            4 => {
                // A part of another, or of the same, put in: duplicates and swapped fields.
                let other = &corpus[random.below(corpus.len())];
                let (from, to) = (random.below(other.len()), random.below(other.len()));
                let part = other[from.min(to)..from.max(to)].to_vec();
                data.splice(at..at, part);
            }
            _ if at < data.len() => data[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
    data
}

fn run(target: &Target, data: &[u8], seed: u64) {
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(data)));
    let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(result.is_ok(), "{} broke with HOLD_FUZZ_SEED={seed} on {hex}", target.name);
}

/// Runs targets on their corpus, on mutations of it and on noise.
///
/// # Panics
/// Where one breaks a promise.
pub fn exercise(targets: impl Iterator<Item = Target>) {
    let seed = number("HOLD_FUZZ_SEED", u64::from(std::process::id()));
    let cases = number("HOLD_FUZZ_CASES", CASES);
    for target in targets {
        let mut random = Random(seed);
        let corpus = corpus(&target);
        for data in &corpus {
            run(&target, data, seed);
        }
        for _ in 0..cases {
            run(&target, &mutated(&mut random, &corpus), seed);
            let length = random.below(120);
            let noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            run(&target, &noise, seed);
        }
    }
}

/// Whether the corpus has what today's code writes: it decodes, so mutations start near to what is valid.
///
/// # Panics
/// Where it has not.
pub fn has_the_seeds(targets: impl Iterator<Item = Target>) {
    for target in targets {
        let corpus = corpus(&target);
        for seed in (target.seeds)() {
            assert!(corpus.contains(&seed), "{}: HOLD_GOLDEN=update writes the seeds", target.name);
        }
    }
}

/// Whether `cargo fuzz` has each of them.
///
/// # Panics
/// Where it has not.
pub fn has_a_file_for_each(targets: impl Iterator<Item = Target>) {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("readable");
    for target in targets {
        let file = root().join("fuzz_targets").join(format!("{}.rs", target.name));
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(text.contains(&format!("\"{}\"", target.name)), "{} is missing", file.display());
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
    }
}
