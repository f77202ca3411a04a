//! The same seed gives the same events, in the same order, on whichever thread; other seeds give others.

use sim::trial::{self, Trial};
use sim::{Report, RunOptions};

fn on_a_thread(seed: u64) -> Report {
    let run = move || sim::run(seed, RunOptions::default());
    std::thread::spawn(run).join().expect("it ends")
}

#[test]
fn a_seed_repeats_itself() {
    let mut hashes = Vec::new();
    for seed in [3, 17, 40] {
        let first = on_a_thread(seed);
        assert!(first.events > 100, "something happens");
        assert_eq!(first, on_a_thread(seed));
        hashes.push(first.hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 3);
}

#[test]
fn a_trial_repeats_itself() {
    for trial in [Trial::Losses, Trial::Churn, Trial::Keeping] {
        let on_a_thread = |seed: u64| {
            let run = move || trial::run(seed, trial, RunOptions::default());
            std::thread::spawn(run).join().expect("it ends")
        };
        let first = on_a_thread(2);
        assert!(first.events > 100, "something happens");
        assert_eq!(first, on_a_thread(2), "{trial:?}");
        assert_ne!(first.hash, on_a_thread(3).hash);
    }
}

#[test]
fn a_comparison_of_slow_holders_repeats_itself() {
    let on_a_thread = || {
        let run = || trial::slow(2, RunOptions::default());
        std::thread::spawn(run).join().expect("it ends")
    };
    assert_eq!(on_a_thread(), on_a_thread());
}
