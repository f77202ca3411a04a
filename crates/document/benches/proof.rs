//! What it costs to prove a chunk of a record, and to check the proof, beside hashing the record once.
//!
//! `cargo bench -p document --bench proof`. The ratios mean something where absolute figures do not (shared machines).

use std::hint::black_box;
use std::time::{Duration, Instant};

use crypto::Suite;
use document::proof::{prove_chunk, verify_chunk};

/// How long each row is measured.
const FOR: Duration = Duration::from_millis(500);

/// Microseconds of one run.
fn measured(mut run: impl FnMut(u32)) -> f64 {
    let (started, mut count) = (Instant::now(), 0_u32);
    while started.elapsed() < FOR {
        run(count.wrapping_mul(2_654_435_761));
        count += 1;
    }
    started.elapsed().as_secs_f64() * 1e6 / f64::from(count)
}

fn main() {
    println!(
        "{:>12} {:>12} {:>12} {:>12} {:>12}",
        "bytes", "hash us", "prove us", "check us", "proof B"
    );
    for length in [200, 16 << 10, 2 << 20, (2 << 20) + 100] {
        let bytes: Vec<u8> = (0..length).map(|i: u32| (i >> 3) as u8).collect();
        let id = Suite::Holdfast1.id(&bytes);
        let hash = measured(|_| _ = black_box(Suite::Holdfast1.id(black_box(&bytes))));
        let prove = measured(|chunk| drop(black_box(prove_chunk(black_box(&bytes), chunk))));
        let Some(proof) = prove_chunk(&bytes, 7) else { continue };
        let check = measured(|_| drop(black_box(verify_chunk(&id, 7, black_box(&proof)))));
        let sent = proof.chunk.len() + proof.path.len() + proof.last.len() + proof.last_path.len();
        println!("{length:>12} {hash:>12.2} {prove:>12.2} {check:>12.2} {sent:>12}");
    }
}
