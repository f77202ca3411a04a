//! Rates of the code on every path of this processor, beside `reed-solomon-simd` on the same work: `cargo bench -p
//! erasure [-- PROFILE ...]`, where a profile is as in `16/48`.
//!
//! One core. GB/s are 10^9 bytes of *data* a second: k fragments in, whatever is made of them. Decoding makes all
//! data fragments that can be lost (the lesser of m and k) from the rest. Seconds are the thread's own processor time.
//! Absolute figures do not repeat on shared machines, so the contenders take turns and the
//! table shows the best of several rounds, and ratios.
//!
//! Where all pages can be lost (n = 2k) decoding makes as much as encoding, and must run at least [`BAR`] as fast on
//! the path that a code takes here: else the exit code is 1.
#![allow(clippy::unwrap_used, reason = "a program that stops at the first failure")]

use std::process::ExitCode;

use erasure::{Code, Given, Path, Wanted};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 7;
const PROFILES: [(usize, usize); 7] =
    [(4, 8), (8, 16), (8, 24), (16, 48), (10, 16), (16, 64), (29, 80)];
/// A page of a long file, one of a short file, and fragments that stay in the second-level cache.
const FRAGMENT_BYTES: [usize; 3] = [2 << 20, 64 << 10, 4 << 10];
/// What decoding must reach of encoding, where both make k fragments.
const BAR: f64 = 0.5;
/// Work of one round, in bytes of data.
const ROUND_BYTES: usize = 32 << 20;

struct Stripe {
    code: Code,
    data: Vec<Vec<u8>>,
    parity: Vec<Vec<u8>>,
    back: Vec<Vec<u8>>,
}

impl Stripe {
    fn new(path: Path, (k, n): (usize, usize), length: usize) -> Self {
        let code = Code::on(path, k, n).unwrap();
        let data = (0..k).map(|seed| bytes(seed, length)).collect();
        let lost = k.min(n - k);
        let (parity, back) = (vec![vec![1; length]; n - k], vec![vec![1; length]; lost]);
        Self { code, data, parity, back }
    }

    fn encode(&mut self) {
        let data: Vec<&[u8]> = self.data.iter().map(|row| &row[..]).collect();
        let mut rooms: Vec<&mut [u8]> = self.parity.iter_mut().map(|row| &mut row[..]).collect();
        self.code.encode(&data, &mut rooms).unwrap();
    }

    fn decode(&mut self) {
        let (k, lost) = (self.data.len(), self.back.len());
        let parity = self.parity.iter().enumerate().take(lost);
        let given: Vec<Given<'_>> = (lost..k)
            .map(|index| Given { index, bytes: &self.data[index] })
            .chain(parity.map(|(row, bytes)| Given { index: k + row, bytes }))
            .collect();
        let back = self.back.iter_mut().enumerate();
        let mut wanted: Vec<Wanted<'_>> =
            back.map(|(index, bytes)| Wanted { index, bytes }).collect();
        self.code.reconstruct(self.data[0].len(), &given, &mut wanted).unwrap();
    }

    fn bytes(&self) -> usize {
        self.data.len() * self.data[0].len()
    }
}

fn theirs_encode(data: &[Vec<u8>], parity: usize) -> Vec<Vec<u8>> {
    reed_solomon_simd::encode(data.len(), parity, data).unwrap()
}

fn theirs_decode(data: &[Vec<u8>], parity: &[Vec<u8>]) {
    let lost = data.len().min(parity.len());
    let kept = data.iter().enumerate().skip(lost);
    let parity_given = parity.iter().enumerate().take(lost);
    let back = reed_solomon_simd::decode(data.len(), parity.len(), kept, parity_given).unwrap();
    assert_eq!(back.len(), lost);
}

fn bytes(seed: usize, length: usize) -> Vec<u8> {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// GB/s of data over about [`ROUND_BYTES`].
fn rate(data_bytes: usize, mut work: impl FnMut()) -> f64 {
    let times = (ROUND_BYTES / data_bytes).max(1);
    let start = processor_seconds();
    (0..times).for_each(|_| work());
    (times * data_bytes) as f64 / (processor_seconds() - start) / 1e9
}

/// Processor time of this thread, in seconds.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn best(rates: Vec<f64>) -> f64 {
    rates.into_iter().fold(0.0, f64::max)
}

fn main() -> ExitCode {
    let paths = Path::available();
    let mut slow = false;
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| arg.contains('/')).collect();
    for length in FRAGMENT_BYTES {
        println!("\nfragments of {} KiB, GB/s of data: encode, decode", length >> 10);
        print!("{:>8}", "k/n");
        paths.iter().for_each(|path| print!("{:>18}", path.name()));
        println!("{:>20}{:>18}", "reed-solomon-simd", "ours is");
        let wanted =
            |(k, n): &(usize, usize)| asked.is_empty() || asked.contains(&format!("{k}/{n}"));
        for profile in PROFILES.into_iter().filter(wanted) {
            slow |= row(&paths, profile, length) < BAR;
        }
    }
    println!("\nof k/2k, decode to encode at least {BAR}: {}", if slow { "missed" } else { "met" });
    if slow { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Measures and prints a row; how fast decoding is beside encoding, of which nothing is promised but for n = 2k.
fn row(paths: &[Path], (k, n): (usize, usize), length: usize) -> f64 {
    let mut stripes: Vec<Stripe> =
        paths.iter().map(|path| Stripe::new(*path, (k, n), length)).collect();
    let theirs_parity = theirs_encode(&stripes[0].data, n - k);
    // Contenders by rounds, ours first, theirs last; encode and decode.
    let mut rates = vec![(Vec::new(), Vec::new()); paths.len() + 1];
    for _ in 0..ROUNDS {
        for (stripe, rates) in stripes.iter_mut().zip(&mut rates) {
            let size = stripe.bytes();
            rates.0.push(rate(size, || stripe.encode()));
            rates.1.push(rate(size, || stripe.decode()));
            assert!(stripe.back.iter().zip(&stripe.data).all(|(back, data)| back == data));
        }
        let data = &stripes[0].data;
        let theirs = &mut rates[paths.len()];
        theirs.0.push(rate(k * length, || drop(theirs_encode(data, n - k))));
        theirs.1.push(rate(k * length, || theirs_decode(data, &theirs_parity)));
    }
    print!("{:>8}", format!("{k}/{n}"));
    let rates: Vec<(f64, f64)> = rates.into_iter().map(|(a, b)| (best(a), best(b))).collect();
    rates.iter().for_each(|(encode, decode)| print!("{encode:>10.2}, {decode:>6.2}"));
    let (ours, theirs) = (rates[0], rates[paths.len()]);
    let decode_to_encode = if n == 2 * k { ours.1 / ours.0 } else { f64::INFINITY };
    print!("{:>9.1}x, {:.1}x", ours.0 / theirs.0, ours.1 / theirs.1);
    if n == 2 * k {
        print!("   decode to encode {decode_to_encode:.2}");
    }
    println!();
    decode_to_encode
}
