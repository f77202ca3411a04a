//! With sealing switched off the demonstration's own search finds what was planted, and it fails:
//! so the search of an ordinary build is one that could have found it.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "system/harness.rs"]
mod harness;

use harness::{hold, run};

#[test]
fn the_search_finds_the_markers_when_nothing_is_sealed() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(hold(["demo"]).env("TMPDIR", folder.path())).expect_error(1);
    assert!(outcome.stderr.contains("marker"), "{}", outcome.stderr);
    for planted in ["content", "name"] {
        assert!(outcome.stderr.contains(planted), "{planted}: {}", outcome.stderr);
    }
}
