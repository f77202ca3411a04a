//! What the network acknowledged is found again with the same bytes after any W - 1 losses, whatever else goes wrong.

use std::time::Duration;

use env::calls::CallError;
use placement::Redundancy;
use proptest::prelude::*;
use testkit::network::Fault;
use testkit::time::run;

use super::{LONG, Stage, small};

/// Faults that a peer may have while records are stored. None of them acknowledges what it does not keep.
fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        6 => Just(Fault::None),
        1 => Just(Fault::Down),
        1 => Just(Fault::Hang),
        1 => (1_u64..12_000).prop_map(|ms| Fault::Delay(Duration::from_millis(ms))),
        1 => Just(Fault::Writes(CallError::Full)),
        1 => Just(Fault::Writes(CallError::Denied { reason: String::new() })),
        1 => Just(Fault::Error(CallError::Busy { retry_after: Duration::from_secs(1) })),
        1 => Just(Fault::Flip),
        1 => Just(Fault::Garbage),
    ]
}

/// Faults of peers that lost their copy, or lie about it.
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
    organisations: usize,
    faults: Vec<Fault>,
    redundancy: Redundancy,
    records: usize,
    losses: Vec<(prop::sample::Index, Fault)>,
    full: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let faults = prop::collection::vec(fault(), 3..14);
    let losses = prop::collection::vec((any::<prop::sample::Index>(), loss()), 4);
    (1_usize..4, faults, 1_u32..6, 1_usize..4, losses, any::<bool>()).prop_map(
        |(organisations, faults, copies, records, losses, full)| Case {
            organisations,
            redundancy: Redundancy { copies, acknowledged: copies / 2 + 1 },
            faults,
            records,
            losses,
            full,
        },
    )
}

async fn check(env: env::Env, case: Case) -> Result<(), TestCaseError> {
    let stage = Stage::new(&env, case.organisations, case.faults.len());
    for (number, fault) in case.faults.iter().enumerate() {
        stage.set(number, fault.clone());
    }
    let mut acknowledged = Vec::new();
    for number in 0..case.records {
        let record = small(number);
        let stored = stage.walker.store(record.clone(), case.redundancy).await;
        prop_assert!(env.clock.elapsed() < LONG * (number as u32 + 1));
        if let Ok(mut stored) = stored {
            prop_assert!(stored.acked >= case.redundancy.acknowledged);
            let reached =
                if case.full { stored.rest.wait(LONG).await } else { stored.rest.reached() };
            acknowledged.push((record, reached));
        }
    }
    for (record, reached) in acknowledged {
        for holder in &reached.holders {
            prop_assert!(stage.peers[stage.number(holder)].holds(&record.id));
        }
        // All that was wrong may be right now, or not; but no more than W - 1 of those that acknowledged may be lost.
        stage.network.heal();
        let mut holders: Vec<usize> =
            reached.holders.iter().map(|holder| stage.number(holder)).collect();
        let losses = case.redundancy.acknowledged as usize - 1;
        for (which, fault) in case.losses.iter().take(losses) {
            let lost = holders.remove(which.index(holders.len()));
            stage.set(lost, fault.clone());
        }
        let found = stage.walker.find(Some(record.kind), record.id, record.place).await;
        prop_assert_eq!(found.map(|found| found.record).map_err(|e| e.to_string()), Ok(record));
    }
    prop_assert_eq!(stage.walker.drain(LONG).await, 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_is_found_again(case in case(), seed in any::<u64>()) {
        run(seed, |env| check(env, case))?;
    }
}
