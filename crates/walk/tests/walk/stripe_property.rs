//! What was acknowledged of a stripe brings its pages back after any s - k losses, what is full after any n - k, whatever
//! else goes wrong, and also where the roster changed meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use crypto::{RecordId, Taught};
use document::Striped;
use env::calls::CallError;
use placement::Profile;
use proptest::prelude::*;
use proptest::sample::Index;
use testkit::network::{Fault, stripe};
use testkit::time::run;
use walk::{Fetched, StripeRecords};

use super::rosters::joined;
use super::stripe_fetch::{is_right, shape};
use super::{LONG, Stage};

/// Faults that a peer may have while stripes are stored. None of them acknowledges what it does not keep.
fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        12 => Just(Fault::None),
        1 => Just(Fault::Down),
        1 => Just(Fault::Hang),
        1 => (1_u64..12_000).prop_map(|ms| Fault::Delay(Duration::from_millis(ms))),
        1 => Just(Fault::Writes(CallError::Full)),
        1 => Just(Fault::Error(CallError::Busy { retry_after: Duration::from_secs(1) })),
        1 => Just(Fault::Flip),
        1 => Just(Fault::Garbage),
    ]
}

/// Faults of peers that lost their fragment, or lie about it.
fn loss() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Down),
        Just(Fault::Hang),
        Just(Fault::Flip),
        Just(Fault::Garbage),
        Just(Fault::Deny),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    faults: Vec<Fault>,
    profile: (u32, u32),
    losses: Vec<(Index, Fault)>,
    full: bool,
    joins: bool,
    wanted: (Index, Index),
}

fn case() -> impl Strategy<Value = Case> {
    let faults = prop::collection::vec(fault(), 4..18);
    let profile = prop::sample::select(vec![(1, 2), (2, 3), (4, 8), (5, 9), (8, 12)]);
    let losses = prop::collection::vec((any::<Index>(), loss()), 8);
    let wanted = (any::<Index>(), any::<Index>());
    (faults, profile, losses, any::<bool>(), any::<bool>(), wanted).prop_map(
        |(faults, profile, losses, full, joins, wanted)| Case {
            faults,
            profile,
            losses,
            full,
            joins,
            wanted,
        },
    )
}

/// The reference: which fragments are at the peers that the walk says have one, each at one that is not lost.
fn left(stage: &Stage, striped: &Striped, holders: &[usize]) -> BTreeMap<usize, usize> {
    let index = |id: &RecordId| striped.fragments.iter().position(|of| of.id == *id);
    let held = holders.iter().flat_map(|peer| {
        let all = stage.peers[*peer].all();
        all.into_iter().map(move |record| (record.id, *peer)).collect::<Vec<_>>()
    });
    held.filter_map(|(id, peer)| Some((index(&id)?, peer))).collect()
}

fn is_enough(fetched: &Fetched, k: usize, wanted: std::ops::Range<usize>) -> bool {
    let has = |index: usize| fetched.fragments.iter().any(|(of, _)| *of == index);
    fetched.fragments.len() >= k || wanted.into_iter().all(has)
}

async fn check(env: env::Env, case: Case) -> Result<(), TestCaseError> {
    let mut stage = Stage::new(&env, 3, case.faults.len());
    for (number, fault) in case.faults.iter().enumerate() {
        stage.set(number, fault.clone());
    }
    let (k, n) = (case.profile.0 as usize, case.profile.1 as usize);
    let threshold = Profile::Stripe { k: case.profile.0, n: case.profile.1 }.threshold();
    let striped = stripe(1, k, n, 40);
    let Striped { header, fragments, .. } = striped.clone();
    let stored = stage.walker.store_stripe(StripeRecords { header, fragments, threshold }).await;
    prop_assert!(env.clock.elapsed() < LONG);
    let Ok(mut stored) = stored else { return Ok(()) };
    prop_assert!(stored.acked >= threshold);
    let reached = if case.full { stored.rest.wait(LONG).await } else { stored.rest.reached() };
    let mut holders: Vec<usize> =
        reached.holders.iter().map(|holder| stage.number(holder)).collect();
    let acked = left(&stage, &striped, &holders);
    prop_assert_eq!(acked.len(), reached.acked as usize, "as many different fragments as holders");
    if case.joins {
        let roster = joined(&mut stage, &env, 3);
        prop_assert_eq!(stage.directory.learn_roster(&roster).ok(), Some(Taught::Newer));
        stage.directory.learn_from(&stage.community.known());
    }
    // All that was wrong may be right now; but as many of those that acknowledged may be lost as leave k.
    stage.network.heal();
    for (which, fault) in case.losses.iter().take(reached.acked as usize - k) {
        let lost = holders.remove(which.index(holders.len()));
        stage.set(lost, fault.clone());
    }
    prop_assert!(left(&stage, &striped, &holders).len() >= k);
    let (a, b) = (case.wanted.0.index(k), case.wanted.1.index(k));
    let wanted = a.min(b)..a.max(b) + 1;
    let fetched = stage.walker.fetch_stripe(&shape(&striped), wanted.clone()).await;
    let fetched = fetched.map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert!(is_right(&fetched, &striped));
    prop_assert!(is_enough(&fetched, k, wanted));
    prop_assert_eq!(stage.walker.drain(LONG).await, 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_comes_back(case in case(), seed in any::<u64>()) {
        run(seed, |env| check(env, case))?;
    }
}

#[test]
fn one_roster_apart_a_stripe_is_where_it_was() {
    run(1, |env| async move {
        let mut stage = Stage::new(&env, 3, 12);
        let stripes: Vec<Striped> = (0..12).map(|number| stripe(number, 4, 8, 50)).collect();
        for Striped { header, fragments, .. } in &stripes {
            let (header, fragments) = (header.clone(), fragments.clone());
            let records = StripeRecords { header, fragments, threshold: 7 };
            let mut stored = stage.walker.store_stripe(records).await.unwrap();
            assert!(stored.rest.wait(LONG).await.is_full());
        }
        let roster = joined(&mut stage, &env, 6);
        assert_eq!(stage.directory.learn_roster(&roster).unwrap(), Taught::Newer);
        stage.directory.learn_from(&stage.community.known());
        assert_eq!(stage.directory.view().len(), 18);
        let before = stage.network.total();
        for striped in &stripes {
            // One page first: by the roster before it is one call more than where it belongs now.
            let fetched = stage.walker.fetch_stripe(&shape(striped), 1..2).await.unwrap();
            assert!(is_right(&fetched, striped) && fetched.fragments[0].0 == 1);
            let fetched = stage.walker.fetch_stripe(&shape(striped), 0..4).await.unwrap();
            assert!(is_right(&fetched, striped) && is_enough(&fetched, 4, 0..4));
        }
        let calls = stage.network.total() - before;
        assert!(calls <= 12 * 20, "{calls} calls for 12 stripes");
    });
}
