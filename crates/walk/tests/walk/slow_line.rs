//! Records over lines that are slow: all bytes come through, once, and nobody is blamed.

use std::time::Duration;

use crypto::Suite;
use document::Striped;
use env::Env;
use futures::future::join_all;
use testkit::network::{Fault, page, stripe};
use testkit::time::run;
use walk::{Health, StripeRecords, StripeShape};

use super::stripe_store::{K, N, S};
use super::{LONG, PAGES, Stage};

/// Bytes of a fragment.
const FRAGMENT: usize = 1 << 20;
/// Lines of 1, 4, 10 and 40 Mbit/s, in bytes a second.
const RATES: [u64; 4] = [125_000, 500_000, 1_250_000, 5_000_000];
/// Bytes of one hundred that may be sent twice: what is hedged before anything is known of the line.
const TWICE_PERCENT: u64 = 4;
/// As long as it takes.
const HOUR: Duration = Duration::from_secs(3_600);

fn striped(count: usize) -> Vec<Striped> {
    striped_of(count, FRAGMENT)
}

fn striped_of(count: usize, fragment: usize) -> Vec<Striped> {
    (0..count).map(|number| stripe(number, K, N, fragment)).collect()
}

fn bytes_of(stripes: &[Striped]) -> u64 {
    stripes
        .iter()
        .flat_map(|one| one.fragments.iter().chain(std::iter::repeat_n(&one.header, N)))
        .map(|record| record.bytes.len() as u64)
        .sum()
}

/// Stores stripes at the same time; every fragment must become durable.
async fn store_all(stage: &Stage, stripes: &[Striped]) {
    let stored = stripes.iter().map(|striped| async {
        let Striped { header, fragments, .. } = striped.clone();
        let records = StripeRecords { header, fragments, threshold: S };
        let mut stored = stage.walker.store_stripe(records).await.unwrap();
        assert!(stored.rest.wait(HOUR).await.is_full());
    });
    join_all(stored).await;
}

fn all_well(stage: &Stage) {
    for number in 0..stage.peers.len() {
        assert_eq!(stage.directory.health(&stage.peer(number)), Health::Healthy, "{number}");
    }
}

/// How long so many bytes take at least.
fn ideal(bytes: u64, rate: u64) -> Duration {
    Duration::from_micros(bytes * 1_000_000 / rate)
}

#[test]
fn stripes_that_are_sent_at_once_all_come_through_once_and_no_peer_is_blamed() {
    for rate in RATES {
        run(1, |env| async move {
            let stage = Stage::new(&env, 3, 12);
            stage.network.line(Some(rate));
            let stripes = striped(6);
            store_all(&stage, &stripes).await;
            let (needed, sent) = (bytes_of(&stripes), stage.network.line_sent());
            assert!(sent <= needed + needed * TWICE_PERCENT / 100, "{sent} of {needed} at {rate}");
            let took = env.clock.elapsed();
            let ideal = ideal(needed, rate);
            assert!(took <= ideal * 5 / 4 + Duration::from_secs(1), "{took:?} of {ideal:?}");
            all_well(&stage);
        });
    }
}

#[test]
fn pages_that_are_overdue_while_nothing_is_known_come_through_once() {
    // Two pages of 2 MiB take 8.4 s here, and while nothing is known of the line they are overdue after 6.
    let rate = 500_000;
    run(6, |env| async move {
        let stage = Stage::new(&env, 3, 12);
        stage.network.line(Some(rate));
        let stripes = striped_of(3, 2 << 20);
        store_all(&stage, &stripes).await;
        let (needed, sent) = (bytes_of(&stripes), stage.network.line_sent());
        assert!(sent <= needed + needed * TWICE_PERCENT / 100, "{sent} of {needed}");
        all_well(&stage);
    });
}

#[test]
fn copies_that_are_sent_at_once_all_come_through_once() {
    for rate in RATES {
        run(2, |env| async move {
            let stage = Stage::new(&env, 3, 9);
            stage.network.line(Some(rate));
            let pages: Vec<_> = (0..16).map(|n| page(Suite::Holdfast1, n, FRAGMENT)).collect();
            let needed: u64 = pages.iter().map(|page| page.bytes.len() as u64 * 3).sum();
            join_all(pages.into_iter().map(|page| async {
                let mut stored = stage.walker.store(page, PAGES).await.unwrap();
                assert!(stored.rest.wait(HOUR).await.is_full());
            }))
            .await;
            let sent = stage.network.line_sent();
            assert!(sent <= needed + needed * TWICE_PERCENT / 100, "{sent} of {needed} at {rate}");
            all_well(&stage);
        });
    }
}

#[test]
fn stripes_that_are_fetched_at_once_all_come() {
    for rate in RATES {
        run(3, |env| async move {
            let stage = Stage::new(&env, 3, 12);
            let stripes = striped(6);
            store_all(&stage, &stripes).await;
            stage.network.line(Some(rate));
            let since = env.clock.elapsed();
            join_all(stripes.iter().map(|striped| async {
                let Striped { header, stripe, .. } = striped;
                let shape = StripeShape::new(header.id, stripe);
                let fetched = stage.walker.fetch_stripe(&shape, 0..K).await.unwrap();
                assert_eq!(fetched.fragments.len(), K);
            }))
            .await;
            let took = env.clock.elapsed() - since;
            let ideal = ideal((6 * K * FRAGMENT) as u64, rate);
            assert!(took <= ideal * 3 / 2 + Duration::from_secs(1), "{took:?} of {ideal:?}");
            all_well(&stage);
        });
    }
}

#[test]
fn a_line_that_becomes_slow_under_a_full_window_is_found_out_and_the_next_stripes_come_through() {
    run(4, |env| async move {
        let stage = Stage::new(&env, 3, 12);
        stage.network.line(Some(50_000_000));
        store_all(&stage, &striped(12)).await;
        all_well(&stage);
        stage.network.line(Some(6_000_000));
        let more: Vec<Striped> = (100..108).map(|number| stripe(number, K, N, FRAGMENT)).collect();
        for some in more.chunks(4) {
            store_all(&stage, some).await;
        }
        // Some were late by what was usual before, and nobody is given up for it.
        for number in 0..stage.peers.len() {
            assert_ne!(stage.directory.health(&stage.peer(number)), Health::Away);
        }
    });
}

#[test]
fn one_slow_peer_is_not_taken_for_a_slow_line() {
    run(5, |env: Env| async move {
        let stage = Stage::new(&env, 3, 12);
        stage.network.line(Some(100_000_000));
        stage.set(3, Fault::Delay(Duration::from_secs(4)));
        let stripes = striped(24);
        let needed = bytes_of(&stripes);
        for some in stripes.chunks(4) {
            store_all(&stage, some).await;
        }
        assert!(stage.walker.patience().is_zero());
        // The slow peer's own fragments, of which several are finished behind each other, are all that takes longer.
        let took = env.clock.elapsed();
        assert!(took < ideal(needed, 100_000_000) + Duration::from_secs(20), "{took:?}");
        assert_eq!(stage.walker.drain(LONG).await, 0);
    });
}
