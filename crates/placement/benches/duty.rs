//! What it costs to say whose duty a record is, and what mends a stripe: `cargo bench -p placement`.
//!
//! Nanoseconds are the thread's own processor time for one record, the least of some rounds. Every peer of the view is
//! drawn for every record (that is the hash, and the floor: *draws alone*), then the first n are found among them. *By key*
//! builds lists of keys, *by index* writes into a list of the caller's. *Some absent* is one peer in eight.
#![allow(clippy::unwrap_used, reason = "a program that stops at the first failure")]

use std::collections::BTreeSet;
use std::hint::black_box;

use crypto::{OrgId, PeerId, Place, SecretKey, Suite};
use placement::{Candidate, SPARES, StripeNow, View, plan};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 7;
/// Peers, and their organisations.
const NETWORKS: [(usize, usize); 3] = [(24, 6), (64, 8), (1_000, 50)];
/// Holders: of a page, of an entry, of a stripe of 8/16 and of 16/48.
const HOLDERS: [usize; 4] = [3, 9, 16 + SPARES, 48 + SPARES];
/// Peers drawn in one round, all records together.
const DRAWS: usize = 200_000;

fn main() {
    println!("peers  n    draws alone  by key  by index  by index, some absent   (ns a record)");
    for (peers, organisations) in NETWORKS {
        let view = view(peers, organisations);
        for n in HOLDERS.into_iter().filter(|n| *n < peers) {
            row(&view, n);
        }
    }
    for (k, n) in [(8, 16), (16, 48)] {
        stripe(k, n);
    }
}

fn view(peers: usize, organisations: usize) -> View {
    let id = |n: usize| {
        let mut bytes = [1; 32];
        bytes[24..].copy_from_slice(&(n as u64 + 1).to_be_bytes());
        SecretKey::from_bytes(&bytes).unwrap().public()
    };
    let candidates = (0..peers).map(|peer| Candidate {
        peer: PeerId::new(id(peer)),
        organisation: OrgId::new(id((1 << 20) + peer % organisations)),
        weight: 1 << 40,
    });
    View::new(0, candidates.collect())
}

fn row(view: &View, n: usize) {
    let places: Vec<Place> = (0..(DRAWS / view.len()) as u64)
        .map(|number| Place::new(Suite::Holdfast1.hash(&number.to_be_bytes())))
        .collect();
    let (none, some) = (vec![false; view.len()], (0..view.len()).map(|i| i % 8 == 0).collect());
    let point = [7; 32];
    let draws = best(&places, |place| {
        for _ in 0..view.len() {
            // What is hashed for one draw, without its domain's meaning.
            let input = [&point[..], place.as_bytes(), &point[..22]].concat();
            black_box(blake3::hash(&input));
        }
    });
    let by_key = best(&places, |place| {
        black_box(view.on_duty(place, n, |_| false));
    });
    let mut out = Vec::new();
    let mut by_index = |absent: &Vec<bool>| {
        best(&places, |place| {
            view.on_duty_into(place, n, absent, &mut out);
            black_box(&out);
        })
    };
    let (whole, fewer) = (by_index(&none), by_index(&some));
    println!("{:>5}  {n:<4} {draws:>11.0} {by_key:>7.0} {whole:>9.0} {fewer:>10.0}", view.len());
}

/// A stripe as it should be, and one that lost a third of its fragments.
fn stripe(k: usize, n: usize) {
    let view = view(n + SPARES, 4);
    let possible: Vec<PeerId> = view.candidates().iter().map(|one| one.peer).collect();
    let whole: Vec<(u8, PeerId)> = (0..n as u8).zip(possible.iter().copied()).collect();
    let left: Vec<_> = whole.iter().filter(|(index, _)| index % 3 > 0).copied().collect();
    let leaving = BTreeSet::new();
    for (name, whole) in [("whole", &whole), ("a third lost", &left)] {
        let now = StripeNow { k, n, whole, possible: &possible, leaving: &leaving };
        let ns = best(&[(); 2_000], |()| {
            black_box(plan(&now));
        });
        println!("a plan for a stripe of {k}/{n}, {name}: {:.1} us", ns / 1e3);
    }
}

fn best<T>(over: &[T], mut what: impl FnMut(&T)) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let started = processor_ns();
        over.iter().for_each(&mut what);
        (processor_ns() - started) as f64 / over.len() as f64
    });
    rounds.fold(f64::INFINITY, f64::min)
}

fn processor_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
