//! What a version costs: `cargo bench -p version [-- VALUE_BYTES ...]`.
//!
//! One core; the thread's own processor time, the best of several rounds, in nanoseconds a version and gigabytes (10^9) of
//! values a second. Absolute figures do not repeat on shared machines: look at the ratios to the plain hash of the same
//! bytes, which is the floor.
#![allow(clippy::unwrap_used, reason = "a program that stops at the first failure")]

use std::hint::black_box;

use crypto::{NetworkId, RecordId, Suite};
use rustix::time::{ClockId, clock_gettime};
use version::{Bases, BatchAttester, Codecs, Form, ObjectKey, ValueKind, Version, View, splice};

const SUITE: Suite = Suite::Holdfast1;
const ROUNDS: usize = 5;
/// Values from this length on are hashed one by one.
const SIDE_BY_SIDE_BYTES: usize = 1900;
/// Bytes of values in one round.
const ROUND_BYTES: usize = 16 << 20;

fn seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let hashes = (0..length.div_ceil(32) as u64)
        .flat_map(|i| SUITE.hash(&[i.to_be_bytes(), seed.to_be_bytes()].concat()));
    hashes.take(length).collect()
}

fn measured(what: &str, value_bytes: usize, floor: Option<f64>, mut run: impl FnMut()) -> f64 {
    let times = (ROUND_BYTES / value_bytes).clamp(4, 20_000);
    let round = |_| {
        let start = seconds();
        (0..times).for_each(|_| run());
        (seconds() - start) / times as f64
    };
    let best = (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min);
    let ratio = floor.map(|floor| format!("{:8.2} times the hash", best / floor));
    let rate = value_bytes as f64 / best / 1e9;
    println!(
        "{value_bytes:>9} B  {what:<36} {:>10.0} ns {rate:>8.2} GB/s {}",
        best * 1e9,
        ratio.unwrap_or_default()
    );
    best
}

fn bench(value_bytes: usize) {
    let base = noise(1, value_bytes);
    let ancestor = RecordId::new([5; 32]);
    let (tenth, third) = (value_bytes / 10, value_bytes / 3);
    let mut edited = base.clone();
    edited[third..third + tenth].copy_from_slice(&noise(2, tenth));
    let mut scattered = base.clone();
    scattered.iter_mut().step_by(10).for_each(|byte| *byte ^= 0xff);
    let moved = [&noise(3, 20)[..], &base[..value_bytes - 20]].concat();
    let fresh = noise(4, value_bytes);
    let view = |value| {
        let bases = Bases::one(ancestor);
        View { object: ObjectKey::new([7; 32]), bases, l: 9, kind: ValueKind::Bytes, value }
    };
    let encoded = view(&edited).encode();
    let floor = measured("hash of its bytes", value_bytes, None, || {
        black_box(SUITE.id(black_box(&encoded)));
    });
    let floor = Some(floor);
    if value_bytes < SIDE_BY_SIDE_BYTES {
        // As many as a vector has lanes: a sixteenth of what they take.
        let (messages, mut hashes) = ([&encoded[..]; 16], [[0; 32]; 16]);
        let mut count = 0;
        measured("hash, side by side with 15 others", value_bytes, floor, || {
            if count % 16 == 0 {
                SUITE.hash_each(black_box(&messages), black_box(&mut hashes));
            }
            count += 1;
        });
    }
    measured("encode", value_bytes, floor, || {
        black_box(black_box(view(&edited)).encode());
    });
    measured("encode and hash", value_bytes, floor, || {
        black_box(SUITE.id(&black_box(view(&edited)).encode()));
    });
    measured("decode", value_bytes, floor, || {
        black_box(Version::decode(black_box(&encoded)).unwrap());
    });
    let mut batch = BatchAttester::new(SUITE, NetworkId::new([9; 32]), 1);
    measured("leaf of a batch", value_bytes, floor, || {
        if batch.len() == version::attestation::ATTESTED_MAX {
            batch = BatchAttester::new(SUITE, NetworkId::new([9; 32]), 1);
        }
        batch.add(&ancestor).unwrap();
    });
    let codecs = Codecs::new();
    let mut out = Vec::with_capacity(2 * value_bytes + 200);
    for (what, value) in [
        ("a tenth in one place", &edited),
        ("a tenth in single bytes", &scattered),
        ("moved by 20 bytes", &moved),
        ("all new", &fresh),
    ] {
        measured(&format!("splice: {what}"), value_bytes, floor, || {
            out.clear();
            black_box(splice::compress(&base, black_box(value), value.len() / 2, &mut out));
        });
        let form = codecs.compress(&view(value), &ancestor, &base);
        measured(&format!("form: {what}"), value_bytes, floor, || {
            out.clear();
            black_box(codecs.compress_into(&view(black_box(value)), &ancestor, &base, &mut out));
        });
        let Some(form) = form else { continue };
        println!("{:>13} {} of {} bytes, codec {}", "", form.len(), encoded.len(), form[0]);
        measured(&format!("expand: {what}"), value_bytes, floor, || {
            let form = Form::decode(black_box(&form)).unwrap();
            black_box(form.expand(&codecs, &base).unwrap());
        });
    }
}

fn main() {
    let given = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let given: Vec<usize> = given.filter(|bytes| *bytes >= 40).collect();
    let usual = vec![100, 1_000, 1 << 10, 10 << 10, 1 << 20];
    for value_bytes in if given.is_empty() { usual } else { given } {
        bench(value_bytes);
    }
}
