//! This crate's decoders on their corpus and around it. Not in `testkit`: whatever links it would link the committee's engine.

#[path = "fuzz/targets.rs"]
mod targets;

use testkit::fuzz::driver;

#[test]
fn every_decoder_of_the_committee_holds_on_its_corpus_and_around_it() {
    driver::exercise(targets::TARGETS.iter().copied());
}

#[test]
fn the_corpus_has_the_seeds() {
    driver::has_the_seeds(targets::TARGETS.iter().copied());
}

#[test]
fn cargo_fuzz_has_a_target_for_each() {
    driver::has_a_file_for_each(targets::TARGETS.iter().copied());
}
