//! What tests of several crates share: a network without wires, virtual time. A development crate: never shipped.

pub mod crowd;
pub mod disk;
pub mod fuzz;
pub mod golden;
pub mod network;
pub mod overlay;
mod skipped;
pub mod store;
pub mod time;

use std::sync::OnceLock;

pub use skipped::skipped;

/// The folder of the crate whose test runs: as cargo tells the running test, and `compiled` where nobody tells. A clone takes over
/// what another compiled, from a folder that may be gone.
pub fn manifest(compiled: &'static str) -> &'static str {
    static FOLDER: OnceLock<String> = OnceLock::new();
    FOLDER
        .get_or_init(|| std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| compiled.to_owned()))
}

/// [`manifest()`] of the crate that calls it.
#[macro_export]
macro_rules! manifest {
    () => {
        $crate::manifest(env!("CARGO_MANIFEST_DIR"))
    };
}

/// As [`skipped()`], for want of something that `.ci/run` installs.
///
/// # Panics
/// Under `CI=true`, where it has to be there.
pub fn missing(what: &str) {
    let needed = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!needed, "{what}, and `.ci/run` installs it");
    skipped(what);
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    /// What this test has itself do when it runs itself.
    const WISH: &str = "TESTKIT_SKIPS";

    fn again(wish: &str, ci: &str) -> Output {
        let own = std::env::current_exe().expect("this program");
        let name = "tests::what_was_skipped_is_seen_of_a_test_that_passes";
        let mut command = Command::new(own);
        command.args(["--exact", name]).env(WISH, wish).env("CI", ci);
        command.output().expect("it runs")
    }

    #[test]
    fn what_was_skipped_is_seen_of_a_test_that_passes() {
        match std::env::var(WISH).as_deref() {
            Ok("skipped") => return super::skipped("a part"),
            Ok("missing") => return super::missing("a program is not installed"),
            _ => {}
        }
        let told = |wish, ci| {
            let done = again(wish, ci);
            (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
        };
        for ci in ["true", "false"] {
            assert_eq!(told("skipped", ci), (true, "SKIPPED: a part\n".to_owned()));
        }
        let seen = "SKIPPED: a program is not installed\n".to_owned();
        assert_eq!(told("missing", "false"), (true, seen));
        let (passed, _) = told("missing", "true");
        assert!(!passed, "what CI installs is there");
    }
}
