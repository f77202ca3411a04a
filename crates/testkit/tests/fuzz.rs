//! Every decoder on the committed corpus, on mutations of it and on random bytes, with a stable compiler.
//! See `testkit::fuzz::driver`.

use testkit::fuzz::{driver, targets};

#[test]
fn every_decoder_holds_on_its_corpus_and_around_it() {
    driver::exercise(targets());
}

#[test]
fn the_corpus_has_the_seeds() {
    driver::has_the_seeds(targets());
}

#[test]
fn cargo_fuzz_has_a_target_for_each() {
    driver::has_a_file_for_each(targets());
}
