//! Every planted bug is found by fixed seeds, by the promise it breaks; the same seeds without it find nothing.

use sim::plan::{Event, Plan};
use sim::trial::{self, Trial};
use sim::{Finding, PlantedBug, RunOptions};
use testkit::network::Fault;

/// Seeds that are tried.
const SEEDS: usize = 40;

/// How a bug shows: by which promise, and by one of these in the words of the finding.
type Sign<'a> = (&'a str, &'a [&'a str]);

fn shows(findings: &[Finding], (promise, words): Sign<'_>) -> bool {
    let has_words = |what: &str| words.iter().any(|words| what.contains(words));
    findings.iter().any(|one| one.promise == promise && has_words(&one.what))
}

/// Runs seeds with the bug until one finds it as it is to be found; the same seed without the bug finds nothing.
///
/// Each bug is found by one of the first few. There are more, because a change of the code makes other runs of the same seeds.
fn is_found_in(
    bug: PlantedBug,
    seeds: impl Iterator<Item = u64>,
    sign: Sign<'_>,
    run: impl Fn(u64, RunOptions) -> sim::Report,
) {
    let mut others = Vec::new();
    for seed in seeds.take(SEEDS) {
        let findings = run(seed, RunOptions { bug: Some(bug), ..RunOptions::default() }).findings;
        if shows(&findings, sign) {
            println!("{bug:?}: seed {seed}: {findings:#?}");
            let clean = run(seed, RunOptions::default());
            return assert_eq!(clean.findings, [], "it is the bug that was found");
        }
        others.extend(findings.into_iter().map(|finding| (seed, finding)));
    }
    panic!("{bug:?} does not show as {sign:?}, but so: {others:#?}");
}

/// By the runs of a whole network.
fn is_found(bug: PlantedBug, seeds: impl Iterator<Item = u64>, sign: Sign<'_>) {
    is_found_in(bug, seeds, sign, sim::run);
}

/// By the trials of losses, where stripes are short of holders and holders lie about stripes.
fn is_found_by_trials(bug: PlantedBug, sign: Sign<'_>) {
    let run = |seed, options| trial::run(seed, Trial::Losses, options);
    is_found_in(bug, 0.., sign, run);
}

/// By the trials of a network that keeps itself. Those of this cast alone, where the bug needs one to show.
fn is_found_by_keeping(bug: PlantedBug, only: Option<u64>, sign: Sign<'_>) {
    let seeds = (0..).filter(|seed| only.is_none_or(|cast| seed % trial::CASTS == cast));
    let run = |seed, options| trial::run(seed, Trial::Keeping, options);
    is_found_in(bug, seeds, sign, run);
}

#[test]
fn acknowledging_before_the_sync_is_found() {
    is_found(PlantedBug::AcknowledgeBeforeSync, 0.., ("Q2", &["and does not have it"]));
}

#[test]
fn acknowledging_before_the_sync_is_found_where_the_network_mends_what_is_lost() {
    // It takes syncs that fail while something is put.
    let sign = ("Q2", &["and does not have it"][..]);
    is_found_by_keeping(PlantedBug::AcknowledgeBeforeSync, Some(trial::HONEST), sign);
}

#[test]
fn acknowledging_one_copy_early_is_found() {
    is_found(PlantedBug::AcknowledgeEarly, 0.., ("Q2", &["a put was answered with"]));
}

#[test]
fn believing_a_peer_without_a_proof_is_found() {
    // It takes a peer that changes what it sends.
    let flips = |seed: &u64| {
        let events = Plan::new(*seed).events;
        events.iter().any(|(_, event)| matches!(event, Event::Lie(_, Fault::Flip)))
    };
    let sign = ("Q1", &["what its author did not make"][..]);
    is_found(PlantedBug::SkipProof, (0..).filter(flips), sign);
}

#[test]
fn opening_pages_without_their_macs_is_found() {
    // As other bytes than there should be, and not as an error.
    is_found(PlantedBug::SkipPageMac, 0.., ("Q1", &["a read gave"]));
}

#[test]
fn sealing_an_index_twice_is_found() {
    is_found(PlantedBug::SealTwice, 0.., ("N1", &["was sealed twice"]));
}

#[test]
fn acknowledging_a_stripe_one_fragment_early_is_found() {
    let sign = ("Q2", &["a put was answered with"][..]);
    is_found_by_trials(PlantedBug::AcknowledgeStripeEarly, sign);
}

#[test]
fn taking_one_fragment_for_another_is_found() {
    is_found_by_trials(PlantedBug::TakeOther, ("Q1", &["what its author did not make"]));
}

#[test]
fn repair_that_is_dropped_on_a_restart_is_found() {
    let sign = ("Q3", &["is not at peer", "at holders of their own"][..]);
    is_found_by_keeping(PlantedBug::DropRepairOnRestart, None, sign);
}

#[test]
fn one_holder_that_is_counted_twice_is_found() {
    // It takes a loss of several fragments at once.
    let sign = ("Q3", &["at holders of their own"][..]);
    is_found_by_keeping(PlantedBug::CountHolderTwice, Some(trial::GEPPETTO), sign);
}

#[test]
fn what_comes_back_after_its_end_is_found() {
    // It takes a peer that returns with what was ended.
    let sign = ("Q3", &["though it is over"][..]);
    is_found_by_keeping(PlantedBug::ResurrectAfterTombstone, Some(trial::REVENANT), sign);
}

#[test]
fn a_header_that_is_believed_is_found() {
    // It takes an author whose headers lie.
    let sign = ("Q3", &["are one attempt"][..]);
    is_found_by_keeping(PlantedBug::BelieveHeader, Some(trial::POISONER), sign);
}
