//! Every planted bug is found by fixed seeds, by the promise it breaks; the same seeds without it find nothing.

use sim::plan::{Event, Plan};
use sim::trial::{self, Trial};
use sim::{PlantedBug, RunOptions};
use testkit::network::Fault;

/// Seeds that are tried.
const SEEDS: usize = 40;

/// Runs the seeds with the bug until one finds it; which, and what it found.
///
/// Each bug is found by one of the first few. There are more, because a change of the code makes other runs of the same seeds.
fn found_by(bug: PlantedBug, seeds: impl Iterator<Item = u64>) -> Option<(u64, Vec<sim::Finding>)> {
    let options = RunOptions { bug: Some(bug), ..RunOptions::default() };
    let reports = seeds.take(SEEDS).map(|seed| sim::run(seed, options));
    reports.map(|report| (report.seed, report.findings)).find(|(_, found)| !found.is_empty())
}

/// The same by the trials of losses, where stripes are short of holders and holders lie about stripes.
fn is_found_by_trials(bug: PlantedBug, promise: &str) {
    let run = |seed, bug| {
        let options = RunOptions { bug, ..RunOptions::default() };
        trial::run(seed, Trial::Losses, options).findings
    };
    let found = (0..SEEDS as u64).map(|seed| (seed, run(seed, Some(bug))));
    let (seed, findings) = found
        .into_iter()
        .find(|(_, findings)| !findings.is_empty())
        .unwrap_or_else(|| panic!("{bug:?} is not found"));
    println!("{bug:?}: seed {seed}: {findings:#?}");
    let expected = findings.iter().any(|finding| finding.promise == promise);
    assert!(expected, "{bug:?} shows as another promise: {findings:#?}");
    assert_eq!(run(seed, None), [], "it is the bug that was found");
}

/// The same by the trials of a network that keeps itself. Those of this cast alone, where the bug needs one to show.
fn is_found_by_keeping(bug: PlantedBug, only: Option<u64>) {
    let run = |seed, bug| {
        let options = RunOptions { bug, ..RunOptions::default() };
        trial::run(seed, Trial::Keeping, options).findings
    };
    let seeds = (0..).filter(|seed| only.is_none_or(|cast| seed % trial::CASTS == cast));
    let found = seeds.take(SEEDS).map(|seed| (seed, run(seed, Some(bug))));
    let (seed, findings) = found
        .into_iter()
        .find(|(_, findings)| !findings.is_empty())
        .unwrap_or_else(|| panic!("{bug:?} is not found"));
    println!("{bug:?}: seed {seed}: {findings:#?}");
    let expected = findings.iter().any(|finding| finding.promise == "Q3");
    assert!(expected, "{bug:?} shows as another promise: {findings:#?}");
    assert_eq!(run(seed, None), [], "it is the bug that was found");
}

fn is_found(bug: PlantedBug, seeds: impl Iterator<Item = u64>, promises: &[&str]) {
    let (seed, findings) = found_by(bug, seeds).unwrap_or_else(|| panic!("{bug:?} is not found"));
    println!("{bug:?}: seed {seed}: {findings:#?}");
    let expected = findings.iter().any(|finding| promises.contains(&finding.promise));
    assert!(expected, "{bug:?} shows as another promise: {findings:#?}");
    let clean = sim::run(seed, RunOptions::default());
    assert_eq!(clean.findings, [], "it is the bug that was found");
}

#[test]
fn acknowledging_before_the_sync_is_found() {
    is_found(PlantedBug::AcknowledgeBeforeSync, 0.., &["Q2"]);
}

#[test]
fn acknowledging_one_copy_early_is_found() {
    is_found(PlantedBug::AcknowledgeEarly, 0.., &["Q2"]);
}

#[test]
fn believing_a_peer_without_a_proof_is_found() {
    // It takes a peer that changes what it sends.
    let flips = |seed: &u64| {
        let events = Plan::new(*seed).events;
        events.iter().any(|(_, event)| matches!(event, Event::Lie(_, Fault::Flip)))
    };
    is_found(PlantedBug::SkipProof, (0..).filter(flips), &["Q1", "Q2"]);
}

#[test]
fn sealing_an_index_twice_is_found() {
    is_found(PlantedBug::SealTwice, 0.., &["N1"]);
}

#[test]
fn acknowledging_a_stripe_one_fragment_early_is_found() {
    is_found_by_trials(PlantedBug::AcknowledgeStripeEarly, "Q2");
}

#[test]
fn taking_one_fragment_for_another_is_found() {
    is_found_by_trials(PlantedBug::TakeOther, "Q1");
}

#[test]
fn repair_that_is_dropped_on_a_restart_is_found() {
    is_found_by_keeping(PlantedBug::DropRepairOnRestart, None);
}

#[test]
fn one_holder_that_is_counted_twice_is_found() {
    // It takes a loss of several fragments at once.
    is_found_by_keeping(PlantedBug::CountHolderTwice, Some(trial::GEPPETTO));
}

#[test]
fn what_comes_back_after_its_end_is_found() {
    // It takes a peer that returns with what was ended.
    is_found_by_keeping(PlantedBug::ResurrectAfterTombstone, Some(trial::REVENANT));
}

#[test]
fn a_header_that_is_believed_is_found() {
    // It takes an author whose headers lie.
    is_found_by_keeping(PlantedBug::BelieveHeader, Some(trial::POISONER));
}
