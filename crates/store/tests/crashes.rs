//! Random operations with power cuts against a model: what was acknowledged survives, and nothing
//! wrong is ever read.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use env::Env;
use env::disk::Disk;
use proptest::prelude::*;
use store::{
    CompactionOptions, Durability, LogOptions, LogStore, PlantedBug, RecordStore, StoreError,
};
use testkit::disk::FaultyDisk;
use testkit::store::record;
use testkit::time::run;

/// Records there are, by number; a record's number decides its bytes.
const RECORDS: usize = 12;

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<usize>),
    Remove(Vec<usize>),
    Get(usize),
    /// Close and open again.
    Reopen,
    /// Give back the space of what was removed.
    Compact,
    /// The power goes now.
    Crash,
    /// The power goes after so many more operations of the disk, in whatever the store does then.
    CrashAfter(u64),
    /// One byte changes somewhere.
    Rot,
    FailWrite,
    FailSync,
}

/// What is known of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    There,
    Gone,
    /// A write of it was not answered, or failed: either is right until the next answer.
    Either,
}

fn step(rot: bool) -> impl Strategy<Value = Step> {
    let numbers = || proptest::collection::vec(0..RECORDS, 1..5);
    prop_oneof![
        8 => numbers().prop_map(Step::Put),
        3 => numbers().prop_map(Step::Remove),
        3 => (0..RECORDS).prop_map(Step::Get),
        1 => Just(Step::Reopen),
        3 => Just(Step::Compact),
        1 => Just(Step::Crash),
        2 => (0u64..6).prop_map(Step::CrashAfter),
        1 => Just(if rot { Step::Rot } else { Step::Reopen }),
        1 => Just(Step::FailWrite),
        1 => Just(Step::FailSync),
    ]
}

fn len_of(number: usize) -> usize {
    [0, 10, 500, 1500, 3000][number % 5]
}

struct Run {
    env: Env,
    disk: FaultyDisk,
    store: Arc<LogStore>,
    durability: Durability,
    bug: Option<PlantedBug>,
    known: BTreeMap<usize, Known>,
    /// Whether a disk that lies or rots excuses losses.
    lossy: bool,
}

impl Run {
    fn new(
        seed: u64,
        env: Env,
        durability: Durability,
        bug: Option<PlantedBug>,
        lossy: bool,
    ) -> Self {
        let disk = FaultyDisk::new(seed);
        let store = Self::open(&disk, &env, durability, bug).unwrap();
        Self { env, disk, store, durability, bug, known: BTreeMap::new(), lossy }
    }

    fn open(
        disk: &FaultyDisk,
        env: &Env,
        durability: Durability,
        bug: Option<PlantedBug>,
    ) -> Result<Arc<LogStore>, StoreError> {
        let options = LogOptions {
            durability,
            segment_bytes_max: 4 << 10,
            reserve_free_bytes: 0,
            ..LogOptions::default()
        };
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        match bug {
            None => LogStore::open(disk, env.clone(), options),
            Some(bug) => LogStore::open_with_bug(disk, env.clone(), options, bug),
        }
    }

    /// Opens what is there; where the power goes meanwhile, what is left then.
    fn reopen(&mut self, disk: FaultyDisk) {
        self.disk = disk;
        loop {
            match Self::open(&self.disk, &self.env, self.durability, self.bug) {
                Ok(store) => break self.store = store,
                Err(_) if !self.disk.is_powered() => {
                    self.disk = self.disk.crash();
                    self.after_crash();
                }
                Err(error) => panic!("what a crash or rot left does not open: {error}"),
            }
        }
    }

    fn wrote(&mut self, numbers: &[usize], known: Known, answered: bool) {
        for number in numbers {
            self.known.insert(*number, if answered { known } else { Known::Either });
        }
    }

    /// What a power cut forgives: nothing that was acknowledged, except on a disk or a setting that
    /// promises less.
    fn after_crash(&mut self) {
        if !self.durability.syncs_before_answer() {
            self.known.values_mut().for_each(|known| *known = Known::Either);
        }
    }

    async fn check(&self, number: usize) -> Result<(), String> {
        let wanted = record(number, len_of(number));
        let known = self.known.get(&number).copied().unwrap_or(Known::Gone);
        match self.store.get(&wanted.id).await {
            Ok(Some(found)) if found != wanted => Err(format!("{number} has other bytes")),
            Ok(Some(_)) if known == Known::Gone && !self.lossy => Err(format!("{number} is back")),
            Ok(None) | Err(StoreError::Damaged { .. }) if known == Known::There && !self.lossy => {
                Err(format!("{number} was acknowledged and is lost"))
            }
            Ok(_) | Err(StoreError::Damaged { .. }) => Ok(()),
            Err(_) if !self.disk.is_powered() => Ok(()),
            Err(error) => Err(format!("{number}: {error}")),
        }
    }

    async fn check_all(&self) -> Result<(), String> {
        for number in 0..RECORDS {
            self.check(number).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Put(numbers) => {
                let records = numbers.iter().map(|n| record(*n, len_of(*n))).collect();
                let answered = self.store.put(records).await.is_ok();
                self.wrote(numbers, Known::There, answered);
            }
            Step::Remove(numbers) => {
                let ids = numbers.iter().map(|n| record(*n, len_of(*n)).id).collect();
                let answered = self.store.remove(ids).await.is_ok();
                self.wrote(numbers, Known::Gone, answered);
            }
            Step::Get(number) => self.check(*number).await?,
            Step::Reopen => {
                let _ = self.store.close().await;
            }
            Step::Compact => {
                let options = CompactionOptions { dead_percent: 10, bytes_per_s: u64::MAX };
                let _ = self.store.compact(options).await;
                if self.disk.is_powered() {
                    self.check_all().await?;
                }
            }
            Step::Crash => {
                self.reopen(self.disk.crash());
                self.after_crash();
                self.check_all().await?;
            }
            Step::CrashAfter(operations) => self.disk.crash_after(*operations),
            Step::Rot => drop(self.disk.rot()),
            Step::FailWrite => self.disk.fail_writes(1),
            Step::FailSync => self.disk.fail_syncs(1),
        }
        if !self.disk.is_powered() {
            self.reopen(self.disk.crash());
            self.after_crash();
            self.check_all().await?;
        } else if matches!(step, Step::Reopen) || self.store.stats().poisoned {
            self.disk.fail_syncs(0);
            if self.store.stats().poisoned {
                // What an fsync failed for is not on the disk.
                self.after_crash();
            }
            self.reopen(self.disk.clone());
            self.check_all().await?;
        }
        Ok(())
    }
}

fn play(
    seed: u64,
    durability: Durability,
    bug: Option<PlantedBug>,
    lose_syncs: u64,
    steps: &[Step],
) -> Result<(), String> {
    run(seed, |env| async move {
        let rots = steps.iter().any(|step| matches!(step, Step::Rot));
        let mut run = Run::new(seed, env, durability, bug, rots || lose_syncs > 0);
        for step in steps {
            run.disk.lose_syncs(lose_syncs);
            run.step(step).await?;
        }
        run.check_all().await
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_was_acknowledged_survives(
        seed: u64,
        always: bool,
        steps in proptest::collection::vec(step(false), 1..60),
    ) {
        let durability = if always { Durability::Always } else { Durability::Group };
        prop_assert_eq!(play(seed, durability, None, 0, &steps), Ok(()));
    }

    #[test]
    fn nothing_wrong_is_read_whatever_the_disk_does(
        seed: u64,
        durability in 0usize..4,
        lose_syncs in 0u64..60,
        steps in proptest::collection::vec(step(true), 1..60),
    ) {
        let all = [
            Durability::Group, Durability::Always, Durability::EverySecond, Durability::Memory,
        ];
        prop_assert_eq!(play(seed, all[durability], None, lose_syncs, &steps), Ok(()));
    }
}

/// A failed removal was cut off, the cut not synced, the record answered as present; then a power
/// cut brought the removal back.
#[test]
fn a_failed_removal_does_not_come_back() {
    for seed in 0..200 {
        let steps = [
            Step::Put(vec![11]),
            Step::FailWrite,
            Step::Remove(vec![11, 4]),
            Step::Put(vec![11]),
            Step::Crash,
        ];
        assert_eq!(play(seed, Durability::Group, None, 0, &steps), Ok(()), "{seed}");
        let mut steps = steps.to_vec();
        steps.insert(1, Step::Put(vec![4]));
        assert_eq!(play(seed, Durability::Group, None, 0, &steps), Ok(()), "{seed}");
    }
}

/// A workload that a seed decides, small enough to read.
fn workload(seed: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..6 {
        let number = (seed as usize + round * 5) % RECORDS;
        steps.push(Step::CrashAfter((seed + round as u64) % 7));
        steps.push(Step::Put(vec![number, (number + 1) % RECORDS]));
    }
    steps
}

/// The defect that this suite exists to find is found, by this seed, and the same run without it
/// passes.
#[test]
fn acknowledging_before_the_sync_is_found() {
    const SEED: u64 = 4;
    let bug = Some(PlantedBug::AcknowledgeBeforeSync);
    let found = play(SEED, Durability::Group, bug, 0, &workload(SEED));
    assert!(
        found.as_ref().is_err_and(|what| what.contains("acknowledged and is lost")),
        "{found:?}"
    );
    assert_eq!(play(SEED, Durability::Group, None, 0, &workload(SEED)), Ok(()));
}

/// A record that goes to the disk directly, behind a small one of its batch (who pays for it) and where the batch before ended
/// within a page: with the power gone before the fsync, the record is there only with what came before it. Whether it is, and
/// whether there is a hole before both.
async fn cut_before_the_fsync(seed: u64, env: Env) -> (bool, bool) {
    const LOG: &str = "00000001.log";
    let durability = match seed % 3 {
        0 => Durability::Group,
        1 => Durability::Always,
        _ => Durability::EverySecond,
    };
    let options = LogOptions {
        durability,
        segment_bytes_max: 400 << 10,
        reserve_free_bytes: 0,
        ..LogOptions::default()
    };
    let open =
        |disk: &FaultyDisk| LogStore::open(Arc::new(disk.clone()), env.clone(), options).unwrap();
    // Its frame ends 96 to 17 bytes before the first multiple of 4 KiB.
    let before = record(1, 3880 + seed as usize % 80);
    let end = 64 + 56 + before.bytes.len();
    let (pays, large) = (record(2, 300), record(4, 300 << 10));
    let disk = FaultyDisk::new(seed);
    disk.write_directly();
    let store = open(&disk);
    store.put(vec![before.clone()]).await.unwrap();
    disk.open(LOG, false).unwrap().sync().unwrap();
    disk.crash_after(1);
    let put = store.put(vec![pays.clone(), large.clone()]).await;
    assert_eq!(put.is_ok(), durability == Durability::EverySecond, "{seed}");

    let left = disk.crash();
    let bytes = left.bytes(LOG).unwrap();
    let store = open(&left);
    let there = store.get(&large.id).await.unwrap().is_some();
    assert!(!there || store.contains(&pays.id), "{seed}: nobody pays for what is there");
    assert_eq!(store.get(&before.id).await.unwrap().as_ref(), Some(&before), "{seed}");
    assert_eq!(store.recovery().gaps, 0, "{seed}: nothing that was acknowledged is lost");
    // Nor is anything lost by the index file that the segment has once it is full.
    store.put(vec![record(7, 300 << 10)]).await.unwrap();
    store.close().await.unwrap();
    let store = open(&left);
    assert_eq!(store.recovery().gaps, 0, "{seed}");
    // Nor does a scrub find a hole. (These records' ids are no hashes.)
    assert_eq!(store.scrub(u64::MAX).await.unwrap().damaged_ranges, 0, "{seed}");
    (there, there && bytes[end..end + 8] == [0; 8])
}

#[test]
fn what_comes_before_a_large_record_is_not_lost_alone() {
    let found: Vec<(bool, bool)> =
        (0..400).map(|seed| run(seed, |env| cut_before_the_fsync(seed, env))).collect();
    let there = found.iter().filter(|(there, _)| *there).count();
    let behind_a_hole = found.iter().filter(|(_, hole)| *hole).count();
    assert!(there > 20 && behind_a_hole > 5, "{there} records, {behind_a_hole} behind a hole");
}
